//! The hook that container engines run when they create a container (the OCI runtime specification, "POSIX-platform Hooks"). It refuses
//! a container whose program could not start with Baton's library, with a sentence that the engine shows.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::PREFIX;
use crate::CliError;
use crate::program::{Kind, Root, kind};

/// The loader of glibc, as every glibc program names it.
const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";
/// The search path for programs if the container sets none, as container runtimes have it.
const USUAL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The state of a container: the part that matters here.
#[derive(Debug, Deserialize)]
struct State {
    bundle: PathBuf,
}

/// A container's configuration (`config.json`): the part that matters here.
#[derive(Debug, Deserialize)]
struct Config {
    root: RootConfig,
    process: Process,
}

#[derive(Debug, Deserialize)]
struct RootConfig {
    path: PathBuf,
}

#[derive(Debug, Deserialize)]
struct Process {
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: Vec<String>,
    cwd: PathBuf,
}

/// Checks the container whose state is read.
///
/// # Errors
///
/// When its program cannot start with Baton's library, or the engine's input is malformed.
pub fn run(state: impl Read) -> Result<(), CliError> {
    let told = |what: &dyn std::fmt::Display| baton_messages::state_is_unreadable(what);
    let state: State = serde_json::from_reader(state).map_err(|error| told(&error))?;
    let text = std::fs::read_to_string(state.bundle.join("config.json")).map_err(|error| told(&error))?;
    let config: Config = serde_json::from_str(&text).map_err(|error| told(&error))?;
    let root = Root::at(&state.bundle.join(&config.root.path)).map_err(|error| told(&error))?;
    can_share(&root, &config.process)
}

/// Checks that the container's program can share the GPU, or can start programs that do.
fn can_share(root: &Root, process: &Process) -> Result<(), CliError> {
    let Some(program) = process.args.first() else { return Ok(()) };
    let refuse = |why: String| Err(baton_messages::image_is_unfit(why).into());
    // That program is there only when the container runs.
    let is_ours = Path::new(program).starts_with(PREFIX);
    let found = if is_ours { Some(Kind::Dynamic) } else { found(root, process, Path::new(program)) };
    let shown = Path::new(program).display();
    match found {
        // The engine reports this itself.
        None => Ok(()),
        Some(Kind::Musl) => refuse(baton_messages::program_uses_musl(shown)),
        Some(Kind::Dynamic | Kind::Privileged) if !is_ours => Ok(()),
        // A system that can load libraries has the loader.
        Some(_) if root.open(Path::new(LOADER)).is_ok() => Ok(()),
        Some(_) if is_ours => refuse(baton_messages::image_has_no_loader(LOADER)),
        Some(_) => refuse(baton_messages::program_is_static(shown, LOADER)),
    }
}

/// Returns the kind of the container's program, if it is there.
fn found(root: &Root, process: &Process, program: &Path) -> Option<Kind> {
    let is_there = |path: &PathBuf| root.open(path).is_ok();
    let path = if program.as_os_str().as_encoded_bytes().contains(&b'/') {
        Some(process.cwd.join(program)).filter(is_there)
    } else {
        let path = process.env.iter().find_map(|word| word.strip_prefix("PATH=")).unwrap_or(USUAL_PATH);
        std::env::split_paths(path).map(|folder| process.cwd.join(folder).join(program)).find(is_there)
    };
    path.map(|path| kind(root, &path))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::program::tests::elf;

    /// Creates a container with this program, and returns the outcome.
    fn created(files: &[(&str, &[u8])], args: &[&str]) -> Result<(), String> {
        let bundle = tempfile::tempdir().expect("a folder");
        let root = bundle.path().join("rootfs");
        for (path, content) in files {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(path, content).expect("a file");
        }
        std::fs::create_dir_all(root.join("usr/bin")).expect("a folder");
        // Outside the container this link leads to another folder.
        symlink("/usr/bin", root.join("bin")).expect("a link");
        let config = serde_json::json!({
            "root": {"path": "rootfs"},
            "process": {"args": args, "env": ["A=b", "PATH=/nowhere:/bin"], "cwd": "/"},
        });
        std::fs::write(bundle.path().join("config.json"), config.to_string()).expect("a file");
        let state =
            serde_json::json!({"ociVersion": "1.0.2", "id": "x", "pid": 1, "bundle": bundle.path()}).to_string();
        run(state.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_container_whose_program_cannot_load_the_library_is_refused_with_a_sentence() {
        let (glibc, musl) = (elf(2, Some(LOADER)), elf(2, Some("/lib/ld-musl-x86_64.so.1")));
        let still = elf(2, None);
        let loader = LOADER.trim_start_matches('/');
        assert_eq!(created(&[("usr/bin/it", &glibc)], &["it", "--flag"]), Ok(()));
        assert_eq!(created(&[("usr/bin/it", &glibc)], &["/bin/it"]), Ok(()));
        let said = created(&[("usr/bin/it", &musl)], &["it"]).expect_err("musl");
        assert!(said.contains("it uses musl") && said.contains("image with glibc"), "{said}");
        let script = b"#!/bin/it -e\n";
        let said = created(&[("usr/bin/it", &musl), ("srv/begin", script)], &["/srv/begin"]).expect_err("musl");
        assert!(said.contains("/srv/begin uses musl"), "{said}");
        // A static init starts other programs.
        assert_eq!(created(&[("usr/bin/it", &still), (loader, &glibc)], &["it"]), Ok(()));
        let said = created(&[("usr/bin/it", &still)], &["it"]).expect_err("nothing else can be in it");
        assert!(said.contains("statically linked") && said.contains(LOADER), "{said}");
        let entry = ["/opt/baton/bin/baton", "run", "it"];
        assert_eq!(created(&[("usr/bin/it", &glibc), (loader, &glibc)], &entry), Ok(()));
        let said = created(&[("usr/bin/it", &musl)], &entry).expect_err("baton itself could not start");
        assert!(said.contains("has no /lib64"), "{said}");
        assert_eq!(created(&[], &["absent"]), Ok(()), "the engine says so");
        assert!(run(&b"nonsense"[..]).is_err());
    }
}
