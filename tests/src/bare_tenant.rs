//! A tenant without a program: a test that speaks the contract itself, and can say and do what no program would.

use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use baton_contract::class::Class;
use baton_contract::link::{self, Chosen, Received};
use baton_contract::memory::SizeClass;
use baton_contract::messages::{
    Admission, Answer, ExtentId, FromCoordinator, MemoryCommand, MemoryReport, Message, Opening, Request, TurnCommand,
    TurnReport,
};
use baton_contract::scheduling::Scheduling;
use baton_contract::wire::{GpuNumber, Version};

use crate::coordinator::Coordinator;

use crate::LIMIT;

/// A greeting as a tenant of this coordinator's GPU would send it.
pub fn greeting(coordinator: &Coordinator, name: &str) -> Opening {
    let uuid = coordinator.status()["gpu"]["uuid"].as_str().expect("a text").to_owned();
    let digits: String = uuid.trim_start_matches("GPU-").chars().filter(char::is_ascii_hexdigit).collect();
    let mut gpu = [0; 16];
    for (at, byte) in gpu.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).expect("hexadecimal");
    }
    Opening::Hello { name: name.to_owned(), scheduling: Scheduling::default(), gpu, needs: 0, run: 0, gang: 0 }
}

/// The bytes of a greeting as a tenant of class latency.
pub fn urgent(coordinator: &Coordinator, name: &str) -> Vec<u8> {
    match greeting(coordinator, name) {
        Opening::Hello { name, gpu, .. } => {
            let scheduling = Scheduling { class: Class::Latency, ..Scheduling::default() };
            Opening::Hello { name, scheduling, gpu, needs: 0, run: 0, gang: 0 }.encode(GpuNumber::ANY)
        }
        other => panic!("{other:?}"),
    }
}

/// A connection to the coordinator whose socket this is.
#[track_caller]
pub fn connection(socket: &Path) -> OwnedFd {
    link::connect(socket, Chosen::ByUser, LIMIT).expect("it listens")
}

/// Sends a greeting as a program's shim does.
#[track_caller]
pub fn greet(control: &OwnedFd, hello: &[u8]) -> io::Result<()> {
    // SAFETY: plain integers; the new descriptor has no other owner.
    let own = unsafe { OwnedFd::from_raw_fd(libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) as i32) };
    link::send(control.as_fd(), hello, &[own.as_fd()], false)
}

/// Does something as another user, in a thread of its own, for which this has to be root's.
#[track_caller]
pub fn as_user<T: Send>(user: u32, what: impl FnOnce() -> T + Send) -> T {
    let work = || {
        // SAFETY: plain integers. The system call, unlike the C library's function, changes this thread alone.
        assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, user, user, user) }, 0, "this is root");
        what()
    };
    std::thread::scope(|scope| scope.spawn(work).join()).expect("done")
}

/// A tenant of this test's process.
pub struct BareTenant {
    /// Commands come here, and reports go.
    pub control: OwnedFd,
    /// Requests go here, and answers come.
    pub requests: OwnedFd,
    /// Its number.
    pub tenant: u32,
    /// The pages that came: the coordinator's, its own, its domain's activity page, and what that is told of others.
    pub pages: Vec<OwnedFd>,
    /// The grant that holds.
    pub grant: u64,
    /// Addresses from here on are free.
    addresses: AtomicU64,
}

impl BareTenant {
    /// Greets a coordinator.
    #[track_caller]
    pub fn join(coordinator: &Coordinator, name: &str) -> Self {
        Self::greet(coordinator, &greeting(coordinator, name).encode(GpuNumber::ANY))
    }

    /// The same as another user, for which this has to be root's.
    #[track_caller]
    pub fn join_as(user: u32, coordinator: &Coordinator, name: &str) -> Self {
        let hello = greeting(coordinator, name).encode(GpuNumber::ANY);
        as_user(user, || Self::greet(coordinator, &hello))
    }

    /// Sends a coordinator these bytes, which are a greeting.
    #[track_caller]
    pub fn greet(coordinator: &Coordinator, hello: &[u8]) -> Self {
        let control = connection(&coordinator.place.socket());
        greet(&control, hello).expect("a message");
        Self::welcomed(control).unwrap_or_else(|answer| panic!("{answer:?}"))
    }

    /// The tenant whose greeting was answered with a welcome.
    ///
    /// # Errors
    ///
    /// The message that came instead; none at the end of the connection.
    pub fn welcomed(control: OwnedFd) -> Result<Self, Option<FromCoordinator>> {
        let Ok(Some(mut welcome)) = link::receive(control.as_fd(), false) else { return Err(None) };
        let decoded =
            Version::of(&welcome.message).and_then(|spoken| FromCoordinator::decode_in(&welcome.message, spoken));
        let answer = decoded.ok().map(|(_, answer)| answer);
        let Some(FromCoordinator::Admission(Admission::Welcome { tenant, .. })) = answer else { return Err(answer) };
        let requests = welcome.descriptors.remove(2);
        link::set_patience(&requests, Some(LIMIT)).expect("a socket");
        let (pages, addresses) = (welcome.descriptors, AtomicU64::new(1 << 40));
        Ok(Self { control, requests, pages, tenant, grant: 0, addresses })
    }

    /// Reports something.
    #[track_caller]
    pub fn tell(&self, report: &impl Message) {
        link::send(self.control.as_fd(), &report.encode(GpuNumber::FIRST), &[], false)
            .expect("the coordinator listens");
    }

