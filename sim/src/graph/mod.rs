//! Graphs: operations with an order between them.
//!
//! A graph launched runs its nodes one after the other in an order that its edges allow; branches that
//! could run at the same time do not. All that a node needs is copied into it when it is made.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use self::user_object::UserObject;
use crate::errors::{Outcome, Status};
use crate::exec::op::{Op, Plan};
use crate::registry::Registry;

pub(crate) mod capture;
pub(crate) mod exec;
pub(crate) mod memory;
pub(crate) mod recapture;
pub(crate) mod user_object;

/// All graphs of the process.
pub(crate) struct Graphs {
    pub(crate) known: Registry<Graph>,
    pub(crate) nodes: Registry<NodeRef>,
}

impl Graphs {
    /// No graph yet; `kinds` keep the handles of graphs and nodes apart.
    pub(crate) fn new(kinds: [u8; 2]) -> Graphs {
        Graphs { known: Registry::new(kinds[0]), nodes: Registry::new(kinds[1]) }
    }
}

/// The work of a node.
#[derive(Clone)]
pub(crate) enum Work {
    Op(Op),
    /// A graph of its own, which the node owns.
    Child(Arc<Graph>),
}

/// One node.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) work: Work,
    /// The nodes it comes after.
    pub(crate) after: BTreeSet<usize>,
    /// `CUkernelNodeAttrID` values that the program set; they change nothing of a result.
    pub(crate) attributes: BTreeMap<u32, [u64; 8]>,
    /// If the graph is a clone: the node it was cloned from.
    origin: Option<usize>,
}

/// An instance of a graph has it as long as it lives.
pub(crate) struct Alive;

/// A graph. Its nodes are known by their handles, which grow with time.
#[derive(Default)]
pub(crate) struct Graph {
    pub(crate) handle: usize,
    /// Alive as long as its last instance: a graph with memory may have only one at a time.
    pub(crate) instance: Mutex<Weak<Alive>>,
    nodes: Mutex<BTreeMap<usize, Node>>,
    objects: Mutex<Vec<Arc<UserObject>>>,
}

/// The object behind a node's handle.
pub(crate) struct NodeRef {
    pub(crate) graph: Weak<Graph>,
}

impl Work {
    /// The driver's number for this kind of node.
    pub(crate) fn kind(&self) -> u32 {
        match self {
            Work::Op(Op::Kernel(_)) => 0,
            Work::Op(Op::Copy(_)) => 1,
            Work::Op(Op::Fill(_)) => 2,
            Work::Op(Op::Host(_)) => 3,
            Work::Child(_) | Work::Op(Op::Graph(_) | Op::Batch(_)) => 4,
            Work::Op(Op::Empty | Op::Stamp(_) | Op::Callback(_) | Op::Reach(..) | Op::Await(..)) => 5,
            Work::Op(Op::EventWait(_)) => 6,
            Work::Op(Op::EventRecord(_)) => 7,
            Work::Op(Op::Allocate(_) | Op::Begin(_)) => 10,
            Work::Op(Op::Free(_) | Op::Release(_) | Op::End(_)) => 11,
            Work::Op(Op::Words(_)) => 12,
        }
    }

    /// True if it allocates or frees memory: graphs with such nodes cannot be taken apart, copied or put into others.
    pub(crate) fn is_of_memory(&self) -> bool {
        matches!(self, Work::Op(Op::Allocate(_) | Op::Release(_)))
    }

    /// As one operation.
    fn op(&self) -> Outcome<Op> {
        Ok(match self {
            Work::Op(op) => op.clone(),
            Work::Child(graph) => Op::Graph(Arc::new(graph.plan()?)),
        })
    }
}

impl Graph {
    /// An empty graph with a handle.
    pub(crate) fn make(graphs: &Graphs) -> Arc<Graph> {
        let handle = graphs.known.draw();
        let graph = Arc::new(Graph { handle, ..Graph::default() });
        graphs.known.put(handle, graph.clone());
        graph
    }

    /// Adds a node after others of this graph.
    pub(crate) fn add(
        self: &Arc<Graph>,
        graphs: &Graphs,
        work: Work,
        after: impl IntoIterator<Item = usize>,
    ) -> Outcome<usize> {
        let after: BTreeSet<usize> = after.into_iter().collect();
        let mut nodes = self.nodes();
        if after.iter().any(|node| !nodes.contains_key(node)) {
            return Err(Status::INVALID_VALUE);
        }
        let handle = graphs.nodes.add(Arc::new(NodeRef { graph: Arc::downgrade(self) }));
        nodes.insert(handle, Node { work, after, attributes: BTreeMap::new(), origin: None });
        Ok(handle)
    }

    /// True if one of its nodes allocates or frees memory.
    pub(crate) fn has_memory(&self) -> bool {
        self.nodes().values().any(|node| node.work.is_of_memory())
    }

