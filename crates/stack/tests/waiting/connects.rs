//! Connects that wait: for the answer to a SYN, and for room in a UNIX-domain listener's backlog.
//!
//! A poller cannot wait for room in a backlog: a connect that does not block fails there, as on Linux.

use std::net::Shutdown;
use std::sync::Mutex;
use std::task::{Context, Poll};
use std::time::Duration;

use sockeye::poll::{self, Trigger};
use sockeye::unix::{self, SocketAddr, UnixListener, UnixSeqpacket, UnixSocket, UnixStream};
use sockeye::{Stack, TcpSocket, TcpStream, tokio as face};
use sockeye_proto::icmp::{Error, Unreachable};

use crate::common::stack_with;
use crate::host::THEIRS;
use crate::matrix::{Case, Kind, MANY, Setting, case, check, setting};
use crate::peer::{Peer, report, reset, syn_ack};
use crate::subjects::{Both, Connect, Future1, Subject, Way};

const CASES: [Case; 21] = [
    case("TCP connect: SYN-ACK", || connect(|peer| peer.react(syn_ack))),
    case("TCP connect: RST", || connect(|peer| peer.react(reset))),
    case("TCP connect: port unreachable", || connect(|peer| peer.react(report(PORT)))),
    case("TCP connect: host unreachable", || connect(|peer| peer.react(report(HOST)))),
    case("TCP connect: no answer", || connect(no_answer)),
    case("TCP connect: device gone", || connect(Peer::unplug)),
    case("TCP write while connecting: SYN-ACK", || connecting(Way::Write, |peer, _| peer.react(syn_ack))),
    case("TCP write while connecting: RST", || connecting(Way::Write, |peer, _| peer.react(reset))),
    case("TCP write while connecting: host unreachable", || {
        connecting(Way::Write, |peer, _| peer.react(report(HOST)))
    }),
    case("TCP write while connecting: no answer", || connecting(Way::Write, |peer, _| no_answer(peer))),
    case("TCP write while connecting: user timeout", || {
        connecting(Way::Write, |peer, own| {
            own.set_user_timeout(Some(Duration::from_millis(100))).unwrap();
            // Two retransmissions are due then; the first finds that the time is over.
            drop(peer.host().pass(Duration::from_millis(1100)));
        })
    }),
    case("TCP write while connecting: device gone", || connecting(Way::Write, |peer, _| peer.unplug())),
    case("TCP write while connecting: shutdown here", || {
        connecting(Way::Write, |_, own| own.shutdown(Shutdown::Both).unwrap())
    }),
    case("TCP read while connecting: RST", || connecting(Way::Read, |peer, _| peer.react(reset))),
    case("TCP read while connecting: no answer", || connecting(Way::Read, |peer, _| no_answer(peer))),
    case("TCP read while connecting: device gone", || connecting(Way::Read, |peer, _| peer.unplug())),
    case("TCP read while connecting: shutdown here", || {
        connecting(Way::Read, |_, own| own.shutdown(Shutdown::Both).unwrap())
    }),
    backlog("UNIX connect: accepts", || full(|_, listener| accept(&listener))),
    backlog("UNIX connect: a larger backlog", || {
        full(|socket, _listener| drop(socket.listen(2 * MANY).unwrap()))
    }),
    backlog("UNIX connect: the listener is shut", || {
        full(|_, listener| listener.shutdown(Shutdown::Both).unwrap())
    }),
    backlog("UNIX connect: the listener closes", || full(|socket, listener| drop((socket, listener)))),
];

const PORT: Error = Error::Unreachable(Unreachable::Port);
const HOST: Error = Error::Unreachable(Unreachable::Host);

const fn backlog(name: &'static str, make: fn() -> Setting) -> Case {
    Case { name, kinds: &[Kind::Thread, Kind::Threads, Kind::PollFunction, Kind::Tasks], make }
}

#[test]
fn a_waiting_connect_is_notified_of_every_event_that_ends_it() {
    check(&CASES);
}

fn peer() -> Peer {
    Peer::with(|config| config.tcp.syn_retries = 2)
}

