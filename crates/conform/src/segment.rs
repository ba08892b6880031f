//! A TCP segment with relative numbers: what a scenario's peer sends, and what the tested side is seen to send.
//!
//! Sequence numbers are relative to the first SYN of their sender, so 1 is the first byte of text; timestamps to the sender's first.
//! `codec.rs` makes bytes of it, `text.rs` a line. It does not depend on who sends. Tests: `text.rs`, `codec.rs`.

/// A segment's flags, as in the header: FIN is 1, AE (accurate ECN) 256.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flags(pub u16);

impl Flags {
    /// The letters of the flags, from the lowest bit on.
    pub const LETTERS: [char; 9] = ['F', 'S', 'R', 'P', 'A', 'U', 'E', 'C', 'N'];
    /// No more text.
    pub const FIN: Self = Self(1);
    /// Begins a connection.
    pub const SYN: Self = Self(2);
    /// Ends it at once.
    pub const RST: Self = Self(4);
    /// Text that is to be given to the application.
    pub const PSH: Self = Self(8);
    /// The acknowledgment number is valid.
    pub const ACK: Self = Self(16);
    /// The urgent pointer is valid.
    pub const URG: Self = Self(32);
    /// ECN's echo; on a SYN, the request to use ECN.
    pub const ECE: Self = Self(64);
    /// Its sender has reduced its window.
    pub const CWR: Self = Self(128);

    /// Whether all of these are set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both together.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// How many sequence numbers SYN and FIN take.
    pub const fn numbers(self) -> u32 {
        self.has(Self::SYN) as u32 + self.has(Self::FIN) as u32
    }
}

/// The echo of a timestamp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Echo {
    /// The timestamp of the latest segment that the tested side sent before the time of the event, if there is one.
    Last,
    /// So many milliseconds after that of its first segment. In a segment of the tested side: the peer's value itself.
    Is(u32),
    /// Zero, which means no echo.
    Nothing,
}

/// An option.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Opt {
    /// The largest segment.
    Mss(u16),
    /// The shift of later windows.
    Wscale(u8),
    /// SACK may be used.
    SackOk,
    /// Ranges that were received, each from its first byte to the byte after its last.
    Sack(Vec<(u32, u32)>),
    /// Value and echo.
    Ts(u32, Echo),
    /// Fast Open's option.
    FastOpen(Cookie),
    /// The same in its earlier, experimental form (RFC 6994): kind 254 with a number of its own.
    FastOpenExperiment(Cookie),
    /// One byte of padding.
    Nop,
    /// Another: its kind and bytes.
    Raw(u8, Vec<u8>),
    /// Bytes in the place of an option, which may be no valid option.
    Bytes(Vec<u8>),
}

/// What Fast Open's option has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Cookie {
    /// The cookie that the tested side gives the peer: it depends on their addresses.
    Good,
    /// Other bytes; none ask for a cookie.
    Is(Vec<u8>),
}

/// A segment. The numbers are relative.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Segment {
    /// Its flags.
    pub flags: Flags,
    /// The sequence number of its first byte.
    pub seq: u32,
    /// Bytes of text.
    pub len: u32,
    /// What it acknowledges.
    pub ack: u32,
    /// The header's field, not shifted.
    pub win: u16,
    /// The urgent pointer.
    pub urg: u16,
    /// The options in order.
    pub options: Vec<Opt>,
    /// If the device has joined segments to this one, bytes of text of each of them but the last; otherwise 0. Only for
    /// segments of the peer.
    pub gso_size: u16,
    /// If this stands for several segments that arrive one directly after the other, bytes of text of each of them but the last; otherwise 0. Only for
    /// segments of the peer.
    pub burst: u16,
    /// The two ECN bits of the IP header.
    pub ecn: u8,
    /// The rest of the IP header, of the tested side's.
    pub ip: Ip,
    /// The text differs from the sender's stream at that place. Only for segments of the tested side.
    pub is_corrupt: bool,
}

/// What the IP header of a segment has besides addresses, lengths and the two bits of ECN. The identification is left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ip {
    /// DSCP.
    pub dscp: u8,
    /// TTL or hop limit.
    pub ttl: u8,
    /// Routers must not fragment it: "don't fragment", or IPv6.
    pub is_whole: bool,
    /// It has a flow label (IPv6).
    pub is_labelled: bool,
    /// The label differs from that of the previous segment.
    pub is_relabelled: bool,
}

