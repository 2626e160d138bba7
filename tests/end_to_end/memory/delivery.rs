//! Frames travel as descriptors, and not every process can open one more: the lent and the taken frames agree all the
//! same, and a tenant that cannot take its own keeps no other waiting.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use baton_contract::link;
use baton_contract::messages::{
    Answer, ExtentId, FromCoordinator, Full, MemoryCommand, MemoryReport, Message as _, Request, TurnCommand,
    TurnReport,
};
use baton_contract::wire::GpuNumber;
use baton_contract::wire::MAX_DESCRIPTORS;
use baton_tests::bare_tenant::BareTenant;
use baton_tests::coordinator::{Coordinator, Serving, tenant};
use baton_tests::{LIMIT, MIB, hold};

/// Which file a descriptor is of.
fn file(descriptor: &OwnedFd) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt as _;
    let clone = descriptor.try_clone().expect("this process can open more");
    let found = std::fs::File::from(clone).metadata().expect("an open file");
    (found.dev(), found.ino())
}

/// No work is paused, so that a bare tenant hears nothing about that.
fn serving(arena: &str) -> Serving {
    Serving::arena(arena).flag("--no-preempt")
}

fn bytes(coordinator: &Coordinator, name: &str) -> u64 {
    tenant(&coordinator.status(), name)["bytes"].as_u64().expect("a number")
}

#[test]
fn frames_that_do_not_come_with_what_is_lent_are_asked_for() {
    let coordinator = serving("64MiB").start();
    let mut bare = BareTenant::join(&coordinator, "bare");
    bare.take_gpu();
    // In pieces of 2 MiB: more than come at once.
    let (extents, frames) = bare.allocate(40 * MIB);
    assert_eq!((extents.len(), frames.len()), (20, MAX_DESCRIPTORS));
    let ids: Vec<ExtentId> = extents.iter().map(|(id, _)| *id).collect();
    let came: Vec<_> = frames.iter().map(file).collect();
    for (at, chunk) in ids.chunks(MAX_DESCRIPTORS).enumerate() {
        let (answer, again) = bare.ask(&Request::Frames { extents: chunk.to_vec() });
        assert_eq!(answer, Answer::Frames { extents: chunk.to_vec() });
        let again: Vec<_> = again.iter().map(file).collect();
        assert_eq!(again.len(), chunk.len());
        if at == 0 {
            assert_eq!(again, came, "the same as before");
        }
    }
    // One at a time will do.
    let (answer, frame) = bare.ask(&Request::Frames { extents: vec![ids[2]] });
    assert_eq!((answer, file(&frame[0])), (Answer::Frames { extents: vec![ids[2]] }, came[2]));
    assert_eq!(bare.ask(&Request::Free { extents: ids }).0, Answer::Freed);
    assert_eq!(bytes(&coordinator, "bare"), 0);
}

#[test]
fn frames_of_memory_that_a_tenant_does_not_have_are_not_given() {
    let coordinator = serving("64MiB").start();
    let mut other = BareTenant::join(&coordinator, "other");
    other.take_gpu();
    let (extents, _) = other.allocate(2 * MIB);
    let liar = BareTenant::join(&coordinator, "liar");
    let request = Request::Frames { extents: vec![extents[0].0] };
    link::send(liar.requests.as_fd(), &request.encode(GpuNumber::FIRST), &[], false).expect("the coordinator listens");
    assert!(link::receive(liar.requests.as_fd(), false).expect("an end").is_none(), "it is cut off");
    assert_eq!(bytes(&coordinator, "other"), 2 * MIB, "and the other is not");
}

/// Draws numbers, always the same.
struct Draw(u64);

