//! A program of another user that does a coordinator harm, as far as it is let: `hostile WHAT SOCKET [COUNT]`, until its input ends.
//! It knows nothing but the socket's place, and never uses the GPU's driver.
//!
//! - `floods`: messages of every kind over its own tenants' sockets, as fast as they go.
//! - `connects`: connections that are opened and closed, some with a first message.
//! - `crowds`: so many connections (10,000) at once, half of them silent.
//! - `hoards`: all tenants, memory, leases and connections that it gets, and answers that it never reads.
//! - `scribbles`: random words on every page that it is sent.
//! - `apart`: some memory, and work that cannot be paused, as far as the coordinator is told. It obeys, and has no work.
//! - `mute`: takes the GPU, and neither reads nor says anything more.
//! - `burns`: uses the processors, to tell what that does by itself.
//!
//! It says `ready` when all of its threads are at it, and at the end what it has done.

use std::hint::black_box;
use std::io::{ErrorKind, Read as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::panic::catch_unwind;
use std::path::Path;
use std::process::ExitCode;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use baton_contract::link;
use baton_contract::messages::{
    Admission, Answer, CorunReport, ExtentId, FromCoordinator, Message as _, Opening, Request, TurnCommand, TurnReport,
};
use baton_contract::page::PAGE_BYTES;
use baton_contract::scheduling::Scheduling;
use baton_contract::wire::{GpuNumber, MAX_DESCRIPTORS};
use baton_tests::bare_tenant::{self, BareTenant};
use baton_tests::liar::{Liar, Random, odd, say_first};

/// How many threads are at it.
const THREADS: u64 = 2;
/// The bytes of one request.
const PIECE: u64 = 32 << 20;
/// The longest wait for an answer.
const PATIENCE: Duration = Duration::from_millis(500);

/// How many connections a crowd is.
static COUNT: AtomicU64 = AtomicU64::new(10_000);

// Counts of the attacks.
static MESSAGES: AtomicU64 = AtomicU64::new(0);
static CONNECTIONS: AtomicU64 = AtomicU64::new(0);
static TENANTS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);
static WORDS: AtomicU64 = AtomicU64::new(0);
static HELD: AtomicU64 = AtomicU64::new(0);

fn count(what: &AtomicU64, more: u64) {
    what.fetch_add(more, Ordering::Relaxed);
}

/// Says that a program will come.
fn expect(connection: &OwnedFd) -> std::io::Result<()> {
    link::send(connection.as_fd(), &Opening::Expect.encode(GpuNumber::ANY), &[], false)
}

/// The UUID of the coordinator's GPU, and the connection that it was asked on. None for those who are not let in.
fn expected(socket: &Path) -> Option<([u8; 16], OwnedFd)> {
    let connection = bare_tenant::connection(socket);
    count(&CONNECTIONS, 1);
    expect(&connection).ok()?;
    link::set_patience(&connection, Some(PATIENCE)).ok()?;
    let answer = link::receive(connection.as_fd(), false).ok().flatten()?;
    match FromCoordinator::decode(&answer.message) {
        Ok((_, FromCoordinator::Admission(Admission::Offer { gpu, .. }))) => Some((gpu, connection)),
        _ => None,
    }
}

/// A tenant's greeting; zeros for a GPU that is not known.
fn hello(socket: &Path, name: &str) -> Vec<u8> {
    let gpu = expected(socket).map_or([0; 16], |(gpu, _)| gpu);
    Opening::Hello { name: name.to_owned(), scheduling: Scheduling::default(), gpu, needs: 0, run: 0, gang: 0 }
        .encode(GpuNumber::ANY)
}

/// A new tenant, if one is let in soon.
fn join(socket: &Path, hello: &[u8]) -> Option<BareTenant> {
    let control = bare_tenant::connection(socket);
    count(&CONNECTIONS, 1);
    bare_tenant::greet(&control, hello).ok()?;
    link::set_patience(&control, Some(PATIENCE)).ok()?;
    let tenant = BareTenant::welcomed(control).ok()?;
    count(&TENANTS, 1);
    Some(tenant)
}

fn floods(socket: &Path, random: &mut Random) {
    let (hello, odd) = (hello(socket, "flood"), odd());
    loop {
        let Some(tenant) = join(socket, &hello) else { continue };
        let mut liar = Liar::new(random.clone(), tenant, &odd);
        while liar.say() && (liar.random.below(16) != 0 || liar.hear()) {
            count(&MESSAGES, 1);
        }
        *random = liar.random;
    }
}

