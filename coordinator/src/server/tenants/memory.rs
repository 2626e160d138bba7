//! A tenant's memory, the commands to the tenant about it, and the notices to the user about it.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use baton_contract::messages::ExtentId;

use super::limits::ANSWER_LIMIT;
use crate::device::digest::ScanId;
use crate::device::gpu::Imported;
use baton_books::extents::Extents;
use baton_policy::first_use::History;

/// The pause before lost frames are sent again: at first, and at last. It doubles in between.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// A command to the tenant's control loop that is under way.
#[derive(Debug)]
pub(in crate::server) enum Batch {
    Prepare(Vec<ExtentId>),
    Map(Vec<ExtentId>),
    Unmap(Vec<ExtentId>),
    /// The memory at this address was copied into one piece, which the tenant is to map, or the copy failed.
    Consolidated(u64),
}

/// A row of extents that becomes one piece.
#[derive(Debug)]
pub(in crate::server) struct Consolidation {
    pub(in crate::server) at: u64,
    pub(in crate::server) bytes: u64,
    pub(in crate::server) stage: Stage,
}

/// The progress of a consolidation.
#[derive(Debug)]
pub(in crate::server) enum Stage {
    /// The contents are to be copied here when the tenant is off the GPU and all its memory is there.
    Wanted(Imported),
    Copying,
    /// The tenant was told the result.
    Told,
}

/// A tenant's ability to carry out such commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mappings {
    Change,
    /// The tenant is unresponsive: its memory leaves without being unmapped there.
    Taken {
        since: Instant,
        /// The signs of life that the tenant had given by then.
        signs: [u32; 2],
        /// The time of the last check for later ones.
        looked: Instant,
        /// True if the memory comes back to the frames that the tenant still has mapped, because the tenant cannot change mappings
        /// before its work goes on.
        in_place: bool,
    },
    /// A command failed: the tenant's memory stays where it is until the tenant ends.
    Stay,
}

/// A notice about a tenant's memory that the user gets once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Notice {
    /// The tenant can open no more descriptors.
    NoDescriptors,
    /// Some of the memory cannot move.
    Immovable,
    /// The memory does not fit beside others' immovable memory.
    NoRoom,
    /// It has memory that others have allocated, and no longer have.
    Heir,
    /// The tenant waits for memory of an unresponsive tenant.
    PutOff,
}

/// Frames that did not reach a tenant.
#[derive(Clone, Copy, Debug)]
struct Redelivery {
    since: Instant,
    /// The time at which they are sent again.
    at: Instant,
    pause: Duration,
}

/// A tenant's memory.
#[derive(Debug)]
pub(in crate::server) struct Holdings {
    /// Changed by [`Tenants::extents`](super::table::Tenants::extents) only.
    pub(super) extents: Extents,
    mappings: Mappings,
    batches: HashMap<u32, (Instant, Batch)>,
    next_batch: u32,
    redelivery: Option<Redelivery>,
    notices: Vec<Notice>,
    /// The most memory that the tenant has had, in bytes.
    pub(in crate::server) peak_bytes: u64,
    /// The order in which the memory is used.
    pub(in crate::server) history: History,
    /// The scans of its contents that are under way, each of which counts.
    pub(in crate::server) scan: Option<RangeInclusive<ScanId>>,
    compaction: Compaction,
    /// The rows of its extents that are to become one piece.
    pub(in crate::server) consolidations: Vec<Consolidation>,
    /// True if it has got hold of others' memory that is not here, and may not have heard of that yet.
    pub(in crate::server) knows_later: bool,
    /// True if memory has gone to the host since it was last cut into extents.
    pub(in crate::server) can_be_recut: bool,
    /// Extents that have got a frame, of which the tenant is to be told.
    pub(in crate::server) reserved: Vec<ExtentId>,
    /// True if the memory was evicted on request: it is not brought in ahead before the tenant asks for the GPU.
    pub(in crate::server) sent_away: bool,
}

/// The state of giving back a tenant's spare memory that is in its own way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compaction {
    No,
    /// The tenant was asked to leave the GPU for that, or has left it.
    UnderWay,
    /// There is no room for the memory that shares extents with the spare memory.
    Impossible,
}

impl Default for Holdings {
    fn default() -> Self {
        Self {
            extents: Extents::default(),
            mappings: Mappings::Change,
            batches: HashMap::new(),
            next_batch: 0,
            redelivery: None,
            notices: Vec::new(),
            peak_bytes: 0,
            history: History::default(),
            scan: None,
            compaction: Compaction::No,
            consolidations: Vec::new(),
            knows_later: false,
            can_be_recut: false,
            reserved: Vec::new(),
            sent_away: false,
        }
    }
}

impl Holdings {
    /// Its extents.
    pub(in crate::server) fn extents(&self) -> &Extents {
        &self.extents
    }

