//! `docs/reference/differences.md`, and where the source of tokio is.
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
    let page = std::fs::read_to_string(root().join(PAGE)).expect("the page of differences");
    let (_, section) =
        page.split_once(heading).unwrap_or_else(|| panic!("{PAGE} has no heading {heading:?}"));
    let rows = section.lines().skip(1).take_while(|line| !line.starts_with("## "));
    let names = rows.filter_map(|line| line.strip_prefix("| `")).filter_map(|row| row.split_once("` | "));
    let named = names.map(|(name, reason)| {
        assert!(reason.trim_end_matches('|').trim().len() > 3, "{name} has no reason in {PAGE}");
        name.to_owned()
    });
    named.collect()
}

/// The source of the tokio that a manifest's lock file names, in cargo's registry. `None` if cargo does not have it, which in continuous
/// integration is a failure.
pub fn tokio(manifest: &str) -> Option<PathBuf> {
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
    let tokio = packages.iter().find(|package| package["name"] == "tokio" && package["source"].is_string());
    let path = tokio.and_then(|package| package["manifest_path"].as_str()).expect("tokio is one of them");
    Some(Path::new(path).parent().expect("a manifest is in a folder").to_path_buf())
}
