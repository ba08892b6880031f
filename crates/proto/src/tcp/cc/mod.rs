//! Congestion control: how much may be in flight.
//!
//! An algorithm owns `cwnd` and `ssthresh`. When a loss has happened is decided outside, in `recovery`;
//! the temporary inflation during fast recovery stands there too. It must not know sequence numbers,
//! windows of the peer or timers. Invariant: `cwnd` is at least one MSS. Tests: with each algorithm.

mod newreno;

use newreno::NewReno;

/// What an algorithm answers to. All sizes in bytes; `flight` is what was outstanding at that moment.
pub(super) trait CongestionControl {
    /// The congestion window.
    fn cwnd(&self) -> u32;
    /// The slow start threshold.
    fn ssthresh(&self) -> u32;
    /// `acked` new bytes were acknowledged outside recovery, `flight` being out before.
    fn on_ack(&mut self, acked: u32, flight: u32, mss: u32);
    /// Fast recovery begins: a segment is lost, others still arrive.
    fn on_recovery_start(&mut self, flight: u32, mss: u32);
    /// Fast recovery has ended; `flight` is out now.
    fn on_recovery_end(&mut self, flight: u32, mss: u32);
    /// The retransmission timer expired; `first` unless it has for the same data before.
    fn on_timeout(&mut self, flight: u32, mss: u32, first: bool);
    /// Nothing was sent for longer than an RTO.
    fn on_idle(&mut self, mss: u32);
}

/// The algorithms there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Algorithm {
    /// RFC 5681 and RFC 6582.
    #[default]
    NewReno,
}

/// An algorithm's state. An enum and not a trait object: no allocation, no indirect call per segment.
#[derive(Clone, Debug)]
pub(super) enum Cc {
    NewReno(NewReno),
}

impl Cc {
    /// Starts with the initial window, or with one segment if the handshake lost its SYN.
    pub fn new(algorithm: Algorithm, mss: u32, syn_lost: bool) -> Self {
        let cwnd = if syn_lost { mss } else { initial_window(mss) };
        match algorithm {
            Algorithm::NewReno => Self::NewReno(NewReno::new(cwnd)),
        }
    }

    pub const fn algorithm(&self) -> Algorithm {
        match self {
            Self::NewReno(_) => Algorithm::NewReno,
        }
    }
}

impl CongestionControl for Cc {
    fn cwnd(&self) -> u32 {
        match self {
            Self::NewReno(cc) => cc.cwnd(),
        }
    }
    fn ssthresh(&self) -> u32 {
        match self {
            Self::NewReno(cc) => cc.ssthresh(),
        }
    }
    fn on_ack(&mut self, acked: u32, flight: u32, mss: u32) {
        match self {
            Self::NewReno(cc) => cc.on_ack(acked, flight, mss),
        }
    }
    fn on_recovery_start(&mut self, flight: u32, mss: u32) {
        match self {
            Self::NewReno(cc) => cc.on_recovery_start(flight, mss),
        }
    }
    fn on_recovery_end(&mut self, flight: u32, mss: u32) {
        match self {
            Self::NewReno(cc) => cc.on_recovery_end(flight, mss),
        }
    }
    fn on_timeout(&mut self, flight: u32, mss: u32, first: bool) {
        match self {
            Self::NewReno(cc) => cc.on_timeout(flight, mss, first),
        }
    }
    fn on_idle(&mut self, mss: u32) {
        match self {
            Self::NewReno(cc) => cc.on_idle(mss),
        }
    }
}

/// IW of RFC 6928: ten segments, but no more than about fifteen thousand bytes beyond two segments.
pub(super) fn initial_window(mss: u32) -> u32 {
    (10 * mss).min((2 * mss).max(14_600))
}

/// No window grows beyond this, bytes: the largest that RFC 7323 can announce.
const CWND_MAX: u32 = 1 << 30;
