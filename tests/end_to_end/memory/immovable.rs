//! Memory that others can reach stays where it is, no matter which tenant wants its place, and is counted and shown.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;

use baton_contract::messages::{Answer, ExtentId, Full, MemoryCommand, MemoryReport, Request};
use baton_tests::MIB;
use baton_tests::bare_tenant::BareTenant;
use baton_tests::coordinator::{Coordinator, Serving, tenant};

/// No work is paused, so that a bare tenant hears nothing about that.
fn serving() -> Serving {
    Serving::arena("64MiB").flag("--no-preempt")
}

fn bytes(coordinator: &Coordinator, name: &str, what: &str) -> u64 {
    tenant(&coordinator.status(), name)[what].as_u64().unwrap_or_else(|| panic!("{what} is a number"))
}

/// A tenant with so much memory; its extents, and their frames.
fn with_memory(coordinator: &Coordinator, name: &str, megabytes: u64) -> (BareTenant, Vec<ExtentId>, Vec<OwnedFd>) {
    let mut bare = BareTenant::join(coordinator, name);
    bare.take_gpu();
    let (extents, frames) = bare.allocate(megabytes * MIB);
    let ids = extents.iter().map(|(id, _)| *id).collect();
    (bare, ids, frames)
}

/// A tenant with so much memory, of which the first extents cannot move.
#[track_caller]
fn with_immovable(
    coordinator: &Coordinator,
    name: &str,
    megabytes: u64,
    immovable: usize,
) -> (BareTenant, Vec<ExtentId>) {
    let (bare, ids, _) = with_memory(coordinator, name, megabytes);
    let request = Request::MakeImmovable { extents: ids[..immovable].to_vec() };
    assert_eq!(bare.ask(&request).0, Answer::Immovable);
    (bare, ids)
}

/// Unmaps what it is told to, until all of these are gone.
#[track_caller]
fn unmaps(bare: &mut BareTenant, wanted: &[ExtentId]) {
    let mut left = BTreeSet::from_iter(wanted.iter().copied());
    while !left.is_empty() {
        let (command, _) = bare.hear_of_memory();
        let MemoryCommand::Unmap { extents, .. } = &command else { panic!("{command:?}") };
        for extent in extents {
            assert!(left.remove(extent), "{extent:?} was to stay");
        }
        bare.done(&command);
    }
}

#[test]
fn an_eviction_on_request_leaves_what_cannot_move() {
    let coordinator = serving().start();
    let (mut bare, ids) = with_immovable(&coordinator, "bare", 8, 1);
    assert!(std::thread::scope(|scope| {
        let evict = scope.spawn(|| coordinator.evict("bare"));
        bare.yield_gpu();
        unmaps(&mut bare, &ids[1..]);
        evict.join().expect("no panic")
    }));
    let status = coordinator.status();
    let shown = tenant(&status, "bare");
    let numbers = ["bytes", "resident_bytes", "evicted_bytes", "unmanaged_bytes", "immovable_bytes"]
        .map(|name| shown[name].as_u64().map(|bytes| bytes / MIB));
    assert_eq!(numbers, [6, 0, 6, 2, 2].map(Some), "{shown:#}");
    assert_eq!(shown["state"], "evicted");
    assert_eq!(status["arena"]["lent_bytes"], 2 * MIB);
    // It was said once, and is not said again.
    assert_eq!(coordinator.log().matches("bare has 2 MiB that others can reach").count(), 1, "{}", coordinator.log());
}

#[test]
fn others_get_the_arena_less_what_cannot_move() {
    let coordinator = serving().start();
    let (mut bare, ids) = with_immovable(&coordinator, "bare", 16, 3);
    let mut other = BareTenant::join(&coordinator, "other");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            bare.yield_gpu();
            unmaps(&mut bare, &ids[3..]);
        });
        other.take_gpu();
        let (answer, _) = other.ask(&other.allocation(60 * MIB));
        assert_eq!(answer, Answer::Denied { full: Full::Held });
        // The rest of the arena, to the last byte.
        other.allocate(58 * MIB);
    });
    assert_eq!(bytes(&coordinator, "bare", "immovable_bytes"), 6 * MIB);
    assert_eq!(bytes(&coordinator, "bare", "resident_bytes"), 0);
    assert_eq!(bytes(&coordinator, "other", "resident_bytes"), 58 * MIB);
    assert_eq!(coordinator.status()["arena"]["lent_bytes"], 64 * MIB);
}

