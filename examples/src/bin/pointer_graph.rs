//! A linked structure in device memory: a chain whose nodes lie in many allocations and point from
//! one to the next, walked by a kernel that is handed its head alone.
//!
//! Between walks the chain is laid out anew in some of its allocations, the others keep pointing to
//! where they pointed, and one allocation is replaced by another at a new address.

use std::process::ExitCode;

use baton_examples::reference::hash32;
use baton_examples::{Checksum, Failure, Gpu, read_options, run, shape};
use cudarc::driver::{CudaSlice, DevicePtr, DriverError, PushKernelArg};

/// Words of a node: the address of the next one, or 0, and a value.
const NODE: usize = 2;

/// The order in which the chain visits its nodes: a permutation that depends on the seed.
fn order(nodes: usize, seed: u32) -> Vec<usize> {
    let mut order: Vec<usize> = (0..nodes).collect();
    order.sort_by_key(|&node| (hash32(seed ^ hash32(node as u32)), node));
    order
}

/// The words of every block for a chain in this order, when the blocks begin at these addresses.
fn lay_out(order: &[usize], addresses: &[u64], per_block: usize, seed: u32) -> Vec<Vec<u64>> {
    let address_of = |node: usize| addresses[node / per_block] + (node % per_block * NODE * 8) as u64;
    let mut blocks = vec![vec![0u64; per_block * NODE]; addresses.len()];
    for (place, &node) in order.iter().enumerate() {
        let at = node % per_block * NODE;
        let block = &mut blocks[node / per_block];
        block[at] = order.get(place + 1).map_or(0, |&next| address_of(next));
        block[at + 1] = value(seed, node);
    }
    blocks
}

fn value(seed: u32, node: usize) -> u64 {
    u64::from(hash32(seed.wrapping_add(node as u32)))
}

fn example() -> Result<Checksum, Failure> {
    let (mut blocks, mut per_block, mut steps, mut seed) = (12, 64, 6, 1);
    read_options(&mut [
        ("--blocks", &mut blocks),
        ("--elements", &mut per_block),
        ("--steps", &mut steps),
        ("--seed", &mut seed),
    ])?;
    if blocks == 0 || per_block == 0 {
        return Err("--blocks and --elements must be at least 1".into());
    }
    let nodes = blocks * per_block;
    println!("walking {nodes} nodes in {blocks} allocations, {steps} times");

    let gpu = Gpu::open()?;
    let chase = gpu.kernel("chase")?;
    let stream = gpu.context.new_stream()?;
    let address_of = |slice: &CudaSlice<u64>| slice.device_ptr(&stream).0;
    let mut memory: Vec<CudaSlice<u64>> =
        (0..blocks).map(|_| stream.alloc_zeros(per_block * NODE)).collect::<Result<_, DriverError>>()?;
    let mut on_device: Vec<Vec<u64>> = vec![Vec::new(); blocks];
    let mut out = stream.alloc_zeros::<u64>(1)?;
    let mut sum = Checksum::default();

    for step in 0..steps {
        let seed = (seed + step) as u32;
        memory[step % blocks] = stream.alloc_zeros(per_block * NODE)?;
        on_device[step % blocks].clear();
        let addresses: Vec<u64> = memory.iter().map(address_of).collect();
        let visits = order(nodes, seed / 2);
        // Blocks whose words are the same as before are left alone.
        for (at, words) in lay_out(&visits, &addresses, per_block, seed / 2).into_iter().enumerate() {
            if on_device[at] != words {
                stream.memcpy_htod(&words, &mut memory[at])?;
                on_device[at] = words;
            }
        }
        let hops = (nodes - step % nodes) as u32;
        let head = addresses[visits[0] / per_block] + (visits[0] % per_block * NODE * 8) as u64;
        let mut launch = stream.launch_builder(&chase);
        launch.arg(&mut out).arg(&head).arg(&hops);
        // SAFETY: types and order are the kernel's. `head` and every address that it leads to lie in
        // `memory`, which outlives the walk: the download below waits for it.
        unsafe { launch.launch(shape(1)) }?;
        let got = stream.clone_dtoh(&out)?[0];
        stream.synchronize()?;
        let want: u64 = visits[..hops as usize].iter().map(|&node| value(seed / 2, node)).sum();
        if got != want {
            return Err(format!("walk {step} summed to {got}, the CPU computed {want}").into());
        }
        sum.integer(got);
    }
    Ok(sum)
}

fn main() -> ExitCode {
    run("pointer_graph", example)
}
