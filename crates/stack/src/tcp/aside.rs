//! Input from the Internet layer to TCP beside whole segments: segments that came in fragments, and reports about those that were not
//! delivered.
//!
//! Handled when a call is settled, with no socket lock held. Tests: `tests/ip`.

use sockeye_proto::icmp::Error;
use sockeye_proto::seq::SeqNum;
use sockeye_proto::tcp::segment::Flags;
use sockeye_proto::tcp::wire;

use crate::base::addr::{Endpoint, FourTuple};
use crate::base::payload::Data;
use crate::inet::context::Aside;
use crate::inet::input::count as frames;
use crate::inet::ip::{Cast, Received};
use crate::tcp::conn::Work;
use crate::tcp::conn::outbox::{Context, Routed, Unowned};
use crate::tcp::discipline::{Chosen, Discipline};
use crate::tcp::handshake::passive;
use crate::tcp::route;

/// See the module's head.
pub(crate) fn input(cx: &mut Context<'_>, aside: Aside) {
    match aside {
        Aside::Fragmented(received) => segment(cx, received),
        Aside::Undelivered(tuple, seq, error) => undelivered(cx, &tuple, seq, error),
    }
}

/// A segment of ours did not arrive. Its connection judges by the number whether to believe it (RFC 5927).
fn undelivered(cx: &mut Context<'_>, tuple: &FourTuple, seq: SeqNum, error: Error) {
    let hash = tuple.hash(&cx.core.key);
    let shard = cx.core.demux.shard(hash);
    match shard.conn(hash, tuple).cloned() {
        Some(conn) => {
            drop(shard);
            Chosen::enter(cx, &conn, Work::Undelivered(seq, error));
        }
        None => passive::undelivered(cx, shard, tuple, seq, error),
    }
}

/// A TCP segment that came in fragments. It takes the way of segments without a connection, which finds one.
fn segment(cx: &mut Context<'_>, mut received: Received) {
    let input = &cx.core.input;
    // To an address of ours, but by a frame to all on the link (RFC 1122 section 4.2.3.10): no host sends that.
    if received.cast != Cast::Unicast {
        input.count(frames::TCP_TO_MANY, 1);
        return input.count(frames::NOT_FOR_US, 1);
    }
    if !received.checksum_holds() {
        input.count(frames::BAD_TCP_CHECKSUM, 1);
        return input.count(frames::BAD_CHECKSUM, 1);
    }
    let (first, len) = received.first::<SEGMENT_HEAD_MAX>();
    let Ok((ports, mut header, in_head)) = wire::parse(&first[..len], wire::ChecksumIn::Trusted) else {
        input.count(frames::BAD_TCP_HEADER, 1);
        return input.count(frames::MALFORMED, 1);
    };
    if header.flags.has(Flags::BAD_OPTION) {
        header.flags = header.flags.without(Flags::BAD_OPTION);
        input.count(frames::BAD_TCP_OPTIONS, 1);
    }
    header.flags = header.flags.with(Flags::of_ip(received.header.traffic_class));
    if header.flags.has(Flags::CE) {
        input.count(frames::MARKED, 1);
    }
    received.payload.trim_front(in_head.start);
    let addresses = received.header.addresses;
    let to = FourTuple {
        local: Endpoint::new(addresses.dst(), ports.dst),
        remote: Endpoint::new(addresses.src(), ports.src),
    };
    input.count(frames::PACKETS, 1);
    route::deliver(
        cx,
        Routed { from: None, to, header, payload: Data(received.payload), unowned: Unowned::default() },
    );
}

/// Bytes of the longest TCP header.
const SEGMENT_HEAD_MAX: usize = 60;
