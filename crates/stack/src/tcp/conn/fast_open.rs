//! Effects of the end of a handshake on Fast Open (RFC 7413): a client's cookies and disappointments, a listener's
//! places.
//!
//! Called under the socket lock; the cache's mutex is a leaf. It does not depend on segments beyond the
//! header that ended the handshake. Tests: `tests/tcp/fastopen.rs`.

use sockeye_proto::tcp::accepted::DEFAULT_MSS;
use sockeye_proto::tcp::events::Events;
use sockeye_proto::tcp::fast_open::SynText;
use sockeye_proto::tcp::pcb::Pcb;
use sockeye_proto::tcp::segment::Header;

use super::Conn;
use super::outbox::Context;
use super::sockbuf::Buffers;
use crate::base::payload::Data;
use crate::rt::counter;
use crate::tcp::Core;
use crate::tcp::handshake::fastopen::Lesson;

/// Updates Fast Open's memory when a handshake is over, well or not.
#[cold]
pub(super) fn over(
    cx: &mut Context<'_>,
    pcb: &Pcb<Data>,
    conn: &Conn,
    so: &mut Buffers,
    events: Events,
    header: &Header,
) {
    let core = cx.core;
    let (asked, text) = (pcb.fast_open_option(), pcb.syn_text());
    if events.has(Events::CONNECTED) {
        let lesson = Lesson {
            asked,
            answer: header.options.fast_open,
            mss: header.options.mss.unwrap_or(DEFAULT_MSS),
            text,
            is_repeated: pcb.is_fast_open_repeated(),
        };
        match lesson.text {
            SynText::None | SynText::Sent => {}
            SynText::Taken => core.count(counter::FASTOPEN_ACTIVE),
            SynText::Part | SynText::Refused | SynText::Lost | SynText::TooLong => {
                core.count(counter::FASTOPEN_ACTIVE_FAIL);
            }
        }
        if core.fast_open_cache.learn(conn.tuple.remote.addr, &lesson, cx.now) {
            count_black_hole(core);
        }
    }
    if let Some(place) = so.fast_open.take() {
        if !events.has(Events::SYN_ACKED) {
            core.count(counter::FASTOPEN_PASSIVE_FAIL);
        }
        place.give_back(events.has(Events::RESET).then_some(cx.now));
    }
}

/// The network has given the connection up. If that was a handshake that began with text, this is remembered.
#[cold]
pub(super) fn failed(cx: &Context<'_>, pcb: &Pcb<Data>, conn: &Conn, so: &Buffers) {
    match pcb.syn_text() {
        SynText::Sent | SynText::Lost if !so.snd.connected => unanswered(cx, conn),
        SynText::None
        | SynText::Sent
        | SynText::Taken
        | SynText::Part
        | SynText::Refused
        | SynText::Lost
        | SynText::TooLong => {}
    }
}

/// The application gives the connection up: so too, if the SYN has had to be repeated by then.
pub(super) fn given_up(cx: &Context<'_>, pcb: &Pcb<Data>, conn: &Conn, so: &Buffers) {
    if !so.snd.connected && pcb.syn_text() == SynText::Lost {
        unanswered(cx, conn);
    }
}

/// The peer has answered nothing to a SYN with text (RFC 7413 section 4.1.3.1).
#[cold]
fn unanswered(cx: &Context<'_>, conn: &Conn) {
    cx.core.count(counter::FASTOPEN_ACTIVE_FAIL);
    count_black_hole(cx.core);
    cx.core.fast_open_cache.note_unanswered(conn.tuple.remote.addr, cx.now);
}

/// Text on a SYN was lost: it is held to be dropped on the way, unless the settings say that this counts for nothing.
fn count_black_hole(core: &Core) {
    if !core.tcp_config().fastopen_blackhole_timeout.is_zero() {
        core.count(counter::FASTOPEN_BLACKHOLE);
    }
}
