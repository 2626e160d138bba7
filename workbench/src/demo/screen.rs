//! The demo's progress: a line for each finished step, and on a terminal one in place for the present step, with the time that is left.

use std::cell::Cell;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

/// Delay between two updates of the line in place.
const PERIOD: Duration = Duration::from_millis(100);
/// Column of the time that is left.
const WIDTH: usize = 62;

/// The screen.
pub struct Screen<'a> {
    say: &'a dyn Fn(&str),
    /// True if there is a terminal.
    is_live: bool,
    /// Planned duration of each step, in seconds, on a machine that has time for it.
    plan: Vec<f64>,
    /// The number of finished steps.
    over: Cell<usize>,
    start: Instant,
    /// The start of the present step.
    since: Cell<Instant>,
    shown: Cell<Option<Instant>>,
}

impl Drop for Screen<'_> {
    fn drop(&mut self) {
        self.clear();
    }
}

impl<'a> Screen<'a> {
    /// Makes a screen for steps of these planned durations.
    pub fn new(say: &'a dyn Fn(&str), plan: &[f64]) -> Self {
        let is_dumb = std::env::var_os("TERM").is_some_and(|word| word == "dumb");
        Self::of(say, plan, std::io::stdout().is_terminal() && !is_dumb)
    }

    fn of(say: &'a dyn Fn(&str), plan: &[f64], is_live: bool) -> Self {
        Self {
            say,
            is_live,
            plan: plan.to_vec(),
            over: Cell::new(0),
            start: Instant::now(),
            since: Cell::new(Instant::now()),
            shown: Cell::new(None),
        }
    }

    /// Prints a line that stays.
    pub fn line(&self, text: &str) {
        self.clear();
        (self.say)(&format!("{text}\n"));
    }

    /// Finishes a step, with a line of its result that stays.
    pub fn over(&self, text: &str) {
        self.over.set(self.over.get() + 1);
        self.since.set(Instant::now());
        self.line(text);
    }

    /// Shows the present step's progress. It may be called at any rate.
    pub fn now(&self, text: impl FnOnce(f64) -> String) {
        if !self.is_live || self.shown.get().is_some_and(|at| at.elapsed() < PERIOD) {
            return;
        }
        self.shown.set(Some(Instant::now()));
        let text: String = text(self.since.get().elapsed().as_secs_f64()).chars().take(WIDTH - 2).collect();
        // A narrow terminal cuts the line instead of wrapping it.
        (self.say)(&format!("\r\x1b[?7l{text:<WIDTH$}{:.0} s left\x1b[K\x1b[?7h", self.left()));
    }

    /// Returns the seconds that are left, by the plan and by the delay of the finished steps.
    pub fn left(&self) -> f64 {
        let (over, at_hand) = self.plan.split_at(self.over.get().min(self.plan.len()));
        let spent = self.since.get().duration_since(self.start).as_secs_f64();
        left(over, at_hand, spent, self.since.get().elapsed().as_secs_f64())
    }

    fn clear(&self) {
        if self.shown.take().is_some() {
            (self.say)("\r\x1b[K");
        }
    }
}

/// `spent`: on finished steps; `elapsed`: on the present one.
fn left(over: &[f64], at_hand: &[f64], spent: f64, elapsed: f64) -> f64 {
    let planned: f64 = over.iter().sum();
    let slower = if planned > 0.0 { (spent / planned).max(1.0) } else { 1.0 };
    let first = at_hand.first().map_or(0.0, |first| (first * slower - elapsed).max(0.0));
    let others: f64 = at_hand.iter().skip(1).sum();
    (first + others * slower).max(1.0)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn a_machine_that_is_slower_than_planned_has_more_time_left() {
        assert_eq!(left(&[], &[2.0, 3.0], 0.0, 0.5), 4.5);
        assert_eq!(left(&[2.0], &[3.0, 1.0], 4.0, 1.0), 7.0);
        // A fast run may still meet slower steps, and a running step always has time left.
        assert_eq!(left(&[2.0], &[3.0], 1.0, 0.0), 3.0);
        assert_eq!(left(&[2.0], &[3.0], 2.0, 9.0), 1.0);
    }

    #[test]
    fn without_a_terminal_only_what_stays_is_said() {
        let said = RefCell::new(String::new());
        let say = |text: &str| said.borrow_mut().push_str(text);
        let screen = Screen::of(&say, &[1.0], false);
        screen.now(|_| "going".to_owned());
        screen.over("gone");
        drop(screen);
        assert_eq!(*said.borrow(), "gone\n");
    }

    #[test]
    fn on_a_terminal_a_line_that_stays_takes_the_place_of_the_one_at_hand() {
        let said = RefCell::new(String::new());
        let say = |text: &str| said.borrow_mut().push_str(text);
        let screen = Screen::of(&say, &[1.0, 5.0], true);
        screen.now(|_| "going".to_owned());
        screen.now(|_| "too soon".to_owned());
        screen.over("gone");
        drop(screen);
        let said = said.borrow();
        assert!(said.starts_with("\r\u{1b}[?7lgoing ") && said.contains("6 s left"), "{said:?}");
        assert!(said.ends_with("\r\u{1b}[Kgone\n") && !said.contains("too soon"), "{said:?}");
    }
}
