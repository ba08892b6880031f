//! A segment as the state machine sees it: the header's fields parsed, the payload apart.
//!
//! Bytes become a [`Header`] once, in the wire codec; on a path inside one process no bytes are ever
//! made. The payload is whatever the embedder's packet memory is, through [`Payload`].

use crate::seq::SeqNum;

use super::accecn::AccEcnOption;
use super::fast_open::Cookie;
use super::sack::SackBlocks;
use super::user_timeout::UserTimeout;

/// The state machine's demands on packet memory. Cutting and joining must not copy bytes.
pub trait Payload: Default {
    /// Bytes held.
    fn len(&self) -> usize;
    /// True if no bytes are held.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Drops the first `bytes` bytes, at most all.
    fn trim_front(&mut self, bytes: usize);
    /// Keeps the first `bytes` bytes, at most all.
    fn truncate(&mut self, bytes: usize);
    /// Appends `tail`.
    fn append(&mut self, tail: Self);
}

/// Payload for tests and for callers that have plain byte vectors.
impl Payload for Vec<u8> {
    fn len(&self) -> usize {
        Vec::len(self)
    }
    fn trim_front(&mut self, bytes: usize) {
        self.drain(..bytes.min(Vec::len(self)));
    }
    fn truncate(&mut self, bytes: usize) {
        Vec::truncate(self, bytes);
    }
    fn append(&mut self, mut tail: Self) {
        Vec::append(self, &mut tail);
    }
}

/// The control bits of a header (RFC 9293 section 3.1), and beside them the IP header's ECN bits (RFC 3168 section 5):
/// [`Flags::CE`], [`Flags::ECT`] or [`Flags::ECT_1`] on the way in, [`Flags::ECT`] on the way out. They share one word,
/// so that one comparison recognises an ordinary segment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flags(u16);

impl Flags {
    /// No bit set.
    pub const NONE: Self = Self(0);
    /// No more data from the sender.
    pub const FIN: Self = Self(0x01);
    /// Synchronise sequence numbers.
    pub const SYN: Self = Self(0x02);
    /// Reset the connection.
    pub const RST: Self = Self(0x04);
    /// Push.
    pub const PSH: Self = Self(0x08);
    /// The acknowledgment field is significant.
    pub const ACK: Self = Self(0x10);
    /// The urgent pointer is significant.
    pub const URG: Self = Self(0x20);
    /// ECN echo (RFC 3168).
    pub const ECE: Self = Self(0x40);
    /// Congestion window reduced (RFC 3168).
    pub const CWR: Self = Self(0x80);
    /// Accurate ECN (RFC 9768), the lowest of the bits that were reserved.
    pub const AE: Self = Self(0x100);
    /// Not of the TCP header: routers may mark the packet instead of dropping it (ECN-capable transport, ECT(0)).
    pub const ECT: Self = Self(0x200);
    /// Not of the TCP header: the options end with one of an impossible length, and were read up to there.
    pub const BAD_OPTION: Self = Self(0x400);
    /// Not of the TCP header: a router has marked the packet (congestion experienced).
    pub const CE: Self = Self(0x800);
    /// Not of the TCP header: as [`ECT`](Self::ECT), for experiments (ECT(1)). Never sent.
    pub const ECT_1: Self = Self(0x1000);
    /// The three flags that accurate ECN counts with.
    pub const ACE: Self = Self::AE.with(Self::CWR).with(Self::ECE);

