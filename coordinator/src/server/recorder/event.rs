//! The events that are recorded.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_contract::class::Class;
use baton_contract::messages::{ArrivalStats, Full};
use baton_report::event::{self as shown, Kind};

use baton_policy::arbiter::TenantId;

/// The direction of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Way {
    In,
    Out,
}

/// An event of a tenant.
#[derive(Clone, Debug)]
pub(in crate::server) enum What {
    Joined {
        name: Arc<str>,
        class: Class,
    },
    /// Its process has ended. The fields give its peak memory, its turns after others, and its GPU time.
    Departed {
        peak_bytes: u64,
        switches: u64,
        gpu_time: Duration,
    },
    /// It wants the GPU.
    Asked,
    /// It is to have the GPU next, and its memory is to come.
    Chosen,
    /// Its turn begins, which it had wanted, and which was decided, at these times. Memory may still be on its way.
    Granted {
        demanded: Instant,
        decided: Instant,
        arriving: bool,
    },
    /// Its gate is open.
    Opened,
    /// All its memory is there, or its gate was closed before that.
    Arrived {
        stats: ArrivalStats,
    },
    /// Its turn is over, and its work has ended.
    Drained {
        took: Duration,
    },
    /// Its work was taken off the GPU in the middle.
    Preempted {
        took: Duration,
    },
    /// Its work goes on.
    Resumed,
    /// Its driver does not unmap memory before work that is off the GPU has ended: its work is put back for a while.
    UnmapTimedOut,
    /// Its work makes way for an urgent tenant.
    Descheduled,
    /// Its work goes on beside an urgent tenant.
    Rescheduled,
    /// A user keeps it off the GPU.
    Suspended,
    /// A user lets it go on.
    Unsuspended,
    /// Some of its memory begins to leave; a part is not copied, because it has not changed. In bytes.
    Leaves {
        extents: u64,
        bytes: u64,
        unchanged: u64,
    },
    /// Some of its memory begins to come; a part is zeros, and is not copied. In bytes.
    Comes {
        extents: u64,
        bytes: u64,
        zeros: u64,
    },
    /// Memory of its was copied over the bus.
    Copied {
        way: Way,
        bytes: u64,
        time: Range<Instant>,
    },
    /// Memory of its was copied to the host while it rests, and stays where it is.
    CopiedAhead {
        bytes: u64,
        time: Range<Instant>,
    },
    /// Frames are in place behind its extents, without access yet.
    Prepared {
        took: Duration,
    },
    /// It has access to more extents. The fields give their number and its bytes on the GPU with them.
    Mapped {
        took: Duration,
        extents: u64,
        resident: u64,
    },
    /// Some of its memory was unmapped. The fields include its bytes still on the GPU, or on their way to the host.
    Unmapped {
        took: Duration,
        resident: u64,
    },
    /// It has got memory that it asked for then.
    Allocated {
        asked: Instant,
        resident: u64,
    },
    /// It has given memory back.
    Freed {
        resident: u64,
    },
    /// It has not got the memory that it asked for.
    Refused {
        bytes: u64,
        why: Full,
    },
    /// A request of the tenant's has ended: from the first call after rest to the end of the last work, as the tenant reports it.
    /// `late`: it took longer than the tenant's target.
    Request {
        time: Range<Instant>,
        late: bool,
    },
    /// The tenant had the GPU for `gpu_time` of this time, as the arbiter counts it.
    Worked {
        time: Range<Instant>,
        gpu_time: Duration,
    },
    /// The GPU has read memory of the tenant, to find changes.
    Scanned {
        bytes: u64,
        time: Range<Instant>,
    },
    /// Memory that no longer belonged to any tenant was overwritten.
    Scrubbed {
        bytes: u64,
        time: Range<Instant>,
    },
}

/// One event, as it is kept.
#[derive(Clone, Debug)]
pub(in crate::server) struct Recorded {
    pub(in crate::server) at: Instant,
    /// The tenant, and its name for the user; none for events that concern the GPU.
    pub(in crate::server) id: Option<TenantId>,
    pub(in crate::server) tenant: Option<Arc<str>>,
    pub(in crate::server) what: What,
}

