//! The report as a table.

use baton_contract::memory::size;

use super::{Report, Switches};
use crate::table::{plain_table, trimmed};

pub(super) fn table(report: &Report) -> String {
    let mut rows = plain_table(&[
        "milliseconds",
        ">p50",
        ">max",
        ">decided",
        ">granted",
        ">extent",
        ">launch",
        ">resident",
        ">groups",
        ">extents",
        ">in",
        ">out",
        ">waits",
        ">waited",
        ">evicted out",
        "",
    ]);
    for variant in &report.variants {
        let mut row = vec![variant.name.clone(), format!("{:.1}", variant.p50_ms), format!("{:.1}", variant.max_ms)];
        row.extend(variant.switches.as_ref().map_or(std::array::from_fn(|_| String::new()), cells));
        row.push(if variant.outputs_match { "" } else { baton_messages::ANSWERS_DIFFER_HERE }.to_owned());
        rows.add_row(row);
    }
    let verdict = if report.outputs_match { "every answer is the same" } else { baton_messages::ANSWERS_DIFFER };
    format!(
        "\n{}\n{} requests each, switches' medians; {} moved for each request; {verdict}\n",
        trimmed(&rows),
        report.repeat,
        size(report.server_bytes)
    )
}

fn cells(switches: &Switches) -> [String; 12] {
    let ms = |phase: Option<f64>| phase.map_or("-".to_owned(), |ms| format!("{ms:.1}"));
    let bytes = |bytes: f64| size(bytes as u64);
    let phases = &switches.phases;
    [
        ms(phases.decided_ms),
        ms(phases.granted_ms),
        ms(phases.first_extent_ms),
        ms(phases.first_launch_ms),
        ms(phases.all_resident_ms),
        switches.groups.to_string(),
        switches.extents.to_string(),
        bytes(switches.bytes_in),
        bytes(switches.bytes_out),
        switches.waits.to_string(),
        format!("{:.1}", switches.waited_ms),
        bytes(switches.evicted_bytes_out),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::{Measured, MedianPhases};
    use super::*;

    #[test]
    fn the_table_names_a_variant_whose_answers_differ() {
        let phases = MedianPhases {
            decided_ms: Some(0.5),
            granted_ms: Some(1.0),
            first_extent_ms: None,
            first_launch_ms: None,
            all_resident_ms: Some(40.0),
        };
        let switches = Switches {
            phases,
            groups: 3.0,
            extents: 10.0,
            bytes_in: 80e6,
            bytes_out: 0.0,
            waits: 2.0,
            waited_ms: 7.0,
            evicted_bytes_out: 0.0,
        };
        let variant = |name: &str, outputs_match, switches| Measured {
            name: name.to_owned(),
            options: Vec::new(),
            p50_ms: 40.0,
            max_ms: 50.0,
            requests_ms: vec![30.0, 40.0, 50.0],
            outputs_match,
            switches,
        };
        let report = Report {
            outputs_match: false,
            driver: "a GPU".to_owned(),
            arena_bytes: 1 << 30,
            server_bytes: 80 << 20,
            trainer_bytes: 900 << 20,
            repeat: 3,
            variants: vec![variant("ready", true, None), variant("default", false, Some(switches))],
        };
        let text = table(&report);
        let named: Vec<_> = text.lines().filter(|line| line.ends_with("  ANSWERS DIFFER")).collect();
        assert!(matches!(named[..], [line] if line.starts_with("default ")), "{text}");
        assert!(text.contains("this is a bug"), "{text}");
    }
}
