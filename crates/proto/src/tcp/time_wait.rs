//! The record of a connection in TIME-WAIT (RFC 9293 sections 3.6.1 and 3.10.7.4).
//!
//! Hosts that close first keep thousands of them, so a [`TimeWait`] is a few words instead of a pcb. It does not depend
//! on addresses, its table, or timers: the caller asks for [`deadline`](TimeWait::deadline) after each segment and
//! drops the record when that has passed.
//!
//! States: the record is in TIME-WAIT as long as it exists. It ends in three ways only: the deadline passes; a SYN that
//! cannot be an old duplicate reopens it (RFC 6191); our side opens the connection again with timestamps that
//! distinguish the two. A reset never ends it (RFC 1337, fix F1), and only a repeated FIN restarts the 2MSL timer, so
//! nothing else prolongs it.
//!
//! Invariants: the numbers never change except TS.Recent, which only grows; segments that may be part of an ACK loop
//! are answered at most once in a little more than half a second. Tests: `time_wait/tests.rs`.

#[cfg(test)]
mod tests;

use core::time::Duration;

use crate::seq::SeqNum;
use crate::tcp::accepted::{TimeWaitParams, TimestampState};
use crate::tcp::input::interval_ms;
use crate::tcp::segment::{Flags, Header, Options, Timestamps};
use crate::tcp::timestamp;
use crate::time::Instant;

/// Least distance of the next incarnation's ISS from SND.NXT, bytes: farther than any unscaled window reaches, so that
/// the peer cannot take the new SYN for data of the old connection.
const ISS_DISTANCE: u32 = 65_535 + 2;

/// A connection in TIME-WAIT, without its addresses.
#[derive(Clone, Copy, Debug)]
pub struct TimeWait {
    deadline: Instant,
    two_msl_ms: u32,
    snd_nxt: SeqNum,
    rcv_nxt: SeqNum,
    ts_recent: u32,
    ts_offset: u32,
    /// No TSval later than this has been sent.
    ts_sent: u32,
    /// The millisecond clock at the last answer to a segment without length. These answers are limited as challenges
    /// are.
    limited_at_ms: u32,
    /// RCV.WND as in the header.
    window_field: u16,
    timestamps: bool,
    /// True when `limited_at_ms` is valid.
    limited: bool,
}

/// Result of a segment to a connection in TIME-WAIT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeWaitAction {
    /// Drop the segment.
    Ignore,
    /// Send this acknowledgment. The deadline may have moved.
    Ack(Header),
    /// The segment is a SYN that may open a new incarnation. If there is a listener, drop the record and
    /// give it the segment; if not, send [`TimeWait::ack`].
    Reopen {
        /// The new ISS must be at or after this.
        iss_floor: SeqNum,
    },
    /// 2MSL has passed: drop the record and treat the segment as one to no connection.
    Closed,
}

/// Bounds for a connection that takes over the 4-tuple of one in TIME-WAIT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reuse {
    /// The new ISS must be at or after this.
    pub iss_floor: SeqNum,
    /// The timestamp offset to continue with, so that TSval does not go back.
    pub ts_offset: u32,
}

impl TimeWait {
    /// The record of a connection that enters TIME-WAIT at `now`; it sent its last TSval before that.
    pub fn new(params: &TimeWaitParams, now: Instant) -> Self {
        let timestamps = params.timestamps.is_some();
        let TimestampState { ts_recent, ts_offset, .. } =
            params.timestamps.unwrap_or(TimestampState { ts_recent: 0, ts_recent_at: now, ts_offset: 0 });
        Self {
            deadline: params.expires_at,
            two_msl_ms: u32::try_from(params.two_msl.as_millis()).unwrap_or(u32::MAX),
            snd_nxt: params.snd_nxt,
            rcv_nxt: params.rcv_nxt,
            ts_recent,
            ts_offset,
            ts_sent: timestamp::value(now, ts_offset),
            limited_at_ms: 0,
            window_field: params.window_field,
            timestamps,
            limited: false,
        }
    }

    /// When the record must be dropped; a repeated FIN makes this later, nothing makes it earlier.
    pub const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Processes a segment that has arrived for this connection. Never blocks; constant time.
    pub fn on_segment(&mut self, hdr: &Header, payload_len: usize, now: Instant) -> TimeWaitAction {
        if now >= self.deadline {
            return TimeWaitAction::Closed;
        }
        if hdr.flags.has(Flags::RST) {
            return TimeWaitAction::Ignore;
        }
        if hdr.flags.has(Flags::SYN) {
            return self.on_syn(hdr, now);
        }
        if let Some(ts) = hdr.options.timestamps
            && self.timestamps
            && timestamp::is_stale(ts.val, self.ts_recent)
        {
            // PAWS, RFC 7323 section 5.3, R1: old duplicates are acknowledged and dropped.
            return self.ack_limited(hdr.seq_len(payload_len), now);
        }
        self.on_valid_age(hdr, payload_len, now)
    }

    /// A SYN: a new incarnation if it cannot be an old duplicate, else a challenge ACK (RFC 9293 section 3.10.7.4,
    /// fourth step), which tells the sender of a genuine SYN about the old connection, so that it tries again later.
    fn on_syn(&mut self, hdr: &Header, now: Instant) -> TimeWaitAction {
        if !hdr.flags.any(Flags::ACK.with(Flags::FIN)) && self.is_newer_syn(hdr) {
            return TimeWaitAction::Reopen { iss_floor: self.iss_floor() };
        }
        self.ack_limited(0, now)
    }

