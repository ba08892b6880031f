//! A stack that is shown, and programs that look at it.

use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use sockeye::unix::{UnixDatagram, UnixSeqpacket};
use sockeye::{Config, Stack, TcpListener, TcpStream};
use sockeye_diag::{publish_in, reports_in};

/// A folder that does not exist yet, and is deleted at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Self(std::env::temp_dir().join(format!("sockeye-diag-test-{}-{number}", std::process::id())))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_published_stack_is_seen_with_its_sockets_until_it_is_withdrawn() {
    let folder = Folder::new();
    assert!(reports_in(&folder.0).unwrap().0.is_empty(), "no folder is no stack");
    let stack = Stack::new(Config::default()).unwrap();
    let other = Stack::new(Config::default()).unwrap();
    let published = publish_in(&folder.0, &stack, "first").unwrap();
    let _other = publish_in(&folder.0, &other, "second").unwrap();
    let listener = TcpListener::bind_on(&stack, "127.0.0.1:0").unwrap();
    let client = TcpStream::connect_on(&stack, listener.local_addr().unwrap()).unwrap();
    let (reports, unreachable) = reports_in(&folder.0).unwrap();
    assert!(unreachable.is_empty(), "{unreachable:?}");
    let names: Vec<_> = reports.iter().map(|report| report.name.as_str()).collect();
    assert_eq!(names, ["first", "second"]);
    let first = &reports[0];
    assert_eq!(first.pid, std::process::id());
    let seen = first.sockets.iter().find(|socket| socket.local == client.local_addr().unwrap()).unwrap();
    assert_eq!((seen.protocol.as_str(), seen.state.as_str()), ("tcp", "ESTAB"));
    assert!(seen.tcp["cwnd"].as_u64().unwrap() > 0);
    assert!(first.sockets.iter().any(|socket| socket.state == "LISTEN" && socket.remote.is_none()));
    let opened = first.counters.iter().find(|counter| counter.name == "active_opens").unwrap();
    assert_eq!(opened.value, 1);
    assert!(reports[1].sockets.is_empty());
    drop(published);
    let (reports, _) = reports_in(&folder.0).unwrap();
    assert_eq!(reports.iter().map(|report| report.name.as_str()).collect::<Vec<_>>(), ["second"]);
}

#[test]
fn unix_domain_sockets_are_shown_by_name_and_number() {
    let folder = Folder::new();
    let stack = Stack::new(Config::default()).unwrap();
    let _published = publish_in(&folder.0, &stack, "unix").unwrap();
    let name = sockeye::unix::SocketAddr::from_abstract_name("log").unwrap();
    let receiver = UnixDatagram::bind_addr_on(&stack, &name).unwrap();
    let sender = UnixDatagram::unbound_on(&stack).unwrap();
    sender.connect_addr(&name).unwrap();
    sender.send(&[0; 9]).unwrap();
    let (_a, _b) = UnixSeqpacket::pair_on(&stack).unwrap();
    let unix = &reports_in(&folder.0).unwrap().0[0].unix;
    assert_eq!(unix.len(), 4);
    let found = unix.iter().find(|socket| socket.name == "@log").unwrap();
    assert_eq!((found.protocol.as_str(), found.state.as_str(), found.recv_queue), ("u_dgr", "UNCONN", 9));
    let sending = unix.iter().find(|socket| socket.peer == Some(found.serial)).unwrap();
    assert_eq!((sending.name.as_str(), sending.peer_name.as_str(), sending.send_queue), ("*", "@log", 9));
    assert_eq!(unix.iter().filter(|socket| socket.protocol == "u_seq" && socket.state == "ESTAB").count(), 2);
    drop(receiver);
}

#[test]
fn a_name_left_by_a_dead_program_is_removed_and_a_silent_program_is_reported() {
    let folder = Folder::new();
    let stack = Stack::new(Config::default()).unwrap();
    let _published = publish_in(&folder.0, &stack, "alive").unwrap();
    let left = folder.0.join("1-0.sock");
    drop(UnixListener::bind(&left).unwrap());
    let silent = folder.0.join("2-0.sock");
    let _silent = UnixListener::bind(&silent).unwrap();
    std::fs::write(folder.0.join("notes.txt"), "not a socket").unwrap();
    let (reports, unreachable) = reports_in(&folder.0).unwrap();
    assert_eq!(reports.len(), 1);
    assert_eq!(unreachable.iter().map(|u| &u.path).collect::<Vec<_>>(), [&silent]);
    assert!(!left.exists() && silent.exists());
}

#[test]
fn a_folder_that_others_may_enter_is_not_used() {
    let folder = Folder::new();
    std::fs::create_dir(&folder.0).unwrap();
    std::fs::set_permissions(&folder.0, PermissionsExt::from_mode(0o755)).unwrap();
    let stack = Stack::new(Config::default()).unwrap();
    let refused = publish_in(&folder.0, &stack, "x").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
    assert!(refused.to_string().contains("mode 755"), "{refused}");
    assert_eq!(reports_in(&folder.0).unwrap_err().kind(), ErrorKind::PermissionDenied);
    let link = Folder::new();
    std::fs::set_permissions(&folder.0, PermissionsExt::from_mode(0o700)).unwrap();
    std::os::unix::fs::symlink(&folder.0, &link.0).unwrap();
    assert!(publish_in(&link.0, &stack, "x").is_err(), "a link may lead anywhere");
    std::fs::remove_file(&link.0).unwrap();
}
