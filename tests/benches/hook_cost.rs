//! The time that Baton adds to a driver call: `cargo bench -p baton-tests --bench hook_cost [-- --json FILE]`.
//!
//! The same call, to the simulated driver's own function and through Baton's door to it, in turn, in
//! blocks; the figure is the median over the blocks of the difference within each pair. The calls are
//! ones that the driver answers at once (a launch of no function, a fill of nothing), so that the
//! difference is not lost in the driver's own work.
//!
//! With `--gating` it measures a launch while memory is on its way instead: see `hook_cost/gating.rs`.

#[path = "hook_cost/gating.rs"]
mod gating;

use std::ffi::{c_int, c_uint, c_void};
use std::hint::black_box;
use std::ptr::null_mut;
use std::time::Instant;

use baton_tests::{Driver, built, root};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use serde_json::{Value, json};

const BLOCKS: usize = 3001;
const CALLS: u32 = 2_000;

type Launch = unsafe extern "C" fn(
    *mut c_void,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    *mut c_void,
    *mut *mut c_void,
    *mut *mut c_void,
) -> c_uint;
type Fill = unsafe extern "C" fn(u64, u8, usize, *mut c_void) -> c_uint;
type Copy = unsafe extern "C" fn(u64, u64, usize, *mut c_void) -> c_uint;
type Version = unsafe extern "C" fn(*mut c_int) -> c_uint;

struct Figure {
    call: &'static str,
    path: &'static str,
    bare: f64,
    added: f64,
    added_p90: f64,
}

impl Figure {
    fn json(&self) -> Value {
        json!({
            "call": self.call, "path": self.path,
            "bare_ns": self.bare, "added_ns": self.added, "added_ns_p90": self.added_p90,
        })
    }
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let has = |word: &str| words.iter().any(|argument| argument == word);
    let file = words.iter().skip_while(|argument| *argument != "--json").nth(1).map(String::as_str);
    if has(gating::AS_TENANT) {
        gating::tenant_main();
    } else if has("--gating") {
        gating::main(file);
    } else {
        hooks(file);
    }
}

fn hooks(file: Option<&str>) {
    let driver = Driver::simulated();
    // SAFETY: no other thread runs yet.
    unsafe { std::env::set_var("BATON_DRIVER", driver.library()) };
    // SAFETY: both libraries are ours and run nothing when loaded.
    let (bare, baton) = unsafe {
        (
            Library::open(Some(driver.library()), RTLD_NOW | RTLD_LOCAL).expect("the simulated driver was built"),
            Library::open(Some(built().shim()), RTLD_NOW | RTLD_LOCAL).expect("libbaton.so was built"),
        )
    };
    // SAFETY: cuda.h's signatures of these names, and a context made as it says.
    let figures = unsafe {
        let init: unsafe extern "C" fn(c_uint) -> c_uint = *bare.get(b"cuInit").expect("exported");
        let retain: unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_uint =
            *bare.get(b"cuDevicePrimaryCtxRetain").expect("exported");
        let set: unsafe extern "C" fn(*mut c_void) -> c_uint = *bare.get(b"cuCtxSetCurrent").expect("exported");
        let mut context = null_mut();
        assert_eq!((init(0), retain(&mut context, 0), set(context)), (0, 0, 0));

        let pair = |name: &[u8]| {
            (*bare.get::<*mut c_void>(name).expect("exported"), *baton.get::<*mut c_void>(name).expect("exported"))
        };
        let (a, b) = pair(b"cuLaunchKernel");
        let launch = |f: *mut c_void| {
            let f: Launch = std::mem::transmute(f);
            move || f(black_box(null_mut()), 1, 1, 1, 1, 1, 1, 0, null_mut(), null_mut(), null_mut())
        };
        let launches = measure("cuLaunchKernel", "hooked", launch(a), launch(b));
        let (a, b) = pair(b"cuMemsetD8Async");
        let fill = |f: *mut c_void| {
            let f: Fill = std::mem::transmute(f);
            move || f(black_box(0), 0, 0, null_mut())
        };
        let fills = measure("cuMemsetD8Async", "hooked", fill(a), fill(b));
        let (a, b) = pair(b"cuMemcpyDtoDAsync_v2");
        let copy = |f: *mut c_void| {
            let f: Copy = std::mem::transmute(f);
            move || f(black_box(0), black_box(0), 0, null_mut())
        };
        let copies = measure("cuMemcpyDtoDAsync_v2", "hooked", copy(a), copy(b));
        let (a, b) = pair(b"cuDriverGetVersion");
        let version = |f: *mut c_void| {
            let f: Version = std::mem::transmute(f);
            move || {
                let mut version = 0;
                f(black_box(&mut version))
            }
        };
        let versions = measure("cuDriverGetVersion", "forwarded", version(a), version(b));
        [launches, fills, copies, versions]
    };
    println!("{:<20} {:<10} {:>10} {:>12} {:>12}", "call", "path", "bare ns", "added ns", "added p90");
    for f in &figures {
        println!("{:<20} {:<10} {:>10.2} {:>12.2} {:>12.2}", f.call, f.path, f.bare, f.added, f.added_p90);
    }
    if let Some(file) = file {
        write_json(file, &figures);
    }
}

