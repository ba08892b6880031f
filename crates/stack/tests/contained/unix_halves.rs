//! Panics in the middle of a UNIX call: half-made connections, half-queued datagrams, rights held by the call.

use std::io::{Error, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

use crate::common::settings::{Setting, UnixLocking};
use rustix::io::Errno;
use sockeye::Stack;
use sockeye::failpoints::arm;
use sockeye::tokio as face;
use sockeye::unix::{
    MsgFlags, RecvAncillary, SendAncillary, SocketAddr, UnixDatagram, UnixListener, UnixSeqpacket,
    UnixSocket, UnixStream,
};
use tokio::io::{AsyncRead, ReadBuf};

use crate::common;
use crate::unix::{is_panic, pass};
use crate::world::{Medium, World, asleep_in};

/// Runs `test` with each locking. It returns the number of panics that it injected.
fn on_each(what: &'static str, test: impl Fn(&Stack) -> u64) {
    let _turn = crate::turn();
    let _guard = common::watchdog(what);
    for locking in UnixLocking::ALL {
        let world = World::new(Medium::Loopback, |c| {
            c.workers = 1;
            locking.set(c);
        });
        let stack = world.stacks[0].clone();
        let panics = test(&stack);
        assert_eq!((stack.unix_sockets().len(), stack.unix_rights_in_flight()), (0, 0), "{locking}");
        drop(stack);
        world.end(panics);
    }
}

fn is_errno(error: &Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}

/// A listener with room for one connection, and its name.
fn narrow(stack: &Stack) -> (UnixListener, SocketAddr) {
    let addr = SocketAddr::from_abstract_name("narrow").unwrap();
    let listener = UnixListener::bind_addr_on(stack, &addr).unwrap();
    listener.set_backlog(0).unwrap();
    (listener, addr)
}

#[test]
fn a_unix_connect_that_panics_leaves_client_and_backlog_as_they_were() {
    on_each("UNIX connects that panic", |stack| {
        let (listener, addr) = narrow(stack);
        let points = ["unix.connect", "unix.tell", "unix.queued"];
        for point in points {
            let socket = UnixSocket::new_stream(stack);
            socket.set_nonblocking(true).unwrap();
            arm(point, 0, 1, 0);
            is_panic(&socket.connect(&addr).unwrap_err());
            listener.set_nonblocking(true).unwrap();
            assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "{point}");
            // The only place is free.
            let mut client = socket.connect(&addr).unwrap_or_else(|error| panic!("{point}: {error}"));
            let mut server = listener.accept().unwrap().0;
            client.write_all(b"x").unwrap();
            server.read_exact(&mut [0]).unwrap();
            drop((client, socket));
            assert_eq!(server.read(&mut [0]).unwrap(), 0, "{point}");
        }
        points.len() as u64
    });
}

#[test]
fn a_waiting_accept_gets_no_half_made_connection() {
    on_each("a UNIX connect that panics before one that waits in accept", |stack| {
        for point in ["unix.connect", "unix.tell", "unix.queued"] {
            let (listener, addr) = narrow(stack);
            let server = asleep_in(move || {
                loop {
                    // One that is taken before it can be taken back is reset.
                    let (mut server, _) = listener.accept().unwrap();
                    match server.read(&mut [0]) {
                        Ok(1) => return,
                        Ok(_) => panic!("a connection that was not made"),
                        Err(error) => assert!(is_errno(&error, Errno::CONNRESET), "{error}"),
                    }
                }
            });
            arm(point, 0, 1, 0);
            is_panic(&UnixStream::connect_addr_on(stack, &addr).unwrap_err());
            let mut client = UnixStream::connect_addr_on(stack, &addr).unwrap();
            client.write_all(b"x").unwrap();
            common::join(server);
        }
        3
    });
}

/// Calls a closure when it is woken.
struct Calls<F>(F);

impl<F: Fn() + Send + Sync + 'static> Wake for Calls<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

