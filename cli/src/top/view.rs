//! The picture: the model as cells of a screen.

use std::ops::Range;

use baton_contract::memory::size;
use baton_views::format::{duration, duration_ms};
use baton_views::standing;
use baton_views::summary::Took;
use baton_views::timeline::Timeline;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

use super::model::{Mode, Model, PAST, Row, Sort, question};

#[cfg(test)]
mod tests;

/// Colours of programs, in turn. They differ in brightness too.
const COLORS: [Color; 6] = [Color::Cyan, Color::Green, Color::Yellow, Color::Magenta, Color::Blue, Color::Red];

/// Column at which bars begin.
const MARGIN: u16 = 11;
/// The part of a column's time below which a program counts as absent.
const MOMENT: f64 = 0.01;
/// Minimum width of names where there is room.
const WIDE: usize = 24;
/// Lines above the table's own.
const ABOVE: u16 = 7;

const HELP: &[&str] = &[
    "q           end                           ?           this help",
    "up, down    choose a program (also k, j)  /           show only names with these letters",
    "s           suspend it                    r           resume it",
    "e           move its memory to the host   p           bring its memory back",
    "c           change its class              g           show the next GPU",
    "",
    "Sort:  A age   N name   G share of the GPU   M memory on the GPU   W waits   S switches",
    "",
    "The first line of letters is who had the GPU in the last minute, now at the right end. Each",
    "program has a letter, which stands in front of its line in the table too; - is nobody, and in the",
    "bars + is what does not move, or copies that are kept of what is on the GPU.",
    "GPU, waits and switches are those of the last minute, as in `baton stats --last 60s`.",
    "`baton why NAME` says what a program waits for. A wider terminal shows more columns.",
];

/// Draws the whole picture. Without `color`, letters alone tell programs apart.
pub fn draw(model: &Model, color: bool, buffer: &mut Buffer) {
    let area = buffer.area;
    if area.width < 20 || area.height < 4 {
        return text(buffer, 0, "too small", Style::new());
    }
    header(model, buffer);
    ribbon(model, color, buffer);
    let status = &model.status;
    let resident = status.tenants.iter().map(|tenant| (tenant.id, tenant.resident_bytes));
    let arena = [status.arena.lent_bytes, status.arena.bytes];
    bar(model, color, buffer, 2, "arena", resident.collect(), arena);
    let evicted = status.tenants.iter().map(|tenant| (tenant.id, tenant.evicted_bytes));
    let pool = [status.host_pool.used_bytes, status.host_pool.bytes];
    bar(model, color, buffer, 3, "host pool", evicted.collect(), pool);
    text(buffer, 4, &format!("beside it  {}", standing::outside_arena(&status.ledger.lines)), Style::new());
    if model.mode == Mode::Help {
        for (at, line) in (ABOVE - 1..area.height.saturating_sub(1)).zip(HELP) {
            text(buffer, at, line, Style::new());
        }
    } else {
        table(model, color, buffer);
    }
    footer(model, buffer);
}

/// Draws a line of text, cut at the screen's edge.
fn text(buffer: &mut Buffer, line: u16, words: &str, style: Style) {
    if line < buffer.area.height {
        let (area, width) = (buffer.area, buffer.area.width as usize);
        buffer.set_stringn(area.x, area.y + line, words, width, style);
    }
}

fn header(model: &Model, buffer: &mut Buffer) {
    let status = &model.status;
    let count = status.tenants.len();
    let programs = if count == 1 { "program" } else { "programs" };
    let joining = match status.newcomers.len() {
        0 => String::new(),
        joining => format!(", {joining} joining"),
    };
    let which = if model.gpus > 1 {
        format!("GPU {} of {} (g: the next)   ", status.gpu.number, model.gpus)
    } else {
        String::new()
    };
    let line = format!(
        "{which}on the GPU: {}   {count} {programs}{joining}   {} {}   up {}{}",
        standing::on_gpu(status),
        status.gpu.name,
        size(status.gpu.memory_bytes),
        duration_ms(status.uptime_seconds * 1e3),
        if status.ending { "   ends after the last program" } else { "" }
    );
    text(buffer, 0, &line, Style::new().add_modifier(Modifier::BOLD));
}

fn style_of(id: Option<u32>, color: bool) -> Style {
    match id {
        Some(id) if color => Style::new().fg(Color::Black).bg(COLORS[id as usize % COLORS.len()]),
        _ => Style::new(),
    }
}

/// Returns the program that had the GPU for longest in a stretch of time; none if no program had it for more than a moment.
pub fn owner(timeline: &Timeline, time: &Range<u64>) -> Option<u32> {
    let shares = timeline.shares(time);
    let (id, share) = shares.into_iter().max_by(|(_, one), (_, other)| one.total_cmp(other))?;
    (share > MOMENT).then_some(id)
}

