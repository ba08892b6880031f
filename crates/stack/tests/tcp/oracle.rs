//! The kernel as an oracle: the same scenario runs over `std::net` and over this crate, and the two must
//! make the same observations, down to which error is reported first.
//!
//! A scenario is a function over [`Sockets`] that records its observations. [`DIFFERENCES`] lists the intended
//! differences with their reasons. Segments need a moment to arrive on the kernel's side, so a scenario calls
//! [`settle`] where the other end must have received them.

use std::cell::Cell;
use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sockeye::poll::{Event, Events, Interest, Poll, Token, Trigger};

/// Both kinds of sockets, as far as scenarios use them.
trait Sockets {
    type Listener;
    type Stream: Read + Write;
    fn listen(&self) -> Self::Listener;
    fn addr(listener: &Self::Listener) -> SocketAddr;
    fn accept(listener: &Self::Listener) -> Self::Stream;
    fn connect(&self, to: SocketAddr) -> io::Result<Self::Stream>;
    fn shutdown(stream: &Self::Stream, how: Shutdown) -> io::Result<()>;
    fn take_error(stream: &Self::Stream) -> Option<io::Error>;
    fn peer_addr(stream: &Self::Stream) -> io::Result<SocketAddr>;
    fn peek(stream: &Self::Stream, buf: &mut [u8]) -> io::Result<usize>;
    fn linger_zero(stream: &Self::Stream);
    fn nonblocking(stream: &Self::Stream);
    fn try_clone(stream: &Self::Stream) -> Self::Stream;
    /// MSG_OOB.
    fn send_urgent(stream: &Self::Stream, buf: &[u8]) -> io::Result<usize>;
    /// Urgent bytes stay in the stream (SO_OOBINLINE).
    fn keep_urgent_inline(stream: &Self::Stream);
    /// Whether urgent data waits (POLLPRI).
    fn is_urgent(stream: &Self::Stream) -> bool;

    fn pair(&self) -> (Self::Stream, Self::Stream) {
        let listener = self.listen();
        let client = self.connect(Self::addr(&listener)).unwrap();
        (client, Self::accept(&listener))
    }
}

struct Kernel;

impl Sockets for Kernel {
    type Listener = std::net::TcpListener;
    type Stream = std::net::TcpStream;
    fn listen(&self) -> Self::Listener {
        std::net::TcpListener::bind("127.0.0.1:0").unwrap()
    }
    fn addr(listener: &Self::Listener) -> SocketAddr {
        listener.local_addr().unwrap()
    }
    fn accept(listener: &Self::Listener) -> Self::Stream {
        listener.accept().unwrap().0
    }
    fn connect(&self, to: SocketAddr) -> io::Result<Self::Stream> {
        std::net::TcpStream::connect(to)
    }
    fn shutdown(stream: &Self::Stream, how: Shutdown) -> io::Result<()> {
        stream.shutdown(how)
    }
    fn take_error(stream: &Self::Stream) -> Option<io::Error> {
        stream.take_error().unwrap()
    }
    fn peer_addr(stream: &Self::Stream) -> io::Result<SocketAddr> {
        stream.peer_addr()
    }
    fn peek(stream: &Self::Stream, buf: &mut [u8]) -> io::Result<usize> {
        stream.peek(buf)
    }
    fn linger_zero(stream: &Self::Stream) {
        socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO)).unwrap();
    }
    fn nonblocking(stream: &Self::Stream) {
        stream.set_nonblocking(true).unwrap();
    }
    fn try_clone(stream: &Self::Stream) -> Self::Stream {
        stream.try_clone().unwrap()
    }
    fn send_urgent(stream: &Self::Stream, buf: &[u8]) -> io::Result<usize> {
        socket2::SockRef::from(stream).send_out_of_band(buf)
    }
    fn keep_urgent_inline(stream: &Self::Stream) {
        socket2::SockRef::from(stream).set_out_of_band_inline(true).unwrap();
    }
    fn is_urgent(stream: &Self::Stream) -> bool {
        let mut fds = [PollFd::new(stream, PollFlags::PRI)];
        poll(&mut fds, Some(&Timespec::default())).unwrap();
        fds[0].revents().contains(PollFlags::PRI)
    }
}

struct Sockeye(sockeye::Stack);

