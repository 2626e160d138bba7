//! Memory: the allocations, their contents, and the work that has used each last.

use std::collections::BTreeSet;

use super::clock::{Clock, Point};
use super::threads::{Access, Changes, Looks, Resource, Waits};
use super::{Done, Model, Skip, held, only_if, vacant};
use crate::generated::program::{HOST_SIZES, SIZES, Spot, To, VARIABLE_BYTES, Where};
use crate::generated::script::{Buf, Call, Flag, HostKind, Id, ROW_BYTES, Remap, Work, is_exportable};

/// Device or host memory.
pub(super) type Name = Buf;

/// The contents of memory.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Content {
    /// The same in every run.
    Data,
    /// Addresses of these allocations, which differ from run to run.
    Table(Vec<Id>),
    /// A chain's node, with the address of the memory of the next one.
    Node(Option<Id>),
}

/// How device memory was made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Origin {
    /// By an allocation, also of a pool; and host memory.
    Allocated,
    /// The program has mapped it itself.
    Mapped,
    /// It is a variable of code.
    Variable,
}

/// Bytes of managed memory, at most.
const MOST_MANAGED: u32 = 16 << 10;

/// The last accesses of the device's to something.
#[derive(Clone, Debug, Default)]
pub(super) struct Accesses {
    write: Option<Point>,
    reads: Vec<Point>,
}

/// Memory that there is.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    pub(super) context: Id,
    pub(super) bytes: u32,
    pub(super) content: Content,
    /// How host memory was made.
    pub(super) kind: Option<HostKind>,
    pub(super) origin: Origin,
    /// The pool that it is from.
    pub(super) pool: Option<Id>,
    pub(super) accesses: Accesses,
}

impl Accesses {
    /// The streams whose work has to end before another access, and of which that is not certain.
    pub(super) fn missing(&self, ended: &Clock, write: bool) -> impl Iterator<Item = usize> {
        let reads = self.reads.iter().filter(move |_| write);
        self.write.iter().chain(reads).filter(|point| !ended.covers(**point)).map(|point| point.0)
    }

    pub(super) fn add(&mut self, point: Point, write: bool) {
        if write {
            *self = Self { write: Some(point), reads: Vec::new() };
        } else {
            self.reads.push(point);
        }
    }
}

/// The resource about which threads have to be in order when the device accesses memory. Work in different streams is ordered by events,
/// which the streams' own order takes care of; the host's own accesses are not.
pub(super) fn access(name: Name, write: bool) -> (Resource, Access) {
    match name {
        Buf::Mem(id) => (Resource::Mem(id), Looks),
        Buf::Host(id) => (Resource::Host(id), if write { Changes } else { Looks }),
    }
}

impl Model {
    pub(super) fn memory(&self, name: Name) -> Done<&Memory> {
        self.memory.get(&name).ok_or(Skip)
    }

    /// The object in a slot, if it belongs to a context.
    pub(super) fn spot(&self, spot: Spot, context: Id) -> Done<Name> {
        let name = match spot {
            Spot::Mem(slot) => Buf::Mem(*held(&self.mems, slot)?),
            Spot::Host(slot) => Buf::Host(*held(&self.hosts, slot)?),
        };
        only_if(self.memory(name)?.context == context)?;
        Ok(name)
    }

    pub(super) fn alloc(&mut self, slot: u8, context: u8, size: u8, to: To) -> Done {
        let accesses = self.unsafe_call()?;
        let bytes = *SIZES.get(size as usize).ok_or(Skip)?;
        self.make(slot, context, bytes, to, Origin::Allocated, |model, context, mem| {
            let accesses = [&accesses[..], &[(Resource::Mem(mem), Changes)]].concat();
            model.call(context, Call::MemAlloc { mem, bytes }, &accesses)
        })
    }

