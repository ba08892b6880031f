//! The MTU of a far end's device.
//!
//! Does not depend on which end has it.
//!
//! Invariant: one that devices and stacks take.
//!
//! Tests: below.

use std::str::FromStr;

/// Bytes of the largest packet that a device takes uncut, [`Mtu::MIN`] to [`Mtu::MAX`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mtu(u16);

impl Mtu {
    /// The least of a link for IPv6 (RFC 8200, section 5).
    pub const MIN: Self = Self(1280);
    /// The longest packet that there is.
    pub const MAX: Self = Self(u16::MAX);

    /// Its value.
    pub fn bytes(self) -> u16 {
        self.0
    }
}

impl Default for Mtu {
    /// That of Ethernet, which a device has unless another is asked for.
    fn default() -> Self {
        Self(1500)
    }
}

impl FromStr for Mtu {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(bytes) if bytes >= Self::MIN.0 => Ok(Self(bytes)),
            Ok(_) | Err(_) => {
                let (least, most) = (Self::MIN.0, Self::MAX.0);
                Err(format!(
                    "{text} is no MTU: it is {least} to {most} bytes; write --mtu 1500, or leave it out"
                ))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mtus_range_from_the_least_to_the_longest_packet() {
        for (text, bytes) in [("1280", 1280), ("1500", 1500), ("65535", 65_535)] {
            assert_eq!(text.parse::<Mtu>().map(Mtu::bytes), Ok(bytes));
        }
        for text in ["1279", "65536", "-1500", "", "9K"] {
            let refused = text.parse::<Mtu>().unwrap_err();
            assert!(refused.starts_with(text) && refused.contains("1280 to 65535"), "{refused}");
        }
    }
}
