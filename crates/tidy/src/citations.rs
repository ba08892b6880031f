//! The citations of `docs/rfc.md` exist: the files of its rows, the functions named beside them, the tests. So do the files
//! that other documents and comments name, and what `docs/bounds.md` and `docs/blind.md` name of the code.
//!
//! A table that says where an RFC's clause stands and which test holds it is worth something as long as it is true. Here
//! only existence is looked at: a path in backticks is a file or folder of the tree, a name in the columns "where" and
//! "test" is that of a function. Tests: below.

use std::collections::HashSet;

use crate::finding::Finding;
use crate::tree::{Source, Tree};

const RULE: &str = "citation";

/// Checks every row of the document's tables.
pub fn check(tree: &Tree, document: &str) -> Vec<Finding> {
    let paths: Vec<&str> = tree.files.iter().map(|source| source.path.as_str()).collect();
    let functions: HashSet<&str> = tree.rust().flat_map(|source| functions(&source.text)).collect();
    check_rows(document, tree.text(document), &paths, &functions)
}

/// Checks the files that documents and comments name in backticks. Decision records and the changelog name files of their
/// time.
pub fn check_paths(tree: &Tree) -> Vec<Finding> {
    let paths: Vec<&str> = tree.files.iter().map(|source| source.path.as_str()).collect();
    let is_dated = |path: &str| path.starts_with("docs/adr/0") || path == "CHANGELOG.md";
    let sources = tree.files.iter().filter(|source| source.is_rust() || source.path.ends_with(".md"));
    sources.filter(|source| !is_dated(&source.path)).flat_map(|source| missing(source, &paths)).collect()
}

/// Checks that what the document names in backticks as code does, in small letters and with an underscore, stands somewhere in the
/// code: a function, a field, a setting, a counter.
pub fn check_names(tree: &Tree, document: &str) -> Vec<Finding> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let words = tree.rust().flat_map(|source| source.text.split(move |c| !is_part(c)));
    unknown(document, tree.text(document), &words.filter(|word| word.contains('_')).collect())
}

fn unknown(document: &str, text: &str, words: &HashSet<&str>) -> Vec<Finding> {
    let named =
        text.lines().enumerate().flat_map(|(index, line)| quoted(line).map(move |name| (index + 1, name)));
    named
        .filter(|(_, name)| matches!(kind(name), Kind::Function) && !words.contains(name))
        .map(|(number, name)| Finding::new(document, number, RULE, format!("there is no {name}")))
        .collect()
}

fn missing(source: &Source, paths: &[&str]) -> Vec<Finding> {
    let prose = |line: &str| match (source.is_rust(), line.find("//")) {
        (true, at) => at.map(|at| line[at..].to_owned()),
        (false, _) => Some(line.to_owned()),
    };
    let mut found = Vec::new();
    for (number, text) in source.lines().filter_map(|(number, line)| Some((number, prose(line)?))) {
        let named =
            quoted(&text).filter(|name| name.ends_with(".rs") && !name.contains([' ', '<', '$', '=']));
        for name in named.flat_map(alternatives) {
            if !paths.iter().any(|path| *path == name || is_cited(path, &name)) {
                found.push(Finding::new(&source.path, number, RULE, format!("there is no file {name}")));
            }
        }
    }
    found
}

/// One name for each alternative in braces.
fn alternatives(name: &str) -> Vec<String> {
    let parts = name.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?)));
    match parts {
        None => vec![name.to_owned()],
        Some((before, (inside, after))) => inside
            .split(',')
            .flat_map(|part| alternatives(&format!("{before}{}{after}", part.trim())))
            .collect(),
    }
}

fn check_rows(document: &str, text: &str, paths: &[&str], functions: &HashSet<&str>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (number, row) in text.lines().enumerate().filter(|(_, line)| line.starts_with('|')) {
        // The first two columns and the last are prose; names there may be of anything.
        for cited in row.split('|').skip(3).take(2).flat_map(quoted) {
            let is_known = match kind(cited) {
                Kind::Path => paths.iter().any(|path| is_cited(path, cited)),
                Kind::Function => functions.contains(cited),
                Kind::Other => true,
            };
            if !is_known {
                found.push(Finding::new(document, number + 1, RULE, format!("there is no {cited}")));
            }
        }
    }
    found
}

