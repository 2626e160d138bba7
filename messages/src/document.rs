//! `docs/troubleshooting.md`, which is made of the catalogue.

use std::fmt::Write as _;
use std::path::Path;

use crate::catalogue::{Entry, Group, Topic, catalogue, wrapped};

const INTRODUCTION: &str = include_str!("introduction.md");
/// How long lines of prose are.
const WIDTH: usize = 140;

fn page() -> String {
    let contents: Vec<_> = catalogue().iter().map(|group| link(group)).collect();
    let mut page = wrapped(&INTRODUCTION.replace("{contents}", &contents.join(", ")), WIDTH);
    for group in catalogue() {
        let _ = write!(page, "\n## {}\n", group.title);
        paragraph(&mut page, group.opening);
        for section in group.sections {
            if !section.title.is_empty() {
                let _ = write!(page, "\n### {}\n", section.title);
            }
            paragraph(&mut page, section.opening);
            section.topics.iter().for_each(|topic| topic_of(&mut page, topic));
        }
    }
    page
}

/// A link to a chapter, as GitHub names it.
fn link(group: &Group) -> String {
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-');
    let anchor: String = group.title.to_lowercase().chars().filter(kept).collect();
    format!("[{}](#{})", group.title, anchor.replace(' ', "-"))
}

fn topic_of(page: &mut String, topic: &Topic) {
    let lines: Vec<_> = topic.entries.iter().map(Entry::line).collect();
    let _ = write!(page, "\n```text\n{}\n```\n", lines.join("\n"));
    paragraph(page, topic.cause);
    if !topic.remedy.is_empty() {
        paragraph(page, &format!("**Remedy:** {}", topic.remedy));
    }
}

fn paragraph(page: &mut String, text: &str) {
    if !text.is_empty() {
        let _ = write!(page, "\n{}", wrapped(text, WIDTH));
    }
}

#[test]
fn the_page_is_made_of_the_catalogue() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/troubleshooting.md");
    let made = page();
    if std::env::var_os("BATON_BLESS").is_some() {
        std::fs::write(&path, &made).expect("a writable document");
    }
    let there = std::fs::read_to_string(&path).expect("a file of the repository");
    assert!(there == made, "docs/troubleshooting.md is old: BATON_BLESS=1 cargo test -p baton-messages page");
}
