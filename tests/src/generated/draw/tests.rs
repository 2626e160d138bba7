//! Random programs have all the parts that they should have.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::generated::script::{Buf, Call, CopyBy, LAUNCHES, Script, Step, TOUCHES, Wide, Work};

fn scripts() -> impl Iterator<Item = Script> {
    (0..300).map(|seed| program(seed, &[Aspect::Pools], &[]).script("").0)
}

#[test]
fn programs_of_pools_make_all_calls_of_pools() {
    let all: String = scripts().map(|script| script.to_text()).collect();
    let calls = ["Create", "Destroy", "Select", "Alloc", "Free", "FreeAsync", "Trim", "Set", "Ask"];
    let figures = ["\"Used\"", "\"UsedHigh\"", "\"Reserved\"", "\"Threshold\"", "{\"Reuse\"", "\"Access\""];
    let named = calls.map(|call| format!("{{\"Pool{call}\":{{"));
    let asked = figures.map(|figure| format!("\"figure\":{figure}"));
    for text in named.iter().chain(&asked) {
        assert!(all.contains(text), "{text}");
    }
}

#[test]
fn graphs_that_allocate_are_launched_more_than_once() {
    let (mut captured, mut built, mut several) = (0, 0, 0);
    for script in scripts() {
        let (mut allocating, mut execs, mut launches) = (BTreeSet::new(), BTreeSet::new(), BTreeMap::new());
        // Threads have no order among each other here, so graphs are looked for first.
        for steps in &script.threads {
            let mut has = false;
            for step in steps {
                match &step.call {
                    Call::BeginCapture { .. } => has = false,
                    Call::Submit { work: Work::Scratch { .. }, .. } => has = true,
                    Call::EndCapture { graph, .. } if has => captured += u32::from(allocating.insert(*graph)),
                    Call::GraphAdd { graph, work: Work::Scratch { .. }, .. } => {
                        built += u32::from(allocating.insert(*graph));
                    }
                    _ => {}
                }
            }
        }
        let calls = || script.threads.iter().flatten().map(|step| &step.call);
        for call in calls() {
            match call {
                Call::Instantiate { exec, graph } if allocating.contains(graph) => drop(execs.insert(*exec)),
                _ => {}
            }
        }
        for call in calls() {
            match call {
                Call::Launch { exec, .. } if execs.contains(exec) => *launches.entry(*exec).or_insert(0) += 1,
                _ => {}
            }
        }
        several += launches.values().filter(|times| **times > 1).count();
    }
    assert!(captured > 5 && built > 5 && several > 5, "{captured} captured, {built} built, {several} launched again");
}

/// Programs that are looked at.
const MANY: u64 = 100;

/// That scripts of programs with an aspect contain each of these.
fn contains(aspect: Aspect, texts: &[&str]) {
    let all: String = (0..MANY).map(|seed| program(seed, &[aspect], &[]).script("").0.to_text()).collect();
    for text in texts {
        assert!(all.matches(text).count() > 2, "{aspect:?}: {text}");
    }
}

#[test]
fn programs_of_words_write_and_cut_them_in_all_ways() {
    let by = ["Wide", "Halves", "Batch", "Odd", "Flat", "Solid", "HostFunction"].map(|by| format!("\"by\":\"{by}\""));
    let by: Vec<&str> = by.iter().map(String::as_str).collect();
    contains(
        Aspect::Words,
        &[&by[..], &["{\"Fill\":1}", "{\"Fill\":2}", "{\"Fill\":4}", "{\"Addresses\":", "{\"Data\":"]].concat(),
    );
}

/// How many scripts' steps are such, of programs with an aspect.
fn steps_of(aspect: Aspect, is_such: impl Fn(&Call) -> bool) -> usize {
    let scripts = (0..MANY).map(|seed| program(seed, &[aspect], &[]).script("").0);
    scripts.map(|script| script.threads.iter().flatten().filter(|step| is_such(&step.call)).count()).sum()
}

#[test]
fn programs_of_words_copy_by_calls_that_do_it_otherwise() {
    for wanted in [CopyBy::Batch, CopyBy::Peer] {
        let is_such = |call: &Call| matches!(call, Call::Submit { work: Work::Copy { by, .. }, .. } if *by == wanted);
        let copies = steps_of(Aspect::Words, is_such);
        assert!(copies > 2, "{wanted:?}: {copies}");
    }
}

#[test]
fn programs_launch_kernels_and_graphs_in_all_ways() {
    let launches = LAUNCHES.map(|by| format!("{{\"LaunchBy\":{{\"by\":\"{by:?}\"}}}}"));
    contains(Aspect::Launches, &launches.each_ref().map(String::as_str));
    contains(Aspect::Graphs, &["{\"GraphClone\":", "{\"Upload\":", "\"in_rows\":true"]);
}

