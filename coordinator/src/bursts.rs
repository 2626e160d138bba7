//! When work is taken off the GPU because somebody urgent is at work beside it, and when it is put back. Pure: the caller brings
//! the time and what the board says, and carries out what is decided.
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
//! Nobody is kept off for ever: after [`Rules::max_wait`] the others go on for [`Rules::share`], beside those at work, in
//! their small time slices.

use crate::arbiter::Micros;

/// What changing over costs whoever begins to work on a GPU with other work: measured on an H200.
const CHANGE_OVER: Micros = 200;
/// What lingering grows by at least, and what is not worth lingering for.
const LEAST_LINGER: Micros = 50;
/// Nobody lingers for longer.
const MOST_LINGER: Micros = 20_000;
/// A gap that lasts longer says nothing about the pace of requests, and work that lasts longer is long enough.
const LONGEST: Micros = 1_000_000;

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
    /// The others do not wait for those at work.
    pub pass: bool,
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
    /// Since when the others can do nothing: somebody is at work, or they are off.
    kept_back: Option<Micros>,
    /// The others go on in any case.
    pass_until: Option<Micros>,
    /// How long there was work since the GPU last changed over to it.
    worked: Micros,
    linger: Micros,
    /// Usual lengths: of work for one changing over, and of the gaps between.
    usual_work: Option<Micros>,
    usual_gap: Option<Micros>,
}

/// A mean of the latest values, mostly.
fn usual(before: Option<Micros>, value: Micros) -> Option<Micros> {
    Some(before.map_or(value, |before| (before * 7 + value) / 8))
}

impl Bursts {
    /// Nobody has been at work yet.
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            working: None,
            quiet: 0,
            off: false,
            kept_back: None,
            pass_until: None,
            worked: 0,
            linger: 0,
            usual_work: None,
            usual_gap: None,
        }
    }

    /// What holds from `now` on, at which somebody urgent is at work, or nobody. Asked whenever that changes, and when
    /// [`Bursts::next_timer`] says.
    pub fn look(&mut self, now: Micros, at_work: bool) -> Verdict {
        match (self.working, at_work) {
            (None, true) => {
                let gap = now.saturating_sub(self.quiet);
                if self.quiet > 0 && gap < LONGEST {
                    self.usual_gap = usual(self.usual_gap, gap);
                }
                self.working = Some(now);
            }
            (Some(since), false) => {
                self.worked = self.worked.saturating_add(now.saturating_sub(since)).min(LONGEST);
                (self.working, self.quiet) = (None, now);
            }
            _ => {}
        }
        if self.pass_until.is_some_and(|until| now < until) {
            self.worked = 0;
            return Verdict { off: false, pass: true };
        }
        if self.pass_until.take().is_some() {
            self.kept_back = None;
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
            self.kept_back = None;
        } else if now >= self.kept_back.get_or_insert(now).saturating_add(self.rules.max_wait) {
            self.pass_until = Some(now.saturating_add(self.rules.share));
            (self.off, self.worked) = (false, 0);
            return Verdict { off: false, pass: true };
        }
        Verdict { off: self.off, pass: false }
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
        let end = self.kept_back.map(|since| since.saturating_add(self.rules.max_wait));
        change.into_iter().chain(end).min()
    }

    /// How long a burst lasts before the others are taken off. If they are to linger, every burst is one.
    fn patience(&self) -> Micros {
        if self.linger > 0 { 0 } else { self.rules.burst }
    }

    /// The others go on: was there enough work for one changing over?
    fn learn(&mut self) {
        self.usual_work = usual(self.usual_work, std::mem::take(&mut self.worked));
        let enough = (CHANGE_OVER * 1000).checked_div(self.rules.slack).unwrap_or(Micros::MAX);
        let most = self.usual_gap.map_or(0, |gap| gap / 2).min(MOST_LINGER);
        let next = if self.usual_work.is_some_and(|work| work < enough) {
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
