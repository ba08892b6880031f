//! The size of a receive buffer: dynamic right-sizing, as on Linux (`tcp_rcv_space_adjust`).
//!
//! The bytes that the application reads in a round trip measure the path and the application together. The window must
//! be twice that, because a sender in slow start sends twice as much in the next round trip, and more while it still
//! grows. The round trip is that of the *incoming* data: from the peer's echoes of our timestamps, or without
//! timestamps from the time that a full window takes, which is at least one round trip.
//!
//! The reader does not report the bytes read: they are RCV.NXT less the buffered bytes. It does not depend on buffers,
//! limits or memory: it only recommends a size. It is used only over a path; the first data makes the box. Tests at the
//! end.

use core::time::Duration;

use crate::seq::SeqNum;
use crate::time::Instant;

use super::pcb::Pcb;
use super::segment::Payload;
use super::timers::since_us;
use super::timestamp;

/// The measurement of one connection.
#[derive(Debug)]
pub(super) struct RcvTune {
    /// Smoothed round trip of incoming data, microseconds; 0 before the first measurement.
    rtt_us: u32,
    /// Largest number of bytes read in a round trip so far.
    space: u32,
    /// The reader's position when this round trip began.
    read: SeqNum,
    since: Instant,
    /// The other measurement ends when data is in order up to here, a full window after its beginning.
    window_end: SeqNum,
    window_at: Instant,
}

impl RcvTune {
    fn new(read: SeqNum, nxt: SeqNum, wnd: u32, space: u32, now: Instant) -> Self {
        Self { rtt_us: 0, space, read, since: now, window_end: nxt + wnd, window_at: now }
    }

    /// The round trip of incoming data, if it is known.
    pub fn rtt(&self) -> Option<Duration> {
        (self.rtt_us != 0).then(|| Duration::from_micros(u64::from(self.rtt_us)))
    }

    /// Largest number of bytes read in a round trip.
    pub fn space(&self) -> u32 {
        self.space
    }

    /// A round trip was measured. A shorter one counts at once; a longer one may be a pause of the sender.
    fn on_rtt(&mut self, sample_us: u32) {
        if self.rtt_us == 0 || sample_us < self.rtt_us {
            self.rtt_us = sample_us.max(1);
        } else {
            self.rtt_us += (sample_us - self.rtt_us) / 8;
        }
    }

    /// The reader has reached `read`. Returns the recommended buffer, if it has grown.
    fn on_read(&mut self, read: SeqNum, mss: u32, now: Instant) -> Option<u32> {
        if self.rtt_us == 0 || since_us(now, self.since) < u64::from(self.rtt_us) {
            return None;
        }
        let copied = read.since(self.read);
        (self.read, self.since) = (read, now);
        if copied <= self.space {
            return None;
        }
        let twice = u64::from(copied) * 2 + u64::from(HEADROOM_SEGMENTS * mss);
        let growth = twice * u64::from(copied - self.space) / u64::from(self.space.max(1));
        self.space = copied;
        Some(u32::try_from(twice + 2 * growth).unwrap_or(u32::MAX))
    }
}

impl<P: Payload> Pcb<P> {
    /// Recommended maximum of `so_rcv`, bytes, if that is more than the last recommendation. Call it after text has
    /// arrived over a path; `buffered` bytes wait for the reader, `echo` is the TSecr of the latest segment with text.
    pub fn wanted_rcv_hiwat(&mut self, buffered: u32, echo: Option<u32>, now: Instant) -> Option<u32> {
        let now = self.clock(now);
        let (nxt, mss, wnd) = (self.rcv_nxt, u32::from(self.rcv_mss), self.rcv_wnd());
        let read = nxt - buffered;
        let sample_us = echo.filter(|_| self.ts_on).and_then(|ecr| self.incoming_rtt_us(ecr, now));
        let first = FIRST_SPACE_SEGMENTS * mss;
        let ts_on = self.ts_on;
        let tune = self.meter_mut(now).tune.get_or_insert_with(|| RcvTune::new(read, nxt, wnd, first, now));
        match sample_us {
            Some(sample_us) => tune.on_rtt(sample_us),
            None if !ts_on && nxt.at_or_after(tune.window_end) => {
                let took = u32::try_from(since_us(now, tune.window_at)).unwrap_or(u32::MAX);
                if tune.rtt_us == 0 || took < tune.rtt_us {
                    tune.rtt_us = took.max(1);
                }
                (tune.window_end, tune.window_at) = (nxt + wnd, now);
            }
            None => {}
        }
        tune.on_read(read, mss, now)
    }