    /// Notes that the tenant can no longer map or unmap memory.
    pub(in crate::server) fn stay(&mut self) {
        self.mappings = Mappings::Stay;
    }

    /// True if the memory stays where it is.
    pub(in crate::server) fn stays(&self) -> bool {
        self.mappings == Mappings::Stay
    }

    /// Takes the memory: from now on it leaves without being unmapped in the tenant.
    pub(in crate::server) fn take(&mut self, signs: [u32; 2]) {
        let now = Instant::now();
        self.mappings = Mappings::Taken { since: now, signs, looked: now, in_place: false };
    }

    /// True if the signs of life have changed since the memory was taken.
    pub(in crate::server) fn has_shown_life(&self, now: [u32; 2]) -> bool {
        matches!(self.mappings, Mappings::Taken { signs, .. } if signs != now)
    }

    /// Notes that the tenant is checked for signs of life now.
    pub(in crate::server) fn look_for_life(&mut self) {
        if let Mappings::Taken { looked, .. } = &mut self.mappings {
            *looked = Instant::now();
        }
    }

    /// The time of the last check for signs of life, if further ones are due.
    pub(super) fn looked_for_life(&self) -> Option<Instant> {
        match self.mappings {
            Mappings::Taken { looked, in_place: false, .. } => Some(looked),
            Mappings::Taken { .. } | Mappings::Change | Mappings::Stay => None,
        }
    }

    /// The time since when the memory has been taken.
    pub(in crate::server) fn taken_since(&self) -> Option<Instant> {
        match self.mappings {
            Mappings::Taken { since, .. } => Some(since),
            Mappings::Change | Mappings::Stay => None,
        }
    }

    /// True if the memory is taken.
    pub(in crate::server) fn is_taken(&self) -> bool {
        self.taken_since().is_some()
    }

    /// Lets the memory return in place, because the tenant lives and cannot unmap memory before its work goes on. Returns false if
    /// that was known, or no memory was taken.
    pub(in crate::server) fn return_in_place(&mut self) -> bool {
        match &mut self.mappings {
            Mappings::Taken { in_place, .. } => !std::mem::replace(in_place, true),
            Mappings::Change | Mappings::Stay => false,
        }
    }

    /// True if its memory comes back to where it was.
    pub(in crate::server) fn returns_in_place(&self) -> bool {
        matches!(self.mappings, Mappings::Taken { in_place: true, .. })
    }

    /// Ends the taking, because the tenant answers again.
    pub(in crate::server) fn untake(&mut self) {
        if self.is_taken() {
            self.mappings = Mappings::Change;
        }
    }

    /// Extents that the tenant was told to unmap and has not confirmed.
    pub(in crate::server) fn to_be_unmapped(&self) -> Vec<ExtentId> {
        let unmaps = self.batches.values().filter_map(|(_, batch)| match batch {
            Batch::Unmap(extents) => Some(extents),
            Batch::Prepare(_) | Batch::Map(_) | Batch::Consolidated(_) => None,
        });
        unmaps.flatten().copied().collect()
    }

    /// True if its program could regain its spare memory by leaving the GPU for a moment.
    pub(in crate::server) fn can_compact(&self) -> bool {
        self.extents.counts().spare > 0 && self.compaction != Compaction::Impossible
    }

    /// True if the tenant leaves the GPU for a compaction, or has left it.
    pub(in crate::server) fn is_compacting(&self) -> bool {
        self.compaction == Compaction::UnderWay
    }

    /// Begins a compaction. Returns false if one is under way already, or is impossible.
    pub(in crate::server) fn begin_compaction(&mut self) -> bool {
        let begins = self.compaction == Compaction::No;
        if begins {
            self.compaction = Compaction::UnderWay;
        }
        begins
    }

    /// Ends a compaction: the spare memory is given back, or the program asks again later, or it was impossible.
    pub(in crate::server) fn end_compaction(&mut self, well: bool) {
        if self.is_compacting() {
            self.compaction = if well { Compaction::No } else { Compaction::Impossible };
        }
    }

    /// Notes that the tenant has freed memory, so that an impossible compaction may be possible now.
    pub(in crate::server) fn may_compact_again(&mut self) {
        if self.compaction == Compaction::Impossible {
            self.compaction = Compaction::No;
        }
    }

    /// Remembers a command and numbers it.
    pub(in crate::server) fn add_batch(&mut self, batch: Batch) -> u32 {
        self.next_batch = self.next_batch.wrapping_add(1);
        self.batches.insert(self.next_batch, (Instant::now(), batch));
        self.next_batch
    }

    /// True if this command is under way.
    pub(in crate::server) fn has_batch(&self, number: u32) -> bool {
        self.batches.contains_key(&number)
    }

