//! The layers: which crate may know which, and where `unsafe` may stand.
//!
//! [`LAYERS`] is the one table; `ARCHITECTURE.md` shows it, and a test holds the two together. Does not
//! depend on how manifests are read. Invariant: a crate's row names only crates of rows above it. Tests: at
//! the end, and `tests/house.rs`.

use crate::finding::Finding;
use crate::metadata::{Dependency, Kind, Package};
use crate::tokens::tokens;
use crate::tree::Source;

/// One crate's place in the layers.
#[derive(Debug)]
pub struct Layer {
    /// The package's name.
    pub package: &'static str,
    /// Its folder.
    pub folder: &'static str,
    /// The packages of ours that it may know.
    pub may_use: &'static [&'static str],
    /// Whether `unsafe` may stand in it.
    pub may_be_unsafe: bool,
    /// Whether it computes only: no threads, locks, clock, randomness or sockets.
    pub is_pure: bool,
}

const PROTO: &str = "sockeye-proto";
const SYNC: &str = "sockeye-sync";
const MBUF: &str = "sockeye-mbuf";
const NETIF: &str = "sockeye-netif";
const STACK: &str = "sockeye";
const DRIVERS: &str = "sockeye-drivers";
const DIAG: &str = "sockeye-diag";
const ENTROPY: &str = "sockeye-entropy";
const SIM_MACROS: &str = "sockeye-sim-macros";
const SIM: &str = "sockeye-sim";
const POSIX: &str = "sockeye-posix";
const SHARED: &str = "sockeye-shared";
const GATEWAY: &str = "sockeye-gateway";
const PACKETDRILL: &str = "sockeye-packetdrill";

/// All crates, from the bottom up. Those that are not built yet have their place too.
pub const LAYERS: [Layer; 20] = [
    layer(PROTO, "crates/proto", &[], false, true),
    layer(SYNC, "crates/sync", &[], true, false),
    layer(MBUF, "crates/mbuf", &[SYNC], true, false),
    layer(NETIF, "crates/netif", &[SYNC, MBUF], false, false),
    layer(STACK, "crates/stack", &[PROTO, SYNC, MBUF, NETIF], false, false),
    layer(DRIVERS, "crates/drivers", &[SYNC, MBUF, NETIF], true, false),
    layer(DIAG, "crates/diag", &[STACK], false, false),
    layer(ENTROPY, "crates/entropy", &[], true, false),
    layer(SIM_MACROS, "crates/sim-macros", &[], false, false),
    layer(SIM, "crates/sim", &[PROTO, MBUF, STACK, ENTROPY, SIM_MACROS], false, false),
    layer("sockeye-conform", "crates/conform", &[STACK, DRIVERS], true, false),
    layer(POSIX, "crates/posix", &[SYNC, STACK, DRIVERS], true, false),
    layer(SHARED, "apps/shared", &[], false, false),
    layer("sockeye-bench", "apps/bench", &[STACK, DRIVERS, SHARED], false, false),
    layer(GATEWAY, "apps/gateway", &[PROTO, SYNC, MBUF, STACK, DRIVERS, SHARED], false, false),
    layer("sockeye-cli", "apps/cli", &[STACK, DRIVERS, DIAG, SIM, POSIX, SHARED, GATEWAY], false, false),
    layer(PACKETDRILL, "apps/packetdrill", &[STACK], true, false),
    layer("sockeye-packetdrill-plugin", "apps/packetdrill-plugin", &[PACKETDRILL], true, false),
    layer("sockeye-fuzz-targets", "fuzz/lib", &[PROTO, MBUF, STACK], false, false),
    layer("sockeye-tidy", "crates/tidy", &[], false, false),
];

const fn layer(
    package: &'static str,
    folder: &'static str,
    may_use: &'static [&'static str],
    may_be_unsafe: bool,
    is_pure: bool,
) -> Layer {
    Layer { package, folder, may_use, may_be_unsafe, is_pure }
}

