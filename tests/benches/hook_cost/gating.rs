//! The cost of a launch while memory is on its way: `cargo bench -p baton-tests --bench hook_cost -- --gating`.
//!
//! A program that has joined a coordinator launches a kernel with 304 bytes of parameters, to the simulated driver's
//! own function and through Baton's door to it, in turn: once with all its memory there, and once while most of it
//! arrives, over a link so slow that this takes seconds. The launch's own memory has arrived first, so it is
//! looked up at every launch and never waited for. The difference of the two additions is the price of the looking up.
//!
//! The kernel is one that the simulated driver does not know: it reads all parameters, as it does for every launch, and
//! then refuses (801). So the difference is not lost in the work of starting a kernel.

use std::ffi::{c_int, c_uint, c_void};
use std::fmt::Write as _;
use std::hint::black_box;
use std::io::BufRead as _;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use baton_tests::coordinator::{Coordinator, Serving, tenant};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use serde_json::{Value, json};

use super::{Launch, cpu, figure, pairs_of_blocks, write_file};

/// Parameters of eight bytes.
const PARAMETERS: usize = 38;
/// How many of them are addresses of device memory: some, and at the worst all.
const POINTERS: [usize; 2] = [8, PARAMETERS];
/// Memory that the launches use, and memory that arrives meanwhile in many allocations.
const OURS: usize = 2 << 20;
const LATER: (usize, usize) = (64, 4 << 20);
/// Five seconds for all of it.
const LINK_GBPS: &str = "0.05";
const MEASURING: Duration = Duration::from_millis(1200);
const CALLS: u32 = 500;
/// The most that a launch may cost more than with everything there, in nanoseconds.
const LIMIT: f64 = 600.0;
const TENANT: &str = "launches";
const SOON: Duration = Duration::from_secs(30);

/// The word with which this program starts itself as the one that launches.
pub(super) const AS_TENANT: &str = "--as-tenant";

/// Measures, prints, and says whether the limit held.
pub(super) fn main(file: Option<&str>) {
    let serving = Serving::arena("320MiB").setting("SIMCUDA_H2D_GBPS", LINK_GBPS);
    let coordinator = serving.start();
    coordinator.until_ready();
    let this = std::env::current_exe().expect("a running benchmark has a file");
    let mut launches = coordinator.join(TENANT, &this, &[AS_TENANT]);
    assert_eq!(launches.line(SOON), "ready");

    let resident = figures(&launches.ask("measure", SOON));
    let evict = coordinator.place.baton(&["evict", "--socket"]).arg(coordinator.place.socket()).arg(TENANT).status();
    assert!(evict.is_ok_and(|status| status.success()), "baton evict{}", coordinator.place.story());
    assert_eq!(launches.ask("launch", SOON), "launched");
    assert_is_arriving(&coordinator);
    let arriving = figures(&launches.ask("measure", SOON));
    assert_is_arriving(&coordinator);

    println!("limit: at most {LIMIT} ns more while memory is on its way");
    println!(
        "{:<10} {:>9} {:>10} {:>9} {:>14} {:>14} {:>13}",
        "parameters", "addresses", "bytes", "bare ns", "resident +ns", "arriving +ns", "difference ns"
    );
    let mut rows = Vec::new();
    for (at, pointers) in POINTERS.into_iter().enumerate() {
        let number = |figures: &Value, name: &str| figures[at][name].as_f64().expect("a figure");
        let bare = number(&resident, "bare_ns");
        let (before, during) = (number(&resident, "added_ns"), number(&arriving, "added_ns"));
        let difference = during - before;
        let held = difference <= LIMIT;
        let bytes = PARAMETERS * 8;
        println!(
            "{PARAMETERS:<10} {pointers:>9} {bytes:>10} {bare:>9.1} {before:>14.1} {during:>14.1} {difference:>13.1}  {}",
            if held { "held" } else { "NOT HELD" }
        );
        rows.push(json!({
            "parameters": PARAMETERS, "addresses": pointers, "bytes": bytes,
            "resident": resident[at], "arriving": arriving[at], "difference_ns": difference, "held": held,
        }));
    }
    if let Some(file) = file {
        let value = json!({
            "kind": "gating_cost",
            "driver": "simulated",
            "cpu": cpu(),
            "command": format!("cargo bench -p baton-tests --bench hook_cost -- --gating --json {file}"),
            "arriving_allocations": LATER.0,
            "calls_a_block": CALLS,
            "limit_ns": LIMIT,
            "figures": rows,
        });
        write_file(file, &value);
    }
    assert_eq!(launches.finish(SOON).status, "exit status: 0");
}

fn figures(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"))
}

/// The measurement says nothing if everything has come before its end.
#[track_caller]
fn assert_is_arriving(coordinator: &Coordinator) {
    let status = coordinator.status();
    assert_eq!(tenant(&status, TENANT)["arriving"], true, "{}", coordinator.place.story());
}