    /// From the octet on the wire.
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits as u16)
    }
    /// From the two octets on the wire, the first of which has the data offset too.
    pub const fn from_octets(first: u8, second: u8) -> Self {
        Self(u16::from_be_bytes([first & 1, second]))
    }
    /// The flags of the first of these octets.
    pub const fn high_bits(self) -> u8 {
        self.0.to_le_bytes()[1] & 1
    }
    /// The ECN field of a received packet, from the IP header's traffic class.
    pub const fn of_ip(traffic_class: u8) -> Self {
        match traffic_class & 3 {
            0 => Self::NONE,
            1 => Self::ECT_1,
            2 => Self::ECT,
            _ => Self::CE,
        }
    }
    /// AE, CWR and ECE as a number (RFC 9768 section 3.2).
    pub const fn ace(self) -> u8 {
        (self.0 >> ACE_SHIFT & 7) as u8
    }
    /// The flags for such a number, of which the low three bits count.
    pub const fn from_ace(ace: u8) -> Self {
        Self((ace as u16 & 7) << ACE_SHIFT)
    }
    /// AE, CWR, ECE and ECT as the low four bits of a byte.
    pub(super) const fn from_echo(echo: u8) -> Self {
        Self((echo as u16) << ACE_SHIFT)
    }
    /// The same back.
    pub(super) const fn echo(self) -> u8 {
        (self.0 >> ACE_SHIFT & 0xf) as u8
    }
    /// The octet on the wire.
    pub const fn bits(self) -> u8 {
        self.0.to_le_bytes()[0]
    }
    /// True if every bit of `other` is set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
    /// True if any bit of `other` is set.
    pub const fn any(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
    /// Both together.
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
    /// Without the bits of `other`.
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl core::fmt::Debug for Flags {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let names = [
            (Self::SYN, 'S'),
            (Self::FIN, 'F'),
            (Self::RST, 'R'),
            (Self::PSH, 'P'),
            (Self::ACK, '.'),
            (Self::URG, 'U'),
            (Self::ECE, 'E'),
            (Self::CWR, 'W'),
            (Self::AE, 'N'),
            (Self::CE, 'C'),
            (Self::ECT, 'T'),
            (Self::ECT_1, '1'),
            (Self::BAD_OPTION, '?'),
        ];
        for (flag, name) in names {
            if self.has(flag) {
                write!(f, "{name}")?;
            }
        }
        Ok(())
    }
}

/// The position of ECE; CWR, AE and ECT follow.
const ACE_SHIFT: u32 = 6;

/// The timestamps option (RFC 7323 section 3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Timestamps {
    /// TSval: the sender's clock.
    pub val: u32,
    /// TSecr: the clock value echoed; meaningful only with ACK.
    pub ecr: u32,
}

impl Timestamps {
    /// The echoed timestamp. Zero counts as no echo, as on Linux: some hosts send zero if they have none (RFC 7323
    /// section 3.2). One in 2^32 of our timestamps is zero and is lost.
    pub const fn echo(self) -> Option<u32> {
        if self.ecr == 0 { None } else { Some(self.ecr) }
    }
}

/// Largest number of SACK blocks in a header (RFC 2018 section 3).
pub const SACK_BLOCKS_MAX: usize = 4;

/// The options that the state machine reads. An option that is absent is `None` or `false`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Maximum segment size, bytes (RFC 9293 section 3.7.1); only on a SYN.
    pub mss: Option<u16>,
    /// Window scale, a shift count already limited to 14 (RFC 7323 section 2.3); only on a SYN.
    pub window_scale: Option<u8>,
    /// SACK permitted (RFC 2018); only on a SYN.
    pub sack_permitted: bool,
    /// Timestamps.
    pub timestamps: Option<Timestamps>,
    /// SACK blocks (RFC 2018); never on a SYN.
    pub sack: SackBlocks,
    /// Fast Open (RFC 7413); only on a SYN.
    pub fast_open: Option<Cookie>,
    /// User timeout (RFC 5482).
    pub user_timeout: Option<UserTimeout>,
    /// Accurate ECN (RFC 9768).
    pub accecn: Option<AccEcnOption>,
}

/// A TCP header, ports left to the demultiplexer and checksum to the codec.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Header {
    /// SEG.SEQ.
    pub seq: SeqNum,
    /// SEG.ACK; meaningful only with [`Flags::ACK`].
    pub ack: SeqNum,
    /// Control bits.
    pub flags: Flags,
    /// SEG.WND as in the header, not yet scaled.
    pub window: u16,
    /// SEG.UP, bytes past `seq`; meaningful only with [`Flags::URG`].
    pub urgent: u16,
    /// Not of the TCP header: bytes of text of each segment that a device has joined to this one, except the last; 0 if
    /// it has joined none. Only on the way in.
    pub gso_size: u16,
    /// Parsed options.
    pub options: Options,
}

