//! Allocations, copies and fills.
#![allow(unsafe_code)]

use super::super::abi::{Location, Memcpy2D, MemcpyAttributes};
use super::super::context::*;
use super::super::copies::*;
use super::super::fills::*;
use super::super::host_memory::*;
use super::super::memory::*;
use super::super::pointers::*;
use super::super::ranges::cuMemDiscardBatchAsync;
use super::super::stream_memory::cuMemFreeAsync;
use super::super::streams::*;
use super::super::vmm::cuMemAddressReserve;
use super::vmm::reserve;
use super::{Session, alloc, function, get, launch, put, synchronize};
use crate::border::from_tests::{address, address_mut, block, given, list, place};

#[test]
fn memory_keeps_what_is_copied_into_it_and_goes_back_when_freed() {
    let _session = Session::begin();
    let at = alloc(4 << 20);
    let values: Vec<u32> = (0..1000).collect();
    put(at + (3 << 20), &values);
    assert_eq!(get(at + (3 << 20), 1000), values);
    assert_eq!(get(at, 4), [0; 4]);
    let base_and_size = given(|base| cuMemGetAddressRange_v2(base, crate::border::from_tests::nowhere(), at + 9));
    assert_eq!(base_and_size, at);
    assert_eq!(cuMemFree_v2(at + 4), 1);
    assert_eq!(cuMemFree_v2(at), 0);
}

#[test]
fn a_copy_that_leaves_its_allocation_is_refused_at_the_call() {
    let _session = Session::begin();
    let (at, mut host) = (alloc(4096), [0u8; 64]);
    alloc(4096);
    assert_eq!(cuMemcpyHtoD_v2(at + 4090, address(&host), 16), 1);
    assert_eq!(cuMemcpyDtoH_v2(address_mut(&mut host), at + 4090, 16), 1);
    assert_eq!(cuMemcpyHtoD_v2(0, address(&host), 16), 1);
    assert_eq!(cuMemcpyDtoD_v2(at, address(&host) as u64, 16), 1);
    assert_eq!(cuMemsetD8_v2(at + 4090, 0, 16), 1);
    assert_eq!(cuMemsetD32_v2(at + 2, 0, 1), 1);
}

#[test]
fn an_address_of_the_device_cannot_be_read_by_the_host() {
    let _session = Session::begin();
    let at = alloc(4096);
    let file = std::fs::File::open("/dev/zero").unwrap();
    // The kernel reads into memory for us and says `EFAULT` where there is none.
    // SAFETY: a failing read writes nothing, and this one must fail.
    let got = unsafe { libc::read(std::os::fd::AsRawFd::as_raw_fd(&file), at as *mut libc::c_void, 1) };
    assert_eq!(got, -1);
}

#[test]
fn a_pageable_source_may_change_once_the_call_is_back() {
    let _session = Session::begin();
    let stream: usize = given(|out| cuStreamCreate(out, 1));
    let flag = given(|out| cuMemHostAlloc(out, 4, 0)) as u64;
    let (at, done) = (alloc(64), alloc(64));
    super::spin(stream, done, flag);
    let mut source = [7u32; 16];
    assert_eq!(cuMemcpyHtoDAsync_v2(at, address(&source), 64, stream), 0);
    source.fill(8);
    assert_eq!(cuStreamQuery(stream), 600);
    assert_eq!(super::super::stream_words::cuStreamWriteValue32_v2(0, flag, 1, 0), 0);
    assert_eq!(cuStreamSynchronize(stream), 0);
    assert_eq!(get(at, 16), [7; 16]);
    assert_eq!(source, [8; 16]);
}

#[test]
fn pinned_memory_has_one_address_for_host_and_device() {
    let _session = Session::begin();
    let host: usize = given(|out| cuMemHostAlloc(out, 4096, 0));
    assert_eq!(given(|out| cuMemHostGetDevicePointer_v2(out, host, 0)), host as u64);
    let (seed, count) = (3u32, 16u32);
    let at = host as u64;
    assert_eq!(launch(function(c"fill_hash"), 0, &[address(&at), address(&seed), address(&count)]), 0);
    synchronize();
    assert_ne!(crate::border::read_at::<u32>(host).unwrap(), 0);
    let mut kind = 0u32;
    assert_eq!(cuPointerGetAttribute(address_mut(&mut kind), 2, at), 0);
    assert_eq!(kind, 1);
    assert_eq!(cuMemFreeHost(host + 4), 1);
    assert_eq!(cuMemFreeHost(host), 0);
}

#[test]
fn memory_of_the_programs_own_can_be_registered_once() {
    let _session = Session::begin();
    let mine = vec![0u32; 4096];
    let start = address(&mine[0]);
    assert_eq!(cuMemHostRegister_v2(start, 16384, 0), 0);
    assert_eq!(cuMemHostRegister_v2(start + 4096, 16, 0), 712);
    assert_eq!(cuMemsetD32_v2(start as u64, 9, 4096), 0);
    synchronize();
    assert_eq!(crate::border::read_at::<u32>(start + 16380).unwrap(), 9);
    assert_eq!(cuMemHostUnregister(start), 0);
    assert_eq!(cuMemHostUnregister(start), 713);
    let device = alloc(16);
    assert_eq!(cuMemHostRegister_v2(device as usize, 16, 0), 1);
}

