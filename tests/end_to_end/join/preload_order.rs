//! Sanitizers and allocators that have to be the first of all libraries are, under `baton run` and beside it.

use std::path::Path;
use std::process::Command;

use baton_tests::coordinator::{Prepared, Serving};
use baton_tests::running::Running;
use baton_tests::{LIMIT, Outcome, built, sanitizer};

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

/// Each of these lists, as a user's preload, is before Baton, and the program adds right.
#[track_caller]
fn come_before_baton(lists: &[String]) {
    let prepared = Serving::small("64MiB").prepare();
    let program = built().programs.join("doors_dlopen");
    for list in lists {
        for name in ["libcuda.so.1", "libcuda.so"] {
            let mut command = under(&prepared, &program, &[name, "now"]);
            // Of the command itself, which is none of this, a sanitizer would say what it leaks.
            command.env("LD_PRELOAD", list).env("ASAN_OPTIONS", "detect_leaks=0").env("WRAP_LOG", "/dev/null");
            adds_and_joins(&prepared, command);
        }
    }
}

/// A library of the tests' own.
fn of_tests(name: &str) -> String {
    built().programs.join(name).display().to_string()
}

#[test]
fn what_the_user_preloads_comes_before_baton() {
    come_before_baton(&[of_tests("libfirst_malloc.so"), of_tests("libwrap_dlopen.so")]);
}

/// A library that the loader's cache lists.
#[track_caller]
fn installed(name: &str) -> String {
    let mut tools = ["ldconfig", "/sbin/ldconfig"].into_iter();
    let listed = tools.find_map(|tool| Command::new(tool).arg("-p").output().ok()).expect("ldconfig");
    let listed = String::from_utf8(listed.stdout).expect("UTF-8");
    let found = listed.lines().find(|line| line.trim().starts_with(name) && line.contains("x86-64"));
    let path = found.and_then(|line| line.split(" => ").nth(1));
    path.unwrap_or_else(|| panic!("{name} is not installed")).to_owned()
}

mod tool {
    use super::*;

    #[test]
    #[ignore = "tool: a C compiler with AddressSanitizer"]
    fn a_program_with_address_sanitizer_runs_under_baton() {
        let prepared = Serving::small("64MiB").prepare();
        let ways: [(&str, &[&str]); 3] =
            [("doors_link", &[]), ("doors_dlopen", &["libcuda.so.1", "now"]), ("with_options", &[])];
        for (name, arguments) in ways {
            let program = sanitizer::program(name);
            let ran = adds_and_joins(&prepared, under(&prepared, &program, arguments));
            // Another one may just be ending.
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
    #[ignore = "tool: a C compiler with AddressSanitizer"]
    fn a_program_with_address_sanitizer_finds_its_errors_under_baton() {
        let prepared = Serving::small("64MiB").prepare();
        let program = sanitizer::program("broken");
        let ended = Running::start(&mut under(&prepared, &program, &[]), false, None).finish(LIMIT);
        assert!(ended.err.contains("heap-use-after-free"), "{ended:?}");
    }

    #[test]
    #[ignore = "tool: a C compiler with AddressSanitizer"]
    fn a_program_with_address_sanitizer_joins_by_its_environment_too() {
        let coordinator = Serving::small("64MiB").start();
        // The program itself has to let others come first here, or to have no options of its own.
        let program = sanitizer::program("doors_link");
        let ran = Running::start(&mut coordinator.place.joining("sanitized", &program, &[]), false, None).finish(LIMIT);
        assert!(ran.succeeded().out.ends_with("vector add ok\n"));
        assert!(coordinator.log().contains("sanitized ("), "{}", coordinator.log());
    }

    #[test]
    #[ignore = "tool: a C compiler with AddressSanitizer as a library"]
    fn a_sanitizer_that_the_user_preloads_comes_before_baton() {
        come_before_baton(&[
            sanitizer::runtime(),
            format!("{}:{}", sanitizer::runtime(), of_tests("libwrap_dlopen.so")),
        ]);
    }

    #[test]
    #[ignore = "tool: tcmalloc and jemalloc"]
    fn an_allocator_that_the_user_preloads_comes_before_baton() {
        come_before_baton(&["libtcmalloc_minimal.so.4", "libjemalloc.so.2"].map(installed));
    }
}
