//! Settings with a few possible values, which are enums of other crates. Those crates know neither `clap` nor `serde`: their values have
//! words here.

use baton_contract::class::Class;
use baton_coordinator::server::{Isolation, Pipeline, Stuck};
use clap::builder::{MapValueParser, PossibleValue, PossibleValuesParser, TypedValueParser as _, ValueParserFactory};
use log::LevelFilter;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// One of the values of an enum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OneOf<T>(pub T);

/// An enum whose values users can choose.
pub trait Choice: Copy + PartialEq + Send + Sync + 'static {
    /// The values, each with its word and its help.
    const ALL: &'static [(Self, &'static str, &'static str)];
}

impl Choice for Isolation {
    const ALL: &'static [(Self, &'static str, &'static str)] =
        &[(Self::Users, "users", "Between users"), (Self::Strict, "strict", "Between all programs")];
}

impl Choice for Stuck {
    const ALL: &'static [(Self, &'static str, &'static str)] =
        &[(Self::Wait, "wait", "Others wait for it"), (Self::Kill, "kill", "It is killed")];
}

/// The best class that another user's program may have.
impl Choice for Class {
    const ALL: &'static [(Self, &'static str, &'static str)] = &[
        (Self::Latency, Self::Latency.word(), "Any"),
        (Self::Normal, Self::Normal.word(), "All but latency"),
        (Self::Batch, Self::Batch.word(), "Only this one"),
    ];
}

impl Choice for Pipeline {
    const ALL: &'static [(Self, &'static str, &'static str)] = &[
        (Self::Groups, "groups", "In groups, planned from the order of first use"),
        (Self::Extents, "extents", "Each extent by itself"),
        (Self::One, "one", "All in one group"),
        (Self::Off, "off", "Not at all: they run when all is there"),
    ];
}

impl Choice for LevelFilter {
    const ALL: &'static [(Self, &'static str, &'static str)] = &[
        (Self::Error, "error", "Failures that keep the coordinator from its work"),
        (Self::Warn, "warn", "Also problems that slow programs down or make them fail"),
        (Self::Info, "info", "Also programs that come and go"),
        (Self::Debug, "debug", "Also the reasons of decisions"),
    ];
}

impl<T: Choice> OneOf<T> {
    /// Returns the value with this word.
    fn of(word: &str) -> Option<Self> {
        T::ALL.iter().find(|(_, its, _)| *its == word).map(|(value, ..)| Self(*value))
    }

    /// The word of this value; none if users cannot choose it.
    fn word(self) -> Option<&'static str> {
        T::ALL.iter().find(|(value, ..)| *value == self.0).map(|(_, word, _)| *word)
    }
}

impl<T: Choice> ValueParserFactory for OneOf<T> {
    type Parser = MapValueParser<PossibleValuesParser, fn(String) -> Self>;

    fn value_parser() -> Self::Parser {
        let possible = T::ALL.iter().map(|(_, word, help)| PossibleValue::new(*word).help(*help));
        PossibleValuesParser::new(possible).map(|word| Self::of(&word).expect("one of the possible words"))
    }
}

impl<T: Choice> Serialize for OneOf<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word().ok_or_else(|| serde::ser::Error::custom("users cannot choose this"))?)
    }
}

impl<'de, T: Choice> Deserialize<'de> for OneOf<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        Self::of(&word).ok_or_else(|| {
            let words: Vec<String> = T::ALL.iter().map(|(_, word, _)| format!("`{word}`")).collect();
            let expected = match words.as_slice() {
                [one, other] => format!("{one} or {other}"),
                all => format!("one of {}", all.join(", ")),
            };
            D::Error::custom(format_args!("unknown variant `{word}`, expected {expected}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use serde::de::IntoDeserializer as _;
    use serde::de::value::{Error, StrDeserializer};

    use super::*;

    /// Deserializes a word.
    fn read<T: Choice>(word: &str) -> Result<OneOf<T>, String> {
        let deserializer: StrDeserializer<'_, Error> = word.into_deserializer();
        OneOf::deserialize(deserializer).map_err(|error| error.to_string())
    }

    #[test]
    fn every_value_is_read_by_its_word_and_others_are_refused_with_the_possible_words() {
        assert_eq!(read("strict"), Ok(OneOf(Isolation::Strict)));
        for (level, word, _) in LevelFilter::ALL {
            assert_eq!((read(word), OneOf(*level).word()), (Ok(OneOf(*level)), Some(*word)));
        }
        let refused = |error: Result<_, String>, expected: &str| {
            assert_eq!(error, Err(format!("unknown variant `x`, expected {expected}")));
        };
        refused(read::<Isolation>("x").map(drop), "`users` or `strict`");
        refused(read::<Class>("x").map(drop), "one of `latency`, `normal`, `batch`");
        assert_eq!(OneOf(LevelFilter::Trace).word(), None);
    }

    #[test]
    fn all_classes_can_be_chosen() {
        assert_eq!(Class::ALL.map(|class| OneOf(class).word()), Class::ALL.map(|class| Some(class.word())));
    }
}
