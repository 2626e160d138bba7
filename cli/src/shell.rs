//! `baton completions` and `baton man`: made of the command line as it is.

use std::path::PathBuf;

use baton_workbench::output::print_with;
use clap::{Args, Command};
use clap_complete::Shell;

use super::CliError;

/// `baton completions`.
#[derive(Clone, Debug, Args)]
pub struct Completions {
    /// The shell that is to complete words.
    shell: Shell,
}

/// `baton man`.
#[derive(Clone, Debug, Args)]
pub struct Man {
    /// Where the pages go, one for each command. Otherwise the first is printed.
    folder: Option<PathBuf>,
}

/// Prints what a shell has to read.
///
/// # Errors
///
/// When it cannot be written.
pub fn completions(mut command: Command, Completions { shell }: &Completions) -> Result<(), CliError> {
    let mut script = Vec::new();
    clap_complete::generate(*shell, &mut command, "baton", &mut script);
    Ok(print_with(|out| out.write_all(&script))?)
}

/// Writes the manual.
///
/// # Errors
///
/// When a page cannot be written.
pub fn man(command: Command, Man { folder }: &Man) -> Result<(), CliError> {
    let Some(folder) = folder else {
        return Ok(print_with(|mut out| clap_mangen::Man::new(command).render(&mut out))?);
    };
    std::fs::create_dir_all(folder)?;
    Ok(clap_mangen::generate_to(command, folder)?)
}
