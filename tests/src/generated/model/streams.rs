//! Contexts, streams and events: the order of their work, and its waits.

use super::clock::{Before, Clock, Point};
use super::threads::{Access, Changes, Looks, Resource, Wait, Waits};
use super::{Done, Model, Skip, held, only_if, vacant};
use crate::generated::program::{FIRST_DEVICE_FLAG, To, Where};
use crate::generated::script::{Call, Flag, Id, On, Stream, WaitBy};

/// A stream that work can be put into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Made(Id),
    Legacy(Id),
    PerThread(usize, Id),
}

/// A stream's name for a call, and which one that is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named {
    pub(super) key: Key,
    pub(super) on: On,
}

/// A stream.
#[derive(Clone, Debug)]
pub(super) struct StreamState {
    pub(super) timeline: usize,
    pub(super) context: Id,
    /// True if it is in order with the legacy stream, and not that one.
    pub(super) blocking: bool,
    /// The work that comes before the next work of this stream.
    pub(super) before: Before,
    pub(super) capture: Option<usize>,
}

/// The work of a stream that there is or was.
#[derive(Clone, Debug)]
pub(super) struct Timeline {
    pub(super) context: Id,
    blocking: bool,
    pub(super) key: Option<Key>,
    pub(super) count: u32,
    /// Of a stream that was destroyed: the work that may still be going on there.
    pub(super) left: Clock,
}

/// An event.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) id: Id,
    pub(super) context: Id,
    pub(super) last: Recorded,
}

/// The work behind which an event was last recorded.
#[derive(Clone, Debug)]
pub(super) enum Recorded {
    Never,
    Behind(Before),
    /// A capture, and nodes of it.
    Captured(usize, Vec<usize>),
}

impl Model {
    /// Makes a context the thread's current one.
    pub(super) fn enter(&mut self, context: Id) -> Done {
        if self.threads[self.me].current != Some(context) {
            self.step(Call::SetCurrent { context }, &[(Resource::Context(context), Looks)])?;
            self.threads[self.me].current = Some(context);
        }
        Ok(())
    }

    /// A call in a context.
    pub(super) fn call(&mut self, context: Id, call: Call, accesses: &[(Resource, Access)]) -> Done {
        self.enter(context)?;
        let mut accesses = accesses.to_vec();
        accesses.push((Resource::Context(context), Looks));
        self.step(call, &accesses)
    }

    /// The resources with which a call that may wait for the device conflicts; refused while a capture forbids it.
    pub(super) fn unsafe_call(&self) -> Done<Vec<(Resource, Access)>> {
        const RELAXED: u8 = 2;
        const GLOBAL: u8 = 0;
        let mode = self.threads[self.me].mode;
        let forbids = |capture: &super::Capture| match capture.mode {
            _ if mode == RELAXED => false,
            RELAXED => false,
            GLOBAL => mode == GLOBAL || capture.thread == self.me,
            _ => capture.thread == self.me,
        };
        only_if(!self.captures.values().any(forbids))?;
        let minds = mode == GLOBAL;
        Ok(if minds { vec![(Resource::GlobalCapture, Looks)] } else { Vec::new() })
    }

    /// The stream that is meant, if the thread can reach it.
    pub(super) fn named(&mut self, to: To) -> Done<Named> {
        let context = |slot| held(&self.contexts, slot).copied();
        let (key, stream) = match to.stream {
            Where::Made(slot) => {
                let id = *held(&self.made, slot)?;
                (Key::Made(id), Stream::Made(id))
            }
            Where::Legacy(slot) => (Key::Legacy(context(slot)?), Stream::Legacy),
            Where::PerThread(slot) => (Key::PerThread(self.me, context(slot)?), Stream::PerThread),
        };
        if let Key::Legacy(context) | Key::PerThread(_, context) = key
            && !self.streams.contains_key(&key)
        {
            self.add_stream(key, context, matches!(key, Key::PerThread(..)));
        }
        Ok(Named { key, on: On { stream, twin: to.twin } })
    }

    pub(super) fn stream(&self, key: Key) -> &StreamState {
        &self.streams[&key]
    }

    pub(super) fn stream_mut(&mut self, key: Key) -> &mut StreamState {
        self.streams.get_mut(&key).expect("a stream that was named")
    }

