//! Streams that wait for events.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::time::Duration;

use crate::bench::{Bench, Handle, Stream, Subject, on};
use crate::captures::{RELAXED, ended, status};
use crate::piece::{Piece, Place, SIZE};

/// `cuStreamWaitEvent`.
type Wait = extern "C" fn(Handle, Handle, u32) -> u32;

/// Something for a stream to do that takes a while.
extern "C" fn nap(_: *mut c_void) {
    std::thread::sleep(Duration::from_millis(10));
}

/// An event, and a stream that waits for no other.
struct Elsewhere<'a> {
    bench: &'a Bench,
    event: Handle,
    stream: Handle,
}

impl<'a> Elsewhere<'a> {
    fn new(bench: &'a Bench) -> Self {
        const NON_BLOCKING: u32 = 1;
        let (mut event, mut stream) = (null_mut(), null_mut());
        bench.note("cuEventCreate", bench.cuEventCreate(&mut event, 0));
        bench.note("cuStreamCreate", bench.cuStreamCreate(&mut stream, NON_BLOCKING));
        Self { bench, event, stream }
    }

    /// Sets the event behind all work of a stream.
    fn record(&self, stream: Handle) {
        self.bench.note("cuEventRecord", self.bench.cuEventRecord(self.event, stream));
    }
}

impl Drop for Elsewhere<'_> {
    fn drop(&mut self) {
        if !self.event.is_null() {
            self.bench.note("cuEventDestroy_v2", self.bench.cuEventDestroy_v2(self.event));
        }
        if !self.stream.is_null() {
            self.bench.note("cuStreamDestroy_v2", self.bench.cuStreamDestroy_v2(self.stream));
        }
    }
}

/// `cuStreamWaitEvent`.
pub(crate) fn event(subject: &Subject, wait: Wait) {
    let bench = subject.bench;
    for stream in bench.streams() {
        late(subject, wait, stream);
    }
    let (_, own) = bench.streams()[0];
    let elsewhere = Elsewhere::new(bench);
    subject.say("one never recorded", wait(own, elsewhere.event, 0), bench.settle());
    elsewhere.record(own);
    subject.say("one of the stream's own", wait(own, elsewhere.event, 0), bench.settle());
    subject.say("unknown flags", wait(own, elsewhere.event, 0x99), bench.settle());
    subject.say("no event", wait(own, null_mut(), 0), bench.settle());
    drop(elsewhere);
    joining(subject, wait);
    isolated(subject, wait);
}

/// Copies what another stream writes, which takes its time.
fn late(subject: &Subject, wait: Wait, stream: Stream) {
    const WRITTEN: u8 = 0x66;
    let bench = subject.bench;
    let (from, to) = (Piece::source(bench, Place::Device), Piece::target(bench, Place::Device));
    let other = Elsewhere::new(bench);
    if !other.stream.is_null() {
        bench.note("cuLaunchHostFunc", bench.cuLaunchHostFunc(other.stream, Some(nap), null_mut()));
        bench.note("cuMemsetD8Async", bench.cuMemsetD8Async(from.at(0), WRITTEN, SIZE, other.stream));
        other.record(other.stream);
    }
    let result = wait(stream.1, other.event, 0);
    let copied = bench.cuMemcpyDtoDAsync_v2(to.at(0), from.at(0), SIZE, subject.meant(stream.1));
    bench.note("cuMemcpyDtoDAsync_v2", copied);
    subject.say(format_args!("for another stream{}", on(stream)), result, to.seen(&[WRITTEN; SIZE]));
}

/// A stream becomes part of a capture by waiting for an event of it, and that ends by the other way round.
fn joining(subject: &Subject, wait: Wait) {
    let bench = subject.bench;
    let own = bench.own_stream();
    let target = Piece::target(bench, Place::Device);
    let (out, back) = (Elsewhere::new(bench), Elsewhere::new(bench));
    bench.note("cuStreamBeginCapture_v2", bench.cuStreamBeginCapture_v2(own, RELAXED));
    out.record(own);
    let result = wait(out.stream, out.event, 0);
    let joined = status(bench, out.stream);
    bench.note("cuMemsetD8Async", bench.cuMemsetD8Async(target.at(0), 1, SIZE, out.stream));
    back.record(out.stream);
    subject.say("one of a capture", result, joined);
    let result = wait(own, back.event, 0);
    let recorded = ended(bench, own);
    let after = status(bench, out.stream);
    subject.say(
        "one of the capture that it is in",
        result,
        format_args!("{recorded}, {after}, {}", target.untouched()),
    );
}

/// A capture cannot wait for work outside of it.
fn isolated(subject: &Subject, wait: Wait) {
    let bench = subject.bench;
    let own = bench.own_stream();
    let outside = Elsewhere::new(bench);
    outside.record(outside.stream);
    bench.note("cuStreamBeginCapture_v2", bench.cuStreamBeginCapture_v2(own, RELAXED));
    let result = wait(own, outside.event, 0);
    let during = status(bench, own);
    let recorded = ended(bench, own);
    subject.say("one outside of the capture", result, format_args!("{}{during}, {recorded}", bench.settle()));
}
