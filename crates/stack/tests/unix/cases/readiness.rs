//! The result of poll at each step: filling, draining, closing, listening.

use crate::compare::cases;
use crate::provider::{CONNECTED, KINDS, Kind, Provider, Side, hidden, path};
use crate::script::Run;

fn new_sockets<P: Provider>(r: &mut Run<P>) {
    for kind in KINDS {
        r.socket(kind, "a");
        r.poll("a");
        r.bind("a", &path(&format!("{kind:?}")));
        r.poll("a");
        r.pair(kind, "b", "c");
        r.poll("b");
    }
}

fn filling_and_draining<P: Provider>(r: &mut Run<P>) {
    for kind in KINDS {
        r.quiet_pair(kind, "a", "b");
        r.send("a", b"x");
        r.poll("a");
        r.poll("b");
        r.recv("b", 8);
        r.poll("b");
        r.fill("a", 512);
        r.poll("a");
        r.poll("b");
        r.drain("b", 4096);
        r.poll("a");
        r.poll("b");
        r.fill("a", 512);
        r.fill("b", 512);
        r.poll("a");
        r.poll("b");
        r.drain("a", 4096);
        r.poll("a");
        r.poll("b");
    }
}

fn each_shutdown_at_both_ends<P: Provider>(r: &mut Run<P>) {
    for kind in KINDS {
        for one in [Side::Read, Side::Write, Side::Both] {
            for other in [Side::Read, Side::Write, Side::Both] {
                r.quiet_pair(kind, "a", "b");
                r.shutdown("a", one);
                r.poll("a");
                r.poll("b");
                r.shutdown("b", other);
                r.poll("a");
                r.poll("b");
            }
        }
    }
}

fn a_full_end_whose_reader_closes_is_writable<P: Provider>(r: &mut Run<P>) {
    for kind in KINDS {
        for side in [Side::Read, Side::Write, Side::Both] {
            r.quiet_pair(kind, "a", "b");
            r.fill("a", 512);
            r.poll("a");
            r.shutdown("b", side);
            r.poll("a");
            r.poll("b");
            r.close("b");
            r.poll("a");
        }
    }
}

fn unread_data_and_the_end_together<P: Provider>(r: &mut Run<P>) {
    for kind in KINDS {
        r.quiet_pair(kind, "a", "b");
        r.send("a", b"x");
        r.close("a");
        r.poll("b");
        r.recv("b", 8);
        r.poll("b");
        r.recv("b", 8);
        r.poll("b");
    }
}

fn a_listener_is_readable_while_a_client_waits<P: Provider>(r: &mut Run<P>) {
    for kind in CONNECTED {
        let at = hidden(&format!("{kind:?}"));
        r.listener(kind, "listener", &at, 5);
        r.poll("listener");
        for name in ["a", "b"] {
            r.socket(kind, name);
            r.connect(name, &at);
            r.poll(name);
            r.poll("listener");
        }
        r.accept("listener", "one");
        r.poll("listener");
        r.poll("one");
        r.accept("listener", "two");
        r.poll("listener");
        r.poll("a");
    }
}

fn a_client_that_waits_to_be_accepted_may_write<P: Provider>(r: &mut Run<P>) {
    for kind in CONNECTED {
        let at = hidden(&format!("{kind:?}"));
        r.listener(kind, "listener", &at, 5);
        r.socket(kind, "client");
        r.connect("client", &at);
        r.nonblocking("client");
        r.poll("client");
        r.send("client", b"early");
        r.recv("client", 8);
        r.shutdown("client", Side::Write);
        r.poll("client");
        r.accept("listener", "server");
        r.nonblocking("server");
        r.poll("server");
        r.recv("server", 8);
        r.recv("server", 8);
        r.send("server", b"late");
        r.recv("client", 8);
    }
}

fn an_unconnected_datagram_socket_may_always_write<P: Provider>(r: &mut Run<P>) {
    r.bound(Kind::Datagram, "receiver", &hidden("receiver"));
    r.bound(Kind::Datagram, "connected", &hidden("connected"));
    r.bound(Kind::Datagram, "loose", &hidden("loose"));
    r.connect("connected", &hidden("receiver"));
    r.fill("connected", 10);
    for name in ["connected", "loose", "receiver"] {
        r.poll(name);
    }
    r.disconnect("connected");
    r.poll("connected");
    r.connect("connected", &hidden("loose"));
    r.poll("connected");
    r.connect("connected", &hidden("receiver"));
    r.poll("connected");
    r.drain("receiver", 16);
    r.poll("connected");
}

fn a_datagram_socket_whose_full_receiver_closes<P: Provider>(r: &mut Run<P>) {
    r.bound(Kind::Datagram, "receiver", &hidden("receiver"));
    r.bound(Kind::Datagram, "sender", &hidden("sender"));
    r.connect("sender", &hidden("receiver"));
    r.fill("sender", 10);
    r.poll("sender");
    r.close("receiver");
    r.poll("sender");
    r.send("sender", b"x");
    r.poll("sender");
    r.send("sender", b"x");
}

fn an_error_is_reported_until_it_is_taken<P: Provider>(r: &mut Run<P>) {
    for kind in KINDS {
        r.quiet_pair(kind, "a", "b");
        r.send("a", b"unread");
        r.close("b");
        r.poll("a");
        r.poll("a");
        r.take_error("a");
        r.poll("a");
        r.take_error("a");
    }
}

cases!(
    new_sockets,
    filling_and_draining,
    each_shutdown_at_both_ends,
    a_full_end_whose_reader_closes_is_writable,
    unread_data_and_the_end_together,
    a_listener_is_readable_while_a_client_waits,
    a_client_that_waits_to_be_accepted_may_write,
    an_unconnected_datagram_socket_may_always_write,
    a_datagram_socket_whose_full_receiver_closes,
    an_error_is_reported_until_it_is_taken,
);
