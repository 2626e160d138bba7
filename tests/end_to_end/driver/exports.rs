//! A program reaches Baton in every way to the driver, and gets the driver's answers.
//!
//! Each way is taken on the simulated driver, and among the tools on NVIDIA's own library, which `BATON_TEST_LIBCUDA` names: without
//! a GPU it answers with an error, through the same exports.

use std::path::{Path, PathBuf};

use baton_tests::{Driver, Outcome, built, clean, root, run, same_both_ways};
use serde_json::Value;

fn program(name: &str) -> PathBuf {
    built().programs.join(name)
}

fn symbol_list() -> PathBuf {
    root().join("include/symbols/cuda.json")
}

/// How many driver calls came through Baton when this program ran.
#[track_caller]
fn calls_seen(driver: &Driver, program: &Path, arguments: &[&str]) -> u64 {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("trace.json");
    run(driver.under_baton(program).args(arguments).env("BATON_TRACE", "counts").env("BATON_TRACE_FILE", &file));
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("no call came through Baton: {error}"));
    let trace: Value = serde_json::from_str(&text).expect("JSON");
    trace["calls"].as_array().expect("a list").iter().map(|call| call["calls"].as_u64().expect("a number")).sum()
}

/// Takes a way to a driver bare and under Baton, and makes sure that it led through Baton.
#[track_caller]
fn check(driver: &Driver, name: &str, arguments: &[&str]) {
    let outcome = same_both_ways(driver, &program(name), arguments);
    let calls = calls_seen(driver, &program(name), arguments);
    assert!(calls > 0, "{name} {arguments:?} on {driver:?} went past Baton: {outcome:?}");
}

fn linking(driver: &Driver) {
    check(driver, "doors_link", &[]);
}

fn opening_with_every_flag(driver: &Driver) {
    for flags in ["now,local", "now,global", "lazy,local", "now,deepbind", "lazy,deepbind,global"] {
        check(driver, "doors_dlopen", &["libcuda.so.1", flags]);
    }
}

fn opening_under_another_name(driver: &Driver) {
    check(driver, "doors_dlopen", &["libcuda.so", "now"]);
    check(driver, "doors_dlopen", &["libcuda.so", "now,deepbind"]);
    let path = driver.folder().join("libcuda.so.1");
    check(driver, "doors_dlopen", &[path.to_str().expect("UTF-8"), "now"]);
}

fn preferring_own_dependencies(driver: &Driver) {
    let library = program("libdeep.so");
    check(driver, "deep", &[library.to_str().expect("UTF-8")]);
}

fn asking_for_every_address(driver: &Driver) {
    check(driver, "doors_procaddress", &[symbol_list().to_str().expect("UTF-8")]);
}

fn calling_from_a_constructor(driver: &Driver) {
    let library = program("libfirst_call.so");
    check(driver, "first_call", &["constructor", library.to_str().expect("UTF-8")]);
}

#[test]
fn by_linking() {
    linking(&Driver::simulated());
}

#[test]
fn by_opening_the_library_with_every_flag() {
    opening_with_every_flag(&Driver::simulated());
}

#[test]
fn by_opening_the_library_under_another_name() {
    opening_under_another_name(&Driver::simulated());
}

#[test]
fn from_a_library_that_prefers_its_own_dependencies() {
    preferring_own_dependencies(&Driver::simulated());
}

#[test]
fn by_asking_for_every_address_with_every_version_and_flag() {
    asking_for_every_address(&Driver::simulated());
}

#[test]
fn by_a_first_call_while_a_librarys_constructor_makes_another() {
    calling_from_a_constructor(&Driver::simulated());
}

/// Runs a program with another library preloaded before or behind Baton. Returns that library's counts too.
#[track_caller]
fn beside(wrapper: &str, first: bool, name: &str, arguments: &[&str]) -> (Outcome, String) {
    let driver = Driver::simulated();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let log = folder.path().join("log");
    let (shim, wrapper) = (built().shim(), program(wrapper));
    let order = if first { [&wrapper, &shim] } else { [&shim, &wrapper] };
    let preload = order.map(|path| path.to_str().expect("UTF-8")).join(" ");
    let outcome =
        run(driver.under_baton(program(name)).args(arguments).env("LD_PRELOAD", preload).env("WRAP_LOG", &log));
    (outcome, std::fs::read_to_string(&log).unwrap_or_default())
}

