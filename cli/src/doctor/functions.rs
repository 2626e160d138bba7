//! The functions of a driver that Baton does not know: its file exports them, and no list has them.

use std::collections::BTreeSet;
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

use object::{Object, ObjectSymbol};

/// Returns their names, in order. Without a file, it reads the driver that this process has open.
pub(super) fn unknown(library: Option<&Path>) -> std::io::Result<Vec<String>> {
    let path = match library {
        Some(path) => path.to_path_buf(),
        None => open_driver()?,
    };
    let file = std::fs::read(path)?;
    let wrong = |error: object::Error| Error::new(ErrorKind::InvalidData, error.to_string());
    let elf = object::read::elf::ElfFile64::<object::Endianness>::parse(&*file).map_err(wrong)?;
    let known = known();
    let exported = elf.dynamic_symbols().filter(|symbol| symbol.is_definition());
    let names: BTreeSet<&str> = exported.filter_map(|symbol| symbol.name().ok()).collect();
    Ok(names.into_iter().filter(|name| is_the_drivers(name) && !known.contains(*name)).map(str::to_owned).collect())
}

/// True for `cuMemAlloc`, but not for the debugger's symbols (`cudbg…`).
fn is_the_drivers(name: &str) -> bool {
    name.strip_prefix("cu").is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_uppercase()))
}

fn known() -> BTreeSet<String> {
    let listed: Vec<(String, String, u32, String)> =
        serde_json::from_str(baton_contract::SYMBOLS_CUDA).expect("the symbol list is JSON rows");
    let beyond: Vec<(String, String, Vec<String>)> =
        serde_json::from_str(baton_contract::SYMBOLS_BEYOND).expect("the symbol list is JSON rows");
    listed.into_iter().map(|row| row.3).chain(beyond.into_iter().map(|row| row.0)).collect()
}

fn open_driver() -> std::io::Result<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let paths = maps.lines().filter_map(|line| Some(Path::new(&line[line.find('/')?..])));
    let is_driver =
        |path: &&Path| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"libcuda.so"));
    paths.filter(is_driver).map(Path::to_path_buf).next().ok_or(ErrorKind::NotFound.into())
}
