//! The servers of one process: one for each GPU, each in a thread of its own, so that one GPU's slow calls hold up no other.
//!
//! They share no state but the gangs ([`baton_policy::gangs`]), which wait for nothing, and what their preemptors do with programs on several
//! GPUs ([`Pauses`]). One has another do something by a [`Handle`], and goes on meanwhile; only a [`Halt`], before another process takes over,
//! has all of them stand still.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use baton_contract::messages::FileId;
use baton_contract::wire::GpuNumber;
use baton_policy::arbiter::TenantId;
use baton_policy::gangs::{Event, GangId, Gangs, Told};

use crate::device::pauses::Pauses;
use crate::device::wake::Waker;

/// Something for a server's thread to do.
pub(super) type Post<S> = Box<dyn FnOnce(&mut S) + Send>;

/// Has a server's thread do things, between two rounds of its loop.
pub struct Handle<S> {
    sender: Sender<Post<S>>,
    waker: Waker,
    /// True while the server has nothing more to do.
    is_idle: Arc<AtomicBool>,
    /// The number of its GPU for users.
    number: u32,
}

impl<S> Clone for Handle<S> {
    fn clone(&self) -> Self {
        Self {
            sender: self.sender.clone(),
            waker: self.waker.clone(),
            is_idle: Arc::clone(&self.is_idle),
            number: self.number,
        }
    }
}

impl<S> Handle<S> {
    /// A handle of the thread that this wakes, which finds there what it is to do. `number`: that of its GPU for users.
    pub(super) fn new(waker: Waker, number: u32) -> (Self, Receiver<Post<S>>) {
        let (sender, posts) = channel();
        (Self { sender, waker, is_idle: Arc::default(), number }, posts)
    }

    /// Has the server do this. Nothing happens if it has ended.
    pub(super) fn post(&self, work: impl FnOnce(&mut S) + Send + 'static) {
        if self.sender.send(Box::new(work)).is_ok() {
            self.waker.wake();
        }
    }

    /// Wakes the server for another round.
    pub(super) fn wake(&self) {
        self.waker.wake();
    }

    /// Before the server looks for what it is to do.
    pub(super) fn lower(&self) {
        self.waker.lower();
    }
}

/// All servers of this process, by the numbers of their GPUs.
pub struct Machine<S> {
    servers: Arc<Mutex<BTreeMap<GpuNumber, Handle<S>>>>,
    /// True once there has been any tenant.
    came: Arc<AtomicBool>,
    gangs: Arc<Mutex<Gangs>>,
    known: Arc<Mutex<Known>>,
    pauses: Pauses,
}

/// A file, with the user whose tenants have it.
pub(super) type UsersFile = (Option<u32>, FileId);
/// A tenant, with its GPU.
pub(super) type OnGpu = (GpuNumber, TenantId);

/// A tenant of a gang that another coordinator has had.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    pub(super) tenant: TenantId,
    /// Its process, if that can be seen from here.
    pub(super) process: Option<i32>,
    pub(super) gang: GangId,
}

/// What is known of gangs beside their turns.
#[derive(Debug, Default)]
struct Known {
    /// Those that have met, each with the one that it is part of since.
    merged: BTreeMap<GangId, GangId>,
    /// The gangs of processes that are of one.
    of_process: BTreeMap<i32, GangId>,
    /// The tenants of each user that have pinned a file's memory, with their GPUs.
    pinned: BTreeMap<UsersFile, BTreeSet<OnGpu>>,
}

impl Known {
    /// The gang that this one is part of by now.
    fn now(&self, mut gang: GangId) -> GangId {
        while let Some(into) = self.merged.get(&gang) {
            gang = *into;
        }
        gang
    }
}

impl<S> Clone for Machine<S> {
    fn clone(&self) -> Self {
        Self {
            servers: Arc::clone(&self.servers),
            came: Arc::clone(&self.came),
            gangs: Arc::clone(&self.gangs),
            known: Arc::clone(&self.known),
            pauses: self.pauses.clone(),
        }
    }
}

impl<S> Default for Machine<S> {
    fn default() -> Self {
        Self {
            servers: Arc::default(),
            came: Arc::default(),
            gangs: Arc::default(),
            known: Arc::default(),
            pauses: Pauses::default(),
        }
    }
}

impl<S> Machine<S> {
    fn all(&self) -> MutexGuard<'_, BTreeMap<GpuNumber, Handle<S>>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pauses of all servers.
    pub(super) fn pauses(&self) -> &Pauses {
        &self.pauses
    }

    /// Adds a GPU's server.
    pub(super) fn add(&self, gpu: GpuNumber, server: Handle<S>) {
        self.all().insert(gpu, server);
    }

    /// Removes a GPU's server, which ends.
    pub(super) fn remove(&self, gpu: GpuNumber) {
        self.all().remove(&gpu);
    }

    /// Notes that a tenant has come.
    pub(super) fn has_come(&self) {
        self.came.store(true, Ordering::Relaxed);
    }

