//! Captures: calls that become nodes of a graph.

use std::collections::BTreeMap;

use super::graphs::{Graph, GraphNode, NodeWork};
use super::streams::{Key, Named};
use super::threads::{Changes, Looks, Resource};
use super::work::{addresses_in, named_by};
use super::{Done, Model, Skip, only_if, vacant};
use crate::generated::program::To;
use crate::generated::script::{Call, Id, On, Stream, Work};

/// Nodes of a capture at most.
const MOST: usize = 60;
const GLOBAL: u8 = 0;
const RELAXED: u8 = 2;

/// A capture that goes on.
#[derive(Clone, Debug)]
pub(super) struct Capture {
    pub(super) thread: usize,
    pub(super) mode: u8,
    context: Id,
    origin: Key,
    /// Of each stream that takes part: the nodes that the next one comes after.
    tails: BTreeMap<Key, Vec<usize>>,
    nodes: Vec<Node>,
}

#[derive(Clone, Debug)]
struct Node {
    work: Work,
    /// All nodes that come before, as bits.
    before: u64,
}

impl Capture {
    fn before(&self, tail: &[usize]) -> u64 {
        tail.iter().fold(0, |before, node| before | self.nodes[*node].before | 1 << node)
    }
}

impl Model {
    pub(super) fn begin_capture(&mut self, to: To, mode: u8) -> Done {
        let named = self.named(to)?;
        let stream = self.stream(named.key).clone();
        only_if(!matches!(named.key, Key::Legacy(_)) && stream.capture.is_none() && mode <= RELAXED)?;
        let number = self.new_id() as usize;
        let mut accesses = self.stream_accesses(named.key);
        accesses.extend([(Resource::CapturesIn(stream.context), Changes), (Resource::Capture(number), Changes)]);
        if mode == GLOBAL {
            accesses.push((Resource::GlobalCapture, Changes));
        }
        self.call(stream.context, Call::BeginCapture { on: named.on, mode: mode.into() }, &accesses)?;
        self.stream_mut(named.key).capture = Some(number);
        let (thread, context, origin) = (self.me, stream.context, named.key);
        let tails = BTreeMap::from([(origin, Vec::new())]);
        self.captures.insert(number, Capture { thread, mode, context, origin, tails, nodes: Vec::new() });
        Ok(())
    }

    /// Work in a captured stream.
    pub(super) fn capture_work(&mut self, named: Named, work: Work, number: usize) -> Done {
        let touches = named_by(&work);
        let capture = &self.captures[&number];
        only_if(capture.nodes.len() < MOST)?;
        let before = capture.before(&capture.tails[&named.key]);
        for (node, other) in capture.nodes.iter().enumerate().filter(|(node, _)| before & 1 << node == 0) {
            let others = named_by(&other.work);
            let conflicts = touches.writes.iter().any(|name| others.all().any(|other| other == name))
                || others.writes.iter().any(|name| touches.reads.contains(name));
            // Rows that a table names are not known before the launch.
            let reaches = |work: &Work| matches!(work, Work::Gather { .. } | Work::Scatter { .. } | Work::Chase { .. });
            only_if(!conflicts && !reaches(&work) && !reaches(&capture.nodes[node].work))?;
        }
        let mut accesses = self.stream_accesses(named.key);
        accesses.push((Resource::Capture(number), Changes));
        for name in touches.all() {
            self.memory(*name)?;
            accesses.push(super::memory::access(*name, false));
        }
        accesses.extend(addresses_in(&work));
        let context = self.stream(named.key).context;
        self.call(context, Call::Submit { on: named.on, work: work.clone(), times: 1 }, &accesses)?;
        let capture = self.captures.get_mut(&number).expect("looked at above");
        capture.tails.insert(named.key, vec![capture.nodes.len()]);
        capture.nodes.push(Node { work, before });
        Ok(())
    }

