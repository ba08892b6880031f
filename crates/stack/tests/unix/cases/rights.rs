//! SCM_RIGHTS: which rights arrive, which are truncated or refused, and where a read ends because of them.

use std::time::Duration;

use crate::compare::cases;
use crate::provider::{Direction, Flags, KINDS, Kind, Provider, Room, hidden};
use crate::script::{DONT_WAIT, NO_FLAGS, NOTHING_BUT_DATA, Run};

fn a_socket_arrives_and_works<P: Provider>(r: &mut Run<P>) {
    for kind in KINDS {
        for passed in KINDS {
            r.quiet_pair(kind, "a", "b");
            r.quiet_pair(passed, "Left", "right");
            r.send_rights("a", b"take it", &["Left"]);
            r.close("Left");
            r.recv_rights("b", 16, &["Arrived"]);
            r.send("Arrived", b"through what arrived");
            r.recv("right", 32);
            r.send("right", b"and back");
            r.recv("Arrived", 32);
            r.close("Arrived");
            r.look("right");
        }
    }
}

fn a_file_arrives_and_works<P: Provider>(r: &mut Run<P>) {
    for kind in KINDS {
        r.quiet_pair(kind, "a", "b");
        r.pipe("reader", "writer");
        r.send_rights("a", b"x", &["writer"]);
        r.close("writer");
        r.recv_rights("b", 8, &["arrived"]);
        r.file_write("arrived", b"through the pipe");
        r.close("arrived");
        r.file_read("reader", 32);
        r.file_read("reader", 32);
    }
}

fn a_listener_arrives_and_accepts<P: Provider>(r: &mut Run<P>) {
    r.quiet_pair(Kind::Stream, "a", "b");
    r.listener(Kind::Stream, "Listener", &hidden("server"), 2);
    r.send_rights("a", b"x", &["Listener"]);
    r.close("Listener");
    r.socket(Kind::Stream, "client");
    r.connect("client", &hidden("server"));
    r.recv_rights("b", 8, &["Arrived"]);
    r.accept("Arrived", "server");
    r.nonblocking("server");
    r.send("client", b"hello");
    r.recv("server", 8);
}

fn several_arrive_in_order<P: Provider>(r: &mut Run<P>) {
    for kind in KINDS {
        r.quiet_pair(kind, "a", "b");
        r.pipe("reader", "writer");
        r.quiet_pair(Kind::Stream, "Left", "right");
        r.send_rights("a", b"x", &["Left", "writer", "reader"]);
        r.recv_rights("b", 8, &["Socket", "in", "out"]);
        r.file_write("in", b"pipe");
        r.file_read("out", 8);
        r.send("Socket", b"socket");
        r.recv("right", 8);
    }
}

fn the_same_twice_in_one_message<P: Provider>(r: &mut Run<P>) {
    r.quiet_pair(Kind::Stream, "a", "b");
    r.quiet_pair(Kind::Stream, "Left", "right");
    r.send_rights("a", b"x", &["Left", "Left"]);
    r.close("Left");
    r.recv_rights("b", 8, &["One", "Two"]);
    r.send("One", b"1");
    r.close("One");
    r.send("Two", b"2");
    r.recv("right", 8);
    r.close("Two");
    r.recv("right", 8);
}

fn rights_without_room_are_closed<P: Provider>(r: &mut Run<P>) {
    for kind in KINDS {
        r.quiet_pair(kind, "a", "b");
        r.quiet_pair(Kind::Stream, "One", "one");
        r.quiet_pair(Kind::Stream, "Two", "two");
        r.quiet_pair(Kind::Stream, "Three", "three");
        r.send_rights("a", b"x", &["One", "Two", "Three"]);
        for name in ["One", "Two", "Three"] {
            r.close(name);
        }
        r.recv_rights("b", 8, &["Arrived", "Also"]);
        for name in ["one", "two", "three"] {
            r.look(name);
        }
        r.recv("b", 8);
    }
}

