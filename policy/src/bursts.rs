//! When work is taken off the GPU because somebody urgent is at work beside it, and when it is put back. Pure: the caller brings
//! the time and what the activity page says, and carries out what is decided.
//!
//! Small time slices and launches that wait leave one cost to whoever is urgent: each time it begins to work, the GPU first
//! has to change over to it, which takes 0.2 ms if the other one has work at all (measured, whatever the other's
//! kernels are). So a **burst** of work that goes on for longer than a moment has the others off the GPU, and the requests
//! in it that follow closely on each other pay only once. Taking them off and putting them back costs the others 0.6 ms
//! (measured), so what is over at once is not worth it.
//!
//! How much the changing over matters depends on how much work it is paid for: 0.2 ms in 4 ms is the user's slack of 5 %.
//! If bursts are shorter than that, the others stay off for a while after each (they **linger**), so that bursts close to
//! each other become one; as long as is learned from what happens, but never for more than half of a usual gap: with gaps
//! of random lengths the others then keep three fifths of what is free.
//!
//! Nobody is kept off for ever: after [`Rules::max_wait`] in which they have not had as much altogether, the others go on
//! for [`Rules::share`], beside those at work, in their small time slices; also as soon as one of them has waited for its
//! turn for so long, and until everybody who had to has had its share.

use crate::arbiter::{Micros, Pressure};

/// What changing over costs whoever begins to work on a GPU with other work: measured on an H200.
const CHANGE_OVER: Micros = 200;
/// How long it takes until those that were off do anything again: measured on an H200, about.
const COME_BACK: Micros = 500;
/// What lingering grows by at least, and what is not worth lingering for.
const LEAST_LINGER: Micros = 50;
/// Nobody lingers for longer.
const MOST_LINGER: Micros = 20_000;
/// A gap that lasts longer says nothing about the pace of requests, and work that lasts longer is long enough.
const LONGEST: Micros = 1_000_000;

/// A usual request has to last for so many times [`Rules::burst`] to be known as a burst from its beginning.
const SURELY: Micros = 2;

/// What the user can set.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// How long a burst lasts before the others are taken off the GPU.
    pub burst: Micros,
    /// How much slower urgent work may be for the others, in thousandths.
    pub slack: u64,
    /// How long others are kept off at most.
    pub max_wait: Micros,
    /// How long they go on then.
    pub share: Micros,
}

/// What is to be so from now on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The others are off the GPU.
    pub off: bool,
    /// Whether the others wait for those at work, or for those who were.
    pub pressure: Pressure,
}

impl Verdict {
    /// The others do not wait for those at work.
    const PASS: Self = Self { off: false, pressure: Pressure::Passing };
}

/// What was seen so far.
#[derive(Debug)]
pub struct Bursts {
    rules: Rules,
    /// Since when somebody urgent is at work, if so.
    working: Option<Micros>,
    /// Since when nobody is.
    quiet: Micros,
    /// The others are off.
    off: bool,
    /// When it was last looked.
    seen: Micros,
    /// When the others go on, if they can: nobody is at work, and they are not off.
    back: Option<Micros>,
    /// How long they went on since they last had a whole share, and since when they lack that.
    had: Micros,
    kept_back: Option<Micros>,
    /// The others go on in any case.
    pass_until: Option<Micros>,
    /// How long there was work since the GPU last changed over to it.
    worked: Micros,
    linger: Micros,
    /// Usual lengths: of work for one changing over, and of the gaps between.
    usual_work: Usual,
    usual_gap: Usual,
    /// How long requests of those at work usually take, as far as they have said.
    expected: Option<Micros>,
}

/// A mean of the latest values, mostly.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usual(Option<Micros>);

impl Usual {
    /// One more value.
    pub fn see(&mut self, value: Micros) {
        // A peer may say anything.
        let value = value.min(LONGEST);
        self.0 = Some(self.0.map_or(value, |before| (before * 7 + value) / 8));
    }

    /// The mean; none if there was no value.
    pub fn get(self) -> Option<Micros> {
        self.0
    }
}

impl Bursts {
    /// Nobody has been at work yet.
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

    /// What it decides by from now on.
    pub fn set_rules(&mut self, rules: Rules) {
        self.rules = rules;
    }

    /// What holds from `now` on, at which somebody urgent is at work, or nobody, and one of the others waits for its turn for
    /// too long (`owed`), or none. Asked whenever that changes, and when [`Bursts::next_timer`] says.
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

    /// When it is to be asked again, if nothing changes before.
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

    /// How long a burst lasts before the others are taken off. If they are to linger, every burst is one; and one that is known
    /// to be long is one from the beginning.
    fn patience(&self) -> Micros {
        let is_long = self.expected.is_some_and(|usual| usual >= self.rules.burst.saturating_mul(SURELY));
        if self.linger > 0 || is_long { 0 } else { self.rules.burst }
    }

    /// How long requests of those who are at work usually take, if that is known. Holds until it is said anew.
    pub fn expect(&mut self, usual: Option<Micros>) {
        self.expected = usual;
    }

    /// The others go on: was there enough work for one changing over?
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
