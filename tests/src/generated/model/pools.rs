//! Pools, and memory that streams allocate and free in their order.
//!
//! A stream's allocation is there behind that point, for all work that comes after it: the allocation counts as the first write. A
//! pool's figures are asked only where every driver must give the same. How much is *used* follows from the calls alone. How much
//! is *reserved* follows from them only where nothing is used any more, and the program has waited for that.

use super::clock::Point;
use super::memory::{Accesses, Content, Memory, Origin};
use super::streams::Named;
use super::threads::{Access, Changes, Looks, Resource};
use super::{Done, Model, Skip, held, only_if, vacant};
use crate::generated::program::{From, KEEPS, POOL_SIZES, To};
use crate::generated::script::{Buf, Call, Id, PoolFigure, PoolSetting, Work};

/// The GPU's default pool.
pub(super) const DEFAULT: Id = 0;
/// Bytes that a program gets from pools in all its life, at most: so it fits, however badly memory is used again.
pub(super) const MOST_BYTES: u32 = 64 << 20;
/// Pools that a program makes in all its life, at most: each takes 32 MiB of the GPU's memory at least.
pub(super) const MOST_POOLS: u8 = 3;

/// A pool.
#[derive(Clone, Debug, Default)]
pub(super) struct Pool {
    /// How many of its allocations are not freed.
    live: u32,
    /// Where they were freed, in streams' orders.
    frees: Vec<Point>,
    /// The threads that have changed the bytes in use since the most of them was forgotten.
    users: Users,
    /// The bytes in use are not known. `cuMemFree` does not count, as measured, and the effect of a context's end was never measured.
    vague: bool,
    /// True if it was ever told to keep something.
    keeps: bool,
}

/// Threads that did something.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Users {
    #[default]
    None,
    One(usize),
    Many,
}

impl Users {
    fn add(&mut self, thread: usize) {
        *self = match *self {
            Self::None => Self::One(thread),
            Self::One(one) if one == thread => Self::One(one),
            _ => Self::Many,
        };
    }
}

impl Model {
    fn pool_named(&self, pool: From) -> Done<Id> {
        match pool {
            From::Default => Ok(DEFAULT),
            From::Own(slot) => held(&self.pools, slot).copied(),
        }
    }

    /// The pool's state, unless it was destroyed.
    fn pool(&mut self, pool: Id) -> Option<&mut Pool> {
        self.known_pools.get_mut(&pool)
    }

    /// A call of the process's, in whatever context.
    fn pool_call(&mut self, call: Call, more: &[(Resource, Access)]) -> Done {
        let accesses = [&self.unsafe_call()?[..], more].concat();
        self.step(call, &accesses)
    }

    pub(super) fn pool_create(&mut self, slot: u8) -> Done {
        vacant(&self.pools, slot)?;
        self.pools_left = self.pools_left.checked_sub(1).ok_or(Skip)?;
        let pool = self.new_id();
        self.pool_call(Call::PoolCreate { pool }, &[(Resource::Pool(pool), Changes)])?;
        self.known_pools.insert(pool, Pool::default());
        self.pools[slot as usize] = Some(pool);
        Ok(())
    }

    /// Destroys a pool, whose allocations stay until they are freed.
    pub(super) fn pool_destroy(&mut self, slot: u8) -> Done {
        let pool = *held(&self.pools, slot)?;
        let accesses = [(Resource::Pool(pool), Changes), (Resource::CurrentPool, Changes)];
        self.pool_call(Call::PoolDestroy { pool }, &accesses)?;
        self.known_pools.remove(&pool);
        self.pools[slot as usize] = None;
        if self.current_pool == pool {
            self.current_pool = DEFAULT;
        }
        Ok(())
    }

    pub(super) fn pool_select(&mut self, pool: From) -> Done {
        let pool = self.pool_named(pool)?;
        only_if(pool != self.current_pool)?;
        let accesses = [(Resource::Pool(pool), Looks), (Resource::CurrentPool, Changes)];
        self.pool_call(Call::PoolSelect { pool }, &accesses)?;
        self.current_pool = pool;
        Ok(())
    }

    pub(super) fn pool_alloc(&mut self, slot: u8, pool: Option<From>, size: u8, to: To) -> Done {
        vacant(&self.mems, slot)?;
        let bytes = *POOL_SIZES.get(size as usize).ok_or(Skip)?;
        let named = self.named(to)?;
        only_if(self.is_of_first_gpu(self.stream(named.key).context))?;
        let own = pool.map(|pool| self.pool_named(pool)).transpose()?;
        let from = own.unwrap_or(self.current_pool);
        self.pool_bytes = self.pool_bytes.checked_sub(bytes).ok_or(Skip)?;
        let mem = self.new_id();
        let mut more = self.unsafe_call()?;
        more.extend([(Resource::Mem(mem), Changes), (Resource::Pool(from), Looks)]);
        if own.is_none() {
            more.push((Resource::CurrentPool, Looks));
        }
        let context = self.stream(named.key).context;
        let call = Call::PoolAlloc { mem, bytes, pool: own, on: named.on };
        let mut accesses = Accesses::default();
        accesses.add(self.enqueue(named.key, call, &more, None)?, true);
        let content = Content::Data;
        let memory =
            Memory { context, bytes, content, kind: None, origin: Origin::Allocated, pool: Some(from), accesses };
        self.memory.insert(Buf::Mem(mem), memory);
        self.mems[slot as usize] = Some(mem);
        let me = self.me;
        if let Some(pool) = self.pool(from) {
            pool.live += 1;
            pool.users.add(me);
        }
        let fill = Work::Fill { out: Buf::Mem(mem), value: mem, element: 1, count: bytes, in_rows: false };
        let call = Call::Submit { on: named.on, work: fill, times: 1 };
        self.submit(named, call, &[], &[Buf::Mem(mem)], None, &[]).map(drop)
    }

