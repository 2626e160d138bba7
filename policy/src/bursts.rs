//! These rules take work off the GPU while an urgent tenant is at work beside it, and put it back. Pure: the caller brings
//! the time and the activity page's contents, and carries out the decisions.
//!
//! Small time slices and launches that wait leave one cost to the urgent tenant: each time it begins to work, the GPU first
//! has to change over to it, which takes 0.2 ms if the other tenant has any work (measured, with all kinds of
//! kernels). So a **burst** of work that goes on for longer than a moment takes the others off the GPU, and requests
//! in it that follow closely on each other pay only once. Taking the others off and putting them back costs them 0.6 ms
//! (measured), so a burst that is over at once is not worth it.
//!
//! The relative cost of a change-over depends on the length of the work: 0.2 ms in 4 ms is the user's slack of 5 %.
//! If bursts are shorter than that, the others stay off for a while after each (they **linger**), so that bursts close to
//! each other become one. The length of this time is learned, but it never exceeds half of a usual gap: with gaps
//! of random lengths the others then keep three fifths of the free time.
//!
//! No tenant is kept off for ever: after a [`Rules::max_wait`] in which the others have had less than a share altogether, they run
//! for [`Rules::share`] beside the tenants at work, in their small time slices. They also do so as soon as one of them has waited for
//! its turn for so long, until every tenant that waited too long has had its share.

use crate::arbiter::{Micros, Pressure};

/// The cost of a change-over to a tenant that begins to work on a GPU with other work: measured on an H200.
const CHANGE_OVER: Micros = 200;
/// The time until tenants that were off do any work again: measured on an H200, about.
const COME_BACK: Micros = 500;
/// The least step by which lingering grows. A shorter time is not worth lingering.
const LEAST_LINGER: Micros = 50;
/// The longest lingering.
const MOST_LINGER: Micros = 20_000;
/// A longer gap says nothing about the pace of requests, and longer work is long enough.
const LONGEST: Micros = 1_000_000;

/// Requests that usually last for this many times [`Rules::burst`] count as bursts from their beginning.
const SURELY: Micros = 2;

/// The user's settings.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The length of a burst after which the others are taken off the GPU.
    pub burst: Micros,
    /// The part by which urgent work may be slower because of the others, in thousandths.
    pub slack: u64,
    /// The longest time for which the others are kept off.
    pub max_wait: Micros,
    /// The time for which they run after that.
    pub share: Micros,
}

/// The decision that holds from now on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The others are off the GPU.
    pub off: bool,
    /// The effect of urgent work on the others: they may wait for tenants that are or were at work.
    pub pressure: Pressure,
}

impl Verdict {
    /// The others do not wait for the tenants at work.
    const PASS: Self = Self { off: false, pressure: Pressure::Passing };
}

/// The observations so far.
#[derive(Debug)]
pub struct Bursts {
    rules: Rules,
    /// The time since which an urgent tenant is at work, if one is.
    working: Option<Micros>,
    /// The time since which no urgent tenant is at work.
    quiet: Micros,
    /// The others are off.
    off: bool,
    /// The time of the last look.
    seen: Micros,
    /// The time at which the others go on, if they can: no urgent tenant is at work, and they are not off.
    back: Option<Micros>,
    /// The time that they have had since their last whole share, and the time since which they lack one.
    had: Micros,
    kept_back: Option<Micros>,
    /// The others go on in any case.
    pass_until: Option<Micros>,
    /// The length of urgent work since the GPU last changed over to it.
    worked: Micros,
    linger: Micros,
    /// Usual lengths: of the work after one change-over, and of the gaps between.
    usual_work: Usual,
    usual_gap: Usual,
    /// The usual length of requests of the tenants at work, as far as they have reported it.
    expected: Option<Micros>,
}

/// A mean of the latest values, mostly.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usual(Option<Micros>);

impl Usual {
    /// Adds a value.
    pub fn see(&mut self, value: Micros) {
        // A peer may report anything.
        let value = value.min(LONGEST);
        self.0 = Some(self.0.map_or(value, |before| (before * 7 + value) / 8));
    }

    /// The mean; none if there was no value.
    pub fn get(self) -> Option<Micros> {
        self.0
    }
}

