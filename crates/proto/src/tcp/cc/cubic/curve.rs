//! CUBIC's curve and its Reno-friendly line in integers (RFC 9438 sections 4.2 and 4.3), as Linux counts them.
//!
//! W(t) = C (t - K)^3 + W_max, with C = 0.4 segments per cubed second. Times are in ticks of 1/1024 s, windows in whole
//! segments. It does not depend on when a period begins or on the use of a window. No intermediate value exceeds 64
//! bits: a comment at each step has the bounds. Tests: `cubic/tests.rs`, against the formulas in floating point.

/// One period of growth, from a reduction to the next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Curve {
    /// Where the curve is flat, segments: W_max, or the window itself if that is larger.
    origin: u32,
    /// K, ticks.
    k: u64,
}

impl Curve {
    /// Begins at `cwnd`, below the `w_max` at which the network was last found full.
    pub fn new(w_max: u32, cwnd: u32) -> Self {
        let below = u64::from(w_max.saturating_sub(cwnd));
        // Windows are below 2^30, so this is below 2^60, and 2^62 with the factor: K = cbrt(below / C).
        let cubed = (below << (3 * TICK_BITS)) / C_FACTOR * C_DIVISOR;
        Self { origin: w_max.max(cwnd), k: cbrt(cubed) }
    }

    /// W_cubic, `ticks` after the beginning, segments. The distance from the flat part is rounded down.
    pub fn window(&self, ticks: u64) -> u64 {
        let distance = ticks.abs_diff(self.k).min(DISTANCE_MAX);
        // 2^57, then 2^47, times less than 2^9.
        let cubed = (distance * distance * distance) >> TICK_BITS;
        let segments = (cubed * C_FACTOR / C_DIVISOR) >> (2 * TICK_BITS);
        let origin = u64::from(self.origin);
        if ticks < self.k { origin.saturating_sub(segments) } else { origin + segments }
    }
}

/// W_est, the window that Reno would have, by additive increase with the factor that gives both the same share. The
/// factor is always alpha_cubic = 3 (1 - beta) / (1 + beta), as on Linux; section 4.3 allows 1 after the window has
/// reached its size from before the reduction.
#[derive(Clone, Copy, Debug)]
pub(super) struct RenoLine {
    /// Segments.
    w_est: u32,
    /// Bytes acknowledged that are not counted in it.
    left: u64,
}

impl RenoLine {
    pub fn new(cwnd: u32) -> Self {
        Self { w_est: cwnd, left: 0 }
    }

    /// W_est, segments.
    pub fn window(&self) -> u32 {
        self.w_est
    }

    /// `acked` bytes arrived.
    pub fn on_ack(&mut self, acked: u32) {
        self.left = self.left.saturating_add(acked.into());
    }

    /// Counts what has arrived, for a window of `cwnd` segments of `mss` bytes.
    pub fn settle(&mut self, cwnd: u32, mss: u32) {
        let step = (u64::from(cwnd) * ALPHA_PARTS / 8 * u64::from(mss)).max(1);
        // It is left where it is full only while the window stands still.
        let grown = self.left.saturating_sub(1) / step;
        self.left -= grown * step;
        self.w_est = self.w_est.saturating_add(u32::try_from(grown).unwrap_or(u32::MAX));
    }
}

/// Microseconds as ticks.
pub(super) fn ticks(us: u64) -> u64 {
    us.min(TIME_MAX_US) * 128 / 125_000
}

/// The largest integer whose cube is at most `n`, bit by bit. It is called once per period, so it need not be fast.
pub(super) fn cbrt(n: u64) -> u64 {
    let mut root = 0u64;
    // 2^21 cubed is 2^63, and the largest root of 64 bits is below 2^22.
    for bit in (0..22).rev() {
        let next = root | (1 << bit);
        if next.checked_mul(next * next).is_some_and(|cube| cube <= n) {
            root = next;
        }
    }
    root
}

/// A tick is 2^-10 s.
const TICK_BITS: u32 = 10;
/// C = 2 / 5.
const C_FACTOR: u64 = 2;
const C_DIVISOR: u64 = 5;
/// Segments of a window, in eighths, for which Reno's grows by one: 1 / alpha_cubic.
const ALPHA_PARTS: u64 = 15;
/// At 512 s from K, the curve is far beyond the largest window.
const DISTANCE_MAX: u64 = 512 << TICK_BITS;
/// A longer period counts as this, some 12 days: the curve is then far beyond the range.
const TIME_MAX_US: u64 = 1 << 40;
