//! The coverage table, `docs/coverage.md`: what happens to every entry point of the driver.
//!
//! Every name is hooked, or forwarded with a reason from [`RULES`]. A name without either fails the
//! test below, so a new driver's new names cannot slip past unnoticed.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::hooks;
use crate::symbols::{SYMBOLS, Symbol};

/// What forwarding a call means for sharing the GPU.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    /// It neither gives out nor takes back device memory, and neither reads nor writes any.
    Harmless,
    /// Fine while nothing is shared; sharing has to know of it.
    ToVirtualise,
}
use Class::{Harmless, ToVirtualise};

/// Why names are forwarded, by the longest prefix of the name that a program asks for.
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
    ("cuDeviceTotalMem", ToVirtualise, "the program should see the arena's size"),
    ("cuDeviceGetDefaultMemPool", ToVirtualise, "stream-ordered pools hold device memory"),
    ("cuDeviceGetMemPool", ToVirtualise, "stream-ordered pools hold device memory"),
    ("cuDeviceSetMemPool", ToVirtualise, "stream-ordered pools hold device memory"),
    ("cuDeviceGraphMemTrim", ToVirtualise, "graph memory nodes hold device memory"),
    ("cuDeviceGetGraphMemAttribute", ToVirtualise, "graph memory nodes hold device memory"),
    ("cuDeviceSetGraphMemAttribute", ToVirtualise, "graph memory nodes hold device memory"),
    ("cuDevicePrimaryCtx", ToVirtualise, "contexts need room beside the arena and bring channels"),
    ("cuDevResource", Harmless, "describes parts of the GPU"),
    ("cuDevSmResource", Harmless, "describes parts of the GPU"),
    ("cuCtx", Harmless, "the context's settings and marks, and the thread's current context"),
    ("cuCtxSetLimit", ToVirtualise, "local memory and heaps take room beside the arena"),
    ("cuCtxSynchronize", ToVirtualise, "shows when the program's work has ended"),
    ("cuCtxEnablePeerAccess", ToVirtualise, "another GPU may then read memory that moves"),
    ("cuGreenCtx", ToVirtualise, "contexts need room beside the arena and bring channels"),
    // Memory.
    ("cuMemGetInfo", ToVirtualise, "the program should see the arena's size less its own use"),
    ("cuMemGetAddressRange", ToVirtualise, "must agree with our allocations"),
    ("cuMemAllocHost", ToVirtualise, "pinned host memory may hold pointers into device memory"),
    ("cuMemHost", ToVirtualise, "pinned host memory may hold pointers into device memory"),
    ("cuMemAdvise", ToVirtualise, "managed memory stays where it is until it is virtualised"),
    ("cuMemRangeGetAttribute", ToVirtualise, "managed memory stays where it is until it is virtualised"),
    ("cuPointerSetAttribute", ToVirtualise, "must agree with our allocations"),
    ("cuMemPool", ToVirtualise, "stream-ordered pools hold device memory"),
    ("cuMemGetDefaultMemPool", ToVirtualise, "stream-ordered pools hold device memory"),
    ("cuMemGetMemPool", ToVirtualise, "stream-ordered pools hold device memory"),
    ("cuMemSetMemPool", ToVirtualise, "stream-ordered pools hold device memory"),
    ("cuMemMap", ToVirtualise, "the program's own physical memory"),
    ("cuMemUnmap", ToVirtualise, "the program's own physical memory"),
    ("cuMemSetAccess", ToVirtualise, "the program's own physical memory"),
    ("cuMemExportToShareableHandle", ToVirtualise, "the program's own physical memory"),
    ("cuMemRetainAllocationHandle", ToVirtualise, "the program's own physical memory"),
    ("cuMemGetHandleForAddressRange", ToVirtualise, "hands memory to another device"),
    ("cuMemAddress", Harmless, "addresses without memory"),
    ("cuMemGetAccess", Harmless, "a question about a mapping"),
    ("cuMemGetAllocation", Harmless, "a question about a handle"),
    ("cuMemGetAttribute", Harmless, "a question, in no public header"),
    ("cuMulticast", ToVirtualise, "binds memory of several GPUs"),
    ("cuIpc", ToVirtualise, "other processes map this program's memory"),
    ("cuArray", ToVirtualise, "arrays hold device memory"),
    ("cuMipmappedArray", ToVirtualise, "arrays hold device memory"),
    ("cuTexRef", ToVirtualise, "textures refer to device memory"),
    ("cuTexObject", ToVirtualise, "textures refer to device memory"),
    ("cuSurf", ToVirtualise, "surfaces refer to device memory"),
    ("cuImportExternal", ToVirtualise, "memory that belongs to another API"),
    ("cuExternalMemory", ToVirtualise, "memory that belongs to another API"),
    ("cuDestroyExternal", ToVirtualise, "memory that belongs to another API"),
    ("cuSignalExternal", ToVirtualise, "work ordered with another API"),
    ("cuWaitExternal", ToVirtualise, "work ordered with another API"),
    ("cuGraphics", ToVirtualise, "memory that belongs to a graphics API"),
    ("cuGL", ToVirtualise, "memory that belongs to a graphics API"),
    ("cuEGL", ToVirtualise, "memory that belongs to a graphics API"),
    ("cuVDPAU", ToVirtualise, "memory that belongs to a graphics API"),
    ("cuFlushGPUDirectRDMAWrites", ToVirtualise, "another device writes to memory that moves"),
    // Code.
    ("cuModule", ToVirtualise, "modules take room beside the arena, and their globals may hold pointers"),
    ("cuModuleGetLoadingMode", Harmless, "a question about the driver"),
    ("cuModuleEnumerateFunctions", Harmless, "names in a module"),
    ("cuKernelGetFunction", ToVirtualise, "may load code that was left for later, beside the arena"),
    ("cuFuncGetAttribute", ToVirtualise, "may load code that was left for later, beside the arena"),
    ("cuModuleGetFunction", ToVirtualise, "may load code that was left for later, beside the arena"),
    ("cuModuleGetTexRef", ToVirtualise, "textures refer to device memory"),
    ("cuModuleGetSurfRef", ToVirtualise, "surfaces refer to device memory"),
    ("cuLibrary", ToVirtualise, "modules take room beside the arena, and their globals may hold pointers"),
    ("cuLibraryGetKernel", Harmless, "names in a library"),
    ("cuLibraryEnumerateKernels", Harmless, "names in a library"),
    ("cuLibraryGetModule", Harmless, "names in a library"),
    ("cuLibraryGetUnifiedFunction", Harmless, "names in a library"),
    ("cuLink", Harmless, "makes code in host memory"),
    ("cuKernel", Harmless, "a function's attributes"),
    ("cuFunc", Harmless, "a function's attributes"),
    ("cuFuncLoad", ToVirtualise, "modules take room beside the arena"),
    ("cuParamSet", ToVirtualise, "parameters of a launch may hold pointers"),
    ("cuOccupancy", Harmless, "arithmetic about a function"),
    // Order of work.
    ("cuStream", Harmless, "a stream's life and attributes"),
    ("cuStreamSynchronize", ToVirtualise, "shows when the program's work has ended"),
    ("cuStreamQuery", ToVirtualise, "shows when the program's work has ended"),
    ("cuStreamIsCapturing", Harmless, "a question about a stream"),
    ("cuStreamGetCaptureInfo", Harmless, "a question about a stream"),
    ("cuStreamUpdateCaptureDependencies", Harmless, "order inside a graph"),
    ("cuThreadExchangeStreamCaptureMode", Harmless, "the thread's own setting"),
    ("cuEvent", Harmless, "marks in a stream"),
    ("cuUserObject", Harmless, "counts references of host objects"),
    // Graphs.
    ("cuGraph", Harmless, "describes a graph; nothing runs before its launch"),
    ("cuGraphExec", ToVirtualise, "what a graph launch will touch is read here"),
    ("cuGraphExecGetFlags", Harmless, "a question about a graph"),
    ("cuGraphNodeSetEnabled", ToVirtualise, "what a graph launch will touch is read here"),
    ("cuGraphAddMem", ToVirtualise, "graph memory nodes hold device memory"),
    ("cuCheckpoint", ToVirtualise, "moves a whole process off the GPU"),
];

