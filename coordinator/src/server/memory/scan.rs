//! What is in tenants' memory: looked at on the GPU while nobody can write it.
//!
//! One pass tells three things of every 2 MiB page: a digest, by which what has not changed since it last came in is
//! not copied out again; whether it is all zero, which is not copied at all; and which addresses of the tenant's its
//! words look like, so that whoever is given a pointer waits also for what that memory points to.
//!
//! A tenant is looked at when it first has to give memory away after it ran, all that it has: what stays may point to what
//! goes. The pass runs 80 times as fast as copying, so evictions wait for it, chunk by chunk: what has been seen leaves while the
//! rest is looked at. Extents that were found changed several times in a row do not wait.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, channel};

use baton_contract::memory::GRANULE;
use baton_contract::messages::{ExtentId, HOST_MEMORY, MAX_LISTED, TurnCommand};

use super::Access;
use super::transfer::Rest;
use crate::device::digest::{PAGE, Page, Scan, ScanId, Scanned, Scanner, TO_HOST};
use crate::device::gpu::{Gpu, GpuError};
use crate::device::wake::Waker;
use crate::server::Pipeline;
use crate::server::recorder::event::What;
use baton_books::arena::FrameId;
use baton_policy::arbiter::TenantId;

/// So many looks at an arena's worth of memory: of 80 GB each takes less than 2 ms (measured).
const LOOKS: u64 = 16;

/// More pointers than this are not told to a tenant: it then waits for everything.
const MOST_POINTERS: usize = 100_000;

/// A scan of a tenant's contents under way.
#[derive(Debug)]
pub(super) struct ScanUnderWay {
    tenant: TenantId,
    /// The grant before which it began: another one makes it worthless.
    grant: u64,
    /// What is looked at, in order: with how many pages.
    extents: Vec<(ExtentId, usize)>,
    frames: Vec<FrameId>,
    /// Where the tenant's addresses begin.
    start: u64,
}

/// A scan of memory of a tenant that rests under way.
#[derive(Debug)]
pub(super) struct LookAhead {
    pub(super) tenant: TenantId,
    pub(super) rest: Rest,
    pub(super) extents: Vec<(ExtentId, FrameId)>,
}

/// A scan that is over.
pub(super) enum Looked {
    /// Of a tenant that gives memory away.
    Leaving(ScanUnderWay),
    /// Of one that rests.
    Ahead(LookAhead),
}

/// All scans under way.
pub(super) struct Scans {
    scanner: Scanner,
    scanned: Receiver<Scanned>,
    leaving: HashMap<ScanId, ScanUnderWay>,
    ahead: HashMap<ScanId, LookAhead>,
}

impl Scans {
    /// Starts the thread that scans.
    pub(super) fn new(gpu: &Gpu, waker: &Waker) -> Result<Self, GpuError> {
        let (reports, scanned) = channel();
        let scanner = Scanner::start(gpu, &reports, waker)?;
        Ok(Self { scanner, scanned, leaving: HashMap::new(), ahead: HashMap::new() })
    }

    /// The next one that is over.
    pub(super) fn next_over(&mut self) -> Option<(Looked, Scanned)> {
        loop {
            let scanned = self.scanned.try_recv().ok()?;
            let looked = match self.ahead.remove(&scanned.id) {
                Some(look) => Some(Looked::Ahead(look)),
                None => self.leaving.remove(&scanned.id).map(Looked::Leaving),
            };
            if let Some(looked) = looked {
                return Some((looked, scanned));
            }
        }
    }

    /// Scans pages of a tenant that rests.
    ///
    /// # Safety
    ///
    /// The pages stay mapped here until the scan is over.
    pub(super) unsafe fn look_ahead(&mut self, pages: Vec<u64>, look: LookAhead) {
        // SAFETY: by the caller's promise.
        let scan = unsafe { self.scanner.scan(pages, 0..0, 0..0) };
        self.ahead.insert(scan, look);
    }