fn waker(f: impl Fn() + Send + Sync + 'static) -> Waker {
    Waker::from(Arc::new(Calls(f)))
}

#[test]
fn a_connection_that_is_accepted_before_its_connect_panics_is_reset() {
    on_each("a UNIX connect that panics after its connection was accepted", |stack| {
        let (listener, addr) = narrow(stack);
        let copy = listener.try_clone().unwrap();
        let task = face::unix::UnixListener::from_std(listener).unwrap();
        let accepted: Arc<Mutex<Option<UnixStream>>> = Arc::default();
        let place = Arc::clone(&accepted);
        // It is called in the connect, which has queued the connection by then.
        let waker = waker(move || *place.lock().unwrap() = copy.accept().ok().map(|(server, _)| server));
        assert!(task.poll_accept(&mut Context::from_waker(&waker)).is_pending());
        let socket = UnixSocket::new_stream(stack);
        arm("unix.queued", 0, 1, 0);
        is_panic(&socket.connect(&addr).unwrap_err());
        let mut server = accepted.lock().unwrap().take().expect("it was accepted");
        server.set_nonblocking(true).unwrap();
        assert!(is_errno(&server.read(&mut [0]).unwrap_err(), Errno::CONNRESET));
        assert_eq!(server.read(&mut [0]).unwrap(), 0);
        assert!(is_errno(&socket.connect(&addr).unwrap_err(), Errno::ISCONN));
        1
    });
}

#[test]
fn a_disconnect_that_panics_still_disconnects() {
    on_each("a UNIX disconnect that panics", |stack| {
        let (own, peer) = UnixDatagram::pair_on(stack).unwrap();
        peer.send(b"never received").unwrap();
        arm("unix.disconnect", 0, 1, 0);
        is_panic(&own.disconnect().unwrap_err());
        assert_eq!(own.send(b"x").unwrap_err().kind(), ErrorKind::NotConnected);
        own.set_nonblocking(true).unwrap();
        assert_eq!(own.recv(&mut [0; 20]).unwrap_err().kind(), ErrorKind::WouldBlock);
        // The peer is notified, as always.
        assert!(is_errno(&peer.recv(&mut [0]).unwrap_err(), Errno::CONNRESET));
        own.disconnect().unwrap();
        let (other, last) = UnixDatagram::pair_on(stack).unwrap();
        pass(&other, &last);
        1
    });
}

#[test]
fn an_unlink_that_panics_leaves_the_name() {
    on_each("a UNIX unlink that panics", |stack| {
        let socket = UnixDatagram::bind_on(stack, "/run/name").unwrap();
        arm("unix.unlink", 0, 1, 0);
        is_panic(&stack.unix_unlink("/run/name").unwrap_err());
        let sender = UnixDatagram::unbound_on(stack).unwrap();
        sender.send_to(b"hello", "/run/name").unwrap();
        assert_eq!(socket.recv(&mut [0; 9]).unwrap(), 5);
        stack.unix_unlink("/run/name").unwrap();
        assert_eq!(sender.send_to(b"x", "/run/name").unwrap_err().kind(), ErrorKind::NotFound);
        1
    });
}

#[test]
fn a_datagram_that_is_half_queued_is_lost_and_the_others_are_not() {
    on_each("datagrams that are half queued", |stack| {
        let (own, peer) = UnixDatagram::pair_on(stack).unwrap();
        let lens = [5, 50_000];
        for len in lens {
            own.send(b"first").unwrap();
            arm("unix.record", 0, 1, 0);
            is_panic(&own.send(&vec![2; len]).unwrap_err());
            own.send(b"third").unwrap();
            let mut got = [0; 9];
            for expected in [b"first", b"third"] {
                assert_eq!(peer.recv(&mut got).unwrap(), 5);
                assert_eq!(&got[..5], expected);
            }
            pass(&own, &peer);
        }
        lens.len() as u64
    });
}

