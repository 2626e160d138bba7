//! The coverage table, `docs/coverage.md`: the handling of every entry point of the driver.
//!
//! Every name is hooked, or forwarded with a reason from [`RULES`]. A name without either fails the
//! test below, so a new driver's new names cannot slip past unnoticed.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::driver::symbols::{SYMBOLS, Symbol};
use crate::hooks;

/// The consequence of forwarding a call for sharing the GPU.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    /// It works; the memory behind it stays on the GPU, outside the arena.
    Unmanaged,
    /// It works, and takes room on the GPU outside the arena.
    Outside,
    /// It neither allocates nor frees device memory, and reads or writes none that a hook does not know of.
    Harmless,
}
use Class::{Harmless, Outside, Unmanaged};

/// The reasons for forwarding names, by the longest prefix of the name that a program asks for.
const RULES: &[(&str, Class, &str)] = &[
    ("cuDriverGetVersion", Harmless, "a question about the driver"),
    ("cuGetError", Harmless, "texts of errors"),
    ("cuGetExportTable", Harmless, "private tables of the driver's own libraries; must stay untouched"),
    ("cuProfiler", Harmless, "starts and stops profilers"),
    ("cuCoredump", Harmless, "settings of core dumps"),
    ("cuLogs", Harmless, "the driver's log"),
    ("cudbg", Harmless, "the debugger's interface"),
    // Devices and contexts.
    ("cuDevice", Harmless, "a question about the device"),
    ("cuDeviceTotalMem", Harmless, "of before CUDA 3.2, for memory below 4 GiB; its successor is hooked"),
    ("cuDeviceGetDefaultMemPool", Harmless, "a pool's handle; what is allocated from it is hooked"),
    ("cuDeviceGetMemPool", Harmless, "a pool's handle; what is allocated from it is hooked"),
    ("cuDeviceGetGraphMemAttribute", Unmanaged, "memory that graphs allocate"),
    ("cuDeviceSetGraphMemAttribute", Unmanaged, "memory that graphs allocate"),
    ("cuDevicePrimaryCtx", Outside, "contexts"),
    ("cuDevResource", Harmless, "describes parts of the GPU"),
    ("cuDevSmResource", Harmless, "describes parts of the GPU"),
    ("cuCtx", Harmless, "the context's settings and marks, and the thread's current context"),
    ("cuCtxSetLimit", Outside, "local memory, and heaps that kernels allocate from"),
    ("cuGreenCtx", Outside, "contexts"),
    // Memory.
    ("cuMemGetInfo", Harmless, "of before CUDA 3.2, for memory below 4 GiB; its successor is hooked"),
    ("cuMemHostGetDevicePointer", Harmless, "of before CUDA 3.2, for memory below 4 GiB; its successor is hooked"),
    ("cuMemGetAddressRange", Harmless, "of before CUDA 3.2, for memory below 4 GiB; its successor is hooked"),
    ("cuMemRangeGetAttribute", Unmanaged, "managed memory"),
    ("cuMemGetLocationInfo", Unmanaged, "managed memory"),
    ("cuMemPoolGetAccess", Harmless, "a question about a pool"),
    ("cuMemGetDefaultMemPool", Harmless, "a pool's handle; what is allocated from it is hooked"),
    ("cuMemGetMemPool", Harmless, "a pool's handle; what is allocated from it is hooked"),
    ("cuMemGetAllocation", Harmless, "a question about a handle"),
    ("cuMemGetAttribute", Harmless, "a question, in no public header"),
    ("cuMulticast", Harmless, "objects without memory; what is bound to them is hooked"),
    ("cuLogicalEndpoint", Harmless, "names by which a fabric's machines reach memory; what is bound to them is hooked"),
    ("cuArray", Unmanaged, "arrays"),
    ("cuMipmappedArray", Unmanaged, "arrays"),
    ("cuTexRef", Harmless, "describes a texture; what ties it to memory is hooked"),
    ("cuTexObject", Harmless, "describes a texture; what ties it to memory is hooked"),
    ("cuSurf", Unmanaged, "surfaces of arrays"),
    ("cuExternalMemory", Unmanaged, "memory of another API"),
    ("cuImportExternalSemaphore", Harmless, "waits for another API, and signals it; a switch takes it as any work"),
    ("cuDestroyExternalSemaphore", Harmless, "waits for another API, and signals it; a switch takes it as any work"),
    ("cuGraphics", Unmanaged, "memory of a graphics API; such programs are not preempted in the middle of their work"),
    ("cuGL", Unmanaged, "memory of a graphics API; such programs are not preempted in the middle of their work"),
    ("cuEGL", Unmanaged, "memory of a graphics API; such programs are not preempted in the middle of their work"),
    ("cuVDPAU", Unmanaged, "memory of a graphics API; such programs are not preempted in the middle of their work"),
    ("cuFlushGPUDirectRDMAWrites", Harmless, "orders what other devices write; the memory that they reach stays"),
    // Code.
    ("cuModule", Outside, "code, and the variables of modules"),
    ("cuModuleGetLoadingMode", Harmless, "a question about the driver"),
    ("cuModuleEnumerateFunctions", Harmless, "names in a module"),
    ("cuKernelGetFunction", Outside, "code, and the variables of modules"),
    ("cuFuncGetAttribute", Outside, "code, and the variables of modules"),
    ("cuModuleGetFunction", Outside, "code, and the variables of modules"),
    ("cuModuleGetTexRef", Harmless, "describes a texture; what ties it to memory is hooked"),
    ("cuModuleGetSurfRef", Unmanaged, "surfaces of arrays"),
    ("cuLibraryGetKernel", Harmless, "names in a library"),
    ("cuLibraryEnumerateKernels", Harmless, "names in a library"),
    ("cuLibraryGetModule", Harmless, "names in a library"),
    ("cuLibraryGetUnifiedFunction", Harmless, "names in a library"),
    ("cuLink", Harmless, "makes code in host memory"),
    ("cuKernel", Harmless, "a function's attributes"),
    ("cuFunc", Harmless, "a function's attributes"),
    ("cuFuncLoad", Outside, "code, and the variables of modules"),
    ("cuParamSet", Harmless, "parameters of `cuLaunch` and its kin, which wait for all memory"),
    ("cuOccupancy", Harmless, "arithmetic about a function"),
    // Order of work.
    ("cuStream", Harmless, "a stream's life and attributes"),
    ("cuStreamQuery", Harmless, "waits for the program's own work, or asks about it"),
    ("cuStreamIsCapturing", Harmless, "a question about a stream"),
    ("cuStreamGetCaptureInfo", Harmless, "a question about a stream"),
    ("cuStreamUpdateCaptureDependencies", Harmless, "order inside a graph"),
    ("cuThreadExchangeStreamCaptureMode", Harmless, "the thread's own setting"),
    ("cuEvent", Harmless, "marks in a stream"),
    ("cuUserObject", Harmless, "counts references of host objects"),
    // Graphs.
    ("cuGraph", Harmless, "describes a graph; nothing runs before its launch"),
    ("cuGraphExec", Harmless, "changes in a graph what names no memory"),
    ("cuGraphExecGetFlags", Harmless, "a question about a graph"),
    ("cuGraphNodeSetEnabled", Harmless, "changes in a graph what names no memory"),
    ("cuCheckpoint", Harmless, "about processes that were suspended; suspending one is hooked"),
];

