//! The data that a call brings to the device, as declared by each row of the hook table that names its memory.
//!
//! A kernel gets addresses only from its parameters, from memory that it was given, and from data that calls have brought there. So words
//! that look like addresses of ours are needed by the call that brings them, as if it named them. For a word that it brings in parts,
//! every address that has those bytes is needed. Data that cannot be seen makes the call [opaque](super::needs).

use core::ffi::c_void;

use baton_contract::cuda::CUdeviceptr;

use super::needs::{Named, Opaque, leads_where_it_led};
use super::pointers::{WORD, add_window_words};
use super::roots;
use crate::driver::api::Stream;
use crate::memory::space::{Space, is_ours};
use crate::work::idle;

/// The most bytes that are read word by word in a call.
const MOST_READ: usize = 64 << 20;

/// The stream in which a call puts its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Into {
    /// A stream, for a call that returns at once.
    Stream(Stream),
    /// A stream, for a call that returns when the work has ended. The driver may read the given memory only when the stream has reached
    /// the call.
    Synchronous(Stream),
}

impl Into {
    /// True if host memory is read as it is during the call, and not as the program may have written it by the time the stream reaches the
    /// call.
    fn reads_at_once(self, from: *const c_void) -> bool {
        match self {
            // The driver copies pageable memory before it returns.
            Self::Stream(stream) => !roots::is_pinned_host(from.addr() as u64) || idle::is_idle(stream),
            Self::Synchronous(stream) => idle::is_idle(stream),
        }
    }
}

/// The data that a call brings.
pub(crate) trait Brings: Copy {
    /// True if the stream comes to its end by itself, without any act of the host.
    const ENDS_BY_ITSELF: bool;

    /// Adds the memory that is needed for the data.
    fn bring(self, into: Into, found: &mut Named);
}

/// Adds the memory that a call needs for the data that it brings.
pub(crate) fn bring<B: Brings>(brings: B, into: Into, found: &mut Named) {
    brings.bring(into, found);
    if !B::ENDS_BY_ITSELF {
        idle::note_waiting();
    }
}

/// No byte comes to the device: the call reads memory, waits, or calls the host.
#[derive(Clone, Copy)]
pub(crate) struct Nothing;

/// So many bytes of host memory come to a place on the device.
#[derive(Clone, Copy)]
pub(crate) struct Upload(pub(crate) CUdeviceptr, pub(crate) *const c_void, pub(crate) usize);

/// So many bytes move between addresses of either side.
#[derive(Clone, Copy)]
pub(crate) struct Moved(pub(crate) CUdeviceptr, pub(crate) CUdeviceptr, pub(crate) usize);

/// A word is written: address, value, size in bytes.
#[derive(Clone, Copy)]
pub(crate) struct Value(pub(crate) CUdeviceptr, pub(crate) u64, pub(crate) usize);

/// Rows are filled with copies of a value.
#[derive(Clone, Copy)]
pub(crate) struct Filled {
    pub(crate) at: CUdeviceptr,
    /// The distance from one row to the next, in bytes.
    pub(crate) pitch: usize,
    pub(crate) value: u32,
    /// The value's size: 1, 2 or 4.
    pub(crate) element: usize,
    /// Elements in a row.
    pub(crate) width: usize,
    pub(crate) height: usize,
}

/// One row of values of 1, 2 or 4 bytes.
pub(crate) fn filled(at: CUdeviceptr, value: impl core::convert::Into<u32>, element: usize, width: usize) -> Filled {
    Filled { at, pitch: 0, value: value.into(), element, width, height: 1 }
}

impl Brings for Nothing {
    const ENDS_BY_ITSELF: bool = false;

    fn bring(self, _: Into, _: &mut Named) {}
}

impl Brings for Upload {
    const ENDS_BY_ITSELF: bool = true;

    fn bring(self, into: Into, found: &mut Named) {
        let Self(to, from, bytes) = self;
        if is_ours(from.addr() as u64) {
            // The driver accepts device memory as host memory too (measured).
            return Moved(to, from.addr() as CUdeviceptr, bytes).bring(into, found);
        }
        if bytes == 0 || from.is_null() {
            // The driver has an answer to these.
            return;
        }
        if bytes > MOST_READ {
            return found.hide(true, Opaque::LongCopy);
        }
        found.hide(!into.reads_at_once(from), Opaque::LateCopy);
        if found.opaque.is_none() {
            let are_seen = contents(to, from, bytes, found);
            found.hide(!are_seen, Opaque::HostWords);
        }
    }
}

