//! Sockeye's house rules, as checks that a test can run.
//!
//! | module | refuses |
//! |---|---|
//! | [`layers`] | a crate that depends on, or names, one that its row does not name |
//! | [`modules`] | a module of the stack that imports one that its row does not name |
//! | [`facades`] | a shared word that bypasses the facade, which counts hand-offs |
//! | [`unsafety`] | `unsafe` outside its crates, or without the reason it is sound |
//! | [`shape`] | files and functions that are too long, files without a head comment |
//! | [`words`] | unfinished work, paths of one machine, package registry hosts |
//! | [`citations`] | a file or test in `docs/rfc.md` that does not exist, or a file that other prose names |
//! | [`dependencies`] | a dependency without a stated reason |
//! | [`licences`] | a dependency under a licence that we cannot pass on |
//! | [`duplicates`] | a dependency in two versions |
//! | [`publish`] | a published package that a registry would refuse, or that includes a file which is not in it |
//!
//! Each check takes texts and returns [`Finding`]s; it does not depend on where the texts come from, so that its
//! unit tests can feed it bad samples. [`tree`], [`metadata`] and [`policy`] read the real ones. Invariant: a
//! finding names the file, the line, the rule and the remedy.
//!
//! Two modules refuse nothing and count instead, for the program `size`: [`code`] the lines that packages are built from,
//! [`path`] the functions that a run goes through.
//!
//! Tests: with each check, that it fails on a bad sample; `tests/house.rs` runs all of them on this
//! repository; `tests/checks` runs the tools that need a build of their own.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod citations;
pub mod code;
pub mod dependencies;
pub mod duplicates;
pub mod facades;
pub mod finding;
pub mod layers;
pub mod licences;
pub mod metadata;
pub mod modules;
pub mod path;
pub mod policy;
pub mod publish;
pub mod shape;
pub mod tokens;
pub mod tree;
pub mod unsafety;
pub mod words;

pub use finding::{Finding, report};
pub use tree::{Source, Tree};
