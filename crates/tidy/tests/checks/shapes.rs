//! The methods of `std`'s and tokio's sockets, which ours have to have.
//!
//! Ours are read from the pages that rustdoc makes, where macros have been expanded; a method stands there as `id="method.NAME"` before the
//! implementations of traits. tokio's are read from its source in cargo's registry; those of `std`, whose source is not always installed,
//! are in [`STD`]. A missing method has a row in `docs/reference/differences.md`, and a row whose method is there is a failure.
//!
//! Does not depend on signatures: tokio's own tests (`tokio_suite.rs`) call them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::child::{self, Child};
use crate::differences;

/// The table's heading.
const MISSING: &str = "## Methods that are not here";
/// The lock file's tokio is the one to compare with.
const MANIFEST: &str = "Cargo.toml";
/// Methods of tokio's that must be found in its source at least: fewer are a sign that it is not written as it was.
const METHODS_MIN: usize = 250;

/// tokio's files of sockets, and the path below `tokio::net` of the types in each.
const FILES: [(&str, &str); 14] = [
    ("tcp/listener.rs", ""),
    ("tcp/socket.rs", ""),
    ("tcp/split.rs", "tcp::"),
    ("tcp/split_owned.rs", "tcp::"),
    ("tcp/stream.rs", ""),
    ("udp.rs", ""),
    ("unix/datagram/socket.rs", ""),
    ("unix/listener.rs", ""),
    ("unix/socket.rs", ""),
    ("unix/socketaddr.rs", "unix::"),
    ("unix/split.rs", "unix::"),
    ("unix/split_owned.rs", "unix::"),
    ("unix/stream.rs", ""),
    ("unix/ucred.rs", "unix::"),
];
/// The others: they have no methods of types, or the module has a row.
const OTHER_FILES: [&str; 8] = [
    "addr.rs",
    "lookup_host.rs",
    "mod.rs",
    "tcp/mod.rs",
    "unix/datagram/mod.rs",
    "unix/mod.rs",
    "unix/pipe.rs",
    "windows",
];

/// The stable methods of `std`'s sockets, those of Linux' extension traits among them.
const STD: [(&str, &str); 7] = [
    (
        "std::net::TcpStream",
        "connect connect_timeout peer_addr local_addr shutdown try_clone set_read_timeout set_write_timeout read_timeout \
         write_timeout peek set_nodelay nodelay set_ttl ttl take_error set_nonblocking set_quickack quickack",
    ),
    (
        "std::net::TcpListener",
        "bind local_addr try_clone accept incoming set_ttl ttl set_only_v6 only_v6 take_error set_nonblocking",
    ),
    (
        "std::net::UdpSocket",
        "bind recv_from peek_from send_to peer_addr local_addr try_clone set_read_timeout set_write_timeout read_timeout \
         write_timeout set_broadcast broadcast set_multicast_loop_v4 multicast_loop_v4 set_multicast_ttl_v4 multicast_ttl_v4 \
         set_multicast_loop_v6 multicast_loop_v6 set_ttl ttl join_multicast_v4 join_multicast_v6 leave_multicast_v4 \
         leave_multicast_v6 take_error connect send recv peek set_nonblocking",
    ),
    (
        "std::os::unix::net::UnixStream",
        "connect connect_addr pair try_clone local_addr peer_addr set_read_timeout set_write_timeout read_timeout write_timeout \
         set_nonblocking take_error shutdown",
    ),
    (
        "std::os::unix::net::UnixListener",
        "bind bind_addr accept try_clone local_addr set_nonblocking take_error incoming",
    ),
    (
        "std::os::unix::net::UnixDatagram",
        "bind bind_addr unbound pair connect connect_addr try_clone local_addr peer_addr recv_from recv send_to send_to_addr send \
         set_read_timeout set_write_timeout read_timeout write_timeout set_nonblocking take_error shutdown",
    ),
    (
        "std::os::unix::net::SocketAddr",
        "from_pathname is_unnamed as_pathname from_abstract_name as_abstract_name",
    ),
];