    pub(super) fn map(&mut self, slot: u8, context: u8, size: u8, parts: u8, to: To) -> Done {
        let parts = u32::from(parts % 3) + 1;
        // Each handle that can be exported takes a descriptor of the simulated driver's, so there has to be one.
        let is_exportable = is_exportable(self.next_id);
        only_if(!is_exportable || self.descriptors.is_none())?;
        let accesses: &[_] = if is_exportable { &[(Resource::Process, Looks)] } else { &[] };
        let bytes = *SIZES.get(size as usize).ok_or(Skip)?;
        self.make(slot, context, bytes, to, Origin::Mapped, |model, context, mem| {
            let accesses = [accesses, &[(Resource::Mem(mem), Changes)]].concat();
            model.call(context, Call::MemMap { mem, bytes, parts }, &accesses)
        })
    }

    pub(super) fn variable(&mut self, slot: u8, context: u8, to: To) -> Done {
        let (accesses, bytes) = (self.unsafe_call()?, VARIABLE_BYTES);
        self.make(slot, context, bytes, to, Origin::Variable, |model, context, mem| {
            let accesses = [&accesses[..], &[(Resource::Mem(mem), Changes)]].concat();
            model.call_alone(context, Call::VariableLoad { mem, bytes }, &accesses)?;
            only_if(model.threads[model.me].blocked.is_none())
        })
    }

    fn make(
        &mut self,
        slot: u8,
        context: u8,
        bytes: u32,
        to: To,
        origin: Origin,
        call: impl FnOnce(&mut Self, Id, Id) -> Done,
    ) -> Done {
        vacant(&self.mems, slot)?;
        let context = *held(&self.contexts, context)?;
        let named = self.named(to)?;
        only_if(self.stream(named.key).context == context)?;
        only_if(origin == Origin::Allocated || self.is_of_first_gpu(context))?;
        let mem = self.new_id();
        call(self, context, mem)?;
        let (content, accesses) = (Content::Data, Accesses::default());
        self.memory.insert(Buf::Mem(mem), Memory { context, bytes, content, kind: None, origin, pool: None, accesses });
        self.mems[slot as usize] = Some(mem);
        let fill = Work::Fill { out: Buf::Mem(mem), value: mem, element: 4, count: bytes / 4, in_rows: false };
        let call = Call::Submit { on: named.on, work: fill, times: 1 };
        self.submit(named, call, &[], &[Buf::Mem(mem)], None, &[]).map(drop)
    }

    /// Mappings of a program's own are changed when it knows that nothing uses them: such calls wait for nothing.
    fn change_mappings(&mut self, slot: u8, call: impl FnOnce(Id) -> Call) -> Done<Id> {
        let mem = *held(&self.mems, slot)?;
        let Memory { context, origin, .. } = *self.memory(Buf::Mem(mem))?;
        only_if(origin == Origin::Mapped)?;
        self.comes_after(Buf::Mem(mem), true)?;
        self.call(context, call(mem), &[(Resource::Mem(mem), Changes)])?;
        Ok(mem)
    }

    pub(super) fn remap(&mut self, slot: u8, how: u8) -> Done {
        let how = [Remap::First, Remap::Both, Remap::Whole, Remap::Access][how as usize % 4];
        self.change_mappings(slot, |mem| Call::MemRemap { mem, how }).map(drop)
    }

    pub(super) fn free(&mut self, slot: u8) -> Done {
        let mem = *held(&self.mems, slot)?;
        let Memory { context, origin, pool, .. } = *self.memory(Buf::Mem(mem))?;
        if let Some(pool) = pool {
            self.pool_free(mem, pool)?;
            self.forget(slot, mem);
            return Ok(());
        }
        if origin == Origin::Mapped {
            let mem = self.change_mappings(slot, |mem| Call::MemUnmap { mem })?;
            self.forget(slot, mem);
            return Ok(());
        }
        let call = if origin == Origin::Variable {
            // Nothing uses it any more.
            self.comes_after(Buf::Mem(mem), true)?;
            Call::VariableUnload { mem }
        } else {
            Call::MemFree { mem }
        };
        let accesses = [&self.unsafe_call()?[..], &[(Resource::Mem(mem), Changes)]].concat();
        self.call_alone(context, call, &accesses)?;
        self.forget(slot, mem);
        Ok(())
    }

