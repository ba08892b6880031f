//! Where `unsafe` stands, and that it says why it is sound.
//!
//! Must not judge the reason: that is a reader's part. Which crates may is the layer table's. Tests: at the
//! end, and `tests/house.rs`.

use crate::finding::Finding;
use crate::layers;
use crate::tokens::tokens;
use crate::tree::Source;

/// Lines above an `unsafe` block in which its reason is looked for: a comment, attributes, and the
/// beginning of the statement.
const REASON_LINES_MAX: usize = 24;
const FORBID: &str = "#![forbid(unsafe_code)]";

/// Checks one file.
pub fn check(source: &Source) -> Vec<Finding> {
    if !source.is_rust() {
        return Vec::new();
    }
    let may = layers::of_file(&source.path).is_some_and(|layer| layer.may_be_unsafe);
    let mut findings = Vec::new();
    if !may && is_root(&source.path) && !source.text.lines().any(|line| line.trim() == FORBID) {
        let message = format!("a crate root without {FORBID}: put it below the head comment");
        findings.push(Finding::new(&source.path, 1, "unsafe", message));
    }
    let Some(tokens) = tokens(&source.text) else {
        return findings;
    };
    let lines: Vec<&str> = source.text.lines().collect();
    for (index, token) in tokens.iter().enumerate().filter(|(_, token)| token.text == "unsafe") {
        let next = tokens.get(index + 1).map_or("", |next| &next.text);
        if !may {
            let message = "`unsafe` outside the crates that the layer table allows it in: move it behind \
                a safe function in one of them";
            findings.push(Finding::new(&source.path, token.line, "unsafe", message));
        } else if matches!(next, "{" | "impl") && !has_reason(&lines, token.line) {
            let message = "`unsafe` without a `// SAFETY:` comment above it: say which invariant makes it \
                sound and what upholds it";
            findings.push(Finding::new(&source.path, token.line, "safety-comment", message));
        }
    }
    findings
}

/// Whether a file is the root of a library or program. Tests and examples have no attribute of their own
/// to show: `unsafe` in them is found by the word.
fn is_root(path: &str) -> bool {
    path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs") || path.contains("/src/bin/")
}

/// Whether a comment above the statement at `line` (from 1), or on it, gives the reason.
fn has_reason(lines: &[&str], line: usize) -> bool {
    let at = line.saturating_sub(1).min(lines.len().saturating_sub(1));
    if lines[at].contains("SAFETY:") {
        return true;
    }
    for above in lines[..at].iter().rev().take(REASON_LINES_MAX) {
        let above = above.trim();
        if above.starts_with("//") {
            if above.contains("SAFETY:") {
                return true;
            }
        } else if above.is_empty() || above.ends_with([';', '}']) {
            // The statement before this one: comments above it are not about ours.
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<&'static str> {
        check(&Source::new(path, text)).into_iter().map(|f| f.rule).collect()
    }

    #[test]
    fn unsafe_outside_its_crates_is_found_reason_or_not() {
        let text = "// SAFETY: none needed\nfn f() { unsafe { g() } }";
        assert_eq!(found("crates/stack/src/a.rs", text), ["unsafe"]);
        assert_eq!(found("crates/stack/tests/a.rs", text), ["unsafe"]);
        assert_eq!(found("crates/stack/src/a.rs", "// unsafe { in prose }\nfn f() {}"), [""; 0]);
    }

    #[test]
    fn a_root_without_the_attribute_is_found() {
        assert_eq!(found("crates/proto/src/lib.rs", "//! Head.\n"), ["unsafe"]);
        assert_eq!(found("crates/proto/src/lib.rs", "//! Head.\n#![forbid(unsafe_code)]\n"), [""; 0]);
        assert_eq!(found("crates/sync/src/lib.rs", "//! Head.\n"), [""; 0]);
    }

    #[test]
    fn a_block_needs_its_own_reason() {
        let reason =
            "fn f() {\n    // SAFETY: f owns it,\n    // for life.\n    let x =\n        unsafe { g() };\n}";
        assert_eq!(found("crates/sync/src/a.rs", reason), [""; 0]);
        let none = "fn f() {\n    unsafe { g() };\n}";
        assert_eq!(found("crates/sync/src/a.rs", none), ["safety-comment"]);
        let another = "fn f() {\n    // SAFETY: f owns it.\n    unsafe { g() };\n    unsafe { h() };\n}";
        assert_eq!(found("crates/sync/src/a.rs", another), ["safety-comment"]);
        let item = "// Not about safety.\nunsafe impl Send for A {}";
        assert_eq!(found("crates/sync/src/a.rs", item), ["safety-comment"]);
    }
}
