//! `baton serve` under a service manager: it says when it is ready, and reads its settings again when it is told to (SIGHUP).

use std::path::{Path, PathBuf};

use baton_coordinator::server::{Tuner, Tuning};
use sd_notify::NotifyState;

use super::CliError;
use super::settings::Settings;

/// The settings of a coordinator, and where they come from.
#[derive(Debug)]
pub struct Sources {
    /// What the command line and variables say.
    said: Settings,
    file: Option<PathBuf>,
    number: Option<usize>,
}

impl Sources {
    /// What is said, and a file with what is not.
    pub fn new(said: Settings, file: Option<PathBuf>) -> Self {
        Self { said, file, number: None }
    }

    /// The file.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Reads them: what is said goes before the file, and that before what is usual.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, or says something that cannot be.
    pub fn read(&mut self) -> Result<Settings, CliError> {
        let Some(path) = &self.file else { return Ok(self.said.clone().or(Settings::usual())) };
        let file = Settings::of_file(path)?;
        // The GPU stays the one that is served.
        let number = *self.number.get_or_insert(self.said.gpu.or(file.gpu).unwrap_or_default());
        Ok(self.said.clone().or(file.of_gpu(number)).or(Settings::usual()))
    }
}

/// Tells the service manager, if there is one. That it does not listen is no reason not to serve.
fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        log::warn!("the service manager cannot be told how this coordinator stands: {error}");
    }
}

/// It serves.
pub fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// It is about to end.
pub fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// Reads the settings again and has those hold that can change while it serves; names the others.
pub fn reload(sources: &mut Sources, now: &mut Settings, tuner: &Tuner) {
    let since = NotifyState::monotonic_usec_now().ok();
    tell(&[NotifyState::Reloading].into_iter().chain(since).collect::<Vec<_>>());
    match sources.read() {
        Err(error) => log::error!("the settings stay as they are: {error}"),
        Ok(_) if sources.file().is_none() => {
            log::warn!("the settings stay as they are: there is no file to read again (--config)");
        }
        Ok(new) => {
            let changes = now.changes(&new);
            tuner.tune(new.tuning());
            // What is said about this is said by the more talkative of the two.
            log::set_max_level(new.log_level().max(log::max_level()));
            if !changes.now.is_empty() {
                log::info!("from now on: {}", changes.now.join(", "));
            }
            if !changes.later.is_empty() {
                log::info!("after a restart: {}", changes.later.join(", "));
            }
            if changes.now.is_empty() && changes.later.is_empty() {
                log::info!("the settings are as they were");
            }
            log::set_max_level(new.log_level());
            *now = now.tuned(&new);
        }
    }
    tell(&[NotifyState::Ready]);
}

impl Settings {
    /// Those that can change while a coordinator serves. For settings that say all of them.
    pub fn tuning(&self) -> Tuning {
        let set = "a setting that is usual";
        Tuning {
            quantum: self.quantum.expect(set).0,
            max_wait: self.max_wait.expect(set).0,
            burst: self.burst.expect(set).0,
            latency_slack: self.latency_slack.expect(set).0 / 100.0,
            max_tenants: self.max_tenants.expect(set),
        }
    }

    /// How much is said.
    pub fn log_level(&self) -> log::LevelFilter {
        self.log_level.expect("a setting that is usual").into()
    }
}