impl Sockets for Sockeye {
    type Listener = sockeye::TcpListener;
    type Stream = sockeye::TcpStream;
    fn listen(&self) -> Self::Listener {
        crate::common::listener(&self.0)
    }
    fn addr(listener: &Self::Listener) -> SocketAddr {
        listener.local_addr().unwrap()
    }
    fn accept(listener: &Self::Listener) -> Self::Stream {
        listener.accept().unwrap().0
    }
    fn connect(&self, to: SocketAddr) -> io::Result<Self::Stream> {
        sockeye::TcpStream::connect_on(&self.0, to)
    }
    fn shutdown(stream: &Self::Stream, how: Shutdown) -> io::Result<()> {
        stream.shutdown(how)
    }
    fn take_error(stream: &Self::Stream) -> Option<io::Error> {
        stream.take_error().unwrap()
    }
    fn peer_addr(stream: &Self::Stream) -> io::Result<SocketAddr> {
        stream.peer_addr()
    }
    fn peek(stream: &Self::Stream, buf: &mut [u8]) -> io::Result<usize> {
        stream.peek(buf)
    }
    fn linger_zero(stream: &Self::Stream) {
        stream.set_linger(Some(Duration::ZERO)).unwrap();
    }
    fn nonblocking(stream: &Self::Stream) {
        stream.set_nonblocking(true).unwrap();
    }
    fn try_clone(stream: &Self::Stream) -> Self::Stream {
        stream.try_clone().unwrap()
    }
    fn send_urgent(stream: &Self::Stream, buf: &[u8]) -> io::Result<usize> {
        stream.send_urgent(buf)
    }
    /// They always do.
    fn keep_urgent_inline(_: &Self::Stream) {}
    fn is_urgent(stream: &Self::Stream) -> bool {
        let poll = Poll::new(Duration::ZERO);
        poll.register(stream, Token(0), Interest::PRIORITY, Trigger::Level).unwrap();
        let mut events = Events::with_capacity(1);
        poll.wait(&mut events, Some(Duration::ZERO)).unwrap();
        events.iter().any(Event::is_priority)
    }
}

/// The observations of a scenario, one on each line.
#[derive(Default)]
struct Story(String);

impl Story {
    fn note(&mut self, what: &str, result: io::Result<impl std::fmt::Debug>) {
        match result {
            Ok(value) => writeln!(self.0, "{what}: {value:?}"),
            Err(error) => writeln!(self.0, "{what}: {:?}", error.kind()),
        }
        .expect("a String takes everything");
    }

    /// Everything that one can ask of an end, in an order that takes nothing away too early.
    fn interview<S: Sockets>(&mut self, who: &str, stream: &mut S::Stream) {
        let mut buf = [0; 64];
        self.note(&format!("{who} peeks"), S::peek(stream, &mut buf));
        for turn in 1..=3 {
            self.note(&format!("{who} reads {turn}"), stream.read(&mut buf));
        }
        for turn in 1..=3 {
            self.note(&format!("{who} writes {turn}"), stream.write(b"abc"));
            settle();
        }
        self.note(&format!("{who} reads at last"), stream.read(&mut buf));
        self.note(&format!("{who} has an error"), Ok(S::take_error(stream).map(|e| e.kind())));
        self.note(&format!("{who} has a peer"), S::peer_addr(stream).map(|_| ()));
        self.note(&format!("{who} shuts"), S::shutdown(stream, Shutdown::Write));
    }
}

thread_local! {
    /// How long [`settle`] waits, milliseconds.
    static MOMENT_MS: Cell<u64> = const { Cell::new(4) };
}

/// Long enough for segments to arrive. Where it was not, [`compare`] sees to it.
fn settle() {
    std::thread::sleep(Duration::from_millis(MOMENT_MS.get()));
}

/// How one end prepares the state that the other then observes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Nothing,
    Wrote,
    Shut,
    WroteAndShut,
    ShutRead,
    ShutBoth,
}

/// How the peer leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaving {
    Stays,
    Closes,
    Resets,
    ShutsWrite,
    ShutsRead,
    ShutsBoth,
}

