//! Streams that write words of device memory, and that wait for them.
//!
//! A wait is for what another stream writes next, or for what the word already holds, however the
//! address and the flags are understood: no driver can be made to wait for ever.

use std::ffi::c_void;
use std::ptr::null_mut;

use crate::bench::{Handle, Stream, Subject, on};
use crate::piece::{Piece, Place, SIZE};

/// All bytes of the memory that is waited for, so that a wait for a multiple of it is met anywhere.
const FILLER: u8 = 0x07;

/// A word that is written or waited for.
pub(crate) trait Word: Copy {
    const FILLED: Self;
    const WRITTEN: Self;
    fn bytes(self) -> Vec<u8>;
}

impl Word for u32 {
    const FILLED: Self = u32::from_le_bytes([FILLER; 4]);
    const WRITTEN: Self = 0x1234_abcd;
    fn bytes(self) -> Vec<u8> {
        self.to_le_bytes().to_vec()
    }
}

impl Word for u64 {
    const FILLED: Self = u64::from_le_bytes([FILLER; 8]);
    const WRITTEN: Self = 0x1234_abcd_5678_9ef0;
    fn bytes(self) -> Vec<u8> {
        self.to_le_bytes().to_vec()
    }
}

/// `cuStreamWriteValue32`, `cuStreamWriteValue64`, and their second versions.
pub(crate) fn write<T: Word>(subject: &Subject, write: extern "C" fn(Handle, u64, T, u32) -> u32) {
    let bench = subject.bench;
    let run = |case: &str, at: &dyn Fn(&Piece) -> u64, flags, right, stream: Stream| {
        let target = Piece::target(bench, Place::Device);
        let address = at(&target);
        let result = write(stream.1, address, T::WRITTEN, flags);
        let mut meant = target.before.clone();
        if let Some(span) = target.span(address, size_of::<T>()).filter(|_| right) {
            meant[span].copy_from_slice(&T::WRITTEN.bytes());
        }
        subject.say(format_args!("{case}{}", on(stream)), result, target.seen(&meant));
    };
    let streams = bench.streams();
    for stream in streams {
        run("a word", &|target| target.at(16), 0, true, stream);
    }
    run("a word, without a barrier", &|target| target.at(24), 1, true, streams[0]);
    run("at an odd address", &|target| target.at(17), 0, false, streams[0]);
    run("unknown flags", &|target| target.at(16), 0x99, false, streams[0]);
    run("at null", &|_| 0, 0, false, streams[0]);
}

/// `cuStreamWaitValue32`, `cuStreamWaitValue64`, and their second versions.
pub(crate) fn wait<T: Word>(subject: &Subject, wait: extern "C" fn(Handle, u64, T, u32) -> u32) {
    let bench = subject.bench;
    let run = |case: &str, at: &dyn Fn(&Piece) -> u64, flags, stream: Stream| {
        let flag = Piece::new(bench, Place::Device, &[FILLER; SIZE]);
        let result = wait(stream.1, at(&flag), T::FILLED, flags);
        subject.say(format_args!("{case}{}", on(stream)), result, flag.untouched());
    };
    let streams = bench.streams();
    for stream in streams {
        run("at least", &|flag| flag.at(16), 0, stream);
    }
    meanwhile(subject, &|address, stream| wait(stream, address, T::FILLED, 0));
    run("equal", &|flag| flag.at(16), 1, streams[0]);
    run("a bit of it", &|flag| flag.at(16), 2, streams[0]);
    run("not all bits", &|flag| flag.at(16), 3, streams[0]);
    run("at an odd address", &|flag| flag.at(17), 0, streams[0]);
    run("unknown flags", &|flag| flag.at(16), 0x98, streams[0]);
    run("at null", &|_| 0, 0, streams[0]);
}

/// Waits for what only another stream writes, once it has been seen that the stream does wait.
fn meanwhile(subject: &Subject, wait: &dyn Fn(u64, Handle) -> u32) {
    const NON_BLOCKING: u32 = 1;
    let bench = subject.bench;
    let (name, stream) = bench.streams()[0];
    let mut other = null_mut();
    bench.note("cuStreamCreate", bench.cuStreamCreate(&mut other, NON_BLOCKING));
    let flag = Piece::new(bench, Place::Device, &[0; SIZE]);
    let result = wait(flag.at(16), stream);
    let waiting = bench.cuStreamQuery(stream);
    bench.note("cuMemsetD8Async", bench.cuMemsetD8Async(flag.at(0), FILLER, SIZE, other));
    let seen = flag.seen(&[FILLER; SIZE]);
    let after = bench.cuStreamQuery(stream);
    subject.say(format_args!("for another stream, {name}"), result, format_args!("{waiting}, then {seen}, {after}"));
    if !other.is_null() {
        bench.note("cuStreamDestroy_v2", bench.cuStreamDestroy_v2(other));
    }
}

/// `CUstreamBatchMemOpParams`, of the kinds that write or wait.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Operation {
    kind: u32,
    address: u64,
    value: u64,
    flags: u32,
    alias: u64,
    _rest: u64,
}

impl Operation {
    pub(crate) fn new(kind: u32, address: u64, value: u64) -> Self {
        Self { kind, address, value, flags: 0, alias: 0, _rest: 0 }
    }
}

const WAIT_32: u32 = 1;
pub(crate) const WRITE_32: u32 = 2;
const WAIT_64: u32 = 4;
const WRITE_64: u32 = 5;

/// `cuStreamBatchMemOp` and its second version.
pub(crate) fn batch(subject: &Subject, batch: extern "C" fn(Handle, u32, *mut c_void, u32) -> u32) {
    let bench = subject.bench;
    let run = |case: &str, first_kind, flags, right, stream: Stream| {
        let target = Piece::new(bench, Place::Device, &[FILLER; SIZE]);
        let mut operations = [
            Operation::new(first_kind, target.at(0), u32::FILLED.into()),
            Operation::new(WRITE_32, target.at(0), 0x0102_0304),
            Operation::new(WAIT_64, target.at(8), u64::FILLED),
            Operation::new(WRITE_64, target.at(16), u64::WRITTEN),
        ];
        let count = operations.len() as u32;
        let result = batch(stream.1, count, operations.as_mut_ptr().cast(), flags);
        let mut meant = target.before.clone();
        if right {
            meant[..4].copy_from_slice(&0x0102_0304_u32.to_le_bytes());
            meant[16..24].copy_from_slice(&u64::WRITTEN.to_le_bytes());
        }
        subject.say(format_args!("{case}{}", on(stream)), result, target.seen(&meant));
    };
    let streams = bench.streams();
    for stream in streams {
        run("waits and writes", WAIT_32, 0, true, stream);
    }
    run("unknown operation", 99, 0, false, streams[0]);
    run("unknown flags", WAIT_32, 99, false, streams[0]);
    subject.say("nothing", batch(streams[0].1, 0, null_mut(), 0), bench.settle());
    let mut many = [Operation::new(WRITE_32, 0, 0); 257];
    let result = batch(streams[0].1, many.len() as u32, many.as_mut_ptr().cast(), 0);
    subject.say("257 operations at null", result, bench.settle());
}
