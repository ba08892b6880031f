//! SO_PEERCRED, SO_PASSCRED and SCM_CREDENTIALS.

use crate::compare::cases;
use crate::provider::{CONNECTED, Flags, KINDS, Kind, Provider, Room, hidden};
use crate::script::{DONT_WAIT, NOTHING_BUT_DATA, Run};

const WITH_CREDENTIALS: Room = Room { data: 16, credentials: true, ..NOTHING_BUT_DATA };

fn peer_credentials_are_those_of_the_process<P: Provider>(r: &mut Run<P>) {
    for kind in CONNECTED {
        r.pair(kind, "a", "b");
        r.peer_credentials("a");
        r.connected(kind, "client", "server", &hidden(&format!("{kind:?}")));
        r.peer_credentials("client");
        r.peer_credentials("server");
        r.close("server");
        r.peer_credentials("client");
    }
    r.pair(Kind::Datagram, "a", "b");
    r.peer_credentials("a");
}

fn passcred_is_off_until_it_is_asked_for<P: Provider>(r: &mut Run<P>) {
    for kind in KINDS {
        r.quiet_pair(kind, "a", "b");
        r.set_passcred("a", true);
        r.set_passcred("a", false);
        r.send("a", b"x");
        r.recv_with("b", WITH_CREDENTIALS, &[]);
    }
}

fn credentials_arrive_with_every_message<P: Provider>(r: &mut Run<P>) {
    for kind in KINDS {
        r.quiet_pair(kind, "a", "b");
        r.set_passcred("b", true);
        r.send("a", b"one");
        r.recv_with("b", WITH_CREDENTIALS, &[]);
        r.send("a", b"two");
        r.send("a", b"three");
        r.recv_with("b", WITH_CREDENTIALS, &[]);
        r.recv_with("b", WITH_CREDENTIALS, &[]);
        r.recv_with("b", WITH_CREDENTIALS, &[]);
    }
}

fn credentials_without_room_are_cut_off<P: Provider>(r: &mut Run<P>) {
    for kind in KINDS {
        r.quiet_pair(kind, "a", "b");
        r.set_passcred("b", true);
        r.send("a", b"one");
        r.recv("b", 16);
    }
}

fn credentials_and_rights_together<P: Provider>(r: &mut Run<P>) {
    for kind in KINDS {
        r.quiet_pair(kind, "a", "b");
        r.set_passcred("b", true);
        r.quiet_pair(Kind::Stream, "Left", "right");
        r.send_rights("a", b"x", &["Left"]);
        r.close("Left");
        r.recv_with("b", Room { rights: 1, ..WITH_CREDENTIALS }, &["Arrived"]);
        r.send("Arrived", b"y");
        r.recv("right", 8);
    }
}

fn credentials_are_peeked_at_too<P: Provider>(r: &mut Run<P>) {
    for kind in KINDS {
        r.quiet_pair(kind, "a", "b");
        r.set_passcred("b", true);
        r.send("a", b"x");
        let flags = Flags { peek: true, ..DONT_WAIT };
        r.recv_with("b", Room { flags, ..WITH_CREDENTIALS }, &[]);
        r.recv_with("b", WITH_CREDENTIALS, &[]);
    }
}

fn an_accepted_socket_inherits_passcred<P: Provider>(r: &mut Run<P>) {
    for kind in CONNECTED {
        let at = hidden(&format!("{kind:?}"));
        r.listener(kind, "listener", &at, 2);
        r.set_passcred("listener", true);
        r.socket(kind, "client");
        r.connect("client", &at);
        r.accept("listener", "server");
        r.nonblocking("server");
        r.send("client", b"x");
        r.recv_with("server", WITH_CREDENTIALS, &[]);
    }
}

fn passcred_names_sockets_that_connect_or_send<P: Provider>(r: &mut Run<P>) {
    let at = hidden("server");
    r.listener(Kind::Stream, "listener", &at, 2);
    r.socket(Kind::Stream, "client");
    r.set_passcred("client", true);
    r.connect("client", &at);
    r.names("client");
    r.accept("listener", "server");
    r.names("server");
    r.bound(Kind::Datagram, "target", &hidden("target"));
    r.socket(Kind::Datagram, "loose");
    r.set_passcred("loose", true);
    r.send_to("loose", b"x", &hidden("target"));
    r.names("loose");
    r.recv("target", 8);
    r.socket(Kind::Datagram, "connected");
    r.set_passcred("connected", true);
    r.connect("connected", &hidden("target"));
    r.names("connected");
}

cases!(
    peer_credentials_are_those_of_the_process,
    passcred_is_off_until_it_is_asked_for,
    credentials_arrive_with_every_message,
    credentials_without_room_are_cut_off,
    credentials_and_rights_together,
    credentials_are_peeked_at_too,
    an_accepted_socket_inherits_passcred,
    passcred_names_sockets_that_connect_or_send,
);
