//! The output of commands, and the files that they write: it arrives whole, or the command fails.

use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::Path;

/// Prints to standard output. If its reader has gone, the process ends here, in silence.
use baton_messages::Message;

/// Prints to standard output. If its reader has gone, the process ends here, in silence.
///
/// # Errors
///
/// When the text cannot be written whole.
pub fn print(text: &str) -> io::Result<()> {
    print_with(|out| out.write_all(text.as_bytes()))
}

/// Prints a text that is written piece by piece.
///
/// # Errors
///
/// Errors of [`print()`], and of `write`.
pub fn print_with(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    match write(&mut out).and_then(|()| out.flush()) {
        // The exit code is that of a signal, which a server ignores.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(128 + libc::SIGPIPE),
        written => written.map_err(|error| about(&error, baton_messages::output_is_full("standard output", &error))),
    }
}

/// Prints a remark on standard error. A failure is ignored, because there is nowhere to report it.
pub fn remark(message: &Message) {
    let _ = io::stderr().write_fmt(format_args!("{message}\n"));
}

/// Prints a message of a command, after its name.
pub fn say(command: &str, message: impl Into<Message>) {
    remark(&baton_messages::of_command(command, message.into()));
}

/// Quotes a word for a shell.
pub fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.into_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Prints piece by piece beside work that goes on in any case, and keeps the first error.
#[derive(Default)]
pub struct Meanwhile(Cell<Option<io::Error>>);

impl Meanwhile {
    /// Prints one piece, unless an earlier one has failed.
    pub fn print(&self, text: &str) {
        let before = self.0.take().map_or(Ok(()), Err);
        self.0.set(before.and_then(|()| print(text)).err());
    }

    /// Returns the outcome so far.
    ///
    /// # Errors
    ///
    /// The first error.
    pub fn went(&self) -> io::Result<()> {
        self.0.take().map_or(Ok(()), Err)
    }
}

/// Writes a file of results. The file is written beside its place and moved there when it is whole: after an error, the old file is
/// still there. A pipe or device is written directly.
///
/// # Errors
///
/// Errors name the path.
pub fn write_file(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let said = |error: io::Error| about(&error, baton_messages::of_path(path.display(), &error));
    // A link stays a link.
    let target = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let there = fs::metadata(&target).ok();
    if there.as_ref().is_some_and(|there| !there.is_file()) {
        let file = File::options().write(true).open(&target).map_err(said)?;
        return filled(file, write).map(drop).map_err(said);
    }
    let mut name = OsString::from(".");
    name.push(target.file_name().unwrap_or_default());
    name.push(format!(".{}", std::process::id()));
    let beside = target.with_file_name(name);
    // An earlier process of the same number may have left this file.
    let _ = fs::remove_file(&beside);
    let file = File::options().write(true).create_new(true).open(&beside).map_err(said)?;
    let rights = there.map_or(Ok(()), |there| file.set_permissions(there.permissions()));
    // Some file systems report a lack of room only at `sync_all`.
    let whole = rights.and_then(|()| filled(file, write)).and_then(|file| file.sync_all());
    whole.and_then(|()| fs::rename(&beside, &target)).map_err(|error| {
        let _ = fs::remove_file(&beside);
        about(&error, baton_messages::file_is_as_it_was(path.display(), &error))
    })
}

fn filled(file: File, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<File> {
    let mut out = BufWriter::new(file);
    write(&mut out)?;
    Ok(out.into_inner()?)
}

/// An error of the same kind, as this message.
fn about(error: &io::Error, message: Message) -> io::Error {
    io::Error::new(error.kind(), message)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn text_of(path: &Path) -> Option<String> {
        fs::read_to_string(path).ok()
    }

    #[test]
    fn a_file_that_fails_in_the_middle_is_as_it_was_and_nothing_lies_beside_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("result");
        let cut = |out: &mut dyn Write| {
            out.write_all(&[b'x'; 100_000])?;
            Err(ErrorKind::StorageFull.into())
        };
        let error = write_file(&path, cut).expect_err("it fails").to_string();
        assert!(error.starts_with(&path.display().to_string()) && error.contains("nothing was written"), "{error}");
        assert_eq!(fs::read_dir(folder.path()).expect("ours").count(), 0);
        fs::write(&path, "before").expect("ours");
        write_file(&path, cut).expect_err("it fails");
        assert_eq!(text_of(&path).as_deref(), Some("before"));
        assert_eq!(fs::read_dir(folder.path()).expect("ours").count(), 1);
    }

    #[test]
    fn a_file_that_is_replaced_keeps_its_rights() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("result");
        fs::write(&path, "before").expect("ours");
        fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).expect("ours");
        write_file(&path, |out| out.write_all(b"after")).expect("there is room");
        assert_eq!(text_of(&path).as_deref(), Some("after"));
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o640);
    }

    #[test]
    fn of_what_is_printed_meanwhile_the_first_failure_is_kept() {
        let meanwhile = Meanwhile(Cell::new(Some(ErrorKind::StorageFull.into())));
        meanwhile.print("not any more");
        assert_eq!(meanwhile.went().expect_err("it had failed").kind(), ErrorKind::StorageFull);
        assert!(meanwhile.went().is_ok());
    }
}
