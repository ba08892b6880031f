//! How many lines of code a package is built from.
//!
//! A line counts if a token stands on it: no blank lines, comments or documentation. Code of tests and models does not count: items under
//! `#[cfg(test)]` and `cfg(loom)`, with the files of such modules. Features are taken to be on, but for those that the caller names.
//! The files are those that the crate's roots lead to by `mod`, so that files in a folder that are not built do not count either.
//!
//! Does not depend on the purpose of packages. Invariant: a line counts once. Tests: at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fs, io};

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// Lines of code by file, of everything that the crate root `root` leads to in a build without the features `off`.
///
/// # Errors
/// A file cannot be read, a module's file is not there, or a file is not Rust.
pub fn count(root: &Path, off: &[&str]) -> io::Result<BTreeMap<PathBuf, usize>> {
    let mut found = BTreeMap::new();
    let folder = root.parent().unwrap_or(Path::new("")).to_owned();
    file(root, &folder, off, &mut found)?;
    Ok(found)
}

/// Counts a file, and the files of the modules that it declares: those are in `folder`.
fn file(path: &Path, folder: &Path, off: &[&str], found: &mut BTreeMap<PathBuf, usize>) -> io::Result<()> {
    let because = |why: String| io::Error::other(format!("{}: {why}", path.display()));
    let text = fs::read_to_string(path).map_err(|error| because(error.to_string()))?;
    let stream: TokenStream = text.parse().map_err(|error| because(format!("{error}")))?;
    let mut seen = Seen::without(off);
    seen.look(stream, folder);
    found.insert(path.to_owned(), seen.lines.len());
    let here = path.parent().unwrap_or(Path::new(""));
    for (module, given) in seen.modules {
        if let Some(given) = given {
            let named = here.join(given);
            file(&named, named.parent().unwrap_or(here), off, found)?;
            continue;
        }
        let (beside, below) = (module.with_extension("rs"), module.join("mod.rs"));
        let named = if beside.is_file() { beside } else { below };
        file(&named, &module, off, found)?;
    }
    Ok(())
}

/// State of reading a file.
struct Seen<'a> {
    /// Features that the build does not have.
    off: &'a [&'a str],
    /// Those with code on them.
    lines: BTreeSet<usize>,
    /// Modules with a file of their own: the beginning of its path, and the path that an attribute gives.
    modules: Vec<(PathBuf, Option<String>)>,
    /// The value of the last attribute `path`, until its module comes.
    given: Option<String>,
}

impl<'a> Seen<'a> {
    fn without(off: &'a [&'a str]) -> Self {
        Self { off, lines: BTreeSet::new(), modules: Vec::new(), given: None }
    }

    /// Looks at the tokens between two brackets, or in the whole file. `folder` is that of the modules declared there.
    fn look(&mut self, stream: TokenStream, folder: &Path) {
        let trees: Vec<TokenTree> = stream.into_iter().collect();
        let mut at = 0;
        while at < trees.len() {
            at = match attribute(&trees[at..]) {
                Some((_, content)) if is_documentation(content) => after_attribute(&trees, at),
                Some((true, content)) if !is_built(content, self.off) => {
                    // The attribute of an item that is not built, and the item.
                    let item = after_attribute(&trees, at);
                    after_item(&trees, item)
                }
                Some((_, content)) if path_given(content).is_some() => {
                    self.given = path_given(content);
                    self.token(&trees, at, folder);
                    at + 1
                }
                Some(_) | None => {
                    self.token(&trees, at, folder);
                    at + 1
                }
            };
        }
    }

    fn token(&mut self, trees: &[TokenTree], at: usize, folder: &Path) {
        let span = trees[at].span();
        match &trees[at] {
            TokenTree::Group(group) => {
                if group.delimiter() != Delimiter::None {
                    self.lines.insert(group.span_open().start().line);
                    self.lines.insert(group.span_close().start().line);
                }
                let inner = match (group.delimiter(), module_named(&trees[..at])) {
                    (Delimiter::Brace, Some(name)) => folder.join(name),
                    _ => folder.to_owned(),
                };
                self.look(group.stream(), &inner);
            }
            TokenTree::Punct(punct) => {
                self.lines.insert(span.start().line);
                if let (';', Some(name)) = (punct.as_char(), module_named(&trees[..at])) {
                    let given = self.given.take();
                    self.modules.push((folder.join(name), given));
                }
            }
            TokenTree::Ident(_) | TokenTree::Literal(_) => {
                self.lines.extend(span.start().line..=span.end().line);
            }
        }
    }
}

