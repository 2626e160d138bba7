//! The kind of a program file: it tells whether a library can be preloaded.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use object::Endianness;
use object::elf::{ELFMAG, FileHeader32, FileHeader64, PT_INTERP};
use object::read::elf::{FileHeader, ProgramHeader};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::process::{getgid, getuid};

/// Bytes at the start of a file that hold a program's headers.
const HEAD: u64 = 64 << 10;
/// Maximum number of scripts in a chain of interpreters (`execve(2)`).
const MOST_SCRIPTS: usize = 5;

/// The way in which a program takes a preloaded library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It loads the library.
    Dynamic,
    /// It loads no libraries at all. It may start programs that do.
    Static,
    /// It is a 32-bit program, and the library is for 64 bits. It may start programs that load it.
    Bits32,
    /// Its C library is not glibc: with the library it would not start.
    Musl,
    /// It runs with more rights than its user, and loads no preloaded library of ours.
    Privileged,
}

/// Returns the file that is run for a program's name.
///
/// # Errors
///
/// Errors of `access`: there is no such file, or it cannot be run.
pub fn find(program: &OsStr) -> std::io::Result<PathBuf> {
    let check = |path: PathBuf| rustix::fs::access(&path, rustix::fs::Access::EXEC_OK).map(|()| path);
    if program.as_encoded_bytes().contains(&b'/') {
        return Ok(check(PathBuf::from(program))?);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let tries: Vec<_> = std::env::split_paths(&path).map(|folder| check(folder.join(program))).collect();
    let is_refused = |found: &Result<PathBuf, rustix::io::Errno>| *found == Err(rustix::io::Errno::ACCESS);
    let none = if tries.iter().any(is_refused) { rustix::io::Errno::ACCESS } else { rustix::io::Errno::NOENT };
    Ok(tries.into_iter().find_map(Result::ok).ok_or(none)?)
}

/// The root of a program's paths.
#[derive(Debug)]
pub enum Root {
    /// This process's root.
    Own,
    /// This folder, a container's root; links in it cannot lead out.
    In(OwnedFd),
}

impl Root {
    /// Makes the root of a container.
    ///
    /// # Errors
    ///
    /// When it is not a folder.
    pub fn at(folder: &Path) -> std::io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC;
        Ok(Self::In(rustix::fs::open(folder, flags, Mode::empty())?))
    }

    /// Opens a regular file for reading.
    ///
    /// # Errors
    ///
    /// When it is not a regular file, or cannot be read.
    pub fn open(&self, path: &Path) -> std::io::Result<File> {
        // Opening never blocks, for any kind of file.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = match self {
            Self::Own => rustix::fs::open(path, flags, Mode::empty()),
            Self::In(folder) => rustix::fs::openat2(folder, path, flags, Mode::empty(), ResolveFlags::IN_ROOT),
        };
        let file = File::from(opened?);
        if file.metadata()?.is_file() { Ok(file) } else { Err(std::io::ErrorKind::InvalidInput.into()) }
    }
}

/// Returns the kind of this program file, or of its interpreter.
pub fn kind(root: &Root, file: &Path) -> Kind {
    let mut path = file.to_path_buf();
    for _ in 0..MOST_SCRIPTS {
        let Ok(file) = root.open(&path) else { return Kind::Dynamic };
        let Ok(head) = head(&file) else { return Kind::Dynamic };
        match head.strip_prefix(b"#!") {
            Some(line) => match interpreter(line) {
                Some(interpreter) => path = interpreter,
                None => return Kind::Dynamic,
            },
            None if is_privileged(&file) => return Kind::Privileged,
            None => return of_elf(&head),
        }
    }
    Kind::Dynamic
}

/// True if a file is a program for any machine, rather than a script.
pub fn is_binary(root: &Root, file: &Path) -> bool {
    let mut magic = [0u8; ELFMAG.len()];
    root.open(file).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && magic == ELFMAG
}

fn head(file: &File) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::new();
    file.take(HEAD).read_to_end(&mut head)?;
    Ok(head)
}

/// Returns the interpreter that a script's first line names.
fn interpreter(line: &[u8]) -> Option<PathBuf> {
    let line = line.split(|byte| *byte == b'\n').next()?;
    let word = line.split(|byte| matches!(byte, b' ' | b'\t')).find(|word| !word.is_empty())?;
    Some(PathBuf::from(OsString::from(OsStr::from_bytes(word))))
}

