//! Things that lie beside the socket for its user: the metrics' socket, and the page's token.

use std::io::Write as _;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::net::SocketType;
use rustix::process::geteuid;

use super::folder::{Folder, Unfit, name, unfit};
use super::listen::{Visitors, listen_at};

/// Returns the path of the metrics of a socket's coordinator.
pub fn metrics_socket(socket: &Path) -> PathBuf {
    socket.with_extension("metrics")
}

/// Opens a socket for metrics beside this one, which only this user can reach. It replaces one that a dead coordinator has left.
///
/// # Errors
///
/// When another file has its name, or it cannot be made.
pub(super) fn listen_for_metrics(folder: &Folder, socket: &Path) -> Result<UnixListener, Unfit> {
    let path = metrics_socket(socket);
    if let Ok(found) = std::fs::symlink_metadata(&path) {
        if !found.file_type().is_socket() || found.uid() != geteuid().as_raw() {
            return Err(baton_messages::is_no_own_socket(path.display()).into());
        }
        folder.remove(name(&path));
    }
    listen_at(&path, SocketType::STREAM, Visitors::Own).map(UnixListener::from)
}

/// Keeps the page's token in a file that only this user can read.
///
/// # Errors
///
/// When another file has its name, or it cannot be written.
pub(super) fn keep_token(folder: &Folder, socket: &Path, token: &str) -> Result<PathBuf, Unfit> {
    let path = socket.with_extension("token");
    let told = |error| unfit(&path, error);
    let mut file = folder.file(name(&path))?;
    file.set_len(0).and_then(|()| file.write_all(token.as_bytes())).map_err(told)?;
    Ok(path)
}

/// Removes both.
pub(super) fn remove(folder: &Folder, socket: &Path) {
    folder.remove(name(&metrics_socket(socket)));
    folder.remove(name(&socket.with_extension("token")));
}
