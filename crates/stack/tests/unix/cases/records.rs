//! SOCK_DGRAM and SOCK_SEQPACKET alike: boundaries, truncation, empty records.

use std::time::Duration;

use crate::compare::cases;
use crate::provider::{Direction, Flags, Kind, Provider, Room, Side, path};
use crate::script::{DONT_WAIT, NO_FLAGS, NOTHING_BUT_DATA, Run};

const RECORDS: [Kind; 2] = [Kind::Datagram, Kind::Seqpacket];

fn boundaries_are_kept<P: Provider>(r: &mut Run<P>) {
    for kind in RECORDS {
        r.quiet_pair(kind, "a", "b");
        for part in [b"one".as_slice(), b"two", b"three"] {
            r.send("a", part);
        }
        r.unread("b");
        r.recv("b", 64);
        r.unread("b");
        r.recv("b", 64);
        r.recv("b", 64);
        r.recv("b", 64);
        r.unread("b");
    }
}

fn data_without_room_is_truncated<P: Provider>(r: &mut Run<P>) {
    for kind in RECORDS {
        r.quiet_pair(kind, "a", "b");
        r.send("a", b"a long record");
        r.send("a", b"the next");
        r.recv("b", 4);
        r.recv("b", 0);
        r.recv("b", 8);
    }
}

fn msg_trunc_returns_the_whole_length<P: Provider>(r: &mut Run<P>) {
    let trunc = Flags { trunc: true, ..DONT_WAIT };
    for kind in RECORDS {
        r.quiet_pair(kind, "a", "b");
        r.send("a", b"a long record");
        r.send("a", b"the next");
        let peek = Flags { peek: true, ..trunc };
        r.recv_with("b", Room { data: 4, flags: peek, ..NOTHING_BUT_DATA }, &[]);
        r.recv_with("b", Room { data: 0, flags: peek, ..NOTHING_BUT_DATA }, &[]);
        r.recv_with("b", Room { data: 4, flags: trunc, ..NOTHING_BUT_DATA }, &[]);
        r.recv_with("b", Room { data: 40, flags: trunc, ..NOTHING_BUT_DATA }, &[]);
    }
}

fn peeking_shows_the_first_record<P: Provider>(r: &mut Run<P>) {
    for kind in RECORDS {
        r.quiet_pair(kind, "a", "b");
        r.peek("b", 8);
        r.send("a", b"one");
        r.send("a", b"two");
        r.peek("b", 8);
        r.peek("b", 2);
        r.recv("b", 8);
        r.peek("b", 8);
        r.recv("b", 8);
        r.peek("b", 8);
    }
}

fn an_empty_record_is_one<P: Provider>(r: &mut Run<P>) {
    for kind in RECORDS {
        r.quiet_pair(kind, "a", "b");
        r.send("a", b"");
        r.look("b");
        r.send("a", b"x");
        r.send("a", b"");
        r.unread("b");
        r.peek("b", 8);
        for _ in 0..4 {
            r.recv("b", 8);
        }
    }
}

fn an_end_of_record_mark<P: Provider>(r: &mut Run<P>) {
    for kind in RECORDS {
        r.quiet_pair(kind, "a", "b");
        r.send_with("a", b"abc", None, None, Flags { end_of_record: true, ..NO_FLAGS });
        r.send("a", b"def");
        r.recv("b", 2);
        r.recv("b", 8);
    }
}

fn wait_all_is_one_record_all_the_same<P: Provider>(r: &mut Run<P>) {
    for kind in RECORDS {
        r.quiet_pair(kind, "a", "b");
        r.send("a", b"abc");
        r.send("a", b"def");
        let flags = Flags { wait_all: true, ..NO_FLAGS };
        r.recv_with("b", Room { data: 6, flags, ..NOTHING_BUT_DATA }, &[]);
        r.recv("b", 8);
    }
}

fn a_record_larger_than_the_send_buffer_never_fits<P: Provider>(r: &mut Run<P>) {
    for kind in RECORDS {
        r.quiet_pair(kind, "a", "b");
        r.send("a", &vec![b'x'; 16 << 20]);
        r.poll("a");
        r.poll("b");
        r.send("a", &vec![b'y'; 60_000]);
        r.recv("b", 70_000);
    }
}

fn a_full_queue_refuses_for_now<P: Provider>(r: &mut Run<P>) {
    for kind in RECORDS {
        r.quiet_pair(kind, "a", "b");
        r.fill("a", 1000);
        r.poll("a");
        r.poll("b");
        r.drain("b", 4096);
        r.poll("a");
        r.send("a", b"again");
        r.recv("b", 8);
    }
}

fn empty_records_fill_a_queue_too<P: Provider>(r: &mut Run<P>) {
    for kind in RECORDS {
        r.quiet_pair(kind, "a", "b");
        r.fill("a", 0);
        r.recv("b", 8);
    }
}

fn timeouts_end_a_wait<P: Provider>(r: &mut Run<P>) {
    for kind in RECORDS {
        r.pair(kind, "a", "b");
        for direction in [Direction::Send, Direction::Receive] {
            r.timeout("a", direction, Duration::from_millis(5));
        }
        r.recv("a", 8);
        r.fill("a", 1000);
        r.send("a", &[b'x'; 1000]);
    }
}

fn records_that_arrived_are_read_after_the_end<P: Provider>(r: &mut Run<P>) {
    for kind in RECORDS {
        r.quiet_pair(kind, "a", "b");
        r.send("a", b"one");
        r.send("a", b"two");
        r.shutdown("a", Side::Write);
        r.look("b");
        for _ in 0..4 {
            r.recv("b", 8);
        }
        r.peek("b", 8);
    }
}

fn large_records_arrive_whole<P: Provider>(r: &mut Run<P>) {
    for kind in RECORDS {
        r.quiet_pair(kind, "a", "b");
        let data: Vec<u8> = (0..30_000_u32).map(|n| (n % 253) as u8).collect();
        r.send("a", &data);
        r.send("a", &data[..4096]);
        r.recv("b", 100_000);
        r.recv("b", 5000);
    }
}

fn an_unconnected_seqpacket_sends_and_receives_nothing<P: Provider>(r: &mut Run<P>) {
    r.socket(Kind::Seqpacket, "a");
    r.nonblocking("a");
    r.send("a", b"x");
    r.recv("a", 8);
    r.poll("a");
    r.connected(Kind::Seqpacket, "client", "server", &path("server"));
    r.send_to("client", b"elsewhere", &path("server"));
    r.send_to("client", b"elsewhere", &path("missing"));
    r.recv("server", 16);
}

cases!(
    boundaries_are_kept,
    data_without_room_is_truncated,
    msg_trunc_returns_the_whole_length,
    peeking_shows_the_first_record,
    an_empty_record_is_one,
    an_end_of_record_mark,
    wait_all_is_one_record_all_the_same,
    a_record_larger_than_the_send_buffer_never_fits,
    a_full_queue_refuses_for_now,
    empty_records_fill_a_queue_too,
    timeouts_end_a_wait,
    records_that_arrived_are_read_after_the_end,
    large_records_arrive_whole,
    an_unconnected_seqpacket_sends_and_receives_nothing,
);
