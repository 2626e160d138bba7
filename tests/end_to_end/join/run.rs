//! `baton run` never lets a program go without Baton unasked: not when many come, when a coordinator is just ending, or when
//! the library or the program is of a kind that does not go together.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use baton_tests::coordinator::{Prepared, Serving};
use baton_tests::form::Form;
use baton_tests::running::Running;
use baton_tests::{Outcome, built, with_environment_of};

const LIMIT: Duration = Duration::from_secs(500);

/// `baton run` of a coordinator that is started if there is none, with room for a few programs.
fn run(prepared: &Prepared, words: &[&str]) -> Command {
    run_with_pool(prepared, "64MiB", words)
}

fn run_with_pool(prepared: &Prepared, pool: &str, words: &[&str]) -> Command {
    let mut command = prepared.place.baton(&["run", "--driver", "sim", "--arena", "64MiB", "--host-pool", pool]);
    command.args(words).arg("--socket").arg(prepared.place.socket()).arg("--");
    command
}

fn vector_add() -> PathBuf {
    built().examples.join("vector_add")
}

/// All lines that were said but one: a coordinator that is there already keeps its own settings.
fn said(outcome: &Outcome) -> Vec<String> {
    outcome.said().lines().filter(|line| !line.contains("keeps its own settings")).map(str::to_owned).collect()
}

/// How many programs have joined, by the logs of all coordinators that there were.
fn joined(prepared: &Prepared) -> usize {
    let log = std::fs::read_to_string(prepared.place.socket().with_extension("log")).expect("a log");
    // When many come at once the log has a line for the first, and the number of the others.
    let count = |line: &str| match line.split_once(" more like this") {
        None => 1,
        Some((before, after)) => {
            let left_out: usize = before.rsplit([' ', '(']).next().and_then(|n| n.parse().ok()).expect("a number");
            left_out + usize::from(!after.starts_with(':'))
        }
    };
    log.lines().filter(|line| line.contains(" joined")).map(count).sum()
}

/// So many have joined, which the log says in the end: of many at once it tells when others come no more.
#[track_caller]
fn until_joined(prepared: &Prepared, count: usize) {
    let end = Instant::now() + LIMIT;
    while joined(prepared) < count && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(joined(prepared), count);
}

/// One after the other: each finds the coordinator of the one before just ending, or gone.
#[track_caller]
fn in_a_row(form: Form) {
    let count = form.of(40, 300);
    let prepared = Serving::small("64MiB").prepare();
    for at in 1..=count {
        let ran = baton_tests::run(run(&prepared, &[]).arg(vector_add())).succeeded();
        assert!(ran.out.ends_with(" ok\n") && said(&ran).is_empty(), "{at}: {ran:?}");
        until_joined(&prepared, at);
    }
}

#[test]
fn programs_one_after_the_other_are_all_under_baton() {
    in_a_row(Form::Short);
}

#[test]
#[ignore = "long: 20 s"]
fn three_hundred_programs_one_after_the_other_are_all_under_baton() {
    in_a_row(Form::Long);
}

/// At once, and more than may share the GPU at once.
#[track_caller]
fn at_once(form: Form) {
    let (count, tenants, pool) = form.of((60, "8", "64MiB"), (1000, "256", "4GiB"));
    let prepared = Serving::small("64MiB").prepare();
    let start =
        |_| Running::start(run_with_pool(&prepared, pool, &["--max-programs", tenants]).arg(vector_add()), false, None);
    let running: Vec<Running> = (0..count).map(start).collect();
    for running in running {
        let ran = running.finish(LIMIT).succeeded();
        assert!(ran.out.ends_with(" ok\n") && said(&ran).is_empty(), "{ran:?}");
    }
    until_joined(&prepared, count);
}

#[test]
fn programs_that_come_at_once_are_all_under_baton() {
    at_once(Form::Short);
}

#[test]
#[ignore = "long: 1 to 2 min"]
fn a_thousand_programs_that_come_at_once_are_all_under_baton() {
    at_once(Form::Long);
}

