//! Reads device memory, and copies it, in a stream of our own that orders no other. The data comes into host memory that a copy needs no
//! staging for. Stream and memory belong to their context, and go with it.

use core::ffi::c_void;
use core::ptr;
use std::time::{Duration, Instant};

use baton_contract::cuda::{CUDA_ERROR_NOT_READY, CUDA_SUCCESS, CUdeviceptr};

use super::contexts::{self, ContextId, Reader};
use super::drain::Pauses;
use crate::driver::api::{self, Handle, Stream};
use crate::sys::thread;

/// `CU_MEMHOSTALLOC_PORTABLE`.
const PORTABLE: u32 = 1;
/// The limit after which a read gives up.
const LONGEST: Duration = Duration::from_millis(200);

/// Reads device memory of a context while nothing runs and nothing captures; false if that cannot be done.
pub(crate) fn read(context: Handle, at: CUdeviceptr, bytes: usize, see: impl FnOnce(&[u8])) -> bool {
    contexts::id_of(context).is_some_and(|id| with_reader(id, |reader| reader.read(at, bytes).map(see)).is_some())
}

/// Runs a closure with a context's reader; the context is current and does not end meanwhile. Only the thread that follows the
/// coordinator's commands comes here.
fn with_reader<T>(id: ContextId, what: impl FnOnce(&mut Reader) -> Option<T>) -> Option<T> {
    let mut reader = {
        let mut contexts = contexts::lock();
        let context = contexts.live(id).ok()?;
        context.is_read = true;
        context.reader
    };
    // Nothing runs, so no thread is stuck.
    let what = || api::where_nobody_is_stuck(|| what(&mut reader));
    let done = api::within(id.handle(), what).flatten();
    if let Some(context) = contexts::lock().get(id) {
        (context.reader, context.is_read) = (reader, false);
    }
    contexts::settled();
    done
}

/// Waits until a stream has ended, or until `end`; `None` if it has not, or has failed.
fn wait_for(stream: Stream, end: Option<Instant>) -> Option<()> {
    let mut pauses = Pauses::new();
    loop {
        // SAFETY: a stream of ours in the current context, which never captures.
        match unsafe { api::stream_query(stream) } {
            CUDA_SUCCESS => return Some(()),
            CUDA_ERROR_NOT_READY if end.is_none_or(|end| Instant::now() < end) => thread::sleep(pauses.next()),
            _ => return None,
        }
    }
}

impl Reader {
    /// Reads device memory into the buffer. The context is current.
    fn read(&mut self, at: CUdeviceptr, bytes: usize) -> Option<&[u8]> {
        let stream = self.stream()?;
        self.reserve(bytes)?;
        let to: *mut c_void = ptr::with_exposed_provenance_mut(self.buffer.0);
        // SAFETY: memory that the driver has told about, room for it, and a stream of ours in the current context.
        if unsafe { api::copy_out(to, at, bytes, stream.ordered()?) } != CUDA_SUCCESS {
            return None;
        }
        if wait_for(stream, Some(Instant::now() + LONGEST)).is_none() {
            // The copy may still write there.
            self.buffer = (0, 0);
            return None;
        }
        // SAFETY: `bytes` bytes were written, and the buffer is no longer written to.
        Some(unsafe { core::slice::from_raw_parts(to.cast(), bytes) })
    }

    fn stream(&mut self) -> Option<Stream> {
        self.stream = self.stream.or_else(|| api::new_stream(api::NON_BLOCKING));
        self.stream.map(Stream::Created)
    }

    fn reserve(&mut self, bytes: usize) -> Option<()> {
        if self.buffer.1 >= bytes {
            return Some(());
        }
        let size = bytes.next_power_of_two();
        // The earlier buffer stays: giving it back may wait for the GPU.
        self.buffer = (api::new_host_memory(size, PORTABLE)?, size);
        Some(())
    }
}
