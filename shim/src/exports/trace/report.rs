//! Writes the trace: text, or one JSON object a line where the file's name ends in `.json`.

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::ffi::CString;
use std::os::unix::ffi::OsStringExt;

use baton_contract::settings;

use super::sums::SUMS;
use crate::driver::symbols::{COUNT, SYMBOLS};
use crate::sys::user;

/// No file was opened yet in this process.
const UNOPENED: i32 = -1;

/// The trace's destination, by the settings at the first call: later changes of the program's environment or working folder have no
/// effect.
pub(super) struct Output {
    /// The file's full path, in which `%p` stands for the process id; `None` for standard error.
    path: Option<Vec<u8>>,
    json: bool,
    /// The descriptor, kept open between the lines of `calls`.
    file: AtomicI32,
}

impl Output {
    pub(super) fn from_settings() -> Self {
        let path = user::setting(settings::TRACE_FILE).map(|name| {
            let path = std::path::absolute(&name).unwrap_or_else(|_| name.into());
            path.into_os_string().into_vec()
        });
        let json = path.as_ref().is_some_and(|path| path.ends_with(b".json"));
        Self { path, json, file: AtomicI32::new(UNOPENED) }
    }

    /// Closes the file in a forked child: `%p` in the file's name now means another file.
    pub(super) fn forget(&self) {
        let inherited = self.file.swap(UNOPENED, Ordering::Relaxed);
        if inherited > libc::STDERR_FILENO {
            // SAFETY: the child's copy of a descriptor that only this trace uses.
            unsafe { libc::close(inherited) };
        }
    }

    /// One call, as it ended.
    pub(super) fn line(&self, index: usize, at: u64, took: u64, answer: u32) {
        // SAFETY: no arguments.
        let thread = unsafe { libc::gettid() };
        let name = SYMBOLS[index].name();
        let mut line = Line::default();
        // A line that does not fit is cut, never refused.
        let _ = if self.json {
            writeln!(
                line,
                r#"{{"at_nanoseconds": {at}, "thread": {thread}, "symbol": "{name}", "answer": {answer}, "nanoseconds": {took}}}"#
            )
        } else {
            writeln!(line, "{:12.6} {thread} {name} = {answer} ({:.1} us)", at as f64 / 1e9, took as f64 / 1e3)
        };
        write_all(self.file(), &line.bytes[..line.len]);
    }

    /// The sums of all symbols that were called, most time first; empty if none was.
    pub(super) fn sums(&self) {
        let mut rows: Vec<Row> = (0..COUNT)
            .map(|index| {
                let sums = &SUMS[index];
                let read = |value: &AtomicU64| value.load(Ordering::Relaxed);
                let name = SYMBOLS[index].name();
                (name, read(&sums.calls), read(&sums.nanoseconds), read(&sums.longest), read(&sums.errors))
            })
            .filter(|row| row.1 != 0)
            .collect();
        if rows.is_empty() {
            return;
        }
        rows.sort_by(|a, b| b.2.cmp(&a.2).then(a.0.cmp(b.0)));
        let program = std::env::args_os().next().unwrap_or_default();
        let (program, pid) = (program.to_string_lossy(), std::process::id());
        let mut text = String::new();
        let _ = if self.json { json(&mut text, &program, pid, &rows) } else { table(&mut text, &program, pid, &rows) };
        write_all(self.file(), text.as_bytes());
    }

    /// The trace's file: opened once and appended to, since several processes may share it.
    fn file(&self) -> i32 {
        let known = self.file.load(Ordering::Relaxed);
        if known != UNOPENED {
            return known;
        }
        let opened = self.open().unwrap_or(libc::STDERR_FILENO);
        match self.file.compare_exchange(UNOPENED, opened, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => opened,
            Err(earlier) => {
                if opened > libc::STDERR_FILENO {
                    // SAFETY: just opened here, and not kept.
                    unsafe { libc::close(opened) };
                }
                earlier
            }
        }
    }