#[test]
fn a_library_in_a_folder_with_a_space_and_a_colon_is_preloaded_all_the_same() {
    let prepared = Serving::small("64MiB").prepare();
    let folder = prepared.place.folder().join("my home: $baton");
    std::fs::create_dir(&folder).expect("a new folder");
    for file in ["baton", "libbaton.so", "libsimcuda.so"] {
        let (from, to) = (built().bin.join(file), folder.join(file));
        std::fs::hard_link(&from, &to).or_else(|_| std::fs::copy(&from, &to).map(drop)).expect("a file");
    }
    let usual = run(&prepared, &[]);
    let mut command = with_environment_of(Command::new(folder.join("baton")), &usual);
    command.args(usual.get_args()).arg(vector_add());
    let ran = baton_tests::run(&mut command).succeeded();
    assert!(ran.out.ends_with(" ok\n") && said(&ran).is_empty(), "{ran:?}");
    assert_eq!(joined(&prepared), 1);
}

/// A file that begins as a program of this class with this loader does; it cannot really run.
fn program_of(folder: &Path, bits: u8, loader: Option<&str>) -> PathBuf {
    let mut file = vec![0u8; 120];
    file[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', bits, 1, 1]);
    (file[16], file[18], file[20], file[32], file[52], file[54]) = (2, 62, 1, 64, 64, 56);
    if let Some(loader) = loader {
        (file[56], file[64], file[72], file[96]) = (1, 3, 120, loader.len() as u8 + 1);
        file.extend(loader.as_bytes());
        file.push(0);
    }
    let path = folder.join(format!("program-{bits}-{}", loader.is_some()));
    std::fs::write(&path, file).expect("a file");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("ours");
    path
}

#[test]
fn programs_into_which_nothing_can_be_preloaded_end_or_start_with_a_line() {
    let prepared = Serving::small("64MiB").prepare();
    let folder = prepared.place.folder();
    let musl = program_of(folder, 2, Some("/lib/ld-musl-x86_64.so.1"));
    let ended = baton_tests::run(run(&prepared, &[]).arg(musl));
    assert_eq!(ended.status, "exit status: 125", "{ended:?}");
    assert!(ended.err.contains("musl") && ended.err.contains("glibc"), "{ended:?}");
    let bits32 = program_of(folder, 1, None);
    let ended = baton_tests::run(run(&prepared, &[]).arg(bits32));
    assert!(ended.err.contains("32-bit"), "{ended:?}");

    // A launcher that is statically linked: the programs that it starts share the GPU.
    let source = folder.join("launcher.c");
    let launcher = folder.join("launcher");
    std::fs::write(
        &source,
        "#include <unistd.h>\nint main(int n, char **a) { (void)n; execv(a[1], a + 1); return 1; }\n",
    )
    .expect("a file");
    let compiled = Command::new("cc").args(["-static", "-o"]).arg(&launcher).arg(&source).status();
    assert!(compiled.is_ok_and(|status| status.success()), "a static C library is needed");
    let ran = baton_tests::run(run(&prepared, &[]).arg(launcher).arg(vector_add())).succeeded();
    assert!(ran.out.ends_with(" ok\n"), "{ran:?}");
    assert!(said(&ran).len() == 1 && ran.err.contains("statically linked"), "{ran:?}");
    assert_eq!(joined(&prepared), 1);
}

#[test]
fn only_a_script_is_run_by_a_shell() {
    let prepared = Serving::small("64MiB").prepare();
    let folder = prepared.place.folder().join("here");
    std::fs::create_dir(&folder).expect("a new folder");
    // A shell makes a new file of a strange name of these bytes.
    let other_machines = program_of(&folder, 1, None);
    let script = folder.join("script");
    std::fs::write(&script, "echo it ran with $1\n").expect("a file");
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).expect("ours");
    for option in [&[][..], &["--optional"]] {
        let ended = baton_tests::run(run(&prepared, option).arg(&other_machines).current_dir(&folder));
        assert_eq!(ended.status, "exit status: 126", "{ended:?}");
        assert!(ended.err.contains("Exec format error"), "{ended:?}");
        let ran = baton_tests::run(run(&prepared, option).arg(&script).arg("words").current_dir(&folder)).succeeded();
        assert_eq!(ran.out, "it ran with words\n");
    }
    let files: Vec<_> = std::fs::read_dir(&folder).expect("ours").map(|file| file.expect("ours").file_name()).collect();
    assert_eq!(files.len(), 2, "{files:?}");
}

