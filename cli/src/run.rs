//! `baton run`: runs a program as a tenant. It starts a coordinator if there is none, and then becomes the program, so exit code,
//! signals and standard streams are the program's own. A program that takes the GPU and cannot share it ends: see
//! [`baton_contract::settings::REQUIRE`].

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::hash::{BuildHasher as _, DefaultHasher, Hash as _, Hasher as _, RandomState};
use std::io::IsTerminal as _;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};

use baton_client::driver::name;
use baton_client::install::Install;
use baton_client::{self as client, Offer};
use baton_contract::class::Class;
use baton_contract::memory::size;
use baton_contract::messages::DriverKind;
use baton_contract::scheduling::{Change, Scheduling};
use baton_contract::{settings, socket_path};
use baton_coordinator::device::gpu::GpuError;
use baton_coordinator::endpoint::{self, Folder};
use baton_messages::Message;
use baton_policy::placement;
use baton_report::status::Status;
use baton_report::tenant::{Standing, Tenant};
use baton_workbench::output::{quoted, say};
use clap::Args;

use super::program::{Kind, Root};
use super::settings::Settings;
use super::units::{Amount, Gpus};
use super::{CliError, DriverChoice, folder, gpu_uuid, gpu_uuids, named_socket, program, usual_socket};

/// The exit code for a failure of `baton run` itself, as in `env` and `timeout`.
pub const FAILED: u8 = 125;

/// Longest time for a coordinator's start. One that waits in vain for another to end reports that within a minute.
const STARTING: Duration = Duration::from_secs(75);

/// `baton run`.
#[derive(Clone, Debug, Args)]
pub struct Run {
    /// The program's name in `baton status`.
    #[arg(long)]
    name: Option<String>,
    /// The urgency of its work.
    #[arg(long, value_name = "latency|normal|batch")]
    class: Option<Class>,
    /// Its share of the GPU's time among programs of its class, in proportion, for `normal` and `batch`. [default: 1]
    #[arg(long, value_name = "N")]
    weight: Option<u32>,
    /// Target time of a request, for `latency`: requests with earlier deadlines go first.
    #[arg(long, value_name = "20ms", value_parser = super::set::micros)]
    slo: Option<u64>,
    /// Start to use the GPU when this much memory is free for the program, on the GPU and on the host together: then it waits instead
    /// of running out of memory, and has that much for certain. All processes that it starts share it. A percentage is one of the GPU.
    #[arg(long, value_name = "14GB|90%")]
    needs: Option<Amount>,
    /// Have the program, and all that it starts or that run with the same name, be on all their GPUs at the same time, or on none: the
    /// ranks of one job, which wait for each other on the GPU. Without a name, the processes of this run.
    #[arg(long, value_name = "NAME", num_args = 0..=1, require_equals = true)]
    gang: Option<Option<String>>,
    /// Let the program run without Baton if it cannot share the GPU. Otherwise it ends, with exit code 125.
    #[arg(long)]
    optional: bool,
    #[command(flatten, next_help_heading = "If a coordinator has to be started")]
    settings: Settings,
    /// The program and its arguments.
    #[arg(trailing_var_arg = true, required = true, value_name = "PROGRAM ARGS")]
    program: Vec<OsString>,
}

/// Becomes the program; returns only if it cannot.
///
/// # Errors
///
/// When there is no GPU, no coordinator can be started, or the program cannot run.
pub fn run(run: Run) -> Result<std::convert::Infallible, CliError> {
    let (program, arguments) = run.program.split_first().expect("clap demands a program");
    let file = program::find(program).map_err(|error| no_program(program, &error))?;
    let mut command = Command::new(program);
    command.args(arguments);
    match prepare(&run, program, &file, &mut command) {
        Ok(connection) => {
            // The connection stays open over the exec, so that the coordinator does not end before the program has joined.
            rustix::io::fcntl_setfd(&connection, rustix::io::FdFlags::empty()).map_err(std::io::Error::from)?;
            let _open = connection;
            Err(no_program(program, &become_program(&mut command, &file)))
        }
        Err(error) if run.optional => {
            say("run", baton_messages::runs_without_baton(error));
            Err(no_program(program, &become_program(Command::new(program).args(arguments), &file)))
        }
        Err(error) => {
            let text = no_driver(&run, &error).unwrap_or_else(|| error.into());
            Err(CliError::NoProgram { text, code: FAILED })
        }
    }
}

