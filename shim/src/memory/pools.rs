//! Pools: memory that the program allocates and frees in its streams' order. Pure.
//!
//! The driver makes the pools and keeps their settings; the memory allocated from them is ours, so that it moves. A pool has as much
//! memory as the driver's would have (`bench/results/rules.json`): it grows by [`STEP`], and gives back unused memory, down to its
//! threshold, when the program waits for something.

use core::ffi::c_int;
use core::ops::Range;
use std::collections::{BTreeMap, HashMap};

use super::order::{Free, Order, Recorded, StreamKey, StreamNumber};
pub(crate) use super::room::{ALIGNMENT, STEP};
use super::room::{Growth, Part, Room, is_behind_frees, ranges};

/// Tells a pool from all earlier ones with the same handle: handles are reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PoolNumber(u64);

#[cfg(test)]
impl PoolNumber {
    pub(super) fn for_tests(number: u64) -> Self {
        Self(number)
    }
}

/// `CUmemPool_attribute` (cuda.h).
pub(crate) mod attribute {
    use core::ffi::c_int;

    pub(crate) const FOLLOW_EVENTS: c_int = 1;
    pub(crate) const OPPORTUNISTIC: c_int = 2;
    pub(crate) const INTERNAL: c_int = 3;
    pub(crate) const THRESHOLD: c_int = 4;
    pub(crate) const RESERVED: c_int = 5;
    pub(crate) const RESERVED_HIGH: c_int = 6;
    pub(crate) const USED: c_int = 7;
    pub(crate) const USED_HIGH: c_int = 8;
}

/// The settings of a pool that the program can change: the driver has them, and this is a copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// The reuse of memory that other streams have freed: behind events that the allocating stream waits for, once the free is reached,
    /// and with a wait that is put into the allocating stream.
    pub(crate) follow_events: bool,
    pub(crate) opportunistic: bool,
    pub(crate) internal: bool,
    /// Bytes of unused memory that it keeps.
    pub(crate) threshold: u64,
}

impl Settings {
    /// Changes one of the settings.
    fn set(&mut self, attribute: c_int, value: u64) {
        match attribute {
            attribute::FOLLOW_EVENTS => self.follow_events = value != 0,
            attribute::OPPORTUNISTIC => self.opportunistic = value != 0,
            attribute::INTERNAL => self.internal = value != 0,
            attribute::THRESHOLD => self.threshold = value,
            _ => {}
        }
    }
}

/// The present and the highest amount, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Amount {
    current: u64,
    high: u64,
}

impl Amount {
    fn add(&mut self, bytes: u64) {
        self.current += bytes;
        self.high = self.high.max(self.current);
    }
}

#[derive(Debug)]
struct Pool {
    /// The most memory that it may have.
    most: u64,
    settings: Settings,
    reserved: Amount,
    /// A growth is on its way.
    is_growing: bool,
    used: Amount,
    room: Room,
    /// The first stream that has allocated from it or freed into it; and true if there were others.
    first: Option<StreamNumber>,
    has_many: bool,
    /// The program has destroyed it: it goes with its last allocation.
    destroyed: bool,
}

impl Pool {
    fn used_by(&mut self, stream: StreamNumber) {
        self.has_many |= self.first.get_or_insert(stream) != &stream;
    }

    /// Takes out unused steps, down to `keep` bytes.
    fn shrink(&mut self, keep: u64) -> Vec<Range<u64>> {
        let most = self.reserved.current.saturating_sub(keep) / STEP;
        let mut steps = self.room.take_idle(most as usize);
        self.reserved.current -= STEP * steps.len() as u64;
        steps.sort_unstable();
        ranges(&steps)
    }

    /// Takes out unused steps above the threshold, after the program has waited for something.
    fn tidy(&mut self) -> Vec<Range<u64>> {
        self.shrink(if self.destroyed { 0 } else { self.settings.threshold })
    }
}