#[test]
fn a_driver_file_has_to_be_named_on_both_sides() {
    let driver = built().bin.join("libsimcuda.so");
    let prepared = Serving::small("64MiB").prepare();
    let mut serve = prepared.place.baton(&["serve", "--no-keeper", "--arena=64MiB", "--host-pool=64MiB", "--driver"]);
    let served = Running::start(serve.arg(&driver).arg("--socket").arg(prepared.place.socket()), false, None);
    while !served.err().contains("serving GPU") {
        std::thread::sleep(Duration::from_millis(5));
    }
    let status = prepared.place.try_status().expect("it serves");
    assert_eq!(status["driver"], "file");
    assert!(!status.to_string().contains("libsimcuda"), "no path of a file that others would load: {status:#}");
    let run = |driver: Option<&Path>| {
        let mut command = prepared.place.baton(&["run", "--socket"]);
        command.arg(prepared.place.socket());
        if let Some(driver) = driver {
            command.arg("--driver").arg(driver);
        }
        baton_tests::run(command.arg("--").arg(vector_add()))
    };
    let ended = run(None);
    assert_eq!(ended.status, "exit status: 125", "{ended:?}");
    assert!(ended.err.contains("--driver"), "{ended:?}");
    let ended = run(Some(Path::new("sim")));
    assert!(ended.status == "exit status: 125" && ended.err.contains("another driver"), "{ended:?}");
    assert!(run(Some(&driver)).succeeded().out.ends_with(" ok\n"));
}

/// `baton run` on a machine with two GPUs, of which none is named.
fn run_on_two(prepared: &Prepared, words: &[&str], steps: &[&str]) -> Command {
    let options = ["run", "--driver", "sim", "--no-keeper", "--arena", "64MiB", "--host-pool", "64MiB"];
    let mut command = prepared.place.baton(&options);
    command.args(words).arg("--").arg(built().programs.join("joining")).args(steps).env("SIMCUDA_GPUS", "2");
    command
}

/// The logs of the coordinators that `baton run` has started, GPU by GPU.
fn logs(prepared: &Prepared) -> Vec<String> {
    let entries = std::fs::read_dir(prepared.place.folder().join("runtime/baton")).expect("a folder");
    let paths = entries.map(|entry| entry.expect("a readable folder").path());
    let logs = paths.filter(|path| path.extension().is_some_and(|extension| extension == "log"));
    logs.map(|path| std::fs::read_to_string(path).expect("a log")).collect()
}

#[test]
fn a_process_shares_the_gpu_that_it_takes_first_if_that_has_a_coordinator() {
    let prepared = Serving::small("64MiB").prepare();
    let took = |words: &[&str], steps: &[&str]| {
        let ran = baton_tests::run(&mut run_on_two(&prepared, words, steps)).succeeded();
        assert!(ran.out.ends_with("context 0\nalloc 0\n") && said(&ran).is_empty(), "{ran:?}");
    };
    let second = |log: &str| log.lines().any(|line| line.contains("serving GPU 1 "));
    // A user that names a GPU means no other: the second has no coordinator, and gets none.
    took(&["--name", "named", "--gpu", "0"], &["init", "second", "context", "alloc"]);
    took(&["--name", "on-first", "--gpu", "0"], &["init", "context", "alloc"]);
    let said_first = logs(&prepared);
    assert_eq!(said_first.len(), 1, "{said_first:?}");
    assert!(said_first[0].contains("on-first (") && !said_first[0].contains("named ("), "{said_first:?}");
    assert!(!second(&said_first[0]), "{said_first:?}");
    // Now it has one.
    let sizes = ["--arena=64MiB", "--host-pool=64MiB"];
    let mut serve = prepared.place.baton(&["serve", "--driver", "sim", "--no-keeper", "--gpu", "1"]);
    serve.args(sizes);
    let served = Running::start(serve.env("SIMCUDA_GPUS", "2"), false, None);
    while !second(&served.err()) {
        std::thread::sleep(Duration::from_millis(5));
    }
    took(&["--name", "shares-second"], &["init", "second", "context", "alloc"]);
    took(&["--name", "shares-first"], &["init", "context", "alloc"]);
    took(&["--name", "named", "--gpu", "0"], &["init", "second", "context", "alloc"]);
    let joined = served.err();
    assert!(joined.contains("shares-second (") && joined.contains(" joined"), "{joined}");
    assert!(!joined.contains("shares-first") && !joined.contains("named ("), "{joined}");
}

