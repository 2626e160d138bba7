//! The `baton` command.

#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;

use baton_cli::container::{cdi, kubernetes};
use baton_cli::{
    CliError, doctor, evict, explain, fit, logs, named, ps, records, run, serve, set, shell, stats, status, stop, top,
    trace, upgrade, why,
};
use baton_client::driver::Choice;
use baton_workbench::output::{print_with, remark, say};
use baton_workbench::{bench, demo};
use clap::{CommandFactory as _, Parser, Subcommand};

/// Many unmodified CUDA programs take turns on one GPU.
#[derive(Parser)]
#[command(name = "baton", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a program that shares the GPU, with a coordinator that is started if there is none.
    ///
    /// Where the program can see several GPUs (`CUDA_VISIBLE_DEVICES`), a coordinator is started for the first one: `baton serve`
    /// starts one for all. A process shares each GPU that it uses and that has a coordinator, and is on all of them or on none. A GPU
    /// without a coordinator it uses as if Baton were not there. With `--gpu N`, GPU N is the one that is shared;
    /// with `--gpu any`, the one of those that are served with the most room, or else the fewest programs at work.
    Run(run::Run),
    /// Coordinate a GPU: own its memory, and decide which programs run.
    Serve(serve::Serve),
    /// Show the state of a coordinator and its programs.
    Status(status::StatusArgs),
    /// List the programs, a line each, with the process ids that nvidia-smi shows.
    Ps(ps::Ps),
    /// Show live the GPU's owner, the programs' states, and the places of their memory. `?` lists the keys.
    Top(top::Top),
    /// Show totals of the last seconds: the GPU's owners, copies, and the times of waits and requests.
    Stats(stats::Stats),
    /// Print the events, a line each.
    Logs(logs::Logs),
    /// Explain why a program waits, since when, and the change that would help.
    Why(why::Why),
    /// Write down the GPU's owners over time, with reasons: as a trace for Perfetto, a page or a picture.
    ///
    /// The trace is for https://ui.perfetto.dev, which reads it in your browser and sends it nowhere.
    Trace(trace::Trace),
    /// List the records of events that coordinators leave behind: `stats`, `logs`, `trace` and `why` read them.
    Records(records::Records),
    /// Move memory of programs to the host, as soon as their work in flight has ended.
    Evict(named::Waited),
    /// Bring memory of idle programs back to the GPU before they need it, as far as there is free room.
    Prefetch(evict::Prefetch),
    /// Change how a program is scheduled while it runs: its class, weight, or target.
    Set(set::Set),
    /// Take programs off the GPU, in the middle of their work, and keep them off until `baton resume`.
    #[command(alias = "pause")]
    Suspend(named::Waited),
    /// Let suspended programs go on.
    Resume(named::Waited),
    /// Shared GPUs as devices for containers, by the Container Device Interface (CDI).
    #[command(subcommand)]
    Cdi(cdi::Cdi),
    /// Shared GPUs as resources of a Kubernetes node.
    #[command(subcommand)]
    K8s(kubernetes::Kubernetes),
    /// Tell whether programs fit the GPU, before they start: the memory on it, the cost of a switch, and the host memory needed.
    ///
    /// The exit code is 1 if they do not.
    Fit(fit::FitArgs),
    /// End the coordinator: it takes no new programs and ends after the last one.
    Stop(stop::Stop),
    /// Have this version's coordinator follow the one that serves, while programs go on.
    Upgrade(upgrade::Upgrade),
    /// Show the abilities of this machine, and what is missing.
    Doctor(doctor::Doctor),
    /// Explain a message: `baton explain B0301`.
    Explain(explain::Explain),
    /// Print the script with which a shell completes `baton` commands: `baton completions bash`.
    Completions(shell::Completions),
    /// The names of programs, which shells offer.
    #[command(hide = true)]
    Names(shell::Names),
    /// Write the manual's pages into a folder.
    #[command(hide = true)]
    Man(shell::Man),
    /// A program that `baton doctor` runs.
    #[command(hide = true)]
    Trial(doctor::trial::Trial),
    /// Show in twenty seconds the gain from sharing a GPU, with example programs, measured here and now.
    ///
    /// Two programs that rest now and then, and that do not fit the GPU together, run one after the other and at the same time; a
    /// server answers requests beside a training with Baton and without. Each has to compute what it computes alone.
    Demo {
        /// Print one JSON object instead of text.
        #[arg(long)]
        json: bool,
        /// The driver to run on: `auto` (the GPU if there is one), `gpu`, `sim` (simulated), or a file.
        #[arg(long, default_value = "auto", value_name = "auto|gpu|sim|PATH")]
        driver: Choice,
    },
    /// Measure.
    #[command(subcommand)]
    Bench(Bench),
}

