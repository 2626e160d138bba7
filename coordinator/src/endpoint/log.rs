//! The log file of a coordinator without a terminal.

use std::fs::File;
use std::io::Seek as _;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::folder::{Folder, Unfit, name, unfit};

/// Opens the log file of a coordinator without a terminal.
///
/// # Errors
///
/// When the file cannot be made.
pub fn log_file(socket: &Path) -> Result<(File, PathBuf), Unfit> {
    let path = socket.with_extension("log");
    let mut file = Folder::of_socket(socket)?.file(name(&path))?;
    file.seek(std::io::SeekFrom::End(0)).map_err(|error| unfit(&path, error))?;
    // A process that inherits it appends, even beside others.
    rustix::fs::fcntl_setfl(&file, OFlags::APPEND).map_err(|error| unfit(&path, error))?;
    Ok((file, path))
}

/// Sets the file of standard error aside, if it is the log of a coordinator at this socket, and large. Standard error is a new file
/// from then on. If that is not possible, the file is emptied.
pub fn put_large_log_aside(socket: &Path, large: u64) {
    let path = socket.with_extension("log");
    let error = std::io::stderr();
    let (Ok(found), Ok(named)) = (rustix::fs::fstat(&error), rustix::fs::lstat(&path)) else { return };
    let is_it = (found.st_dev, found.st_ino) == (named.st_dev, named.st_ino);
    if !is_it || u64::try_from(found.st_size).unwrap_or(0) < large {
        return;
    }
    let put_aside = || -> Result<(), Unfit> {
        let folder = Folder::of_socket(socket)?;
        let told = |error| unfit(&path, error);
        folder.rename(name(&path), name(&socket.with_extension("log.1")))?;
        let (file, _) = log_file(socket)?;
        let is_output = rustix::fs::fstat(std::io::stdout()).is_ok_and(|output| output.st_ino == found.st_ino);
        if is_output {
            rustix::stdio::dup2_stdout(&file).map_err(told)?;
        }
        rustix::stdio::dup2_stderr(&file).map_err(told)
    };
    if put_aside().is_err() {
        let _ = rustix::fs::ftruncate(&error, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    /// Standard error belongs to a process: the other half of this test is a process that has its log there.
    #[test]
    fn a_log_that_is_large_is_put_aside_and_what_is_said_from_then_on_is_in_a_new_one() {
        const LARGE: u64 = 10_000;
        const LINES: usize = 300;
        if let Some(socket) = std::env::var_os("BATON_TEST_SOCKET") {
            for number in 0..LINES {
                put_large_log_aside(Path::new(&socket), LARGE);
                eprintln!("line {number} {}", "x".repeat(90));
            }
            return;
        }
        let name =
            "endpoint::log::tests::a_log_that_is_large_is_put_aside_and_what_is_said_from_then_on_is_in_a_new_one";
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("s.sock");
        let (file, path) = log_file(&socket).expect("a file");
        let mut command = std::process::Command::new(std::env::current_exe().expect("a running test has a file"));
        command.args(["--exact", name, "--nocapture"]).env("BATON_TEST_SOCKET", &socket);
        let ended = command.stdout(std::process::Stdio::null()).stderr(file).status().expect("it can be run");
        assert!(ended.success());
        let numbers = |path: &Path| -> Vec<usize> {
            let found = std::fs::metadata(path).expect("a file");
            assert!(found.size() < LARGE + 200 && found.mode() & 0o077 == 0, "{found:?}");
            let text = std::fs::read_to_string(path).expect("a file");
            let number = |line: &str| line.split(' ').nth(1)?.parse().ok();
            text.lines().filter_map(number).collect()
        };
        let mut last = numbers(&socket.with_extension("log.1"));
        last.extend(numbers(&path));
        assert!(last.len() > 100, "{last:?}");
        assert_eq!(last, (LINES - last.len()..LINES).collect::<Vec<_>>(), "all of the last, in order");
        assert_eq!(folder.path().read_dir().expect("a folder").count(), 2);
    }
}
