//! Executes an exchange of `baton_tests::generated`, and prints what came of it.
//!
//! ```text
//! generated_exchange FILE [--rests] [--patience SECONDS]
//! ```
//!
//! The program starts itself once more, for the other process, and tells that one its steps over a socket, which is its standard
//! input there. Nothing is printed that differs from run to run. A call that fails ends the program with exit code 4. With
//! `--rests`, a step of the first process that rests says `rest` and waits for a line. If no step has ended for so long (30 s), the
//! program is hung, and ends with exit code 3.

mod side;
mod wire;

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitCode};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use baton_tests::generated::exchange::{Act, Exchange};
use side::{Passed, Side};
use wire::{Answer, Wire};

/// How many steps have ended.
static DONE: AtomicUsize = AtomicUsize::new(0);
const LOOK: Duration = Duration::from_millis(10);

/// Ends the process when nothing comes further any more.
fn watch(patience: u64, steps: &[(u8, Act)]) {
    let most = patience * 1000 / LOOK.as_millis() as u64;
    let (mut seen, mut looks) = (0, 0);
    while looks <= most {
        std::thread::sleep(LOOK);
        let now = DONE.load(Ordering::Relaxed);
        (seen, looks) = if now == seen { (seen, looks + 1) } else { (now, 0) };
    }
    eprintln!("hung\nprocess {:?} is in {:?}", steps.get(seen).map(|step| step.0), steps.get(seen).map(|step| &step.1));
    // SAFETY: ends the process at once: a thread that hangs inside the driver could keep its exit handlers waiting.
    unsafe { libc::_exit(3) }
}

/// The other process: steps come in, answers go out, until the socket ends.
fn serve() -> ExitCode {
    // SAFETY: asks the kernel to end this process with the one that started it.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let Ok(socket) = std::os::fd::AsFd::as_fd(&std::io::stdin()).try_clone_to_owned() else { return ExitCode::from(2) };
    let mut wire = Wire::new(UnixStream::from(socket));
    let mut side = Side::start(false);
    while let Some((act, passed)) = wire.receive::<Act>() {
        let done = match &mut side {
            Ok(side) => side.act(&act, passed),
            Err(why) => Err(why.clone()),
        };
        let sent = match done {
            Ok((passed, said)) => wire.send(&Answer::Said(said), passed),
            Err(why) => wire.send(&Answer::Failed(why), Passed::default()),
        };
        if sent.is_err() {
            break;
        }
    }
    ExitCode::SUCCESS
}

fn start_other() -> std::io::Result<(Child, Wire)> {
    let (here, there) = UnixStream::pair()?;
    let mut command = Command::new(std::env::current_exe()?);
    Ok((command.arg("--serve").stdin(OwnedFd::from(there)).spawn()?, Wire::new(here)))
}

/// The output of an exchange.
fn play(exchange: &Exchange, rests: bool) -> Result<String, String> {
    let mut side = Side::start(rests)?;
    let (mut other, mut wire) = start_other().map_err(|error| error.to_string())?;
    let (mut all, mut passed) = (String::new(), Passed::default());
    for (number, (who, act)) in exchange.steps.iter().enumerate() {
        let done = if *who == 0 { side.act(act, passed) } else { wire.ask(act, passed) };
        let (next, said) = done.map_err(|why| format!("process {who}, step {number}: {why}"))?;
        passed = next;
        if !said.is_empty() {
            all += &format!("{number} {said}\n");
        }
        DONE.store(number + 1, Ordering::Relaxed);
    }
    drop(wire);
    let status = other.wait().map_err(|error| error.to_string())?;
    Ok(format!("{all}the other process: {status}\n"))
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == "--serve") {
        return serve();
    }
    let text = words.first().and_then(|file| std::fs::read_to_string(file).ok());
    let Some(exchange) = text.and_then(|text| Exchange::from_text(&text).ok()) else {
        eprintln!("generated_exchange FILE [--rests] [--patience SECONDS]");
        return ExitCode::from(2);
    };
    let patience = words.iter().skip_while(|word| *word != "--patience").nth(1);
    let patience = patience.and_then(|word| word.parse().ok()).unwrap_or(30);
    let exchange: &'static Exchange = Box::leak(Box::new(exchange));
    std::thread::spawn(move || watch(patience, &exchange.steps));
    match play(exchange, words.iter().any(|word| word == "--rests")) {
        Ok(all) => {
            print!("{all}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(4)
        }
    }
}