/// Nanoseconds between two moments.
pub(super) fn nanos_since(start: Instant, at: Instant) -> u64 {
    u64::try_from(at.saturating_duration_since(start).as_nanos()).unwrap_or(u64::MAX)
}

impl Recorded {
    /// The form that tools get of event `n` of a coordinator that began at `start`.
    pub(super) fn shown(&self, n: u64, start: Instant) -> shown::Event {
        let Self { at, id, tenant, what } = self;
        let (time, nanos) = (what.time(*at), |at| nanos_since(start, at));
        let mut shown = shown::Event {
            n,
            ns: nanos(*at),
            id: id.map(|id| id.0),
            tenant: tenant.as_deref().map(str::to_owned),
            what: what.kind(),
            from_ns: time.as_ref().map(|time| nanos(time.start)),
            to_ns: time.filter(|time| time.end != *at).map(|time| nanos(time.end)),
            bytes: what.bytes(),
            uncopied_bytes: what.uncopied(),
            extents: what.extents(),
            resident_bytes: what.resident(),
            ..shown::Event::default()
        };
        match what {
            What::Granted { arriving, .. } => shown.arriving = Some(*arriving),
            What::Worked { gpu_time, .. } => shown.gpu_ns = u64::try_from(gpu_time.as_nanos()).ok(),
            What::Departed { peak_bytes, .. } => shown.peak_bytes = Some(*peak_bytes),
            What::Joined { class, .. } => shown.class = Some(class.word().to_owned()),
            What::Arrived { stats } if stats.first_call_micros != u64::MAX => {
                // The arrival ends now; no time in it was later, even if the tenant says so.
                let ago = stats.end_micros.saturating_sub(stats.first_call_micros).saturating_mul(1000);
                shown.first_launch_ns = Some(shown.ns.saturating_sub(ago));
            }
            _ => {}
        }
        shown
    }
}

impl What {
    /// The kind of the event in the form that tools get.
    fn kind(&self) -> Kind {
        match self {
            Self::Joined { .. } => Kind::Joined,
            Self::Departed { .. } => Kind::Departed,
            Self::Asked => Kind::Asked,
            Self::Chosen => Kind::Chosen,
            Self::Granted { .. } => Kind::Granted,
            Self::Opened => Kind::Opened,
            Self::Arrived { .. } => Kind::Arrived,
            Self::Drained { .. } => Kind::Drained,
            Self::Preempted { .. } => Kind::Preempted,
            Self::Resumed => Kind::Resumed,
            Self::UnmapTimedOut => Kind::UnmapTimedOut,
            Self::Descheduled => Kind::Descheduled,
            Self::Rescheduled => Kind::Rescheduled,
            Self::Suspended => Kind::Suspended,
            Self::Unsuspended => Kind::Unsuspended,
            Self::Leaves { .. } => Kind::Leaves,
            Self::Comes { .. } => Kind::Comes,
            Self::Copied { way: Way::In, .. } => Kind::CopiedIn,
            Self::Copied { way: Way::Out, .. } => Kind::CopiedOut,
            Self::CopiedAhead { .. } => Kind::CopiedAhead,
            Self::Prepared { .. } => Kind::Prepared,
            Self::Mapped { .. } => Kind::Mapped,
            Self::Unmapped { .. } => Kind::Unmapped,
            Self::Allocated { .. } => Kind::Allocated,
            Self::Freed { .. } => Kind::Freed,
            Self::Refused { .. } => Kind::Refused,
            Self::Request { .. } => Kind::Request,
            Self::Worked { .. } => Kind::Worked,
            Self::Scanned { .. } => Kind::Scanned,
            Self::Scrubbed { .. } => Kind::Scrubbed,
        }
    }

