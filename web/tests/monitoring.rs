//! docs/monitoring lists the metrics that there are, and its queries ask for no others.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use baton_web::METRICS;

const BEGIN: &str = "<!-- made by `BATON_BLESS=1 cargo test -p baton-web` -->\n";
const END: &str = "<!-- end -->\n";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("web/ lies in the repository").join("docs/monitoring")
}

fn read(name: &str) -> String {
    fs::read_to_string(folder().join(name)).unwrap_or_else(|error| panic!("docs/monitoring/{name}: {error}"))
}

#[test]
fn the_table_of_metrics_is_that_of_the_source() {
    let mut table = "| metric | kind | labels | what it says |\n|---|---|---|---|\n".to_owned();
    for metric in &METRICS {
        table += &format!("| `{}` | {} | {} | {} |\n", metric.full_name(), metric.kind(), metric.labels, metric.help);
    }
    let page = read("README.md");
    let (before, rest) = page.split_once(BEGIN).expect("the page has a place for the table");
    let (there, after) = rest.split_once(END).expect("the place ends");
    if std::env::var_os("BATON_BLESS").is_some() {
        fs::write(folder().join("README.md"), format!("{before}{BEGIN}{table}{END}{after}")).expect("a writable file");
    } else {
        assert_eq!(there, table, "BATON_BLESS=1 writes it anew");
    }
}

/// The names of our metrics in a text, and the words that only look like some.
fn asked_for(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("baton_")).map(str::to_owned).collect()
}

#[test]
fn alerts_and_the_dashboard_ask_for_metrics_that_there_are_and_for_most_of_them() {
    let there: BTreeSet<String> = METRICS
        .iter()
        .flat_map(|metric| {
            let name = metric.full_name();
            match metric.kind() {
                "histogram" => ["_bucket", "_sum", "_count"].map(|suffix| name.clone() + suffix).to_vec(),
                _ => vec![name],
            }
        })
        .collect();
    for file in ["alerts.yml", "alerts_test.yml", "dashboard.json"] {
        let asked = asked_for(&read(file));
        let unknown: Vec<_> = asked.difference(&there).collect();
        assert!(unknown.is_empty(), "{file} asks for {unknown:?}");
        assert!(asked.len() >= 4, "{file} asks for {asked:?} only");
    }
    let dashboard: serde_json::Value = serde_json::from_str(&read("dashboard.json")).expect("JSON");
    assert!(dashboard["panels"].as_array().is_some_and(|panels| panels.len() >= 10));
}

#[test]
fn each_alert_is_explained() {
    let (alerts, page) = (read("alerts.yml"), read("README.md"));
    let names: Vec<&str> = alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(names.len() > 3, "{names:?}");
    for name in names {
        assert!(page.contains(&format!("| `{name}` |")), "docs/monitoring/README.md says nothing of {name}");
    }
}
