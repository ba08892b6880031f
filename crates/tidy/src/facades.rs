//! Shared words are taken from the facade only.
//!
//! Hand-offs between cores are counted by the facade of `sockeye-sync` (`docs/adr/0015`). A word, lock or reference count
//! that passes the facade by would be missing in every count, silently. So the crates whose traffic is counted
//! may not name the machine's own.
//!
//! Does not depend on which types there are: every path into `std::sync` is one too many, those that share nothing as
//! well. Tests of a crate may use what they like. Tests: at the end, and `tests/house.rs`.

use crate::finding::Finding;
use crate::tokens::{Token, tokens};
use crate::tree::Source;

/// Folders in which everything shared must be counted.
const COUNTED: [&str; 4] = ["crates/sync/src/", "crates/mbuf/src/", "crates/netif/src/", "crates/stack/src/"];
/// The facades themselves, and the instrument behind them: beginnings of paths.
const FACADES: [&str; 3] = ["crates/sync/src/facade", "crates/sync/src/count", "crates/mbuf/src/facade.rs"];
/// A file that begins like the instrument and is none.
const NOT_FACADE: &str = "crates/sync/src/counters.rs";
/// Crates with a module `sync` full of shared words.
const ROOTS: [&str; 4] = ["std", "core", "alloc", "tokio"];
/// Crates that are nothing but shared words, and a type that is one.
const WORDS: [&str; 8] = [
    "parking_lot",
    "once_cell",
    "arc_swap",
    "crossbeam",
    "crossbeam_channel",
    "crossbeam_epoch",
    "crossbeam_queue",
    "AtomicCell",
];
/// Checks one file.
pub fn check(source: &Source) -> Vec<Finding> {
    let is_facade = FACADES.iter().any(|facade| source.path.starts_with(facade)) && source.path != NOT_FACADE;
    let is_test = source.path.contains("/tests/") || source.path.ends_with("/tests.rs");
    let is_counted = COUNTED.iter().any(|folder| source.path.starts_with(folder));
    if !source.is_rust() || !is_counted || is_facade || is_test {
        return Vec::new();
    }
    let Some(tokens) = tokens(&source.text) else {
        return Vec::new();
    };
    let product = without_tests(&tokens);
    let found = |line| {
        let message = "a shared word that no count of hand-offs would see: take it from \
            sockeye_sync::facade, and add it there if it has no such type yet";
        Finding::new(&source.path, line, "facade", message)
    };
    (0..product.len()).filter(|&at| bypasses_facade(&product, at)).map(|at| found(product[at].line)).collect()
}

/// Whether the path that begins at `at` names a shared word past the facade.
fn bypasses_facade(tokens: &[Token], at: usize) -> bool {
    let text = tokens[at].text.as_str();
    if WORDS.contains(&text) {
        return true;
    }
    let follows = |offset: usize, text: &str| tokens.get(at + offset).is_some_and(|token| token.text == text);
    if !ROOTS.contains(&text) || !follows(1, ":") || !follows(2, ":") {
        return false;
    }
    follows(3, "sync") || (follows(3, "{") && group_names_sync(&tokens[at + 4..]))
}

/// Whether one of the paths of a group, up to its closing brace, begins with `sync`.
fn group_names_sync(tokens: &[Token]) -> bool {
    let mut depth = 0;
    let mut is_start = true;
    for token in tokens {
        match token.text.as_str() {
            "{" => depth += 1,
            "}" if depth == 0 => return false,
            "}" => depth -= 1,
            "sync" if depth == 0 && is_start => return true,
            _ => {}
        }
        is_start = depth == 0 && token.text == ",";
    }
    false
}

/// The tokens without modules that are only compiled for tests.
pub(crate) fn without_tests(tokens: &[Token]) -> Vec<Token> {
    let mut product = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        match test_module(&tokens[at..]) {
            Some(length) => at += length,
            None => {
                product.push(tokens[at].clone());
                at += 1;
            }
        }
    }
    product
}

/// The length of a module for tests that begins here with its `#[cfg(…test…)]`, if one does.
fn test_module(tokens: &[Token]) -> Option<usize> {
    let texts: Vec<&str> =
        tokens.iter().take(ATTRIBUTE_TOKENS_MAX).map(|token| token.text.as_str()).collect();
    if texts.get(..4) != Some(&["#", "[", "cfg", "("]) {
        return None;
    }
    let end = texts.iter().position(|&text| text == "]")?;
    let is_for_tests =
        texts[..end].contains(&"test") && !texts[..end].windows(3).any(|w| w == ["not", "(", "test"]);
    if !is_for_tests || texts.get(end + 1) != Some(&"mod") || texts.get(end + 3) != Some(&"{") {
        return None;
    }
    let mut depth = 0;
    for (index, token) in tokens.iter().enumerate().skip(end + 3) {
        match token.text.as_str() {
            "{" => depth += 1,
            "}" if depth == 1 => return Some(index + 1),
            "}" => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Longest `cfg` attribute that is understood, with the head of the module, in tokens.
const ATTRIBUTE_TOKENS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        check(&Source::new(path, text)).len()
    }

    #[test]
    fn each_import_that_bypasses_the_facade_is_found() {
        for text in [
            "use std::sync::atomic::AtomicU32;",
            "use core::sync::atomic::{AtomicU8, Ordering};",
            "use std::sync::Arc;",
            "use std::sync;",
            "use std::{cell::Cell, sync::{Arc, Mutex}};",
            "use std::{sync::OnceLock, cell::Cell};",
            "fn f(a: &std::sync::Mutex<u8>) {}",
            "use parking_lot::Mutex;",
            "use crossbeam_utils::atomic::AtomicCell;",
            "use tokio::sync::Notify;",
            "fn f() {}\n#[cfg(not(test))]\nmod real { use std::sync::Arc; }",
        ] {
            for folder in COUNTED {
                assert_eq!(found(&format!("{folder}a.rs"), text), 1, "{text}");
            }
        }
    }

    #[test]
    fn the_facade_itself_tests_prose_and_other_crates_are_not_reported() {
        let text = "use std::sync::Arc;";
        for path in [
            "crates/sync/src/facade/host.rs",
            "crates/sync/src/facade.rs",
            "crates/sync/src/count/lines.rs",
            "crates/mbuf/src/facade.rs",
            "crates/sync/tests/stress.rs",
            "crates/sync/src/wait/tests.rs",
            "crates/proto/src/a.rs",
            "apps/cli/src/main.rs",
        ] {
            assert_eq!(found(path, text), 0, "{path}");
        }
        assert_eq!(found("crates/sync/src/counters.rs", text), 1);
        let path = "crates/stack/src/a.rs";
        assert_eq!(found(path, "// std::sync::Arc\nfn f() { \"parking_lot\"; }"), 0);
        assert_eq!(
            found(path, "use sockeye_sync::facade::Arc;\nuse std::{cell::Cell, io::{self, sync}};"),
            0
        );
        let tests = "#[cfg(all(test, not(loom)))]\nmod tests { mod a {} use std::sync::Arc; }";
        assert_eq!(found(path, tests), 0);
        assert_eq!(found(path, &format!("{tests}\nuse std::sync::Arc;")), 1);
    }
}
