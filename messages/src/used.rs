//! The catalogue has what the programs say, and nothing else.

use std::fs;
use std::path::{Path, PathBuf};

use crate::catalogue::{Entry, all, find, nearest};

fn entries() -> Vec<&'static Entry> {
    all().map(|(entry, _)| entry).collect()
}

/// The sources that users run, without white space.
fn said() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files: Vec<PathBuf> = Vec::new();
    for member in fs::read_dir(root).expect("the repository").map(|entry| entry.expect("a readable folder").path()) {
        if member.join("Cargo.toml").is_file() && !member.ends_with("messages") {
            sources(&member.join("src"), &mut files);
        }
    }
    let text = |file: &PathBuf| fs::read_to_string(file).expect("a source file");
    files.iter().flat_map(|file| text(file).split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect()
}

fn sources(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            sources(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// True if the sources call a message's function, or log the message with a macro.
fn says(said: &str, name: &str) -> bool {
    let is_whole = |after: &str| !after.starts_with(|c: char| c.is_alphanumeric() || c == '_');
    let calls = ["baton_messages::", "baton_messages::error!(", "baton_messages::warn!(", "baton_messages::info!("];
    calls.iter().any(|call| said.split(&format!("{call}{name}")).skip(1).any(is_whole))
}

#[test]
fn every_message_is_said_somewhere() {
    let said = said();
    let unused: Vec<_> = entries().into_iter().filter(|entry| !says(&said, entry.name)).collect();
    assert!(unused.is_empty(), "nothing says these; take them out and never use their numbers again: {unused:#?}");
}

#[test]
fn identifiers_are_in_order_and_each_is_there_once() {
    let entries = entries();
    assert!(entries.iter().all(|entry| entry.id.len() == 5 && entry.id.starts_with('B')));
    for pair in entries.windows(2) {
        assert!(pair[0].id < pair[1].id, "{} comes before {}", pair[0].id, pair[1].id);
    }
}

#[test]
fn every_message_has_a_cause() {
    for (entry, topic) in all() {
        assert!(topic.cause.ends_with('.'), "{}", entry.id);
    }
}

#[test]
fn a_message_is_found_by_its_identifier_however_it_is_written() {
    for word in ["B0101", "b0101", "[B0101]"] {
        assert_eq!(find(word).map(|(entry, _)| entry.name), Some("started_a_coordinator"), "{word}");
    }
    assert!(find("B9999").is_none() && find("").is_none());
    assert_eq!(nearest("B0100"), "B0101");
}
