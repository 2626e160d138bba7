//! A driver that opens another driver by its path gets that one, and its programs get Baton.

use std::path::{Path, PathBuf};
use std::process::Command;

use baton_tests::coordinator::{Prepared, Serving};
use baton_tests::running::Running;
use baton_tests::{LIMIT, built, clean, run, sanitizer};

/// When such a driver opens the other one, and how (see `tests/c/loader_driver.c`).
const WHEN: [&str; 5] = ["constructor", "init", "call", "thread", "helper"];

/// A folder with a driver that is a loader, and the one that it opens, named as WSL has them.
struct Loader {
    folder: tempfile::TempDir,
}

impl Loader {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let link = |from: &Path, to: &str| {
            let to = folder.path().join(to);
            std::fs::create_dir_all(to.parent().expect("a folder")).expect("a new folder");
            std::os::unix::fs::symlink(from, to).expect("a new link");
        };
        link(&built().programs.join("libloader_driver.so"), "lib/libcuda.so.1");
        link(Path::new("libcuda.so.1"), "lib/libcuda.so");
        link(&built().bin.join("libsimcuda.so"), "drivers/libcuda.so.1.1");
        link(&built().bin.join("libsimcuda.so"), "drivers/driver-proper.so");
        Self { folder }
    }

    fn library(&self) -> PathBuf {
        self.folder.path().join("lib/libcuda.so.1")
    }

    fn set(&self, command: &mut Command, when: &str) {
        command.env("LOADER_OPENS", self.folder.path().join("drivers/libcuda.so.1.1")).env("LOADER_WHEN", when);
        command.env("LOADER_HELPER", built().programs.join("libloader_helper.so"));
    }

    fn bare(&self, program: &Path, when: &str) -> Command {
        let mut command = clean(program);
        command.env("LD_LIBRARY_PATH", self.folder.path().join("lib"));
        self.set(&mut command, when);
        command
    }

    fn under_baton(&self, program: &Path, when: &str) -> Command {
        let mut command = self.bare(program, when);
        command.env("LD_PRELOAD", built().shim()).env("BATON_LOG", "/dev/null");
        command
    }
}

/// How often each function was called through Baton when this program ran.
#[track_caller]
fn calls(loader: &Loader, program: &Path, arguments: &[&str], when: &str) -> String {
    let file = loader.folder.path().join("trace.json");
    let mut command = loader.under_baton(program, when);
    run(command.args(arguments).env("BATON_TRACE", "counts").env("BATON_TRACE_FILE", &file)).succeeded();
    std::fs::read_to_string(file).expect("a trace")
}

/// Each of these programs, with its arguments, gets the driver that the first one opens.
#[track_caller]
fn get_that_one(programs: &[(PathBuf, &[&str])]) {
    let loader = Loader::new();
    for when in WHEN {
        for (program, arguments) in programs {
            let bare = run(loader.bare(program, when).args(*arguments)).succeeded();
            assert!(bare.out.ends_with("vector add ok\n"), "{when}: {bare:?}");
            let under = run(loader.under_baton(program, when).args(*arguments));
            assert_eq!(under, bare, "{when}: {}", program.display());
            let disabled = run(loader.under_baton(program, when).args(*arguments).env("BATON_DISABLE", "1"));
            assert_eq!(disabled, bare, "{when}, disabled: {}", program.display());
            let calls = calls(&loader, program, arguments, when);
            assert!(calls.contains("\"cuLaunchKernel\""), "{when}: it went past Baton: {calls}");
        }
    }
}

#[test]
fn a_driver_that_opens_another_one_by_its_path_gets_that_one() {
    let program = |name: &str| built().programs.join(name);
    get_that_one(&[
        (program("doors_link"), &[]),
        (program("doors_dlopen"), &["libcuda.so.1", "now"]),
        (program("doors_dlopen"), &["libcuda.so", "lazy,deepbind"]),
    ]);
}

/// A driver gets the other one behind a library that is preloaded before Baton.
#[track_caller]
fn gets_it_behind(first: &str) {
    let loader = Loader::new();
    let (program, arguments) = (built().programs.join("doors_dlopen"), ["libcuda.so.1", "now"]);
    for when in WHEN {
        let mut command = loader.under_baton(&program, when);
        let list = format!("{first}:{}", built().shim().display());
        command.args(arguments).env("LD_PRELOAD", list).env("WRAP_LOG", "/dev/null");
        let ran = run(&mut command).succeeded();
        assert!(ran.out.ends_with("vector add ok\n"), "{when}: {ran:?}");
    }
}

