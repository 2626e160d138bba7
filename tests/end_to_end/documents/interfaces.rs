//! Programs and shells read from Baton what is documented.

use std::process::Command;

use baton_client as client;
use baton_tests::coordinator::{Coordinator, Serving, tenant};
use baton_tests::hold;
use baton_tests::running::Running;
use baton_tests::{LIMIT, built, root};
use serde_json::Value;

/// A coordinator that has something to tell of every list.
fn busy() -> (Coordinator, Vec<Running>) {
    let coordinator = Serving::small("64MiB").option("--max-programs", "2").start();
    coordinator.until_ready();
    let mut gone = hold::joined(&coordinator, "gone", "batch", "8", None);
    assert!(gone.ask("quit", LIMIT).ends_with(" ok"));
    coordinator.until_empty();
    let mut one = hold::joined(&coordinator, "one", "latency", "48", None);
    let mut two = hold::joined(&coordinator, "two", "batch", "48", None);
    for _ in 0..2 {
        for running in [&mut one, &mut two] {
            assert!(running.ask("touch", LIMIT).starts_with("touched "));
        }
    }
    let late = coordinator.join("late", &baton_tests::coordinator::program("hold"), &["--megabytes", "8"]);
    coordinator.until("there is something of everything", |status| {
        let is_full = |list: &str| status[list].as_array().is_some_and(|list| !list.is_empty());
        ["tenants", "newcomers", "recent", "departed"].into_iter().all(is_full)
            && tenant(status, "one")["requests"].is_object()
    });
    (coordinator, vec![one, two, late])
}

fn schema(file: &str) -> Value {
    let text = std::fs::read_to_string(root().join("docs").join(file)).expect("a file of the repository");
    serde_json::from_str(&text).expect("JSON")
}

/// As much of JSON Schema as the descriptions use; any other use is a complaint too.
struct Check<'a> {
    all: &'a Value,
    complaints: Vec<String>,
}

impl Check<'_> {
    fn complain(&mut self, at: &str, what: impl std::fmt::Display) {
        self.complaints.push(format!("{at}: {what}"));
    }

    fn is_of_type(value: &Value, word: &str) -> bool {
        match word {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "null" => value.is_null(),
            "integer" => value.is_i64() || value.is_u64(),
            "number" => value.is_number(),
            _ => false,
        }
    }

    fn check(&mut self, schema: &Value, value: &Value, at: &str) {
        const KNOWN: [&str; 16] = [
            "$schema",
            "$id",
            "$defs",
            "$ref",
            "title",
            "description",
            "type",
            "properties",
            "required",
            "additionalProperties",
            "items",
            "enum",
            "const",
            "oneOf",
            "anyOf",
            "minimum",
        ];
        for word in schema.as_object().into_iter().flat_map(|schema| schema.keys()) {
            if !KNOWN.contains(&word.as_str()) {
                self.complain(at, format_args!("`{word}` is not checked here"));
            }
        }
        if let Some(path) = schema["$ref"].as_str() {
            let all = self.all;
            match all.pointer(path.trim_start_matches('#')) {
                Some(other) => self.check(other, value, at),
                None => self.complain(at, format_args!("there is no {path}")),
            }
        }
        if let Some(any) = schema["anyOf"].as_array().or(schema["oneOf"].as_array()) {
            let fits = |one: &Value| {
                let mut check = Check { all: self.all, complaints: Vec::new() };
                check.check(one, value, at);
                check.complaints.is_empty()
            };
            if !any.iter().any(fits) {
                self.complain(at, format_args!("{value} is none of what it may be"));
            }
        }
        let types: Vec<&str> = match &schema["type"] {
            Value::String(word) => vec![word],
            Value::Array(words) => words.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        if !types.is_empty() && !types.iter().any(|word| Self::is_of_type(value, word)) {
            self.complain(at, format_args!("{value} is not of type {types:?}"));
        }
        if schema.get("const").is_some_and(|word| word != value) {
            self.complain(at, format_args!("{value} is not {}", schema["const"]));
        }
        if schema["enum"].as_array().is_some_and(|all| !all.contains(value)) {
            self.complain(at, format_args!("{value} is none of {}", schema["enum"]));
        }
        if schema["minimum"].as_f64() > value.as_f64().or(Some(f64::MAX)) {
            self.complain(at, format_args!("{value} is too little"));
        }
        for (at, item) in
            value.as_array().into_iter().flatten().enumerate().map(|(n, item)| (format!("{at}[{n}]"), item))
        {
            self.check(&schema["items"], item, &at);
        }
        let Some(fields) = value.as_object().filter(|_| schema["properties"].is_object()) else { return };
        if schema["additionalProperties"] != false {
            self.complain(at, "other fields are allowed");
        }
        for (name, field) in fields {
            match schema["properties"].get(name) {
                Some(schema) => self.check(schema, field, &format!("{at}.{name}")),
                None => self.complain(at, format_args!("{name} is not documented")),
            }
        }
        for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
            if schema["description"].as_str().is_none_or(|words| words.len() < 8) {
                self.complain(at, format_args!("{name} has no description"));
            }
        }
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if !fields.contains_key(name) {
                self.complain(at, format_args!("{name} is missing"));
            }
        }
    }
}

