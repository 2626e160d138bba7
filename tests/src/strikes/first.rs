//! Events before a strike, by which points are reached that are seldom reached otherwise.

use std::borrow::Cow;

use crate::running::{goes_on, signal};

/// Messages that a coordinator hears although they were sent to the one before it: that one is stopped when a program is about to send such
/// a message, and dies.
const OF_OLD: (&str, &str) = ("coordinator hears of old ", "program tells ");
/// Each coordinator hears these, because it has asked for them.
const ASKED: [&str; 3] = ["Extents", "Channels", "Stands"];
/// Other messages that are only sent after something has happened.
const RARELY_SENT: [(&str, First); 7] = [
    // A request that was not answered is made again.
    (" Again", First::CoordinatorDies(Cow::Borrowed("program asks Allocate"))),
    // A program that was not let in yet waits until the others have come back.
    (" Queued", First::CoordinatorDies(Cow::Borrowed("program asks Hello"))),
    // The memory of one that does not answer is waited for, or taken: what was taken cannot be exported where it is, and is copied.
    (" TryAgain", STOPPED),
    (" Movable", STOPPED),
    (" Consolidate", STOPPED),
    (" Consolidated", STOPPED),
    (" cuMemcpyDtoDAsync_v2", STOPPED),
];

/// A program stops when it is to give up memory.
const STOPPED: First = First::ProgramStops(Cow::Borrowed("program hears Unmap"));

/// An event before a strike, by which its point is reached.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum First {
    /// The coordinator stops when a process reaches this point, and dies when the strike is to come.
    CoordinatorDies(Cow<'static, str>),
    /// A program stops there, and goes on after the strike.
    ProgramStops(Cow<'static, str>),
}

impl First {
    /// The event by which a point is reached, if it needs one.
    pub(super) fn of(point: &str) -> Option<Self> {
        if let Some(message) = point.strip_prefix(OF_OLD.0).filter(|message| !ASKED.contains(message)) {
            return Some(Self::CoordinatorDies(format!("{}{message}", OF_OLD.1).into()));
        }
        RARELY_SENT.into_iter().find(|(message, _)| point.ends_with(message)).map(|(_, first)| first)
    }

    /// All such events, where programs reach these points.
    pub(super) fn all<'a>(points: impl Iterator<Item = &'a str>) -> impl Iterator<Item = Self> {
        let is_unasked = |point: &&str| point.strip_prefix(OF_OLD.1).is_some_and(|message| !ASKED.contains(&message));
        let told = points.filter(is_unasked).map(|point| Self::CoordinatorDies(point.to_owned().into()));
        told.chain(RARELY_SENT.map(|(_, first)| first))
    }
}

/// A process that has stopped for [`First`]: dropped, it dies or goes on.
pub(super) struct Stopped {
    pub(super) process: i32,
    pub(super) dies: bool,
}

impl Drop for Stopped {
    fn drop(&mut self) {
        match self.dies {
            true => signal(self.process, libc::SIGKILL),
            false => goes_on(self.process),
        }
    }
}
