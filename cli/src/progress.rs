//! The display while an operation takes longer than a second: a bar on a terminal, else one line.

use std::io::IsTerminal as _;
use std::path::Path;
use std::time::{Duration, Instant};

use baton_client as client;
use baton_messages::Message;
use baton_report::status::Status;
use baton_workbench::output::remark;
use indicatif::{ProgressBar, ProgressStyle};

use super::named::read;

/// Shorter operations are not shown.
const SILENCE: Duration = Duration::from_secs(1);

/// The direction in which a program's memory moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To the GPU.
    In,
    /// To the host.
    Out,
}

/// Returns the bytes of a program that have yet to move.
fn left(socket: &Path, name: &str, way: Way) -> Option<u64> {
    let status: Status = read(&client::status(socket).ok()?).ok()?;
    let tenant = status.tenant(name)?;
    Some(if way == Way::In { tenant.evicted_bytes } else { tenant.resident_bytes })
}

/// Shows the progress of a program's memory at each call. `waits` is the text while nothing moves yet.
pub fn of_memory(socket: &Path, name: &str, way: Way, waits: &Message) -> impl FnMut() + use<> {
    let (socket, name, waits) = (socket.to_path_buf(), name.to_owned(), waits.to_string());
    let mut shown = Shown::new();
    let mut began: Option<u64> = None;
    move || {
        if !shown.is_due(&waits) {
            return;
        }
        let Some(left) = left(&socket, &name, way) else { return };
        let all = left.max(began.unwrap_or(left));
        began = Some(all);
        shown.bar(all, all.saturating_sub(left), if all == left { &waits } else { &name });
    }
}

/// Shows the text of a wait at each call.
pub fn of_waiting(waits: &Message) -> impl FnMut() + use<> {
    let waits = waits.to_string();
    let mut shown = Shown::new();
    move || {
        if shown.is_due(&waits) {
            shown.turn(&waits);
        }
    }
}

struct Shown {
    since: Instant,
    is_said: bool,
    bar: Option<ProgressBar>,
}

impl Shown {
    fn new() -> Self {
        Self { since: Instant::now(), is_said: false, bar: None }
    }

    /// True if progress is due and there is a terminal to show it. Elsewhere the text of the wait is printed once.
    fn is_due(&mut self, waits: &str) -> bool {
        if self.since.elapsed() < SILENCE {
            return false;
        }
        let is_terminal = std::io::stderr().is_terminal();
        if !is_terminal && !std::mem::replace(&mut self.is_said, true) {
            remark(&baton_messages::of_baton(waits));
        }
        is_terminal
    }

    fn bar(&mut self, all: u64, done: u64, message: &str) {
        let bar = self.bar.get_or_insert_with(|| {
            let style = ProgressStyle::with_template("{bar:32} {binary_bytes} of {binary_total_bytes}  {msg}");
            ProgressBar::new(all).with_style(style.expect("a template of our own"))
        });
        bar.set_length(all);
        bar.set_position(done);
        bar.set_message(message.to_owned());
    }

    fn turn(&mut self, message: &str) {
        let bar = self.bar.get_or_insert_with(|| {
            let style = ProgressStyle::with_template("{spinner} {elapsed}  {msg}");
            ProgressBar::new_spinner().with_style(style.expect("a template of our own"))
        });
        bar.set_message(message.to_owned());
        bar.tick();
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
