//! The repository's files, read once.
//!
//! Does not depend on any rule. The files read are those that a commit would hold: everything but build
//! output and git's own folder. Invariant: paths are relative to the root and have forward slashes. Tests: at
//! the end.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// One text file.
#[derive(Clone, Debug)]
pub struct Source {
    /// From the repository's root.
    pub path: String,
    /// The whole text.
    pub text: String,
}

impl Source {
    /// A file of a given text.
    pub fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }

    /// Whether this is Rust.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whether this is a source of the product, not of tests, examples or benches.
    pub fn is_product(&self) -> bool {
        self.is_rust() && self.path.contains("/src/")
    }

    /// Lines with their numbers, from 1.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }
}

/// All text files of the repository.
#[derive(Debug)]
pub struct Tree {
    /// The root folder.
    pub root: PathBuf,
    /// In the order of their paths.
    pub files: Vec<Source>,
}

/// Folders that are no part of a commit; `target` also as the beginning of a name.
const OUTSIDE: [&str; 2] = [".git", "target"];
/// Deepest nesting of folders that is followed.
const DEPTH_MAX: usize = 16;

impl Tree {
    /// Reads the repository that this crate is part of.
    ///
    /// # Errors
    /// The system's, if a folder or file cannot be read.
    pub fn of_this_repository() -> io::Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
        let mut files = Vec::new();
        collect(&root, &root, 0, &mut files)?;
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Self { root, files })
    }

    /// The text of a file, empty if there is none.
    pub fn text(&self, path: &str) -> &str {
        self.files.iter().find(|file| file.path == path).map_or("", |file| &file.text)
    }

    /// The Rust files.
    pub fn rust(&self) -> impl Iterator<Item = &Source> {
        self.files.iter().filter(|file| file.is_rust())
    }
}

fn collect(root: &Path, folder: &Path, depth: usize, files: &mut Vec<Source>) -> io::Result<()> {
    if depth > DEPTH_MAX {
        return Err(io::Error::other(format!("{} is nested too deeply", folder.display())));
    }
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let (path, kind) = (entry.path(), entry.file_type()?);
        let name = entry.file_name().to_string_lossy().into_owned();
        if kind.is_dir() {
            if !OUTSIDE.iter().any(|outside| name.starts_with(outside) && !name.starts_with(".gith")) {
                collect(root, &path, depth + 1, files)?;
            }
        // In a linked work tree `.git` is a file that names the folder of the repository.
        } else if kind.is_file() && name != ".git" {
            // A file that is not text has no lines to check. A file may vanish while others work in the tree.
            if let Ok(text) = fs::read_to_string(&path) {
                let relative = path.strip_prefix(root).map_err(io::Error::other)?;
                files.push(Source { path: relative.to_string_lossy().replace('\\', "/"), text });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_file_is_in_the_tree_and_build_output_is_not() {
        let tree = Tree::of_this_repository().unwrap();
        assert!(tree.text("crates/tidy/src/tree.rs").contains("this_file_is_in_the_tree"));
        assert!(tree.files.iter().all(|f| !f.path.starts_with("target") && !f.path.starts_with(".git/")));
    }
}
