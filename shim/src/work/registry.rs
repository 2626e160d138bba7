//! The program's contexts and streams.
//!
//! The pager asks the driver about them while the program may be making and destroying others, and so does
//! a thread that begins a capture. No lock is held meanwhile: who asks works on a copy, and whoever destroys
//! a stream or a context takes it out of the registry first and then waits until all copies are put away. So
//! the program may wait a few microseconds for the pager, and the pager never waits for the program.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A handle of the driver's, as a number.
pub(crate) type Handle = usize;

/// What is known of a stream's work from before it may have begun to capture: one that captures cannot be asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Before {
    /// There was none.
    #[default]
    Nothing,
    /// This event is behind all of it.
    Event(Handle),
    /// No event could be set.
    Unknown,
}

/// A stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stream {
    pub(crate) before: Before,
}

/// A context.
#[derive(Clone, Debug, Default)]
pub(crate) struct Context {
    pub(crate) streams: BTreeMap<Handle, Stream>,
}

/// All contexts of the process.
#[derive(Debug)]
pub(crate) struct Registry {
    contexts: Mutex<BTreeMap<Handle, Context>>,
    /// The primary contexts, by device.
    primaries: Mutex<BTreeMap<i32, Handle>>,
    /// How many captures have begun and not ended.
    captures: AtomicUsize,
    /// How many copies the driver is being asked about.
    asking: AtomicUsize,
    /// Changes when contexts go: whoever remembers something that belongs to one forgets it then.
    departures: AtomicUsize,
}

/// The one of this process.
pub(crate) static REGISTRY: Registry = Registry {
    contexts: Mutex::new(BTreeMap::new()),
    primaries: Mutex::new(BTreeMap::new()),
    captures: AtomicUsize::new(0),
    asking: AtomicUsize::new(0),
    departures: AtomicUsize::new(0),
};

/// A copy; while it lives, nothing in it is destroyed.
pub(crate) struct Snapshot(pub(crate) BTreeMap<Handle, Context>);

impl Drop for Snapshot {
    fn drop(&mut self) {
        REGISTRY.asking.fetch_sub(1, Ordering::Release);
    }
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Handle, Context>> {
        self.contexts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add_context(&self, context: Handle) {
        self.lock().entry(context).or_default();
    }

    /// A device's primary context was made; its handle is needed when it is left, and cannot be asked for then.
    pub(crate) fn add_primary(&self, device: i32, context: Handle) {
        self.primaries.lock().unwrap_or_else(PoisonError::into_inner).insert(device, context);
        self.add_context(context);
    }

    /// A device's primary context, if it was made.
    pub(crate) fn primary(&self, device: i32) -> Option<Handle> {
        self.primaries.lock().unwrap_or_else(PoisonError::into_inner).get(&device).copied()
    }

    pub(crate) fn add_stream(&self, context: Handle, stream: Handle) {
        self.lock().entry(context).or_default().streams.insert(stream, Stream::default());
    }

    /// A context is about to be destroyed, or may be.
    pub(crate) fn remove_context(&self, context: Handle) -> Option<Context> {
        let removed = self.lock().remove(&context);
        self.departures.fetch_add(1, Ordering::AcqRel);
        self.wait_for_askers();
        removed
    }

    /// It was not destroyed.
    pub(crate) fn put_back(&self, context: Handle, known: Context) {
        self.lock().insert(context, known);
    }

    /// A stream is about to be destroyed.
    pub(crate) fn remove_stream(&self, stream: Handle) {
        for context in self.lock().values_mut() {
            context.streams.remove(&stream);
        }
        self.wait_for_askers();
    }

    /// The context that a stream was made in, and what is known of the stream.
    pub(crate) fn stream(&self, stream: Handle) -> Option<(Handle, Before)> {
        self.lock().iter().find_map(|(context, known)| Some((*context, known.streams.get(&stream)?.before)))
    }

    pub(crate) fn set_before(&self, context: Handle, stream: Handle, before: Before) {
        // Streams that nobody made, like the default ones, are entered by this.
        self.lock().entry(context).or_default().streams.entry(stream).or_default().before = before;
    }

    /// Counts the contexts that went.
    pub(crate) fn departures(&self) -> usize {
        self.departures.load(Ordering::Acquire)
    }

    /// A capture begins: from here on streams are only asked after a look whether they capture.
    pub(crate) fn capture_begins(&self) {
        self.captures.fetch_add(1, Ordering::AcqRel);
        self.wait_for_askers();
    }

    pub(crate) fn capture_ends(&self) {
        // A program may end a capture that never began.
        let _ = self.captures.fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| count.checked_sub(1));
    }

    /// Whether some stream may be capturing.
    pub(crate) fn is_capturing(&self) -> bool {
        self.captures.load(Ordering::Acquire) != 0
    }

    /// A copy, about which the driver can be asked.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let contexts = self.lock();
        // Under the lock: whoever removes something afterwards sees it.
        self.asking.fetch_add(1, Ordering::AcqRel);
        Snapshot(contexts.clone())
    }

    fn wait_for_askers(&self) {
        while self.asking.load(Ordering::Acquire) != 0 {
            std::thread::sleep(Duration::from_micros(20));
        }
    }
    /// In a forked child: who asked there is gone.
    pub(crate) fn start_anew(&self) {
        self.asking.store(0, Ordering::Release);
    }
}
