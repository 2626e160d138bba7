//! `baton serve`: the coordinator of all GPUs, or some, until it is stopped.

mod gpus;

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use baton_client as client;
use baton_client::install::Install;
use baton_contract::memory::size;
use baton_contract::wire::GpuNumber;
use baton_coordinator::endpoint::{Passed, serving_at};
use baton_coordinator::keeper::{self, Again, Death, End, Inherited, Keeper, Left, Start};
use baton_coordinator::server::Machine;
use baton_workbench::output::{print, say};
use clap::Args;
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};
use signal_hook::consts::SIGHUP;

use super::service::{self, Served, Sources};
use super::settings::Settings;
use super::units::Gpus;
use super::{CliError, gpu_uuid, journal, named_socket, web};
use gpus::{Common, Ended, Job, NotServed, Ready, Servers};

/// The byte with which `--poison` fills memory: a program must not find it in its own.
const POISON: u8 = 0xDB;

/// `baton serve`.
#[derive(Clone, Debug, Args)]
pub struct Serve {
    #[command(flatten)]
    settings: Settings,
    /// A TOML file with the same settings; the command line and variables go first. It is read again at SIGHUP.
    #[arg(long, value_name = "FILE.toml", env = "BATON_SERVE_CONFIG")]
    config: Option<PathBuf>,
    /// Print all settings as they would hold, as the text of such a file, and end.
    #[arg(long)]
    print_config: bool,
    /// End after the last program has left.
    #[arg(long, hide = true)]
    until_idle: bool,
    /// For tests: fill freed and evicted memory with a pattern instead of zeros.
    #[arg(long, hide = true)]
    poison: bool,
    /// For tests: how often in a minute a coordinator or keeper that has died is started again.
    #[arg(long, hide = true, value_name = "COUNT", default_value_t = 3)]
    restarts: usize,
    /// For tests: the seconds after which a coordinator that does nothing more is killed, and followed by another one.
    #[arg(long, hide = true, value_name = "SECONDS", default_value_t = 60)]
    hangs: u64,
    /// The descriptor that leads to the keeper which has started this coordinator.
    #[arg(long, hide = true, value_name = "NUMBER")]
    kept_by: Option<i32>,
    /// The descriptor that leads to the coordinator which has started this keeper.
    #[arg(long, hide = true, value_name = "NUMBER")]
    keeps: Option<i32>,
    /// The descriptor of the socket that a service manager has passed on to the keeper.
    #[arg(long, hide = true, value_name = "NUMBER")]
    passed: Option<i32>,
}

/// How often it is tried to take a GPU over, before the others are served without it.
const MOST_FAILURES: u8 = 2;

/// The options for the two roles, and for the socket that the keeper passes on.
const KEPT_BY: &str = "--kept-by";
const KEEPS: &str = "--keeps";
const PASSED: &str = "--passed";
/// The variable in which a keeper passes its settings on.
const KEPT_SETTINGS: &str = "BATON_KEPT_SETTINGS";

