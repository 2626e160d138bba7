//! The urgency of a tenant's work.

use core::fmt;
use core::str::FromStr;

/// A tenant's class. Ordered by urgency: the most urgent class compares as the smallest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// A user waits for each answer: served before all others.
    Latency,
    /// The class of a program that names none.
    #[default]
    Normal,
    /// Runs when no other class has work.
    Batch,
}

impl Class {
    /// All classes, most urgent first.
    pub const ALL: [Self; 3] = [Self::Latency, Self::Normal, Self::Batch];

    /// The word that users write.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Normal => "normal",
            Self::Batch => "batch",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// A word that names no class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownClass;

impl fmt::Display for UnknownClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        baton_messages::no_such_class().fmt(f)
    }
}

impl core::error::Error for UnknownClass {}

impl FromStr for Class {
    type Err = UnknownClass;

    fn from_str(word: &str) -> Result<Self, UnknownClass> {
        Self::ALL.into_iter().find(|class| class.word() == word).ok_or(UnknownClass)
    }
}
