//! Fragments on their way in, until their datagram is whole.
//!
//! The table is `sockeye_proto::ip::reass`; its pieces lie in packet memory of our own, copied, so that a small
//! fragment does not keep a large receive buffer. A datagram that is whole goes on as if it had come in one piece.
//! Each reason for which a fragment is dropped has its counter. Its mutex is a leaf. The timer is a call of the wheel,
//! asked for when the table begins to hold something and again as long as it does. Tests: `tests/ip/fragments.rs`.

use sockeye_mbuf::Chain;
use sockeye_proto::icmp::{Error, Problem};
use sockeye_proto::ip::fragment::{self, Fragment};
use sockeye_proto::ip::reass::{Key, Outcome, Piece, Reass, Refused};
use sockeye_proto::ip::{Addresses, ParseError, V6_HEADER_LEN, ecn};
use sockeye_sync::Mutex;

use super::{Cast, Received, count, dispatch, icmp};
use crate::inet::Core;
use crate::inet::context::Context;
use crate::inet::input::count as frames;
use crate::inet::input::{is_for_all, problem};
use crate::inet::netif::Checksum;
use crate::rt::failpoints::{self, Point};
use crate::rt::panics::{self, PanicSource};
use crate::rt::timers::TimerKey;

/// Bytes of bookkeeping that a fragment costs beside its payload.
const OVERHEAD: usize = 320;
/// Bytes of a datagram in which its headers are looked for.
const CHAIN_MAX: usize = 256;
/// Where IPv6's payload length stands, for a parameter problem.
const V6_LENGTH_AT: u32 = 4;

/// See the module's head.
#[derive(Default)]
pub(super) struct Table(Mutex<Held>);

#[derive(Default)]
struct Held {
    reass: Reass<Received, Chain>,
    is_armed: bool,
}

/// A fragment has come in.
pub(super) fn input(cx: &mut Context<'_>, mut received: Received, place: Fragment) {
    cx.core.ip.count(count::REASM_REQDS);
    if !is_well_formed(cx, &received, &place) {
        return cx.core.ip.count(count::REASM_FAILS);
    }
    if place.is_atomic() {
        // Not to be mixed with others of its identification (RFC 6946).
        cx.core.ip.count(count::REASM_OKS);
        return whole(cx, received);
    }
    let payload = std::mem::take(&mut received.payload);
    let header = received.header;
    let key = Key::new(&header.addresses, header.protocol, place.id);
    let piece = Piece {
        fragment: place,
        len: payload.len(),
        header_len: counted_headers(&received),
        cost: payload.footprint() + OVERHEAD,
        ecn: header.traffic_class & ecn::MASK,
        headers: received,
        payload,
    };
    let (outcome, evicted) = {
        let mut held = cx.core.ip.fragments.0.lock();
        let outcome = panics::catch(PanicSource::Protocol, "a fragment", || {
            let outcome = held.reass.on_fragment(key, piece, cx.now);
            failpoints::hit(Point::Reassemble, u64::from(place.id));
            outcome
        });
        if outcome.is_err() {
            held.reass.forget(&key);
        }
        arm(cx.core, &mut held);
        (outcome, held.reass.take_evicted())
    };
    if evicted > 0 {
        cx.core.ip.count_many(count::REASM_EVICTED, evicted);
    }
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(caught) => {
            cx.due.caught.push(caught);
            return cx.core.ip.count(count::REASM_FAILS);
        }
    };
    match outcome {
        Outcome::Pending => {}
        Outcome::Complete(mut first, ecn, pieces) => {
            cx.core.ip.count(count::REASM_OKS);
            pieces.into_iter().for_each(|piece| first.payload.append(piece));
            first.header.traffic_class = first.header.traffic_class & !ecn::MASK | ecn;
            // A device that has looked at sums, or joined packets, has seen parts.
            first.checksum = Checksum::Software;
            first.gso_size = 0;
            whole(cx, first);
        }
        Outcome::Refused(why) => {
            cx.core.ip.count(count::REASM_FAILS);
            cx.core.ip.count(counter_of(why));
        }
    }
}

/// Bytes in front of the payload that count towards the length of the whole packet: all headers of IPv4, and in IPv6
/// those between the fixed and the fragment header.
fn counted_headers(received: &Received) -> usize {
    let len = received.head.bytes().len();
    match received.header.addresses {
        Addresses::V4 { .. } => len,
        Addresses::V6 { .. } => len.saturating_sub(V6_HEADER_LEN + fragment::V6_FRAGMENT_LEN),
    }
}

