//! Delivery rate estimation (draft-cheng-iccrg-delivery-rate-estimation), for congestion control that models
//! the path.
//!
//! Each transmission has a snapshot of the bytes delivered by then. When the transmission arrives, the bytes delivered
//! since then, divided by the longer of the times that sending and acknowledging took, are a sample of the rate.
//! Snapshots are made only if congestion control asks for them, and at most once per cell of time; a record names its
//! snapshot by number. [`SNAPSHOTS_MAX`] are kept; an older transmission gives no sample. It does not depend on
//! records. Tests at the end.

use std::collections::VecDeque;

use crate::time::Instant;

use super::super::cc::{LossSample, RateSample};
use super::super::timers::since_us;

/// The state of delivery at a transmission.
#[derive(Clone, Copy, Debug)]
struct Snapshot {
    delivered: u64,
    delivered_at: Instant,
    first_sent_at: Instant,
    sent_at: Instant,
    app_limited: bool,
    /// Bytes in flight just after the transmission, and all bytes found lost before it.
    tx_in_flight: u32,
    lost: u64,
}

#[derive(Debug)]
pub(in crate::tcp) struct Rate {
    /// Bytes delivered so far, and when the last of them were.
    delivered: u64,
    delivered_at: Instant,
    /// Bytes found lost so far.
    lost: u64,
    /// When the first segment of the flight that is being sampled was sent.
    first_sent_at: Instant,
    /// Samples are limited by the application until this much is delivered; 0 if they are not.
    app_limited_until: u64,
    snapshots: VecDeque<Snapshot>,
    /// The number of the first snapshot kept.
    first_number: u32,
}

impl Rate {
    pub fn new(now: Instant) -> Self {
        Self {
            delivered: 0,
            delivered_at: now,
            lost: 0,
            first_sent_at: now,
            app_limited_until: 0,
            snapshots: VecDeque::new(),
            first_number: 0,
        }
    }

    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Something is sent; nothing else is in flight if `is_idle`. Returns the snapshot's number.
    pub fn on_sent(&mut self, now: Instant, is_idle: bool) -> u32 {
        if is_idle {
            (self.first_sent_at, self.delivered_at) = (now, now);
        }
        if self.snapshots.back().is_none_or(|last| last.sent_at != now || last.delivered != self.delivered) {
            if self.snapshots.len() >= SNAPSHOTS_MAX {
                self.snapshots.pop_front();
                self.first_number = self.first_number.wrapping_add(1);
            }
            self.snapshots.push_back(Snapshot {
                delivered: self.delivered,
                delivered_at: self.delivered_at,
                first_sent_at: self.first_sent_at,
                sent_at: now,
                app_limited: self.app_limited_until != 0,
                tx_in_flight: 0,
                lost: self.lost,
            });
        }
        // At most SNAPSHOTS_MAX, which fits.
        self.first_number
            .wrapping_add(u32::try_from(self.snapshots.len()).unwrap_or(u32::MAX))
            .wrapping_sub(1)
    }

    /// `pipe` bytes are in flight since the last transmission.
    pub fn on_in_flight(&mut self, pipe: u32) {
        if let Some(last) = self.snapshots.back_mut() {
            last.tx_in_flight = pipe;
        }
    }

    /// `bytes` were found lost.
    pub fn on_lost(&mut self, bytes: u32) {
        self.lost += u64::from(bytes);
    }

    /// The snapshot of the transmission `number`, which is lost, after `on_lost`. None if it is too old.
    pub fn loss_sample(&self, number: u32) -> Option<LossSample> {
        let snapshot = self.snapshot(number)?;
        Some(LossSample {
            tx_in_flight: snapshot.tx_in_flight,
            lost: self.lost_since(&snapshot),
            app_limited: snapshot.app_limited,
        })
    }

    fn snapshot(&self, number: u32) -> Option<Snapshot> {
        let index = number.wrapping_sub(self.first_number);
        self.snapshots.get(usize::try_from(index).ok()?).copied()
    }

    fn lost_since(&self, snapshot: &Snapshot) -> u32 {
        u32::try_from(self.lost - snapshot.lost).unwrap_or(u32::MAX)
    }

    /// There is nothing to send although the windows allow more; `pipe` bytes are in flight.
    pub fn on_app_limited(&mut self, pipe: u32) {
        self.app_limited_until = (self.delivered + u64::from(pipe)).max(1);
    }

    /// `bytes` were delivered.
    pub fn on_delivered(&mut self, bytes: u32, now: Instant) {
        self.delivered += u64::from(bytes);
        self.delivered_at = now;
        if self.delivered > self.app_limited_until {
            self.app_limited_until = 0;
        }
    }

    /// The sample for the arrival of the transmission with snapshot `number`, after `on_delivered`. None if it is too
    /// old, or so short that it says nothing (`min_rtt_us`).
    pub fn sample(&mut self, number: u32, now: Instant, min_rtt_us: u32) -> Option<RateSample> {
        let snapshot = self.snapshot(number)?;
        self.first_sent_at = snapshot.sent_at;
        let sending = since_us(snapshot.sent_at, snapshot.first_sent_at);
        let acknowledging = since_us(now, snapshot.delivered_at);
        let interval_us = u32::try_from(sending.max(acknowledging)).unwrap_or(u32::MAX);
        if interval_us < min_rtt_us.max(1) {
            return None;
        }
        Some(RateSample {
            delivered: u32::try_from(self.delivered - snapshot.delivered).unwrap_or(u32::MAX),
            interval_us,
            prior_delivered: snapshot.delivered,
            total_delivered: self.delivered,
            app_limited: snapshot.app_limited,
            tx_in_flight: snapshot.tx_in_flight,
            lost: self.lost_since(&snapshot),
        })
    }

