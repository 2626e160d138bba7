//! The places of Baton's own files: beside the `baton` program, as `cargo build` leaves them, or in a package's folders.

use std::path::{Path, PathBuf};

/// A file of Baton's that is missing from its place.
#[derive(Debug, thiserror::Error)]
#[error("{}", baton_messages::is_missing(.0.display()))]
pub struct Missing(PathBuf);

/// Baton's files.
#[derive(Clone, Debug)]
pub struct Install {
    /// The folder of the program.
    programs: PathBuf,
    /// The folder of everything else.
    files: PathBuf,
}

impl Install {
    /// Finds the installation of the running program.
    ///
    /// # Errors
    ///
    /// When the system does not tell the running program's file.
    pub fn of_this_program() -> std::io::Result<Self> {
        let program = std::env::current_exe()?.canonicalize()?;
        Ok(Self::of(program.parent().unwrap_or(Path::new("/"))))
    }

    /// Finds the installation of a program in this folder: all files lie there, or, if the folder is `PREFIX/bin`, in
    /// `PREFIX/lib/baton`. That is a folder of its own, because a file in a folder that `ldconfig` reads would become every program's
    /// `libcuda.so.1`.
    fn of(programs: &Path) -> Self {
        let prefix = programs.parent().filter(|_| programs.ends_with("bin"));
        let packaged = prefix.map(|prefix| prefix.join("lib/baton")).filter(|folder| folder.is_dir());
        Self { programs: programs.to_path_buf(), files: packaged.unwrap_or_else(|| programs.to_path_buf()) }
    }

    /// The `baton` command.
    pub fn command(&self) -> PathBuf {
        self.programs.join("baton")
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
        let path = self.files.join(name);
        if path.exists() { Ok(path) } else { Err(Missing(path)) }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn files_lie_beside_the_program_or_where_a_package_puts_them() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (built, prefix) = (folder.path().join("target/release"), folder.path().join("usr"));
        for file in [built.join("libbaton.so"), prefix.join("lib/baton/libbaton.so"), prefix.join("bin/baton")] {
            fs::create_dir_all(file.parent().expect("a folder")).expect("a new folder");
            fs::write(file, "").expect("a new file");
        }
        let shim = |programs: &Path| Install::of(programs).shim().map_err(|missing| missing.to_string());
        assert_eq!(shim(&built), Ok(built.join("libbaton.so")));
        assert_eq!(shim(&prefix.join("bin")), Ok(prefix.join("lib/baton/libbaton.so")));
        assert_eq!(Install::of(&prefix.join("bin")).command(), prefix.join("bin/baton"));
        let lone = folder.path().join("elsewhere/bin");
        assert!(shim(&lone).is_err_and(|why| why.contains("elsewhere/bin/libbaton.so is missing")));
    }
}
