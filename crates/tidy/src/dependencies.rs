//! That each dependency has a line in `docs/adr/dependencies.md`, and each line a dependency.
//!
//! A line is a row of a table whose first cell is the package in backquotes. Must not judge the reason.
//! Tests: at the end, and `tests/house.rs`.

use std::collections::BTreeSet;

use crate::finding::Finding;
use crate::metadata::Package;

/// The document.
pub const DOCUMENT: &str = "docs/adr/dependencies.md";
/// Cells of a row: name, where, purpose, loss without it, licence and upkeep.
const CELLS: usize = 5;

/// Checks the packages' dependencies against the document's text.
pub fn check(packages: &[Package], document: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut rows = BTreeSet::new();
    for (index, row) in document.lines().enumerate() {
        let cells: Vec<&str> = row.trim().trim_matches('|').split('|').map(str::trim).collect();
        let Some(name) = cells.first().and_then(|cell| cell.strip_prefix('`')?.strip_suffix('`')) else {
            continue;
        };
        if cells.len() != CELLS || cells.iter().any(|cell| cell.is_empty()) {
            let message = format!("the row of {name} needs {CELLS} cells, none of them empty");
            findings.push(Finding::new(DOCUMENT, index + 1, "dependency-reason", message));
        }
        rows.insert(name);
        let used = packages.iter().any(|p| p.dependencies.iter().any(|d| d.name == name));
        if !used {
            let message = format!("{name} is not a dependency any more: take its row out");
            findings.push(Finding::new(DOCUMENT, index + 1, "dependency-reason", message));
        }
    }
    for package in packages {
        for dependency in &package.dependencies {
            let is_ours = packages.iter().any(|p| p.name == dependency.name);
            if !is_ours && !rows.contains(dependency.name.as_str()) {
                let message = format!(
                    "{} has no row in {DOCUMENT}: say what it does for us and what we \
                    would lose without it, or do without it",
                    dependency.name
                );
                findings.push(Finding::new(&package.manifest, dependency.line, "dependency-reason", message));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::{Dependency, Kind};

    fn packages() -> [Package; 1] {
        let dependency = Dependency { name: "loom".into(), kind: Kind::Dev, line: 3 };
        [Package { name: "a".into(), manifest: "a/Cargo.toml".into(), dependencies: vec![dependency] }]
    }

    #[test]
    fn a_dependency_without_a_row_is_found_even_one_of_tests() {
        let found = check(&packages(), "| `other-thing` in prose |\n");
        assert!(found.iter().any(|f| f.file == "a/Cargo.toml" && f.line == 3), "{found:?}");
        assert!(check(&packages(), "| `loom` | sync | models | them | MIT, kept |\n").is_empty());
    }

    #[test]
    fn a_row_that_is_stale_or_empty_is_found() {
        let stale = "| `loom` | sync | models | them | MIT |\n| `gone` | x | x | x | x |\n";
        let found = check(&packages(), stale);
        assert_eq!(found.iter().map(|f| f.line).collect::<Vec<_>>(), [2]);
        assert_eq!(check(&packages(), "| `loom` | sync | | them | MIT |\n").len(), 1);
    }
}
