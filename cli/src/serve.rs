//! `baton serve`: the coordinator of one GPU, until it is stopped.

use std::io::IsTerminal as _;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use baton_client::install::Install;
use baton_contract::memory::size;
use baton_coordinator::device::gpu::Gpu;
use baton_coordinator::endpoint::Endpoint;
use baton_coordinator::keeper::{self, End, Inherited, Keeper, Key};
use baton_coordinator::records::{self, Book};
use baton_coordinator::server::{Kept, OnStuck, Options, Server};
use baton_workbench::output::print;
use clap::Args;
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::records::called;
use super::service::{self, Sources};
use super::settings::{Mode, Settings, arena, headroom, host_pool};
use super::{CliError, host_memory, journal, named_socket, open_gpu, usual_socket, web};

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
    /// Have a process beside the coordinator that starts it again when it dies, so that programs go on.
    #[arg(long, conflicts_with = "until_idle")]
    keeper: bool,
    /// For tests: how often in a minute a coordinator that has died is started again.
    #[arg(long, hide = true, value_name = "COUNT", default_value_t = 3)]
    restarts: usize,
    /// The descriptor that leads to the keeper which has started this coordinator.
    #[arg(long, hide = true, value_name = "NUMBER")]
    kept_by: Option<i32>,
}

/// Runs a coordinator until it is stopped.
///
/// # Errors
///
/// When it cannot be started with these settings: the message says what to change.
pub fn run(serve: Serve) -> Result<u8, CliError> {
    let Serve { settings, config, print_config, until_idle, poison, keeper, restarts, kept_by } = serve;
    settings.check()?;
    let mut sources = Sources::new(settings, config);
    let mut all = sources.read()?;
    all.check_together()?;
    if print_config {
        return Ok(print(&all.text()).map(|()| 0)?);
    }
    if keeper && kept_by.is_none() {
        journal::start()?;
        log::set_max_level(all.log_level());
        raise_descriptor_limit();
        return keep(restarts);
    }
    let set = "a setting that is usual";
    journal::start()?;
    log::set_max_level(all.log_level());
    let install = Install::of_this_program()?;
    let choice = all.driver();
    let library = choice.library(&install)?;
    choice.set()?;
    raise_descriptor_limit();

    let passed = service::passed_socket()?;
    if let Some(number) = passed.as_ref().and_then(|passed| service::gpu_of(passed.path(), library.as_deref())) {
        sources.suggest_gpu(number);
        all = sources.read()?;
    }
    let number = all.gpu.expect(set);
    let gpu = open_gpu(library.as_deref(), number)?;
    let arena = arena(all.arena.expect(set), gpu.memory, &gpu.name)?;
    let host_pool = host_pool(all.host_pool, arena, host_memory::free()?, all.force.expect(set))?;
    let headroom = headroom(all.headroom.expect(set), arena)?;
    let (guests, visitors) = all.guests()?;
    if !guests.is_empty() {
        keep_to_itself()?;
    }
    let (keeper, mut inherited) = match kept_by {
        // SAFETY: the keeper has made it for this process, in which no other code uses it.
        Some(number) => Keeper::at(unsafe { OwnedFd::from_raw_fd(number) })?,
        None => (Keeper::default(), Inherited::default()),
    };
    let endpoint = match (inherited.place.take(), passed) {
        (Some(place), _) => Endpoint::go_on(place, gpu.uuid, visitors)?,
        (None, Some(passed)) => Endpoint::claim_passed(passed, gpu.uuid)?,
        (None, None) => {
            let named = all.socket.clone().or_else(named_socket);
            let path = std::path::absolute(named.unwrap_or_else(|| usual_socket(gpu.uuid)))?;
            Endpoint::claim(&path, gpu.uuid, visitors)?
        }
    };
    keeper.hold(Key::Place, &[], &endpoint.parts());
    let socket = endpoint.path().to_path_buf();
    journal::keep_small(&socket);
    let web = web::Web::open(&all, &endpoint)?;
    say_who_is_in_the_way(&gpu, arena);

    let name = gpu.name.clone();
    let options = Options {
        arena,
        host_pool,
        headroom,
        tuning: all.tuning(),
        driver: choice.kind(),
        pipeline: all.pipeline.expect(set).0,
        hash: !all.no_hash.expect(set),
        keep: !all.no_keep.expect(set),
        pause: !all.no_preempt.expect(set),
        corun: all.mode.expect(set) == Mode::Corun,
        trace: all.trace.clone(),
        poison: poison.then_some(POISON),
        quotas: all.quotas(arena, host_pool, gpu.memory),
        guests,
        isolation: all.isolation.expect(set).0,
        on_stuck: OnStuck { what: all.on_stuck.map(|what| what.0), after: all.stuck_after.expect(set).0 },
        until_idle,
    };
    let mut server = Server::new(gpu, endpoint, options, (keeper, inherited))?;
    let kept = if all.no_record.expect(set) { None } else { record(&mut server) };
    let (stop, tuner) = (server.stop(), server.tuner());
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    // The closing of a terminal ends a coordinator that runs in it.
    let reloads = !std::io::stderr().is_terminal();
    let mut holds = all;
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        signals.forever().for_each(|signal| match signal {
            SIGHUP if reloads => service::reload(&sources, &mut holds, &tuner),
            _ => stop.stop(),
        });
    })?;
    let serving = baton_messages::serves(number, name, socket.display());
    baton_messages::info!(serving.clone());
    baton_messages::info!(has_arena_and_pool(size(arena), size(host_pool)));
    web.start(socket)?;
    service::ready(&serving.to_string());
    let served = server.serve();
    service::stopping();
    server.leave();
    if let Some(left) = server.left_behind() {
        baton_messages::warn!(left);
    }
    drop(server);
    kept.into_iter().for_each(Kept::end);
    log::logger().flush();
    Ok(served.map(|()| 0)?)
}

