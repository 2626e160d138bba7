//! Scans of tenants' memory on the GPU, while no program can write to it.
//!
//! One pass finds three things about every 2 MiB page. The first is a digest: a page that has not changed since it last came in is
//! not copied out again. The second is a mark for pages that are all zero, which are not copied at all. The third is the set of the
//! tenant's addresses that its words look like: a call that is given a pointer also waits for the memory that the pointed-to memory
//! refers to.
//!
//! All memory of a tenant is scanned when it first has to give memory away after it ran: memory that stays may point to memory that
//! goes. The pass runs 80 times as fast as copying, so evictions wait for it, chunk by chunk: scanned chunks leave while the rest
//! is scanned. Extents that were found changed several times in a row do not wait.

use std::collections::HashSet;
use std::sync::atomic::Ordering::Relaxed;

use baton_contract::memory::GRANULE;
use baton_contract::messages::{ExtentId, HOST_MEMORY, MAX_LISTED, TurnCommand};

use super::ground::Ground;
use super::scans::ScanUnderWay;
use crate::device::digest::{PAGE, Page, Scan, ScanId, Scanned, TO_HOST};
use crate::server::recorder::event::What;
use baton_policy::arbiter::TenantId;
use baton_policy::arrival::Pipeline;

/// Number of scans per arena's worth of memory: with 80 GB, each takes less than 2 ms (measured).
const LOOKS: u64 = 16;

/// The most pointers that a tenant is told. With more, it waits for everything.
const MOST_POINTERS: usize = 100_000;

impl Ground<'_> {
    /// Scans the memory of a tenant that is off the GPU, as far as its contents are unknown, beginning with the extents that are to
    /// go.
    pub(super) fn scan(&mut self, id: TenantId, going: &[ExtentId]) {
        let shared = self.store.sharing.of_owner(id);
        // Others may still write to them.
        let mut skipped: HashSet<ExtentId> =
            shared.into_iter().filter(|extent| !self.is_let_go_by_others(id, *extent)).collect();
        let Some(tenant) = self.tenants.get_mut(id).filter(|tenant| tenant.memory.scan.is_none()) else { return };
        let theirs = &tenant.connection.theirs;
        let window = theirs.window_start.load(Relaxed)..theirs.window_end.load(Relaxed);
        let host = theirs.host_start.load(Relaxed)..theirs.host_end.load(Relaxed);
        // A tenant that reports nonsense about its addresses only gets whole arrivals.
        let window = if window.is_empty() || !window.start.is_multiple_of(GRANULE) { 0..0 } else { window };
        let (grant, start) = (tenant.turn.number(), window.start);
        let all = going.iter().copied().chain(tenant.extents().iter().map(|(extent, _)| extent));
        let most = (self.store.frames.arena().capacity() / LOOKS / PAGE) as usize;
        let mut looks = Vec::new();
        let mut look = ScanUnderWay { tenant: id, grant, extents: Vec::new(), frames: Vec::new(), start };
        let mut pages = Vec::new();
        for extent in all.filter(|extent| skipped.insert(*extent)) {
            let Some(entry) = tenant.extents().get(extent).filter(|entry| !entry.is_scanned()) else { continue };
            let Some(frame) = entry.frame_of_contents() else { continue };
            let Some(memory) = self.store.frames.memory(frame) else { continue };
            let count = entry.class().bytes() / PAGE;
            look.extents.push((extent, count as usize));
            look.frames.push(frame);
            pages.extend((0..count).map(|page| memory.address + page * PAGE));
            if pages.len() >= most {
                let next = ScanUnderWay { extents: Vec::new(), frames: Vec::new(), ..look };
                looks.push((std::mem::replace(&mut look, next), std::mem::take(&mut pages)));
            }
        }
        if !pages.is_empty() {
            looks.push((look, pages));
        }
        for (look, pages) in looks {
            self.store.frames.begin_reading(&look.frames);
            // SAFETY: frames stay mapped here while they are in use, and `release` keeps those that are read.
            let scan = unsafe { self.store.scans.begin(pages, [window.clone(), host.clone()], look) };
            let first = tenant.memory.scan.as_ref().map_or(scan, |scans| *scans.start());
            tenant.memory.scan = Some(first..=scan);
        }
    }

    /// Handles the end of a scan. Returns its tenant, if all scans of that tenant are over.
    pub(super) fn on_scanned(&mut self, look: &ScanUnderWay, scanned: Scanned) -> Option<TenantId> {
        let mut is_last = false;
        match scanned.result {
            Ok(scan) => {
                let bytes = scan.pages.len() as u64 * PAGE;
                self.recorder.record(look.tenant, What::Scanned { bytes, time: scanned.time });
                self.note_contents(look, scanned.id, scan);
            }
            Err(error) => {
                baton_messages::warn!(scan_failed(error));
                // Memory that cannot be scanned is copied as it is, and comes back whole.
                self.store.rules.hash = false;
                self.store.rules.pipeline = Pipeline::Off;
            }
        }
        if let Some(tenant) = self.tenants.get_mut(look.tenant)
            && tenant.memory.scan.as_ref().is_some_and(|scans| *scans.end() == scanned.id)
        {
            tenant.memory.scan = None;
            is_last = true;
        }
        self.store.frames.end_reading(&look.frames);
        is_last.then_some(look.tenant)
    }

    fn note_contents(&mut self, look: &ScanUnderWay, id: ScanId, scan: Scan) {
        let Some(tenant) = self.tenants.get_mut(look.tenant) else { return };
        let counts = tenant.memory.scan.as_ref().is_some_and(|scans| scans.contains(&id));
        if !counts || tenant.turn.number() != look.grant {
            return;
        }
        let Some(mut extents) = self.tenants.extents(look.tenant) else { return };
        let Scan { pages, pointers } = scan;
        let mut pages = pages.into_iter();
        // The pointers are sorted by page, so those of one extent are together.
        let mut pointers = pointers.map(|all| all.into_iter().peekable());
        let mut first = 0;
        for (extent, count) in &look.extents {
            let end = first + *count as u32;
            let targets = pointers.as_mut().map(|all| {
                let mut targets = Vec::new();
                while let Some((_, granule)) = all.next_if(|(page, _)| *page < end) {
                    targets.push(match granule {
                        TO_HOST => HOST_MEMORY,
                        _ => look.start + u64::from(granule) * GRANULE,
                    });
                }
                targets.sort_unstable();
                targets.dedup();
                targets
            });
            first = end;
            let pages: Vec<Page> = pages.by_ref().take(*count).collect();
            extents.on_scanned(*extent, pages, targets);
        }
    }

    /// Tells a tenant where its extents point. Returns false if that is unknown.
    pub(super) fn tell_pointers(&mut self, id: TenantId) -> bool {
        let Some(tenant) = self.tenants.get(id) else { return false };
        let mut edges = Vec::new();
        // Others may have written since to memory that they can reach.
        if tenant.extents().counts().immovable > 0 {
            return false;
        }
        for (extent, entry) in tenant.extents().iter() {
            let Some(pointers) = entry.pointers() else { return false };
            edges.extend(pointers.iter().map(|address| (extent, *address)));
        }
        if edges.len() > MOST_POINTERS {
            return false;
        }
        if edges.is_empty() {
            self.tenants.tell(id, &TurnCommand::Pointers { edges, continues: false });
        } else {
            for (at, edges) in edges.chunks(MAX_LISTED).enumerate() {
                self.tenants.tell(id, &TurnCommand::Pointers { edges: edges.to_vec(), continues: at > 0 });
            }
        }
        true
    }
}
