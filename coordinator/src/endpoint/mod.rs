//! The place of a coordinator: folders that no other user can change, two locks, and the socket.
//!
//! | file | held by | so that |
//! |---|---|---|
//! | `GPU-UUID.lock`, in a folder that depends on the user alone | a coordinator, for its whole life | a GPU has one coordinator of this user, with any socket |
//! | `SOCKET.metrics`, beside the socket | a coordinator | a user's monitoring finds its metrics: a socket too |
//! | `SOCKET.token`, beside the socket | no process | its user finds the page's token |
//! | `SOCKET.start`, beside the socket | `baton run` while it searches for a coordinator or starts one; a coordinator while it decides to end | no program is sent to a coordinator that is just ending |
//!
//! The files may lie in a folder like `/tmp`, where other users can put files first. So no file is opened through a symbolic link, and
//! a foreign file is refused, with a sentence.
//!
//! | module | its subject |
//! |---|---|
//! | `folder` | a folder that no other user can change, and files in it |
//! | `locks` | the two locks |
//! | `listen` | a socket that listens, and its users |
//! | `beside` | the metrics' socket, and the token |
//! | `log` | the log file |

mod beside;
mod folder;
mod listen;
mod locks;
mod log;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use baton_contract::link;
use baton_contract::link::Chosen;
use rustix::io::Errno;
use rustix::net::{Shutdown, SocketFlags, SocketType, accept_with, shutdown};

pub use beside::metrics_socket;
pub(crate) use folder::unfit;
use folder::{FileId, file_id, name};
pub use folder::{Folder, Unfit};
use listen::{BACKLOG, listen_at};
pub use listen::{Passed, Visitors, group};
use locks::{GpuLock, PATIENCE};
pub use locks::{serving_at, start_lock};
pub use log::{log_file, put_large_log_aside};

/// Delay before the check for the socket after a file was removed; and after a failure to put the socket there again.
const GRACE: Duration = Duration::from_millis(100);
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A socket that listens, and the right to serve a GPU there.
#[derive(Debug)]
pub struct Endpoint {
    listener: OwnedFd,
    path: PathBuf,
    folder: Folder,
    visitors: Visitors,
    /// Reports removals of files in the folder.
    watch: OwnedFd,
    /// The identity of the socket's file.
    file: Option<FileId>,
    /// The time of the next check for the socket.
    look: Option<Instant>,
    /// True if a service manager keeps the socket: after this coordinator's end it starts another one at the next connection.
    is_passed: bool,
    /// True if a socket or a lock was made anew, so that the keeper has an old one.
    is_new: bool,
    gpu: GpuLock,
}

/// The outcome of an attempt to close.
pub enum Closing {
    /// No one can connect any more.
    Closed,
    /// A program is about to connect: the caller tries again later.
    Wanted,
}

impl Endpoint {
    /// Takes a GPU and a socket's place for this process.
    ///
    /// # Errors
    ///
    /// When another process has either, or the place is unfit.
    pub fn claim(path: &Path, uuid: [u8; 16], visitors: Visitors) -> Result<Self, Unfit> {
        let folder = match visitors {
            Visitors::Own => Folder::of_socket(path)?,
            Visitors::Guests | Visitors::Group(_) => Folder::of_shared_socket(path)?,
        };
        let gpu = GpuLock::take(uuid, path)?;
        if folder.find(name(path)).is_some() {
            let found = std::fs::symlink_metadata(path).map_err(|error| unfit(path, error))?;
            if !found.file_type().is_socket() {
                return Err(baton_messages::is_no_socket(path.display()).into());
            }
            if link::connect(path, Chosen::Usual, PATIENCE).is_ok() {
                return Err(baton_messages::other_gpu_is_served_here(path.display()).into());
            }
            // A coordinator that was killed has left it behind.
            folder.remove(name(path));
        }
        let listener = listen_at(path, SocketType::SEQPACKET, visitors)?;
        let watch = folder.watch()?;
        let (file, path) = (folder.find(name(path)), path.to_path_buf());
        Ok(Self { listener, path, folder, visitors, watch, file, look: None, is_passed: false, is_new: true, gpu })
    }

