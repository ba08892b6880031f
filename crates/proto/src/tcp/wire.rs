//! The TCP header on the wire (RFC 9293 section 3.1) and its options, to and from [`Header`].
//!
//! Bytes are parsed once, here. This module does not depend on connections, IP headers or packet memory: a pseudo
//! header is passed in as a [`Sum`], a payload is returned as a range. Invariants: no input panics; a payload range
//! lies inside the bytes given; malformed options end the list of options and are not an error (RFC 9293 MUST-7
//! requires robustness against them); unknown options are skipped by their length. A written header always fits: SACK
//! blocks without room beside the timestamps are left out, the last first. Tests: `wire/tests.rs`.

#[cfg(test)]
mod tests;

use core::fmt;
use core::ops::Range;

use crate::ip::Sum;
use crate::seq::SeqNum;
use crate::tcp::accecn::AccEcnOption;
use crate::tcp::fast_open::Cookie;
use crate::tcp::sack::{SackBlock, SackBlocks};
use crate::tcp::segment::{Flags, Header, Options, SACK_BLOCKS_MAX, Timestamps};
use crate::tcp::user_timeout::UserTimeout;

/// Bytes of a header without options.
pub const HEADER_LEN_MIN: usize = 20;
/// Bytes of the longest header that [`emit`] writes: the headroom that a payload needs.
pub const HEADER_LEN_EMITTED_MAX: usize = HEADER_LEN_MIN + OPTIONS_LEN_MAX;
/// The largest shift count that may be used (RFC 7323 section 2.3).
pub const WINDOW_SCALE_MAX: u8 = 14;

/// The maximum of the data offset. Timestamps with three blocks of SACK fill it.
const OPTIONS_LEN_MAX: usize = 40;
/// Bytes of the timestamps option, padding included.
const TIMESTAMPS_LEN: usize = 12;
/// Bytes of a SACK option in front of its blocks, padding included.
const SACK_HEAD_LEN: usize = 4;
/// Bytes of one block.
const SACK_BLOCK_LEN: usize = 8;
/// Where the checksum field begins.
const CHECKSUM_AT: usize = 16;

const KIND_END: u8 = 0;
const KIND_NOP: u8 = 1;
const KIND_MSS: u8 = 2;
const KIND_WINDOW_SCALE: u8 = 3;
const KIND_SACK_PERMITTED: u8 = 4;
const KIND_SACK: u8 = 5;
const KIND_TIMESTAMPS: u8 = 8;
const KIND_USER_TIMEOUT: u8 = 28;
const KIND_FAST_OPEN: u8 = 34;
/// Shared by experiments (RFC 6994), which the two bytes after the length distinguish.
const KIND_EXPERIMENT: u8 = 254;
/// The number of Fast Open as an experiment, before it had a kind of its own (RFC 7413 section 4.1.1).
const FAST_OPEN_EXPERIMENT: [u8; 2] = [0xf9, 0x89];
/// Bytes of the user timeout option.
pub(super) const USER_TIMEOUT_LEN: usize = 4;

/// The two ports, which only the demultiplexer uses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Ports {
    /// Source port.
    pub src: u16,
    /// Destination port.
    pub dst: u16,
}

impl Ports {
    /// The ports of the answer.
    #[must_use]
    pub const fn reversed(self) -> Self {
        Self { src: self.dst, dst: self.src }
    }
}

/// Whether a received segment's checksum must be checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChecksumIn {
    /// Check it; the pseudo header has this sum (`ip::Addresses::pseudo_header`).
    Verify(Sum),
    /// The device has checked it, or the segment never left this host.
    Trusted,
}

/// Which side fills in a sent segment's checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChecksumOut {
    /// We do: the sum over the pseudo header and the payload.
    Full(Sum),
    /// The device does, and needs the folded sum over the pseudo header in the field.
    Offload(Sum),
    /// None: the receiver trusts the path. The field is zero.
    Omit,
}

