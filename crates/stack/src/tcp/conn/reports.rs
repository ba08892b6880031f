//! Reports on sent and received bytes: completions of zero-copy sends (MSG_ZEROCOPY) and time stamps (SO_TIMESTAMPING).
//!
//! A connection that was never asked for reports has none of this: [`Reports`] hangs behind the rare state of its send buffer, so
//! such a connection is as large as before, and a write or read looks at one pointer more.
//!
//! Bytes have *positions*: how many have left the front of `so_snd` since the reports were made, plus the distance from its front.
//! A send that asks for a report leaves a [`Pending`] with the position behind its last byte. It is *open* while its call still
//! appends; what happens to an open one is noted and told when the call ends. Sent is a position that output has passed
//! ([`sent`]), acknowledged one that has left the buffer ([`acked`]). Reports that are told wait in a queue for
//! `TcpStream::recv_report`, and make the socket ready with `ERROR`, as Linux's error queue does.
//!
//! Bounds: [`REPORTS_MAX`] pending and told ones. Beyond it a zero-copy send fails with ENOBUFS before it takes a byte, so that no
//! completion is ever lost; a time stamp is lost, as on Linux. Completions that follow one another are joined. As many arrivals of
//! received bytes are kept apart; beyond that the latest are joined.
//!
//! All of it is under the socket lock. Whoever makes a report marks the waiters in the same section (`change`), so none is
//! missed. It does not depend on segments. Tests: below, and `tests/tcp/reports.rs`.

use std::collections::VecDeque;
use std::hint::cold_path;
use std::time::Duration;

use sockeye_proto::seq::SeqNum;
use sockeye_proto::time::Instant;

use super::outbox::Context;
use super::sockbuf::{Buffers, SendBuf};
use crate::base::clock::Clock;
use crate::base::report::{Report, Timestamping};
use crate::rt::poll::Ready;

/// Most sends that reports are due for, and most reports that wait to be read.
pub(crate) const REPORTS_MAX: usize = 1024;
/// Most arrivals that are told apart.
const ARRIVALS_MAX: usize = 1024;

/// A send whose reports are due.
#[derive(Clone, Copy, Debug)]
struct Pending {
    /// The position behind its last byte so far.
    end: u64,
    /// The call that sends it.
    call: u32,
    is_open: bool,
    /// Its number among zero-copy sends, and whether its bytes are copies.
    zerocopy: Option<(u32, bool)>,
    wanted: Timestamping,
    sent: Option<Instant>,
    acked: Option<Instant>,
}

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    /// SO_ZEROCOPY.
    pub zerocopy: bool,
    timestamping: Timestamping,
    /// The position of the first byte in `so_snd`.
    front: u64,
    /// The position of the byte with number 0.
    base: u64,
    zerocopy_count: u32,
    calls: u32,
    /// In the order of their ends.
    pending: VecDeque<Pending>,
    told: VecDeque<Report>,
    /// Runs of received bytes by their ends, with the times at which they came.
    arrivals: VecDeque<(SeqNum, Instant)>,
    /// RCV.NXT when arrivals began to be noted.
    noted_from: SeqNum,
    /// When the last byte of the last read came.
    read_at: Option<Instant>,
}

impl Reports {
    /// Of a new socket with these options, if they ask for any.
    pub fn of(zerocopy: bool, timestamping: Timestamping) -> Option<Box<Self>> {
        (zerocopy || timestamping != Timestamping::NONE)
            .then(|| Box::new(Self { zerocopy, timestamping, ..Self::default() }))
    }

    pub fn timestamping(&self) -> Timestamping {
        self.timestamping
    }

    /// `rcv_nxt`: the number of the next byte to be received.
    pub fn set_timestamping(&mut self, wanted: Timestamping, rcv_nxt: SeqNum) {
        if wanted.has(Timestamping::NUMBERED) && !self.timestamping.has(Timestamping::NUMBERED) {
            self.base = self.front;
        }
        if wanted.has(Timestamping::RECEIVED) && !self.timestamping.has(Timestamping::RECEIVED) {
            self.begin_receiving(rcv_nxt);
        }
        self.timestamping = wanted;
    }

