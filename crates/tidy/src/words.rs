//! Words that do not belong in the repository: unfinished work, one machine's paths, registry hosts, names of our own for
//! things that the field has a word for.
//!
//! Does not depend on the meaning of a file. The words are put together from halves, so that this file does
//! not find itself. Tests: at the end, and `tests/house.rs`.

use crate::finding::Finding;
use crate::tokens::tokens;
use crate::tree::Source;

/// Macros that mark unfinished work or were left from looking for a fault.
const MACROS: [&str; 3] = ["todo", "unimplemented", "dbg"];
/// Marks of unfinished work, in comments too.
const MARKS: [&str; 2] = [concat!("FIX", "ME"), concat!("XX", "X")];
/// Folders that exist on the machine of the author.
const PATHS: [&str; 3] = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];
/// Hosts of package registries and toolchains: a tool's own configuration says where it fetches from.
const HOSTS: [&str; 9] = [
    concat!("crates", ".io"),
    concat!("static.rust-lang", ".org"),
    concat!("sh.rustup", ".rs"),
    concat!("pypi", ".org"),
    concat!("pythonhosted", ".org"),
    concat!("npmjs", ".org"),
    concat!("proxy.golang", ".org"),
    concat!("deb.debian", ".org"),
    concat!("repo.maven", ".apache.org"),
];
/// What git leaves where two changes did not go together.
const CONFLICTS: [&str; 2] = [concat!("<<<<", "<<< "), concat!(">>>>", ">>> ")];
/// Written by cargo, which names the registry in it.
const LOCK_FILE: &str = "Cargo.lock";

/// Names that were replaced, and the field's words.
const REPLACED: [(&str, &str); 6] = [
    (concat!("peri", "meter"), "socket lock, or squeue if several connections share it"),
    (concat!("look", "out"), "leader"),
    (concat!("hand", "out"), "per-core accept queue"),
    (concat!("roll", "up"), "deferred output"),
    (concat!("she", "lf"), "remote-free list"),
    (concat!("rou", "sing"), "waking"),
];

/// Checks one file.
pub fn check(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    if source.is_product() {
        findings.extend(unfinished(source));
    }
    findings.extend(replaced(source));
    for (line, text) in source.lines() {
        if let Some(path) = PATHS.iter().find(|path| has_path(text, path)) {
            let message =
                format!("names {path}, a folder of one machine: use a relative path or an argument");
            findings.push(Finding::new(&source.path, line, "machine-path", message));
        }
        if CONFLICTS.iter().any(|mark| text.starts_with(mark)) {
            let message = "two changes stand here side by side: make one of them".to_owned();
            findings.push(Finding::new(&source.path, line, "conflict", message));
        }
        if !source.path.ends_with(LOCK_FILE)
            && let Some(host) = HOSTS.iter().find(|host| text.contains(*host))
        {
            let message = format!("names the registry host {host}: name the package alone");
            findings.push(Finding::new(&source.path, line, "registry-host", message));
        }
    }
    findings
}

/// Replaced names. Decision records and the changelog use the names of their time.
fn replaced(source: &Source) -> Vec<Finding> {
    let is_dated = source.path.starts_with("docs/adr/") || source.path == "CHANGELOG.md";
    if is_dated || !(source.is_rust() || source.path.ends_with(".md")) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (line, text) in source.lines() {
        let words = text.split(|c: char| !c.is_alphabetic()).map(str::to_lowercase);
        for (old, new) in words.filter_map(|word| REPLACED.iter().find(|(old, _)| *old == word)) {
            findings.push(Finding::new(&source.path, line, "replaced-name", format!("{old}: say {new}")));
        }
    }
    findings
}

fn unfinished(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, text) in source.lines() {
        if let Some(mark) = MARKS.iter().find(|mark| text.contains(*mark)) {
            let message = format!("{mark}: finish it, or write down in the documents that it is not there");
            findings.push(Finding::new(&source.path, line, "unfinished", message));
        }
    }
    for pair in tokens(&source.text).unwrap_or_default().windows(2) {
        if pair[1].text == "!" && MACROS.contains(&pair[0].text.as_str()) {
            let message = format!("{}!: finish it, or return an error that says so", pair[0].text);
            findings.push(Finding::new(&source.path, pair[0].line, "unfinished", message));
        }
    }
    findings
}

/// Whether `text` has `path` as the beginning of a path, not as the middle of a longer one.
fn has_path(text: &str, path: &str) -> bool {
    text.match_indices(path).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | '/' | '}'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<&'static str> {
        check(&Source::new(path, text)).into_iter().map(|f| f.rule).collect()
    }

    #[test]
    fn unfinished_work_is_found_in_products_only() {
        for text in ["fn f() { todo!() }", "fn f() { dbg!(1); }", "fn f() { unimplemented!() }"] {
            assert_eq!(found("crates/a/src/b.rs", text), ["unfinished"], "{text}");
            assert_eq!(found("crates/a/tests/b.rs", text), [""; 0], "{text}");
        }
        for mark in MARKS {
            assert_eq!(found("crates/a/src/b.rs", &format!("// {mark} later")), ["unfinished"]);
        }
        assert_eq!(found("crates/a/src/b.rs", "// a todo list in prose\nfn todo() {}"), [""; 0]);
    }

    #[test]
    fn a_replaced_name_is_found_except_in_records_of_their_time() {
        for (old, _) in REPLACED {
            let text = format!("// the_{old} of it");
            assert_eq!(found("crates/a/src/b.rs", &text), ["replaced-name"]);
            assert_eq!(found("docs/adr/0001-a.md", &text), [""; 0]);
            assert_eq!(found("a.md", &format!("{old}s")), [""; 0]);
        }
    }

    #[test]
    fn a_path_of_one_machine_is_found_and_a_part_of_a_url_is_not() {
        for path in PATHS {
            assert_eq!(found("a.md", &format!("see {path}x")), ["machine-path"]);
            assert_eq!(found("a.md", &format!("see https://example.org{path}x")), [""; 0]);
        }
    }

    #[test]
    fn what_git_leaves_of_a_conflict_is_found_in_any_file() {
        for mark in CONFLICTS {
            assert_eq!(found("a.md", &format!("a\n{mark}b")), ["conflict"]);
            assert_eq!(found("a.md", &format!("a {mark}b")), [""; 0]);
        }
    }

    #[test]
    fn a_registry_host_is_found_except_where_cargo_wrote_it() {
        for host in HOSTS {
            assert_eq!(found("a.md", &format!("from https://{host}/x")), ["registry-host"]);
            assert_eq!(found(LOCK_FILE, &format!("from https://{host}/x")), [""; 0]);
        }
    }
}
