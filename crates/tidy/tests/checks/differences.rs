//! `docs/reference/differences.md`, and where the sources of packages are.
//!
//! Does not depend on the tables.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The page, from the repository's root.
const PAGE: &str = "docs/reference/differences.md";

/// The repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

/// The first column of the table under a heading: the text between backquotes.
pub fn table(heading: &str) -> Vec<String> {
    let section = section(heading);
    let names =
        section.lines().filter_map(|line| line.strip_prefix("| `")).filter_map(|row| row.split_once("` | "));
    let named = names.map(|(name, reason)| {
        assert!(reason.trim_end_matches('|').trim().len() > 3, "{name} has no reason in {PAGE}");
        name.to_owned()
    });
    named.collect()
}

/// The text under a heading, up to the next one.
pub fn section(heading: &str) -> String {
    let page = std::fs::read_to_string(root().join(PAGE)).expect("the page of differences");
    let (_, section) =
        page.split_once(heading).unwrap_or_else(|| panic!("{PAGE} has no heading {heading:?}"));
    let lines: Vec<&str> = section.lines().skip(1).take_while(|line| !line.starts_with("## ")).collect();
    lines.join("\n")
}

/// The source of tokio: see [`source_of`].
pub fn tokio(manifest: &str) -> Option<PathBuf> {
    source_of("tokio", manifest)
}

/// The source of the package that a manifest's lock file names, in cargo's registry. `None` if cargo does not have it, which in continuous
/// integration is a failure.
pub fn source_of(name: &str, manifest: &str) -> Option<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["metadata", "--format-version", "1", "--locked", "--offline", "--manifest-path", manifest]);
    let output = command.current_dir(root()).output().expect("cargo starts");
    if !output.status.success() {
        let reason =
            format!("{manifest}: not all packages are there: {}", String::from_utf8_lossy(&output.stderr));
        assert!(!crate::child::in_ci(), "{reason}; in continuous integration that is a failure");
        println!("skipped: {reason}");
        return None;
    }
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON");
    let packages = metadata["packages"].as_array().expect("there are packages");
    let found = packages.iter().find(|package| package["name"] == name && package["source"].is_string());
    let path = found.and_then(|package| package["manifest_path"].as_str());
    let path = path.unwrap_or_else(|| panic!("{manifest} does not depend on {name}"));
    Some(Path::new(path).parent().expect("a manifest is in a folder").to_path_buf())
}
