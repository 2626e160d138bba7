//! The end-to-end tests: one program, with a module for each file of this folder and of `same_as_bare`.
//!
//! `timed` are modules in whose tests time plays a part: programs take turns, are stopped, killed or evicted at some
//! moment, or are measured. `tests/stress` runs each of their tests many times; it reads these lines.
//!
//! Tests that need more than a C compiler are ignored unless they are asked for, in modules that say what they need: `root`, and
//! `tool` for other programs, libraries and machines. `tests/sets` runs them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

mod commands {
    mod corun_benchmark; // timed
    mod demo; // timed
    mod doctor; // timed
    mod fit; // timed
    mod printing; // timed
    mod settings; // timed
    mod steering; // timed
    mod switch_benchmark; // timed
    mod waiting; // timed
}

mod corun {
    mod corunning; // timed
}

mod documents {
    mod interfaces; // timed
    mod security; // plain
    mod tutorial; // timed
}

mod driver {
    mod call_trace; // plain
    mod exports; // plain
    mod newer; // timed
    mod nvml; // timed
    mod opened_by_path; // timed
}

mod failures {
    mod deaths; // timed
    mod extent_sizes; // timed
    mod failed_calls; // timed
    mod forced_eviction; // timed
    mod on_stuck; // timed
    mod stopped; // timed
    mod stopped_anywhere; // timed
    mod strikes; // timed
    mod takeover; // timed
    mod units; // timed
    mod upgrades; // timed
}

mod guests {
    mod allowed; // timed
    mod quotas; // timed
    mod unresponsive; // timed
}

mod join {
    mod environment; // timed
    mod joining; // timed
    mod needs; // timed
    mod not_needed; // plain
    mod pid_namespaces; // timed
    mod preload_order; // timed
    mod run; // timed
}

mod kubernetes {
    mod device_plugin; // timed
}

mod launch {
    mod before_swap_in; // timed
    mod during_swap_in; // timed
}

mod machine {
    mod all_gpus; // timed
    mod collectives; // timed
    mod gangs; // timed
    mod spanning; // timed
}

mod memory {
    mod claims; // timed
    mod coalescing; // timed
    mod delivery; // timed
    mod immovable; // timed
    mod isolation; // timed
    mod ledger; // timed
    mod passed_on; // timed
    mod scrubbed_ahead; // timed
    mod swap_in_without_copy; // timed
    mod zero_pages; // timed
}

mod peers {
    mod budgets; // timed
    mod fuzzed; // timed
    mod malformed; // timed
    mod odd_descriptors; // timed
    mod other_users; // timed
}

mod switch {
    mod idle; // timed
    mod preemption; // timed
    mod sharing; // timed
}

mod views {
    mod agreement; // timed
    mod metrics; // timed
    mod observe; // timed
    mod outsiders; // timed
    mod page; // timed
    mod records; // timed
    mod top; // timed
    mod trace; // timed
    mod why; // timed
}

#[path = "../same_as_bare"]
mod same_as_bare {
    mod cancelled_threads; // timed
    mod every_hook; // plain
    mod forked_copies; // timed
    mod generated; // timed
    mod legal; // timed
    mod older_drivers; // timed
    mod rules; // timed
}

#[test]
fn every_file_of_this_folder_is_a_module_that_is_timed_or_plain() {
    let below = |folder: &Path| {
        let entries = std::fs::read_dir(folder).expect("the repository's own folder");
        entries.map(|entry| entry.expect("a readable folder").path()).collect::<Vec<PathBuf>>()
    };
    let tests = baton_tests::root().join("tests");
    let mut folders: Vec<PathBuf> = below(&tests.join("end_to_end")).into_iter().filter(|path| path.is_dir()).collect();
    folders.push(tests.join("same_as_bare"));
    for folder in folders {
        let name = folder.file_name().expect("a folder below another").display().to_string();
        let (_, after) = include_str!("main.rs").split_once(&format!("\nmod {name} {{\n")).expect("a module");
        let (listed, _) = after.split_once("\n}\n").expect("a module ends");
        for file in below(&folder) {
            let module = file.file_stem().expect("a file").display().to_string();
            let lines = ["timed", "plain"].map(|kind| format!("mod {module}; // {kind}"));
            let is_listed = listed.lines().any(|line| lines.iter().any(|wanted| line.ends_with(wanted)));
            assert!(is_listed, "main.rs has no `mod {module}; // timed` or `// plain` in {name}");
        }
    }
}

#[test]
fn what_needs_root_or_a_tool_is_ignored_unless_it_is_asked_for() {
    let listed = |options: &[&str]| -> BTreeSet<String> {
        let mut this = Command::new(std::env::current_exe().expect("a running test has a file"));
        let output = this.args(["--list", "--format", "terse"]).args(options).output().expect("it can be run");
        let listed = String::from_utf8(output.stdout).expect("UTF-8");
        listed.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect()
    };
    let is_in_a_set = |name: &&String| ["::root::", "::tool::"].iter().any(|set| name.contains(set));
    let (all, ignored) = (listed(&[]), listed(&["--ignored"]));
    let always: Vec<&String> = all.difference(&ignored).filter(is_in_a_set).collect();
    assert!(always.is_empty(), "these fail where what they need is not there: {always:#?}");
    assert!(["::root::", "::tool::"].iter().all(|set| ignored.iter().any(|name| name.contains(set))));
}

#[test]
fn everything_that_the_tests_run_is_built() {
    let built = baton_tests::built();
    for file in ["baton", "libbaton.so", "libsimcuda.so", "call_each", "generated_program", "train_mlp"] {
        assert!(built.bin.join(file).exists(), "{file}");
    }
    assert!(built.examples.join("vector_add").exists() && built.programs.join("sharing/hold").exists());
}
