//! The commands are there and explain themselves. Their effects are tested from end to end.

use std::process::{Command, Output};

fn baton(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_baton")).args(words).output().expect("cargo has built it")
}

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).expect("UTF-8")
}

/// The commands that help lists, as it lists them: two spaces, the name, and what it is for.
fn commands(help: &str) -> Vec<&str> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    lines.filter_map(|line| line.strip_prefix("  ")?.split(' ').next()).filter(|name| !name.is_empty()).collect()
}

#[test]
fn help_lists_the_commands_and_each_explains_itself() {
    let help = baton(&["--help"]);
    let listed = commands(text(&help.stdout));
    let wanted = "run serve status ps top stats logs why trace records evict prefetch set suspend resume cdi k8s fit stop upgrade doctor explain completions demo bench help";
    assert_eq!(listed.join(" "), wanted);
    let benchmarks = baton(&["bench", "--help"]);
    assert_eq!(commands(text(&benchmarks.stdout)), ["switch", "corun", "help"]);
    let single = listed.iter().filter(|name| **name != "help").map(|name| vec![*name, "--help"]);
    for words in single.chain(["switch", "corun"].map(|name| vec!["bench", name, "--help"])) {
        let explained = baton(&words);
        let usage = format!("Usage: baton {}", words[..words.len() - 1].join(" "));
        assert!(explained.status.success() && text(&explained.stdout).contains(&usage), "{words:?}: {explained:?}");
    }
}

#[test]
fn what_is_no_command_is_refused() {
    let refused = baton(&["sing"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(refused.stdout.is_empty() && text(&refused.stderr).contains("sing"), "{refused:?}");
}

#[test]
fn a_message_is_explained_by_its_identifier_and_an_unknown_one_is_refused_with_the_nearest() {
    let explained = baton(&["explain", "[B0801", "B0213]"]);
    assert_eq!(explained.status.code(), Some(2));
    let said = text(&explained.stdout);
    assert!(
        said.starts_with("B0801  there is no coordinator's socket in …") && said.contains("\nRemedy: If"),
        "{said}"
    );
    let refused = text(&explained.stderr);
    assert!(refused.contains("B0213") && refused.ends_with("the nearest one is B0212 [B0013]\n"), "{refused}");

    // A command's message has an identifier that is explained.
    let refused = baton(&["status", "--socket", "/nowhere/s.sock"]);
    let line = text(&refused.stderr).trim_end();
    assert!(line.ends_with("[B0802]"), "{line}");
    let explained = baton(&["explain", line.rsplit(' ').next().expect("words")]);
    assert!(
        explained.status.success() && text(&explained.stdout).contains("Cause: There is no coordinator"),
        "{explained:?}"
    );

    let all = baton(&["explain"]);
    assert!(all.status.success() && text(&all.stdout).contains("\nB0802  no coordinator answers at …"), "{all:?}");
}
