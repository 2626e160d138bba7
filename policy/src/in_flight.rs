//! How much whoever has the GPU keeps in flight, while somebody of a better class may come. Pure.
//!
//! What is queued on the GPU has to end, or to be taken off it, before somebody else has it; and beside somebody urgent it takes
//! part of its time. But a program that cannot run ahead of its work loses time itself: what its processor does no longer overlaps
//! with what the GPU does. Beside somebody who is idle that is for nothing (a training that launches much kept 0.87 of its speed
//! on an H200). So little is in flight only while somebody better has been at work lately; or all the time if the holder cannot be
//! preempted, because then its queue is waited for.

use baton_contract::class::Class;

use super::arbiter::Micros;

/// How many launches of a thread are in flight while somebody more urgent may come. If that one needs the whole GPU, enough
/// that it never runs dry; if it only runs beside others, so many that they have work again at once when it rests, although
/// their programs had to wait. Measured beside the training of GPT-2-large: 8, 64, 512 give it 0.33, 0.39, 0.47 of its
/// speed, and requests take 0.24, 0.27, 0.32 ms more. So the most are in flight where that hardly lengthens requests.
const TURNS: u32 = 8;
const TOGETHER: u32 = 64;
const BESIDE_LONG: u32 = 512;

/// Requests that usually take as long are long: then 0.05 ms are less than 2 %.
const LONG: Micros = 3_000;

/// Who was not at work for so long is idle.
const LATELY: Micros = 1_000_000;

/// How much a tenant keeps in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InFlight {
    /// As much as it likes.
    #[default]
    Any,
    /// The same, but it looks whether somebody who runs beside it is at work.
    Watching,
    /// No more than so many launches of a thread.
    Launches(u32),
}

/// Whoever has the GPU.
#[derive(Clone, Copy, Debug)]
pub struct Holder {
    /// How urgent its work is.
    pub class: Class,
    /// Whether it can be preempted.
    pub preemptible: bool,
    /// Whether others run beside it.
    pub together: bool,
}

/// When somebody was last at work.
#[derive(Debug, Default)]
pub struct Lately {
    /// Of each class.
    of_class: [Option<Micros>; Class::ALL.len()],
    /// With requests that are short, or of which that is not known.
    with_short: Option<Micros>,
}

impl Lately {
    /// Somebody of this class is at work, or wants to be, whose requests usually take so long, if that is known.
    pub fn at_work(&mut self, class: Class, usual: Option<Micros>, now: Micros) {
        self.of_class[class as usize] = Some(now);
        if usual.is_none_or(|usual| usual < LONG) {
            self.with_short = Some(now);
        }
    }

    /// How much the holder keeps in flight now, and until when that holds if nobody is at work. `connected` says of which classes
    /// there is anybody.
    pub fn of(&self, holder: Holder, connected: impl Fn(Class) -> bool, now: Micros) -> (InFlight, Option<Micros>) {
        let better = || Class::ALL.into_iter().filter(|class| *class < holder.class && connected(*class));
        if better().next().is_none() {
            return (InFlight::Any, None);
        }
        let still = |last: Option<Micros>| last.map(|last| last + LATELY).filter(|end| now < *end);
        let short_until = still(self.with_short).filter(|_| holder.together);
        let launches = match () {
            () if !holder.together => TURNS,
            () if !holder.preemptible || short_until.is_some() => TOGETHER,
            () => BESIDE_LONG,
        };
        let limited = InFlight::Launches(launches);
        match still(better().filter_map(|class| self.of_class[class as usize]).max()) {
            _ if !holder.preemptible => (limited, None),
            Some(idle_at) => (limited, Some(short_until.map_or(idle_at, |end| end.min(idle_at)))),
            None if holder.together => (InFlight::Watching, None),
            None => (InFlight::Any, None),
        }
    }
}

#[cfg(test)]
mod tests {
    use Class::{Batch, Latency, Normal};

    use super::*;

    const HOLDER: Holder = Holder { class: Batch, preemptible: true, together: true };

    #[test]
    fn little_is_in_flight_while_somebody_better_was_at_work_lately() {
        let mut lately = Lately::default();
        let all = |_| true;
        assert_eq!(lately.of(HOLDER, all, 5), (InFlight::Watching, None), "nobody has done anything yet");
        lately.at_work(Latency, None, 10);
        assert_eq!(lately.of(HOLDER, all, 20), (InFlight::Launches(TOGETHER), Some(10 + LATELY)));
        lately.at_work(Normal, None, 30);
        let turns = Holder { together: false, ..HOLDER };
        assert_eq!(lately.of(turns, all, 40), (InFlight::Launches(TURNS), Some(30 + LATELY)));
        assert_eq!(lately.of(HOLDER, all, 30 + LATELY), (InFlight::Watching, None));
        assert_eq!(lately.of(turns, all, 30 + LATELY), (InFlight::Any, None), "nobody runs beside it");
    }

    #[test]
    fn who_is_best_or_alone_keeps_as_much_in_flight_as_it_likes() {
        let mut lately = Lately::default();
        Class::ALL.into_iter().for_each(|class| lately.at_work(class, None, 0));
        assert_eq!(lately.of(HOLDER, |class| class == Batch, 1), (InFlight::Any, None));
        let best = Holder { class: Latency, ..HOLDER };
        assert_eq!(lately.of(best, |_| true, 1), (InFlight::Any, None));
        let normal = Holder { class: Normal, ..HOLDER };
        assert_eq!(lately.of(normal, |class| class != Latency, 1), (InFlight::Any, None));
        // One that has left counts no more, however lately it was at work.
        lately.at_work(Latency, None, 2);
        assert_eq!(lately.of(HOLDER, |class| class != Latency, 3), (InFlight::Launches(TOGETHER), Some(LATELY)));
    }

    #[test]
    fn more_is_in_flight_beside_long_requests_alone() {
        let mut lately = Lately::default();
        lately.at_work(Latency, Some(LONG), 10);
        assert_eq!(lately.of(HOLDER, |_| true, 20), (InFlight::Launches(BESIDE_LONG), Some(10 + LATELY)));
        // Another one's are short.
        lately.at_work(Latency, Some(LONG - 1), 30);
        lately.at_work(Latency, Some(LONG), 40);
        assert_eq!(lately.of(HOLDER, |_| true, 50), (InFlight::Launches(TOGETHER), Some(30 + LATELY)));
        assert_eq!(lately.of(HOLDER, |_| true, 30 + LATELY), (InFlight::Launches(BESIDE_LONG), Some(40 + LATELY)));
        let turns = Holder { together: false, ..HOLDER };
        assert_eq!(lately.of(turns, |_| true, 50), (InFlight::Launches(TURNS), Some(40 + LATELY)));
    }

    #[test]
    fn the_queue_of_one_that_cannot_be_preempted_is_always_short() {
        let holder = Holder { preemptible: false, ..HOLDER };
        assert_eq!(Lately::default().of(holder, |_| true, 1), (InFlight::Launches(TOGETHER), None));
    }
}
