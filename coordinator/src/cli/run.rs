//! `baton run`: a program as a tenant. Starts a coordinator if there is none, and then becomes the program, so
//! that exit code, signals and standard streams are the program's own.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::IsTerminal as _;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use baton_contract::class::Class;
use baton_contract::scheduling::{Change, Scheduling};
use baton_contract::settings;
use clap::Args;

use super::serve::Settings;
use super::{CliError, DriverChoice, client, make_private, named_socket, open_gpu, usual_socket};
use crate::driver::name;
use crate::install::Install;

/// How long a coordinator may take to start.
const STARTING: Duration = Duration::from_secs(60);

/// `baton run`.
#[derive(Clone, Debug, Args)]
pub struct Run {
    /// What to call the program in `baton status`.
    #[arg(long)]
    name: Option<String>,
    /// How urgent its work is.
    #[arg(long, value_name = "latency|normal|batch")]
    class: Option<Class>,
    /// Its share of the GPU's time among programs of its class, in proportion, for `normal` and `batch`. [default: 1]
    #[arg(long, value_name = "N")]
    weight: Option<u32>,
    /// How long a request may take, for `latency`: the one that has to be answered first goes first.
    #[arg(long, value_name = "20ms", value_parser = super::set::micros)]
    slo: Option<u64>,
    #[command(flatten)]
    settings: Settings,
    /// The program and its arguments.
    #[arg(trailing_var_arg = true, required = true, value_name = "PROGRAM ARGS")]
    program: Vec<OsString>,
}

/// Becomes the program; returns only if it cannot.
///
/// # Errors
///
/// When there is no GPU, no coordinator can be started, or the program cannot be.
pub fn run(run: Run) -> Result<std::convert::Infallible, CliError> {
    let wanted = Change { class: run.class, weight: run.weight, slo_micros: run.slo, paused: None };
    Scheduling::default().changed(wanted).check().map_err(|error| CliError::Told(error.to_owned()))?;
    let (program, arguments) = run.program.split_first().expect("clap demands a program");
    can_be_run(program)?;
    let install = Install::of_this_program()?;
    let shim = install.shim()?;
    let choice = run.settings.driver();
    let mut library = choice.library(&install)?;
    set(choice.settings()?);
    let socket = match run.settings.socket.clone().or_else(named_socket) {
        Some(socket) => std::path::absolute(socket)?,
        None => usual_socket(open_gpu(library.as_deref(), run.settings.gpu.unwrap_or(0))?.uuid),
    };
    let connection = reach(&socket, &run.settings, &install)?;
    if run.settings.driver.is_none() {
        // A program has to use the driver that its coordinator uses.
        library = drivers_of(&socket)?;
        if library == install.simulated_driver().ok() {
            set(DriverChoice::Simulated.settings()?);
        }
    }
    // Kept open over the exec, so that the coordinator does not end before the program has come.
    rustix::io::fcntl_setfd(&connection, rustix::io::FdFlags::empty()).map_err(std::io::Error::from)?;

    let mut command = Command::new(program);
    command.args(arguments).env("LD_PRELOAD", preload(&shim)).env(name(settings::SOCKET), &socket);
    command.env(name(settings::CONNECTION), connection.as_raw_fd().to_string());
    if let Some(library) = library {
        command.env(name(settings::DRIVER), library);
    }
    if let Some(tenant) = run.name {
        command.env(name(settings::NAME), tenant);
    }
    if let Some(class) = run.class {
        command.env(name(settings::CLASS), class.word());
    }
    if let Some(weight) = run.weight {
        command.env(name(settings::WEIGHT), weight.to_string());
    }
    if let Some(slo) = run.slo {
        command.env(name(settings::SLO_MICROS), slo.to_string());
    }
    Err(no_program(program, &command.exec()))
}