fn without_any_room_all_are_closed<P: Provider>(r: &mut Run<P>) {
    for kind in KINDS {
        r.quiet_pair(kind, "a", "b");
        r.quiet_pair(Kind::Stream, "One", "one");
        r.send_rights("a", b"data", &["One"]);
        r.close("One");
        r.recv("b", 8);
        r.look("one");
    }
}

fn an_empty_list_is_no_rights<P: Provider>(r: &mut Run<P>) {
    for kind in KINDS {
        r.quiet_pair(kind, "a", "b");
        r.send_rights("a", b"x", &[]);
        r.send_rights("a", b"y", &[]);
        r.recv_rights("b", 8, &["None"]);
        r.recv_rights("b", 8, &["None"]);
    }
}

fn rights_without_data<P: Provider>(r: &mut Run<P>) {
    for kind in KINDS {
        r.quiet_pair(kind, "a", "b");
        r.quiet_pair(Kind::Stream, "Left", "right");
        r.send_rights("a", b"", &["Left"]);
        r.close("Left");
        r.look("b");
        r.look("right");
        r.recv_rights("b", 8, &["Arrived"]);
        r.look("right");
    }
}

fn rights_end_a_read_of_a_stream<P: Provider>(r: &mut Run<P>) {
    r.quiet_pair(Kind::Stream, "a", "b");
    r.quiet_pair(Kind::Stream, "Left", "right");
    r.send("a", b"before ");
    r.send_rights("a", b"with ", &["Left"]);
    r.send("a", b"after ");
    r.send_rights("a", b"with again ", &["Left"]);
    r.send("a", b"last");
    r.unread("b");
    for name in ["One", "Two", "Three", "Four"] {
        r.recv_rights("b", 64, &[name]);
    }
}

fn rights_end_a_read_that_has_no_room_for_them<P: Provider>(r: &mut Run<P>) {
    r.quiet_pair(Kind::Stream, "a", "b");
    r.quiet_pair(Kind::Stream, "Left", "right");
    r.send("a", b"before ");
    r.send_rights("a", b"with ", &["Left"]);
    r.send("a", b"after");
    for _ in 0..4 {
        r.recv("b", 64);
    }
}

fn rights_arrive_with_the_first_part_of_their_data<P: Provider>(r: &mut Run<P>) {
    r.quiet_pair(Kind::Stream, "a", "b");
    r.quiet_pair(Kind::Stream, "Left", "right");
    r.send_rights("a", b"abcdef", &["Left"]);
    r.close("Left");
    r.recv_rights("b", 2, &["Arrived"]);
    r.recv_rights("b", 2, &["None"]);
    r.send("a", b"ghi");
    r.recv_rights("b", 8, &["None"]);
    r.send("Arrived", b"x");
    r.recv("right", 8);
}

fn wait_all_stops_at_rights<P: Provider>(r: &mut Run<P>) {
    let flags = Flags { wait_all: true, ..NO_FLAGS };
    let room = Room { data: 10, rights: 1, flags, ..NOTHING_BUT_DATA };
    r.pair(Kind::Stream, "a", "b");
    r.timeout("b", Direction::Receive, Duration::from_millis(10));
    r.quiet_pair(Kind::Stream, "Left", "right");
    r.send("a", b"abc");
    r.send_rights("a", b"def", &["Left"]);
    r.send("a", b"ghijklmnopqrstuvw");
    r.recv_with("b", room, &["One"]);
    r.recv_with("b", room, &["Two"]);
    r.recv_with("b", room, &["Three"]);
}

fn peeking_gives_copies<P: Provider>(r: &mut Run<P>) {
    for kind in KINDS {
        r.quiet_pair(kind, "a", "b");
        r.quiet_pair(Kind::Stream, "Left", "right");
        r.send_rights("a", b"abc", &["Left"]);
        r.close("Left");
        let flags = Flags { peek: true, ..DONT_WAIT };
        r.recv_with("b", Room { data: 8, rights: 1, flags, ..NOTHING_BUT_DATA }, &["Peeked"]);
        r.send("Peeked", b"1");
        r.recv_rights("b", 8, &["Arrived"]);
        r.close("Peeked");
        r.send("Arrived", b"2");
        r.recv("right", 8);
        r.close("Arrived");
        r.look("right");
    }
}

