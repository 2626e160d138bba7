//! Descriptors that are not what they claim to be, where a coordinator expects one: it neither waits for the server of such a file, nor
//! believes it, and the others do not notice.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use baton_contract::link::{self, Chosen};
use baton_contract::messages::{
    Admission, Answer, Channels, Elsewhere, FromCoordinator, MemoryCommand, MemoryReport, Message as _,
    PreemptionReport, Request,
};
use baton_contract::resource_manager::Objects;
use baton_contract::wire::GpuNumber;
use baton_tests::bare_tenant::{BareTenant, greeting};
use baton_tests::coordinator::{Coordinator, Serving, other_descriptors, tenant};
use baton_tests::{LIMIT, MIB, hold};

/// A file of a file system whose server is this test, which never answers the coordinator that reads or closes it.
///
/// All other closes are answered: programs that tests start meanwhile have the descriptor too, until they execute.
struct Fuse {
    at: PathBuf,
    /// How often it was asked for what it does not answer.
    unanswered: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
    server: Option<JoinHandle<()>>,
}

/// The system's requests (`linux/fuse.h`).
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const FLUSH: u32 = 25;
const INIT: u32 = 26;

impl Fuse {
    /// Mounts one, for which this has to be root's.
    fn new(coordinator: i32) -> Self {
        let mut server = File::options().read(true).write(true).open("/dev/fuse").expect("root may serve files");
        let at = tempfile::NamedTempFile::new().expect("a file").into_temp_path().keep().expect("a file");
        let path = std::ffi::CString::new(at.as_os_str().as_encoded_bytes()).expect("a path");
        let how = format!("fd={},rootmode=100000,user_id=0,group_id=0,allow_other\0", server.as_raw_fd());
        let flags = libc::MS_NOSUID | libc::MS_NODEV;
        // SAFETY: texts that live over the call.
        let mounted =
            unsafe { libc::mount(c"baton-test".as_ptr(), path.as_ptr(), c"fuse".as_ptr(), flags, how.as_ptr().cast()) };
        assert_eq!(mounted, 0, "{}", std::io::Error::last_os_error());
        let unanswered = Arc::new(AtomicUsize::new(0));
        let is_over = Arc::new(AtomicBool::new(false));
        let (count, ends) = (Arc::clone(&unanswered), Arc::clone(&is_over));
        let flags = rustix::fs::OFlags::NONBLOCK;
        rustix::fs::fcntl_setfl(&server, flags).expect("a file");
        let serving = std::thread::spawn(move || {
            let mut asked = vec![0; 1 << 20];
            while !ends.load(Ordering::SeqCst) {
                let Ok(length) = server.read(&mut asked) else {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                };
                let word = |at: usize| u32::from_ne_bytes(asked[at..at + 4].try_into().expect("4 bytes"));
                let is_coordinators = Path::new(&format!("/proc/{coordinator}/task/{}", word(32))).exists();
                let answer = match word(4) {
                    _ if length < 40 => continue,
                    INIT => Ok([7_u32, 31, 0, 0, 0, 4096].into_iter().chain([0; 10]).collect()),
                    // Of a plain file of 4 MiB, to be asked again at once.
                    GETATTR => Ok([0, 0, 0, 0, 1, 0, 4 << 20, 0, 8192, 0]
                        .into_iter()
                        .chain([0; 9])
                        .chain([0o100666, 1])
                        .chain([0; 5])
                        .collect()),
                    OPEN => Ok(vec![1_u32, 0, 0, 0]),
                    FLUSH if !is_coordinators => Ok(Vec::new()),
                    READ | FLUSH => {
                        count.fetch_add(1, Ordering::SeqCst);
                        continue;
                    }
                    _ => Err(-libc::ENOSYS),
                };
                let words: Vec<u32> = answer.clone().unwrap_or_default();
                let error = answer.err().unwrap_or(0);
                let mut said = (16 + 4 * words.len() as u32).to_ne_bytes().to_vec();
                said.extend(error.to_ne_bytes());
                said.extend(&asked[8..16]);
                said.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
                let _ = server.write_all(&said);
            }
        });
        Self { at, unanswered, is_over, server: Some(serving) }
    }

    /// Opens the file. If this process is killed, its descriptors are closed in their order: the server's comes first, so that this
    /// close waits for no answer.
    fn open(&self) -> OwnedFd {
        let file = File::options().read(true).write(true).open(&self.at).expect("it answers that");
        rustix::io::fcntl_dupfd_cloexec(&file, 900).expect("a descriptor")
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        // A process that waits for an answer gets an error when there is no server.
        self.is_over.store(true, Ordering::SeqCst);
        let _ = self.server.take().map(JoinHandle::join);
        let _ = Command::new("umount").arg("--lazy").arg(&self.at).status();
        let _ = std::fs::remove_file(&self.at);
    }
}

/// A socket that waits for an hour when it is closed, for a peer that reads nothing.
fn lingering() -> (OwnedFd, OwnedFd) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut socket = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
    let (peer, _) = listener.accept().expect("a connection");
    let linger = libc::linger { l_onoff: 1, l_linger: 3600 };
    // SAFETY: a structure that lives over the call, with its size.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of_val(&linger) as u32,
        )
    };
    assert_eq!(set, 0);
    socket.set_nonblocking(true).expect("a socket");
    while socket.write(&[0; 64 << 10]).is_ok() {}
    socket.set_nonblocking(false).expect("a socket");
    (socket.into(), peer.into())
}

/// A file of the size of memory, which is shortened once it has been looked at.
fn shrinking() -> File {
    let file = tempfile::tempfile().expect("a file");
    file.set_len(8 * MIB).expect("room");
    file
}

