//! SOCK_DGRAM alone: addresses, connecting and disconnecting, which senders' datagrams are accepted.

use crate::compare::cases;
use crate::provider::{Kind, Name, Provider, Side, hidden, path};
use crate::script::Run;

const DATAGRAM: Kind = Kind::Datagram;

/// Sockets at these abstract names, which are theirs too.
fn at_names<P: Provider>(r: &mut Run<P>, names: &[&str]) {
    for name in names {
        r.bound(DATAGRAM, name, &hidden(name));
    }
}

fn datagrams_carry_their_source<P: Provider>(r: &mut Run<P>) {
    at_names(r, &["a"]);
    r.bound(DATAGRAM, "b", &path("b"));
    r.socket(DATAGRAM, "nameless");
    r.bound(DATAGRAM, "chosen", &Name::Unnamed);
    for name in ["a", "b", "nameless", "chosen"] {
        r.send_to(name, name.as_bytes(), &hidden("a"));
        r.peek("a", 16);
        r.recv("a", 16);
    }
    r.send_to("a", b"back", &path("b"));
    r.recv("b", 16);
}

fn sending_to_an_unused_address<P: Provider>(r: &mut Run<P>) {
    at_names(r, &["a"]);
    r.send_to("a", b"x", &hidden("missing"));
    r.send_to("a", b"x", &path("missing"));
    r.bound(DATAGRAM, "gone", &path("gone"));
    r.close("gone");
    r.send_to("a", b"x", &path("gone"));
    r.send("a", b"x");
    r.recv("a", 8);
    r.poll("a");
}

fn sending_to_another_kind<P: Provider>(r: &mut Run<P>) {
    at_names(r, &["a"]);
    r.listener(Kind::Stream, "stream", &path("stream"), 1);
    r.listener(Kind::Seqpacket, "seqpacket", &path("seqpacket"), 1);
    r.send_to("a", b"x", &path("stream"));
    r.send_to("a", b"x", &path("seqpacket"));
}

fn connecting_sets_the_peer<P: Provider>(r: &mut Run<P>) {
    at_names(r, &["a", "b", "c"]);
    r.connect("a", &hidden("b"));
    r.names("a");
    r.names("b");
    r.send("a", b"by default");
    r.recv("b", 16);
    r.send_to("a", b"by name", &hidden("c"));
    r.recv("c", 16);
    r.send_to("b", b"back", &hidden("a"));
    r.recv("a", 16);
}

fn a_connected_socket_takes_datagrams_from_its_peer_only<P: Provider>(r: &mut Run<P>) {
    at_names(r, &["a", "b", "stranger"]);
    r.connect("a", &hidden("b"));
    r.send_to("stranger", b"x", &hidden("a"));
    r.connect("stranger", &hidden("a"));
    r.send_to("b", b"ok", &hidden("a"));
    r.recv("a", 8);
    r.recv("a", 8);
    r.connect("a", &hidden("stranger"));
    r.connect("stranger", &hidden("a"));
    r.send("stranger", b"now it may");
    r.recv("a", 16);
    r.send_to("b", b"x", &hidden("a"));
}

fn datagrams_queued_before_connecting_are_kept<P: Provider>(r: &mut Run<P>) {
    at_names(r, &["a", "b", "c"]);
    r.send_to("c", b"early", &hidden("a"));
    r.connect("a", &hidden("b"));
    r.look("a");
    r.recv("a", 16);
    r.send_to("c", b"late", &hidden("a"));
}

fn connecting_again_and_disconnecting<P: Provider>(r: &mut Run<P>) {
    at_names(r, &["a", "b", "c"]);
    r.connect("a", &hidden("b"));
    r.connect("a", &hidden("c"));
    r.names("a");
    r.send("a", b"x");
    r.recv("b", 8);
    r.recv("c", 8);
    r.disconnect("a");
    r.names("a");
    r.send("a", b"x");
    r.disconnect("a");
    r.connect("a", &hidden("missing"));
    r.names("a");
    r.connect("a", &hidden("b"));
    r.send("a", b"y");
    r.recv("b", 8);
    r.connect("a", &hidden("missing"));
    r.names("a");
    r.send("a", b"z");
    r.recv("b", 8);
}

fn disconnecting_discards_datagrams_of_the_old_peer<P: Provider>(r: &mut Run<P>) {
    at_names(r, &["a", "b", "c"]);
    r.connect("a", &hidden("b"));
    r.send_to("b", b"from b", &hidden("a"));
    r.connect("b", &hidden("a"));
    r.send("b", b"again");
    r.disconnect("a");
    r.look("a");
    r.recv("a", 16);
    r.recv("a", 16);
    r.take_error("b");
    r.poll("b");
    r.send("b", b"more");
    r.recv("a", 16);
}

fn reconnecting_elsewhere_notifies_the_peer_that_was_connected_back<P: Provider>(r: &mut Run<P>) {
    at_names(r, &["a", "b", "c"]);
    r.connect("a", &hidden("b"));
    r.connect("b", &hidden("a"));
    r.send("a", b"unread");
    r.connect("a", &hidden("c"));
    r.look("b");
    r.send("b", b"x");
    r.recv("b", 16);
    r.recv("b", 16);
    r.take_error("b");
    r.names("b");
}