/// Memory that was taken from a pool.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) at: u64,
    /// The frees that its stream has to wait for first.
    pub(crate) after: Vec<Free>,
    pool: PoolNumber,
    parts: Vec<Part>,
    asked: u64,
}

/// The way in which a pool can get more memory.
#[derive(Debug)]
pub(crate) enum More {
    /// With this growth, which has to come or be undone.
    Grows(Growing),
    /// With more addresses.
    Lacks,
    /// Perhaps: a growth is on its way, and a pool has only one at a time.
    Coming,
    /// Not at all: it has reached its limit.
    Full,
}

/// Memory that is on its way to a pool.
#[derive(Debug)]
pub(crate) struct Growing {
    pool: PoolNumber,
    growth: Growth,
}

impl Taken {
    /// True if some of it was freed in a stream that may have yet to reach the free: then it is not free for all streams as soon as the
    /// program gives it up.
    pub(crate) fn is_behind_frees(&self) -> bool {
        is_behind_frees(&self.parts)
    }
}

impl Growing {
    /// True if some of it was freed in a stream that may have yet to reach the free.
    pub(crate) fn is_behind_frees(&self) -> bool {
        self.growth.is_behind_frees()
    }

    /// The ranges that have to come.
    pub(crate) fn ranges(&self) -> Vec<Range<u64>> {
        self.growth.ranges()
    }
}

/// All pools of the process, and the streams that use them. `T` is the data by which the driver is asked about a stream.
#[derive(Debug)]
pub(crate) struct Pools<T> {
    all: BTreeMap<PoolNumber, Pool>,
    by_handle: HashMap<usize, PoolNumber>,
    order: Order<T>,
    numbers: u64,
}

impl<T> Default for Pools<T> {
    fn default() -> Self {
        Self { all: BTreeMap::new(), by_handle: HashMap::new(), order: Order::default(), numbers: 0 }
    }
}

impl<T: Copy> Pools<T> {
    /// Adds a pool, which may have up to `most` bytes.
    pub(crate) fn add(&mut self, handle: usize, most: u64, settings: Settings) -> PoolNumber {
        self.numbers += 1;
        let number = PoolNumber(self.numbers);
        let (reserved, used, room) = Default::default();
        let most = most.checked_next_multiple_of(STEP).unwrap_or(u64::MAX);
        let (first, has_many, destroyed) = (None, false, false);
        self.all.insert(
            number,
            Pool { most, settings, reserved, is_growing: false, used, room, first, has_many, destroyed },
        );
        self.by_handle.insert(handle, number);
        number
    }

    /// The pool of a handle.
    pub(crate) fn find(&self, handle: usize) -> Option<PoolNumber> {
        self.by_handle.get(&handle).copied()
    }

    fn pool(&mut self, pool: PoolNumber) -> Option<&mut Pool> {
        self.all.get_mut(&pool)
    }

    fn of_handle(&mut self, handle: usize) -> Option<&mut Pool> {
        self.find(handle).and_then(|pool| self.pool(pool))
    }

    /// Records an attribute that the program has set; setting a highest figure resets it.
    pub(crate) fn set(&mut self, handle: usize, attribute: c_int, value: u64) {
        let Some(pool) = self.of_handle(handle) else { return };
        match attribute {
            attribute::RESERVED_HIGH => pool.reserved.high = pool.reserved.current,
            attribute::USED_HIGH => pool.used.high = pool.used.current,
            _ => pool.settings.set(attribute, value),
        }
    }

    /// The value of an attribute that tells how much memory there is.
    pub(crate) fn figure(&mut self, handle: usize, attribute: c_int) -> Option<u64> {
        let pool = self.of_handle(handle)?;
        match attribute {
            attribute::RESERVED => Some(pool.reserved.current),
            attribute::RESERVED_HIGH => Some(pool.reserved.high),
            attribute::USED => Some(pool.used.current),
            attribute::USED_HIGH => Some(pool.used.high),
            _ => None,
        }
    }

