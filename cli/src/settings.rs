//! The settings of a coordinator, from the command line, a file, or variables. Each setting is declared once, as a field of
//! [`Settings`]; flag, key and variable, `--print-config`, and the settings that `baton run` hands on to the coordinator that it starts
//! all follow from that.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::ops::RangeInclusive;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use baton_books::arena::Arena;
use baton_contract::class::Class;
use baton_contract::memory::size;
use baton_contract::messages::DriverKind;
use baton_contract::scheduling::MAX_WEIGHT;
use baton_coordinator::endpoint::{self, Visitors};
use baton_coordinator::server::{Isolation, Pipeline, Quotas, Stuck, Tuning};
use clap::Args;
use log::LevelFilter;
use serde::{Deserialize, Serialize};

use super::one_of::OneOf;
use super::units::{Amount, Gpus, Listen, Percent, Period, Users};
use super::{CliError, DriverChoice};

/// Maximum number of tenants: as many processes as a coordinator can keep apart. Each has half a dozen descriptors.
const MOST_TENANTS: usize = 4000;

/// Declares the settings: help, flag, variable and key, whether a running coordinator takes a new value (`tunable`), the type, and
/// the default; or, where the default depends on the machine, `none` and a remark for `--print-config`.
macro_rules! settings {
    ($($(#[$meta:meta])* $change:ident $name:ident: $type:ty = $($none:ident)? ($default:expr),)*) => {
        /// The settings of `baton serve` that are set.
        #[derive(Clone, Debug, Default, PartialEq, Args, Serialize, Deserialize)]
        #[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
        pub struct Settings {
            $($(#[$meta])* pub $name: Option<$type>,)*
            /// In a file: settings of one GPU, by its number, which go before the others.
            #[arg(skip)]
            #[serde(skip_serializing_if = "BTreeMap::is_empty")]
            pub gpus: BTreeMap<String, Self>,
        }

        impl Settings {
            /// The defaults, as far as they are the same on every machine.
            pub fn usual() -> Self {
                Self { $($name: settings!(@default $($none)? $default),)* gpus: BTreeMap::new() }
            }
        }

        /// The declarations, in order.
        const DECLARED: &[Declared] = &[$(Declared {
            name: stringify!($name),
            is_tunable: settings!(@tunable $change),
            remark: settings!(@remark $($none)? $default),
        }),*];
    };
    (@default none $remark:expr) => { None };
    (@default $default:expr) => { Some($default) };
    (@remark none $remark:expr) => { Some($remark) };
    (@remark $default:expr) => { None };
    (@tunable tunable) => { true };
    (@tunable fixed) => { false };
}

/// One declaration, beside its type.
struct Declared {
    /// The field's name.
    name: &'static str,
    /// True if the setting can change while a coordinator serves; the others are fixed at its start.
    is_tunable: bool,
    /// The default, in words, of a setting that depends on the machine.
    remark: Option<&'static str>,
}

impl Declared {
    /// The setting's key.
    fn key(&self) -> String {
        self.name.replace('_', "-")
    }
}

/// True if the setting of this key can change while a coordinator serves.
fn is_tunable(key: &str) -> bool {
    DECLARED.iter().any(|declared| declared.is_tunable && declared.key() == key)
}

settings! {
    /// The GPUs to serve, counted from 0. [default: all that are visible; with --socket, 0]
    #[arg(long, value_name = "all|0,2", env = "BATON_SERVE_GPU")]
    fixed gpu: Gpus = (Gpus::All),
    /// The driver: `gpu` (the system's), `sim` (simulated), or a file. [default: gpu]
    #[arg(long, value_name = "gpu|sim|PATH", env = "BATON_SERVE_DRIVER")]
    fixed driver: String = ("gpu".to_owned()),
    /// GPU memory to lend out; the rest is for contexts and code. [default: 90%]
    #[arg(long, value_name = "90%|8GiB", env = "BATON_SERVE_ARENA")]
    fixed arena: Amount = (Amount::Percent(90.0)),
    /// Host memory for evicted GPU memory. [default: half of the free memory, at most twice the arena]
    #[arg(long, value_name = "32GiB|50%", env = "BATON_SERVE_HOST_POOL")]
    fixed host_pool: Amount = none("half of the host memory that is free, at most twice the arena"),
    /// Part of the arena that is kept free so that a switch can begin at once; no program can have it. [default: 3%]
    #[arg(long, value_name = "3%|2GiB", env = "BATON_SERVE_HEADROOM")]
    fixed headroom: Amount = (Amount::Percent(3.0)),
    /// Time for which a program has the GPU before another of its class gets it. [default: 100ms]
    #[arg(long, value_name = "100ms", env = "BATON_SERVE_QUANTUM")]
    tunable quantum: Period = (Period(Duration::from_millis(100))),
    /// Longest wait of a program while programs of better classes use the GPU, before it gets a turn. [default: 10s]
    #[arg(long, value_name = "10s", env = "BATON_SERVE_MAX_WAIT")]
    tunable max_wait: Period = (Period(Duration::from_secs(10))),
    /// Run programs that fit the GPU together at the same time: latency programs at any time, the others in the gaps. Or one program at
    /// a time. [default: corun]
    #[arg(long, value_name = "corun|exclusive", env = "BATON_SERVE_MODE")]
    fixed mode: Mode = (Mode::default()),
    /// Time for which latency programs are at work before the programs that co-run with them are taken off the GPU in the middle.
    /// [default: 200us]
    #[arg(long, value_name = "200us", env = "BATON_SERVE_BURST")]
    tunable burst: Period = (Period(Duration::from_micros(200))),
    /// Slowdown of latency programs that is allowed for the programs that co-run with them. If requests are too short to keep this
    /// limit, the others stay off the GPU for longer between them. [default: 5%]
    #[arg(long, value_name = "5%", env = "BATON_SERVE_LATENCY_SLACK")]
    tunable latency_slack: Percent = (Percent(5.0)),
    /// Let programs' work end instead of taking it off the GPU in the middle.
    #[arg(long, alias = "no-pause", num_args = 0..=1, default_missing_value = "true", require_equals = true,
        value_name = "true|false", env = "BATON_SERVE_NO_PREEMPT")]
    #[serde(alias = "no-pause")]
    fixed no_preempt: bool = (false),
    /// Maximum number of programs that share the GPU at once; later ones wait, in order. [default: 256]
    #[arg(long, value_name = "N", env = "BATON_SERVE_MAX_PROGRAMS")]
    tunable max_programs: usize = (256),
    /// The coordinator's socket. [default: in the user's runtime folder, named by the GPU]
    #[arg(long, value_name = "PATH", env = "BATON_SERVE_SOCKET")]
    fixed socket: PathBuf = none("in the user's runtime folder, named by the GPU"),
    /// Other users whose programs may share the GPU too, by their numbers; they steer their own alone. The socket has to be in a
    /// folder that they can enter (`BATON_FOLDER=/run/baton`). [default: none but you and root]
    #[arg(long, value_name = "1000-1999,65534", env = "BATON_SERVE_ALLOW_UID")]
    fixed allow_uid: Users = none("none but you and root"),
    /// The same for users of a group, by its name or number: the socket is the group's (mode 0660), and with `--allow-uid` both
    /// conditions have to hold. [default: no group]
    #[arg(long, value_name = "baton", env = "BATON_SERVE_ALLOW_GROUP")]
    fixed allow_group: String = none("no group"),
    /// Maximum GPU memory of a program of another user. [default: 100% of the arena]
    #[arg(long, value_name = "100%|8GiB", env = "BATON_SERVE_GUEST_ARENA")]
    fixed guest_arena: Amount = (Amount::Percent(100.0)),
    /// Maximum for all programs of such a user together on top of that, since not all of it is on the GPU at once. [default: 50% of
    /// the host pool]
    #[arg(long, value_name = "50%|16GiB", env = "BATON_SERVE_GUEST_HOST_POOL")]
    fixed guest_host_pool: Amount = (Amount::Percent(50.0)),
    /// Maximum GPU memory that does not move, for all programs of such a user together: arrays, managed memory, shared memory.
    /// [default: 25% of the GPU's]
    #[arg(long, value_name = "25%|4GiB", env = "BATON_SERVE_GUEST_LEASES")]
    fixed guest_leases: Amount = (Amount::Percent(25.0)),
    /// Maximum number of programs of such a user that share the GPU at once. [default: a quarter of --max-programs]
    #[arg(long, value_name = "N", env = "BATON_SERVE_GUEST_PROGRAMS")]
    fixed guest_programs: usize = none("max-programs / 4"),
    /// The best class of another user's program. [default: normal]
    #[arg(long, value_name = "latency|normal|batch", env = "BATON_SERVE_GUEST_CLASS")]
    fixed guest_class: OneOf<Class> = (OneOf::default()),
    /// The largest weight of another user's program. [default: 1]
    #[arg(long, value_name = "N", env = "BATON_SERVE_GUEST_WEIGHT")]
    fixed guest_weight: u32 = (1),
    /// Take the host pool even if it is larger than the free memory.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "true|false",
        env = "BATON_SERVE_FORCE")]
    fixed force: bool = (false),
    /// Write a line of JSON for every switch to this file.
    #[arg(long, value_name = "FILE", env = "BATON_SERVE_TRACE")]
    fixed trace: PathBuf = none("no file"),
    /// Keep no record of events, which `baton stats`, `logs`, `trace` and `why` could read when the coordinator has ended, nor of the
    /// memory of programs, which `baton fit` remembers.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "true|false",
        env = "BATON_SERVE_NO_RECORD")]
    fixed no_record: bool = (false),
    /// Be one process, without a keeper beside it, which starts the coordinator again if it dies: programs then lose what they have on
    /// the host.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "true|false",
        env = "BATON_SERVE_NO_KEEPER")]
    fixed no_keeper: bool = (false),
    /// How long programs wait for a coordinator when the last one has died and none serves. Then those whose memory is not all on the GPU
    /// can go on no more, and are told so. [default: 1m]
    #[arg(long, value_name = "TIME", env = "BATON_SERVE_ORPHAN_WAIT")]
    fixed orphan_wait: Period = (Period(Duration::from_secs(60))),
    /// Show a page about this coordinator there, to users who know the token that is printed. [default: no page]
    #[arg(long, value_name = "127.0.0.1:7878", env = "BATON_SERVE_HTTP")]
    fixed http: Listen = none("no page"),
    /// Let the page suspend, resume and evict programs and change their class.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "true|false",
        env = "BATON_SERVE_HTTP_CONTROL")]
    fixed http_control: bool = (false),
    /// The page's token is in this file, which only you can read. [default: a new one each time, which is printed]
    #[arg(long, value_name = "FILE", env = "BATON_SERVE_HTTP_TOKEN_FILE")]
    fixed http_token_file: PathBuf = none("a new token each time"),
    /// Show metrics there too, for Prometheus: every user of this machine can read them. [default: only on a socket of yours]
    #[arg(long, value_name = "127.0.0.1:9400", env = "BATON_SERVE_METRICS")]
    fixed metrics: Listen = none("only on a socket"),
    /// Show metrics there only to readers who know the token in this file, which only you can read.
    #[arg(long, value_name = "FILE", env = "BATON_SERVE_METRICS_TOKEN_FILE")]
    fixed metrics_token_file: PathBuf = none("no token"),
    /// The parties between which GPU memory never changes hands: `users` (also those that `--allow-uid` lets in), or `strict`: all
    /// programs. It is given back to the driver instead, and made anew. With `strict`, nothing is taken from an unresponsive program.
    /// [default: users]
    #[arg(long, value_name = "users|strict", env = "BATON_SERVE_ISOLATION")]
    fixed isolation: OneOf<Isolation> = (OneOf::default()),
    /// If a program is unresponsive and others need memory that cannot be taken from it: `wait` for it, or `kill` it. [default: wait
    /// for your own, kill those of other users]
    #[arg(long, value_name = "wait|kill", env = "BATON_SERVE_ON_STUCK")]
    fixed on_stuck: OneOf<Stuck> = none("wait for your own, kill those of other users"),
    /// Shortest time for which others wait for such a program; at most 1 s for another user's that cannot be paused and shows no
    /// sign of life, even if it has the GPU. New programs of that user then wait nine times as long as others had to. [default: 10s]
    #[arg(long, value_name = "TIME", env = "BATON_SERVE_STUCK_AFTER")]
    fixed stuck_after: Period = (Period(Duration::from_secs(10))),
    /// kubelet's socket, so that metrics name the pods of programs: /var/lib/kubelet/pod-resources/kubelet.sock. [default: none]
    #[arg(long, value_name = "PATH", env = "BATON_SERVE_POD_RESOURCES")]
    fixed pod_resources: PathBuf = none("none"),
    /// Verbosity of the coordinator's log. [default: info]
    #[arg(long, value_name = "error|warn|info|debug", env = "BATON_SERVE_LOG_LEVEL")]
    tunable log_level: OneOf<LevelFilter> = (OneOf(LevelFilter::Info)),
    /// Run programs while their memory comes in, in pieces of this kind; or only once all is there. [default: groups]
    #[arg(
        long,
        value_name = "groups|extents|one|off",
        env = "BATON_SERVE_PIPELINE",
        hide_short_help = true,
        help_heading = "For measurements"
    )]
    fixed pipeline: OneOf<Pipeline> = (OneOf::default()),
    /// Copy out everything that is evicted, even if it has not changed.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "true|false",
        env = "BATON_SERVE_NO_HASH", hide_short_help = true, help_heading = "For measurements")]
    fixed no_hash: bool = (false),
    /// Copy in everything that was evicted, even if its frames have not been reused.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "true|false",
        env = "BATON_SERVE_NO_KEEP", hide_short_help = true, help_heading = "For measurements")]
    fixed no_keep: bool = (false),
}