fn prepare<S: Sockets>(stream: &mut S::Stream, before: Before, story: &mut Story) {
    let mut wrote = |stream: &mut S::Stream| story.note("prepares a write", stream.write(b"hello"));
    match before {
        Before::Nothing => {}
        Before::Wrote => wrote(stream),
        Before::WroteAndShut => {
            wrote(stream);
            story.note("prepares a shutdown", S::shutdown(stream, Shutdown::Write));
        }
        Before::Shut => story.note("prepares a shutdown", S::shutdown(stream, Shutdown::Write)),
        Before::ShutRead => story.note("prepares a shutdown", S::shutdown(stream, Shutdown::Read)),
        Before::ShutBoth => story.note("prepares a shutdown", S::shutdown(stream, Shutdown::Both)),
    }
    settle();
}

/// One end prepares, the other prepares and leaves, the first is interviewed.
fn scenario<S: Sockets>(sockets: &S, mine: Before, its: Before, leaving: Leaving) -> String {
    let mut story = Story::default();
    let (mut here, mut there) = sockets.pair();
    S::nonblocking(&here);
    S::nonblocking(&there);
    prepare::<S>(&mut here, mine, &mut story);
    prepare::<S>(&mut there, its, &mut story);
    let mut kept = None;
    match leaving {
        Leaving::Stays => kept = Some(there),
        Leaving::Closes => drop(there),
        Leaving::Resets => {
            S::linger_zero(&there);
            drop(there);
        }
        Leaving::ShutsWrite => {
            story.note("leaves", S::shutdown(&there, Shutdown::Write));
            kept = Some(there);
        }
        Leaving::ShutsRead => {
            story.note("leaves", S::shutdown(&there, Shutdown::Read));
            kept = Some(there);
        }
        Leaving::ShutsBoth => {
            story.note("leaves", S::shutdown(&there, Shutdown::Both));
            kept = Some(there);
        }
    }
    settle();
    story.interview::<S>("here", &mut here);
    if let Some(mut there) = kept {
        story.interview::<S>("there", &mut there);
    }
    story.0
}

/// A deliberate difference: scenarios in which a line of the kernel's story reads otherwise here.
struct Difference {
    kernel: &'static str,
    sockeye: &'static str,
    why: &'static str,
}

/// The whole list. Anything else that differs fails the test.
const DIFFERENCES: &[Difference] = &[];

/// True if the two lines are the same, or differ as listed in [`DIFFERENCES`].
fn same(kernel: &str, sockeye: &str) -> bool {
    kernel == sockeye
        || DIFFERENCES.iter().any(|d| {
            assert!(!d.why.is_empty());
            kernel.ends_with(d.kernel) && sockeye.ends_with(d.sockeye)
        })
}

/// Moments of our stories: its segments arrive in the sender's own call, unless a timer's thread is in the connection.
const OUR_MOMENT_MS: u64 = 20;

/// Holds the stories of both sides against each other. On a busy machine segments of the kernel may take longer than the moment that
/// a scenario gives them. So where stories differ, the kernel's is told again with longer moments; what differs then as well is a
/// difference. Ours is told once, since a second time would hide a race; but with settings that leave work to threads, which take
/// their time as well.
fn compare(name: &str, kernel: impl Fn() -> String, sockeye: impl Fn() -> String) -> Vec<String> {
    let at = |moment_ms, tell: &dyn Fn() -> String| {
        MOMENT_MS.set(moment_ms);
        tell()
    };
    let mut ours = at(OUR_MOMENT_MS, &sockeye);
    let mut found = Vec::new();
    for moment_ms in [4, 100, 1000] {
        found = differences(name, &at(moment_ms, &kernel), &ours);
        if found.is_empty() {
            break;
        }
        eprintln!("with moments of {moment_ms} ms: {}", found.join("\n"));
        if !crate::common::settings::given().is_empty() {
            ours = at(moment_ms, &sockeye);
        }
    }
    found
}

/// Lines that differ.
fn differences(name: &str, kernel: &str, sockeye: &str) -> Vec<String> {
    let (mut k, mut s, mut found) = (kernel.lines(), sockeye.lines(), Vec::new());
    loop {
        match (k.next(), s.next()) {
            (None, None) => return found,
            (one, other) if one.zip(other).is_some_and(|(one, other)| same(one, other)) => {}
            (one, other) => found.push(format!("{name}: kernel {one:?}, sockeye {other:?}")),
        }
    }
}

