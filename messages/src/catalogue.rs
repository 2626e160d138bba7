//! The products of the declarations: functions, and a catalogue for documents.

/// Messages that appear in one place: a chapter of docs/troubleshooting.md.
#[derive(Debug)]
pub struct Group {
    /// The chapter's heading.
    pub title: &'static str,
    /// The text before its messages.
    pub opening: &'static str,
    /// Its parts.
    pub sections: &'static [Section],
}

/// A part of a group.
#[derive(Debug)]
pub struct Section {
    /// Its heading; empty if it has none.
    pub title: &'static str,
    /// The text before its messages.
    pub opening: &'static str,
    /// Its messages.
    pub topics: &'static [Topic],
}

/// Messages with one cause and one remedy.
#[derive(Debug)]
pub struct Topic {
    /// The messages.
    pub entries: &'static [Entry],
    /// Why they appear.
    pub cause: &'static str,
    /// The remedy; empty if there is nothing to do.
    pub remedy: &'static str,
}

/// A message.
#[derive(Debug)]
pub struct Entry {
    /// Its identifier, which never changes and is never used again.
    pub id: &'static str,
    /// The name of the function that makes it.
    pub name: &'static str,
    /// Its text, with names in braces for what differs.
    pub template: &'static str,
}

impl Entry {
    /// The text, with `…` for what differs.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut rest = self.template;
        while let Some((before, after)) = rest.split_once('{') {
            text += before;
            text.push('…');
            rest = after.split_once('}').map_or("", |(_, rest)| rest);
        }
        text + rest
    }

    /// The entry as a line of a list: its identifier and its text.
    pub fn line(&self) -> String {
        format!("{}  {}", self.id, self.text().trim().replace('\n', "\n       "))
    }
}

static CATALOGUE: [&Group; 16] = [
    &crate::general::GROUP,
    &crate::run::GROUP,
    &crate::places::GROUP,
    &crate::program::GROUP,
    &crate::start::GROUP,
    &crate::log::GROUP,
    &crate::page::GROUP,
    &crate::steer::GROUP,
    &crate::views::GROUP,
    &crate::records::GROUP,
    &crate::containers::GROUP,
    &crate::doctor::GROUP,
    &crate::outsiders::GROUP,
    &crate::demo::GROUP,
    &crate::driver::GROUP,
    &crate::contract::GROUP,
];

/// All messages, in the order of their identifiers.
pub fn catalogue() -> &'static [&'static Group] {
    &CATALOGUE
}

/// Every message, with those that share its cause and remedy.
pub(crate) fn all() -> impl Iterator<Item = (&'static Entry, &'static Topic)> {
    let topics = catalogue().iter().flat_map(|group| group.sections).flat_map(|section| section.topics);
    topics.flat_map(|topic| topic.entries.iter().map(move |entry| (entry, topic)))
}

/// The message with this identifier, in whatever case and with or without brackets.
pub fn find(id: &str) -> Option<(&'static Entry, &'static Topic)> {
    let id = plain(id);
    all().find(|(entry, _)| entry.id == id)
}

/// The identifier that comes closest to a word.
pub fn nearest(word: &str) -> &'static str {
    let digits = |word: &str| word.chars().filter(char::is_ascii_digit).collect::<String>().parse().unwrap_or(0_u32);
    let wanted = digits(word);
    all().min_by_key(|(entry, _)| digits(entry.id).abs_diff(wanted)).map_or("", |(entry, _)| entry.id)
}

/// Each paragraph cut between words, so that no line has more characters than `width`. Lines that follow each other are one; the last
/// one ends too.
pub fn wrapped(text: &str, width: usize) -> String {
    let mut out = String::new();
    for paragraph in text.split("\n\n") {
        let mut length = 0;
        for word in paragraph.split_whitespace() {
            let is_first = length == 0;
            length += word.chars().count() + 1;
            if is_first {
                out += if out.is_empty() { "" } else { "\n" };
            } else if length > width {
                out.push('\n');
                length = word.chars().count() + 1;
            } else {
                out.push(' ');
            }
            out += word;
        }
        out.push('\n');
    }
    out
}

fn plain(word: &str) -> String {
    word.trim_matches(['[', ']', ' ']).to_uppercase()
}

/// Declares the messages of a group.
macro_rules! group {
    (
        $title:literal; $opening:literal;
        $(
            section $section:literal; $said:literal;
            $(
                topic {
                    $( $kind:ident $id:ident $name:ident $( ( $($argument:ident),* ) )? = $text:literal; )+
                }
                cause $cause:literal;
                $( remedy $remedy:literal; )?
            )*
        )*
    ) => {
        pub(crate) static GROUP: $crate::catalogue::Group = $crate::catalogue::Group {
            title: $title,
            opening: $opening,
            sections: &[$(
                $crate::catalogue::Section {
                    title: $section,
                    opening: $said,
                    topics: &[$(
                        $crate::catalogue::Topic {
                            entries: &[$(
                                $crate::catalogue::Entry {
                                    id: stringify!($id),
                                    name: stringify!($name),
                                    template: $text,
                                },
                            )+],
                            cause: $cause,
                            remedy: concat!($( $remedy )?),
                        },
                    )*],
                },
            )*],
        };
        $($($(
            $crate::catalogue::entry!($kind $id $name $( ( $($argument),* ) )? $text);
        )+)*)*
    };
}

/// Makes what call sites use of one message.
macro_rules! entry {
    (message $id:ident $name:ident ( $($argument:ident),* ) $text:literal) => {
        #[doc = concat!(stringify!($id), ": `", $text, "`")]
        pub fn $name($($argument: impl std::fmt::Display),*) -> $crate::Message {
            $crate::Message::new(stringify!($id), &format!($text))
        }
    };
    (around $id:ident $name:ident ( $($argument:ident),* ) $text:literal) => {
        #[doc = concat!(stringify!($id), ": `", $text, "`")]
        pub fn $name($($argument: impl std::fmt::Display),*) -> $crate::Message {
            $crate::Message::around(stringify!($id), &format!($text))
        }
    };
    (part $id:ident $name:ident ( $($argument:ident),* ) $text:literal) => {
        #[doc = concat!(stringify!($id), ": `", $text, "`")]
        pub fn $name($($argument: impl std::fmt::Display),*) -> String {
            format!($text)
        }
    };
    (part $id:ident $name:ident $text:literal) => {
        #[doc = concat!(stringify!($id), ": `", $text, "`")]
        pub const $name: &str = $text;
    };
}

pub(crate) use {entry, group};