fn memory_file(bytes: u64) -> File {
    // SAFETY: a text; the new descriptor has no other owner.
    let file = unsafe { libc::memfd_create(c"odd".as_ptr(), libc::MFD_CLOEXEC) };
    // SAFETY: new, and ours.
    let file = unsafe { <File as std::os::fd::FromRawFd>::from_raw_fd(file) };
    file.set_len(bytes).expect("room");
    file
}

/// Sends one to wherever a descriptor is expected. In two of the three places it is closed at once.
fn send_everywhere(coordinator: &Coordinator, what: &str, odd: BorrowedFd<'_>) {
    // In place of a process: the system says who it is, or this is refused in words.
    let hello = greeting(coordinator, "liar").encode(GpuNumber::ANY);
    let stranger = link::connect(&coordinator.place.socket(), Chosen::ByUser, LIMIT).expect("it listens");
    link::send(stranger.as_fd(), &hello, &[odd], false).expect("it listens");
    let answer = link::receive(stranger.as_fd(), false).expect("an answer").expect("an answer");
    match FromCoordinator::decode(&answer.message) {
        Ok((_, FromCoordinator::Admission(Admission::Welcome { .. }))) => {}
        Ok((_, FromCoordinator::Admission(Admission::Refused { text, .. }))) => {
            assert!(text.contains("no process's descriptor"), "{what}: {text}");
        }
        other => panic!("{what}: {other:?}"),
    }
    drop((stranger, answer));

    // In place of memory.
    let mut liar = BareTenant::join(coordinator, "liar");
    liar.take_gpu();
    let Request::Allocate { at, bytes } = liar.allocation(4 * MIB) else { unreachable!("that is what it asks for") };
    assert!(matches!(liar.ask(&Request::Allocate { at, bytes }).0, Answer::Allocated { .. }));
    let wish = MemoryReport::Consolidate { at, bytes, piece: true }.encode(GpuNumber::FIRST);
    link::send(liar.control.as_fd(), &wish, &[odd], false).expect("a message");
    let (command, _) = liar.hear_of_memory();
    assert!(matches!(command, MemoryCommand::Consolidated { copied: false, .. }), "{what}: {command:?}");
    liar.done(&command);
    assert!(coordinator.log().contains("cannot have 4 MiB in one piece"), "{}", coordinator.log());

    // In place of the driver's control device.
    let objects = Objects { client: 1, subdevice: 2, channels: vec![3], compute: vec![3], groups: vec![4] };
    let offer = PreemptionReport::Channels {
        channels: Channels::ResourceManager(objects),
        begun: 0,
        elsewhere: Elsewhere::default(),
    }
    .encode(GpuNumber::FIRST);
    link::send(liar.control.as_fd(), &offer, &[odd], false).expect("a message");
    coordinator.until("it is refused in words", |_| {
        coordinator.log().contains("it offered something other than the driver's control device")
    });
    drop(liar);
    coordinator.until("the liars have gone", |status| tenant(status, "liar").is_null());
}

/// Descriptors of all kinds cost neither the coordinator nor its tenants anything, that of a file system in user space among them.
fn nothing_is_asked_or_waited_for(has_fuse: bool) {
    let coordinator = Serving::small("64MiB").start();
    let fuse = has_fuse.then(|| Fuse::new(coordinator.pid()));
    let mut running = hold::joined(&coordinator, "tenant", "normal", "24", None);
    let before = other_descriptors(&coordinator.until_ready());
    let (pipe, _writer) = std::io::pipe().expect("a pipe");
    let (socket, _other) = UnixStream::pair().expect("sockets");
    let (lingers, peer) = lingering();
    let shrinks = shrinking();
    let (small, large) = (memory_file(4096), memory_file(16 * MIB));
    let folder = File::open("/").expect("there");
    let mut odd: Vec<(&str, OwnedFd)> = vec![
        ("a pipe", pipe.into()),
        ("a socket", socket.into()),
        ("a socket that lingers", lingers),
        ("a file", shrinks.try_clone().expect("a descriptor").into()),
        ("a small memory file", small.into()),
        ("a memory file that nobody has sealed", large.try_clone().expect("a descriptor").into()),
        ("a folder", folder.into()),
    ];
    odd.extend(fuse.as_ref().map(|fuse| ("a file of a server that does not answer", fuse.open())));
    // This test would wait too, were they closed here.
    let odd = std::mem::ManuallyDrop::new(odd);
    for (what, descriptor) in odd.iter() {
        send_everywhere(&coordinator, what, descriptor.as_fd());
        // Files that were examined become something else.
        shrinks.set_len(0).expect("ours");
        large.set_len(0).expect("ours");
        assert!(running.ask("touch", LIMIT).starts_with("touched "), "{what}");
        coordinator.status();
    }
    drop(peer);
    if let Some(fuse) = fuse {
        coordinator.until("it was asked", |_| fuse.unanswered.load(Ordering::SeqCst) > 0);
        println!("asked {} times for what it did not answer", fuse.unanswered.load(Ordering::SeqCst));
    }
    coordinator.until("all that was sent is closed", |status| other_descriptors(status) <= before);
    assert!(running.ask("quit", LIMIT).ends_with(" ok"));
}

#[test]
fn what_is_no_process_no_memory_and_no_control_device_is_neither_asked_nor_waited_for() {
    nothing_is_asked_or_waited_for(false);
}

mod root {
    use super::*;

    #[test]
    #[ignore = "root: it mounts a file system"]
    fn a_file_whose_server_does_not_answer_is_neither_asked_nor_waited_for() {
        nothing_is_asked_or_waited_for(true);
    }
}