    fn add_stream(&mut self, key: Key, context: Id, blocking: bool) {
        let timeline = self.timelines.len();
        self.timelines.push(Timeline { context, blocking, key: Some(key), count: 0, left: Clock::default() });
        self.streams.insert(key, StreamState { timeline, context, blocking, before: Before::default(), capture: None });
    }

    /// The stream that a timeline is of, as this thread names it.
    pub(super) fn name_of(&self, timeline: usize) -> Done<Named> {
        let key = self.timelines[timeline].key.ok_or(Skip)?;
        let stream = match key {
            Key::Made(id) => Stream::Made(id),
            Key::Legacy(_) => Stream::Legacy,
            Key::PerThread(thread, _) => {
                only_if(thread == self.me)?;
                Stream::PerThread
            }
        };
        Ok(Named { key, on: On { stream, twin: stream == Stream::PerThread } })
    }

    /// The work that comes before something that this thread puts into a stream now.
    pub(super) fn before(&self, key: Key) -> Before {
        let stream = self.stream(key);
        let mut before = stream.before.clone();
        let ended = &self.threads[self.me].ended;
        before.must.join(ended);
        before.may.join(ended);
        if let Key::Legacy(context) = key {
            for other in self.streams.values().filter(|other| other.context == context && other.blocking) {
                before.join(&other.before);
            }
            for gone in self.timelines.iter().filter(|line| line.context == context && line.blocking) {
                before.may.join(&gone.left);
            }
        } else if stream.blocking
            && let Some(legacy) = self.streams.get(&Key::Legacy(stream.context))
        {
            before.join(&legacy.before);
        }
        before
    }

    /// The order in which streams are used by several threads.
    pub(super) fn stream_accesses(&self, key: Key) -> Vec<(Resource, Access)> {
        let stream = self.stream(key);
        let mut accesses = vec![(Resource::Stream(stream.timeline), Changes)];
        match key {
            Key::Legacy(context) => accesses.push((Resource::LegacyOrder(context), Changes)),
            _ if stream.blocking => accesses.push((Resource::LegacyOrder(stream.context), Looks)),
            _ => {}
        }
        accesses
    }

    /// Tells whether a stream takes work: it is not captured, and the legacy stream is in no capture's way.
    fn takes_work(&self, key: Key) -> Done {
        only_if(self.stream(key).capture.is_none())?;
        if let Key::Legacy(context) = key {
            let in_the_way =
                |other: &StreamState| other.context == context && other.blocking && other.capture.is_some();
            only_if(!self.streams.values().any(in_the_way))?;
        }
        Ok(())
    }

    /// Puts something into a stream, behind `more` too; where it is.
    pub(super) fn enqueue(
        &mut self,
        key: Key,
        call: Call,
        accesses: &[(Resource, Access)],
        more: Option<&Before>,
    ) -> Done<Point> {
        self.takes_work(key)?;
        let mut before = self.before(key);
        if let Call::EventWait { .. } = call {
            // If the event has happened, or was never recorded, nothing is put into the stream. Then a thread that waits for the stream
            // does not wait for the streams that its work is behind.
            before.must = self.stream(key).before.must.clone();
            before.must.join(&self.threads[self.me].ended);
        }
        if let Some(more) = more {
            before.join(more);
        }
        let mut all = self.stream_accesses(key);
        all.extend_from_slice(accesses);
        let behind = if let Call::WaitFlag { .. } = call { self.steps_that_waited_for_all() } else { Vec::new() };
        let context = self.stream(key).context;
        self.enter(context)?;
        all.push((Resource::Context(context), Looks));
        self.step_after(call, &all, &behind)?;
        let line = &mut self.timelines[self.streams[&key].timeline];
        line.count += 1;
        let point = (self.streams[&key].timeline, line.count);
        before.add(point);
        self.stream_mut(key).before = before;
        Ok(point)
    }

    /// Lets a stream go on only behind all that is in another one now.
    pub(super) fn wait_across(&mut self, from: Named, to: Named) -> Done {
        let context = self.stream(from.key).context;
        let event = self.new_id();
        self.call(context, Call::EventCreate { event }, &[])?;
        self.enqueue(from.key, Call::EventRecord { event, on: from.on }, &[], None)?;
        let recorded = self.stream(from.key).before.clone();
        self.enqueue(to.key, Call::EventWait { on: to.on, event }, &[], Some(&recorded))?;
        self.call(context, Call::EventDestroy { event }, &[])
    }

