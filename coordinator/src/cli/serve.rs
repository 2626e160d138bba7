//! `baton serve`: the coordinator of one GPU, until it is stopped.

use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Deserialize;
use signal_hook::consts::{SIGINT, SIGTERM};

use super::units::{Amount, Percent, size};
use super::{CliError, DriverChoice, make_private, named_socket, open_gpu, usual_socket};
use crate::arena::Arena;
use crate::install::Install;
use crate::server::{Options, Pipeline, Server};

/// What `--poison` fills memory with: what a program must not find in its own.
const POISON: u8 = 0xDB;

/// What holds if nothing else is said.
const QUANTUM: Duration = Duration::from_millis(100);
const MAX_WAIT: Duration = Duration::from_secs(10);
const BURST: Duration = Duration::from_micros(200);
const SLACK: Percent = Percent(5.0);

/// What can be said about a coordinator, on the command line or in a file.
#[derive(Clone, Debug, Default, Args, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Settings {
    /// The GPU to serve, counted from 0.
    #[arg(long, value_name = "N")]
    pub gpu: Option<usize>,
    /// The driver: `gpu` (the system's), `sim` (simulated), or a file.
    #[arg(long, value_name = "gpu|sim|PATH")]
    pub driver: Option<String>,
    /// How much of the GPU's memory to lend out; the rest is for contexts and code. [default: 90%]
    #[arg(long, value_name = "90%|8GiB")]
    pub arena: Option<Amount>,
    /// How much host memory to keep evicted GPU memory in. [default: half of what is free, at most twice the arena]
    #[arg(long, value_name = "32GiB|50%")]
    pub host_pool: Option<Amount>,
    /// How long a program has the GPU before another of its class gets it. [default: 100ms]
    #[arg(long, value_name = "100ms", value_parser = humantime::parse_duration)]
    #[serde(with = "duration")]
    pub quantum: Option<Duration>,
    /// How long a program waits at most while others of better classes use the GPU, before it gets a turn. [default: 10s]
    #[arg(long, value_name = "10s", value_parser = humantime::parse_duration)]
    #[serde(with = "duration")]
    pub max_wait: Option<Duration>,
    /// How long latency programs are at work before those beside them are taken off the GPU in the middle. [default: 200us]
    #[arg(long, value_name = "200us", value_parser = humantime::parse_duration)]
    #[serde(with = "duration")]
    pub burst: Option<Duration>,
    /// How much slower latency programs may be for those that run beside them. If their requests are so short that this
    /// cannot be kept, the others stay off the GPU for longer between them. [default: 5%]
    #[arg(long, value_name = "5%")]
    pub latency_slack: Option<Percent>,
    /// How much of the arena to keep free, so that a switch can begin at once; no program can have it. [default: 3%]
    #[arg(long, value_name = "3%|2GiB")]
    pub headroom: Option<Amount>,
    /// The coordinator's socket. [default: in the user's runtime folder, named by the GPU]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

mod duration {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer};

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        let word = String::deserialize(from)?;
        humantime::parse_duration(&word).map(Some).map_err(serde::de::Error::custom)
    }
}

impl Settings {
    /// These, with what they leave open taken from `other`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            gpu: self.gpu.or(other.gpu),
            driver: self.driver.or(other.driver),
            arena: self.arena.or(other.arena),
            host_pool: self.host_pool.or(other.host_pool),
            quantum: self.quantum.or(other.quantum),
            max_wait: self.max_wait.or(other.max_wait),
            burst: self.burst.or(other.burst),
            latency_slack: self.latency_slack.or(other.latency_slack),
            headroom: self.headroom.or(other.headroom),
            socket: self.socket.or(other.socket),
        }
    }

    /// The driver that is meant.
    pub fn driver(&self) -> DriverChoice {
        self.driver.as_ref().map_or(DriverChoice::System, |word| word.parse().unwrap_or(DriverChoice::System))
    }

    /// These as words of a command line.
    pub fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        let mut word = |name: &str, value: Option<String>| {
            words.extend(value.map(|value| format!("--{name}={value}")));
        };
        let amount = |amount: Amount| match amount {
            Amount::Bytes(bytes) => bytes.to_string(),
            Amount::Percent(_) => amount.to_string(),
        };
        word("gpu", self.gpu.map(|gpu| gpu.to_string()));
        word("driver", self.driver.clone());
        word("arena", self.arena.map(amount));
        word("host-pool", self.host_pool.map(amount));
        word("headroom", self.headroom.map(amount));
        let time = |time: Duration| humantime::format_duration(time).to_string();
        word("quantum", self.quantum.map(time));
        word("max-wait", self.max_wait.map(time));
        word("burst", self.burst.map(time));
        word("latency-slack", self.latency_slack.map(|slack| slack.to_string()));
        word("socket", self.socket.as_ref().map(|socket| socket.display().to_string()));
        words
    }
}

