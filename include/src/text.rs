//! Text of others' that is shown: names of programs, say.

use alloc::string::String;

/// What a text looks like where it is shown in a line. Nothing in it controls a terminal or changes the order of what stands around
/// it: such characters show as question marks.
pub fn shown(text: &str) -> String {
    text.chars().map(|c| if is_plain(c) { c } else { '?' }).collect()
}

/// Whether a character shows as itself. Besides control characters, those do not that have no width, and those that say in which
/// direction others are written.
fn is_plain(c: char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        && !matches!(c, '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_shown_controls_a_terminal_or_turns_others_round() {
        assert_eq!(shown("train \u{202e}gpj\u{1b}[2J\n\u{9b}\u{2066}x\u{200f}"), "train ?gpj?[2J???x?");
        for name in ["train-7", "Übung (2)", "训练", "تدريب"] {
            assert_eq!(shown(name), name);
        }
    }
}
