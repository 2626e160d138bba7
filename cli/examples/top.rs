//! Writes what `baton top` shows of a coordinator as pictures, for screens of several sizes, to be looked at and for documents:
//! `cargo run -p baton-cli --example top -- SOCKET FOLDER`. `bench/ribbon.py --kinds top` has a coordinator that is worth a look.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use baton_cli::named::read;
use baton_cli::top::model::Model;
use baton_cli::top::view::draw;
use baton_client as client;
use baton_views::format::escaped;
use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier};

/// Columns and lines of the screens.
const SCREENS: [(u16, u16); 3] = [(80, 24), (120, 30), (200, 50)];
/// How large a letter is.
const WIDTH: f64 = 8.4;
const HEIGHT: f64 = 18.0;
const MARGIN: f64 = 10.0;
const GROUND: &str = "#1c1d21";
const TEXT: &str = "#e4e4e7";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (socket, folder) = (arguments.next().ok_or("a socket")?, arguments.next().ok_or("a folder")?);
    let mut model = Model::default();
    let status = read(&client::status(&socket)?)?;
    client::see(&socket, &mut model.timeline)?;
    model.see(status);
    SCREENS.iter().try_for_each(|(columns, lines)| write(&model, *columns, *lines, &folder))
}

fn write(model: &Model, columns: u16, lines: u16, folder: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let mut buffer = Buffer::empty(Rect::new(0, 0, columns, lines));
    draw(model, true, &mut buffer);
    Ok(std::fs::write(folder.join(format!("top-{columns}.svg")), picture(&buffer))?)
}

/// As terminals show them.
fn hex(color: Color) -> Option<&'static str> {
    match color {
        Color::Cyan => Some("#56b6c2"),
        Color::Green => Some("#8cc265"),
        Color::Yellow => Some("#d9b65c"),
        Color::Magenta => Some("#c678dd"),
        Color::Blue => Some("#6ca0f6"),
        Color::Red => Some("#e06c75"),
        Color::Black => Some(GROUND),
        _ => None,
    }
}

/// Cells that have this in common are drawn as one.
fn look(cell: &Cell) -> (Option<&'static str>, &'static str, bool) {
    (hex(cell.bg), hex(cell.fg).unwrap_or(TEXT), cell.modifier.contains(Modifier::BOLD))
}

fn picture(buffer: &Buffer) -> String {
    let Rect { width, height, .. } = buffer.area;
    let [wide, high] = [f64::from(width) * WIDTH, f64::from(height) * HEIGHT].map(|size| size + 2.0 * MARGIN);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {wide:.0} {high:.0}\" font-family=\"ui-monospace, 'DejaVu Sans \
         Mono', monospace\" font-size=\"14\">\n<rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"{GROUND}\"/>\n"
    );
    for (line, cells) in buffer.content.chunks(usize::from(width)).enumerate() {
        let top = MARGIN + line as f64 * HEIGHT;
        let mut at = 0;
        for same in cells.chunk_by(|one, other| look(one) == look(other)) {
            let (ground, color, bold) = look(&same[0]);
            let (left, long) = (MARGIN + at as f64 * WIDTH, same.len() as f64 * WIDTH);
            at += same.len();
            if let Some(ground) = ground {
                let _ = writeln!(
                    out,
                    "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{long:.1}\" height=\"{HEIGHT}\" fill=\"{ground}\"/>"
                );
            }
            let text: String = same.iter().map(Cell::symbol).collect();
            if text.trim().is_empty() {
                continue;
            }
            // Other spaces would be one.
            let text = text.replace(' ', "\u{a0}");
            let weight = if bold { " font-weight=\"bold\"" } else { "" };
            let _ = writeln!(
                out,
                "<text x=\"{left:.1}\" y=\"{:.1}\" fill=\"{color}\" textLength=\"{long:.1}\"{weight}>{}</text>",
                top + 0.75 * HEIGHT,
                escaped(&text)
            );
        }
    }
    out + "</svg>\n"
}
