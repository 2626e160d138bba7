//! Work in streams: its reads and writes, and its place after all work that it conflicts with.

use std::collections::{BTreeMap, BTreeSet};

use super::clock::Point;
use super::memory::{Accesses, Content, Name, access};
use super::streams::{Key, Named};
use super::threads::{Access, Looks, Resource};
use super::{Done, Model, Skip, only_if};
use crate::generated::program::{Kind, Spot, To};
use crate::generated::script::{Buf, Call, CopyBy, HostKind, Id, ROW_BYTES, Wide, WordsBy, Work, row_offset};

/// Bytes up to which work is done many times.
const SMALL: u32 = 256 << 10;
/// Launches of a program, at most: a stream's queue has room for a thousand.
const MOST_LAUNCHES: u32 = 700;
/// Words that are allocated for some work alone, at most.
const MOST_SCRATCH_WORDS: u32 = 300_000;
/// Words of a row that a table names.
const ROW_WORDS: u32 = ROW_BYTES / 4;
/// Nodes of a chain that are followed.
const HOPS: u32 = 8;

/// Bytes of a copy that is cut in odd places, at least.
const LEAST_CUT: u32 = 256;

/// The contents of memory after some work.
pub(super) type Contents = BTreeMap<Name, Content>;

/// The memory that work reads and writes.
#[derive(Debug, Default)]
pub(super) struct Touches {
    pub(super) reads: Vec<Name>,
    pub(super) writes: Vec<Name>,
}

