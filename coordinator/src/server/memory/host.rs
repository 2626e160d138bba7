//! The host's part of memory: the pool's books, and the slabs behind it, which are prepared in the background.

use std::collections::{BTreeMap, HashSet};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::mpsc::{Receiver, channel};

use baton_contract::memory::GRANULE;
use baton_messages::Message;

use crate::device::gpu::Gpu;
use crate::device::slabs::{Prepared, Slabs};
use crate::device::wake::Waker;
use crate::keeper::{Keeper, Key};
use baton_books::pool::{Pool, Run};

/// All memory on the host.
pub(super) struct Host {
    pool: Pool,
    slabs: Slabs,
    keeper: Keeper,
    /// The slabs that another coordinator has left.
    left: HashSet<u64>,
    /// Those of them that are not there yet.
    awaited: HashSet<u64>,
    /// The files of the slabs that are there or were left: the keeper has them.
    files: BTreeMap<u64, OwnedFd>,
    prepared: Receiver<Prepared>,
    /// Bytes that have lost their place there although they may have to leave the GPU again.
    given_up: u64,
}

impl Host {
    /// Creates a pool of `bytes` bytes, which comes slab by slab, first those that were `left`. With `bar`, a terminal shows the progress.
    pub(super) fn new(
        gpu: &Gpu,
        bytes: u64,
        bar: bool,
        left: BTreeMap<u64, OwnedFd>,
        (keeper, waker): (Keeper, Waker),
    ) -> std::io::Result<Self> {
        let (reports, prepared) = channel();
        let had: HashSet<u64> = left.keys().copied().collect();
        // Another keeper may be there before they are ready.
        let files = left.iter().map(|(number, file)| Ok((*number, file.try_clone()?)));
        let files = files.collect::<std::io::Result<_>>()?;
        let slabs = Slabs::prepare(gpu, bytes, bar, left, (reports, waker))?;
        Ok(Self {
            pool: Pool::new(bytes, slabs.slab),
            slabs,
            keeper,
            awaited: had.clone(),
            left: had,
            files,
            prepared,
            given_up: 0,
        })
    }

    /// Notes that these pages, by their offsets, are in use.
    pub(super) fn take_pages(&mut self, pages: impl Iterator<Item = u64>) {
        for page in pages {
            if !self.is_lost(page) {
                self.pool.take_page(page);
            }
        }
    }

    /// True if pages are in use in a slab that is not there yet.
    pub(super) fn awaits_pages(&self) -> bool {
        self.pool.awaits_pages()
    }

    /// True if another coordinator's page is in a slab that it has not left.
    pub(super) fn is_lost(&self, page: u64) -> bool {
        !self.left.contains(&(page / self.slabs.slab))
    }

    /// Gives a page back that is in no tenant's use.
    pub(super) fn give_back_page(&mut self, at: u64) {
        if self.is_lost(at) {
            return;
        }
        self.pool.give_back(vec![Run { at, bytes: GRANULE }]);
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
    ///
    /// # Errors
    ///
    /// When one that another coordinator has left cannot be had: programs have data there.
    pub(super) fn hear(&mut self) -> Result<(), Message> {
        while let Ok(prepared) = self.prepared.try_recv() {
            match prepared {
                Prepared::Slab(number, file) => {
                    self.pool.slab_ready(number);
                    if !self.awaited.remove(&number) {
                        self.keeper.hold(Key::Slab(number), &[], &[file.as_fd()]);
                        self.files.insert(number, file);
                    }
                }
                Prepared::Failed(why) if !self.awaited.is_empty() => {
                    return Err(baton_messages::pool_cannot_be_had(why));
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
        Ok(())
    }

    /// Has the keeper hold all slabs.
    pub(super) fn keep_all(&self) {
        for (number, file) in &self.files {
            self.keeper.hold(Key::Slab(*number), &[], &[file.as_fd()]);
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