/// Names that a pure crate has no use for: each is a thread, a lock, a clock, chance or a socket.
const IMPURE: [&str; 12] = [
    "Mutex",
    "RwLock",
    "Condvar",
    "OnceLock",
    "thread",
    "thread_local",
    "SystemTime",
    "getrandom",
    "rand",
    "TcpStream",
    "UdpSocket",
    "parking_lot",
];
/// Beginnings of such names.
const IMPURE_PREFIX: &str = "Atomic";

/// The row of a package.
pub fn of_package(name: &str) -> Option<&'static Layer> {
    LAYERS.iter().find(|layer| layer.package == name)
}

/// The row of the crate that a file belongs to.
pub fn of_file(path: &str) -> Option<&'static Layer> {
    LAYERS.iter().find(|layer| path.strip_prefix(layer.folder).is_some_and(|rest| rest.starts_with('/')))
}

/// Checks the manifests of our packages. Each crate chooses the dependencies of its tests.
pub fn check_manifests(packages: &[Package]) -> Vec<Finding> {
    let ours = |d: &&Dependency| packages.iter().any(|p| p.name == d.name) && d.kind != Kind::Dev;
    let mut findings = Vec::new();
    for package in packages {
        let Some(layer) = of_package(&package.name) else {
            let message = format!(
                "{} has no row in the layer table: add one to LAYERS in \
                crates/tidy/src/layers.rs and to ARCHITECTURE.md, and say why in docs/adr",
                package.name
            );
            findings.push(Finding::new(&package.manifest, 0, "layers", message));
            continue;
        };
        for dependency in package.dependencies.iter().filter(ours) {
            if !layer.may_use.contains(&dependency.name.as_str()) {
                let message = against(layer, &dependency.name);
                findings.push(Finding::new(&package.manifest, dependency.line, "layers", message));
            }
        }
    }
    findings
}

/// Checks the names that product code mentions.
pub fn check_source(source: &Source) -> Vec<Finding> {
    let (Some(layer), true) = (of_file(&source.path), source.is_product()) else {
        return Vec::new();
    };
    let Some(tokens) = tokens(&source.text) else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        let name = token.text.replace('_', "-");
        // `sockeye` is also a word that a variable may have; a path is recognized by the next token.
        let is_path = tokens.get(index + 1).is_some_and(|next| next.text == ":")
            && tokens.get(index + 2).is_some_and(|next| next.text == ":");
        let is_inner = index > 0 && tokens[index - 1].text == ":";
        let names_crate = name != STACK || (is_path && !is_inner);
        let is_other = names_crate && name != layer.package && of_package(&name).is_some();
        if is_other && !layer.may_use.contains(&name.as_str()) {
            findings.push(Finding::new(&source.path, token.line, "layers", against(layer, &name)));
        }
        let is_impure = IMPURE.contains(&token.text.as_str()) || token.text.starts_with(IMPURE_PREFIX);
        if layer.is_pure && is_impure {
            let message = format!(
                "{} is pure and must not use `{}`: take time, randomness and \
                whatever is shared as an argument",
                layer.package, token.text
            );
            findings.push(Finding::new(&source.path, token.line, "pure", message));
        }
    }
    findings
}

fn against(layer: &Layer, name: &str) -> String {
    let may = if layer.may_use.is_empty() { NOTHING.to_owned() } else { layer.may_use.join(", ") };
    format!(
        "{} must not use {name}; it may use {may}: move the code to a layer that may use both, or \
        change the layer table with an ADR",
        layer.package
    )
}

/// How the table says that a crate stands on no other.
const NOTHING: &str = "nothing of ours";

