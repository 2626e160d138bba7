//! Capturing the nodes that a graph holds already: its nodes stay, in their order and with their edges, and get new parameters.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Mutex, PoisonError};

use super::{Graph, Work};
use crate::errors::{Outcome, Status};
use crate::exec::op::Op;

/// Told each node whose parameters differ, with its work before and now; it may refuse.
pub(crate) type Changed = Box<dyn Fn(usize, &Work, &Work) -> Outcome + Send + Sync>;

/// How far a recapture has come.
pub(crate) struct Recapture {
    /// Nodes that have not been captured again, in the order they were made.
    left: Mutex<VecDeque<usize>>,
    changed: Changed,
}

impl Recapture {
    /// Of all nodes of a graph.
    pub(crate) fn new(graph: &Graph, changed: Changed) -> Recapture {
        let left = graph.nodes().keys().copied().collect();
        Recapture { left: Mutex::new(left), changed }
    }

    /// The next node gets this work. It has to be where the captured one is, and of its kind.
    pub(crate) fn next(&self, graph: &Graph, work: Work, after: &[usize]) -> Outcome<usize> {
        let next = self.left.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let node = next.ok_or(Status::GRAPH_RECAPTURE_FAILURE)?;
        let before = graph.nodes().get(&node).cloned().ok_or(Status::GRAPH_RECAPTURE_FAILURE)?;
        let after: BTreeSet<usize> = after.iter().copied().collect();
        if before.after != after || before.work.kind() != work.kind() || work.is_of_memory() {
            return Err(Status::GRAPH_RECAPTURE_FAILURE);
        }
        if !is_same(&before.work, &work) {
            (self.changed)(node, &before.work, &work).map_err(|_| Status::GRAPH_RECAPTURE_FAILURE)?;
        }
        if let Some(node) = graph.nodes().get_mut(&node) {
            node.work = work;
        }
        Ok(node)
    }

    /// True if all nodes were captured again.
    pub(crate) fn is_over(&self) -> bool {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

/// True if two works of one kind have the same parameters, as far as a program can tell.
fn is_same(one: &Work, other: &Work) -> bool {
    match (one, other) {
        (Work::Op(Op::Kernel(one)), Work::Op(Op::Kernel(other))) => one.is_like(other),
        (Work::Op(Op::Copy(one)), Work::Op(Op::Copy(other))) => format!("{one:?}") == format!("{other:?}"),
        (Work::Op(Op::Fill(one)), Work::Op(Op::Fill(other))) => format!("{one:?}") == format!("{other:?}"),
        (Work::Op(Op::Host(one)), Work::Op(Op::Host(other))) => {
            (one.function as usize, one.data) == (other.function as usize, other.data)
        }
        (Work::Op(Op::Empty), Work::Op(Op::Empty)) => true,
        _ => false,
    }
}
