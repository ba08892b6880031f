//! Rights in messages: which arrive, which are closed, and which the collector finds.
//!
//! Each test ends with nothing in flight and no byte of memory in use. The comparison with the kernel is in
//! `tests/unix/`.

use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::os::fd::AsFd;

use crate::common::settings::{Setting, UnixLocking};
use crate::common::{stack_with, watchdog};
use rustix::io::Errno;
use rustix::process::Uid;
use sockeye::unix::{
    IN_FLIGHT_MAX, MsgFlags, RIGHTS_MAX, RecvAncillary, Right, SendAncillary, SocketAddr, UCred,
    UnixDatagram, UnixListener, UnixSeqpacket, UnixSocket, UnixStream,
};
use sockeye::{Stack, TcpListener, TcpStream};

/// Runs `test` on a stack of each locking, which must be empty afterwards.
fn on_each(test: impl Fn(&Stack)) {
    for locking in UnixLocking::ALL {
        let stack = stack_with(|c| locking.set(c));
        test(&stack);
        assert_eq!(stack.unix_rights_in_flight(), 0, "{locking}");
        crate::common::assert_empty(&stack);
    }
}

fn pair(stack: &Stack) -> (UnixStream, UnixStream) {
    UnixStream::pair_on(stack).unwrap()
}

fn send(to: &UnixStream, bytes: &[u8], right: impl Into<Right>) {
    let mut ancillary = SendAncillary::new();
    ancillary.add_right(right);
    let sent = to.send_msg(&[IoSlice::new(bytes)], None, &mut ancillary, MsgFlags::NONE).unwrap();
    assert_eq!((sent, ancillary.is_empty()), (bytes.len(), true));
}

fn recv(from: &UnixStream, len: usize) -> (Vec<u8>, Vec<Right>, MsgFlags) {
    let (mut bytes, mut ancillary) = (vec![0; len], RecvAncillary::with_capacity(8));
    let message = from.recv_msg(&mut [IoSliceMut::new(&mut bytes)], &mut ancillary, MsgFlags::NONE).unwrap();
    bytes.truncate(message.bytes);
    (bytes, ancillary.take_rights(), message.flags)
}

/// That the other end of a pair has been closed.
fn assert_closed(mut end: &UnixStream) {
    end.set_nonblocking(true).unwrap();
    let read = end.read(&mut [0]);
    assert!(
        matches!(&read, Ok(0)) || read.as_ref().is_err_and(|e| e.raw_os_error() == Some(104)),
        "{read:?}"
    );
}

#[test]
fn every_kind_arrives_and_works() {
    let _guard = watchdog("every_kind_arrives_and_works");
    on_each(|stack| {
        let (a, b) = pair(stack);
        let (mut near, far) = pair(stack);
        send(&a, b"1", far);
        let (datagram, other) = UnixDatagram::pair_on(stack).unwrap();
        send(&a, b"2", datagram);
        let (packet, other_packet) = UnixSeqpacket::pair_on(stack).unwrap();
        send(&a, b"3", packet);
        let listener = UnixListener::bind_on(stack, "/l").unwrap();
        send(&a, b"4", listener);
        let tcp = TcpListener::bind_on(stack, "127.0.0.1:0").unwrap();
        let client = TcpStream::connect_on(stack, tcp.local_addr().unwrap()).unwrap();
        send(&a, b"5", tcp);
        send(&a, b"7", client);
        send(&a, b"6", std::fs::File::open("/dev/zero").unwrap().as_fd().try_clone_to_owned().unwrap());
        assert_eq!(stack.unix_rights_in_flight(), 7);
        let mut accepted = None;
        for expected in b"1234576" {
            let (bytes, mut rights, flags) = recv(&b, 10);
            assert_eq!((bytes, rights.len(), flags), (vec![*expected], 1, MsgFlags::NONE));
            match rights.remove(0) {
                Right::Stream(mut stream) => {
                    near.write_all(b"x").unwrap();
                    assert_eq!(stream.read(&mut [0]).unwrap(), 1);
                }
                Right::Datagram(datagram) => {
                    other.send(b"y").unwrap();
                    assert_eq!(datagram.recv(&mut [0]).unwrap(), 1);
                }
                Right::Seqpacket(packet) => {
                    other_packet.send(b"z").unwrap();
                    assert_eq!(packet.recv(&mut [0]).unwrap(), 1);
                }
                Right::Listener(listener) => {
                    let client = UnixStream::connect_on(stack, "/l").unwrap();
                    let (_, from) = listener.accept().unwrap();
                    assert!(from.is_unnamed() && client.peer_addr().unwrap().as_pathname().is_some());
                }
                right @ Right::Foreign(_) if *expected == b'5' => {
                    // It is a listener and nothing else, and so is its duplicate.
                    let right = TcpStream::try_from(right).unwrap_err();
                    let duplicate = TcpListener::try_from(right.try_clone().unwrap()).unwrap();
                    let tcp = TcpListener::try_from(right).unwrap();
                    assert_eq!(duplicate.local_addr().unwrap(), tcp.local_addr().unwrap());
                    accepted = Some(tcp.accept().unwrap().0);
                }
                right @ Right::Foreign(_) => {
                    let right = TcpListener::try_from(right).unwrap_err();
                    TcpStream::try_from(right).unwrap().write_all(b"w").unwrap();
                    assert_eq!(accepted.take().unwrap().read(&mut [0]).unwrap(), 1);
                }
                Right::Fd(fd) => {
                    let mut zero = [1];
                    rustix::io::read(&fd, &mut zero).unwrap();
                    assert_eq!(zero, [0]);
                }
                other => panic!("{other:?} was not sent"),
            }
        }
    });
}