/// Adds the addresses in host memory that comes to a place on the device. False if they are not known: the memory cannot be read, or it
/// has addresses of host memory, where kernels may find any pointer.
pub(super) fn contents(to: CUdeviceptr, from: *const c_void, bytes: usize, found: &mut Named) -> bool {
    let from = from.expose_provenance();
    let is_whole = to.is_multiple_of(WORD as u64) && bytes.is_multiple_of(WORD);
    let (mut head, mut tail) = ([0; WORD], [0; WORD]);
    let edge = bytes.min(WORD);
    let are_read = is_whole
        || roots::read_host(from, edge, |bytes| head[..edge].copy_from_slice(bytes))
            && roots::read_host(from + bytes - edge, edge, |bytes| tail[..edge].copy_from_slice(bytes));
    if !are_read {
        return false;
    }
    if !is_whole {
        add_edges(to, bytes, |at| if at < edge { head[at] } else { tail[at + edge - bytes] }, found);
    }
    // Halves of words, as they will lie on the device.
    let phase = (to.wrapping_neg() % 4) as usize;
    let mut has_host = false;
    let see = |piece: &[u8]| {
        add_window_words(piece, &mut found.addresses);
        has_host |= roots::has_host_words(piece);
    };
    // The program's address may be wrong, and then the driver has the answer.
    roots::read_host(from + phase.min(bytes), bytes.saturating_sub(phase), see) && !has_host
}

/// Adds the words at both ends of this many bytes, of which other bytes are not brought. `byte` is asked only for the bytes of these words,
/// the first eight and the last.
fn add_edges(to: CUdeviceptr, bytes: usize, byte: impl Fn(usize) -> u8, found: &mut Named) {
    let first = (to % WORD as u64) as usize;
    let last = (first + bytes) % WORD;
    let mut add = |first: usize, from: usize, count: usize| {
        let mut known = [0; WORD];
        known[..count].iter_mut().zip(from..).for_each(|(known, at)| *known = byte(at));
        found.add_part(first, &known[..count]);
    };
    if first + bytes < WORD {
        return add(first, 0, bytes);
    }
    if first != 0 {
        add(first, 0, WORD - first);
    }
    if last != 0 {
        add(0, bytes - last, last);
    }
}

impl Brings for Moved {
    const ENDS_BY_ITSELF: bool = true;

    fn bring(self, _: Into, found: &mut Named) {
        let Self(to, from, bytes) = self;
        if !is_ours(to) && is_ours(from) || leads_where_it_led(to, bytes) {
            // The data leaves the device, or changes no word that leads anywhere.
            return;
        }
        // Whole words that move within the device are known from their old place; other data is not.
        let is_whole = [to, from, bytes as u64].iter().all(|number| number.is_multiple_of(WORD as u64));
        found.hide(!is_ours(from), Opaque::Elsewhere);
        found.hide(!is_whole, Opaque::SplitWords);
    }
}

impl Brings for Value {
    const ENDS_BY_ITSELF: bool = true;

    fn bring(self, _: Into, found: &mut Named) {
        let Self(at, value, bytes) = self;
        bring_word(at, &value.to_le_bytes()[..bytes], found);
    }
}

/// Adds the address that these bytes may become: at most a word, at an address that is a multiple of their number.
fn bring_word(at: CUdeviceptr, bytes: &[u8], found: &mut Named) {
    let (start, end) = Space::window();
    match <[u8; WORD]>::try_from(bytes).map(u64::from_le_bytes) {
        Ok(word) => {
            found.hide(roots::is_host(word), Opaque::HostWords);
            if (start..end).contains(&word) {
                found.addresses.push(word);
            }
        }
        Err(_) => found.add_part((at % WORD as u64) as usize, bytes),
    }
}

impl Brings for Filled {
    const ENDS_BY_ITSELF: bool = true;

    fn bring(self, _: Into, found: &mut Named) {
        self.add_words(found);
    }
}

impl Filled {
    /// Adds the words that it makes.
    pub(super) fn add_words(self, found: &mut Named) {
        let Self { at, pitch, value, element, width, height } = self;
        let bytes = width.saturating_mul(element);
        if !matches!(element, 1 | 2 | 4) || bytes == 0 {
            // The driver has an answer to that.
            return;
        }
        let value = value.to_le_bytes();
        let byte = |at: usize| value[at % element];
        let word: [u8; WORD] = core::array::from_fn(byte);
        // Rows lie in at most so many ways relative to words, and then the ways repeat.
        for row in 0..height.min(WORD) {
            let at = at.wrapping_add((row.wrapping_mul(pitch)) as u64);
            let skipped = (at.wrapping_neg() % WORD as u64) as usize;
            if bytes >= skipped + WORD {
                let mut whole = word;
                whole.rotate_left(skipped % element);
                bring_word(0, &whole, found);
            }
            add_edges(at, bytes, byte, found);
        }
    }
}