fn connected_to_oneself<P: Provider>(r: &mut Run<P>) {
    at_names(r, &["a", "b"]);
    r.connect("a", &hidden("a"));
    r.names("a");
    r.poll("a");
    r.send("a", b"to oneself");
    r.look("a");
    r.recv("a", 16);
    r.send_to("b", b"x", &hidden("a"));
    r.send_to("a", b"x", &hidden("b"));
    r.recv("b", 8);
    r.fill("a", 100);
    r.drain("a", 100);
    r.disconnect("a");
    r.send_to("b", b"ok", &hidden("a"));
    r.recv("a", 8);
}

fn the_peer_of_a_connected_socket_closes<P: Provider>(r: &mut Run<P>) {
    for at in [path("b"), hidden("b")] {
        r.socket(DATAGRAM, "a");
        r.nonblocking("a");
        r.bound(DATAGRAM, "b", &at);
        r.connect("a", &at);
        r.send("a", b"x");
        r.close("b");
        r.poll("a");
        r.names("a");
        r.send("a", b"y");
        r.names("a");
        r.send("a", b"z");
        r.take_error("a");
        r.recv("a", 8);
        r.unlink(&at);
    }
}

fn one_end_of_a_pair_closes<P: Provider>(r: &mut Run<P>) {
    r.quiet_pair(DATAGRAM, "a", "b");
    r.send("a", b"unread");
    r.send("b", b"unread too");
    r.close("b");
    r.look("a");
    r.recv("a", 16);
    r.recv("a", 16);
    r.take_error("a");
    r.send("a", b"x");
    r.send("a", b"y");
    r.names("a");
    r.poll("a");
}

fn one_end_of_a_pair_closes_with_nothing_unread<P: Provider>(r: &mut Run<P>) {
    r.quiet_pair(DATAGRAM, "a", "b");
    r.close("b");
    r.look("a");
    r.recv("a", 16);
    r.send("a", b"x");
    r.send("a", b"y");
}

fn a_full_receiver_refuses_every_sender<P: Provider>(r: &mut Run<P>) {
    at_names(r, &["receiver", "a", "b"]);
    r.connect("a", &hidden("receiver"));
    r.fill("a", 10);
    r.poll("a");
    r.poll("b");
    r.poll("receiver");
    r.recv("receiver", 16);
    r.poll("a");
    r.send("a", b"x");
    r.drain("receiver", 16);
    r.poll("a");
}

fn shutdown_of_datagram_sockets<P: Provider>(r: &mut Run<P>) {
    for side in [Side::Read, Side::Write, Side::Both] {
        r.quiet_pair(DATAGRAM, "a", "b");
        r.send("b", b"unread");
        r.shutdown("a", side);
        r.look("a");
        r.look("b");
        r.send("a", b"x");
        r.send("b", b"y");
        r.recv("a", 8);
        r.recv("a", 8);
        r.recv("b", 8);
        r.look("a");
        r.look("b");
    }
}

fn shutdown_without_a_peer<P: Provider>(r: &mut Run<P>) {
    at_names(r, &["a", "b"]);
    for side in [Side::Read, Side::Write, Side::Both] {
        r.shutdown("a", side);
        r.poll("a");
    }
    r.send_to("b", b"x", &hidden("a"));
    r.send_to("a", b"x", &hidden("b"));
    r.recv("a", 8);
}

fn a_path_may_be_taken_over_while_its_first_holder_is_connected_to<P: Provider>(r: &mut Run<P>) {
    at_names(r, &["a"]);
    r.bound(DATAGRAM, "old", &path("place"));
    r.connect("a", &path("place"));
    r.unlink(&path("place"));
    r.bound(DATAGRAM, "new", &path("place"));
    r.send("a", b"for the old one");
    r.send_to("a", b"for the new one", &path("place"));
    r.recv("old", 32);
    r.recv("new", 32);
}

fn a_chain_of_connected_sockets<P: Provider>(r: &mut Run<P>) {
    at_names(r, &["a", "b", "c"]);
    r.connect("a", &hidden("b"));
    r.connect("b", &hidden("c"));
    r.connect("c", &hidden("a"));
    for name in ["a", "b", "c"] {
        r.names(name);
        r.send(name, b"around");
        r.poll(name);
    }
    r.close("b");
    for name in ["a", "c"] {
        r.poll(name);
        r.send(name, b"around");
        r.recv(name, 16);
    }
}

cases!(
    datagrams_carry_their_source,
    sending_to_an_unused_address,
    sending_to_another_kind,
    connecting_sets_the_peer,
    a_connected_socket_takes_datagrams_from_its_peer_only,
    datagrams_queued_before_connecting_are_kept,
    connecting_again_and_disconnecting,
    disconnecting_discards_datagrams_of_the_old_peer,
    reconnecting_elsewhere_notifies_the_peer_that_was_connected_back,
    connected_to_oneself,
    the_peer_of_a_connected_socket_closes,
    one_end_of_a_pair_closes,
    one_end_of_a_pair_closes_with_nothing_unread,
    a_full_receiver_refuses_every_sender,
    shutdown_of_datagram_sockets,
    shutdown_without_a_peer,
    a_path_may_be_taken_over_while_its_first_holder_is_connected_to,
    a_chain_of_connected_sockets,
);
