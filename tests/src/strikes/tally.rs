//! Counts how programs that were not hit themselves went on after each strike.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::ops::AddAssign;
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Victim, tenants};

/// All strikes, and all programs.
#[derive(Default)]
pub struct Tally(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    strikes: Vec<Struck>,
    runs: Vec<Run>,
}

struct Struck {
    victim: Victim,
    /// Its place in the matrix; none if it has not come.
    cell: Option<String>,
    at: Instant,
    /// Programs with memory on the host then.
    partly_evicted: HashSet<String>,
    /// The name of the program that was hit.
    hit: Option<String>,
    /// Set if coordinator and keeper died one after the other: until another one served.
    both: Option<Both>,
}

/// The time in which there was no coordinator: from the death of the first of both.
#[derive(Clone, Copy)]
struct Both {
    died: Instant,
    served: Option<Instant>,
}

struct Run {
    name: String,
    began: Instant,
    ended: Option<(Instant, End)>,
}

/// A program's end.
pub(super) enum End {
    /// It has computed what it computes alone.
    Well,
    Otherwise(String),
}

/// The messages of programs that go on alone, cannot go on, or cannot begin, because no coordinator is there.
const TOLD: [&str; 8] = ["B0303", "B0305", "B0321", "B0327", "B0350", "B0351", "B0352", "B0377"];
/// Part of a program's message that it has found other contents than it left.
const IS_WRONG: &str = "words of the piece";

/// Survivors, and those of them that went on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Survivors {
    /// Programs that lived at a strike, and were not hit, summed over all strikes.
    pub all: usize,
    /// Those that computed what they compute alone, or outlived the next strike too.
    pub went_on: usize,
}

impl AddAssign for Survivors {
    fn add_assign(&mut self, more: Self) {
        self.all += more.all;
        self.went_on += more.went_on;
    }
}