/// Becomes the program in this file; returns the reason if that is impossible.
///
/// `exec` hands files that the kernel refuses to a shell. That is right for a script that names no interpreter, but to a shell, the
/// bytes of a program for another machine are random commands.
fn become_program(command: &mut Command, file: &Path) -> std::io::Error {
    if program::is_binary(&Root::Own, file)
        && let Err(error) = never_by_a_shell(command, file)
    {
        return error;
    }
    command.exec()
}

/// Makes a command's `exec` run its file as it is, or fail.
fn never_by_a_shell(command: &mut Command, file: &Path) -> std::io::Result<()> {
    let mut environment: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => environment.insert(name.to_owned(), value.to_owned()),
            None => environment.remove(name),
        };
    }
    let settings = environment.into_iter().map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat());
    let settings = settings.map(CString::new).collect::<Result<Vec<_>, _>>()?;
    let words =
        std::iter::once(command.get_program()).chain(command.get_args()).map(|word| CString::new(word.as_bytes()));
    let words = words.collect::<Result<Vec<_>, _>>()?;
    let file = CString::new(file.as_os_str().as_bytes())?;
    // SAFETY: nothing is forked. `execve` gets C strings that live until it has taken them, and null behind the last ones.
    unsafe {
        command.pre_exec(move || {
            let list = |words: &[CString]| words.iter().map(|word| word.as_ptr()).chain([std::ptr::null()]).collect();
            let (words, settings): (Vec<_>, Vec<_>) = (list(&words), list(&settings));
            libc::execve(file.as_ptr(), words.as_ptr(), settings.as_ptr());
            Err(std::io::Error::last_os_error())
        });
    }
    Ok(())
}

/// Connects to a coordinator, and sets the variables with which the command's program finds it.
fn prepare(run: &Run, program: &OsStr, file: &Path, command: &mut Command) -> Result<OwnedFd, CliError> {
    run.settings.check()?;
    scheduling(run)?;
    can_share(program, program::kind(&Root::Own, file))?;
    let install = Install::of_this_program()?;
    let shim = preloadable(&install.shim()?)?;
    let choice = run.settings.driver();
    let library = choice.library(&install)?;
    command.envs(choice.set()?);
    let is_any = run.settings.gpu == Some(Gpus::Any);
    let settings = Settings { gpu: run.settings.gpu.clone().filter(|_| !is_any), ..run.settings.clone() };
    let mut _chooses = None;
    // A coordinator that is started for any GPU serves all.
    let (socket, is_named, starts_one) = match run.settings.socket.clone().or_else(named_socket) {
        Some(socket) => (std::path::absolute(socket)?, true, true),
        None if is_any => {
            // Each sees where those before it have gone; those of a user who may write nothing there choose at the same time.
            if let Ok(chooses) = endpoint::start_lock(&folder().join("any")) {
                chooses.lock()?;
                _chooses = Some(chooses);
            }
            let gpu = any_gpu(run, &settings, library.as_deref(), &install)?;
            command.env("CUDA_VISIBLE_DEVICES", socket_path::gpu_name(gpu));
            (std::path::absolute(usual_socket(gpu))?, true, false)
        }
        None => {
            let asked = run.settings.gpu.as_ref();
            let (gpu, count) = gpu_uuid(library.as_deref(), asked.map_or(0, Gpus::first))?;
            let is_named = count == 1 || matches!(asked, Some(Gpus::These(numbers)) if numbers.len() == 1);
            (std::path::absolute(usual_socket(gpu))?, is_named, is_named)
        }
    };
    let (connection, offer) = reach(&socket, starts_one, &settings, &install)?;
    let library = drivers_of(&socket, offer, run.settings.driver.as_ref().map(|_| &choice), library, &install)?;
    if offer.driver == DriverKind::Simulated {
        command.envs(DriverChoice::Simulated.set()?);
    }
    let needs = possible_needs(run, &offer)?;
    let gpu = socket_path::gpu_name(offer.gpu);
    command.env("LD_PRELOAD", preload(&shim, &std::env::var_os("LD_PRELOAD").unwrap_or_default()));
    command.env("ASAN_OPTIONS", sanitizers(std::env::var_os("ASAN_OPTIONS")));
    command.env(name(settings::CONNECTION), connection.as_raw_fd().to_string());
    let mut assign = |name: &'static CStr, value: Option<OsString>| {
        match value {
            Some(value) => command.env(self::name(name), value),
            None => command.env_remove(self::name(name)),
        };
    };
    // If the user has named one GPU, or there is only one, the program ignores Baton on other GPUs. Otherwise it finds the coordinator
    // of any GPU that it takes, and has to share this one.
    let folder = socket.parent().filter(|_| !is_named);
    assign(settings::FOLDER, folder.map(Into::into));
    assign(settings::SOCKET, folder.is_none().then(|| socket.clone().into()));
    assign(settings::GPU, folder.is_none().then(|| gpu.clone().into()));
    let required = if folder.is_none() { "1".into() } else { gpu.into() };
    assign(settings::REQUIRE, (!run.optional).then_some(required));
    let mut put = |name: &'static CStr, value: Option<OsString>| {
        value.map(|value| command.env(self::name(name), value));
    };
    put(settings::DRIVER, library.map(Into::into));
    put(settings::NAME, run.name.as_ref().map(Into::into));
    put(settings::CLASS, run.class.map(|class| class.word().into()));
    put(settings::WEIGHT, run.weight.map(|weight| weight.to_string().into()));
    put(settings::SLO_MICROS, run.slo.map(|slo| slo.to_string().into()));
    put(settings::NEEDS, needs.map(|bytes| bytes.to_string().into()));
    // Only this tells that processes belong to one run.
    put(settings::GANG, run.gang.as_ref().map(|name| gang(name.as_deref()).to_string().into()));
    put(settings::RUN, needs.map(|_| RandomState::new().build_hasher().finish().to_string().into()));
    Ok(connection)
}