fn ribbon(model: &Model, color: bool, buffer: &mut Buffer) {
    text(buffer, 1, "last 60 s", Style::new());
    let (timeline, width) = (&model.timeline, u64::from(buffer.area.width.saturating_sub(MARGIN)));
    let step = PAST / width.max(1);
    for column in 0..width {
        let end = timeline.now.saturating_sub((width - 1 - column) * step);
        let time = end.saturating_sub(step)..end;
        let is_known = time.start >= timeline.since && time.end > time.start;
        let id = owner(timeline, &time).filter(|_| is_known);
        let letter = match id {
            Some(id) => model.letter(id),
            None if is_known => '-',
            None => ' ',
        };
        let (x, y) = (buffer.area.x + MARGIN + column as u16, buffer.area.y + 1);
        buffer[(x, y)].set_char(letter).set_style(style_of(id, color));
    }
}

/// Draws the owners of a memory, to scale. Memory in use that belongs to no single program has a sign of its own.
fn bar(
    model: &Model,
    color: bool,
    buffer: &mut Buffer,
    line: u16,
    name: &str,
    parts: Vec<(u32, u64)>,
    [used, all]: [u64; 2],
) {
    let numbers = format!(" {} of {}", size(used), size(all));
    text(buffer, line, name, Style::new());
    let width = buffer.area.width.saturating_sub(MARGIN + numbers.len() as u16);
    if width == 0 {
        return;
    }
    let at = |bytes: u64| (bytes as f64 / all.max(1) as f64 * f64::from(width)).round().min(f64::from(width)) as u16;
    let (mut sum, mut from) = (0, 0);
    let (x, y) = (buffer.area.x + MARGIN, buffer.area.y + line);
    for (id, bytes) in parts {
        sum += bytes;
        for column in from..at(sum) {
            let cell = &mut buffer[(x + column, y)];
            cell.set_char(model.letter(id)).set_style(style_of(Some(id), color));
        }
        from = from.max(at(sum));
    }
    for column in from..at(used).max(from) {
        buffer[(x + column, y)].set_char('+');
    }
    for column in from.max(at(used))..width {
        buffer[(x + column, y)].set_char('.');
    }
    buffer.set_string(x + width, y, numbers, Style::new());
}

