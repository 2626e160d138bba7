//! A program that says anything, in any order: some of it makes sense where it is said, some is changed in a few bytes, some comes with
//! descriptors of anything. A number determines all of its messages.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use baton_contract::link::{self, Received};
use baton_contract::messages::{
    Answer, Channels, CorunReport, Elsewhere, ExtentId, FileId, FromCoordinator, FromTenant, IPC_HANDLE, MemoryCommand,
    MemoryReport, Message, Opening, PreemptionCommand, PreemptionReport, ProcessId, Request, TurnCommand, TurnReport,
};
use baton_contract::resource_manager::Objects;
use baton_contract::wire::GpuNumber;

use crate::bare_tenant::{self, BareTenant};

use crate::MIB;

/// Numbers that follow from one (splitmix64).
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// The next one.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// One below this.
    pub fn below(&mut self, most: usize) -> usize {
        (self.draw() % most as u64) as usize
    }

    fn one<T: Clone>(&mut self, of: &[T]) -> Option<T> {
        if of.is_empty() { None } else { Some(of[self.below(of.len())].clone()) }
    }

    fn some<T: Clone>(&mut self, of: &[T]) -> Vec<T> {
        (0..self.below(4)).filter_map(|_| self.one(of)).collect()
    }

    /// A number that may mean something.
    fn number(&mut self) -> u64 {
        match self.below(6) {
            0 => 0,
            1 => u64::MAX,
            2 => 2 * MIB * self.below(40) as u64,
            3 => self.draw(),
            _ => self.below(8) as u64,
        }
    }
}

/// One that says anything.
pub struct Liar<'a> {
    /// The source of its messages.
    pub random: Random,
    tenant: BareTenant,
    extents: Vec<ExtentId>,
    addresses: Vec<u64>,
    keys: Vec<[u8; 16]>,
    batches: Vec<u32>,
    odd: &'a [OwnedFd],
    /// The first word of each message and of each answer.
    pub seen: BTreeSet<String>,
}

impl<'a> Liar<'a> {
    /// Lies in the name of a tenant, with descriptors of anything.
    pub fn new(random: Random, tenant: BareTenant, odd: &'a [OwnedFd]) -> Self {
        let (extents, addresses, keys, batches) = (Vec::new(), vec![1 << 41], Vec::new(), Vec::new());
        Self { random, tenant, extents, addresses, keys, batches, odd, seen: BTreeSet::new() }
    }
}