impl Default for Ip {
    fn default() -> Self {
        Self { dscp: 0, ttl: 64, is_whole: true, is_labelled: false, is_relabelled: false }
    }
}

impl Segment {
    /// The sequence number after its last.
    pub fn end(&self) -> u32 {
        self.seq.wrapping_add(self.len).wrapping_add(self.flags.numbers())
    }

    /// The packets in which it arrives: several if it is a burst. Only the last has PSH and FIN.
    pub fn packets(&self) -> impl Iterator<Item = Self> + '_ {
        let each = if self.burst == 0 { self.len } else { self.burst.into() };
        let count = self.len.div_ceil(each.max(1)).max(1);
        (0..count).map(move |index| {
            let at = index * each;
            let is_last = index + 1 == count;
            let others = Flags(self.flags.0 & !(Flags::PSH.0 | Flags::FIN.0));
            Self {
                flags: if is_last { self.flags } else { others },
                seq: self.seq.wrapping_add(at),
                len: each.min(self.len - at),
                burst: 0,
                ..self.clone()
            }
        })
    }

    /// Whether it answers a SYN with one.
    pub fn is_syn_ack(&self) -> bool {
        self.flags.has(Flags::SYN.with(Flags::ACK))
    }

    /// Whether it only acknowledges. It may carry the flags of ECN, and point at urgent data.
    pub fn is_bare_ack(&self) -> bool {
        let others = [Flags::FIN, Flags::SYN, Flags::RST, Flags::PSH];
        self.len == 0 && self.flags.has(Flags::ACK) && !others.iter().any(|flag| self.flags.has(*flag))
    }

    /// The options that a receiver finds: none behind bytes that are no options.
    fn found(&self) -> impl Iterator<Item = &Opt> {
        self.options.iter().take_while(|option| !matches!(option, Opt::Bytes(bytes) if !is_valid(bytes)))
    }

    /// Value and echo of its timestamp.
    pub fn timestamp(&self) -> Option<(u32, Echo)> {
        self.found().find_map(|option| match option {
            Opt::Ts(value, echo) => Some((*value, *echo)),
            _ => None,
        })
    }

    /// The MSS that it announces.
    pub fn mss(&self) -> Option<u16> {
        self.options.iter().find_map(|option| match option {
            Opt::Mss(mss) => Some(*mss),
            _ => None,
        })
    }

    /// The shift of its sender's windows, if it has that option. A larger one counts as 14 (RFC 7323 section 2.3). Of
    /// several, the last counts.
    pub fn shift(&self) -> Option<u8> {
        let shift = |option: &Opt| match option {
            Opt::Wscale(shift) => Some((*shift).min(SHIFT_MAX)),
            Opt::Bytes(bytes) => match bytes[..] {
                [3, 3, shift, ..] => Some(shift.min(SHIFT_MAX)),
                _ => None,
            },
            _ => None,
        };
        self.found().filter_map(shift).last()
    }

    /// Its SACK blocks.
    pub fn sack(&self) -> &[(u32, u32)] {
        let found = self.found().find_map(|option| match option {
            Opt::Sack(blocks) => Some(&blocks[..]),
            _ => None,
        });
        found.unwrap_or(&[])
    }
}

/// The largest shift of a window.
const SHIFT_MAX: u8 = 14;

/// Whether these bytes are whole options, without the end of the list.
fn is_valid(mut bytes: &[u8]) -> bool {
    while let [kind, rest @ ..] = bytes {
        let len = match *kind {
            0 => return false,
            1 => 1,
            _ => rest.first().map_or(0, |len| usize::from(*len)),
        };
        if len == 0 || (len == 1 && *kind != 1) || len > bytes.len() {
            return false;
        }
        bytes = &bytes[len..];
    }
    true
}

/// The byte at this place of a stream; both directions have the same ones. Neighboring segments' worth of them differ.
pub fn pattern(at: u32) -> u8 {
    (at ^ (at >> 8).wrapping_mul(37) ^ (at >> 16).wrapping_mul(101)) as u8
}