    /// True if there has been any tenant, on whichever GPU.
    pub(super) fn has_been_any(&self) -> bool {
        self.came.load(Ordering::Relaxed)
    }

    /// Notes if this server has nothing more to do. True if no server has.
    pub(super) fn is_idle(&self, gpu: GpuNumber, is_idle: bool) -> bool {
        let all = self.all();
        let was_idle = all.get(&gpu).map(|own| own.is_idle.swap(is_idle, Ordering::Relaxed));
        let are_all_idle = all.values().all(|one| one.is_idle.load(Ordering::Relaxed));
        if is_idle && was_idle == Some(false) && are_all_idle {
            // The others have waited for this one.
            all.iter().filter(|(other, _)| **other != gpu).for_each(|(_, other)| other.wake());
        }
        are_all_idle
    }

    /// Enters what a GPU has decided about a gang, and has each server do what follows there.
    pub(super) fn tell_gangs<W: FnOnce(&mut S) + Send + 'static>(
        &self,
        gpu: GpuNumber,
        gang: GangId,
        event: Event,
        work: impl Fn(Told) -> W,
    ) {
        let mut gangs = self.gangs.lock().unwrap_or_else(PoisonError::into_inner);
        // With the lock: each server hears of all in the same order.
        for told in gangs.handle(gpu, gang, event) {
            self.post(told.gpu, work(told));
        }
    }

    /// Has a gang run on a GPU only with these tenants, which another coordinator has had, when its server has them back.
    ///
    /// This comes before any of the GPUs is served: a program on several GPUs must not go on with its memory on one of them away.
    pub fn expect(&self, all: &[(GpuNumber, Expected)]) {
        let mut known = self.known();
        for (_, one) in all {
            let gang = known.now(one.gang);
            let before = one.process.and_then(|process| known.of_process.insert(process, gang));
            if let Some(before) = before.map(|before| known.now(before)).filter(|before| *before != gang) {
                known.merged.insert(before.max(gang), before.min(gang));
            }
        }
        let mut gangs = self.gangs.lock().unwrap_or_else(PoisonError::into_inner);
        for (gpu, one) in all {
            let gang = known.now(one.gang);
            self.pauses.expect(gang, (*gpu, one.tenant));
            // None of it runs.
            gangs.handle(*gpu, gang, Event::Joined);
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The gang of a tenant that asks to be of this one: that of its process on other GPUs, if it has one, and what has become of it.
    pub(super) fn gang_of(&self, process: Option<i32>, asked: GangId) -> GangId {
        let known = self.known();
        let of_process = process.and_then(|process| known.of_process.get(&process)).copied();
        known.now(of_process.unwrap_or(asked))
    }

    /// Notes the gang of a process, or that it has left.
    pub(super) fn note_gang_of(&self, process: Option<i32>, gang: Option<GangId>) {
        let mut known = self.known();
        match (process, gang) {
            (Some(process), Some(gang)) => drop(known.of_process.insert(process, gang)),
            (Some(process), None) => drop(known.of_process.remove(&process)),
            (None, _) => {}
        }
    }

    /// Notes that a tenant has pinned the memory of a user's file. Returns the others that have.
    pub(super) fn pins(&self, file: UsersFile, tenant: OnGpu) -> Vec<OnGpu> {
        let mut known = self.known();
        let all = known.pinned.entry(file).or_default();
        all.insert(tenant);
        all.iter().copied().filter(|other| *other != tenant).collect()
    }

    /// Notes that a tenant has left.
    pub(super) fn pins_nothing(&self, tenant: OnGpu) {
        self.known().pinned.retain(|_, all| {
            all.remove(&tenant);
            !all.is_empty()
        });
    }

    /// Has a GPU's server do this, if there is one.
    pub(super) fn post(&self, gpu: GpuNumber, work: impl FnOnce(&mut S) + Send + 'static) {
        if let Some(server) = self.all().get(&gpu) {
            server.post(work);
        }
    }

    /// Has each server do this.
    pub(super) fn post_to_all<W: FnOnce(&mut S) + Send + 'static>(&self, work: impl Fn() -> W) {
        self.all().values().for_each(|server| server.post(work()));
    }

    /// Makes one gang of two. Each server has its members of the second one be of the first from then on, by `work`.
    pub(super) fn merge<W: FnOnce(&mut S) + Send + 'static>(
        &self,
        one: GangId,
        other: GangId,
        work: impl Fn(GangId, GangId) -> W,
    ) {
        let mut known = self.known();
        let (one, other) = (known.now(one), known.now(other));
        let (into, from) = (one.min(other), one.max(other));
        if into != from {
            known.merged.insert(from, into);
            self.pauses.merge(from, into);
            // With the lock: each server hears of all in the same order.
            self.post_to_all(|| work(from, into));
        }
    }

    /// The GPUs that a gang waits for, by their numbers for users, if this one's turn has come.
    pub(super) fn gang_waits_for(&self, gpu: GpuNumber, gang: GangId) -> Option<Vec<u32>> {
        let others = self.gangs.lock().unwrap_or_else(PoisonError::into_inner).waits_for(gpu, gang)?;
        let all = self.all();
        Some(others.iter().filter_map(|gpu| all.get(gpu)).map(|server| server.number).collect())
    }

    /// True if no server is left.
    pub fn is_empty(&self) -> bool {
        self.all().is_empty()
    }

    /// The servers of the other GPUs.
    pub(super) fn others(&self, than: GpuNumber) -> Vec<Handle<S>> {
        self.all().iter().filter(|(gpu, _)| **gpu != than).map(|(_, server)| server.clone()).collect()
    }
}