    /// Arrivals are noted from this number on.
    pub fn begin_receiving(&mut self, rcv_nxt: SeqNum) {
        self.arrivals.clear();
        (self.noted_from, self.read_at) = (rcv_nxt, None);
    }

    /// The first report that was not taken yet.
    pub fn take(&mut self) -> Option<Report> {
        self.told.pop_front()
    }

    pub fn has_any(&self) -> bool {
        !self.told.is_empty()
    }

    /// Whether a further zero-copy send would be one too many.
    fn is_full(&self) -> bool {
        self.pending.len() + self.told.len() >= REPORTS_MAX
    }

    /// A call has appended bytes, which end `len` bytes behind the front: its first, or `call`'s next. Returns the call's number if
    /// it has reports.
    pub fn appended(&mut self, call: Option<u32>, len: u32, zerocopy: bool, copied: bool) -> Option<u32> {
        let end = self.front + u64::from(len);
        let known = call.and_then(|call| self.pending.iter().rposition(|pending| pending.call == call));
        let mut pending = match known.and_then(|index| self.pending.remove(index)) {
            Some(pending) => pending,
            None if call.is_some() => return call,
            None => self.begin(zerocopy, copied)?,
        };
        // What had happened to the bytes before says nothing of these.
        (pending.end, pending.sent, pending.acked) = (end, None, None);
        self.pending.push_back(pending);
        Some(pending.call)
    }

    fn begin(&mut self, zerocopy: bool, copied: bool) -> Option<Pending> {
        let zerocopy = (zerocopy && self.zerocopy).then(|| {
            let number = self.zerocopy_count;
            self.zerocopy_count = number.wrapping_add(1);
            (number, copied)
        });
        let stamps = self.timestamping.any(Timestamping::OF_SENDS) && !self.is_full();
        if zerocopy.is_none() && !stamps {
            return None;
        }
        self.calls = self.calls.wrapping_add(1);
        let wanted = if stamps { self.timestamping } else { Timestamping::NONE };
        let pending =
            Pending { end: 0, call: self.calls, is_open: true, zerocopy, wanted, sent: None, acked: None };
        Some(pending)
    }

    /// The call appends no more.
    pub fn close(&mut self, call: u32) {
        let Some(index) = self.pending.iter().rposition(|pending| pending.call == call) else { return };
        let Some(pending) = self.pending.get_mut(index) else { return };
        pending.is_open = false;
        let pending = *pending;
        if let Some(at) = pending.sent {
            self.tell_sent(&pending, at);
        }
        if let Some(at) = pending.acked {
            let _ = self.pending.remove(index);
            self.tell_acked(&pending, at);
        }
    }

    /// Output has sent up to `bytes` behind the front.
    fn sent(&mut self, bytes: u32, now: Instant) {
        let to = self.front + u64::from(bytes);
        let first =
            self.pending.iter().rposition(|pending| pending.sent.is_some()).map_or(0, |index| index + 1);
        for index in first..self.pending.len() {
            let Some(pending) = self.pending.get_mut(index).filter(|pending| pending.end <= to) else {
                break;
            };
            pending.sent = Some(now);
            let pending = *pending;
            if !pending.is_open {
                self.tell_sent(&pending, now);
            }
        }
    }

    /// So many bytes have left the front: they are acknowledged.
    fn acked(&mut self, bytes: u32, now: Instant) {
        self.front += u64::from(bytes);
        let mut index = 0;
        while let Some(pending) = self.pending.get_mut(index).filter(|pending| pending.end <= self.front) {
            pending.acked = Some(now);
            if pending.is_open {
                index += 1;
                continue;
            }
            let pending = *pending;
            let _ = self.pending.remove(index);
            self.tell_acked(&pending, now);
        }
    }

    /// The connection has ended, and its buffer is empty: no byte is needed any more.
    fn ended(&mut self) {
        for pending in std::mem::take(&mut self.pending) {
            self.tell_zerocopy(&pending);
        }
    }

