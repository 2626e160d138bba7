//! Tells which streams of the program come after which frees. Pure.
//!
//! A stream comes after its own frees, after those of a stream whose event it waits for, and after every free that the program has waited
//! for. No other order is assumed, such as a default stream's order with others.

use std::collections::{BTreeMap, HashMap};

/// Tells a stream from all earlier ones with the same handle: handles are reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct StreamNumber(pub(super) u64);

/// A free in a stream. Later ones have higher numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Free {
    pub(crate) stream: StreamNumber,
    pub(crate) number: u64,
}

/// The key of a stream: the context, if its handle means another stream in each, and the handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StreamKey {
    pub(crate) context: usize,
    pub(crate) handle: usize,
}

#[derive(Debug)]
struct Known<T> {
    what: T,
    /// The last free in it.
    last: u64,
    /// The last free that it has reached.
    settled: u64,
    /// The last frees of other streams that it has waited for.
    behind: BTreeMap<StreamNumber, u64>,
}

/// All streams. `T` is the data by which the driver is asked about a stream.
#[derive(Debug)]
pub(super) struct Order<T> {
    numbers: HashMap<StreamKey, StreamNumber>,
    known: BTreeMap<StreamNumber, Known<T>>,
    /// The frees before each event of the program's.
    events: HashMap<usize, Recorded>,
    /// Events that are being recorded: the number of threads that record them, and true if there was ever more than one meanwhile.
    recording: HashMap<usize, (u32, bool)>,
    records: u64,
    streams: u64,
    frees: u64,
}

/// The frees before an event, and the number of its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Recorded {
    record: u64,
    pub(super) frees: Vec<Free>,
}

impl<T> Default for Order<T> {
    fn default() -> Self {
        Self {
            numbers: HashMap::new(),
            known: BTreeMap::new(),
            events: HashMap::new(),
            recording: HashMap::new(),
            records: 0,
            streams: 0,
            frees: 0,
        }
    }
}

impl<T: Copy> Order<T> {
    /// The number of a stream, if it is known.
    pub(super) fn find(&self, key: StreamKey) -> Option<StreamNumber> {
        self.numbers.get(&key).copied()
    }

    /// Adds a stream that is used for the first time.
    pub(super) fn add(&mut self, key: StreamKey, what: T) -> StreamNumber {
        self.streams += 1;
        let number = StreamNumber(self.streams);
        self.numbers.insert(key, number);
        self.known.insert(number, Known { what, last: 0, settled: 0, behind: BTreeMap::new() });
        number
    }

    /// A stream's data for questions to the driver, and its last free.
    pub(super) fn last(&self, stream: StreamNumber) -> Option<(T, Free)> {
        let known = self.known.get(&stream)?;
        Some((known.what, Free { stream, number: known.last }))
    }

    /// The data and the last free of all streams.
    pub(super) fn all(&self) -> impl Iterator<Item = (T, Free)> {
        self.known.iter().map(|(stream, known)| (known.what, Free { stream: *stream, number: known.last }))
    }

    /// The number of frees so far.
    pub(super) fn now(&self) -> u64 {
        self.frees
    }

    /// Adds a free in a stream.
    pub(super) fn free(&mut self, stream: StreamNumber) -> Free {
        self.frees += 1;
        if let Some(known) = self.known.get_mut(&stream) {
            known.last = self.frees;
        }
        Free { stream, number: self.frees }
    }

    /// True if a stream comes after a free: its own, one that has been reached, or, if events count, one that it has waited for.
    pub(super) fn is_behind(&self, own: StreamNumber, free: &Free, by_events: bool) -> bool {
        let waited = || self.known.get(&own).and_then(|known| known.behind.get(&free.stream).copied()).unwrap_or(0);
        free.stream == own || self.is_settled(free) || (by_events && waited() >= free.number)
    }

    /// True if a stream is known to have reached a free.
    pub(super) fn is_settled(&self, free: &Free) -> bool {
        self.known.get(&free.stream).is_none_or(|known| known.settled >= free.number)
    }

    /// Records that a stream has reached a free.
    pub(super) fn settle(&mut self, upto: Free) {
        if let Some(known) = self.known.get_mut(&upto.stream) {
            known.settled = known.settled.max(upto.number);
        }
    }

    /// All streams with unsettled frees that fit.
    pub(super) fn unsettled(&self, fits: impl Fn(&T) -> bool) -> Vec<StreamNumber> {
        let all = self.known.iter().filter(|(_, known)| known.last > known.settled && fits(&known.what));
        all.map(|(stream, _)| *stream).collect()
    }

    /// Called before the program records an event in a stream: until it has, the event's order is unknown. Returns the frees before the
    /// event.
    pub(super) fn begin_record(&mut self, event: usize, stream: Option<StreamNumber>) -> Vec<Free> {
        self.events.remove(&event);
        let (threads, overlap) = self.recording.entry(event).or_default();
        *threads += 1;
        *overlap |= *threads > 1;
        let mut frees = Vec::new();
        if let Some((stream, known)) = stream.and_then(|stream| Some((stream, self.known.get(&stream)?))) {
            frees.push(Free { stream, number: known.last });
            frees.extend(known.behind.iter().map(|(stream, number)| Free { stream: *stream, number: *number }));
        }
        frees.retain(|free| !self.is_settled(free));
        frees
    }

