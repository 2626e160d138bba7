//! The state of `baton top`, and the effects of its keys: no terminal, no socket, no clock.

use std::collections::BTreeMap;

use baton_contract::class::Class;
use baton_report::status::Status;
use baton_report::tenant::Tenant;
use baton_views::summary::{Part, Summary};
use baton_views::timeline::Timeline;

/// The time that is shown, in nanoseconds.
pub const PAST: u64 = 60_000_000_000;

/// A letter for each program, in this order; then from the beginning.
const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

/// A key that has a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "keys")]
pub enum Key {
    Char(char),
    Up,
    Down,
    PageUp,
    PageDown,
    Enter,
    Escape,
    Backspace,
}

/// The order of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// The oldest program first.
    Age,
    /// By name.
    Name,
    /// The most GPU time first.
    Gpu,
    /// The most memory on the GPU first.
    Memory,
    /// The longest waits for turns first (P99).
    Waits,
    /// The most switches first.
    Switches,
}

/// An action on a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "as the commands")]
pub enum Action {
    Suspend,
    Resume,
    Evict,
    Prefetch,
    Class(Class),
}

/// The present meaning of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The usual one.
    Table,
    /// Keys are letters of the filter.
    Filter,
    /// Any key ends the help.
    Help,
    /// Keys choose a class for this program.
    Class(String),
    /// Keys confirm or refuse this action on this program.
    Confirm(Action, String),
}

/// The effect of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The picture changes, nothing else.
    Nothing,
    /// The picture ends.
    Quit,
    /// An action on the program of this name.
    Do(Action, String),
    /// The next GPU is shown.
    NextGpu,
}

/// A line of the table.
#[derive(Clone, Debug)]
pub struct Row<'a> {
    /// The letter by which the program is shown elsewhere.
    pub letter: char,
    /// The program.
    pub tenant: &'a Tenant,
    /// Its recent totals.
    pub lately: Part,
}

/// The state of the whole picture.
#[derive(Debug)]
pub struct Model {
    /// The present status.
    pub status: Status,
    /// The events.
    pub timeline: Timeline,
    /// Their totals.
    pub summary: Summary,
    /// The present meaning of keys.
    pub mode: Mode,
    /// The order of the table.
    pub sort: Sort,
    /// Letters that the shown names contain.
    pub filter: String,
    /// The last action's outcome, or its error.
    pub message: Option<String>,
    /// The name of the selected program.
    pub selected: Option<String>,
    /// The number of GPUs that can be shown.
    pub gpus: usize,
    letters: BTreeMap<u32, char>,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            status: Status::default(),
            timeline: Timeline::default(),
            summary: Summary::default(),
            mode: Mode::Table,
            sort: Sort::Age,
            filter: String::new(),
            message: None,
            selected: None,
            gpus: 1,
            letters: BTreeMap::new(),
        }
    }
}

impl Model {
    /// Takes a new status; the timeline has read the events up to it.
    pub fn see(&mut self, status: Status) {
        self.status = status;
        self.timeline.forget_before(self.timeline.now.saturating_sub(PAST));
        self.summary = Summary::of(&self.timeline, PAST);
        let ids = self.status.tenants.iter().map(|tenant| tenant.id).chain(self.timeline.programs.keys().copied());
        for id in ids.collect::<Vec<_>>() {
            // Programs' numbers go up, so a program's letter differs from those of programs just before it.
            let letter = char::from(LETTERS[(id as usize).wrapping_sub(1) % LETTERS.len()]);
            self.letters.entry(id).or_insert(letter);
        }
    }

    /// Returns a program's letter.
    pub fn letter(&self, id: u32) -> char {
        self.letters.get(&id).copied().unwrap_or('?')
    }