impl Draw {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

#[test]
fn lent_and_taken_agree_whatever_arrives() {
    let coordinator = serving("64MiB").start();
    let mut bare = BareTenant::join(&coordinator, "bare");
    bare.take_gpu();
    let mut draw = Draw(7);
    // The extents that this tenant believes to have.
    let mut have: BTreeMap<ExtentId, u64> = BTreeMap::new();
    let mut denied = 0;
    for _ in 0..150 {
        match draw.below(3) {
            0 | 1 => match bare.ask(&bare.allocation((1 + draw.below(24)) * 2 * MIB)) {
                (Answer::Allocated { extents }, frames) => {
                    let ids: Vec<ExtentId> = extents.iter().map(|(id, _)| *id).collect();
                    // It came; or nothing of it; or only what was asked for again.
                    let lost = draw.below(3);
                    drop(frames);
                    if lost == 2 {
                        let chunk = &ids[..ids.len().min(1 + draw.below(4) as usize)];
                        let (_, frames) = bare.ask(&Request::Frames { extents: chunk.to_vec() });
                        assert_eq!(frames.len(), chunk.len());
                    }
                    if lost == 1 {
                        assert_eq!(bare.ask(&Request::Free { extents: ids }).0, Answer::Freed);
                    } else {
                        have.extend(extents.iter().map(|(id, class)| (*id, class.bytes())));
                    }
                }
                (Answer::Denied { full: Full::Arena }, _) => denied += 1,
                other => panic!("{other:?}"),
            },
            _ => {
                let gone: Vec<ExtentId> = have.keys().copied().filter(|_| draw.below(2) == 0).collect();
                have.retain(|id, _| !gone.contains(id));
                bare.tell(&MemoryReport::Free { extents: gone });
            }
        }
        let status = coordinator
            .until("it has heard all", |status| tenant(status, "bare")["bytes"].as_u64() == Some(have.values().sum()));
        assert_eq!(status["arena"]["lent_bytes"].as_u64(), Some(have.values().sum()));
    }
    assert!(denied > 0, "also what is full was tried");
}

/// A tenant that has all its memory on the host.
fn evicted(coordinator: &Coordinator, bytes: u64) -> (BareTenant, Vec<ExtentId>) {
    let mut bare = BareTenant::join(coordinator, "bare");
    bare.take_gpu();
    let (extents, _) = bare.allocate(bytes);
    let ids: Vec<ExtentId> = extents.iter().map(|(id, _)| *id).collect();
    std::thread::scope(|scope| {
        let evict = scope.spawn(|| coordinator.evict("bare"));
        bare.yield_gpu();
        let mut left = ids.len();
        while left > 0 {
            let (command, _) = bare.hear_of_memory();
            match &command {
                MemoryCommand::Unmap { extents, .. } => left -= extents.len(),
                other => panic!("{other:?}"),
            }
            bare.done(&command);
        }
        assert!(evict.join().expect("no panic"));
    });
    (bare, ids)
}

#[test]
fn memory_that_was_evicted_on_request_comes_from_the_moment_that_its_tenant_asks_for_the_gpu() {
    let coordinator = serving("64MiB").start();
    let (bare, _) = evicted(&coordinator, 8 * MIB);
    let mut holder = BareTenant::join(&coordinator, "holder");
    holder.take_gpu();
    bare.tell(&TurnReport::Demand);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Its work never ends, so its turn does not: frames do not come with a grant.
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let heard = holder.hear_within(Duration::from_millis(20));
                if let Some((FromCoordinator::Turn(TurnCommand::Revoke { grant, .. }), _)) = heard {
                    holder.tell(&TurnReport::DrainTimedOut { grant });
                }
            }
        });
        let heard = bare.hear_within(LIMIT);
        is_over.store(true, Ordering::Relaxed);
        assert!(matches!(heard, Some((FromCoordinator::Memory(MemoryCommand::Prepare { .. }), _))), "{heard:?}");
    });
}