/// Why bytes are not a TCP segment. Always caused by the sender or the network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParseError {
    /// Fewer bytes than the fixed header has; the number of bytes.
    Truncated(usize),
    /// A data offset below five words or past the end.
    DataOffset {
        /// Value of the field, bytes.
        field: usize,
        /// Bytes there.
        have: usize,
    },
    /// The checksum is wrong; the sum found, which should be 0xffff.
    Checksum(u16),
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated(have) => {
                write!(f, "TCP segment of {have} bytes, less than {HEADER_LEN_MIN}")
            }
            Self::DataOffset { field, have } => {
                write!(f, "TCP data offset of {field} bytes in a segment of {have} bytes")
            }
            Self::Checksum(sum) => write!(f, "TCP segment sums up to {sum:#06x}, not 0xffff"),
        }
    }
}

impl core::error::Error for ParseError {}

/// The buffer given to [`emit`] is too short for the header. Always caused by the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BufferTooShort {
    /// Bytes needed.
    pub need: usize,
    /// Bytes there.
    pub have: usize,
}

impl fmt::Display for BufferTooShort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TCP header of {} bytes in a buffer of {}", self.need, self.have)
    }
}

impl core::error::Error for BufferTooShort {}

/// Parses a segment: its ports, its header, and the range of its payload in `segment`.
///
/// `segment` is exactly the IP payload. The three reserved bits are ignored; options that belong to a SYN only are
/// ignored on other segments; options after one of an impossible length are not read, which [`Flags::BAD_OPTION`]
/// reports (RFC 9293 MUST-7); an MSS of zero counts as absent; a window scale above [`WINDOW_SCALE_MAX`] is reduced to
/// it (RFC 7323 section 2.3).
///
/// # Errors
/// See [`ParseError`]; the segment must be dropped.
pub fn parse(segment: &[u8], checksum: ChecksumIn) -> Result<(Ports, Header, Range<usize>), ParseError> {
    let have = segment.len();
    let Some(fixed) = segment.first_chunk::<HEADER_LEN_MIN>() else {
        return Err(ParseError::Truncated(have));
    };
    let [p0, p1, p2, p3, s0, s1, s2, s3, a0, a1, a2, a3, off, bits, w0, w1, _, _, u0, u1] = *fixed;
    let header_len = usize::from(off >> 4) * 4;
    let Some(option_bytes) = segment.get(HEADER_LEN_MIN..header_len) else {
        return Err(ParseError::DataOffset { field: header_len, have });
    };
    match checksum {
        ChecksumIn::Verify(pseudo_header) => {
            let sum = pseudo_header.add_bytes(segment);
            if !sum.is_valid() {
                return Err(ParseError::Checksum(sum.folded()));
            }
        }
        ChecksumIn::Trusted => {}
    }
    let ports = Ports { src: u16::from_be_bytes([p0, p1]), dst: u16::from_be_bytes([p2, p3]) };
    let mut flags = Flags::from_octets(off, bits);
    let options = parse_options(option_bytes, &mut flags);
    let header = Header {
        seq: SeqNum::new(u32::from_be_bytes([s0, s1, s2, s3])),
        ack: SeqNum::new(u32::from_be_bytes([a0, a1, a2, a3])),
        flags,
        window: u16::from_be_bytes([w0, w1]),
        urgent: u16::from_be_bytes([u0, u1]),
        gso_size: 0,
        options,
    };
    Ok((ports, header, header_len..have))
}