/// Runs a coordinator until it is stopped.
///
/// # Errors
///
/// When it cannot be started with these settings: the message says what to change.
pub fn run(serve: Serve) -> Result<u8, CliError> {
    let Serve { settings, config, print_config, until_idle, poison, restarts, hangs, kept_by, keeps, passed } = serve;
    settings.check()?;
    // The closing of a terminal ends a coordinator that runs in it. Any other one reads its settings again, once it serves: also if it is
    // told to from here on.
    let reloads = !std::io::stderr().is_terminal();
    let mut signals = signal_hook::iterator::Signals::new(kept_by.and(reloads.then_some(SIGHUP)))?;
    // It would be called `exe` where the keeper starts it.
    let _ = rustix::thread::set_name(c"baton");
    let mut sources = Sources::new(settings, config);
    let mut all = match (sources.read(), kept_by.or(keeps).and_then(|_| kept_settings())) {
        // Its programs go on, whatever the file says by now.
        (Err(error), Some(before)) => {
            say("serve", baton_messages::settings_stay(error));
            before
        }
        (read, _) => read?,
    };
    all.check_together()?;
    if print_config {
        return Ok(print(&all.text()).map(|()| 0)?);
    }
    let set = "a setting that is usual";
    journal::start()?;
    log::set_max_level(all.log_level());
    raise_descriptor_limit();
    let passed = match passed {
        Some(number) => Some(given(number)?),
        None => service::passed_socket()?,
    };
    if !all.no_keeper.expect(set) && kept_by.is_none() {
        return keep(
            Again { most: restarts, orphan_wait: all.orphan_wait.expect(set).0, hangs: Duration::from_secs(hangs) },
            keeps.map(given).transpose()?,
            passed,
            &all,
        );
    }
    // A keeper that takes the place of one that is gone passes it on too.
    let for_keeper = passed.as_ref().map(OwnedFd::try_clone).transpose()?;
    let passed = passed.map(Passed::new).transpose()?;
    baton_faults::begin_as(baton_faults::Role::Starting);
    end_at_once_in_a_panic();
    let install = Install::of_this_program()?;
    let choice = all.driver();
    let library = choice.library(&install)?;
    choice.set()?;

    if let Some(number) = passed.as_ref().and_then(|passed| service::gpu_of(passed.path(), library.as_deref())) {
        sources.suggest_gpu(number);
        all = sources.read().unwrap_or(all);
    }
    if !all.guests()?.0.is_empty() {
        keep_to_itself()?;
    }
    let (keeper, mut left) = match kept_by {
        Some(number) => Keeper::at(given(number)?, again_as(KEEPS, for_keeper, kept_settings().as_ref()), restarts)?,
        None => (Keeper::default(), Left::default()),
    };
    let is_first = left.gpus.values().all(|gpu| gpu.place.is_none());
    let asked = all.gpu.clone().expect(set);
    let numbers: Vec<_> = if is_first {
        (0..).map(GpuNumber).zip(numbers(&asked, &all, passed.is_some(), library.as_deref())?).collect()
    } else {
        // Those that were served before go on, and no others, whatever the settings say by now.
        let usual = asked.first();
        let number = |left: &Inherited| left.number.map_or(usual, |number| number as usize);
        let served = left.gpus.iter().filter(|(_, left)| left.place.is_some());
        served.map(|(at, left)| (*at, number(left))).collect()
    };
    let (says, heard) = channel();
    let common = Common {
        machine: Machine::default(),
        signals: signals.handle(),
        keeper: keeper.clone(),
        library,
        driver: choice.kind(),
        serves: left.before.is_some(),
        until_idle,
        poison,
        count: numbers.len(),
        failed: Arc::default(),
        says,
    };
    let mut passed = passed;
    let jobs = numbers.into_iter().map(|(at, number)| Job {
        at,
        number,
        settings: sources.read_of(Some(number)).unwrap_or_else(|_| all.clone()),
        passed: passed.take(),
        inherited: left.gpus.remove(&at).unwrap_or_default(),
    });
    let (mut servers, not_served) = Servers::prepare(jobs.collect(), &common, heard)?;
    // A successor follows on all GPUs, or on none.
    let may_lack = !servers.is_empty() && !common.serves && (asked == Gpus::All || !is_first);
    for (at, (number, NotServed { error, taken, failures })) in not_served {
        if may_lack && (is_first || failures >= MOST_FAILURES) {
            baton_messages::error!(gpu_is_not_served(number, error));
            keeper.of(at).leave();
            continue;
        }
        if !is_first {
            // Its programs wait: the next coordinator may have what this one lacks.
            keeper.of(at).note_failure(failures);
        }
        // A coordinator that has outlived the keeper which a user had started takes this one.
        let takes = |serving: &PathBuf| {
            let ask = |process: BorrowedFd<'_>| client::keep(serving, process).map_err(std::io::Error::other);
            keeper.pass_on(ask).is_ok()
        };
        let Some(serving) = taken.and_then(serving_at).filter(takes) else { return Err(error) };
        baton_messages::info!(keeps_the_one_at(serving.display()));
        return Ok(0);
    }
    let web = web::Web::open(&all, servers.take_beside(), &keeper, std::mem::take(&mut left.listeners))?;
    keeper.await_rest(&mut left)?;
    baton_faults::begin_as(baton_faults::Role::Coordinator);
    servers.begin(&common, &mut left.gpus)?;
    let served = |(number, one): (usize, &Ready)| Served::new(number, one.settings.clone(), one.handle.clone());
    let mut served: Vec<_> = servers.iter().map(served).collect();
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        signals.forever().for_each(|signal| match signal {
            SIGHUP if reloads => service::reload(&sources, &mut served),
            _ => served.iter().for_each(Served::stop),
        });
    })?;
    let serving: Vec<String> = servers
        .iter()
        .map(|(number, one)| {
            let serving = baton_messages::serves(number, &one.name, one.socket.display());
            baton_messages::info!(serving.clone());
            baton_messages::info!(has_arena_and_pool(size(one.arena), size(one.host_pool)));
            serving.to_string()
        })
        .collect();
    web.start()?;
    keeper.serves();
    service::ready(&serving.join("; "));
    let ended = servers.end();
    log::logger().flush();
    match ended {
        // Another coordinator has all of it: nothing of it is to be given up.
        // SAFETY: ends this process.
        Ended::Followed { code } => unsafe { libc::_exit(code) },
        Ended::ByThemselves(ended) => Ok(ended.map(|()| 0)?),
    }
}