#[test]
fn such_a_driver_gets_it_behind_a_library_that_wraps_dlopen_too() {
    gets_it_behind(&built().programs.join("libwrap_dlopen.so").display().to_string());
}

#[test]
fn what_such_a_driver_says_that_a_function_is_leads_through_baton_too() {
    let loader = Loader::new();
    let program = built().programs.join("doors_procaddress");
    let list = loader.folder.path().join("list");
    std::fs::write(&list, "[[\"cuMemAlloc\", \"\", 3020, \"cuMemAlloc_v2\"]]\n").expect("a file");
    let arguments = [list.to_str().expect("UTF-8")];
    // It is asked first of all, and opens the other one then.
    for when in ["constructor", "call"] {
        let calls = calls(&loader, &program, &arguments, when);
        for name in ["cuMemAlloc_v2", "cuMemFree_v2", "cuLaunchKernel", "cuLaunchKernel_ptsz"] {
            assert!(calls.contains(&format!("\"{name}\"")), "{when}: {name} went past Baton: {calls}");
        }
    }
}

#[test]
fn so_it_does_if_the_other_one_is_called_otherwise() {
    let loader = Loader::new();
    let program = built().programs.join("doors_procaddress");
    let (list, trace) = (loader.folder.path().join("list"), loader.folder.path().join("trace.json"));
    std::fs::write(&list, "[[\"cuMemAlloc\", \"\", 3020, \"cuMemAlloc_v2\"]]\n").expect("a file");
    for when in ["constructor", "call"] {
        let mut command = loader.under_baton(&program, when);
        command.env("LOADER_OPENS", loader.folder.path().join("drivers/driver-proper.so")).arg(&list);
        run(command.env("BATON_TRACE", "counts").env("BATON_TRACE_FILE", &trace)).succeeded();
        let calls = std::fs::read_to_string(&trace).expect("a trace");
        assert!(calls.contains("\"cuMemAlloc_v2\""), "{when}: it went past Baton: {calls}");
    }
}

#[test]
fn a_program_that_opens_either_driver_by_its_path_gets_baton() {
    let loader = Loader::new();
    let program = built().programs.join("doors_dlopen");
    for path in ["lib/libcuda.so.1", "drivers/libcuda.so.1.1"] {
        let path = loader.folder.path().join(path).display().to_string();
        let calls = calls(&loader, &program, &[&path, "now"], "init");
        assert!(calls.contains("\"cuLaunchKernel\""), "{calls}");
    }
}

/// How many programs have joined, by the coordinator's log.
fn joined(prepared: &Prepared) -> usize {
    std::fs::read_to_string(prepared.place.socket().with_extension("log")).expect("a log").matches(" joined").count()
}

#[test]
fn programs_of_such_a_driver_share_its_gpu() {
    let loader = Loader::new();
    let prepared = Serving::arena("64MiB").prepare();
    for (at, when) in WHEN.into_iter().enumerate() {
        let mut command = prepared.place.baton(&["run", "--arena=64MiB", "--host-pool=64MiB", "--driver"]);
        command.arg(loader.library()).arg("--socket").arg(prepared.place.socket());
        command.arg("--").arg(built().examples.join("vector_add"));
        loader.set(&mut command, when);
        let ran = Running::start(&mut command, false, None).finish(LIMIT).succeeded();
        assert!(ran.out.ends_with(" ok\n"), "{when}: {ran:?}");
        assert_eq!(joined(&prepared), at + 1, "{when}: {ran:?}");
    }
}

mod tool {
    use super::*;

    #[test]
    #[ignore = "tool: a C compiler with AddressSanitizer"]
    fn a_program_with_address_sanitizer_gets_that_one_too() {
        get_that_one(&[
            (sanitizer::program("doors_link"), &[]),
            (sanitizer::program("doors_dlopen"), &["libcuda.so.1", "now"]),
        ]);
    }

    #[test]
    #[ignore = "tool: a C compiler with AddressSanitizer as a library"]
    fn such_a_driver_gets_it_behind_a_sanitizer_too() {
        gets_it_behind(&sanitizer::runtime());
    }
}