/// The rule for a name: the longest prefix wins.
fn rule(symbol: &Symbol) -> Option<(Class, &'static str)> {
    RULES
        .iter()
        .filter(|(prefix, _, _)| symbol.base.starts_with(prefix))
        .max_by_key(|(prefix, _, _)| prefix.len())
        .map(|(_, class, why)| (*class, *why))
}

/// True if the rule for a symbol makes forwarding it harmless.
pub(crate) fn is_harmless(symbol: &str) -> bool {
    let symbol = SYMBOLS.iter().find(|known| known.name() == symbol);
    symbol.and_then(rule).is_some_and(|(class, _)| class == Harmless)
}

/// Names as the document shows them: variants of one name together, with the CUDA version that brought each.
fn shown(symbols: &[&Symbol]) -> String {
    let mut text = String::new();
    let mut last = "";
    for symbol in symbols {
        let variant = symbol.name().strip_prefix(symbol.base).filter(|_| symbol.base == last);
        let separator = if text.is_empty() { "" } else { ", " };
        write!(text, "{separator}`{}`", variant.unwrap_or(symbol.name())).expect("a String takes all writes");
        if symbol.version != 0 {
            write!(text, " {}.{}", symbol.version / 1000, symbol.version % 1000 / 10)
                .expect("a String takes all writes");
        }
        last = symbol.base;
    }
    text
}

