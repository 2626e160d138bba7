//! Colours of programs. Nobody has to tell them apart by colour alone: each program has a letter, and from the ninth on a pattern.
//!
//! The colours are Okabe and Ito's, which people with any kind of colour blindness tell apart.

/// The colours, and black or white, whichever can be read on each.
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

/// How many patterns there are beside none.
pub const PATTERNS: usize = 3;

/// How a program is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// Which of [`COLOURS`].
    pub colour: usize,
    /// Which pattern lies over it, from 1 to [`PATTERNS`]; 0: none.
    pub pattern: usize,
    /// No other program has these letters.
    pub letters: String,
}

/// The look of the program of this number, counted from 0. The next ones look different.
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
