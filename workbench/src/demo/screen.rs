//! How the demo goes on: a line for each step that is over, and on a terminal one in place for the step at hand, with the time that
//! is left.

use std::cell::Cell;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

/// How often the line in place is written anew.
const PERIOD: Duration = Duration::from_millis(100);
/// Where the time that is left stands.
const WIDTH: usize = 62;

/// All of it.
pub struct Screen<'a> {
    say: &'a dyn Fn(&str),
    /// Whether there is a terminal.
    is_live: bool,
    /// How long each step takes, in seconds, where the machine has time for it.
    plan: Vec<f64>,
    /// How many are over.
    over: Cell<usize>,
    start: Instant,
    /// When the step at hand began.
    since: Cell<Instant>,
    shown: Cell<Option<Instant>>,
}

impl Drop for Screen<'_> {
    fn drop(&mut self) {
        self.clear();
    }
}

impl<'a> Screen<'a> {
    /// Steps that take about so many seconds each are to be shown.
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

    /// A line that stays.
    pub fn line(&self, text: &str) {
        self.clear();
        (self.say)(&format!("{text}\n"));
    }

    /// A step is over; a line that stays says what came of it.
    pub fn over(&self, text: &str) {
        self.over.set(self.over.get() + 1);
        self.since.set(Instant::now());
        self.line(text);
    }

    /// How the step at hand goes, to be said as often as one likes.
    pub fn now(&self, text: impl FnOnce(f64) -> String) {
        if !self.is_live || self.shown.get().is_some_and(|at| at.elapsed() < PERIOD) {
            return;
        }
        self.shown.set(Some(Instant::now()));
        let text: String = text(self.since.get().elapsed().as_secs_f64()).chars().take(WIDTH - 2).collect();
        // Where the terminal is narrow, it is cut instead of going on in the next line.
        (self.say)(&format!("\r\x1b[?7l{text:<WIDTH$}{:.0} s left\x1b[K\x1b[?7h", self.left()));
    }

    /// How many seconds are left, by the plan and by how much longer the steps took that are over.
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

/// `spent`: on the steps that are over; `elapsed`: on the first of those that are not.
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
        // One that is faster may meet slower steps yet, and none that goes on is over.
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
