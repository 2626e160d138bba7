//! A message to a coordinator's socket that means nothing, or lies, costs its sender the connection and nothing
//! else.

use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;

use baton_contract::link::{self, Chosen};
use baton_contract::messages::{
    Answer, Channels, Elsewhere, ExtentId, FromTenant, MemoryCommand, MemoryReport, Message as _, Opening,
    PreemptionReport, Request, TurnReport,
};
use baton_contract::resource_manager::Objects;
use baton_contract::wire::GpuNumber;
use baton_tests::bare_tenant::{BareTenant, greeting};
use baton_tests::coordinator::{Coordinator, Serving, other_descriptors, program, tenant};
use baton_tests::running::Running;
use baton_tests::{LIMIT, MIB};
use serde_json::Value;

/// A tenant that must not notice anything.
#[track_caller]
fn hold(coordinator: &Coordinator, name: &str) -> Running {
    let mut running = coordinator.join(name, &program("hold"), &["--megabytes", "24"]);
    assert!(running.line(LIMIT).starts_with("ready "));
    running
}

/// A connection to a coordinator on which anything can be said.
#[track_caller]
fn connect(coordinator: &Coordinator) -> UnixDatagram {
    link::connect(&coordinator.place.socket(), Chosen::ByUser, LIMIT).expect("it listens").into()
}

/// Everything that comes until the other side hangs up.
#[track_caller]
fn until_hung_up(socket: &UnixDatagram) -> Vec<u8> {
    let (mut all, mut piece) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        match socket.recv(&mut piece) {
            Ok(0) => return all,
            Ok(length) => all.extend_from_slice(&piece[..length]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return all,
            Err(error) => panic!("the connection is still there: {error}"),
        }
    }
}

/// A connection that was greeted, and the socket for requests that came with the welcome.
#[track_caller]
fn greeted(coordinator: &Coordinator, hello: &[u8]) -> (UnixDatagram, UnixDatagram) {
    let BareTenant { control, requests, .. } = BareTenant::greet(coordinator, hello);
    (control.into(), requests.into())
}

fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

#[test]
fn what_is_no_greeting_costs_a_stranger_the_connection_and_nothing_else() {
    let coordinator = Serving::small("64MiB").start();
    let mut running = hold(&coordinator, "tenant");
    let first = running.ask("touch", LIMIT);
    let hello = greeting(&coordinator, "liar").encode(GpuNumber::ANY);
    let descriptors = other_descriptors(&coordinator.until_ready());

    let mut messages: Vec<Vec<u8>> = vec![vec![0], vec![1, 0, 0], b"GET / HTTP/1.1\r\n\r\n".to_vec()];
    // Cut anywhere, with something behind, of another version, of every kind that there may be.
    messages.extend((1..hello.len()).map(|length| hello[..length].to_vec()));
    messages.push([hello.as_slice(), &[0]].concat());
    messages.extend((0..70_u32).map(|kind| [1_u32.to_le_bytes(), (kind + 2).to_le_bytes()].concat()));
    // Longer than any message is.
    messages.extend([33 << 10, 60 << 10, 150 << 10].map(|length| [hello.as_slice(), &vec![7; length]].concat()));
    messages.extend((0..200).map(|seed| noise(seed, 1 + 13 * seed as usize)));
    let status = Opening::Status.encode(GpuNumber::ANY);
    messages.retain(|message| *message != status && *message != hello);
    for message in &messages {
        let socket = connect(&coordinator);
        socket.send(message).expect("a message");
        until_hung_up(&socket);
    }
    // Nothing, and a great many that say nothing.
    drop(connect(&coordinator));
    let silent: Vec<_> = (0..100).map(|_| connect(&coordinator)).collect();
    assert!(running.ask("touch", LIMIT).starts_with("touched "));
    drop(silent);

    let wrong = [99_u32.to_le_bytes().as_slice(), &hello[4..]].concat();
    let socket = connect(&coordinator);
    socket.send(&wrong).expect("a message");
    let answer = String::from_utf8_lossy(&until_hung_up(&socket)).into_owned();
    println!("{answer}");
    assert!(answer.contains("version 99"), "{answer}");

    let status = coordinator.until("all strangers have gone", |status| other_descriptors(status) == descriptors);
    assert_eq!(status["tenants"].as_array().map(Vec::len), Some(1), "{status:#}");
    assert_ne!(running.ask("touch", LIMIT), first);
    assert!(running.ask("quit", LIMIT).ends_with(" ok"));
    coordinator.until_empty();
}

#[test]
fn a_piece_that_is_no_memory_or_too_little_is_not_copied_to() {
    let coordinator = Serving::small("64MiB").start();
    let mut liar = BareTenant::join(&coordinator, "liar");
    liar.take_gpu();
    let Request::Allocate { at, bytes } = liar.allocation(6 * MIB) else { unreachable!("that is what it asks for") };
    let (Answer::Allocated { extents }, frames) = liar.ask(&Request::Allocate { at, bytes }) else {
        panic!("there is room");
    };
    let null = std::fs::File::open("/dev/null").expect("there");
    let socket = UnixDatagram::unbound().expect("a socket");
    for piece in [None, Some(null.as_fd()), Some(socket.as_fd()), Some(frames[0].as_fd())] {
        let wish = MemoryReport::Consolidate { at, bytes, piece: piece.is_some() }.encode(GpuNumber::FIRST);
        link::send(liar.control.as_fd(), &wish, piece.as_slice(), false).expect("a message");
        let (command, _) = liar.hear_of_memory();
        assert!(matches!(command, MemoryCommand::Consolidated { copied: false, .. }), "{piece:?}: {command:?}");
        liar.done(&command);
    }
    let freed = liar.ask(&Request::Free { extents: extents.into_iter().map(|(extent, _)| extent).collect() });
    assert_eq!(freed.0, Answer::Freed);
}

