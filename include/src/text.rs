//! Text from others that is shown, such as names of programs.

use alloc::string::String;

/// Makes a text safe to show in a line. No character in it controls a terminal or changes the order of the text around it: such
/// characters become question marks.
pub fn shown(text: &str) -> String {
    text.chars().map(|c| if is_plain(c) { c } else { '?' }).collect()
}

/// True if a character shows as itself. Control characters do not, nor do characters without width, and those that set the direction of
/// others.
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
