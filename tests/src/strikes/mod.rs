//! Strikes at fault points: processes die, stop and wait at every point that programs reach, and the others go on.
//!
//! A *cell* is a point of `baton-faults`, a victim and a [`State`]. Each cell gets the same number of strikes, one after the other, while
//! programs compute; each program must compute what it computes alone, unless it was the victim.
//!
//! | file | what it does |
//! |---|---|
//! | `mod` | goes through the cells |
//! | `churn` | has programs, coordinators and keepers come and go for hours |
//! | `first` | the events before a strike, without which some points are seldom reached |
//! | `record` | adds the strikes of several runs up |
//! | `state` | the states, and the programs of each |
//! | `steps` | has processes die at points that are reached seldom |
//! | `strace` | makes calls of the system fail |
//! | `tally` | counts the survivors of each strike |

mod churn;
mod first;
mod record;
mod state;
mod steps;
mod strace;
mod tally;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use baton_client as client;
use baton_contract::messages::Opening;
use baton_faults::{Board, Role, Strike, Victim as Hit};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::coordinator::{Coordinator, EndsWhatServes, Serving, SetAtEnd};
use crate::generated::Dice;
use crate::generated::hunt::number;
use crate::running::signal;

pub use churn::{Samples, churn};
use first::{First, Stopped};
pub use record::Record;
pub use state::State;
pub use steps::processes_die_at;
use strace::Strace;
pub use tally::Tally;

/// How long a strike may take to come, in the first round.
const REACHED: Duration = Duration::from_secs(5);
/// How often the cells with too few strikes are tried if there is no limit, each time with more patience. In every second round nothing
/// dies for a point to be reached: there are points that are reached only when programs have long had the same coordinator.
const ROUNDS: u32 = 4;
/// So many rounds have the same coordinator and programs. Every second time no program gets another one's frames, which go back to the
/// driver all the time: else those points are rare.
const TOGETHER: u32 = 2;
/// A point that is not reached for so long is a rare one. Programs wait for their turns anew with each coordinator.
const RARE: Duration = Duration::from_millis(700);
/// A coordinator that is about to take over and lives has done so after this time.
const FOLLOWS: Duration = Duration::from_secs(5);
/// If none serves for so long, it is said what the processes wait in.
const LONG: Duration = Duration::from_secs(15);
/// How long programs run without a strike, so that it is known which points they reach.
const LOOK: Duration = Duration::from_secs(6);
/// After so many strikes, programs are left alone until they have ended. With `STRIKES_SETTLES=1` after each: the takeover after a strike
/// helps a program that the strike would have left hanging.
const SETTLES: usize = 40;
/// A stopped process goes on after this time; a delayed one waits for it.
const PAUSE: Duration = Duration::from_millis(80);
/// The most times that points are passed before a strike, if one of them is reached so often while programs run without one.
const MOST_SKIPPED: usize = 3;
const OFTEN: u64 = 50;

/// The process that a strike hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Victim {
    /// The coordinator dies.
    Coordinator,
    /// Its keeper dies.
    Keeper,
    /// A program dies.
    Program,
    /// The process at the point stops for a while.
    Stopped,
    /// It goes on a little later.
    Late,
    /// The coordinator's call of the driver at the point fails.
    Call,
    /// A call of the system fails, of the coordinator.
    SystemCall,
}

/// The time in which the coordinator has stopped, before a program sends its message.
const STOPS: Duration = Duration::from_millis(3);
/// The time in which a program has sent its message.
const SENT: Duration = Duration::from_millis(10);

/// The points at which the coordinator calls the driver begin so.
const CALLS: &str = "coordinator calls ";
/// The errors that a call fails with: `CUDA_ERROR_INVALID_VALUE`, `CUDA_ERROR_OUT_OF_MEMORY`, `CUDA_ERROR_UNKNOWN`.
const ERRORS: [u32; 3] = [1, 2, 999];
/// The errors that a call of the system fails with.
const SYSTEM_ERRORS: [&str; 4] = ["ENOMEM", "EMFILE", "ENFILE", "ENOSPC"];

impl Victim {
    fn can_be_hit_at(self, point: &str) -> bool {
        self != Self::Call || point.starts_with(CALLS)
    }
}