/// True if it runs with other rights than ours: then the loader preloads nothing (`ld.so(8)`, secure-execution mode).
fn is_privileged(file: &File) -> bool {
    let Ok(found) = file.metadata() else { return false };
    let mode = found.mode();
    let sets_user = mode & 0o4000 != 0 && found.uid() != getuid().as_raw();
    let sets_group = mode & 0o2010 == 0o2010 && found.gid() != getgid().as_raw();
    let mut nothing = [0u8; 0];
    let capabilities = rustix::fs::fgetxattr(file, "security.capability", &mut nothing).is_ok_and(|size| size > 0);
    sets_user || sets_group || capabilities && !getuid().is_root()
}

fn of_elf(head: &[u8]) -> Kind {
    if FileHeader32::<Endianness>::parse(head).is_ok() {
        return Kind::Bits32;
    }
    // Any other file is no program of this system, and `exec` says so.
    let Ok(header) = FileHeader64::<Endianness>::parse(head) else { return Kind::Dynamic };
    let Ok(endian) = header.endian() else { return Kind::Dynamic };
    let Ok(segments) = header.program_headers(endian, head) else { return Kind::Dynamic };
    match segments.iter().find(|segment| segment.p_type(endian) == PT_INTERP) {
        None => Kind::Static,
        Some(segment) => {
            let loader = segment.data(endian, head).unwrap_or_default();
            let name = loader.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
            if name.starts_with(b"ld-musl") { Kind::Musl } else { Kind::Dynamic }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Returns the start of a program of this class, with this loader if any.
    pub(crate) fn elf(bits: u8, loader: Option<&str>) -> Vec<u8> {
        let mut file = vec![0u8; 120];
        file[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', bits, 1, 1]);
        file[16..20].copy_from_slice(&[2, 0, 62, 0]);
        file[20] = 1;
        file[32] = 64;
        file[52] = 64;
        file[54] = 56;
        if let Some(loader) = loader {
            file[56] = 1;
            file[64] = 3;
            file[72] = 120;
            file[96..104].copy_from_slice(&(loader.len() as u64 + 1).to_le_bytes());
            file.extend(loader.as_bytes());
            file.push(0);
        }
        file
    }

    #[test]
    fn programs_are_told_apart_by_their_class_and_loader() {
        assert_eq!(of_elf(&elf(2, Some("/lib64/ld-linux-x86-64.so.2"))), Kind::Dynamic);
        assert_eq!(of_elf(&elf(2, Some("/lib/ld-musl-x86_64.so.1"))), Kind::Musl);
        assert_eq!(of_elf(&elf(2, None)), Kind::Static);
        assert_eq!(of_elf(&elf(1, None)), Kind::Bits32);
        assert_eq!(of_elf(b"no program"), Kind::Dynamic);
        assert_eq!(kind(&Root::Own, &std::env::current_exe().expect("a running test has a file")), Kind::Dynamic);
    }

    #[test]
    fn a_script_is_what_its_interpreter_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let [program, script, outer] = ["program", "script", "outer"].map(|name| folder.path().join(name));
        std::fs::write(&program, elf(2, None)).expect("a file");
        std::fs::write(&script, format!("#! {} -x\nbody", program.display())).expect("a file");
        std::fs::write(&outer, format!("#!{}\n", script.display())).expect("a file");
        assert_eq!(kind(&Root::Own, &outer), Kind::Static);
        // A script that interprets itself is refused by `exec`, not here.
        std::fs::write(&outer, format!("#!{}\n", outer.display())).expect("a file");
        assert_eq!(kind(&Root::Own, &outer), Kind::Dynamic);
    }

    #[test]
    fn a_program_that_runs_as_somebody_else_is_privileged() {
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("program");
        std::fs::write(&program, elf(2, Some("/lib64/ld-linux-x86-64.so.2"))).expect("a file");
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o4755)).expect("ours");
        assert_eq!(kind(&Root::Own, &program), Kind::Dynamic, "it would run as ourselves");
        if getuid().is_root() {
            std::os::unix::fs::chown(&program, Some(65534), None).expect("root may");
            std::fs::set_permissions(&program, PermissionsExt::from_mode(0o4755)).expect("root may");
            assert_eq!(kind(&Root::Own, &program), Kind::Privileged);
        }
    }
}
