//! The operations of streams and graph nodes, each with everything it needs copied into it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::context::Context;
use super::event::{Event, Stamp};
use super::outlive::{self, Begun};
use super::pause::Pause;
use super::shared_event::SharedEvent;
use super::stream::Work;
use crate::engine::Way;
use crate::errors::{Outcome, Status};
use crate::kernels::machine::Machine;
use crate::memory::traffic::{PIECE, Place};
use crate::memory::view::View;
use crate::module::Function;
use crate::module::launch::Launch;
use crate::pool::lease::Lease;
use crate::pool::slot::Slot;

/// One operation.
#[derive(Clone)]
pub(crate) enum Op {
    /// Nothing: an order only.
    Empty,
    Copy(Copy),
    Fill(Fill),
    /// The end of an allocation of `cuMemAlloc`.
    Free(u64),
    /// A graph's allocation, and its free: each launch makes the two below of them.
    Allocate(Arc<Slot>),
    Release(Arc<Slot>),
    /// The begin and the end of memory that is allocated in a stream's order.
    Begin(Arc<Lease>),
    End(Arc<Lease>),
    Kernel(Arc<Launch>),
    Host(HostCall),
    /// As [`Op::Host`], told how the stream fares, and called even if that is badly.
    Callback(Callback),
    /// An event's record.
    Stamp(Arc<Stamp>),
    /// The same of one that processes share, and the record's number.
    Reach(Arc<Stamp>, Arc<SharedEvent>, u64),
    /// A wait for such a record, whichever process made it.
    Await(Arc<SharedEvent>, u64),
    Words(Vec<WordOp>),
    /// A node that records an event at each launch.
    EventRecord(Arc<Event>),
    /// A node that waits for an event's record at the time of the launch.
    EventWait(Arc<Event>),
    /// A whole graph: a launch of it, or a child node.
    Graph(Arc<Plan>),
    /// Several operations that were submitted as one.
    Batch(Arc<Vec<Op>>),
}

/// Operations in an order to run them in.
#[derive(Default)]
pub(crate) struct Plan {
    pub(crate) ops: Vec<Op>,
}

/// A copy of a box of bytes: `depth` slices of `height` rows of `width` bytes.
#[derive(Clone, Debug)]
pub(crate) struct Copy {
    pub(crate) dst: Place,
    pub(crate) src: Place,
    pub(crate) width: u64,
    pub(crate) height: u64,
    pub(crate) depth: u64,
    /// Bytes from one row to the next.
    pub(crate) dst_pitch: u64,
    pub(crate) src_pitch: u64,
    /// Bytes from one slice to the next.
    pub(crate) dst_slice: u64,
    pub(crate) src_slice: u64,
    pub(crate) way: Way,
    /// The GPUs that the ends are on, target and source, if the program has said so.
    pub(crate) between: Option<[usize; 2]>,
}

/// A fill of `height` rows of `width` elements.
#[derive(Clone, Debug)]
pub(crate) struct Fill {
    pub(crate) dst: u64,
    pub(crate) pitch: u64,
    pub(crate) value: u32,
    /// 1, 2 or 4.
    pub(crate) element: u32,
    pub(crate) width: u64,
    pub(crate) height: u64,
}

/// A function of the program's, called on the stream's thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostCall {
    pub(crate) function: extern "C" fn(usize),
    pub(crate) data: usize,
}

/// A stream callback of the program's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Callback {
    pub(crate) function: extern "C" fn(usize, u32, usize),
    pub(crate) stream: usize,
    pub(crate) data: usize,
}

/// A wait for or a write to a word of memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WordOp {
    pub(crate) address: u64,
    pub(crate) value: u64,
    /// True if the word has 64 bits and not 32.
    pub(crate) wide: bool,
    /// `None`: a write.
    pub(crate) wait: Option<Condition>,
}

/// A wait for a word ends when this holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    /// Not behind, counting cyclically.
    AtLeast,
    Equal,
    AnyBit,
    NotAllBits,
}