    /// Takes a GPU for this process, at a socket that was passed on.
    ///
    /// # Errors
    ///
    /// When another process has the GPU, or others could exchange the socket.
    pub fn claim_passed(Passed { listener, path }: Passed, uuid: [u8; 16]) -> Result<Self, Unfit> {
        let folder = Folder::of_socket(&path)?;
        let gpu = GpuLock::take(uuid, &path)?;
        // Its unit tells the users who can connect (`SocketMode=`).
        let (watch, file) = (folder.watch()?, folder.find(name(&path)));
        let visitors = Visitors::Own;
        Ok(Self { listener, path, folder, visitors, watch, file, look: None, is_passed: true, is_new: true, gpu })
    }

    /// The socket that listens, and the GPU's lock: with these another process goes on at this place.
    pub fn parts(&self) -> [BorrowedFd<'_>; 2] {
        [self.listener.as_fd(), self.gpu.as_fd()]
    }

    /// The same, if one of them is new since the last call.
    pub fn new_parts(&mut self) -> Option<[BorrowedFd<'_>; 2]> {
        std::mem::take(&mut self.is_new).then(|| self.parts())
    }

    /// Goes on at the place of a coordinator that has died, with its socket, which a service manager may have passed on, and its lock.
    ///
    /// # Errors
    ///
    /// When these are no such things, or others could exchange the socket.
    pub fn go_on(
        [listener, lock]: [OwnedFd; 2],
        uuid: [u8; 16],
        visitors: Visitors,
        is_passed: bool,
    ) -> Result<Self, Unfit> {
        let Passed { listener, path } = Passed::new(listener)?;
        let folder = Folder::of_socket(&path)?;
        let gpu = GpuLock::go_on(lock, uuid, &path)?;
        let (watch, file) = (folder.watch()?, folder.find(name(&path)));
        Ok(Self { listener, path, folder, visitors, watch, file, look: None, is_passed, is_new: true, gpu })
    }

    /// This process serves there from now on, and gives the place up when it ends.
    ///
    /// # Errors
    ///
    /// When the lock's file cannot be written.
    pub fn serves(&mut self) -> std::io::Result<()> {
        self.gpu.serves()
    }

    /// Opens a socket for metrics beside this one, which only this user can reach. It replaces one that a dead coordinator has left.
    ///
    /// # Errors
    ///
    /// When another file has its name, or it cannot be made.
    pub fn listen_beside(&self) -> Result<UnixListener, Unfit> {
        beside::listen_for_metrics(&self.folder, &self.path)
    }

    /// Keeps the page's token in a file that only this user can read, for the life of this coordinator.
    ///
    /// # Errors
    ///
    /// When another file has its name, or it cannot be written.
    pub fn keep_token(&self, token: &str) -> Result<PathBuf, Unfit> {
        beside::keep_token(&self.folder, &self.path, token)
    }

    /// Returns the socket's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Accepts the next connection; `AGAIN` if there is none.
    ///
    /// # Errors
    ///
    /// Errors of `accept`.
    pub fn accept(&self) -> Result<OwnedFd, Errno> {
        accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
    }

    /// Closes the socket, unless a program is about to connect or `baton run` is just searching for a coordinator.
    ///
    /// # Errors
    ///
    /// When the socket cannot be made anew for the programs that were about to connect.
    pub fn close_if_unwanted(&mut self, mut take_in: impl FnMut(OwnedFd)) -> Result<Closing, Unfit> {
        let start = self.folder.file(name(&self.path.with_extension("start")))?;
        if start.try_lock().is_err() {
            return Ok(Closing::Wanted);
        }
        if !self.is_passed {
            // From here on no one can connect; earlier connections can still be accepted.
            let _ = shutdown(&self.listener, Shutdown::Both);
        }
        let mut closing = Closing::Closed;
        // At most a full backlog: at a socket that was passed on, connections may come for ever.
        for _ in 0..BACKLOG {
            let Ok(socket) = self.accept() else { break };
            take_in(socket);
            closing = Closing::Wanted;
        }
        if self.is_passed {
            // A program that connects from here on waits for the next coordinator.
            return Ok(closing);
        }
        self.folder.remove(name(&self.path));
        if matches!(closing, Closing::Wanted) {
            self.listen_anew()?;
        }
        Ok(closing)
    }