impl Touches {
    pub(super) fn add(&mut self, other: Self) {
        self.reads.extend(other.reads);
        self.writes.extend(other.writes);
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Name> {
        self.reads.iter().chain(&self.writes)
    }
}

/// The memory that the parameters of some work name.
pub(super) fn named_by(work: &Work) -> Touches {
    let touches = |reads: &[Name], writes: &[Name]| Touches { reads: reads.to_vec(), writes: writes.to_vec() };
    match work {
        Work::Hash { out, .. } | Work::Fill { out, .. } | Work::HostFunction { out, .. } => touches(&[], &[*out]),
        Work::WriteWord { out, .. } | Work::Scratch { out, .. } | Work::Words { out, .. } => touches(&[], &[*out]),
        Work::Scatter { table, from, .. } => touches(&[*table, *from], &[]),
        Work::Sum { out, from, .. } | Work::Chase { out, from, .. } => touches(&[*from], &[*out]),
        Work::Axpy { y, x, .. } => touches(&[*x], &[*y]),
        Work::Add { out, a, b, .. } => touches(&[*a, *b], &[*out]),
        Work::Gather { out, table, .. } => touches(&[*table], &[*out]),
        Work::Copy { to, from, .. } => touches(&[*from], &[*to]),
    }
}

/// The allocations whose addresses some work has to be given: they have been made before.
pub(super) fn addresses_in(work: &Work) -> impl Iterator<Item = (Resource, Access)> {
    let mems: &[Id] = match work {
        Work::Words { words: Wide::Addresses(mems), .. } => mems,
        Work::Words { words: Wide::Node(Some(next), _), .. } => std::slice::from_ref(next),
        _ => &[],
    };
    mems.iter().map(|mem| (Resource::Mem(*mem), Looks))
}

impl Model {
    /// Makes work of a kind, for the memory that is in these slots now.
    pub(super) fn resolve(&self, kind: Kind, context: Id) -> Done<Work> {
        let at = |spot: Spot| self.spot(spot, context);
        // Memory that kernels and stream operations reach.
        let reached = |spot: Spot| {
            let name = at(spot)?;
            only_if(self.memory(name)?.kind != Some(HostKind::Pageable))?;
            Ok(name)
        };
        let words = |names: &[Name]| -> Done<u32> {
            let bytes = names.iter().map(|name| Ok(self.memory(*name)?.bytes)).collect::<Done<Vec<u32>>>()?;
            let words = bytes.into_iter().min().ok_or(Skip)? / 4;
            only_if(words > 0)?;
            Ok(words)
        };
        Ok(match kind {
            Kind::Hash { out, seed } => {
                let out = reached(out)?;
                Work::Hash { out, seed: seed.into(), words: words(&[out])? }
            }
            Kind::Sum { out, from } => {
                let (out, from) = (reached(out)?, reached(from)?);
                // A sum has 8 bytes.
                only_if(out != from && self.memory(out)?.bytes >= 8)?;
                Work::Sum { out, from, words: words(&[from])? }
            }
            Kind::Axpy { y, x } => {
                let (y, x) = (reached(y)?, reached(x)?);
                only_if(y != x)?;
                Work::Axpy { y, x, words: words(&[y, x])? }
            }
            Kind::Add { out, a, b } => {
                let (out, a, b) = (reached(out)?, reached(a)?, reached(b)?);
                only_if(out != a && out != b)?;
                Work::Add { out, a, b, words: words(&[out, a, b])? }
            }
            Kind::Gather { out, table } => {
                let (out, table) = (reached(out)?, reached(table)?);
                let Content::Table(rows) = &self.memory(table)?.content else { return Err(Skip) };
                let rows = (rows.len() as u32).min(words(&[out])? / ROW_WORDS);
                Work::Gather { out, table, rows, words: ROW_WORDS }
            }
            Kind::Fill { out, value, element } => {
                let (out, in_rows, element) = (reached(out)?, element / 3 % 2 == 1, 1 << (element % 3));
                only_if(matches!(out, Buf::Mem(_)) && self.memory(out)?.bytes >= element)?;
                let count = self.memory(out)?.bytes / element;
                Work::Fill { out, value: value.into(), element, count, in_rows: in_rows && count.is_multiple_of(4) }
            }
            Kind::Copy { to: target, from: source, by } => {
                let (to, from) = (at(target)?, at(source)?);
                only_if(by != CopyBy::FromHost || matches!(to, Buf::Mem(_)))?;
                only_if(by != CopyBy::Peer || matches!((to, from), (Buf::Mem(_), Buf::Mem(_))))?;
                only_if(!self.is_managed(to) && !self.is_managed(from))?;
                only_if(to != from && (matches!(to, Buf::Mem(_)) || matches!(from, Buf::Mem(_))))?;
                let bytes = words(&[to, from])? * 4;
                if !by.is_one() {
                    reached(match matches!(to, Buf::Host(_)) {
                        true => target,
                        false => source,
                    })?;
                    only_if(bytes >= LEAST_CUT)?;
                }
                Work::Copy { to, from, bytes, by }
            }
            Kind::HostFunction { out, seed } => {
                let out = at(out)?;
                only_if(matches!(out, Buf::Host(_)))?;
                Work::HostFunction { out, seed: seed.into(), words: words(&[out])? }
            }
            Kind::Scratch { out, seed } => {
                let out = at(out)?;
                only_if(matches!(out, Buf::Mem(_)) && self.is_of_first_gpu(context))?;
                Work::Scratch { out, seed: seed.into(), words: words(&[out])?.min(MOST_SCRATCH_WORDS) }
            }
            Kind::WriteWord { out, value } => {
                let out = reached(out)?;
                words(&[out])?;
                // The driver takes no word of a pool's memory.
                only_if(self.memory(out)?.pool.is_none() && !self.is_managed(out))?;
                Work::WriteWord { out, value: value.into() }
            }
            Kind::Scatter { table, from } => {
                let (table, from) = (reached(table)?, reached(from)?);
                let Content::Table(rows) = &self.memory(table)?.content else { return Err(Skip) };
                let rows = (rows.len() as u32).min(words(&[from])? / ROW_WORDS);
                only_if(rows > 0)?;
                Work::Scatter { table, from, rows, words: ROW_WORDS }
            }
            Kind::Words { out, rows, seed, by } => {
                let out = reached(out)?;
                let mems = self.rows(rows, context, Some(out));
                let words = if mems.is_empty() { Wide::Data(seed.into(), 3) } else { Wide::Addresses(mems) };
                self.words(out, words, by)?
            }
            Kind::Link { out, next, seed, by } => {
                let (out, next) = (reached(out)?, next.map(|next| at(Spot::Mem(next))).transpose()?);
                let next = match next {
                    Some(Buf::Mem(next)) => Some(next),
                    _ => None,
                };
                self.words(out, Wide::Node(next, seed.into()), by)?
            }
            Kind::Chase { out, from } => {
                let (out, from) = (reached(out)?, reached(from)?);
                only_if(out != from && self.memory(out)?.bytes >= 8)?;
                Work::Chase { out, from, hops: HOPS }
            }
        })
    }

    /// The work that writes words of 64 bits in a way, if it can.
    fn words(&self, out: Name, words: Wide, by: WordsBy) -> Done<Work> {
        let memory = self.memory(out)?;
        only_if(match by {
            WordsBy::HostFunction => matches!(out, Buf::Host(_)),
            WordsBy::Fill(unit) => matches!(out, Buf::Mem(_)) && [1, 2, 4].contains(&unit),
            WordsBy::Wide | WordsBy::Halves | WordsBy::Batch => memory.pool.is_none() && !self.is_managed(out),
        })?;
        only_if(words.count() * 8 <= memory.bytes)?;
        Ok(Work::Words { out, words, by })
    }

    fn is_managed(&self, name: Name) -> bool {
        self.memory(name).is_ok_and(|memory| memory.kind == Some(HostKind::Managed))
    }