/// The programs that run at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Programs that fit together, where they can be preempted.
    #[default]
    #[value(alias = "harvest")]
    #[serde(alias = "harvest")]
    Corun,
    /// One program at a time.
    Exclusive,
}

/// The differences between two sets of settings, a few words each.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Changes that apply at once.
    pub now: Vec<String>,
    /// Changes that apply after a restart.
    pub later: Vec<String>,
}

/// Reads a file that no other user may have written: its text decides which files this process opens and writes.
fn text_of_ours(path: &Path) -> Result<String, Box<dyn std::error::Error>> {
    let mut file = File::open(path)?;
    let found = file.metadata()?;
    let owner = found.uid();
    // Settings that come through a pipe have no owner to check.
    if found.is_file() && owner != 0 && owner != rustix::process::geteuid().as_raw() {
        return Err(baton_messages::settings_of_another(owner).into());
    }
    if found.is_file() && found.mode() & 0o002 != 0 {
        let mode = found.mode() & 0o7777;
        return Err(baton_messages::all_can_write_settings(format_args!("{mode:o}")).into());
    }
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(text)
}

impl Settings {
    /// Reads the settings in a file.
    ///
    /// # Errors
    ///
    /// When it cannot be read, or has an impossible setting. The error names it.
    pub fn of_file(path: &Path) -> Result<Self, CliError> {
        let in_file = |error: &dyn std::fmt::Display| baton_messages::in_settings_file(path.display(), error);
        let text = text_of_ours(path).map_err(|error| in_file(&error))?;
        let settings: Self = toml::from_str(&text).map_err(|error| in_file(&error))?;
        settings.check().map_err(|error| in_file(&error))?;
        for (number, one) in &settings.gpus {
            one.check_of_gpu(number).map_err(|error| in_file(&error))?;
        }
        Ok(settings)
    }