    /// An event is recorded in a captured stream; behind which nodes.
    pub(super) fn record_captured(&mut self, named: Named, call: Call, event: Id, number: usize) -> Done<Vec<usize>> {
        let mut accesses = self.stream_accesses(named.key);
        accesses.extend([(Resource::Event(event), Changes), (Resource::Capture(number), Changes)]);
        self.call(self.stream(named.key).context, call, &accesses)?;
        Ok(self.captures[&number].tails[&named.key].clone())
    }

    /// A stream waits for an event of a capture, which brings it into the capture.
    pub(super) fn join_capture(&mut self, named: Named, call: Call, event: Id, number: usize, nodes: &[usize]) -> Done {
        only_if(self.captures.contains_key(&number))?;
        let stream = self.stream(named.key).clone();
        match stream.capture {
            Some(other) => only_if(other == number)?,
            // The thread that ends the capture has to be able to name it.
            None => only_if(matches!(named.key, Key::Made(_)))?,
        }
        let mut accesses = self.stream_accesses(named.key);
        accesses.extend([(Resource::Event(event), Looks), (Resource::Capture(number), Changes)]);
        self.call(stream.context, call, &accesses)?;
        self.stream_mut(named.key).capture = Some(number);
        let capture = self.captures.get_mut(&number).expect("looked at above");
        let tail = capture.tails.entry(named.key).or_default();
        tail.extend(nodes);
        tail.sort_unstable();
        tail.dedup();
        Ok(())
    }

    pub(super) fn end_capture(&mut self, to: To, slot: u8) -> Done {
        let named = self.named(to)?;
        vacant(&self.graphs, slot)?;
        let number = self.stream(named.key).capture.ok_or(Skip)?;
        let graph = self.end(named, number)?;
        self.graphs[slot as usize] = Some(graph);
        Ok(())
    }

    /// Ends a capture in the stream in which it began; its graph.
    fn end(&mut self, named: Named, number: usize) -> Done<Graph> {
        let capture = self.captures[&number].clone();
        only_if(capture.origin == named.key && (capture.mode == RELAXED || capture.thread == self.me))?;
        let context = capture.context;
        for key in capture.tails.keys().copied().filter(|key| *key != named.key) {
            let Key::Made(id) = key else { return Err(Skip) };
            let on = On { stream: Stream::Made(id), twin: false };
            let event = self.new_id();
            let mut accesses = self.stream_accesses(key);
            accesses.push((Resource::Capture(number), Changes));
            self.call(context, Call::EventCreate { event }, &[])?;
            self.call(context, Call::EventRecord { event, on }, &accesses)?;
            self.call(context, Call::EventWait { on: named.on, event }, &self.stream_accesses(named.key))?;
            self.call(context, Call::EventDestroy { event }, &[])?;
        }
        let id = self.new_id();
        let mut accesses: Vec<_> = capture.tails.keys().flat_map(|key| self.stream_accesses(*key)).collect();
        accesses.extend([
            (Resource::CapturesIn(context), Changes),
            (Resource::Capture(number), Changes),
            (Resource::Graph(id), Changes),
        ]);
        if capture.mode == GLOBAL {
            accesses.push((Resource::GlobalCapture, Changes));
        }
        self.call(context, Call::EndCapture { on: named.on, graph: id }, &accesses)?;
        for key in capture.tails.keys() {
            self.stream_mut(*key).capture = None;
        }
        self.captures.remove(&number);
        let is_chain = capture.tails.len() == 1;
        let nodes = capture.nodes.into_iter().map(|node| GraphNode { name: None, work: NodeWork::Work(node.work) });
        Ok(Graph { id, context, is_chain, nodes: nodes.collect() })
    }

    /// Ends all captures, by the threads that began them.
    pub(super) fn end_captures(&mut self) -> Done {
        while let Some((number, capture)) = self.captures.first_key_value() {
            let (number, key) = (*number, capture.origin);
            self.me = capture.thread;
            let named = self.name_of(self.stream(key).timeline)?;
            self.end(named, number)?;
        }
        Ok(())
    }
}