    /// Returns the lines of the table, in order.
    pub fn rows(&self) -> Vec<Row<'_>> {
        let is_shown = |tenant: &&Tenant| tenant.name.to_lowercase().contains(&self.filter.to_lowercase());
        let lately = |id: u32| self.summary.programs.get(&id).cloned().unwrap_or_default();
        let shown = self.status.tenants.iter().filter(is_shown);
        let mut rows: Vec<Row<'_>> =
            shown.map(|tenant| Row { letter: self.letter(tenant.id), tenant, lately: lately(tenant.id) }).collect();
        let most = |a: f64, b: f64| b.total_cmp(&a);
        match self.sort {
            Sort::Age => {}
            Sort::Name => rows.sort_by(|a, b| a.tenant.name.cmp(&b.tenant.name)),
            Sort::Gpu => rows.sort_by(|a, b| most(a.lately.share, b.lately.share)),
            Sort::Memory => rows.sort_by_key(|row| std::cmp::Reverse(row.tenant.resident_bytes)),
            Sort::Waits => rows.sort_by_key(|row| std::cmp::Reverse(row.lately.waits.percentile(99))),
            Sort::Switches => rows.sort_by_key(|row| std::cmp::Reverse(row.lately.switches)),
        }
        rows
    }

    /// Returns the selected program's row in the table.
    pub fn selected_row(&self) -> usize {
        let name = self.selected.as_deref();
        self.rows().iter().position(|row| Some(row.tenant.name.as_str()) == name).unwrap_or(0)
    }

    fn selected_name(&self) -> Option<String> {
        self.rows().get(self.selected_row()).map(|row| row.tenant.name.clone())
    }

    fn go(&mut self, by: isize) {
        let names: Vec<String> = self.rows().iter().map(|row| row.tenant.name.clone()).collect();
        let at = self.selected_row().saturating_add_signed(by).min(names.len().saturating_sub(1));
        self.selected = names.get(at).cloned();
    }

    /// Handles a key.
    pub fn key(&mut self, key: Key) -> Effect {
        match std::mem::replace(&mut self.mode, Mode::Table) {
            Mode::Table => return self.key_in_table(key),
            Mode::Help => {}
            Mode::Filter => match key {
                Key::Enter => {}
                Key::Escape => self.filter.clear(),
                Key::Backspace => {
                    self.filter.pop();
                    self.mode = Mode::Filter;
                }
                Key::Char(word) => {
                    self.filter.push(word);
                    self.mode = Mode::Filter;
                }
                _ => self.mode = Mode::Filter,
            },
            Mode::Class(name) => {
                let class = match key {
                    Key::Char('l') => Class::Latency,
                    Key::Char('n') => Class::Normal,
                    Key::Char('b') => Class::Batch,
                    _ => return Effect::Nothing,
                };
                self.mode = Mode::Confirm(Action::Class(class), name);
            }
            Mode::Confirm(action, name) => {
                if matches!(key, Key::Char('y' | 'Y') | Key::Enter) {
                    return Effect::Do(action, name);
                }
                self.message = Some("nothing was done".to_owned());
            }
        }
        Effect::Nothing
    }

    fn key_in_table(&mut self, key: Key) -> Effect {
        self.message = None;
        match key {
            Key::Char('q') => return Effect::Quit,
            Key::Char('?' | 'h') => self.mode = Mode::Help,
            Key::Char('/') => self.mode = Mode::Filter,
            Key::Escape => self.filter.clear(),
            Key::Char('g') => return Effect::NextGpu,
            Key::Char('A') => self.sort = Sort::Age,
            Key::Char('N') => self.sort = Sort::Name,
            Key::Char('G') => self.sort = Sort::Gpu,
            Key::Char('M') => self.sort = Sort::Memory,
            Key::Char('W') => self.sort = Sort::Waits,
            Key::Char('S') => self.sort = Sort::Switches,
            Key::Up | Key::Char('k') => self.go(-1),
            Key::Down | Key::Char('j') => self.go(1),
            Key::PageUp => self.go(-10),
            Key::PageDown => self.go(10),
            Key::Char(word @ ('s' | 'r' | 'e' | 'p' | 'c')) => {
                let Some(name) = self.selected_name() else { return Effect::Nothing };
                self.selected = Some(name.clone());
                match word {
                    // These need no confirmation: they take nothing from other programs.
                    'r' => return Effect::Do(Action::Resume, name),
                    'p' => return Effect::Do(Action::Prefetch, name),
                    's' => self.mode = Mode::Confirm(Action::Suspend, name),
                    'e' => self.mode = Mode::Confirm(Action::Evict, name),
                    _ => self.mode = Mode::Class(name),
                }
            }
            _ => {}
        }
        Effect::Nothing
    }
}