    /// The round trip from one of our segments to the peer's answer. The echoed clock has a tick of a millisecond;
    /// below that, the round trip of our data is the better measure, if there is one.
    fn incoming_rtt_us(&self, ecr: u32, now: Instant) -> Option<u32> {
        let elapsed = timestamp::since(ecr, now, self.ts_offset)?;
        let us = u32::try_from(elapsed.as_micros()).unwrap_or(u32::MAX);
        Some(match self.rtt.srtt_us() {
            srtt_us if us < timestamp::TICK_US && (1..timestamp::TICK_US).contains(&srtt_us) => srtt_us,
            _ => us.max(timestamp::TICK_US),
        })
    }

    /// Recommended minimum of `so_snd`, bytes: the bytes that may be in flight, and the same again, so that the writer
    /// can continue while data is acknowledged (Linux's `tcp_sndbuf_expand`). The peer's largest window limits the
    /// bytes in flight; a congestion window that nothing reduces is far larger. Over a path whose minimum round trip
    /// time is below half a millisecond, data beyond 4 MiB only waits for a reader, and displaces other data from
    /// caches.
    pub fn wanted_snd_hiwat(&self) -> u32 {
        use super::cc::CongestionControl;
        snd_hiwat(self.cc.cwnd().min(self.max_snd_wnd), self.min_rtt_us())
    }
}

/// The buffer for this much in flight over a path with this minimum round trip time; 0 if that is unknown.
fn snd_hiwat(flight_max: u32, min_rtt_us: u32) -> u32 {
    let wanted = flight_max.saturating_mul(2);
    if (1..SHORT_RTT_US).contains(&min_rtt_us) { wanted.min(SHORT_HIWAT_MAX) } else { wanted }
}

/// A round trip as within one host, microseconds.
const SHORT_RTT_US: u32 = 500;
/// Largest `so_snd` for such a path, bytes: 67 Gbit/s at the longest of its round trips.
const SHORT_HIWAT_MAX: u32 = 4 << 20;
/// Segments that a window must have beyond twice the bytes read.
const HEADROOM_SEGMENTS: u32 = 16;
/// Assumed first window of a sender, in segments: this much is no growth.
const FIRST_SPACE_SEGMENTS: u32 = 10;

#[cfg(test)]
mod tests {
    use super::super::rtt::Rtt;
    use super::super::settings::Settings;
    use super::super::tests::script::{ACK, Script, plain};
    use super::*;

    const MSS: u32 = 1448;

    fn at(ms: u64) -> Instant {
        Instant::from_micros(1_000_000 + ms * 1000)
    }

    #[test]
    fn the_buffer_holds_twice_the_data_in_flight_except_on_the_shortest_paths() {
        assert_eq!(snd_hiwat(1 << 20, 100), 2 << 20);
        assert_eq!(snd_hiwat(6 << 20, SHORT_RTT_US - 1), SHORT_HIWAT_MAX);
        for min_rtt_us in [SHORT_RTT_US, 100_000, 0] {
            assert_eq!(snd_hiwat(6 << 20, min_rtt_us), 12 << 20, "{min_rtt_us}");
        }
        assert_eq!(snd_hiwat(u32::MAX, 0), u32::MAX);
    }

