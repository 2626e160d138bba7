//! How long it takes to make a trace, a page and a picture of all that a recorder keeps: `cargo bench -p baton-views --bench trace`.

use std::time::Instant;

use baton_report::event::History;
use baton_views::page::{self, page};
use baton_views::perfetto::trace;
use baton_views::ribbon::{ribbon, svg};
use baton_views::summary::Summary;
use baton_views::timeline::Timeline;

#[allow(dead_code, unreachable_pub, reason = "the example uses more of it")]
mod made;

/// How many events a recorder keeps.
const EVENTS: usize = 64 << 10;
/// The quickest of so many runs counts.
const RUNS: usize = 5;

fn main() {
    for programs in [3, 200] {
        let history = made::turns(programs, EVENTS);
        let (heard, _) = timed(|| timeline(&history));
        let timeline = timeline(&history);
        let time = timeline.since..timeline.now;
        let summary = Summary::within(&timeline, time.clone());
        let (traced, json) =
            timed(|| serde_json::to_vec(&trace(&timeline, &time, "GPU", 0)).expect("numbers and texts"));
        let (paged, html) = timed(|| {
            let caption = page::Caption { title: "t", line: "l" };
            page(&ribbon(&timeline, &summary, &time, usize::MAX), &summary, &caption)
        });
        let (drawn, file) =
            timed(|| svg::file(&ribbon(&timeline, &summary, &time, 12), &svg::Caption { title: "t", line: "l" }));
        println!(
            "{} events of {programs} programs: timeline {heard:.0} ms, trace {traced:.0} ms ({} KiB), page {paged:.0} ms ({} KiB), \
             picture {drawn:.0} ms ({} KiB)",
            history.events.len(),
            json.len() >> 10,
            html.len() >> 10,
            file.len() >> 10
        );
    }
}

fn timeline(history: &History) -> Timeline {
    let mut timeline = Timeline::default();
    timeline.see(history);
    timeline
}

/// The least milliseconds that it took, and what it gave.
fn timed<T>(what: impl Fn() -> T) -> (f64, T) {
    let run = || {
        let start = Instant::now();
        let gave = what();
        (start.elapsed().as_secs_f64() * 1e3, gave)
    };
    (1..RUNS).fold(run(), |best, _| {
        let next = run();
        if next.0 < best.0 { next } else { best }
    })
}