/// Who runs at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// Programs that fit together, where they can be paused.
    #[default]
    Harvest,
    /// One program at a time.
    Exclusive,
}

/// `baton serve`.
#[derive(Clone, Debug, Args)]
pub struct Serve {
    #[command(flatten)]
    settings: Settings,
    /// A TOML file with the same settings; the command line goes first.
    #[arg(long, value_name = "FILE.toml")]
    config: Option<PathBuf>,
    /// Take the host pool even if it is larger than the memory that is free.
    #[arg(long)]
    force: bool,
    /// Whether programs run while their memory comes in, and in which pieces that comes.
    #[arg(long, value_enum, default_value_t, value_name = "HOW")]
    pipeline: Pipeline,
    /// Copy everything out that is evicted, also what has not changed.
    #[arg(long)]
    no_hash: bool,
    /// Wait for programs' work to end instead of taking it off the GPU in the middle.
    #[arg(long)]
    no_pause: bool,
    /// Whether programs that fit together run together: latency programs at any time, the others in the gaps; or one program
    /// at a time.
    #[arg(long, value_enum, default_value_t, value_name = "HOW")]
    mode: Mode,
    /// Write a line of JSON for every switch to this file.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
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
    let Serve { settings, config, force, pipeline, no_hash, no_pause, mode, trace, until_idle, poison } = serve;
    let settings = match config {
        Some(path) => settings.or(read_config(&path)?),
        None => settings,
    };
    let install = Install::of_this_program()?;
    let choice = settings.driver();
    let library = choice.library(&install)?;
    for (name, value) in choice.settings()? {
        // SAFETY: no other thread runs yet.
        unsafe { std::env::set_var(name, value) };
    }
    raise_descriptor_limit();

    let gpu = open_gpu(library.as_deref(), settings.gpu.unwrap_or(0))?;
    let arena = arena(settings.arena, gpu.memory, &gpu.name)?;
    let host_pool = host_pool(settings.host_pool, arena, force)?;
    let socket = settings.socket.clone().or_else(named_socket).unwrap_or_else(|| usual_socket(gpu.uuid));
    let (listener, _lock) = claim(&socket)?;

    let (number, name) = (settings.gpu.unwrap_or(0), gpu.name.clone());
    let options = Options {
        arena,
        host_pool,
        quantum: settings.quantum.unwrap_or(QUANTUM),
        socket: socket.clone(),
        driver: library,
        poison: poison.then_some(POISON),
        until_idle,
        headroom: headroom(settings.headroom, arena)?,
        pipeline,
        hash: !no_hash,
        pause: !no_pause,
        harvest: mode == Mode::Harvest,
        max_wait: settings.max_wait.unwrap_or(MAX_WAIT),
        burst: settings.burst.unwrap_or(BURST),
        latency_slack: settings.latency_slack.unwrap_or(SLACK).0 / 100.0,
        trace,
    };
    let mut server = Server::new(gpu, listener, options)?;
    let stop = server.stop();
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?;
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        signals.forever().for_each(|_| stop.stop());
    })?;
    eprintln!("baton: serving GPU {number} ({name}) at {}", socket.display());
    eprintln!("baton: arena {}, host pool {}", size(arena), size(host_pool));
    let served = server.serve();
    if let Some(left) = server.left_behind() {
        eprintln!("baton: {left}");
    }
    // Tenants see the end of their connections; the place is free for a successor.
    let _ = std::fs::remove_file(&socket);
    Ok(served?)
}

/// In whole pieces: in a small arena a few percent are less than one, and nothing is kept free.
fn headroom(asked: Option<Amount>, arena: u64) -> Result<u64, CliError> {
    let headroom = asked.unwrap_or(Amount::Percent(3.0)).of(arena);
    if headroom > arena / 2 {
        return Err(CliError::Told(format!(
            "a headroom of {} leaves too little of an arena of {}; ask for at most half of it",
            size(headroom),
            size(arena)
        )));
    }
    let piece = Arena::new(arena).largest_class().bytes();
    Ok(headroom / piece * piece)
}

fn read_config(path: &Path) -> Result<Settings, CliError> {
    let text = std::fs::read_to_string(path).map_err(|error| CliError::Told(format!("{}: {error}", path.display())))?;
    toml::from_str(&text).map_err(|error| CliError::Told(format!("{}: {error}", path.display())))
}

