//! Tokens: a reader who knows one may see the content behind it.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use baton_messages::Message;
use rustix::process::geteuid;
use subtle::ConstantTimeEq;

/// Minimum length of a token; a shorter one could be guessed.
const LEAST: usize = 16;
/// Maximum length of a token; no user writes a longer one.
const MOST: usize = 1024;
/// Random bytes in a new token.
const DRAWN: usize = 24;

/// A secret text.
#[derive(Clone)]
pub struct Token(String);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

/// The reason why a file's token is not used, in the user's words.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct NoToken(#[from] Message);

impl Token {
    /// Makes a new token.
    ///
    /// # Errors
    ///
    /// If the system gives no random numbers.
    pub fn drawn() -> io::Result<Self> {
        let mut bytes = [0; DRAWN];
        let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
        assert_eq!(got, DRAWN, "the system gives up to 256 bytes at once");
        Ok(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// Reads the token in a file, which others must not be able to read.
    ///
    /// # Errors
    ///
    /// If others can read it, or it contains no token.
    pub fn of_file(path: &Path) -> Result<Self, NoToken> {
        let told = |error: &io::Error| NoToken(baton_messages::of_path(path.display(), error));
        let mut file = File::open(path).map_err(|error| told(&error))?;
        let found = file.metadata().map_err(|error| told(&error))?;
        let owner = found.uid();
        if owner != 0 && owner != geteuid().as_raw() {
            return Err(baton_messages::token_of_another(path.display(), owner).into());
        }
        if found.mode() & 0o077 != 0 {
            let mode = found.mode() & 0o7777;
            return Err(baton_messages::token_is_open(path.display(), format_args!("{mode:o}")).into());
        }
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(|error| told(&error))?;
        let token = text.trim();
        if !(LEAST..=MOST).contains(&token.len()) || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(baton_messages::is_no_token(path.display(), LEAST, MOST).into());
        }
        Ok(Self(token.to_owned()))
    }

    /// True if the text is this token. The comparison takes the same time wherever they differ.
    pub fn is(&self, said: &str) -> bool {
        self.0.as_bytes().ct_eq(said.as_bytes()).into()
    }

    /// The token's text, to be shown to the user who started the coordinator.
    pub fn text(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_token_is_itself_and_nothing_else() {
        let (one, other) = (Token::drawn().expect("random numbers"), Token::drawn().expect("random numbers"));
        assert!(one.is(one.text()) && one.text().len() == 2 * DRAWN);
        for wrong in [other.text(), "", &one.text()[1..], &format!("{}0", one.text())] {
            assert!(!one.is(wrong), "{wrong}");
        }
        assert!(!format!("{one:?}").contains(one.text()), "it is in no log");
    }

    #[test]
    fn a_file_that_others_can_read_or_that_has_no_token_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        let written = |text: &str, mode: u32| {
            fs::write(&path, text).expect("a file");
            fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("ours");
            Token::of_file(&path)
        };
        assert!(written("0123456789abcdef\n", 0o600).expect("a token").is("0123456789abcdef"));
        for (text, mode, said) in [
            ("0123456789abcdef", 0o644, "chmod 600"),
            ("short", 0o600, "a token is one word"),
            ("two words of a file", 0o600, "a token is one word"),
            (&"x".repeat(MOST + 1), 0o600, "a token is one word"),
        ] {
            assert!(written(text, mode).expect_err(said).to_string().contains(said));
        }
        assert!(Token::of_file(&folder.path().join("none")).is_err());
    }
}