/// The GPU for a program that may use any: the best of those that are served ([`placement`]). If none is, a coordinator of all is started.
fn any_gpu(run: &Run, settings: &Settings, library: Option<&Path>, install: &Install) -> Result<[u8; 16], CliError> {
    let all = gpu_uuids(library)?;
    let status = |gpu: &[u8; 16]| serde_json::from_slice(&client::status(&usual_socket(*gpu)).ok()?).ok();
    let served = || all.iter().filter_map(|gpu| Some((*gpu, placed(&status(gpu)?)))).unzip();
    let (mut gpus, mut standings): (Vec<[u8; 16]>, Vec<placement::Gpu>) = served();
    // The coordinator waits for a program as long as this is open.
    let mut _started = None;
    if gpus.is_empty() {
        _started = Some(reach(&std::path::absolute(usual_socket(all[0]))?, false, settings, install)?);
        (gpus, standings) = served();
    }
    let largest = standings.iter().map(|gpu| gpu.arena).max().unwrap_or(0);
    let needs = needs(run, largest)?.unwrap_or(0);
    Ok(placement::choose(&standings, needs).map_or(all[0], |at| gpus[at]))
}

/// How a GPU stands, for a program that looks for one.
fn placed(status: &Status) -> placement::Gpu {
    let here = || status.tenants.iter().filter(|tenant| !tenant.standing.disconnected);
    let is_at_work = |tenant: &&Tenant| {
        let Standing { running, arriving, preempted, waiting, .. } = tenant.standing;
        running || arriving || preempted || waiting
    };
    let had: u64 = here().map(|tenant| tenant.bytes + tenant.immovable_bytes).sum();
    let needed: u64 = status.newcomers.iter().filter_map(|newcomer| newcomer.needs_bytes).sum();
    placement::Gpu {
        arena: status.arena.bytes.saturating_sub(status.arena.headroom_bytes),
        taken: had + status.ledger.lines.promised_bytes + needed,
        expected: status.expected,
        at_work: here().filter(is_at_work).count() + status.newcomers.len(),
        programs: here().count() + status.newcomers.len(),
    }
}