impl Liar<'_> {
    fn bytes(&mut self) -> u64 {
        if self.random.below(12) == 0 { self.random.number() } else { 2 * MIB * (1 + self.random.below(6)) as u64 }
    }

    fn at(&mut self) -> u64 {
        let known = self.random.one(&self.addresses);
        known.filter(|_| self.random.below(5) > 1).unwrap_or_else(|| (1 << 41) + 2 * MIB * self.random.below(64) as u64)
    }

    fn extents(&mut self) -> Vec<ExtentId> {
        let mut some = self.random.some(&self.extents);
        if self.random.below(30) == 0 {
            some.push(ExtentId(self.random.number() as u32));
        }
        some
    }

    fn ranges(&mut self) -> Vec<(u64, u64)> {
        (0..1 + self.random.below(2)).map(|_| (self.at(), self.bytes())).collect()
    }

    fn request(&mut self) -> Request {
        let handle = [self.random.below(3) as u8; IPC_HANDLE];
        let process = ProcessId { namespace: self.random.below(2) as u64, number: self.random.below(3) as u32 };
        match self.random.below(18) {
            0..=2 => {
                let (at, bytes) = (self.at(), self.bytes());
                self.addresses.push(at);
                Request::Allocate { at, bytes }
            }
            3 => Request::Free { extents: self.extents() },
            4 => Request::Frames { extents: self.extents() },
            5 => Request::MakeImmovable { extents: self.extents() },
            6 => Request::UnmanagedMemory { least: self.random.number(), bytes: self.random.number() },
            7 => Request::Context { again: self.random.below(2) == 0 },
            8 => Request::Room { bytes: self.random.number() },
            9 => Request::Spare { ranges: self.ranges() },
            10 => Request::Reuse { at: self.at(), bytes: self.bytes() },
            11 => Request::Export { at: self.at(), bytes: self.bytes() },
            12 => Request::Unexport { at: self.at() },
            13 => {
                let key = self.random.one(&self.keys).unwrap_or([7; 16]);
                let exporter = self.random.number() as u32;
                Request::Attach { exporter, key, at: self.at(), apart: self.random.below(2) == 0 }
            }
            14 if self.random.below(2) == 0 => Request::ExportEvent { handle },
            14 => Request::OpenEvent { handle },
            15 => Request::ExportDescriptors { process },
            16 if self.random.below(3) == 0 => {
                Request::PinsFile { file: FileId { device: 1, inode: self.random.below(3) as u64 } }
            }
            16 if self.random.below(2) == 0 => {
                let key = self.random.one(&self.keys).unwrap_or([7; 16]);
                Request::Meet { exporter: self.random.number() as u32, key }
            }
            16 => Request::JoinGang { gang: self.random.below(3) as u64 },
            _ => Request::ImportDescriptor { owner: process },
        }
    }

    fn report(&mut self) -> FromTenant {
        let grant = if self.random.below(3) > 0 { self.tenant.grant } else { self.random.number() };
        let batch = self.random.one(&self.batches).unwrap_or(self.random.below(3) as u32);
        let list = |random: &mut Random| (0..random.below(4)).map(|_| random.number() as u32).collect::<Vec<_>>();
        match self.random.below(18) {
            0 => TurnReport::Demand.into(),
            1 => TurnReport::Rests { grant }.into(),
            2 => TurnReport::Works { grant }.into(),
            3 => TurnReport::Opened { grant }.into(),
            4 => TurnReport::Closed { grant, drain_micros: self.random.number() }.into(),
            5 => TurnReport::DrainTimedOut { grant }.into(),
            6 => TurnReport::Used { grant, extents: self.extents().into_iter().map(|id| (id, id.0)).collect() }.into(),
            7 => MemoryReport::Done { batch, micros: self.random.number() }.into(),
            8 => MemoryReport::Failed { batch, code: self.random.number() as u32 }.into(),
            9 => MemoryReport::Undelivered { batch }.into(),
            10 => MemoryReport::Free { extents: self.extents() }.into(),
            11 => MemoryReport::Spare { ranges: self.ranges() }.into(),
            12 => {
                MemoryReport::Consolidate { at: self.at(), bytes: self.bytes(), piece: self.random.below(3) > 0 }.into()
            }
            13 => MemoryReport::Unleased { bytes: self.random.number() }.into(),
            14 if self.random.below(2) == 0 => MemoryReport::ContextGone.into(),
            14 => MemoryReport::ContextMade { made: self.random.below(2) == 0 }.into(),
            15 => {
                let channels = match self.random.below(3) {
                    0 => Channels::None,
                    1 => Channels::Simulated { process: self.random.number() as u32 },
                    _ => Channels::ResourceManager(Objects {
                        client: 1,
                        subdevice: 2,
                        channels: list(&mut self.random),
                        compute: list(&mut self.random),
                        groups: list(&mut self.random),
                    }),
                };
                PreemptionReport::Channels {
                    channels,
                    begun: self.random.number() as u32,
                    elsewhere: Elsewhere {
                        channels: (0..self.random.number() % 3)
                            .map(|at| (at as u32, self.random.number() as u32))
                            .collect(),
                    },
                }
                .into()
            }
            16 if self.random.below(2) == 0 => PreemptionReport::GateClosed { grant }.into(),
            16 => PreemptionReport::Probed { number: self.random.number() as u32 }.into(),
            _ => CorunReport::ActivityChanged.into(),
        }
    }

    /// Says one thing. False if the peer listens no more.
    pub fn say(&mut self) -> bool {
        let on_requests = self.random.below(2) == 0;
        let message: FromTenant = if on_requests { self.request().into() } else { self.report() };
        let word = format!("{message:?}");
        let count = message.descriptors();
        let mut bytes = message.encode(GpuNumber::FIRST);
        let mut with: Vec<BorrowedFd<'_>> =
            (0..count).map(|_| self.odd[self.random.below(self.odd.len())].as_fd()).collect();
        match self.random.below(60) {
            // A few bytes are others.
            0 | 1 => {
                for _ in 0..1 + self.random.below(3) {
                    let at = self.random.below(bytes.len());
                    bytes[at] ^= 1 << self.random.below(8);
                }
            }
            2 => bytes.truncate(1 + self.random.below(bytes.len())),
            // An unexpected descriptor.
            3 => with.push(self.odd[self.random.below(self.odd.len())].as_fd()),
            _ => {}
        }
        let mut words = word.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        let name: Vec<&str> = words.by_ref().take(2).collect();
        self.seen.insert(name.join(" "));
        // A message that belongs on one socket may come on the other.
        let socket =
            if on_requests != (self.random.below(200) == 0) { &self.tenant.requests } else { &self.tenant.control };
        match link::send(socket.as_fd(), &bytes, &with, true) {
            Ok(()) => true,
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        }
    }

    /// Hears what there is, and remembers of it what may be of use for lies. False if the peer says nothing more.
    #[track_caller]
    pub fn hear(&mut self) -> bool {
        for at in 0..2 {
            let socket = if at == 0 { &self.tenant.control } else { &self.tenant.requests };
            loop {
                let Received { message, .. } = match link::receive(socket.as_fd(), true) {
                    Ok(Some(received)) => received,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Ok(None) | Err(_) => return false,
                };
                let (_, heard) = FromCoordinator::decode(&message).expect("a coordinator says what there is");
                let name = format!("{heard:?}");
                let name = name.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).take(2);
                self.seen.insert(name.collect::<Vec<_>>().join(" "));
                match heard {
                    FromCoordinator::Answer(Answer::Allocated { extents }) => {
                        self.extents.extend(extents.iter().map(|one| one.0))
                    }
                    FromCoordinator::Answer(Answer::Attached { extents, .. }) => {
                        self.extents.extend(extents.iter().map(|one| one.0))
                    }
                    FromCoordinator::Answer(Answer::Exported { key, .. }) => self.keys.push(key),
                    FromCoordinator::Turn(TurnCommand::Grant { grant, .. } | TurnCommand::Revoke { grant, .. }) => {
                        self.tenant.grant = grant;
                    }
                    FromCoordinator::Preemption(PreemptionCommand::Begin { grant }) => self.tenant.grant = grant,
                    FromCoordinator::Memory(
                        MemoryCommand::Prepare { batch, .. }
                        | MemoryCommand::Map { batch, .. }
                        | MemoryCommand::Unmap { batch, .. }
                        | MemoryCommand::Consolidated { batch, .. },
                    ) => self.batches.push(batch),
                    _ => {}
                }
            }
        }
        true
    }
}

