//! The amount of work that the holder of the GPU keeps in flight while a tenant of a better class may come. Pure.
//!
//! Work that is queued on the GPU has to end, or to be taken off, before another tenant has the GPU; beside an urgent tenant it takes
//! part of that tenant's time. But a program that cannot run ahead of its work loses time itself, because its work on the processor no
//! longer overlaps with its work on the GPU. Beside an idle tenant that loss is for nothing (a training that launches much kept 0.87 of
//! its speed on an H200). So little is in flight only while a tenant of a better class has been at work lately; or all the time if the
//! holder cannot be preempted, because then others wait for its queue.

use baton_contract::class::Class;

use super::arbiter::Micros;

/// The number of a thread's launches in flight while a more urgent tenant may come. If that tenant needs the whole GPU, there are enough
/// that the GPU never runs dry. If it co-runs, there are so many that the others have work again at once when it rests, although
/// their programs had to wait. Measured beside the training of GPT-2-large: 8, 64, 512 give it 0.33, 0.39, 0.47 of its
/// speed, and requests take 0.24, 0.27, 0.32 ms more. So the most are in flight where that hardly lengthens requests.
const TURNS: u32 = 8;
const TOGETHER: u32 = 64;
const BESIDE_LONG: u32 = 512;

/// Requests that usually take this time are long: 0.05 ms are then less than 2 %.
const LONG: Micros = 3_000;

/// A tenant that was not at work for this time is idle.
const LATELY: Micros = 1_000_000;

/// The amount of work that a tenant keeps in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InFlight {
    /// As much as it likes.
    #[default]
    Any,
    /// As much as it likes, but it watches whether a co-running tenant is at work.
    Watching,
    /// At most this many launches of a thread.
    Launches(u32),
}

/// The holder of the GPU.
#[derive(Clone, Copy, Debug)]
pub struct Holder {
    /// The urgency of its work.
    pub class: Class,
    /// True if it can be preempted.
    pub preemptible: bool,
    /// True if others co-run with it.
    pub together: bool,
}

/// The times at which tenants were last at work.
#[derive(Debug, Default)]
pub struct Lately {
    /// Of each class.
    of_class: [Option<Micros>; Class::ALL.len()],
    /// The last time for a tenant with requests that are short, or of unknown length.
    with_short: Option<Micros>,
}

impl Lately {
    /// Notes that a tenant of this class is at work, or wants to be. `usual` is the usual length of its requests, if it is known.
    pub fn at_work(&mut self, class: Class, usual: Option<Micros>, now: Micros) {
        self.of_class[class as usize] = Some(now);
        if usual.is_none_or(|usual| usual < LONG) {
            self.with_short = Some(now);
        }
    }

    /// The amount that the holder keeps in flight now, and the end of that if no tenant is at work. `connected` tells which classes
    /// have a tenant.
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
        // A tenant that has left counts no more, however lately it was at work.
        lately.at_work(Latency, None, 2);
        assert_eq!(lately.of(HOLDER, |class| class != Latency, 3), (InFlight::Launches(TOGETHER), Some(LATELY)));
    }

    #[test]
    fn more_is_in_flight_beside_long_requests_alone() {
        let mut lately = Lately::default();
        lately.at_work(Latency, Some(LONG), 10);
        assert_eq!(lately.of(HOLDER, |_| true, 20), (InFlight::Launches(BESIDE_LONG), Some(10 + LATELY)));
        // Another tenant's requests are short.
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
