//! Draws a ribbon as SVG: a whole file for documents, or lanes for a page.

use std::fmt::Write as _;

use super::{Kind, Lane, Mark, Ribbon, ticks};
use crate::format::{escaped, shortened};
use crate::palette::{COLOURS, Look};
use crate::timeline::State;

/// The style of the drawing, in light and dark. Custom properties begin with `--`, classes with `r-`.
pub const CSS: &str = include_str!("ribbon.css");

/// Height of a program's lane: the state, evictions below it, and requests.
pub const HEIGHT: u32 = 27;
/// Top and height of a state.
const STATE: (u32, u32) = (1, 17);
/// Height of a lane of the GPU.
pub const LOW: u32 = 20;

/// Maximum number of programs with a lane in a file.
pub const MOST: usize = 12;

/// Measures of a whole file.
const WIDTH: f64 = 960.0;
const LEFT: f64 = 184.0;
const RIGHT: f64 = 16.0;
const TOP: u32 = 58;
const GAP: u32 = 7;
/// Maximum length of a name in letters; a longer one is cut.
const NAME: usize = 18;
/// The owner's marks wider than this have letters: from 0 to 1.
const LETTERS: f64 = 0.032;

/// The states and events in a program's lane that the legend explains.
pub const EXPLAINED: [(Kind, &str); 10] = [
    (Kind::State(State::Running), "running"),
    (Kind::State(State::RunningArriving), "running, memory arriving"),
    (Kind::State(State::CoRunning), "co-running"),
    (Kind::State(State::Waiting), "waiting for the baton"),
    (Kind::State(State::Arriving), "waiting for memory"),
    (Kind::State(State::Preempted), "preempted"),
    (Kind::State(State::Descheduled), "descheduled"),
    (Kind::State(State::Suspended), "suspended"),
    (Kind::Evicting, "evicting"),
    (Kind::Request, "request"),
];

/// The unit of places between 0 and 1. A page uses percent, because its width changes.
#[derive(Clone, Copy)]
pub enum Across {
    /// Pixels from this place on, with this width.
    Pixels(f64, f64),
    /// Percent of the width.
    Percent,
}

impl Across {
    fn place(self, at: f64) -> String {
        match self {
            Self::Pixels(left, width) => format!("{:.1}", left + at * width),
            Self::Percent => format!("{:.2}%", at * 100.0),
        }
    }

    fn width(self, from: f64, to: f64) -> String {
        // Each mark is wide enough to be seen.
        let width = (to - from).max(1.0 / super::PLACES as f64);
        match self {
            Self::Pixels(_, all) => format!("{:.1}", width * all),
            Self::Percent => format!("{:.2}%", width * 100.0),
        }
    }
}

/// Colours and patterns. A document contains them once.
pub fn definitions() -> String {
    let mut out = String::from("<defs><style>");
    for (at, (colour, on_it)) in COLOURS.iter().enumerate() {
        let _ = write!(out, ".r-c{at}{{fill:{colour}}}.r-s{at}{{stroke:{colour}}}.r-t{at}{{fill:{on_it}}}");
    }
    out.push_str("</style>");
    let pattern = |id: &str, size: u32, turn: u32, inside: &str| {
        format!(
            "<pattern id=\"{id}\" width=\"{size}\" height=\"{size}\" patternUnits=\"userSpaceOnUse\" \
             patternTransform=\"rotate({turn})\">{inside}</pattern>"
        )
    };
    let line = |class: &str, y: f32, long: u32| format!("<path class=\"{class}\" d=\"M0 {y}H{long}\"/>");
    out += &pattern("r-arriving", 7, 135, &line("r-stripe", 3.5, 7));
    out += &pattern("r-waits", 5, 45, &line("r-hatched", 2.5, 5));
    out += &pattern("r-stopped", 5, 135, &line("r-hatched", 2.5, 5));
    out += &pattern("r-kept", 5, 0, "<circle class=\"r-dotted\" cx=\"2.5\" cy=\"2.5\" r=\"1.4\"/>");
    out += &pattern("r-p1", 5, 45, &line("r-dark", 2.5, 5));
    out += &pattern("r-p2", 6, 0, "<circle class=\"r-dots\" cx=\"3\" cy=\"3\" r=\"1.5\"/>");
    out += &pattern("r-p3", 5, 90, &line("r-dark", 2.5, 5));
    out + "</defs>"
}

/// Draws one lane, whose upper edge is at `top`. `details`: the place of each mark's text, a `<title>` or an attribute.
pub fn lane(lane: &Lane, looks: &[Look], across: Across, top: u32, details: Details) -> String {
    let mut out = String::new();
    for mark in &lane.marks {
        let look = lane.look.as_ref().or_else(|| looks.get(mark.number?));
        draw(&mut out, mark, look, across, top, details);
    }
    out
}