/// The victims of a whole matrix.
pub const VICTIMS: [Victim; 5] = [Victim::Coordinator, Victim::Keeper, Victim::Program, Victim::Stopped, Victim::Late];

/// Strikes by point and victim.
pub type Cells = BTreeMap<(String, Victim), usize>;

/// The outcome of all strikes in a state.
pub struct Outcome {
    state: State,
    cells: Cells,
    /// The survivors.
    pub tally: Tally,
}

/// A coordinator, programs, and their board.
struct Field<'a> {
    coordinator: &'a Coordinator,
    board: &'a Board,
    tally: &'a Tally,
    /// Set when a program cannot be played any more, because it hangs or the test is wrong.
    over: &'a AtomicBool,
    dice: Dice,
    /// Programs that are known not to have gone on.
    failed: usize,
    settles: usize,
    /// Coordinators that were started because all before them had died, with their keepers.
    later: Vec<Coordinator>,
}

/// The processes that serve now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Serve {
    coordinator: i32,
    keeper: i32,
}

fn serve(status: &Value) -> Option<Serve> {
    let number = |name: &str| status[name].as_i64().and_then(|number| i32::try_from(number).ok());
    Some(Serve { coordinator: number("pid")?, keeper: number("keeper")? })
}

/// Points that are struck in the same way, of which any will do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Group {
    /// The process that reaches them.
    process: String,
    /// The event before it.
    first: Option<First>,
}

impl Group {
    fn of(point: &str) -> Self {
        let process = point.split(' ').next().unwrap_or_default().to_owned();
        Self { process, first: First::of(point) }
    }
}

/// All strikes of a cell, of several runs.
fn strikes_in(cell: &(String, Victim), runs: [&Cells; 2]) -> usize {
    runs.into_iter().filter_map(|cells| cells.get(cell)).sum()
}

/// The cells of a state, and how often each is to be struck.
struct Plan<'a> {
    strikes: usize,
    /// Strikes of this run.
    struck: Cells,
    /// Strikes of earlier runs.
    earlier: &'a Cells,
}

impl Plan<'_> {
    fn lacks_any(&self, cell: &(String, Victim)) -> bool {
        strikes_in(cell, [&self.struck, self.earlier]) < self.strikes
    }

    fn is_full(&self) -> bool {
        !self.struck.keys().any(|cell| self.lacks_any(cell))
    }

    /// The points at which this victim is to be struck yet.
    fn open(&self, victim: Victim) -> BTreeMap<Group, Vec<String>> {
        let mut open = BTreeMap::<_, Vec<String>>::new();
        for (point, _) in self.struck.keys().filter(|cell| cell.1 == victim && self.lacks_any(cell)) {
            open.entry(Group::of(point)).or_default().push(point.clone());
        }
        open
    }

    fn has_struck(&mut self, point: String, victim: Victim) {
        *self.struck.entry((point, victim)).or_insert(0) += 1;
    }
}

/// Strikes these victims so many times in each cell of a state that its programs reach, of which `earlier` runs have struck some.
/// `part` (n of so many): only so many of the points, so that several machines or processes share them.
///
/// Goes on until `limit`, if there is one, while cells have too few strikes.
pub fn matrix(
    (state, victims): (State, &[Victim]),
    strikes: usize,
    part: (usize, usize),
    seed: u64,
    limit: Option<Duration>,
    earlier: &Cells,
) -> Outcome {
    let mut plan = Plan { strikes, struck: Cells::new(), earlier };
    let tally = Tally::default();
    let begun = Instant::now();
    let [point_named, victim_named] =
        ["STRIKES_POINT", "STRIKES_VICTIM"].map(|name| std::env::var(name).unwrap_or_default());
    let is_named = |victim: &&Victim| format!("{victim:?}").contains(&victim_named);
    let victims: Vec<Victim> = victims.iter().filter(is_named).copied().collect();
    let is_wanted = |point: &&String| point.contains(&point_named) && share(point, part.1) == part.0;
    let is_over = || limit.is_some_and(|limit| begun.elapsed() > limit);
    for first in (1..).step_by(TOGETHER as usize) {
        let serving = if (first / TOGETHER).is_multiple_of(2) { state.serving() } else { state.strict() };
        in_state(serving, (state, seed + u64::from(first)), &tally, |field| {
            let points = field.points(state, !earlier.is_empty());
            let known = points.iter().map(|(point, _)| point).chain(earlier.keys().map(|(point, _)| point));
            for point in known.filter(is_wanted) {
                for victim in victims.iter().filter(|victim| victim.can_be_hit_at(point)) {
                    plan.struck.entry((point.clone(), *victim)).or_insert(0);
                }
            }
            let often = points.into_iter().filter(|(_, reached)| *reached > OFTEN).map(|(point, _)| point).collect();
            for (round, victim) in (first..first + TOGETHER).flat_map(|round| victims.iter().map(move |v| (round, *v)))
            {
                field.strike_all(&mut plan, state, (victim, round), &often, is_over);
            }
        });
        if plan.is_full() || is_over() || limit.is_none() && first + TOGETHER > ROUNDS {
            break;
        }
    }
    Outcome { state, cells: plan.struck, tally }
}