    pub(super) fn forget(&mut self, slot: u8, mem: Id) {
        self.memory.remove(&Buf::Mem(mem));
        self.mems[slot as usize] = None;
    }

    pub(super) fn free_async(&mut self, slot: u8, to: To) -> Done {
        let named = self.named(to)?;
        let mem = *held(&self.mems, slot)?;
        only_if(self.memory(Buf::Mem(mem))?.origin == Origin::Allocated)?;
        only_if(self.stream(named.key).context == self.memory(Buf::Mem(mem))?.context)?;
        if let Some(pool) = self.memory(Buf::Mem(mem))?.pool {
            self.pool_free_async(mem, pool, named)?;
            self.forget(slot, mem);
            return Ok(());
        }
        let accesses = [&self.unsafe_call()?[..], &[(Resource::Mem(mem), Changes)]].concat();
        let call = Call::MemFreeAsync { mem, on: named.on };
        self.submit(named, call, &[], &[Buf::Mem(mem)], None, &accesses)?;
        self.forget(slot, mem);
        Ok(())
    }

    pub(super) fn read(&mut self, slot: u8, twin: bool) -> Done {
        let mem = *held(&self.mems, slot)?;
        let Memory { context, bytes, content, .. } = self.memory(Buf::Mem(mem))?.clone();
        only_if(content == Content::Data)?;
        let named = self.default_stream(context, twin)?;
        let accesses = self.unsafe_call()?;
        self.submit(named, Call::MemRead { mem, bytes, twin }, &[Buf::Mem(mem)], &[], None, &accesses)?;
        self.wait_for_last(named, true)
    }

    /// A default stream of a context's.
    pub(super) fn default_stream(&mut self, context: Id, twin: bool) -> Done<super::streams::Named> {
        let slot = self.contexts.iter().position(|held| *held == Some(context)).ok_or(Skip)? as u8;
        let stream = if twin { Where::PerThread(slot) } else { Where::Legacy(slot) };
        self.named(To { stream, twin })
    }

    /// The call that put something into a stream waits for it. `certain`: and that is relied upon.
    pub(super) fn wait_for_last(&mut self, named: super::streams::Named, certain: bool) -> Done {
        let before = self.stream(named.key).before.clone();
        let gains = if certain { before.must } else { Clock::default() };
        self.block(self.pending(&before.may), gains, Waits::ForSome)
    }

    pub(super) fn host_alloc(&mut self, slot: u8, context: u8, size: u8, kind: HostKind) -> Done {
        vacant(&self.hosts, slot)?;
        let context = *held(&self.contexts, context)?;
        let bytes = *HOST_SIZES.get(size as usize).ok_or(Skip)?;
        // It never leaves the GPU, and has to fit there beside everything.
        only_if(kind != HostKind::Managed || bytes <= MOST_MANAGED && self.is_of_first_gpu(context))?;
        let host = self.new_id();
        let mut accesses = vec![(Resource::Host(host), Changes)];
        if kind != HostKind::Pageable {
            accesses.extend(self.unsafe_call()?);
        }
        self.call(context, Call::HostAlloc { host, bytes, kind }, &accesses)?;
        let (content, accesses, kind) = (Content::Data, Accesses::default(), Some(kind));
        self.memory.insert(
            Buf::Host(host),
            Memory { context, bytes, content, kind, origin: Origin::Allocated, pool: None, accesses },
        );
        self.hosts[slot as usize] = Some(host);
        self.host_fill(slot, slot)
    }

    /// The thread knows that all work has ended that is in the way of an access of its own.
    fn host_comes_after(&mut self, host: Id, write: bool) -> Done {
        self.comes_after(Buf::Host(host), write)
    }

    pub(super) fn comes_after(&mut self, name: Name, write: bool) -> Done {
        for _ in 0..2 {
            let accesses = &self.memory(name)?.accesses;
            let missing: BTreeSet<usize> = accesses.missing(&self.threads[self.me].ended, write).collect();
            for timeline in missing {
                self.wait_for(timeline)?;
            }
        }
        let accesses = &self.memory(name)?.accesses;
        only_if(accesses.missing(&self.threads[self.me].ended, write).next().is_none())
    }