/// The place of a mark's text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Details {
    /// A child that viewers show by themselves.
    Title,
    /// An attribute that the page's script reads.
    Attribute,
    /// No place.
    None,
}

fn draw(out: &mut String, mark: &Mark, look: Option<&Look>, across: Across, top: u32, details: Details) {
    let colour = look.map_or_else(|| "r-waiting".to_owned(), |look| format!("r-c{}", look.colour));
    let line = look.map_or_else(|| "r-frame".to_owned(), |look| format!("r-s{}", look.colour));
    let (x, width) = (across.place(mark.from), across.width(mark.from, mark.to));
    let said = escaped(&mark.said);
    let mut rect = |class: &str, fill: &str, (y, height): (u32, u32), is_over: bool| {
        let fill = if fill.is_empty() { String::new() } else { format!(" fill=\"{fill}\"") };
        let (attribute, child) = match details {
            _ if is_over => (String::new(), String::new()),
            Details::Title => (String::new(), format!("<title>{said}</title>")),
            Details::Attribute => (format!(" data-said=\"{said}\""), String::new()),
            Details::None => (String::new(), String::new()),
        };
        let y = top + y;
        let _ = write!(
            out,
            "<rect class=\"{class}\"{fill} x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"{attribute}"
        );
        let _ = if child.is_empty() { write!(out, "/>") } else { write!(out, ">{child}</rect>") };
    };
    let (y, height) = STATE;
    let inner = (y + 4, height - 8);
    match mark.kind {
        Kind::Owner => {
            rect(&format!("{colour} r-edge"), "", (0, LOW), false);
            if let Some(look) = look {
                if look.pattern > 0 {
                    rect("r-over", &format!("url(#r-p{})", look.pattern), (0, LOW), true);
                }
                if mark.to - mark.from >= LETTERS {
                    let middle = across.place((mark.from + mark.to) / 2.0);
                    let (colour, letters) = (look.colour, &look.letters);
                    let y = top + 14;
                    let _ = write!(
                        out,
                        "<text class=\"r-letter r-t{colour} r-s{colour}\" x=\"{middle}\" y=\"{y}\">{letters}</text>"
                    );
                }
            }
        }
        Kind::Copies(part) => {
            let high = ((f64::from(LOW) * part).round() as u32).max(1);
            rect(&format!("{colour} r-bar"), "", (LOW - high, high), false);
        }
        Kind::State(State::Running) => rect(&format!("{colour} r-edge"), "", STATE, false),
        Kind::State(State::RunningArriving) => {
            rect(&format!("{colour} r-edge"), "", STATE, false);
            rect("r-over", "url(#r-arriving)", STATE, true);
        }
        Kind::State(State::CoRunning) => rect(&format!("{colour} r-weak"), "", STATE, false),
        Kind::State(State::Waiting) => rect("r-waiting", "", (y + height / 2 - 1, 3), false),
        Kind::State(State::Arriving) => rect("", "url(#r-waits)", inner, false),
        Kind::State(State::Descheduled) => rect(&format!("{colour} r-weak {line}"), "", inner, false),
        Kind::State(State::Preempted) => rect("r-frame", "url(#r-stopped)", (y, height), false),
        Kind::State(State::Suspended) => rect("r-frame", "url(#r-kept)", (y, height), false),
        Kind::State(State::Idle) => {}
        Kind::Evicting => rect("r-evicting", "", (20, 3), false),
        Kind::Request => rect("r-request", "", (24, 3), false),
    }
}

/// Draws a mark of this kind for the legend.
pub fn sample(kind: Kind, look: &Look) -> String {
    let mark = Mark { from: 0.0, to: 1.0, kind, number: None, said: String::new() };
    let mut out = String::new();
    draw(&mut out, &mark, Some(look), Across::Pixels(1.0, 26.0), 0, Details::None);
    out
}

/// Draws a program's letters on its colour, 22 wide and 16 high.
pub fn badge(look: &Look, x: u32, y: u32) -> String {
    let Look { colour, pattern, letters } = look;
    let mut out =
        format!("<rect class=\"r-c{colour} r-edge\" x=\"{x}\" y=\"{y}\" width=\"22\" height=\"16\" rx=\"3\"/>");
    if *pattern > 0 {
        let fill = format!("url(#r-p{pattern})");
        let _ = write!(
            out,
            "<rect class=\"r-over\" fill=\"{fill}\" x=\"{x}\" y=\"{y}\" width=\"22\" height=\"16\" rx=\"3\"/>"
        );
    }
    let (x, y) = (x + 11, y + 12);
    out + &format!("<text class=\"r-letter r-t{colour} r-s{colour}\" x=\"{x}\" y=\"{y}\">{letters}</text>")
}