    /// The memory that some work touches, given its contents by then; leaves the contents after it.
    pub(super) fn effects(&self, work: &Work, contents: &mut Contents) -> Done<Touches> {
        let mut touches = named_by(work);
        for name in touches.all() {
            self.memory(*name)?;
        }
        let content = |name: &Name, contents: &Contents| -> Done<Content> {
            Ok(contents.get(name).unwrap_or(&self.memory(*name)?.content).clone())
        };
        let is_data = |name: &Name, contents: &Contents| only_if(content(name, contents)? == Content::Data);
        match work {
            // Of these, all is written.
            Work::Hash { out, .. } | Work::Fill { out, .. } | Work::HostFunction { out, .. } => {
                contents.insert(*out, Content::Data);
            }
            Work::Gather { out, table, rows, .. } => {
                is_data(out, contents)?;
                let Content::Table(named) = content(table, contents)? else { return Err(Skip) };
                only_if(*rows > 0 && *rows as usize <= named.len())?;
                // Addresses at the beginning of the first row are then at the beginning of `out`.
                let first = Buf::Mem(named[0]);
                let held = content(&first, contents)?;
                only_if(held == Content::Data || row_offset(named[0], self.memory(first)?.bytes) == 0)?;
                for row in &named[..*rows as usize] {
                    let row = Buf::Mem(*row);
                    only_if(row != *out && self.memory(row)?.context == self.memory(*out)?.context)?;
                    only_if(held != Content::Data || content(&row, contents)? == Content::Data)?;
                    touches.reads.push(row);
                }
                contents.insert(*out, held);
            }
            Work::Chase { out, from, hops } => {
                is_data(out, contents)?;
                let mut at = Some(*from);
                for _ in 0..*hops {
                    let Some(node) = at else { break };
                    let Content::Node(next) = content(&node, contents)? else { return Err(Skip) };
                    only_if(node != *out && self.memory(node)?.context == self.memory(*out)?.context)?;
                    touches.reads.push(node);
                    at = next.map(Buf::Mem);
                }
            }
            Work::Scatter { table, from, rows, .. } => {
                is_data(from, contents)?;
                let Content::Table(named) = content(table, contents)? else { return Err(Skip) };
                only_if(*rows > 0 && *rows as usize <= named.len())?;
                for row in &named[..*rows as usize] {
                    let row = Buf::Mem(*row);
                    only_if(row != *from && row != *table)?;
                    only_if(self.memory(row)?.context == self.memory(*from)?.context)?;
                    is_data(&row, contents)?;
                    touches.writes.push(row);
                }
            }
            Work::Words { out, words: Wide::Addresses(mems), .. } => {
                contents.insert(*out, Content::Table(mems.clone()));
            }
            Work::Words { out, words: Wide::Node(next, _), .. } => {
                contents.insert(*out, Content::Node(*next));
            }
            Work::Copy { to, from, bytes, .. } => match content(from, contents)? {
                Content::Data => is_data(to, contents)?,
                held => {
                    let words = if let Content::Table(rows) = &held { rows.len() } else { 2 };
                    only_if(*bytes as usize >= words * 8)?;
                    contents.insert(*to, held);
                }
            },
            _ => {
                for name in touches.all() {
                    is_data(name, contents)?;
                }
            }
        }
        Ok(touches)
    }

    /// Puts work into a stream behind whatever it conflicts with; where it is. `own`: something else that it comes after and
    /// is noted in.
    pub(super) fn submit(
        &mut self,
        named: Named,
        call: Call,
        reads: &[Name],
        writes: &[Name],
        own: Option<&mut Accesses>,
        more: &[(Resource, Access)],
    ) -> Done<Point> {
        let missing = |model: &Self, own: Option<&Accesses>| -> Done<BTreeSet<usize>> {
            let before = model.before(named.key).must;
            let mut missing: BTreeSet<usize> =
                own.into_iter().flat_map(|accesses| accesses.missing(&before, true)).collect();
            for (names, write) in [(reads, false), (writes, true)] {
                for name in names {
                    missing.extend(model.memory(*name)?.accesses.missing(&before, write));
                }
            }
            Ok(missing)
        };
        for timeline in missing(self, own.as_deref())? {
            let from = self.name_of(timeline)?;
            self.wait_across(from, named)?;
        }
        only_if(missing(self, own.as_deref())?.is_empty())?;
        let mut accesses = more.to_vec();
        accesses.extend(reads.iter().map(|name| access(*name, false)));
        accesses.extend(writes.iter().map(|name| access(*name, true)));
        let point = self.enqueue(named.key, call, &accesses, None)?;
        for (names, write) in [(reads, false), (writes, true)] {
            for name in names {
                self.memory.get_mut(name).ok_or(Skip)?.accesses.add(point, write);
            }
        }
        if let Some(own) = own {
            own.add(point, true);
        }
        Ok(point)
    }

