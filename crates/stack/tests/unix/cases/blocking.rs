//! Calls that wait, and the events that end the wait. Whether the event happens before or after the call has begun
//! to wait must not change the answers.

use std::time::Duration;

use crate::compare::cases;
use crate::provider::{Answer, CONNECTED, Direction, Flags, KINDS, Kind, Name, Provider, Side, hidden};
use crate::script::{NO_FLAGS, Run, receives, sends};

const WAIT_ALL: Flags = Flags { wait_all: true, ..NO_FLAGS };

fn reads<P: Provider>(provider: &P, socket: &P::Socket) -> Answer<String> {
    receives(provider, socket, 8, NO_FLAGS)
}

fn writes<P: Provider>(provider: &P, socket: &P::Socket) -> Answer<String> {
    sends(provider, socket, &[b'x'; CHUNK])
}

fn accepts<P: Provider>(provider: &P, socket: &P::Socket) -> Answer<String> {
    provider.accept(socket).map(|_| "accepted".to_owned())
}

/// A listener that blocks, with room for one in its backlog.
fn small_listener<P: Provider>(r: &mut Run<P>, kind: Kind, at: &Name) {
    r.socket(kind, "listener");
    r.bind("listener", at);
    r.listen("listener", 0);
    r.socket(kind, "first");
    r.socket(kind, "second");
}

fn a_reader_is_woken_by_data<P: Provider>(r: &mut Run<P>) {
    for kind in KINDS {
        r.pair(kind, "a", "b");
        r.meanwhile("recv", "b", reads, |r| r.send("a", b"data"));
    }
}

fn a_reader_is_woken_by_the_end<P: Provider>(r: &mut Run<P>) {
    for kind in CONNECTED {
        for (end, side) in [("a", Side::Write), ("a", Side::Both), ("b", Side::Read), ("b", Side::Both)] {
            r.pair(kind, "a", "b");
            r.meanwhile("recv", "b", reads, |r| r.shutdown(end, side));
        }
        r.pair(kind, "a", "b");
        r.meanwhile("recv", "b", reads, |r| r.close("a"));
        r.pair(kind, "a", "b");
        r.send("b", b"never read");
        r.meanwhile("recv", "b", reads, |r| r.close("a"));
    }
}

fn a_datagram_reader_is_woken_by_its_own_shutdown<P: Provider>(r: &mut Run<P>) {
    for side in [Side::Read, Side::Both] {
        r.pair(Kind::Datagram, "a", "b");
        r.meanwhile("recv", "b", reads, |r| r.shutdown("b", side));
    }
}

fn a_peeker_is_woken_and_takes_nothing<P: Provider>(r: &mut Run<P>) {
    let peek = Flags { peek: true, ..NO_FLAGS };
    for kind in KINDS {
        r.pair(kind, "a", "b");
        r.meanwhile("peek", "b", move |p, s| receives(p, s, 8, peek), |r| r.send("a", b"data"));
        r.recv("b", 8);
    }
}

fn a_writer_is_woken_by_a_reader<P: Provider>(r: &mut Run<P>) {
    for kind in KINDS {
        r.pair(kind, "a", "b");
        let there = r.fill("a", CHUNK);
        r.meanwhile("send", "a", writes, |r| {
            for _ in 0..there {
                r.silently_recv("b", CHUNK);
            }
        });
    }
}

fn a_writer_is_woken_by_the_end<P: Provider>(r: &mut Run<P>) {
    for kind in CONNECTED {
        for side in [Side::Read, Side::Both] {
            r.pair(kind, "a", "b");
            r.fill("a", CHUNK);
            r.meanwhile("send", "a", writes, |r| r.shutdown("b", side));
        }
        r.pair(kind, "a", "b");
        r.fill("a", CHUNK);
        // A waiting writer gets ECONNRESET there, and a later one EPIPE: either is accepted.
        r.meanwhile("send", "a", |p, s| Ok(format!("refused: {}", writes(p, s).is_err())), |r| r.close("b"));
    }
}

fn a_datagram_writer_is_woken_when_its_receiver_closes<P: Provider>(r: &mut Run<P>) {
    r.pair(Kind::Datagram, "a", "b");
    r.fill("a", CHUNK);
    r.meanwhile("send", "a", writes, |r| r.close("b"));
}