/// The name, if `before` ends in `mod NAME`.
fn module_named(before: &[TokenTree]) -> Option<String> {
    let [.., TokenTree::Ident(keyword), TokenTree::Ident(name)] = before else { return None };
    (keyword == "mod").then(|| name.to_string())
}

/// If an attribute begins here: whether it is an outer one, and the tokens in its brackets.
fn attribute(trees: &[TokenTree]) -> Option<(bool, &Group)> {
    let (is_outer, bracket) = match trees {
        [TokenTree::Punct(hash), TokenTree::Group(group), ..] if hash.as_char() == '#' => (true, group),
        [TokenTree::Punct(hash), TokenTree::Punct(bang), TokenTree::Group(group), ..]
            if hash.as_char() == '#' && bang.as_char() == '!' =>
        {
            (false, group)
        }
        _ => return None,
    };
    (bracket.delimiter() == Delimiter::Bracket).then_some((is_outer, bracket))
}

fn after_attribute(trees: &[TokenTree], at: usize) -> usize {
    let is_inner = matches!(&trees[at + 1], TokenTree::Punct(_));
    at + 2 + usize::from(is_inner)
}

/// Behind the item, statement or field that begins at `at`.
fn after_item(trees: &[TokenTree], mut at: usize) -> usize {
    let begin = at;
    while at < trees.len() {
        let is_field =
            matches!(trees.get(begin + 1), Some(TokenTree::Punct(colon)) if colon.as_char() == ':');
        match &trees[at] {
            TokenTree::Punct(end) if end.as_char() == ';' => return at + 1,
            TokenTree::Punct(end) if end.as_char() == ',' && is_field => return at + 1,
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                let ends = matches!(trees.get(at + 1), Some(TokenTree::Punct(end)) if matches!(end.as_char(), ';' | ','));
                return at + 1 + usize::from(ends);
            }
            _ => at += 1,
        }
    }
    at
}

/// `doc = "…"`, as which the compiler also sees a documentation comment.
fn is_documentation(attribute: &Group) -> bool {
    let mut trees = attribute.stream().into_iter();
    let is_doc = matches!(trees.next(), Some(TokenTree::Ident(name)) if name == "doc");
    is_doc && matches!(trees.next(), Some(TokenTree::Punct(equals)) if equals.as_char() == '=')
}

/// The path in `path = "…"`.
fn path_given(attribute: &Group) -> Option<String> {
    let trees: Vec<TokenTree> = attribute.stream().into_iter().collect();
    let [TokenTree::Ident(name), TokenTree::Punct(_), TokenTree::Literal(path)] = trees.as_slice() else {
        return None;
    };
    (name == "path").then(|| path.to_string().trim_matches('"').to_owned())
}

/// Whether a product has the item behind this attribute.
fn is_built(attribute: &Group, off: &[&str]) -> bool {
    let trees: Vec<TokenTree> = attribute.stream().into_iter().collect();
    match trees.as_slice() {
        [TokenTree::Ident(test)] if test == "test" => false,
        [TokenTree::Ident(cfg), TokenTree::Group(predicate)] if cfg == "cfg" => {
            holds(predicate.stream(), off)
        }
        _ => true,
    }
}

