//! The end-to-end tests, a module for each file of this folder.

mod arriving;
mod bench;
mod beside;
mod corun;
mod demo;
mod doctor;
mod doors;
mod every_hook;
mod failures;
mod footprints;
mod malformed;
mod pausing;
mod quiet;
mod settings;
mod sharing;
mod steering;
mod trace;

#[test]
fn every_file_of_this_folder_is_a_module() {
    let folder = baton_tests::root().join("tests/tests");
    for entry in std::fs::read_dir(folder).expect("the repository's own folder") {
        let name = entry.expect("a readable folder").file_name().into_string().expect("UTF-8");
        let module = name.strip_suffix(".rs").expect("files of Rust alone");
        let line = format!("\nmod {module};\n");
        assert!(module == "main" || include_str!("main.rs").contains(&line), "main.rs has no `mod {module};`");
    }
}