    /// A pool's settings, which decide whether it may reuse memory that other streams have freed.
    pub(crate) fn settings(&self, pool: PoolNumber) -> Option<Settings> {
        self.all.get(&pool).map(|pool| pool.settings)
    }

    /// Takes memory that is there for a stream: memory that is free for all, that the stream has freed itself, or whose free it comes
    /// after.
    pub(crate) fn take(&mut self, pool: PoolNumber, bytes: u64, asked: u64, stream: StreamNumber) -> Option<Taken> {
        self.take_if(pool, bytes, asked, stream, false)
    }

    /// Takes memory that other streams may still use; the stream has to wait for them first.
    pub(crate) fn take_any(&mut self, pool: PoolNumber, bytes: u64, asked: u64, stream: StreamNumber) -> Option<Taken> {
        self.take_if(pool, bytes, asked, stream, true)
    }

    fn take_if(
        &mut self,
        number: PoolNumber,
        bytes: u64,
        asked: u64,
        stream: StreamNumber,
        any: bool,
    ) -> Option<Taken> {
        let Self { all, order, .. } = self;
        let pool = all.get_mut(&number)?;
        pool.used_by(stream);
        let by_events = pool.settings.follow_events;
        let is_behind = |free: &Free| order.is_behind(stream, free, by_events);
        let (at, parts) = pool.room.take(bytes, stream, &|free| any || is_behind(free))?;
        pool.used.add(asked);
        let after = parts.iter().filter_map(|(_, _, free)| *free).filter(|free| !is_behind(free)).collect();
        Some(Taken { pool: number, at, after, parts, asked })
    }

    /// Gives back memory that was taken, as it was.
    pub(crate) fn not_taken(&mut self, taken: Taken) {
        let Self { all, order, .. } = self;
        if let Some(pool) = all.get_mut(&taken.pool) {
            pool.used.current -= taken.asked;
            pool.room.give_parts(taken.parts, |free| order.is_settled(free));
        }
    }

    /// Finds the memory that a pool lacks for an allocation. The memory that is there is taken, so that no other allocation gets it.
    pub(crate) fn grow(&mut self, number: PoolNumber, bytes: u64, stream: StreamNumber) -> More {
        let Self { all, order, .. } = self;
        let Some(pool) = all.get_mut(&number) else { return More::Full };
        if bytes > pool.most {
            return More::Full;
        }
        if pool.is_growing {
            return More::Coming;
        }
        let by_events = pool.settings.follow_events;
        let Some(growth) = pool.room.grow(bytes, &|free| order.is_behind(stream, free, by_events)) else {
            return More::Lacks;
        };
        let more = growth.steps.len() as u64 * STEP;
        if pool.most.saturating_sub(pool.reserved.current) < more {
            pool.room.not_grown(growth, |free| order.is_settled(free));
            return More::Full;
        }
        pool.is_growing = true;
        More::Grows(Growing { pool: number, growth })
    }

    /// Adds a growth that has come. Returns the address of the allocation.
    pub(crate) fn grown(&mut self, growing: &Growing, asked: u64) -> u64 {
        let Growing { pool, growth } = growing;
        if let Some(pool) = self.pool(*pool) {
            pool.room.grown(growth);
            pool.is_growing = false;
            pool.reserved.add(growth.steps.len() as u64 * STEP);
            pool.used.add(asked);
        }
        growth.at
    }

    /// Undoes a growth that has not come.
    pub(crate) fn not_grown(&mut self, growing: Growing) {
        let Self { all, order, .. } = self;
        if let Some(pool) = all.get_mut(&growing.pool) {
            pool.is_growing = false;
            pool.room.not_grown(growing.growth, |free| order.is_settled(free));
        }
    }

    /// Adds addresses to a pool.
    pub(crate) fn add_area(&mut self, pool: PoolNumber, area: Range<u64>) {
        if let Some(pool) = self.pool(pool) {
            pool.room.add_area(area);
        }
    }