    /// Checks that a file can have these settings for one GPU.
    fn check_of_gpu(&self, number: &str) -> Result<(), CliError> {
        if number.parse::<usize>().is_err() {
            return Err(baton_messages::gpu_is_no_number(number).into());
        }
        if self.gpu.is_some() || !self.gpus.is_empty() {
            return Err(baton_messages::gpu_names_another(number).into());
        }
        Ok(self.check().map_err(|error| baton_messages::in_settings_of_gpu(number, error))?)
    }

    /// Returns a file's settings for this GPU.
    #[must_use]
    pub fn of_gpu(mut self, number: usize) -> Self {
        let one = self.gpus.remove(&number.to_string()).unwrap_or_default();
        self.gpus.clear();
        one.or(self)
    }

    /// Returns each setting that is set, by its key.
    fn table(&self) -> toml::Table {
        toml::Table::try_from(self).expect("settings are numbers, flags and texts")
    }

    /// Takes from `other` the settings that are not set here.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        let mut all = other.table();
        all.extend(self.table());
        all.try_into().expect("made of settings")
    }

    /// Returns the settings that can change while a coordinator serves. All of them have to be set.
    pub fn tuning(&self) -> Tuning {
        let set = "a setting that is usual";
        Tuning {
            quantum: self.quantum.expect(set).0,
            max_wait: self.max_wait.expect(set).0,
            burst: self.burst.expect(set).0,
            latency_slack: self.latency_slack.expect(set).0 / 100.0,
            max_tenants: self.max_programs.expect(set),
        }
    }

    /// The level of the log.
    pub fn log_level(&self) -> LevelFilter {
        self.log_level.expect("a setting that is usual").0
    }

    /// Returns the differences to new settings: those that can apply while a coordinator serves, and the others.
    pub fn changes(&self, new: &Self) -> Changes {
        let (old, new) = (self.table(), new.table());
        let mut changes = Changes::default();
        for key in old.keys().chain(new.keys().filter(|key| !old.contains_key(*key))) {
            let (before, after) = (old.get(key), new.get(key));
            if before == after {
                continue;
            }
            let word = |value: Option<&toml::Value>| match value {
                Some(toml::Value::String(text)) => text.clone(),
                Some(value) => value.to_string(),
                None => "not set".to_owned(),
            };
            let kind = if is_tunable(key) { &mut changes.now } else { &mut changes.later };
            kind.push(format!("{key} {} (was {})", word(after), word(before)));
        }
        changes
    }

    /// Returns these settings with the values of `new` for those that can change while a coordinator serves.
    #[must_use]
    pub fn tuned(&self, new: &Self) -> Self {
        let mut all = self.table();
        all.extend(new.table().into_iter().filter(|(key, _)| is_tunable(key)));
        all.try_into().expect("made of settings")
    }

    /// Returns the settings as words of a command line.
    pub fn words(&self) -> Vec<String> {
        let word = |(key, value): (&String, &toml::Value)| match value {
            toml::Value::String(text) => format!("--{key}={text}"),
            value => format!("--{key}={value}"),
        };
        self.table().iter().map(word).collect()
    }

    /// Returns the text of a file with these settings.
    pub fn text(&self) -> String {
        let mut text = toml::to_string(self).expect("settings are numbers, flags and texts");
        let table = self.table();
        for declared in DECLARED.iter().filter(|declared| !table.contains_key(&declared.key())) {
            if let Some(remark) = declared.remark {
                text += &format!("# {}: {remark}\n", declared.key());
            }
        }
        text
    }

    /// Checks each setting by itself.
    ///
    /// # Errors
    ///
    /// The setting's name, its value, and the values that it can have.
    pub fn check(&self) -> Result<(), CliError> {
        let period = |key: &str, value: Option<Period>, least: Duration, most: Duration| match value {
            Some(Period(time)) if time < least || time > most => {
                Err(baton_messages::time_out_of_range(key, Period(time), Period(least), Period(most)))
            }
            _ => Ok(()),
        };
        let (ms, hour) = (Duration::from_millis(1), Duration::from_secs(3600));
        period("quantum", self.quantum, ms, hour)?;
        period("max-wait", self.max_wait, ms, hour * 24)?;
        period("burst", self.burst, Duration::ZERO, hour)?;
        let number = |key: &str, value: Option<usize>, most: usize| match value {
            Some(number) if !(1..=most).contains(&number) => {
                Err(baton_messages::number_out_of_range(key, number, most))
            }
            _ => Ok(()),
        };
        number("max-programs", self.max_programs, MOST_TENANTS)?;
        number("guest-programs", self.guest_programs, MOST_TENANTS)?;
        number("guest-weight", self.guest_weight.map(|weight| weight as usize), MAX_WEIGHT as usize)?;
        Ok(())
    }

    /// Refuses a setting that has no effect because another one, on which it depends, is not set.
    ///
    /// # Errors
    ///
    /// The missing setting.
    pub fn check_together(&self) -> Result<(), CliError> {
        let needs = [
            (self.http_control == Some(true) && self.http.is_none(), "http-control", "--http 127.0.0.1:7878"),
            (self.http_token_file.is_some() && self.http.is_none(), "http-token-file", "--http 127.0.0.1:7878"),
            (
                self.metrics_token_file.is_some() && self.metrics.is_none(),
                "metrics-token-file",
                "--metrics 127.0.0.1:9400",
            ),
        ];
        match needs.into_iter().find(|(is_alone, ..)| *is_alone) {
            Some((_, key, needed)) => Err(baton_messages::has_no_effect(key, needed).into()),
            None => Ok(()),
        }
    }

    /// Returns the quotas of other users' programs, for this arena, host pool and GPU. All settings have to be set.
    pub fn quotas(&self, arena: u64, host_pool: u64, gpu: u64) -> Quotas {
        let set = "a setting that is usual";
        Quotas {
            arena: self.guest_arena.expect(set).of(arena),
            host_pool: self.guest_host_pool.expect(set).of(host_pool),
            leases: self.guest_leases.expect(set).of(gpu),
            tenants: self.guest_programs,
            class: self.guest_class.expect(set).0,
            weight: self.guest_weight.expect(set),
        }
    }

    /// Returns the users whose programs may join, and the group that can reach the socket.
    ///
    /// # Errors
    ///
    /// When there is no such group.
    pub fn guests(&self) -> Result<(Vec<RangeInclusive<u32>>, Visitors), CliError> {
        let users = self.allow_uid.as_ref().map(|users| users.0.clone());
        match &self.allow_group {
            // Only the group's members can connect.
            Some(group) => Ok((users.unwrap_or_else(|| vec![0..=u32::MAX]), Visitors::Group(endpoint::group(group)?))),
            None => Ok(users.map_or((Vec::new(), Visitors::Own), |users| (users, Visitors::Guests))),
        }
    }

    /// The chosen driver.
    pub fn driver(&self) -> DriverChoice {
        self.driver.as_ref().map_or(DriverChoice::System, |word| word.parse().unwrap_or(DriverChoice::System))
    }
}