/// Every frame is an open descriptor.
fn raise_descriptor_limit() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // With fewer, large arenas of small pieces fail later, and say so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

fn arena(asked: Option<Amount>, memory: u64, name: &str) -> Result<u64, CliError> {
    let arena = asked.unwrap_or(Amount::Percent(90.0)).of(memory);
    if arena > memory {
        return Err(CliError::Told(format!(
            "an arena of {} is more than the {} of {name}; ask for less with --arena, at most about 95% of it",
            size(arena),
            size(memory)
        )));
    }
    if arena == 0 {
        return Err(CliError::Told("the arena has to be at least 2 MiB; see --arena".to_owned()));
    }
    Ok(arena)
}

fn host_pool(asked: Option<Amount>, arena: u64, force: bool) -> Result<u64, CliError> {
    let free = free_host_memory()?;
    let pool = asked.map_or_else(|| Amount::Bytes((free / 2).min(2 * arena)).of(free), |asked| asked.of(free));
    if pool > free && !force {
        return Err(CliError::Told(format!(
            "a host pool of {} is more than the {} of memory that is free here; ask for less with --host-pool, or add \
             --force if you know that there will be enough",
            size(pool),
            size(free)
        )));
    }
    Ok(pool)
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

/// Takes a socket's place; the lock holds it for as long as it is open.
fn claim(path: &Path) -> Result<(OwnedFd, File), CliError> {
    let told = |error: std::io::Error| CliError::Told(format!("{}: {error}", path.display()));
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.exists() {
        make_private(folder)?;
    }
    let lock_path = path.with_extension("lock");
    let mut lock = File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(&lock_path)?;
    if lock.try_lock().is_err() {
        let holder = std::fs::read_to_string(&lock_path).unwrap_or_default();
        return Err(CliError::Told(format!(
            "a coordinator (process {}) serves at {} already; `baton status` shows it, --socket names another place",
            holder.trim(),
            path.display()
        )));
    }
    lock.set_len(0)?;
    lock.rewind()?;
    writeln!(lock, "{}", std::process::id())?;
    match std::fs::symlink_metadata(path) {
        // Left behind by a coordinator that was killed.
        Ok(found) if found.file_type().is_socket() => std::fs::remove_file(path)?,
        Ok(_) => return Err(CliError::Told(format!("{} is there already, and no socket", path.display()))),
        Err(_) => {}
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map_err(|e| told(e.into()))?;
    let address = SocketAddrUnix::new(path).map_err(|e| told(e.into()))?;
    let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    let bound = bind(&listener, &address);
    rustix::process::umask(before);
    bound.map_err(|e| told(e.into()))?;
    listen(&listener, 128).map_err(|e| told(e.into()))?;
    Ok((listener, lock))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_goes_before_the_file() {
        let file: Settings =
            toml::from_str("arena = \"2GiB\"\nquantum = \"5ms\"\nhost-pool = \"10%\"\n").expect("valid settings");
        let line = Settings { arena: Some(Amount::Bytes(1 << 30)), ..Settings::default() };
        let both = line.or(file);
        assert_eq!(both.arena, Some(Amount::Bytes(1 << 30)));
        assert_eq!(both.quantum, Some(Duration::from_millis(5)));
        assert_eq!(both.words(), ["--arena=1073741824", "--host-pool=10%", "--quantum=5ms"]);
    }

    #[test]
    fn a_word_that_is_no_setting_is_refused() {
        let error = toml::from_str::<Settings>("areena = \"2GiB\"").expect_err("no such setting");
        assert!(error.to_string().contains("areena"), "{error}");
    }

    #[test]
    fn an_arena_above_the_gpu_and_a_pool_above_memory_are_refused() {
        let error = arena(Some(Amount::Bytes(2 << 30)), 1 << 30, "a GPU").expect_err("too large").to_string();
        assert!(error.contains("2 GiB is more than the 1 GiB of a GPU"), "{error}");
        let huge = Some(Amount::Bytes(1 << 60));
        let error = host_pool(huge, 1 << 30, false).expect_err("too large").to_string();
        assert!(error.contains("--force"), "{error}");
        assert_eq!(host_pool(huge, 1 << 30, true).ok(), Some(1 << 60));
    }

    #[test]
    fn a_second_coordinator_does_not_get_the_place_and_a_dead_ones_is_taken() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("s.sock");
        let first = claim(&path).expect("free");
        let error = claim(&path).expect_err("taken").to_string();
        assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
        drop(first);
        claim(&path).expect("left behind");
    }
}