#[test]
fn our_sockets_have_the_methods_of_std_and_tokio() {
    let Some(tokio) = differences::tokio(MANIFEST) else { return };
    let child = Child::cargo("doc").args(["-p", "sockeye", "--features", "tokio", "--no-deps"]);
    if child.output("shapes").is_none() {
        return;
    }
    let pages = child::checks_folder().join("shapes/doc/sockeye");
    let mut rows: BTreeSet<String> = differences::table(MISSING).into_iter().collect();
    let mut missing = Vec::new();
    let mut wanted = of_tokio(&tokio.join("src/net"), &rows);
    assert!(wanted.len() > METHODS_MIN, "only {} methods found in {}", wanted.len(), tokio.display());
    let signals = std::fs::read_to_string(tokio.join("src/signal/unix.rs")).expect("tokio's signals");
    let of_signal = methods(&signals).into_iter().filter(|(r#type, _)| r#type == "Signal");
    wanted.extend(
        of_signal.map(|(r#type, name)| (format!("tokio::signal::unix::{type}", type = r#type), name)),
    );
    wanted.extend(STD.iter().flat_map(|(path, names)| {
        names.split_whitespace().map(|name| (path.to_string(), name.to_owned())).collect::<Vec<_>>()
    }));
    for (path, method) in wanted {
        let full = format!("{path}::{method}");
        let is_here = has_method(&pages, &path, &method);
        if is_here == rows.remove(&full) {
            missing.push(format!("{full}: {}", if is_here { "is here and has a row" } else { "is missing" }));
        }
    }
    let items = [
        "fn.lookup_host.html",
        "trait.ToSocketAddrs.html",
        "signal/fn.ctrl_c.html",
        "signal/unix/fn.signal.html",
    ];
    for item in items {
        assert!(pages.join("tokio").join(item).exists(), "{item} is missing");
    }
    rows.retain(|row| !row.ends_with("::pipe") && !row.ends_with("::windows"));
    assert!(missing.is_empty(), "differences.md does not say so:\n{}", missing.join("\n"));
    assert!(rows.is_empty(), "rows of {MISSING:?} that name no method: {rows:?}");
}

/// The methods in tokio's source: the path of the type, and the name.
fn of_tokio(net: &Path, rows: &BTreeSet<String>) -> Vec<(String, String)> {
    for file in rust_files(net, net) {
        let is_known = FILES.iter().any(|(name, _)| *name == file)
            || OTHER_FILES.iter().any(|name| file == *name || file.starts_with(&format!("{name}/")));
        assert!(is_known, "src/net/{file} of tokio is not known: add it to FILES, or a row for its module");
    }
    for module in ["tokio::net::unix::pipe", "tokio::net::windows"] {
        assert!(rows.contains(module), "{module} has no row");
    }
    let mut found = Vec::new();
    for (file, module) in FILES {
        let text = std::fs::read_to_string(net.join(file)).expect("a readable file of tokio's");
        found.extend(
            methods(&text)
                .into_iter()
                .map(|(r#type, name)| (format!("tokio::net::{module}{type}", type = r#type), name)),
        );
    }
    found
}

fn rust_files(folder: &Path, net: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("tokio's source").flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(rust_files(&path, net));
        } else {
            found.push(path.strip_prefix(net).expect("it is below").to_string_lossy().into_owned());
        }
    }
    found
}

/// The public functions of inherent implementations: type and name.
fn methods(text: &str) -> Vec<(String, String)> {
    let mut of = String::new();
    let mut found = Vec::new();
    for line in text.lines() {
        if let Some(head) = line.strip_prefix("impl") {
            let is_of_trait = head.contains(" for ");
            let head =
                if head.starts_with('<') { head.split_once("> ").map_or("", |parts| parts.1) } else { head };
            of = if is_of_trait { String::new() } else { name(head.trim()) };
        }
        let Some(rest) = line.trim_start().strip_prefix("pub ") else { continue };
        let rest = ["async ", "const ", "unsafe "]
            .iter()
            .fold(rest, |rest, word| rest.strip_prefix(word).unwrap_or(rest));
        if let (Some(rest), false) = (rest.strip_prefix("fn "), of.is_empty()) {
            found.push((of.clone(), name(rest)));
        }
    }
    found
}

/// The name that a text begins with.
fn name(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// Whether the page of our type has an inherent method.
fn has_method(pages: &Path, path: &str, method: &str) -> bool {
    let page = page(pages, path);
    let Ok(text) = std::fs::read_to_string(&page) else { panic!("{path} has no page {}", page.display()) };
    let inherent = text.split("id=\"trait-implementations\"").next().unwrap_or_default();
    inherent.contains(&format!("id=\"method.{method}\""))
}

/// Our page for a type of `std` or tokio.
fn page(pages: &Path, path: &str) -> PathBuf {
    let ours = path
        .replace("std::os::unix::net::", "unix::")
        .replace("std::net::", "")
        .replace("tokio::net::", "tokio::");
    let mut parts: Vec<&str> = ours.split("::").collect();
    let name = parts.pop().expect("a path has a name");
    parts
        .iter()
        .fold(pages.to_path_buf(), |folder, part| folder.join(part))
        .join(format!("struct.{name}.html"))
}

#[test]
fn public_functions_of_inherent_implementations_are_found() {
    let text = "impl<'a> Half<'a> {\n    pub async fn one(&self) {}\n    cfg_x! {\n        pub fn two<B>() {}\n    }\n    \
        pub(crate) fn inside() {}\n}\nimpl Read for Half<'_> {\n    fn read() {}\n}\npub fn free() {}\n";
    let found = methods(text);
    assert_eq!(found, [("Half".to_owned(), "one".to_owned()), ("Half".to_owned(), "two".to_owned())]);
}