/// All SYNs are lost.
fn no_answer(peer: &Peer) {
    drop(peer.host().pass(Duration::from_secs(60)));
}

fn connect(end: fn(&Peer)) -> Setting {
    let peer = peer();
    let to = format!("{}:9", THEIRS[0]).parse().unwrap();
    let subject = Connect::new(&peer.host().stack, to);
    let own = peer.clone();
    setting(subject, move || end(&peer), own)
}

/// Of a stream that is still connecting.
fn connecting(way: Way, end: fn(&Peer, &TcpStream)) -> Setting {
    let peer = peer();
    let mut socket = TcpSocket::new_v4(&peer.host().stack);
    socket.set_nonblocking(true);
    let stream = socket.connect(format!("{}:9", THEIRS[0]).parse().unwrap()).unwrap();
    stream.set_nonblocking(false).unwrap();
    let (own, kept) = (stream.try_clone().unwrap(), (peer.clone(), stream.try_clone().unwrap()));
    setting(Both::new(stream, way), move || end(&peer, &own), kept)
}

/// Connects to a listener. No timers run, so a task that only retried by timer would wait for ever.
struct Backlog {
    stack: Stack,
    to: SocketAddr,
    connecting: Mutex<Option<Future1<'static>>>,
}

impl Backlog {
    fn future(&self) -> Future1<'static> {
        let (stack, to) = (self.stack.clone(), self.to.clone());
        Box::pin(async move { drop(face::unix::UnixStream::connect_addr_on(&stack, &to).await) })
    }
}

impl Subject for Backlog {
    fn block(&self) {
        drop(UnixStream::connect_addr_on(&self.stack, &self.to));
    }
    fn poll(&self, cx: &mut Context<'_>) -> Option<Poll<()>> {
        let mut connecting = self.connecting.lock().unwrap();
        Some(connecting.get_or_insert_with(|| self.future()).as_mut().poll(cx))
    }
    fn wait(&self) -> Future1<'_> {
        self.future()
    }
    fn register(&self, _poll: &poll::Poll, _trigger: Trigger) {
        unreachable!("a connect that does not block does not wait for room");
    }
}

/// A listener whose backlog is full.
fn full(end: fn(UnixSocket, UnixListener)) -> Setting {
    let stack = stack_with(|config| (config.spin_max, config.workers) = (Duration::ZERO, 0));
    let to = unix::SocketAddr::from_abstract_name(b"full").unwrap();
    let socket = UnixSocket::new_stream(&stack);
    socket.bind(&to).unwrap();
    let listener = socket.listen(MANY - 1).unwrap();
    let clients: Vec<_> = (0..MANY).map(|_| UnixStream::connect_addr_on(&stack, &to).unwrap()).collect();
    let subject = Backlog { stack, to, connecting: Mutex::new(None) };
    setting(subject, move || end(socket, listener), clients)
}

/// Makes room for as many as wait.
fn accept(listener: &UnixListener) {
    (0..MANY).for_each(|_| drop(listener.accept().unwrap()));
}

/// A future that is dropped while it waits is removed from the listener's list, and another one is still notified.
#[test]
fn a_cancelled_connect_leaves_the_room_to_the_others() {
    let stack = stack_with(|config| config.workers = 0);
    let to = unix::SocketAddr::from_abstract_name(b"given up").unwrap();
    let socket = UnixSocket::new_seqpacket(&stack);
    socket.bind(&to).unwrap();
    let listener = socket.listen_seqpacket(0).unwrap();
    let _first = UnixSeqpacket::connect_addr_on(&stack, &to).unwrap();
    let connect = || Box::pin(face::unix::UnixSeqpacket::connect_addr_on(&stack, &to));
    let (mut one, mut other) = (connect(), connect());
    let counts = [crate::Count::new(), crate::Count::new()];
    assert!(crate::poll(one.as_mut(), &counts[0].1).is_pending());
    assert!(crate::poll(other.as_mut(), &counts[1].1).is_pending());
    drop(one);
    drop(listener.accept().unwrap());
    assert_eq!((counts[0].0.get(), counts[1].0.get()), (0, 1));
    assert!(crate::poll(other.as_mut(), &counts[1].1).is_ready());
}
