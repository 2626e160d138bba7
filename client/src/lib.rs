//! Finds a coordinator and talks to it, for commands; it also finds the driver and Baton's own files.
//!
//! - [`install`]: the places of Baton's own files. [`driver`]: the CUDA driver that programs run on.
//!
//! The functions here talk to a coordinator as a tool.

pub mod driver;
pub mod install;

use std::fmt::Display;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use baton_contract::link::Chosen;
use baton_contract::messages::{Admission, DriverKind, FromCoordinator, Message as _, Opening, Refusal};
use baton_contract::wire::{GpuNumber, Malformed, Version};
use baton_contract::{link, socket_path};
use baton_messages::Message;
use baton_report::event::History;
use baton_views::timeline::Timeline;

/// Time after which a silent coordinator counts as unresponsive.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Time after which the reason of a wait is printed.
const SILENCE: Duration = Duration::from_secs(1);
/// Period in which a long wait does its other work.
const LOOK: Duration = Duration::from_millis(200);
/// Delay before the next attempt if the coordinator asks to come again.
const COME_AGAIN: Duration = Duration::from_millis(100);

/// The reason why a coordinator gives no answer, in the user's words.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct NoAnswer(#[from] Message);

impl From<NoAnswer> for Message {
    fn from(NoAnswer(message): NoAnswer) -> Self {
        message
    }
}

/// Makes the error for a malformed answer.
pub fn no_answer(path: &Path, what: impl Display) -> NoAnswer {
    NoAnswer(baton_messages::of_path(path.display(), what))
}

/// Connects; none if no coordinator listens there.
///
/// # Errors
///
/// When the path cannot be a socket's, or the listener is not to be trusted.
pub fn open(path: &Path) -> Result<Option<OwnedFd>, NoAnswer> {
    match link::connect(path, Chosen::of(path, &socket_path::own_folder()), PATIENCE) {
        Ok(socket) => Ok(Some(socket)),
        Err(link::Unconnected::NobodyListens) => Ok(None),
        Err(error) => Err(no_answer(path, error)),
    }
}

/// A coordinator's offer to a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The GPU's UUID.
    pub gpu: [u8; 16],
    /// The driver that the coordinator uses.
    pub driver: DriverKind,
    /// The size of "the GPU" that programs see, in bytes.
    pub bytes: u64,
    /// Memory that all programs together can have, in bytes.
    pub all: u64,
}

/// Announces a program. The coordinator waits for it while the connection is open. None if there is no coordinator, or it is just
/// ending.
///
/// # Errors
///
/// When the listener is not to be trusted, or does not answer as a coordinator does.
pub fn announce(path: &Path) -> Result<Option<(OwnedFd, Offer)>, NoAnswer> {
    let told = |what: &dyn Display| no_answer(path, what);
    let start = Instant::now();
    let mut is_said = false;
    loop {
        let Some(socket) = open(path)? else { return Ok(None) };
        // If this fails, the coordinator may still have sent the reason.
        let _ = link::send(socket.as_fd(), &Opening::Expect.encode(GpuNumber::ANY), &[], false);
        let received = match link::receive(socket.as_fd(), false) {
            Ok(Some(received)) => received,
            Ok(None) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(baton_messages::coordinator_hangs(path.display()).into());
            }
            Err(error) => return Err(told(&error)),
        };
        match FromCoordinator::decode(&received.message) {
            Ok((_, FromCoordinator::Admission(Admission::Offer { gpu, driver, bytes, all }))) => {
                return Ok(Some((socket, Offer { gpu, driver, bytes, all })));
            }
            Ok((_, FromCoordinator::Admission(Admission::Refused { reason: Refusal::Busy, text }))) => {
                if start.elapsed() > SILENCE && !std::mem::replace(&mut is_said, true) {
                    // If standard error cannot take it, the remark is lost.
                    let _ = writeln!(io::stderr(), "{}", baton_messages::run_waits(text));
                }
                std::thread::sleep(COME_AGAIN);
            }
            Ok((_, FromCoordinator::Admission(Admission::Refused { text, .. }))) => {
                return Err(told(&baton_messages::answered(text)));
            }
            Ok(_) => return Err(told(&baton_messages::answers_another_question())),
            Err(error) => return Err(told(&error)),
        }
    }
}