    #[test]
    fn a_reader_that_takes_twice_as_much_each_round_trip_gets_four_times_that_and_headroom() {
        let start = SeqNum::new(u32::MAX - 5000);
        let mut tune = RcvTune::new(start, start, 65_535, FIRST_SPACE_SEGMENTS * MSS, at(0));
        assert_eq!(tune.on_read(start + 100_000, MSS, at(500)), None, "no round trip is known");
        tune.on_rtt(100_000);
        let mut read = start;
        for round in 1..=6u32 {
            let copied = (FIRST_SPACE_SEGMENTS * MSS) << round;
            read += copied;
            assert_eq!(
                tune.on_read(read, MSS, at(u64::from(round) * 100 - 1)),
                None,
                "within the round trip"
            );
            let wanted = tune.on_read(read, MSS, at(u64::from(round) * 100)).unwrap();
            assert!(wanted > 6 * copied && wanted < 6 * copied + 64 * MSS, "{wanted} for {copied}");
        }
    }

    #[test]
    fn a_slow_reader_gets_no_more() {
        let start = SeqNum::new(7);
        let mut tune = RcvTune::new(start, start, 65_535, FIRST_SPACE_SEGMENTS * MSS, at(0));
        tune.on_rtt(100_000);
        for round in 1..100u32 {
            assert_eq!(tune.on_read(start + round * 10_000, MSS, at(u64::from(round) * 100)), None);
        }
    }

    #[test]
    fn a_pause_of_the_sender_is_not_taken_for_a_long_round_trip() {
        let start = SeqNum::new(7);
        let mut tune = RcvTune::new(start, start, 65_535, 1, at(0));
        tune.on_rtt(50_000);
        tune.on_rtt(2_000_000);
        assert!(tune.rtt_us < 300_000);
        tune.on_rtt(40_000);
        assert_eq!(tune.rtt_us, 40_000);
    }

    #[test]
    fn a_longer_round_trip_counts_by_an_eighth_and_a_shorter_one_at_once() {
        let start = SeqNum::new(7);
        let mut tune = RcvTune::new(start, start, 65_535, 1, at(0));
        for (sample, rtt) in [(0, 1), (801, 101), (901, 201), (200, 200), (200, 200), (1_000, 300)] {
            tune.on_rtt(sample);
            assert_eq!(tune.rtt_us, rtt, "{sample}");
        }
    }

    /// Twice the bytes of a round trip and sixteen segments, and twice that share of it by which they were more than before.
    #[test]
    fn the_buffer_wanted_is_twice_what_was_read_with_headroom_and_room_to_grow() {
        let start = SeqNum::new(7);
        let mut tune = RcvTune::new(start, start, 65_535, 10_000, at(0));
        tune.on_rtt(100_000);
        assert_eq!(tune.on_read(start + 20_000, 1_000, at(100)), Some(56_000 + 2 * 56_000));
        assert_eq!(tune.on_read(start + 20_000 + 25_000, 1_000, at(200)), Some(66_000 + 2 * 16_500));
        assert_eq!(tune.on_read(start + 45_000 + 25_000, 1_000, at(300)), None);
    }

    /// A tick of the clock that echoes is a millisecond.
    #[test]
    fn below_a_tick_the_round_trip_of_our_own_text_is_taken() {
        for (srtt_us, echo_ms, expected) in [
            (300, 0, 300),
            (999, 0, 999),
            (1_000, 0, 1_000),
            (5_000, 0, 1_000),
            (300, 1, 1_000),
            (300, 7, 7_000),
            (5_000, 7, 7_000),
        ] {
            let mut t = Script::established(&Settings { timestamps: true, ..plain() });
            t.pcb.rtt = Rtt::new(Duration::from_secs(1));
            t.pcb.rtt.sample(srtt_us, true, 200_000, 120_000_000);
            t.now = t.now + Duration::from_millis(10);
            assert_eq!(
                t.pcb.incoming_rtt_us(t.timestamp() - echo_ms, t.now),
                Some(expected),
                "{srtt_us} {echo_ms}"
            );
        }
    }

    /// What waits in the buffer does not count as read.
    #[test]
    fn the_reader_stands_before_what_is_buffered() {
        let mut t = Script::established(&Settings { timestamps: true, ..plain() });
        let _ = t.input(t.seg(ACK), &[7; 500]);
        assert_eq!(t.pcb.wanted_rcv_hiwat(200, None, t.now), None);
        let tune = t.pcb.meter.as_deref().and_then(|meter| meter.tune.as_ref()).unwrap();
        assert_eq!(tune.read, t.pcb.rcv_nxt - 200);
    }
}
