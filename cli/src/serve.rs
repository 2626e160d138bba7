//! `baton serve`: the coordinator of one GPU, until it is stopped.

use std::path::PathBuf;

use baton_contract::memory::size;
use baton_coordinator::device::gpu::Gpu;
use baton_coordinator::endpoint::Endpoint;
use baton_coordinator::server::{Options, Server};
use baton_harness::install::Install;
use clap::Args;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::{SIGINT, SIGTERM};

use super::settings::{Mode, Settings, arena, headroom, host_pool};
use super::{CliError, named_socket, open_gpu, usual_socket, web};

/// What `--poison` fills memory with: what a program must not find in its own.
const POISON: u8 = 0xDB;

/// `baton serve`.
#[derive(Clone, Debug, Args)]
pub struct Serve {
    #[command(flatten)]
    settings: Settings,
    /// A TOML file with the same settings; the command line and variables go first.
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
}

/// Runs a coordinator until it is stopped.
///
/// # Errors
///
/// When it cannot be started with these settings: the message says what to change.
pub fn run(serve: Serve) -> Result<(), CliError> {
    let Serve { settings, config, print_config, until_idle, poison } = serve;
    settings.check()?;
    let settings = match config {
        Some(path) => {
            let file = Settings::of_file(&path)?;
            let number = settings.gpu.or(file.gpu).unwrap_or_default();
            settings.or(file.of_gpu(number))
        }
        None => settings,
    };
    let all = settings.clone().or(Settings::usual());
    if print_config {
        print!("{}", all.text());
        return Ok(());
    }
    let set = "a setting that is usual";
    env_logger::Builder::new()
        .filter_level(all.log_level.expect(set).into())
        .format_target(false)
        .format_timestamp_millis()
        .init();
    let install = Install::of_this_program()?;
    let choice = all.driver();
    let library = choice.library(&install)?;
    for (name, value) in choice.settings()? {
        // SAFETY: no other thread runs yet.
        unsafe { std::env::set_var(name, value) };
    }
    raise_descriptor_limit();

    let number = all.gpu.expect(set);
    let gpu = open_gpu(library.as_deref(), number)?;
    let arena = arena(all.arena.expect(set), gpu.memory, &gpu.name)?;
    let host_pool = host_pool(all.host_pool, arena, free_host_memory()?, all.force.expect(set))?;
    let headroom = headroom(all.headroom.expect(set), arena)?;
    let socket =
        std::path::absolute(all.socket.clone().or_else(named_socket).unwrap_or_else(|| usual_socket(gpu.uuid)))?;
    let endpoint = Endpoint::claim(&socket, gpu.uuid)?;
    let web = web::Web::open(&all, &endpoint)?;
    say_who_is_in_the_way(&gpu, arena);

    let name = gpu.name.clone();
    let options = Options {
        arena,
        host_pool,
        headroom,
        quantum: all.quantum.expect(set).0,
        max_wait: all.max_wait.expect(set).0,
        burst: all.burst.expect(set).0,
        latency_slack: all.latency_slack.expect(set).0 / 100.0,
        driver: choice.kind(),
        max_tenants: all.max_tenants.expect(set),
        pipeline: all.pipeline.expect(set).into(),
        hash: !all.no_hash.expect(set),
        keep: !all.no_keep.expect(set),
        pause: !all.no_preempt.expect(set),
        corun: all.mode.expect(set) == Mode::Corun,
        trace: all.trace.clone(),
        poison: poison.then_some(POISON),
        until_idle,
    };
    let mut server = Server::new(gpu, endpoint, options)?;
    let stop = server.stop();
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?;
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        signals.forever().for_each(|_| stop.stop());
    })?;
    log::info!("serving GPU {number} ({name}) at {}", socket.display());
    log::info!("arena {}, host pool {}", size(arena), size(host_pool));
    web.start(socket)?;
    let served = server.serve();
    server.leave();
    if let Some(left) = server.left_behind() {
        log::warn!("{left}");
    }
    Ok(served?)
}

/// Says if there is less memory than the arena is to have, and who has it.
fn say_who_is_in_the_way(gpu: &Gpu, arena: u64) {
    let Ok(free) = gpu.free_memory() else { return };
    if free >= arena {
        return;
    }
    let others = gpu.census.others(gpu.uuid);
    let who: Vec<String> = others.iter().take(8).map(ToString::to_string).collect();
    let who = if who.is_empty() { "processes that cannot be seen from here".to_owned() } else { who.join(", ") };
    log::warn!(
        "the arena is to have {}, but only {} of the GPU's memory is free; the rest is held by {who}",
        size(arena),
        size(free)
    );
}

/// Every frame is an open descriptor.
fn raise_descriptor_limit() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // With fewer, large arenas of small pieces fail later, and say so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Host memory that is free, in this process's control group too.
pub(super) fn free_host_memory() -> Result<u64, CliError> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib: u64 = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse().ok()).unwrap_or(0);
    let number = |file: &str| std::fs::read_to_string(file).ok()?.trim().parse::<u64>().ok();
    let group = number("/sys/fs/cgroup/memory.max")
        .map(|most| most.saturating_sub(number("/sys/fs/cgroup/memory.current").unwrap_or(0)));
    Ok((kib << 10).min(group.unwrap_or(u64::MAX)))
}