impl DriverChoice {
    /// The kind of driver, as the other side is told.
    pub fn kind(&self) -> DriverKind {
        match self {
            Self::System => DriverKind::System,
            Self::Simulated => DriverKind::Simulated,
            Self::File(_) => DriverKind::File,
        }
    }
}

/// Returns the headroom in bytes, in whole pieces: in a small arena a few percent are less than one, and nothing is kept free.
pub(super) fn headroom(asked: Amount, arena: u64) -> Result<u64, CliError> {
    let headroom = asked.of(arena);
    if headroom > arena / 2 {
        return Err(baton_messages::headroom_is_too_large(size(headroom), size(arena)).into());
    }
    let piece = Arena::new(arena).largest_class().bytes();
    Ok(headroom / piece * piece)
}

/// Returns the arena in bytes, on a GPU of this name with `memory` bytes.
pub(super) fn arena(asked: Amount, memory: u64, name: &str) -> Result<u64, CliError> {
    let arena = asked.of(memory);
    if arena > memory {
        return Err(baton_messages::arena_is_too_large(size(arena), size(memory), name).into());
    }
    if arena == 0 {
        return Err(baton_messages::arena_is_too_small().into());
    }
    Ok(arena)
}

/// Returns the host pool in bytes, for an arena of this size and this much free host memory.
pub(super) fn host_pool(asked: Option<Amount>, arena: u64, free: u64, force: bool) -> Result<u64, CliError> {
    let pool = asked.unwrap_or(Amount::Bytes((free / 2).min(2 * arena))).of(free);
    if pool > free && !force {
        return Err(baton_messages::host_pool_is_too_large(size(pool), size(free)).into());
    }
    Ok(pool)
}

