//! Code that comes and goes, another GPU's context, and threads that do something over and over.
//!
//! Loading and unloading wait for all of their context's work, as freeing does. The work beside the script's threads uses
//! nothing of theirs and no thread waits for it, so that it may meet any of their calls.

use super::threads::{Changes, Looks, Resource};
use super::{Done, Model, held, only_if, vacant};
use crate::generated::script::{Buf, Call, Churn, Id, TOUCHES, Touch};

/// The slot of the context of another GPU.
pub(super) const ANOTHER_GPU: u8 = 2;

/// A module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Module {
    id: Id,
    pub(super) context: Id,
}

impl Model {
    pub(super) fn context_retain(&mut self) -> Done {
        vacant(&self.contexts, ANOTHER_GPU)?;
        let context = self.new_id();
        let accesses = [&self.unsafe_call()?[..], &[(Resource::Context(context), Changes)]].concat();
        self.step(Call::ContextRetain { context }, &accesses)?;
        self.contexts[ANOTHER_GPU as usize] = Some(context);
        self.threads[self.me].current = Some(context);
        Ok(())
    }

    /// True if a context is of the GPU whose pools and mappings there are.
    pub(super) fn is_of_first_gpu(&self, context: Id) -> bool {
        self.contexts[ANOTHER_GPU as usize] != Some(context)
    }

    pub(super) fn module_load(&mut self, slot: u8, context: u8) -> Done {
        vacant(&self.modules, slot)?;
        let context = *held(&self.contexts, context)?;
        let id = self.new_id();
        let accesses = self.unsafe_call()?;
        self.modules[slot as usize] = Some(Module { id, context });
        self.call_alone(context, Call::ModuleLoad { module: id }, &with(&accesses, (Resource::Module(id), Changes)))
    }

    pub(super) fn module_unload(&mut self, slot: u8) -> Done {
        let Module { id, context } = *held(&self.modules, slot)?;
        let accesses = self.unsafe_call()?;
        self.modules[slot as usize] = None;
        self.call_alone(context, Call::ModuleUnload { module: id }, &with(&accesses, (Resource::Module(id), Changes)))
    }

    pub(super) fn churn_begin(&mut self, churn: Churn) -> Done {
        only_if(!self.churns.contains(&churn))?;
        // Each takes descriptors of the simulated driver's.
        only_if(self.descriptors.is_none())?;
        self.step(Call::ChurnBegin { churn }, &[(Resource::Process, Changes)])?;
        self.churns.push(churn);
        Ok(())
    }

    pub(super) fn churn_end(&mut self, churn: Churn) -> Done {
        only_if(self.churns.contains(&churn))?;
        self.step(Call::ChurnEnd { churn }, &[(Resource::Process, Changes)])?;
        self.churns.retain(|other| *other != churn);
        Ok(())
    }

    pub(super) fn fork_touch(&mut self, slot: u8, host: u8, touches: u32) -> Done {
        let mem = *held(&self.mems, slot)?;
        let context = self.memory(Buf::Mem(mem))?.context;
        let host = held(&self.hosts, host).ok().copied();
        let is_chosen = |(bit, _): &(usize, &Touch)| touches & 1 << bit != 0;
        let is_possible = |touch: &Touch| *touch != Touch::HostFree || host.is_some();
        let touches = TOUCHES.iter().enumerate().filter(is_chosen).map(|(_, touch)| *touch);
        let touches: Vec<Touch> = touches.filter(is_possible).collect();
        only_if(!touches.is_empty())?;
        let mut accesses = vec![(Resource::Process, Changes), (Resource::Mem(mem), Looks)];
        accesses.extend(host.map(|host| (Resource::Host(host), Looks)));
        self.call(context, Call::ForkTouch { mem, host, touches }, &accesses)
    }
}

fn with<T: Copy>(all: &[T], one: T) -> Vec<T> {
    [all, &[one]].concat()
}
