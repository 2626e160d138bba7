//! The report as a table.

use super::{Report, Times};
use crate::table::{plain_table, trimmed};

/// A row; empty columns are left out. `ratios`: of the 50th, 95th and 99th percentile and of the batch work.
#[derive(Default)]
struct Row<'a> {
    served: &'a str,
    batch: &'a str,
    way: &'a str,
    times: Option<&'a Times>,
    rate: Option<f64>,
    ratios: [Option<f64>; 4],
    preemptions: Option<u64>,
    differs: bool,
}

/// The names of a program's measurements alone, in order.
const WHEN: [&str; 2] = ["alone", "alone again"];

pub(super) fn table(report: &Report) -> String {
    let mut rows = plain_table(&[
        "served",
        "beside",
        "",
        ">p50 ms",
        ">p95 ms",
        ">p99 ms",
        ">p50 x",
        ">p95 x",
        ">p99 x",
        ">batch/s",
        ">x",
        ">preempted",
        "",
    ]);
    for alone in &report.served {
        for (times, way) in alone.alone.iter().zip(WHEN) {
            let first = alone.alone.first().filter(|_| way != WHEN[0]);
            let ratio = |of: fn(&Times) -> f64| first.map(|first| of(times) / of(first));
            let ratios = [ratio(|times| times.p50_ms), ratio(|times| times.p95_ms), ratio(|times| times.p99_ms), None];
            rows.add_row(cells(&Row {
                served: &alone.name,
                batch: "-",
                way,
                times: Some(times),
                ratios,
                ..Row::default()
            }));
        }
    }
    for alone in &report.batch {
        for (rate, way) in alone.alone.iter().zip(WHEN) {
            let ratio = alone.alone.first().filter(|_| way != WHEN[0]).map(|first| rate / first);
            let (rate, ratios) = (Some(*rate), [None, None, None, ratio]);
            rows.add_row(cells(&Row { served: "-", batch: &alone.name, way, rate, ratios, ..Row::default() }));
        }
    }
    for cell in &report.cells {
        let row = Row {
            served: &cell.served,
            batch: &cell.batch,
            way: &cell.way,
            times: Some(&cell.times),
            rate: Some(cell.batch_per_second),
            ratios: [cell.ratios.p50, cell.ratios.p95, cell.ratios.p99, cell.ratios.batch].map(Some),
            preemptions: cell.preemptions,
            differs: !cell.outputs_match,
        };
        rows.add_row(cells(&row));
    }
    let verdict = if report.outputs_match { "every answer is right" } else { baton_messages::ANSWERS_DIFFER };
    format!(
        "\n{}\n{} requests each, at {:.0} % load; x is against alone, and alone again against alone is the noise; {verdict}\n",
        trimmed(&rows),
        report.requests,
        report.load * 100.0
    )
}

fn cells(row: &Row<'_>) -> [String; 13] {
    let number = |value: Option<f64>, digits: usize| value.map_or("-".to_owned(), |value| format!("{value:.digits$}"));
    let time = |of: fn(&Times) -> f64| number(row.times.map(of), 1);
    let [p50, p95, p99, batch] = row.ratios.map(|ratio| number(ratio, 2));
    [
        row.served.to_owned(),
        row.batch.to_owned(),
        row.way.to_owned(),
        time(|times| times.p50_ms),
        time(|times| times.p95_ms),
        time(|times| times.p99_ms),
        p50,
        p95,
        p99,
        number(row.rate, 1),
        batch,
        row.preemptions.map_or("-".to_owned(), |count| count.to_string()),
        if row.differs { "ANSWERS DIFFER" } else { "" }.to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::report;
    use super::*;

    #[test]
    fn every_measurement_has_a_row_and_the_second_one_alone_tells_the_noise() {
        let text = table(&report(true));
        let rows: Vec<Vec<&str>> = text.lines().skip(2).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0], ["short", "-", "alone", "3.0", "5.0", "5.0", "-", "-", "-", "-", "-", "-"]);
        assert_eq!(rows[1][3..], ["again", "5.0", "5.0", "5.0", "1.67", "1.00", "1.00", "-", "-", "-"]);
        assert_eq!(rows[3][3..], ["again", "-", "-", "-", "-", "-", "-", "30.0", "1.50", "-"]);
        let cell = ["short", "table", "baton", "8.0", "12.0", "12.0", "2.00", "2.40", "2.40", "15.0", "0.60", "0"];
        assert_eq!(rows[4], cell);
        assert!(text.contains("every answer is right"), "{text}");
    }

    #[test]
    fn a_pair_whose_answers_differ_is_named() {
        let text = table(&report(false));
        let named: Vec<_> = text.lines().filter(|line| line.ends_with("  ANSWERS DIFFER")).collect();
        assert!(matches!(named[..], [line] if line.starts_with("short ")), "{text}");
        assert!(text.contains("this is a bug"), "{text}");
    }
}
