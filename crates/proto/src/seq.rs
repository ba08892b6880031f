//! Sequence numbers, which live on a circle (RFC 9293 section 3.4).
//!
//! A circle has no order, so [`SeqNum`] has no `Ord`: one asks whether a number comes
//! [`before`](SeqNum::before) another, which is meaningful while the two are less than 2^31 apart.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

/// A position in one direction's byte stream, modulo 2^32.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SeqNum(u32);

impl SeqNum {
    /// The number as it stands in the header.
    pub const fn new(raw: u32) -> Self {
        Self(raw)
    }

    /// The raw header field.
    pub const fn raw(self) -> u32 {
        self.0
    }

    /// True if `self` is strictly before `other`.
    pub const fn before(self, other: Self) -> bool {
        (self.0.wrapping_sub(other.0) as i32) < 0
    }

    /// True if `self` is strictly after `other`.
    pub const fn after(self, other: Self) -> bool {
        other.before(self)
    }

    /// True if `self` is `other` or before it.
    pub const fn at_or_before(self, other: Self) -> bool {
        !other.before(self)
    }

    /// True if `self` is `other` or after it.
    pub const fn at_or_after(self, other: Self) -> bool {
        !self.before(other)
    }

    /// How many bytes `self` is past `earlier`; 0 if it is not past it.
    pub const fn since(self, earlier: Self) -> u32 {
        if self.before(earlier) { 0 } else { self.0.wrapping_sub(earlier.0) }
    }

    /// The later of two numbers.
    pub const fn max(self, other: Self) -> Self {
        if self.before(other) { other } else { self }
    }

    /// The earlier of two numbers.
    pub const fn min(self, other: Self) -> Self {
        if self.before(other) { self } else { other }
    }
}

impl Add<u32> for SeqNum {
    type Output = Self;
    fn add(self, bytes: u32) -> Self {
        Self(self.0.wrapping_add(bytes))
    }
}

impl AddAssign<u32> for SeqNum {
    fn add_assign(&mut self, bytes: u32) {
        *self = *self + bytes;
    }
}

impl Sub<u32> for SeqNum {
    type Output = Self;
    fn sub(self, bytes: u32) -> Self {
        Self(self.0.wrapping_sub(bytes))
    }
}

impl fmt::Debug for SeqNum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_holds_across_the_wrap() {
        let a = SeqNum::new(u32::MAX - 1);
        let b = a + 4;
        assert!(a.before(b) && b.after(a) && !a.after(b));
        assert_eq!(b.since(a), 4);
        assert_eq!(a.since(b), 0);
        assert_eq!(b - 4, a);
        assert_eq!(a.max(b), b);
        assert_eq!(a.min(b), a);
        assert!(a.at_or_before(a) && a.at_or_after(a) && !a.before(a));
    }
}