#[track_caller]
fn is_as_documented(file: &str, value: &Value) {
    let all = schema(file);
    let mut check = Check { all: &all, complaints: Vec::new() };
    check.check(&all, value, "");
    assert!(check.complaints.is_empty(), "docs/{file} and the answer differ:\n{}", check.complaints.join("\n"));
    // And it is not that everything would do.
    let mut wrong = value.clone();
    wrong["schema"] = "one".into();
    wrong["another_field"] = 1.into();
    let mut check = Check { all: &all, complaints: Vec::new() };
    check.check(&all, &wrong, "");
    assert_eq!(check.complaints.len(), 2, "{:?}", check.complaints);
}

#[test]
fn the_answers_of_a_busy_coordinator_are_as_documented() {
    let (coordinator, running) = busy();
    is_as_documented("status.schema.json", &coordinator.status());
    let history = client::events(&coordinator.place.socket(), 0).expect("it answers");
    assert!(history.events.len() > 20);
    is_as_documented("events.schema.json", &serde_json::to_value(history).expect("JSON"));
    drop(running);
}

/// A program that is given the socket prints names and numbers of those who share the GPU.
#[track_caller]
fn prints_how_things_stand(command: &mut Command) {
    let (coordinator, running) = busy();
    let command = command.arg(coordinator.place.socket());
    let printed = Running::start(command, false, None).finish(LIMIT).succeeded().out;
    for name in ["one", "two"] {
        let pid = tenant(&coordinator.status(), name)["pid"].to_string();
        assert!(printed.contains(name) && printed.contains(&pid), "{printed}");
    }
    drop(running);
}

#[test]
fn a_program_in_c_asks_how_things_stand() {
    prints_how_things_stand(&mut Command::new(built().programs.join("ask_status")));
}

#[test]
fn shells_complete_and_the_manual_describes_every_command() {
    let coordinator = Serving::small("64MiB").prepare();
    let said = |words: &[&str]| {
        let mut command = coordinator.place.baton(words);
        Running::start(&mut command, false, None).finish(LIMIT).succeeded().out
    };
    let help = said(&["help"]);
    let (_, commands) = help.split_once("Commands:\n").expect("a list of commands");
    let commands = commands.split("\n\n").next().unwrap_or_default();
    let names: Vec<&str> = commands.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(
        ["ps", "top", "stats", "logs", "why", "prefetch", "stop"].iter().all(|name| names.contains(name)),
        "{help}"
    );
    let scripts = ["bash", "zsh", "fish"].map(|shell| said(&["completions", shell]));
    let folder = coordinator.place.folder().join("man");
    said(&["man", folder.to_str().expect("UTF-8")]);
    for name in names.into_iter().filter(|name| *name != "help") {
        assert!(scripts.iter().all(|script| script.contains(name)), "{name}");
        let page = folder.join(format!("baton-{name}.1"));
        assert!(std::fs::read_to_string(&page).is_ok_and(|page| page.contains(".SH SYNOPSIS")), "{}", page.display());
    }
    assert!(said(&["man"]).contains(".TH baton 1"));
}

mod tool {
    use super::*;

    #[test]
    #[ignore = "tool: python3"]
    fn a_program_in_python_asks_how_things_stand() {
        prints_how_things_stand(Command::new("python3").arg(root().join("examples/python/status.py")));
    }
}