/// Starts coordinators, one after another as they die, and holds what the next one needs.
fn keep(restarts: usize) -> Result<u8, CliError> {
    let start = |socket: &OwnedFd| {
        let number = socket.as_raw_fd();
        let mut command = Command::new(std::env::current_exe()?);
        command.args(std::env::args_os().skip(1)).arg(format!("--kept-by={number}"));
        // SAFETY: between fork and exec: two system calls, with plain integers.
        unsafe {
            command.pre_exec(move || {
                rustix::io::fcntl_setfd(BorrowedFd::borrow_raw(number), rustix::io::FdFlags::empty())?;
                // The next coordinator would find nothing of this one without the keeper.
                rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
                Ok(())
            });
        }
        command.spawn()
    };
    let end = keeper::keep(start, restarts, |status| baton_messages::error!(coordinator_died(status)))?;
    if let End::TooOften(status) = end {
        baton_messages::error!(coordinator_dies_too_often(status));
    }
    Ok(end.code())
}

/// Records events in the user's state folder. A failure to do so stops nothing else.
fn record(server: &mut Server) -> Option<Kept> {
    let head = server.head();
    let name = called(head.started_unix_ms, &head.gpu);
    let kept = match records::state_folder() {
        Some(state) => Book::begin(&state, &name, head).map_err(CliError::from),
        None => Err(baton_messages::no_home().into()),
    };
    let kept = kept.and_then(|book| Ok(server.keep(book)?));
    kept.inspect_err(|error| baton_messages::warn!(nothing_is_recorded(error))).ok()
}

/// Makes this process unreadable to others of its user, because its host pool may have other users' memory: they cannot read it
/// (`/proc/PID/mem`, ptrace), take the descriptors of its frames, or find it in a dump. Only root can. A coordinator without other
/// users stays debuggable by its own user.
fn keep_to_itself() -> Result<(), CliError> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(std::io::Error::from)?)
}

/// Warns if there is less memory than the arena is to have, and names the processes that have it.
fn say_who_is_in_the_way(gpu: &Gpu, arena: u64) {
    let Ok(free) = gpu.free_memory() else { return };
    if free >= arena {
        return;
    }
    let others = gpu.census.others(gpu.uuid).unwrap_or_default();
    let who: Vec<String> = others.iter().take(8).map(ToString::to_string).collect();
    let who = if who.is_empty() { baton_messages::UNSEEN_PROCESSES.to_owned() } else { who.join(", ") };
    baton_messages::warn!(little_gpu_memory_is_free(size(arena), size(free), who));
}

/// Raises the limit of open descriptors, because every frame is one.
fn raise_descriptor_limit() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // With fewer, large arenas of small pieces fail later, with a message.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}