/// Returns the status as JSON text.
///
/// # Errors
///
/// When no coordinator answers, or its answer is malformed.
pub fn status(path: &Path) -> Result<Vec<u8>, NoAnswer> {
    ask(path, &Opening::Status)
}

/// Returns events from this number on.
///
/// # Errors
///
/// As for [`status()`].
pub fn events(path: &Path, next: u64) -> Result<History, NoAnswer> {
    let text = ask(path, &Opening::Events { next })?;
    serde_json::from_slice(&text).map_err(|error| no_answer(path, baton_messages::answer_is_unreadable(error)))
}

/// Reads all events from this number on. Returns the number of the next event.
///
/// # Errors
///
/// As for [`status()`].
pub fn history(path: &Path, mut next: u64, mut hear: impl FnMut(&History)) -> Result<u64, NoAnswer> {
    loop {
        let history = events(path, next)?;
        hear(&history);
        next = history.next;
        if !history.more {
            return Ok(next);
        }
    }
}

/// Adds all later events to a timeline.
///
/// # Errors
///
/// As for [`status()`].
pub fn see(path: &Path, timeline: &mut Timeline) -> Result<(), NoAnswer> {
    history(path, timeline.next(), |history| timeline.see(history)).map(drop)
}

/// Asks a question that is answered at once, and returns the answer's text.
///
/// # Errors
///
/// As for [`status()`].
pub fn ask(path: &Path, question: &Opening) -> Result<Vec<u8>, NoAnswer> {
    let hear = |socket: &OwnedFd| text_until(path, socket, Some(Instant::now()), &mut || ());
    let (_, text) = asked(path, question, &[], PATIENCE, hear)?;
    text.ok_or_else(|| NoAnswer(baton_messages::coordinator_hangs(path.display())))
}

/// Has a coordinator be kept by another keeper, which is this process. Returns the keeper's line to it, and its process.
///
/// # Errors
///
/// When it is not to be kept by another one, or as for [`status()`].
pub fn keep(path: &Path, keeper: BorrowedFd<'_>) -> Result<[OwnedFd; 2], NoAnswer> {
    let told = |what: &dyn Display| no_answer(path, what);
    let hear = |socket: &OwnedFd| -> Result<_, Unanswered> {
        let received = link::receive(socket.as_fd(), false).map_err(|error| told(&error))?;
        let received = received.ok_or_else(|| told(&baton_messages::coordinator_hung_up()))?;
        match read(path, &received.message)? {
            Admission::Line => {
                Ok(received.descriptors.try_into().map_err(|_| told(&baton_messages::coordinator_hung_up()))?)
            }
            Admission::Text { piece, .. } => {
                Err(told(&baton_messages::answered(String::from_utf8_lossy(&piece))).into())
            }
            _ => Err(told(&baton_messages::answers_another_question()).into()),
        }
    };
    Ok(asked(path, &Opening::Keep, &[keeper], PATIENCE, hear)?.1)
}

/// Asks a question whose answer may take long, and calls `meanwhile` again and again. None if there is no answer until `end`; then the
/// coordinator learns that this process no longer waits.
///
/// # Errors
///
/// As for [`status()`].
pub fn ask_patiently(
    path: &Path,
    question: &Opening,
    end: Option<Instant>,
    meanwhile: &mut dyn FnMut(),
) -> Result<Option<Vec<u8>>, NoAnswer> {
    Ok(asked(path, question, &[], LOOK, |socket| text_until(path, socket, end, meanwhile))?.1)
}

/// The outcome of the wait for a coordinator's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// It has ended, in any way.
    Ended,
    /// It does not end: a user has cancelled the end.
    Cancelled,
    /// It has yet to end.
    Late,
}

/// Ends a coordinator, at once or after its last program. It first names its programs, in a JSON text for `told`; then this waits for
/// its end, until `end`.
///
/// # Errors
///
/// As for [`status()`].
pub fn stop(
    path: &Path,
    now: bool,
    end: Option<Instant>,
    told: impl FnOnce(&[u8]),
    meanwhile: &mut dyn FnMut(),
) -> Result<Awaited, NoAnswer> {
    let hear = |socket: &OwnedFd| text_until(path, socket, end, meanwhile);
    let (socket, text) = asked(path, &Opening::Stop { now }, &[], LOOK, hear)?;
    match text {
        Some(text) => told(&text),
        None => return Ok(Awaited::Late),
    }
    loop {
        match link::receive(socket.as_fd(), false) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if is_over(end) {
                    return Ok(Awaited::Late);
                }
                meanwhile();
            }
            Ok(None) | Err(_) => return Ok(Awaited::Ended),
            Ok(Some(_)) => return Ok(Awaited::Cancelled),
        }
    }
}