#[test]
fn every_combination_of_closes_matches_the_kernel() {
    let _guard = crate::common::watchdog("every_combination_of_closes_matches_the_kernel");
    use Before::{Nothing, Shut, ShutBoth, ShutRead, Wrote, WroteAndShut};
    use Leaving::{Closes, Resets, ShutsBoth, ShutsRead, ShutsWrite, Stays};
    let befores = [Nothing, Wrote, Shut, WroteAndShut, ShutRead, ShutBoth];
    let leavings = [Stays, Closes, Resets, ShutsWrite, ShutsRead, ShutsBoth];
    let mut threads = Vec::new();
    for mine in befores {
        // A thread each: they mostly sleep.
        threads.push(std::thread::spawn(move || {
            let sockeye = Sockeye(crate::common::stack());
            let mut found = Vec::new();
            for its in befores {
                for leaving in leavings {
                    let name = format!("{mine:?}, {its:?}, {leaving:?}");
                    found.extend(compare(
                        &name,
                        || scenario(&Kernel, mine, its, leaving),
                        || scenario(&sockeye, mine, its, leaving),
                    ));
                }
            }
            found
        }));
    }
    let found: Vec<String> = crate::common::join_all(threads).into_iter().flatten().collect();
    assert!(found.is_empty(), "{} differences:\n{}", found.len(), found.join("\n"));
}

/// A client that resets before it is accepted.
fn accept_after_reset<S: Sockets>(sockets: &S) -> String {
    let mut story = Story::default();
    let listener = sockets.listen();
    let mut client = sockets.connect(S::addr(&listener)).unwrap();
    story.note("writes", client.write(b"gone"));
    S::linger_zero(&client);
    drop(client);
    settle();
    let mut server = S::accept(&listener);
    S::nonblocking(&server);
    story.interview::<S>("accepted", &mut server);
    story.0
}

/// A reset while bytes are queued on both sides.
fn reset_with_queues<S: Sockets>(sockets: &S) -> String {
    let mut story = Story::default();
    let (mut here, mut there) = sockets.pair();
    S::nonblocking(&here);
    S::nonblocking(&there);
    while here.write(&[7; 60_000]).is_ok() {}
    there.write_all(b"queued for reading").unwrap();
    settle();
    S::linger_zero(&there);
    drop(there);
    settle();
    story.interview::<S>("here", &mut here);
    story.0
}

/// SO_ERROR is taken once.
fn error_once<S: Sockets>(sockets: &S) -> String {
    let mut story = Story::default();
    let (here, there) = sockets.pair();
    S::linger_zero(&there);
    drop(there);
    settle();
    story.note("first", Ok(S::take_error(&here).map(|e| e.kind())));
    story.note("second", Ok(S::take_error(&here).map(|e| e.kind())));
    story.note("then a read", { here }.read(&mut [0; 8]));
    story.0
}

/// A write of nothing is refused as any write is.
fn nothing<S: Sockets>(sockets: &S) -> String {
    let mut story = Story::default();
    let (mut here, there) = sockets.pair();
    story.note("writes nothing", here.write(b""));
    S::shutdown(&here, Shutdown::Write).unwrap();
    story.note("writes nothing after a shutdown", here.write(b""));
    story.note("writes nothing in pieces", here.write_vectored(&[]));
    drop((here, there));
    let (mut here, there) = sockets.pair();
    S::linger_zero(&there);
    drop(there);
    settle();
    for _ in 0..2 {
        story.note("writes nothing after a reset", here.write(b""));
    }
    story.0
}

/// A clone keeps the connection open.
fn clones<S: Sockets>(sockets: &S) -> String {
    let mut story = Story::default();
    let (here, mut there) = sockets.pair();
    let mut clone = S::try_clone(&here);
    drop(here);
    settle();
    S::nonblocking(&there);
    story.note("there reads", there.read(&mut [0; 8]));
    story.note("the clone writes", clone.write(b"still here"));
    settle();
    story.note("there reads", there.read(&mut [0; 64]));
    drop(clone);
    settle();
    story.note("there reads", there.read(&mut [0; 64]));
    story.0
}

/// The listener is dropped while a connection waits in its queue.
fn listener_goes<S: Sockets>(sockets: &S) -> String {
    let mut story = Story::default();
    let listener = sockets.listen();
    let addr = S::addr(&listener);
    let mut client = sockets.connect(addr).unwrap();
    drop(listener);
    settle();
    S::nonblocking(&client);
    story.interview::<S>("client", &mut client);
    story.note("connects again", sockets.connect(addr).map(|_| ()));
    story.0
}

