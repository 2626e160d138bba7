//! Every hooked symbol answers under Baton as on the bare driver, called rightly and wrongly.

use std::ffi::{CStr, c_char};

use baton_tests::coordinator::Serving;
use baton_tests::{Driver, built, run, same_both_ways};

/// Answers that differ for a program that shares the GPU, by the beginnings of `call_each`'s lines.
const OTHERWISE: [&str; 4] = [
    // docs/limits.md.
    "cuStreamBeginCaptureToCig",
    // Refused before the driver is asked, which would clear the answer.
    "cuMemAlloc_v2 a million GiB",
    // Refused whole, where the driver copies until it comes to the wrong one.
    "cuMemcpyBatchAsync",
    // Hardware can decompress into the driver's own memory, not into extents.
    "cuPointerGetAttribute 21 ",
];

/// The symbols that `libbaton.so` says it hooks.
fn hooked() -> Vec<String> {
    type Query = unsafe extern "C" fn(usize) -> *const c_char;
    // SAFETY: libbaton.so runs nothing when loaded.
    let library = unsafe { libloading::Library::new(built().shim()) }.expect("libbaton.so was built");
    // SAFETY: the signature of this export.
    let query = unsafe { library.get::<Query>(b"baton_hooked") }.expect("exported");
    let mut names: Vec<_> = (0..)
        // SAFETY: any index may be asked for.
        .map(|n| unsafe { query(n) })
        .take_while(|name| !name.is_null())
        // SAFETY: not null, so a C string that lives as long as the library.
        .map(|name| unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn the_table_program_calls_every_hooked_symbol() {
    let program = built().bin.join("call_each");
    let listed = run(Driver::simulated().bare(program).arg("--list")).succeeded();
    assert_eq!(listed.out.lines().map(str::to_owned).collect::<Vec<_>>(), hooked());
}

#[test]
fn every_hooked_symbol_found_by_name_answers_the_same() {
    let outcome = same_both_ways(&Driver::simulated(), &built().bin.join("call_each"), &[]).succeeded();
    println!("{}", outcome.out.lines().last().unwrap_or_default());
}

#[test]
fn every_hooked_symbol_found_by_cugetprocaddress_answers_the_same() {
    let program = built().bin.join("call_each");
    same_both_ways(&Driver::simulated(), &program, &["--through", "procaddress"]).succeeded();
}

#[test]
fn every_hooked_symbol_answers_the_same_to_a_program_that_shares_the_gpu() {
    let program = built().bin.join("call_each");
    let coordinator = Serving::arena("256MiB").start();
    let bare = run(&mut Driver::simulated().bare(&program)).succeeded();
    let shared = run(&mut coordinator.place.joining("each", &program, &[])).succeeded();
    let differ: Vec<String> = (bare.out.lines().zip(shared.out.lines()))
        .filter(|(bare, shared)| bare != shared && !OTHERWISE.iter().any(|known| bare.starts_with(known)))
        .map(|(bare, shared)| format!("bare:   {bare}\nshared: {shared}"))
        .collect();
    assert!(differ.is_empty(), "{}", differ.join("\n"));
    assert_eq!(bare.out.lines().count(), shared.out.lines().count());
}
