//! SOCK_STREAM: bytes without boundaries, peeking, MSG_WAITALL, timeouts.

use std::time::Duration;

use crate::compare::cases;
use crate::provider::{Direction, Flags, Kind, Name, Provider, Room, path};
use crate::script::{DONT_WAIT, NO_FLAGS, NOTHING_BUT_DATA, Run};

const STREAM: Kind = Kind::Stream;

fn a_pair_carries_bytes_both_ways<P: Provider>(r: &mut Run<P>) {
    r.quiet_pair(STREAM, "a", "b");
    r.names("a");
    r.send("a", b"to the right");
    r.send("b", b"to the left");
    r.unread("b");
    r.recv("b", 64);
    r.recv("a", 64);
    r.recv("a", 64);
    r.unread("b");
}

fn writes_run_together_and_reads_take_what_they_have_room_for<P: Provider>(r: &mut Run<P>) {
    r.quiet_pair(STREAM, "a", "b");
    for part in [b"one ".as_slice(), b"two ", b"three"] {
        r.send("a", part);
    }
    r.unread("b");
    r.recv("b", 6);
    r.unread("b");
    r.recv("b", 100);
    r.recv("b", 1);
}

fn nothing_is_sent_and_nothing_is_received<P: Provider>(r: &mut Run<P>) {
    r.quiet_pair(STREAM, "a", "b");
    r.send("a", b"");
    r.poll("b");
    r.unread("b");
    r.recv("b", 8);
    r.send("a", b"x");
    r.recv("b", 0);
    r.unread("b");
    r.recv("b", 8);
    r.recv("b", 0);
    r.close("a");
    r.recv("b", 0);
}

fn peeking_takes_nothing<P: Provider>(r: &mut Run<P>) {
    r.quiet_pair(STREAM, "a", "b");
    r.peek("b", 8);
    r.send("a", b"abc");
    r.send("a", b"def");
    for room in [2, 4, 10] {
        r.peek("b", room);
    }
    r.recv("b", 4);
    r.peek("b", 10);
    r.recv("b", 10);
    r.peek("b", 10);
    r.shutdown("a", crate::provider::Side::Write);
    r.peek("b", 10);
}

fn large_transfers_keep_their_order<P: Provider>(r: &mut Run<P>) {
    r.quiet_pair(STREAM, "a", "b");
    let data: Vec<u8> = (0..60_000_u32).map(|n| (n % 251) as u8).collect();
    r.send("a", &data);
    r.unread("b");
    for room in [1, 4095, 4096, 4097, 100_000] {
        r.recv("b", room);
    }
    r.recv("b", 1);
}

fn wait_all_takes_the_available_bytes_and_does_not_wait_for_more<P: Provider>(r: &mut Run<P>) {
    let all = Flags { wait_all: true, ..NO_FLAGS };
    r.pair(STREAM, "a", "b");
    r.timeout("b", Direction::Receive, Duration::from_millis(10));
    r.send("a", b"abc");
    r.send("a", b"def");
    r.recv_with("b", Room { data: 5, flags: all, ..NOTHING_BUT_DATA }, &[]);
    r.recv_with("b", Room { data: 5, flags: all, ..NOTHING_BUT_DATA }, &[]);
    r.recv_with("b", Room { data: 5, flags: all, ..NOTHING_BUT_DATA }, &[]);
    r.send("a", b"gh");
    let both = Flags { dont_wait: true, ..all };
    r.recv_with("b", Room { data: 5, flags: both, ..NOTHING_BUT_DATA }, &[]);
    r.send("a", b"ij");
    r.close("a");
    r.recv_with("b", Room { data: 5, flags: all, ..NOTHING_BUT_DATA }, &[]);
    r.recv_with("b", Room { data: 5, flags: all, ..NOTHING_BUT_DATA }, &[]);
}

