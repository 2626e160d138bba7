//! Graphs, what is made ready to run of them, and how that is changed.

use super::memory::Accesses;
use super::streams::Key;
use super::threads::{Access, Changes, Looks, Resource};
use super::work::{Contents, Touches, addresses_in, named_by};
use super::{Done, Model, Skip, held, only_if, vacant};
use crate::generated::program::{Kind, Spot, To};
use crate::generated::script::{Buf, Call, Id, Work};

/// A graph.
#[derive(Clone, Debug)]
pub(super) struct Graph {
    pub(super) id: Id,
    pub(super) context: Id,
    /// True if each node comes after the one before.
    pub(super) is_chain: bool,
    pub(super) nodes: Vec<GraphNode>,
}

/// A node, by its name if it has one: those of captures have none.
#[derive(Clone, Debug)]
pub(super) struct GraphNode {
    pub(super) name: Option<Id>,
    pub(super) work: NodeWork,
}

#[derive(Clone, Debug)]
pub(super) enum NodeWork {
    Work(Work),
    Child(Vec<NodeWork>),
}

/// A graph that is ready to run.
#[derive(Clone, Debug)]
pub(super) struct Exec {
    id: Id,
    context: Id,
    /// The graph that it was made from.
    graph: Id,
    is_chain: bool,
    nodes: Vec<ExecNode>,
    /// Its launches.
    launches: Accesses,
}

#[derive(Clone, Debug)]
struct ExecNode {
    name: Option<Id>,
    work: NodeWork,
    enabled: bool,
}

impl Exec {
    pub(super) fn is_of(&self, context: Id) -> bool {
        self.context == context
    }
}

impl NodeWork {
    /// All that it names.
    fn touches(&self) -> Touches {
        match self {
            Self::Work(work) => named_by(work),
            Self::Child(nodes) => nodes.iter().fold(Touches::default(), |mut all, node| {
                all.add(node.touches());
                all
            }),
        }
    }

    /// True if a node may be given this instead: the same kind of work on the same kinds of memory.
    fn can_become(&self, other: &Self) -> bool {
        let is_host = |name: &Buf| matches!(name, Buf::Host(_));
        match (self, other) {
            // Those are several nodes.
            (Self::Work(Work::Scratch { .. } | Work::Words { .. }), _) => false,
            (
                Self::Work(Work::Copy { to, from, by, .. }),
                Self::Work(Work::Copy { to: to2, from: from2, by: by2, .. }),
            ) => is_host(to) == is_host(to2) && is_host(from) == is_host(from2) && by.is_one() && by2.is_one(),
            // One of rows keeps its shape.
            (
                Self::Work(Work::Fill { element, in_rows: false, .. }),
                Self::Work(Work::Fill { element: other, in_rows: false, .. }),
            ) => element == other,
            (Self::Work(Work::Fill { .. }), Self::Work(Work::Fill { .. })) => false,
            (Self::Work(work), Self::Work(other)) => std::mem::discriminant(work) == std::mem::discriminant(other),
            (Self::Child(nodes), Self::Child(others)) => {
                nodes.len() == others.len() && nodes.iter().zip(others).all(|(node, other)| node.can_become(other))
            }
            _ => false,
        }
    }
}

impl Graph {
    /// True if it allocates memory: then there is one instance of it at most, and it is part of no other.
    fn allocates(&self) -> bool {
        self.nodes.iter().any(|node| matches!(node.work, NodeWork::Work(Work::Scratch { .. })))
    }
}