/// Bytes that one end sends before the other reads, and how much the other reads at once.
enum Say {
    Plain(&'static [u8]),
    Urgent(&'static [u8]),
    /// The other end reads so many bytes at most.
    Read(usize),
    Peek(usize),
    /// Many bytes, which the other end does not read until later.
    Fill,
}

/// Urgent data among plain, and where reads and peeks end.
fn urgent<S: Sockets>(sockets: &S, script: &[Say]) -> String {
    let mut story = Story::default();
    let (mut here, mut there) = sockets.pair();
    S::nonblocking(&here);
    S::nonblocking(&there);
    S::keep_urgent_inline(&there);
    for say in script {
        match say {
            Say::Plain(bytes) => story.note("writes", here.write(bytes)),
            Say::Urgent(bytes) => story.note("writes urgently", S::send_urgent(&here, bytes)),
            Say::Fill => story.note("fills", here.write(&[7; 3000])),
            Say::Read(most) => {
                let mut buf = vec![0; *most];
                let read = there.read(&mut buf).map(|got| buf[..got.min(40)].to_vec());
                story.note("reads", read);
            }
            Say::Peek(most) => story.note("peeks", S::peek(&there, &mut vec![0; *most])),
        }
        settle();
        story.note("urgent", Ok(S::is_urgent(&there)));
    }
    S::shutdown(&here, Shutdown::Write).unwrap();
    settle();
    for _ in 0..4 {
        story.note("reads at last", there.read(&mut [0; 8192]));
        story.note("urgent", Ok(S::is_urgent(&there)));
    }
    story.0
}

#[test]
fn urgent_data_matches_the_kernel() {
    use Say::{Fill, Peek, Plain, Read, Urgent};
    let _guard = crate::common::watchdog("urgent_data_matches_the_kernel");
    let sockeye = Sockeye(crate::common::stack());
    let scripts: &[&[Say]] = &[
        &[Urgent(b"u"), Read(10)],
        &[Plain(b"abc"), Urgent(b"u"), Plain(b"def"), Read(100), Read(100), Read(100)],
        &[Plain(b"abc"), Urgent(b"xyz"), Plain(b"def"), Peek(100), Read(2), Peek(100), Read(100), Peek(1)],
        &[Plain(b"abc"), Urgent(b"u"), Read(3), Peek(100), Read(1), Read(1), Plain(b"d"), Read(100)],
        &[Urgent(b"u"), Urgent(b"v"), Plain(b"w"), Read(100), Read(100)],
        &[Plain(b"ab"), Urgent(b"u"), Plain(b"cd"), Urgent(b"v"), Plain(b"e"), Read(100), Read(100)],
        &[Urgent(b"u"), Read(1), Urgent(b"v"), Read(1), Plain(b"abc"), Urgent(b"w"), Read(2), Read(2)],
        &[Fill, Urgent(b"u"), Fill, Read(1000), Read(8000), Read(1), Read(8000)],
    ];
    let mut found = Vec::new();
    for (number, script) in scripts.iter().enumerate() {
        let name = format!("script {number}");
        found.extend(compare(&name, || urgent(&Kernel, script), || urgent(&sockeye, script)));
    }
    assert!(found.is_empty(), "{} differences:\n{}", found.len(), found.join("\n"));
}

#[test]
fn single_scenarios_match_the_kernel() {
    let _guard = crate::common::watchdog("single_scenarios_match_the_kernel");
    let sockeye = Sockeye(crate::common::stack());
    let mut found = Vec::new();
    let mut both = |name: &str, one: fn(&Kernel) -> String, other: fn(&Sockeye) -> String| {
        found.extend(compare(name, || one(&Kernel), || other(&sockeye)));
    };
    both("accept after reset", accept_after_reset, accept_after_reset);
    both("reset with queues", reset_with_queues, reset_with_queues);
    both("error once", error_once, error_once);
    both("nothing", nothing, nothing);
    both("clones", clones, clones);
    both("listener goes", listener_goes, listener_goes);
    assert!(found.is_empty(), "{} differences:\n{}", found.len(), found.join("\n"));
}