fn a_peek_of_a_stream_stops_at_rights<P: Provider>(r: &mut Run<P>) {
    r.quiet_pair(Kind::Stream, "a", "b");
    r.quiet_pair(Kind::Stream, "Left", "right");
    r.send("a", b"abc");
    r.send("a", b"def");
    r.send_rights("a", b"ghi", &["Left"]);
    r.send("a", b"jkl");
    r.peek("b", 64);
    r.recv("b", 4);
    r.peek("b", 64);
    r.recv("b", 4);
    r.peek("b", 64);
    let flags = Flags { peek: true, ..DONT_WAIT };
    r.recv_with("b", Room { data: 64, rights: 1, flags, ..NOTHING_BUT_DATA }, &["Peeked"]);
    r.recv("b", 64);
    r.recv("b", 64);
}

fn as_many_as_may_be_and_one_more<P: Provider>(r: &mut Run<P>) {
    r.pipe("reader", "writer");
    for kind in KINDS {
        r.quiet_pair(kind, "a", "b");
        for count in [253, 254, 1000] {
            r.send_rights("a", b"x", &vec!["writer"; count]);
        }
        r.recv_rights("b", 8, &["arrived"; 253]);
        r.look("b");
    }
}

fn a_refused_message_passes_nothing<P: Provider>(r: &mut Run<P>) {
    for kind in KINDS {
        r.quiet_pair(kind, "a", "b");
        r.quiet_pair(Kind::Stream, "Left", "right");
        r.fill("a", 1000);
        r.send_rights("a", &[b'x'; 1000], &["Left"]);
        r.close("Left");
        r.look("right");
        r.drain("b", 4096);
        r.look("b");
    }
}

fn rights_to_an_unused_address<P: Provider>(r: &mut Run<P>) {
    for kind in KINDS {
        r.quiet_pair(kind, "a", "b");
        r.quiet_pair(Kind::Stream, "Left", "right");
        r.close("b");
        r.send_rights("a", b"x", &["Left"]);
        r.close("Left");
        r.look("right");
    }
}

fn rights_go_with_a_truncated_record<P: Provider>(r: &mut Run<P>) {
    for kind in [Kind::Datagram, Kind::Seqpacket] {
        r.quiet_pair(kind, "a", "b");
        r.quiet_pair(Kind::Stream, "Left", "right");
        r.send_rights("a", b"abcdef", &["Left"]);
        r.recv_rights("b", 2, &["Arrived"]);
        r.send("Arrived", b"x");
        r.recv("right", 8);
        r.recv("b", 8);
    }
}

fn a_read_without_room_and_rights_that_wait<P: Provider>(r: &mut Run<P>) {
    r.quiet_pair(Kind::Stream, "a", "b");
    r.quiet_pair(Kind::Stream, "Left", "right");
    r.send_rights("a", b"x", &["Left"]);
    r.recv_rights("b", 0, &["Arrived"]);
    r.recv_rights("b", 8, &["Arrived"]);
    r.send("Arrived", b"y");
    r.recv("right", 8);
}

cases!(
    a_socket_arrives_and_works,
    a_file_arrives_and_works,
    a_listener_arrives_and_accepts,
    several_arrive_in_order,
    the_same_twice_in_one_message,
    rights_without_room_are_closed,
    without_any_room_all_are_closed,
    an_empty_list_is_no_rights,
    rights_without_data,
    rights_end_a_read_of_a_stream,
    rights_end_a_read_that_has_no_room_for_them,
    rights_arrive_with_the_first_part_of_their_data,
    wait_all_stops_at_rights,
    peeking_gives_copies,
    a_peek_of_a_stream_stops_at_rights,
    as_many_as_may_be_and_one_more,
    a_refused_message_passes_nothing,
    rights_to_an_unused_address,
    rights_go_with_a_truncated_record,
    a_read_without_room_and_rights_that_wait,
);
