//! `baton explain`: the cause of a message, and its remedy.

use std::fmt::Write as _;

use baton_messages::{Entry, Topic, catalogue, find, nearest, wrapped};
use baton_workbench::output::print;
use clap::Args;

use super::CliError;

/// How long a line is at most.
const WIDTH: usize = 100;

/// `baton explain`.
#[derive(Clone, Debug, Args)]
pub struct Explain {
    /// Identifiers, as they stand in brackets at the end of messages. Without one, all messages are listed.
    #[arg(value_name = "ID")]
    ids: Vec<String>,
}

/// Explains messages, or lists all.
///
/// # Errors
///
/// When no message has such an identifier.
pub fn run(Explain { ids }: Explain) -> Result<(), CliError> {
    if ids.is_empty() {
        return Ok(print(&list())?);
    }
    let words = ids.iter().flat_map(|word| word.split_whitespace());
    let mut text = String::new();
    for word in words {
        let Some((entry, topic)) = find(word) else {
            print(&text)?;
            return Err(CliError::Unknown(baton_messages::no_such_identifier(word.escape_default(), nearest(word))));
        };
        if !text.is_empty() {
            text.push('\n');
        }
        text += &explanation(entry, topic);
    }
    Ok(print(&text)?)
}

/// All messages, a line each, under the places where they appear.
fn list() -> String {
    let mut text = String::new();
    for group in catalogue() {
        let _ = writeln!(text, "{}{}", if text.is_empty() { "" } else { "\n" }, group.title);
        let entries = group.sections.iter().flat_map(|section| section.topics).flat_map(|topic| topic.entries);
        entries.for_each(|entry| text += &format!("{}\n", entry.line()));
    }
    text
}

fn explanation(entry: &Entry, topic: &Topic) -> String {
    let mut text = format!("{}\n\n{}", entry.line(), wrapped(&format!("Cause: {}", plain(topic.cause)), WIDTH));
    if !topic.remedy.is_empty() {
        text += &wrapped(&format!("Remedy: {}", plain(topic.remedy)), WIDTH);
    }
    let others: Vec<_> = topic.entries.iter().filter(|other| other.id != entry.id).map(Entry::line).collect();
    if !others.is_empty() {
        let _ = writeln!(text, "\nRelated:\n{}", others.join("\n"));
    }
    text
}

/// A text whose links are words: a page by its name.
fn plain(text: &str) -> String {
    let (mut plain, mut rest) = (String::new(), text);
    while let Some((before, label, target, after)) = next_link(rest) {
        let _ = match target.strip_prefix('#') {
            Some(_) => write!(plain, "{before}*{label}* (docs/troubleshooting.md)"),
            None if label == target => write!(plain, "{before}docs/{target}"),
            None => write!(plain, "{before}{label} (docs/{target})"),
        };
        rest = after;
    }
    plain + rest
}

/// Returns the text before the first link, the link's label, its target, and the text behind it.
fn next_link(text: &str) -> Option<(&str, &str, &str, &str)> {
    let (before, behind) = text.split_once("](")?;
    let (before, label) = before.rsplit_once('[')?;
    let (target, after) = behind.split_once(')')?;
    Some((before, label, target, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_explained_by_its_cause_and_remedy_without_links() {
        let (entry, topic) = find("[B0505]").expect("it is there");
        let said = explanation(entry, topic);
        assert!(
            said.starts_with(
                "B0505  the service manager cannot be told the state of this coordinator: …\n\nCause: The"
            )
        );
        assert!(said.contains("\nRemedy: Unset the variable") && !said.contains("Related"), "{said}");
        assert!(said.lines().all(|line| line.chars().count() <= WIDTH), "{said}");
        assert_eq!(
            plain("See [limits.md](limits.md), [a part](#a-part) and [quotas](limits.md#quotas)."),
            "See docs/limits.md, *a part* (docs/troubleshooting.md) and quotas (docs/limits.md#quotas)."
        );
    }

    #[test]
    fn all_messages_are_listed_under_the_places_where_they_appear() {
        let list = list();
        assert!(list.contains("\nbaton run\nB0101  started a coordinator; its log is …\n"), "{list}");
    }
}