/// The rule for a name: the longest prefix wins.
fn rule(symbol: &Symbol) -> Option<(Class, &'static str)> {
    RULES
        .iter()
        .filter(|(prefix, _, _)| symbol.base.starts_with(prefix))
        .max_by_key(|(prefix, _, _)| prefix.len())
        .map(|(_, class, why)| (*class, *why))
}

/// A name as the table shows it.
fn shown(symbol: &Symbol) -> String {
    let since = match symbol.version {
        0 => String::new(),
        version => format!(" ({}.{})", version / 1000, version % 1000 / 10),
    };
    format!("`{}`{since}", symbol.name())
}

fn table() -> String {
    let mut hooked = Vec::new();
    let mut forwarded: BTreeMap<(Class, &str), Vec<String>> = BTreeMap::new();
    for (index, symbol) in SYMBOLS.iter().enumerate() {
        match (hooks::find(index), rule(symbol)) {
            (Some(_), _) => hooked.push(shown(symbol)),
            (None, Some(key)) => forwarded.entry(key).or_default().push(shown(symbol)),
            (None, None) => panic!("{} is neither hooked nor has a rule in coverage.rs", symbol.name()),
        }
    }
    let count = |class| forwarded.iter().filter(|((c, _), _)| *c == class).map(|(_, names)| names.len()).sum::<usize>();
    let mut text = String::from(
        "# What happens to every entry point of the driver\n\n\
         Made by `BATON_BLESS=1 cargo test -p baton-shim coverage` from the symbol lists, the hook table\n\
         and the rules in `shim/src/coverage.rs`; `cargo test` fails when it is not up to date or when a\n\
         name is missing. In brackets: the CUDA version that introduced the name, where a header says.\n\n\
         | names | what happens |\n|---|---|\n",
    );
    let rows = [
        (hooked.len(), "hooked"),
        (count(Harmless), "forwarded, harmless"),
        (count(ToVirtualise), "forwarded, to be virtualised"),
    ];
    for (names, what) in rows {
        writeln!(text, "| {names} | {what} |").expect("a String takes all writes");
    }
    writeln!(text, "\n## Hooked\n\n{}", hooked.join(", ")).expect("a String takes all writes");
    for (class, title) in
        [(Harmless, "Forwarded, and why that is harmless"), (ToVirtualise, "Forwarded, and to be virtualised")]
    {
        writeln!(text, "\n## {title}\n\n| why | names |\n|---|---|").expect("a String takes all writes");
        for ((_, why), names) in forwarded.iter().filter(|((c, _), _)| *c == class) {
            writeln!(text, "| {why} | {} |", names.join(", ")).expect("a String takes all writes");
        }
    }
    let kept_out = kept_out();
    writeln!(
        text,
        "\n## Not exported\n\n\
         {} names of the debugger: variables that it reads, and functions in which it sets break points.\n\
         It looks for them in every library of the process and must find the driver's own: {}",
        kept_out.len(),
        kept_out.join(", ")
    )
    .expect("a String takes all writes");
    text
}

/// What the driver exports and we do not.
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
