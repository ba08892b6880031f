//! Bind conflicts: compares the table of `docs/bind.md` with the kernel and with Sockeye.
//!
//! The document is the one table. For every pair of addresses, every pair of option sets and every
//! state of the first socket, a first socket is brought into its state, and a second one binds and listens
//! on the same port. The result must be the one in the document, on both sides; the test prints every
//! difference. The kernel's sockets use ports below the ephemeral range, each once, so that only the case
//! itself can cause a conflict. On a host without IPv6 the test skips the kernel's IPv6 cases and prints
//! that it does.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sockeye::{Config, Stack, TcpListener, TcpSocket, TcpStream};

const DOCUMENT: &str = include_str!("../../docs/bind.md");

/// Addresses as the document's first table names them.
const PLACES: [&str; 7] =
    ["127.0.0.1", "127.0.0.2", "0.0.0.0", "::1", "::ffff:127.0.0.1", "::", ":: only IPv6"];
/// Option sets as the document's second table names them.
const OPTIONS: [&str; 4] = ["none", "addr", "port", "both"];
/// States of the first socket, the second table's columns.
const STATES: [&str; 4] = ["bound", "listening", "connected", "TIME-WAIT"];
/// Differences that are printed.
const SHOWN_MAX: usize = 60;

/// One case: indices into the lists above.
#[derive(Clone, Copy)]
struct Case {
    places: (usize, usize),
    options: (usize, usize),
    state: usize,
}

impl Case {
    /// Every case that can be: a connection has an address of its own, not a wildcard.
    fn all() -> impl Iterator<Item = Self> {
        let places = (0..PLACES.len()).flat_map(|a| (0..PLACES.len()).map(move |b| (a, b)));
        let cases = places.flat_map(|places| (0..16).map(move |o| (places, (o / 4, o % 4))));
        let cases = cases.flat_map(|(places, options)| {
            (0..STATES.len()).map(move |state| Self { places, options, state })
        });
        cases.filter(|case| case.state < 2 || !ip(case.places.0).is_unspecified())
    }

    fn name(self) -> String {
        let (a, b) = (self.places.0, self.places.1);
        let (x, y) = (OPTIONS[self.options.0], OPTIONS[self.options.1]);
        format!("first {} ({x}, {}), second {} ({y})", PLACES[a], STATES[self.state], PLACES[b])
    }

    fn has_v6(self) -> bool {
        ip(self.places.0).is_ipv6() || ip(self.places.1).is_ipv6()
    }
}

fn ip(place: usize) -> IpAddr {
    let text = PLACES[place].split(' ').next().unwrap_or_default();
    text.parse().expect("the places are addresses")
}

/// The document's answers.
struct Document {
    overlaps: [[bool; PLACES.len()]; PLACES.len()],
    answers: [[String; STATES.len()]; 16],
}

impl Document {
    fn read() -> Self {
        let mut overlaps = [[false; PLACES.len()]; PLACES.len()];
        for (row, place) in overlaps.iter_mut().zip(PLACES) {
            let cells = row_of(&format!("`{place}`"), PLACES.len());
            for (overlap, cell) in row.iter_mut().zip(cells) {
                *overlap = match cell {
                    "overlap" => true,
                    "–" => false,
                    other => panic!("{place}: {other:?} is neither `overlap` nor `–`"),
                };
            }
        }
        let answers = std::array::from_fn(|index| {
            let label = format!("{}, {}", OPTIONS[index / 4], OPTIONS[index % 4]);
            let cells = row_of(&label, STATES.len());
            std::array::from_fn(|state| {
                assert!(["no", "bind", "listen"].contains(&cells[state]), "{label}: {cells:?}");
                cells[state].to_owned()
            })
        });
        Self { overlaps, answers }
    }

    fn expects(&self, case: Case) -> &str {
        if !self.overlaps[case.places.0][case.places.1] {
            return "listen";
        }
        &self.answers[case.options.0 * 4 + case.options.1][case.state]
    }
}

