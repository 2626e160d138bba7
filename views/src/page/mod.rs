//! A stretch of time as one page: a ribbon and a table. The page needs nothing else, loads nothing and may load nothing.
//!
//! It is well-formed XML as well as HTML, so that a strict parser can look at all of it.

use std::fmt::Write as _;

use crate::format::{bytes, duration, escaped, percent};
use crate::palette::{self, Look};
use crate::ribbon::svg::{Across, CSS, Details, HEIGHT, LOW, badge, definitions, lane, needed, others, sample};
use crate::ribbon::{Kind, Lane, Ribbon, ticks};
use crate::summary::{Summary, Took};

#[cfg(test)]
mod tests;

/// Maximum number of programs with a lane in a page.
pub const MOST: usize = 64;

const TEMPLATE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The text above the ribbon.
pub struct Caption<'a> {
    /// The heading.
    pub title: &'a str,
    /// The GPU and the time.
    pub line: &'a str,
}

/// Writes the page.
pub fn page(ribbon: &Ribbon, summary: &Summary, caption: &Caption<'_>) -> String {
    let is_empty = ribbon.programs.is_empty() && summary.gpu.bytes_in + summary.gpu.bytes_out == 0;
    let ribbon_part = if is_empty {
        "<p class=\"empty\">No program used the GPU in this time.</p>\n".to_owned()
    } else {
        lanes(ribbon, summary)
    };
    let table = if summary.programs.is_empty() { String::new() } else { table(ribbon, summary) };
    fill(&[
        ("title", &escaped(caption.title)),
        ("line", &escaped(caption.line)),
        ("css", &format!("{CSS}{STYLE}")),
        ("definitions", &definitions()),
        ("tiles", &tiles(summary)),
        ("ribbon", &ribbon_part),
        ("table", &table),
        ("script", SCRIPT),
    ])
}

/// Puts values into the template. Values are not scanned for further names.
fn fill(values: &[(&str, &str)]) -> String {
    let mut parts = TEMPLATE.split("{{");
    let mut page = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once("}}").unwrap_or(("", part));
        let value = values.iter().find(|(known, _)| *known == name);
        page.push_str(value.map_or("", |(_, value)| value));
        page.push_str(rest);
    }
    page
}

fn tiles(summary: &Summary) -> String {
    let longest = summary.gpu.waits.longest();
    let all = [
        ("switches", summary.gpu.switches.to_string()),
        ("GPU in use", percent(summary.gpu.share)),
        ("copied to the GPU", bytes(summary.gpu.bytes_in)),
        ("copied to the host", bytes(summary.gpu.bytes_out)),
        ("longest wait for a turn", longest.map_or("–".to_owned(), duration)),
        ("programs", summary.programs.len().to_string()),
    ];
    let tile = |(what, value): (&str, String)| format!("<div><dt>{what}</dt><dd>{}</dd></div>", escaped(&value));
    all.map(tile).concat()
}

fn lanes(ribbon: &Ribbon, summary: &Summary) -> String {
    let grid: Vec<_> = ticks(&ribbon.time, 5);
    let mut out = String::from("<section aria-label=\"Who had the GPU when\">\n");
    for (place, one) in ribbon.gpu.iter().chain(&ribbon.programs).enumerate() {
        let high = if one.look.is_some() { HEIGHT } else { LOW };
        let gap = if place == ribbon.gpu.len() { " gap" } else { "" };
        let _ = write!(out, "<div class=\"lane{gap}\"><div class=\"name\">{}</div>", name(one));
        let label = escaped(&one.name);
        let keys = if one.marks.is_empty() { "" } else { " tabindex=\"0\"" };
        let _ = write!(out, "<svg role=\"group\" height=\"{high}\" aria-label=\"{label}\"{keys}>");
        for (at, _) in &grid {
            let x = format!("{:.2}%", at * 100.0);
            let _ = write!(out, "<line class=\"r-grid\" x1=\"{x}\" x2=\"{x}\" y1=\"-3\" y2=\"{}\"/>", high + 3);
        }
        out += &lane(one, &ribbon.looks, Across::Percent, 0, Details::Attribute);
        out += "</svg></div>\n";
    }
    out += "<div class=\"lane axis\"><div class=\"name\"></div><svg height=\"20\" aria-hidden=\"true\">";
    for (at, said) in &grid {
        let anchor = match at {
            0.0..0.04 => "",
            0.0..0.92 => " r-mid",
            _ => " r-end",
        };
        let _ = write!(out, "<text class=\"r-soft{anchor}\" x=\"{:.2}%\" y=\"14\">{said}</text>", at * 100.0);
    }
    out += "</svg></div>\n";
    if !ribbon.quiet.is_empty() {
        let names = ribbon.quiet.iter().filter_map(|id| summary.programs.get(id));
        let names: String = names.map(|one| format!("<bdi>{}</bdi>", escaped(&one.name))).collect();
        let _ = writeln!(
            out,
            "<details class=\"more\"><summary>{}, idle or with less of the GPU</summary><p>{names}</p></details>",
            others(ribbon.quiet.len())
        );
    }
    out += &legend(ribbon);
    out + "</section>\n"
}

