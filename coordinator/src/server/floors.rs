//! The server's floors: each module uses only those above it in this list, and methods of [`super::Server`] call only methods of
//! files above theirs, or of their own.
//!
//! So lower modules cannot report to the arbiter: they *return* events, and `dispatch` acts upon them. Memory and preemption know
//! nothing of each other.

use std::collections::BTreeMap;
use std::path::Path;

/// From the ground up. Modules of one line do not know each other.
const FLOORS: [&[&str]; 16] = [
    &["event_loop", "machine", "tuning"],
    &["tenants"],
    &["recorder", "cost_model"],
    &["options"],
    &["lobby", "corun", "outsiders", "pending", "returning"],
    &["memory", "preemption", "turns"],
    &["state"],
    &["kept"],
    &["parts"],
    &["depart", "gangs", "meeting"],
    &["receive", "unresponsive"],
    &["join"],
    &["takeover"],
    &["admin"],
    &["dispatch"],
    &["mod"],
];

fn floor(module: &str) -> usize {
    let at = FLOORS.iter().position(|floor| floor.contains(&module));
    at.unwrap_or_else(|| panic!("{module} has no floor yet: say where it stands in server/floors.rs"))
}

/// A source file, without its tests.
struct Source {
    module: String,
    /// True if `super` is the server, and not one of its folders.
    at_top: bool,
    text: String,
}

fn sources() -> Vec<Source> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/server");
    let inside = |folder: &Path| -> Vec<_> {
        folder.read_dir().expect("a folder of the package").map(|entry| entry.expect("readable").path()).collect()
    };
    let stem = |path: &Path| path.file_stem().expect("a name").to_string_lossy().into_owned();
    let source = |path: &Path, module: &str, at_top: bool| {
        let text = std::fs::read_to_string(path).expect("a source file");
        let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default().to_owned();
        Source { module: module.to_owned(), at_top, text }
    };
    let mut sources = Vec::new();
    for path in inside(&folder).into_iter().filter(|path| stem(path) != "floors") {
        let module = stem(&path);
        if path.is_dir() {
            let files = inside(&path);
            sources.extend(files.iter().map(|file| source(file, &module, stem(file) == "mod")));
        } else {
            sources.push(source(&path, &module, true));
        }
    }
    sources
}

/// The words that follow each place of `before`, as far as they are a name.
fn names_after<'a>(text: &'a str, before: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(before)
        .skip(1)
        .map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default())
}

/// The text of the server's methods.
fn methods(text: &str) -> String {
    let blocks = text.split("\nimpl Server {\n").skip(1);
    blocks.map(|block| block.split("\n}\n").next().unwrap_or_default()).collect()
}

#[test]
fn modules_use_only_those_above_them() {
    let sources = sources();
    let is_module = |name: &str| sources.iter().any(|source| source.module == name);
    for Source { module, at_top, text } in &sources {
        let beside = names_after(text, "\nuse super::").filter(|_| *at_top && module != "mod");
        let used = names_after(text, "crate::server::").chain(beside);
        for used in used.filter(|used| is_module(used) && used != module) {
            assert!(floor(used) < floor(module), "{module} uses {used}, which does not stand above it");
        }
    }
}

#[test]
fn methods_of_the_server_call_only_those_above_them() {
    let sources = sources();
    let mut defined = BTreeMap::new();
    for Source { module, text, .. } in &sources {
        names_after(&methods(text), " fn ").for_each(|method| drop(defined.insert(method.to_owned(), module.clone())));
    }
    assert!(defined.len() > 40, "the methods are found: {defined:?}");
    for Source { module, text, .. } in &sources {
        let body: String = methods(text).split_whitespace().collect();
        for (called, home) in defined.iter().filter(|(_, home)| *home != module) {
            let calls = body.contains(&format!("self.{called}(")) || body.contains(&format!("Self::{called}("));
            assert!(
                !calls || floor(home) < floor(module),
                "{module} calls {called} of {home}, which does not stand above it"
            );
        }
    }
}

#[test]
fn only_dispatch_asks_the_arbiter_to_decide() {
    for Source { module, text, .. } in sources().iter().filter(|source| source.module != "dispatch") {
        for decides in ["arbiter.handle(", "arbiter.tick(", "arbiter.end_rests(", "arbiter.set_", "Decision::"] {
            assert!(!text.contains(decides), "{module} has `{decides}`");
        }
    }
}