/// The number of the gang with this name, or of a gang that has none. It is not 0.
fn gang(name: Option<&str>) -> u64 {
    let number = match name {
        Some(name) => {
            // The same in all commands of this version.
            let mut hash = DefaultHasher::new();
            name.hash(&mut hash);
            hash.finish()
        }
        None => RandomState::new().build_hasher().finish(),
    };
    number.max(1)
}

/// Returns the message for a system without driver or GPU; it names a command that works there.
fn no_driver(run: &Run, error: &CliError) -> Option<Message> {
    let CliError::Gpu { error } = error else { return None };
    let what = match error {
        _ if run.settings.driver() != DriverChoice::System => return None,
        GpuError::Library { .. } => baton_messages::NO_DRIVER,
        _ if error.is_no_gpu() => baton_messages::NO_GPU,
        _ => return None,
    };
    let words: Vec<OsString> = std::env::args_os().collect();
    let baton = words.first().map_or("baton".into(), |word| quoted(word));
    let run = simulated(&words, run.program.len());
    Some(baton_messages::never_simulates(what, error, run, format_args!("{baton} demo")))
}

/// Returns the same `baton run` on the simulated driver, as a shell reads it. `program`: the number of words that are the program and
/// its arguments.
fn simulated(words: &[OsString], program: usize) -> String {
    let (before, program) = words.split_at(words.len().saturating_sub(program));
    let mut said: Vec<String> = before.iter().take(2).map(|word| quoted(word)).collect();
    said.extend(["--driver", "sim"].map(str::to_owned));
    let mut options = before.iter().skip(2);
    while let Some(option) = options.next() {
        match option.as_bytes() {
            b"--driver" => drop(options.next()),
            option if option.starts_with(b"--driver=") || option == b"--" => {}
            _ => said.push(quoted(option)),
        }
    }
    said.push("--".to_owned());
    said.extend(program.iter().map(|word| quoted(word)));
    said.join(" ")
}

/// Returns the value of a setting in the environment, if set.
fn of<T: FromStr>(name: &'static CStr, what: &str) -> Result<Option<T>, CliError> {
    let name = self::name(name);
    let Some(word) = std::env::var_os(name).filter(|word| !word.is_empty()) else { return Ok(None) };
    let value = word.to_str().and_then(|word| word.parse().ok());
    let wrong = || CliError::Told(baton_messages::variable_is_wrong(name, Path::new(&word).display(), what));
    value.ok_or_else(wrong).map(Some)
}

/// Checks the program's scheduling, from options and environment; impossible values are refused here.
fn scheduling(run: &Run) -> Result<(), CliError> {
    let said = Change {
        class: run.class.or(of(settings::CLASS, baton_messages::A_CLASS)?),
        weight: run.weight.or(of(settings::WEIGHT, baton_messages::A_WEIGHT)?),
        slo_micros: run.slo.or(of(settings::SLO_MICROS, baton_messages::A_TIME)?),
        suspended: None,
    };
    Scheduling::default().changed(said).check().map_err(CliError::Told)
}

/// Returns the memory that the program needs, in bytes, if the option or the environment says so; `whole` is that of a GPU.
fn needs(run: &Run, whole: u64) -> Result<Option<u64>, CliError> {
    match run.needs {
        Some(Amount::Bytes(bytes)) => Ok(Some(bytes)),
        Some(part) => Ok(Some(part.of(whole))),
        None => of(settings::NEEDS, baton_messages::AN_AMOUNT),
    }
}

/// The same, if the coordinator can ever have that much.
fn possible_needs(run: &Run, offer: &Offer) -> Result<Option<u64>, CliError> {
    match needs(run, offer.bytes)? {
        Some(bytes) if bytes > offer.all => {
            Err(baton_messages::needs_more_than_there_is(size(bytes), size(offer.all)).into())
        }
        needs => Ok(needs),
    }
}