fn table() -> String {
    let mut hooked = Vec::new();
    let mut forwarded: BTreeMap<(Class, &str), Vec<&Symbol>> = BTreeMap::new();
    for (index, symbol) in SYMBOLS.iter().enumerate() {
        match (hooks::find(index), rule(symbol)) {
            (Some(_), _) => hooked.push(symbol),
            (None, Some(key)) => forwarded.entry(key).or_default().push(symbol),
            (None, None) => panic!("{} is neither hooked nor has a rule in coverage.rs", symbol.name()),
        }
    }
    let kept_out = kept_out();
    document(&hooked, &forwarded, &kept_out).expect("a String takes all writes")
}

fn document(
    hooked: &[&Symbol],
    forwarded: &BTreeMap<(Class, &str), Vec<&Symbol>>,
    kept_out: &[String],
) -> Result<String, std::fmt::Error> {
    let of = |class| forwarded.iter().filter(move |((c, _), _)| *c == class);
    let count = |class| of(class).map(|(_, symbols)| symbols.len()).sum::<usize>();
    let mut text = String::from(
        "# What happens to the driver's interface\n\n\
         Made by `BATON_BLESS=1 cargo test -p baton-shim coverage` from the symbol lists, the hook table\n\
         and the rules in `shim/src/coverage.rs`. `cargo test` fails when it is not up to date, or when a\n\
         name of the driver is missing. What the limits mean for a program: [limits.md](limits.md).\n\n\
         | what | in programs under Baton | names |\n|---|---|---|\n",
    );
    for (class, what) in [
        (Unmanaged, "works; the memory stays on the GPU (*unmanaged*)"),
        (Outside, "works; takes room outside the arena"),
    ] {
        for ((_, why), symbols) in of(class) {
            writeln!(text, "| {why} | {what} | {} |", symbols.len())?;
        }
    }
    writeln!(
        text,
        "\nOf {} names, {} are hooked and {} forwarded without harm; {} work with memory that stays on the GPU\n\
         or outside the arena. {} names of the debugger are not exported.",
        SYMBOLS.len(),
        hooked.len(),
        count(Harmless),
        count(Unmanaged) + count(Outside),
        kept_out.len()
    )?;
    writeln!(
        text,
        "\nBelow are all of them. Variants follow their name; a number is the CUDA version that brought a name, where\n\
         a header says.\n"
    )?;
    for (class, title) in
        [(Unmanaged, "Unmanaged memory"), (Outside, "Room outside the arena"), (Harmless, "Forwarded without harm")]
    {
        writeln!(text, "## {title}\n")?;
        for ((_, why), symbols) in of(class) {
            writeln!(text, "- {why}: {}", shown(symbols))?;
        }
        writeln!(text)?;
    }
    writeln!(text, "## Hooked\n\n{}\n", shown(hooked))?;
    writeln!(
        text,
        "## Not exported\n\nVariables that the debugger reads, and functions in which it sets break points. It looks for them \
         in every\nlibrary of the process and must find the driver's own: {}",
        kept_out.join(", ")
    )?;
    Ok(text)
}

/// The names that the driver exports and Baton does not.
fn kept_out() -> Vec<String> {
    let beyond: Vec<(String, String, Vec<String>)> =
        serde_json::from_str(baton_contract::SYMBOLS_BEYOND).expect("the symbol list is JSON rows");
    let exported = |name: &str| SYMBOLS.iter().any(|symbol| symbol.name() == name);
    beyond.into_iter().map(|row| row.0).filter(|name| !exported(name)).map(|name| format!("`{name}`")).collect()
}

#[test]
fn every_entry_point_of_the_driver_is_hooked_or_forwarded_for_a_reason() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/coverage.md");
    let table = table();
    if std::env::var_os("BATON_BLESS").is_some() {
        std::fs::write(path, &table).expect("docs/ is writable");
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(kept == table, "docs/coverage.md is old; run BATON_BLESS=1 cargo test -p baton-shim coverage");
}

#[test]
fn only_names_of_the_debugger_are_kept_out() {
    assert!(kept_out().iter().all(|name| name.starts_with("`cudbg")));
}

#[test]
fn every_rule_is_needed() {
    for (prefix, _, why) in RULES {
        let used = SYMBOLS.iter().enumerate().any(|(index, symbol)| {
            hooks::find(index).is_none()
                && RULES
                    .iter()
                    .filter(|(p, _, _)| symbol.base.starts_with(p))
                    .max_by_key(|(p, _, _)| p.len())
                    .is_some_and(|(p, _, _)| p == prefix)
        });
        assert!(used, "no name needs the rule {prefix} ({why})");
    }
}