#[test]
fn a_box_is_copied_row_by_row() {
    let _session = Session::begin();
    let source: Vec<u32> = (0..64).collect();
    let at = alloc(4096);
    let mut copy = Memcpy2D {
        src_x: 8,
        src_y: 1,
        src_type: 1,
        src_host: address(&source[0]),
        src_device: 0,
        src_array: 0,
        src_pitch: 32,
        dst_x: 0,
        dst_y: 2,
        dst_type: 2,
        dst_host: 0,
        dst_device: at,
        dst_array: 0,
        dst_pitch: 64,
        width: 8,
        height: 3,
    };
    assert_eq!(cuMemcpy2D_v2(block(&copy)), 0);
    for row in 0..3u64 {
        let first = 8 * (row as u32 + 1) + 2;
        assert_eq!(get(at + (row + 2) * 64, 2), [first, first + 1]);
    }
    copy.dst_pitch = 4;
    assert_eq!(cuMemcpy2D_v2(block(&copy)), 1);
    copy.dst_type = 3;
    assert_ne!(cuMemcpy2D_v2(block(&copy)), 0);
}

#[test]
fn fills_of_two_dimensions_leave_what_is_between_the_rows() {
    let _session = Session::begin();
    let at = alloc(256);
    put(at, &[0; 64]);
    assert_eq!(cuMemsetD2D32_v2(at, 64, 5, 2, 4), 0);
    let got = get(at, 64);
    for (index, value) in got.into_iter().enumerate() {
        assert_eq!(value, if index % 16 < 2 { 5 } else { 0 });
    }
}

#[test]
fn memory_is_freed_when_its_stream_comes_to_that() {
    let session = Session::begin();
    let stream: usize = given(|out| cuStreamCreate(out, 1));
    let (at, done, mapped) = (alloc(4 << 20), alloc(4), reserve(1));
    let flag = given(|out| cuMemHostAlloc(out, 4, 0));
    super::spin(stream, done, flag as u64);
    assert_eq!(cuMemFreeAsync(0, stream), 0);
    assert_eq!((cuMemFreeAsync(at + 512, stream), cuMemFreeAsync(mapped, stream)), (1, 1));
    assert_eq!((cuMemFreeAsync(flag as u64, stream), cuMemFreeAsync(address(&flag) as u64, stream)), (1, 1));
    assert_eq!(cuMemFreeAsync(at, stream), 0);
    assert_eq!(cuMemFreeAsync(at, stream), 1);
    assert_eq!((cuMemsetD32_v2(at, 1, 1), cuStreamSynchronize(0)), (0, 0));
    assert_eq!(given(|base| cuMemGetAddressRange_v2(base, crate::border::from_tests::nowhere(), at + 9)), at);
    // True while it is this context's: its address may soon be another's.
    let context = session.inner();
    let is_there = || context.common.space.look().allocations.of_context(context.id).contains(&at);
    assert!(is_there());
    // To free it once more is to wait for that.
    let again = std::thread::spawn(move || cuMemFree_v2(at));
    while !context.locks.is_submission_held() {
        assert!(!again.is_finished());
        std::thread::yield_now();
    }
    assert!(!again.is_finished());
    super::synchronize_with(flag);
    assert_eq!(again.join().unwrap(), 0);
    assert!(!is_there());
}

#[test]
fn an_address_of_the_device_is_taken_for_one_of_the_host_s_too() {
    let _session = Session::begin();
    let (at, other) = (alloc(4096), alloc(4096));
    put(at, &[5, 6]);
    assert_eq!(cuMemcpyHtoD_v2(other, at as usize, 8), 0);
    assert_eq!(get(other, 2), [5, 6]);
    assert_eq!(cuMemcpyDtoH_v2(other as usize, at + 4, 4), 0);
    assert_eq!(cuMemcpyHtoDAsync_v2(other + 4, at as usize, 4, 0), 0);
    assert_eq!(get(other, 2), [6, 5]);
    assert_eq!(cuMemcpyHtoD_v2(other, at as usize + 4092, 8), 1);
    assert_eq!(cuMemcpyHtoD_v2(address(&at) as u64, address(&at), 8), 1);
}

#[test]
fn calls_of_32_bits_work_in_a_context_of_their_own_api_and_in_no_other() {
    let _session = Session::begin();
    let mut answer = 7u32;
    assert_eq!(cuMemAlloc(place(&mut answer), 4096), 201);
    assert_eq!(answer, 0);
    assert_eq!(cuMemFree(0), 201);
    let context: usize = given(|out| cuCtxCreate(out, 0, 0));
    let at: u32 = given(|out| cuMemAlloc(out, 4096));
    let value = [1u32, 2, 3];
    assert_eq!(super::super::copies_old::cuMemcpyHtoD(at, address(&value), 12), 0);
    assert_eq!(get(at.into(), 3), value);
    assert_eq!(cuMemFree(at), 0);
    assert_eq!(cuCtxDestroy_v2(context), 0);
}

