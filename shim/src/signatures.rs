//! The hook table beside the signatures of `cuda.h`: each argument that is memory declares the call's effect on it, and the row does what
//! that effect takes.

use std::collections::BTreeMap;

use crate::coverage;
use crate::driver::symbols::SYMBOLS;
use crate::hooks;

/// Types that are memory or name some, without `const` and stars, and the reason.
const MEMORY: &[(&str, &[&str])] = &[
    ("addresses of the device", &["CUdeviceptr", "CUdeviceptr_v1"]),
    ("addresses of either side, and whatever else a program means by it", &["void"]),
    ("physical memory, and what is to be made of it", &["CUmemGenericAllocationHandle", "CUmemAllocationProp"]),
    ("pools of memory", &["CUmemoryPool", "CUmemPoolProps"]),
    ("what stands for memory in other processes", &["CUipcMemHandle", "CUmemPoolPtrExportData"]),
    ("memory of other interfaces", &["CUexternalMemory", "CUgraphicsResource"]),
    ("arrays, and which memory is behind them", &["CUarray", "CUmipmappedArray", "CUarrayMapInfo"]),
    (
        "what kernels find memory by",
        &["CUtexObject", "CUtexref", "CUsurfObject", "CUsurfref", "CUDA_RESOURCE_DESC", "CUtensorMap"],
    ),
    (
        "descriptions of work, with addresses in them",
        &[
            "CUDA_MEMCPY2D",
            "CUDA_MEMCPY2D_v1",
            "CUDA_MEMCPY3D",
            "CUDA_MEMCPY3D_v1",
            "CUDA_MEMCPY3D_PEER",
            "CUDA_MEMCPY3D_BATCH_OP",
            "CUDA_FABRIC_COPY_BATCH_OP",
            "CUDA_KERNEL_NODE_PARAMS",
            "CUDA_KERNEL_NODE_PARAMS_v1",
            "CUDA_MEMSET_NODE_PARAMS",
            "CUDA_BATCH_MEM_OP_NODE_PARAMS",
            "CUDA_MEM_ALLOC_NODE_PARAMS",
            "CUDA_LAUNCH_PARAMS",
            "CUgraphNodeParams",
            "CUmemDecompressParams",
            "CUstreamBatchMemOpParams",
        ],
    ),
    (
        "attributes of launches and streams, one of which is a range of addresses",
        &["CUkernelNodeAttrValue", "CUstreamAttrValue"],
    ),
    ("graphs that can be launched, with all that their nodes name", &["CUgraphExec"]),
    ("no memory, but where work on it is put", &["CUstream", "CUlaunchConfig", "CUDA_GRAPH_INSTANTIATE_PARAMS"]),
];

/// Types that are no memory, and the reason.
const NO_MEMORY: &[(&str, &[&str])] = &[
    ("numbers and text", NUMBERS),
    ("one of a few values", ENUMERATIONS),
    ("contexts: all memory of one goes with it, which their own rows see to", &["CUcontext", "CUgreenCtx"]),
    (
        "what a context is to be like",
        &[
            "CUctxCreateParams",
            "CUexecAffinityParam",
            "CUdevResource",
            "CUdevResourceDesc",
            "CU_DEV_SM_RESOURCE_GROUP_PARAMS",
        ],
    ),
    (
        "code: a variable is memory from when the program asks for its address",
        &["CUmodule", "CUlibrary", "CUfunction", "CUkernel", "CUlinkState"],
    ),
    (
        "graphs before they can be launched: what they name is read when they can be",
        &["CUgraph", "CUgraphNode", "CUgraphEdgeData", "CUgraphConditionalHandle", "CUgraphExecUpdateResultInfo"],
    ),
    (
        "nodes that work on no memory",
        &["CUDA_HOST_NODE_PARAMS", "CUDA_EXT_SEM_SIGNAL_NODE_PARAMS", "CUDA_EXT_SEM_WAIT_NODE_PARAMS"],
    ),
    (
        "order between works",
        &[
            "CUevent",
            "CUipcEventHandle",
            "CUexternalSemaphore",
            "CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC",
            "CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS",
            "CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS",
        ],
    ),
    (
        "whose or where some memory is, which another argument names",
        &["CUmemLocation", "CUmemAccessDesc", "CUmemcpyAttributes"],
    ),
    (
        "what memory is like or is to be like, which another argument names",
        &[
            "CUDA_ARRAY_DESCRIPTOR",
            "CUDA_ARRAY_DESCRIPTOR_v1",
            "CUDA_ARRAY3D_DESCRIPTOR",
            "CUDA_ARRAY3D_DESCRIPTOR_v1",
            "CUDA_ARRAY_MEMORY_REQUIREMENTS",
            "CUDA_ARRAY_SPARSE_PROPERTIES",
            "CUDA_EXTERNAL_MEMORY_BUFFER_DESC",
            "CUDA_EXTERNAL_MEMORY_HANDLE_DESC",
            "CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC",
            "CUDA_RESOURCE_VIEW_DESC",
            "CUDA_TEXTURE_DESC",
            "CUmulticastObjectProp",
        ],
    ),
    (
        "functions of the program",
        &[
            "CUhostFn",
            "CUstreamCallback",
            "CUasyncCallback",
            "CUlogsCallback",
            "CUoccupancyB2DSize",
            "CUgraphRecaptureCallback",
            "CUcoredumpStatusCallback",
        ],
    ),
    (
        "what such functions are registered by",
        &["CUasyncCallbackHandle", "CUlogsCallbackHandle", "CUcoredumpCallbackHandle", "CUuserObject"],
    ),
    ("names of things", &["CUuuid", "CUdevprop", "CUcliqueInfo"]),
    (
        "by what a fabric's machines reach memory, which another argument binds to it",
        &["CUlogicalEndpointId", "CUlogicalEndpointProp"],
    ),
    ("lists of a graphics interface", &["CUstreamCigCaptureParams"]),
    (
        "whole processes, which are moved past the coordinator",
        &[
            "CUcheckpointCheckpointArgs",
            "CUcheckpointLockArgs",
            "CUcheckpointRestoreArgs",
            "CUcheckpointUnlockArgs",
            "CUcheckpointOperationHandle",
        ],
    ),
];