/// The one of so many processes that strikes at a point, whatever other points they know of.
fn share(point: &str, parts: usize) -> usize {
    let mut hasher = DefaultHasher::new();
    point.hash(&mut hasher);
    (hasher.finish() % parts.max(1) as u64) as usize
}

/// Kills so many processes, at random moments: coordinators or keepers.
pub fn at_random(state: State, victims: &[Victim], kills: usize, seed: u64) -> Outcome {
    let mut cells = Cells::new();
    let tally = Tally::default();
    in_state(state.serving(), (state, seed), &tally, |field| {
        for kill in 0..kills {
            let victim = field.dice.of(victims);
            field.kill_now(victim);
            *cells.entry(("at any moment".to_owned(), victim)).or_insert(0) += 1;
            if (kill + 1).is_multiple_of(field.settles) {
                field.say("at any moment");
                field.settle();
            }
        }
    });
    Outcome { state, cells, tally }
}

/// Has each call of the system fail so many times that a coordinator makes while programs compute, or, of the keeper too, when the coordinator
/// is followed by another one.
pub fn system_calls(state: State, strikes: usize, seed: u64, limit: Option<Duration>) -> Outcome {
    let mut cells = Cells::new();
    let begun = Instant::now();
    let tally = Tally::default();
    in_state(state.serving(), (state, seed), &tally, |field| {
        for follows in [false, true] {
            for call in field.calls_of_system(follows) {
                if limit.is_some_and(|limit| begun.elapsed() > limit) {
                    break;
                }
                let point = if follows { format!("takeover: {call}") } else { call.clone() };
                let struck = (0..strikes).filter(|_| field.fail(&call, follows, &point)).count();
                field.say(&point);
                cells.insert((point, Victim::SystemCall), struck);
            }
        }
    });
    Outcome { state, cells, tally }
}

/// A coordinator, which is to be started, and programs with a board that tells and makes what happens to them.
pub fn with_board(serving: Serving) -> (Serving, Board) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("board");
    let board = Board::make(&file).expect("a file of our own");
    // Processes that start later open it by this name.
    let file = folder.keep().join("board");
    (serving.setting(baton_faults::BOARD, file.to_str().expect("UTF-8")), board)
}

