//! Writes events to a file as they happen, in a thread of its own: the server never waits for a disk.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::event::Recorded;
use crate::records::Book;

/// The most events that wait to be written. Events that come while there is no room are left out.
const WAITING: usize = 8 << 10;
/// The time for which events gather before they are written. So the thread wakes a few times a second at a high rate of events, and
/// never without events.
const GATHERING: Duration = Duration::from_millis(200);
/// The longest wait at the end for events that have yet to be written.
const ENDING: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(5);

/// The queue of events to be written.
#[derive(Debug)]
pub(super) struct Tap(SyncSender<(u64, Recorded)>);

impl Tap {
    pub(super) fn give(&self, n: u64, event: &Recorded) {
        // Without room, and without a writer, it is only kept as long as the coordinator lives.
        let _ = self.0.try_send((n, event.clone()));
    }
}

/// The thread that writes.
#[derive(Debug)]
pub struct Kept(JoinHandle<()>);

impl Kept {
    /// Waits a moment until all is written, when nothing can come any more.
    pub fn end(self) {
        let end = Instant::now() + ENDING;
        self.0.thread().unpark();
        while !self.0.is_finished() && Instant::now() < end {
            thread::sleep(LOOK);
        }
    }
}

pub(super) fn start(mut book: Book, start: Instant) -> io::Result<(Tap, Kept)> {
    let (sender, receiver) = sync_channel(WAITING);
    let thread = thread::Builder::new().name("record".to_owned());
    let thread = thread.spawn(move || write(&receiver, &mut book, start))?;
    Ok((Tap(sender), Kept(thread)))
}

/// Until nothing can come any more.
fn write(events: &Receiver<(u64, Recorded)>, book: &mut Book, start: Instant) {
    while let Ok(first) = events.recv() {
        thread::park_timeout(GATHERING);
        let all = std::iter::once(first).chain(events.try_iter().take(WAITING));
        book.write(all.map(|(n, event)| event.shown(n, start)));
    }
}