fn measure(call: &'static str, path: &'static str, bare: impl Fn() -> c_uint, baton: impl Fn() -> c_uint) -> Figure {
    assert_eq!(bare(), baton(), "{call} answers the same both ways");
    figure(call, path, pairs_of_blocks(CALLS, &bare, &baton, |block| block < BLOCKS))
}

/// Nanoseconds a call, each way, block by block.
fn pairs_of_blocks(
    calls: u32,
    bare: &impl Fn() -> c_uint,
    baton: &impl Fn() -> c_uint,
    go_on: impl Fn(usize) -> bool,
) -> Vec<(f64, f64)> {
    // Which one goes first changes, so that neither gains by its place.
    let pair = |block| {
        if block % 2 == 0 {
            let first = time(calls, bare);
            (first, time(calls, baton))
        } else {
            let second = time(calls, baton);
            (time(calls, bare), second)
        }
    };
    (0..).take_while(|block| go_on(*block)).map(pair).collect()
}

fn figure(call: &'static str, path: &'static str, pairs: Vec<(f64, f64)>) -> Figure {
    let mut times: Vec<f64> = pairs.iter().map(|(bare, _)| *bare).collect();
    let mut differences: Vec<f64> = pairs.iter().map(|(bare, baton)| baton - bare).collect();
    Figure {
        call,
        path,
        bare: at(&mut times, 0.5),
        added: at(&mut differences, 0.5),
        added_p90: at(&mut differences, 0.9),
    }
}

/// Nanoseconds a call.
fn time(calls: u32, call: &impl Fn() -> c_uint) -> f64 {
    let start = Instant::now();
    for _ in 0..calls {
        black_box(call());
    }
    start.elapsed().as_nanos() as f64 / f64::from(calls)
}

fn at(values: &mut [f64], quantile: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * quantile) as usize]
}

fn write_json(file: &str, figures: &[Figure]) {
    let value = json!({
        "kind": "hook_cost",
        "driver": "simulated",
        "cpu": cpu(),
        "command": format!("cargo bench -p baton-tests --bench hook_cost -- --json {file}"),
        "blocks": BLOCKS,
        "calls_a_block": CALLS,
        "figures": figures.iter().map(Figure::json).collect::<Vec<_>>(),
    });
    write_file(file, &value);
}

fn cpu() -> String {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    name.trim_start_matches([' ', '\t', ':']).to_owned()
}

fn write_file(file: &str, value: &Value) {
    // cargo runs benchmarks in their package's folder; users name files as seen from the repository's.
    let file = root().join(file);
    std::fs::write(&file, format!("{value:#}\n")).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
}