fn a_large_write_waits_for_a_slow_reader<P: Provider>(r: &mut Run<P>) {
    const LARGE: usize = 3 << 20;
    r.pair(Kind::Stream, "a", "b");
    r.meanwhile(
        "send of 3 MiB",
        "a",
        |p, s| sends(p, s, &vec![b'z'; LARGE]),
        |r| {
            let room =
                crate::provider::Room { data: LARGE, flags: WAIT_ALL, ..crate::script::NOTHING_BUT_DATA };
            r.recv_with("b", room, &[]);
        },
    );
}

fn wait_all_waits_for_all<P: Provider>(r: &mut Run<P>) {
    let all = |p: &P, s: &P::Socket| receives(p, s, 9, WAIT_ALL);
    r.pair(Kind::Stream, "a", "b");
    r.meanwhile("recv of 9 bytes", "b", all, |r| {
        for part in [b"abc", b"def", b"ghi"] {
            r.send("a", part);
            std::thread::sleep(Duration::from_millis(2));
        }
    });
    r.meanwhile("recv of 9 bytes", "b", all, |r| {
        r.send("a", b"jkl");
        r.shutdown("a", Side::Write);
    });
}

fn an_acceptor_is_woken_by_a_client<P: Provider>(r: &mut Run<P>) {
    for kind in CONNECTED {
        let at = hidden(&format!("{kind:?}"));
        small_listener(r, kind, &at);
        r.meanwhile("accept", "listener", accepts, |r| r.connect("first", &at));
    }
}

fn an_acceptor_is_woken_by_its_listeners_shutdown<P: Provider>(r: &mut Run<P>) {
    for kind in CONNECTED {
        small_listener(r, kind, &hidden(&format!("{kind:?}")));
        r.meanwhile("accept", "listener", accepts, |r| r.shutdown("listener", Side::Both));
    }
}

fn a_client_waits_for_room_in_the_backlog<P: Provider>(r: &mut Run<P>) {
    for kind in CONNECTED {
        let at = hidden(&format!("{kind:?}"));
        small_listener(r, kind, &at);
        r.connect("first", &at);
        let to = at.clone();
        r.meanwhile(
            "connect",
            "second",
            move |p, s| p.connect(s, &to).map(|()| "connected".to_owned()),
            |r| r.accept("listener", "server"),
        );
        r.names("second");
    }
}

fn a_waiting_client_is_refused_when_the_listener_closes<P: Provider>(r: &mut Run<P>) {
    for kind in CONNECTED {
        let at = hidden(&format!("{kind:?}"));
        small_listener(r, kind, &at);
        r.connect("first", &at);
        r.meanwhile(
            "connect",
            "second",
            move |p, s| p.connect(s, &at).map(|()| "connected".to_owned()),
            |r| r.close("listener"),
        );
    }
}

fn a_client_waits_no_longer_than_its_timeout<P: Provider>(r: &mut Run<P>) {
    for kind in CONNECTED {
        let at = hidden(&format!("{kind:?}"));
        small_listener(r, kind, &at);
        r.connect("first", &at);
        r.timeout("second", Direction::Send, Duration::from_millis(5));
        r.connect("second", &at);
        r.accept("listener", "server");
        r.connect("second", &at);
    }
}

fn an_acceptor_waits_no_longer_than_its_timeout<P: Provider>(r: &mut Run<P>) {
    small_listener(r, Kind::Stream, &hidden("server"));
    r.timeout("listener", Direction::Receive, Duration::from_millis(5));
    r.accept("listener", "nobody");
}

cases!(
    a_reader_is_woken_by_data,
    a_reader_is_woken_by_the_end,
    a_datagram_reader_is_woken_by_its_own_shutdown,
    a_peeker_is_woken_and_takes_nothing,
    a_writer_is_woken_by_a_reader,
    a_writer_is_woken_by_the_end,
    a_datagram_writer_is_woken_when_its_receiver_closes,
    a_large_write_waits_for_a_slow_reader,
    wait_all_waits_for_all,
    an_acceptor_is_woken_by_a_client,
    an_acceptor_is_woken_by_its_listeners_shutdown,
    a_client_waits_for_room_in_the_backlog,
    a_waiting_client_is_refused_when_the_listener_closes,
    a_client_waits_no_longer_than_its_timeout,
    an_acceptor_waits_no_longer_than_its_timeout,
);

/// Bytes of a write here.
const CHUNK: usize = 1000;
