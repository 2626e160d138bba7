//! Commands find a coordinator here and talk to it; they find the driver and Baton's own files.
//!
//! - [`install`]: where Baton's own files lie. [`driver`]: which CUDA driver programs run on.
//!
//! The functions here talk to a coordinator as a tool.

pub mod driver;
pub mod install;

use std::fmt::Display;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use baton_contract::link::Chosen;
use baton_contract::messages::{Admission, DriverKind, FromCoordinator, Message as _, Opening, Refusal};
use baton_contract::wire::GpuNumber;
use baton_contract::{link, socket_path};
use baton_messages::Message;
use baton_report::event::History;
use baton_views::timeline::Timeline;

/// A coordinator that says nothing for so long hangs.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// After this time it is said what is waited for.
const SILENCE: Duration = Duration::from_secs(1);
/// How often whoever waits for long looks what else there is to do.
const LOOK: Duration = Duration::from_millis(200);
/// How soon whoever was told to come again does so.
const COME_AGAIN: Duration = Duration::from_millis(100);

/// Why a coordinator gives no answer, in the user's words.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct NoAnswer(#[from] Message);

impl From<NoAnswer> for Message {
    fn from(NoAnswer(message): NoAnswer) -> Self {
        message
    }
}

/// That an answer was not as it should be.
pub fn no_answer(path: &Path, what: impl Display) -> NoAnswer {
    NoAnswer(baton_messages::of_path(path.display(), what))
}

/// Connects; none if nobody listens there.
///
/// # Errors
///
/// When the path can be no socket's, or whoever listens is not to be trusted.
pub fn open(path: &Path) -> Result<Option<OwnedFd>, NoAnswer> {
    match link::connect(path, Chosen::of(path, &socket_path::own_folder()), PATIENCE) {
        Ok(socket) => Ok(Some(socket)),
        Err(link::Unconnected::NobodyListens) => Ok(None),
        Err(error) => Err(no_answer(path, error)),
    }
}

/// What a coordinator has for a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The GPU's UUID.
    pub gpu: [u8; 16],
    /// Which driver the coordinator uses.
    pub driver: DriverKind,
    /// The size of "the GPU" that programs see, in bytes.
    pub bytes: u64,
    /// What all programs together can have, in bytes.
    pub all: u64,
}

/// Announces a program, whose coming the coordinator waits for while the connection is open; none if there is no coordinator, or
/// it is just ending.
///
/// # Errors
///
/// When whoever listens is not to be trusted, or does not answer as a coordinator does.
pub fn announce(path: &Path) -> Result<Option<(OwnedFd, Offer)>, NoAnswer> {
    let told = |what: &dyn Display| no_answer(path, what);
    let start = Instant::now();
    let mut is_said = false;
    loop {
        let Some(socket) = open(path)? else { return Ok(None) };
        // Whoever does not hear us may have said why.
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
                    // Where that has no room, there is nowhere to say it.
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

/// Asks how things stand, as the JSON text that comes.
///
/// # Errors
///
/// When nobody answers, or not as a coordinator does.
pub fn status(path: &Path) -> Result<Vec<u8>, NoAnswer> {
    ask(path, &Opening::Status)
}

/// Asks what has happened from the event of this number on.
///
/// # Errors
///
/// As for [`status()`].
pub fn events(path: &Path, next: u64) -> Result<History, NoAnswer> {
    let text = ask(path, &Opening::Events { next })?;
    serde_json::from_slice(&text).map_err(|error| no_answer(path, baton_messages::answer_is_unreadable(error)))
}

/// Hears all that has happened from the event of this number on. Says what to ask for next.
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

/// Has a timeline see all that has happened since it was last told.
///
/// # Errors
///
/// As for [`status()`].
pub fn see(path: &Path, timeline: &mut Timeline) -> Result<(), NoAnswer> {
    history(path, timeline.next(), |history| timeline.see(history)).map(drop)
}

/// Asks something that is answered at once, and hears the text that is the answer.
///
/// # Errors
///
/// As for [`status()`].
pub fn ask(path: &Path, question: &Opening) -> Result<Vec<u8>, NoAnswer> {
    let socket = asked(path, question, PATIENCE)?;
    let hangs = || NoAnswer(baton_messages::coordinator_hangs(path.display()));
    text_until(path, &socket, Some(Instant::now()), &mut || ())?.ok_or_else(hangs)
}

/// The same where it may take long: meanwhile something else is done again and again. None if there is no answer until `end`; then the
/// coordinator learns that nobody waits any more.
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
    let socket = asked(path, question, LOOK)?;
    text_until(path, &socket, end, meanwhile)
}

/// What came of waiting for a coordinator's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// It has ended, in whatever way.
    Ended,
    /// It does not end: somebody has taken that back.
    Cancelled,
    /// It has yet to end.
    Late,
}

/// Has a coordinator end: now, or when its last program has left. It first says who is there, as the JSON text that `told` gets;
/// then it is waited for its end, until `end`.
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
    let socket = asked(path, &Opening::Stop { now }, LOOK)?;
    match text_until(path, &socket, end, meanwhile)? {
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

/// That nobody listens there, and what to do.
pub fn nobody(path: &Path) -> Message {
    baton_messages::no_coordinator(path.display())
}

/// Connects and says what is asked; who waits for the answer looks up after so long.
fn asked(path: &Path, question: &Opening, patience: Duration) -> Result<OwnedFd, NoAnswer> {
    let socket = open(path)?.ok_or_else(|| NoAnswer(nobody(path)))?;
    link::set_patience(&socket, Some(patience)).map_err(|error| no_answer(path, error))?;
    // Whoever does not hear us may have said why.
    let _ = link::send(socket.as_fd(), &question.encode(GpuNumber::ANY), &[], false);
    Ok(socket)
}

/// Hears the text that is an answer, in whatever pieces; none if it is not there at `end`, nor after the socket's patience.
fn text_until(
    path: &Path,
    socket: &OwnedFd,
    end: Option<Instant>,
    meanwhile: &mut dyn FnMut(),
) -> Result<Option<Vec<u8>>, NoAnswer> {
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
        match FromCoordinator::decode(&received.message) {
            Ok((_, FromCoordinator::Admission(Admission::Text { piece, more }))) => {
                text.extend(piece);
                if !more {
                    return Ok(Some(text));
                }
            }
            Ok((_, FromCoordinator::Admission(Admission::Refused { text, .. }))) => {
                return Err(told(&baton_messages::answered(text)));
            }
            Ok(_) => return Err(told(&baton_messages::answers_another_question())),
            Err(error) => return Err(told(&error)),
        }
    }
}
