//! docs/troubleshooting.md has every message that a user can meet, in the words of the source, and no other.
//!
//! A message is a string of at least [`WORDS`] words, wherever it stands in the source of the programs and libraries that
//! users run: also one that is put together elsewhere. What is none is listed here, with the reason. On the page a message
//! is a line of a `text` block, with `…` for what differs, or with another message in that place. A line that begins with
//! a space belongs to the one before.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, Group, Ident, Literal, TokenStream, TokenTree};

const PAGE: &str = "docs/troubleshooting.md";
const FOLDERS: [&str; 9] = [
    "cli/src",
    "coordinator/src",
    "client/src",
    "harness/src",
    "include/src",
    "kubernetes/src",
    "shim/src",
    "web/src",
    "workbench/src",
];
/// Shorter strings are names, or parts that say nothing by themselves.
const WORDS: usize = 3;
/// How deep messages are put into others.
const DEEP: usize = 2;

/// Macros and functions whose text no user meets.
const SILENT: [&str; 8] =
    ["asm", "debug", "expect", "global_asm", "naked_asm", "panic", "unreachable", "with_template"];
/// The macro whose text the page may have.
const OPTIONAL: &str = "info";

/// Strings that are no messages: where they stand, how they begin, and what they are.
const NO_MESSAGES: &[(&str, &str, &str)] = &[
    ("", "--", "options of a program that Baton starts"),
    ("cli/src/doctor/trial.rs", "trial ", "a command of Baton's own"),
    ("web/src/guard.rs", "default-src", "a header for browsers"),
    ("web/src/metrics.rs", "", "what metrics say about themselves"),
    ("kubernetes/src/api", "", "made by a tool, and never said"),
    ("cli/src/serve.rs", "a setting that is usual", "why something cannot fail"),
    ("cli/src/settings.rs", "a setting that is usual", "why something cannot fail"),
    ("cli/src/settings.rs", "half of the host memory", "a remark in what --print-config prints"),
    ("cli/src/settings.rs", "a new token each time", "a remark in what --print-config prints"),
    ("cli/src/settings.rs", "only on a socket", "a remark in what --print-config prints"),
    ("cli/src/settings.rs", "in the user's runtime folder", "a remark in what --print-config prints"),
    ("cli/src/settings.rs", "none but you and root", "a remark in what --print-config prints"),
    ("cli/src/settings.rs", "wait for your own, kill those of other users", "a remark in what --print-config prints"),
    ("cli/src/fit.rs", ">comes at most", "a table's heading"),
    ("cli/src/fit.rs", "*comes*", "what a table's heading means"),
    ("cli/src/ps.rs", "", "a table's headings"),
    ("cli/src/shell.rs", "", "what shells read"),
    ("cli/src/stats.rs", "", "a table that was asked for"),
    ("cli/src/status.rs", "arena …", "a line that was asked for"),
    ("cli/src/status.rs", "host pool …", "a line that was asked for"),
    ("cli/src/status.rs", "on the GPU …", "a line that was asked for"),
    ("cli/src/status.rs", "ending no new", "a line that was asked for"),
    ("cli/src/status.rs", "switches …", "a line that was asked for"),
    ("cli/src/status.rs", "waiting to join", "a table's heading"),
    ("cli/src/top", "", "parts of a picture"),
    ("cli/src/trace.rs", "Who had the GPU", "a picture's heading"),
    ("shim/src/exports/trace/report.rs", "baton: … (process …) made", "a line that was asked for"),
    ("shim/src/exports/trace/report.rs", "{\"", "JSON that was asked for"),
    ("shim/src/exports/trace/report.rs", "…{\"", "JSON that was asked for"),
    ("workbench/src/bench", "", "rows of a table that was asked for"),
    ("workbench/src/demo", "", "what was asked for"),
];

/// Of those, what the page has to have all the same.
const MESSAGES: [&str; 5] =
    ["ANSWERS DIFFER", "this is a bug", "it never came to pass", "no good end", "more than 0 and less"];