#[test]
fn memory_is_also_variables_of_code_and_managed() {
    contains(Aspect::Variables, &["{\"VariableLoad\":", "{\"VariableUnload\":"]);
    let is_managed = |call: &Call| matches!(call, Call::HostAlloc { kind: HostKind::Managed, .. });
    let managed = steps_of(Aspect::Managed, is_managed);
    assert!(managed > 15, "{managed}");
}

/// Kernels of programs follow chains of several nodes, tables that kernels have made, and tables in memory of all kinds.
#[test]
fn kernels_follow_chains_and_tables_wherever_they_are() {
    let (mut chases, mut deep, mut in_variables, mut in_managed) = (0, 0, 0, 0);
    for seed in 0..MANY {
        let with = [Aspect::Chains, Aspect::Host, Aspect::Variables, Aspect::Managed, Aspect::Tables];
        let (script, _) = program(seed, &with, &[]).script("");
        let (mut leads, mut made, mut variables, mut managed) = Default::default();
        let [leads, made, variables, managed]: [&mut BTreeSet<Buf>; 4] =
            [&mut leads, &mut made, &mut variables, &mut managed];
        for step in script.threads.iter().flatten() {
            match &step.call {
                Call::VariableLoad { mem, .. } => drop(variables.insert(Buf::Mem(*mem))),
                Call::HostAlloc { host, kind: HostKind::Managed, .. } => drop(managed.insert(Buf::Host(*host))),
                Call::Submit { work: Work::Words { out, words: Wide::Node(Some(_), _), .. }, .. } => {
                    leads.insert(*out);
                }
                Call::Submit { work: Work::Chase { from, .. }, .. } => chases += u32::from(leads.contains(from)),
                Call::Submit { work: Work::Gather { out, table, .. }, .. } => {
                    deep += u32::from(made.contains(table));
                    in_variables += u32::from(variables.contains(table));
                    in_managed += u32::from(managed.contains(table));
                    made.insert(*out);
                }
                _ => {}
            }
        }
    }
    let counts = [chases, deep, in_variables, in_managed];
    assert!(counts.iter().all(|count| *count > 5), "{counts:?}");
}

#[test]
fn programs_that_come_and_go_do_so_in_all_ways() {
    let churns = ["Primary", "Contexts", "Modules", "Frees"].map(|churn| format!("\"churn\":\"{churn}\""));
    contains(Aspect::Churn, &churns.each_ref().map(String::as_str));
    contains(Aspect::Modules, &["{\"ModuleLoad\":", "{\"ModuleUnload\":"]);
    contains(Aspect::Gpus, &["{\"ContextRetain\":"]);
}

#[test]
fn children_make_all_calls() {
    let touches = TOUCHES.map(|touch| format!("\"{touch:?}\""));
    contains(Aspect::Touches, &touches.each_ref().map(String::as_str));
}

/// In a thread's steps, host memory is copied or read by a kernel, and written after that, without a wait in between.
fn writes_late(steps: &[Step]) -> bool {
    let mut reads = BTreeSet::new();
    steps.iter().any(|step| match &step.call {
        Call::Submit { work: Work::Copy { from: Buf::Host(host), .. }, .. }
        | Call::Submit { work: Work::Gather { table: Buf::Host(host), .. }, .. } => {
            reads.insert(*host);
            false
        }
        Call::ContextSynchronize | Call::StreamSynchronize { .. } | Call::EventSynchronize { .. } => {
            reads.clear();
            false
        }
        Call::HostTable { host, .. } => reads.contains(host),
        _ => false,
    })
}

#[test]
fn addresses_are_written_behind_the_calls_that_read_them() {
    let late = (0..MANY).map(|seed| program(seed, &[Aspect::Late], &[]).script("").0);
    let late = late.filter(|script| script.threads.iter().any(|steps| writes_late(steps))).count();
    assert!(late > 15, "{late} of {MANY}");
}

#[test]
fn kernels_follow_addresses_that_streams_wrote() {
    let mut gathers = 0;
    for seed in 0..MANY {
        for steps in program(seed, &[Aspect::Words], &[]).script("").0.threads {
            let mut tables = BTreeSet::new();
            for step in steps {
                match step.call {
                    Call::Submit { work: Work::Words { out, words: Wide::Addresses(_), .. }, .. } => {
                        tables.insert(out);
                    }
                    Call::Submit { work: Work::Gather { table, .. }, .. } => {
                        gathers += u32::from(tables.contains(&table))
                    }
                    _ => {}
                }
            }
        }
    }
    assert!(gathers > 15, "{gathers}");
}
