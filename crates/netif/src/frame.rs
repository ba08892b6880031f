//! Frames: they cross the border between the stack and a driver.
//!
//! It does not depend on the meaning of the bytes. Invariants: the headers of a [`TxFrame`] lie behind
//! [`LINK_HEADER_LEN`] bytes of room, so that a link header is put before them without moving anything; payload is
//! referenced, never copied. Tests: below.

use std::fmt;

use sockeye_mbuf::{Chain, Mbuf};

/// Bytes of the longest headers that a stack writes: 40 of IPv6 and 60 of TCP, which has no room for more options.
pub const HEAD_MAX: usize = 40 + 60;

/// Bytes of an Ethernet header: destination, source, type (IEEE 802.3).
pub const LINK_HEADER_LEN: usize = 14;

/// An Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MacAddr(pub [u8; 6]);

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// The link layer of an interface's frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Medium {
    /// An IP header: the interface leads to one neighbor, or finds the next hop by itself.
    Ip,
    /// An Ethernet header, in both directions. The address is the interface's own.
    Ethernet(MacAddr),
}

/// Which side has filled in, or looked at, a frame's checksum of TCP or UDP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Checksum {
    /// On the way out: it is complete. On the way in: it must be checked.
    Software,
    /// On the way out: the field holds the sum over the pseudo header, and the device does the rest. On the way
    /// in: the device has checked it.
    Device,
}

/// A frame on its way out: headers by value, payload by reference.
///
/// The references are to the sender's own mbufs, as a device with scatter-gather DMA would read them: the receiver
/// copies.
#[derive(Debug)]
pub struct TxFrame {
    head: [u8; LINK_HEADER_LEN + HEAD_MAX],
    /// Where the frame begins in `head`: at 0 with a link header, behind its room without.
    start: u8,
    end: u8,
    /// Which side completes the checksum of TCP or UDP.
    pub checksum: Checksum,
    /// Bytes of TCP or UDP payload in each packet but the last, if the frame carries more than one packet and the
    /// device is to cut it; else 0. FIN and PSH are then the last packet's.
    pub gso_size: u16,
    /// The payload behind the headers.
    pub payload: Chain,
}

impl TxFrame {
    /// A frame that begins with the IP header `head`; `None` if that is longer than [`HEAD_MAX`].
    pub fn new(head: &[u8], payload: Chain, checksum: Checksum) -> Option<Self> {
        let mut bytes = [0; LINK_HEADER_LEN + HEAD_MAX];
        let end = LINK_HEADER_LEN + head.len();
        bytes.get_mut(LINK_HEADER_LEN..end)?.copy_from_slice(head);
        Some(Self {
            head: bytes,
            start: LINK_HEADER_LEN as u8,
            end: u8::try_from(end).ok()?,
            checksum,
            gso_size: 0,
            payload,
        })
    }

    /// Puts a link header before the IP header, or in place of the one that stands there.
    pub fn push_link(&mut self, header: &[u8; LINK_HEADER_LEN]) {
        self.head[..LINK_HEADER_LEN].copy_from_slice(header);
        self.start = 0;
    }

    /// Bytes of link header that the frame begins with: [`LINK_HEADER_LEN`] or 0.
    pub fn link_len(&self) -> usize {
        LINK_HEADER_LEN - usize::from(self.start)
    }

    /// The headers, from the frame's first byte on.
    pub fn head(&self) -> &[u8] {
        &self.head[usize::from(self.start)..usize::from(self.end)]
    }

    /// The headers, to be changed.
    pub fn head_mut(&mut self) -> &mut [u8] {
        &mut self.head[usize::from(self.start)..usize::from(self.end)]
    }

    /// Keeps the first `len` bytes of the headers, and no payload if that cuts anything.
    pub fn truncate_head(&mut self, len: usize) {
        if len < self.head().len() {
            self.end = u8::try_from(usize::from(self.start) + len).unwrap_or(self.end);
            self.payload = Chain::new();
        }
    }

    /// Bytes of the frame.
    pub fn len(&self) -> usize {
        self.head().len() + self.payload.len()
    }

    /// Whether the frame has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the frame's bytes into `into`. Returns how many: fewer than [`TxFrame::len`] if it is too short.
    pub fn copy_to(&self, into: &mut [u8]) -> usize {
        let head = self.head().len().min(into.len());
        let (first, rest) = into.split_at_mut(head);
        first.copy_from_slice(&self.head()[..head]);
        head + self.payload.copy_to(0, rest)
    }

    /// The same frame as its receiver sees it.
    pub fn received(&self) -> RxFrame<'_> {
        RxFrame {
            checksum: self.checksum,
            gso_size: self.gso_size,
            ..RxFrame::new(self.head(), &self.payload)
        }
    }
}

/// A frame that has arrived. The bytes may be anything.
#[derive(Clone, Copy, Debug)]
pub struct RxFrame<'a> {
    /// The frame from its first byte on. All headers must be in here for the packet to be understood; so much of
    /// the payload as the device likes may be.
    pub head: &'a [u8],
    /// The rest of the frame.
    pub rest: &'a Chain,
    /// Which side has looked at the checksum of TCP or UDP.
    pub checksum: Checksum,
    /// Bytes of payload of each packet but the last that the device has joined to this one; 0 if it is one packet, or
    /// that is not known.
    pub gso_size: u16,
    /// The view that `head` is of, if `head` and `rest` lie in mbufs of the pool that the driver got
    /// ([`Netif::attached`](super::Netif::attached)) and may be kept. Payload is then referenced; without it, copied.
    pub own: Option<&'a Mbuf>,
}

impl<'a> RxFrame<'a> {
    /// A frame whose bytes are lent for the call, with a checksum that must be checked.
    pub fn new(head: &'a [u8], rest: &'a Chain) -> Self {
        Self { head, rest, checksum: Checksum::Software, gso_size: 0, own: None }
    }

    /// A frame in mbufs of the stack's pool, `first` and then `rest`, with a checksum that must be checked.
    pub fn in_mbufs(first: &'a Mbuf, rest: &'a Chain) -> Self {
        Self { own: Some(first), ..Self::new(first, rest) }
    }

    /// Bytes of the frame.
    pub fn len(&self) -> usize {
        self.head.len() + self.rest.len()
    }

    /// Whether the frame has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_header_precedes_the_packet_and_may_be_replaced() {
        let mut frame = TxFrame::new(&[0x45; 40], Chain::new(), Checksum::Software).unwrap();
        assert_eq!((frame.head(), frame.link_len()), (&[0x45; 40][..], 0));
        frame.push_link(&[1; LINK_HEADER_LEN]);
        frame.push_link(&[2; LINK_HEADER_LEN]);
        assert_eq!((frame.len(), frame.link_len()), (54, LINK_HEADER_LEN));
        assert_eq!((&frame.head()[..14], &frame.head()[14..]), (&[2; 14][..], &[0x45; 40][..]));
        let mut bytes = [0; 54];
        assert_eq!((frame.copy_to(&mut bytes), &bytes[..]), (54, frame.head()));
        assert_eq!((frame.copy_to(&mut bytes[..9]), &bytes[..9]), (9, &frame.head()[..9]));
        frame.truncate_head(20);
        assert_eq!(frame.received().head.len(), 20);
    }

    #[test]
    fn headers_up_to_the_bound_fit_and_longer_ones_do_not() {
        let of_len = |len| TxFrame::new(&vec![0; len], Chain::new(), Checksum::Software);
        assert_eq!(of_len(HEAD_MAX).map(|frame| frame.len()), Some(HEAD_MAX));
        assert!(of_len(HEAD_MAX + 1).is_none());
    }
}