const NUMBERS: &[&str] = &[
    "CUdevice",
    "CUlogIterator",
    "char",
    "cuuint32_t",
    "cuuint64_t",
    "float",
    "int",
    "size_t",
    "unsigned char",
    "unsigned int",
    "unsigned long long",
    "unsigned short",
];

const ENUMERATIONS: &[&str] = &[
    "CUaddress_mode",
    "CUarray_format",
    "CUatomicOperation",
    "CUcoredumpSettings",
    "CUdevResourceType",
    "CUdevice_P2PAttribute",
    "CUdevice_attribute",
    "CUdriverProcAddressQueryResult",
    "CUexecAffinityType",
    "CUfilter_mode",
    "CUflushGPUDirectRDMAWritesScope",
    "CUflushGPUDirectRDMAWritesTarget",
    "CUfunc_cache",
    "CUfunctionLoadingState",
    "CUfunction_attribute",
    "CUgraphExecUpdateResult",
    "CUgraphMem_attribute",
    "CUgraphNodeType",
    "CUjitInputType",
    "CUjit_option",
    "CUkernelNodeAttrID",
    "CUlibraryOption",
    "CUlimit",
    "CUlogicalEndpointIpcHandleType",
    "CUmemAccess_flags",
    "CUmemAllocationGranularity_flags",
    "CUmemAllocationHandleType",
    "CUmemAllocationType",
    "CUmemPool_attribute",
    "CUmemRangeHandleType",
    "CUmem_advise",
    "CUmem_range_attribute",
    "CUmoduleLoadingMode",
    "CUmulticastGranularity_flags",
    "CUpointer_attribute",
    "CUprocessState",
    "CUresult",
    "CUsharedconfig",
    "CUstreamAttrID",
    "CUstreamCaptureMode",
    "CUstreamCaptureStatus",
    "CUtensorMapAllocClass",
    "CUtensorMapDataType",
    "CUtensorMapFloatOOBfill",
    "CUtensorMapIm2ColWideMode",
    "CUtensorMapInterleave",
    "CUtensorMapL2promotion",
    "CUtensorMapSwizzle",
];

/// Descriptions whose addresses the driver checks as soon as it is told to keep them.
const LOOKED_AT: &[&str] =
    &["CUDA_MEMCPY3D", "CUDA_MEMSET_NODE_PARAMS", "CUDA_BATCH_MEM_OP_NODE_PARAMS", "CUgraphNodeParams"];

const EFFECTS: [&str; 13] = [
    "Allocates",
    "Asks",
    "Changes",
    "Escapes",
    "Frees",
    "HostOnly",
    "Imports",
    "Keeps",
    "Queues",
    "Reads",
    "Tells",
    "Uses",
    "Writes",
];

