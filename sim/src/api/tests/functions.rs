//! Modules, functions, kernels, and the many ways to launch.

use super::super::abi::LaunchConfig;
use super::super::functions::*;
use super::super::launches::*;
use super::super::libraries::*;
use super::super::modules::*;
use super::{PTX, Session, alloc, function, get, launch, put, synchronize};
use crate::border::from_tests::{address, ask, block, given, list, no_list, nowhere, text};

fn library_kernel(name: &std::ffi::CStr) -> usize {
    let library: usize = given(|out| cuLibraryLoadData(out, address(&PTX[0]), 0, 0, 0, 0, 0, 0));
    given(|out| cuLibraryGetKernel(out, library, text(name)))
}

#[test]
fn parameters_are_asked_of_a_function_as_a_function_and_of_a_kernel_as_a_kernel() {
    let _session = Session::begin();
    let (function, kernel) = (function(c"scale"), library_kernel(c"scale"));
    assert_eq!(given(|out| cuFuncGetParamInfo(function, 3, out, nowhere())), 20);
    assert_eq!(given(|out| cuKernelGetParamInfo(kernel, 3, out, nowhere())), 20);
    assert_eq!(ask::<usize>(|out| cuFuncGetParamInfo(function, 4, out, nowhere())).0, 1);
    assert_eq!(ask::<usize>(|out| cuKernelGetParamInfo(kernel, 4, out, nowhere())).0, 1);
    assert_eq!(ask::<usize>(|out| cuFuncGetParamInfo(kernel, 0, out, nowhere())).0, 400);
    assert_eq!(ask::<usize>(|out| cuKernelGetParamInfo(function, 0, out, nowhere())).0, 400);
    let of_kernel: usize = given(|out| cuKernelGetFunction(out, kernel));
    assert_eq!(given(|out| cuFuncGetParamInfo(of_kernel, 2, out, nowhere())), 16);
}

#[test]
fn a_kernel_may_be_launched_in_place_of_its_function() {
    let _session = Session::begin();
    let (at, seed, count) = (alloc(64), 0u32, 4u32);
    let params = [address(&at), address(&seed), address(&count)];
    assert_eq!(launch(library_kernel(c"fill_hash"), 0, &params), 0);
    assert_eq!(get(at, 2), [0, 0x514E_28B7]);
}

#[test]
fn parameters_come_one_by_one_or_in_a_buffer_or_as_a_struct() {
    #[repr(C)]
    struct Params(u64, u64, u64, u32);
    let _session = Session::begin();
    let (a, b, out) = (alloc(16), alloc(16), alloc(16));
    put(a, &[1.0f32, 2.0].map(f32::to_bits));
    put(b, &[10.0f32, 20.0].map(f32::to_bits));
    let sum = [11.0f32, 22.0].map(f32::to_bits);
    let params = Params(out, a, b, 2);
    let bytes = 28usize;
    let extra = [1, address(&params), 2, address(&bytes), 0];
    let code = cuLaunchKernel(function(c"add"), 1, 1, 1, 32, 1, 1, 0, 0, no_list(), list(&extra));
    assert_eq!(code, 0);
    assert_eq!(get(out, 2), sum);
    put(out, &[0, 0]);
    assert_eq!(launch(function(c"add_struct"), 0, &[address(&params)]), 0);
    assert_eq!(get(out, 2), sum);
    let too_short = 20usize;
    let extra = [1, address(&params), 2, address(&too_short), 0];
    let code = cuLaunchKernel(function(c"add"), 1, 1, 1, 32, 1, 1, 0, 0, no_list(), list(&extra));
    assert_eq!(code, 1);
}

#[test]
fn the_values_of_parameters_are_taken_at_the_call() {
    let _session = Session::begin();
    let flag = given(|out| super::super::host_memory::cuMemHostAlloc(out, 4, 0)) as u64;
    super::spin(0, alloc(4), flag);
    let (at, mut seed, count) = (alloc(64), 1u32, 1u32);
    assert_eq!(launch(function(c"fill_hash"), 0, &[address(&at), address(&seed), address(&count)]), 0);
    seed = 0;
    crate::border::write_at(flag as usize, 1u32).unwrap();
    synchronize();
    assert_eq!((get(at, 1)[0], seed), (0x514E_28B7, 0));
}

