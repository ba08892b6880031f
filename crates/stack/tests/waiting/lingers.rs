//! A thread that closes with SO_LINGER waits until its sent data is acknowledged, or never can be.

use std::io::Write;
use std::sync::Mutex;
use std::task::{Context, Poll};
use std::time::Duration;

use sockeye::poll::{self, Trigger};
use sockeye::{TcpSocket, TcpStream};

use crate::host::THEIRS;
use crate::in_time;
use crate::matrix::{Case, Kind, Setting, check, setting};
use crate::peer::{Peer, ack, reset, syn_ack};
use crate::subjects::{Future1, Subject};

/// Longer than any test.
const FOR_EVER: Duration = Duration::from_secs(3600);

const CASES: [Case; 5] = [
    closing("close: the last acknowledgment", || lingering(|peer| peer.react(ack))),
    closing("close: RST", || lingering(|peer| peer.react(reset))),
    closing("close: device gone", || lingering(Peer::unplug)),
    closing("close: no answer", || lingering(|peer| drop(peer.host().pass(Duration::from_secs(600))))),
    closing("close: user timeout", || {
        lingering_with(
            |stream| stream.set_user_timeout(Some(Duration::from_secs(1))).unwrap(),
            |peer| {
                drop(peer.host().pass(Duration::from_secs(3)));
            },
        )
    }),
];

const fn closing(name: &'static str, make: fn() -> Setting) -> Case {
    Case { name, kinds: &[Kind::Thread], make }
}

#[test]
fn a_lingering_close_is_notified_of_every_event_that_ends_it() {
    check(&CASES);
}

#[test]
fn lingering_ends_with_its_time() {
    in_time(|| {
        let peer = Peer::new();
        let stream = established(&peer);
        stream.set_linger(Some(Duration::from_millis(1))).unwrap();
        drop(stream);
        assert_eq!(peer.host().stack.connection_count(), 1, "the written bytes are still in flight");
    });
}

/// A stream with bytes on their way.
struct Closes(Mutex<Option<TcpStream>>);

impl Subject for Closes {
    fn block(&self) {
        let stream = self.0.lock().unwrap().take();
        drop(stream);
    }
    fn poll(&self, _cx: &mut Context<'_>) -> Option<Poll<()>> {
        None
    }
    fn wait(&self) -> Future1<'_> {
        unreachable!("only threads linger")
    }
    fn register(&self, _poll: &poll::Poll, _trigger: Trigger) {
        unreachable!("only threads linger")
    }
}

/// An established stream with ten segments on their way to the peer.
fn established(peer: &Peer) -> TcpStream {
    let mut socket = TcpSocket::new_v4(&peer.host().stack);
    socket.set_nonblocking(true);
    let stream = socket.connect(format!("{}:9", THEIRS[0]).parse().unwrap()).unwrap();
    peer.react(syn_ack);
    stream.set_nonblocking(false).unwrap();
    (&stream).write_all(&[7; 14_600]).unwrap();
    stream
}

fn lingering(end: fn(&Peer)) -> Setting {
    lingering_with(|_| {}, end)
}

fn lingering_with(change: fn(&TcpStream), end: fn(&Peer)) -> Setting {
    let peer = Peer::with(|config| config.tcp.retries = 3);
    let stream = established(&peer);
    change(&stream);
    stream.set_linger(Some(FOR_EVER)).unwrap();
    let own = peer.clone();
    setting(Closes(Mutex::new(Some(stream))), move || end(&peer), own)
}
