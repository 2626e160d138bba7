//! Where a GPU's coordinator is found: its socket's place, if the user names no other.

use std::ffi::OsString;
use std::path::PathBuf;

/// A GPU's UUID in the usual spelling, `GPU-8-4-4-4-12`.
pub fn gpu_name(uuid: [u8; 16]) -> String {
    use core::fmt::Write as _;
    let mut name = String::from("GPU");
    for (at, byte) in uuid.iter().enumerate() {
        let dash = if matches!(at, 0 | 4 | 6 | 8 | 10) { "-" } else { "" };
        let _ = write!(name, "{dash}{byte:02x}");
    }
    name
}

/// The folder of a user's sockets: in their runtime folder if they have one.
pub fn folder(runtime: Option<OsString>, user: u32) -> PathBuf {
    match runtime {
        Some(runtime) => PathBuf::from(runtime).join("baton"),
        None => PathBuf::from(format!("/tmp/baton-{user}")),
    }
}

/// The socket of a GPU's coordinator in such a folder.
pub fn socket(runtime: Option<OsString>, user: u32, uuid: [u8; 16]) -> PathBuf {
    folder(runtime, user).join(format!("{}.sock", gpu_name(uuid)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_is_named_by_the_gpu_in_the_users_runtime_folder() {
        let uuid = *b"\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\xff";
        let name = "GPU-01020304-0506-0708-090a-0b0c0d0e0fff.sock";
        assert_eq!(socket(Some("/run/user/7".into()), 7, uuid), PathBuf::from("/run/user/7/baton").join(name));
        assert_eq!(socket(None, 7, uuid), PathBuf::from("/tmp/baton-7").join(name));
    }
}
