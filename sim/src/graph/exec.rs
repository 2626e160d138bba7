//! Instantiated graphs, their launches and their updates.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::user_object::UserObject;
use super::{Alive, Graph, Work};
use crate::errors::{Outcome, Status};
use crate::exec::op::{Op, Plan};

/// An instantiated graph.
pub(crate) struct GraphExec {
    pub(crate) flags: u64,
    steps: Mutex<Vec<Step>>,
    pub(crate) alive: Arc<Alive>,
    /// Kept as long as the instance.
    _objects: Vec<Arc<UserObject>>,
}

/// One node of it, in the order they run.
struct Step {
    /// The node of the graph it was made from.
    node: usize,
    kind: u32,
    /// Positions of the steps it comes after.
    after: Vec<usize>,
    op: Op,
    enabled: bool,
}

impl Step {
    /// True if the other allocates or frees the same memory, if any.
    fn has_same_memory(&self, other: &Step) -> bool {
        match (&self.op, &other.op) {
            (Op::Allocate(own), Op::Allocate(other)) | (Op::Release(own), Op::Release(other)) => {
                Arc::ptr_eq(own, other)
            }
            _ => true,
        }
    }
}

/// Why an instance cannot be updated from a graph: `CUgraphExecUpdateResult`, and the node.
#[derive(Debug, PartialEq)]
pub(crate) struct Mismatch {
    pub(crate) result: u32,
    pub(crate) node: usize,
}

const TOPOLOGY_CHANGED: u32 = 2;
const NODE_TYPE_CHANGED: u32 = 3;
const NOT_SUPPORTED: u32 = 6;

impl GraphExec {
    /// Takes a graph as it is now.
    pub(crate) fn new(graph: &Graph, flags: u64) -> Outcome<GraphExec> {
        let objects = graph.objects().clone();
        Ok(GraphExec { flags, steps: Mutex::new(steps(graph)?), alive: Arc::new(Alive), _objects: objects })
    }

    /// The operations that a launch runs.
    pub(crate) fn plan(&self) -> Plan {
        let steps = self.steps();
        let enabled = steps.iter().filter(|step| step.enabled);
        Plan { ops: enabled.map(|step| step.op.clone()).collect() }
    }

    /// True if a launch allocates or frees memory.
    pub(crate) fn has_memory(&self) -> bool {
        self.steps().iter().any(|step| matches!(step.op, Op::Allocate(_) | Op::Release(_)))
    }

    /// Gives up the graph's memory, apart from allocations that the program still has: called when the graph is destroyed.
    pub(crate) fn let_go(&self) {
        for step in self.steps().iter() {
            if let Op::Allocate(slot) = &step.op {
                slot.let_go();
            }
        }
    }

    /// Gives a node of the same kind other parameters.
    pub(crate) fn set(&self, node: usize, work: &Work) -> Outcome {
        let op = work.op()?;
        self.change(node, |step| {
            if step.kind != work.kind() {
                return Err(Status::INVALID_VALUE);
            }
            step.op = op;
            Ok(())
        })
    }

    /// Lets a node run at launches or not.
    pub(crate) fn enable(&self, node: usize, enabled: bool) -> Outcome {
        self.change(node, |step| {
            // The driver can leave out kernels, copies and fills only.
            if step.kind > 2 {
                return Err(Status::INVALID_VALUE);
            }
            step.enabled = enabled;
            Ok(())
        })
    }

    /// True if a node runs at launches.
    pub(crate) fn is_enabled(&self, node: usize) -> Outcome<bool> {
        self.change(node, |step| Ok(step.enabled))
    }

    /// Takes the parameters of a graph of the same shape.
    pub(crate) fn update(&self, graph: &Graph) -> Outcome<Result<(), Mismatch>> {
        let fresh = steps(graph)?;
        let mut old = self.steps();
        if old.len() != fresh.len() {
            let node = fresh.last().map_or(0, |step| step.node);
            return Ok(Err(Mismatch { result: TOPOLOGY_CHANGED, node }));
        }
        for (old, fresh) in old.iter().zip(&fresh) {
            let mismatch = |result| Ok(Err(Mismatch { result, node: fresh.node }));
            if old.kind != fresh.kind {
                return mismatch(NODE_TYPE_CHANGED);
            }
            if old.after != fresh.after {
                return mismatch(TOPOLOGY_CHANGED);
            }
            if !old.has_same_memory(fresh) {
                return mismatch(NOT_SUPPORTED);
            }
        }
        for (old, fresh) in old.iter_mut().zip(fresh) {
            old.op = fresh.op;
        }
        Ok(Ok(()))
    }

    fn change<R>(&self, node: usize, how: impl FnOnce(&mut Step) -> Outcome<R>) -> Outcome<R> {
        let mut steps = self.steps();
        let step = steps.iter_mut().find(|step| step.node == node);
        how(step.ok_or(Status::INVALID_VALUE)?)
    }

    fn steps(&self) -> MutexGuard<'_, Vec<Step>> {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn steps(graph: &Graph) -> Outcome<Vec<Step>> {
    let sorted = graph.sorted()?;
    let place = |node: &usize| sorted.iter().position(|(name, _)| name == node);
    sorted
        .iter()
        .map(|(name, node)| {
            Ok(Step {
                node: *name,
                kind: node.work.kind(),
                after: node.after.iter().filter_map(place).collect(),
                op: node.work.op()?,
                enabled: true,
            })
        })
        .collect()
}
