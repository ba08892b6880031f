//! Every way in which a connection can end, and every call that can then be made on both ends.

use crate::compare::cases;
use crate::provider::{CONNECTED, Kind, Provider, Side, path};
use crate::script::Run;

/// Actions of an end before the other closes, and how an end closes.
#[derive(Clone, Copy, Debug)]
enum Act {
    Nothing,
    Writes,
    Shuts(Side),
    WritesAndShuts(Side),
    Closes,
}

const BEFORE: [Act; 6] = [
    Act::Nothing,
    Act::Writes,
    Act::Shuts(Side::Write),
    Act::Shuts(Side::Read),
    Act::Shuts(Side::Both),
    Act::WritesAndShuts(Side::Write),
];
const LEAVING: [Act; 7] = [
    Act::Nothing,
    Act::Writes,
    Act::Shuts(Side::Write),
    Act::Shuts(Side::Read),
    Act::Shuts(Side::Both),
    Act::WritesAndShuts(Side::Both),
    Act::Closes,
];

fn act<P: Provider>(r: &mut Run<P>, who: &str, act: Act) {
    match act {
        Act::Nothing => {}
        Act::Writes => r.send(who, b"hello"),
        Act::Shuts(side) => r.shutdown(who, side),
        Act::WritesAndShuts(side) => {
            r.send(who, b"hello");
            r.shutdown(who, side);
        }
        Act::Closes => r.close(who),
    }
}

/// Everything that one can ask of an end, in an order that takes nothing away too early.
fn interview<P: Provider>(r: &mut Run<P>, who: &str) {
    r.look(who);
    r.peek(who, 3);
    for _ in 0..3 {
        r.recv(who, 3);
    }
    for _ in 0..2 {
        r.send(who, b"abc");
    }
    r.recv(who, 8);
    r.take_error(who);
    r.names(who);
    r.look(who);
    r.shutdown(who, Side::Write);
    r.look(who);
}

/// One end prepares, the other prepares and leaves; both are interviewed.
fn come_apart<P: Provider>(r: &mut Run<P>, kind: Kind) {
    for mine in BEFORE {
        for its in BEFORE {
            for leaving in LEAVING {
                r.note("combination", (mine, its, leaving));
                r.quiet_pair(kind, "here", "there");
                act(r, "here", mine);
                act(r, "there", its);
                act(r, "there", leaving);
                interview(r, "here");
                interview(r, "there");
            }
        }
    }
}

fn every_way_of_closing_stream_ends<P: Provider>(r: &mut Run<P>) {
    come_apart(r, Kind::Stream);
}

fn every_way_of_closing_seqpacket_ends<P: Provider>(r: &mut Run<P>) {
    come_apart(r, Kind::Seqpacket);
}

fn every_way_of_closing_datagram_ends<P: Provider>(r: &mut Run<P>) {
    come_apart(r, Kind::Datagram);
}

fn closing_with_unread_data_resets<P: Provider>(r: &mut Run<P>) {
    for kind in CONNECTED {
        r.quiet_pair(kind, "a", "b");
        r.send("a", b"never read");
        r.close("b");
        r.look("a");
        r.recv("a", 8);
        r.recv("a", 8);
        r.send("a", b"x");

        r.quiet_pair(kind, "a", "b");
        r.send("a", b"never read");
        r.send("b", b"for a");
        r.close("b");
        r.send("a", b"x");
        r.recv("a", 8);
        r.recv("a", 8);
        r.recv("a", 8);

        r.quiet_pair(kind, "a", "b");
        r.send("a", b"never read");
        r.close("b");
        r.take_error("a");
        r.take_error("a");
        r.recv("a", 8);
    }
}

fn a_part_that_was_read_does_not_count<P: Provider>(r: &mut Run<P>) {
    for kind in CONNECTED {
        r.quiet_pair(kind, "a", "b");
        r.send("a", b"abcdef");
        r.recv("b", 3);
        r.close("b");
        r.recv("a", 8);
        r.recv("a", 8);

        r.quiet_pair(kind, "a", "b");
        r.send("a", b"abcdef");
        r.recv("b", 6);
        r.close("b");
        r.recv("a", 8);
    }
}

fn shutdown_of_an_unconnected_socket<P: Provider>(r: &mut Run<P>) {
    for kind in CONNECTED {
        r.socket(kind, "a");
        r.nonblocking("a");
        for side in [Side::Read, Side::Write, Side::Both] {
            r.shutdown("a", side);
        }
        r.poll("a");
    }
}

fn shutdown_of_a_listener<P: Provider>(r: &mut Run<P>) {
    for side in [Side::Read, Side::Write, Side::Both] {
        let at = path(&format!("{side:?}"));
        r.listener(Kind::Stream, "listener", &at, 2);
        r.socket(Kind::Stream, "early");
        r.connect("early", &at);
        r.shutdown("listener", side);
        r.poll("listener");
        r.socket(Kind::Stream, "late");
        r.nonblocking("late");
        r.connect("late", &at);
        r.accept("listener", "one");
        r.accept("listener", "two");
        r.poll("listener");
        r.nonblocking("early");
        r.look("early");
        r.send("early", b"x");
    }
}

fn shutting_twice<P: Provider>(r: &mut Run<P>) {
    for kind in CONNECTED {
        r.quiet_pair(kind, "a", "b");
        for side in [Side::Write, Side::Write, Side::Read, Side::Both, Side::Both] {
            r.shutdown("a", side);
            r.look("a");
            r.look("b");
        }
        r.close("b");
        r.shutdown("a", Side::Both);
        r.look("a");
    }
}

fn data_after_the_readers_shutdown<P: Provider>(r: &mut Run<P>) {
    for kind in CONNECTED {
        r.quiet_pair(kind, "a", "b");
        r.send("a", b"before");
        r.shutdown("b", Side::Read);
        r.send("a", b"after");
        r.recv("b", 16);
        r.recv("b", 16);
        r.send("b", b"other way");
        r.recv("a", 16);
        r.close("b");
        r.recv("a", 16);
    }
}

fn a_filled_end_is_closed<P: Provider>(r: &mut Run<P>) {
    for kind in [Kind::Stream, Kind::Seqpacket, Kind::Datagram] {
        r.quiet_pair(kind, "a", "b");
        r.fill("a", 1000);
        r.poll("a");
        r.close("b");
        r.poll("a");
        r.send("a", b"x");
        r.recv("a", 8);
        r.recv("a", 8);

        r.quiet_pair(kind, "a", "b");
        r.fill("a", 1000);
        r.close("a");
        r.poll("b");
        r.recv("b", 4);
        r.drain("b", 65_536);
        r.poll("b");

        r.quiet_pair(kind, "a", "b");
        r.fill("a", 1000);
        r.shutdown("b", Side::Read);
        r.poll("a");
        r.send("a", b"x");
    }
}

cases!(
    every_way_of_closing_stream_ends,
    every_way_of_closing_seqpacket_ends,
    every_way_of_closing_datagram_ends,
    closing_with_unread_data_resets,
    a_part_that_was_read_does_not_count,
    shutdown_of_an_unconnected_socket,
    shutdown_of_a_listener,
    shutting_twice,
    data_after_the_readers_shutdown,
    a_filled_end_is_closed,
);