    /// The bytes of memory that the event concerns, if it concerns memory.
    pub(in crate::server) fn bytes(&self) -> Option<u64> {
        match self {
            Self::Leaves { bytes, .. }
            | Self::Comes { bytes, .. }
            | Self::Copied { bytes, .. }
            | Self::CopiedAhead { bytes, .. }
            | Self::Refused { bytes, .. }
            | Self::Scanned { bytes, .. }
            | Self::Scrubbed { bytes, .. } => Some(*bytes),
            _ => None,
        }
    }

    /// The bytes of that memory that are not copied, if the event concerns memory that leaves or comes.
    pub(in crate::server) fn uncopied(&self) -> Option<u64> {
        match self {
            Self::Leaves { unchanged: bytes, .. } | Self::Comes { zeros: bytes, .. } => Some(*bytes),
            _ => None,
        }
    }

    /// The number of extents, if the event concerns extents.
    pub(in crate::server) fn extents(&self) -> Option<u64> {
        match self {
            Self::Leaves { extents, .. } | Self::Comes { extents, .. } | Self::Mapped { extents, .. } => Some(*extents),
            _ => None,
        }
    }

    /// The bytes of its tenant's memory that are on the GPU from then on, if the event concerns that.
    pub(in crate::server) fn resident(&self) -> Option<u64> {
        match self {
            Self::Mapped { resident, .. }
            | Self::Unmapped { resident, .. }
            | Self::Allocated { resident, .. }
            | Self::Freed { resident } => Some(*resident),
            _ => None,
        }
    }

    /// The event's time span, if it took any time and was recorded at its end.
    pub(in crate::server) fn time(&self, at: Instant) -> Option<Range<Instant>> {
        match self {
            Self::Drained { took }
            | Self::Preempted { took }
            | Self::Prepared { took }
            | Self::Mapped { took, .. }
            | Self::Unmapped { took, .. } => Some(at.checked_sub(*took).unwrap_or(at)..at),
            Self::Copied { time, .. }
            | Self::CopiedAhead { time, .. }
            | Self::Scanned { time, .. }
            | Self::Scrubbed { time, .. }
            | Self::Request { time, .. }
            | Self::Worked { time, .. } => Some(time.clone()),
            Self::Granted { demanded: since, .. } | Self::Allocated { asked: since, .. } => Some(*since..at),
            _ => None,
        }
    }

    /// The event's duration.
    pub(in crate::server) fn took(&self, at: Instant) -> Option<Duration> {
        self.time(at).map(|time| time.end.saturating_duration_since(time.start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_event_is_recorded() {
        let now = Instant::now();
        let (took, time) = (Duration::ZERO, now..now);
        let all = [
            What::Joined { name: "a".into(), class: Class::Batch },
            What::Departed { peak_bytes: 0, switches: 0, gpu_time: took },
            What::Asked,
            What::Chosen,
            What::Granted { demanded: now, decided: now, arriving: false },
            What::Opened,
            What::Arrived { stats: ArrivalStats::default() },
            What::Drained { took },
            What::Preempted { took },
            What::Resumed,
            What::UnmapTimedOut,
            What::Descheduled,
            What::Rescheduled,
            What::Suspended,
            What::Unsuspended,
            What::Leaves { extents: 0, bytes: 0, unchanged: 0 },
            What::Comes { extents: 0, bytes: 0, zeros: 0 },
            What::Copied { way: Way::In, bytes: 0, time: time.clone() },
            What::Copied { way: Way::Out, bytes: 0, time: time.clone() },
            What::CopiedAhead { bytes: 0, time: time.clone() },
            What::Prepared { took },
            What::Mapped { took, extents: 0, resident: 0 },
            What::Unmapped { took, resident: 0 },
            What::Allocated { asked: now, resident: 0 },
            What::Freed { resident: 0 },
            What::Refused { bytes: 0, why: Full::Arena },
            What::Request { time: time.clone(), late: false },
            What::Worked { time: time.clone(), gpu_time: took },
            What::Scanned { bytes: 0, time: time.clone() },
            What::Scrubbed { bytes: 0, time },
        ];
        assert_eq!(all.map(|what| what.kind()), Kind::ALL);
    }
}