/// A column: its heading, its width, and its text. Columns are shown while there is room, in the order of `ORDER`.
struct Column {
    heading: &'static str,
    width: usize,
    is_left: bool,
    cell: fn(&Row<'_>, f64) -> String,
    sort: Option<Sort>,
}

fn took(took: &Took, percent: u32) -> String {
    took.percentile(percent).map_or("-".to_owned(), duration)
}

const fn column(
    heading: &'static str,
    width: usize,
    is_left: bool,
    sort: Option<Sort>,
    cell: fn(&Row<'_>, f64) -> String,
) -> Column {
    Column { heading, width, is_left, cell, sort }
}

/// The columns, from left to right.
const COLUMNS: [Column; 13] = [
    column("class", 7, true, None, |row, _| row.tenant.class.clone()),
    column("weight", 6, false, None, |row, _| row.tenant.weight.to_string()),
    column("slo", 8, false, None, |row, _| row.tenant.slo_ms.map_or("-".to_owned(), duration_ms)),
    column("state", 12, true, None, |row, _| standing::state(row.tenant)),
    column("resident", 9, false, Some(Sort::Memory), |row, _| size(row.tenant.resident_bytes)),
    column("evicted", 9, false, None, |row, _| size(row.tenant.evicted_bytes)),
    column("unmanaged", 9, false, None, |row, _| size(row.tenant.unmanaged_bytes)),
    column("GPU", 5, false, Some(Sort::Gpu), |row, _| format!("{:.0} %", row.lately.share * 100.0)),
    column("wait p50", 8, false, None, |row, _| took(&row.lately.waits, 50)),
    column("wait p99", 8, false, Some(Sort::Waits), |row, _| took(&row.lately.waits, 99)),
    column("switch/s", 8, false, Some(Sort::Switches), |row, seconds| {
        format!("{:.1}", row.lately.switches as f64 / seconds.max(1e-3))
    }),
    column("pid", 7, false, None, |row, _| row.tenant.pid.map_or("-".to_owned(), |pid| pid.to_string())),
    column("quota", 10, true, None, |row, _| {
        let met: Vec<&str> = row.tenant.quotas.iter().map(|met| met.quota.word()).collect();
        if met.is_empty() { "-".to_owned() } else { met.join(",") }
    }),
];

/// Indexes of the columns, the most important first.
const ORDER: [usize; 13] = [3, 7, 4, 5, 0, 9, 10, 8, 6, 1, 2, 11, 12];

/// Minimum width of names.
const NAME: usize = 10;

fn shown_columns(width: usize) -> Vec<&'static Column> {
    let mut left = width.saturating_sub(2 + NAME);
    let mut shown = [false; COLUMNS.len()];
    for at in ORDER {
        if COLUMNS[at].width + 1 > left {
            break;
        }
        left -= COLUMNS[at].width + 1;
        shown[at] = true;
    }
    COLUMNS.iter().zip(shown).filter(|(_, shown)| *shown).map(|(column, _)| column).collect()
}

fn table(model: &Model, color: bool, buffer: &mut Buffer) {
    let Rect { width, height, .. } = buffer.area;
    let columns = shown_columns(width as usize);
    let taken: usize = columns.iter().map(|column| column.width + 1).sum();
    // Figures stay next to their names on a screen of any width.
    let rows = model.rows();
    let longest = rows.iter().map(|row| row.tenant.name.chars().count()).max().unwrap_or(0).max(WIDE);
    let name_width = (width as usize).saturating_sub(2 + taken).min(longest);
    let seconds = (model.summary.time.end - model.summary.time.start) as f64 / 1e9;
    let line = |letter: char, name: &str, cells: &dyn Fn(&Column) -> String| {
        let mut line = format!("{letter} {:<name_width$}", cut(name, name_width));
        for column in &columns {
            let (cell, wide) = (cut(&cells(column), column.width), column.width);
            line += &if column.is_left { format!(" {cell:<wide$}") } else { format!(" {cell:>wide$}") };
        }
        line
    };
    let heading = |column: &Column| match column.sort {
        Some(sort) if sort == model.sort => format!("{}*", column.heading),
        _ => column.heading.to_owned(),
    };
    let name = if model.sort == Sort::Name { "program*" } else { "program" };
    let bold = Style::new().add_modifier(Modifier::BOLD);
    text(buffer, ABOVE - 1, &line(' ', name, &|column| heading(column)), bold);
    let room = height.saturating_sub(ABOVE + 1) as usize;
    let selected = model.selected_row();
    // The selected row is always visible.
    let first = (selected + 1).saturating_sub(room.max(1));
    if rows.len() > room {
        let line = format!("{room} of {} programs have room; up and down show the others, / chooses", rows.len());
        text(buffer, ABOVE - 2, &line, Style::new());
    }
    for (row, (at, shown)) in rows.iter().enumerate().skip(first).take(room).enumerate() {
        let is_selected = at == selected && model.selected.is_some();
        let style = if is_selected { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
        let y = ABOVE + row as u16;
        text(buffer, y, &line(shown.letter, &shown.tenant.name, &|column| (column.cell)(shown, seconds)), style);
        if color && !is_selected {
            let at = (buffer.area.x, buffer.area.y + y);
            buffer[at].set_style(style_of(Some(shown.tenant.id), true));
        }
    }
    if rows.is_empty() && room > 0 {
        let why = if model.filter.is_empty() { "no programs share the GPU" } else { "no name has these letters" };
        text(buffer, ABOVE, why, Style::new());
    }
}

/// Cuts a text to a width.
fn cut(text: &str, width: usize) -> String {
    match text.char_indices().nth(width) {
        Some(_) if width > 0 => text.chars().take(width - 1).chain(['~']).collect(),
        Some(_) => String::new(),
        None => text.to_owned(),
    }
}

/// Describes the quota that holds back the selected program.
fn met(model: &Model) -> Option<String> {
    let rows = model.rows();
    let tenant = rows.get(model.selected_row()).filter(|_| model.selected.is_some())?.tenant;
    tenant.quotas.first().map(|met| format!("{} is held by a quota: {met}", tenant.name))
}

fn footer(model: &Model, buffer: &mut Buffer) {
    let line = match &model.mode {
        Mode::Filter => format!("/{}_", model.filter),
        Mode::Help => "any key ends the help".to_owned(),
        Mode::Class(name) => format!("class of {name}:  l latency   n normal   b batch"),
        Mode::Confirm(action, name) => format!("{}  y yes   n no", question(*action, name)),
        Mode::Table => match &model.message {
            Some(message) => message.clone(),
            None if let Some(met) = met(model) => met,
            None if !model.filter.is_empty() => format!("only names with {}; Esc shows all", model.filter),
            None => "q end   ? help   / filter   s suspend   r resume   e evict   c class".to_owned(),
        },
    };
    text(buffer, buffer.area.height - 1, &line, Style::new().add_modifier(Modifier::BOLD));
}