fn name(lane: &Lane) -> String {
    let note = if lane.note.is_empty() { String::new() } else { format!("<small>{}</small>", escaped(&lane.note)) };
    let badge = lane.look.as_ref().map_or(String::new(), in_a_row);
    format!("{badge}<bdi>{}</bdi>{note}", escaped(&lane.name))
}

fn in_a_row(look: &Look) -> String {
    format!("<svg width=\"24\" height=\"18\" aria-hidden=\"true\">{}</svg>", badge(look, 1, 1))
}

fn legend(ribbon: &Ribbon) -> String {
    let Some(look) = ribbon.programs.first().and_then(|lane| lane.look.as_ref()) else { return String::new() };
    let mut out = String::from("<ul class=\"legend\">");
    for (kind, word) in needed(ribbon) {
        // A mark that lies low in its lane is shown in the middle of its line here.
        let top = match kind {
            Kind::Evicting => 12,
            Kind::Request => 16,
            _ => 0,
        };
        let drawn = sample(kind, look);
        let _ = write!(
            out,
            "<li><svg width=\"28\" height=\"19\" viewBox=\"0 {top} 28 19\" aria-hidden=\"true\">{drawn}</svg>{word}</li>"
        );
    }
    out + "</ul>\n"
}

fn table(ribbon: &Ribbon, summary: &Summary) -> String {
    let heads = [
        "program",
        "class",
        "had the GPU",
        "turns",
        "wait P50",
        "wait max",
        "requests",
        "request P50",
        "request max",
        "to the GPU",
        "to the host",
        "on the GPU",
        "now",
    ];
    let heads = heads.map(|head| format!("<th scope=\"col\">{head}</th>")).concat();
    let mut out = format!(
        "<h2>Programs</h2>\n<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"Programs\"><table><thead><tr>{heads}</tr></thead><tbody>\n"
    );
    for (id, one) in &summary.programs {
        if ribbon.quiet.contains(id) && !one.is_active {
            continue;
        }
        let times = |took: &Took| [50, 100].map(|percent| took.percentile(percent).map_or("–".to_owned(), duration));
        let [wait, longest_wait] = times(&one.waits);
        let [request, longest_request] = times(&one.requests);
        let now = match one.state {
            _ if one.is_over => "ended",
            Some(state) => state.word(),
            None => "–",
        };
        let cells = [
            escaped(one.class.as_deref().unwrap_or("–")),
            percent(one.share),
            one.waits.count().to_string(),
            wait,
            longest_wait,
            one.requests.count().to_string(),
            request,
            longest_request,
            bytes(one.bytes_in),
            bytes(one.bytes_out),
            one.resident.filter(|_| !one.is_over).map_or("–".to_owned(), bytes),
            now.to_owned(),
        ];
        let cells = cells.map(|cell| format!("<td>{cell}</td>")).concat();
        let _ = writeln!(
            out,
            "<tr><td><span class=\"who\">{}<bdi>{}</bdi></span></td>{cells}</tr>",
            in_a_row(&palette::look(one.number)),
            escaped(&one.name)
        );
    }
    out + "</tbody></table></div>\n"
}
