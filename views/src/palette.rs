//! Colours of programs. No reader has to tell programs apart by colour alone: each has a letter, and from the ninth on a pattern.
//!
//! The colours are Okabe and Ito's, which people with any kind of colour blindness tell apart.

/// The colours, each with black or white for text on it, whichever is legible.
pub const COLOURS: [(&str, &str); 8] = [
    ("#0072b2", "#ffffff"),
    ("#e69f00", "#000000"),
    ("#009e73", "#000000"),
    ("#cc79a7", "#000000"),
    ("#56b4e9", "#000000"),
    ("#d55e00", "#000000"),
    ("#f0e442", "#000000"),
    ("#9a9a9a", "#000000"),
];

/// The number of patterns; a program may also have none.
pub const PATTERNS: usize = 3;

/// The look of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// The index of its colour in [`COLOURS`].
    pub colour: usize,
    /// The pattern over the colour, from 1 to [`PATTERNS`]; 0: none.
    pub pattern: usize,
    /// No other program has these letters.
    pub letters: String,
}

/// Returns the look of the program of this number, counted from 0. Programs with close numbers look different.
pub fn look(number: usize) -> Look {
    let mut letters = Vec::new();
    let mut rest = number;
    loop {
        letters.insert(0, b'A' + (rest % 26) as u8);
        match (rest / 26).checked_sub(1) {
            Some(more) => rest = more,
            None => break,
        }
    }
    let letters = letters.into_iter().map(char::from).collect();
    Look { colour: number % COLOURS.len(), pattern: number / COLOURS.len() % (PATTERNS + 1), letters }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_thousand_programs_have_letters_of_their_own_and_neighbours_have_other_colours() {
        let looks: Vec<Look> = (0..1000).map(look).collect();
        assert_eq!(looks.iter().map(|look| &look.letters).collect::<BTreeSet<_>>().len(), 1000);
        assert_eq!(["A", "Z", "AA"], [0, 25, 26].map(|at: usize| looks[at].letters.as_str()));
        assert!(looks.windows(2).all(|pair| pair[0].colour != pair[1].colour));
        let drawn: BTreeSet<_> = looks[..32].iter().map(|look| (look.colour, look.pattern)).collect();
        assert_eq!(drawn.len(), 32);
    }
}