#[test]
fn a_panic_between_bytes_and_record_of_a_receive_loses_the_queue_and_reports_it() {
    on_each("datagrams that are half received", |stack| {
        let lens = [100, 50_000];
        for len in lens {
            let (sender, receiver) = UnixDatagram::pair_on(stack).unwrap();
            sender.set_nonblocking(true).unwrap();
            while sender.send(&vec![1; len]).is_ok() {}
            sender.set_nonblocking(false).unwrap();
            let copy = sender.try_clone().unwrap();
            let waits = asleep_in(move || copy.send(&vec![2; len]));
            arm("unix.record", 0, 1, 0);
            is_panic(&receiver.recv(&mut vec![0; len]).unwrap_err());
            assert_eq!(common::join(waits).unwrap(), len);
            is_panic(&receiver.recv(&mut vec![0; len]).unwrap_err());
            let mut got = vec![0; len];
            assert_eq!(receiver.recv(&mut got).unwrap(), len);
            assert_eq!(got, vec![2; len]);
            pass(&sender, &receiver);
        }
        lens.len() as u64
    });
}

#[test]
fn a_panic_leaves_no_half_changed_stream() {
    on_each("a stream whose reader looks while its writer's panic unwinds", |stack| {
        // With the second, the reader is noted before the panic, and looks before the call ends.
        let cases = [("unix.send", 1), ("unix.send", 100_000), ("unix.tell", 1), ("unix.tell", 100_000)];
        for (point, len) in cases {
            let (mut own, peer) = UnixStream::pair_on(stack).unwrap();
            peer.set_nonblocking(true).unwrap();
            let (copy, seen) = (peer.try_clone().unwrap(), Arc::new(Mutex::new(None)));
            let note = Arc::clone(&seen);
            let waker = waker(move || {
                let read = (&copy).read(&mut [0; 4]).map_err(|error| error.raw_os_error());
                note.lock().unwrap().get_or_insert(read);
            });
            let mut task = face::unix::UnixStream::from_std(peer).unwrap();
            let (mut cx, mut buf) = (Context::from_waker(&waker), [0; 4]);
            assert!(Pin::new(&mut task).poll_read(&mut cx, &mut ReadBuf::new(&mut buf)).is_pending());
            arm(point, 0, 1, 0);
            is_panic(&own.write(&vec![1; len]).unwrap_err());
            assert_eq!(
                *seen.lock().unwrap(),
                Some(Err(Some(Errno::CONNRESET.raw_os_error()))),
                "{point} {len}"
            );
        }
        cases.len() as u64
    });
}

/// The kind of message that carries the rights.
enum Carriers {
    Stream(UnixStream, UnixStream),
    Packets(UnixSeqpacket, UnixSeqpacket),
    Datagrams(UnixDatagram, UnixDatagram),
}

impl Carriers {
    fn all(stack: &Stack) -> [Self; 3] {
        let (a, b) = UnixStream::pair_on(stack).unwrap();
        let (c, d) = UnixSeqpacket::pair_on(stack).unwrap();
        let (e, f) = UnixDatagram::pair_on(stack).unwrap();
        [Self::Stream(a, b), Self::Packets(c, d), Self::Datagrams(e, f)]
    }

