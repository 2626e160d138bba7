//! The `baton` command.

use std::process::ExitCode;

use baton_coordinator::demo;
use baton_coordinator::driver::Choice;
use clap::{Parser, Subcommand};

/// Many unmodified CUDA programs take turns on one GPU.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the example programs bare and under Baton, and compare what they compute.
    Demo {
        /// Print one JSON object instead of a table.
        #[arg(long)]
        json: bool,
        /// The driver to run on: `auto` (the GPU if there is one), `sim` (simulated), or a file.
        #[arg(long, default_value = "auto", value_name = "auto|sim|PATH")]
        driver: Choice,
    },
}

fn main() -> ExitCode {
    let Arguments { command: Command::Demo { json, driver } } = Arguments::parse();
    match demo::run(&driver, json) {
        Ok(report) if report.outputs_match => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("baton demo: {error}");
            ExitCode::FAILURE
        }
    }
}
