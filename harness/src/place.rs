//! The surroundings of a demonstration or a measurement: a coordinator and programs in a folder of their own.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use baton_contract::class::Class;
use baton_contract::settings;
use tempfile::TempDir;

use crate::Error;
use crate::coordinator::{Address, Coordinator};
use crate::stop::Stop;
use baton_client::driver::{Choice, Driver, name};
use baton_client::install::Install;

/// A setting of the simulated driver.
pub type Setting = (&'static str, &'static str);

/// The parts that all places share.
pub struct Ground<'a> {
    install: Install,
    /// The driver that programs run on.
    pub driver: Driver,
    /// True if that is the simulated driver.
    pub simulated: bool,
    /// Settings of the simulated driver where the user has set none.
    model: &'a [Setting],
    scratch: TempDir,
    /// The user's request to end.
    pub stop: &'a Stop,
}

impl<'a> Ground<'a> {
    /// Finds the driver and Baton's files.
    ///
    /// # Errors
    ///
    /// When the driver or a part of Baton is missing.
    pub fn new(choice: &Choice, model: &'a [Setting], stop: &'a Stop) -> Result<Self, Error> {
        let install = Install::of_this_program()?;
        install.shim()?;
        let driver = Driver::choose(choice, &install)?;
        let simulated = driver.is(&install.simulated_driver().ok());
        Ok(Self { install, driver, simulated, model, scratch: tempfile::tempdir()?, stop })
    }

    /// Makes a new place. Its files are deleted with the ground.
    ///
    /// # Errors
    ///
    /// When no folder can be made.
    pub fn place(&self) -> Result<Place<'_>, Error> {
        Ok(Place { ground: self, folder: tempfile::tempdir_in(&self.scratch)?.keep() })
    }

    /// The file of an example program.
    ///
    /// # Errors
    ///
    /// When it was not built.
    pub fn example(&self, program: &str) -> Result<PathBuf, Error> {
        Ok(self.install.example(program)?)
    }

    /// Returns the settings of the simulated driver in use.
    pub fn model(&self) -> BTreeMap<String, String> {
        let set = |(name, ours): &Setting| ((*name).to_owned(), std::env::var(name).unwrap_or((*ours).to_owned()));
        self.model.iter().map(set).collect()
    }
}

/// One of the places, with a GPU of its own if that is simulated.
pub struct Place<'a> {
    ground: &'a Ground<'a>,
    folder: PathBuf,
}

impl Place<'_> {
    /// Starts a coordinator with an arena and a host pool of these sizes, and waits until it and its pool are ready.
    ///
    /// # Errors
    ///
    /// When it cannot start.
    pub fn coordinator(&self, sizes: [u64; 2], options: &[&str]) -> Result<Coordinator, Error> {
        let [arena, pool] = sizes.map(|bytes| bytes.to_string());
        let mut serve = self.ours("serve");
        serve.args(self.ground.driver.option()).args(["--arena", &arena, "--host-pool", &pool]).args(options);
        let (address, stop) = (Address::in_folder(&self.folder), self.ground.stop);
        serve.arg("--until-idle").arg("--socket").arg(&address.socket);
        let mut coordinator = Coordinator::start(&mut serve, address, stop)?;
        coordinator.bind()?;
        coordinator.until_ready(stop)?;
        Ok(coordinator)
    }

    /// Returns the command for an example program under a coordinator.
    ///
    /// # Errors
    ///
    /// When it was not built.
    pub fn tenant(
        &self,
        coordinator: &Coordinator,
        tenant: &str,
        class: Class,
        program: &str,
        options: &str,
    ) -> Result<Command, Error> {
        let mut command = self.ours("run");
        command.args(self.ground.driver.option()).arg("--socket").arg(&coordinator.address.socket).args([
            "--name",
            tenant,
            "--class",
            class.word(),
            "--",
        ]);
        command.arg(self.ground.install.example(program)?).args(options.split(' '));
        Ok(command)
    }

    /// Returns the command for an example program without Baton.
    ///
    /// # Errors
    ///
    /// When it was not built.
    pub fn bare(&self, program: &str, options: &str) -> Result<Command, Error> {
        let mut command = self.ground.driver.bare(&self.ground.install.example(program)?, &self.folder)?;
        command.args(options.split(' '));
        self.surround(&mut command);
        Ok(command)
    }

    /// Returns a command of `baton`.
    pub fn ours(&self, word: &str) -> Command {
        let mut command = self.ground.driver.quiet(&self.ground.install.command());
        command.arg(word).env_remove(name(settings::DISABLE));
        self.surround(&mut command);
        command
    }

    fn surround(&self, command: &mut Command) {
        // With the simulated driver, the place's own GPU is used, not the user's.
        command.env("XDG_STATE_HOME", self.folder.join("state"));
        command.env("SIMCUDA_GPU_FILE", self.folder.join("gpu")).env("SIMCUDA_MEMORY", "512MiB");
        let unset = self.ground.model.iter().filter(|(setting, _)| std::env::var_os(setting).is_none());
        command.envs(unset.copied());
    }
}