/// A moment at which all servers stand still: one has asked the others for it, and they wait for what comes of it.
pub(super) struct Halt {
    state: Mutex<Halting>,
    changed: Condvar,
}

struct Halting {
    /// The number of those that move yet.
    moving: usize,
    /// False if one of them cannot stand still.
    all_can: bool,
    /// True once another process goes on, false if these do.
    is_over: Option<bool>,
}

/// The right to end a halt. Without a word, all go on.
pub(super) struct Halted(Arc<Halt>);

impl Halt {
    /// A halt for so many others.
    pub(super) fn new(others: usize) -> Arc<Self> {
        let state = Mutex::new(Halting { moving: others, all_can: true, is_over: None });
        Arc::new(Self { state, changed: Condvar::new() })
    }

    fn state(&self) -> MutexGuard<'_, Halting> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The calling server stands still, if it can, until the halt ends. True if another process goes on.
    pub(super) fn stand_still(&self, can: bool) -> bool {
        let mut state = self.state();
        state.moving -= 1;
        state.all_can &= can;
        self.changed.notify_all();
        let waited = self.changed.wait_while(state, |state| can && state.is_over.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).is_over == Some(true) && can
    }

    /// Waits until all stand still; none if they do not in this time, or one cannot.
    pub(super) fn wait(self: Arc<Self>, until: Instant) -> Option<Halted> {
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let halted = Halted(self);
        let waited =
            halted.0.changed.wait_timeout_while(halted.0.state(), left, |state| state.moving > 0 && state.all_can);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let do_all = state.moving == 0 && state.all_can;
        drop(state);
        do_all.then_some(halted)
    }
}

impl Halted {
    /// Another process goes on.
    pub(super) fn end_all(self) {
        self.0.state().is_over = Some(true);
    }
}

impl Drop for Halted {
    fn drop(&mut self) {
        self.0.state().is_over.get_or_insert(false);
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn later() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[test]
    fn all_stand_still_until_one_says_who_goes_on() {
        for over in [true, false] {
            let halt = Halt::new(3);
            let others: Vec<_> = (0..3)
                .map(|_| {
                    std::thread::spawn({
                        let halt = Arc::clone(&halt);
                        move || halt.stand_still(true)
                    })
                })
                .collect();
            let halted = halt.wait(later()).expect("all can");
            assert!(others.iter().all(|other| !other.is_finished()));
            if over {
                halted.end_all()
            } else {
                drop(halted)
            }
            assert!(others.into_iter().all(|other| other.join().expect("it ends") == over));
        }
    }

    #[test]
    fn if_one_cannot_stand_still_or_does_not_all_go_on() {
        let halt = Halt::new(2);
        let other = std::thread::spawn({
            let halt = Arc::clone(&halt);
            move || halt.stand_still(true)
        });
        assert!(!halt.stand_still(false));
        assert!(Arc::clone(&halt).wait(later()).is_none());
        assert!(!other.join().expect("it ends"));
        // One that comes too late does not wait.
        let halt = Halt::new(1);
        assert!(Arc::clone(&halt).wait(Instant::now()).is_none());
        assert!(!halt.stand_still(true));
    }

    #[test]
    fn a_server_does_what_it_is_told_in_order_and_hears_of_the_others() {
        let machine = Machine::default();
        let waker = || Waker::new().expect("a descriptor");
        let ((first, posts), (second, _)) = (Handle::<Vec<u32>>::new(waker(), 0), Handle::new(waker(), 1));
        machine.add(GpuNumber(0), first);
        machine.add(GpuNumber(1), second);
        let others = machine.others(GpuNumber(1));
        assert_eq!((others.len(), machine.others(GpuNumber(7)).len()), (1, 2));
        [3, 4].into_iter().for_each(|number| others[0].post(move |all| all.push(number)));
        let mut done = Vec::new();
        posts.try_iter().for_each(|post| post(&mut done));
        assert_eq!(done, [3, 4]);
        assert!(!machine.is_idle(GpuNumber(0), true) && machine.is_idle(GpuNumber(1), true));
        assert!(!machine.is_idle(GpuNumber(0), false) && !machine.is_idle(GpuNumber(1), true));
        machine.remove(GpuNumber(0));
        assert!(machine.is_idle(GpuNumber(1), true));
        assert!(machine.others(GpuNumber(1)).is_empty());
    }
}