    /// Takes a command that the tenant has answered, successfully or not.
    pub(in crate::server) fn take_batch(&mut self, number: u32) -> Option<Batch> {
        self.batches.remove(&number).map(|(_, batch)| batch)
    }

    /// The time since when the tenant has owed its oldest answer.
    pub(super) fn oldest_batch(&self) -> Option<Instant> {
        self.batches.values().map(|(since, _)| *since).min()
    }

    /// True if the tenant has owed an answer for too long.
    pub(in crate::server) fn is_late(&self) -> bool {
        !self.is_taken() && self.oldest_batch().is_some_and(|since| since.elapsed() >= ANSWER_LIMIT)
    }

    /// Notes that frames did not reach the tenant: they are sent again after a while.
    pub(in crate::server) fn redeliver(&mut self) {
        let now = Instant::now();
        let before = self.redelivery;
        let pause = before.map_or(SHORTEST_PAUSE, |before| (before.pause * 2).min(LONGEST_PAUSE));
        let since = before.map_or(now, |before| before.since);
        self.redelivery = Some(Redelivery { since, at: now + pause, pause });
    }

    /// True if frames are to be sent again now. If so, the next time is set.
    pub(in crate::server) fn is_redelivery_due(&mut self) -> bool {
        let now = Instant::now();
        let Some(redelivery) = self.redelivery.as_mut().filter(|redelivery| redelivery.at <= now) else { return false };
        redelivery.at = now + LONGEST_PAUSE;
        true
    }

    /// Notes that some of the frames have come. Lost frames can be sent at once; if there are none, no more sending is due. Frames
    /// of others' memory may be `lost` too, or `under_way` again.
    pub(in crate::server) fn on_delivered(&mut self, lost: bool, under_way: bool) {
        let counts = self.extents.counts();
        if counts.lost + counts.sent_again == 0 && !lost && !under_way {
            self.redelivery = None;
        } else if counts.sent_again == 0
            && !under_way
            && let Some(redelivery) = &mut self.redelivery
        {
            (redelivery.at, redelivery.pause) = (Instant::now(), SHORTEST_PAUSE);
        }
    }

    /// Stops sending frames again, because no tenant is there to receive them.
    pub(in crate::server) fn redeliver_nothing(&mut self) {
        self.redelivery = None;
    }

    /// The time since when frames have been on their way to the tenant.
    pub(in crate::server) fn undelivered_since(&self) -> Option<Instant> {
        self.redelivery.map(|redelivery| redelivery.since)
    }

    /// The time at which frames are sent again.
    pub(super) fn next_redelivery(&self) -> Option<Instant> {
        self.redelivery.map(|redelivery| redelivery.at)
    }

    /// True if the user is to be told this, for the first time.
    pub(in crate::server) fn is_news(&mut self, notice: Notice) -> bool {
        let is_news = !self.notices.contains(&notice);
        if is_news {
            self.notices.push(notice);
        }
        is_news
    }

    /// True if the user was told this, and it still holds.
    pub(in crate::server) fn is_told(&self, notice: Notice) -> bool {
        self.notices.contains(&notice)
    }

    /// Notes that this no longer holds: when it holds again, the user is told again.
    pub(in crate::server) fn is_over(&mut self, notice: Notice) {
        self.notices.retain(|other| *other != notice);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_sent_again_after_longer_and_longer_pauses() {
        let mut holdings = Holdings::default();
        let pauses = std::array::from_fn::<_, 8, _>(|_| {
            holdings.redeliver();
            holdings.redelivery.map_or(0, |redelivery| redelivery.pause.as_millis())
        });
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 50, 50]);
        assert!(!holdings.is_redelivery_due());
        holdings.on_delivered(true, false);
        holdings.on_delivered(false, true);
        assert!(holdings.undelivered_since().is_some(), "others' memory is lost, or has been sent again");
        holdings.on_delivered(false, false);
        assert!(holdings.undelivered_since().is_none(), "nothing is lost");
    }

    #[test]
    fn a_command_is_answered_once() {
        let mut holdings = Holdings::default();
        let (first, second) =
            (holdings.add_batch(Batch::Map(Vec::new())), holdings.add_batch(Batch::Unmap(Vec::new())));
        assert!(matches!(holdings.take_batch(first), Some(Batch::Map(_))));
        assert!(holdings.take_batch(first).is_none() && holdings.has_batch(second));
    }

    #[test]
    fn the_user_is_told_once_unless_it_was_over() {
        let mut holdings = Holdings::default();
        assert!(holdings.is_news(Notice::PutOff) && !holdings.is_news(Notice::PutOff));
        assert!(holdings.is_news(Notice::NoRoom));
        holdings.is_over(Notice::PutOff);
        assert!(holdings.is_news(Notice::PutOff) && !holdings.is_news(Notice::NoRoom));
    }
}
