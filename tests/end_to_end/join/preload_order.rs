//! Sanitizers and allocators that have to be the first of all libraries are, under `baton run` and beside it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use baton_tests::coordinator::{Prepared, Serving};
use baton_tests::running::Running;
use baton_tests::{Outcome, built};

const LIMIT: Duration = Duration::from_secs(300);

/// `baton run` in a place of its own.
fn under(prepared: &Prepared, program: &Path, arguments: &[&str]) -> Command {
    let mut command = prepared.place.baton(&["run", "--driver=sim", "--arena=64MiB", "--host-pool=64MiB", "--socket"]);
    command.arg(prepared.place.socket()).arg("--").arg(program).args(arguments);
    command
}

/// Runs a program that has to join, and to add right.
#[track_caller]
fn adds_and_joins(prepared: &Prepared, mut command: Command) -> Outcome {
    let log = prepared.place.socket().with_extension("log");
    let joined = || std::fs::read_to_string(&log).unwrap_or_default().matches(" joined").count();
    let before = joined();
    let ran = Running::start(&mut command, false, None).finish(LIMIT).succeeded();
    assert!(ran.out.ends_with("vector add ok\n"), "{command:?}: {ran:?}");
    assert_eq!(joined(), before + 1, "{command:?}: {ran:?}");
    ran
}

/// A program that is built with AddressSanitizer; says so where the compiler has none.
fn sanitized(name: &str) -> Option<PathBuf> {
    let program = built().programs.join("asan").join(name);
    let found = program.exists();
    if !found {
        eprintln!("skipped: the C compiler has no AddressSanitizer");
    }
    found.then_some(program)
}

/// The runtime of AddressSanitizer as a library, if the compiler has one.
fn runtime() -> Option<String> {
    let found = Command::new("cc").arg("-print-file-name=libasan.so").output().ok()?;
    let path = String::from_utf8(found.stdout).ok()?.trim().to_owned();
    let is_there = path.contains('/');
    if !is_there {
        eprintln!("skipped: the C compiler has no library of AddressSanitizer's");
    }
    is_there.then_some(path)
}

#[test]
fn a_program_with_address_sanitizer_runs_under_baton() {
    let prepared = Serving::arena("64MiB").prepare();
    let ways: [(&str, &[&str]); 3] =
        [("doors_link", &[]), ("doors_dlopen", &["libcuda.so.1", "now"]), ("with_options", &[])];
    for (name, arguments) in ways {
        let Some(program) = sanitized(name) else { return };
        let ran = adds_and_joins(&prepared, under(&prepared, &program, arguments));
        // Where one is just ending, or not, nobody knows.
        let said = ran.said().lines().filter(|line| !line.contains("keeps its own settings")).count();
        assert_eq!(said, 0, "{name}: {ran:?}");
        // The user's options hold all the same.
        let mut command = under(&prepared, &program, arguments);
        let ran = adds_and_joins(&prepared, {
            command.env("ASAN_OPTIONS", "help=1");
            command
        });
        assert!(ran.err.contains("verify_asan_link_order"), "{name}: {ran:?}");
    }
}

#[test]
fn a_program_with_address_sanitizer_finds_its_errors_under_baton() {
    let prepared = Serving::arena("64MiB").prepare();
    let Some(program) = sanitized("broken") else { return };
    let ended = Running::start(&mut under(&prepared, &program, &[]), false, None).finish(LIMIT);
    assert!(ended.err.contains("heap-use-after-free"), "{ended:?}");
}

#[test]
fn a_program_with_address_sanitizer_joins_by_its_environment_too() {
    let coordinator = Serving::arena("64MiB").start();
    // The program itself has to let others come first here, or to have no options of its own.
    let Some(program) = sanitized("doors_link") else { return };
    let ran = Running::start(&mut coordinator.place.joining("sanitized", &program, &[]), false, None).finish(LIMIT);
    assert!(ran.succeeded().out.ends_with("vector add ok\n"));
    assert!(coordinator.log().contains("sanitized ("), "{}", coordinator.log());
}

#[test]
fn what_the_user_preloads_comes_before_baton() {
    let prepared = Serving::arena("64MiB").prepare();
    let program = built().programs.join("doors_dlopen");
    let ours = built().programs.join("libfirst_malloc.so").display().to_string();
    let wrapper = built().programs.join("libwrap_dlopen.so").display().to_string();
    let tcmalloc = installed("libtcmalloc_minimal.so.4").or_else(|| installed("libtcmalloc.so.4"));
    let both = runtime().map(|runtime| format!("{runtime}:{wrapper}"));
    let lists = [Some(ours), runtime(), Some(wrapper), both, tcmalloc, installed("libjemalloc.so.2")];
    for list in lists.into_iter().flatten() {
        for name in ["libcuda.so.1", "libcuda.so"] {
            let mut command = under(&prepared, &program, &[name, "now"]);
            // Of the command itself, which is none of this, a sanitizer would say what it leaks.
            command.env("LD_PRELOAD", &list).env("ASAN_OPTIONS", "detect_leaks=0").env("WRAP_LOG", "/dev/null");
            adds_and_joins(&prepared, command);
        }
    }
}

/// A library that the loader's cache lists.
fn installed(name: &str) -> Option<String> {
    let listed =
        ["ldconfig", "/sbin/ldconfig"].into_iter().find_map(|tool| Command::new(tool).arg("-p").output().ok())?;
    let listed = String::from_utf8(listed.stdout).ok()?;
    let found = listed.lines().find(|line| line.trim().starts_with(name) && line.contains("x86-64"));
    let path = found.and_then(|line| line.split(" => ").nth(1)).map(str::to_owned);
    if path.is_none() {
        eprintln!("skipped: {name} is not installed");
    }
    path
}
