//! The options of `socket2`, which `docs/reference/differences.md` has a row for each.
//!
//! They are the functions `set_…` in the source of `socket2` that the lock file names. A method that a row names has to be on the page of its
//! type that rustdoc makes, and also on that of the type in `sockeye::tokio`.

use std::collections::BTreeSet;
use std::path::Path;

use crate::child::{self, Child};
use crate::differences;

/// The table's heading.
const OPTIONS: &str = "## Options of `socket2`";
/// The lock file whose `socket2` is compared.
const MANIFEST: &str = "Cargo.toml";
/// Options that must be found in its source at least: fewer are a sign that it is not written as it was.
const OPTIONS_MIN: usize = 50;
/// Rows that stand for others, too.
const DCCP: &str = "set_dccp_";
/// Options that a socket of tokio's shape does not have: it never blocks.
const OF_BLOCKING: [&str; 3] = ["set_nonblocking", "set_read_timeout", "set_write_timeout"];
/// Types that are on both sides.
const ON_BOTH_SIDES: [&str; 4] = ["TcpStream", "UdpSocket", "UnixStream", "UnixDatagram"];

#[test]
fn each_option_of_socket2_has_its_row_and_the_methods_of_the_rows_are_there() {
    let Some(source) = differences::source_of("socket2", MANIFEST) else { return };
    let child = Child::cargo("doc").args(["-p", "sockeye", "--features", "tokio", "--no-deps"]);
    if child.output("shapes").is_none() {
        return;
    }
    let mut options: BTreeSet<String> = BTreeSet::new();
    for file in ["src/socket.rs", "src/sys/unix.rs"] {
        let text = std::fs::read_to_string(source.join(file)).expect("a readable file of socket2's");
        options.extend(setters(&text).map(str::to_owned));
    }
    assert!(options.len() > OPTIONS_MIN, "only {} options found in {}", options.len(), source.display());
    let rows: BTreeSet<String> = differences::table(OPTIONS).into_iter().collect();
    let without: Vec<_> = options.difference(&rows).filter(|name| !name.starts_with(DCCP)).collect();
    assert!(without.is_empty(), "options of socket2 without a row: {without:?}");
    let stale: Vec<_> = rows.difference(&options).collect();
    assert!(stale.is_empty(), "rows of {OPTIONS:?} that name no option: {stale:?}");

    let pages = child::checks_folder().join("shapes/doc/sockeye");
    let named = named(&differences::section(OPTIONS));
    assert!(named.len() > OPTIONS_MIN, "only {} methods are named", named.len());
    let missing: Vec<_> = named.iter().filter(|(path, method)| !is_there(&pages, path, method)).collect();
    assert!(missing.is_empty(), "methods that are not there: {missing:?}");
}

/// The functions `set_…` of a source.
fn setters(text: &str) -> impl Iterator<Item = &str> {
    let functions = text.lines().filter_map(|line| line.trim_start().strip_prefix("pub fn "));
    functions.filter(|rest| rest.starts_with("set_")).filter_map(|rest| rest.split(['(', '<']).next())
}

/// The methods between backquotes, as `Type::method`; fields of `Config` are none.
fn named(section: &str) -> Vec<(String, String)> {
    let spans = section.split('`').skip(1).step_by(2).filter_map(|span| span.rsplit_once("::"));
    let methods = spans.filter(|(path, _)| *path != "Config" && *path != "socket2" && *path != "sockeye");
    methods.map(|(path, method)| (path.to_owned(), method.to_owned())).collect()
}

/// Whether the type has the method, on both sides where it should.
fn is_there(pages: &Path, path: &str, method: &str) -> bool {
    let name = path.rsplit("::").next().unwrap_or(path);
    let folder = path.rsplit_once("::").map_or(pages.to_path_buf(), |(module, _)| pages.join(module));
    let of_tokio = pages.join("tokio").join(path.rsplit_once("::").map_or("", |(module, _)| module));
    let has = |folder: &Path| {
        let page = std::fs::read_to_string(folder.join(format!("struct.{name}.html"))).unwrap_or_default();
        page.contains(&format!("id=\"method.{method}\""))
    };
    let is_on_both = ON_BOTH_SIDES.contains(&name) && !OF_BLOCKING.contains(&method);
    has(&folder) && (!is_on_both || has(&of_tokio))
}

#[test]
fn setters_and_methods_are_found() {
    let source =
        "    pub fn set_a(&self) {}\n    pub fn b() {}\n    pub fn set_c<T>(&self) {}\n    fn set_d() {}\n";
    assert_eq!(setters(source).collect::<Vec<_>>(), ["set_a", "set_c"]);
    let row = "| `set_a` | `TcpStream::set_b`, `unix::UnixStream::c`, by `Config::d` |";
    let found = [("TcpStream", "set_b"), ("unix::UnixStream", "c")];
    assert_eq!(named(row), found.map(|(path, method)| (path.to_owned(), method.to_owned())));
}
