//! Host memory that is written late: behind calls that have queued work which reads it.
//!
//! The work comes after a stream's wait for a flag, and the thread that releases the flag writes before. So for the device the memory is
//! written at the wait, and the books have it as written there: a read in another stream has to come after that point.

use super::threads::{Changes, Looks, Resource, Wait};
use super::{Done, Model, held, only_if};
use crate::generated::program::To;
use crate::generated::script::{Buf, Call, Flag, HostKind, Id, WaitBy};

use super::memory::Content;

/// Writes that happen when a flag is released.
#[derive(Clone, Debug)]
pub(super) struct Late {
    flag: Flag,
    call: Call,
}

impl Model {
    pub(super) fn write_late(&mut self, to: To, slot: u8, rows: u8, seed: u8, flag: u8, by: WaitBy) -> Done {
        let named = self.named(to)?;
        let host = *held(&self.hosts, slot)?;
        let context = self.stream(named.key).context;
        let memory = self.memory(Buf::Host(host))?;
        let (bytes, kind) = (memory.bytes, memory.kind);
        only_if(memory.context == context && kind != Some(HostKind::Pageable))?;
        let rows = self.rows(rows, context, None);
        // Work that was queued before may still read the earlier contents.
        self.comes_after(Buf::Host(host), true)?;
        let (flag, call) = self.wait_call(named, flag, by)?;
        only_if(matches!(flag, Flag::Host(_)))?;
        // The step that writes has no other order: it never has to come after one that waits for the flag itself.
        let mut accesses = vec![(Resource::Flag(flag), Looks), (Resource::Host(host), Changes)];
        accesses.extend(rows.iter().map(|mem| (Resource::Mem(*mem), Looks)));
        let point = self.enqueue(named.key, call, &accesses, None)?;
        self.begin_wait(Wait { point, flag, released: false });
        self.memory.get_mut(&Buf::Host(host)).expect("looked at above").accesses.add(point, true);
        let (content, call) = late_call(host, bytes, rows, seed);
        self.set_content(Buf::Host(host), content);
        self.late.push(Late { flag, call });
        Ok(())
    }

    /// A flag is about to be released.
    pub(super) fn write_what_is_late(&mut self, flag: Flag) -> Done {
        let (now, later) = std::mem::take(&mut self.late).into_iter().partition(|late: &Late| late.flag == flag);
        self.late = later;
        for Late { call, .. } in now {
            self.step(call, &[(Resource::Flag(flag), Changes)])?;
        }
        Ok(())
    }
}

fn late_call(host: Id, bytes: u32, rows: Vec<Id>, seed: u8) -> (Content, Call) {
    match rows.is_empty() {
        true => (Content::Data, Call::HostFill { host, bytes, seed: seed.into() }),
        false => (Content::Table(rows.clone()), Call::HostTable { host, rows }),
    }
}