/// Does something while the programs of a state compute.
fn in_state(serving: Serving, (state, seed): (State, u64), tally: &Tally, work: impl FnOnce(&mut Field<'_>)) {
    let (serving, board) = with_board(serving);
    let coordinator = serving.start();
    coordinator.until_ready();
    let before = tally.begun();
    let over = AtomicBool::new(false);
    // One of these may be the one that serves, also when programs have yet to end.
    let later = std::thread::scope(|scope| {
        let _end = SetAtEnd(&over);
        for load in state.loads() {
            let (coordinator, over) = (&coordinator, &over);
            scope.spawn(move || {
                let _end = SetAtEnd(over);
                load.play(coordinator, tally, over);
            });
        }
        while tally.begun() < before + state.loads().len() && !over.load(Relaxed) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let dice = Dice::new(seed);
        let settles = number("STRIKES_SETTLES").map_or(SETTLES, |strikes| strikes as usize);
        let mut field = Field {
            coordinator: &coordinator,
            board: &board,
            tally,
            over: &over,
            dice,
            failed: 0,
            settles,
            later: Vec::new(),
        };
        work(&mut field);
        assert!(!over.load(Relaxed), "a program hangs, or the test is wrong; see above");
        field.later
    });
    {
        let _end = EndsWhatServes(&coordinator);
        coordinator.until_empty();
    }
    drop(later);
    if !tally.failures().is_empty() {
        eprintln!("{}", coordinator.log());
    }
}

impl Field<'_> {
    /// The points that programs of this state reach, and how often; unless earlier runs have found them, also those that they reach when a
    /// coordinator or keeper is followed by another one.
    fn points(&mut self, state: State, are_known: bool) -> Vec<(String, u64)> {
        for _ in 0..4 {
            std::thread::sleep(LOOK / 4);
            self.ask();
        }
        if !are_known {
            self.find_rare_points(state);
        }
        let points = self.board.points();
        println!("{state:?}: {} points are reached", points.len());
        if std::env::var_os("STRIKES_SAY").is_some() {
            points.iter().for_each(|(point, reached)| eprintln!("{point}: {reached} times"));
        }
        points
    }

    /// Has the board know points that are reached when a coordinator or keeper is followed by another one.
    fn find_rare_points(&mut self, state: State) {
        for victim in [Victim::Coordinator, Victim::Keeper, Victim::Coordinator] {
            self.kill_now(victim);
            let _upgrade = state.upgrades().then(|| state::Upgrade::start(self.coordinator));
            std::thread::sleep(LOOK / 6);
        }
        let told = self.board.points();
        for first in First::all(told.iter().map(|(point, _)| point.as_str())) {
            if let Some(stopped) = self.stopped(&first) {
                std::thread::sleep(if stopped.dies { Duration::ZERO } else { LOOK / 2 });
                drop(stopped);
                std::thread::sleep(LOOK / 12);
            }
        }
    }

    /// Waits until all programs that there are have ended: the next strike would hide that one hangs, because the next coordinator begins
    /// anew with it.
    fn settle(&self) {
        let begun = self.tally.begun();
        while !self.tally.have_ended(begun) && !self.over.load(Relaxed) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Tells how far it has come, where that is wanted.
    fn say(&mut self, point: &str) {
        if std::env::var_os("STRIKES_SAY").is_none() {
            return;
        }
        let failures = self.tally.failures();
        for failure in &failures[self.failed.min(failures.len())..] {
            eprintln!("{failure}");
            let name = format!("{} ", failure.split(' ').next().unwrap_or_default());
            self.coordinator.log().lines().filter(|line| line.contains(&name)).for_each(|line| eprintln!("{line}"));
        }
        self.failed = failures.len();
        eprintln!("{point}; {}", self.tally.summary());
    }

    /// The processes that serve, and the programs that do, if both have their roles: one that has just been started has none yet, and a
    /// strike would hit the one before.
    fn serve(&self) -> Option<(Serve, Value)> {
        let status = self.coordinator.place.try_status().ok()?;
        let now = serve(&status)?;
        // The coordinator may have yet to notice that its keeper has died.
        let is_alive = !is_gone(now.keeper);
        (self.board.who_is(Role::Keeper) == now.keeper && is_alive).then_some((now, status))
    }

    /// The same; waits until they can be told.
    fn look(&mut self) -> (Serve, Value) {
        let begun = Instant::now();
        let mut is_said = false;
        loop {
            if let Some(all) = self.serve() {
                return all;
            }
            if begun.elapsed() > LONG && !std::mem::replace(&mut is_said, true) {
                eprintln!("none has served for {LONG:?}{}", self.coordinator.place.story());
            }
            assert!(begun.elapsed() < crate::LIMIT, "none serves{}", self.coordinator.place.story());
            let is_none = |role: &Role| is_gone(self.board.who_is(*role));
            if begun.elapsed() > FOLLOWS && [Role::Coordinator, Role::Keeper].iter().all(is_none) {
                // The other one was yet to be replaced, although it had begun.
                self.tally.last_killed_both();
                self.until_served();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Strikes a victim at all points that lack a strike, in whichever order they are reached. Leaves those that are not reached in time.
    fn strike_all(
        &mut self,
        plan: &mut Plan<'_>,
        state: State,
        (victim, round): (Victim, u32),
        often: &BTreeSet<String>,
        is_over: impl Fn() -> bool,
    ) {
        let mut left = BTreeSet::new();
        let mut settled = self.tally.strikes();
        while let Some((group, points)) = plan.open(victim).into_iter().find(|(group, _)| !left.contains(group)) {
            if is_over() {
                return;
            }
            let most_skipped = if points.iter().any(|point| often.contains(point)) { MOST_SKIPPED } else { 1 };
            match self.strike(state, (&group, points, most_skipped), victim, round) {
                Some(point) => plan.has_struck(point, victim),
                None => drop(left.insert(group)),
            }
            if self.tally.strikes() >= settled + self.settles {
                self.say(&format!("{victim:?}"));
                self.settle();
                settled = self.tally.strikes();
            }
        }
    }

    /// Strikes once at one of these points, and says at which. None if no process reaches one in time.
    fn strike(
        &mut self,
        state: State,
        (group, points, most_skipped): (&Group, Vec<String>, usize),
        victim: Victim,
        round: u32,
    ) -> Option<String> {
        let (mut before, status) = self.look();
        let _upgrade = state.upgrades().then(|| state::Upgrade::start(self.coordinator));
        let is_at = |process: &str| group.process == process;
        let (hit, number, wait) = match victim {
            Victim::Coordinator if is_at("coordinator") => (Hit::This, libc::SIGKILL, Duration::ZERO),
            Victim::Coordinator => (Hit::Of(Role::Coordinator), libc::SIGKILL, self.moment()),
            Victim::Keeper if is_at("keeper") => (Hit::This, libc::SIGKILL, Duration::ZERO),
            Victim::Keeper => (Hit::Of(Role::Keeper), libc::SIGKILL, self.moment()),
            Victim::Program if is_at("program") => (Hit::This, libc::SIGKILL, Duration::ZERO),
            Victim::Program => (Hit::Process(self.any_program(&status)?), libc::SIGKILL, self.moment()),
            Victim::Stopped => (Hit::This, libc::SIGSTOP, Duration::ZERO),
            Victim::Late => (Hit::This, 0, PAUSE),
            Victim::Call | Victim::SystemCall => (Hit::This, 0, Duration::ZERO),
        };
        let error = if victim == Victim::Call { self.dice.of(&ERRORS) } else { 0 };
        let skip = self.dice.below(most_skipped) as u32;
        let at = self.tally.about_to(victim, &status);
        let strike = Strike { points, skip, victim: hit, signal: number, wait, error, again: 0 };
        let mut first = group.first.as_ref().and_then(|first| self.stopped(first));
        self.board.prepare(&strike);
        let begun = Instant::now();
        // A stopped program is given up after seconds.
        let patience = round.min(ROUNDS) + u32::from(first.is_some());
        let (mut deaths, mut asked) = (Vec::new(), begun);
        if first.take_if(|first| first.dies).is_some() {
            deaths.push(Role::Coordinator);
        }
        let by = loop {
            if let Some(by) = self.board.struck() {
                break by;
            }
            if begun.elapsed() > REACHED * patience && self.board.take_back() {
                self.tally.take_back(at);
                return None;
            }
            // There are points that are reached only when a coordinator or a keeper is followed: the one hit there is the second to die.
            let is_rare = begun.elapsed() > RARE * (1 + deaths.len() as u32) && round % 2 == 1;
            if is_rare && first.is_none() && self.serve().is_some() {
                // An upgrade has had a coordinator followed already.
                let is_keepers = (deaths.len() % 2 == 0) == state.upgrades();
                let first = if is_keepers { Role::Keeper } else { Role::Coordinator };
                signal(self.board.who_is(first), libc::SIGKILL);
                deaths.push(first);
            }
            // Others are reached when a tool asks, which would wait for one that was stopped when it followed.
            if deaths.is_empty() && asked.elapsed() > RARE / 6 {
                self.ask();
                asked = Instant::now();
            }
            std::thread::sleep(Duration::from_micros(200));
        };
        if victim == Victim::Stopped {
            until_stopped(by.process);
            std::thread::sleep(PAUSE);
            signal(by.process, libc::SIGCONT);
        }
        let killed = match (victim, hit) {
            (Victim::Program, Hit::This) => Some(by.name),
            (Victim::Program, Hit::Process(process)) => self.name_of(&status, process),
            _ => None,
        };
        let how = if error == 0 { format!("{victim:?}") } else { format!("error {error}") };
        self.tally.struck(at, killed, format!("{} ({how})", by.point));
        let is_second = match victim {
            Victim::Keeper => deaths.contains(&Role::Coordinator),
            Victim::Coordinator => deaths.contains(&Role::Keeper),
            _ => false,
        };
        if is_second {
            self.tally.both_died(at, begun);
            self.until_served();
        }
        if deaths.contains(&Role::Coordinator) || hit == Hit::This && by.process != before.coordinator {
            // The one before has been followed, or a successor that prepared itself was hit.
            before.coordinator = 0;
        }
        if deaths.contains(&Role::Keeper) {
            before.keeper = 0;
        }
        self.until_followed(victim, before);
        Some(by.point)
    }

    /// Has a process stop at a point. None if none reaches it for long.
    fn stopped(&self, first: &First) -> Option<Stopped> {
        let (point, victim, dies) = match first {
            First::CoordinatorDies(point) => (point, Hit::Of(Role::Coordinator), true),
            First::ProgramStops(point) => (point, Hit::This, false),
        };
        self.board.prepare(&Strike { victim, signal: libc::SIGSTOP, wait: STOPS, ..Strike::at(point.clone()) });
        let end = Instant::now() + REACHED;
        let by = loop {
            if let Some(by) = self.board.struck() {
                break by;
            }
            if Instant::now() > end && self.board.take_back() {
                return None;
            }
            std::thread::sleep(Duration::from_micros(200));
        };
        let process = if dies { self.board.who_is(Role::Coordinator) } else { by.process };
        until_stopped(process);
        std::thread::sleep(SENT);
        Some(Stopped { process, dies })
    }

    /// Kills a process now.
    fn kill_now(&mut self, victim: Victim) {
        std::thread::sleep(Duration::from_micros(self.dice.below(60_000) as u64));
        let (before, status) = self.look();
        let (dies, hit) = match victim {
            Victim::Coordinator => (before.coordinator, None),
            Victim::Keeper => (before.keeper, None),
            _ => {
                let Some(program) = self.any_program(&status) else { return };
                (program, self.name_of(&status, program))
            }
        };
        let at = self.tally.about_to(victim, &status);
        signal(dies, libc::SIGKILL);
        self.tally.struck(at, hit, format!("at any moment ({victim:?})"));
        self.until_followed(victim, before);
    }

    /// Coordinator and keeper have died. Starts another coordinator if the one that was to follow has not got far enough to serve.
    fn until_served(&mut self) {
        let end = Instant::now() + FOLLOWS;
        while self.coordinator.place.try_status().is_err() {
            if Instant::now() > end {
                self.later.push(self.coordinator.again());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.tally.is_served();
    }

    /// Waits until another process is there in place of one that has died.
    fn until_followed(&mut self, victim: Victim, before: Serve) {
        let end = Instant::now() + crate::LIMIT;
        loop {
            let (now, _) = self.look();
            let is_followed = match victim {
                Victim::Coordinator => now.coordinator != before.coordinator,
                Victim::Keeper => now.keeper != before.keeper,
                _ => true,
            };
            if is_followed {
                break;
            }
            assert!(Instant::now() < end, "none follows{}", self.coordinator.place.story());
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(self.dice.below(30_000) as u64));
    }

    /// Asks as users' commands do: how things stand, and that a program makes way for others.
    ///
    /// The answers are not waited for: this thread lets go on what is stopped at a point.
    fn ask(&mut self) {
        let (place, dice) = (self.coordinator.place.clone(), self.dice.below(usize::MAX));
        std::thread::spawn(move || {
            let Ok(status) = place.try_status() else { return };
            let names: Vec<&str> = tenants(&status).filter_map(|one| one["name"].as_str()).collect();
            if !names.is_empty() {
                let name = names[dice % names.len()].to_owned();
                // It may have ended by now.
                let _ = client::ask(&place.socket(), &Opening::SendAway { name });
            }
        });
    }

    fn moment(&mut self) -> Duration {
        Duration::from_micros(self.dice.below(3000) as u64)
    }

    fn any_program(&mut self, status: &Value) -> Option<i32> {
        let all: Vec<i32> = tenants(status).filter_map(|one| i32::try_from(one["pid"].as_i64()?).ok()).collect();
        (!all.is_empty()).then(|| self.dice.of(&all))
    }

    /// The calls of the system that a coordinator makes, or that are made when it is followed by another one.
    fn calls_of_system(&mut self, follows: bool) -> BTreeSet<String> {
        let (before, _) = self.look();
        let strace = Strace::list(if follows { before.keeper } else { before.coordinator });
        if follows {
            self.kill_now(Victim::Coordinator);
        }
        std::thread::sleep(LOOK / 2);
        strace.calls()
    }

    /// Has a call of the system fail. False if it is not made any more.
    fn fail(&mut self, call: &str, follows: bool, point: &str) -> bool {
        let (before, status) = self.look();
        let at = self.tally.about_to(Victim::SystemCall, &status);
        let error = self.dice.of(&SYSTEM_ERRORS);
        let (process, number) = match follows {
            false => (before.coordinator, 1 + self.dice.below(MOST_SKIPPED)),
            true => (before.keeper, 1 + self.dice.below(4 * MOST_SKIPPED)),
        };
        let strace = Strace::fail(process, call, error, number);
        if follows {
            signal(before.coordinator, libc::SIGKILL);
        }
        let begun = Instant::now();
        while !strace.has_failed() && begun.elapsed() < REACHED / 4 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let has_failed = strace.has_failed();
        drop(strace);
        match has_failed {
            true => self.tally.struck(at, None, format!("{point} of the system ({error})")),
            false => self.tally.take_back(at),
        }
        self.until_followed(Victim::SystemCall, before);
        has_failed
    }

    /// The name of a program that a status shows.
    fn name_of(&self, status: &Value, process: i32) -> Option<String> {
        let one = tenants(status).find(|one| one["pid"] == process)?;
        one["name"].as_str().map(str::to_owned)
    }
}

/// The state of a process, as the system names it.
fn state_of(process: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// True if a process has ended.
fn is_gone(process: i32) -> bool {
    state_of(process).is_none_or(|state| state == 'Z')
}

/// Waits until a process has stopped: it says that it is struck just before, and would not go on again if it stopped after it is told to.
fn until_stopped(process: i32) {
    let is_about_to = || state_of(process).is_some_and(|state| !['T', 'Z'].contains(&state));
    // Another one may have followed it just then.
    let end = Instant::now() + REACHED;
    while is_about_to() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn tenants(status: &Value) -> impl Iterator<Item = &Value> {
    status["tenants"].as_array().into_iter().flatten()
}

impl Outcome {
    /// The table of all cells: points, and how often each victim was struck there.
    pub fn table(&self) -> String {
        let mut table = format!("{:?}: {}\n", self.state, self.tally.summary());
        let mut points: Vec<&String> = self.cells.keys().map(|(point, _)| point).collect();
        points.dedup();
        for point in points {
            let of_it = self.cells.iter().filter(|((at, _), _)| at == point);
            let cells = of_it.map(|((_, victim), count)| format!("{victim:?} {count}"));
            table += &format!("  {point}: {}\n", cells.collect::<Vec<_>>().join(", "));
        }
        table
    }

    /// Cells with fewer strikes than there were to be, those of earlier runs among them.
    pub fn missed(&self, strikes: usize, earlier: &Cells) -> Vec<String> {
        let all = self.cells.keys().map(|cell| (cell, strikes_in(cell, [&self.cells, earlier])));
        let missed = all.filter(|(_, struck)| *struck < strikes);
        missed.map(|((point, victim), struck)| format!("{point} ({victim:?}): {struck}")).collect()
    }
}
