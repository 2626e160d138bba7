//! Calls every driver function that Baton hooks, rightly and wrongly, and says what came of each call.
//!
//! ```text
//! call_each                         functions found by name
//! call_each --through procaddress   functions found through cuGetProcAddress_v2
//! call_each --list                  the symbols it calls, sorted
//! ```
//!
//! A call is a line `symbol case -> result [what was seen]`, without addresses or times: two runs on one
//! driver print the same, and so does a run under Baton. The effects are compared with those that the call
//! should have done (`right`, `untouched`, `nothing done`, `wrong`), followed by a checksum; the reader
//! judges if that makes sense for the result, as drivers differ. A symbol that the driver
//! does not have answers 500, as Baton's export of it does.
//!
//! Each family of functions runs in a process of its own, so that nothing it breaks hides another, and
//! all of them run twice more: before `cuInit`, and without a context. No call here does anything that
//! a real driver leaves undefined.

mod arrays;
mod attributes;
mod batches;
mod bench;
mod boxes;
mod captures;
mod code;
mod contexts;
mod copies;
mod driver;
mod fills;
mod finding;
mod foreign;
mod graphs;
mod handles;
mod jobs;
mod kernels;
mod launches;
mod leaving;
mod mappings;
mod memory;
mod moving;
mod nodes;
mod old_boxes;
mod old_launches;
mod piece;
mod pinned;
mod pools;
mod primary;
mod questions;
mod queued;
mod streams;
mod table;
mod tensor_maps;
mod textures;
mod unmanaged;
mod waits;
mod words;

use std::collections::HashMap;
use std::process::{Command, ExitCode, Stdio};

use bench::{Bench, Ready, Subject};
use driver::Driver;
use table::{FAMILIES, Row};

/// Stages in which every family's cases run, and what stands before a case's name.
const UNREADY: [(&str, &str, Ready); 2] =
    [("before", "before cuInit: ", Ready::Nothing), ("without", "without a context: ", Ready::Initialised)];

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--list"] => {
            for symbol in symbols() {
                println!("{symbol}");
            }
            ExitCode::SUCCESS
        }
        [] => every_stage("name"),
        ["--through", way @ ("name" | "procaddress")] => every_stage(way),
        ["--through", way @ ("name" | "procaddress"), "--stage", stage] => one_stage(way, stage),
        _ => {
            eprintln!("usage: call_each [--list | --through name|procaddress [--stage STAGE]]");
            ExitCode::from(2)
        }
    }
}

/// The symbols that are called, sorted.
fn symbols() -> Vec<&'static str> {
    let mut symbols: Vec<_> =
        FAMILIES.iter().flat_map(|family| family.rows).flat_map(|row| row.symbols).copied().collect();
    symbols.sort_unstable();
    symbols
}

/// Runs every stage in a process of its own and counts the calls.
fn every_stage(way: &str) -> ExitCode {
    let this = std::env::current_exe().expect("a running program has a file");
    let mut calls: HashMap<&str, usize> = symbols().into_iter().map(|symbol| (symbol, 0)).collect();
    let mut good = true;
    for stage in UNREADY.iter().map(|stage| stage.0).chain(FAMILIES.iter().map(|family| family.name)) {
        println!("== {stage}");
        let output = Command::new(&this)
            .args(["--through", way, "--stage", stage])
            .stderr(Stdio::inherit())
            .output()
            .expect("the program can start itself");
        let lines = String::from_utf8_lossy(&output.stdout);
        print!("{lines}");
        if !output.status.success() {
            println!("== {stage} ended early: {}", output.status);
            good = false;
        }
        for line in lines.lines().filter(|line| line.contains(" -> ")) {
            let symbol = line.split(' ').next().unwrap_or_default();
            *calls.get_mut(symbol).unwrap_or_else(|| panic!("{symbol} is in no row")) += 1;
        }
    }
    println!("{} symbols, {} calls", calls.len(), calls.values().sum::<usize>());
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs the cases of one family, or of all where they are in an unready stage.
fn one_stage(way: &str, name: &str) -> ExitCode {
    let driver = || Driver::open(way == "procaddress");
    let run = |bench: &Bench, rows: &[Row], stage| {
        for row in rows {
            for symbol in row.symbols {
                (row.run)(&Subject { bench, symbol, stage });
            }
        }
    };
    if let Some((_, stage, ready)) = UNREADY.iter().find(|stage| stage.0 == name) {
        let bench = Bench::new(driver(), *ready);
        FAMILIES.iter().for_each(|family| run(&bench, family.rows, stage));
    } else if let Some(family) = FAMILIES.iter().find(|family| family.name == name) {
        run(&Bench::new(driver(), Ready::Context), family.rows, "");
    } else {
        eprintln!("there is no stage {name}");
        return ExitCode::from(2);
    }
    ExitCode::SUCCESS
}
