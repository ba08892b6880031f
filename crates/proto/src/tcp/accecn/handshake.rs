//! The handshake of accurate ECN (RFC 9768 section 3.1): what three flags mean on SYNs, on SYN-ACKs and on the first acknowledgment.
//!
//! Tables, without state. Tests: `tests.rs`.

use crate::tcp::segment::Flags;

/// The ECN field of an IP header (RFC 3168 section 5).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IpEcn {
    /// Not ECN-capable.
    #[default]
    NotEct,
    /// ECT(1).
    Ect1,
    /// ECT(0).
    Ect0,
    /// Congestion experienced.
    Ce,
}

impl IpEcn {
    /// By its two bits.
    const BY_BITS: [Self; 4] = [Self::NotEct, Self::Ect1, Self::Ect0, Self::Ce];

    /// From the two bits of the header; other bits are ignored.
    pub const fn from_bits(bits: u8) -> Self {
        Self::BY_BITS[(bits & 3) as usize]
    }

    /// The two bits.
    pub const fn bits(self) -> u8 {
        self as u8
    }

    /// The field of a received segment, from its flags.
    pub(in crate::tcp) fn of(flags: Flags) -> Self {
        match () {
            () if flags.has(Flags::CE) => Self::Ce,
            () if flags.has(Flags::ECT) => Self::Ect0,
            () if flags.has(Flags::ECT_1) => Self::Ect1,
            () => Self::NotEct,
        }
    }

    /// Whether a router may have changed this field to `seen` (RFC 9768 section 3.2.2.3).
    pub(super) fn may_become(self, seen: Self) -> bool {
        seen == self || (!matches!(self, Self::NotEct | Self::Ce) && seen != Self::NotEct)
    }

    /// Its index among the byte counters, in the order of the option.
    pub(super) fn index(self) -> Option<usize> {
        match self {
            Self::NotEct => None,
            Self::Ect1 => Some(0),
            Self::Ce => Some(1),
            Self::Ect0 => Some(2),
        }
    }
}

/// Whether a SYN with these flags asks for accurate ECN: all combinations do except none and those of RFC 3168 (RFC
/// 9768 section 3.1.2).
pub(in crate::tcp) fn is_asked_for(syn: Flags) -> bool {
    !matches!(syn.ace(), 0 | 0b011)
}

/// The flags that tell an end with which ECN field its SYN or SYN-ACK arrived (RFC 9768 tables 2 and 3).
pub(in crate::tcp) fn reflected(came_with: IpEcn) -> Flags {
    Flags::from_ace(match came_with {
        IpEcn::NotEct => 0b010,
        IpEcn::Ect1 => 0b011,
        IpEcn::Ect0 => 0b100,
        IpEcn::Ce => 0b110,
    })
}

/// The field that such flags report; `None` for unused values.
pub(super) fn told(ace: u8) -> Option<IpEcn> {
    match ace {
        0b010 => Some(IpEcn::NotEct),
        0b011 => Some(IpEcn::Ect1),
        0b100 => Some(IpEcn::Ect0),
        0b110 => Some(IpEcn::Ce),
        _ => None,
    }
}

/// The kind of ECN that a client gets after it has asked for accurate ECN (RFC 9768 table 2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::tcp) enum Answer {
    /// No ECN: an old server, or one that echoes reserved flags.
    None,
    /// That of RFC 3168.
    Classic,
    /// Accurate ECN.
    Accurate,
}

/// See [`Answer`].
pub(in crate::tcp) fn answer(syn_ack: Flags) -> Answer {
    match syn_ack.ace() {
        0b001 | 0b101 => Answer::Classic,
        0b010 | 0b011 | 0b100 | 0b110 => Answer::Accurate,
        _ => Answer::None,
    }
}