/// Descriptors of anything.
pub fn odd() -> Vec<OwnedFd> {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let (one, other) = std::os::unix::net::UnixStream::pair().expect("sockets");
    let file = tempfile::tempfile().expect("a file");
    file.set_len(8 * MIB).expect("room");
    vec![
        reader.into(),
        writer.into(),
        one.into(),
        other.into(),
        file.into(),
        File::open("/dev/null").expect("there").into(),
    ]
}

/// A stranger's first message, changed anyhow. Messages that end the coordinator or change its programs on purpose are left out.
#[track_caller]
pub fn say_first(socket: &Path, random: &mut Random, hello: &[u8], odd: &[OwnedFd]) {
    let mut bytes = match random.below(4) {
        0 => Opening::Expect.encode(GpuNumber::ANY),
        1 => Opening::Events { next: random.number() }.encode(GpuNumber::ANY),
        2 => Opening::Evict { name: "nobody".to_owned() }.encode(GpuNumber::ANY),
        _ => hello.to_vec(),
    };
    for _ in 0..random.below(4) {
        let at = random.below(bytes.len());
        bytes[at] = random.draw() as u8;
    }
    if random.below(6) == 0 {
        bytes.truncate(1 + random.below(bytes.len()));
    }
    if matches!(
        FromTenant::decode(&bytes),
        Ok((_, FromTenant::Opening(Opening::Stop { .. } | Opening::Close { .. } | Opening::Set { .. })))
    ) {
        return;
    }
    let socket = bare_tenant::connection(socket);
    let with: Vec<BorrowedFd<'_>> = (0..random.below(3)).map(|_| odd[random.below(odd.len())].as_fd()).collect();
    let _ = link::send(socket.as_fd(), &bytes, &with, true);
}