    /// Frees memory in a stream. Returns the free if other streams may have to wait for it; or if the stream itself `comes_later`, because
    /// it may have to wait for other streams' work first.
    pub(crate) fn give(
        &mut self,
        pool: PoolNumber,
        at: u64,
        bytes: u64,
        asked: u64,
        stream: StreamNumber,
        comes_later: bool,
    ) -> Option<Free> {
        let free = self.order.free(stream);
        let pool = self.pool(pool)?;
        pool.used_by(stream);
        pool.used.current -= asked;
        pool.room.give(at, bytes, Some(free));
        (pool.has_many || comes_later).then_some(free)
    }

    /// Frees memory that the program declares unused. Returns the ranges to be given up.
    pub(crate) fn give_at_once(
        &mut self,
        pool: PoolNumber,
        at: u64,
        bytes: u64,
        asked: u64,
        behind: Option<StreamNumber>,
    ) -> Vec<Range<u64>> {
        // Earlier users may still use the memory, until the stream that it was allocated for has caught up.
        let free = behind.map(|stream| self.order.free(stream));
        let Some(pool) = self.pool(pool) else { return Vec::new() };
        pool.used.current -= asked;
        pool.room.give(at, bytes, free);
        pool.tidy()
    }

    /// Frees memory that others may access for ever: it is not reused.
    pub(crate) fn lose(&mut self, pool: PoolNumber, asked: u64) {
        if let Some(pool) = self.pool(pool) {
            pool.used.current -= asked;
        }
    }

    /// Records that streams have reached these frees.
    pub(crate) fn settle(&mut self, frees: &[Free]) {
        for free in frees {
            self.order.settle(*free);
            self.all.values_mut().for_each(|pool| pool.room.settle(*free));
        }
    }

    /// Called after the program has waited for something. Returns the ranges to be given up.
    pub(crate) fn tidy(&mut self) -> Vec<Range<u64>> {
        self.order.sweep();
        self.all.values_mut().flat_map(Pool::tidy).collect()
    }

    /// Trims a pool to `keep` bytes of unused memory. (The driver takes a number that does not fit when rounded up to whole steps as 0:
    /// `trim` in `bench/results/rules.json`.)
    pub(crate) fn trim(&mut self, handle: usize, keep: u64) -> Vec<Range<u64>> {
        let keep = keep.checked_next_multiple_of(STEP).unwrap_or(0);
        self.of_handle(handle).map(|pool| pool.shrink(keep)).unwrap_or_default()
    }

    /// Trims all pools: they keep no unused memory.
    pub(crate) fn trim_all(&mut self) -> Vec<Range<u64>> {
        self.all.values_mut().flat_map(|pool| pool.shrink(0)).collect()
    }

    /// Records addresses that have come back, of steps that were given up.
    pub(crate) fn on_returned(&mut self, ranges: &[Range<u64>]) {
        for range in ranges {
            let pool =
                self.all.values_mut().find(|pool| pool.room.areas().iter().any(|area| area.contains(&range.start)));
            if let Some(pool) = pool {
                pool.room.on_returned(range.clone());
            }
        }
    }

    /// Removes the handle of a pool that is about to be destroyed.
    pub(crate) fn remove(&mut self, handle: usize) -> Option<PoolNumber> {
        self.by_handle.remove(&handle)
    }

    /// Undoes [`Self::remove`].
    pub(crate) fn put_back(&mut self, handle: usize, pool: PoolNumber) {
        self.by_handle.insert(handle, pool);
    }

    /// Marks a pool as destroyed. The rest of its memory goes with the last allocation.
    pub(crate) fn on_destroyed(&mut self, number: PoolNumber) -> Vec<Range<u64>> {
        let Some(pool) = self.pool(number) else { return Vec::new() };
        pool.destroyed = true;
        pool.tidy()
    }