/// A predicate of `cfg`: `test`, `loom` and the features `off` do not hold, every other one is taken to.
fn holds(predicate: TokenStream, off: &[&str]) -> bool {
    let trees: Vec<TokenTree> = predicate.into_iter().collect();
    let Some(TokenTree::Ident(name)) = trees.first() else { return true };
    let parts = |group: &Group| {
        let trees: Vec<TokenTree> = group.stream().into_iter().collect();
        let is_comma = |tree: &TokenTree| matches!(tree, TokenTree::Punct(punct) if punct.as_char() == ',');
        trees
            .split(is_comma)
            .filter(|part| !part.is_empty())
            .map(|part| holds(part.iter().cloned().collect(), off))
            .collect::<Vec<bool>>()
    };
    match (name.to_string().as_str(), trees.get(1)) {
        ("all", Some(TokenTree::Group(group))) => parts(group).into_iter().all(|part| part),
        ("any", Some(TokenTree::Group(group))) => parts(group).into_iter().any(|part| part),
        ("not", Some(TokenTree::Group(group))) => !parts(group).into_iter().all(|part| part),
        ("test" | "loom", None) => false,
        ("feature", Some(TokenTree::Punct(_))) => {
            let name = trees.get(2).map(ToString::to_string).unwrap_or_default();
            !off.contains(&name.trim_matches('"'))
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> (Vec<usize>, Vec<(PathBuf, Option<String>)>) {
        let mut seen = Seen::without(&["off"]);
        seen.look(text.parse().unwrap(), Path::new("a"));
        (seen.lines.into_iter().collect(), seen.modules)
    }

    #[test]
    fn blank_lines_comments_and_documentation_do_not_count() {
        let text = "//! Head.\n\n/// What it is.\nfn f() {\n    // Why.\n    g(\"a\n b\");\n}\n#[doc(hidden)]\nmod m {\n    //! Inner.\n}\n";
        assert_eq!(lines(text).0, [4, 6, 7, 8, 9, 10, 12]);
    }

    #[test]
    fn code_of_tests_and_models_only_does_not_count() {
        for gone in [
            "#[cfg(test)]\nmod tests {\n    fn f() {}\n}",
            "#[cfg(all(test, not(loom)))]\nmod tests;",
            "#[cfg(loom)]\nuse a::{b, c};",
            "#[test]\nfn works() -> [u8; 2] {\n}",
            "#[cfg(test)]\n#[derive(Debug)]\nstruct A(u8);",
            "#[cfg(feature = \"off\")]\nmod instruments;",
            "#[cfg(all(feature = \"on\", feature = \"off\"))]\nfn f() {}",
        ] {
            let (found, modules) = lines(&format!("{gone}\nfn rest() {{}}"));
            assert_eq!((found.len(), modules.len()), (1, 0), "{gone}: {found:?}");
        }
        for kept in [
            "#[cfg(not(test))] fn f() {}",
            "#[cfg(any(test, feature = \"x\"))] fn f() {}",
            "#[cfg(not(feature = \"off\"))] fn f() {}",
            "#[inline] fn f() {}",
        ] {
            assert_eq!(lines(kept).0, [1], "{kept}");
        }
        let field = "struct A {\n    #[cfg(test)]\n    a: u8,\n    b: u8,\n}";
        assert_eq!(lines(field).0, [1, 4, 5]);
    }

    #[test]
    fn modules_with_files_of_their_own_are_found_below_the_module_that_names_them() {
        let (_, modules) = lines(
            "mod b;\npub mod c {\n    mod d;\n}\n#[cfg(test)]\nmod gone;\n#[path = \"x/mod.rs\"]\nmod e;",
        );
        let names: Vec<&Path> = modules.iter().map(|(name, _)| name.as_path()).collect();
        assert_eq!(names, [Path::new("a/b"), Path::new("a/c/d"), Path::new("a/e")]);
        assert_eq!(modules[2].1.as_deref(), Some("x/mod.rs"));
    }

    #[test]
    fn this_file_is_part_of_this_package() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let found = count(&root.join("lib.rs"), &[]).unwrap();
        assert!(found[&root.join("code.rs")] > 50);
    }
}