/// The cells after the first of the document's row that begins with `label`.
fn row_of(label: &str, cells: usize) -> Vec<&'static str> {
    let prefix = format!("| {label} |");
    let mut rows = DOCUMENT.lines().filter_map(|line| line.strip_prefix(&prefix));
    let row = rows.next().unwrap_or_else(|| panic!("docs/bind.md has no row {label:?}"));
    assert!(rows.next().is_none(), "docs/bind.md has two rows {label:?}");
    let found: Vec<_> = row.trim_end_matches('|').split('|').map(str::trim).collect();
    assert_eq!(found.len(), cells, "{label}: {found:?}");
    found
}

/// A socket layer, as far as a case needs it.
trait Sockets {
    type Bound;
    type Listener;
    type Stream: Read;

    fn bind(&self, place: usize, port: u16, options: usize) -> io::Result<Self::Bound>;
    fn listen(&self, bound: Self::Bound) -> io::Result<Self::Listener>;
    fn connect(&self, bound: Self::Bound, to: SocketAddr) -> io::Result<Self::Stream>;
    fn accept(&self, listener: &Self::Listener) -> io::Result<Self::Stream>;
    fn port(&self, listener: &Self::Listener) -> io::Result<u16>;
    /// Closes with a reset, so that nothing is left in TIME-WAIT.
    fn abort(&self, stream: Self::Stream) -> io::Result<()>;

    /// Runs a case at a port that is free; `target` listens on every address.
    fn run(&self, case: Case, port: u16, target: &Self::Listener) -> io::Result<&'static str> {
        let first = self.bind(case.places.0, port, case.options.0)?;
        match STATES[case.state] {
            "bound" => {
                let answer = self.second(case, port);
                drop(first);
                answer
            }
            "listening" => {
                let listener = self.listen(first)?;
                let answer = self.second(case, port);
                drop(listener);
                answer
            }
            state => {
                let to = SocketAddr::new(ip(case.places.0), self.port(target)?);
                let stream = self.connect(first, to)?;
                let mut child = self.accept(target)?;
                if state == "connected" {
                    let answer = self.second(case, port);
                    self.abort(stream)?;
                    return answer;
                }
                // The end that closes first enters TIME-WAIT.
                drop(stream);
                assert_eq!(child.read(&mut [0])?, 0, "the peer has closed");
                drop(child);
                self.second(case, port)
            }
        }
    }

    fn second(&self, case: Case, port: u16) -> io::Result<&'static str> {
        let in_use = |error: &io::Error| error.kind() == io::ErrorKind::AddrInUse;
        let bound = match self.bind(case.places.1, port, case.options.1) {
            Err(error) if in_use(&error) => return Ok("no"),
            bound => bound?,
        };
        match self.listen(bound) {
            Err(error) if in_use(&error) => Ok("bind"),
            Ok(_) => Ok("listen"),
            Err(error) => Err(error),
        }
    }
}

/// Holds every case of `cases` beside the document.
fn compare<S: Sockets>(sockets: &S, cases: impl Iterator<Item = Case>, port: impl Fn() -> u16) {
    let document = Document::read();
    let target = sockets.bind(5, 0, 0).or_else(|_| sockets.bind(2, 0, 0)).expect("a target binds");
    let target = sockets.listen(target).expect("a target listens");
    let (mut differences, mut ran) = (Vec::new(), 0);
    for case in cases {
        ran += 1;
        let expected = document.expects(case);
        match sockets.run(case, port(), &target) {
            Ok(answer) if answer == expected => {}
            Ok(answer) => differences.push(format!("{}: {answer}, not {expected}", case.name())),
            Err(error) => differences.push(format!("{}: {error}, not {expected}", case.name())),
        }
    }
    assert!(ran > 400, "only {ran} cases ran");
    let mut shown = String::new();
    for difference in differences.iter().take(SHOWN_MAX) {
        let _ = writeln!(shown, "{difference}");
    }
    assert!(
        differences.is_empty(),
        "{} of {ran} cases differ from docs/bind.md:\n{shown}",
        differences.len()
    );
}

