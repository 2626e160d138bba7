//! Where Baton's own files lie: beside the `baton` program, as `cargo build` leaves them.

use std::path::{Path, PathBuf};

/// A file of Baton's that is not where it should be.
#[derive(Debug, thiserror::Error)]
#[error("{} is missing; build everything with `cargo build --release` and run target/release/baton", .0.display())]
pub struct Missing(PathBuf);

/// The folder with Baton's files.
#[derive(Clone, Debug)]
pub struct Install {
    folder: PathBuf,
}

impl Install {
    /// The installation that the running program belongs to.
    ///
    /// # Errors
    ///
    /// When the system does not say which file is running.
    pub fn of_this_program() -> std::io::Result<Self> {
        let program = std::env::current_exe()?.canonicalize()?;
        Ok(Self { folder: program.parent().unwrap_or(Path::new("/")).to_path_buf() })
    }

    /// The `baton` command.
    pub fn command(&self) -> PathBuf {
        self.folder.join("baton")
    }

    /// The library that programs preload.
    ///
    /// # Errors
    ///
    /// [`Missing`] when it was not built.
    pub fn shim(&self) -> Result<PathBuf, Missing> {
        self.file("libbaton.so")
    }

    /// The simulated driver.
    ///
    /// # Errors
    ///
    /// [`Missing`] when it was not built.
    pub fn simulated_driver(&self) -> Result<PathBuf, Missing> {
        self.file("libsimcuda.so")
    }

    /// An example program.
    ///
    /// # Errors
    ///
    /// [`Missing`] when it was not built.
    pub fn example(&self, name: &str) -> Result<PathBuf, Missing> {
        self.file(name)
    }

    fn file(&self, name: &str) -> Result<PathBuf, Missing> {
        let path = self.folder.join(name);
        if path.exists() { Ok(path) } else { Err(Missing(path)) }
    }
}
