//! Generates the shim's exports from the symbol lists: one exported name, one slot and two small stubs
//! per entry point. `src/exports/symbols.rs`, which includes the result, tells their purpose.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::{env, fs};

/// How many functions of a newer driver can be let through, if the user wants that: more than a CUDA version has brought.
const UNKNOWN: usize = 256;

/// One row of the list: the name that a program asks for, and the driver's export for it.
struct Symbol {
    base: String,
    version: u32,
    name: String,
}

fn main() {
    println!("cargo::rerun-if-changed=build/main.rs");
    // The loader hands a preloaded library with this name to all code that asks for the driver.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // Our own table of doors must mean our doors, also when another preloaded library has a function of
    // the same name.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");

    let symbols = symbols();
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    fs::write(out.join("symbols.rs"), table(&symbols)).expect("OUT_DIR is writable");
    fs::write(out.join("exports.rs"), exports(&symbols)).expect("OUT_DIR is writable");
}

fn symbols() -> Vec<Symbol> {
    let listed: Vec<(String, String, u32, String)> =
        serde_json::from_str(baton_contract::SYMBOLS_CUDA).expect("the symbol list is JSON rows");
    let beyond: Vec<(String, String, Vec<String>)> =
        serde_json::from_str(baton_contract::SYMBOLS_BEYOND).expect("the symbol list is JSON rows");
    let listed = listed.into_iter().map(|(base, _, version, name)| Symbol { base, version, name });
    let beyond = beyond
        .into_iter()
        // Data and break points of the debugger, which reads them in the real driver: a second
        // definition in front of it would mislead the debugger. See docs/coverage.md.
        .filter(|(name, kind, _)| kind == "function" && !is_the_debuggers(name))
        .map(|(name, _, _)| Symbol { base: base_of(&name), version: 0, name });
    listed.chain(beyond).collect()
}

/// The name by which a program asks for a symbol, where no list gives one.
fn base_of(name: &str) -> String {
    let name = ["_ptds", "_ptsz"].into_iter().find_map(|twin| name.strip_suffix(twin)).unwrap_or(name);
    match name.rsplit_once("_v") {
        Some((base, number)) if number.parse::<u32>().is_ok() => base.to_owned(),
        _ => name.to_owned(),
    }
}

fn is_the_debuggers(name: &str) -> bool {
    name.starts_with("cudbg") && !matches!(name, "cudbgGetAPI" | "cudbgGetAPIVersion")
}

/// The names as data, and an index constant per name for the hook table.
fn table(symbols: &[Symbol]) -> String {
    let mut text = format!("pub(crate) const COUNT: usize = {};\n", symbols.len());
    let newest = symbols.iter().map(|symbol| symbol.version).max().unwrap_or(0);
    writeln!(
        text,
        "/// The newest CUDA version of which all names are known.\npub(crate) const NEWEST: u32 = {newest};"
    )
    .expect("a String takes all writes");
    writeln!(
        text,
        "/// So many functions that nobody here knows have a stub.\npub(crate) const UNKNOWN: usize = {UNKNOWN};"
    )
    .expect("a String takes all writes");
    text.push_str("pub(crate) static SYMBOLS: [Symbol; COUNT] = [\n");
    for Symbol { base, version, name } in symbols {
        writeln!(text, "Symbol {{ name: c\"{name}\", base: \"{base}\", version: {version} }},")
            .expect("a String takes all writes");
    }
    text.push_str("];\n/// Whether the default stream of these functions is the calling thread's own.\npub(crate) const PER_THREAD: [bool; COUNT] = [\n");
    for Symbol { name, .. } in symbols {
        writeln!(text, "{},", name.ends_with("_ptds") || name.ends_with("_ptsz")).expect("a String takes all writes");
    }
    text.push_str("];\n#[allow(dead_code, reason = \"only hooked symbols are named\")]\npub(crate) mod index {\n");
    for (i, Symbol { name, .. }) in symbols.iter().enumerate() {
        writeln!(text, "pub(crate) const {name}: usize = {i};").expect("a String takes all writes");
    }
    text.push_str("}\n");
    text
}

/// The exported names (tail jumps through the slots) and the assembly of slots and stubs.
fn exports(symbols: &[Symbol]) -> String {
    let mut asm = String::from(
        ".pushsection .data.baton_slots,\"aw\",@progbits\n.balign 64\n.globl baton_slots\n.hidden baton_slots\nbaton_slots:\n",
    );
    for i in 0..symbols.len() {
        writeln!(asm, ".quad baton_first_stubs + {i} * 16").expect("a String takes all writes");
    }
    asm.push_str(".popsection\n");
    for (label, common, count) in [
        ("baton_first_stubs", "{first_call}", symbols.len()),
        ("baton_traced_stubs", "{traced_call}", symbols.len()),
        ("baton_unknown_stubs", "{unknown_call}", UNKNOWN),
    ] {
        writeln!(
            asm,
            ".pushsection .text.{label},\"ax\",@progbits\n.balign 16\n.globl {label}\n.hidden {label}\n{label}:"
        )
        .expect("a String takes all writes");
        for i in 0..count {
            writeln!(asm, ".balign 16\npush {i}\njmp {common}").expect("a String takes all writes");
        }
        asm.push_str(".popsection\n");
    }

    let mut text = format!(
        "core::arch::global_asm!(r#\"{asm}\"#, first_call = sym first_call, traced_call = sym traced_call, unknown_call = sym unknown_call);\n"
    );
    for (i, Symbol { name, .. }) in symbols.iter().enumerate() {
        writeln!(
            text,
            "#[cfg_attr(not(test), unsafe(no_mangle))]\n#[unsafe(naked)]\npub(super) unsafe extern \"C\" fn {name}() {{ core::arch::naked_asm!(\"jmp qword ptr [rip + baton_slots + 8 * {i}]\") }}"
        )
        .expect("a String takes all writes");
    }
    // The doors' addresses, for those who stand below them.
    text.push_str("core::arch::global_asm!(r#\".pushsection .data.rel.ro.baton_exports,\"aw\",@progbits\n.balign 8\n.globl baton_exports\n.hidden baton_exports\nbaton_exports:\n");
    for i in 0..symbols.len() {
        writeln!(text, ".quad {{d{i}}}").expect("a String takes all writes");
    }
    text.push_str(".popsection\n\"#,\n");
    for (i, Symbol { name, .. }) in symbols.iter().enumerate() {
        writeln!(text, "d{i} = sym {name},").expect("a String takes all writes");
    }
    text.push_str(");\n");
    text
}