    /// Whether nothing that is to leave is scanned.
    pub(super) fn is_idle(&self) -> bool {
        self.leaving.is_empty()
    }

    /// Whether memory of one that rests is.
    pub(super) fn is_looking_ahead(&self) -> bool {
        !self.ahead.is_empty()
    }
}

impl Access<'_> {
    /// Looks at what a tenant holds, as far as that is not known, beginning with what is to go. It is off the GPU.
    pub(super) fn scan(&mut self, id: TenantId, going: &[ExtentId]) {
        let shared = self.memory.sharing.of_owner(id);
        // Others may still write to them.
        let mut skipped: HashSet<ExtentId> =
            shared.into_iter().filter(|extent| !self.is_let_go_by_others(id, *extent)).collect();
        let Some(tenant) = self.tenants.get_mut(id).filter(|tenant| tenant.memory.scan.is_none()) else { return };
        let theirs = &tenant.connection.theirs;
        let window = theirs.window_start.load(Relaxed)..theirs.window_end.load(Relaxed);
        let host = theirs.host_start.load(Relaxed)..theirs.host_end.load(Relaxed);
        // A tenant that says nonsense about its addresses gets nothing for it but whole arrivals.
        let window = if window.is_empty() || !window.start.is_multiple_of(GRANULE) { 0..0 } else { window };
        let (grant, start) = (tenant.turn.number(), window.start);
        let all = going.iter().copied().chain(tenant.extents().iter().map(|(extent, _)| extent));
        let most = (self.memory.frames.arena().capacity() / LOOKS / PAGE) as usize;
        let mut looks = Vec::new();
        let mut look = ScanUnderWay { tenant: id, grant, extents: Vec::new(), frames: Vec::new(), start };
        let mut pages = Vec::new();
        for extent in all.filter(|extent| skipped.insert(*extent)) {
            let Some(entry) = tenant.extents().get(extent).filter(|entry| !entry.is_scanned()) else { continue };
            let Some(frame) = entry.frame_of_contents() else { continue };
            let Some(memory) = self.memory.frames.memory(frame) else { continue };
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
            // SAFETY: frames stay mapped here while they are in use, and `release` keeps those that are looked at.
            let scan = unsafe { self.memory.scans.scanner.scan(pages, window.clone(), host.clone()) };
            let first = tenant.memory.scan.as_ref().map_or(scan, |scans| *scans.start());
            tenant.memory.scan = Some(first..=scan);
            self.memory.frames.begin_reading(&look.frames);
            self.memory.scans.leaving.insert(scan, look);
        }
    }

    /// A look is over.
    pub(super) fn scanned(&mut self, look: &ScanUnderWay, scanned: Scanned) {
        match scanned.result {
            Ok(scan) => {
                let bytes = scan.pages.len() as u64 * PAGE;
                self.recorder.record(look.tenant, What::Scanned { bytes, time: scanned.time });
                self.note_contents(look, scanned.id, scan);
            }
            Err(error) => {
                log::warn!("scanning memory failed: {error}");
                // What cannot be looked at is copied as it is, and comes back whole.
                self.memory.rules.hash = false;
                self.memory.rules.pipeline = Pipeline::Off;
            }
        }
        if let Some(tenant) = self.tenants.get_mut(look.tenant)
            && tenant.memory.scan.as_ref().is_some_and(|scans| *scans.end() == scanned.id)
        {
            tenant.memory.scan = None;
            self.drop_spare(look.tenant);
        }
        self.memory.frames.end_reading(&look.frames);
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
        // Sorted by page, so each extent's are together.
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
            extents.scanned(*extent, pages, targets);
        }
    }

    /// Tells a tenant which of its extents point where. False if that cannot be told.
    pub(super) fn tell_pointers(&mut self, id: TenantId) -> bool {
        let Some(tenant) = self.tenants.get(id) else { return false };
        let mut edges = Vec::new();
        // To what others can reach, they may have written since.
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
