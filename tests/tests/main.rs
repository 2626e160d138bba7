//! The end-to-end tests, a module for each file of this folder.
//!
//! `timed` are modules in whose tests time plays a part: programs take turns, are stopped, killed or evicted at some
//! moment, or are measured. `tests/stress` runs each of their tests many times; it reads these lines.

mod agreement; // timed
mod ahead; // timed
mod arriving; // timed
mod bench; // timed
mod beside; // timed
mod budgets; // timed
mod cancelled; // timed
mod copies; // timed
mod corun; // timed
mod delivery; // timed
mod demo; // timed
mod descriptors; // timed
mod doctor; // timed
mod doors; // plain
mod environment; // timed
mod every_hook; // plain
mod failures; // timed
mod first; // timed
mod fitting; // timed
mod footprints; // timed
mod fuzzed; // timed
mod generated; // timed
mod guests; // timed
mod immovable; // timed
mod interfaces; // timed
mod joining; // timed
mod kept; // timed
mod kubernetes; // timed
mod launcher; // timed
mod ledger; // timed
mod legal; // timed
mod loaders; // timed
mod malformed; // timed
mod metrics; // timed
mod mute; // timed
mod namespaces; // timed
mod needing; // timed
mod newer; // timed
mod nvml; // timed
mod observe; // timed
mod older; // timed
mod outsiders; // timed
mod page; // timed
mod pausing; // timed
mod peers; // timed
mod printing; // timed
mod quiet; // plain
mod quotas; // timed
mod ready; // timed
mod records; // timed
mod recut; // timed
mod resting; // timed
mod rules; // timed
mod searched; // timed
mod security; // plain
mod settings; // timed
mod sharing; // timed
mod sizes; // timed
mod steering; // timed
mod stopped; // timed
mod stopped_anywhere; // timed
mod stuck; // timed
mod taken; // timed
mod top; // timed
mod trace; // plain
mod traces; // timed
mod tutorial; // timed
mod waiting; // timed
mod why; // timed
mod zeros; // timed

#[test]
fn every_file_of_this_folder_is_a_module_that_is_timed_or_plain() {
    let folder = baton_tests::root().join("tests/tests");
    for entry in std::fs::read_dir(folder).expect("the repository's own folder") {
        let name = entry.expect("a readable folder").file_name().into_string().expect("UTF-8");
        let module = name.strip_suffix(".rs").expect("files of Rust alone");
        let lines = ["timed", "plain"].map(|kind| format!("\nmod {module}; // {kind}\n"));
        let is_listed = lines.iter().any(|line| include_str!("main.rs").contains(line));
        assert!(module == "main" || is_listed, "main.rs has no `mod {module}; // timed` or `// plain`");
    }
}

#[test]
fn everything_that_the_tests_run_is_built() {
    let built = baton_tests::built();
    for file in ["baton", "libbaton.so", "libsimcuda.so", "call_each", "random_program", "train_mlp"] {
        assert!(built.bin.join(file).exists(), "{file}");
    }
    assert!(built.examples.join("vector_add").exists() && built.programs.join("sharing/hold").exists());
}