/// A string of the source, with `…` for what is put in, and where it stands.
type Strings = BTreeMap<String, Vec<String>>;

#[derive(Default)]
struct Source {
    strings: Strings,
    /// Lines of the log when all goes well.
    remarks: BTreeSet<String>,
    /// Modules that are only compiled for tests.
    tests: BTreeSet<PathBuf>,
}

impl Source {
    fn read() -> Self {
        let mut source = Self::default();
        let mut files = Vec::new();
        FOLDERS.iter().for_each(|folder| files_of(&baton_tests::root().join(folder), &mut files));
        // First all tests' modules: a file may come before the one that says so.
        for _ in 0..2 {
            source.strings.clear();
            source.remarks.clear();
            for file in &files {
                if !source.tests.iter().any(|test| file.starts_with(test) || *file == test.with_extension("rs")) {
                    source.read_file(file);
                }
            }
        }
        source
    }

    fn read_file(&mut self, file: &Path) {
        let text = fs::read_to_string(file).expect("the repository's own file");
        let tokens: TokenStream = text.parse().unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let folder = match file.file_stem().and_then(|stem| stem.to_str()) {
            Some("mod" | "lib" | "main") => file.parent().expect("a file has a folder").to_path_buf(),
            _ => file.with_extension(""),
        };
        self.walk(tokens, file, &folder);
    }

    fn walk(&mut self, tokens: TokenStream, file: &Path, folder: &Path) {
        let mut tokens = tokens.into_iter().peekable();
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == '#' => {
                    tokens.next_if(|next| is_punct(next, '!'));
                    let Some(attribute) = tokens.next_if(is_brackets) else { continue };
                    let TokenTree::Group(attribute) = attribute else { continue };
                    if is_attribute(&attribute, "error") {
                        self.walk(attribute.stream(), file, folder);
                    } else if attribute.stream().to_string().replace(' ', "") == "cfg(test)" {
                        self.skip_item(&mut tokens, folder);
                    }
                }
                TokenTree::Ident(name) if SILENT.iter().any(|silent| name == silent) || is_assert(&name) => {
                    tokens.next_if(|next| is_punct(next, '!'));
                    tokens.next_if(|next| matches!(next, TokenTree::Group(_)));
                }
                TokenTree::Ident(name) if name == OPTIONAL => {
                    tokens.next_if(|next| is_punct(next, '!'));
                    let Some(TokenTree::Group(group)) = tokens.next_if(|next| matches!(next, TokenTree::Group(_)))
                    else {
                        continue;
                    };
                    let texts = group.stream().into_iter().filter_map(|token| value(&token.to_string()));
                    self.remarks.extend(texts.map(|text| with_dots(&text)));
                }
                TokenTree::Group(group) => self.walk(group.stream(), file, folder),
                TokenTree::Literal(literal) => self.note(&literal, file),
                _ => {}
            }
        }
    }

    /// Skips what an attribute belongs to.
    fn skip_item(&mut self, tokens: &mut impl Iterator<Item = TokenTree>, folder: &Path) {
        let mut words = Vec::new();
        for token in tokens {
            match token {
                TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => return,
                TokenTree::Punct(punct) if punct.as_char() == ';' => break,
                token => words.push(token.to_string()),
            }
        }
        if let [.., module, name] = words.as_slice()
            && module == "mod"
        {
            self.tests.insert(folder.join(name));
        }
    }

    fn note(&mut self, literal: &Literal, file: &Path) {
        let Some(text) = value(&literal.to_string()) else { return };
        let file = file.strip_prefix(baton_tests::root()).expect("below the root");
        let place = format!("{}:{}", file.display(), literal.span().start().line);
        for line in text.lines() {
            self.strings.entry(with_dots(line)).or_default().push(place.clone());
        }
    }
}

