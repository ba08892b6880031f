//! The modules inside the stack: which may import which.
//!
//! [`MODULES`] lists them from the bottom up. A row names the modules that a module may import, each of which has an earlier row, so the
//! table has no cycle. An import that it does not have is refused.
//!
//! Does not depend on the content of modules. Tests: below, `tests/house.rs`.

use std::collections::BTreeSet;

use crate::facades::without_tests;
use crate::finding::Finding;
use crate::tokens::{Token, tokens};
use crate::tree::Source;

/// The folder whose modules these are.
const FOLDER: &str = "crates/stack/src/";
/// The meaning of a path from the crate's root that names none of the modules: the public types of the root.
const ROOT: &str = "the root";

/// A module and those that it may import, from the bottom up.
pub const MODULES: [(&str, &[&str]); 11] = [
    ("base", &[]),
    ("experiments", &[]),
    ("config", &["experiments"]),
    ("rt", &["base", "experiments", "config"]),
    ("inet", &["base", "experiments", "config", "rt"]),
    ("tcp", &["base", "experiments", "config", "rt", "inet"]),
    ("udp", &["base", "experiments", "config", "rt", "inet"]),
    ("icmp", &["base", "experiments", "config", "rt", "inet", "udp"]),
    ("unix", &["base", "experiments", "config", "rt"]),
    ("stack", &["base", "experiments", "config", "rt", "inet", "tcp", "udp", "icmp", "unix"]),
    ("tokio", &["base", "rt", "inet", "tcp", "udp", "icmp", "unix", "stack"]),
];

/// Checks all files of the stack. There is one finding for each file and module that it must not import.
pub fn check<'s>(sources: impl Iterator<Item = &'s Source>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources {
        let Some(from) = module_of(&source.path).filter(|_| source.is_product()) else { continue };
        let Some(tokens) = tokens(&source.text) else { continue };
        for (to, line) in imports(&without_tests(&tokens)) {
            if to != from && !may_import(from, to) {
                let message =
                    format!("{from} must not import {to}: move the code to where both may be known");
                findings.push(Finding::new(&source.path, line, "modules", message));
            }
        }
    }
    findings
}

fn may_import(from: &str, to: &str) -> bool {
    MODULES.iter().any(|&(module, may)| module == from && may.contains(&to))
}

/// The module of a file of the stack; `None` for the root itself and for other crates.
fn module_of(path: &str) -> Option<&'static str> {
    let inside = path.strip_prefix(FOLDER)?;
    let first = inside.split('/').next()?.trim_end_matches(".rs");
    MODULES.iter().map(|row| row.0).find(|module| *module == first)
}

/// The modules that a file imports, each once, with the first line that does.
fn imports(tokens: &[Token]) -> Vec<(&'static str, usize)> {
    let mut found = Vec::new();
    let mut once = BTreeSet::new();
    for (at, token) in tokens.iter().enumerate() {
        let is_path = token.text == "crate"
            && tokens.get(at + 1).is_some_and(|next| next.text == ":")
            && tokens.get(at + 2).is_some_and(|next| next.text == ":");
        if let Some(next) = tokens.get(at + 3).filter(|_| is_path) {
            let module = MODULES.iter().map(|row| row.0).find(|module| *module == next.text).unwrap_or(ROOT);
            if once.insert(module) {
                found.push((module, token.line));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source::new(&format!("{FOLDER}{path}"), text)
    }

    #[test]
    fn a_row_names_modules_above_it_only() {
        for (index, (module, may)) in MODULES.iter().enumerate() {
            let above: Vec<_> = MODULES[..index].iter().map(|row| row.0).collect();
            assert!(may.iter().all(|name| above.contains(name)), "{module}: {may:?}");
        }
    }

    #[test]
    fn an_upward_import_is_reported_once_per_file() {
        let files = [
            source("rt/timers.rs", "use crate::tcp::conn::Conn;\nfn f(_: crate::tcp::route::R) {}"),
            source(
                "tcp/conn/mod.rs",
                "use crate::rt::timers::Key;\n#[cfg(test)]\nmod tests { use crate::stack::Stack; }",
            ),
            source("rt/poll.rs", "use crate::TcpStream;"),
        ];
        let found: Vec<_> = check(files.iter()).into_iter().map(|finding| finding.to_string()).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("rt must not import tcp") && found[0].contains("timers.rs:1"), "{found:?}");
        assert!(found[1].contains(ROOT) && found[1].contains("poll.rs:1"), "{found:?}");
    }
}
