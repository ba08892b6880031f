//! tokio's own tests of its sockets, run on ours.
//!
//! Their files are in the source of the tokio that the workspace of `apps/glue` names, in cargo's registry. They are copied into
//! `target/tokio-suite`: paths of `std` lead to the library of the package `tests/tokio-suite`, which has our sockets where `std` has its own,
//! and `tokio` is a crate that does the same. Tests that do not apply are left out by the table in `docs/reference/differences.md`: a test
//! (`file::function`) or a file. A row that finds nothing is a failure, and so is a file of tokio's that is neither run nor in the table. The
//! package is one of the workspace of `apps/glue`, and its tests run with those of that, from one build of the stack.
//!
//! Does not depend on the content of the tests. Nothing of tokio's is committed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::spanned::Spanned;

use crate::differences::{self, root};

/// The package of the suite.
const MANIFEST: &str = "crates/tidy/tests/tokio-suite/Cargo.toml";
/// The table's heading.
const LEFT_OUT: &str = "## Tests of tokio that do not apply";
/// Names by which tokio's files of tests of its sockets begin.
const PREFIXES: [&str; 5] = ["net_", "tcp_", "udp", "uds_", "unix_"];
/// Tests that must be there at least, without those that macros of tokio's make: fewer are a sign that the wrong files were taken.
const TESTS_MIN: usize = 80;

/// Copies the tests, and returns their names. `None` if cargo does not have tokio's source.
pub fn prepare() -> Option<Vec<String>> {
    let folder = differences::tokio(MANIFEST)?;
    let names = copy(&folder.join("tests"), &root().join("target/tokio-suite"));
    assert!(names.len() >= TESTS_MIN, "only {} tests were found", names.len());
    Some(names)
}

/// Fails unless the output of a run of the workspace says of each of these tests that it has passed.
pub fn all_passed(names: &[String], output: &str) {
    let passed = |line| str::strip_prefix(line, "test ")?.strip_suffix(" ... ok");
    let mut passed: Vec<&str> = output.lines().filter_map(passed).collect();
    for name in names {
        // Two files may have a test of the same name.
        let at = passed.iter().position(|passed| passed == name);
        passed.swap_remove(at.unwrap_or_else(|| panic!("tokio's test {name} was not run")));
    }
    println!("{} of tokio's tests passed", names.len());
}

/// Copies the files of the folder `from` without the tests that are left out, and returns the names of the others.
fn copy(from: &Path, to: &Path) -> Vec<String> {
    let mut names = Vec::new();
    let rows = differences::table(LEFT_OUT);
    let mut left: BTreeSet<&str> = rows.iter().map(String::as_str).collect();
    let manifest = std::fs::read_to_string(root().join(MANIFEST)).expect("the suite's manifest");
    std::fs::create_dir_all(to).expect("a folder for the tests");
    for path in files_in(from) {
        let name = path.file_stem().expect("a file").to_string_lossy().into_owned();
        let is_run = manifest.contains(&format!("name = \"{name}\""));
        let is_left_out = left.remove(&*name);
        assert!(
            is_run != is_left_out,
            "{name}: a file of tokio's tests is run or in the table of {LEFT_OUT:?}"
        );
        if is_run {
            let text = std::fs::read_to_string(&path).expect("a readable file of tokio's");
            let prefix = format!("{name}::");
            let (text, found) = without(&text, |function| rows.contains(&format!("{prefix}{function}")));
            names.extend(tests_of(&text));
            for function in found {
                left.remove(&*format!("{prefix}{function}"));
            }
            std::fs::write(to.join(format!("{name}.rs")), on_ours(&text)).expect("a file is written");
        }
    }
    assert!(left.is_empty(), "rows of {LEFT_OUT:?} that name nothing: {left:?}");
    names
}

/// The functions that are tests on every system. Those that macros make are not among them; they run all the same.
fn tests_of(text: &str) -> Vec<String> {
    let file = syn::parse_file(text).expect("what is left is Rust");
    let has = |function: &syn::ItemFn, name: &str| {
        let last =
            |attribute: &syn::Attribute| attribute.path().segments.last().map(|part| part.ident.to_string());
        function.attrs.iter().any(|attribute| last(attribute).as_deref() == Some(name))
    };
    let functions = file.items.into_iter().filter_map(|item| match item {
        syn::Item::Fn(function) => Some(function),
        _ => None,
    });
    functions
        .filter(|function| has(function, "test") && !has(function, "cfg") && !has(function, "ignore"))
        .map(|function| function.sig.ident.to_string())
        .collect()
}

/// tokio's files of tests of its sockets.
fn files_in(folder: &Path) -> Vec<PathBuf> {
    let all = std::fs::read_dir(folder).expect("tokio's tests are in its package").flatten();
    let is_of_sockets = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.ends_with(".rs") && PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    };
    all.map(|entry| entry.path()).filter(is_of_sockets).collect()
}

/// The text without the tests of these names, whether functions or made by a macro of their name; and which were found.
fn without(text: &str, is_left_out: impl Fn(&str) -> bool) -> (String, Vec<String>) {
    let file = syn::parse_file(text).expect("tokio's tests are Rust");
    let mut found = Vec::new();
    let mut lines: Vec<&str> = text.lines().collect();
    for item in &file.items {
        let name = match item {
            syn::Item::Fn(function) => function.sig.ident.to_string(),
            syn::Item::Macro(made) => first_name(made.mac.tokens.clone()),
            _ => continue,
        };
        if is_left_out(&name) {
            let span = item.span();
            lines[span.start().line - 1..span.end().line].fill("");
            found.push(name);
        }
    }
    (lines.join("\n"), found)
}

/// The first name among a macro's tokens, outside its attributes.
fn first_name(tokens: TokenStream) -> String {
    let is_name = |token: &TokenTree| matches!(token, TokenTree::Ident(_));
    tokens.into_iter().find(is_name).map_or_else(String::new, |name| name.to_string())
}

/// The text with `stdx` for `std`.
fn on_ours(text: &str) -> String {
    let mut done = String::with_capacity(text.len() + 1024);
    let mut rest = text;
    while let Some(at) = rest.find("std::") {
        let (before, after) = rest.split_at(at);
        let is_path = !before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        done.push_str(before);
        done.push_str(if is_path { "stdx::" } else { "std::" });
        rest = &after["std::".len()..];
    }
    done + rest
}

#[test]
fn a_test_is_left_out_whole_and_the_others_keep_their_lines() {
    let text =
        "#[test]\nfn one() {\n    std::mem::drop(1);\n}\n\ntest!(#[a] two, 2);\nfn three() { mystd::f() }\n";
    let (rest, found) = without(text, |name| name == "one" || name == "two");
    assert_eq!(found, ["one", "two"]);
    assert_eq!(rest, "\n\n\n\n\n\nfn three() { mystd::f() }");
    let text = "#[tokio::test]\nasync fn four() {}\n#[cfg(windows)]\n#[test]\nfn five() {}\nfn six() {}\n";
    assert_eq!(tests_of(text), ["four"]);
    assert_eq!(on_ours("use std::net; mystd::f(); (std::io)"), "use stdx::net; mystd::f(); (stdx::io)");
}