    /// The point at which a send has put bytes into the buffer.
    fn point(&self) -> &'static str {
        match self {
            Self::Stream(..) => "unix.send",
            Self::Packets(..) | Self::Datagrams(..) => "unix.record",
        }
    }

    fn send(&self, ancillary: &mut SendAncillary) -> std::io::Result<usize> {
        let bytes = [IoSlice::new(b"rights")];
        match self {
            Self::Stream(from, _) => from.send_msg(&bytes, None, ancillary, MsgFlags::NONE),
            Self::Packets(from, _) => from.send_msg(&bytes, None, ancillary, MsgFlags::NONE),
            Self::Datagrams(from, _) => from.send_msg(&bytes, None, ancillary, MsgFlags::NONE),
        }
    }

    fn recv(&self, ancillary: &mut RecvAncillary) -> std::io::Result<usize> {
        let mut bytes = [0; 20];
        let bufs = &mut [IoSliceMut::new(&mut bytes)];
        let message = match self {
            Self::Stream(_, to) => to.recv_msg(bufs, ancillary, MsgFlags::NONE),
            Self::Packets(_, to) => to.recv_msg(bufs, ancillary, MsgFlags::NONE),
            Self::Datagrams(_, to) => to.recv_msg(bufs, ancillary, MsgFlags::NONE),
        };
        message.map(|message| message.bytes)
    }

    /// Both ends of a connection have ended; datagrams still pass.
    fn is_as_it_should(&self) {
        match self {
            Self::Stream(own, peer) => {
                for mut end in [own, peer] {
                    end.set_nonblocking(true).unwrap();
                    let error = end.read(&mut [0]).unwrap_err();
                    assert!(is_errno(&error, Errno::IO) || is_errno(&error, Errno::CONNRESET), "{error}");
                    assert_eq!(end.read(&mut [0]).unwrap(), 0);
                    assert_eq!(end.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
                }
            }
            Self::Packets(own, peer) => {
                for end in [own, peer] {
                    end.set_nonblocking(true).unwrap();
                    let error = end.recv(&mut [0]).unwrap_err();
                    assert!(is_errno(&error, Errno::IO) || is_errno(&error, Errno::CONNRESET), "{error}");
                    assert_eq!(end.send(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
                }
            }
            Self::Datagrams(own, peer) => {
                peer.set_nonblocking(true).unwrap();
                let rest = peer.recv(&mut [0]).unwrap_err();
                assert_eq!(rest.kind(), ErrorKind::WouldBlock);
                peer.set_nonblocking(false).unwrap();
                pass(own, peer);
            }
        }
    }
}

#[test]
fn rights_held_by_a_call_that_panics_are_closed() {
    on_each("rights and panics", |stack| {
        let mut panics = 0;
        for is_receive in [false, true] {
            for carriers in Carriers::all(stack) {
                let (given, kept) = UnixStream::pair_on(stack).unwrap();
                let mut ancillary = SendAncillary::new();
                ancillary.add_right(given);
                if is_receive {
                    carriers.send(&mut ancillary).unwrap();
                    assert_eq!(stack.unix_rights_in_flight(), 1);
                    arm("unix.rights", 0, 1, 0);
                    is_panic(&carriers.recv(&mut RecvAncillary::with_capacity(4)).unwrap_err());
                } else {
                    arm(carriers.point(), 0, 1, 0);
                    is_panic(&carriers.send(&mut ancillary).unwrap_err());
                    assert!(ancillary.is_empty());
                }
                panics += 1;
                assert_eq!(stack.unix_rights_in_flight(), 0);
                assert_eq!((&kept).read(&mut [0]).unwrap(), 0, "its other end is closed");
                carriers.is_as_it_should();
            }
        }
        panics
    });
}

#[test]
fn rights_that_were_queued_before_a_panic_arrive_with_their_datagram() {
    on_each("rights that were queued before a panic", |stack| {
        let (from, to) = UnixDatagram::pair_on(stack).unwrap();
        let carriers = Carriers::Datagrams(from, to);
        let (given, mut kept) = UnixStream::pair_on(stack).unwrap();
        let mut ancillary = SendAncillary::new();
        ancillary.add_right(given);
        arm("unix.tell", 0, 1, 0);
        is_panic(&carriers.send(&mut ancillary).unwrap_err());
        let mut got = RecvAncillary::with_capacity(4);
        assert_eq!(carriers.recv(&mut got).unwrap(), 6);
        assert_eq!(got.rights().len(), 1);
        drop(got);
        assert_eq!(kept.read(&mut [0]).unwrap(), 0);
        carriers.is_as_it_should();
        1
    });
}
