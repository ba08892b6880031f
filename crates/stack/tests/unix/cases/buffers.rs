//! Buffer sizes and queue queries: their documented behaviour, not how many bytes fit.

use crate::compare::cases;
use crate::provider::{Direction, KINDS, Kind, Provider};
use crate::script::Run;

fn unread_bytes_are_counted<P: Provider>(r: &mut Run<P>) {
    for kind in KINDS {
        r.quiet_pair(kind, "a", "b");
        r.unread("b");
        for part in [b"abc".as_slice(), b"", b"defgh"] {
            r.send("a", part);
            r.unread("b");
            r.unread("a");
        }
        for _ in 0..4 {
            r.recv("b", 2);
            r.unread("b");
        }
        r.send("a", b"x");
        r.close("a");
        r.unread("b");
    }
}

fn a_larger_send_buffer_takes_more<P: Provider>(r: &mut Run<P>) {
    // Datagrams are bounded by their number first.
    for kind in [Kind::Stream, Kind::Seqpacket] {
        let mut fitted = Vec::new();
        for bytes in [8 << 10, 64 << 10, 200 << 10] {
            r.quiet_pair(kind, "a", "b");
            r.buffer("a", Direction::Send, bytes);
            fitted.push(r.fill("a", 1024));
            r.drain("b", 4096);
        }
        r.note("more fits into a larger buffer", fitted.is_sorted() && fitted[0] < fitted[2]);
    }
}

fn a_send_buffer_bounds_a_record<P: Provider>(r: &mut Run<P>) {
    for kind in [Kind::Datagram, Kind::Seqpacket] {
        r.quiet_pair(kind, "a", "b");
        r.buffer("a", Direction::Send, 8 << 10);
        r.send("a", &[b'x'; 1000]);
        r.send("a", &vec![b'x'; 64 << 10]);
        r.recv("b", 4096);
        r.look("b");
    }
}

fn a_buffer_of_no_size_still_holds_something<P: Provider>(r: &mut Run<P>) {
    for kind in KINDS {
        r.quiet_pair(kind, "a", "b");
        r.buffer("a", Direction::Send, 0);
        r.buffer("b", Direction::Receive, 0);
        r.send("a", b"x");
        r.recv("b", 8);
        r.poll("a");
    }
}

fn all_that_was_sent_is_received<P: Provider>(r: &mut Run<P>) {
    for kind in KINDS {
        for chunk in [1, 100, 4096, 20_000] {
            r.quiet_pair(kind, "a", "b");
            let sent = r.fill("a", chunk);
            // A stream may take a part of the last chunk.
            let received = r.drain("b", 65_536);
            let whole = sent * chunk;
            let exact = match kind {
                Kind::Stream => (whole.saturating_sub(chunk)..=whole).contains(&received),
                Kind::Datagram | Kind::Seqpacket => received == whole,
            };
            r.note("nothing is lost", exact);
        }
    }
}

cases!(
    unread_bytes_are_counted,
    a_larger_send_buffer_takes_more,
    a_send_buffer_bounds_a_record,
    a_buffer_of_no_size_still_holds_something,
    all_that_was_sent_is_received,
);