fn connects(socket: &Path, random: &mut Random) {
    let (hello, odd) = (hello(socket, "stranger"), odd());
    loop {
        if random.below(4) == 0 {
            say_first(socket, random, &hello, &odd);
            count(&MESSAGES, 1);
        } else {
            drop(bare_tenant::connection(socket));
        }
        count(&CONNECTIONS, 1);
    }
}

fn crowds(socket: &Path, _: &mut Random) {
    let mine = COUNT.load(Ordering::Relaxed) / THREADS;
    let open = |at| {
        let connection = bare_tenant::connection(socket);
        if at % 2 == 0 {
            // A connection that is not let in may have ended already.
            let _ = expect(&connection);
        }
        count(&CONNECTIONS, 1);
        connection
    };
    let held: Vec<OwnedFd> = (0..mine).map(open).collect();
    // The process that has opened the last one says it.
    if HELD.fetch_add(mine, Ordering::Relaxed) + mine >= mine * THREADS {
        println!("held");
    }
    loop {
        std::thread::park();
        black_box(&held);
    }
}

/// Lets this process open as many files as the system allows.
fn open_many() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a structure that lives over both calls.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
    }
}

/// Does what the coordinator says to a tenant, until there is nothing more. True if it is to have the GPU now.
fn obey(tenant: &mut BareTenant) -> bool {
    let mut is_granted = false;
    while let Ok(Some(received)) = link::receive(tenant.control.as_fd(), true) {
        match FromCoordinator::decode(&received.message) {
            Ok((_, FromCoordinator::Turn(TurnCommand::Grant { grant, .. }))) => {
                tenant.grant = grant;
                tenant.tell(&TurnReport::Opened { grant });
                is_granted = true;
            }
            Ok((_, FromCoordinator::Turn(TurnCommand::Revoke { grant, .. }))) => {
                tenant.tell(&TurnReport::Closed { grant, drain_micros: 0 });
                is_granted = false;
            }
            Ok((_, FromCoordinator::Memory(command))) => tenant.done(&command),
            _ => {}
        }
    }
    is_granted
}

/// The answer to a request, if it comes soon.
fn ask(tenant: &BareTenant, request: &Request) -> Option<Answer> {
    link::send(tenant.requests.as_fd(), &request.encode(GpuNumber::FIRST), &[], true).ok()?;
    count(&MESSAGES, 1);
    link::set_patience(&tenant.requests, Some(PATIENCE)).ok()?;
    let received = link::receive(tenant.requests.as_fd(), false).ok().flatten()?;
    match FromCoordinator::decode(&received.message) {
        Ok((_, FromCoordinator::Answer(answer))) => Some(answer),
        _ => None,
    }
}

/// Asks for all the memory that there is, while the tenant may; true when there is no more.
fn take_all(tenant: &BareTenant, taken: &mut Vec<ExtentId>) -> bool {
    let mut piece = PIECE;
    while piece >= 2 << 20 {
        match ask(tenant, &tenant.allocation(piece)) {
            Some(Answer::Allocated { extents }) => {
                count(&BYTES, piece);
                taken.extend(extents.into_iter().map(|(id, _)| id));
            }
            Some(Answer::Denied { .. }) => piece /= 2,
            _ => return false,
        }
    }
    let lease = Request::UnmanagedMemory { least: PIECE, bytes: PIECE };
    while let Some(Answer::UnmanagedMemory { bytes: 1.. }) = ask(tenant, &lease) {
        count(&BYTES, PIECE);
    }
    true
}

/// A tenant that has all that it gets, and what it has of that.
struct Hoard {
    tenant: BareTenant,
    extents: Vec<ExtentId>,
    is_full: bool,
}

fn hoards(socket: &Path, _: &mut Random) {
    let hello = hello(socket, "hoard");
    let joined = std::iter::from_fn(|| join(socket, &hello));
    let mut hoards: Vec<_> = joined.map(|tenant| Hoard { tenant, extents: Vec::new(), is_full: false }).collect();
    let held: Vec<OwnedFd> = std::iter::from_fn(|| expected(socket).map(|(_, connection)| connection)).collect();
    for hoard in &hoards {
        hoard.tenant.tell(&TurnReport::Demand);
    }
    loop {
        for Hoard { tenant, extents, is_full } in &mut hoards {
            if obey(tenant) && !*is_full {
                *is_full = take_all(tenant, extents);
                tenant.tell(&TurnReport::Demand);
            }
            let some = extents.iter().copied().take(MAX_DESCRIPTORS).collect();
            let frames = Request::Frames { extents: some }.encode(GpuNumber::FIRST);
            // Of the answers it reads none.
            while *is_full && link::send(tenant.requests.as_fd(), &frames, &[], true).is_ok() {
                count(&MESSAGES, 1);
            }
        }
        std::thread::sleep(Duration::from_millis(1));
        black_box(&held);
    }
}