/// Reads the options, of which `bytes` holds at most 40 bytes, of a segment with these flags.
fn parse_options(bytes: &[u8], flags: &mut Flags) -> Options {
    let mut options = Options::default();
    // Nearly every segment carries nothing, or timestamps in the layout of RFC 7323 appendix A.
    if let [KIND_NOP, KIND_NOP, KIND_TIMESTAMPS, 10, data @ ..] = bytes
        && let Ok(data) = <&[u8; 8]>::try_from(data)
    {
        options.timestamps = Some(timestamps(*data));
        return options;
    }
    let (mut rest, syn) = (bytes, flags.has(Flags::SYN));
    while let Some((&kind, behind_kind)) = rest.split_first() {
        if kind == KIND_END {
            break;
        }
        if kind == KIND_NOP {
            rest = behind_kind;
            continue;
        }
        // A length below 2 yields no range, just as one past the end does.
        let len = behind_kind.first().copied().unwrap_or_default();
        let Some(data) = rest.get(2..usize::from(len)) else {
            *flags = flags.with(Flags::BAD_OPTION);
            break;
        };
        match (kind, data) {
            (KIND_MSS, &[a, b]) if syn && [a, b] != [0, 0] => {
                options.mss = Some(u16::from_be_bytes([a, b]));
            }
            (KIND_WINDOW_SCALE, &[shift]) if syn => {
                options.window_scale = Some(shift.min(WINDOW_SCALE_MAX));
            }
            (KIND_SACK_PERMITTED, &[]) if syn => options.sack_permitted = true,
            (KIND_SACK, data) if !syn => options.sack = sack_blocks(data).unwrap_or(options.sack),
            (KIND_FAST_OPEN, data) if syn => options.fast_open = Cookie::new(data),
            (KIND_EXPERIMENT, [a, b, data @ ..]) if syn && [*a, *b] == FAST_OPEN_EXPERIMENT => {
                options.fast_open = Cookie::new(data).map(Cookie::experimental);
            }
            (KIND_USER_TIMEOUT, &[a, b]) => {
                options.user_timeout = UserTimeout::from_bits(u16::from_be_bytes([a, b]));
            }
            (AccEcnOption::KIND_0 | AccEcnOption::KIND_1, data) => {
                options.accecn = Some(AccEcnOption::parse(kind, data));
            }
            (KIND_TIMESTAMPS, data) => {
                if let Ok(data) = <[u8; 8]>::try_from(data) {
                    options.timestamps = Some(timestamps(data));
                }
            }
            (_, _) => {}
        }
        rest = rest.get(usize::from(len)..).unwrap_or_default();
    }
    options
}

fn timestamps(data: [u8; 8]) -> Timestamps {
    let [v0, v1, v2, v3, e0, e1, e2, e3] = data;
    Timestamps { val: u32::from_be_bytes([v0, v1, v2, v3]), ecr: u32::from_be_bytes([e0, e1, e2, e3]) }
}

/// The blocks of a SACK option. None if its length is not a whole number of blocks, or if it has none: the option is
/// skipped.
fn sack_blocks(data: &[u8]) -> Option<SackBlocks> {
    let (blocks, rest) = data.as_chunks::<SACK_BLOCK_LEN>();
    if !rest.is_empty() || blocks.is_empty() {
        return None;
    }
    let edge = |a, b, c, d| SeqNum::new(u32::from_be_bytes([a, b, c, d]));
    let block = |&[a, b, c, d, e, f, g, h]: &[u8; SACK_BLOCK_LEN]| SackBlock {
        start: edge(a, b, c, d),
        end: edge(e, f, g, h),
    };
    Some(blocks.iter().map(block).collect())
}

/// How many of `count` blocks of SACK fit a header with or without timestamps.
pub const fn sack_blocks_fit(count: usize, timestamps: bool) -> usize {
    let most = if timestamps { SACK_BLOCKS_MAX - 1 } else { SACK_BLOCKS_MAX };
    if count < most { count } else { most }
}

/// Bytes that `count` blocks of SACK take in a header, padding included.
pub const fn sack_len(count: usize) -> usize {
    if count == 0 { 0 } else { SACK_HEAD_LEN + count * SACK_BLOCK_LEN }
}

/// Bytes that [`emit`] writes for `header`: from [`HEADER_LEN_MIN`] to [`HEADER_LEN_EMITTED_MAX`].
pub fn header_len(header: &Header) -> usize {
    let len = len_without_accecn(header);
    match header.options.accecn {
        None => len,
        Some(option) => len + within_header(option, len).map_or(0, |option| option.padded_len()),
    }
}