#[test]
fn unread_rights_are_closed_with_the_socket_and_those_without_room_are_reported() {
    on_each(|stack| {
        let (a, b) = pair(stack);
        let (kept, sent) = pair(stack);
        let (kept_too, sent_too) = pair(stack);
        let mut both = SendAncillary::new();
        both.add_right(sent);
        both.add_right(sent_too);
        a.send_msg(&[IoSlice::new(b"x")], None, &mut both, MsgFlags::NONE).unwrap();
        let mut one = RecvAncillary::with_capacity(1);
        let message = b.recv_msg(&mut [IoSliceMut::new(&mut [0])], &mut one, MsgFlags::NONE).unwrap();
        assert_eq!((message.flags, one.rights().len()), (MsgFlags::CTRUNC, 1));
        assert_closed(&kept_too);
        drop(one);
        assert_closed(&kept);
        let (kept, sent) = pair(stack);
        send(&a, b"y", sent);
        drop(b);
        assert_closed(&kept);
    });
}

#[test]
fn too_many_rights_are_returned_to_the_sender() {
    let stack = crate::common::stack();
    let (a, b) = pair(&stack);
    let mut many = SendAncillary::new();
    (0..=RIGHTS_MAX).for_each(|_| many.add_right(pair(&stack).0));
    let error = a.send_msg(&[IoSlice::new(b"x")], None, &mut many, MsgFlags::NONE).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::INVAL.raw_os_error()));
    assert_eq!(many.rights().len(), RIGHTS_MAX + 1);
    let (receiver, full) = UnixDatagram::pair_on(&stack).unwrap();
    full.set_nonblocking(true).unwrap();
    full.set_send_buffer_size(1 << 20).unwrap();
    let mut in_flight = 0;
    let error = loop {
        let mut some = SendAncillary::new();
        (0..RIGHTS_MAX).for_each(|_| some.add_right(b.try_clone().unwrap()));
        match full.send_msg(&[], None, &mut some, MsgFlags::NONE) {
            Ok(_) => in_flight += RIGHTS_MAX,
            Err(error) => break error,
        }
    };
    assert_eq!(error.raw_os_error(), Some(Errno::TOOMANYREFS.raw_os_error()));
    assert!(in_flight <= IN_FLIGHT_MAX && in_flight + RIGHTS_MAX > IN_FLIGHT_MAX);
    drop((receiver, full));
    assert_eq!(stack.unix_rights_in_flight(), 0);
}

