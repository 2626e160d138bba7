//! Commands print everything or say that they could not, and they say what they did.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Output, Stdio};

use baton_tests::coordinator::{Coordinator, Serving, tenant};
use baton_tests::hold;
use baton_tests::running::Running;
use baton_tests::{LIMIT, built, with_environment_of};

/// Commands of a coordinator's that print at once, and others that need none.
const OF_A_COORDINATOR: [&[&str]; 10] = [
    &["status"],
    &["status", "--json"],
    &["ps"],
    &["top"],
    &["stats"],
    &["logs"],
    &["logs", "--follow"],
    &["why", "one"],
    &["trace"],
    &["trace", "--html"],
];
const OF_NONE: [&[&str]; 9] = [
    &["serve", "--print-config"],
    &["doctor", "--driver", "sim"],
    &["cdi", "generate", "--driver", "sim"],
    &["completions", "bash"],
    &["explain"],
    &["man"],
    &["--help"],
    &["--version"],
    &["trace", "--help"],
];

/// All of them, with their words.
fn all(coordinator: &Coordinator) -> Vec<(Vec<&'static str>, Command)> {
    let command = |words: &'static [&'static str]| (words.to_vec(), coordinator.place.baton(words));
    let mut commands: Vec<_> = OF_A_COORDINATOR.into_iter().chain(OF_NONE).map(command).collect();
    for (_, command) in &mut commands[..OF_A_COORDINATOR.len()] {
        command.arg("--socket").arg(coordinator.place.socket());
    }
    commands
}

fn with_one() -> (Coordinator, Running) {
    let coordinator = Serving::small("64MiB").start();
    let one = hold::joined(&coordinator, "one", "normal", "8", None);
    (coordinator, one)
}

fn full() -> File {
    File::options().write(true).open("/dev/full").expect("Linux has it")
}