#[cfg(test)]
mod tests {
    use clap::{Command, FromArgMatches};

    use super::*;

    fn of_line(words: &[&str]) -> Settings {
        let matches = Settings::augment_args(Command::new("serve").no_binary_name(true)).get_matches_from(words);
        Settings::from_arg_matches(&matches).expect("valid settings")
    }

    #[test]
    fn the_command_line_goes_before_the_file() {
        let file: Settings =
            toml::from_str("arena = \"2GiB\"\nquantum = \"5ms\"\nhost-pool = \"10%\"\n").expect("valid settings");
        let both = of_line(&["--arena=1GiB", "--no-preempt"]).or(file);
        assert_eq!(both.arena, Some(Amount::Bytes(1 << 30)));
        assert_eq!(both.quantum, Some(Period(Duration::from_millis(5))));
        assert_eq!(both.words(), ["--arena=1GiB", "--host-pool=10%", "--no-preempt=true", "--quantum=5ms"]);
    }

    #[test]
    fn of_other_settings_some_hold_at_once_and_the_others_are_named() {
        let old = of_line(&["--arena=1GiB", "--http=127.0.0.1:7878", "--quantum=5ms"]).or(Settings::usual());
        let new = of_line(&["--arena=2GiB", "--quantum=7ms", "--max-programs=9", "--trace=t"]).or(Settings::usual());
        let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(
            old.changes(&new),
            Changes {
                now: words(&["max-programs 9 (was 256)", "quantum 7ms (was 5ms)"]),
                later: words(&["arena 2GiB (was 1GiB)", "http not set (was 127.0.0.1:7878)", "trace t (was not set)"]),
            }
        );
        let tuned = old.tuned(&new);
        assert_eq!((tuned.arena, tuned.max_programs), (old.arena, Some(9)));
        assert_eq!(tuned.changes(&new).now, words(&[]));
        assert_eq!(tuned.changes(&new).later, old.changes(&new).later, "they are named until they hold");
        let usual = Settings::usual().table();
        assert!(DECLARED.iter().filter(|one| one.is_tunable).all(|one| usual.contains_key(&one.key())));
    }