    fn listen_anew(&mut self) -> Result<(), Unfit> {
        self.listener = listen_at(&self.path, SocketType::SEQPACKET, self.visitors)?;
        self.is_new = true;
        self.file = self.folder.find(name(&self.path));
        Ok(())
    }

    /// The descriptor that shows removals.
    pub fn watch(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }

    /// Notes that a file was removed.
    pub fn heed_watch(&mut self) {
        let mut told = [0; 4096];
        while rustix::io::read(&self.watch, &mut told).is_ok_and(|count| count > 0) {}
        // The delay gives the remover time to remove the folder too.
        self.look.get_or_insert_with(|| Instant::now() + GRACE);
    }

    /// The time of the next check for the socket.
    pub fn next_look(&self) -> Option<Instant> {
        self.look
    }

    /// Puts the socket there again if it was removed, with its folder and the GPU's lock. Pending connections are taken in. True if it
    /// had been removed.
    ///
    /// # Errors
    ///
    /// When it is gone, and cannot be put there. The next check tries again.
    pub fn look(&mut self, mut take_in: impl FnMut(OwnedFd)) -> Result<bool, Unfit> {
        if self.look.take_if(|at| *at <= Instant::now()).is_none() || self.is_passed {
            return Ok(false);
        }
        self.is_new |= self.gpu.restore();
        let found = rustix::fs::lstat(&self.path).ok().map(|found| file_id(&found));
        if found.is_some() && found == self.file {
            return Ok(false);
        }
        // Set first, so that it holds after a failure too.
        self.look = Some(Instant::now() + LOOK_AGAIN);
        if found.is_some() {
            return Err(baton_messages::place_is_taken(self.path.display()).into());
        }
        self.folder = match self.visitors {
            Visitors::Own => Folder::of_socket(&self.path)?,
            Visitors::Guests | Visitors::Group(_) => Folder::of_shared_socket(&self.path)?,
        };
        while let Ok(socket) = self.accept() {
            take_in(socket);
        }
        self.listen_anew()?;
        self.watch = self.folder.watch()?;
        self.look = None;
        Ok(true)
    }

    /// Leaves the place, even if programs are about to connect.
    pub fn leave(&self) {
        if !self.is_passed {
            let _ = shutdown(&self.listener, Shutdown::Both);
            self.folder.remove(name(&self.path));
        }
        beside::remove(&self.folder, &self.path);
    }
}

