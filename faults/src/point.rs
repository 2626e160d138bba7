//! The names of points.

use core::fmt::{self, Debug, Write as _};

/// The longest name, in bytes.
pub(crate) const LONGEST: usize = 56;

/// A point's name, made without allocating: hooks reach points too.
#[derive(Clone, Copy)]
pub(crate) struct Name {
    bytes: [u8; LONGEST],
    length: usize,
}

/// Takes the kind from a `Debug` form: of `Memory(Map { batch: 1, .. })` that is `Map`, and of `Frame(3)` it is `Frame`.
struct Reader<'a> {
    name: &'a mut Name,
    start: usize,
    /// The next word may be the kind of what is inside.
    goes_inside: bool,
}

impl fmt::Write for Reader<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for letter in text.chars() {
            match letter {
                '(' => self.goes_inside = true,
                letter if letter.is_ascii_uppercase() || is_of_name(letter) && !self.goes_inside => {
                    if std::mem::take(&mut self.goes_inside) {
                        self.name.length = self.start;
                    }
                    self.name.push(letter as u8);
                }
                // The rest is of no interest.
                _ => return Err(fmt::Error),
            }
        }
        Ok(())
    }
}

fn is_of_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

impl Name {
    pub(crate) fn of(doing: &str, thing: &dyn Debug) -> Self {
        let mut name = Self { bytes: [0; LONGEST], length: 0 };
        doing.bytes().for_each(|byte| name.push(byte));
        name.push(b' ');
        let start = name.length;
        // It ends with an error when the kind is known.
        let _ = write!(Reader { name: &mut name, start, goes_inside: false }, "{thing:?}");
        name
    }

    fn push(&mut self, byte: u8) {
        if self.length < LONGEST {
            self.bytes[self.length] = byte;
            self.length += 1;
        }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.bytes[..self.length].trim_ascii_end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(dead_code, reason = "shown by Debug")]
    #[derive(Debug)]
    enum Message {
        Memory(Command),
        Frame(u32),
        Place,
    }

    #[derive(Debug)]
    enum Command {
        #[expect(dead_code, reason = "shown by Debug")]
        Map {
            batch: u32,
        },
        Gone,
    }

    #[test]
    fn a_name_has_the_kind_and_nothing_else() {
        let name = |thing: &dyn Debug| String::from_utf8(Name::of("tells", thing).as_bytes().to_vec()).expect("ASCII");
        assert_eq!(name(&Message::Memory(Command::Map { batch: 1 })), "tells Map");
        assert_eq!(name(&Command::Gone), "tells Gone");
        assert_eq!(name(&Message::Memory(Command::Gone)), "tells Gone");
        assert_eq!(name(&Message::Place), "tells Place");
        assert_eq!(name(&Message::Frame(3)), "tells Frame");
        assert_eq!(name(&format_args!("{}", "Place")), "tells Place");
        assert_eq!(name(&crate::Kind::of(&Message::Memory(Command::Map { batch: 1 }))), "tells Map");
    }
}
