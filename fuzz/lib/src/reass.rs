//! Data in any order: data behind holes is kept, and the delivered bytes are the stream.
//!
//! Pieces of the window arrive in an order and with overlaps that the bytes decide, then all missing pieces arrive once more
//! in order, as a sender would repeat them. The whole stream must then have been delivered, each byte once. Tests:
//! `tests/corpus.rs`.

use core::time::Duration;

use arbitrary::Unstructured;
use sockeye_proto::seq::SeqNum;
use sockeye_proto::tcp::accepted::{Accepted, SynAcks};
use sockeye_proto::tcp::pcb::Pcb;
use sockeye_proto::tcp::segment::{Flags, Header, Payload};
use sockeye_proto::tcp::settings::Settings;
use sockeye_proto::time::Instant;

use crate::segments::Text;

/// Bytes of the stream: those that the window allows.
const STREAM: u32 = 60_000;
/// Pieces of one input.
const PIECES_MAX: usize = 4000;
/// Bytes of a segment when all is repeated.
const STEP: u32 = 1448;
/// Near the end of the sequence space, which the stream crosses.
const FIRST: u32 = u32::MAX - 20_000;

/// See the module's head.
pub fn reass(data: &[u8]) {
    let mut u = Unstructured::new(data);
    let mut end = End::new(u.ratio(3, 4).unwrap_or(true));
    for _ in 0..PIECES_MAX {
        let piece = || -> arbitrary::Result<(u32, u32)> {
            let start = u.int_in_range(0..=STREAM - 1)?;
            let len = if u.ratio(1, 2)? { u.int_in_range(1..=4)? } else { u.int_in_range(1..=3000)? };
            Ok((start, len.min(STREAM - start)))
        }();
        match piece {
            Ok((start, len)) if !u.is_empty() => end.feed(start, len),
            Ok(_) | Err(_) => break,
        }
    }
    while end.read < STREAM {
        let before = end.read;
        end.feed(before, STEP.min(STREAM - before));
        assert!(end.read > before, "data that continues the stream is always taken");
    }
}

struct End {
    pcb: Pcb<Text>,
    now: Instant,
    read: u32,
}

impl End {
    fn new(sack: bool) -> Self {
        let settings = Settings { sack, rcv_buf: 1 << 16, timestamps: false, ..Settings::default() };
        let accepted = Accepted {
            iss: SeqNum::new(1),
            irs: SeqNum::new(FIRST) - 1,
            peer_mss: 1448,
            snd_wnd: 65_535,
            rcv_wnd: 65_535,
            window_scale: None,
            timestamps: None,
            sack_permitted: sack,
            ecn: false,
            accurate_ecn: None,
            rtt: None,
            syn_acks: SynAcks::Several,
            rehashes: 0,
        };
        let now = Instant::from_micros(1);
        Self { pcb: Pcb::accept(&settings, &accepted, now), now, read: 0 }
    }

    fn feed(&mut self, start: u32, len: u32) {
        let start = SeqNum::new(FIRST) + start;
        let header = Header {
            seq: start,
            ack: self.pcb.snd_max(),
            flags: Flags::ACK,
            window: 65_535,
            ..Header::default()
        };
        self.now = self.now + Duration::from_micros(10);
        let input = self.pcb.on_segment(&header, Text { start, len }, self.now);
        let text = input.deliver;
        if !text.is_empty() {
            assert_eq!(text.start, SeqNum::new(FIRST) + self.read, "bytes out of order");
            self.read += text.len;
            assert!(self.read <= STREAM, "more than was sent");
        }
        while let Some(sent) = self.pcb.poll_transmit(0, 1 << 16, self.now) {
            for block in sent.header().options.sack.as_slice() {
                assert!(block.start.before(block.end), "{block:?}");
                assert!(
                    block.end.at_or_before(SeqNum::new(FIRST) + STREAM),
                    "reported and never sent: {block:?}"
                );
            }
        }
    }
}