    pub(super) fn put(&mut self, contents: Contents) {
        for (name, content) in contents {
            self.set_content(name, content);
        }
    }

    /// Tells whether some work copies from or to pageable memory: (from, to).
    fn pageable(&self, work: &Work) -> (bool, bool) {
        let is_pageable = |name| self.memory(name).is_ok_and(|memory| memory.kind == Some(HostKind::Pageable));
        match work {
            Work::Copy { to, from, .. } => (is_pageable(*from), is_pageable(*to)),
            _ => (false, false),
        }
    }

    pub(super) fn work(&mut self, to: To, kind: Kind, times: u8) -> Done {
        let named = self.named(to)?;
        let work = self.resolve(kind, self.stream(named.key).context)?;
        if let Work::Copy { by: CopyBy::Batch | CopyBy::Peer, .. } = work {
            // The driver takes those in no capture, and several copies at once in no default stream.
            only_if(matches!(named.key, Key::Made(_)) && self.stream(named.key).capture.is_none())?;
        }
        if let Some(capture) = self.stream(named.key).capture {
            return self.capture_work(named, work, capture);
        }
        let (from_pageable, to_pageable) = self.pageable(&work);
        let waits = from_pageable || to_pageable;
        let large = named_by(&work).all().any(|name| self.memory(*name).is_ok_and(|memory| memory.bytes > SMALL));
        let is_several = match &work {
            Work::Scratch { .. } | Work::Words { .. } => true,
            Work::Copy { by, .. } => !by.is_one(),
            _ => false,
        };
        let times = if waits || large || is_several { 1 } else { u32::from(times).max(1) };
        self.launches += times;
        only_if(self.launches <= MOST_LAUNCHES)?;
        self.submit_work(named, Call::Submit { on: named.on, work: work.clone(), times }, &work)?;
        if waits { self.wait_for_last(named, to_pageable) } else { Ok(()) }
    }

    fn submit_work(&mut self, named: Named, call: Call, work: &Work) -> Done {
        let mut contents = Contents::new();
        let mut touches = self.effects(work, &mut contents)?;
        let (from_pageable, to_pageable) = self.pageable(work);
        let mut more = if from_pageable || to_pageable || matches!(call, Call::SubmitAndWait { .. }) {
            self.unsafe_call()?
        } else {
            Vec::new()
        };
        if let Work::Scratch { words, .. } = work {
            more.extend(self.unsafe_call()?);
            more.extend(self.scratch(named, 4 * *words)?);
        }
        more.extend(addresses_in(work));
        if from_pageable {
            // It has been read when the call returns. The next write to it comes after that.
            let hosts: Vec<Name> = touches.reads.iter().copied().filter(|name| matches!(name, Buf::Host(_))).collect();
            touches.reads.retain(|name| !hosts.contains(name));
            let more: Vec<_> = more.into_iter().chain(hosts.iter().map(|name| access(*name, false))).collect();
            // The device's writes to it have to have ended, not only to come before.
            for name in hosts {
                let ended = &self.threads[self.me].ended;
                only_if(self.memory(name)?.accesses.missing(ended, false).next().is_none())?;
            }
            self.submit(named, call, &touches.reads, &touches.writes, None, &more)?;
        } else {
            self.submit(named, call, &touches.reads, &touches.writes, None, &more)?;
        }
        self.put(contents);
        Ok(())
    }

    pub(super) fn work_and_wait(&mut self, kind: Kind, twin: bool) -> Done {
        let spots = match kind {
            Kind::Copy { to, from, .. } => [to, from],
            Kind::Fill { out, .. } => [out, out],
            _ => return Err(Skip),
        };
        let of = |spot: Spot| match spot {
            Spot::Mem(slot) => self.mems.get(slot as usize).copied().flatten().map(Buf::Mem),
            Spot::Host(slot) => self.hosts.get(slot as usize).copied().flatten().map(Buf::Host),
        };
        let context = self.memory(of(spots[0]).ok_or(Skip)?)?.context;
        let named = self.default_stream(context, twin)?;
        let work = self.resolve(kind, context)?;
        only_if(!matches!(work, Work::Copy { by: CopyBy::FromHost, from: Buf::Mem(_), .. }))?;
        only_if(!matches!(work, Work::Copy { by, .. } if !by.is_one()))?;
        only_if(!matches!(work, Work::Copy { by: CopyBy::Batch | CopyBy::Peer, .. }))?;
        self.submit_work(named, Call::SubmitAndWait { work: work.clone(), twin }, &work)?;
        let to_host = matches!(work, Work::Copy { to: Buf::Host(_), .. });
        self.wait_for_last(named, to_host)
    }
}
