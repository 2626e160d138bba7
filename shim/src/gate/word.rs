//! The in-call words: one per thread, in a list that the closer of the gate can walk at any time.

use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use super::protocol::InCall;
use crate::sys::process;

/// A thread's in-call word. Lives for ever; a thread that ends leaves it to the next new thread.
#[repr(align(64))]
pub(super) struct Word {
    pub(super) calls: InCall,
    taken: AtomicBool,
    next: Option<&'static Word>,
}

/// All words ever made, newest first; only grows.
static NEWEST: AtomicPtr<Word> = AtomicPtr::new(ptr::null_mut());

/// Every thread's word, and those that wait for a thread.
pub(super) fn all() -> impl Iterator<Item = &'static Word> {
    // SAFETY: null or a word, and words live for ever.
    let newest: Option<&'static Word> = unsafe { NEWEST.load(Ordering::Acquire).as_ref() };
    core::iter::successors(newest, |word| word.next)
}

/// This thread's word; `None` if the thread is so late in its life that it could not give one back, or would have to make one in a process
/// that knows no gate.
#[inline(always)]
pub(super) fn own_or_new() -> Option<&'static Word> {
    own().or_else(claim)
}

/// Frees the words of the other threads in a forked child: those threads are gone, and so are their calls.
pub(super) fn release_others() {
    let own = own().map(ptr::from_ref);
    for word in all().filter(|word| Some(ptr::from_ref(*word)) != own) {
        word.calls.clear();
        word.taken.store(false, Ordering::Release);
    }
}

// The address of this thread's word; null before its first call and after its last. In assembly for
// its thread-local storage model: a library's thread-locals are reached through a function call, unless
// they say that they lie in the block that every thread has from its start (`initial-exec`), which is
// where the loader puts them for a preloaded library. Rust has no stable way to say so.
core::arch::global_asm!(
    ".pushsection .tbss.baton_word,\"awT\",@nobits",
    ".balign 8",
    ".globl baton_word",
    ".hidden baton_word",
    ".type baton_word, @object",
    ".size baton_word, 8",
    "baton_word:",
    ".zero 8",
    ".popsection",
);

#[inline(always)]
fn own() -> Option<&'static Word> {
    let word: *const Word;
    // SAFETY: loads eight bytes of this thread's own storage, which the assembly above reserves.
    unsafe {
        core::arch::asm!(
            "mov {word}, qword ptr [rip + baton_word@GOTTPOFF]",
            "mov {word}, qword ptr fs:[{word}]",
            word = out(reg) word,
            options(nostack, readonly, preserves_flags),
        );
    }
    // SAFETY: null, or stored by `set_own`, and words live for ever.
    unsafe { word.as_ref() }
}

fn set_own(word: Option<&'static Word>) {
    let word = word.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: stores eight bytes to this thread's own storage, which the assembly above reserves.
    unsafe {
        core::arch::asm!(
            "mov {at}, qword ptr [rip + baton_word@GOTTPOFF]",
            "mov qword ptr fs:[{at}], {word}",
            at = out(reg) _,
            word = in(reg) word,
            options(nostack, preserves_flags),
        );
    }
}

/// Gives the thread's word back when the thread ends.
struct GiveBack;

impl Drop for GiveBack {
    fn drop(&mut self) {
        if let Some(word) = own() {
            set_own(None);
            // A thread that may be cancelled at any moment may have ended in the middle of a call's way in or out.
            word.calls.clear();
            word.taken.store(false, Ordering::Release);
        }
    }
}

thread_local! {
    static GIVE_BACK: GiveBack = const { GiveBack };
}

/// Finds a free word for this thread, or makes one.
#[cold]
fn claim() -> Option<&'static Word> {
    // Its parent's threads may have held the allocator's lock.
    if process::is_bare() {
        return None;
    }
    // Touched so that it is dropped when the thread ends.
    GIVE_BACK.try_with(|_| ()).ok()?;
    let take = |word: &&Word| word.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok();
    let word = all().find(take).unwrap_or_else(make);
    set_own(Some(word));
    Some(word)
}

fn make() -> &'static Word {
    let word = Box::into_raw(Box::new(Word { calls: InCall::new(), taken: AtomicBool::new(true), next: None }));
    loop {
        let newest = NEWEST.load(Ordering::Acquire);
        // SAFETY: ours alone until it is in the list; and null or a word that lives for ever.
        unsafe { (*word).next = newest.as_ref() };
        if NEWEST.compare_exchange_weak(newest, word, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            // SAFETY: not null, never freed, and from here on only shared.
            return unsafe { &*word };
        }
    }
}