impl AsFd for Endpoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    fn uuid() -> [u8; 16] {
        let mut uuid = [0; 16];
        rustix::rand::getrandom(&mut uuid, rustix::rand::GetRandomFlags::empty()).expect("random bytes");
        uuid
    }

    #[track_caller]
    pub(super) fn says<T: std::fmt::Debug>(found: Result<T, Unfit>, words: &[&str]) {
        let said = found.expect_err("refused").to_string();
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
    }

    #[test]
    fn a_gpu_has_one_coordinator_wherever_its_socket_is_and_a_dead_ones_place_is_taken() {
        let folder = tempfile::tempdir().expect("a folder");
        let [here, there] = ["a.sock", "b.sock"].map(|name| folder.path().join(name));
        let gpu = uuid();
        let first = Endpoint::claim(&here, gpu, Visitors::Own).expect("free");
        says(Endpoint::claim(&there, gpu, Visitors::Own), &[&format!("process {}", std::process::id()), "a.sock"]);
        says(Endpoint::claim(&here, uuid(), Visitors::Own), &["another GPU"]);
        let another = Endpoint::claim(&there, uuid(), Visitors::Own).expect("another GPU, another place");
        // The socket stays, as after a kill.
        drop((first, another));
        Endpoint::claim(&here, gpu, Visitors::Own).expect("left behind");
    }

    #[test]
    fn who_is_on_the_way_when_a_coordinator_wants_to_end_is_taken_in_and_the_next_one_finds_it_too() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("s.sock");
        let mut endpoint = Endpoint::claim(&path, uuid(), Visitors::Own).expect("free");
        let on_the_way = link::connect(&path, Chosen::ByUser, PATIENCE).expect("it listens");
        let mut came = Vec::new();
        assert!(matches!(endpoint.close_if_unwanted(|socket| came.push(socket)), Ok(Closing::Wanted)));
        assert_eq!(came.len(), 1);
        link::send(on_the_way.as_fd(), b"hello", &[], false).expect("the other end is held");
        let _next = link::connect(&path, Chosen::ByUser, PATIENCE).expect("it listens again");
        endpoint.accept().expect("the next one");

        let start = start_lock(&path).expect("a lock");
        start.lock().expect("free");
        assert!(matches!(endpoint.close_if_unwanted(|_| panic!("nobody came")), Ok(Closing::Wanted)));
        drop(start);
        assert!(matches!(endpoint.close_if_unwanted(|_| panic!("nobody came")), Ok(Closing::Closed)));
        assert!(matches!(link::connect(&path, Chosen::ByUser, PATIENCE), Err(link::Unconnected::NobodyListens)));
    }

    #[test]
    fn a_socket_that_somebody_removes_is_put_there_again_with_its_folder_and_nobody_on_the_way_is_lost() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("run").join("s.sock");
        let mut endpoint = Endpoint::claim(&path, uuid(), Visitors::Own).expect("free");
        let look = |endpoint: &mut Endpoint| {
            let mut watched = [rustix::event::PollFd::new(&endpoint.watch, rustix::event::PollFlags::IN)];
            rustix::event::poll(&mut watched, None).expect("it can be waited for");
            endpoint.heed_watch();
            std::thread::sleep(GRACE);
            let mut came = 0;
            let is_anew = endpoint.look(|_| came += 1);
            (is_anew.map_err(|error| error.to_string()), came)
        };
        std::fs::write(folder.path().join("run").join("other"), "").expect("a file");
        std::fs::remove_file(folder.path().join("run").join("other")).expect("a file");
        assert_eq!(look(&mut endpoint), (Ok(false), 0), "that was another file");
        for is_folder in [false, true] {
            let on_the_way = link::connect(&path, Chosen::ByUser, PATIENCE).expect("it listens");
            match is_folder {
                true => std::fs::remove_dir_all(folder.path().join("run")).expect("ours"),
                false => std::fs::remove_file(&path).expect("ours"),
            }
            assert_eq!(look(&mut endpoint), (Ok(true), 1));
            link::connect(&path, Chosen::ByUser, PATIENCE).expect("it listens again");
            endpoint.accept().expect("who has just come");
            drop(on_the_way);
        }
        std::fs::remove_file(&path).expect("ours");
        std::fs::write(&path, "precious").expect("a file");
        assert!(look(&mut endpoint).0.is_err_and(|error| error.contains("in the place")));
        assert_eq!(std::fs::read_to_string(&path).expect("there"), "precious");
    }

    #[test]
    fn a_socket_for_metrics_is_ours_alone_and_takes_the_place_of_one_that_was_left() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("s.sock");
        let endpoint = Endpoint::claim(&path, uuid(), Visitors::Own).expect("free");
        let beside = metrics_socket(&path);
        for _ in 0..2 {
            drop(endpoint.listen_beside().expect("free, or left behind"));
            assert_eq!(std::fs::metadata(&beside).expect("a socket").mode() & 0o077, 0);
        }
        endpoint.leave();
        assert!(!beside.exists());
        std::fs::write(&beside, "precious").expect("a file");
        says(endpoint.listen_beside(), &["no socket of yours"]);
        assert_eq!(std::fs::read_to_string(&beside).expect("there"), "precious");
    }

    #[test]
    fn files_that_somebody_has_put_there_are_refused_and_stay_as_they_are() {
        let folder = tempfile::tempdir().expect("a folder");
        let victim = folder.path().join("victim");
        std::fs::write(&victim, "precious").expect("a file");
        let socket = folder.path().join("s.sock");
        let open = |extension: &str| match extension {
            "start" => start_lock(&socket).map(drop),
            _ => log_file(&socket).map(drop),
        };
        for extension in ["start", "log"] {
            let planted = socket.with_extension(extension);
            for plant in [symlink::<&Path, &Path>, std::fs::hard_link::<&Path, &Path>] {
                plant(&victim, &planted).expect("planted");
                says(open(extension), &["remove it", extension]);
                std::fs::remove_file(&planted).expect("ours");
            }
        }
        symlink(&victim, &socket).expect("planted");
        says(Endpoint::claim(&socket, uuid(), Visitors::Own), &["no socket"]);
        assert_eq!(std::fs::read_to_string(victim).expect("there"), "precious");
    }
}
