//! The door for every call that touches device memory.

use baton_contract::cuda::{CUdevice, CUresult};

use super::blocks::{Needs, wait};
use super::elsewhere;
use crate::gate::{self, Passage};

/// The door for every call that touches device memory: passes the gate when what the call needs is here. An error is what
/// the program's call has to answer.
#[inline(always)]
pub(crate) fn pass(needs: impl Fn() -> Needs) -> Result<Passage, CUresult> {
    if let Some(device) = elsewhere::device()
        && let Some(passage) = pass_elsewhere(device, &needs)
    {
        return Ok(passage);
    }
    let passage = gate::pass()?;
    if gate::may_lack() {
        wait(&passage, needs())?;
    }
    Ok(passage)
}

/// A call for another GPU.
#[cold]
fn pass_elsewhere(_device: CUdevice, needs: &impl Fn() -> Needs) -> Option<Passage> {
    needs().are_none_of_ours().then(Passage::beside)
}