/// Refuses a program that would not start, or would run without Baton. Prints a remark if it may start others that share the GPU.
fn can_share(program: &OsStr, kind: Kind) -> Result<(), CliError> {
    let program = Path::new(program).display();
    match kind {
        Kind::Dynamic => {}
        Kind::Static => say("run", baton_messages::is_static(program)),
        Kind::Bits32 => say("run", baton_messages::is_32_bit(program)),
        Kind::Musl => return Err(baton_messages::uses_musl(program).into()),
        Kind::Privileged => return Err(baton_messages::has_more_rights(program).into()),
    }
    Ok(())
}

/// The error with a shell's exit code: 127 if the program is not there, 126 if it cannot be run.
fn no_program(program: &OsStr, error: &std::io::Error) -> CliError {
    let code = if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 };
    CliError::NoProgram { text: baton_messages::cannot_be_run(Path::new(program).display(), error), code }
}

/// Returns the driver file that the program has to use: the coordinator's. Each side finds it by itself.
fn drivers_of(
    socket: &Path,
    offer: Offer,
    named: Option<&DriverChoice>,
    library: Option<PathBuf>,
    install: &Install,
) -> Result<Option<PathBuf>, CliError> {
    let kind = named.map_or(offer.driver, DriverChoice::kind);
    if kind != offer.driver {
        return Err(baton_messages::other_driver(socket.display(), offer.driver.word()).into());
    }
    match (kind, named) {
        (DriverKind::System, _) => Ok(None),
        (DriverKind::Simulated, _) => Ok(Some(install.simulated_driver()?)),
        (DriverKind::File, Some(_)) => Ok(library),
        (DriverKind::File, None) => Err(baton_messages::name_the_driver_file(socket.display()).into()),
    }
}

/// True for bytes that separate paths in `LD_PRELOAD`, or begin a word that the loader replaces in them (`ld.so(8)`).
fn is_special(byte: &u8) -> bool {
    matches!(byte, b' ' | b':' | b'$')
}

/// Returns a path of the library that can be preloaded: its own, or a link's if that has a space, say, which cannot be quoted.
fn preloadable(shim: &Path) -> Result<PathBuf, CliError> {
    let is_plain = |path: &Path| !path.as_os_str().as_encoded_bytes().iter().any(is_special);
    if is_plain(shim) {
        return Ok(shim.to_path_buf());
    }
    let fallback = socket_path::fallback(rustix::process::geteuid().as_raw());
    let path = Some(socket_path::own_folder()).filter(|folder| is_plain(folder)).unwrap_or(fallback);
    let folder = Folder::private(&path)?;
    let mut hash = DefaultHasher::new();
    shim.hash(&mut hash);
    let link = PathBuf::from(format!("libbaton-{:016x}.so", hash.finish()));
    folder.link(&link, shim)?;
    Ok(path.join(link))
}

/// Puts our library after those that are preloaded already: a sanitizer's has to be first, as do some allocators. But ours comes before
/// a driver, because the first library with that name wins.
fn preload(shim: &Path, others: &OsStr) -> OsString {
    let words = others.as_encoded_bytes().split(|byte| matches!(byte, b' ' | b':')).filter(|word| !word.is_empty());
    let (mut list, ours) = (Vec::new(), shim.as_os_str().as_encoded_bytes());
    for word in words.filter(|word| *word != ours) {
        let name = word.rsplit(|byte| *byte == b'/').next().unwrap_or(word);
        if name.starts_with(b"libcuda.so") && !list.contains(&ours) {
            list.push(ours);
        }
        list.push(word);
    }
    if !list.contains(&ours) {
        list.push(ours);
    }
    OsString::from_vec(list.join(&b':'))
}

/// The user's options for AddressSanitizer's runtime, with one added: in programs that are linked to it, it need not be the first
/// library. A preloaded library, such as ours, is always before it there.
fn sanitizers(options: Option<OsString>) -> OsString {
    let mut all = options.unwrap_or_default();
    if !all.is_empty() {
        all.push(":");
    }
    all.push("verify_asan_link_order=0");
    all
}

