//! The parts of `tests/generate` that are no tests: `again FILE TIMES` and `write FOLDER`.

use std::path::{Path, PathBuf};

use baton_tests::generated::hunt::{self, Plan, number};
use baton_tests::generated::trial::PRESSURES;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["again", file, times] => {
            let faults = hunt::again(&[PathBuf::from(file)], times.parse().expect("a number"), &PRESSURES);
            if !faults.is_empty() {
                eprintln!("{}", faults.join("\n\n"));
                std::process::exit(1);
            }
        }
        ["write", folder] => {
            hunt::write(&Plan::asked(300), number("GENERATE_EXCHANGES").unwrap_or(0), Path::new(folder))
        }
        _ => panic!("{words:?}: see tests/generate"),
    }
}