#[test]
fn whoever_no_longer_fits_beside_what_cannot_move_is_named() {
    let coordinator = serving().start();
    let (mut large, ids, _) = with_memory(&coordinator, "large", 60);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            large.yield_gpu();
            // As much as the other one needs.
            let mut left = ids.len() - 26;
            while left > 0 {
                let (command, _) = large.hear_of_memory();
                let MemoryCommand::Unmap { extents, .. } = &command else { panic!("{command:?}") };
                left = left.saturating_sub(extents.len());
                large.done(&command);
            }
        });
        let (_bare, _) = with_immovable(&coordinator, "bare", 12, 6);
    });
    let log = coordinator.log();
    assert!(log.contains("large does not fit beside the 12 MiB of bare that cannot move"), "{log}");
}

#[test]
fn what_is_not_there_cannot_be_made_to_stay() {
    let coordinator = serving().start();
    let (mut bare, ids) = with_immovable(&coordinator, "bare", 8, 0);
    let request = |extents: &[ExtentId]| Request::MakeImmovable { extents: extents.to_vec() };
    // One that it never had.
    assert_eq!(bare.ask(&request(&[ids[0], ExtentId(77)])).0, Answer::Movable);
    assert_eq!(bytes(&coordinator, "bare", "immovable_bytes"), 0);
    std::thread::scope(|scope| {
        let evict = scope.spawn(|| coordinator.evict("bare"));
        bare.yield_gpu();
        unmaps(&mut bare, &ids);
        assert!(evict.join().expect("no panic"));
    });
    assert_eq!(bare.ask(&request(&ids[..1])).0, Answer::Movable);
    assert_eq!(bytes(&coordinator, "bare", "evicted_bytes"), 8 * MIB);
}

/// Which file a frame is.
fn file(frame: &OwnedFd) -> u64 {
    let clone = frame.try_clone().expect("this process can open more");
    std::fs::File::from(clone).metadata().expect("an open file").ino()
}

#[test]
fn a_frame_that_others_may_still_have_is_lent_to_nobody_else() {
    let coordinator = serving().start();
    let (bare, ids, frames) = with_memory(&coordinator, "bare", 8);
    assert_eq!(bare.ask(&Request::MakeImmovable { extents: ids[..2].to_vec() }).0, Answer::Immovable);
    // Held open, so that no other file gets its number.
    let reachable: Vec<u64> = frames[..2].iter().map(file).collect();
    assert_eq!(bare.ask(&Request::Free { extents: ids[..1].to_vec() }).0, Answer::Freed);
    assert_eq!(bytes(&coordinator, "bare", "immovable_bytes"), 2 * MIB);
    bare.tell(&MemoryReport::Free { extents: ids[1..].to_vec() });
    coordinator.until("all is free", |status| status["arena"]["lent_bytes"] == 0);
    assert_eq!(bytes(&coordinator, "bare", "immovable_bytes"), 0);
    // The whole arena, and so every frame that there is.
    for _ in 0..2 {
        let (extents, frames) = bare.allocate(32 * MIB);
        assert_eq!(extents.len(), frames.len());
        assert!(frames.iter().all(|frame| !reachable.contains(&file(frame))));
    }
}

#[test]
fn what_cannot_move_comes_back_when_its_tenant_has_left() {
    let coordinator = serving().start();
    let (bare, _) = with_immovable(&coordinator, "bare", 16, 8);
    drop(bare);
    let status = coordinator.until_empty();
    assert_eq!(status["arena"]["lent_bytes"], 0, "{status:#}");
    let mut next = BareTenant::join(&coordinator, "next");
    next.take_gpu();
    next.allocate(64 * MIB);
}