#[test]
fn a_coordinator_that_run_starts_serves_all_gpus_until_none_is_used() {
    let prepared = Serving::small("64MiB").prepare();
    let ran = |name: &str, steps: &[&str]| {
        let ran = baton_tests::run(&mut run_on_two(&prepared, &["--name", name], steps)).succeeded();
        assert!(ran.out.ends_with("context 0\nalloc 0\n") && said(&ran).is_empty(), "{ran:?}");
    };
    ran("on-second", &["init", "second", "context", "alloc"]);
    ran("on-first", &["init", "context", "alloc"]);
    let logs = logs(&prepared);
    let [log] = &logs[..] else { panic!("one process: {logs:?}") };
    assert!(["on-first (", "on-second ("].iter().all(|name| log.contains(name)), "{log}");
}

#[test]
fn a_process_that_takes_the_gpu_which_was_to_be_shared_does_not_go_on_without_its_coordinator() {
    let prepared = Serving::small("64MiB").prepare();
    let without = |steps: &[&str]| {
        let mut running = Running::start(&mut run_on_two(&prepared, &[], steps), true, None);
        assert_eq!(running.line(LIMIT), "waiting");
        let mut status = prepared.place.baton(&["status", "--json"]);
        let status = baton_tests::run(status.env("SIMCUDA_GPUS", "2")).succeeded();
        let first = status.out.lines().next().expect("a GPU");
        let status: serde_json::Value = serde_json::from_str(first).expect("JSON");
        let pid = status["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).expect("a number");
        // SAFETY: a coordinator of this test.
        assert_eq!(unsafe { libc::kill(pid, libc::SIGKILL) }, 0);
        let socket = status["socket"].as_str().expect("a path").to_owned();
        while baton_contract::link::connect(Path::new(&socket), baton_contract::link::Chosen::ByUser, LIMIT).is_ok() {
            std::thread::sleep(Duration::from_millis(5));
        }
        running.say("");
        running.finish(LIMIT)
    };
    let ended = without(&["wait", "init", "context"]);
    assert!(ended.status == "exit status: 125" && ended.err.contains("no coordinator answers"), "{ended:?}");
    // Nothing is promised about the other GPU.
    let ran = without(&["wait", "init", "second", "context"]).succeeded();
    assert!(ran.out.ends_with("context 0\n") && ran.said().is_empty(), "{ran:?}");
}

mod root {
    use super::*;

    #[test]
    #[ignore = "root: it gives a program to another user"]
    fn a_set_user_id_program_ends_at_once() {
        let prepared = Serving::small("64MiB").prepare();
        let program = prepared.place.folder().join("as-nobody");
        std::fs::copy("/bin/true", &program).expect("a file");
        std::os::unix::fs::chown(&program, Some(65534), Some(65534)).expect("root may");
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o4755)).expect("root may");
        let ended = baton_tests::run(run(&prepared, &[]).arg(program));
        assert_eq!(ended.status, "exit status: 125", "{ended:?}");
        assert!(ended.err.contains("set-user-id"), "{ended:?}");
        assert!(!prepared.place.socket().exists(), "no coordinator is started for it");
    }
}
