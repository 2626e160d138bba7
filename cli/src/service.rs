//! `baton serve` under a service manager: it reports when it is ready, and reads its settings again on request (SIGHUP).

use std::collections::BTreeSet;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use baton_contract::socket_path;
use baton_coordinator::server::{Handle, Server};
use sd_notify::NotifyState;

use super::settings::Settings;
use super::units::Gpus;
use super::{CliError, gpu_uuid};

/// The settings of a coordinator, and their sources.
#[derive(Debug)]
pub struct Sources {
    /// The settings on the command line and in variables.
    said: Settings,
    file: Option<PathBuf>,
    suggested: Option<usize>,
}

impl Sources {
    /// Makes sources of these settings, and of a file for the others.
    pub fn new(said: Settings, file: Option<PathBuf>) -> Self {
        Self { said, file, suggested: None }
    }

    /// The settings file.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Suggests this GPU, unless the settings name one.
    pub fn suggest_gpu(&mut self, number: usize) {
        self.suggested = Some(number);
    }

    /// Reads the settings: the command line goes before the file, and that before the defaults.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, or has an impossible setting.
    pub fn read(&self) -> Result<Settings, CliError> {
        self.read_of(None)
    }

    /// Reads the settings as they are for a GPU, by its number; otherwise, as they are for the first one.
    ///
    /// # Errors
    ///
    /// Errors of [`Sources::read()`].
    pub fn read_of(&self, number: Option<usize>) -> Result<Settings, CliError> {
        let suggested = self.suggested.map(|number| Gpus::These(vec![number]));
        let usual = Settings { gpu: suggested, ..Settings::default() }.or(Settings::usual());
        let Some(path) = &self.file else { return Ok(self.said.clone().or(usual)) };
        let file = Settings::of_file(path)?;
        let first = || self.said.gpu.as_ref().or(file.gpu.as_ref()).or(usual.gpu.as_ref()).map_or(0, Gpus::first);
        let number = number.unwrap_or_else(first);
        Ok(self.said.clone().or(file.of_gpu(number)).or(usual))
    }
}

/// Returns the socket that a service manager has passed on, if it has started this process for a connection there (systemd.socket(5)).
///
/// # Errors
///
/// When there are several.
pub fn passed_socket() -> Result<Option<OwnedFd>, CliError> {
    let mut passed = sd_notify::listen_fds()?;
    let (Some(number), more) = (passed.next(), passed.len()) else { return Ok(None) };
    if more > 0 {
        return Err(baton_messages::many_sockets(more + 1).into());
    }
    // SAFETY: it was passed to this process, in which no other code uses it.
    Ok(Some(unsafe { OwnedFd::from_raw_fd(number) }))
}

/// Returns the number of the GPU that a socket is named after, if there is such a GPU.
pub fn gpu_of(socket: &Path, library: Option<&Path>) -> Option<usize> {
    let (_, count) = gpu_uuid(library, 0).ok()?;
    let name = socket.file_name()?;
    let is_its = |number: &usize| {
        gpu_uuid(library, *number).is_ok_and(|(uuid, _)| name == socket_path::socket_name(uuid).as_str())
    };
    (0..count).find(is_its)
}

/// Tells the service manager, if there is one. The coordinator serves even if it does not listen.
fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        baton_messages::warn!(service_manager_is_not_told(error));
    }
}

/// Reports that the coordinator serves.
pub fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Reports that the coordinator is about to end.
pub fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// A GPU that is served, with the settings that hold for it.
pub struct Served {
    number: usize,
    now: Settings,
    handle: Handle<Server>,
}

impl Served {
    /// The GPU of this number, with these settings.
    pub fn new(number: usize, now: Settings, handle: Handle<Server>) -> Self {
        Self { number, now, handle }
    }

    /// Ends its server.
    pub fn stop(&self) {
        self.handle.stop();
    }
}

/// Reads the settings again. Applies those that can change while the coordinator serves, and names the others.
pub fn reload(sources: &Sources, served: &mut [Served]) {
    let since = NotifyState::monotonic_usec_now().ok();
    tell(&[NotifyState::Reloading].into_iter().chain(since).collect::<Vec<_>>());
    let read = |one: &Served| sources.read_of(Some(one.number));
    match served.iter().map(read).collect::<Result<Vec<_>, _>>() {
        Err(error) => baton_messages::error!(settings_stay(error)),
        Ok(_) if sources.file().is_none() => {
            baton_messages::warn!(no_file_to_read_again());
        }
        Ok(new) => {
            // A change for all GPUs is said once.
            let (mut now, mut later) = (BTreeSet::new(), BTreeSet::new());
            let Some(level) = new.first().map(Settings::log_level) else { return };
            for (one, new) in served.iter_mut().zip(new) {
                let changes = one.now.changes(&new);
                one.handle.tune(new.tuning());
                now.extend(changes.now);
                later.extend(changes.later);
                one.now = one.now.tuned(&new);
            }
            // Log this at the more verbose of both levels.
            log::set_max_level(level.max(log::max_level()));
            let list = |changes: &BTreeSet<String>| changes.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            if !now.is_empty() {
                baton_messages::info!(settings_from_now_on(list(&now)));
            }
            if !later.is_empty() {
                baton_messages::info!(settings_after_a_restart(list(&later)));
            }
            if now.is_empty() && later.is_empty() {
                baton_messages::info!(settings_are_as_they_were());
            }
            log::set_max_level(level);
        }
    }
    tell(&[NotifyState::Ready]);
}