fn files_of(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the repository's own folder") {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            files_of(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

fn is_punct(token: &TokenTree, wanted: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == wanted)
}

fn is_brackets(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket)
}

fn is_attribute(group: &Group, name: &str) -> bool {
    matches!(group.stream().into_iter().next(), Some(TokenTree::Ident(ident)) if ident == name)
}

fn is_assert(name: &Ident) -> bool {
    let name = name.to_string();
    ["assert", "debug_assert", "prop_assert"].iter().any(|start| name.starts_with(start))
}

/// The value of a literal; none if it is no text, or one for a program.
fn value(literal: &str) -> Option<String> {
    if literal.starts_with('r') {
        let text = literal.trim_start_matches('r').trim_matches('#');
        return Some(text.strip_prefix('"')?.strip_suffix('"')?.to_owned());
    }
    let mut rest = literal.strip_prefix('"')?.strip_suffix('"')?;
    let mut text = String::new();
    while let Some(at) = rest.find('\\') {
        text += &rest[..at];
        rest = &rest[at + 1..];
        let escaped = rest.chars().next().expect("something is escaped");
        rest = &rest[escaped.len_utf8()..];
        match escaped {
            '\n' => rest = rest.trim_start(),
            'n' => text.push('\n'),
            't' | 'r' | '0' => text.push(' '),
            'u' | 'x' => return None,
            other => text.push(other),
        }
    }
    Some(text + rest)
}

/// A text with one `…` in place of each of its arguments, and single spaces.
fn with_dots(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('{') {
        plain += &rest[..at];
        match (rest[at..].strip_prefix("{{"), rest[at..].split_once('}')) {
            (Some(after), _) => {
                plain.push('{');
                rest = after;
            }
            (None, Some((_, after))) => {
                plain.push('…');
                rest = after;
            }
            (None, None) => {
                plain.push('{');
                rest = &rest[at + 1..];
            }
        }
    }
    plain += &rest.replace("}}", "}");
    let words = plain.split_whitespace().collect::<Vec<_>>().join(" ");
    words.replace("……", "…")
}

/// True if this is for users.
fn is_message(text: &str, place: &str) -> bool {
    let is_word = |word: &&str| word.chars().any(char::is_alphabetic);
    if text.split(' ').filter(is_word).count() < WORDS {
        return false;
    }
    let is_known = |(file, start, _): &&(&str, &str, &str)| place.starts_with(file) && text.starts_with(start);
    MESSAGES.iter().any(|message| text.contains(message)) || !NO_MESSAGES.iter().any(|known| is_known(&known))
}

/// The page's messages, each with its line.
fn messages_of(page: &str) -> Vec<(usize, String)> {
    let mut messages: Vec<(usize, String)> = Vec::new();
    let mut is_inside = false;
    for (number, line) in page.lines().enumerate() {
        match line {
            "```text" => is_inside = true,
            "```" => is_inside = false,
            _ if !is_inside => {}
            line if line.starts_with(' ') => {
                let (_, message) = messages.last_mut().expect("a line before the one that continues it");
                let _ = write!(message, " {}", line.trim());
            }
            line => messages.push((number + 1, line.to_owned())),
        }
    }
    messages
}

/// The parts of `text` where `pattern` has its `…`; none if it does not fit.
fn put_in<'a>(pattern: &str, text: &'a str) -> Option<Vec<&'a str>> {
    let (first, rest) = pattern.split_once('…')?;
    let mut text = text.strip_prefix(first)?;
    let mut parts = Vec::new();
    let mut fixed = rest.split('…').peekable();
    while let Some(next) = fixed.next() {
        // The last one is at the end.
        let at = if fixed.peek().is_some() { text.find(next)? } else { text.strip_suffix(next)?.len() };
        parts.push(&text[..at]);
        text = &text[at + next.len()..];
    }
    Some(parts)
}

