//! `baton top`: a live picture of a coordinator and its programs.
//!
//! | file | what it does |
//! |---|---|
//! | `model` | the known state, and the effects of keys |
//! | `view` | the picture, as cells of a screen |
//! | `mod` | asks the coordinator, reads keys, and redraws the changed parts of the picture |
//!
//! Without a terminal, or on one that cannot move its cursor, it prints the picture once.

pub mod model;
pub mod view;

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use baton_client as client;
use baton_contract::messages::Opening;
use baton_contract::scheduling::Change;
use baton_workbench::output::print;
use clap::Args;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::Rect;
use rustix::process::{Signal, kill_current_process_group};

use super::CliError;
use super::named::{have_done_patiently, read};
use super::place::Place;
use model::{Action, Effect, Key, Model};

/// Width of the picture if the terminal's is unknown.
const WIDTH: u16 = 80;

/// `baton top`.
#[derive(Clone, Debug, Args)]
pub struct Top {
    #[command(flatten)]
    place: Place,
    /// Time between two updates.
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = humantime::parse_duration)]
    every: Duration,
}

/// Shows the picture until the user ends it.
///
/// # Errors
///
/// When no coordinator answers, at first or later.
pub fn run(Top { place, every }: Top) -> Result<(), CliError> {
    let sockets = place.all()?;
    let model_of = |socket: &Path| {
        let mut model = Model::default();
        model.gpus = sockets.len();
        look(socket, &mut model).map(|()| model)
    };
    let is = |name: &str, value: &str| std::env::var_os(name).is_some_and(|word| word == value);
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() || is("TERM", "dumb") {
        let all = sockets.iter().map(|socket| Ok(once(&model_of(socket)?))).collect::<Result<Vec<_>, CliError>>()?;
        return Ok(print(&all.join("\n"))?);
    }
    let color = std::env::var_os("NO_COLOR").is_none_or(|word| word.is_empty());
    // Its errors come before the screen is taken.
    let mut model = model_of(&sockets[0])?;
    let mut terminal = ratatui::try_init()?;
    let mut at = 0;
    let ended = loop {
        match follow(&sockets[at], &mut model, &mut terminal, every, color) {
            Ok(Ended::NextGpu) => at = (at + 1) % sockets.len(),
            Ok(Ended::Quit) => break Ok(()),
            Err(error) => break Err(error),
        }
        match model_of(&sockets[at]) {
            Ok(its) => model = its,
            Err(error) => break Err(error),
        }
    };
    ratatui::restore();
    ended
}

/// Returns the picture as lines of text, in the user's width and at full length.
fn once(model: &Model) -> String {
    let columns = std::env::var("COLUMNS").ok().and_then(|word| word.parse().ok());
    let height = u16::try_from(model.status.tenants.len().max(1)).unwrap_or(u16::MAX).saturating_add(8);
    let mut buffer = Buffer::empty(Rect::new(0, 0, columns.unwrap_or(WIDTH).clamp(20, 500), height));
    view::draw(model, false, &mut buffer);
    let Rect { width, .. } = buffer.area;
    // The last line shows keys.
    let lines = buffer.content.chunks(usize::from(width)).take(usize::from(height) - 1);
    let line = |cells: &[ratatui::buffer::Cell]| {
        cells.iter().map(ratatui::buffer::Cell::symbol).collect::<String>().trim_end().to_owned() + "\n"
    };
    lines.map(line).collect()
}

fn look(socket: &Path, model: &mut Model) -> Result<(), CliError> {
    let status = read(&client::status(socket)?)?;
    client::see(socket, &mut model.timeline)?;
    model.see(status);
    Ok(())
}

/// The reason why a GPU is shown no longer.
enum Ended {
    Quit,
    NextGpu,
}

fn follow(
    socket: &Path,
    model: &mut Model,
    terminal: &mut ratatui::DefaultTerminal,
    every: Duration,
    color: bool,
) -> Result<Ended, CliError> {
    let (done, said) = channel();
    let mut next = Instant::now() + every;
    loop {
        // Only changed cells are written, so nothing flickers.
        terminal.draw(|frame| view::draw(model, color, frame.buffer_mut()))?;
        if event::poll(next.saturating_duration_since(Instant::now()))? {
            let effect = match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => match key.code {
                    KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Effect::Quit,
                    KeyCode::Char('z') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                        rest(terminal)?;
                        Effect::Nothing
                    }
                    code => of(code).map_or(Effect::Nothing, |key| model.key(key)),
                },
                // The picture is drawn anew in any case, in the size of the screen.
                _ => Effect::Nothing,
            };
            match effect {
                Effect::Nothing => {}
                Effect::Quit => return Ok(Ended::Quit),
                Effect::NextGpu => return Ok(Ended::NextGpu),
                Effect::Do(action, name) => {
                    model.message = Some(format!("{} …", words(action, &name)));
                    act(socket.to_path_buf(), action, name, done.clone());
                }
            }
        }
        if Instant::now() >= next {
            look(socket, model)?;
            next = Instant::now() + every;
        }
        hear(&said, model);
    }
}

/// Stops at Ctrl-Z as any command does, with the terminal restored, until the shell continues it.
fn rest(terminal: &mut ratatui::DefaultTerminal) -> Result<(), CliError> {
    ratatui::restore();
    // The shell waits for the whole job, as it does where the terminal itself stops it.
    kill_current_process_group(Signal::TSTP).map_err(std::io::Error::from)?;
    *terminal = ratatui::try_init()?;
    Ok(())
}

fn hear(said: &Receiver<String>, model: &mut Model) {
    while let Ok(message) = said.try_recv() {
        model.message = Some(message);
    }
}

fn of(code: KeyCode) -> Option<Key> {
    Some(match code {
        KeyCode::Char(word) => Key::Char(word),
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        _ => return None,
    })
}

/// The action as a command.
fn words(action: Action, name: &str) -> String {
    match action {
        Action::Suspend => format!("suspend {name}"),
        Action::Resume => format!("resume {name}"),
        Action::Evict => format!("evict {name}"),
        Action::Prefetch => format!("prefetch {name}"),
        Action::Class(class) => format!("set {name} class={class}"),
    }
}

/// Runs an action, which may take long, and sends its outcome.
fn act(socket: PathBuf, action: Action, name: String, done: Sender<String>) {
    let what = words(action, &name);
    let change = |change| Opening::Set { name: name.clone(), change };
    let request = match action {
        Action::Suspend => change(Change { suspended: Some(true), ..Change::default() }),
        Action::Resume => change(Change { suspended: Some(false), ..Change::default() }),
        Action::Class(class) => change(Change { class: Some(class), ..Change::default() }),
        Action::Evict => Opening::Evict { name },
        Action::Prefetch => Opening::Prefetch { name },
    };
    std::thread::spawn(move || {
        let said = match have_done_patiently(&socket, &request, None, &mut || ()) {
            Ok(_) => format!("{what}: done"),
            Err(error) => format!("{what}: {error}"),
        };
        // After the end of the picture, no one receives this.
        let _ = done.send(said);
    });
}