    /// The next command, with its descriptors.
    #[track_caller]
    pub fn hear(&self) -> (FromCoordinator, Vec<OwnedFd>) {
        self.hear_within(LIMIT).expect("a command")
    }

    /// The next command, if it comes in time.
    #[track_caller]
    pub fn hear_within(&self, patience: Duration) -> Option<(FromCoordinator, Vec<OwnedFd>)> {
        link::set_patience(&self.control, Some(patience)).expect("a socket");
        let received = match link::receive(self.control.as_fd(), false) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
            received => received.expect("a command").expect("a command"),
        };
        let Received { message, descriptors, truncated } = received;
        assert!(!truncated, "this process can open more");
        let (gpu, command) = FromCoordinator::decode(&message).expect("a command");
        assert_eq!(gpu, GpuNumber::FIRST);
        assert_eq!(command.descriptors(), descriptors.len(), "{command:?}");
        Some((command, descriptors))
    }

    /// The next command about memory. Turns that come meanwhile are taken, and given back when that is asked for.
    #[track_caller]
    pub fn hear_of_memory(&mut self) -> (MemoryCommand, Vec<OwnedFd>) {
        loop {
            match self.hear() {
                (FromCoordinator::Memory(MemoryCommand::Recut { .. }), _) => {}
                (FromCoordinator::Memory(command), descriptors) => return (command, descriptors),
                (FromCoordinator::Turn(command), _) => self.obey(&command),
                (other, _) => panic!("{other:?}"),
            }
        }
    }

    /// Does what a tenant does that never has any work, and always wants to.
    #[track_caller]
    pub fn obey(&mut self, command: &TurnCommand) {
        match *command {
            TurnCommand::Grant { grant, .. } => {
                self.grant = grant;
                self.tell(&TurnReport::Opened { grant });
            }
            TurnCommand::Revoke { grant, .. } if grant == self.grant => {
                self.tell(&TurnReport::Closed { grant, drain_micros: 0 });
                self.tell(&TurnReport::Demand);
            }
            _ => {}
        }
    }

    /// Asks for something, and has the answer with its descriptors.
    #[track_caller]
    pub fn ask(&self, request: &Request) -> (Answer, Vec<OwnedFd>) {
        link::send(self.requests.as_fd(), &request.encode(GpuNumber::FIRST), &[], false)
            .expect("the coordinator listens");
        let received = link::receive(self.requests.as_fd(), false).expect("an answer").expect("an answer");
        match FromCoordinator::decode(&received.message) {
            Ok((_, FromCoordinator::Answer(answer))) => {
                assert_eq!(answer.descriptors(), received.descriptors.len(), "{answer:?}");
                (answer, received.descriptors)
            }
            other => panic!("{other:?}"),
        }
    }

    /// Asks for what ends its connection, or says that it did not.
    #[track_caller]
    pub fn is_cut_off_for(&self, request: &Request) -> bool {
        link::send(self.requests.as_fd(), &request.encode(GpuNumber::FIRST), &[], false)
            .expect("the coordinator listens");
        link::receive(self.requests.as_fd(), false).expect("an end or an answer").is_none()
    }

    /// The request for so much memory, behind what was asked for before.
    pub fn allocation(&self, bytes: u64) -> Request {
        let at = self.addresses.fetch_add(bytes, Ordering::Relaxed);
        Request::Allocate { at, bytes }
    }

    /// Asks for memory that there is.
    #[track_caller]
    pub fn allocate(&self, bytes: u64) -> (Vec<(ExtentId, SizeClass)>, Vec<OwnedFd>) {
        match self.ask(&self.allocation(bytes)) {
            (Answer::Allocated { extents }, frames) => {
                assert_eq!(extents.iter().map(|(_, class)| class.bytes()).sum::<u64>(), bytes);
                (extents, frames)
            }
            (other, _) => panic!("{other:?}"),
        }
    }

    /// Asks for the GPU, and takes it when it comes. All memory of this tenant is there.
    #[track_caller]
    pub fn take_gpu(&mut self) {
        self.tell(&TurnReport::Demand);
        self.until_granted();
    }

    /// Takes the GPU when it comes. All memory of this tenant is there.
    #[track_caller]
    pub fn until_granted(&mut self) {
        loop {
            if let (FromCoordinator::Turn(TurnCommand::Grant { grant, arriving: false, .. }), _) = self.hear() {
                self.grant = grant;
                return self.tell(&TurnReport::Opened { grant });
            }
        }
    }

    /// Gives the GPU back when that is asked for.
    #[track_caller]
    pub fn yield_gpu(&self) {
        loop {
            if let (FromCoordinator::Turn(TurnCommand::Revoke { grant, .. }), _) = self.hear()
                && grant == self.grant
            {
                return self.tell(&TurnReport::Closed { grant, drain_micros: 0 });
            }
        }
    }

    /// Has done what it was told.
    #[track_caller]
    pub fn done(&self, command: &MemoryCommand) {
        match command {
            MemoryCommand::Prepare { batch, .. }
            | MemoryCommand::Map { batch, .. }
            | MemoryCommand::Unmap { batch, .. }
            | MemoryCommand::Consolidated { batch, .. } => self.tell(&MemoryReport::Done { batch: *batch, micros: 1 }),
            MemoryCommand::Recut { .. } => {}
        }
    }
}
