//! A message as users see it: a text, and the identifiers at the end of its first line.

use std::fmt;

/// How an identifier begins, and how long it is.
const FIRST: char = 'B';
const LENGTH: usize = 5;

/// A whole message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message(String);

impl Message {
    /// A text that reasons may have been put into, which give their identifiers away.
    pub(crate) fn new(id: &str, text: &str) -> Self {
        let (text, inner) = lifted(text);
        Self::of(&text, &[&[id.to_owned()], inner.as_slice()].concat())
    }

    /// The same, with an identifier of its own only if no reason has one.
    pub(crate) fn around(id: &str, text: &str) -> Self {
        let (lifted, inner) = lifted(text);
        if inner.is_empty() { Self::new(id, text) } else { Self::of(&lifted, &inner) }
    }

    fn of(text: &str, ids: &[String]) -> Self {
        let (first, rest) = text.split_at(text.find('\n').unwrap_or(text.len()));
        Self(format!("{first} [{}]{rest}", ids.join(" ")))
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Message {}

impl From<Message> for String {
    fn from(message: Message) -> Self {
        message.0
    }
}

/// This message. Macros use it, so that only a message goes into the log.
#[doc(hidden)]
pub fn whole(message: Message) -> Message {
    message
}

/// Makes a macro that writes a message to the log, at one level. Its caller depends on `log`, which knows the caller's place.
macro_rules! writes {
    ($dollar:tt $name:ident $level:ident) => {
        /// Writes a message to the log: one of the catalogue by its function's name, or a [`Message`](crate::Message).
        #[macro_export]
        macro_rules! $name {
            ($dollar function:ident ( $dollar($dollar argument:expr),* $dollar(,)? )) => {
                ::log::log!(::log::Level::$level, "{}", $dollar crate::$dollar function($dollar($dollar argument),*))
            };
            ($dollar message:expr) => {
                ::log::log!(::log::Level::$level, "{}", $dollar crate::whole($dollar message))
            };
        }
    };
}

writes!($ error Error);
writes!($ warn Warn);
writes!($ info Info);

/// A text without the identifiers of its first line, and these, each once. A program's output may follow: it stays as it is.
fn lifted(text: &str) -> (String, Vec<String>) {
    let (first, more) = text.split_at(text.find('\n').unwrap_or(text.len()));
    let (mut plain, mut ids, mut rest) = (String::new(), Vec::<String>::new(), first);
    while let Some(at) = rest.find(" [") {
        let (before, found) = rest.split_at(at);
        plain += before;
        match found[2..].split_once(']').filter(|(inner, _)| inner.split(' ').all(is_id)) {
            Some((inner, after)) => {
                for id in inner.split(' ') {
                    if !ids.iter().any(|known| known == id) {
                        ids.push(id.to_owned());
                    }
                }
                rest = after;
            }
            None => {
                plain += " [";
                rest = &found[2..];
            }
        }
    }
    (plain + rest + more, ids)
}

fn is_id(word: &str) -> bool {
    word.len() == LENGTH && word.strip_prefix(FIRST).is_some_and(|digits| digits.bytes().all(|c| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_ends_with_the_identifiers_of_its_message_and_of_its_reasons() {
        let reason = Message::new("B0002", "no room");
        assert_eq!(reason.to_string(), "no room [B0002]");
        let whole = Message::new("B0001", &format!("failed: {reason}; try again"));
        assert_eq!(whole.to_string(), "failed: no room; try again [B0001 B0002]");
        assert_eq!(
            Message::new("B0003", &format!("{whole}, {reason}")).to_string(),
            "failed: no room; try again, no room [B0003 B0001 B0002]"
        );
    }

    #[test]
    fn a_frame_shows_its_identifier_only_where_the_reason_has_none() {
        let reason = Message::new("B0002", "no room");
        assert_eq!(Message::around("B0001", &format!("a file: {reason}")).to_string(), "a file: no room [B0002]");
        assert_eq!(Message::around("B0001", "a file: not there").to_string(), "a file: not there [B0001]");
    }

    #[test]
    fn what_follows_the_first_line_stays_as_it_is() {
        let text = "it failed:\nsaid [B0009]\n";
        assert_eq!(Message::new("B0001", text).to_string(), "it failed: [B0001]\nsaid [B0009]\n");
    }

    #[test]
    fn brackets_of_others_stay() {
        let text = "settings [gpus.0] and [B12] and [Boo] and [";
        assert_eq!(Message::new("B0001", text).to_string(), format!("{text} [B0001]"));
    }
}
