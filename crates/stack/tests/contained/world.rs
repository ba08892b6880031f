//! Stacks whose panics are counted, with or without threads, on loopback or with a wire between two of them.

use std::cell::Cell;
use std::io::{ErrorKind, Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sockeye::netif::{WireConfig, wire};
use sockeye::{Config, PanicReport, PanicSource, Stack, TcpListener, TcpStream};

use crate::{common, lab};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Medium {
    Loopback,
    Wire,
}

/// One stack or two, and the panics that their hooks received.
pub struct World {
    /// The client's and the server's, which may be the same.
    pub stacks: [Stack; 2],
    pub listener: TcpListener,
    reports: Arc<Mutex<Vec<PanicReport>>>,
    is_driven: bool,
    is_one: bool,
    /// The time of stacks that are driven.
    now: Cell<Duration>,
    threads: usize,
}

impl World {
    pub fn new(medium: Medium, change: impl Fn(&mut Config)) -> Self {
        let first = common::stack_with(&change);
        let (stacks, addr) = match medium {
            Medium::Loopback => ([first.clone(), first], "127.0.0.1:0".parse().unwrap()),
            Medium::Wire => {
                let (left, right) = wire(&WireConfig::default()).unwrap();
                let second = common::stack_with(&change);
                first.attach(left, &lab::addrs(0)).unwrap();
                second.attach(right, &lab::addrs(1)).unwrap();
                let addr = lab::addrs(1)[0].addr();
                ([first, second], std::net::SocketAddr::new(addr, 0))
            }
        };
        let reports = Arc::new(Mutex::new(Vec::new()));
        for stack in &stacks {
            let reports = Arc::clone(&reports);
            stack.set_panic_hook(Some(move |report: &PanicReport| {
                reports.lock().unwrap().push(report.clone())
            }));
        }
        let listener = TcpListener::bind_on(&stacks[1], addr).unwrap();
        listener.set_nonblocking(true).unwrap();
        let is_driven = stacks[0].config().workers == 0;
        let is_one = medium == Medium::Loopback;
        let workers = stacks[0].config().workers;
        let threads = match medium {
            Medium::Loopback => workers,
            // And an input thread each.
            Medium::Wire => 2 * workers + 2 * workers.min(1),
        };
        common::eventually("all threads run", || stack_threads() == threads);
        Self { stacks, listener, reports, is_driven, is_one, now: Cell::new(Duration::ZERO), threads }
    }

    /// Lets the stacks do pending work: for a millisecond of simulated time, or for a moment if they have threads.
    pub fn turn(&self) {
        self.turn_of(&self.stacks);
    }

    /// [`turn`](Self::turn) of some of the stacks, if they are driven; the others stand still.
    pub fn turn_of(&self, stacks: &[Stack]) {
        if !self.is_driven {
            return std::thread::sleep(Duration::from_micros(200));
        }
        self.now.set(self.now.get() + Duration::from_millis(1));
        for stack in stacks {
            stack.poll(self.now.get());
        }
    }

    /// Drives the stacks until `done` returns a value.
    pub fn until<T>(&self, what: &str, mut done: impl FnMut() -> Option<T>) -> T {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(result) = done() {
                return result;
            }
            assert!(Instant::now() < end, "not after {PATIENCE:?}: {what}");
            self.turn();
        }
    }

    /// Begins to connect; the socket does not block.
    pub fn connect(&self) -> TcpStream {
        let mut socket = sockeye::TcpSocket::new_v4(&self.stacks[0]);
        socket.set_nonblocking(true);
        socket.connect(self.listener.local_addr().unwrap()).unwrap()
    }

    /// Client and server of a new connection; neither blocks.
    pub fn pair(&self) -> Pair {
        self.accept(self.connect())
    }

    /// The same, of a client that is connecting.
    pub fn accept(&self, client: TcpStream) -> Pair {
        // The queue may hold other connections, whose clients gave up.
        let is_its = |server: &TcpStream| server.peer_addr().ok() == client.local_addr().ok();
        let accept = || self.listener.accept().ok().map(|(server, _)| server).filter(is_its);
        let server = self.until("a connection is accepted", accept);
        server.set_nonblocking(true).unwrap();
        Pair([client, server])
    }

    /// The panics that the hooks have received so far.
    pub fn reports(&self) -> Vec<PanicReport> {
        self.reports.lock().unwrap().clone()
    }

    /// Checks that `panics` panics were counted and reported, all in the stack's own code, and that nothing is left behind.
    pub fn end(self, panics: u64) {
        // On loopback both are one stack.
        let stacks = if self.is_one { &self.stacks[..1] } else { &self.stacks[..] };
        let count = |name| stacks.iter().map(|stack| common::counter(stack, name)).sum::<u64>();
        self.until("each panic is told", || (self.reports().len() as u64 >= panics).then_some(()));
        assert_eq!(count("panics_protocol"), panics);
        assert_eq!(count("panics_foreign"), 0);
        let reports = self.reports();
        assert_eq!(reports.len() as u64, panics, "{reports:?}");
        for report in &reports {
            assert_eq!(report.source, PanicSource::Protocol, "{report}");
            assert!(report.message.starts_with("failpoint "), "{report}");
        }
        assert_eq!(stack_threads(), self.threads, "a thread has ended");
        let empty = || stacks.iter().all(|stack| stack.connection_count() == 0 && stack.memory_in_use() == 0);
        self.until("no connection and no memory is left", || empty().then_some(()));
    }
}

