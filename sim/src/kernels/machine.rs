//! A kernel's surroundings, as far as it knows any: parameters, memory, the variables of its module.

use crate::errors::{Outcome, Status};
use crate::exec::pause::Pause;
use crate::memory::view::View;

/// A kernel runs on it.
pub(crate) trait Machine {
    /// The memory in the kernel's reach.
    fn memory(&self) -> View<'_>;

    /// The address of a variable of the kernel's module.
    fn variable(&self, name: &str) -> Outcome<u64>;

    /// True once the kernel's context ends: a body that waits gives up.
    fn is_ending(&self) -> bool;
}

impl dyn Machine + '_ {
    /// Room for numbers out of the device's memory; more than that has cannot be there.
    pub(crate) fn room(&self, count: usize) -> Outcome<Vec<f32>> {
        let most = self.memory().gpu().memory() as usize / size_of::<f32>();
        if count > most { Err(Status::ILLEGAL_ADDRESS) } else { Ok(vec![0.0; count]) }
    }

    /// A step of waiting; fails when the context ends.
    pub(crate) fn wait_a_little(&self, pause: &mut Pause) -> Outcome {
        if self.is_ending() {
            return Err(Status::CONTEXT_IS_DESTROYED);
        }
        pause.step();
        Ok(())
    }
}

/// The parameters' bytes, laid out as the entry says.
pub(crate) struct Args<'a>(pub(crate) &'a [u8]);

impl Args<'_> {
    fn bytes<const N: usize>(&self, offset: usize) -> [u8; N] {
        // The layout was checked before the launch, so the range is there.
        self.0[offset..offset + N].try_into().expect("the range is N long")
    }

    pub(crate) fn pointer(&self, offset: usize) -> u64 {
        u64::from_ne_bytes(self.bytes(offset))
    }

    pub(crate) fn u32(&self, offset: usize) -> u32 {
        u32::from_ne_bytes(self.bytes(offset))
    }

    pub(crate) fn f32(&self, offset: usize) -> f32 {
        f32::from_ne_bytes(self.bytes(offset))
    }
}
