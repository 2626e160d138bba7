//! A multicast object: a team of devices, and the memory that each of them has bound.
//!
//! Binding and mapping wait until the team is complete. The effect of writing to an object's addresses by other instructions than
//! `multimem` is undefined, and there are no such kernels here: so an object has pages of its own, and nothing is broadcast.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::phys::{GRANULARITY, Phys};
use crate::errors::{Outcome, Status};

/// A multicast object.
pub(crate) struct Team {
    bytes: u64,
    /// How many devices it is to have.
    size: usize,
    members: Mutex<Members>,
    /// Notified when it is complete.
    complete: Condvar,
}

#[derive(Default)]
struct Members {
    /// Their ordinals.
    devices: Vec<usize>,
    bound: Vec<Bound>,
}

/// A device's memory, bound to a part of the object.
struct Bound {
    device: usize,
    at: u64,
    bytes: u64,
    /// It stays as long as it is bound.
    _memory: Arc<Phys>,
}

impl Team {
    /// Returns when all devices were added, with what they have bound.
    fn when_complete<R>(&self, then: impl FnOnce(&mut Members) -> R) -> R {
        let lacks = |members: &mut Members| members.devices.len() < self.size;
        then(&mut self.complete.wait_while(self.members(), lacks).unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn new(bytes: u64, size: usize) -> Self {
        Self { bytes, size, members: Mutex::default(), complete: Condvar::new() }
    }

    fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more device.
    pub(crate) fn add(&self, device: usize) -> Outcome {
        let mut members = self.members();
        if members.devices.contains(&device) || members.devices.len() == self.size {
            return Err(Status::INVALID_VALUE);
        }
        members.devices.push(device);
        self.complete.notify_all();
        Ok(())
    }

    /// Returns when it can be mapped.
    pub(crate) fn wait(&self) {
        self.when_complete(|_| ());
    }

    /// A part of it, as a call names it.
    pub(crate) fn part(&self, at: usize, bytes: usize) -> Outcome<(u64, u64)> {
        let (at, bytes) = (at as u64, bytes as u64);
        let is_inside = at.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        let is_whole = bytes != 0 && at.is_multiple_of(GRANULARITY) && bytes.is_multiple_of(GRANULARITY);
        if is_inside && is_whole { Ok((at, bytes)) } else { Err(Status::INVALID_VALUE) }
    }

    /// Binds memory from an offset on.
    pub(crate) fn bind(&self, (at, bytes): (u64, u64), memory: Arc<Phys>, offset: u64) -> Outcome {
        let is_inside = offset.checked_add(bytes).is_some_and(|end| end <= memory.bytes());
        if !is_inside || !offset.is_multiple_of(GRANULARITY) {
            return Err(Status::INVALID_VALUE);
        }
        self.when_complete(|members| {
            let device = memory.gpu().ordinal();
            if !members.devices.contains(&device) {
                return Err(Status::INVALID_DEVICE);
            }
            let overlaps = |one: &Bound| one.device == device && at < one.at + one.bytes && one.at < at + bytes;
            if members.bound.iter().any(overlaps) {
                return Err(Status::INVALID_VALUE);
            }
            members.bound.push(Bound { device, at, bytes, _memory: memory });
            Ok(())
        })
    }

    /// Unbinds a device's memory, as it was bound; anything else is undefined.
    pub(crate) fn unbind(&self, device: usize, (at, bytes): (u64, u64)) -> Outcome {
        let mut members = self.members();
        let before = members.bound.len();
        members.bound.retain(|one| (one.device, one.at, one.bytes) != (device, at, bytes));
        if members.bound.len() < before { Ok(()) } else { Err(Status::INVALID_VALUE) }
    }
}