/// Rules that are IPv6's alone, whose sender hears of it (RFC 8200 section 4.5, RFC 7112).
fn is_well_formed(cx: &mut Context<'_>, received: &Received, place: &Fragment) -> bool {
    if received.header.addresses.src().is_ipv4() {
        return true;
    }
    if place.more && !received.payload.len().is_multiple_of(8) {
        cx.core.ip.count(count::FRAG_BAD_LENGTH);
        icmp::error(cx, received, Error::ParameterProblem(Problem::Field, V6_LENGTH_AT));
        return false;
    }
    let (first, len) = received.first::<CHAIN_MAX>();
    if place.offset == 0 && !fragment::has_whole_chain(received.header.protocol, &first[..len]) {
        cx.core.ip.count(count::FRAG_INCOMPLETE_CHAIN);
        icmp::error(cx, received, Error::ParameterProblem(Problem::IncompleteChain, 0));
        return false;
    }
    true
}

/// A datagram that is in one piece now.
fn whole(cx: &mut Context<'_>, mut received: Received) {
    (received.fragment, received.was_in_fragments) = (None, true);
    if received.header.addresses.src().is_ipv6() {
        let (first, len) = received.first::<CHAIN_MAX>();
        let behind = received.head.bytes().len();
        let inside = fragment::upper_layer(received.header.protocol, &first[..len], behind);
        let (protocol, at) = match inside {
            Ok(inside) => inside,
            Err(error) => return refused(cx, &received, &error),
        };
        received.header.protocol = protocol;
        received.payload.trim_front(at);
        received.head.extend(&first[..at.min(len)]);
    }
    dispatch(cx, received);
}

/// A datagram with headers behind the fragment header that are not in order: its sender gets an error as for those before
/// it. The error quotes the first fragment, which holds them all (RFC 7112).
#[cold]
fn refused(cx: &mut Context<'_>, received: &Received, error: &ParseError) {
    cx.core.input.count(frames::of_ip(error).0, 1);
    cx.core.ip.count(count::IN_HDR_ERRORS);
    if let Some(problem) = problem(error).filter(|_| received.cast == Cast::Unicast || is_for_all(error)) {
        icmp::error(cx, received, problem);
    }
}

/// Asks the wheel for a call at the next deadline, if none is coming.
fn arm(core: &Core, held: &mut Held) {
    if let Some(at) = held.reass.next_deadline().filter(|_| !held.is_armed) {
        held.is_armed = true;
        core.workers.arm(0, at.as_micros(), TimerKey::Fragments);
    }
}

/// The wheel's call: datagrams whose time is over are dropped, and their senders told (RFC 792, RFC 4443 section 3.3).
pub(crate) fn on_timer(cx: &mut Context<'_>) {
    let core = cx.core;
    let mut firsts = Vec::new();
    let expired = {
        let mut held = core.ip.fragments.0.lock();
        held.is_armed = false;
        let next = held.reass.next_key();
        let expired = panics::catch(PanicSource::Protocol, "the timer of reassembly", || {
            failpoints::hit(Point::ReassemblyTimer, 0);
            held.reass.expire(cx.now, |first| firsts.push(first))
        });
        if let (Err(_), Some(next)) = (&expired, &next) {
            held.reass.forget(next);
        }
        arm(core, &mut held);
        expired.unwrap_or_else(|caught| {
            cx.due.caught.push(caught);
            0
        })
    };
    core.ip.count_many(count::REASM_TIMEOUT, expired);
    core.ip.count_many(count::REASM_FAILS, expired);
    for (mut first, payload) in firsts {
        first.payload = payload;
        icmp::error(cx, &first, Error::ReassemblyTimeExceeded);
    }
}

fn counter_of(why: Refused) -> usize {
    match why {
        Refused::Duplicate => count::FRAG_DUPLICATE,
        Refused::Overlap => count::FRAG_OVERLAP,
        Refused::Inconsistent => count::FRAG_INCONSISTENT,
        Refused::Length => count::FRAG_BAD_LENGTH,
        Refused::TooLong => count::FRAG_TOO_LONG,
        Refused::TooMany => count::FRAG_TOO_MANY,
        Refused::Dead => count::FRAG_OF_DEAD,
        Refused::NoRoom => count::FRAG_NO_ROOM,
        Refused::Ecn => count::FRAG_BAD_ECN,
    }
}