/// The table as `ARCHITECTURE.md` has it; `exists` says which packages are there already.
pub fn markdown(exists: impl Fn(&str) -> bool) -> String {
    let mut out = String::from("| crate | folder | may use | `unsafe` |\n|---|---|---|---|\n");
    for layer in &LAYERS {
        let names: Vec<String> = layer.may_use.iter().map(|name| format!("`{name}`")).collect();
        let may = if names.is_empty() { NOTHING.to_owned() } else { names.join(", ") };
        let unsafety = if layer.may_be_unsafe { "may stand here" } else { "forbidden" };
        let yet = if exists(layer.package) { "" } else { " (not yet)" };
        out += &format!("| `{}`{yet} | `{}` | {may} | {unsafety} |\n", layer.package, layer.folder);
    }
    out
}

/// Checks that a document shows the table as it is.
pub fn check_document(path: &str, text: &str, exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    let table = markdown(exists);
    if text.contains(&table) {
        return Vec::new();
    }
    let message = format!("does not show the layer table as it is; it should have:\n{table}");
    vec![Finding::new(path, 0, "layers", message)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, on: &str, kind: Kind) -> Package {
        let dependency = Dependency { name: on.into(), kind, line: 9 };
        Package { name: name.into(), manifest: "Cargo.toml".into(), dependencies: vec![dependency] }
    }

    #[test]
    fn a_row_depends_only_on_rows_above_it() {
        for (index, layer) in LAYERS.iter().enumerate() {
            let above: Vec<_> = LAYERS[..index].iter().map(|l| l.package).collect();
            assert!(layer.may_use.iter().all(|name| above.contains(name)), "{layer:?}");
        }
    }

    #[test]
    fn an_upward_dependency_is_found_except_in_tests() {
        let stack = package(STACK, PROTO, Kind::Normal);
        let found = check_manifests(&[package(PROTO, STACK, Kind::Normal), stack]);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].line, found[0].rule), (9, "layers"));
        let stack = package(STACK, PROTO, Kind::Normal);
        assert!(check_manifests(&[package(PROTO, STACK, Kind::Dev), stack]).is_empty());
    }

    #[test]
    fn a_crate_without_a_row_is_found() {
        assert_eq!(check_manifests(&[package("sockeye-new", "serde", Kind::Normal)]).len(), 1);
    }

    #[test]
    fn a_name_from_above_is_found_in_code_and_not_in_prose() {
        let found = |path, text| check_source(&Source::new(path, text)).len();
        assert_eq!(found("crates/sync/src/a.rs", "use sockeye_mbuf::Pool;"), 1);
        assert_eq!(found("crates/mbuf/src/a.rs", "fn f() { m!(sockeye::Stack::new()) }"), 1);
        assert_eq!(found("crates/sync/src/a.rs", "// sockeye_mbuf::Pool\nfn f() {}"), 0);
        assert_eq!(found("crates/sync/tests/a.rs", "use sockeye_mbuf::Pool;"), 0);
        assert_eq!(found("crates/stack/src/a.rs", "use sockeye_sync::Mutex;"), 0);
        assert_eq!(found("apps/bench/src/a.rs", "use sockeye_sync::Mutex; use sockeye::Stack;"), 1);
        assert_eq!(found("apps/bench/src/a.rs", "use super::sockeye::Sockeye;"), 0);
    }

    #[test]
    fn a_pure_crate_may_not_share_state_or_read_a_clock() {
        let found = |text| check_source(&Source::new("crates/proto/src/a.rs", text)).len();
        assert_eq!(found("use std::sync::atomic::AtomicU32;"), 1);
        assert_eq!(found("fn f() { std::thread::sleep(d); }"), 1);
        assert_eq!(found("use core::time::Duration;"), 0);
    }

    #[test]
    fn a_document_with_another_table_is_found() {
        let right = format!("# Layers\n\n{}\nmore", markdown(|_| true));
        assert!(check_document("A.md", &right, |_| true).is_empty());
        assert_eq!(check_document("A.md", &right.replace("crates/mbuf", "mbuf"), |_| true).len(), 1);
        assert_eq!(check_document("A.md", &right, |name| name != SIM).len(), 1);
    }
}
