//! Checks that the published packages can be published: their fields for a registry, and their dependencies.
//!
//! All of ours are released together, with one version, and ask for each other by exactly that: the interfaces between them are
//! no promise. Whether they build from their packages takes a build (`.ci/publish package`); the usual obstacle, a file outside
//! of the package, is found here. Does not depend on how cargo packs. Tests: at the end, and `tests/house.rs`.

use std::path::{Component, Path, PathBuf};

use crate::finding::Finding;
use crate::metadata::{Card, Kind};
use crate::tree::Source;

/// Keywords that a registry takes.
const KEYWORDS_MAX: usize = 5;
/// Macros that read a file when they are compiled.
const INCLUDES: [&str; 3] = ["include", "include_str", "include_bytes"];

/// Checks the manifests.
pub fn check(cards: &[Card]) -> Vec<Finding> {
    let published = |name: &str| cards.iter().any(|card| card.name == name && card.is_published);
    let mut findings = Vec::new();
    for card in cards.iter().filter(|card| card.is_published) {
        let mut say = |message: String| findings.push(Finding::new(&card.manifest, 0, "publish", message));
        for (field, has) in [
            ("description", card.has_description),
            ("license", card.has_licence),
            ("rust-version", card.rust_version.is_some()),
            ("readme", card.has_readme),
            ("categories", card.category_count > 0),
            ("metadata.docs.rs", card.has_docs_settings),
        ] {
            if !has {
                say(format!("has no {field}: a published package has one, others say `publish = false`"));
            }
        }
        if !(1..=KEYWORDS_MAX).contains(&card.keyword_count) {
            say(format!("has {} keywords: give 1 to {KEYWORDS_MAX}", card.keyword_count));
        }
        for own in &card.own {
            let exact = format!("={}", card.version);
            // Cargo leaves a dependency of tests that has no version out of the package.
            if own.requirement == "*" && own.kind == Kind::Dev {
                continue;
            }
            if own.requirement != exact {
                say(format!("asks for {} {}: our packages ask for {exact}", own.name, own.requirement));
            }
            if !published(&own.name) {
                say(format!("depends on {}, which is not published", own.name));
            }
        }
    }
    findings
}

/// Checks that files that a published package's source includes are in the package. `is_there` says whether a path from the
/// repository's root exists, through symbolic links as well.
pub fn check_includes(source: &Source, cards: &[Card], is_there: impl Fn(&str) -> bool) -> Vec<Finding> {
    let folder = |card: &Card| card.manifest.trim_end_matches("Cargo.toml").to_owned();
    let is_in = |card: &&Card| card.is_published && source.path.starts_with(&folder(card));
    let Some(package) = cards.iter().find(is_in).map(folder) else { return Vec::new() };
    let mut findings = Vec::new();
    for (line, included) in INCLUDES.iter().flat_map(|name| included(&source.text, name)) {
        let path = beside(&source.path, included);
        if !path.starts_with(&package) || !is_there(&path) {
            let message = format!(
                "includes {included}, which is not in the package: put a symbolic link to it into {package}, which cargo packs \
                as a file"
            );
            findings.push(Finding::new(&source.path, line, "publish", message));
        }
    }
    findings
}

/// The paths that a macro reads, `include_str!("path")`, with their lines; not those in comments.
fn included<'t>(text: &'t str, name: &str) -> Vec<(usize, &'t str)> {
    let start = format!("{name}!(");
    let path = |(at, _): (usize, &str)| {
        let before = text[..at].rsplit('\n').next().unwrap_or("").trim_start();
        let path = text[at + start.len()..].trim_start().strip_prefix('"')?.split('"').next()?;
        (!before.starts_with("//")).then(|| (text[..at].lines().count(), path))
    };
    text.match_indices(&start).filter_map(path).collect()
}

/// `path` as seen from the file `from`, without `..`.
fn beside(from: &str, path: &str) -> String {
    let mut out = PathBuf::from(from);
    out.pop();
    for part in Path::new(path).components() {
        match part {
            Component::ParentDir => drop(out.pop()),
            Component::CurDir => {}
            Component::Normal(_) | Component::RootDir | Component::Prefix(_) => out.push(part),
        }
    }
    out.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::Own;

    fn card(name: &str) -> Card {
        Card {
            name: name.into(),
            manifest: format!("crates/{name}/Cargo.toml"),
            version: "0.1.0".into(),
            is_published: true,
            has_description: true,
            has_licence: true,
            has_readme: true,
            rust_version: Some("1.95".into()),
            keyword_count: 3,
            category_count: 1,
            has_docs_settings: true,
            own: Vec::new(),
        }
    }

    fn own(name: &str, kind: Kind, requirement: &str) -> Own {
        Own { name: name.into(), kind, requirement: requirement.into() }
    }

    #[test]
    fn missing_registry_fields_of_published_packages_are_found() {
        assert!(check(&[card("a")]).is_empty());
        let found = check(&[Card { has_readme: false, keyword_count: 6, ..card("a") }]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(check(&[Card { has_readme: false, is_published: false, ..card("a") }]).is_empty());
    }

    #[test]
    fn our_published_packages_require_one_another_at_exactly_their_version() {
        let of = |own| check(&[card("a"), Card { own: vec![own], ..card("b") }]);
        assert!(of(own("a", Kind::Normal, "=0.1.0")).is_empty());
        assert!(of(own("b", Kind::Dev, "*")).is_empty());
        assert_eq!(of(own("a", Kind::Normal, "^0.1.0")).len(), 1);
        assert_eq!(of(own("a", Kind::Normal, "*")).len(), 1);
        assert_eq!(of(own("private", Kind::Normal, "=0.1.0")).len(), 1);
    }

    #[test]
    fn a_file_outside_of_the_package_is_found() {
        let found = |text: &str| {
            let source = Source::new("crates/a/src/x/y.rs", text);
            check_includes(&source, &[card("a")], |path| path == "crates/a/README.md").len()
        };
        assert_eq!(found("const T: &str = include_str!(\"../../README.md\");"), 0);
        assert_eq!(found("const T: &str = include_str!(\"../../../../docs/a.md\");"), 1);
        assert_eq!(found("#![doc = include_str!(\"../none.md\")]"), 1);
        assert_eq!(found("// include_str!(\"../none.md\")"), 0);
    }
}