/// The question before an action.
pub fn question(action: Action, name: &str) -> String {
    match action {
        Action::Suspend => format!("take {name} off the GPU until it is resumed?"),
        Action::Resume => format!("let {name} go on?"),
        Action::Evict => format!("move the memory of {name} to the host when its work has ended?"),
        Action::Prefetch => format!("bring the memory of {name} to the GPU?"),
        Action::Class(class) => format!("make {name} {class}? Others wait more, or less, for it."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> Model {
        let tenant = |id: u32, name: &str, resident: u64| Tenant {
            id,
            name: name.to_owned(),
            resident_bytes: resident,
            ..Tenant::default()
        };
        let mut model = Model::default();
        let tenants = vec![tenant(1, "train", 5), tenant(2, "serve", 9), tenant(3, "tune", 1)];
        model.see(Status { tenants, ..Status::default() });
        model
    }

    fn names(model: &Model) -> Vec<String> {
        model.rows().iter().map(|row| format!("{} {}", row.letter, row.tenant.name)).collect()
    }

    fn keys(model: &mut Model, keys: &str) -> Effect {
        keys.chars().map(|key| model.key(Key::Char(key))).last().unwrap_or(Effect::Nothing)
    }

    #[test]
    fn keys_sort_and_filter_and_letters_stay() {
        let mut model = model();
        assert_eq!(names(&model), ["a train", "b serve", "c tune"]);
        keys(&mut model, "N");
        assert_eq!(names(&model), ["b serve", "a train", "c tune"]);
        keys(&mut model, "M");
        assert_eq!(names(&model), ["b serve", "a train", "c tune"]);
        keys(&mut model, "A/T");
        assert_eq!(names(&model), ["a train", "c tune"]);
        keys(&mut model, "u");
        model.key(Key::Enter);
        assert_eq!((names(&model).len(), &model.mode), (1, &Mode::Table));
        model.key(Key::Escape);
        assert_eq!(names(&model).len(), 3);
    }

    #[test]
    fn what_takes_effect_on_others_is_asked_first() {
        let mut model = model();
        model.key(Key::Down);
        assert_eq!(keys(&mut model, "s"), Effect::Nothing);
        assert_eq!(keys(&mut model, "n"), Effect::Nothing);
        assert!(model.message.is_some());
        assert_eq!(keys(&mut model, "sy"), Effect::Do(Action::Suspend, "serve".to_owned()));
        assert_eq!(keys(&mut model, "r"), Effect::Do(Action::Resume, "serve".to_owned()));
        assert_eq!(keys(&mut model, "cby"), Effect::Do(Action::Class(Class::Batch), "serve".to_owned()));
        assert_eq!(keys(&mut model, "cxy"), Effect::Nothing);
        assert_eq!(keys(&mut model, "q"), Effect::Quit);
    }

    #[test]
    fn the_selection_follows_its_program() {
        let mut model = model();
        model.key(Key::Down);
        model.key(Key::Down);
        model.key(Key::Down);
        assert_eq!((model.selected.as_deref(), model.selected_row()), (Some("tune"), 2));
        keys(&mut model, "N");
        model.key(Key::Up);
        assert_eq!(model.selected.as_deref(), Some("train"));
        // When the selected program has left, the first row is selected.
        model.status.tenants.remove(0);
        assert_eq!(model.selected_row(), 0);
    }
}
