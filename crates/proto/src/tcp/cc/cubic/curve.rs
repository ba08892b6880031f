//! CUBIC's curve and its Reno-friendly line in integers (RFC 9438 sections 4.2 and 4.3).
//!
//! W(t) = C (t - K)^3 + W_max, with C = 0.4 segments per cubed second. Times are in ticks of 1/1024 s, windows in
//! bytes. It does not depend on when a period begins or on the use of a window. No intermediate value exceeds 64
//! bits: the bounds stand at each step. Tests: `cubic/tests.rs`, against the formulas in floating point.

/// One period of growth, from a reduction to the next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Curve {
    /// Where the curve is level, bytes: W_max, or the window itself if that is larger.
    origin: u32,
    /// K, ticks.
    k: u64,
}

impl Curve {
    /// Begins at `cwnd`, in sight of the `w_max` at which the network was last found full.
    pub fn new(w_max: u32, cwnd: u32, mss: u32) -> Self {
        let below = u64::from(w_max.saturating_sub(cwnd));
        // Below 2^30 bytes, so below 2^60, and 2^62 with the factor: K = cbrt(below / (C mss)).
        let cubed = (below << (3 * TICK_BITS)) / u64::from(mss.max(1)) * C_DIVISOR / C_FACTOR;
        Self { origin: w_max.max(cwnd), k: cbrt(cubed) }
    }

    /// W_cubic, `ticks` after the beginning, bytes.
    pub fn window(&self, ticks: u64, mss: u32) -> u64 {
        let distance = ticks.abs_diff(self.k).min(DISTANCE_MAX);
        // 2^57, then 2^47, times an MSS of 16 bits.
        let cubed = (distance * distance * distance) >> TICK_BITS;
        let bytes = (cubed * u64::from(mss.min(MSS_MAX)) / C_DIVISOR * C_FACTOR) >> (2 * TICK_BITS);
        let origin = u64::from(self.origin);
        if ticks < self.k { origin.saturating_sub(bytes) } else { origin + bytes }
    }
}

/// The window that Reno would have had, by additive increase with the factor that makes both take the same share:
/// W_est.
#[derive(Clone, Copy, Debug)]
pub(super) struct RenoLine {
    /// In 1/4096 byte.
    w_est: u64,
}

impl RenoLine {
    pub fn new(cwnd: u32) -> Self {
        Self { w_est: u64::from(cwnd) << LINE_BITS }
    }

    /// W_est, bytes.
    pub fn window(&self) -> u64 {
        self.w_est >> LINE_BITS
    }

    /// `acked` bytes arrived of a window of `cwnd`. The slope is alpha_cubic = 3 (1 - beta) / (1 + beta) = 9 / 17
    /// until the window has its size from before the reduction (`cwnd_prior`), and then Reno's own.
    pub fn on_ack(&mut self, acked: u32, cwnd: u32, cwnd_prior: u32, mss: u32) {
        let (factor, divisor) = if self.window() < u64::from(cwnd_prior) { (9, 17) } else { (1, 1) };
        // At most 2^30 bytes, an MSS of 16 bits, 12 bits of fraction, and the factor: below 2^62.
        let product = (u64::from(acked.min(cwnd)) * u64::from(mss.min(MSS_MAX))) << LINE_BITS;
        self.w_est += product * factor / divisor / u64::from(cwnd.max(1));
    }
}

/// Microseconds as ticks.
pub(super) fn ticks(us: u64) -> u64 {
    us.min(TIME_MAX_US) * 128 / 125_000
}

/// The largest whole number whose cube is at most `n`, bit by bit. Once per period, so it need not be quick.
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
/// 512 s from K the curve has long passed the largest window there is, with the smallest MSS.
const DISTANCE_MAX: u64 = 512 << TICK_BITS;
/// An MSS is a field of 16 bits.
const MSS_MAX: u32 = 65_535;
const LINE_BITS: u32 = 12;
/// A longer period counts as this, some 12 days: the curve has long left the range.
const TIME_MAX_US: u64 = 1 << 40;