/// Connects to the coordinator, which is started if none answers. If several programs come at once, one starts it and the others wait.
/// A coordinator that wants to end takes the same lock for that.
///
/// `is_named`: the coordinator is to serve this GPU alone.
fn reach(socket: &Path, is_named: bool, settings: &Settings, install: &Install) -> Result<(OwnedFd, Offer), CliError> {
    if let Some(reached) = client::announce(socket)? {
        let places = Settings { gpu: None, driver: None, socket: None, ..settings.clone() };
        let ignored = places.words();
        if !ignored.is_empty() {
            let keeps = baton_messages::keeps_its_own_settings(ignored.join(" "));
            say("run", keeps);
        }
        return Ok(reached);
    }
    let lock = endpoint::start_lock(socket)
        .map_err(|error| CliError::Told(baton_messages::none_can_be_started(socket.display(), error)))?;
    lock.lock()?;
    if let Some(reached) = client::announce(socket)? {
        return Ok(reached);
    }
    // Without a driver the coordinator would end at once, and its log explains less than this error.
    gpu_uuid(settings.driver().library(install)?.as_deref(), settings.gpu.as_ref().map_or(0, Gpus::first))?;
    let (mut coordinator, log) = start(socket, is_named, settings, install)?;
    if std::io::stderr().is_terminal() {
        say("run", baton_messages::started_a_coordinator(log.display()));
    }
    let end = Instant::now() + STARTING;
    loop {
        if let Some(reached) = client::announce(socket)? {
            return Ok(reached);
        }
        if let Some(status) = coordinator.try_wait()? {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            let last = said.lines().last().unwrap_or(baton_messages::SAID_NOTHING);
            return Err(baton_messages::coordinator_did_not_start(status, last).into());
        }
        if Instant::now() > end {
            return Err(baton_messages::coordinator_is_not_ready(log.display()).into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn start(socket: &Path, is_named: bool, settings: &Settings, install: &Install) -> Result<(Child, PathBuf), CliError> {
    let (output, log) = endpoint::log_file(socket)?;
    let settings = Settings { socket: is_named.then(|| socket.to_path_buf()), ..settings.clone() };
    let mut command = Command::new(install.command());
    command.arg("serve").arg("--until-idle").args(settings.words());
    if !is_named {
        // The sockets of other GPUs lie there too.
        command.env(name(settings::FOLDER), socket.parent().unwrap_or(Path::new("/")));
    }
    command.env_remove("LD_PRELOAD").env_remove(name(settings::TRACE)).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(output);
    // SAFETY: `setsid` may be called between fork and exec. The coordinator gets a session of its own: the terminal's signals are for
    // the program, not for it.
    unsafe { command.pre_exec(|| rustix::process::setsid().map(|_| ()).map_err(Into::into)) };
    Ok((command.spawn()?, log))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_comes_behind_what_is_preloaded_already_and_before_a_driver() {
        let shim = Path::new("/opt/libbaton.so");
        for (others, all) in [
            ("", "/opt/libbaton.so"),
            ("libasan.so.8", "libasan.so.8:/opt/libbaton.so"),
            ("libasan.so.8 /lib/libtcmalloc.so:", "libasan.so.8:/lib/libtcmalloc.so:/opt/libbaton.so"),
            ("/opt/libbaton.so:libasan.so.8", "libasan.so.8:/opt/libbaton.so"),
            ("a.so:/usr/lib/libcuda.so.1:libcuda.so", "a.so:/opt/libbaton.so:/usr/lib/libcuda.so.1:libcuda.so"),
        ] {
            assert_eq!(preload(shim, OsStr::new(others)), all, "{others}");
        }
    }

    #[test]
    fn a_path_that_cannot_be_preloaded_gets_a_link_that_can() {
        let folder = tempfile::tempdir().expect("a folder");
        let odd = folder.path().join("a b:c").join("libbaton.so");
        std::fs::create_dir(odd.parent().expect("a folder")).expect("a folder");
        std::fs::write(&odd, "library").expect("a file");
        for _ in 0..2 {
            let link = preloadable(&odd).expect("a link");
            assert!(!link.as_os_str().as_encoded_bytes().iter().any(is_special), "{}", link.display());
            assert_eq!(std::fs::read(&link).expect("there"), b"library");
        }
        let link = preloadable(&odd).expect("a link");
        std::fs::remove_file(link).expect("ours");
        let plain = Path::new("/opt/libbaton.so");
        assert_eq!(preloadable(plain).expect("as it is"), plain);
    }
}