/// The text of an SVG file beside the ribbon.
pub struct Caption<'a> {
    /// The heading.
    pub title: &'a str,
    /// The line below the heading.
    pub line: &'a str,
}

/// Draws the ribbon as a file of its own, for documents.
pub fn file(ribbon: &Ribbon, caption: &Caption<'_>) -> String {
    let across = Across::Pixels(LEFT, WIDTH - LEFT - RIGHT);
    let mut body = String::new();
    let text = |class: &str, x: f64, y: u32, said: &str| {
        format!("<text class=\"{class}\" x=\"{x:.0}\" y=\"{y}\">{}</text>\n", escaped(said))
    };
    let mut y = TOP;
    for (place, one) in ribbon.gpu.iter().chain(&ribbon.programs).enumerate() {
        let is_program = one.look.is_some();
        if place == ribbon.gpu.len() {
            y += GAP;
        }
        let height = if is_program { HEIGHT } else { LOW };
        let base = y + if is_program { STATE.0 + STATE.1 } else { height };
        let _ = writeln!(body, "<path class=\"r-grid\" d=\"M{LEFT} {base}H{}\"/>", WIDTH - RIGHT);
        let (line, note) = (shortened(&one.name, NAME), &one.note);
        match &one.look {
            Some(look) => {
                body += &badge(look, 10, y + 1);
                body += &text("r-text", 38.0, y + 13, &line);
            }
            None => {
                body += &text("r-text", 10.0, y + 14, &line);
                body += &text("r-soft r-end", LEFT - 10.0, y + 14, note);
            }
        }
        body += &self::lane(one, &ribbon.looks, across, y, Details::Title);
        y += height + GAP;
    }
    if ribbon.programs.is_empty() {
        body += &text("r-soft", LEFT, y + 14, "No program used the GPU in this time.");
        y += 24;
    } else if !ribbon.quiet.is_empty() {
        body += &text("r-soft", 10.0, y + 12, &others(ribbon.quiet.len()));
        y += 22;
    }
    let mut grid = String::new();
    for (at, said) in ticks(&ribbon.time, 8) {
        let x = across.place(at);
        let anchor = if at > 0.97 { "r-end" } else { "r-mid" };
        let _ = writeln!(grid, "<path class=\"r-grid\" d=\"M{x} {TOP}V{y}\"/>");
        let _ = writeln!(grid, "<text class=\"r-soft {anchor}\" x=\"{x}\" y=\"{}\">{said}</text>", y + 14);
    }
    y += 30;
    if !ribbon.programs.is_empty() {
        let (legend, end) = legend(ribbon, y);
        body += &legend;
        y = end;
    }
    let (title, line) = (escaped(caption.title), escaped(caption.line));
    let definitions = definitions();
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {y}\" width=\"{WIDTH}\" height=\"{y}\" role=\"img\">\n\
         <title>{title}. {line}</title>\n<style>{CSS}</style>{definitions}\n\
         <rect class=\"r-paper\" width=\"{WIDTH}\" height=\"{y}\"/>\n\
         <text class=\"r-title\" x=\"10\" y=\"22\">{title}</text>\n\
         <text class=\"r-soft\" x=\"10\" y=\"40\">{line}</text>\n{grid}{body}</svg>\n"
    )
}

/// Counts the programs without activity, in words.
pub fn others(count: usize) -> String {
    if count == 1 { "and one more program".to_owned() } else { format!("and {count} more programs") }
}

/// Returns the explanations that a ribbon needs.
pub fn needed(ribbon: &Ribbon) -> impl Iterator<Item = (Kind, &'static str)> {
    let is_there = |kind: &Kind| ribbon.programs.iter().flat_map(|lane| &lane.marks).any(|mark| mark.kind == *kind);
    EXPLAINED.into_iter().filter(move |(kind, _)| is_there(kind))
}

fn legend(ribbon: &Ribbon, mut y: u32) -> (String, u32) {
    let Some(look) = ribbon.programs.first().and_then(|lane| lane.look.as_ref()) else { return (String::new(), y) };
    let (mut out, mut x) = (String::new(), 10.0);
    for (kind, word) in needed(ribbon) {
        let wide = 50.0 + 5.8 * word.len() as f64;
        if x + wide > WIDTH {
            (x, y) = (10.0, y + 26);
        }
        let drop = match kind {
            Kind::Evicting => -12,
            Kind::Request => -16,
            _ => 0,
        };
        let _ = writeln!(out, "<g transform=\"translate({x:.0} {})\">{}</g>", y as i32 + drop, sample(kind, look));
        let _ = writeln!(out, "<text class=\"r-soft\" x=\"{:.0}\" y=\"{}\">{word}</text>", x + 34.0, y + 13);
        x += wide;
    }
    (out, y + 30)
}
