//! Executes a script of `baton_tests::generated`, and prints what came of it.
//!
//! ```text
//! generated_program FILE [--rests] [--patience SECONDS]
//! ```
//!
//! FILE is the script, `-` standard input. Each thread of the script is a thread of the program. Printed are, thread by
//! thread, the answers to questions and the digests of memory that was read; nothing that differs from run to run. A call
//! that fails ends the program with exit code 4. A program of which no thread has come further for so long (30 s) is hung: it
//! says where, and ends with exit code 3.
//!
//! With `--rests`, a step that rests says `rest` and waits for a line on standard input.

mod children;
mod churn;
mod launches;
mod machine;
mod objects;
mod words;
mod work;

use std::fmt::Write as _;
use std::io::Read as _;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use baton_tests::generated::Script;
use machine::{Machine, Trouble};

/// How long no thread has to come further for the program to be hung.
const PATIENCE: u64 = 30;

struct Options {
    file: String,
    rests: bool,
    patience: Duration,
}

fn options() -> Option<Options> {
    let mut words = std::env::args().skip(1);
    let mut options = Options { file: words.next()?, rests: false, patience: Duration::from_secs(PATIENCE) };
    while let Some(word) = words.next() {
        match word.as_str() {
            "--rests" => options.rests = true,
            "--patience" => options.patience = Duration::from_secs(words.next()?.parse().ok()?),
            _ => return None,
        }
    }
    Some(options)
}

fn script(file: &str) -> Result<Script, String> {
    let mut text = String::new();
    let read = match file {
        "-" => std::io::stdin().read_to_string(&mut text).map(drop),
        file => std::fs::read_to_string(file).map(|read| text = read),
    };
    read.map_err(|error| format!("{file}: {error}"))?;
    Script::from_text(&text).map_err(|error| format!("{file}: {error}"))
}

/// How often it is looked.
const LOOK: Duration = Duration::from_millis(10);

/// Ends the process when nothing comes further any more. Patience is counted in looks: on a loaded machine this thread too gets a
/// processor seldom.
fn watch(machine: &Machine, patience: Duration) -> ! {
    let most = patience.as_millis() / LOOK.as_millis();
    let (mut seen, mut looks) = (machine.progress(), 0);
    loop {
        thread::sleep(LOOK);
        let now = machine.progress();
        (seen, looks) = if now == seen { (seen, looks + 1) } else { (now, 0) };
        if looks > most {
            let mut story = String::from("hung\n");
            for (number, steps) in machine.script.threads.iter().enumerate() {
                let at = machine.done[number].load(Ordering::Acquire);
                if let Some(step) = steps.get(at) {
                    let is = if machine.is_waiting(step) { "waits for others before" } else { "is in" };
                    let _ = writeln!(story, "thread {number} {is} {:?}, step {at}", step.call);
                }
            }
            end(machine, &story, 3);
        }
    }
}

/// Prints what there is and ends the process, whatever its threads do.
fn end(machine: &Machine, story: &str, code: i32) -> ! {
    print!("{}", machine.printed());
    let _ = std::io::Write::flush(&mut std::io::stdout());
    eprint!("{story}");
    // SAFETY: ends the process at once: threads that hang inside the driver could keep its exit handlers waiting.
    unsafe { libc::_exit(code) }
}

fn main() -> ExitCode {
    let Some(options) = options() else {
        eprintln!("generated_program FILE [--rests] [--patience SECONDS]");
        return ExitCode::from(2);
    };
    let script = match script(&options.file) {
        Ok(script) => script,
        Err(why) => {
            eprintln!("generated_program: {why}");
            return ExitCode::from(2);
        }
    };
    let machine = match Machine::start(script, options.rests) {
        Ok(machine) => &*Box::leak(Box::new(machine)),
        Err(Trouble { what, answer }) => {
            eprintln!("generated_program: {what} answered {answer}");
            return ExitCode::from(4);
        }
    };
    thread::spawn(move || watch(machine, options.patience));
    let threads: Vec<_> = (0..machine.script.threads.len())
        .map(|number| {
            thread::spawn(move || {
                if let Err((step, Trouble { what, answer })) = machine.run(number) {
                    end(machine, &format!("thread {number}, step {step}: {what} answered {answer}\n"), 4);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("a thread of ours does not panic");
    }
    machine.churns.join();
    print!("{}", machine.printed());
    ExitCode::SUCCESS
}
