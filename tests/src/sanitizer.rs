//! AddressSanitizer, which not every C compiler has: the tests that need it are among the tools.

use std::path::PathBuf;
use std::process::Command;

use crate::built;

/// A program that is built with AddressSanitizer.
#[track_caller]
pub fn program(name: &str) -> PathBuf {
    let program = built().programs.join("asan").join(name);
    assert!(program.exists(), "the C compiler has no AddressSanitizer");
    program
}

/// The runtime of AddressSanitizer as a library.
#[track_caller]
pub fn runtime() -> String {
    let found = Command::new("cc").arg("-print-file-name=libasan.so").output().expect("a C compiler");
    let path = String::from_utf8(found.stdout).expect("UTF-8").trim().to_owned();
    assert!(path.contains('/'), "the C compiler has no library of AddressSanitizer's");
    path
}