impl Tally {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().expect("no thread panics with it")
    }

    pub(super) fn begins(&self, name: &str) -> usize {
        let mut inner = self.inner();
        inner.runs.push(Run { name: name.to_owned(), began: Instant::now(), ended: None });
        inner.runs.len() - 1
    }

    /// The number of programs that have begun.
    pub(super) fn begun(&self) -> usize {
        self.inner().runs.len()
    }

    /// The number of strikes.
    pub(super) fn strikes(&self) -> usize {
        self.inner().strikes.len()
    }

    /// True if the first so many of them have ended.
    pub(super) fn have_ended(&self, begun: usize) -> bool {
        self.inner().runs[..begun].iter().all(|run| run.ended.is_some())
    }

    pub(super) fn ends(&self, run: usize, end: End) {
        let mut inner = self.inner();
        inner.runs[run].ended = Some((Instant::now(), end));
    }

    /// A strike is to come.
    pub(super) fn about_to(&self, victim: Victim, status: &Value) -> usize {
        let partly = tenants(status).filter(|one| one["evicted_bytes"].as_u64() > Some(0));
        let partly_evicted = partly.filter_map(|one| one["name"].as_str().map(str::to_owned)).collect();
        let mut inner = self.inner();
        inner.strikes.push(Struck { victim, cell: None, at: Instant::now(), partly_evicted, hit: None, both: None });
        inner.strikes.len() - 1
    }

    /// The strike hit a coordinator or keeper when the other one had just died.
    pub(super) fn both_died(&self, at: usize, died: Instant) {
        self.inner().strikes[at].both = Some(Both { died, served: None });
    }

    /// The same of the last strike.
    pub(super) fn last_killed_both(&self) {
        if let Some(strike) = self.inner().strikes.last_mut() {
            strike.both.get_or_insert(Both { died: strike.at, served: None });
        }
    }

    /// Another coordinator serves after both had died.
    pub(super) fn is_served(&self) {
        if let Some(both) = self.inner().strikes.last_mut().and_then(|strike| strike.both.as_mut()) {
            both.served = Some(Instant::now());
        }
    }

    pub(super) fn struck(&self, at: usize, hit: Option<String>, cell: String) {
        let mut inner = self.inner();
        let strike = &mut inner.strikes[at];
        (strike.at, strike.hit, strike.cell) = (Instant::now(), hit, Some(cell));
    }

    /// The last strike has not come.
    pub(super) fn take_back(&self, at: usize) {
        self.inner().strikes.truncate(at);
    }

    /// The survivors of strikes on these victims: all, and those with memory on the host.
    pub fn survivors(&self, victims: &[Victim]) -> [Survivors; 2] {
        let inner = self.inner();
        let mut all = [Survivors::default(); 2];
        let strikes: Vec<&Struck> = inner.strikes.iter().filter(|strike| strike.cell.is_some()).collect();
        for run in &inner.runs {
            let lived: Vec<&&Struck> = strikes.iter().filter(|strike| lives_at(run, strike)).collect();
            if is_hit(run, &strikes) || is_told(run, &strikes) {
                continue;
            }
            let fails = matches!(run.ended, Some((_, End::Otherwise(_))));
            for (number, strike) in lived.iter().enumerate() {
                let went_on = !(fails && number + 1 == lived.len());
                if !victims.contains(&strike.victim) {
                    continue;
                }
                let is_partly = strike.partly_evicted.contains(&run.name);
                for sum in all.iter_mut().take(1 + usize::from(is_partly)) {
                    sum.all += 1;
                    sum.went_on += usize::from(went_on);
                }
            }
        }
        all
    }

    /// Programs that did not go on, without having been hit: after which strike, and how they ended.
    pub fn failures(&self) -> Vec<String> {
        let inner = self.inner();
        let strikes: Vec<&Struck> = inner.strikes.iter().filter(|strike| strike.cell.is_some()).collect();
        let mut failures = Vec::new();
        for run in &inner.runs {
            let Some((ended, End::Otherwise(how))) = &run.ended else { continue };
            if is_hit(run, &strikes) || is_told(run, &strikes) {
                continue;
            }
            let last = strikes.iter().rev().find(|strike| strike.at < *ended && strike.at > run.began);
            let last = last.map_or("no strike at all", |strike| strike.cell.as_deref().unwrap_or_default());
            failures.push(format!("{} after {last}: {how}", run.name));
        }
        failures
    }

    /// Strikes that hit a coordinator or keeper when the other one had just died; the programs that lived then; those of them that ended as they were told.
    fn where_both_died(&self) -> (usize, usize, usize) {
        let inner = self.inner();
        let strikes: Vec<&Struck> = inner.strikes.iter().filter(|strike| strike.both.is_some()).collect();
        // Those that begin when there is no coordinator end at once, by the hundred.
        let lived = |run: &&Run, both: Both| run.began < both.died && lives_without(run, both);
        let lived = |run: &&Run| strikes.iter().any(|strike| strike.both.is_some_and(|both| lived(run, both)));
        let lived: Vec<&Run> = inner.runs.iter().filter(lived).collect();
        let told = lived.iter().filter(|run| is_told(run, &strikes)).count();
        (strikes.len(), lived.len(), told)
    }

    /// Strikes and survivors in a line.
    pub fn summary(&self) -> String {
        let strikes = self.inner().strikes.iter().filter(|strike| strike.cell.is_some()).count();
        let mut line = format!("{strikes} strikes");
        let (both, lived, told) = self.where_both_died();
        if both > 0 {
            let _ = write!(
                line,
                " ({both} when the other of coordinator and keeper had just died: {told} of {lived} programs were told)"
            );
        }
        for victims in [
            &[Victim::Coordinator][..],
            &[Victim::Keeper],
            &[Victim::Program],
            &[Victim::Stopped, Victim::Late],
            &[Victim::Call],
            &[Victim::SystemCall],
        ] {
            let [all, partly] = self.survivors(victims);
            if all.all > 0 {
                let _ = write!(
                    line,
                    "; {victims:?}: {} of {} survivors went on, {} of {} partly evicted ones",
                    all.went_on, all.all, partly.went_on, partly.all
                );
            }
        }
        line
    }
}

fn lives_at(run: &Run, strike: &Struck) -> bool {
    run.began < strike.at && run.ended.as_ref().is_none_or(|(ended, _)| *ended > strike.at)
}

/// True if this program lived at a time without a coordinator.
fn lives_without(run: &Run, both: Both) -> bool {
    let began = both.served.is_none_or(|served| run.began < served);
    began && run.ended.as_ref().is_none_or(|(ended, _)| *ended > both.died)
}

/// True if this program ended otherwise than alone because there was no coordinator for a while, and has said so.
fn is_told(run: &Run, strikes: &[&Struck]) -> bool {
    let Some((_, End::Otherwise(how))) = &run.ended else { return false };
    let is_without = |strike: &&Struck| strike.both.is_some_and(|both| lives_without(run, both));
    let says_so = TOLD.iter().any(|message| how.contains(message)) && !how.contains(IS_WRONG);
    says_so && strikes.iter().any(is_without)
}

/// True if a strike has hit this program. It may have ended before that was written down.
fn is_hit(run: &Run, strikes: &[&Struck]) -> bool {
    // Two processes of a program have names that differ by a number.
    let is_its =
        |hit: &String| hit.strip_prefix(run.name.as_str()).is_some_and(|rest| !rest.starts_with(char::is_numeric));
    strikes.iter().any(|strike| strike.hit.as_ref().is_some_and(is_its))
}
