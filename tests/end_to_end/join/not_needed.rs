//! Preloaded where it is not needed, Baton changes nothing and says nothing.

use std::process::Command;

use baton_tests::{Driver, Outcome, built, clean, run};

/// Runs a command as it is, and with Baton preloaded on a machine whose driver cannot be found.
#[track_caller]
fn same_when_preloaded(make: impl Fn() -> Command) -> Outcome {
    let bare = run(&mut make());
    let preloaded = run(make().env("LD_PRELOAD", built().shim()));
    assert_eq!(bare, preloaded, "bare (left) and preloaded (right) differ");
    preloaded
}

fn with_arguments(program: &str, arguments: &[&str]) -> Command {
    let mut command = clean(program);
    command.args(arguments);
    command
}

#[test]
fn a_shell_and_its_children_do_not_notice() {
    let script = "echo one; (echo two | cat); ls / | wc -l; exec sh -c 'echo three >&2; exit 7'";
    let outcome = same_when_preloaded(|| with_arguments("sh", &["-c", script]));
    assert_eq!(outcome.status, "exit status: 7");
}

#[test]
fn a_compiler_does_not_notice() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let source = folder.path().join("main.c");
    std::fs::write(&source, "int main(void) { return 3; }\n").expect("a writable folder");
    let program = folder.path().join("main");
    same_when_preloaded(|| {
        let mut command = clean("cc");
        command.arg("-o").arg(&program).arg(&source);
        command
    })
    .succeeded();
    assert_eq!(same_when_preloaded(|| clean(&program)).status, "exit status: 3");
}

#[test]
fn requests_to_other_devices_are_answered_as_ever() {
    let outcome = same_when_preloaded(|| clean(built().programs.join("requests"))).succeeded();
    assert!(outcome.out.contains("count 12"), "{outcome:?}");
}

#[test]
fn threads_forks_and_execs_work() {
    let program = built().programs.join("fork_quiet");
    same_when_preloaded(|| clean(&program)).succeeded();
}

#[test]
fn a_program_that_looks_for_a_gpu_is_told_that_there_is_none() {
    // A root without a driver is not at hand everywhere, so the setting names a driver that is not one.
    let outcome = run(clean(built().programs.join("doors_link"))
        .env("LD_PRELOAD", built().shim())
        .env("BATON_DRIVER", "/nonexistent/libcuda.so.1"));
    assert_eq!(outcome.out, "cuInit -> 100\n");
    assert_eq!(
        outcome.err,
        "baton: BATON_DRIVER=/nonexistent/libcuda.so.1 is not a CUDA driver that can be opened; there is no GPU for this program [B0357]\n"
    );
}

#[test]
fn the_driver_is_found_without_being_named() {
    // As the loader would: LD_LIBRARY_PATH first. Baton itself and a copy of it lie there too, under the
    // driver's name, in front of it, and are passed over.
    let driver = Driver::simulated();
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::copy(built().shim(), folder.path().join("libcuda.so.1")).expect("a writable folder");
    let itself = tempfile::tempdir().expect("a temporary folder");
    std::os::unix::fs::symlink(built().shim(), itself.path().join("libcuda.so.1")).expect("a writable folder");
    let path = [itself.path(), folder.path(), driver.folder()].map(|folder| folder.display().to_string()).join(":");
    let program = built().examples.join("vector_add");
    run(clean(&program).env("LD_PRELOAD", built().shim()).env("LD_LIBRARY_PATH", path)).succeeded();
}

#[test]
fn libbaton_needs_the_c_library_libgcc_and_the_loader_only() {
    let outcome = run(with_arguments("readelf", &["-d"]).arg(built().shim())).succeeded();
    let needed: Vec<_> = outcome.out.lines().filter(|line| line.contains("(NEEDED)")).collect();
    for line in &needed {
        let known = ["[libc.so.6]", "[libgcc_s.so.1]", "[ld-linux-x86-64.so.2]"];
        assert!(known.iter().any(|name| line.ends_with(name)), "{line}");
    }
    assert!(outcome.out.contains("Library soname: [libcuda.so.1]"));
}

#[test]
fn every_listed_name_is_exported() {
    let listed: Vec<(String, String, u32, String)> =
        serde_json::from_str(baton_contract::SYMBOLS_CUDA).expect("the list is JSON rows");
    let outcome = run(with_arguments("nm", &["-D", "--defined-only"]).arg(built().shim())).succeeded();
    let exported: Vec<_> = outcome.out.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    let missing: Vec<_> = listed.iter().filter(|row| !exported.contains(&row.3.as_str())).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

mod tool {
    use super::*;

    #[test]
    #[ignore = "tool: python3"]
    fn python_starts_workers_in_every_way() {
        for method in ["fork", "spawn", "forkserver"] {
            let script = format!(
                "import multiprocessing as m\nif __name__ == '__main__':\n  with m.get_context('{method}').Pool(2) as p: print(p.map(abs, range(-5, 0)))"
            );
            let folder = tempfile::tempdir().expect("a temporary folder");
            let file = folder.path().join("workers.py");
            std::fs::write(&file, script).expect("a writable folder");
            let outcome = same_when_preloaded(|| {
                let mut command = clean("python3");
                command.arg(&file);
                command
            });
            assert_eq!(outcome.succeeded().out, "[5, 4, 3, 2, 1]\n", "{method}");
        }
    }
}
