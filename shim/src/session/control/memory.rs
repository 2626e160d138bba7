//! Memory: mappings of this program change on the coordinator's word.

use std::os::fd::OwnedFd;
use std::time::Instant;

use baton_contract::cuda::{CUDA_ERROR_DEINITIALIZED, CUresult};
use baton_contract::messages::{ExtentId, MemoryCommand, MemoryReport};

use super::super::tenant::Session;
use super::state::{Control, End, Turn};
use crate::{arrival, gate};

impl Control {
    /// Carries out a command about memory, with the frames that came with it.
    pub(super) fn on_memory(&mut self, command: MemoryCommand, descriptors: Vec<OwnedFd>) -> Result<(), End> {
        match command {
            MemoryCommand::Prepare { batch, extents } => {
                self.undelivered.retain(|extent| !extents.contains(extent));
                self.carry_out(batch, |session| session.space.extents.place(&extents, descriptors))?;
            }
            MemoryCommand::Map { batch, extents } if extents.iter().any(|extent| self.undelivered.contains(extent)) => {
                self.session.link.tell(&MemoryReport::Undelivered { batch });
            }
            MemoryCommand::Map { batch, extents } => {
                self.carry_out(batch, |session| session.space.map_arrived(&extents))?;
                if let Turn::Here { grant, arriving: true } = self.turn {
                    arrival::mapped(&extents);
                    if arrival::is_complete() {
                        arrival::all_is_here();
                        gate::all_here();
                        self.report_arrival(grant);
                        arrival::end();
                        self.turn = Turn::Here { grant, arriving: false };
                    }
                }
            }
            MemoryCommand::Unmap { batch, mut extents } => {
                // Where no memory came there is none to be unmapped.
                extents.retain(|extent| !self.undelivered.remove(extent));
                self.carry_out(batch, |session| session.space.extents.unmap(&extents))?;
            }
            MemoryCommand::Recut { gone, extents } => {
                self.session.space.recut(&gone, &extents);
            }
            MemoryCommand::Consolidated { batch, at, copied } => {
                self.carry_out(batch, |session| {
                    session.consolidated(at, copied, |given_up| self.report_given_up(given_up));
                    Ok(())
                })?;
            }
        }
        Ok(())
    }

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