/// Client and server.
pub struct Pair(pub [TcpStream; 2]);

impl Pair {
    /// The key by which a failpoint identifies one end.
    pub fn key(&self, side: usize) -> u64 {
        let end = &self.0[side];
        u64::from(end.local_addr().unwrap().port()) << 16 | u64::from(end.peer_addr().unwrap().port())
    }

    /// Every byte that one end writes arrives at the other.
    pub fn works(&self, world: &World) {
        for round in 0..10_u8 {
            for (from, to) in [(0, 1), (1, 0)] {
                let sent = [round; 100];
                world.until("a small write is taken", || {
                    (&self.0[from]).write(&sent).ok().filter(|taken| *taken == 100)
                });
                let mut got = Vec::new();
                while got.len() < sent.len() {
                    let mut buf = [0; 100];
                    let len = world.until("a message arrives", || (&self.0[to]).read(&mut buf).ok());
                    assert_ne!(len, 0, "the end of the stream");
                    got.extend_from_slice(&buf[..len]);
                }
                assert_eq!(got, sent);
            }
        }
    }
}

/// How one end of a connection ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// A call reported this error.
    Failed(ErrorKind, String),
    /// The stream ended without one.
    Eof,
}

impl End {
    pub fn is_panic(&self) -> bool {
        matches!(self, Self::Failed(ErrorKind::ConnectionAborted, text) if text.contains("panicked"))
    }

    pub fn is_reset(&self) -> bool {
        matches!(self, Self::Failed(ErrorKind::ConnectionReset, _))
    }
}

/// A call's error for the end of the connection, if it has ended.
pub fn end_of(called: std::io::Result<usize>, is_read: bool) -> Option<End> {
    match called {
        Ok(0) if is_read => Some(End::Eof),
        Ok(_) => None,
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        Err(error) => Some(End::Failed(error.kind(), error.to_string())),
    }
}

/// Runs `call` in a thread, and returns once that sleeps, as it does when the call blocks.
pub fn asleep_in<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let (send_id, reports) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        send_id.send(rustix::thread::gettid().as_raw_nonzero()).unwrap();
        call()
    });
    let stat = format!("/proc/self/task/{}/stat", reports.recv().unwrap());
    common::eventually("the thread sleeps", || {
        std::fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") S "))
    });
    thread
}

/// A waker that counts how often it was woken.
#[derive(Default)]
pub struct Woken(AtomicUsize);

impl Woken {
    pub fn new() -> (Arc<Self>, Waker) {
        let woken = Arc::new(Self::default());
        (Arc::clone(&woken), Waker::from(woken))
    }

    pub fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Threads of stacks in this process.
pub fn stack_threads() -> usize {
    let names = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(entry.ok()?.path().join("comm")).ok()
    };
    names.filter_map(name).filter(|name| name.starts_with("sockeye")).count()
}