    /// Frees memory. Only when nothing is in flight.
    pub fn shrink(&mut self) {
        self.first_number =
            self.first_number.wrapping_add(u32::try_from(self.snapshots.len()).unwrap_or(u32::MAX));
        self.snapshots = VecDeque::new();
    }
}

/// Number of snapshots kept: enough for some round trips.
const SNAPSHOTS_MAX: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Instant {
        Instant::from_micros(1_000_000 + us)
    }

    #[test]
    fn a_steady_flow_is_measured_at_its_rate() {
        // A segment of 1,000 bytes each millisecond, ten milliseconds under way.
        let mut rate = Rate::new(at(0));
        let mut numbers = Vec::new();
        for ms in 0..10u64 {
            numbers.push(rate.on_sent(at(ms * 1000), ms == 0));
        }
        let mut last = None;
        for ms in 10..40u64 {
            rate.on_delivered(1000, at(ms * 1000));
            last = rate.sample(numbers[ms as usize - 10], at(ms * 1000), 10_000);
            numbers.push(rate.on_sent(at(ms * 1000), false));
        }
        let sample = last.expect("a sample");
        assert_eq!((sample.delivered, sample.interval_us, sample.app_limited), (10_000, 10_000, false));
        assert_eq!(sample.total_delivered - sample.prior_delivered, 10_000);
    }

    #[test]
    fn samples_are_marked_application_limited_after_a_pause() {
        let mut rate = Rate::new(at(0));
        rate.on_app_limited(0);
        let limited = rate.on_sent(at(10), true);
        rate.on_delivered(1000, at(1010));
        assert!(rate.sample(limited, at(1010), 1).is_some_and(|sample| sample.app_limited));
        let free = rate.on_sent(at(1010), true);
        rate.on_delivered(1000, at(2010));
        assert!(rate.sample(free, at(2010), 1).is_some_and(|sample| !sample.app_limited));
    }

    #[test]
    fn old_snapshots_give_no_sample_and_memory_is_bounded() {
        let mut rate = Rate::new(at(0));
        let first = rate.on_sent(at(0), true);
        for us in 1..5000 {
            let _ = rate.on_sent(at(us), false);
        }
        assert_eq!(rate.snapshots.len(), SNAPSHOTS_MAX);
        rate.on_delivered(1, at(9000));
        assert_eq!(rate.sample(first, at(9000), 1), None);
    }

    #[test]
    fn a_sample_over_less_than_a_round_trip_is_none() {
        let mut rate = Rate::new(at(0));
        let number = rate.on_sent(at(0), true);
        rate.on_delivered(1000, at(50));
        assert_eq!(rate.sample(number, at(50), 100), None);
    }

    #[test]
    fn a_sample_tells_what_was_in_flight_and_what_was_lost_since() {
        let mut rate = Rate::new(at(0));
        rate.on_lost(700);
        let number = rate.on_sent(at(0), true);
        rate.on_in_flight(9_000);
        assert_eq!(
            rate.loss_sample(number).map(|sample| (sample.tx_in_flight, sample.lost)),
            Some((9_000, 0))
        );
        rate.on_lost(1_500);
        rate.on_delivered(1_000, at(1_000));
        let lost = rate.loss_sample(number).unwrap();
        assert_eq!((lost.tx_in_flight, lost.lost, lost.app_limited), (9_000, 1_500, false));
        let sample = rate.sample(number, at(1_000), 1_000).unwrap();
        assert_eq!((sample.tx_in_flight, sample.lost, rate.delivered()), (9_000, 1_500, 1_000));
        // An interval as long as the round trip says something, and a shorter one does not.
        assert_eq!(rate.sample(number, at(1_000), 1_001), None);
    }

    #[test]
    fn numbers_go_on_behind_memory_that_was_given_back() {
        let mut rate = Rate::new(at(0));
        let old = rate.on_sent(at(0), true);
        let older = rate.on_sent(at(10), false);
        rate.on_delivered(1_000, at(1_000));
        rate.shrink();
        let new = rate.on_sent(at(2_000), true);
        assert_eq!((old.wrapping_add(1), older.wrapping_add(1)), (older, new));
        assert!(rate.loss_sample(old).is_none() && rate.loss_sample(older).is_none());
        assert!(rate.loss_sample(new).is_some());
    }

    #[test]
    fn samples_are_limited_until_what_was_under_way_has_arrived_and_something_more() {
        let mut rate = Rate::new(at(0));
        rate.on_app_limited(2_000);
        for (delivered, is_limited) in [(1_000, true), (1_000, true), (1, false)] {
            rate.on_delivered(delivered, at(10));
            let number = rate.on_sent(at(u64::from(delivered) + rate.delivered()), false);
            assert_eq!(rate.loss_sample(number).unwrap().app_limited, is_limited, "{}", rate.delivered());
        }
    }
}
