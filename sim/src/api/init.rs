//! Before all else: `cuInit`, versions, error texts, and finding entry points by name.

use std::collections::HashMap;
use std::sync::OnceLock;

use crate::border::{Out, Text};
use crate::door::{Row, doors};
use crate::errors::{Outcome, Status, describe};
use crate::{settings, state};

doors! {
    early cuInit: "cuInit" 2000 (flags: u32) = init;
    early cuDriverGetVersion: "cuDriverGetVersion" 2020 (version: Out<i32>) = driver_version;
    early cuGetErrorName: "cuGetErrorName" 6000 (code: u32, text: Out<usize>) = error_name;
    early cuGetErrorString: "cuGetErrorString" 6000 (code: u32, text: Out<usize>) = error_string;
    early cuGetProcAddress: "cuGetProcAddress" 11030
        (name: Text, function: Out<usize>, version: u32, flags: u64) = proc_address;
    early cuGetProcAddress_v2: "cuGetProcAddress" 12000
        (name: Text, function: Out<usize>, version: u32, flags: u64, status: Out<u32>) = proc_address_v2;
    early cuGetExportTable: "cuGetExportTable" 3000 (table: Out<usize>, id: usize) = export_table;
    cuProfilerInitialize: "cuProfilerInitialize" 4000 (config: usize, output: usize, mode: u32) = profiler_initialize;
    cuProfilerStart: "cuProfilerStart" 4000 () = profiler;
    cuProfilerStop: "cuProfilerStop" 4000 () = profiler;
}

/// `CUdriverProcAddressQueryResult`
const FOUND: u32 = 0;
const SYMBOL_NOT_FOUND: u32 = 1;
const VERSION_NOT_SUFFICIENT: u32 = 2;

/// Flags of a search.
const LEGACY_STREAM: u64 = 1;
const PER_THREAD_STREAM: u64 = 2;

fn init(flags: u32) -> Outcome {
    if flags != 0 {
        return Err(Status::INVALID_VALUE);
    }
    state::start()
}

fn driver_version(version: Out<i32>) -> Outcome {
    version.set(settings::version_before_init() as i32)
}

fn error_name(code: u32, text: Out<usize>) -> Outcome {
    error_text(code, text, |(name, _)| name)
}

fn error_string(code: u32, text: Out<usize>) -> Outcome {
    error_text(code, text, |(_, text)| text)
}

type Texts = (&'static std::ffi::CStr, &'static std::ffi::CStr);

fn error_text(code: u32, text: Out<usize>, which: impl Fn(Texts) -> &'static std::ffi::CStr) -> Outcome {
    match describe(code) {
        Some(texts) => text.set(which(texts).as_ptr().expose_provenance()),
        None => {
            text.set(0)?;
            Err(Status::INVALID_VALUE)
        }
    }
}

/// The newest export of a name that a program of that version knows.
///
/// With the per-thread flag the twins alone count for a name that has any.
fn find(name: &str, version: u32, flags: u64) -> Result<&'static Row, u32> {
    let rows = by_name().get(name).ok_or(SYMBOL_NOT_FOUND)?;
    let twins = flags & PER_THREAD_STREAM != 0 && rows.iter().any(|row| row.twin);
    rows.iter()
        .filter(|row| row.twin == twins && row.version <= version)
        .max_by_key(|row| row.version)
        .ok_or(VERSION_NOT_SUFFICIENT)
}

fn by_name() -> &'static HashMap<&'static str, Vec<Row>> {
    static BY_NAME: OnceLock<HashMap<&'static str, Vec<Row>>> = OnceLock::new();
    BY_NAME.get_or_init(|| {
        let mut names: HashMap<_, Vec<Row>> = HashMap::new();
        let version = settings::version_before_init();
        for row in super::rows().into_iter().filter(|row| row.version <= version) {
            names.entry(row.base).or_default().push(row);
        }
        names
    })
}

fn checked_name<'a>(name: Text, function: Out<usize>, flags: u64) -> Outcome<&'a str> {
    function.required()?;
    let name = name.bytes()?;
    if flags & !(LEGACY_STREAM | PER_THREAD_STREAM) != 0 {
        return Err(Status::INVALID_VALUE);
    }
    // A name that is no text is a name that nothing has.
    Ok(std::str::from_utf8(name).unwrap_or_default())
}

fn proc_address(name: Text, function: Out<usize>, version: u32, flags: u64) -> Outcome {
    let name = checked_name(name, function, flags)?;
    function.set(find(name, version, flags).map_err(|_| Status::NOT_FOUND)?.address)
}

fn proc_address_v2(name: Text, function: Out<usize>, version: u32, flags: u64, status: Out<u32>) -> Outcome {
    let name = checked_name(name, function, flags)?;
    let found = find(name, version, flags);
    status.offer(found.err().unwrap_or(FOUND));
    // Not finding is an answer here: success, and no address.
    function.set(found.map_or(0, |row| row.address))
}

