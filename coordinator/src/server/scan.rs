//! What is in tenants' memory: looked at on the GPU while nobody can write it.
//!
//! One pass tells three things of every 2 MiB page: a digest, by which what has not changed since it last came in is
//! not copied out again; whether it is all zero, which is not copied at all; and which addresses of the tenant's its
//! words look like, so that whoever is given a pointer waits also for what that memory points to.
//!
//! A tenant is looked at when it first has to give memory away after it ran, all that it has at once: what stays
//! may point to what goes. The pass runs 80 times as fast as copying, so evictions wait for it; except for extents that
//! were found changed several times in a row.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use baton_contract::memory::GRANULE;
use baton_contract::messages::{ExtentId, MAX_LISTED, TurnCommand};

use super::tenant::{Contents, Extent, ExtentState};
use super::{Pipeline, Server};
use crate::books::arena::FrameId;
use crate::device::digest::{PAGE, Page, Scan, ScanId, Scanned};
use crate::policy::arbiter::TenantId;

/// After so many times, changes are taken for granted.
const OFTEN_DIRTY: u8 = 3;
/// More pointers than this are not told to a tenant: it then waits for everything.
const MOST_POINTERS: usize = 100_000;

const _: () = assert!(PAGE == GRANULE);

/// A look at a tenant's contents under way.
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

/// What has to be copied of an extent that leaves.
pub(super) enum Copies {
    /// It has to be looked at before.
    Unknown,
    /// Nothing.
    Nothing,
    /// These parts: offsets in bytes.
    Parts(Vec<Range<u64>>),
}

/// Joins the pages that are wanted to parts as long as possible.
pub(super) fn parts(wanted: impl Iterator<Item = bool>) -> Vec<Range<u64>> {
    let mut parts: Vec<Range<u64>> = Vec::new();
    for (at, wanted) in wanted.enumerate() {
        let (start, end) = (at as u64 * PAGE, (at as u64 + 1) * PAGE);
        match parts.last_mut() {
            _ if !wanted => {}
            Some(last) if last.end == start => last.end = end,
            _ => parts.push(start..end),
        }
    }
    parts
}

impl Extent {
    /// What has to be copied out of it.
    pub(super) fn copies(&self, hash: bool) -> Copies {
        let everything = || Copies::Parts(parts(std::iter::repeat_n(true, (self.class.bytes() / PAGE) as usize)));
        if self.is_backed() {
            return Copies::Nothing;
        }
        match &self.contents {
            None if self.dirty >= OFTEN_DIRTY || !hash => everything(),
            None => Copies::Unknown,
            Some(_) if !hash => everything(),
            Some(contents) => {
                let known = self.backing.as_ref().map_or(&[][..], |backing| &backing.pages);
                let changed = |(at, page): (usize, &Page)| !page.zero && known.get(at) != Some(page);
                match parts(contents.pages.iter().enumerate().map(changed)) {
                    parts if parts.is_empty() => Copies::Nothing,
                    parts => Copies::Parts(parts),
                }
            }
        }
    }

    /// Counts whether most of it had changed.
    fn count_changes(&mut self) {
        let (Some(contents), Some(backing)) = (&self.contents, &self.backing) else { return };
        let known = if backing.before.is_empty() { &backing.pages } else { &backing.before };
        if known.is_empty() {
            return;
        }
        let changed = contents.pages.iter().zip(known).filter(|(now, before)| now != before).count();
        self.dirty = if 2 * changed > contents.pages.len() { self.dirty.saturating_add(1) } else { 0 };
    }
}

impl Server {
    /// Looks at what a tenant holds, as far as that is not known. It is off the GPU.
    pub(super) fn scan(&mut self, id: TenantId) {
        let Some(tenant) = self.tenants.get_mut(&id).filter(|tenant| tenant.scan.is_none()) else { return };
        let (mut extents, mut pages, mut frames) = (Vec::new(), Vec::new(), Vec::new());
        for (extent, entry) in &tenant.extents {
            let frame = match entry.state {
                ExtentState::Resident { frame } => frame,
                // Being copied out, unseen, because it was often dirty: its frame is still its own.
                ExtentState::Leaving { frame, .. } => frame,
                _ => continue,
            };
            if entry.contents.is_some() {
                continue;
            }
            let Some(memory) = &self.frames[frame.0 as usize] else { continue };
            extents.push((*extent, (entry.class.bytes() / PAGE) as usize));
            pages.extend((0..entry.class.bytes()).step_by(PAGE as usize).map(|offset| memory.address + offset));
            frames.push(frame);
        }
        if extents.is_empty() {
            return;
        }
        let window = tenant.theirs.window_start.load(Relaxed)..tenant.theirs.window_end.load(Relaxed);
        // A tenant that says nonsense about its addresses gets nothing for it but whole arrivals.
        let window = if window.is_empty() || !window.start.is_multiple_of(GRANULE) { 0..0 } else { window };
        let start = window.start;
        // SAFETY: frames stay mapped here while they are in use, and `release` keeps those that are looked at.
        let scan = unsafe { self.scanner.scan(pages, window) };
        tenant.scan = Some(scan);
        for frame in &frames {
            *self.scanning.entry(*frame).or_default() += 1;
        }
        self.scans.insert(scan, ScanUnderWay { tenant: id, grant: tenant.grant, extents, frames, start });
    }

