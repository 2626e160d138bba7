//! Writes pages, pictures and traces of histories that are made up, to be looked at: `cargo run -p baton-views --example pages FOLDER`.

use std::path::PathBuf;

use baton_report::event::History;
use baton_views::page::{self, page};
use baton_views::perfetto::trace;
use baton_views::ribbon::{ribbon, svg};
use baton_views::summary::Summary;
use baton_views::timeline::Timeline;

#[allow(unreachable_pub, reason = "the benchmark has it too")]
#[path = "../benches/made.rs"]
mod made;

fn main() -> std::io::Result<()> {
    let folder = PathBuf::from(std::env::args().nth(1).expect("a folder"));
    let all = [
        ("empty", History { now_ns: 30_000_000_000, ..History::default() }),
        ("three", made::turns(3, 900)),
        ("together", made::together(300)),
        ("many", made::turns(200, 60_000)),
    ];
    for (name, history) in all {
        let mut timeline = Timeline::default();
        timeline.see(&history);
        let time = timeline.since..timeline.now;
        let summary = Summary::within(&timeline, time.clone());
        let (title, line) = ("Who had the GPU", "GPU-made-up, 30 s until 2026-01-01T00:00:00Z");
        let most = |most| ribbon(&timeline, &summary, &time, most);
        let write = |kind: &str, text: String| std::fs::write(folder.join(format!("{name}.{kind}")), text);
        write("html", page(&most(page::MOST), &summary, &page::Caption { title, line }))?;
        write("svg", svg::file(&most(svg::MOST), &svg::Caption { title, line }))?;
        write("json", serde_json::to_string(&trace(&timeline, &time, "GPU-made-up", 0))?)?;
    }
    Ok(())
}
