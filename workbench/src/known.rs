//! The programs' first results, to compare later results with.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Results by program, and by the number of the answer or piece of work.
#[derive(Debug, Default)]
pub(crate) struct Known(BTreeMap<(&'static str, u64), String>);

impl Known {
    /// True if a program has computed the same as at first, where that is known.
    pub(crate) fn agrees(&mut self, program: &'static str, computed: impl IntoIterator<Item = (u64, String)>) -> bool {
        let mut same = true;
        for (number, found) in computed {
            match self.0.entry((program, number)) {
                Entry::Vacant(place) => {
                    place.insert(found);
                }
                Entry::Occupied(known) => same &= *known.get() == found,
            }
        }
        same
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_differs_from_the_first_of_its_number_is_seen() {
        let mut known = Known::default();
        let answers = |second: &str| (0..).zip(["a".to_owned(), second.to_owned()]);
        assert!(known.agrees("server", answers("b")));
        assert!(known.agrees("training", answers("c")), "each has its own");
        assert!(known.agrees("server", answers("b").take(1)));
        assert!(!known.agrees("server", answers("c")));
    }
}
