//! The program's contexts and streams.
//!
//! The pager asks the driver about them while the program may be making and destroying others. No lock is
//! held meanwhile: the pager works on a copy, and whoever destroys a stream or a context takes it out of
//! the registry first and then waits until the pager has put its copy away. So the program may wait a
//! few microseconds for the pager, and the pager never waits for the program.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A handle of the driver's, as a number.
pub(crate) type Handle = usize;

/// A stream.
#[derive(Clone, Debug, Default)]
pub(super) struct Stream {
    /// An event behind all its work from before it may have begun to capture: a stream that captures
    /// cannot be asked.
    pub(super) before: Option<Handle>,
}

/// A context.
#[derive(Clone, Debug, Default)]
pub(super) struct Context {
    pub(super) streams: BTreeMap<Handle, Stream>,
}

/// All contexts of the process.
#[derive(Debug)]
pub(super) struct Registry {
    contexts: Mutex<BTreeMap<Handle, Context>>,
    /// The primary contexts, by device.
    primaries: Mutex<BTreeMap<i32, Handle>>,
    /// How many captures have begun and not ended.
    captures: AtomicUsize,
    /// The pager is asking the driver about a copy.
    asking: AtomicBool,
}

/// The one of this process.
pub(super) static REGISTRY: Registry = Registry {
    contexts: Mutex::new(BTreeMap::new()),
    primaries: Mutex::new(BTreeMap::new()),
    captures: AtomicUsize::new(0),
    asking: AtomicBool::new(false),
};

/// The pager's copy; while it lives, nothing in it is destroyed.
pub(super) struct Snapshot(pub(super) BTreeMap<Handle, Context>);

impl Drop for Snapshot {
    fn drop(&mut self) {
        REGISTRY.asking.store(false, Ordering::Release);
    }
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Handle, Context>> {
        self.contexts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add_context(&self, context: Handle) {
        self.lock().entry(context).or_default();
    }

    /// A device's primary context was made; its handle is needed when it is left, and cannot be asked for then.
    pub(super) fn add_primary(&self, device: i32, context: Handle) {
        self.primaries.lock().unwrap_or_else(PoisonError::into_inner).insert(device, context);
        self.add_context(context);
    }

    /// A device's primary context, if it was made.
    pub(super) fn primary(&self, device: i32) -> Option<Handle> {
        self.primaries.lock().unwrap_or_else(PoisonError::into_inner).get(&device).copied()
    }

    pub(super) fn add_stream(&self, context: Handle, stream: Handle) {
        self.lock().entry(context).or_default().streams.insert(stream, Stream::default());
    }

    /// A context is about to be destroyed, or may be.
    pub(super) fn remove_context(&self, context: Handle) -> Option<Context> {
        let removed = self.lock().remove(&context);
        self.wait_for_pager();
        removed
    }

    /// It was not destroyed.
    pub(super) fn put_back(&self, context: Handle, known: Context) {
        self.lock().insert(context, known);
    }

    /// A stream is about to be destroyed.
    pub(super) fn remove_stream(&self, stream: Handle) {
        for context in self.lock().values_mut() {
            context.streams.remove(&stream);
        }
        self.wait_for_pager();
    }

    /// The streams of a context.
    pub(super) fn streams(&self, context: Handle) -> Vec<Handle> {
        self.lock().get(&context).map(|context| context.streams.keys().copied().collect()).unwrap_or_default()
    }

    /// Which event is behind a stream's work from before a capture.
    pub(super) fn before(&self, context: Handle, stream: Handle) -> Option<Handle> {
        self.lock().get(&context)?.streams.get(&stream)?.before
    }

    pub(super) fn set_before(&self, context: Handle, stream: Handle, event: Handle) {
        // Streams that nobody made, like the default ones, are entered by this.
        self.lock().entry(context).or_default().streams.entry(stream).or_default().before = Some(event);
    }

    /// A capture begins: from here on streams are only asked after a look whether they capture.
    pub(super) fn capture_begins(&self) {
        self.captures.fetch_add(1, Ordering::AcqRel);
        self.wait_for_pager();
    }

    pub(super) fn capture_ends(&self) {
        // A program may end a capture that never began.
        let _ = self.captures.fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| count.checked_sub(1));
    }

    /// Whether some stream may be capturing.
    pub(super) fn is_capturing(&self) -> bool {
        self.captures.load(Ordering::Acquire) != 0
    }

    /// A copy for the pager.
    pub(super) fn snapshot(&self) -> Snapshot {
        let contexts = self.lock();
        // Under the lock: whoever removes something afterwards sees it.
        self.asking.store(true, Ordering::Release);
        Snapshot(contexts.clone())
    }

    fn wait_for_pager(&self) {
        while self.asking.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_micros(20));
        }
    }
}