impl Model {
    /// That all that these nodes name is there.
    fn all_there<'a>(&self, nodes: impl Iterator<Item = &'a NodeWork>) -> Done<Vec<(Resource, Access)>> {
        let mut accesses = Vec::new();
        for node in nodes {
            for name in node.touches().all() {
                self.memory(*name)?;
                accesses.push(super::memory::access(*name, false));
            }
            if let NodeWork::Work(work) = node {
                accesses.extend(addresses_in(work));
            }
        }
        Ok(accesses)
    }

    pub(super) fn build(&mut self, slot: u8, child: Option<u8>, kinds: &[Kind]) -> Done {
        vacant(&self.graphs, slot)?;
        only_if(!kinds.is_empty())?;
        let context = self.context_of(kinds[0])?;
        let id = self.new_id();
        let mut nodes: Vec<GraphNode> = Vec::new();
        self.call(context, Call::GraphCreate { graph: id }, &[(Resource::Graph(id), Changes)])?;
        if let Some(child) = child {
            only_if(!held(&self.graphs, child)?.allocates())?;
            let Graph { id: child, context: its, nodes: its_nodes, .. } = held(&self.graphs, child)?.clone();
            let works: Vec<NodeWork> = its_nodes.into_iter().map(|node| node.work).collect();
            only_if(its == context && works.iter().all(|work| matches!(work, NodeWork::Work(_))))?;
            let mut accesses = self.all_there(works.iter())?;
            accesses.extend([(Resource::Graph(id), Changes), (Resource::Graph(child), Looks)]);
            let node = self.new_id();
            self.call(context, Call::GraphAddChild { graph: id, node, after: Vec::new(), child }, &accesses)?;
            nodes.push(GraphNode { name: Some(node), work: NodeWork::Child(works) });
        }
        for kind in kinds {
            let work = self.resolve(*kind, context)?;
            let after = nodes.last().and_then(|node| node.name).into_iter().collect();
            let node = self.new_id();
            let mut accesses = self.all_there([&NodeWork::Work(work.clone())].into_iter())?;
            accesses.push((Resource::Graph(id), Changes));
            self.call(context, Call::GraphAdd { graph: id, node, after, work: work.clone() }, &accesses)?;
            nodes.push(GraphNode { name: Some(node), work: NodeWork::Work(work) });
        }
        self.graphs[slot as usize] = Some(Graph { id, context, is_chain: true, nodes });
        Ok(())
    }

    fn context_of(&self, kind: Kind) -> Done<Id> {
        let spot = match kind {
            Kind::Hash { out, .. } | Kind::Sum { out, .. } | Kind::Add { out, .. } | Kind::Gather { out, .. } => out,
            Kind::Fill { out, .. } | Kind::HostFunction { out, .. } | Kind::WriteWord { out, .. } => out,
            Kind::Scratch { out, .. } | Kind::Words { out, .. } | Kind::Scatter { from: out, .. } => out,
            Kind::Link { out, .. } | Kind::Chase { out, .. } => out,
            Kind::Axpy { y, .. } => y,
            Kind::Copy { to, .. } => to,
        };
        let name = match spot {
            Spot::Mem(slot) => Buf::Mem(*held(&self.mems, slot)?),
            Spot::Host(slot) => Buf::Host(*held(&self.hosts, slot)?),
        };
        Ok(self.memory(name)?.context)
    }

    pub(super) fn graph_clone(&mut self, slot: u8, from: u8) -> Done {
        vacant(&self.graphs, slot)?;
        let graph = held(&self.graphs, from)?.clone();
        only_if(!graph.allocates())?;
        let Graph { id: from, context, is_chain, mut nodes } = graph;
        let mut accesses = self.all_there(nodes.iter().map(|node| &node.work))?;
        let id = self.new_id();
        accesses.extend([(Resource::Graph(from), Looks), (Resource::Graph(id), Changes)]);
        self.call(context, Call::GraphClone { graph: id, from }, &accesses)?;
        // Its nodes are others.
        nodes.iter_mut().for_each(|node| node.name = None);
        self.graphs[slot as usize] = Some(Graph { id, context, is_chain, nodes });
        Ok(())
    }

    pub(super) fn graph_destroy(&mut self, slot: u8) -> Done {
        let graph = held(&self.graphs, slot)?;
        let Graph { id, context, .. } = *graph;
        only_if(!graph.allocates() || !self.has_instance(id))?;
        self.call(context, Call::GraphDestroy { graph: id }, &[(Resource::Graph(id), Changes)])?;
        self.graphs[slot as usize] = None;
        Ok(())
    }

    fn has_instance(&self, graph: Id) -> bool {
        self.execs.iter().flatten().any(|exec| exec.graph == graph)
    }

    pub(super) fn instantiate(&mut self, slot: u8, graph: u8) -> Done {
        vacant(&self.execs, slot)?;
        let held_graph = held(&self.graphs, graph)?;
        let allocates = held_graph.allocates();
        only_if(!allocates || !self.has_instance(held_graph.id))?;
        let Graph { id: graph, context, is_chain, nodes } = held(&self.graphs, graph)?.clone();
        let mut accesses = self.all_there(nodes.iter().map(|node| &node.work))?;
        let id = self.new_id();
        accesses.extend(self.unsafe_call()?);
        // One that allocates has one instance at a time: the next comes after the end of the last.
        let access = if allocates { Changes } else { Looks };
        accesses.extend([(Resource::Graph(graph), access), (Resource::Exec(id), Changes)]);
        self.call(context, Call::Instantiate { exec: id, graph }, &accesses)?;
        let nodes = nodes.into_iter().map(|GraphNode { name, work }| ExecNode { name, work, enabled: true });
        let (nodes, launches) = (nodes.collect(), Accesses::default());
        self.execs[slot as usize] = Some(Exec { id, context, graph, is_chain, nodes, launches });
        Ok(())
    }

    pub(super) fn exec_destroy(&mut self, slot: u8) -> Done {
        let exec = held(&self.execs, slot)?.clone();
        let missing: Vec<usize> = exec.launches.missing(&self.threads[self.me].ended, true).collect();
        for timeline in missing {
            self.wait_for(timeline)?;
        }
        only_if(exec.launches.missing(&self.threads[self.me].ended, true).next().is_none())?;
        let mut accesses = vec![(Resource::Exec(exec.id), Changes)];
        let is_its = |graph: &&Graph| graph.id == exec.graph && graph.allocates();
        accesses.extend(self.graphs.iter().flatten().find(is_its).map(|graph| (Resource::Graph(graph.id), Changes)));
        self.call(exec.context, Call::ExecDestroy { exec: exec.id }, &accesses)?;
        self.execs[slot as usize] = None;
        Ok(())
    }

    /// A change of an instance, of which the graph it was made from is needed if a node of that is named.
    fn change(&mut self, exec: &Exec, call: Call, mut accesses: Vec<(Resource, Access)>, by_node: bool) -> Done {
        if by_node {
            let is_there = |graph: &Option<Graph>| graph.as_ref().is_some_and(|graph| graph.id == exec.graph);
            only_if(self.graphs.iter().any(is_there))?;
            accesses.push((Resource::Graph(exec.graph), Looks));
        }
        accesses.push((Resource::Exec(exec.id), Changes));
        self.call(exec.context, call, &accesses)
    }

    pub(super) fn exec_update(&mut self, slot: u8, graph: u8) -> Done {
        let exec = held(&self.execs, slot)?.clone();
        let graph = held(&self.graphs, graph)?.clone();
        only_if(exec.is_chain && graph.is_chain && exec.context == graph.context)?;
        only_if(exec.nodes.len() == graph.nodes.len() && exec.nodes.iter().all(|node| node.enabled))?;
        only_if(exec.nodes.iter().zip(&graph.nodes).all(|(old, new)| old.work.can_become(&new.work)))?;
        let mut accesses = self.all_there(graph.nodes.iter().map(|node| &node.work))?;
        accesses.push((Resource::Graph(graph.id), Looks));
        self.change(&exec, Call::ExecUpdate { exec: exec.id, graph: graph.id }, accesses, false)?;
        let nodes = &mut self.execs[slot as usize].as_mut().expect("held").nodes;
        for (old, new) in nodes.iter_mut().zip(graph.nodes) {
            old.work = new.work;
        }
        Ok(())
    }

    pub(super) fn exec_set(&mut self, slot: u8, node: u8, kind: Kind) -> Done {
        let exec = held(&self.execs, slot)?.clone();
        let index = node as usize % exec.nodes.len().max(1);
        let node = exec.nodes.get(index).ok_or(Skip)?;
        let name = node.name.ok_or(Skip)?;
        let work = self.resolve(kind, exec.context)?;
        only_if(!matches!(work, Work::HostFunction { .. } | Work::WriteWord { .. }))?;
        only_if(node.work.can_become(&NodeWork::Work(work.clone())))?;
        let accesses = self.all_there([&NodeWork::Work(work.clone())].into_iter())?;
        self.change(&exec, Call::ExecSet { exec: exec.id, node: name, work: work.clone() }, accesses, true)?;
        self.execs[slot as usize].as_mut().expect("held").nodes[index].work = NodeWork::Work(work);
        Ok(())
    }

    pub(super) fn exec_set_child(&mut self, slot: u8, graph: u8) -> Done {
        let exec = held(&self.execs, slot)?.clone();
        let graph = held(&self.graphs, graph)?.clone();
        let is_child = |node: &ExecNode| matches!(node.work, NodeWork::Child(_));
        let index = exec.nodes.iter().position(is_child).ok_or(Skip)?;
        let name = exec.nodes[index].name.ok_or(Skip)?;
        let child = NodeWork::Child(graph.nodes.iter().map(|node| node.work.clone()).collect());
        only_if(graph.is_chain && graph.context == exec.context && exec.nodes[index].work.can_become(&child))?;
        let mut accesses = self.all_there([&child].into_iter())?;
        accesses.push((Resource::Graph(graph.id), Looks));
        self.change(&exec, Call::ExecSetChild { exec: exec.id, node: name, child: graph.id }, accesses, true)?;
        self.execs[slot as usize].as_mut().expect("held").nodes[index].work = child;
        Ok(())
    }

    pub(super) fn exec_enable(&mut self, slot: u8, node: u8, enabled: bool) -> Done {
        let exec = held(&self.execs, slot)?.clone();
        let index = node as usize % exec.nodes.len().max(1);
        let node = exec.nodes.get(index).ok_or(Skip)?;
        let name = node.name.ok_or(Skip)?;
        let NodeWork::Work(work) = &node.work else { return Err(Skip) };
        let stays = match work {
            Work::HostFunction { .. } | Work::WriteWord { .. } | Work::Scratch { .. } | Work::Words { .. } => true,
            Work::Copy { by, .. } => !by.is_one(),
            _ => false,
        };
        only_if(!stays && node.enabled != enabled)?;
        // The memory that it names has to be there when it is enabled again.
        let accesses = if enabled { self.all_there([&node.work].into_iter())? } else { Vec::new() };
        self.change(&exec, Call::ExecEnable { exec: exec.id, node: name, enabled }, accesses, true)?;
        self.execs[slot as usize].as_mut().expect("held").nodes[index].enabled = enabled;
        Ok(())
    }

    fn effects_of(&self, node: &NodeWork, contents: &mut Contents) -> Done<Touches> {
        match node {
            NodeWork::Work(work) => self.effects(work, contents),
            NodeWork::Child(nodes) => {
                let mut all = Touches::default();
                for node in nodes {
                    all.add(self.effects_of(node, contents)?);
                }
                Ok(all)
            }
        }
    }

    pub(super) fn upload(&mut self, slot: u8, to: To) -> Done {
        let named = self.named(to)?;
        let mut exec = held(&self.execs, slot)?.clone();
        only_if(self.stream(named.key).context == exec.context && self.captures.is_empty())?;
        let is_its = |graph: &&Graph| graph.id == exec.graph;
        only_if(!self.graphs.iter().flatten().find(is_its).is_none_or(Graph::allocates))?;
        let accesses = self.all_there(exec.nodes.iter().map(|node| &node.work))?;
        let accesses = [&accesses[..], &self.unsafe_call()?, &[(Resource::Exec(exec.id), Changes)]].concat();
        let call = Call::Upload { exec: exec.id, on: named.on };
        self.submit(named, call, &[], &[], Some(&mut exec.launches), &accesses)?;
        self.execs[slot as usize] = Some(exec);
        Ok(())
    }

    pub(super) fn launch(&mut self, slot: u8, to: To) -> Done {
        let named = self.named(to)?;
        let mut exec = held(&self.execs, slot)?.clone();
        only_if(self.stream(named.key).context == exec.context)?;
        only_if(!matches!(named.key, Key::Legacy(_)) || self.captures.is_empty())?;
        let mut contents = Contents::new();
        let mut touches = Touches::default();
        for node in exec.nodes.iter().filter(|node| node.enabled) {
            touches.add(self.effects_of(&node.work, &mut contents)?);
        }
        for names in [&mut touches.reads, &mut touches.writes] {
            names.sort_unstable();
            names.dedup();
        }
        touches.reads.retain(|name| !touches.writes.contains(name));
        let call = Call::Launch { exec: exec.id, on: named.on };
        let accesses = [(Resource::Exec(exec.id), Changes)];
        self.submit(named, call, &touches.reads, &touches.writes, Some(&mut exec.launches), &accesses)?;
        self.put(contents);
        self.execs[slot as usize] = Some(exec);
        Ok(())
    }
}