struct Sockeye(Stack);

impl Sockets for Sockeye {
    type Bound = TcpSocket;
    type Listener = TcpListener;
    type Stream = TcpStream;

    fn bind(&self, place: usize, port: u16, options: usize) -> io::Result<TcpSocket> {
        let ip = ip(place);
        let mut socket = if ip.is_ipv6() { TcpSocket::new_v6(&self.0) } else { TcpSocket::new_v4(&self.0) };
        socket.set_reuse_address(options & 1 != 0);
        socket.set_reuse_port(options & 2 != 0);
        socket.set_only_v6(PLACES[place].ends_with("IPv6"));
        socket.bind(SocketAddr::new(ip, port))?;
        Ok(socket)
    }

    fn listen(&self, bound: TcpSocket) -> io::Result<TcpListener> {
        bound.listen(16)
    }

    fn connect(&self, bound: TcpSocket, to: SocketAddr) -> io::Result<TcpStream> {
        bound.connect(to)
    }

    fn accept(&self, listener: &TcpListener) -> io::Result<TcpStream> {
        Ok(listener.accept()?.0)
    }

    fn port(&self, listener: &TcpListener) -> io::Result<u16> {
        Ok(listener.local_addr()?.port())
    }

    fn abort(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_linger(Some(Duration::ZERO))
    }
}

struct Kernel;

impl Sockets for Kernel {
    type Bound = socket2::Socket;
    type Listener = socket2::Socket;
    type Stream = socket2::Socket;

    fn bind(&self, place: usize, port: u16, options: usize) -> io::Result<socket2::Socket> {
        let addr = SocketAddr::new(ip(place), port);
        let domain = socket2::Domain::for_address(addr);
        let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None)?;
        socket.set_reuse_address(options & 1 != 0)?;
        socket.set_reuse_port(options & 2 != 0)?;
        if addr.is_ipv6() {
            socket.set_only_v6(PLACES[place].ends_with("IPv6"))?;
        }
        socket.bind(&addr.into())?;
        Ok(socket)
    }

    fn listen(&self, bound: socket2::Socket) -> io::Result<socket2::Socket> {
        bound.listen(16)?;
        Ok(bound)
    }

    fn connect(&self, bound: socket2::Socket, to: SocketAddr) -> io::Result<socket2::Socket> {
        bound.connect(&to.into())?;
        Ok(bound)
    }

    fn accept(&self, listener: &socket2::Socket) -> io::Result<socket2::Socket> {
        Ok(listener.accept()?.0)
    }

    fn port(&self, listener: &socket2::Socket) -> io::Result<u16> {
        let addr = listener.local_addr()?.as_socket();
        addr.map(|addr| addr.port()).ok_or_else(|| io::Error::other("a TCP socket has a port"))
    }

    fn abort(&self, stream: socket2::Socket) -> io::Result<()> {
        stream.set_linger(Some(Duration::ZERO))
    }
}

/// A port below the ephemeral ones at which the kernel has nothing, each only once.
fn unused_kernel_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(10_000);
    loop {
        let port = NEXT.fetch_add(1, Ordering::Relaxed);
        assert!(port < 32_000, "no port below the ephemeral ones is free");
        // A machine without IPv6 refuses those places for another reason.
        let is_taken = |error: io::Error| error.kind() == io::ErrorKind::AddrInUse;
        if !(0..PLACES.len()).any(|place| Kernel.bind(place, port, 0).is_err_and(is_taken)) {
            return port;
        }
    }
}

#[test]
fn sockeye_binds_as_documented() {
    let stack = Stack::new(Config { workers: 1, ..Config::default() }).expect("a stack starts");
    let next = AtomicU16::new(10_000);
    compare(&Sockeye(stack), Case::all(), || next.fetch_add(1, Ordering::Relaxed));
}

