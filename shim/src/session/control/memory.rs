//! Memory: mappings of this program change on the coordinator's word.

use std::os::fd::OwnedFd;
use std::time::Instant;

use baton_contract::cuda::{CUDA_ERROR_DEINITIALIZED, CUresult};
use baton_contract::messages::{ExtentId, MemoryCommand, MemoryReport};

use super::super::tenant::Session;
use super::state::{Control, End, Gpu, Turn, report_given_up};
use crate::{arrival, gate};

impl Control {
    /// Carries out a command about memory on a GPU, with the frames that came with it.
    pub(super) fn on_memory(
        &mut self,
        at: usize,
        command: MemoryCommand,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), End> {
        let gpu = &mut self.gpus[at];
        match command {
            MemoryCommand::Prepare { batch, extents } => {
                gpu.undelivered.retain(|extent| !extents.contains(extent));
                gpu.carry_out(batch, |session| session.space.extents.place(&extents, descriptors))?;
            }
            MemoryCommand::Map { batch, extents } if extents.iter().any(|extent| gpu.undelivered.contains(extent)) => {
                gpu.session.link.tell(&MemoryReport::Undelivered { batch });
            }
            MemoryCommand::Map { batch, extents } => {
                gpu.carry_out(batch, |session| session.space.map_arrived(&extents))?;
                let device = gpu.session.device;
                if gpu.turn.is_arriving() {
                    arrival::mapped(device, &extents);
                    if arrival::is_complete() {
                        self.all_has_arrived();
                    }
                }
            }
            MemoryCommand::Unmap { batch, mut extents } => {
                // Where no memory came there is none to be unmapped.
                extents.retain(|extent| !gpu.undelivered.remove(extent));
                gpu.carry_out(batch, |session| session.space.extents.unmap(&extents))?;
            }
            MemoryCommand::Recut { gone, extents } => {
                gpu.session.space.recut(&gone, &extents);
            }
            MemoryCommand::Consolidated { batch, at, copied } => {
                gpu.carry_out(batch, |session| {
                    session.consolidated(at, copied, |given_up| report_given_up(session.link, given_up));
                    Ok(())
                })?;
            }
        }
        Ok(())
    }

    /// All memory is here, on all GPUs.
    fn all_has_arrived(&mut self) {
        arrival::all_is_here();
        gate::all_here();
        for gpu in &mut self.gpus {
            if let Turn::Here { grant, arriving: true } = gpu.turn {
                gpu.report_arrival(grant);
                gpu.turn = Turn::Here { grant, arriving: false };
            }
        }
        arrival::end();
    }
}

impl Gpu {
    /// Notes extents whose frames did not come, because this process can open no more descriptors.
    pub(super) fn on_undelivered(&mut self, batch: u32, extents: Vec<ExtentId>) {
        self.undelivered.extend(extents);
        self.session.link.tell(&MemoryReport::Undelivered { batch });
    }

    /// Carries out a batch and reports how it went.
    fn carry_out(&self, batch: u32, command: impl FnOnce(&Session) -> Result<(), CUresult>) -> Result<(), End> {
        let start = Instant::now();
        let message = match command(self.session) {
            Ok(()) => MemoryReport::Done { batch, micros: start.elapsed().as_micros() as u64 },
            Err(CUDA_ERROR_DEINITIALIZED) => return Err(End::DriverGone),
            Err(code) => MemoryReport::Failed { batch, code },
        };
        self.session.link.tell(&message);
        Ok(())
    }
}