    /// RFC 6191 section 2. If only the new incarnation has timestamps, the RFC would always accept; whether our side
    /// would agree to them is unknown here, so the sequence number decides.
    fn is_newer_syn(&self, hdr: &Header) -> bool {
        // The RFC would also accept a SYN at RCV.NXT, but no initial number is that close to the last one (as on
        // Linux).
        let seq_is_newer = hdr.seq.after(self.rcv_nxt);
        match (self.timestamps, hdr.options.timestamps) {
            (true, Some(ts)) => {
                timestamp::older(self.ts_recent, ts.val) || (ts.val == self.ts_recent && seq_is_newer)
            }
            (true, None) | (false, Some(_) | None) => seq_is_newer,
        }
    }

    /// A segment that passed PAWS. The peer can only repeat its FIN and the acknowledgment of ours; anything else shows
    /// that it does not know the state of the connection, so it gets an acknowledgment, as on Linux.
    fn on_valid_age(&mut self, hdr: &Header, payload_len: usize, now: Instant) -> TimeWaitAction {
        let len = hdr.seq_len(payload_len);
        let ack_is_sent = hdr.flags.has(Flags::ACK) && hdr.ack.at_or_before(self.snd_nxt);
        let ends_here = hdr.seq + len == self.rcv_nxt;
        if hdr.flags.has(Flags::FIN) && ends_here && ack_is_sent {
            // The peer has not seen our last ACK.
            self.note_timestamp(hdr);
            self.deadline = now + Duration::from_millis(u64::from(self.two_msl_ms));
            return TimeWaitAction::Ack(self.ack(now));
        }
        if hdr.seq == self.rcv_nxt && len == 0 {
            if ack_is_sent {
                self.note_timestamp(hdr);
            }
            return TimeWaitAction::Ignore;
        }
        self.ack_limited(len, now)
    }

    /// The acknowledgment of everything: `<SEQ=SND.NXT><ACK=RCV.NXT><CTL=ACK>`.
    pub fn ack(&mut self, now: Instant) -> Header {
        let timestamps = self.timestamps.then(|| {
            let val = timestamp::value(now, self.ts_offset);
            // A later call may have an earlier time; TSval must not show it (PAWS).
            if timestamp::older(self.ts_sent, val) {
                self.ts_sent = val;
            }
            Timestamps { val: self.ts_sent, ecr: self.ts_recent }
        });
        Header {
            seq: self.snd_nxt,
            ack: self.rcv_nxt,
            flags: Flags::ACK,
            window: self.window_field,
            urgent: 0,
            gso_size: 0,
            options: Options { timestamps, ..Options::default() },
        }
    }

    /// An acknowledgment, unless the segment may be part of an ACK loop and it is too early for another such answer
    /// (`input/challenge.rs`). A segment with data or a FIN is never part of one.
    fn ack_limited(&mut self, len: u32, now: Instant) -> TimeWaitAction {
        if len == 0 {
            // An unshifted timestamp is the low half of the millisecond clock.
            let now_ms = timestamp::value(now, 0);
            if self.limited && now_ms.wrapping_sub(self.limited_at_ms) < self.ack_interval_ms() {
                return TimeWaitAction::Ignore;
            }
            self.limited = true;
            self.limited_at_ms = now_ms;
        }
        TimeWaitAction::Ack(self.ack(now))
    }

    /// Milliseconds from the last limited answer to the next one. Only an end that knows both sequence numbers could
    /// predict it.
    fn ack_interval_ms(&self) -> u32 {
        interval_ms(self.snd_nxt.raw() ^ self.rcv_nxt.raw().rotate_left(16), self.limited_at_ms)
    }

    fn note_timestamp(&mut self, hdr: &Header) {
        if let Some(ts) = hdr.options.timestamps
            && self.timestamps
            && timestamp::is_later(ts.val, self.ts_recent)
        {
            self.ts_recent = ts.val;
        }
    }

    fn iss_floor(&self) -> SeqNum {
        self.snd_nxt + ISS_DISTANCE
    }

    /// Whether a connection to the same remote endpoint may be opened from the same local port at `now`, and the bounds
    /// that it must then observe.
    ///
    /// It may only if timestamps were in use and our clock has ticked since our last TSval. If the peer still has the
    /// old connection, it then recognises the new SYN as newer (RFC 6191), and PAWS keeps old duplicates out of the new
    /// connection, which must also use timestamps. Linux requires a whole second with `tcp_tw_reuse`, because its
    /// record stores the time in seconds; RFC 6191 needs only one tick of the 1 ms clock.
    pub fn can_reuse_for_connect(&self, now: Instant) -> Option<Reuse> {
        let ticked = timestamp::older(self.ts_sent, timestamp::value(now, self.ts_offset));
        (self.timestamps && ticked).then(|| Reuse { iss_floor: self.iss_floor(), ts_offset: self.ts_offset })
    }
}

/// The test for acceptability of RFC 9293 section 3.4: whether a segment of `len` sequence numbers
/// from `seq` on touches the window of `wnd` bytes from `rcv_nxt` on.
pub(super) fn is_acceptable(seq: SeqNum, len: u32, rcv_nxt: SeqNum, wnd: u32) -> bool {
    let in_window = |seq: SeqNum| seq.at_or_after(rcv_nxt) && seq.before(rcv_nxt + wnd);
    match (len, wnd) {
        (0, 0) => seq == rcv_nxt,
        (0, _) => in_window(seq),
        (_, 0) => false,
        (_, _) => in_window(seq) || in_window(seq + (len - 1)),
    }
}
