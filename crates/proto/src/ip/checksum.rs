//! The Internet checksum (RFC 1071): a sum that can be taken over pieces and put together.
//!
//! A [`Sum`] is a one's complement sum in the making, not yet inverted. It does not depend on which protocol
//! it is for. Invariants: the order of the pieces matters only through their length, since a piece that
//! begins at an odd offset has its bytes swapped; no input overflows the accumulator. Tests stand at the end.

/// A partial one's complement sum over a byte string.
///
/// It is kept in the machine's own byte order, which RFC 1071 section 2 (B) allows, and is turned
/// only when it is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sum {
    /// Sum of the bytes taken pairwise, folded after each piece.
    acc: u16,
    /// True if the bytes summed so far are odd in number.
    odd: bool,
}

impl Sum {
    /// The sum of no bytes.
    pub const ZERO: Self = Self { acc: 0, odd: false };

    /// The sum of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self::ZERO.add_bytes(bytes)
    }

    /// This sum, with `bytes` behind the bytes summed so far. A chain of buffers may be cut anywhere.
    #[must_use]
    pub fn add_bytes(self, bytes: &[u8]) -> Self {
        self.join(Self { acc: sum_even(bytes), odd: bytes.len() % 2 == 1 })
    }

    /// This sum with the bytes of `tail` behind its own.
    #[must_use]
    pub fn join(self, tail: Self) -> Self {
        let behind = if self.odd { tail.acc.swap_bytes() } else { tail.acc };
        let acc = fold(u64::from(self.acc) + u64::from(behind));
        Self { acc, odd: self.odd != tail.odd }
    }

    /// This sum with a 16-bit field behind it.
    #[must_use]
    pub fn add_u16(self, field: u16) -> Self {
        self.join(Self { acc: field.to_be(), odd: false })
    }

    /// The sum folded to 16 bits and not inverted: the value that a device expects in the checksum field when
    /// it completes the checksum itself.
    pub fn folded(self) -> u16 {
        u16::from_be(self.acc)
    }

    /// The value of the checksum field: the complement of the sum.
    pub fn checksum(self) -> u16 {
        !self.folded()
    }

    /// True if the bytes, their checksum field among them, are as they were sent.
    pub fn is_valid(self) -> bool {
        self.folded() == 0xffff
    }
}

/// The folded sum of a string that begins at an even offset, in the machine's byte order.
fn sum_even(bytes: &[u8]) -> u16 {
    // Sums of 32-bit words in 64 bits hold more than 16 GiB, and the wrapping add (which therefore
    // never wraps) lets the compiler use vector instructions where the overflow check would not.
    let (words, rest) = bytes.as_chunks::<4>();
    let mut acc = words.iter().fold(0u64, |acc, word| acc.wrapping_add(u64::from(u32::from_ne_bytes(*word))));
    let mut last = [0u8; 4];
    for (to, from) in last.iter_mut().zip(rest) {
        *to = *from;
    }
    acc = acc.wrapping_add(u64::from(u32::from_ne_bytes(last)));
    fold(acc)
}

/// Folds the carries back in until 16 bits are left.
const fn fold(sum: u64) -> u16 {
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + ((sum >> 16) & 0xffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    // Two folds bring anything down to 16 bits; the mask only says so to the type.
    (sum & 0xffff) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 1071 read out loud: 16-bit big-endian words, an odd byte padded with zero.
    fn reference(bytes: &[u8]) -> u16 {
        let mut sum = 0u64;
        for pair in bytes.chunks(2) {
            sum += u64::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
        }
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        u16::try_from(sum).unwrap()
    }

    #[test]
    fn example_of_rfc_1071_section_3() {
        let sum = Sum::of(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
        assert_eq!(sum.folded(), 0xddf2);
        assert_eq!(sum.checksum(), !0xddf2);
    }

    #[test]
    fn a_field_counts_as_its_big_endian_bytes() {
        assert_eq!(Sum::of(&[1, 2, 3, 4]), Sum::of(&[1, 2]).add_u16(0x0304));
        assert_eq!(Sum::of(&[1, 3, 4]), Sum::of(&[1]).add_u16(0x0304));
    }

    #[test]
    fn a_full_jumbo_of_ones_does_not_overflow() {
        assert_eq!(Sum::of(&vec![0xff; 1 << 20]).folded(), 0xffff);
    }

    proptest! {
        #[test]
        fn the_checksum_agrees_with_the_definition(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert_eq!(Sum::of(&bytes).folded(), reference(&bytes));
        }

        #[test]
        fn the_checksum_may_be_computed_in_pieces(
            bytes in prop::collection::vec(any::<u8>(), 0..300),
            cuts in prop::collection::vec(0usize..40, 0..10),
        ) {
            let mut sum = Sum::ZERO;
            let mut rest = &bytes[..];
            for cut in cuts {
                let (piece, tail) = rest.split_at(cut.min(rest.len()));
                sum = sum.add_bytes(piece);
                rest = tail;
            }
            prop_assert_eq!(sum.add_bytes(rest).folded(), reference(&bytes));
        }

        #[test]
        fn a_string_with_its_checksum_is_valid(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let mut whole = bytes;
            if whole.len() % 2 == 1 {
                whole.push(0);
            }
            let checksum = Sum::of(&whole).checksum();
            whole.extend(checksum.to_be_bytes());
            prop_assert!(Sum::of(&whole).is_valid());
            whole[0] ^= 0x10;
            prop_assert!(!Sum::of(&whole).is_valid());
        }
    }
}
