//! Scans under way: one pass over pages finds a digest of each page, marks pages that are all zero, and finds the addresses that
//! words look like.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::mpsc::{Receiver, channel};

use baton_contract::messages::ExtentId;

use super::transfer::Rest;
use crate::device::digest::{ScanId, Scanned, Scanner};
use crate::device::gpu::{Gpu, GpuError};
use crate::device::wake::Waker;
use baton_books::arena::FrameId;
use baton_policy::arbiter::TenantId;

/// A scan of a tenant's contents under way.
#[derive(Debug)]
pub(super) struct ScanUnderWay {
    pub(super) tenant: TenantId,
    /// The grant before which the scan began: another grant makes it worthless.
    pub(super) grant: u64,
    /// The scanned extents, in order, with their numbers of pages.
    pub(super) extents: Vec<(ExtentId, usize)>,
    pub(super) frames: Vec<FrameId>,
    /// The start of the tenant's addresses.
    pub(super) start: u64,
}

/// A scan under way of the memory of a tenant that rests.
#[derive(Debug)]
pub(super) struct ScanAhead {
    pub(super) tenant: TenantId,
    pub(super) rest: Rest,
    pub(super) extents: Vec<(ExtentId, FrameId)>,
}

/// A scan that is over.
pub(super) enum Looked {
    /// A scan of a tenant that gives memory away.
    Leaving(ScanUnderWay),
    /// A scan of a tenant that rests.
    Ahead(ScanAhead),
}

/// All scans under way.
pub(super) struct Scans {
    scanner: Scanner,
    scanned: Receiver<Scanned>,
    leaving: HashMap<ScanId, ScanUnderWay>,
    ahead: HashMap<ScanId, ScanAhead>,
}

impl Scans {
    /// Starts the thread that scans.
    pub(super) fn new(gpu: &Gpu, waker: &Waker) -> Result<Self, GpuError> {
        let (reports, scanned) = channel();
        let scanner = Scanner::start(gpu, &reports, waker)?;
        Ok(Self { scanner, scanned, leaving: HashMap::new(), ahead: HashMap::new() })
    }

    /// Takes the next scan that is over.
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

    /// Scans pages of a tenant that gives memory away, for addresses in two windows.
    ///
    /// # Safety
    ///
    /// The pages stay mapped here until the scan is over.
    pub(super) unsafe fn begin(
        &mut self,
        pages: Vec<u64>,
        [window, host]: [Range<u64>; 2],
        look: ScanUnderWay,
    ) -> ScanId {
        // SAFETY: by the caller's promise.
        let scan = unsafe { self.scanner.scan(pages, window, host) };
        self.leaving.insert(scan, look);
        scan
    }

    /// Scans pages of a tenant that rests.
    ///
    /// # Safety
    ///
    /// The pages stay mapped here until the scan is over.
    pub(super) unsafe fn begin_ahead(&mut self, pages: Vec<u64>, look: ScanAhead) {
        // SAFETY: by the caller's promise.
        let scan = unsafe { self.scanner.scan(pages, 0..0, 0..0) };
        self.ahead.insert(scan, look);
    }

    /// True if no memory that is to leave is being scanned.
    pub(super) fn is_idle(&self) -> bool {
        self.leaving.is_empty()
    }

    /// True if memory of a resting tenant is being scanned.
    pub(super) fn is_looking_ahead(&self) -> bool {
        !self.ahead.is_empty()
    }
}