fn ended(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

#[test]
fn a_command_whose_output_has_no_room_says_so_and_fails() {
    let (coordinator, mut one) = with_one();
    for (words, mut command) in all(&coordinator) {
        let output = ended(command.stdout(full()).stderr(Stdio::piped()));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
        let last = said.lines().last().unwrap_or_default();
        assert!(last.starts_with("baton") && last.contains("standard output: No space left"), "{words:?}: {said}");
        // Also where it cannot say so either.
        let output = ended(command.stdout(full()).stderr(full()));
        assert_eq!(output.status.code(), Some(1), "{words:?}: {:?}", output.status);
    }
    assert!(one.ask("quit", LIMIT).ends_with(" ok"));
}

#[test]
fn a_command_whose_output_no_one_reads_any_more_ends_in_silence() {
    let (coordinator, mut one) = with_one();
    for (words, mut command) in all(&coordinator) {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = ended(command.stdout(writer).stderr(Stdio::piped()));
        let said = String::from_utf8_lossy(&output.stderr);
        let as_by_a_signal =
            output.status.signal() == Some(libc::SIGPIPE) || output.status.code() == Some(128 + libc::SIGPIPE);
        // Its messages about other things stay.
        assert!(
            as_by_a_signal && !["panicked", "standard output", "pipe"].iter().any(|word| said.contains(word)),
            "{words:?}: {:?}: {said}",
            output.status
        );
    }
    assert!(one.ask("quit", LIMIT).ends_with(" ok"));
}

/// A command that may write only so much to a file, and hears so instead of being killed.
fn with_little_room(inner: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", r#"trap "" XFSZ; ulimit -f 1; exec "$@""#, "sh"]).arg(inner.get_program()).args(inner.get_args());
    with_environment_of(shell, inner)
}

#[test]
fn a_trace_that_has_no_room_leaves_what_was_there_before() {
    let (coordinator, mut one) = with_one();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("trace");
    for form in [None, Some("--html"), Some("--svg")] {
        let mut trace = coordinator.place.baton(&["trace", "--socket"]);
        trace.arg(coordinator.place.socket()).args(form).arg("--output").arg(&file);
        let there = |wanted: Option<&str>| {
            let found: Vec<_> = fs::read_dir(folder.path()).expect("ours").map(|one| one.expect("ours")).collect();
            assert_eq!(found.len(), usize::from(wanted.is_some()), "{form:?}: {found:?}");
            assert_eq!(fs::read_to_string(&file).ok().as_deref(), wanted, "{form:?}");
        };
        for before in [None, Some("what was there")] {
            if let Some(text) = before {
                fs::write(&file, text).expect("ours");
            }
            let output = ended(&mut with_little_room(&trace));
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{form:?}: {said}");
            assert!(said.contains("File too large") && said.contains("nothing was written to it"), "{form:?}: {said}");
            there(before);
        }
        // With room, it is replaced, and nothing else is there.
        let output = ended(&mut trace);
        assert!(output.status.success(), "{output:?}");
        let text = fs::read_to_string(&file).expect("written");
        assert!(text.len() > 1024 && fs::read_dir(folder.path()).expect("ours").count() == 1, "{form:?}: {text}");
        fs::remove_file(&file).expect("ours");
    }
    assert!(one.ask("quit", LIMIT).ends_with(" ok"));
}

#[test]
fn a_result_goes_through_links_and_into_what_is_no_file() {
    let (coordinator, mut one) = with_one();
    let folder = tempfile::tempdir().expect("a folder");
    let (link, file) = (folder.path().join("link"), folder.path().join("file"));
    fs::write(&file, "before").expect("ours");
    std::os::unix::fs::symlink("file", &link).expect("ours");
    let trace = |to: &OsStr| {
        let mut trace = coordinator.place.baton(&["trace", "--socket"]);
        let output = ended(trace.arg(coordinator.place.socket()).arg("--output").arg(to));
        assert!(output.status.success(), "{output:?}");
        output.stdout
    };
    trace(link.as_os_str());
    assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
    assert!(fs::read_to_string(&file).expect("there").starts_with('{'));
    trace(OsStr::new("/dev/null"));
    for standard_output in ["/dev/stdout", "-"] {
        assert!(trace(OsStr::new(standard_output)).starts_with(b"{"), "{standard_output}");
    }
    assert!(one.ask("quit", LIMIT).ends_with(" ok"));
}

#[test]
fn a_run_that_is_written_wrong_ends_as_one_that_cannot_be() {
    let prepared = Serving::small("64MiB").prepare();
    for (words, code) in
        [(&["run", "--nonsense"][..], 125), (&["run"], 125), (&["run", "--help"], 0), (&["ps", "-x"], 2)]
    {
        assert_eq!(ended(&mut prepared.place.baton(words)).status.code(), Some(code), "{words:?}");
    }
}

#[test]
fn a_demo_that_the_user_ends_ends_as_by_the_signal() {
    let prepared = Serving::small("64MiB").prepare();
    let mut demo = Running::start(&mut prepared.place.baton(&["demo", "--driver", "sim"]), false, None);
    demo.line(LIMIT);
    demo.signal(libc::SIGINT);
    assert_eq!(demo.end(LIMIT).code(), Some(130), "{}", demo.err());
}

/// `baton VERB --socket … WORDS`: how it ends, and what it says.
fn told(coordinator: &Coordinator, verb: &str, words: &[&str]) -> (Option<i32>, String, String) {
    let mut command = coordinator.place.baton(&[verb, "--socket"]);
    let output = ended(command.arg(coordinator.place.socket()).args(words));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn several_programs_are_steered_at_once_by_name_or_number_with_a_line_each() {
    let coordinator = Serving::small("128MiB").start();
    let mut one = hold::joined(&coordinator, "one", "normal", "8", None);
    let mut two = hold::joined(&coordinator, "two", "normal", "8", None);
    let number = two.pid().to_string();
    let well = |said: &str| (Some(0), said.to_owned(), String::new());
    assert_eq!(told(&coordinator, "suspend", &["one", &number]), well("suspended one\nsuspended two\n"));
    let status = coordinator.status();
    assert_eq!(["one", "two"].map(|name| &tenant(&status, name)["state"]), ["suspended", "suspended"]);
    assert_eq!(told(&coordinator, "resume", &[&number, "one"]), well("resumed two\nresumed one\n"));
    assert_eq!(told(&coordinator, "suspend", &["--no-wait", "one"]), well("suspending one\n"));
    assert_eq!(told(&coordinator, "resume", &["one"]), well("resumed one\n"));
    // One that is not there keeps the others from nothing.
    let (code, out, err) = told(&coordinator, "evict", &["nobody", "one", "1", "two"]);
    assert_eq!((code, out.lines().count()), (Some(1), 2), "{out}{err}");
    assert!(out.starts_with("evicted one") && out.contains("\nevicted two"), "{out}");
    assert!(err.contains("called nobody;") && err.contains("called 1;"), "{err}");
    assert_eq!(told(&coordinator, "suspend", &[]).0, Some(2));
    for running in [&mut one, &mut two] {
        assert!(running.ask("quit", LIMIT).ends_with(" ok"));
    }
}

#[test]
fn control_over_a_page_that_there_is_not_is_refused() {
    let outcome = Serving::small("64MiB").flag("--http-control").prepare().serve_in_vain();
    assert!(outcome.err.contains("--http-control") && outcome.err.contains("--http "), "{outcome:?}");
}

#[test]
fn shells_offer_the_names_of_programs() {
    let coordinator = Serving::small("64MiB").start();
    let mut one = hold::joined(&coordinator, "train-one", "normal", "8", None);
    let offered = |words: &str| {
        let script = format!(
            r#"eval "$("$0" completions bash)"; COMP_WORDS=("$0" {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
               _baton_with_names "$0" "${{COMP_WORDS[COMP_CWORD]}}" "${{COMP_WORDS[COMP_CWORD-1]}}"; printf '%s\n' "${{COMPREPLY[@]}}""#
        );
        let baton = coordinator.place.baton(&[]);
        let mut shell = with_environment_of(Command::new("bash"), &baton);
        shell.env("BATON_SOCKET", coordinator.place.socket());
        let output = ended(shell.arg("-c").arg(script).arg(baton.get_program()).stderr(Stdio::piped()));
        assert!(output.status.success() && output.stderr.is_empty(), "{words}: {output:?}");
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    for words in ["evict tr", "suspend tr", "why tr", "resume one tr", "set tr"] {
        assert_eq!(offered(words), ["train-one"], "{words}");
    }
    assert!(!offered("evict --timeout tr").contains(&"train-one".to_owned()));
    assert!(offered("st").contains(&"status".to_owned()));
    for shell in ["zsh", "fish"] {
        let script = ended(&mut coordinator.place.baton(&["completions", shell])).stdout;
        let script = String::from_utf8_lossy(&script).into_owned();
        let each = if shell == "zsh" { ":_baton_names" } else { "(baton names" };
        assert!(script.matches(each).count() == 6, "{shell}: {}", script.matches(each).count());
    }
    assert!(one.ask("quit", LIMIT).ends_with(" ok"));
}

mod tool {
    use super::*;

    #[test]
    #[ignore = "tool: a machine without NVIDIA's driver"]
    fn a_run_without_a_driver_says_what_works_and_that_works() {
        // SAFETY: nothing is called in it, and its start-up code is that of every CUDA program.
        let driver = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_LAZY) };
        assert!(driver.is_null(), "this machine has NVIDIA's driver");
        let program = built().examples.join("vector_add");
        let small = ["--arena", "64MiB", "--host-pool", "64MiB"];
        for (is_named, is_gpu_named) in [(false, false), (true, false), (true, true)] {
            // Each in a place of its own: the coordinator of the one before may still be there.
            let prepared = Serving::small("64MiB").prepare();
            let socket = prepared.place.socket();
            let named = ["--socket".as_ref(), socket.as_os_str()];
            let before: &[&OsStr] = if is_named { &named } else { &[] };
            let mut run = prepared.place.baton(&["run"]);
            run.args(small).args(before).args(["--name", "it's mine"]);
            run.args(is_gpu_named.then_some("--driver=gpu")).arg("--").arg(&program);
            let output = ended(&mut run);
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(125), "{said}");
            assert!(said.contains("there is no NVIDIA driver here"), "{said}");
            assert!(said.contains("never picks the simulated driver by itself"), "{said}");
            assert_eq!(said.matches("libcuda.so.1").count(), 1, "{said}");
            assert!(said.lines().any(|line| line.trim_start().ends_with("baton demo")), "{said}");
            let works = said.lines().find(|line| line.contains(" run --driver sim ")).expect("a command");
            let mut shell = with_environment_of(Command::new("sh"), &run);
            let output = ended(shell.args(["-c", works]));
            assert!(output.status.success() && output.stdout.ends_with(b" ok\n"), "{works}: {output:?}");
        }
    }
}