#[test]
fn a_socket_sent_through_itself_is_collected() {
    on_each(|stack| {
        let (a, b) = pair(stack);
        let (witness, lost) = pair(stack);
        // b is in b's own buffer, and with it the witness's peer.
        send(&a, b"w", lost);
        send(&a, b"b", b);
        assert_eq!(stack.unix_rights_in_flight(), 0);
        assert_closed(&witness);
        assert_closed(&a);
    });
}

#[test]
fn two_sockets_sent_through_each_other_are_collected_with_the_last_handle() {
    on_each(|stack| {
        let ((a, b), (c, d)) = (pair(stack), pair(stack));
        // b in d's buffer and d in b's: both still have a handle outside.
        send(&c, b"b", b.try_clone().unwrap());
        send(&a, b"d", d.try_clone().unwrap());
        drop(b);
        assert_eq!(stack.unix_rights_in_flight(), 2);
        // d's handle can still receive b, and b's buffer d.
        drop(d);
        assert_eq!(stack.unix_rights_in_flight(), 0);
        assert_closed(&a);
        assert_closed(&c);
    });
}

#[test]
fn sockets_held_by_a_live_socket_are_not_collected() {
    on_each(|stack| {
        let ((a, b), (c, d), (e, f)) = (pair(stack), pair(stack), pair(stack));
        // f holds d, d holds b, b holds d: f lives, so all do.
        send(&a, b"d", d.try_clone().unwrap());
        send(&c, b"b", b.try_clone().unwrap());
        send(&e, b"d", d);
        drop(b);
        assert_eq!(stack.unix_rights_in_flight(), 3);
        let (_, mut rights, _) = recv(&f, 1);
        let Right::Stream(d) = rights.remove(0) else { panic!("a stream was sent") };
        let (_, mut rights, _) = recv(&d, 1);
        assert!(matches!(rights.remove(0), Right::Stream(_)));
        drop(d);
    });
}

#[test]
fn a_listener_is_collected_with_the_connection_that_carries_it() {
    on_each(|stack| {
        let socket = UnixSocket::new_stream(stack);
        let name = SocketAddr::from_abstract_name("carried").unwrap();
        socket.bind(&name).unwrap();
        let listener = socket.listen(5).unwrap();
        drop(socket);
        let client = UnixStream::connect_addr_on(stack, &name).unwrap();
        send(&client, b"l", listener);
        assert_eq!(stack.unix_rights_in_flight(), 0);
        assert_closed(&client);
        let refused = UnixStream::connect_addr_on(stack, &name).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(Errno::CONNREFUSED.raw_os_error()));
    });
}

#[test]
fn a_long_chain_is_closed_without_a_deep_stack() {
    let _guard = watchdog("a_long_chain_is_closed_without_a_deep_stack");
    let stack = crate::common::stack();
    // Each socket is in the buffer of the next.
    let (_, mut last) = pair(&stack);
    for _ in 0..IN_FLIGHT_MAX - 200 {
        let (near, far) = pair(&stack);
        send(&near, b"x", last);
        last = far;
    }
    drop(last);
    assert_eq!(stack.unix_rights_in_flight(), 0);
    crate::common::assert_empty(&stack);
}