#[test]
fn frames_that_did_not_arrive_are_sent_again_until_they_do() {
    let coordinator = serving("64MiB").start();
    let (mut bare, ids) = evicted(&coordinator, 8 * MIB);
    bare.tell(&TurnReport::Demand);
    let (mut lost, mut refused, mut here) = (0, BTreeSet::new(), Vec::new());
    let mut mapped = 0;
    while mapped < ids.len() {
        let (command, frames) = bare.hear_of_memory();
        match &command {
            MemoryCommand::Prepare { batch, extents } => {
                if extents.iter().any(|extent| refused.contains(extent)) {
                    assert_eq!(extents.len(), 1, "one descriptor is enough");
                }
                if lost < 10 {
                    lost += 1;
                    refused.extend(extents.clone());
                    bare.tell(&MemoryReport::Undelivered { batch: *batch });
                } else {
                    assert_eq!(frames.len(), extents.len());
                    here.extend(extents.clone());
                    bare.done(&command);
                }
            }
            MemoryCommand::Map { batch, extents } => {
                // Only what came can be mapped. The first of these may have been sent before that was known.
                if extents.iter().all(|extent| here.contains(extent)) {
                    mapped += extents.len();
                    bare.done(&command);
                } else {
                    bare.tell(&MemoryReport::Undelivered { batch: *batch });
                }
            }
            other => panic!("{other:?}"),
        }
    }
    here.sort();
    assert_eq!(here, ids, "each once");
    coordinator.until("it has the GPU", |status| status["holder"] == "bare");
    let log = coordinator.log();
    assert_eq!(log.matches("bare can open no more descriptors").count(), 1, "{log}");
    assert!(log.contains("ulimit -n"), "{log}");
}

#[test]
fn a_tenant_that_cannot_take_its_memory_keeps_nobody_waiting() {
    let coordinator = serving("64MiB").start();
    let (mut bare, ids) = evicted(&coordinator, 32 * MIB);
    // One of them fits, not both.
    let mut other = hold::joined(&coordinator, "other", "normal", "40", None);
    assert!(other.ask("touch", LIMIT).starts_with("touched "));
    bare.tell(&TurnReport::Demand);
    let is_over = AtomicBool::new(false);
    let lost = std::thread::scope(|scope| {
        let refusing = scope.spawn(|| {
            let mut lost = 0;
            // As a process that cannot open one more descriptor.
            while !is_over.load(Ordering::Relaxed) {
                let Some((heard, _)) = bare.hear_within(Duration::from_millis(20)) else { continue };
                match heard {
                    FromCoordinator::Memory(
                        MemoryCommand::Prepare { batch, .. } | MemoryCommand::Map { batch, .. },
                    ) => {
                        bare.tell(&MemoryReport::Undelivered { batch });
                        lost += 1;
                    }
                    FromCoordinator::Memory(command @ MemoryCommand::Unmap { .. }) => bare.done(&command),
                    FromCoordinator::Turn(command) => bare.obey(&command),
                    other => panic!("{other:?}"),
                }
            }
            lost
        });
        for _ in 0..5 {
            // Long enough for the tenant without descriptors to get its turn.
            coordinator.until("it is its turn", |status| tenant(status, "other")["resident_bytes"] != 40 * MIB);
            assert!(other.ask("touch", LIMIT).starts_with("touched "));
        }
        is_over.store(true, Ordering::Relaxed);
        refusing.join().expect("no panic")
    });
    assert!(lost > 0);
    // As soon as it can open some, it has all.
    let mut here = BTreeSet::new();
    loop {
        match bare.hear() {
            (FromCoordinator::Memory(command), _) => {
                if let MemoryCommand::Map { extents, .. } = &command {
                    here.extend(extents.clone());
                }
                bare.done(&command);
            }
            (FromCoordinator::Turn(command), _) => bare.obey(&command),
            (other, _) => panic!("{other:?}"),
        }
        if here.len() == ids.len() {
            break;
        }
    }
    assert_eq!(here, BTreeSet::from_iter(ids));
    assert!(!coordinator.log().contains("does not answer"), "{}", coordinator.log());
}