    #[test]
    fn what_is_printed_means_the_same_in_a_file_and_on_the_command_line() {
        let odd = of_line(&["--driver=/opt/lib cuda.so", "--arena=1073741825B", "--mode=harvest", "--burst=1500us"]);
        for settings in [Settings::usual(), odd] {
            let text = settings.text();
            assert_eq!(toml::from_str::<Settings>(&text).expect("valid settings"), settings, "{text}");
            let words = settings.words();
            assert_eq!(of_line(&words.iter().map(String::as_str).collect::<Vec<_>>()), settings);
        }
    }

    #[test]
    fn every_setting_has_a_flag_a_key_and_a_variable_of_one_name() {
        let command = Settings::augment_args(Command::new("serve"));
        let flags: Vec<String> =
            command.get_arguments().filter_map(|flag| flag.get_long()).map(str::to_owned).collect();
        let text = Settings::usual().text();
        for flag in command.get_arguments() {
            let name = flag.get_long().expect("a flag");
            let variable = format!("BATON_SERVE_{}", name.to_uppercase().replace('-', "_"));
            assert_eq!(flag.get_env().and_then(|name| name.to_str()), Some(variable.as_str()));
            assert!(text.contains(&format!("{name} =")) || text.contains(&format!("# {name}:")), "{name}: {text}");
        }
        let usual = Settings::usual().table();
        for flag in command.get_arguments() {
            let help = flag.get_help().expect("help").to_string();
            match usual.get(flag.get_long().expect("a flag")) {
                Some(toml::Value::Boolean(false)) => {}
                Some(value) => {
                    let word = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                    assert!(help.contains(&format!("[default: {word}")), "{help} has another default: {word}");
                }
                None => {}
            }
        }
        assert_eq!(flags.len(), 39, "{flags:?}");
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_name_and_value() {
        for (words, said) in [
            (["--quantum=0ms"], "quantum cannot be 0s"),
            (["--max-wait=2days"], "max-wait cannot be 2days"),
            (["--burst=2h"], "burst cannot be 2h"),
            (["--max-programs=0"], "max-programs cannot be 0"),
        ] {
            let error = of_line(&words).check().expect_err(said).to_string();
            assert!(error.contains(said), "{error}");
        }
        Settings::usual().check().expect("what is usual can be");
        let error = toml::from_str::<Settings>("areena = \"2GiB\"").expect_err("no such setting");
        assert!(error.to_string().contains("areena"), "{error}");
    }

    #[test]
    fn a_file_is_named_with_what_is_wrong_in_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("baton.toml");
        for (text, said) in
            [("quantum = \"0ms\"", "quantum cannot be 0s"), ("arena = \"much\"", "much"), ("arena = 3", "arena")]
        {
            std::fs::write(&path, text).expect("a file");
            let error = Settings::of_file(&path).expect_err(text).to_string();
            assert!(error.contains("baton.toml") && error.contains(said), "{error}");
        }
    }