#[derive(Subcommand)]
enum Bench {
    /// Measure the time until a model server answers whose memory was moved to the host, while a trainer has the GPU.
    Switch {
        /// Print one JSON object instead of a table.
        #[arg(long)]
        json: bool,
        /// The driver to run on: `auto` (the GPU if there is one), `gpu`, `sim` (simulated), or a file.
        #[arg(long, default_value = "auto", value_name = "auto|gpu|sim|PATH")]
        driver: Choice,
        /// Requests to measure for each way of bringing memory in.
        #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=200))]
        repeat: u32,
    },
    /// Measure the time of requests while batch work runs on the same GPU, and the progress of that work.
    ///
    /// Both run together in four ways: under Baton, with `--mode exclusive`, with `--no-preempt`, and bare, without
    /// Baton. On the simulated driver kernels take modelled time, and those of different processes turns: 2 ms each if
    /// they are left alone, and 0.2 ms to change (see sim/README.md). On a GPU nothing is modelled.
    Corun(bench::corun::Options),
}

fn main() -> ExitCode {
    // Like other commands, this one ends in silence when its output is closed.
    // SAFETY: no other thread runs yet, and this is no handler of ours.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    let Arguments { command } = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return explained(&error),
    };
    // These two serve: a peer that leaves must not end them.
    if matches!(command, Command::Serve(_) | Command::K8s(_)) {
        // SAFETY: as above.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    }
    let (command, done) = match command {
        Command::Run(arguments) => ("run", run::run(arguments).map(|never| match never {})),
        Command::Serve(arguments) => {
            ("serve", serve::run(arguments).map(|code| code == 0 || std::process::exit(code.into())))
        }
        Command::Status(arguments) => ("status", status::run(arguments).map(|()| true)),
        Command::Ps(arguments) => ("ps", ps::run(arguments).map(|()| true)),
        Command::Top(arguments) => ("top", top::run(arguments).map(|()| true)),
        Command::Stats(arguments) => ("stats", stats::run(arguments).map(|()| true)),
        Command::Logs(arguments) => ("logs", logs::run(arguments).map(|()| true)),
        Command::Why(arguments) => ("why", why::run(arguments).map(|()| true)),
        Command::Prefetch(arguments) => ("prefetch", evict::prefetch(arguments)),
        Command::Records(arguments) => ("records", records::run(arguments).map(|()| true)),
        Command::Fit(arguments) => ("fit", fit::run(arguments)),
        Command::Stop(arguments) => ("stop", stop::run(arguments).map(|()| true)),
        Command::Upgrade(arguments) => ("upgrade", upgrade::run(arguments).map(|()| true)),
        Command::Cdi(cdi) => ("cdi", cdi::run(&cdi).map(|()| true)),
        Command::K8s(kubernetes) => ("k8s", kubernetes::run(kubernetes).map(|()| true)),
        Command::Trace(arguments) => ("trace", trace::run(arguments).map(|()| true)),
        Command::Evict(arguments) => ("evict", evict::run(arguments)),
        Command::Set(arguments) => ("set", set::set(arguments).map(|()| true)),
        Command::Suspend(arguments) => ("suspend", set::suspend(arguments)),
        Command::Resume(arguments) => ("resume", set::resume(arguments)),
        Command::Completions(arguments) => {
            ("completions", shell::completions(Arguments::command(), &arguments).map(|()| true))
        }
        Command::Names(arguments) => ("names", shell::names(arguments).map(|()| true)),
        Command::Man(arguments) => ("man", shell::man(Arguments::command(), &arguments).map(|()| true)),
        Command::Explain(arguments) => ("explain", explain::run(arguments).map(|()| true)),
        Command::Doctor(arguments) => ("doctor", doctor::run(&arguments)),
        Command::Trial(arguments) => ("trial", doctor::trial::play(&arguments).map(|()| true)),
        Command::Bench(Bench::Switch { json, driver, repeat }) => {
            let report = bench::switch::run(&driver, repeat, json).map_err(CliError::from);
            ("bench switch", report.map(|report| report.outputs_match))
        }
        Command::Bench(Bench::Corun(options)) => {
            let report = bench::corun::run(&options).map_err(CliError::from);
            ("bench corun", report.map(|report| report.outputs_match))
        }
        Command::Demo { json, driver } => {
            ("demo", demo::run(&driver, json).map(|report| report.outputs_match).map_err(CliError::from))
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let code = error.code();
            say(command, error);
            ExitCode::from(code)
        }
    }
}

/// Prints clap's output: the help that was asked for, or the error in the command line.
fn explained(error: &clap::Error) -> ExitCode {
    let is_wrong = error.use_stderr();
    let printed = if is_wrong { error.print() } else { print_with(|_| error.print()) };
    match (is_wrong, printed) {
        // Other codes belong to the program.
        (true, _) if std::env::args_os().nth(1).is_some_and(|word| word == "run") => ExitCode::from(run::FAILED),
        (false, Err(error)) => {
            remark(&baton_messages::of_baton(error));
            ExitCode::FAILURE
        }
        _ => ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(1)),
    }
}