enum Kind {
    Path,
    Function,
    Other,
}

fn kind(cited: &str) -> Kind {
    if cited.ends_with(".rs") || cited.ends_with('/') {
        Kind::Path
    } else if cited.contains('_')
        && cited.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    {
        Kind::Function
    } else {
        Kind::Other
    }
}

/// Whether a path of the tree is the one cited. Each section has its own base folder, so a citation is the end of a
/// path, or a folder on the way; the names of crates stand for their folders.
fn is_cited(path: &str, cited: &str) -> bool {
    let (folder, rest) = cited.split_once('/').unwrap_or(("", cited));
    let (within, rest) = match folder {
        "stack" | "sim" | "drivers" | "mbuf" | "sync" | "proto" => {
            (path.starts_with(&format!("crates/{folder}/")), rest)
        }
        _ => (true, cited),
    };
    let wanted = format!("/{rest}");
    within && if cited.ends_with('/') { path.contains(&wanted) } else { path.ends_with(&wanted) }
}

/// The text between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The names of the functions that a source declares.
fn functions(text: &str) -> impl Iterator<Item = &str> {
    text.split("fn ")
        .skip(1)
        .filter_map(|rest| rest.split(|c: char| !(c.is_alphanumeric() || c == '_')).next())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: &str = "| 1 | what `no_such_word` | `wire.rs` (`parse_options`), `cc/` | `stack/tests/a.rs`: `it_works` | `x_y` |";

    fn findings(paths: &[&str], functions: &[&str]) -> Vec<String> {
        let functions = functions.iter().copied().collect();
        check_rows("d.md", ROW, paths, &functions).iter().map(|found| format!("{found:?}")).collect()
    }

    #[test]
    fn citations_of_existing_code_pass_and_others_are_found() {
        let paths =
            ["crates/proto/src/tcp/wire.rs", "crates/proto/src/tcp/cc/mod.rs", "crates/stack/tests/a.rs"];
        assert_eq!(findings(&paths, &["parse_options", "it_works"]), [] as [String; 0]);
        assert_eq!(findings(&paths, &["it_works"]).len(), 1);
        assert_eq!(findings(&paths[1..], &["parse_options", "it_works"]).len(), 1);
        assert_eq!(findings(&[], &[]).len(), 5);
    }

    #[test]
    fn what_a_page_names_of_the_code_stands_in_it() {
        let text =
            "See `syn_cookies`, `Config::memory_max` and `SND.UNA`.\n| `gone_by_now` | `tcp_mem = 1` |";
        let found = unknown("d.md", text, &["syn_cookies"].into());
        assert_eq!(found.iter().map(|found| found.line).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn files_named_in_prose_must_exist_and_names_in_code_need_not() {
        let paths = ["crates/stack/src/tcp/mod.rs", "crates/sync/tests/a.rs", "crates/sync/tests/b.rs"];
        let count = |path: &str, text: &str| missing(&Source::new(path, text), &paths).len();
        assert_eq!(count("d.md", "see `tcp/mod.rs` and `crates/sync/tests/{a,b}.rs`, not `any thing.rs`"), 0);
        assert_eq!(count("d.md", "see `tcp/core.rs` and `crates/sync/tests/{a,c}.rs`"), 2);
        // In halves, so that this file does not find itself.
        let comment = ["f(); /", "/ as in `gone.rs`"].concat();
        assert_eq!((count("a.rs", "let x = \"`gone.rs`\";"), count("a.rs", &comment)), (0, 1));
    }

    #[test]
    fn functions_are_found_in_any_context() {
        let text = "pub(crate) fn one<T>() {}\n    const fn two(a: u8) {}\nfn three () {}";
        assert_eq!(functions(text).collect::<Vec<_>>(), ["one", "two", "three"]);
    }
}