#[test]
fn an_allocation_that_fails_overwrites_its_answers() {
    let _session = Session::begin();
    let (mut at, mut pitch) = (7u64, 7usize);
    assert_eq!(cuMemAlloc_v2(place(&mut at), 0), 1);
    assert_eq!(at, 0);
    at = 7;
    assert_eq!(cuMemAllocPitch_v2(place(&mut at), place(&mut pitch), 4, 4, 3), 1);
    assert_eq!((at, pitch), (0, 0));
}

#[test]
fn memory_is_freed_without_a_context() {
    let session = Session::begin();
    let context = session.inner();
    let owned = || context.common.space.look().allocations.of_context(context.id).len();
    let at = alloc(16);
    let managed = given(|out| cuMemAllocManaged(out, 16, 1));
    assert_eq!(given(|out| cuCtxPopCurrent_v2(out)), session.context);
    assert_eq!(cuMemFree_v2(0), 0);
    assert_eq!(cuMemFree_v2(0x1234), 1);
    assert_eq!(owned(), 1);
    assert_eq!(cuMemFree_v2(at), 0);
    assert_eq!(owned(), 0);
    assert_eq!(cuMemFree_v2(managed), 0);
    assert_eq!(cuMemFree(0), 0);
    assert_eq!(cuCtxPushCurrent_v2(session.context), 0);
}

/// Copies 8 bytes each in one call; its answer, and the copy that it says is wrong.
fn copy_batch(dsts: [u64; 2], srcs: [u64; 2], stream: usize) -> (u32, usize) {
    let in_order = MemcpyAttributes { order: 1, src: HERE, dst: HERE, flags: 0 };
    let mut failed = 7;
    let code = cuMemcpyBatchAsync(
        list(&dsts),
        list(&srcs),
        list(&[8, 8]),
        2,
        list(&[in_order]),
        list(&[0]),
        1,
        place(&mut failed),
        stream,
    );
    (code, failed)
}

const HERE: Location = Location { kind: 1, id: 0 };

#[test]
fn a_batch_does_the_copies_before_the_first_wrong_one_and_tells_which_that_is() {
    let _session = Session::begin();
    let stream: usize = given(|out| cuStreamCreate(out, 0));
    let at = alloc(32);
    put(at, &[1, 2, 3, 4, 0, 0, 0, 0]);
    assert_eq!(copy_batch([at + 16, at + 24], [at, at + 8], stream), (0, usize::MAX));
    assert_eq!(cuStreamSynchronize(stream), 0);
    assert_eq!(get(at + 16, 4), [1, 2, 3, 4]);
    // An address of the device, and no memory there.
    let hole: u64 = given(|out| cuMemAddressReserve(out, 2 << 20, 0, 0, 0));
    assert_eq!(copy_batch([at, hole], [at + 8, at], stream), (1, 1));
    assert_eq!(cuStreamSynchronize(stream), 0);
    assert_eq!(get(at, 4), [3, 4, 3, 4]);
}

#[test]
fn a_batch_is_refused_in_the_legacy_stream_by_any_name() {
    let _session = Session::begin();
    let at = alloc(32);
    assert_eq!(copy_batch([at, at], [at + 8, at + 8], 0), (1, 7));
    assert_eq!(copy_batch([at, at], [at + 8, at + 8], 1), (1, usize::MAX));
    assert_eq!(copy_batch([at, at], [at + 8, at + 8], 2), (0, usize::MAX));
    let managed = given(|out| cuMemAllocManaged(out, 4096, 1));
    let discard = |stream| cuMemDiscardBatchAsync(list(&[managed]), list(&[4096]), 1, 0, stream);
    assert_eq!((discard(0), discard(1), discard(2)), (1, 1, 0));
}

#[test]
fn managed_memory_is_attached_whole_and_not_to_the_legacy_stream_alone() {
    let _session = Session::begin();
    let stream: usize = given(|out| cuStreamCreate(out, 0));
    let managed = given(|out| cuMemAllocManaged(out, 8192, 1));
    assert_eq!(cuStreamAttachMemAsync(stream, managed, 0, 4), 0);
    assert_eq!(cuStreamAttachMemAsync(stream, managed, 8192, 1), 0);
    assert_eq!(cuStreamAttachMemAsync(stream, managed, 4096, 1), 1);
    assert_eq!(cuStreamAttachMemAsync(0, managed, 0, 1), 0);
    assert_eq!(cuStreamAttachMemAsync(0, managed, 0, 4), 1);
    assert_eq!(cuStreamAttachMemAsync_ptsz(0, managed, 0, 4), 0);
}