    pub(super) fn stream_create(&mut self, slot: u8, context: u8, non_blocking: bool) -> Done {
        vacant(&self.made, slot)?;
        let context = *held(&self.contexts, context)?;
        let stream = self.new_id();
        self.add_stream(Key::Made(stream), context, !non_blocking);
        let timeline = self.stream(Key::Made(stream)).timeline;
        self.call(context, Call::StreamCreate { stream, non_blocking }, &[(Resource::Stream(timeline), Changes)])?;
        self.made[slot as usize] = Some(stream);
        Ok(())
    }

    pub(super) fn stream_destroy(&mut self, slot: u8) -> Done {
        let stream = *held(&self.made, slot)?;
        let state = self.stream(Key::Made(stream)).clone();
        only_if(state.capture.is_none())?;
        let accesses = self.stream_accesses(Key::Made(stream));
        self.call(state.context, Call::StreamDestroy { stream }, &accesses)?;
        self.timelines[state.timeline].key = None;
        self.timelines[state.timeline].left = state.before.may;
        self.streams.remove(&Key::Made(stream));
        self.made[slot as usize] = None;
        Ok(())
    }

    pub(super) fn stream_synchronize(&mut self, to: To) -> Done {
        let named = self.named(to)?;
        self.synchronize(named)
    }

    fn synchronize(&mut self, named: Named) -> Done {
        let accesses = self.unsafe_call()?;
        let call = Call::StreamSynchronize { on: named.on };
        if let Key::Legacy(_) = named.key {
            // It is behind all blocking streams.
            self.enqueue(named.key, call, &accesses, None)?;
        } else {
            self.takes_work(named.key)?;
            let timeline = self.stream(named.key).timeline;
            let accesses = [&accesses[..], &[(Resource::Stream(timeline), Looks)]].concat();
            self.call(self.stream(named.key).context, call, &accesses)?;
        }
        let Before { must, may } = self.stream(named.key).before.clone();
        self.block(self.pending(&may), must, Waits::ForSome)
    }

    /// Waits for a stream in which nothing waits for a flag.
    pub(super) fn wait_for(&mut self, timeline: usize) -> Done {
        let named = self.name_of(timeline)?;
        only_if(self.pending(&self.before(named.key).may).is_empty())?;
        self.synchronize(named)
    }

    /// Asked only where the answer is certain.
    pub(super) fn stream_query(&mut self, to: To) -> Done {
        let named = self.named(to)?;
        only_if(!matches!(named.key, Key::Legacy(_)))?;
        self.takes_work(named.key)?;
        let state = self.stream(named.key).clone();
        let is_over = self.threads[self.me].ended.covers((state.timeline, self.timelines[state.timeline].count));
        let accesses = self.certain(&state.before.must, is_over)?;
        let accesses = [&accesses[..], &[(Resource::Stream(state.timeline), Looks)]].concat();
        self.call(state.context, Call::StreamQuery { on: named.on }, &accesses)
    }

    /// The accesses that keep certain whether this has ended.
    fn certain(&self, before: &Clock, is_over: bool) -> Done<Vec<(Resource, Access)>> {
        let mut accesses = self.unsafe_call()?;
        let waits = self.pending(before);
        only_if(is_over || !waits.is_empty())?;
        accesses.extend(waits.iter().map(|wait| (Resource::Flag(self.waits[*wait].flag), Looks)));
        Ok(accesses)
    }

    pub(super) fn event_create(&mut self, slot: u8, context: u8) -> Done {
        vacant(&self.events, slot)?;
        let context = *held(&self.contexts, context)?;
        let id = self.new_id();
        self.call(context, Call::EventCreate { event: id }, &[(Resource::Event(id), Changes)])?;
        self.events[slot as usize] = Some(Event { id, context, last: Recorded::Never });
        Ok(())
    }

    pub(super) fn event_destroy(&mut self, slot: u8) -> Done {
        let Event { id, context, .. } = *held(&self.events, slot)?;
        self.call(context, Call::EventDestroy { event: id }, &[(Resource::Event(id), Changes)])?;
        self.events[slot as usize] = None;
        Ok(())
    }

