//! Sockets in flight: closing in every order, sockets that carry themselves or each other, deep chains.
//!
//! Sockets that are in flight and unreachable must be collected, which an outside witness shows: the other end of
//! a pair whose one end was in flight hangs up. The kernel's collector runs in the background, so a case waits
//! until the witness sees the hang-up, and records that it did.

use std::time::{Duration, Instant};

use crate::compare::cases;
use crate::provider::{KINDS, Kind, Provider, hidden};
use crate::script::Run;

/// Notes whether the witness hangs up in good time.
fn hangs_up<P: Provider>(r: &mut Run<P>, witness: &str) {
    let until = Instant::now() + PATIENCE;
    loop {
        // The kernel looks for cycles when a socket is closed, so one is made to close.
        r.silently(|provider| drop(provider.pair(Kind::Stream)));
        if r.is_hung_up(witness) {
            return r.note(&format!("{witness} hangs up"), true);
        }
        if Instant::now() > until {
            return r.note(&format!("{witness} hangs up"), false);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn a_socket_in_flight_is_closed_with_its_queue<P: Provider>(r: &mut Run<P>) {
    for kind in KINDS {
        for order in [["a", "b"], ["b", "a"]] {
            r.quiet_pair(kind, "a", "b");
            r.quiet_pair(Kind::Stream, "Left", "witness");
            r.send_rights("a", b"x", &["Left"]);
            r.close("Left");
            r.poll("witness");
            r.close(order[0]);
            r.close(order[1]);
            hangs_up(r, "witness");
            r.recv("witness", 8);
        }
    }
}

fn a_file_in_flight_is_closed_with_its_queue<P: Provider>(r: &mut Run<P>) {
    for kind in KINDS {
        r.quiet_pair(kind, "a", "b");
        r.pipe("reader", "writer");
        r.send_rights("a", b"x", &["writer"]);
        r.close("writer");
        r.close("a");
        r.close("b");
        r.file_read("reader", 8);
    }
}

fn the_sender_may_go_before_the_rights_are_taken<P: Provider>(r: &mut Run<P>) {
    for kind in KINDS {
        r.quiet_pair(kind, "a", "b");
        r.quiet_pair(Kind::Stream, "Left", "witness");
        r.send_rights("a", b"x", &["Left"]);
        r.close("Left");
        r.close("a");
        r.recv_rights("b", 8, &["Arrived"]);
        r.send("Arrived", b"alive");
        r.recv("witness", 8);
        r.close("Arrived");
        r.poll("witness");
    }
}

fn a_socket_carries_itself<P: Provider>(r: &mut Run<P>) {
    for kind in KINDS {
        r.quiet_pair(kind, "A", "B");
        r.quiet_pair(Kind::Stream, "Left", "witness");
        r.send_rights("A", b"x", &["B", "Left"]);
        r.close("Left");
        r.close("A");
        r.close("B");
        hangs_up(r, "witness");
    }
}

fn a_socket_that_carries_itself_is_taken_out_again<P: Provider>(r: &mut Run<P>) {
    r.quiet_pair(Kind::Stream, "A", "B");
    r.send_rights("A", b"x", &["B"]);
    r.recv_rights("B", 8, &["Again"]);
    r.close("B");
    r.send("A", b"to what was in flight");
    r.recv("Again", 32);
}

fn two_ends_carry_each_other<P: Provider>(r: &mut Run<P>) {
    for kind in KINDS {
        r.quiet_pair(kind, "A", "B");
        r.quiet_pair(Kind::Stream, "Left", "witness");
        r.send_rights("A", b"x", &["A", "Left"]);
        r.send_rights("B", b"x", &["B"]);
        r.close("Left");
        r.close("A");
        r.close("B");
        hangs_up(r, "witness");
    }
}

fn a_ring_of_pairs<P: Provider>(r: &mut Run<P>) {
    let (left, right): (Vec<_>, Vec<_>) = (0..5).map(|n| (format!("L{n}"), format!("R{n}"))).unzip();
    for (left, right) in left.iter().zip(&right) {
        r.quiet_pair(Kind::Stream, left, right);
    }
    r.quiet_pair(Kind::Stream, "Left", "witness");
    for n in 0..5 {
        let next = right[(n + 1) % 5].clone();
        r.send_rights(&left[n], b"x", &[&next, "Left"]);
    }
    for name in left.iter().chain(&right) {
        r.close(name);
    }
    r.close("Left");
    hangs_up(r, "witness");
}

fn a_ring_that_is_held_from_outside_lives<P: Provider>(r: &mut Run<P>) {
    r.quiet_pair(Kind::Stream, "A", "B");
    r.quiet_pair(Kind::Stream, "C", "D");
    r.quiet_pair(Kind::Stream, "Left", "witness");
    r.send_rights("A", b"1", &["D", "Left"]);
    r.send_rights("C", b"2", &["B"]);
    for name in ["Left", "A", "C", "D"] {
        r.close(name);
    }
    // B is the entry: a receive from it returns D, and a receive from D another B.
    r.quiet_pair(Kind::Stream, "churn", "churned");
    r.close("churn");
    r.close("churned");
    r.poll("witness");
    r.recv_rights("B", 8, &["D", "Left"]);
    r.recv_rights("D", 8, &["Again"]);
    r.send("Left", b"alive");
    r.recv("witness", 8);
    for name in ["B", "D", "Again", "Left"] {
        r.close(name);
    }
    hangs_up(r, "witness");
}

fn a_chain_is_sent_in_one_piece<P: Provider>(r: &mut Run<P>) {
    r.quiet_pair(Kind::Stream, "Carried", "witness");
    for depth in 0..40 {
        r.quiet_pair(Kind::Stream, "in", "Out");
        r.send_rights("in", format!("{depth}").as_bytes(), &["Carried"]);
        r.close("in");
        r.close("Carried");
        r.rename("Out", "Carried");
    }
    r.poll("witness");
    r.close("Carried");
    hangs_up(r, "witness");
}

fn a_listener_in_flight_in_its_own_clients_queue<P: Provider>(r: &mut Run<P>) {
    r.listener(Kind::Stream, "Listener", &hidden("server"), 2);
    r.quiet_pair(Kind::Stream, "Left", "witness");
    r.socket(Kind::Stream, "client");
    r.connect("client", &hidden("server"));
    // Messages to a socket that was not accepted wait in the listener's backlog.
    r.send_rights("client", b"x", &["Listener", "Left"]);
    r.close("Left");
    r.close("Listener");
    // It cannot be accepted any more: the listener is only in the queue of a socket that waits to be accepted.
    hangs_up(r, "witness");
}

fn an_unaccepted_connection_is_closed_with_the_rights_in_it<P: Provider>(r: &mut Run<P>) {
    r.listener(Kind::Stream, "listener", &hidden("server"), 2);
    r.quiet_pair(Kind::Stream, "Left", "witness");
    r.socket(Kind::Stream, "client");
    r.connect("client", &hidden("server"));
    r.send_rights("client", b"x", &["Left"]);
    r.close("Left");
    r.poll("witness");
    r.close("listener");
    hangs_up(r, "witness");
}

const PATIENCE: Duration = Duration::from_secs(60);

cases!(
    a_socket_in_flight_is_closed_with_its_queue,
    a_file_in_flight_is_closed_with_its_queue,
    the_sender_may_go_before_the_rights_are_taken,
    a_socket_carries_itself,
    a_socket_that_carries_itself_is_taken_out_again,
    two_ends_carry_each_other,
    a_ring_of_pairs,
    a_ring_that_is_held_from_outside_lives,
    a_chain_is_sent_in_one_piece,
    a_listener_in_flight_in_its_own_clients_queue,
    an_unaccepted_connection_is_closed_with_the_rights_in_it,
);