fn export_table(table: Out<usize>, _id: usize) -> Outcome {
    table.required()?;
    Err(Status::NOT_FOUND)
}

fn profiler_initialize(_config: usize, _output: usize, _mode: u32) -> Outcome {
    Err(Status::NOT_SUPPORTED)
}

fn profiler() -> Outcome {
    crate::exec::stack::current().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbol(name: &str, version: u32, flags: u64) -> Result<&'static str, u32> {
        find(name, version, flags).map(|row| row.symbol)
    }

    #[test]
    fn the_newest_symbol_that_the_version_knows_is_chosen() {
        assert_eq!(symbol("cuMemAlloc", 12000, 0), Ok("cuMemAlloc_v2"));
        assert_eq!(symbol("cuMemAlloc", 3000, 0), Ok("cuMemAlloc"));
        assert_eq!(symbol("cuMemAlloc", 1000, 0), Err(VERSION_NOT_SUFFICIENT));
        assert_eq!(symbol("cuMemAlloc_v2", 12000, 0), Err(SYMBOL_NOT_FOUND));
        assert_eq!(symbol("cuGetProcAddress", 11030, 0), Ok("cuGetProcAddress"));
        assert_eq!(symbol("cuGetProcAddress", u32::MAX, 0), Ok("cuGetProcAddress_v2"));
    }

    #[test]
    fn the_twin_is_chosen_where_one_exists() {
        assert_eq!(symbol("cuMemcpy", 12000, PER_THREAD_STREAM), Ok("cuMemcpy_ptds"));
        assert_eq!(symbol("cuMemcpy", 12000, LEGACY_STREAM), Ok("cuMemcpy"));
        assert_eq!(symbol("cuMemcpy", 12000, 3), Ok("cuMemcpy_ptds"));
        assert_eq!(symbol("cuMemcpy", 5000, PER_THREAD_STREAM), Err(VERSION_NOT_SUFFICIENT));
        assert_eq!(symbol("cuMemAlloc", 12000, PER_THREAD_STREAM), Ok("cuMemAlloc_v2"));
    }

    #[test]
    fn every_export_has_a_row_of_its_own() {
        let rows = crate::api::rows();
        let mut symbols: Vec<_> = rows.iter().map(|row| row.symbol).collect();
        symbols.sort_unstable();
        let count = symbols.len();
        symbols.dedup();
        assert_eq!(symbols.len(), count);
    }

    /// The driver's own list: base, twin, version, symbol.
    fn list() -> Vec<[String; 4]> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../include/symbols/cuda.json");
        let text = std::fs::read_to_string(path).expect("the symbol list is in the repository");
        let fields = |line: &str| {
            let line = line.trim().trim_end_matches(',').trim_matches(['[', ']']);
            let fields: Vec<_> = line.split(',').map(|f| f.trim().trim_matches('"').to_owned()).collect();
            fields.try_into().ok()
        };
        text.lines().filter_map(fields).collect()
    }

    #[test]
    fn every_row_is_as_in_the_drivers_list() {
        let list = list();
        assert!(list.len() > 600);
        for row in crate::api::rows() {
            if row.base.starts_with("cuProfiler") {
                continue;
            }
            let known = list.iter().find(|known| known[3] == row.symbol);
            let known = known.unwrap_or_else(|| panic!("{} is not in the list", row.symbol));
            assert_eq!(known[0], row.base, "{}", row.symbol);
            assert_eq!(known[2], row.version.to_string(), "{}", row.symbol);
            assert_eq!(!known[1].is_empty(), row.twin, "{}", row.symbol);
        }
    }

    /// Families that must be whole: every symbol of the list that begins so is exported.
    const WHOLE: &[&str] = &[
        "cuMemcpy",
        "cuMemset",
        "cuMem",
        "cuPointer",
        "cuLaunch",
        "cuFunc",
        "cuParamSet",
        "cuGraph",
        "cuStream",
        "cuEvent",
        "cuCtx",
        "cuDevice",
        "cuModule",
        "cuLibrary",
        "cuKernel",
        "cuLink",
        "cuOccupancy",
        "cuGet",
        "cuThread",
        "cuIpc",
        "cuInit",
        "cuDriver",
        "cuUserObject",
        "cuArray",
    ];

    #[test]
    fn the_families_that_are_carried_are_whole() {
        let rows = crate::api::rows();
        let missing: Vec<_> = list()
            .into_iter()
            .map(|known| known[3].clone())
            .filter(|symbol| WHOLE.iter().any(|family| symbol.starts_with(family)))
            .filter(|symbol| !symbol.starts_with("cuGraphics"))
            .filter(|symbol| rows.iter().all(|row| row.symbol != symbol))
            .collect();
        assert!(missing.is_empty(), "not exported: {missing:?}");
    }
}