    /// Removes destroyed pools without memory, and returns their addresses.
    pub(crate) fn sweep(&mut self) -> Vec<Range<u64>> {
        let gone = self.all.extract_if(.., |_, pool| pool.destroyed && pool.room.is_gone());
        gone.flat_map(|(_, pool)| pool.room.areas().to_vec()).collect()
    }

    /// True if a stream has yet to reach any free.
    pub(crate) fn is_any_pending(&self) -> bool {
        self.all.values().any(|pool| pool.room.pending() > 0)
    }

    /// All unused memory of pools.
    pub(crate) fn free(&self) -> Vec<Range<u64>> {
        self.all.values().flat_map(|pool| pool.room.free()).collect()
    }

    /// The number of the stream with this key.
    pub(crate) fn find_stream(&self, key: StreamKey) -> Option<StreamNumber> {
        self.order.find(key)
    }

    /// Adds a stream that is used for the first time.
    pub(crate) fn add_stream(&mut self, key: StreamKey, what: T) -> StreamNumber {
        self.order.find(key).unwrap_or_else(|| self.order.add(key, what))
    }

    /// A stream's data for questions to the driver, and its last free.
    pub(crate) fn last(&self, stream: StreamNumber) -> Option<(T, Free)> {
        self.order.last(stream)
    }

    /// The data and the last free of the stream that has this key now.
    pub(crate) fn last_of(&self, key: StreamKey) -> Option<(T, Free)> {
        self.order.find(key).and_then(|stream| self.order.last(stream))
    }

    /// The data and the last free of all streams that fit.
    pub(crate) fn streams(&self, fits: impl Fn(&T) -> bool) -> Vec<(T, Free)> {
        self.order.all().filter(|(what, _)| fits(what)).collect()
    }

    /// Forgets a destroyed stream; its key may be reused.
    pub(crate) fn forget_stream(&mut self, key: StreamKey) {
        self.order.forget(key);
    }

    /// The number of frees so far: a stream that the program waits for from here on has reached all of its own frees up to that.
    pub(crate) fn now(&self) -> u64 {
        self.order.now()
    }

    /// The streams with unsettled frees that fit: the data for questions to the driver, and the last free of each.
    pub(crate) fn unsettled(&self, fits: impl Fn(&T) -> bool) -> Vec<(T, Free)> {
        self.order.unsettled(fits).into_iter().filter_map(|stream| self.order.last(stream)).collect()
    }

    /// The other streams with unsettled frees in one pool.
    pub(crate) fn unsettled_of(&self, pool: PoolNumber, own: StreamNumber) -> Vec<(T, Free)> {
        let Some(pool) = self.all.get(&pool) else { return Vec::new() };
        let others = pool.room.streams().filter(|stream| *stream != own);
        others.filter_map(|stream| self.order.last(stream)).collect()
    }

    /// Called before the program records an event. Returns the frees before it.
    pub(crate) fn begin_record(&mut self, event: usize, key: StreamKey) -> Vec<Free> {
        let stream = self.order.find(key);
        self.order.begin_record(event, stream)
    }

    /// Called after the program has recorded the event, or not.
    pub(crate) fn end_record(&mut self, event: usize, frees: Vec<Free>, is_recorded: bool) {
        self.order.end_record(event, frees, is_recorded);
    }

    /// The frees before an event: asked before the driver waits for it.
    pub(crate) fn recorded(&self, event: usize) -> Option<Recorded> {
        self.order.recorded(event)
    }

    /// The frees before an event, if it was not recorded again meanwhile.
    pub(crate) fn still(&self, event: usize, recorded: Recorded) -> Vec<Free> {
        self.order.still(event, recorded)
    }

    /// Makes a stream wait for an event that was recorded so.
    pub(crate) fn wait(&mut self, key: StreamKey, event: usize, recorded: Recorded, what: T) {
        let frees = self.order.still(event, recorded);
        if !frees.is_empty() {
            let stream = self.add_stream(key, what);
            self.order.wait(stream, &frees);
        }
    }

