//! How long a test goes on that could go on for ever.

/// The extent of endless tests: rounds, seeds, switches. Both forms demand the same.
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