    /// Called after the program has recorded the event, or not. If two threads record at once, the order of their records is unknown.
    pub(super) fn end_record(&mut self, event: usize, frees: Vec<Free>, is_recorded: bool) {
        let Some((threads, overlap)) = self.recording.get_mut(&event) else { return };
        *threads -= 1;
        let (threads, overlap) = (*threads, *overlap);
        if threads == 0 {
            self.recording.remove(&event);
        }
        if is_recorded && !overlap && !frees.is_empty() {
            self.records += 1;
            self.events.insert(event, Recorded { record: self.records, frees });
        }
    }

    /// The frees before an event.
    pub(super) fn recorded(&self, event: usize) -> Option<Recorded> {
        self.events.get(&event).cloned()
    }

    /// The frees before an event, if it was not recorded again since.
    pub(super) fn still(&self, event: usize, recorded: Recorded) -> Vec<Free> {
        let is_same = self.events.get(&event).is_some_and(|now| now.record == recorded.record);
        if is_same { recorded.frees } else { Vec::new() }
    }

    /// Makes a stream come after these frees.
    pub(super) fn wait(&mut self, stream: StreamNumber, frees: &[Free]) {
        let Some(known) = self.known.get_mut(&stream) else { return };
        for free in frees {
            let number = known.behind.entry(free.stream).or_default();
            *number = free.number.max(*number);
        }
    }

    /// Forgets a destroyed event.
    pub(super) fn forget_event(&mut self, event: usize) {
        self.events.remove(&event);
    }

    /// Forgets a destroyed stream; its handle may be reused.
    pub(super) fn forget(&mut self, key: StreamKey) -> Option<StreamNumber> {
        self.numbers.remove(&key)
    }

    /// Forgets destroyed streams with no unsettled frees.
    pub(super) fn sweep(&mut self) {
        let known: std::collections::HashSet<StreamNumber> = self.numbers.values().copied().collect();
        self.known.retain(|stream, stream_known| known.contains(stream) || stream_known.last > stream_known.settled);
        let settled: HashMap<StreamNumber, u64> =
            self.known.iter().map(|(stream, known)| (*stream, known.settled)).collect();
        for known in self.known.values_mut() {
            known.behind.retain(|stream, number| settled.get(stream).is_some_and(|settled| settled < number));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(handle: usize) -> StreamKey {
        StreamKey { context: 0, handle }
    }

    fn record(order: &mut Order<()>, event: usize, stream: StreamNumber) {
        let frees = order.begin_record(event, Some(stream));
        order.end_record(event, frees, true);
    }

    fn wait(order: &mut Order<()>, stream: StreamNumber, event: usize) {
        if let Some(recorded) = order.recorded(event) {
            let frees = order.still(event, recorded);
            order.wait(stream, &frees);
        }
    }

    #[test]
    fn an_event_that_is_recorded_again_meanwhile_tells_nothing() {
        let mut order: Order<()> = Order::default();
        let [a, b] = [1, 2].map(|handle| order.add(key(handle), ()));
        order.free(a);
        record(&mut order, 10, a);
        let before = order.recorded(10).expect("it was recorded");
        order.free(a);
        let first = order.begin_record(10, Some(a));
        assert!(order.recorded(10).is_none(), "while it is recorded nobody knows");
        let second = order.begin_record(10, Some(b));
        order.end_record(10, first, true);
        order.end_record(10, second, true);
        assert!(order.recorded(10).is_none(), "nor if two did so at once");
        record(&mut order, 10, a);
        assert!(order.still(10, before).is_empty());
    }

    #[test]
    fn a_stream_is_behind_what_it_has_waited_for() {
        let mut order: Order<()> = Order::default();
        let [a, b, c] = [1, 2, 3].map(|handle| order.add(key(handle), ()));
        let first = order.free(a);
        record(&mut order, 10, a);
        let second = order.free(a);
        wait(&mut order, b, 10);
        assert!(order.is_behind(a, &second, false) && order.is_behind(b, &first, true));
        assert!(!order.is_behind(b, &first, false), "if events do not count");
        assert!(!order.is_behind(b, &second, true) && !order.is_behind(c, &first, true));
        record(&mut order, 11, b);
        wait(&mut order, c, 11);
        assert!(order.is_behind(c, &first, true), "by way of another");
        assert_eq!(order.recorded(11).map(|recorded| recorded.frees), Some(vec![Free { stream: a, number: 1 }]));
    }

    #[test]
    fn what_is_settled_is_behind_everybody() {
        let mut order: Order<()> = Order::default();
        let [a, b] = [1, 2].map(|handle| order.add(key(handle), ()));
        let [first, second] = [order.free(a), order.free(a)];
        order.settle(first);
        assert!(order.is_behind(b, &first, false) && !order.is_behind(b, &second, false));
        assert_eq!(order.unsettled(|()| true), [a]);
        order.settle(second);
        record(&mut order, 10, a);
        assert!(order.recorded(10).is_none() && order.unsettled(|()| true).is_empty());
    }

    #[test]
    fn a_handle_that_is_given_again_is_another_stream() {
        let mut order: Order<()> = Order::default();
        let old = order.add(key(1), ());
        let free = order.free(old);
        assert_eq!(order.forget(key(1)), Some(old));
        assert_eq!(order.find(key(1)), None);
        let new = order.add(key(1), ());
        order.sweep();
        assert!(!order.is_behind(new, &free, true), "its work may still run");
        order.settle(free);
        order.sweep();
        assert!(order.is_behind(new, &free, false) && order.last(old).is_none());
    }
}