    pub(super) fn host_free(&mut self, slot: u8) -> Done {
        let host = *held(&self.hosts, slot)?;
        self.host_comes_after(host, true)?;
        let memory = self.memory(Buf::Host(host))?.clone();
        let kind = memory.kind.ok_or(Skip)?;
        let mut accesses = vec![(Resource::Host(host), Changes)];
        if kind != HostKind::Pageable {
            accesses.extend(self.unsafe_call()?);
        }
        self.memory.remove(&Buf::Host(host));
        self.hosts[slot as usize] = None;
        let call = Call::HostFree { host, kind };
        match kind {
            HostKind::Pageable => self.call(memory.context, call, &accesses),
            HostKind::Pinned | HostKind::Registered | HostKind::Managed => {
                self.call_alone(memory.context, call, &accesses)
            }
        }
    }

    /// A call that returns when all earlier work of the context has ended, and that keeps other threads out of the driver
    /// until then. That it waits is not relied upon for anything.
    pub(super) fn call_alone(&mut self, context: Id, call: Call, accesses: &[(Resource, Access)]) -> Done {
        self.enter(context)?;
        let accesses = [accesses, &[(Resource::Context(context), Looks)]].concat();
        // Other threads have done all that they have to do in the driver before this can return.
        let behind = self.returned_so_far();
        self.step_after(call, &accesses, &behind)?;
        let waits = self.pending_in(context);
        // Flags in device memory are set in the driver.
        only_if(waits.iter().all(|wait| matches!(self.waits[*wait].flag, Flag::Host(_))))?;
        self.block(waits, Clock::default(), Waits::Alone(context))
    }

    pub(super) fn host_fill(&mut self, slot: u8, seed: u8) -> Done {
        let host = *held(&self.hosts, slot)?;
        self.host_comes_after(host, true)?;
        let bytes = self.memory(Buf::Host(host))?.bytes;
        self.step(Call::HostFill { host, bytes, seed: seed.into() }, &[(Resource::Host(host), Changes)])?;
        self.set_content(Buf::Host(host), Content::Data);
        Ok(())
    }

    pub(super) fn host_table(&mut self, slot: u8, rows: u8) -> Done {
        let host = *held(&self.hosts, slot)?;
        self.host_comes_after(host, true)?;
        let Memory { context, .. } = *self.memory(Buf::Host(host))?;
        let rows = self.rows(rows, context, None);
        only_if(!rows.is_empty())?;
        let mut accesses: Vec<_> = rows.iter().map(|mem| (Resource::Mem(*mem), Looks)).collect();
        accesses.push((Resource::Host(host), Changes));
        self.step(Call::HostTable { host, rows: rows.clone() }, &accesses)?;
        self.set_content(Buf::Host(host), Content::Table(rows));
        Ok(())
    }

    /// The allocations whose bits are set that can be rows of a table of a context's, without one.
    pub(super) fn rows(&self, rows: u8, context: Id, without: Option<Name>) -> Vec<Id> {
        let chosen = self.mems.iter().enumerate().filter(|(slot, _)| rows & (1 << slot) != 0);
        let fits = |mem: &Id| {
            let is_row = |memory: &Memory| memory.context == context && memory.bytes >= ROW_BYTES;
            Some(Buf::Mem(*mem)) != without && self.memory(Buf::Mem(*mem)).is_ok_and(is_row)
        };
        chosen.filter_map(|(_, mem)| *mem).filter(fits).collect()
    }

    pub(super) fn host_read(&mut self, slot: u8) -> Done {
        let host = *held(&self.hosts, slot)?;
        self.host_comes_after(host, false)?;
        let Memory { bytes, ref content, .. } = *self.memory(Buf::Host(host))?;
        only_if(*content == Content::Data)?;
        self.step(Call::HostRead { host, bytes }, &[(Resource::Host(host), Looks)])
    }

    pub(super) fn set_content(&mut self, name: Name, content: Content) {
        if let Some(memory) = self.memory.get_mut(&name) {
            memory.content = content;
        }
    }
}