    fn tell_sent(&mut self, pending: &Pending, at: Instant) {
        for what in [Timestamping::SCHEDULED, Timestamping::SENT] {
            self.tell_stamp(pending, what, at);
        }
    }

    fn tell_acked(&mut self, pending: &Pending, at: Instant) {
        self.tell_stamp(pending, Timestamping::ACKED, at);
        self.tell_zerocopy(pending);
    }

    fn tell_stamp(&mut self, pending: &Pending, what: Timestamping, at: Instant) {
        if !pending.wanted.has(what) || self.told.len() >= REPORTS_MAX {
            return;
        }
        let is_numbered = pending.wanted.has(Timestamping::NUMBERED);
        // Modulo 2^32, as Linux's.
        let key = if is_numbered { pending.end.wrapping_sub(self.base + 1) as u32 } else { 0 };
        self.told.push_back(Report::Timestamp { what, key, at: Clock::since_start(at) });
    }

    fn tell_zerocopy(&mut self, pending: &Pending) {
        let Some((number, copied)) = pending.zerocopy else { return };
        if let Some(Report::ZeroCopy { last, copied: before, .. }) = self.told.back_mut()
            && *before == copied
            && last.wrapping_add(1) == number
        {
            *last = number;
            return;
        }
        self.told.push_back(Report::ZeroCopy { first: number, last: number, copied });
    }

    /// Bytes up to `nxt` have come.
    fn arrived(&mut self, nxt: SeqNum, now: Instant) {
        if !self.timestamping.has(Timestamping::RECEIVED) {
            return;
        }
        if self.arrivals.len() >= ARRIVALS_MAX {
            let _ = self.arrivals.pop_back();
        }
        self.arrivals.push_back((nxt, now));
    }

    /// A read has taken the bytes before `front`.
    fn read(&mut self, front: SeqNum) {
        if !self.timestamping.has(Timestamping::RECEIVED) || front.at_or_before(self.noted_from) {
            return;
        }
        let mut end = self.noted_from;
        while let Some((run_end, at)) = self.arrivals.front().copied().filter(|_| end.before(front)) {
            self.read_at = Some(at);
            if run_end.after(front) {
                break;
            }
            end = run_end;
            let _ = self.arrivals.pop_front();
        }
        self.noted_from = end;
    }

    /// When the last byte of the last read came.
    pub fn read_at(&self) -> Option<Duration> {
        self.read_at.map(Clock::since_start)
    }
}

impl SendBuf {
    /// The reports, if any were ever asked for.
    #[inline]
    pub fn reports(&mut self) -> Option<&mut Reports> {
        self.rare.as_deref_mut()?.reports.as_deref_mut()
    }

    /// The reports, made if there are none.
    pub fn reports_mut(&mut self) -> &mut Reports {
        self.rare_mut().reports.get_or_insert_default()
    }

    /// Whether a further zero-copy send could not be told of.
    #[cold]
    pub fn refuses_zerocopy(&mut self) -> bool {
        self.reports().is_some_and(|reports| reports.zerocopy && reports.is_full())
    }

    /// Whether a report waits to be read.
    pub fn has_report(&self) -> bool {
        self.rare.as_deref().and_then(|rare| rare.reports.as_deref()).is_some_and(Reports::has_any)
    }
}

/// Output has come to `bytes` behind the front.
pub(super) fn sent(cx: &mut Context<'_>, so: &mut Buffers, bytes: u32) {
    let now = cx.now;
    change(cx, so, |reports| reports.sent(bytes, now));
}

/// `bytes` were acknowledged.
pub(super) fn acked(cx: &mut Context<'_>, so: &mut Buffers, bytes: u32) {
    let now = cx.now;
    change(cx, so, |reports| reports.acked(bytes, now));
}

/// The handshake is done: RCV.NXT has a meaning.
pub(super) fn connected(so: &mut Buffers) {
    let nxt = so.rcv.nxt;
    if let Some(reports) = so.snd.reports() {
        reports.begin_receiving(nxt);
    }
}