impl Op {
    /// Does it. A failure makes the context unusable.
    pub(crate) fn run(&self, context: &Context) -> Outcome {
        match self {
            Op::Empty | Op::Allocate(_) | Op::Release(_) => Ok(()),
            Op::Copy(copy) => {
                let engines = &context.device.engines;
                let turn = engines.copy(copy.way, copy.bytes());
                let done = AtomicU64::new(0);
                let begun = Begun::new(context, copy, &done);
                if outlive::is_on() {
                    // Nothing is there before its time: what is not there when the process is killed comes late.
                    engines.finish(turn);
                    begun.finish()?;
                } else {
                    begun.finish()?;
                    engines.finish(turn);
                }
                engines.copied(copy.way, copy.bytes());
                Ok(())
            }
            Op::Fill(fill) => fill.run(&context.view()),
            Op::Free(start) => {
                // It may have gone with its context.
                let _ = context.common.space.free(*start);
                Ok(())
            }
            Op::Begin(lease) => {
                lease.begin(&context.common.space);
                Ok(())
            }
            Op::End(lease) => {
                lease.end(&context.common.space);
                Ok(())
            }
            Op::Kernel(launch) => {
                let engines = &context.device.engines;
                let turn = engines.kernel(launch.operations());
                launch.run(&Running { context, function: &launch.function })?;
                engines.finish(turn);
                Ok(())
            }
            Op::Host(call) => {
                (call.function)(call.data);
                Ok(())
            }
            Op::Callback(callback) => {
                (callback.function)(callback.stream, 0, callback.data);
                Ok(())
            }
            Op::Stamp(stamp) => {
                stamp.set();
                Ok(())
            }
            Op::Reach(stamp, shared, record) => {
                stamp.set();
                shared.reach(*record);
                Ok(())
            }
            Op::Await(shared, record) => {
                shared.wait(*record, || context.is_ending());
                Ok(())
            }
            Op::Words(words) => words.iter().try_for_each(|word| word.run(context)),
            Op::EventRecord(event) => {
                let stamp = Arc::new(Stamp::default());
                stamp.set();
                // The event's point is one that is reached already.
                event.record(context.legacy()?.reached(), stamp);
                Ok(())
            }
            Op::EventWait(event) => {
                if let Some(ticket) = event.ticket()? {
                    ticket.wait();
                }
                Ok(())
            }
            Op::Graph(plan) => plan.run(context),
            Op::Batch(ops) => ops.iter().try_for_each(|op| op.run(context)),
        }
    }

    /// Does what must happen even if the context has failed before.
    pub(crate) fn skip(&self, context: &Context, status: Status) {
        match self {
            // A pool is no context's, and lives on.
            Op::Begin(lease) => lease.begin(&context.common.space),
            Op::End(lease) => lease.end(&context.common.space),
            Op::Graph(plan) => plan.ops.iter().for_each(|op| op.skip(context, status)),
            Op::Stamp(stamp) => stamp.set(),
            Op::Reach(stamp, shared, record) => {
                stamp.set();
                shared.reach(*record);
            }
            Op::Callback(callback) => {
                (callback.function)(callback.stream, status.code(), callback.data);
            }
            _ => {}
        }
    }
}

/// A kernel that runs in a context.
struct Running<'a> {
    context: &'a Context,
    function: &'a Function,
}

impl Machine for Running<'_> {
    fn memory(&self) -> View<'_> {
        self.context.view()
    }

    fn variable(&self, name: &str) -> Outcome<u64> {
        self.function.variable(name)
    }

    fn is_ending(&self) -> bool {
        self.context.is_ending()
    }
}

impl Plan {
    fn run(&self, context: &Context) -> Outcome {
        self.ops.iter().try_for_each(|op| op.run(context))
    }
}

/// An operation for a stream of a context.
pub(super) struct Job {
    pub(super) context: Arc<Context>,
    pub(super) op: Op,
}

impl Job {
    /// The operation, unless the context has failed; then only what tells others that it is over.
    fn try_to_run(&self) -> Outcome {
        match self.context.check() {
            Ok(()) => self.op.run(&self.context),
            Err(status) => {
                self.op.skip(&self.context, status);
                Ok(())
            }
        }
    }
}

