//! The shim's floors: each folder uses only those above it in this list, and no files use each other in a circle.
//!
//! A newcomer can then read from the top, and no module waits for one that waits for it. A lower floor tells a higher one by functions
//! that the higher one hands down ([`crate::gate::Keeper`]).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};

/// From the ground up.
const FLOORS: [&str; 11] =
    ["sys", "driver", "link", "gate", "memory", "work", "channels", "arrival", "session", "hooks", "exports"];

/// The source files by module path, without those that are tests.
fn files() -> BTreeMap<Vec<String>, PathBuf> {
    fn walk(folder: &Path, path: &[String], found: &mut BTreeMap<Vec<String>, PathBuf>) {
        for entry in std::fs::read_dir(folder).expect("the package's own folder") {
            let at = entry.expect("a readable folder").path();
            let name = at.file_stem().and_then(|name| name.to_str()).expect("UTF-8").to_owned();
            let below = [path, core::slice::from_ref(&name)].concat();
            if at.is_dir() {
                walk(&at, &below, found);
            } else if name == "mod" || name == "lib" {
                found.insert(path.to_vec(), at);
            } else if !matches!(name.as_str(), "tests" | "coverage" | "floors" | "signatures") {
                found.insert(below, at);
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &[], &mut found);
    found
}

/// Every path in a file that begins with `crate`, `super` or `self`, or with one of its own modules; groups are taken apart.
fn paths(tokens: TokenStream, prefix: &[String], found: &mut Vec<Vec<String>>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while at < tokens.len() {
        // A module of tests is ignored.
        if let (TokenTree::Ident(word), Some(TokenTree::Ident(name))) = (&tokens[at], tokens.get(at + 1))
            && word == "mod"
            && name == "tests"
        {
            at += 3;
            continue;
        }
        let mut path = Vec::new();
        while let Some(TokenTree::Ident(part)) = tokens.get(at) {
            path.push(part.to_string());
            let colon = |at: usize| matches!(tokens.get(at), Some(TokenTree::Punct(mark)) if mark.as_char() == ':');
            at += 1;
            if !(colon(at) && colon(at + 1)) {
                break;
            }
            at += 2;
        }
        let whole = [prefix, &path].concat();
        match tokens.get(at) {
            Some(TokenTree::Group(group)) => {
                paths(group.stream(), &[], found);
                // `use a::{b, c}`: the group goes on where the path has stopped.
                if !path.is_empty() {
                    paths(group.stream(), &whole, found);
                }
                at += 1;
            }
            _ if path.is_empty() => at += 1,
            _ => {}
        }
        // Alone the word is a visibility.
        if path.len() > 1 || !prefix.is_empty() && !path.is_empty() {
            found.push(whole);
        }
    }
}

/// The files that a file uses.
fn uses(module: &[String], file: &Path, all: &BTreeMap<Vec<String>, PathBuf>) -> BTreeSet<Vec<String>> {
    let text = std::fs::read_to_string(file).expect("a source file");
    let mut found = Vec::new();
    paths(text.parse().expect("Rust"), &[], &mut found);
    let is_folder = file.file_stem().is_some_and(|name| name == "mod" || name == "lib");
    let resolve = |path: &Vec<String>| -> Option<Vec<String>> {
        let mut at: Vec<String>;
        let mut rest = path.as_slice();
        match rest.first()?.as_str() {
            "crate" => at = Vec::new(),
            "super" | "self" => {
                at = module.to_vec();
                if rest[0] == "super" {
                    at.pop();
                }
            }
            first if is_folder && all.contains_key(&[module, &[first.to_owned()]].concat()) && rest.len() > 1 => {
                at = [module, &[first.to_owned()]].concat();
            }
            _ => return None,
        }
        rest = &rest[1..];
        while rest.first().is_some_and(|part| part == "super") {
            at.pop();
            rest = &rest[1..];
        }
        for part in rest {
            let below = [at.as_slice(), core::slice::from_ref(part)].concat();
            if !all.contains_key(&below) {
                break;
            }
            at = below;
        }
        (at != module && all.contains_key(&at)).then_some(at)
    };
    found.iter().filter_map(resolve).collect()
}

fn graph() -> BTreeMap<Vec<String>, BTreeSet<Vec<String>>> {
    let all = files();
    all.iter().map(|(module, file)| (module.clone(), uses(module, file, &all))).collect()
}

#[test]
fn each_floor_uses_only_those_below_it() {
    let floor = |module: &[String]| FLOORS.iter().position(|floor| module.first().is_some_and(|first| first == floor));
    let mut upward = Vec::new();
    for (from, uses) in graph() {
        for to in uses {
            if let (Some(low), Some(high)) = (floor(&from), floor(&to))
                && low < high
            {
                upward.push(format!("{} uses {}", from.join("::"), to.join("::")));
            }
        }
    }
    assert!(upward.is_empty(), "{upward:#?}");
    let known = |module: &Vec<String>| module.is_empty() || floor(module).is_some();
    assert!(graph().keys().all(known), "a file stands on no floor");
}

#[test]
fn no_files_use_each_other_in_a_circle() {
    let mut left = graph();
    // A file that uses no remaining file stands in no circle, nor does one that no remaining file uses.
    loop {
        let before = left.len();
        let names: BTreeSet<_> = left.keys().cloned().collect();
        left.retain(|_, uses| uses.iter().any(|to| names.contains(to)));
        let used: BTreeSet<_> = left.values().flatten().cloned().collect();
        left.retain(|from, _| used.contains(from));
        if left.len() == before {
            break;
        }
    }
    let names: BTreeSet<_> = left.keys().cloned().collect();
    let circle: Vec<String> = left
        .iter()
        .flat_map(|(from, uses)| {
            uses.intersection(&names).map(|to| format!("{} uses {}", from.join("::"), to.join("::")))
        })
        .collect();
    assert!(circle.is_empty(), "{circle:#?}");
}

#[test]
fn calls_enter_by_one_entry() {
    for (module, file) in files() {
        let text = std::fs::read_to_string(&file).expect("a source file");
        let is_entry = module == ["arrival", "entry"] || module.first().is_some_and(|floor| floor == "gate");
        assert!(is_entry || !text.contains("gate::pass()"), "{} passes the gate by itself", module.join("::"));
    }
}

#[test]
fn whatever_may_be_a_cancellation_point_is_met_with_cancellation_off() {
    // As they are written here. Descriptors of ours are closed where they were received.
    const POINTS: [&str; 12] = [
        "std::thread::sleep",
        "link::send(",
        "link::receive(",
        "link::connect(",
        "std::fs::",
        "File::",
        "libc::read(",
        "libc::write(",
        "libc::open(",
        "libc::close(",
        "libc::poll(",
        "libc::ppoll(",
    ];
    // Run in threads of ours, or in a child that has just been forked; joining has it off from `session::joining` on.
    let others: [&[&str]; 7] = [
        &["session", "control"],
        &["session", "probe"],
        &["session", "requests"],
        &["session", "fork"],
        &["session", "connect"],
        // Called by the search for the driver, and by the trace.
        &["driver", "ld_cache"],
        &["exports", "trace", "report"],
    ];
    for (module, file) in files() {
        let text = std::fs::read_to_string(&file).expect("a source file");
        let program = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        let found: Vec<_> = POINTS.iter().filter(|point| program.contains(**point)).collect();
        let is_within = |other: &&[&str]| module.iter().take(other.len()).eq(*other);
        let is_off = program.contains("cancel::Off::begin()") || others.iter().any(is_within);
        assert!(found.is_empty() || is_off, "{} has {found:?}, and does not turn cancellation off", module.join("::"));
    }
}