/// Whether a program is there, before a coordinator is started for it.
fn can_be_run(program: &OsStr) -> Result<(), CliError> {
    let check = |path: &Path| rustix::fs::access(path, rustix::fs::Access::EXEC_OK);
    let found = if program.as_encoded_bytes().contains(&b'/') {
        check(Path::new(program))
    } else {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let tries: Vec<_> = std::env::split_paths(&path).map(|folder| check(&folder.join(program))).collect();
        let refused = tries.iter().find(|found| **found == Err(rustix::io::Errno::ACCESS)).copied();
        let none = refused.unwrap_or(Err(rustix::io::Errno::NOENT));
        tries.into_iter().find(Result::is_ok).unwrap_or(none)
    };
    found.map_err(|error| no_program(program, &error.into()))
}

/// As shells have it: 127 if it is not there, 126 if it cannot be run.
fn no_program(program: &OsStr, error: &std::io::Error) -> CliError {
    let code = if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 };
    CliError::NoProgram { text: format!("{}: {error}", Path::new(program).display()), code }
}

/// Sets what the program is to find in its environment.
fn set(environment: Vec<(&'static str, OsString)>) {
    for (name, value) in environment {
        // SAFETY: no other thread runs yet.
        unsafe { std::env::set_var(name, value) };
    }
}

/// The driver of the coordinator at a socket.
fn drivers_of(socket: &Path) -> Result<Option<PathBuf>, CliError> {
    #[derive(serde::Deserialize)]
    struct Answer {
        driver: Option<PathBuf>,
    }
    let answer: Answer = serde_json::from_slice(&client::status(socket)?)
        .map_err(|error| CliError::Told(format!("the coordinator's answer cannot be read: {error}")))?;
    Ok(answer.driver)
}

/// Our library before those that are preloaded already.
fn preload(shim: &Path) -> OsString {
    let mut list = shim.as_os_str().to_owned();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        list.push(":");
        list.push(others);
    }
    list
}

/// A connection to the coordinator, which is started if none answers. When several programs come at once, one
/// starts it and the others wait.
fn reach(socket: &Path, settings: &Settings, install: &Install) -> Result<OwnedFd, CliError> {
    if let Some(connection) = client::open(socket)? {
        let places = Settings { gpu: None, driver: None, socket: None, ..settings.clone() };
        let ignored = places.words();
        if !ignored.is_empty() {
            eprintln!(
                "baton run: a coordinator is there already and keeps its own settings, not {}",
                ignored.join(" ")
            );
        }
        return Ok(connection);
    }
    if let Some(folder) = socket.parent().filter(|folder| !folder.exists()) {
        make_private(folder)?;
    }
    let lock =
        File::options().write(true).create(true).truncate(false).mode(0o600).open(socket.with_extension("start"))?;
    lock.lock()?;
    if let Some(connection) = client::open(socket)? {
        return Ok(connection);
    }
    let log = socket.with_extension("log");
    let mut coordinator = start(socket, settings, install, &log)?;
    if std::io::stderr().is_terminal() {
        eprintln!("baton: started a coordinator; its log is {}", log.display());
    }
    let end = Instant::now() + STARTING;
    loop {
        if let Some(connection) = client::open(socket)? {
            return Ok(connection);
        }
        if let Some(status) = coordinator.try_wait()? {
            // Somebody else's may have come first.
            if let Some(connection) = client::open(socket)? {
                return Ok(connection);
            }
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            let last = said.lines().last().unwrap_or("it said nothing");
            return Err(CliError::Told(format!("the coordinator ended ({status}): {last}")));
        }
        if Instant::now() > end {
            return Err(CliError::Told(format!("the coordinator does not get ready; its log is {}", log.display())));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn start(socket: &Path, settings: &Settings, install: &Install, log: &PathBuf) -> Result<Child, CliError> {
    let output = File::options().append(true).create(true).mode(0o600).open(log)?;
    let settings = Settings { socket: Some(socket.to_path_buf()), ..settings.clone() };
    let mut command = Command::new(install.command());
    command.arg("serve").arg("--until-idle").args(settings.words());
    command.env_remove("LD_PRELOAD").env_remove(name(settings::TRACE)).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(output);
    // SAFETY: `setsid` may be called between fork and exec. A session of its own: the terminal's signals are the
    // program's, not the coordinator's.
    unsafe { command.pre_exec(|| rustix::process::setsid().map(|_| ()).map_err(Into::into)) };
    Ok(command.spawn()?)
}
