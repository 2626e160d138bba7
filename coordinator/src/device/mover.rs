//! The mover: copies and fills, each direction in a queue and a thread of its own.
//!
//! The server hands a lane jobs and goes on. The lane keeps two jobs queued on the device, so that the device never waits for this
//! process, and reports each when it has ended. Jobs of one lane end in the order in which they were given. A job that fails is done
//! once more: its sources are whole.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Instant;

use crate::device::error::check;
use crate::device::gpu::{Gpu, GpuError, Mark, Stream};
use crate::device::wake::Waker;

/// The mover's lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    /// Host to device.
    In,
    /// Device to host.
    Out,
    /// Overwriting memory on the device.
    Fill,
}

impl Lane {
    /// Its name as a call that may fail in a test.
    fn name(self) -> &'static str {
        match self {
            Self::In => "in_lane",
            Self::Out => "out_lane",
            Self::Fill => "fill_lane",
        }
    }
}

/// The other end of a piece.
#[derive(Clone, Copy, Debug)]
pub enum End {
    /// A byte that fills the piece. Only into the device's memory.
    Bytes(u8),
    /// An address in this process.
    Host(usize),
    /// Another address in the device's memory, as a source only.
    Device(u64),
}

/// One piece of a job.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// Address in the device's memory, as the coordinator sees it.
    pub device: u64,
    /// The other end of the copy.
    pub other: End,
    /// Its size.
    pub bytes: u64,
}

/// A job's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

/// The outcome of a job.
#[derive(Debug)]
pub struct Finished {
    /// The lane.
    pub lane: Lane,
    /// The job.
    pub job: JobId,
    /// The time from its first piece's submission to its last one's end.
    pub time: Range<Instant>,
    /// Its success or error.
    pub result: Result<(), GpuError>,
}

struct Job {
    id: JobId,
    pieces: Vec<Piece>,
}

/// The server's ends of some lanes.
pub struct Mover {
    lanes: Vec<(Lane, Sender<Job>)>,
    next: u64,
}

/// Jobs of a lane that are on the device at once.
const DEPTH: usize = 2;

impl Mover {
    /// Starts these lanes. Reports go to `reports`, and `waker` is woken for each.
    ///
    /// # Errors
    ///
    /// When the driver or the system has no queue or thread left.
    pub fn start(gpu: &Gpu, lanes: &[Lane], reports: &Sender<Finished>, waker: &Waker) -> Result<Self, GpuError> {
        let start = |lane: Lane| -> Result<(Lane, Sender<Job>), GpuError> {
            let (sender, jobs) = channel();
            let worker = Worker { lane, gpu: gpu.clone(), reports: reports.clone(), waker: waker.clone() };
            let stream = gpu.stream()?;
            let marks = (0..DEPTH).map(|_| gpu.mark()).collect::<Result<Vec<_>, _>>()?;
            thread::Builder::new()
                .name(format!("mover-{lane:?}").to_lowercase())
                .spawn(move || worker.run(stream, marks, &jobs))
                .expect("a thread can be started while the coordinator starts");
            Ok((lane, sender))
        };
        Ok(Self { lanes: lanes.iter().map(|lane| start(*lane)).collect::<Result<_, _>>()?, next: 0 })
    }

    /// Queues copies or fills.
    ///
    /// # Safety
    ///
    /// All ranges are valid until the job's report; no other code writes its sources or touches its targets until then.
    pub unsafe fn submit(&mut self, lane: Lane, pieces: Vec<Piece>) -> JobId {
        self.next += 1;
        let id = JobId(self.next);
        let (_, jobs) = self.lanes.iter().find(|(own, _)| *own == lane).expect("one of the lanes that were started");
        // A lane lives as long as its sender: it only ends when this value is dropped.
        let _ = jobs.send(Job { id, pieces });
        id
    }
}

struct Worker {
    lane: Lane,
    gpu: Gpu,
    reports: Sender<Finished>,
    waker: Waker,
}

impl Worker {
    fn run(self, stream: Stream, mut spare: Vec<Mark>, jobs: &Receiver<Job>) {
        let entered = self.gpu.enter();
        let mut queued: VecDeque<(Job, Mark, Instant)> = VecDeque::new();
        loop {
            let next = if queued.is_empty() {
                match jobs.recv() {
                    Ok(job) => Some(job),
                    Err(_) => return,
                }
            } else if spare.is_empty() {
                None
            } else {
                jobs.try_recv().ok()
            };
            if let Some(job) = next {
                baton_faults::reach("coordinator copies", &self.lane);
                let start = Instant::now();
                let mark = spare.pop().expect("fewer jobs are queued than there are marks");
                let submit = || self.submit(&job, &mark, stream);
                match entered.clone().and_then(|()| submit().or_else(|_| submit())) {
                    Ok(()) => queued.push_back((job, mark, start)),
                    Err(error) => {
                        spare.push(mark);
                        self.report(job.id, start, Err(error));
                    }
                }
            } else if let Some((job, mark, start)) = queued.pop_front() {
                let again = |_| self.submit(&job, &mark, stream).and_then(|()| self.gpu.wait(&mark));
                let result = self.gpu.wait(&mark).or_else(again);
                baton_faults::reach("coordinator copied", &self.lane);
                spare.push(mark);
                self.report(job.id, start, result);
            }
        }
    }

    /// Queues all of a job, and sets the mark behind it.
    fn submit(&self, job: &Job, mark: &Mark, stream: Stream) -> Result<(), GpuError> {
        check("a copy", baton_faults::fails(self.lane.name()))?;
        job.pieces.iter().try_for_each(|piece| self.submit_piece(piece, stream))?;
        self.gpu.set(mark, stream)
    }

    fn submit_piece(&self, piece: &Piece, stream: Stream) -> Result<(), GpuError> {
        let Piece { device, other, bytes } = *piece;
        let pointer = std::ptr::with_exposed_provenance_mut::<c_void>;
        // SAFETY: by the contract of `Mover::submit`.
        unsafe {
            match (self.lane, other) {
                (Lane::Out, End::Host(host)) => self.gpu.copy_out(pointer(host), device, bytes, stream),
                (Lane::Out, _) => Ok(()),
                (_, End::Host(host)) => self.gpu.copy_in(device, pointer(host), bytes, stream),
                (_, End::Device(from)) => self.gpu.copy_within(device, from, bytes, stream),
                (_, End::Bytes(value)) => self.gpu.fill(device, value, bytes, stream),
            }
        }
    }

    fn report(&self, job: JobId, start: Instant, result: Result<(), GpuError>) {
        let time = start..Instant::now();
        // The server is gone only when the process is about to end.
        let _ = self.reports.send(Finished { lane: self.lane, job, time, result });
        self.waker.wake();
    }
}