#[test]
fn beside_another_library_that_wraps_dlsym_or_dlopen() {
    let arguments = ["libcuda.so.1", "now"];
    let expected = run(Driver::simulated().bare(program("doors_dlopen")).args(arguments)).succeeded();
    for wrapper in ["libwrap_dlsym.so", "libwrap_dlopen.so"] {
        for first in [true, false] {
            let (outcome, log) = beside(wrapper, first, "doors_dlopen", &arguments);
            assert_eq!(outcome, expected, "{wrapper}, first: {first}");
            let count: u64 = log.lines().filter_map(|line| line.split(' ').nth(1)?.parse::<u64>().ok()).sum();
            assert!(count > 0, "{wrapper}, first: {first}: it still sees the program's calls: {log:?}");
        }
    }
}

#[test]
fn beside_another_library_that_wraps_a_function_of_the_driver() {
    // Only in front of Baton, as it would be in front of the driver.
    let (outcome, log) = beside("libwrap_alloc.so", true, "doors_link", &[]);
    assert_eq!(outcome, run(&mut Driver::simulated().bare(program("doors_link"))).succeeded());
    assert!(log.starts_with("cuMemAlloc_v2 ") && !log.ends_with(" 0\n"), "{log:?}");
}

#[test]
fn beside_a_second_copy_of_baton() {
    let driver = Driver::simulated();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let copy = folder.path().join("copy.so");
    std::fs::copy(built().shim(), &copy).expect("a writable folder");
    let expected = run(&mut driver.bare(program("doors_link"))).succeeded();
    for order in [[built().shim(), copy.clone()], [copy.clone(), built().shim()]] {
        let preload = order.map(|path| path.display().to_string()).join(" ");
        assert_eq!(run(driver.under_baton(program("doors_link")).env("LD_PRELOAD", preload)), expected);
    }
}

#[test]
fn by_a_first_call_in_a_child_that_was_forked_during_another() {
    let driver = program("libslow_driver.so");
    let outcome =
        run(clean(program("first_call")).arg("fork").env("LD_PRELOAD", built().shim()).env("BATON_DRIVER", driver));
    assert_eq!(outcome.succeeded().out, "the child exits with 0\n");
}

#[test]
fn a_driver_that_is_not_there_is_not_found_by_its_path_either() {
    check_absent("/nonexistent/libcuda.so.1");
    check_absent("libcuda.so.11");
}

/// A name that no driver has must fail to open both ways.
#[track_caller]
fn check_absent(name: &str) {
    let outcome = same_both_ways(&Driver::simulated(), &program("doors_dlopen"), &[name, "now"]);
    assert_ne!(outcome.status, "exit status: 0");
}

mod tool {
    use super::*;

    #[test]
    #[ignore = "tool: python3"]
    fn from_pythons_ctypes() {
        let script = root().join("examples/python/ctypes_vector_add.py");
        let driver = Driver::simulated();
        let python = |mut command: std::process::Command| run(command.arg(&script)).succeeded();
        let bare = python(driver.bare("python3"));
        assert_eq!(bare, python(driver.under_baton("python3")));
        assert!(bare.out.trim_end().ends_with(" ok"), "{bare:?}");
    }

    #[test]
    #[ignore = "tool: NVIDIA's driver library, which BATON_TEST_LIBCUDA names"]
    fn every_way_leads_to_nvidias_own_library_too() {
        let driver = Driver::nvidias();
        for way in [
            linking,
            opening_with_every_flag,
            opening_under_another_name,
            preferring_own_dependencies,
            asking_for_every_address,
            calling_from_a_constructor,
        ] {
            way(&driver);
        }
    }
}