/// The connection has ended.
pub(super) fn ended(cx: &mut Context<'_>, so: &mut Buffers) {
    change(cx, so, Reports::ended);
}

/// The call of a send has ended.
pub(super) fn close(cx: &mut Context<'_>, so: &mut Buffers, call: u32) {
    change(cx, so, |reports| reports.close(call));
}

/// In-order bytes have come up to RCV.NXT.
#[inline]
pub(super) fn arrived(cx: &Context<'_>, so: &mut Buffers) {
    let nxt = so.rcv.nxt;
    if let Some(reports) = so.snd.reports() {
        reports.arrived(nxt, cx.now);
    }
}

/// A read has taken bytes from `so_rcv`.
#[inline]
pub(super) fn read(so: &mut Buffers) {
    if so.snd.rare.is_some() {
        cold_path();
        let front = so.rcv.front();
        if let Some(reports) = so.snd.reports() {
            reports.read(front);
        }
    }
}

/// Changes the reports, if there are any, and announces those that this makes.
fn change(cx: &mut Context<'_>, so: &mut Buffers, change: impl FnOnce(&mut Reports)) {
    let Some(reports) = so.snd.reports() else { return };
    let before = reports.told.back().copied();
    change(reports);
    if reports.told.back().copied() != before {
        so.waiters.mark(Ready::ERROR.bits(), &mut cx.outbox.wakes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_micros(1_000_000 + 1000 * millis)
    }

    fn stamp(what: Timestamping, key: u32, millis: u64) -> Report {
        Report::Timestamp { what, key, at: Duration::from_millis(millis) }
    }

    fn all(reports: &mut Reports) -> Vec<Report> {
        std::iter::from_fn(|| reports.take()).collect()
    }

    /// A whole send of `len` more bytes.
    fn send(reports: &mut Reports, buffered: u32, zerocopy: bool) {
        let call = reports.appended(None, buffered, zerocopy, false);
        call.into_iter().for_each(|call| reports.close(call));
    }

    fn zerocopy() -> Reports {
        Reports { zerocopy: true, ..Reports::default() }
    }

    fn stamping(wanted: Timestamping) -> Reports {
        let mut reports = Reports::default();
        reports.set_timestamping(wanted, SeqNum::new(0));
        reports
    }

    #[test]
    fn completions_that_follow_one_another_are_one_report() {
        let mut reports = zerocopy();
        for buffered in [100, 150, 250] {
            send(&mut reports, buffered, true);
        }
        reports.acked(149, at(1));
        assert_eq!(all(&mut reports), [Report::ZeroCopy { first: 0, last: 0, copied: false }]);
        reports.acked(101, at(2));
        assert_eq!(all(&mut reports), [Report::ZeroCopy { first: 1, last: 2, copied: false }]);
    }

    #[test]
    fn a_send_without_the_flag_or_the_option_has_no_number() {
        let mut reports = zerocopy();
        send(&mut reports, 10, false);
        send(&mut reports, 20, true);
        reports.acked(20, at(1));
        assert_eq!(all(&mut reports), [Report::ZeroCopy { first: 0, last: 0, copied: false }]);
        reports.zerocopy = false;
        send(&mut reports, 10, true);
        reports.acked(10, at(2));
        assert_eq!(all(&mut reports), []);
    }

    #[test]
    fn the_end_of_a_connection_completes_what_was_not_acknowledged() {
        let mut reports = zerocopy();
        send(&mut reports, 10, true);
        send(&mut reports, 20, true);
        reports.ended();
        assert_eq!(all(&mut reports), [Report::ZeroCopy { first: 0, last: 1, copied: false }]);
        reports.ended();
        assert_eq!(all(&mut reports), []);
    }

    #[test]
    fn an_open_send_is_told_of_once_its_call_has_ended() {
        let mut reports = zerocopy();
        reports.set_timestamping(Timestamping::OF_SENDS.with(Timestamping::NUMBERED), SeqNum::new(0));
        let call = reports.appended(None, 1000, true, true);
        reports.sent(1000, at(1));
        reports.acked(1000, at(2));
        assert!(!reports.has_any());
        assert_eq!(reports.appended(call, 500, true, true), call);
        reports.sent(500, at(3));
        reports.close(call.unwrap());
        let sent = [stamp(Timestamping::SCHEDULED, 1499, 3), stamp(Timestamping::SENT, 1499, 3)];
        assert_eq!(all(&mut reports), sent);
        reports.acked(500, at(4));
        let copied = Report::ZeroCopy { first: 0, last: 0, copied: true };
        assert_eq!(all(&mut reports), [stamp(Timestamping::ACKED, 1499, 4), copied]);
    }

    #[test]
    fn a_send_is_told_of_when_its_last_byte_is_passed_and_once() {
        let mut reports = stamping(Timestamping::SENT.with(Timestamping::NUMBERED));
        send(&mut reports, 2000, false);
        send(&mut reports, 3000, false);
        reports.sent(1999, at(1));
        assert_eq!(all(&mut reports), []);
        reports.sent(3000, at(2));
        let both = [stamp(Timestamping::SENT, 1999, 2), stamp(Timestamping::SENT, 2999, 2)];
        assert_eq!(all(&mut reports), both);
        reports.sent(3000, at(3));
        reports.acked(3000, at(4));
        assert_eq!(all(&mut reports), []);
    }

    #[test]
    fn numbers_count_from_the_first_byte_that_was_not_acknowledged_when_they_were_asked_for() {
        let mut reports = stamping(Timestamping::ACKED);
        send(&mut reports, 100, false);
        reports.acked(100, at(1));
        assert_eq!(all(&mut reports), [stamp(Timestamping::ACKED, 0, 1)]);
        reports.set_timestamping(Timestamping::ACKED.with(Timestamping::NUMBERED), SeqNum::new(0));
        send(&mut reports, 10, false);
        reports.acked(10, at(2));
        assert_eq!(all(&mut reports), [stamp(Timestamping::ACKED, 9, 2)]);
    }

    #[test]
    fn time_stamps_are_lost_at_the_bound_and_completions_are_not() {
        let mut reports = zerocopy();
        reports.set_timestamping(Timestamping::SENT, SeqNum::new(0));
        for buffered in 1..=2 * REPORTS_MAX as u32 {
            send(&mut reports, buffered, true);
        }
        assert!(reports.is_full());
        reports.sent(2 * REPORTS_MAX as u32, at(1));
        reports.acked(2 * REPORTS_MAX as u32, at(2));
        let told = all(&mut reports);
        assert_eq!(told.len(), REPORTS_MAX + 1);
        let last = 2 * REPORTS_MAX as u32 - 1;
        assert_eq!(told.last(), Some(&Report::ZeroCopy { first: 0, last, copied: false }));
    }

    #[test]
    fn a_read_has_the_time_of_its_last_byte() {
        let mut reports = stamping(Timestamping::RECEIVED);
        for (end, millis) in [(100, 1), (200, 2), (300, 3)] {
            reports.arrived(SeqNum::new(end), at(millis));
        }
        let mut at_front = |front| {
            reports.read(SeqNum::new(front));
            reports.read_at()
        };
        let millis = |millis| Some(Duration::from_millis(millis));
        assert_eq!([at_front(0), at_front(50), at_front(100)], [None, millis(1), millis(1)]);
        assert_eq!([at_front(250), at_front(300)], [millis(3), millis(3)]);
    }

    #[test]
    fn bytes_that_came_before_they_were_noted_have_no_time() {
        let mut reports = Reports::default();
        reports.set_timestamping(Timestamping::RECEIVED, SeqNum::new(500));
        reports.read(SeqNum::new(400));
        reports.arrived(SeqNum::new(600), at(5));
        reports.read(SeqNum::new(500));
        assert_eq!(reports.read_at(), None);
        reports.read(SeqNum::new(501));
        assert_eq!(reports.read_at(), Some(Duration::from_millis(5)));
    }
}