impl Bursts {
    /// The state before any tenant has been at work.
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            working: None,
            quiet: 0,
            off: false,
            seen: 0,
            back: None,
            had: 0,
            kept_back: None,
            pass_until: None,
            worked: 0,
            linger: 0,
            usual_work: Usual::default(),
            usual_gap: Usual::default(),
            expected: None,
        }
    }

    /// Sets the rules from now on.
    pub fn set_rules(&mut self, rules: Rules) {
        self.rules = rules;
    }

    /// Decides for the time from `now` on. `at_work`: an urgent tenant is at work. `owed`: one of the others has waited for its turn for
    /// too long. The caller asks whenever one of these changes, and at the time of [`Bursts::next_timer`].
    pub fn look(&mut self, now: Micros, at_work: bool, owed: bool) -> Verdict {
        self.seen = now;
        match (self.working, at_work) {
            (None, true) => {
                let gap = now.saturating_sub(self.quiet);
                if self.quiet > 0 && gap < LONGEST {
                    self.usual_gap.see(gap);
                }
                self.working = Some(now);
            }
            (Some(since), false) => {
                self.worked = self.worked.saturating_add(now.saturating_sub(since)).min(LONGEST);
                (self.working, self.quiet) = (None, now);
            }
            _ => {}
        }
        if let Some(until) = self.pass_until.as_mut().filter(|until| now < **until) {
            if owed {
                *until = (*until).max(now.saturating_add(self.rules.share));
            }
            self.worked = 0;
            return Verdict::PASS;
        }
        if self.pass_until.take().is_some() {
            (self.kept_back, self.had) = (None, 0);
        }
        match self.working {
            Some(since) => self.off |= now >= since.saturating_add(self.patience()),
            None => {
                self.off &= now < self.quiet.saturating_add(self.linger);
                if !self.off && self.worked > 0 {
                    self.learn();
                }
            }
        }
        if self.working.is_none() && !self.off {
            let back = *self.back.get_or_insert(now.saturating_add(COME_BACK));
            let pressure = if now < back { Pressure::KeptBack } else { Pressure::Free };
            return Verdict { off: false, pressure };
        }
        if let Some(back) = self.back.take() {
            self.had += now.saturating_sub(back);
            if self.had >= self.rules.share {
                (self.kept_back, self.had) = (None, 0);
            }
        }
        if owed || now >= self.kept_back.get_or_insert(now).saturating_add(self.rules.max_wait) {
            self.pass_until = Some(now.saturating_add(self.rules.share));
            (self.off, self.worked) = (false, 0);
            return Verdict::PASS;
        }
        Verdict { off: self.off, pressure: Pressure::KeptBack }
    }

    /// The time at which to ask again, if nothing changes before.
    pub fn next_timer(&self) -> Option<Micros> {
        if self.pass_until.is_some() {
            return self.pass_until;
        }
        let change = match self.working {
            Some(since) => (!self.off).then(|| since.saturating_add(self.patience())),
            None => self.off.then(|| self.quiet.saturating_add(self.linger)),
        };
        if let Some(back) = self.back {
            return Some(back).filter(|back| *back > self.seen);
        }
        let end = self.kept_back.map(|since| since.saturating_add(self.rules.max_wait));
        change.into_iter().chain(end).min()
    }

    /// The length of urgent work after which the others are taken off. It is 0 if they linger, and if the requests are known
    /// to be long.
    fn patience(&self) -> Micros {
        let is_long = self.expected.is_some_and(|usual| usual >= self.rules.burst.saturating_mul(SURELY));
        if self.linger > 0 || is_long { 0 } else { self.rules.burst }
    }

    /// Sets the usual length of requests of the tenants at work, if it is known. Holds until it is set anew.
    pub fn expect(&mut self, usual: Option<Micros>) {
        self.expected = usual;
    }

    /// Learns, when the others go on, from the length of the work after one change-over.
    fn learn(&mut self) {
        self.usual_work.see(std::mem::take(&mut self.worked));
        let enough = (CHANGE_OVER * 1000).checked_div(self.rules.slack).unwrap_or(Micros::MAX);
        let most = self.usual_gap.get().map_or(0, |gap| gap / 2).min(MOST_LINGER);
        let next = if self.usual_work.get().is_some_and(|work| work < enough) {
            (self.linger + self.linger / 4).max(self.linger + LEAST_LINGER)
        } else {
            self.linger * 4 / 5
        };
        self.linger = next.min(most);
        if self.linger < LEAST_LINGER {
            self.linger = 0;
        }
    }
}

#[cfg(test)]
mod tests;
