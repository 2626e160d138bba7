//! Contexts, children, descriptors, rests, and the end of the program.

use std::collections::BTreeSet;

use super::clock::Clock;
use super::memory::{Memory, Origin};
use super::threads::{Access, Changes, Looks, Resource, Waits};
use super::{Done, Model, held, only_if, vacant};
use crate::generated::script::{Buf, Call, Question};

/// The slot of the context that comes and goes.
const SECOND: u8 = 1;

impl Model {
    pub(super) fn context_create(&mut self) -> Done {
        vacant(&self.contexts, SECOND)?;
        let context = self.new_id();
        let accesses = [&self.unsafe_call()?[..], &[(Resource::Context(context), Changes)]].concat();
        self.step(Call::ContextCreate { context }, &accesses)?;
        self.threads[self.me].current = Some(context);
        self.contexts[SECOND as usize] = Some(context);
        Ok(())
    }

    pub(super) fn context_destroy(&mut self) -> Done {
        let context = *held(&self.contexts, SECOND)?;
        let others = self.threads.iter().enumerate().filter(|(number, _)| *number != self.me);
        only_if(!others.into_iter().any(|(_, thread)| thread.current == Some(context)))?;
        for slot in 0..self.execs.len() as u8 {
            if held(&self.execs, slot).is_ok_and(|exec| exec.is_of(context)) {
                self.exec_destroy(slot)?;
            }
        }
        for slot in 0..self.graphs.len() as u8 {
            if held(&self.graphs, slot).is_ok_and(|graph| graph.context == context) {
                self.graph_destroy(slot)?;
            }
        }
        self.context_synchronize(SECOND)?;
        only_if(self.threads[self.me].blocked.is_none())?;
        self.enter(0)?;
        self.step(Call::ContextDestroy { context }, &[(Resource::Context(context), Changes)])?;
        self.contexts[SECOND as usize] = None;
        self.pools_without(context);
        for module in &mut self.modules {
            module.take_if(|module| module.context == context);
        }
        let gone = |name: &Buf, model: &Self| model.memory.get(name).is_none_or(|memory| memory.context == context);
        for slot in 0..self.mems.len() {
            self.mems[slot] = self.mems[slot].filter(|id| !gone(&Buf::Mem(*id), self));
        }
        for slot in 0..self.hosts.len() {
            self.hosts[slot] = self.hosts[slot].filter(|id| !gone(&Buf::Host(*id), self));
        }
        self.memory.retain(|_, memory| memory.context != context);
        for event in &mut self.events {
            event.take_if(|event| event.context == context);
        }
        self.streams.retain(|_, stream| stream.context != context);
        let streams = &self.streams;
        for made in &mut self.made {
            made.take_if(|id| !streams.contains_key(&super::streams::Key::Made(*id)));
        }
        for line in self.timelines.iter_mut().filter(|line| line.context == context) {
            line.key = None;
        }
        Ok(())
    }

    pub(super) fn context_synchronize(&mut self, slot: u8) -> Done {
        let context = *held(&self.contexts, slot)?;
        only_if(!self.streams.values().any(|stream| stream.context == context && stream.capture.is_some()))?;
        let mut accesses: Vec<(Resource, Access)> = self.unsafe_call()?;
        accesses.push((Resource::CapturesIn(context), Looks));
        let mut gains = Clock::default();
        for (number, line) in self.timelines.iter().enumerate().filter(|(_, line)| line.context == context) {
            accesses.push((Resource::Stream(number), Looks));
            gains.add((number, line.count));
        }
        self.call(context, Call::ContextSynchronize, &accesses)?;
        self.block(self.pending_in(context), gains, Waits::ForAll)
    }

    pub(super) fn thread_mode(&mut self, mode: u8) -> Done {
        only_if(mode <= 2 && self.threads[self.me].mode != mode)?;
        self.step(Call::ThreadMode { mode: mode.into() }, &[])?;
        self.threads[self.me].mode = mode;
        Ok(())
    }

    pub(super) fn ask(&mut self, slot: u8, question: Question) -> Done {
        let mem = *held(&self.mems, slot)?;
        let Memory { context, origin, .. } = *self.memory(Buf::Mem(mem))?;
        only_if(origin != Origin::Variable)?;
        self.call(context, Call::Ask { mem, question }, &[(Resource::Mem(mem), Looks)])
    }

    pub(super) fn fork(&mut self, milliseconds: u8) -> Done {
        self.step(Call::Fork { milliseconds: milliseconds.into() }, &[(Resource::Process, Changes)])?;
        self.children = true;
        Ok(())
    }

    pub(super) fn take_descriptors(&mut self, spare: u8) -> Done {
        only_if(self.descriptors.is_none())?;
        self.step(Call::TakeDescriptors { spare: spare.into() }, &[(Resource::Process, Changes)])?;
        self.descriptors = Some(spare);
        Ok(())
    }

    pub(super) fn give_descriptors(&mut self) -> Done {
        only_if(self.descriptors.is_some())?;
        self.step(Call::GiveDescriptors, &[(Resource::Process, Changes)])?;
        self.descriptors = None;
        Ok(())
    }

    pub(super) fn rest(&mut self, idle: bool) -> Done {
        if idle {
            self.context_synchronize(0)?;
            only_if(self.threads[self.me].blocked.is_none())?;
        }
        self.step(Call::Rest, &[])
    }

    pub(super) fn end_everything(&mut self) {
        for slot in 0..self.flags.len() as u8 {
            let left = self.threads.iter().position(|thread| thread.blocked.is_none());
            self.me = left.expect("one thread at least is never blocked");
            // None waits for it any more, or now none does.
            let _ = self.release(slot);
        }
        self.end_captures().expect("nobody is in the way of the thread that captures");
        self.me = 0;
        self.threads[0].mode = 0;
        let last = self.everything_so_far();
        let first = if self.children { Call::Reap } else { Call::ThreadMode { mode: 0 } };
        self.step_after(first, &[], &last).expect("nobody is blocked");
        while let Some(churn) = self.churns.last() {
            self.churn_end(*churn).expect("nobody is blocked");
        }
        if self.descriptors.is_some() {
            self.give_descriptors().expect("nobody is blocked");
        }
        for slot in 0..self.contexts.len() as u8 {
            if held(&self.contexts, slot).is_ok() {
                self.context_synchronize(slot).expect("nothing is captured");
            }
        }
        let names: BTreeSet<Buf> = self.memory.keys().copied().collect();
        for name in names {
            let read = match name {
                Buf::Mem(id) => {
                    self.mems.iter().position(|held| *held == Some(id)).map(|slot| self.read(slot as u8, false))
                }
                Buf::Host(id) => {
                    self.hosts.iter().position(|held| *held == Some(id)).map(|slot| self.host_read(slot as u8))
                }
            };
            // Addresses are not read.
            let _ = read;
        }
    }
}