    pub(super) fn event_record(&mut self, slot: u8, to: To) -> Done {
        let named = self.named(to)?;
        let Event { id, context, .. } = *held(&self.events, slot)?;
        only_if(self.stream(named.key).context == context)?;
        let call = Call::EventRecord { event: id, on: named.on };
        let last = if let Some(capture) = self.stream(named.key).capture {
            Recorded::Captured(capture, self.record_captured(named, call, id, capture)?)
        } else {
            self.enqueue(named.key, call, &[(Resource::Event(id), Changes)], None)?;
            Recorded::Behind(self.stream(named.key).before.clone())
        };
        self.events[slot as usize].as_mut().expect("looked at above").last = last;
        Ok(())
    }

    pub(super) fn event_wait(&mut self, to: To, slot: u8) -> Done {
        let named = self.named(to)?;
        let Event { id, context, last } = held(&self.events, slot)?.clone();
        only_if(self.stream(named.key).context == context)?;
        let call = Call::EventWait { on: named.on, event: id };
        match last {
            Recorded::Captured(capture, nodes) => self.join_capture(named, call, id, capture, &nodes),
            Recorded::Never => self.enqueue(named.key, call, &[(Resource::Event(id), Looks)], None).map(drop),
            Recorded::Behind(before) => {
                self.enqueue(named.key, call, &[(Resource::Event(id), Looks)], Some(&before)).map(drop)
            }
        }
    }

    pub(super) fn event_synchronize(&mut self, slot: u8) -> Done {
        let Event { id, context, last } = held(&self.events, slot)?.clone();
        let Recorded::Behind(Before { must, may }) = last else { return Err(Skip) };
        let accesses = [&self.unsafe_call()?[..], &[(Resource::Event(id), Looks)]].concat();
        self.call(context, Call::EventSynchronize { event: id }, &accesses)?;
        self.block(self.pending(&may), must, Waits::ForSome)
    }

    pub(super) fn event_query(&mut self, slot: u8) -> Done {
        let Event { id, context, last } = held(&self.events, slot)?.clone();
        let Recorded::Behind(Before { must, .. }) = last else { return Err(Skip) };
        let is_over = must.is_covered_by(&self.threads[self.me].ended);
        let accesses = [&self.certain(&must, is_over)?[..], &[(Resource::Event(id), Looks)]].concat();
        self.call(context, Call::EventQuery { event: id }, &accesses)
    }

    pub(super) fn wait(&mut self, to: To, slot: u8, by: WaitBy) -> Done {
        let named = self.named(to)?;
        let (flag, call) = self.wait_call(named, slot, by)?;
        let point = self.enqueue(named.key, call, &[(Resource::Flag(flag), Looks)], None)?;
        self.begin_wait(Wait { point, flag, released: false });
        Ok(())
    }

    /// The call by which a stream waits for the next release of a flag.
    pub(super) fn wait_call(&self, named: Named, slot: u8, by: WaitBy) -> Done<(Flag, Call)> {
        let value = *self.flags.get(slot as usize).ok_or(Skip)? + 1;
        let (flag, context) = (self.flag(slot), self.stream(named.key).context);
        // Flags in device memory are the primary context's, and neither host functions nor other GPUs see them. The two
        // others also write memory of the primary context.
        let is_plain = matches!(by, WaitBy::Value | WaitBy::Wide);
        only_if(matches!(flag, Flag::Host(_)) || (context == 0 && is_plain))?;
        only_if(!matches!(by, WaitBy::Kernel | WaitBy::Batch) || self.is_of_first_gpu(context))?;
        Ok((flag, Call::WaitFlag { on: named.on, flag, value, by }))
    }

    pub(super) fn flag(&self, slot: u8) -> Flag {
        if slot < FIRST_DEVICE_FLAG { Flag::Host(slot.into()) } else { Flag::Device((slot - FIRST_DEVICE_FLAG).into()) }
    }

    pub(super) fn release(&mut self, slot: u8) -> Done {
        let flag = self.flag(slot);
        only_if(self.waits.iter().any(|wait| wait.flag == flag && !wait.released))?;
        self.write_what_is_late(flag)?;
        let value = self.flags[slot as usize] + 1;
        self.step(Call::Release { flag, value }, &[(Resource::Flag(flag), Changes)])?;
        self.flags[slot as usize] = value;
        self.end_waits(flag);
        Ok(())
    }
}