#[test]
fn a_peek_duplicates_and_a_barrier_ends_a_read_behind_rights() {
    on_each(|stack| {
        let (mut a, b) = pair(stack);
        let (witness, sent) = pair(stack);
        a.write_all(b"1234").unwrap();
        send(&a, b"5", sent);
        a.write_all(b"6789").unwrap();
        let mut peeked = RecvAncillary::with_capacity(2);
        let mut buf = [0; 20];
        let seen = b.recv_msg(&mut [IoSliceMut::new(&mut buf)], &mut peeked, MsgFlags::PEEK).unwrap();
        assert_eq!((seen.bytes, peeked.rights().len()), (5, 1));
        let (bytes, rights, _) = recv(&b, 20);
        assert_eq!((&bytes[..], rights.len()), (&b"12345"[..], 1));
        let (bytes, none, _) = recv(&b, 20);
        assert_eq!((&bytes[..], none.len()), (&b"6789"[..], 0));
        drop(rights);
        witness.set_nonblocking(true).unwrap();
        assert_eq!((&witness).read(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
        drop(peeked);
        assert_closed(&witness);
    });
}

/// One thread peeks for more than there is, another takes the bytes that it saw, and then rights arrive, before the position
/// where the peek continues.
#[test]
fn a_peek_ends_at_rights_whose_preceding_bytes_were_taken_by_others() {
    let _guard = watchdog("a_peek_ends_at_rights_whose_preceding_bytes_were_taken_by_others");
    on_each(|stack| {
        let (a, b) = pair(stack);
        (&a).write_all(&[1; 10]).unwrap();
        let (send_id, id) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let b = &b;
            let peeking = scope.spawn(move || {
                send_id.send(rustix::thread::gettid().as_raw_nonzero()).unwrap();
                let (mut bytes, mut ancillary) = ([0; 100], RecvAncillary::with_capacity(8));
                let flags = MsgFlags::PEEK.with(MsgFlags::WAITALL);
                b.recv_msg(&mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags).map(|seen| seen.bytes)
            });
            let stat = format!("/proc/self/task/{}/stat", id.recv().unwrap());
            crate::common::eventually("the thread sleeps", || {
                let stat = std::fs::read_to_string(&stat).unwrap_or_default();
                peeking.is_finished() || stat.rsplit(") ").next().is_some_and(|state| state.starts_with('S'))
            });
            assert_eq!(recv(b, 10).0, [1; 10]);
            send(&a, &[2; 5], pair(stack).0);
            (&a).write_all(&[3; 20]).unwrap();
            assert_eq!(peeking.join().unwrap().unwrap(), 10);
        });
        let (bytes, rights, _) = recv(&b, 100);
        assert_eq!((bytes, rights.len()), (vec![2; 5], 1));
        assert_eq!(recv(&b, 100).0, [3; 20]);
    });
}

#[test]
fn a_file_descriptor_arrives_and_is_the_same_file() {
    on_each(|stack| {
        let (a, b) = pair(stack);
        let (reader, mut writer) = std::io::pipe().unwrap();
        let mut ancillary = SendAncillary::new();
        ancillary.add_fd(reader.into());
        a.send_msg(&[IoSlice::new(b"1")], None, &mut ancillary, MsgFlags::NONE).unwrap();
        let (_, rights, _) = recv(&b, 8);
        let [Right::Fd(fd)] = &rights[..] else { panic!("{rights:?}") };
        writer.write_all(b"through it").unwrap();
        let mut bytes = [0; 10];
        rustix::io::read(fd, &mut bytes).unwrap();
        assert_eq!(&bytes, b"through it");
    });
}

#[test]
fn only_root_sends_the_credentials_of_others() {
    on_each(|stack| {
        let (a, b) = pair(stack);
        let others = UCred { uid: 4711, ..a.peer_cred().unwrap() };
        let send = || {
            let mut ancillary = SendAncillary::new();
            ancillary.set_credentials(others);
            let sent = a.send_msg(&[IoSlice::new(b"1")], None, &mut ancillary, MsgFlags::NONE);
            (sent, ancillary.is_empty())
        };
        if rustix::process::geteuid().is_root() {
            b.set_passcred(true).unwrap();
            assert_eq!(send().0.unwrap(), 1);
            let (mut byte, mut ancillary) = ([0], RecvAncillary::with_capacity(1));
            b.recv_msg(&mut [IoSliceMut::new(&mut byte)], &mut ancillary, MsgFlags::NONE).unwrap();
            assert_eq!(ancillary.credentials(), Some(others));
        }
        // A thread of its own, since on Linux each has a user.
        let refused = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                if rustix::process::geteuid().is_root() {
                    let nobody = Uid::from_raw(65534);
                    // In a namespace of users that has no other there is nobody else to be.
                    rustix::thread::set_thread_res_uid(nobody, nobody, nobody).ok()?;
                }
                Some(send())
            });
            thread.join().unwrap()
        });
        let Some(refused) = refused else {
            eprintln!("skipped: this namespace of users has no user 65534");
            return;
        };
        assert_eq!(refused.0.unwrap_err().raw_os_error(), Some(Errno::PERM.raw_os_error()));
        assert!(!refused.1, "they are still there");
    });
}