/// The GPUs to serve, by the driver's numbers. A socket that is named or was `passed` on is one GPU's.
fn numbers(asked: &Gpus, all: &Settings, is_passed: bool, library: Option<&Path>) -> Result<Vec<usize>, CliError> {
    let is_one = is_passed || all.socket.is_some() || named_socket().is_some();
    match asked {
        Gpus::These(numbers) if is_one && numbers.len() > 1 => Err(baton_messages::socket_is_one_gpus().into()),
        Gpus::These(numbers) => Ok(numbers.clone()),
        Gpus::Any => Err(baton_messages::any_is_for_programs().into()),
        Gpus::All if is_one => Ok(vec![0]),
        Gpus::All => Ok((0..gpu_uuid(library, 0)?.1).collect()),
    }
}

/// Starts coordinators, one after another as they die, and holds what the next one needs. The first one may be `serving` already. All
/// get the socket that was passed on, and these settings, for when there are no others.
fn keep(again: Again, serving: Option<OwnedFd>, passed: Option<OwnedFd>, settings: &Settings) -> Result<u8, CliError> {
    let how = |death: Death| death.map_or_else(|| baton_messages::UNKNOWN_DEATH.to_owned(), |how| how.to_string());
    let died = |death, pause: Duration| {
        if pause.is_zero() {
            baton_messages::error!(coordinator_died(how(death)));
        } else {
            baton_messages::error!(coordinator_died_again(how(death), pause.as_secs()));
        }
    };
    // A service manager does not hear of it from the process that has found the other one, because that ends at once.
    let kept = || service::ready(baton_messages::KEEPS_ANOTHER);
    let end = keeper::keep(serving, &again_as(KEPT_BY, passed, Some(settings)), again, died, kept)?;
    if let End::TooOften(death) = end {
        baton_messages::error!(coordinator_dies_too_often(how(death)));
    }
    Ok(end.code())
}

/// Starts this command again in another role: options say which, and the numbers of the descriptors that it gets; a variable has these
/// settings. It is this version, or that of an upgrade's file.
fn again_as(role: &'static str, passed: Option<OwnedFd>, settings: Option<&Settings>) -> Start {
    let settings = settings.map(Settings::text);
    Box::new(move |socket, file| {
        let numbers = [Some(socket), passed.as_ref()].map(|given| given.map(AsRawFd::as_raw_fd));
        let given = [role, PASSED].into_iter().zip(numbers);
        let is_ours = |word: &OsString| {
            let word = word.as_bytes();
            let begins = |option: &str| word.strip_prefix(option.as_bytes()).is_some_and(|rest| rest.starts_with(b"="));
            [KEPT_BY, KEEPS, PASSED].into_iter().any(begins)
        };
        let mut words = std::env::args_os();
        // This very version, also where another one has its place by now.
        let own =
            file.map_or_else(|| "/proc/self/exe".to_owned(), |file| format!("/proc/self/fd/{}", file.as_raw_fd()));
        let mut command = Command::new(own);
        command.arg0(words.next().unwrap_or_else(|| "baton".into())).args(words.filter(|word| !is_ours(word)));
        command.args(given.filter_map(|(option, number)| number.map(|number| format!("{option}={number}"))));
        command.envs(settings.iter().map(|text| (KEPT_SETTINGS, text)));
        // SAFETY: between fork and exec: system calls alone, with plain integers.
        unsafe {
            command.pre_exec(move || {
                for number in numbers.into_iter().flatten() {
                    rustix::io::fcntl_setfd(BorrowedFd::borrow_raw(number), rustix::io::FdFlags::empty())?;
                }
                // A keeper passes it on at any time, also before it is heeded there.
                libc::signal(libc::SIGHUP, libc::SIG_IGN);
                Ok(())
            });
        }
        command.spawn()
    })
}

/// The settings with which the keeper has begun.
fn kept_settings() -> Option<Settings> {
    toml::from_str(&std::env::var(KEPT_SETTINGS).ok()?).ok()
}

/// Has a panic of any thread be the coordinator's death, which its keeper notices: without that thread it would do half of its work.
/// Only the page may fail alone.
fn end_at_once_in_a_panic() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        usual(panic);
        if std::thread::current().name() != Some(baton_web::THREAD) {
            std::process::abort();
        }
    }));
}

/// A descriptor that was made for this process, which is not for those that it starts itself.
fn given(number: i32) -> std::io::Result<OwnedFd> {
    // SAFETY: no other code of this process uses it.
    let given = unsafe { OwnedFd::from_raw_fd(number) };
    rustix::io::fcntl_setfd(&given, rustix::io::FdFlags::CLOEXEC)?;
    Ok(given)
}

/// Makes this process unreadable to others of its user, because its host pool may have other users' memory: they cannot read it
/// (`/proc/PID/mem`, ptrace), take the descriptors of its frames, or find it in a dump. Only root can. A coordinator without other
/// users stays debuggable by its own user.
fn keep_to_itself() -> Result<(), CliError> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(std::io::Error::from)?)
}

/// Raises the limit of open descriptors, because every frame is one.
fn raise_descriptor_limit() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // With fewer, large arenas of small pieces fail later, with a message.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}