    /// A look is over.
    pub(super) fn scanned(&mut self, scanned: Scanned) {
        let Some(look) = self.scans.remove(&scanned.id) else { return };
        match scanned.result {
            Ok(scan) => {
                self.ledger.scanned(scan.pages.len() as u64 * PAGE, scanned.time);
                self.note_contents(&look, scanned.id, scan);
            }
            Err(error) => {
                log::warn!("scanning memory failed: {error}");
                // What cannot be looked at is copied as it is, and comes back whole.
                self.options.hash = false;
                self.options.pipeline = Pipeline::Off;
            }
        }
        if let Some(tenant) = self.tenants.get_mut(&look.tenant)
            && tenant.scan == Some(scanned.id)
        {
            tenant.scan = None;
        }
        for frame in look.frames {
            let left = self.scanning.entry(frame).or_insert(1);
            *left -= 1;
            if *left == 0 {
                self.scanning.remove(&frame);
                if let Some(at) = self.released.iter().position(|released| *released == frame) {
                    self.released.swap_remove(at);
                    self.free_frame(frame);
                }
            }
        }
    }

    fn note_contents(&mut self, look: &ScanUnderWay, id: ScanId, scan: Scan) {
        let Some(tenant) = self.tenants.get_mut(&look.tenant) else { return };
        if tenant.scan != Some(id) || tenant.grant != look.grant {
            return;
        }
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
                    targets.push(look.start + u64::from(granule) * GRANULE);
                }
                targets.sort_unstable();
                targets.dedup();
                targets
            });
            first = end;
            let pages: Vec<Page> = pages.by_ref().take(*count).collect();
            let Some(entry) = tenant.extents.get_mut(extent) else { continue };
            entry.contents = Some(Contents { pages: pages.clone(), pointers: targets });
            entry.count_changes();
            if !entry.state.is_resident()
                && let Some(backing) = &mut entry.backing
            {
                // It left unseen; now it is known what of.
                backing.pages = pages;
            }
        }
    }

    /// A frame that its tenant no longer has. One that is being looked at is free when that is over.
    pub(super) fn release(&mut self, frame: FrameId) {
        if self.scanning.contains_key(&frame) {
            self.released.push(frame);
        } else {
            self.free_frame(frame);
        }
    }

    /// Tells a tenant which of its extents point where. False if that cannot be told.
    pub(super) fn tell_pointers(&mut self, id: TenantId) -> bool {
        let Some(tenant) = self.tenants.get(&id) else { return false };
        let mut edges = Vec::new();
        for (extent, entry) in &tenant.extents {
            if entry.immovable {
                // Others may have written to it since.
                return false;
            }
            let Some(pointers) = entry.contents.as_ref().and_then(|contents| contents.pointers.as_ref()) else {
                return false;
            };
            edges.extend(pointers.iter().map(|address| (*extent, *address)));
        }
        if edges.len() > MOST_POINTERS {
            return false;
        }
        if edges.is_empty() {
            self.command(id, &TurnCommand::Pointers { edges, continues: false });
        } else {
            for (at, edges) in edges.chunks(MAX_LISTED).enumerate() {
                self.command(id, &TurnCommand::Pointers { edges: edges.to_vec(), continues: at > 0 });
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use baton_contract::memory::SizeClass;

    use super::*;
    use crate::server::tenant::Backing;

    fn page(digest: u64) -> Page {
        Page { digest: [digest, 0], zero: digest == 0 }
    }

    fn extent(before: Option<&[u64]>, now: Option<&[u64]>) -> Extent {
        let pages = |digests: &[u64]| digests.iter().map(|digest| page(*digest)).collect::<Vec<_>>();
        Extent {
            class: SizeClass::ALL[1],
            state: ExtentState::Host,
            backing: before.map(|before| Backing {
                runs: Vec::new(),
                pages: pages(before),
                before: Vec::new(),
                current: false,
            }),
            contents: now.map(|now| Contents { pages: pages(now), pointers: None }),
            dirty: 0,
            immovable: false,
        }
    }

    fn copied(extent: &Extent, hash: bool) -> Option<Vec<Range<u64>>> {
        match extent.copies(hash) {
            Copies::Unknown => None,
            Copies::Nothing => Some(Vec::new()),
            Copies::Parts(parts) => Some(parts),
        }
    }

    #[test]
    fn only_what_changed_and_is_not_zero_is_copied() {
        let all = 0..4 * PAGE;
        assert_eq!(copied(&extent(None, Some(&[1, 2, 3, 4])), true), Some([all.clone()].to_vec()));
        assert_eq!(copied(&extent(Some(&[1, 2, 3, 4]), Some(&[1, 2, 3, 4])), true), Some(vec![]));
        let some = extent(Some(&[1, 2, 3, 4]), Some(&[9, 2, 8, 7]));
        assert_eq!(copied(&some, true), Some(vec![0..PAGE, 2 * PAGE..4 * PAGE]));
        assert_eq!(copied(&extent(Some(&[1, 2, 3, 4]), Some(&[0, 0, 3, 0])), true), Some(vec![]));
        assert_eq!(copied(&some, false), Some([all.clone()].to_vec()));
        assert_eq!(copied(&extent(Some(&[]), Some(&[1, 0, 3, 0])), true), Some(vec![0..PAGE, 2 * PAGE..3 * PAGE]));
    }

    #[test]
    fn what_was_dirty_often_is_not_looked_at_first() {
        let mut often = extent(Some(&[1, 2, 3, 4]), None);
        assert_eq!(copied(&often, true), None);
        for n in 0..OFTEN_DIRTY {
            assert_eq!(often.dirty, n);
            often.contents = Some(Contents { pages: [5, 6, 7, 4].map(page).to_vec(), pointers: None });
            often.count_changes();
            often.contents = None;
        }
        assert_eq!(copied(&often, true), Some(parts(std::iter::repeat_n(true, 4))));
        often.contents = Some(Contents { pages: [1, 2, 3, 5].map(page).to_vec(), pointers: None });
        often.count_changes();
        assert_eq!(often.dirty, 0, "and trusted again as soon as it keeps");
    }
}