    fn freed(&mut self, pool: Id, at: Option<Point>) {
        let me = self.me;
        let Some(pool) = self.pool(pool) else { return };
        pool.live -= 1;
        pool.users.add(me);
        pool.frees.extend(at);
        pool.vague |= at.is_none();
    }

    /// `cuMemFree` waits for nothing here: the program knows that nothing uses it any more.
    pub(super) fn pool_free(&mut self, mem: Id, pool: Id) -> Done {
        self.comes_after(Buf::Mem(mem), true)?;
        let context = self.memory(Buf::Mem(mem))?.context;
        let mut accesses = self.unsafe_call()?;
        accesses.extend([(Resource::Mem(mem), Changes), (Resource::Pool(pool), Looks)]);
        self.call(context, Call::PoolFree { mem }, &accesses)?;
        self.freed(pool, None);
        Ok(())
    }

    pub(super) fn pool_free_async(&mut self, mem: Id, pool: Id, named: Named) -> Done {
        let mut more = self.unsafe_call()?;
        more.extend([(Resource::Mem(mem), Changes), (Resource::Pool(pool), Looks)]);
        let call = Call::PoolFreeAsync { mem, on: named.on };
        let point = self.submit(named, call, &[], &[Buf::Mem(mem)], None, &more)?;
        self.freed(pool, Some(point));
        Ok(())
    }

    /// Some work allocates from the current pool, and frees.
    pub(super) fn scratch(&mut self, named: Named, bytes: u32) -> Done<[(Resource, Access); 2]> {
        self.pool_bytes = self.pool_bytes.checked_sub(bytes).ok_or(Skip)?;
        let (line, me, from) = (self.stream(named.key).timeline, self.me, self.current_pool);
        let point = (line, self.timelines[line].count + 1);
        let pool = self.pool(from).ok_or(Skip)?;
        pool.users.add(me);
        pool.frees.push(point);
        Ok([(Resource::CurrentPool, Looks), (Resource::Pool(from), Looks)])
    }

    pub(super) fn pool_trim(&mut self, pool: From, keep: u8) -> Done {
        let pool = self.pool_named(pool)?;
        let keep = *KEEPS.get(keep as usize).ok_or(Skip)?;
        self.pool_call(Call::PoolTrim { pool, keep }, &[(Resource::Pool(pool), Looks)])
    }

    pub(super) fn pool_set(&mut self, named: From, setting: PoolSetting) -> Done {
        let pool = self.pool_named(named)?;
        self.pool_call(Call::PoolSet { pool, setting }, &[(Resource::Pool(pool), Changes)])?;
        let state = self.pool(pool).ok_or(Skip)?;
        match setting {
            PoolSetting::Threshold(keep) => state.keeps |= keep > 0,
            // All that is used now was used before.
            PoolSetting::UsedHigh => state.users = Users::None,
            PoolSetting::Reuse(..) | PoolSetting::ReservedHigh => {}
        }
        Ok(())
    }

    pub(super) fn pool_ask(&mut self, named: From, figure: PoolFigure) -> Done {
        let pool = self.pool_named(named)?;
        let state = self.pool(pool).ok_or(Skip)?.clone();
        match figure {
            PoolFigure::Used => only_if(!state.vague)?,
            PoolFigure::UsedHigh => only_if(!state.vague && state.users != Users::Many)?,
            PoolFigure::Reserved => self.wait_for_frees(pool, &state)?,
            PoolFigure::Threshold | PoolFigure::Reuse(_) | PoolFigure::Access => {}
        }
        self.pool_call(Call::PoolAsk { pool, figure }, &[(Resource::Pool(pool), Changes)])
    }

    /// Waits, so that a pool without allocations has no memory either.
    fn wait_for_frees(&mut self, pool: Id, state: &Pool) -> Done {
        const PRIMARY: u8 = 0;
        let context = *held(&self.contexts, PRIMARY)?;
        let is_seen = |point: &Point| {
            let line = &self.timelines[point.0];
            line.context == context && line.key.is_some()
        };
        only_if(!state.vague && state.live == 0 && state.frees.iter().all(is_seen))?;
        self.context_synchronize(PRIMARY)?;
        only_if(self.threads[self.me].blocked.is_none())?;
        if state.keeps {
            self.pool_call(Call::PoolTrim { pool, keep: 0 }, &[(Resource::Pool(pool), Changes)])?;
        }
        Ok(())
    }

    /// A context's end: of what streams there have allocated or freed nothing is known.
    pub(super) fn pools_without(&mut self, context: Id) {
        let lost = self.memory.values().filter(|memory| memory.context == context).filter_map(|memory| memory.pool);
        for pool in lost.collect::<Vec<_>>() {
            if let Some(pool) = self.pool(pool) {
                pool.vague = true;
            }
        }
    }
}
