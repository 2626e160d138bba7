//! The tutorial's commands do what it says: `docs/tutorial.md`, block by block, on the simulated driver.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use baton_tests::{built, clean, root, run};

/// Where the part begins that is for a real GPU.
const END: &str = "## With your own programs";

/// The line that the shell prints between two blocks.
const MARK: &str = "== end of block";

/// A block of commands, and lines that it must print, in this order.
struct Step {
    commands: String,
    expected: Vec<String>,
}

/// The blocks of a document: every ```` ```sh ```` with the ```` ```console ```` that follows it.
fn steps(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(kind) = line.strip_prefix("```") else { continue };
        let body: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        match kind {
            "sh" => steps.push(Step { commands: body.join("\n"), expected: Vec::new() }),
            "console" => {
                let step = steps.last_mut().expect("output follows commands");
                step.expected.extend(body.into_iter().map(str::to_owned));
            }
            _ => panic!("a block of another kind: {kind}"),
        }
    }
    steps
}

/// The words of a line, without the frame of a table.
fn words(line: &str) -> Vec<&str> {
    line.split(|c: char| c.is_whitespace() || "│┆║|".contains(c)).filter(|word| !word.is_empty()).collect()
}

/// True if a word is as expected; `…` in it stands for any characters.
fn word_matches(expected: &str, word: &str) -> bool {
    match expected.split_once('…') {
        None => expected == word,
        Some((start, end)) => word.len() >= start.len() + end.len() && word.starts_with(start) && word.ends_with(end),
    }
}

/// True if words are as expected; the word `…` stands for any number of them.
fn matches(expected: &[&str], found: &[&str]) -> bool {
    match expected.split_first() {
        None => found.is_empty(),
        Some((&"…", rest)) => (0..=found.len()).any(|skipped| matches(rest, &found[skipped..])),
        Some((first, rest)) => {
            found.split_first().is_some_and(|(word, others)| word_matches(first, word) && matches(rest, others))
        }
    }
}

#[test]
fn expected_lines_are_found_whatever_the_table_looks_like() {
    let line = words("│ train │  28456 ┆ batch | running |  4 MiB");
    assert!(matches(&words("train … batch … running … MiB"), &line));
    assert!(matches(&words("train … 28… …"), &line));
    assert!(!matches(&words("train … normal …"), &line));
    assert!(!matches(&words("train … batch"), &line));
}

#[test]
fn every_command_of_the_tutorial_works_and_prints_what_it_says() {
    let text = fs::read_to_string(root().join("docs/tutorial.md")).expect("the tutorial is there");
    let (text, _) = text.split_once(END).expect("it ends with the user's own programs");
    let steps = steps(text);
    assert!(steps.len() >= 9, "{} blocks of commands", steps.len());

    let folder = tempfile::tempdir().expect("a folder");
    let [home, runtime, temporary] = ["a home", "run", "tmp"].map(|name| folder.path().join(name));
    for made in [&home, &runtime, &temporary] {
        fs::create_dir(made).expect("a fresh folder");
        fs::set_permissions(made, fs::Permissions::from_mode(0o700)).expect("our own folder");
    }
    let target = home.join("target");
    fs::create_dir(&target).expect("a fresh folder");
    std::os::unix::fs::symlink(&built().bin, target.join("release")).expect("a fresh link");

    // After any failure, nothing may stay behind; and a step that waits in vain must end.
    let mut script = String::from("trap 'kill $(jobs -p) 2> /dev/null || true' EXIT\n");
    for step in &steps {
        script += &format!("{}\necho '{MARK}'\n", step.commands);
    }
    let shown = run(clean("timeout")
        .args(["100", "bash", "-euo", "pipefail", "-c", &script])
        .current_dir(&home)
        .env("HOME", &home)
        .env("XDG_RUNTIME_DIR", &runtime)
        .env("TMPDIR", &temporary))
    .succeeded();

    let printed: Vec<&str> = shown.out.split_inclusive(&format!("{MARK}\n")).collect();
    for (step, printed) in steps.iter().zip(printed) {
        let mut lines = printed.lines().map(words);
        for expected in &step.expected {
            assert!(
                lines.any(|line| matches(&words(expected), &line)),
                "after\n{}\nthere is no line\n{expected}\nin its place among\n{printed}",
                step.commands
            );
        }
    }
}