fn is_over(end: Option<Instant>) -> bool {
    end.is_some_and(|end| Instant::now() >= end)
}

/// Returns the message that no coordinator listens there, with advice.
pub fn nobody(path: &Path) -> Message {
    baton_messages::no_coordinator(path.display())
}

/// The reason why a question has no answer.
enum Unanswered {
    /// The coordinator does not speak the question's version of the contract.
    OtherVersion(NoAnswer),
    Otherwise(NoAnswer),
}

impl From<NoAnswer> for Unanswered {
    fn from(why: NoAnswer) -> Self {
        Self::Otherwise(why)
    }
}

/// Connects, sends a question and hears the answer: in this build's version of the contract, and if the coordinator does not speak that, in
/// the one before. A read from the socket returns after `patience` at the latest.
fn asked<T>(
    path: &Path,
    question: &Opening,
    with: &[BorrowedFd<'_>],
    patience: Duration,
    mut hear: impl FnMut(&OwnedFd) -> Result<T, Unanswered>,
) -> Result<(OwnedFd, T), NoAnswer> {
    let mut ask = |version| -> Result<(OwnedFd, T), Unanswered> {
        let socket = open(path)?.ok_or_else(|| NoAnswer(nobody(path)))?;
        link::set_patience(&socket, Some(patience)).map_err(|error| no_answer(path, error))?;
        // If this fails, the coordinator may still have sent the reason.
        let _ = link::send(socket.as_fd(), &question.encode_in(GpuNumber::ANY, version), with, false);
        let heard = hear(&socket)?;
        Ok((socket, heard))
    };
    let asked = match ask(Version::NOW) {
        Err(Unanswered::OtherVersion(_)) => ask(Version::BEFORE),
        asked => asked,
    };
    asked.map_err(|(Unanswered::OtherVersion(why) | Unanswered::Otherwise(why))| why)
}

/// Reads a message that answers a question, in any version of the contract that this build speaks.
fn read(path: &Path, message: &[u8]) -> Result<Admission, Unanswered> {
    let told = |what: &dyn Display| no_answer(path, what);
    let decoded = Version::of(message).and_then(|version| FromCoordinator::decode_in(message, version));
    match decoded {
        Ok((_, FromCoordinator::Admission(Admission::Refused { reason, text }))) => {
            let why = told(&baton_messages::answered(text));
            Err(if reason == Refusal::Version { Unanswered::OtherVersion(why) } else { Unanswered::Otherwise(why) })
        }
        Ok((_, FromCoordinator::Admission(answer))) => Ok(answer),
        Ok(_) => Err(told(&baton_messages::answers_another_question()).into()),
        Err(error @ Malformed::Version { .. }) => Err(Unanswered::OtherVersion(told(&error))),
        Err(error) => Err(told(&error).into()),
    }
}

/// Reads an answer's text, in any number of pieces. None if it is incomplete at `end` and after the socket's patience.
fn text_until(
    path: &Path,
    socket: &OwnedFd,
    end: Option<Instant>,
    meanwhile: &mut dyn FnMut(),
) -> Result<Option<Vec<u8>>, Unanswered> {
    let told = |what: &dyn Display| no_answer(path, what);
    let mut text = Vec::new();
    loop {
        let received = match link::receive(socket.as_fd(), false) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if is_over(end) {
                    return Ok(None);
                }
                meanwhile();
                continue;
            }
            received => received.map_err(|error| told(&error))?,
        };
        let received = received.ok_or_else(|| told(&baton_messages::coordinator_hung_up()))?;
        let Admission::Text { piece, more } = read(path, &received.message)? else {
            return Err(told(&baton_messages::answers_another_question()).into());
        };
        text.extend(piece);
        if !more {
            return Ok(Some(text));
        }
    }
}