/// A row's declaration of an argument.
#[derive(Clone, Copy)]
struct Argument {
    effect: Option<&'static str>,
    /// Its type in Rust.
    kind: &'static str,
}

impl Argument {
    fn of(text: &'static str) -> Self {
        let within = |effect: &'static str| {
            let kind = text.strip_prefix(effect)?.strip_prefix('<')?.strip_suffix('>')?;
            Some(Self { effect: Some(effect), kind })
        };
        EFFECTS.into_iter().find_map(within).unwrap_or(Self { effect: None, kind: text })
    }
}

/// An entry point as the hook table has it.
struct Row {
    /// The first word of its body: the module of its hook, or the table's word for a row without one.
    body: Option<&'static str>,
    arguments: Vec<Argument>,
}

fn rows() -> BTreeMap<&'static str, Row> {
    let mut rows = BTreeMap::new();
    for declared in hooks::declared() {
        for symbol in declared.symbols {
            let arguments = declared.arguments.iter().copied().map(Argument::of).collect();
            let body = declared.body.split_whitespace().next();
            let before = rows.insert(*symbol, Row { body, arguments });
            assert!(before.is_none(), "{symbol} has two rows");
        }
    }
    rows
}

/// The header's rows: a symbol and the types of its parameters, each with its name if it is a void pointer.
fn header() -> Vec<(String, Vec<String>)> {
    let rows: Vec<Vec<String>> =
        serde_json::from_str(baton_contract::SIGNATURES).expect("the signatures are JSON rows");
    let split = |row: Vec<String>| {
        let mut row = row.into_iter();
        row.next().map(|symbol| (symbol, row.collect()))
    };
    rows.into_iter().map(|row| split(row).expect("a row begins with a symbol")).collect()
}

/// A parameter's type without its name.
fn without_name(parameter: &str) -> &str {
    match parameter.rfind('*') {
        Some(at) => &parameter[..=at],
        None => parameter,
    }
}

/// A type without its pointers.
fn base(parameter: &str) -> &str {
    without_name(parameter).trim_start_matches("const ").trim_end_matches('*')
}

fn is_on(lists: &[(&str, &[&str])], kind: &str) -> bool {
    lists.iter().any(|(_, kinds)| kinds.contains(&kind))
}

#[test]
fn every_symbol_has_a_signature() {
    let header: Vec<String> = header().into_iter().map(|(symbol, _)| symbol).collect();
    let listed: Vec<(String, String, u32, String)> =
        serde_json::from_str(baton_contract::SYMBOLS_CUDA).expect("the symbol list is JSON rows");
    let mut listed: Vec<String> = listed.into_iter().map(|row| row.3).collect();
    listed.sort();
    assert_eq!(header, listed);
}

#[test]
fn every_type_is_known_to_be_memory_or_not() {
    let header = header();
    let used: Vec<&str> =
        header.iter().flat_map(|(_, parameters)| parameters).map(|parameter| base(parameter)).collect();
    for kind in &used {
        assert!(
            is_on(MEMORY, kind) != is_on(NO_MEMORY, kind),
            "is {kind} memory? It has to be on one of the two lists in signatures.rs"
        );
    }
    for (_, kinds) in MEMORY.iter().chain(NO_MEMORY) {
        for kind in *kinds {
            assert!(used.contains(kind), "no function takes a {kind}");
        }
    }
}

#[test]
fn every_argument_that_is_memory_says_what_the_call_does_with_it() {
    let rows = rows();
    for (symbol, parameters) in header() {
        let row = rows.get(symbol.as_str());
        if let Some(row) = row {
            assert_eq!(row.arguments.len(), parameters.len(), "{symbol}: arguments in its row, and in the header");
        }
        for (at, parameter) in parameters.iter().enumerate() {
            let effect = row.and_then(|row| row.arguments[at].effect);
            let is_memory = is_on(MEMORY, base(parameter));
            let number = at + 1;
            assert!(
                !is_memory || effect.is_some(),
                "{symbol}: argument {number} ({parameter}) is memory, and no row in hooks/ says what the call does with it"
            );
            assert!(
                is_memory || effect.is_none(),
                "{symbol}: argument {number} ({parameter}) is no memory, and has an effect"
            );
        }
    }
    let known = |symbol: &str| SYMBOLS.iter().any(|known| known.name() == symbol);
    assert!(rows.keys().all(|symbol| known(symbol)), "a row is of no symbol");
}