#[test]
fn what_a_tenant_cannot_mean_costs_it_its_connection_and_nothing_else() {
    let coordinator = Serving::small("64MiB").start();
    let mut running = hold(&coordinator, "tenant");
    let hello = greeting(&coordinator, "liar").encode(GpuNumber::ANY);
    let descriptors = other_descriptors(&coordinator.until_ready());
    let garbage = [
        vec![1],
        noise(5, 300),
        vec![0; 40 << 10],
        Opening::Status.encode(GpuNumber::FIRST),
        hello.clone(),
        // About a GPU that is not this coordinator's, and about none.
        TurnReport::Demand.encode(GpuNumber(1)),
        TurnReport::Demand.encode(GpuNumber::ANY),
    ];
    for message in &garbage {
        let (socket, _requests) = greeted(&coordinator, &hello);
        coordinator.until("the liar is there", |status| !tenant(status, "liar").is_null());
        socket.send(message).expect("a message");
        until_hung_up(&socket);
        assert!(running.ask("touch", LIMIT).starts_with("touched "));
    }
    // One piece for what is not its own.
    let null = std::fs::File::open("/dev/null").expect("there");
    for (at, bytes) in [(0, 2 << 20), (1 << 40, 0), (u64::MAX - 10, 2 << 20), (1 << 40, u64::MAX)] {
        let (socket, _requests) = greeted(&coordinator, &hello);
        let wish = MemoryReport::Consolidate { at, bytes, piece: true }.encode(GpuNumber::FIRST);
        link::send(socket.as_fd(), &wish, &[null.as_fd()], false).expect("a message");
        until_hung_up(&socket);
        assert!(running.ask("touch", LIMIT).starts_with("touched "));
    }
    // An offer of channels to pause: with no descriptor, with one that is not the driver's control device, and with too many.
    let objects = Objects { client: 1, subdevice: 2, channels: vec![3], ..Objects::default() };
    let offer = PreemptionReport::Channels {
        channels: Channels::ResourceManager(objects),
        begun: 0,
        elsewhere: Elsewhere::default(),
    }
    .encode(GpuNumber::FIRST);
    for descriptors in [&[][..], &[null.as_fd()], &[null.as_fd(), null.as_fd()]] {
        let (socket, _requests) = greeted(&coordinator, &hello);
        link::send(socket.as_fd(), &offer, descriptors, false).expect("a message");
        until_hung_up(&socket);
        assert!(running.ask("touch", LIMIT).starts_with("touched "));
    }
    // Messages that are legal at other times: answers to no question, about things that do not exist.
    let lies: [FromTenant; _] = [
        TurnReport::Demand.into(),
        TurnReport::Opened { grant: 77 }.into(),
        TurnReport::Closed { grant: u64::MAX, drain_micros: u64::MAX }.into(),
        TurnReport::Closed { grant: 0, drain_micros: 0 }.into(),
        TurnReport::DrainTimedOut { grant: 1 }.into(),
        MemoryReport::Done { batch: 12, micros: 1 }.into(),
        MemoryReport::Failed { batch: 12, code: 700 }.into(),
        Request::Free { extents: vec![ExtentId(1), ExtentId(1), ExtentId(u32::MAX)] }.into(),
        MemoryReport::Undelivered { batch: 12 }.into(),
        Request::Frames { extents: vec![ExtentId(1)] }.into(),
        Request::Allocate { at: 0, bytes: u64::MAX }.into(),
        Request::Allocate { at: 0, bytes: 1 }.into(),
        Request::UnmanagedMemory { least: u64::MAX, bytes: 0 }.into(),
        Request::Room { bytes: u64::MAX }.into(),
        PreemptionReport::Channels { channels: Channels::None, begun: 0, elsewhere: Elsewhere::default() }.into(),
        PreemptionReport::Channels {
            channels: Channels::Simulated { process: u32::MAX },
            begun: 0,
            elsewhere: Elsewhere::default(),
        }
        .into(),
        PreemptionReport::GateClosed { grant: 0 }.into(),
    ];
    for lie in &lies {
        for on_requests in [false, true] {
            let (socket, requests) = greeted(&coordinator, &hello);
            for _ in 0..3 {
                // It may have been cut off after the first.
                let _ = if on_requests {
                    requests.send(&lie.encode(GpuNumber::FIRST))
                } else {
                    socket.send(&lie.encode(GpuNumber::FIRST))
                };
            }
            assert!(running.ask("touch", LIMIT).starts_with("touched "), "{lie:?}");
        }
    }
    assert!(running.ask("quit", LIMIT).ends_with(" ok"));
    drop(running);
    // This process is the liar's, and lives on: but it was lent nothing that it has mapped.
    let status = coordinator.until_empty();
    assert_eq!(status["holder"], Value::Null);
    // One tenant fewer than there was.
    let left = other_descriptors(&status);
    assert!(left <= descriptors, "{descriptors} descriptors before, {left} after");
}