/// A header with no options except timestamps, as nearly all are. A segment passed between two connections is copied
/// several times, and this is a quarter of a [`Header`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlainHeader {
    pub(super) seq: SeqNum,
    pub(super) ack: SeqNum,
    pub(super) flags: Flags,
    pub(super) window: u16,
    pub(super) timestamps: Option<Timestamps>,
}

/// A header in transit: in the short form, or complete if the short form would lose something.
///
/// It is a struct of words, not an enum: it stays in registers from where a segment is made to where it is queued. A
/// copy through memory waits for the stores before it, because it loads wider than they stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Head {
    plain: PlainHeader,
    /// The header of a SYN, or one with SACK blocks, an urgent pointer or a rare option.
    full: Option<Box<Header>>,
}

impl Head {
    /// Control bits.
    #[inline]
    pub fn flags(&self) -> Flags {
        self.full.as_deref().map_or(self.plain.flags, |full| full.flags)
    }

    /// Adds control bits.
    #[inline]
    pub(super) fn add(&mut self, more: Flags) {
        let flags = self.full.as_deref_mut().map_or(&mut self.plain.flags, |full| &mut full.flags);
        *flags = flags.with(more);
    }

    /// The short form, or the complete one if there is more.
    #[inline]
    pub fn into_parts(mut self) -> Result<PlainHeader, Box<Header>> {
        self.take_parts()
    }

    /// Like [`into_parts`](Self::into_parts) for a header that stays in place, so that only the wanted parts are
    /// copied. Call it once.
    #[inline]
    pub fn take_parts(&mut self) -> Result<PlainHeader, Box<Header>> {
        self.full.take().map_or(Ok(self.plain), Err)
    }
}

impl From<PlainHeader> for Head {
    #[inline]
    fn from(plain: PlainHeader) -> Self {
        Self { plain, full: None }
    }
}

impl From<Header> for Head {
    #[inline]
    fn from(header: Header) -> Self {
        Self { plain: header.plain(), full: (!header.is_plain()).then(|| Box::new(header)) }
    }
}

impl From<Head> for Header {
    #[inline]
    fn from(head: Head) -> Self {
        head.into_parts().map_or_else(|full| *full, Self::from)
    }
}

impl From<PlainHeader> for Header {
    #[inline]
    fn from(plain: PlainHeader) -> Self {
        let PlainHeader { seq, ack, flags, window, timestamps } = plain;
        let options = Options { timestamps, ..Options::default() };
        Self { seq, ack, flags, window, urgent: 0, gso_size: 0, options }
    }
}

impl Header {
    /// Its short form, which has everything of a segment without rare options.
    #[inline]
    pub(super) fn plain(&self) -> PlainHeader {
        let Self { seq, ack, flags, window, options, .. } = *self;
        PlainHeader { seq, ack, flags, window, timestamps: options.timestamps }
    }

    /// True if [`PlainHeader`] holds all of it.
    #[inline]
    fn is_plain(&self) -> bool {
        let Options {
            mss,
            window_scale,
            sack_permitted,
            timestamps: _,
            sack,
            fast_open,
            user_timeout,
            accecn,
        } = &self.options;
        self.urgent == 0
            && mss.is_none()
            && window_scale.is_none()
            && !sack_permitted
            && sack.is_empty()
            && fast_open.is_none()
            && user_timeout.is_none()
            && accecn.is_none()
    }

    /// SEG.LEN: the payload's bytes and one each for SYN and FIN.
    pub fn seq_len(&self, payload_len: usize) -> u32 {
        let controls = u32::from(self.flags.has(Flags::SYN)) + u32::from(self.flags.has(Flags::FIN));
        u32::try_from(payload_len).unwrap_or(u32::MAX).saturating_add(controls)
    }
}