/// Where a page that came is mapped, if it can be written.
fn writable(file: &OwnedFd) -> Option<&'static [AtomicU64]> {
    let (access, file) = (libc::PROT_READ | libc::PROT_WRITE, file.as_raw_fd());
    // SAFETY: a new mapping wherever the system likes.
    let at = unsafe { libc::mmap(ptr::null_mut(), PAGE_BYTES, access, libc::MAP_SHARED, file, 0) };
    // SAFETY: just mapped, for ever, a page of numbers that other processes may change at any time.
    (at != libc::MAP_FAILED).then(|| unsafe { std::slice::from_raw_parts(at.cast(), PAGE_BYTES / 8) })
}

fn scribbles(socket: &Path, random: &mut Random) {
    let hello = hello(socket, "scribble");
    loop {
        let Some(mut tenant) = join(socket, &hello) else { continue };
        let pages: Vec<&[AtomicU64]> = tenant.pages.iter().filter_map(writable).collect();
        for page in &tenant.pages {
            // SAFETY: plain integers: our own descriptor.
            unsafe { libc::ftruncate(page.as_raw_fd(), 0) };
        }
        let changed = CorunReport::ActivityChanged.encode(GpuNumber::FIRST);
        let is_heard =
            |sent: std::io::Result<()>| sent.map_or_else(|error| error.kind() == ErrorKind::WouldBlock, |()| true);
        while !pages.is_empty() && is_heard(link::send(tenant.control.as_fd(), &changed, &[], true)) {
            for _ in 0..1000 {
                let page = pages[random.below(pages.len())];
                let word = if random.below(2) == 0 { random.draw() } else { u64::MAX };
                page[random.below(page.len())].store(word, Ordering::Relaxed);
            }
            count(&WORDS, 1000);
            obey(&mut tenant);
        }
    }
}

fn apart(socket: &Path, _: &mut Random) {
    let hello = hello(socket, "apart");
    loop {
        let Some(mut tenant) = join(socket, &hello) else { continue };
        tenant.take_gpu();
        let _ = ask(&tenant, &tenant.allocation(2 << 20));
        // It panics when it is cut off.
        loop {
            obey(&mut tenant);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn mute(socket: &Path, _: &mut Random) {
    let hello = hello(socket, "mute");
    loop {
        let Some(mut tenant) = join(socket, &hello) else { continue };
        tenant.take_gpu();
        // The coordinator's books are all that shows whether it is still let be.
        while link::send(tenant.control.as_fd(), &TurnReport::Demand.encode(GpuNumber::FIRST), &[], true).is_ok() {
            std::thread::sleep(Duration::from_secs(3600));
        }
    }
}

fn burns(_: &Path, random: &mut Random) {
    loop {
        black_box(random.draw());
    }
}

/// Does harm for ever to the coordinator with this socket.
type Attack = fn(&Path, &mut Random);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let kinds: [(&str, Attack); 8] = [
        ("floods", floods),
        ("connects", connects),
        ("crowds", crowds),
        ("hoards", hoards),
        ("scribbles", scribbles),
        ("apart", apart),
        ("mute", mute),
        ("burns", burns),
    ];
    let known = match &words[..] {
        [what, socket] => Some((what, socket)),
        [what, socket, count] => count.parse().ok().map(|count| {
            COUNT.store(count, Ordering::Relaxed);
            (what, socket)
        }),
        _ => None,
    };
    let attack =
        known.and_then(|(what, socket)| Some((kinds.iter().find(|(name, _)| name == what)?.1, socket.clone())));
    let Some((attack, socket)) = attack else {
        eprintln!("usage: hostile {} SOCKET [COUNT]", kinds.map(|(name, _)| name).join("|"));
        return ExitCode::FAILURE;
    };
    open_many();
    for seed in 0..THREADS {
        let socket = socket.clone();
        std::thread::spawn(move || {
            let mut random = seed;
            // One that is cut off in the middle of something begins anew.
            loop {
                random += THREADS;
                let _ = catch_unwind(|| attack(Path::new(&socket), &mut Random(random)));
                std::thread::sleep(Duration::from_millis(1));
            }
        });
    }
    println!("ready");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    let done = [
        ("messages", &MESSAGES),
        ("connections", &CONNECTIONS),
        ("tenants", &TENANTS),
        ("bytes", &BYTES),
        ("words", &WORDS),
    ];
    let done = done.map(|(what, count)| format!("\"{what}\": {}", count.load(Ordering::Relaxed)));
    println!("{{{}}}", done.join(", "));
    ExitCode::SUCCESS
}
