//! The SYN cache under arbitrary SYNs, acknowledgments, resets and waits.
//!
//! Holds: it never has more entries than it was made for; an acknowledgment completes a handshake only if it acknowledges the number
//! that was sent; work of a timer is bounded by the entries. Tests: `tests/corpus.rs`.

use core::time::Duration;

use arbitrary::{Result, Unstructured};
use sockeye_proto::seq::SeqNum;
use sockeye_proto::tcp::segment::Flags;
use sockeye_proto::tcp::syncache::{
    AckOutcome, InitialNumbers, ListenParams, Patience, RstOutcome, SynCache,
};
use sockeye_proto::time::Instant;

use crate::segments::{Known, segment};

const CAPACITY: usize = 16;
const STEPS_MAX: usize = 2000;
const PARAMS: ListenParams = ListenParams {
    mss: 1460,
    peer_mss_default: 536,
    rcv_wnd: 65_535,
    window_scale: Some(7),
    timestamps: true,
    sack: true,
    ecn: true,
    accurate_ecn: true,
};
const NUMBERS: InitialNumbers = InitialNumbers { iss: SeqNum::new(u32::MAX - 10), ts_offset: 5 };
const IRS: u32 = 77;

/// See the module's head.
pub fn syncache(data: &[u8]) {
    let mut u = Unstructured::new(data);
    let mut bed = Bed { cache: SynCache::new(CAPACITY, [7; 16]), now: Instant::from_micros(1) };
    for _ in 0..STEPS_MAX {
        if u.is_empty() || bed.step(&mut u).is_err() {
            break;
        }
        assert!(bed.cache.len() <= CAPACITY && bed.cache.is_empty() == bed.cache.next_deadline().is_none());
    }
    // No client answers any more: every entry is given up.
    for _ in 0..DEADLINES_MAX {
        let Some(at) = bed.cache.next_deadline() else { return };
        bed.pass(at.since(bed.now));
    }
    panic!("{} entries that are never given up", bed.cache.len());
}

/// The listeners differ in whether they wait for text.
fn patience(listener: &u8) -> Patience {
    Patience { defers: listener % 3, ..Patience::default() }
}

/// Each of the entries has a few deadlines.
const DEADLINES_MAX: usize = CAPACITY * 16;

struct Bed {
    cache: SynCache<u8, u8>,
    now: Instant,
}

impl Bed {
    fn step(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let key = u.int_in_range(0..=31u8)?;
        let known = Known {
            seq: SeqNum::new(IRS) + 1,
            ack: NUMBERS.iss + 1,
            una: NUMBERS.iss,
            clock: 9,
            timestamps: u.arbitrary()?,
        };
        match u.int_in_range(0..=9u8)? {
            0..=3 => {
                let (mut header, _) = segment(u, &known)?;
                header.flags = Flags::SYN;
                let is_new = self.cache.is_new(&key);
                let answer = self.cache.on_syn(key, key, &header, &PARAMS, NUMBERS, self.now);
                assert!(!is_new || answer.is_some(), "a new SYN is answered");
            }
            4..=6 => {
                let (header, len) = segment(u, &known)?;
                let outcome = self.cache.on_ack(&key, &header, usize::from(len), self.now, patience);
                if let AckOutcome::Accept { listener, accepted } = outcome {
                    assert_eq!((listener, header.ack), (key, accepted.iss + 1));
                    assert_eq!(self.cache.remove(&key), Some(key));
                }
            }
            7 => {
                let (header, _) = segment(u, &known)?;
                if let RstOutcome::Removed(_) = self.cache.on_rst(&key, &header, self.now) {
                    assert!(self.cache.is_new(&key));
                }
            }
            8 => self.cache.retain(|kept, _| *kept != key),
            _ => self.pass(Duration::from_millis(u.int_in_range(0..=70_000)?)),
        }
        Ok(())
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        let (entries, mut sent) = (self.cache.len(), 0);
        self.cache.on_timer(self.now, patience, |_, _, _, _| sent += 1);
        assert!(sent <= entries, "{sent} SYN-ACKs of {entries} entries");
    }
}
