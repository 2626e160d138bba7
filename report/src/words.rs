//! Words that stand for one of a few values, and may be newer than the program that reads them.

use std::borrow::Cow;

use baton_contract::class::Class;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

/// Declares such words once: the enum and its default, its list `ALL`, the word of each value, their form in JSON, and their schema. A
/// word that this build does not know is kept as it is (`Other`).
macro_rules! words {
    ($(#[doc = $about:literal])* pub enum $name:ident = $default:ident { $($(#[doc = $doc:literal])* $variant:ident = $word:literal,)* }) => {
        $(#[doc = $about])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[doc = $doc])* $variant,)*
            /// A word of a newer build.
            Other(Box<str>),
        }

        impl $name {
            /// All words that this build knows.
            pub const ALL: [Self; [$($word),*].len()] = [$(Self::$variant),*];

            /// Returns the word.
            pub fn word(&self) -> &str {
                match self {
                    $(Self::$variant => $word,)*
                    Self::Other(word) => word,
                }
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::$default
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.word())
            }
        }

        impl From<&str> for $name {
            fn from(word: &str) -> Self {
                match word {
                    $($word => Self::$variant,)*
                    other => Self::Other(other.into()),
                }
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.word())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Words;

                impl serde::de::Visitor<'_> for Words {
                    type Value = $name;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str("a word")
                    }

                    fn visit_str<E>(self, word: &str) -> Result<$name, E> {
                        Ok(word.into())
                    }
                }

                deserializer.deserialize_str(Words)
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({
                    "description": concat!($($about),*).trim(),
                    "type": "string",
                    "oneOf": [$({ "const": $word, "description": concat!($($doc),*).trim() }),*],
                })
            }
        }
    };
}

/// The schema of a class's word.
pub(crate) struct ClassWord;

impl JsonSchema for ClassWord {
    fn schema_name() -> Cow<'static, str> {
        "ClassWord".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "enum": Class::ALL.map(Class::word) })
    }
}
