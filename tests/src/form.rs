//! How long a test goes on that could go on for ever.

/// How much is tried of what has no end: rounds, seeds, switches. What is demanded is the same in both forms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// The form that `cargo test` runs.
    Short,
    /// The form that `tests/sets long` runs.
    Long,
}

impl Form {
    /// A number for the short form, or for the long one.
    pub fn of<T>(self, short: T, long: T) -> T {
        match self {
            Self::Short => short,
            Self::Long => long,
        }
    }
}