    fn open(&self) -> Option<i32> {
        let pid = std::process::id().to_string();
        let mut name = Vec::new();
        let mut rest = self.path.as_deref()?;
        while let [first, tail @ ..] = rest {
            if let Some(after) = rest.strip_prefix(b"%p") {
                name.extend(pid.as_bytes());
                rest = after;
            } else {
                name.push(*first);
                rest = tail;
            }
        }
        let path = CString::new(name).ok()?;
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC;
        // SAFETY: a C string, documented flags and a mode.
        let fd = unsafe { libc::open(path.as_ptr(), flags, 0o644) };
        if fd < 0 {
            let error = std::io::Error::last_os_error();
            user::warn(&baton_messages::trace_cannot_be_written(path.to_string_lossy(), error));
            return None;
        }
        Some(fd)
    }
}

type Row = (&'static str, u64, u64, u64, u64);

fn table(text: &mut String, program: &str, pid: u32, rows: &[Row]) -> fmt::Result {
    let calls: u64 = rows.iter().map(|row| row.1).sum();
    writeln!(text, "baton: {program} (process {pid}) made {calls} driver calls")?;
    writeln!(text, "{:>12} {:>12} {:>10} {:>10} {:>8}  symbol", "calls", "total ms", "mean us", "max us", "errors")?;
    for (name, calls, total, longest, errors) in rows {
        let mean = *total as f64 / *calls as f64 / 1e3;
        writeln!(
            text,
            "{calls:>12} {:>12.3} {mean:>10.2} {:>10.1} {errors:>8}  {name}",
            *total as f64 / 1e6,
            *longest as f64 / 1e3
        )?;
    }
    Ok(())
}

fn json(text: &mut String, program: &str, pid: u32, rows: &[Row]) -> fmt::Result {
    write!(text, r#"{{"program": {}, "pid": {pid}, "calls": ["#, Quoted(program))?;
    for (i, (name, calls, total, longest, errors)) in rows.iter().enumerate() {
        let comma = if i == 0 { "" } else { ", " };
        write!(
            text,
            r#"{comma}{{"symbol": "{name}", "calls": {calls}, "nanoseconds": {total}, "max_nanoseconds": {longest}, "errors": {errors}}}"#
        )?;
    }
    writeln!(text, "]}}")
}

/// A JSON string.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                c if c.is_control() => write!(f, "\\u{:04x}", c as u32)?,
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}

fn write_all(fd: i32, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        // SAFETY: the bytes are ours and as many as said.
        let written = unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
        match usize::try_from(written) {
            Ok(0) => return,
            Ok(written) => bytes = &bytes[written..],
            Err(_) if std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted => {}
            // A trace that cannot be written must not stop the program.
            Err(_) => return,
        }
    }
}

/// A line made on the stack and written by one system call, so that threads' lines do not mix and
/// nothing is allocated inside the program's call.
struct Line {
    bytes: [u8; 256],
    len: usize,
}

impl Default for Line {
    fn default() -> Self {
        Self { bytes: [0; 256], len: 0 }
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.len() - self.len;
        let taken = text.len().min(room);
        self.bytes[self.len..][..taken].copy_from_slice(&text.as_bytes()[..taken]);
        self.len += taken;
        if taken < text.len() { Err(fmt::Error) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sums_are_json_whatever_the_program_is_called() {
        let mut text = String::new();
        json(&mut text, "a \"b\"\\\n", 7, &[("cuInit", 1, 1500, 1500, 0), ("cuMemAlloc_v2", 2, 9, 5, 1)])
            .expect("fits");
        assert_eq!(
            text,
            "{\"program\": \"a \\\"b\\\"\\\\\\u000a\", \"pid\": 7, \"calls\": [{\"symbol\": \"cuInit\", \"calls\": 1, \"nanoseconds\": 1500, \
             \"max_nanoseconds\": 1500, \"errors\": 0}, {\"symbol\": \"cuMemAlloc_v2\", \"calls\": 2, \"nanoseconds\": 9, \
             \"max_nanoseconds\": 5, \"errors\": 1}]}\n"
        );
    }
}