#[test]
fn shapes_that_the_device_cannot_run_are_refused() {
    let _session = Session::begin();
    let (at, seed, count) = (alloc(64), 0u32, 1u32);
    let params = [address(&at), address(&seed), address(&count)];
    let function = function(c"fill_hash");
    let shape = |grid: [u32; 3], block: [u32; 3], shared| {
        let [gx, gy, gz] = grid;
        let [bx, by, bz] = block;
        cuLaunchKernel(function, gx, gy, gz, bx, by, bz, shared, 0, list(&params), no_list())
    };
    assert_eq!(shape([1, 1, 1], [1024, 1, 1], 0), 0);
    assert_eq!(shape([1, 1, 1], [1024, 2, 1], 0), 1);
    assert_eq!(shape([0, 1, 1], [1, 1, 1], 0), 1);
    assert_eq!(shape([1, 65536, 1], [1, 1, 1], 0), 1);
    assert_eq!(shape([1, 1, 1], [1, 1, 65], 0), 1);
    assert_eq!(shape([1, 1, 1], [1, 1, 1], 100 << 10), 1);
    assert_eq!(cuFuncSetAttribute(function, 8, 100 << 10), 0);
    assert_eq!(shape([1, 1, 1], [1, 1, 1], 100 << 10), 0);
}

#[test]
fn a_cooperative_launch_whose_blocks_do_not_fit_even_alone_is_too_large() {
    let _session = Session::begin();
    let (at, seed, count) = (alloc(64), 1u32, 1u32);
    let (function, params) = (function(c"fill_hash"), [address(&at), address(&seed), address(&count)]);
    let with = |threads, shared| cuLaunchCooperativeKernel(function, 1, 1, 1, threads, 1, 1, shared, 0, list(&params));
    assert_eq!((with(32, 0), with(32, 1 << 20), with(2048, 1 << 20)), (0, 720, 1));
}

#[test]
fn parameters_come_as_pointers_or_in_a_buffer_and_not_as_both() {
    let _session = Session::begin();
    let (at, seed, count) = (alloc(8), 1u32, 2u32);
    let pointers = [address(&at), address(&seed), address(&count)];
    let buffer = [at, u64::from(seed) | u64::from(count) << 32];
    let size = size_of_val(&buffer);
    let extra = [1, address(&buffer), 2, address(&size), 0];
    let function = function(c"fill_hash");
    let with = |params, extra| cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0, params, extra);
    assert_eq!(with(no_list(), list(&extra)), 0);
    assert_eq!(with(list(&pointers), list(&extra)), 1);
    // A list with nothing in it is none.
    assert_eq!(with(list(&pointers), list(&[0])), 0);
    assert_eq!(with(no_list(), list(&[0])), 1);
    assert_eq!(get(at, 1), [0x514E_28B7]);
}

#[test]
fn a_kernel_without_a_body_here_loads_and_is_not_launched() {
    let _session = Session::begin();
    let at = alloc(16);
    assert_eq!(launch(function(c"unheard_of"), 0, &[address(&at)]), 801);
    // This name has a body, for other parameters.
    let count = 1u32;
    assert_eq!(launch(function(c"relu"), 0, &[address(&at), address(&count)]), 801);
}