/// The strings that a message of the page is made of: itself, or one with others put in, so deep. Empty if nothing says it.
fn parts_of<'a>(source: &'a Source, message: &'a str, deep: usize) -> BTreeSet<&'a str> {
    // Where one argument follows another, there is one `…` for both.
    let bare = message.trim_matches(['…', ' ']);
    let is_said = |text: &&str| source.strings.contains_key(*text) || source.remarks.contains(*text);
    let mut parts = BTreeSet::from_iter([message, bare].into_iter().filter(is_said));
    let says_something = |pattern: &&String| pattern.contains(char::is_alphabetic) || *pattern == "…: …";
    let patterns = source.strings.keys().chain(&source.remarks).filter(says_something).filter(|_| deep > 0);
    for (pattern, inner) in patterns.filter_map(|pattern| Some((pattern, put_in(pattern, message)?))) {
        let inner = inner.into_iter().filter(|text| text.contains(char::is_alphabetic));
        let found: Vec<_> = inner.map(|text| parts_of(source, text, deep - 1)).collect();
        if found.iter().all(|parts| !parts.is_empty()) {
            parts.insert(pattern);
            parts.extend(found.into_iter().flatten());
        }
    }
    parts
}

/// Messages that a page lacks, and those on it that no program says.
fn complaints(source: &Source, page: &str) -> Vec<String> {
    let mut known = BTreeSet::new();
    let mut invented = Vec::new();
    let messages = messages_of(page);
    for (line, message) in &messages {
        let parts = parts_of(source, message, DEEP);
        if parts.is_empty() {
            invented.push(format!("{PAGE}:{line}: nothing says this: {message}"));
        }
        known.extend(parts);
    }
    let strings = source.strings.iter().filter(|(text, _)| !known.contains(text.as_str()));
    let places = strings.flat_map(|(text, places)| places.iter().map(move |place| (text, place)));
    let missing = places.filter(|(text, place)| is_message(text, place));
    let missing = missing.map(|(text, place)| format!("{place}: {PAGE} does not have this message: {text}"));
    missing.chain(invented).collect()
}

#[test]
fn every_message_is_on_the_page_and_every_message_of_the_page_is_said() {
    let page = fs::read_to_string(baton_tests::root().join(PAGE)).expect("the page");
    let complaints = complaints(&Source::read(), &page);
    assert!(
        complaints.is_empty(),
        "write a message as it is in the source, with … for what differs:\n{}",
        complaints.join("\n")
    );
}

#[test]
fn every_exception_is_needed() {
    let strings = Source::read().strings;
    for (file, start, _) in NO_MESSAGES {
        let is_there = |(text, places): (&String, &Vec<String>)| {
            text.starts_with(start) && places.iter().any(|place| place.starts_with(file))
        };
        assert!(strings.iter().any(is_there), "nothing of {file} begins with {start:?}");
    }
    for message in MESSAGES {
        assert!(strings.keys().any(|text| text.contains(message)), "nothing says {message:?}");
    }
}

#[test]
fn a_missing_and_an_invented_message_are_found() {
    let mut source = Source::default();
    let text = r#"
        #[error("no GPU is {0} here")] struct A;
        fn f() { g(format!("a `quoted` text, \
            continued"), h.expect("not for the user's eyes")); }
        #[cfg(test)] mod tests { fn f() { g("not in the tests either"); } }
        #[cfg(test)] mod others;
    "#;
    source.walk(text.parse().expect("Rust"), &baton_tests::root().join("a/b.rs"), Path::new("a/b"));
    assert_eq!(source.tests, [PathBuf::from("a/b/others")].into());
    let page = "a `quoted` text, continued\n```text\nno GPU\n is … here\nno such words\n```\n";
    let wanted = [
        format!("a/b.rs:3: {PAGE} does not have this message: a `quoted` text, continued"),
        format!("{PAGE}:5: nothing says this: no such words"),
    ];
    assert_eq!(complaints(&source, page), wanted);
}