#[test]
fn what_a_row_does_suits_what_its_arguments_declare() {
    let rows = rows();
    for (symbol, parameters) in header() {
        let Some(row) = rows.get(symbol.as_str()) else { continue };
        let is_guarded =
            matches!(row.body, Some("refused" | "descriptors" | "escapes" | "ipc" | "pools" | "synchronous" | "vmm"));
        for (argument, parameter) in row.arguments.iter().zip(&parameters) {
            let Some(effect) = argument.effect else { continue };
            let kind = base(parameter);
            let is_address = matches!(kind, "CUdeviceptr" | "void");
            let suits = match effect {
                // Memory has to be there before work that uses it is queued.
                "Reads" | "Writes" | "Uses" | "Queues" => row.body.is_some(),
                // The books have to be kept, or a document has to state that they are not.
                "Allocates" | "Frees" => row.body.is_some() || !coverage::is_harmless(&symbol),
                "Imports" => {
                    matches!(row.body, Some("descriptors" | "foreign" | "ipc" | "unmanaged"))
                        || row.body.is_none() && !coverage::is_harmless(&symbol)
                }
                // The driver must not see it if it is ours.
                "Escapes" => is_guarded,
                "Changes" => is_guarded || !is_address,
                "Keeps" => row.body.is_some() || !LOOKED_AT.contains(&kind),
                "Asks" | "Tells" | "HostOnly" => true,
                _ => panic!("{effect} is no effect"),
            };
            let body = row.body.unwrap_or("forwarded");
            assert!(suits, "{symbol}: its row declares {effect}<{parameter}>, but is only {body}");
        }
    }
}

/// The way in which an argument is passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Pointer,
    Bytes(usize),
    Float,
    Location,
}

fn shape_in_rust(kind: &str) -> Shape {
    match kind {
        "u8" | "c_char" => Shape::Bytes(1),
        "u16" => Shape::Bytes(2),
        "u32" | "c_int" | "c_uint" | "CUdevice" | "CUdeviceptrV1" => Shape::Bytes(4),
        "u64" | "usize" | "CUdeviceptr" => Shape::Bytes(8),
        "CUipcMemHandle" | "CUipcEventHandle" => Shape::Bytes(64),
        "CUmemLocation" => Shape::Location,
        "f32" => Shape::Float,
        "CUarray" | "CUcontext" | "CUfunction" | "CUgraphExec" | "CUmemoryPool" | "CUstream" => Shape::Pointer,
        _ => panic!("{kind} is new: how is it passed?"),
    }
}

fn shape_in_c(kind: &str) -> Shape {
    match kind {
        "char" | "unsigned char" => Shape::Bytes(1),
        "unsigned short" => Shape::Bytes(2),
        "CUdevice" | "CUdeviceptr_v1" | "CUlogicalEndpointId" | "cuuint32_t" | "int" | "unsigned int" => {
            Shape::Bytes(4)
        }
        "CUdeviceptr" | "CUmemGenericAllocationHandle" | "CUsurfObject" | "CUtexObject" => Shape::Bytes(8),
        "cuuint64_t" | "size_t" | "unsigned long long" => Shape::Bytes(8),
        "CUipcMemHandle" | "CUipcEventHandle" => Shape::Bytes(64),
        "CUmemLocation" => Shape::Location,
        "float" => Shape::Float,
        _ if ENUMERATIONS.contains(&kind) => Shape::Bytes(4),
        // A handle, or a function.
        _ => Shape::Pointer,
    }
}

/// True if a type in Rust is passed as the header's; and so is its target, if Rust names a type for that.
fn agrees(rust: &str, c: &str) -> bool {
    let pointee = rust.strip_prefix("*mut ").or(rust.strip_prefix("*const "));
    match (pointee, c.strip_suffix('*')) {
        (Some("c_void"), Some(_)) | (Some(_), Some("void")) => true,
        (Some(rust), Some(c)) => rust == c || agrees(rust, c),
        (Some(pointee), None) => pointee == "c_void" && shape_in_c(c) == Shape::Pointer,
        (None, Some(_)) => shape_in_rust(rust) == Shape::Pointer,
        (None, None) => shape_in_rust(rust) == shape_in_c(c),
    }
}

#[test]
fn every_row_spells_the_headers_signature() {
    let rows = rows();
    for (symbol, parameters) in header() {
        let Some(row) = rows.get(symbol.as_str()) else { continue };
        for (argument, parameter) in row.arguments.iter().zip(&parameters) {
            let c = without_name(parameter).trim_start_matches("const ");
            assert!(agrees(argument.kind, c), "{symbol}: {} in its row, {parameter} in the header", argument.kind);
        }
    }
}