#[test]
fn the_launches_of_old_and_the_newest_do_the_same() {
    let _session = Session::begin();
    let (at, function) = (alloc(64), function(c"fill_hash"));
    assert_eq!(cuFuncSetBlockShape(function, 32, 1, 1), 0);
    assert_eq!(cuParamSetv(function, 0, address(&at), 8), 0);
    assert_eq!(cuParamSeti(function, 8, 1), 0);
    assert_eq!(cuParamSeti(function, 12, 1), 0);
    assert_eq!(cuParamSetSize(function, 16), 0);
    assert_eq!(cuLaunchGrid(function, 4, 1), 0);
    assert_eq!(get(at, 1), [0x514E_28B7]);
    let (at, seed, count) = (at + 4, 1u32, 1u32);
    let params = [address(&at), address(&seed), address(&count)];
    let mut config =
        LaunchConfig { grid: [1, 1, 1], block: [32, 1, 1], shared: 0, stream: 0, attributes: 0, attribute_count: 0 };
    assert_eq!(cuLaunchKernelEx(block(&config), function, list(&params), no_list()), 0);
    assert_eq!(get(at, 1), [0x514E_28B7]);
    let cooperative = [2u64, 1, 0, 0, 0, 0, 0, 0, 0];
    (config.attributes, config.attribute_count) = (address(&cooperative), 1);
    config.grid = [1 << 20, 1, 1];
    assert_eq!(cuLaunchKernelEx(block(&config), function, list(&params), no_list()), 720);
}

#[test]
fn images_that_are_no_ptx_are_refused_by_what_they_are() {
    let _session = Session::begin();
    let load = |image: &[u8]| ask::<usize>(|out| cuModuleLoadData(out, address(&image[0]))).0;
    assert_eq!(load(b"\x7FELF\x02\x01\x01\0"), 209);
    assert_eq!(load(&[0x50, 0xED, 0x55, 0xBA, 1, 0, 0, 0]), 209);
    assert_eq!(load(b"int main() { }\0"), 218);
    assert_eq!(load(b".version 99.0\n.target sm_75\n\0"), 222);
    assert_eq!(load(b".version 9.0\n.target sm_120\n\0"), 209);
    assert_eq!(ask::<usize>(|out| cuModuleLoad(out, text(c"/no/such/file"))).0, 301);
    let module: usize = given(|out| cuModuleLoadData(out, address(&PTX[0])));
    assert_eq!(ask::<usize>(|out| cuModuleGetFunction(out, module, text(c"nobody"))).0, 500);
    let at: u64 = given(|out| cuModuleGetGlobal_v2(out, nowhere(), module, text(c"counter")));
    assert_eq!(get(at, 1), [5]);
    assert_eq!(given(|out| cuModuleGetFunctionCount(out, module)), 7);
    assert_eq!(cuModuleUnload(module), 0);
    assert_eq!(cuModuleUnload(module), 400);
}

#[repr(align(64))]
struct Map([u64; 16]);

#[test]
fn a_tensor_map_says_what_it_was_made_of_and_can_be_given_another_address() {
    use super::super::tensor_maps::*;
    use crate::border::from_tests::place;
    let session = Session::begin();
    let [at, other] = [alloc(4096), alloc(4096)];
    // It needs no context.
    let context: usize = given(|out| super::super::context::cuCtxPopCurrent_v2(out));
    let tiled = |map: &mut Map, rank, at, stride: u64, window: u32| {
        let (sizes, strides, windows, steps) = ([32u64, 32], [stride], [window, 8], [1u32, 1]);
        let lists = (list(&sizes), list(&strides), list(&windows), list(&steps));
        cuTensorMapEncodeTiled(place(&mut map.0), 7, rank, at, lists.0, lists.1, lists.2, lists.3, 0, 0, 0, 0)
    };
    let [mut one, mut two] = [Map([0; 16]), Map([0; 16])];
    assert_eq!((tiled(&mut one, 2, at, 128, 32), tiled(&mut two, 2, other, 128, 32)), (0, 0));
    assert_ne!(one.0, two.0);
    assert_eq!(cuTensorMapReplaceAddress(place(&mut one.0), other), 0);
    assert_eq!(one.0, two.0);
    for (rank, at, stride, window) in
        [(0, at, 128, 32), (6, at, 128, 32), (2, 0, 128, 32), (2, at + 8, 128, 32), (2, at, 8, 32), (2, at, 128, 257)]
    {
        assert_eq!(tiled(&mut one, rank, at, stride, window), 1);
    }
    assert_eq!(cuTensorMapReplaceAddress(place(&mut one.0), at + 8), 1);
    assert_eq!(super::super::context::cuCtxPushCurrent_v2(context), 0);
    drop(session);
}