#[test]
fn the_kernel_binds_as_documented() {
    let has_v6 = Kernel.bind(3, 0, 0).is_ok();
    if !has_v6 {
        println!("this host has no IPv6: the kernel's cases with it are left out");
    }
    compare(&Kernel, Case::all().filter(|case| has_v6 || !case.has_v6()), unused_kernel_port);
}

/// A connect on another thread does not get a port between the look at the free ones and the bind. Few ports, so that they meet.
#[test]
fn a_free_port_stays_free_of_connections_until_its_socket_listens() {
    let config = Config { workers: 1, port_range: 40_000..=40_015, ..Config::default() };
    let stack = Stack::new(config).expect("a stack starts");
    let server = TcpListener::bind_on(&stack, "127.0.0.1:80").expect("nothing is there");
    let ends_at = Instant::now() + Duration::from_secs(2);
    let connect = || {
        // A few stay open for a while, as a listener has to find them in its way.
        let mut open = VecDeque::new();
        while Instant::now() < ends_at {
            if open.len() == 4 {
                open.pop_front();
            }
            let Ok(stream) = TcpStream::connect_on(&stack, "127.0.0.1:80") else { continue };
            stream.set_linger(Some(Duration::ZERO)).expect("it is open");
            open.push_back((stream, server.accept().expect("one has come")));
        }
    };
    let listen = || {
        while Instant::now() < ends_at {
            // `AddrNotAvailable`, where connections have all ports, is an answer.
            if let Err(error) = TcpListener::bind_on(&stack, "127.0.0.1:0") {
                assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable);
            }
        }
    };
    thread::scope(|scope| {
        scope.spawn(connect);
        scope.spawn(connect);
        scope.spawn(listen);
    });
}

/// IPV6_V6ONLY: bind and connect refuse the IPv4 addresses that an IPv6 socket has otherwise, each with its own error.
#[test]
fn a_socket_of_ipv6_alone_takes_no_mapped_address() {
    let stack = Stack::new(Config { workers: 1, ..Config::default() }).expect("a stack starts");
    let server = TcpListener::bind_on(&stack, "127.0.0.1:0").expect("a free port");
    let mapped = |port| SocketAddr::from(([0, 0, 0, 0, 0, 0xffff, 0x7f00, 1], port));
    let only_v6 = || {
        let mut socket = TcpSocket::new_v6(&stack);
        socket.set_only_v6(true);
        socket
    };
    let bound = || {
        let mut socket = only_v6();
        socket.bind("[::]:0".parse().expect("an address")).expect("a free port");
        socket
    };
    let to = mapped(server.local_addr().expect("it is bound").port());
    let ours = [
        only_v6().bind(mapped(0)).err(),
        only_v6().bind("127.0.0.1:0".parse().expect("an address")).err(),
        only_v6().connect(to).err(),
        bound().connect(to).err(),
    ];
    let numbers = |errors: [Option<io::Error>; 4]| errors.map(|error| error.and_then(|e| e.raw_os_error()));
    let (invalid, unreachable) = (Some(22), Some(101));
    let expected = [invalid, invalid, unreachable, unreachable];
    assert_eq!(numbers(ours), expected);
    if Kernel.bind(6, 0, 0).is_err() {
        println!("this host has no IPv6: the kernel is left out");
        return;
    }
    let server = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let to = mapped(server.local_addr().expect("it is bound").port());
    let only_v6 = || {
        let socket = socket2::Socket::new(socket2::Domain::IPV6, socket2::Type::STREAM, None);
        let socket = socket.expect("a socket");
        socket.set_only_v6(true).expect("it is not bound");
        socket
    };
    let kernels = [
        only_v6().bind(&mapped(0).into()).err(),
        only_v6().bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).err(),
        only_v6().connect(&to.into()).err(),
        Kernel.bind(6, 0, 0).expect("a free port").connect(&to.into()).err(),
    ];
    assert_eq!(numbers(kernels), expected);
}
