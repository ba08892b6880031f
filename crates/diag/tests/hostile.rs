//! A published stack, and a program that removes or replaces its files or stalls its connections.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
use sockeye::netif::{ChannelConfig, ChannelPort, SendError, channel};
use sockeye::{Config, Stack, TcpListener};
use sockeye_diag::{Published, Report, publish_in, reports_in};

/// Longer than any client may take, and shorter than two of them.
const SOON: Duration = Duration::from_millis(1900);
/// A wait that is no shorter than this hangs.
const HANG: Duration = Duration::from_secs(60);

/// Tries until it succeeds once. On a busy machine an attempt may miss a time without any defect; with the defect, all of them do.
fn once_in_ten(attempt: impl Fn() -> Result<(), String>) {
    let failures: Vec<_> = (0..10).map_while(|_| attempt().err()).collect();
    assert!(failures.len() < 10, "{failures:?}");
}

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("sockeye-diag-hostile-{}-{number}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn sockets(&self) -> Vec<PathBuf> {
        std::fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A stack that is published, and the far end of its interface, which shows whether the stack still exists.
fn published(folder: &Folder) -> (Published, PathBuf, ChannelPort) {
    let stack = Stack::new(Config { workers: 1, ..Config::default() }).unwrap();
    let (netif, mut ports) = channel(&ChannelConfig::default()).unwrap();
    stack.attach(netif, &["10.9.0.1/24".parse().unwrap()]).unwrap();
    let published = publish_in(&folder.0, &stack, "x").unwrap();
    let path = folder.sockets().pop().unwrap();
    (published, path, ports.remove(0))
}

/// A published stack whose report is longer than the buffers of two kernel sockets.
struct Large {
    published: Published,
    path: PathBuf,
    _listeners: Vec<TcpListener>,
    folder: Folder,
}

impl Large {
    fn new() -> Self {
        let folder = Folder::new();
        let stack = Stack::new(Config { workers: 1, ..Config::default() }).unwrap();
        let listeners = (0..5000).map(|_| TcpListener::bind_on(&stack, "127.0.0.1:0").unwrap()).collect();
        let published = publish_in(&folder.0, &stack, "x").unwrap();
        Self { published, path: folder.sockets().remove(0), _listeners: listeners, folder }
    }
}

fn gone(port: &ChannelPort) -> bool {
    matches!(port.try_send(&[0u8; 20][..]), Err(SendError::Detached))
}

/// As another program uses the name.
type Deed = fn(&Path) -> Option<UnixListener>;

#[test]
fn dropping_the_publisher_ends_its_thread_and_frees_the_stack_even_if_its_name_was_replaced() {
    let deeds: [(&str, Deed); 5] = [
        ("nothing", |_| None),
        ("removed", |path| {
            std::fs::remove_file(path).unwrap();
            None
        }),
        ("a file in its place", |path| {
            std::fs::remove_file(path).unwrap();
            std::fs::write(path, "not a socket").unwrap();
            None
        }),
        ("another's socket in its place", |path| {
            std::fs::remove_file(path).unwrap();
            Some(UnixListener::bind(path).unwrap())
        }),
        ("no folder", |path| {
            std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
            None
        }),
    ];
    for (what, deed) in deeds {
        let folder = Folder::new();
        let (published, path, port) = published(&folder);
        let other = deed(&path);
        let is_others = path.exists() && what != "nothing";
        let (done, is_done) = mpsc::channel();
        std::thread::spawn(move || {
            drop(published);
            done.send(()).unwrap();
        });
        is_done.recv_timeout(HANG).unwrap_or_else(|_| panic!("{what}: the drop hangs"));
        // The thread gives the stack back when it ends.
        assert!(gone(&port), "{what}: the stack still exists, and a thread that keeps it");
        assert_eq!(path.exists(), is_others, "{what}: the name");
        drop(other);
    }
}

#[test]
fn dropping_the_publisher_does_not_wait_for_a_stalled_client() {
    once_in_ten(|| {
        let Large { published, path, _listeners, folder: _folder } = Large::new();
        let mut stalled = UnixStream::connect(&path).unwrap();
        stalled.read_exact(&mut [0]).unwrap();
        let begun = Instant::now();
        drop(published);
        let took = begun.elapsed();
        if took < Duration::from_millis(500) { Ok(()) } else { Err(format!("{took:?}")) }
    });
}

#[test]
fn a_client_has_one_deadline_for_its_whole_request_and_delays_no_other() {
    once_in_ten(|| {
        let Large { folder, path, .. } = &Large::new();
        let begun = Instant::now();
        // It reads now and then, each time before a second is over.
        let mut slow = UnixStream::connect(path).unwrap();
        slow.read_exact(&mut [0]).unwrap();
        let (reports, unreachable) = reports_in(&folder.0).unwrap();
        if reports.iter().map(|report| report.sockets.len()).ne([5000]) || !unreachable.is_empty() {
            return Err(format!("{} reports, {unreachable:?}", reports.len()));
        }
        while begun.elapsed() < Duration::from_millis(1300) {
            let _ = slow.read(&mut [0; 64]).unwrap();
            std::thread::sleep(Duration::from_millis(50));
        }
        let mut rest = Vec::new();
        let _ = slow.read_to_end(&mut rest);
        assert!(serde_json::from_slice::<Report>(&rest).is_err(), "it was cut off");
        let took = begun.elapsed();
        if took < SOON { Ok(()) } else { Err(format!("{took:?}")) }
    });
}

#[test]
fn stalled_clients_are_bounded_and_the_next_is_served_when_they_are_disconnected() {
    once_in_ten(|| {
        let Large { path, .. } = &Large::new();
        let begun = Instant::now();
        let _stalled: Vec<_> = (0..4).map(|_| UnixStream::connect(path).unwrap()).collect();
        let mut line = String::new();
        UnixStream::connect(path).unwrap().read_to_string(&mut line).unwrap();
        let took = begun.elapsed();
        match serde_json::from_str::<Report>(&line) {
            Ok(report) if report.sockets.len() == 5000 && took < SOON => Ok(()),
            Ok(report) => Err(format!("{} sockets, {took:?}", report.sockets.len())),
            Err(error) => Err(format!("{error}, {took:?}")),
        }
    });
}

#[test]
fn names_of_running_programs_are_not_removed() {
    let folder = Folder::new();
    std::fs::create_dir(&folder.0).unwrap();
    std::fs::set_permissions(&folder.0, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    // A process of the same number in another namespace, say.
    let name = |number: u32| folder.0.join(format!("{}-{number}.sock", std::process::id()));
    let others: Vec<_> = (0..20).map(|number| UnixListener::bind(name(number)).unwrap()).collect();
    let left = name(20);
    drop(UnixListener::bind(&left).unwrap());
    let stack = Stack::new(Config { workers: 1, ..Config::default() }).unwrap();
    let published: Vec<_> = (0..3).map(|_| publish_in(&folder.0, &stack, "x").unwrap()).collect();
    let all = folder.sockets().len();
    for number in 0..20 {
        assert!(UnixStream::connect(name(number)).is_ok(), "{number}");
        assert!(others[number as usize].accept().is_ok(), "{number}");
    }
    assert!((23..=24).contains(&all), "{all} names: three new ones, of which one may be that of the dead");
    drop(published);
    assert!((0..20).all(|number| name(number).exists()));
}

#[test]
fn a_program_that_answers_slowly_or_does_not_accept_is_abandoned_after_a_second() {
    let folder = Folder::new();
    std::fs::create_dir(&folder.0).unwrap();
    std::fs::set_permissions(&folder.0, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let drips = UnixListener::bind(folder.0.join("1-0.sock")).unwrap();
    let dripping = std::thread::spawn(move || {
        let (mut client, _) = drips.accept().unwrap();
        while client.write_all(b" ").is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let full = folder.0.join("2-0.sock");
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    rustix::net::bind(socket.as_fd(), &SocketAddrUnix::new(&full).unwrap()).unwrap();
    rustix::net::listen(socket.as_fd(), 0).unwrap();
    let _waiting = UnixStream::connect(&full).unwrap();
    let (finished, finish) = mpsc::channel();
    let at = folder.0.clone();
    std::thread::spawn(move || finished.send(reports_in(&at)));
    let (reports, mut unreachable) = finish.recv_timeout(HANG).expect("it does not return").unwrap();
    unreachable.sort_by(|a, b| a.path.cmp(&b.path));
    let kinds: Vec<_> = unreachable.iter().map(|program| program.error.kind()).collect();
    assert_eq!((reports.len(), kinds), (0, vec![ErrorKind::TimedOut, ErrorKind::TimedOut]));
    dripping.join().unwrap();
}
