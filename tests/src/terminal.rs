//! A program on a terminal of its own, and what stands on its screen.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::num::NonZero;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::LIMIT;

/// The program and its terminal.
pub struct Terminal {
    child: Child,
    ours: File,
    screen: Arc<Mutex<vt100::Parser>>,
}

fn size(rows: u16, columns: u16) -> libc::winsize {
    libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

fn some(size: u16) -> NonZero<u16> {
    NonZero::new(size).expect("a terminal has a size")
}

impl Terminal {
    /// Starts a program on a terminal of this size.
    pub fn start(command: &mut Command, rows: u16, columns: u16) -> Self {
        let (mut ours, mut theirs) = (-1, -1);
        let window = size(rows, columns);
        // SAFETY: locals that live over the call; no name and no settings are asked for.
        let opened = unsafe {
            libc::openpty(&raw mut ours, &raw mut theirs, std::ptr::null_mut(), std::ptr::null(), &raw const window)
        };
        assert_eq!(opened, 0, "{}", std::io::Error::last_os_error());
        // SAFETY: both are new, and have no other owner.
        let (ours, theirs) = unsafe { (File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) };
        let copy = || Stdio::from(theirs.try_clone().expect("a descriptor"));
        command.stdin(copy()).stdout(copy()).stderr(copy()).env("TERM", "xterm-256color");
        // SAFETY: both may be called between fork and exec. Its input becomes its terminal.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                libc::ioctl(0, libc::TIOCSCTTY, 0);
                Ok(())
            });
        }
        let child = command.spawn().expect("it can be started");
        // The end of the last of theirs ends what we read.
        drop(theirs);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let screen = Arc::new(Mutex::new(vt100::Parser::new(some(rows), some(columns), 0)));
        let (mut read, parser) = (ours.try_clone().expect("a descriptor"), Arc::clone(&screen));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = read.read(&mut bytes) {
                parser.lock().expect("no panic").process(&bytes[..count]);
            }
        });
        Self { child, ours, screen }
    }

    /// Types these keys.
    pub fn keys(&mut self, keys: &str) {
        self.ours.write_all(keys.as_bytes()).expect("it reads");
    }

    /// Another size.
    pub fn resize(&mut self, rows: u16, columns: u16) {
        self.screen.lock().expect("no panic").screen_mut().set_size(some(rows), some(columns));
        let window = size(rows, columns);
        // SAFETY: a terminal, and a local that lives over the call.
        assert_eq!(unsafe { libc::ioctl(self.ours.as_raw_fd(), libc::TIOCSWINSZ, &raw const window) }, 0);
    }

    /// The lines of the screen.
    pub fn lines(&self) -> Vec<String> {
        let parser = self.screen.lock().expect("no panic");
        let width = parser.screen().size().1.get();
        parser.screen().rows(0, width).map(|line| line.trim_end().to_owned()).collect()
    }

    /// True if any cell has a colour.
    pub fn has_color(&self) -> bool {
        let parser = self.screen.lock().expect("no panic");
        let (rows, columns) = parser.screen().size();
        let is_colored =
            |row, column| parser.screen().cell(row, column).is_some_and(|cell| cell.bgcolor() != vt100::Color::Default);
        (0..rows.get()).any(|row| (0..columns.get()).any(|column| is_colored(row, column)))
    }

    /// Waits until the screen is as wanted.
    #[track_caller]
    pub fn until(&self, what: &str, wanted: impl Fn(&[String]) -> bool) -> Vec<String> {
        let end = Instant::now() + LIMIT;
        loop {
            let lines = self.lines();
            if wanted(&lines) {
                return lines;
            }
            assert!(Instant::now() < end, "never: {what}\n{}", lines.join("\n"));
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits for its end.
    #[track_caller]
    pub fn end(&mut self) -> ExitStatus {
        let end = Instant::now() + LIMIT;
        loop {
            if let Some(status) = self.child.try_wait().expect("our own child") {
                return status;
            }
            assert!(Instant::now() < end, "it does not end\n{}", self.lines().join("\n"));
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Of one that has ended already both know that it has.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