/// As many counters of accurate ECN as fit beside `len` bytes of everything else.
#[cold]
fn within_header(option: AccEcnOption, len: usize) -> Option<AccEcnOption> {
    option.within(HEADER_LEN_EMITTED_MAX.saturating_sub(len))
}

fn len_without_accecn(header: &Header) -> usize {
    let options = &header.options;
    let mut len = HEADER_LEN_MIN;
    if options.timestamps.is_some() {
        len += TIMESTAMPS_LEN;
    }
    if header.flags.has(Flags::SYN) {
        len += if options.mss.is_some() { 4 } else { 0 };
        len += if options.window_scale.is_some() { 4 } else { 0 };
        len += if options.sack_permitted && options.timestamps.is_none() { 4 } else { 0 };
    } else if !options.sack.is_empty() {
        len += sack_len(sack_blocks_fit(options.sack.len(), options.timestamps.is_some()));
    }
    let fast_open = fast_open_of(header).map_or(0, fast_open_len);
    if len + fast_open <= HEADER_LEN_EMITTED_MAX {
        len += fast_open;
    }
    if options.user_timeout.is_some() && len + USER_TIMEOUT_LEN <= HEADER_LEN_EMITTED_MAX {
        len += USER_TIMEOUT_LEN;
    }
    len
}

/// Bytes of options for which `header` still has room.
pub(super) fn options_room(header: &Header) -> usize {
    HEADER_LEN_EMITTED_MAX.saturating_sub(header_len(header))
}

/// Bytes of the Fast Open option, padding included.
fn fast_open_len(cookie: &Cookie) -> usize {
    (fast_open_head_len(cookie) + cookie.as_slice().len()).next_multiple_of(4)
}

/// Bytes of the option before the cookie.
fn fast_open_head_len(cookie: &Cookie) -> usize {
    if cookie.is_experimental() { 4 } else { 2 }
}

fn fast_open_of(header: &Header) -> Option<&Cookie> {
    header.options.fast_open.as_ref().filter(|_| header.flags.has(Flags::SYN))
}

/// Writes `header` to the front of `out`; returns its length, which is [`header_len`].
///
/// Options that belong to a SYN only are written on a SYN only.
///
/// # Errors
/// [`BufferTooShort`]; then nothing was written.
pub fn emit(
    ports: Ports,
    header: &Header,
    checksum: ChecksumOut,
    out: &mut [u8],
) -> Result<usize, BufferTooShort> {
    let need = header_len(header);
    let have = out.len();
    let Some(out) = out.get_mut(..need) else {
        return Err(BufferTooShort { need, have });
    };
    let mut writer = Writer { bytes: [0; HEADER_LEN_EMITTED_MAX], len: 0 };
    writer.put(ports.src.to_be_bytes());
    writer.put(ports.dst.to_be_bytes());
    writer.put(header.seq.raw().to_be_bytes());
    writer.put(header.ack.raw().to_be_bytes());
    // At most fifteen words of header: the shift by four keeps every bit.
    let words = u8::try_from(need / 4).unwrap_or(u8::MAX);
    writer.put([words << 4 | header.flags.high_bits(), header.flags.bits()]);
    writer.put(header.window.to_be_bytes());
    writer.put([0; 2]);
    writer.put(header.urgent.to_be_bytes());
    put_options(&mut writer, header);
    assert_eq!(writer.len, need, "header_len and put_options disagree");
    let bytes = &mut writer.bytes[..need];
    let field = match checksum {
        ChecksumOut::Full(rest) => Sum::of(bytes).join(rest).checksum(),
        ChecksumOut::Offload(pseudo_header) => pseudo_header.folded(),
        ChecksumOut::Omit => 0,
    };
    bytes[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&field.to_be_bytes());
    out.copy_from_slice(bytes);
    Ok(need)
}

