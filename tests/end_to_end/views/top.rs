//! `baton top` on a terminal: its layout, and its keys.

use std::process::Command;

use baton_tests::coordinator::{Coordinator, Serving};
use baton_tests::hold;
use baton_tests::running::Running;
use baton_tests::terminal::Terminal;
use baton_tests::{LIMIT, around};

fn top(coordinator: &Coordinator) -> Command {
    let mut command = coordinator.place.baton(&["top", "--every", "50ms", "--socket"]);
    command.arg(coordinator.place.socket()).env_remove("NO_COLOR");
    command
}

fn line<'a>(lines: &'a [String], name: &str) -> Option<&'a String> {
    lines.iter().find(|line| line.get(2..).is_some_and(|rest| rest.starts_with(name)))
}

#[test]
fn top_shows_what_happens_obeys_keys_and_follows_the_size_of_its_terminal() {
    let coordinator = Serving::small("64MiB").start();
    coordinator.until_ready();
    let mut one = hold::joined(&coordinator, "one", "batch", "48", None);
    let mut two = hold::joined(&coordinator, "two", "normal", "24", None);
    assert!(one.ask("touch", LIMIT).starts_with("touched "));
    let mut terminal = Terminal::start(&mut top(&coordinator), 20, 80);
    let lines = terminal.until("both are there", |lines| line(lines, "one").is_some() && line(lines, "two").is_some());
    assert!(lines[0].starts_with("on the GPU: ") && lines[0].contains("   2 programs   Simulated GPU"), "{lines:#?}");
    // Either of them, as long as all of it is one column.
    assert!(lines[1].starts_with("last 60 s ") && lines[1][9..].contains(['a', 'b']), "{lines:#?}");
    assert!(lines[2].starts_with("arena      a") && lines[2].ends_with("of 64 MiB"), "{lines:#?}");
    assert!(lines[6].contains("class") && lines[6].contains("resident") && lines[6].contains("GPU"), "{lines:#?}");
    assert!(line(&lines, "one").is_some_and(|line| line.starts_with("a one") && line.contains("48 MiB")), "{lines:#?}");
    assert!(terminal.has_color(), "{lines:#?}");
    // The second one, whatever it is called, is suspended, and goes on.
    terminal.keys("j");
    terminal.keys("s");
    terminal.until("it asks", |lines| lines[19].starts_with("take two off the GPU until it is resumed?"));
    terminal.keys("y");
    terminal.until("it is suspended", |lines| line(lines, "two").is_some_and(|line| line.contains("suspended")));
    coordinator.until_tenant_is("two", "suspended");
    terminal.keys("r");
    terminal.until("it goes on", |lines| line(lines, "two").is_some_and(|line| !line.contains("suspended")));
    assert!(two.ask("touch", LIMIT).starts_with("touched "));
    terminal.keys("cln");
    terminal.until("nothing was done", |lines| lines[19] == "nothing was done");
    terminal.keys("clY");
    terminal.until("its class is another", |lines| line(lines, "two").is_some_and(|line| line.contains("latency")));
    // Names with an o and an n.
    terminal.keys("/on\r");
    terminal.until("only one is shown", |lines| line(lines, "one").is_some() && line(lines, "two").is_none());
    terminal.keys("?");
    terminal.until("help", |lines| lines[6].starts_with("q "));
    terminal.keys(" ");
    terminal.resize(12, 48);
    // Lines that were drawn for the old size may be there for a moment.
    terminal.until("it is narrow", |lines| {
        let is_table = lines[6].contains("state") && !lines[6].contains("wait p50");
        is_table && lines[11].starts_with("only names with on; Esc")
    });
    terminal.resize(30, 160);
    terminal.until("it is wide", |lines| lines[6].contains("pid") && lines[29].starts_with("only names"));
    terminal.keys("q");
    assert!(terminal.end().success());
    for running in [&mut one, &mut two] {
        assert!(running.ask("quit", LIMIT).ends_with(" ok"));
    }
}

#[test]
fn without_colours_letters_tell_programs_apart() {
    let coordinator = Serving::small("64MiB").start();
    let mut one = hold::joined(&coordinator, "one", "batch", "24", None);
    assert!(one.ask("touch", LIMIT).starts_with("touched "));
    let mut terminal = Terminal::start(top(&coordinator).env("NO_COLOR", "1"), 12, 80);
    terminal.until("the ribbon", |lines| lines[1].starts_with("last 60 s ") && lines[1][9..].contains('a'));
    assert!(!terminal.has_color());
    terminal.keys("\u{3}");
    assert!(terminal.end().success());
}

#[test]
fn without_a_terminal_top_prints_one_picture_and_ends() {
    let coordinator = Serving::small("64MiB").start();
    let mut one = hold::joined(&coordinator, "one", "batch", "24", None);
    let printed = Running::start(&mut top(&coordinator), false, None).finish(LIMIT).succeeded().out;
    let lines: Vec<String> = printed.lines().map(str::to_owned).collect();
    assert!(lines[0].contains("1 program ") && line(&lines, "one").is_some(), "{printed}");
    assert!(!printed.contains('\u{1b}') && lines.len() == 8, "{printed}");
    assert!(one.ask("quit", LIMIT).ends_with(" ok"));
}

#[test]
fn top_stops_at_ctrl_z_with_the_terminal_as_it_was_and_goes_on() {
    let coordinator = Serving::small("64MiB").start();
    let inner = top(&coordinator);
    let mut shell = Command::new("sh");
    shell.args(["-c", r#"set -m; "$@"; echo "it stopped"; read line; fg; echo "it ended""#, "sh"]);
    let mut terminal = Terminal::start(&mut around(shell, &inner), 12, 80);
    let is_shown = |lines: &[String]| lines[7].starts_with("no programs share the GPU");
    terminal.until("it is shown", is_shown);
    terminal.keys("\u{1a}");
    terminal.until("the shell", |lines| lines.iter().any(|line| line.ends_with("it stopped")) && !is_shown(lines));
    // Only a terminal that takes whole lines again gives the shell this one.
    terminal.keys("on\n");
    terminal.until("it is shown again", is_shown);
    terminal.keys("q");
    terminal.until("its end", |lines| lines.iter().any(|line| line.ends_with("it ended")));
    assert!(terminal.end().success());
}

#[test]
fn top_ends_with_its_coordinator_and_leaves_the_terminal_as_it_was() {
    let mut coordinator = Serving::small("64MiB").start();
    let mut terminal = Terminal::start(&mut top(&coordinator), 12, 80);
    terminal.until("it is shown", |lines| lines[7].starts_with("no programs share the GPU"));
    coordinator.end(libc::SIGTERM);
    assert_eq!(terminal.end().code(), Some(1));
    terminal.until("why", |lines| lines.iter().any(|line| line.starts_with("baton top: ")));
}
