//! docs/security.md names a test for each promise: they exist.

use std::collections::BTreeSet;
use std::fs;

/// A test's file below the tests' folder and its name, if the code names a test: `folder::file::test` or `folder::file::root::test`.
fn as_test(code: &str) -> Option<(String, &str)> {
    let is_name =
        |name: &&str| !name.is_empty() && name.bytes().all(|byte| byte == b'_' || byte.is_ascii_alphanumeric());
    let parts: Vec<&str> = code.split("::").collect();
    match parts[..] {
        [folder, file, test] | [folder, file, "root", test] if parts.iter().all(is_name) => {
            Some((format!("{folder}/{file}.rs"), test))
        }
        _ => None,
    }
}

/// The code in a document: all that is between backquotes.
fn code_of(page: &str) -> impl Iterator<Item = &str> {
    page.split('`').skip(1).step_by(2)
}

#[test]
fn every_test_that_a_promise_names_exists() {
    let root = baton_tests::root();
    let page = fs::read_to_string(root.join("docs/security.md")).expect("the repository's own file");
    let (_, promises) = page.split_once("## Promises").expect("a chapter");
    let (promises, _) = promises.split_once("## What is not promised").expect("the next chapter");
    let named: BTreeSet<(String, &str)> = code_of(promises).filter_map(as_test).collect();
    for (file, test) in &named {
        let source = fs::read_to_string(root.join("tests/end_to_end").join(file)).unwrap_or_default();
        assert!(source.contains(&format!("fn {test}() {{\n")), "there is no test {test} in {file}");
    }
    let of_a_table = |line: &&str| line.starts_with("| ") && !line.ends_with("| Test |");
    let rows: Vec<&str> = promises.lines().filter(of_a_table).collect();
    assert!(rows.len() > 20, "{}", rows.len());
    for row in rows {
        assert!(code_of(row).any(|code| as_test(code).is_some()), "a promise without a test: {row}");
    }
}