/// The program that launches: it knows nothing of Baton but the driver's own functions behind it.
pub(super) fn tenant_main() {
    let own = std::env::var_os("BATON_DRIVER").expect("started by `main`");
    // SAFETY: both libraries are ours and run nothing when loaded; the first is the preloaded one, by its name.
    let (baton, bare) = unsafe {
        let open = |name: &std::ffi::OsStr| Library::open(Some(name), RTLD_NOW | RTLD_LOCAL).expect("it was built");
        (open("libcuda.so.1".as_ref()), open(&own))
    };
    let program = Program::new(&baton);
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        match line.expect("standard input").as_str() {
            "launch" => {
                program.launch(&baton, POINTERS[0])();
                println!("launched");
            }
            "measure" => {
                let figures: Vec<Value> = POINTERS
                    .into_iter()
                    .map(|pointers| {
                        let (bare, through) = (program.launch(&bare, pointers), program.launch(&baton, pointers));
                        assert_eq!(bare(), through(), "it answers the same both ways");
                        let end = Instant::now() + MEASURING / POINTERS.len() as u32;
                        let pairs = pairs_of_blocks(CALLS, &bare, &through, |_| Instant::now() < end);
                        figure("cuLaunchKernel", "hooked", pairs).json()
                    })
                    .collect();
                println!("{}", Value::from(figures));
            }
            other => panic!("{other}: no such order"),
        }
    }
}

/// Its kernel, and its memory's addresses.
struct Program {
    function: *mut c_void,
    ours: u64,
}

impl Program {
    fn new(driver: &Library) -> Self {
        type Two = unsafe extern "C" fn(*mut *mut c_void, *const u8) -> c_uint;
        type Find = unsafe extern "C" fn(*mut *mut c_void, *mut c_void, *const u8) -> c_uint;
        type Allocate = unsafe extern "C" fn(*mut u64, usize) -> c_uint;
        type Fill = unsafe extern "C" fn(u64, u8, usize) -> c_uint;
        let (mut context, mut module, mut function, mut ours) = (null_mut(), null_mut(), null_mut(), 0);
        // SAFETY: cuda.h's signatures of these names, called in the order that it says.
        unsafe {
            let init = *driver.get::<unsafe extern "C" fn(c_uint) -> c_uint>(b"cuInit").expect("exported");
            let retain: unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_uint =
                *driver.get(b"cuDevicePrimaryCtxRetain").expect("exported");
            let set: unsafe extern "C" fn(*mut c_void) -> c_uint = *driver.get(b"cuCtxSetCurrent").expect("exported");
            let load: Two = *driver.get(b"cuModuleLoadData").expect("exported");
            let find: Find = *driver.get(b"cuModuleGetFunction").expect("exported");
            let allocate: Allocate = *driver.get(b"cuMemAlloc_v2").expect("exported");
            let fill: Fill = *driver.get(b"cuMemsetD8_v2").expect("exported");
            assert_eq!((init(0), retain(&mut context, 0), set(context)), (0, 0, 0));
            assert_eq!(load(&mut module, ptx().as_ptr()), 0);
            assert_eq!(find(&mut function, module, c"many".as_ptr().cast()), 0);
            assert_eq!((allocate(&mut ours, OURS), fill(ours, 0x5A, OURS)), (0, 0));
            for _ in 0..LATER.0 {
                let mut later = 0;
                // Not zeros: those would not be copied.
                assert_eq!((allocate(&mut later, LATER.1), fill(later, 0x5A, LATER.1)), (0, 0));
            }
        }
        Self { function, ours }
    }

    /// A launch with so many addresses among its parameters; the others are numbers.
    fn launch(&self, driver: &Library, pointers: usize) -> impl Fn() -> c_uint + use<> {
        // SAFETY: cuda.h's signature.
        let launch: Launch = unsafe { *driver.get(b"cuLaunchKernel").expect("exported") };
        let (function, ours) = (self.function, self.ours);
        let values: [u64; PARAMETERS] =
            std::array::from_fn(|at| if at < pointers { ours + 256 * at as u64 } else { at as u64 });
        move || {
            let mut parameters: [*mut c_void; PARAMETERS] =
                std::array::from_fn(|at| (&raw const values[at]).cast_mut().cast());
            let parameters = black_box(&mut parameters).as_mut_ptr();
            // SAFETY: one pointer for each of the kernel's parameters, to eight bytes each.
            unsafe { launch(function, 1, 1, 1, 1, 1, 1, 0, null_mut(), parameters, null_mut()) }
        }
    }
}

/// A kernel with many parameters that does nothing, as a C string.
fn ptx() -> Vec<u8> {
    let mut text = ".version 8.0\n.target sm_80\n.address_size 64\n\n.visible .entry many(\n".to_owned();
    for at in 0..PARAMETERS {
        let comma = if at + 1 < PARAMETERS { "," } else { "" };
        let _ = writeln!(text, "\t.param .u64 many_param_{at}{comma}");
    }
    text.push_str(")\n{\n\tret;\n}\n\0");
    text.into_bytes()
}
