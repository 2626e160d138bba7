//! The place of a GPU's coordinator: its socket, if the user names no other.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Returns a GPU's UUID in the usual spelling, `GPU-8-4-4-4-12`.
pub fn gpu_name(uuid: [u8; 16]) -> String {
    use core::fmt::Write as _;
    let mut name = String::from("GPU");
    for (at, byte) in uuid.iter().enumerate() {
        let dash = if matches!(at, 0 | 4 | 6 | 8 | 10) { "-" } else { "" };
        let _ = write!(name, "{dash}{byte:02x}");
    }
    name
}

/// Returns the folder of a user's sockets. It is in the runtime folder that the user names, or that the system has made for them, so
/// that programs with and without `XDG_RUNTIME_DIR` meet.
pub fn folder(runtime: Option<OsString>, user: u32) -> PathBuf {
    match runtime.map(PathBuf::from).or_else(|| systems_folder(user)) {
        Some(runtime) => runtime.join("baton"),
        None => fallback(user),
    }
}

/// Returns the folder of a user's sockets on a system without runtime folders. Any user may have made this one before.
pub fn fallback(user: u32) -> PathBuf {
    PathBuf::from(format!("/tmp/baton-{user}"))
}

/// Returns the runtime folder that the system has made for a user (pam_systemd(8)).
pub fn systems_folder(user: u32) -> Option<PathBuf> {
    let folder = PathBuf::from(format!("/run/user/{user}"));
    let is_theirs = |folder: &Path| folder.symlink_metadata().is_ok_and(|found| found.is_dir() && found.uid() == user);
    is_theirs(&folder).then_some(folder)
}

/// Returns the folder of this process's user.
pub fn own_folder() -> PathBuf {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty());
    // SAFETY: takes nothing and cannot fail.
    folder(runtime, unsafe { libc::geteuid() })
}

/// Returns the name of the socket of a GPU's coordinator there.
pub fn socket_name(uuid: [u8; 16]) -> String {
    format!("{}.sock", gpu_name(uuid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_is_named_by_the_gpu_in_the_users_runtime_folder() {
        let uuid = *b"\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\xff";
        let name = "GPU-01020304-0506-0708-090a-0b0c0d0e0fff.sock";
        assert_eq!(socket_name(uuid), name);
        assert_eq!(folder(Some("/run/user/7".into()), 7), PathBuf::from("/run/user/7/baton"));
        // No user has this number, so the system has made no folder for it.
        assert_eq!(folder(None, 4_000_000_007), PathBuf::from("/tmp/baton-4000000007"));
    }
}