fn wait_all_and_peek<P: Provider>(r: &mut Run<P>) {
    let flags = Flags { wait_all: true, peek: true, ..NO_FLAGS };
    r.pair(STREAM, "a", "b");
    r.timeout("b", Direction::Receive, Duration::from_millis(10));
    r.send("a", b"abc");
    r.send("a", b"def");
    r.recv_with("b", Room { data: 6, flags, ..NOTHING_BUT_DATA }, &[]);
    r.recv("b", 10);
}

fn msg_trunc_means_nothing_to_a_stream<P: Provider>(r: &mut Run<P>) {
    let flags = Flags { trunc: true, ..DONT_WAIT };
    r.quiet_pair(STREAM, "a", "b");
    r.send("a", b"abcdef");
    r.recv_with("b", Room { data: 4, flags, ..NOTHING_BUT_DATA }, &[]);
    r.recv("b", 10);
}

fn a_record_mark_means_nothing_to_a_stream<P: Provider>(r: &mut Run<P>) {
    r.quiet_pair(STREAM, "a", "b");
    r.send_with("a", b"abc", None, None, Flags { end_of_record: true, ..NO_FLAGS });
    r.send("a", b"def");
    r.recv("b", 10);
}

fn timeouts_end_a_wait<P: Provider>(r: &mut Run<P>) {
    r.pair(STREAM, "a", "b");
    for direction in [Direction::Send, Direction::Receive] {
        r.timeout("a", direction, Duration::from_millis(5));
    }
    r.recv("a", 8);
    r.fill("a", 4096);
    r.send("a", &[b'x'; 4096]);
    r.drain("b", 65_536);
    r.send("a", b"again");
    r.recv("b", 8);
}

fn one_call_does_not_wait<P: Provider>(r: &mut Run<P>) {
    r.pair(STREAM, "a", "b");
    r.recv_with("a", Room { data: 8, flags: DONT_WAIT, ..NOTHING_BUT_DATA }, &[]);
    r.fill("a", 1000);
    r.send_with("a", b"x", None, None, DONT_WAIT);
    r.drain("b", 4096);
}

fn an_address_is_not_for_a_stream<P: Provider>(r: &mut Run<P>) {
    r.connected(STREAM, "client", "server", &path("server"));
    r.send_to("client", b"elsewhere", &path("server"));
    r.send_to("client", b"elsewhere", &path("missing"));
    r.send_to("client", b"elsewhere", &Name::Unnamed);
    r.recv("server", 16);
}

fn an_unconnected_stream_sends_and_receives_nothing<P: Provider>(r: &mut Run<P>) {
    r.socket(STREAM, "a");
    r.nonblocking("a");
    r.send("a", b"x");
    r.recv("a", 8);
    r.poll("a");
    r.send_to("a", b"x", &path("missing"));
    r.listener(STREAM, "listener", &path("listener"), 1);
    r.send("listener", b"x");
    r.recv("listener", 8);
    r.connect("listener", &path("listener"));
}

fn a_full_buffer_takes_a_part_of_a_write<P: Provider>(r: &mut Run<P>) {
    r.quiet_pair(STREAM, "a", "b");
    r.fill("a", 1024);
    r.poll("a");
    r.poll("b");
    r.send("a", b"x");
    r.drain("b", 4096);
    r.poll("a");
    r.send("a", b"x");
    r.recv("b", 10);
}

cases!(
    a_pair_carries_bytes_both_ways,
    writes_run_together_and_reads_take_what_they_have_room_for,
    nothing_is_sent_and_nothing_is_received,
    peeking_takes_nothing,
    large_transfers_keep_their_order,
    wait_all_takes_the_available_bytes_and_does_not_wait_for_more,
    wait_all_and_peek,
    msg_trunc_means_nothing_to_a_stream,
    a_record_mark_means_nothing_to_a_stream,
    timeouts_end_a_wait,
    one_call_does_not_wait,
    an_address_is_not_for_a_stream,
    an_unconnected_stream_sends_and_receives_nothing,
    a_full_buffer_takes_a_part_of_a_write,
);