/// Two tenants of which the second has opened what the first has allocated, so much.
fn sharing(coordinator: &Coordinator, bytes: u64) -> (BareTenant, BareTenant, Vec<ExtentId>) {
    let mut owner = BareTenant::join(coordinator, "owner");
    owner.take_gpu();
    let request = owner.allocation(bytes);
    let Request::Allocate { at, .. } = request else { unreachable!() };
    assert!(matches!(owner.ask(&request).0, Answer::Allocated { .. }));
    let Answer::Exported { key } = owner.ask(&Request::Export { at, bytes }).0 else { panic!("it is there") };
    let mut opener = BareTenant::join(coordinator, "opener");
    opener.tell(&TurnReport::Demand);
    owner.yield_gpu();
    opener.until_granted();
    let attach = Request::Attach { exporter: owner.tenant, key, at: 1 << 41, apart: false };
    assert_eq!(opener.ask(&attach).0, Answer::TryAgain, "they are to run together first");
    opener.yield_gpu();
    opener.take_gpu();
    owner.until_granted();
    let Answer::Attached { extents, .. } = opener.ask(&attach).0 else { panic!("they run together") };
    (owner, opener, extents.into_iter().map(|(id, _)| id).collect())
}

#[test]
fn a_tenant_that_cannot_take_what_others_share_with_it_keeps_nobody_waiting() {
    let coordinator = serving("64MiB").start();
    let (mut owner, mut opener, ids) = sharing(&coordinator, 32 * MIB);
    let (is_over, takes) = (AtomicBool::new(false), AtomicBool::new(false));
    let (lost, here) = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                match owner.hear_within(Duration::from_millis(20)) {
                    Some((FromCoordinator::Memory(command), _)) => owner.done(&command),
                    Some((FromCoordinator::Turn(command), _)) => owner.obey(&command),
                    Some((other, _)) => panic!("{other:?}"),
                    None => {}
                }
            }
        });
        let opening = scope.spawn(|| {
            let mut lost = 0;
            let mut here = BTreeSet::from_iter(ids.iter().copied());
            let mut came = here.clone();
            while !takes.load(Ordering::Relaxed) || here.len() < ids.len() {
                let Some((heard, frames)) = opener.hear_within(Duration::from_millis(20)) else { continue };
                let takes = takes.load(Ordering::Relaxed);
                match heard {
                    FromCoordinator::Turn(command) => opener.obey(&command),
                    FromCoordinator::Memory(command) => match &command {
                        MemoryCommand::Prepare { batch, .. } if !takes => {
                            opener.tell(&MemoryReport::Undelivered { batch: *batch });
                            lost += 1;
                        }
                        MemoryCommand::Prepare { extents, .. } => {
                            assert_eq!(frames.len(), extents.len());
                            came.extend(extents.clone());
                            opener.done(&command);
                        }
                        MemoryCommand::Map { batch, extents } => {
                            if extents.iter().all(|extent| came.contains(extent)) {
                                here.extend(extents.clone());
                                opener.done(&command);
                            } else {
                                opener.tell(&MemoryReport::Undelivered { batch: *batch });
                            }
                        }
                        MemoryCommand::Unmap { extents, .. } => {
                            extents.iter().for_each(|extent| {
                                came.remove(extent);
                                here.remove(extent);
                            });
                            opener.done(&command);
                        }
                        MemoryCommand::Recut { .. } | MemoryCommand::Consolidated { .. } => {
                            panic!("it has nothing of its own")
                        }
                    },
                    other => panic!("{other:?}"),
                }
            }
            (lost, here)
        });
        // One of them fits, not all.
        let mut other = hold::joined(&coordinator, "other", "normal", "40", None);
        for _ in 0..3 {
            assert!(other.ask("touch", LIMIT).starts_with("touched "));
            // Long enough for those without descriptors to get their turn.
            coordinator.until("it is their turn", |status| tenant(status, "other")["resident_bytes"] != 40 * MIB);
        }
        // As soon as it can open some, it has all.
        takes.store(true, Ordering::Relaxed);
        let opened = opening.join().expect("no panic");
        is_over.store(true, Ordering::Relaxed);
        opened
    });
    assert!(lost > 0);
    assert_eq!(here, BTreeSet::from_iter(ids));
    assert!(!coordinator.log().contains("does not answer"), "{}", coordinator.log());
}
