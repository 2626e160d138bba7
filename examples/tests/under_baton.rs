//! Every example program does under Baton what it does on the bare driver.

use std::path::PathBuf;

use baton_tests::{Driver, Outcome, built, root, run};

/// The files of a folder with this suffix, by their names without it.
fn names(folder: &str, suffix: &str) -> Vec<String> {
    let folder = root().join(folder);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut names: Vec<_> = entries
        .map(|entry| entry.expect("a readable folder").file_name().to_string_lossy().into_owned())
        .filter_map(|name| name.strip_suffix(suffix).map(str::to_owned))
        .collect();
    names.sort();
    assert!(!names.is_empty(), "no {suffix} in {}", folder.display());
    names
}

/// The line that says what an example computed.
fn result(outcome: &Outcome) -> &str {
    let line = outcome.out.lines().last().unwrap_or_default();
    assert!(line.starts_with("result ") && line.ends_with(" ok"), "{outcome:?}");
    line
}

fn check(programs: impl IntoIterator<Item = PathBuf>) {
    let driver = Driver::simulated();
    for program in programs {
        let bare = run(&mut driver.bare(&program)).succeeded();
        let baton = run(&mut driver.under_baton(&program)).succeeded();
        assert_eq!(result(&bare), result(&baton), "{}", program.display());
        assert_eq!(baton.err, bare.err, "{}: Baton is silent", program.display());
        println!("{}", result(&baton));
    }
}

#[test]
fn every_c_example_computes_the_same_under_baton() {
    check(names("examples/c", ".c").into_iter().map(|name| built().examples.join(name)));
}

#[test]
fn every_rust_example_computes_the_same_under_baton() {
    check(names("examples/src/bin", ".rs").into_iter().map(|name| built().bin.join(name)));
}

#[test]
fn wrong_calls_get_the_same_answers_under_baton() {
    let program = built().examples.join("errors");
    baton_tests::same_both_ways(&Driver::simulated(), &program, &[]).succeeded();
}