    #[test]
    fn what_a_file_says_of_one_gpu_goes_before_what_it_says_of_all() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("baton.toml");
        std::fs::write(&path, "arena = \"50%\"\nquantum = \"20ms\"\n[gpus.1]\narena = \"70%\"\n").expect("a file");
        let file = || Settings::of_file(&path).expect("settings");
        let [first, second] = [0, 1].map(|number| file().of_gpu(number));
        assert_eq!((first.arena, second.arena), (Some(Amount::Percent(50.0)), Some(Amount::Percent(70.0))));
        assert_eq!((first.quantum, &first.gpus), (second.quantum, &second.gpus));
        for wrong in ["[gpus.first]\narena = \"1GiB\"", "[gpus.0]\ngpu = 1", "[gpus.0]\nquantum = \"0ms\""] {
            std::fs::write(&path, wrong).expect("a file");
            let error = Settings::of_file(&path).expect_err(wrong).to_string();
            assert!(error.contains("gpus."), "{error}");
        }
    }

    #[test]
    fn an_arena_above_the_gpu_and_a_pool_above_memory_are_refused() {
        let error = arena(Amount::Bytes(2 << 30), 1 << 30, "a GPU").expect_err("too large").to_string();
        assert!(error.contains("2 GiB is more than the 1 GiB of a GPU"), "{error}");
        let huge = Some(Amount::Bytes(1 << 60));
        let error = host_pool(huge, 1 << 30, 1 << 30, false).expect_err("too large").to_string();
        assert!(error.contains("--force"), "{error}");
        assert_eq!(host_pool(huge, 1 << 30, 1 << 30, true).ok(), Some(1 << 60));
    }
}
