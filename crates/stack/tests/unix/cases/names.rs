//! Names: pathnames, abstract names, autobind, and the results of bind, listen and connect with them.

use crate::compare::cases;
use crate::provider::{CONNECTED, KINDS, Kind, Name, Provider, hidden, path};
use crate::script::Run;

fn a_path_is_bound_connected_and_reported<P: Provider>(r: &mut Run<P>) {
    for kind in CONNECTED {
        let at = path(&format!("{kind:?}"));
        r.connected(kind, "client", "server", &at);
        for name in ["listener", "client", "server"] {
            r.names(name);
        }
        r.send("client", b"over a path");
        r.recv("server", 64);
    }
}

fn an_abstract_name_is_bound_connected_and_reported<P: Provider>(r: &mut Run<P>) {
    for kind in CONNECTED {
        let at = hidden(&format!("{kind:?}"));
        r.connected(kind, "client", "server", &at);
        for name in ["listener", "client", "server"] {
            r.names(name);
        }
        r.send("server", b"over a name");
        r.recv("client", 64);
    }
}

fn a_client_may_have_a_name_of_its_own<P: Provider>(r: &mut Run<P>) {
    r.listener(Kind::Stream, "listener", &path("server"), 5);
    r.bound(Kind::Stream, "client", &path("client"));
    r.connect("client", &path("server"));
    r.accept("listener", "server");
    r.names("client");
    r.names("server");
}

fn autobind_chooses_a_name_that_can_be_connected_to<P: Provider>(r: &mut Run<P>) {
    for kind in KINDS {
        r.socket(kind, "a");
        r.names("a");
        r.bind("a", &Name::Unnamed);
        r.names("a");
        r.bind("a", &Name::Unnamed);
        r.bind("a", &hidden("other"));
        r.names("a");
    }
}

fn a_name_is_given_once<P: Provider>(r: &mut Run<P>) {
    for (kind, at) in KINDS.into_iter().flat_map(|kind| [(kind, path("taken")), (kind, hidden("taken"))]) {
        r.socket(kind, "first");
        r.bind("first", &at);
        r.socket(kind, "second");
        r.bind("second", &at);
        r.names("second");
        r.close("first");
        r.bind("second", &at);
        r.unlink(&at);
        r.socket(kind, "third");
        r.bind("third", &at);
        r.close("second");
        r.close("third");
        r.unlink(&at);
    }
}

fn kinds_share_paths_and_not_abstract_names<P: Provider>(r: &mut Run<P>) {
    for at in [path("shared"), hidden("shared")] {
        for (kind, name) in KINDS.into_iter().zip(["a", "b", "c"]) {
            r.socket(kind, name);
            r.bind(name, &at);
            r.names(name);
        }
    }
}

fn a_bound_socket_is_not_bound_again<P: Provider>(r: &mut Run<P>) {
    r.bound(Kind::Stream, "a", &path("one"));
    r.bind("a", &path("two"));
    r.bind("a", &path("one"));
    r.bind("a", &hidden("two"));
    r.names("a");
}

fn names_have_a_longest_length<P: Provider>(r: &mut Run<P>) {
    for len in [90, 106, 107] {
        r.bound(Kind::Datagram, "a", &Name::PathOf(len));
        r.names("a");
        r.socket(Kind::Datagram, "b");
        r.connect("b", &Name::PathOf(len));
        r.bound(Kind::Datagram, "a", &Name::AbstractOf(len));
        r.names("a");
    }
}

fn connecting_to_an_unused_address<P: Provider>(r: &mut Run<P>) {
    for kind in KINDS {
        for at in [path("missing"), hidden("missing")] {
            r.socket(kind, "a");
            r.nonblocking("a");
            r.connect("a", &at);
            r.names("a");
            r.poll("a");
        }
    }
}

fn connecting_to_a_bound_socket_that_does_not_listen<P: Provider>(r: &mut Run<P>) {
    for kind in CONNECTED {
        for at in [path(&format!("{kind:?}")), hidden(&format!("{kind:?}"))] {
            r.bound(kind, "bound", &at);
            r.socket(kind, "a");
            r.connect("a", &at);
            r.listen("bound", 1);
            r.connect("a", &at);
            r.accept("bound", "b");
            r.names("a");
        }
    }
}

fn connecting_to_a_socket_of_another_kind<P: Provider>(r: &mut Run<P>) {
    for (index, kind) in KINDS.into_iter().enumerate() {
        let at = path(&format!("a{index}"));
        r.bound(kind, "target", &at);
        if kind != Kind::Datagram {
            r.listen("target", 1);
        }
        for other in KINDS.into_iter().filter(|other| *other != kind) {
            r.socket(other, "a");
            r.connect("a", &at);
        }
    }
}

fn a_path_outlives_its_socket_and_an_abstract_name_does_not<P: Provider>(r: &mut Run<P>) {
    for kind in KINDS {
        for at in [path(&format!("{kind:?}")), hidden(&format!("{kind:?}"))] {
            r.bound(kind, "target", &at);
            r.close("target");
            r.socket(kind, "a");
            r.connect("a", &at);
            r.unlink(&at);
            r.connect("a", &at);
            r.unlink(&at);
        }
    }
}