    /// Removes a node and its edges.
    pub(crate) fn remove(&self, graphs: &Graphs, node: usize) -> Outcome {
        if self.has_memory() {
            return Err(Status::NOT_SUPPORTED);
        }
        let mut nodes = self.nodes();
        nodes.remove(&node).ok_or(Status::INVALID_VALUE)?;
        for other in nodes.values_mut() {
            other.after.remove(&node);
        }
        graphs.nodes.remove(node).map(drop)
    }

    /// The nodes, to look at or change.
    pub(crate) fn nodes(&self) -> MutexGuard<'_, BTreeMap<usize, Node>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The program's objects that live as long as the graph.
    pub(crate) fn objects(&self) -> MutexGuard<'_, Vec<Arc<UserObject>>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds or removes edges.
    pub(crate) fn connect(&self, from: &[usize], to: &[usize], add: bool) -> Outcome {
        if !add && self.has_memory() {
            return Err(Status::NOT_SUPPORTED);
        }
        let mut nodes = self.nodes();
        let known = |nodes: &BTreeMap<usize, Node>| from.iter().chain(to).all(|node| nodes.contains_key(node));
        if !known(&nodes) {
            return Err(Status::INVALID_VALUE);
        }
        for (from, to) in from.iter().zip(to) {
            let after = nodes.get_mut(to).map(|node| &mut node.after);
            let changed = after.is_some_and(|after| if add { after.insert(*from) } else { after.remove(from) });
            if !changed || from == to {
                return Err(Status::INVALID_VALUE);
            }
        }
        Ok(())
    }

    /// All edges, from and to.
    pub(crate) fn edges(&self) -> Vec<(usize, usize)> {
        let nodes = self.nodes();
        let of = |(to, node): (&usize, &Node)| node.after.iter().map(|from| (*from, *to)).collect::<Vec<_>>();
        nodes.iter().flat_map(of).collect()
    }

    /// A copy with a handle of its own; graphs inside it are copied too.
    pub(crate) fn copy(&self, graphs: &Graphs) -> Arc<Graph> {
        let copy = Graph::make(graphs);
        let nodes = self.nodes();
        let mut names = BTreeMap::new();
        let mut copies = BTreeMap::new();
        for (node, what) in nodes.iter() {
            let name = graphs.nodes.add(Arc::new(NodeRef { graph: Arc::downgrade(&copy) }));
            names.insert(*node, name);
            let mut what = what.clone();
            what.origin = Some(*node);
            if let Work::Child(child) = &mut what.work {
                *child = child.copy(graphs);
            }
            copies.insert(name, what);
        }
        for what in copies.values_mut() {
            what.after = what.after.iter().filter_map(|node| names.get(node).copied()).collect();
        }
        *copy.nodes() = copies;
        copy.objects().extend(self.objects().iter().cloned());
        copy
    }

    /// The clone's node that stands for one of the original's.
    pub(crate) fn copy_of(&self, original: usize) -> Option<usize> {
        let nodes = self.nodes();
        nodes.iter().find(|(_, node)| node.origin == Some(original)).map(|(name, _)| *name)
    }

    /// The nodes in an order that the edges allow; fails if they go round in a circle.
    pub(crate) fn sorted(&self) -> Outcome<Vec<(usize, Node)>> {
        let mut waiting = self.nodes().clone();
        let mut done = BTreeSet::new();
        let mut sorted = Vec::with_capacity(waiting.len());
        while !waiting.is_empty() {
            let before = sorted.len();
            // Mostly nodes come after older ones, so that one pass is enough.
            waiting.retain(|name, node| {
                let ready = node.after.is_subset(&done);
                if ready {
                    done.insert(*name);
                    sorted.push((*name, node.clone()));
                }
                !ready
            });
            if sorted.len() == before {
                return Err(Status::INVALID_VALUE);
            }
        }
        Ok(sorted)
    }

    /// True if all of `nodes` come before, or are among, `tail`.
    pub(crate) fn all_lead_to(&self, nodes: &[usize], tail: &[usize]) -> bool {
        let all = self.nodes();
        let mut reached = BTreeSet::new();
        let mut open: Vec<usize> = tail.to_vec();
        while let Some(node) = open.pop() {
            if reached.insert(node) {
                open.extend(all.get(&node).into_iter().flat_map(|node| node.after.iter()));
            }
        }
        nodes.iter().all(|node| reached.contains(node))
    }

    /// The operations as they are now.
    fn plan(&self) -> Outcome<Plan> {
        let ops = self.sorted()?.iter().map(|(_, node)| node.work.op()).collect::<Outcome<_>>()?;
        Ok(Plan { ops })
    }

    /// Ends the graph's handle and its nodes'; the graph itself goes with its last use.
    pub(crate) fn forget(&self, graphs: &Graphs) -> Outcome {
        graphs.known.remove(self.handle)?;
        for (name, node) in self.nodes().iter() {
            if let Work::Child(child) = &node.work {
                child.forget(graphs)?;
            }
            graphs.nodes.remove(*name)?;
        }
        Ok(())
    }
}