    /// True if a stream is known to have reached a free.
    pub(crate) fn is_settled(&self, free: &Free) -> bool {
        self.order.is_settled(free)
    }

    /// Forgets a destroyed event.
    pub(crate) fn forget_event(&mut self, event: usize) {
        self.order.forget_event(event);
    }
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "lists of ranges are what is compared")]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const SETTINGS: Settings = Settings { follow_events: true, opportunistic: true, internal: true, threshold: 0 };

    fn pools() -> (Pools<()>, PoolNumber, [StreamNumber; 2]) {
        let mut pools = Pools::default();
        let pool = pools.add(77, u64::MAX, SETTINGS);
        pools.add_area(pool, STEP..100 * STEP);
        let streams = [1, 2].map(|handle| pools.add_stream(StreamKey { context: 0, handle }, ()));
        (pools, pool, streams)
    }

    fn allocate(pools: &mut Pools<()>, pool: PoolNumber, bytes: u64, stream: StreamNumber) -> u64 {
        let size = bytes.next_multiple_of(ALIGNMENT);
        pools.take(pool, size, bytes, stream).map(|taken| taken.at).unwrap_or_else(|| {
            match pools.grow(pool, size, stream) {
                More::Grows(growing) => pools.grown(&growing, bytes),
                other => panic!("{other:?}"),
            }
        })
    }

    fn figures(pools: &mut Pools<()>) -> [u64; 4] {
        [attribute::RESERVED, attribute::RESERVED_HIGH, attribute::USED, attribute::USED_HIGH]
            .map(|figure| pools.figure(77, figure).expect("a figure"))
    }

    #[test]
    fn figures_are_those_that_were_measured() {
        // `growth-together`, `high-marks` in bench/results/rules.json.
        let (mut pools, pool, [stream, _]) = pools();
        let sizes = [1, 1024, MIB, 3 * MIB, 33 * MIB, 40 * MIB];
        let at = sizes.map(|bytes| allocate(&mut pools, pool, bytes, stream));
        assert_eq!(figures(&mut pools), [96 * MIB, 96 * MIB, 80_741_377, 80_741_377]);
        for (at, bytes) in at.into_iter().zip(sizes) {
            pools.give(pool, at, bytes.next_multiple_of(ALIGNMENT), bytes, stream, false);
        }
        assert_eq!(figures(&mut pools), [96 * MIB, 96 * MIB, 0, 80_741_377]);
        assert!(pools.tidy().is_empty(), "the stream has not come so far");
        let now = Free { stream, number: pools.now() };
        pools.settle(&[now]);
        assert_eq!(pools.tidy(), [STEP..4 * STEP]);
        pools.set(77, attribute::USED_HIGH, 0);
        assert_eq!(figures(&mut pools), [0, 96 * MIB, 0, 0]);
    }

    #[test]
    fn a_threshold_is_kept_and_more_only_until_something_is_waited_for() {
        let (mut pools, pool, [stream, _]) = pools();
        pools.set(77, attribute::THRESHOLD, 32 * MIB);
        let at = allocate(&mut pools, pool, 40 * MIB, stream);
        let gone = pools.give_at_once(pool, at, 40 * MIB, 40 * MIB, None);
        assert_eq!((gone, figures(&mut pools)[0]), (vec![2 * STEP..3 * STEP], 32 * MIB));
        assert_eq!(pools.trim(77, 1), [], "no less than was asked for");
        assert_eq!(pools.trim(77, 0), [STEP..2 * STEP]);
    }

    #[test]
    fn another_stream_has_it_behind_an_event_or_with_a_wait() {
        let (mut pools, pool, [first, second]) = pools();
        let at = allocate(&mut pools, pool, 32 * MIB, first);
        assert!(pools.give(pool, at, 32 * MIB, 32 * MIB, first, false).is_none(), "nobody else uses this pool");
        let taken = pools.take(pool, 512, 512, first).expect("its own").at;
        assert!(pools.give(pool, taken, 512, 512, first, true).is_some(), "the stream itself may come to it later");
        assert!(pools.take(pool, 512, 512, second).is_none());
        let taken = pools.take_any(pool, 512, 512, second).expect("there is some");
        assert_eq!((taken.at, taken.after.len()), (at, 1));
        pools.not_taken(taken);
        assert!(pools.take(pool, 512, 512, second).is_none());
        assert_eq!(pools.take(pool, 512, 512, first).map(|taken| taken.at), Some(at));
        assert!(pools.give(pool, at, 512, 512, second, false).is_some(), "two streams use it");
        let key = |handle| StreamKey { context: 0, handle };
        let frees = pools.begin_record(5, key(1));
        pools.end_record(5, frees, true);
        let recorded = pools.recorded(5).expect("something is behind it");
        pools.wait(key(2), 5, recorded, ());
        assert_eq!(pools.take(pool, MIB, MIB, second).map(|taken| taken.at), Some(at));
    }

    #[test]
    fn memory_that_was_got_behind_a_free_is_behind_it_when_it_is_given_up_too() {
        let (mut pools, pool, [first, second]) = pools();
        let at = allocate(&mut pools, pool, 32 * MIB, first);
        pools.give(pool, at, 32 * MIB, 32 * MIB, first, false);
        let taken = pools.take(pool, 32 * MIB, 32 * MIB, first).expect("its own");
        assert!(taken.is_behind_frees());
        assert_eq!(pools.give_at_once(pool, taken.at, 32 * MIB, 32 * MIB, Some(first)), []);
        assert!(pools.take(pool, 512, 512, second).is_none());
    }

    #[test]
    fn a_pool_of_a_limited_size_takes_no_more() {
        let (mut pools, _, [stream, _]) = pools();
        let pool = pools.add(78, 1, SETTINGS);
        pools.add_area(pool, 200 * STEP..300 * STEP);
        let at = allocate(&mut pools, pool, 8 * MIB, stream);
        assert!(matches!(pools.grow(pool, 32 * MIB, stream), More::Full));
        assert!(matches!(pools.grow(pool, 33 * MIB, stream), More::Full));
        pools.give_at_once(pool, at, 8 * MIB, 8 * MIB, None);
        assert_eq!(pools.figure(78, attribute::RESERVED), Some(0));
    }

    #[test]
    fn a_pool_grows_once_at_a_time() {
        let (mut pools, _, [first, second]) = pools();
        let pool = pools.add(78, 1, SETTINGS);
        pools.add_area(pool, 200 * STEP..300 * STEP);
        let More::Grows(growing) = pools.grow(pool, MIB, first) else { panic!("there is room") };
        assert!(matches!(pools.grow(pool, MIB, second), More::Coming));
        pools.not_grown(growing);
        let More::Grows(growing) = pools.grow(pool, MIB, second) else { panic!("there is room") };
        let at = pools.grown(&growing, MIB);
        assert_eq!(pools.take(pool, MIB, MIB, first).map(|taken| taken.at), Some(at + MIB), "one step is enough");
    }

    #[test]
    fn a_destroyed_pool_goes_with_its_last_allocation() {
        let (mut pools, pool, [stream, _]) = pools();
        let at = allocate(&mut pools, pool, 40 * MIB, stream);
        pools.set(77, attribute::THRESHOLD, u64::MAX);
        assert_eq!(pools.remove(77), Some(pool));
        assert_eq!(pools.on_destroyed(pool), []);
        assert!(pools.sweep().is_empty());
        assert_eq!(pools.give_at_once(pool, at, 40 * MIB, 40 * MIB, None), [STEP..3 * STEP]);
        assert!(pools.sweep().is_empty(), "its addresses are not free yet");
        pools.on_returned(&[STEP..3 * STEP]);
        assert_eq!(pools.sweep(), [STEP..100 * STEP]);
    }
}