fn an_unlinked_socket_keeps_its_connections<P: Provider>(r: &mut Run<P>) {
    r.connected(Kind::Stream, "client", "server", &path("server"));
    r.unlink(&path("server"));
    r.send("client", b"still here");
    r.recv("server", 64);
    r.names("listener");
    r.socket(Kind::Stream, "late");
    r.connect("late", &path("server"));
    r.bound(Kind::Stream, "next", &path("server"));
    r.connect("late", &path("server"));
}

fn listening_twice_and_with_little_backlog<P: Provider>(r: &mut Run<P>) {
    for kind in CONNECTED {
        let at = hidden(&format!("{kind:?}"));
        r.listener(kind, "listener", &at, 0);
        for name in ["a", "b", "c"] {
            r.socket(kind, name);
            r.nonblocking(name);
            r.connect(name, &at);
        }
        r.accept("listener", "one");
        r.connect("b", &at);
        r.connect("c", &at);
        for name in ["two", "three"] {
            r.accept("listener", name);
        }
    }
}

fn a_full_backlog_refuses_for_now<P: Provider>(r: &mut Run<P>) {
    for kind in CONNECTED {
        let at = path(&format!("{kind:?}"));
        r.listener(kind, "listener", &at, 2);
        let clients: Vec<String> = (0..6).map(|index| format!("client {index}")).collect();
        for client in &clients {
            r.socket(kind, client);
            r.nonblocking(client);
            r.connect(client, &at);
            r.poll(client);
        }
        for index in 0..6 {
            r.accept("listener", &format!("server {index}"));
        }
        r.connect(&clients[5], &at);
        r.poll("listener");
    }
}

fn a_closed_client_stays_in_the_backlog<P: Provider>(r: &mut Run<P>) {
    for kind in CONNECTED {
        let at = path(&format!("{kind:?}"));
        r.listener(kind, "listener", &at, 2);
        r.socket(kind, "client");
        r.connect("client", &at);
        r.send("client", b"and gone");
        r.close("client");
        r.poll("listener");
        r.accept("listener", "server");
        r.nonblocking("server");
        r.poll("server");
        r.names("server");
        r.recv("server", 64);
        r.recv("server", 64);
        r.send("server", b"anybody");
    }
}

fn a_closed_listener_resets_unaccepted_connections<P: Provider>(r: &mut Run<P>) {
    for kind in CONNECTED {
        let at = path(&format!("{kind:?}"));
        r.listener(kind, "listener", &at, 2);
        r.socket(kind, "client");
        r.connect("client", &at);
        r.nonblocking("client");
        r.close("listener");
        r.poll("client");
        r.names("client");
        r.recv("client", 8);
        r.recv("client", 8);
        r.send("client", b"anybody");
        r.poll("client");
        r.take_error("client");
    }
}

fn connecting_twice<P: Provider>(r: &mut Run<P>) {
    for kind in CONNECTED {
        let at = path(&format!("{kind:?}"));
        r.connected(kind, "client", "server", &at);
        r.connect("client", &at);
        r.connect("server", &at);
        r.pair(kind, "left", "right");
        r.connect("left", &at);
        r.close("server");
        r.connect("client", &at);
    }
}

fn accepting_without_a_waiting_client<P: Provider>(r: &mut Run<P>) {
    for kind in CONNECTED {
        r.listener(kind, "listener", &hidden(&format!("{kind:?}")), 1);
        r.accept("listener", "nobody");
        r.poll("listener");
        r.take_error("listener");
    }
}

fn accepting_in_order<P: Provider>(r: &mut Run<P>) {
    let at = hidden("server");
    r.listener(Kind::Stream, "listener", &at, 5);
    for name in ["a", "b", "c"] {
        r.bound(Kind::Stream, name, &path(name));
        r.connect(name, &at);
    }
    for name in ["first", "second", "third", "fourth"] {
        r.accept("listener", name);
        r.names(name);
    }
}

cases!(
    a_path_is_bound_connected_and_reported,
    an_abstract_name_is_bound_connected_and_reported,
    a_client_may_have_a_name_of_its_own,
    autobind_chooses_a_name_that_can_be_connected_to,
    a_name_is_given_once,
    kinds_share_paths_and_not_abstract_names,
    a_bound_socket_is_not_bound_again,
    names_have_a_longest_length,
    connecting_to_an_unused_address,
    connecting_to_a_bound_socket_that_does_not_listen,
    connecting_to_a_socket_of_another_kind,
    a_path_outlives_its_socket_and_an_abstract_name_does_not,
    an_unlinked_socket_keeps_its_connections,
    listening_twice_and_with_little_backlog,
    a_full_backlog_refuses_for_now,
    a_closed_client_stays_in_the_backlog,
    a_closed_listener_resets_unaccepted_connections,
    connecting_twice,
    accepting_without_a_waiting_client,
    accepting_in_order,
);
