//! The host's part of memory: the pool's books, and the slabs behind it, which are prepared in the background.

use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, channel};

use crate::device::gpu::Gpu;
use crate::device::slabs::{Prepared, Slabs};
use crate::device::wake::Waker;
use baton_books::pool::{Pool, Run};

/// All memory on the host.
pub(super) struct Host {
    pool: Pool,
    slabs: Slabs,
    /// The slabs' files, which a successor could be given.
    files: Vec<OwnedFd>,
    prepared: Receiver<Prepared>,
    /// Bytes that have lost their place there although they may have to leave the GPU again.
    given_up: u64,
}

impl Host {
    /// Creates a pool of `bytes` bytes, which comes slab by slab. With `bar`, a terminal shows the progress.
    pub(super) fn new(gpu: &Gpu, bytes: u64, bar: bool, waker: Waker) -> std::io::Result<Self> {
        let (reports, prepared) = channel();
        let slabs = Slabs::prepare(gpu, bytes, bar, reports, waker)?;
        Ok(Self { pool: Pool::new(bytes, slabs.slab), slabs, files: Vec::new(), prepared, given_up: 0 })
    }

    /// The arena's books.
    pub(super) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Bytes that have lost their place in the pool and may have to leave the GPU again.
    pub(super) fn given_up(&self) -> u64 {
        self.given_up
    }

    /// The size of a slab. No run crosses a slab's end.
    pub(super) fn slab(&self) -> u64 {
        self.slabs.slab
    }

    /// The address of a run in this process.
    pub(super) fn address(&self, run: Run) -> usize {
        self.slabs.address(run)
    }

    /// True if more of the pool is yet to come.
    pub(super) fn is_preparing(&self) -> bool {
        self.pool.is_growing()
    }

    /// Takes the reports about slabs that are ready.
    pub(super) fn hear(&mut self) {
        while let Ok(prepared) = self.prepared.try_recv() {
            match prepared {
                Prepared::Slab(number, file) => {
                    self.pool.slab_ready(number);
                    self.files.push(file);
                }
                Prepared::Failed(why) => {
                    baton_messages::warn!(host_pool_ends_at(self.pool.ready() >> 20, why));
                    self.pool.no_more();
                }
            }
            if !self.is_preparing() {
                baton_messages::info!(host_pool_is_ready(self.pool.ready() >> 20));
            }
        }
    }

    /// Takes room for this many bytes.
    pub(super) fn take(&mut self, bytes: u64) -> Option<Vec<Run>> {
        self.pool.take(bytes)
    }

    /// Gives back room that no tenant needs any more.
    pub(super) fn give_back(&mut self, runs: Vec<Run>) {
        self.pool.give_back(runs);
    }

    /// Gives up the room of memory on the GPU that may have to leave again.
    pub(super) fn give_up(&mut self, runs: Vec<Run>) {
        self.given_up += runs.iter().map(|run| run.bytes).sum::<u64>();
        self.pool.give_back(runs);
    }
}