impl Work for Job {
    fn run(self: Box<Self>) {
        // A body that panics is a defect of ours; to the program it is a failed kernel.
        let outcome = catch_unwind(AssertUnwindSafe(|| self.try_to_run()));
        if let Err(status) = outcome.unwrap_or(Err(Status::LAUNCH_FAILED)) {
            self.context.fail(status);
        }
    }
}

impl Copy {
    /// A copy of consecutive bytes.
    pub(crate) fn line(dst: Place, src: Place, bytes: u64, way: Way) -> Copy {
        Copy {
            dst,
            src,
            width: bytes,
            height: 1,
            depth: 1,
            dst_pitch: bytes,
            src_pitch: bytes,
            dst_slice: bytes,
            src_slice: bytes,
            way,
            between: None,
        }
    }

    /// How many bytes are copied.
    pub(crate) fn bytes(&self) -> u64 {
        self.width * self.height * self.depth
    }

    /// Copies the next bytes, up to so many: what `done` tells is copied already. False if there are none.
    pub(super) fn step(&self, context: &Context, done: &AtomicU64, most: u64) -> Outcome<bool> {
        let before = done.load(Ordering::SeqCst);
        let Some((dst, src, bytes)) = self.next(before, most) else { return Ok(false) };
        context.copies_view(self.between).copy(&dst, &src, bytes as usize)?;
        done.store(before + bytes, Ordering::SeqCst);
        Ok(true)
    }

    /// What comes behind so many bytes, in one line: to, from, and how much, up to so many bytes.
    fn next(&self, done: u64, most: u64) -> Option<(Place, Place, u64)> {
        if done >= self.bytes() {
            return None;
        }
        // Rows without gaps are one line.
        let is_one = self.dst_pitch == self.width && self.src_pitch == self.width;
        let (line, lines) = if is_one { (self.width * self.height, 1) } else { (self.width, self.height) };
        let (slice, row, at) = (done / line / lines, done / line % lines, done % line);
        let dst = self.dst.plus(slice * self.dst_slice + row * self.dst_pitch + at);
        let src = self.src.plus(slice * self.src_slice + row * self.src_pitch + at);
        Some((dst, src, most.min(line - at).min(PIECE as u64)))
    }
}

impl Fill {
    fn run(&self, space: &View<'_>) -> Outcome {
        let pattern = &self.value.to_le_bytes()[..self.element as usize];
        for row in 0..self.height {
            space.fill(self.dst + row * self.pitch, pattern, self.width as usize)?;
        }
        Ok(())
    }
}

impl WordOp {
    fn run(&self, context: &Context) -> Outcome {
        let Some(condition) = self.wait else {
            return self.write(&context.view());
        };
        let mut pause = Pause::default();
        while !self.holds(condition, &context.view())? {
            if context.is_ending() {
                return Ok(());
            }
            pause.step();
        }
        Ok(())
    }

    fn write(&self, space: &View<'_>) -> Outcome {
        let order = Ordering::Release;
        if self.wide {
            space.word64(self.address, true, |word| word.store(self.value, order))
        } else {
            space.word32(self.address, true, |word| word.store(self.value as u32, order))
        }
    }

    fn holds(&self, condition: Condition, space: &View<'_>) -> Outcome<bool> {
        let order = Ordering::Acquire;
        if self.wide {
            let got = space.word64(self.address, false, |word| word.load(order))?;
            Ok(match condition {
                Condition::AtLeast => got.wrapping_sub(self.value) as i64 >= 0,
                Condition::Equal => got == self.value,
                Condition::AnyBit => got & self.value != 0,
                Condition::NotAllBits => !(got | self.value) != 0,
            })
        } else {
            let got = space.word32(self.address, false, |word| word.load(order))?;
            let value = self.value as u32;
            Ok(match condition {
                Condition::AtLeast => got.wrapping_sub(value) as i32 >= 0,
                Condition::Equal => got == value,
                Condition::AnyBit => got & value != 0,
                Condition::NotAllBits => !(got | value) != 0,
            })
        }
    }
}