/// Writes the options in whole words, in the order that other hosts use and middleboxes know.
fn put_options(writer: &mut Writer, header: &Header) {
    let options = &header.options;
    let syn = header.flags.has(Flags::SYN);
    if syn && let Some(mss) = options.mss {
        let [a, b] = mss.to_be_bytes();
        writer.put([KIND_MSS, 4, a, b]);
    }
    let sack_permitted = syn && options.sack_permitted;
    let word = if sack_permitted { [KIND_SACK_PERMITTED, 2] } else { [KIND_NOP, KIND_NOP] };
    if let Some(timestamps) = options.timestamps {
        writer.put(word);
        writer.put([KIND_TIMESTAMPS, 10]);
        writer.put(timestamps.val.to_be_bytes());
        writer.put(timestamps.ecr.to_be_bytes());
    }
    if let Some(option) = options.accecn
        && let Some(option) = within_header(option, len_without_accecn(header))
    {
        put_accecn(writer, &option);
    }
    if sack_permitted && options.timestamps.is_none() {
        writer.put([KIND_NOP, KIND_NOP]);
        writer.put(word);
    }
    if syn && let Some(shift) = options.window_scale {
        writer.put([KIND_NOP, KIND_WINDOW_SCALE, 3, shift.min(WINDOW_SCALE_MAX)]);
    }
    if !syn && !options.sack.is_empty() {
        put_sack(writer, options);
    }
    if let Some(cookie) = fast_open_of(header)
        && writer.len + fast_open_len(cookie) <= HEADER_LEN_EMITTED_MAX
    {
        put_fast_open(writer, cookie);
    }
    if let Some(timeout) = options.user_timeout
        && writer.len + USER_TIMEOUT_LEN <= HEADER_LEN_EMITTED_MAX
    {
        let [a, b] = timeout.bits().to_be_bytes();
        writer.put([KIND_USER_TIMEOUT, 4, a, b]);
    }
}

fn put_accecn(writer: &mut Writer, option: &AccEcnOption) {
    let len = 2 + 3 * option.fields().len();
    // At most eleven bytes.
    writer.put([option.kind(), u8::try_from(len).unwrap_or(u8::MAX)]);
    option.fields().iter().for_each(|field| writer.put(*field));
    (len..option.padded_len()).for_each(|_| writer.put([KIND_NOP]));
}

/// The padding comes after the option, as on Linux: some middleboxes look for the option at the beginning of a word.
fn put_fast_open(writer: &mut Writer, cookie: &Cookie) {
    let bytes = cookie.as_slice();
    let len = fast_open_head_len(cookie) + bytes.len();
    // At most twenty bytes.
    let field = u8::try_from(len).unwrap_or(u8::MAX);
    if cookie.is_experimental() {
        writer.put([KIND_EXPERIMENT, field]);
        writer.put(FAST_OPEN_EXPERIMENT);
    } else {
        writer.put([KIND_FAST_OPEN, field]);
    }
    bytes.iter().for_each(|byte| writer.put([*byte]));
    (len..fast_open_len(cookie)).for_each(|_| writer.put([KIND_NOP]));
}

fn put_sack(writer: &mut Writer, options: &Options) {
    let count = sack_blocks_fit(options.sack.len(), options.timestamps.is_some());
    // At most four blocks of eight bytes: the length fits its octet.
    let len = u8::try_from(2 + count * SACK_BLOCK_LEN).unwrap_or(u8::MAX);
    writer.put([KIND_NOP, KIND_NOP, KIND_SACK, len]);
    for block in options.sack.as_slice().iter().take(count) {
        writer.put(block.start.raw().to_be_bytes());
        writer.put(block.end.raw().to_be_bytes());
    }
}

/// A header being written, from front to back.
struct Writer {
    bytes: [u8; HEADER_LEN_EMITTED_MAX],
    len: usize,
}

impl Writer {
    /// Appends `field`. The array holds the longest possible header, so this cannot exceed it.
    #[inline]
    fn put<const N: usize>(&mut self, field: [u8; N]) {
        self.bytes[self.len..self.len + N].copy_from_slice(&field);
        self.len += N;
    }
}
