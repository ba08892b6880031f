//! A TCP end that does no more than the kernel has to see: it acknowledges, feeds or echoes.
//!
//! Purpose: how fast the device and the kernel's TCP are when the other side costs next to nothing. One thread, one
//! connection, IPv4, no options but the window's scale, no repair: the device loses nothing on the way to the kernel, and
//! the kernel sends again the segments that it loses. It copies no payload beyond the device's own copy.
//!
//! Does not depend on Sockeye's protocol code.
//!
//! Invariant: its input may be anything; it drops packets that it does not understand.
//!
//! Tests: below.

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, poll};
use sockeye_drivers::Tun;

use super::{Mtu, Work};

/// The device's header before each frame (virtio 1.2, section 5.1.6).
const VNET_LEN: usize = 10;
const IP_LEN: usize = 20;
const TCP_LEN: usize = 20;
/// Our window: 65,535 scaled by this, 4 MiB.
const SHIFT: u8 = 6;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const PSH: u8 = 8;
const ACK: u8 = 16;

/// Serves until the device is removed.
pub fn run(tun: &Tun, mtu: Mtu) {
    let Some(fd) = tun.descriptors().next() else { return };
    let size = Size::of(mtu);
    let mut end = TrivialEnd::new(size);
    let mut buffer = vec![0; VNET_LEN + usize::from(u16::MAX)];
    let payload = vec![0; size.burst()];
    loop {
        let read = match rustix::io::read(fd, &mut buffer[..]) {
            Ok(read) => read,
            Err(rustix::io::Errno::AGAIN) => {
                // A signal only ends it early.
                let _ = poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], None);
                continue;
            }
            Err(_) => return,
        };
        let Some(packet) = buffer.get(VNET_LEN..read) else { continue };
        end.input(packet);
        while let Some(out) = end.output() {
            if write(fd, &out, &payload, size).is_err() {
                return;
            }
        }
    }
}

/// Payload of a packet.
#[derive(Clone, Copy, Debug)]
struct Size {
    mss: u16,
}

impl Size {
    fn of(mtu: Mtu) -> Self {
        Self { mss: mtu.bytes() - (IP_LEN + TCP_LEN) as u16 }
    }

    /// Payload of the largest frame that the kernel cuts into such packets.
    fn burst(self) -> usize {
        let mss = usize::from(self.mss);
        (usize::from(u16::MAX) - IP_LEN - TCP_LEN) / mss * mss
    }
}

/// A segment to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Out {
    head: Vec<u8>,
    payload_len: usize,
}

fn write(fd: BorrowedFd<'_>, out: &Out, payload: &[u8], size: Size) -> io::Result<()> {
    let mut vnet = [0; VNET_LEN];
    // The checksum is the device's: from behind the IP header, at its place in TCP's.
    vnet[0] = 1;
    vnet[6..8].copy_from_slice(&(IP_LEN as u16).to_ne_bytes());
    vnet[8..10].copy_from_slice(&16u16.to_ne_bytes());
    if out.payload_len > usize::from(size.mss) {
        vnet[1] = 1;
        vnet[2..4].copy_from_slice(&(out.head.len() as u16).to_ne_bytes());
        vnet[4..6].copy_from_slice(&size.mss.to_ne_bytes());
    }
    let payload = payload.get(..out.payload_len).unwrap_or_default();
    rustix::io::writev(fd, &[IoSlice::new(&vnet), IoSlice::new(&out.head), IoSlice::new(payload)])?;
    Ok(())
}

/// See the module's head.
struct TrivialEnd {
    size: Size,
    conn: Option<Conn>,
}

struct Conn {
    work: Work,
    size: Size,
    /// Addresses and ports, ours first.
    addrs: [[u8; 4]; 2],
    ports: [u16; 2],
    snd_una: u32,
    snd_nxt: u32,
    rcv_nxt: u32,
    snd_wnd: u32,
    /// The other side's scale.
    shift: u8,
    is_open: bool,
    owes_ack: bool,
    /// Bytes to be echoed.
    owes: usize,
}

/// The fields of a segment that it uses.
struct In<'a> {
    tcp: &'a [u8],
    addrs: [[u8; 4]; 2],
    ports: [u16; 2],
    seq: u32,
    ack: u32,
    flags: u8,
    window: u16,
    payload_len: usize,
}

impl<'a> In<'a> {
    fn of(packet: &'a [u8]) -> Option<Self> {
        let (ip, rest) = packet.split_at_checked(IP_LEN)?;
        if ip[0] != 0x45 || ip[9] != 6 {
            return None;
        }
        let tcp = rest.get(..usize::from(u16::from_be_bytes([ip[2], ip[3]])).checked_sub(IP_LEN)?)?;
        let header_len = usize::from(tcp.get(12)? >> 4) * 4;
        let payload_len = tcp.len().checked_sub(header_len.max(TCP_LEN))?;
        let u16_at = |at: usize| u16::from_be_bytes([tcp[at], tcp[at + 1]]);
        let u32_at = |at: usize| u32::from_be_bytes([tcp[at], tcp[at + 1], tcp[at + 2], tcp[at + 3]]);
        Some(Self {
            tcp: &tcp[..header_len.max(TCP_LEN)],
            addrs: [[ip[16], ip[17], ip[18], ip[19]], [ip[12], ip[13], ip[14], ip[15]]],
            ports: [u16_at(2), u16_at(0)],
            seq: u32_at(4),
            ack: u32_at(8),
            flags: tcp[13],
            window: u16_at(14),
            payload_len,
        })
    }

    /// The scale that a SYN offers.
    fn shift(&self) -> u8 {
        let mut options = self.tcp.get(TCP_LEN..).unwrap_or_default();
        loop {
            options = match options {
                [3, 3, shift, ..] => return (*shift).min(14),
                [1, rest @ ..] => rest,
                [_, len, ..] if *len >= 2 => options.get(usize::from(*len)..).unwrap_or_default(),
                _ => return 0,
            };
        }
    }
}

impl TrivialEnd {
    fn new(size: Size) -> Self {
        Self { size, conn: None }
    }

    fn input(&mut self, packet: &[u8]) {
        let Some(segment) = In::of(packet) else { return };
        let Some(work) = Work::ALL.into_iter().find(|work| work.port() == segment.ports[0]) else { return };
        if segment.flags & SYN != 0 {
            self.conn = Some(Conn::new(work, self.size, &segment));
            return;
        }
        let Some(conn) = &mut self.conn else { return };
        if conn.ports != segment.ports {
            return;
        }
        if segment.flags & (RST | FIN) != 0 {
            self.conn = None;
            return;
        }
        conn.acked(&segment);
        if segment.payload_len > 0 {
            conn.owes_ack = true;
            if segment.seq == conn.rcv_nxt {
                conn.rcv_nxt = conn.rcv_nxt.wrapping_add(segment.payload_len as u32);
                conn.owes += if conn.work == Work::Rr { segment.payload_len } else { 0 };
            }
        }
    }

    /// The next segment to send.
    fn output(&mut self) -> Option<Out> {
        self.conn.as_mut()?.output()
    }
}

impl Conn {
    fn new(work: Work, size: Size, syn: &In<'_>) -> Self {
        Self {
            work,
            size,
            addrs: syn.addrs,
            ports: syn.ports,
            snd_una: 0,
            snd_nxt: 0,
            rcv_nxt: syn.seq.wrapping_add(1),
            snd_wnd: 0,
            shift: syn.shift(),
            is_open: false,
            owes_ack: true,
            owes: 0,
        }
    }

    fn acked(&mut self, segment: &In<'_>) {
        self.is_open = true;
        if segment.ack.wrapping_sub(self.snd_una) <= self.snd_nxt.wrapping_sub(self.snd_una) {
            self.snd_una = segment.ack;
            self.snd_wnd = u32::from(segment.window) << self.shift;
        }
    }

    fn output(&mut self) -> Option<Out> {
        if !self.is_open {
            if !std::mem::take(&mut self.owes_ack) {
                return None;
            }
            let [high, low] = self.size.mss.to_be_bytes();
            // The MSS; a word of nothing and the scale.
            let options = [2, 4, high, low, 1, 3, 3, SHIFT];
            self.snd_nxt = 0;
            let out = self.segment(SYN | ACK, 0, &options);
            self.snd_nxt = 1;
            return Some(out);
        }
        let room = self.snd_wnd.saturating_sub(self.snd_nxt.wrapping_sub(self.snd_una)) as usize;
        let burst = self.size.burst();
        let len = match self.work {
            Work::Receive => 0,
            Work::Send | Work::Lent => {
                if room >= burst {
                    burst
                } else {
                    0
                }
            }
            Work::Rr => std::mem::take(&mut self.owes).min(burst),
        };
        if len == 0 && !self.owes_ack {
            return None;
        }
        self.owes_ack = false;
        let out = self.segment(if len > 0 { ACK | PSH } else { ACK }, len, &[]);
        self.snd_nxt = self.snd_nxt.wrapping_add(len as u32);
        Some(out)
    }

    fn segment(&self, flags: u8, payload_len: usize, options: &[u8]) -> Out {
        let tcp_len = TCP_LEN + options.len() + payload_len;
        let mut head = vec![0; IP_LEN + TCP_LEN];
        head[0] = 0x45;
        head[2..4].copy_from_slice(&((IP_LEN + tcp_len) as u16).to_be_bytes());
        (head[6], head[8], head[9]) = (0x40, 64, 6);
        head[12..16].copy_from_slice(&self.addrs[0]);
        head[16..20].copy_from_slice(&self.addrs[1]);
        let sum = !folded(&head[..IP_LEN], 0);
        head[10..12].copy_from_slice(&sum.to_be_bytes());
        let pseudo = folded(&head[12..IP_LEN], 6 + tcp_len as u64);
        let tcp = &mut head[IP_LEN..];
        tcp[..2].copy_from_slice(&self.ports[0].to_be_bytes());
        tcp[2..4].copy_from_slice(&self.ports[1].to_be_bytes());
        tcp[4..8].copy_from_slice(&self.snd_nxt.to_be_bytes());
        tcp[8..12].copy_from_slice(&self.rcv_nxt.to_be_bytes());
        tcp[12] = ((TCP_LEN + options.len()) / 4 * 16) as u8;
        tcp[13] = flags;
        tcp[14..16].copy_from_slice(&u16::MAX.to_be_bytes());
        tcp[16..18].copy_from_slice(&pseudo.to_be_bytes());
        head.extend(options);
        Out { head, payload_len }
    }
}

/// The Internet sum of `bytes`, which are even in number, and `more`.
fn folded(bytes: &[u8], more: u64) -> u16 {
    let words = bytes.chunks_exact(2).map(|pair| u64::from(u16::from_be_bytes([pair[0], pair[1]])));
    let mut sum = words.sum::<u64>() + more;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A segment of the other side, made by the same code with the roles exchanged.
    fn from_client(work: Work, seq: u32, ack: u32, flags: u8, payload_len: usize) -> Vec<u8> {
        let mut conn = Conn {
            work,
            size: Size::of(Mtu::default()),
            addrs: [[10, 9, 0, 1], [10, 9, 0, 2]],
            ports: [40_000, work.port()],
            snd_una: seq,
            snd_nxt: seq,
            rcv_nxt: ack,
            snd_wnd: 0,
            shift: 0,
            is_open: true,
            owes_ack: false,
            owes: 0,
        };
        conn.snd_nxt = seq;
        let options: &[u8] = if flags & SYN != 0 { &[1, 3, 3, 7] } else { &[] };
        let out = conn.segment(flags, payload_len, options);
        let mut packet = out.head;
        packet.resize(packet.len() + payload_len, 0);
        packet
    }

    fn opened(work: Work) -> TrivialEnd {
        let mut end = TrivialEnd::new(Size::of(Mtu::default()));
        end.input(&from_client(work, 99, 0, SYN, 0));
        let syn_ack = end.output().unwrap();
        assert_eq!(syn_ack.head[IP_LEN + 13], SYN | ACK);
        assert_eq!(In::of(&syn_ack.head).unwrap().ack, 100);
        assert_eq!(end.output(), None);
        end
    }

    #[test]
    fn headers_sum_up_and_the_devices_part_is_the_pseudo_header() {
        let mut end = opened(Work::Receive);
        end.input(&from_client(Work::Receive, 100, 1, ACK, 1000));
        let ack = end.output().unwrap();
        assert_eq!(folded(&ack.head[..IP_LEN], 0), 0xffff);
        assert_eq!(In::of(&ack.head).unwrap().ack, 1100);
        assert_eq!(ack.head[IP_LEN + 16..IP_LEN + 18], folded(&ack.head[12..20], 6 + 20).to_be_bytes());
    }

    #[test]
    fn data_behind_a_hole_is_not_acknowledged() {
        let mut end = opened(Work::Receive);
        end.input(&from_client(Work::Receive, 200, 1, ACK, 100));
        assert_eq!(In::of(&end.output().unwrap().head).unwrap().ack, 100);
        assert_eq!(end.output(), None);
    }

    #[test]
    fn a_source_fills_exactly_the_window_and_an_echo_returns_its_input() {
        let mut end = opened(Work::Send);
        // 65,535 scaled by 7.
        end.input(&from_client(Work::Send, 100, 1, ACK, 0));
        let sent: usize = std::iter::from_fn(|| end.output()).map(|out| out.payload_len).sum();
        assert!(sent <= 65_535 << 7 && sent > (65_535 << 7) - 44 * 1460, "{sent}");
        let mut end = opened(Work::Rr);
        end.input(&from_client(Work::Rr, 100, 1, ACK | PSH, 3));
        let out = end.output().unwrap();
        // The payload is not with the headers, so the acknowledgment is read where it stands.
        assert_eq!((out.payload_len, &out.head[IP_LEN + 8..IP_LEN + 12]), (3, &103u32.to_be_bytes()[..]));
        end.input(&from_client(Work::Rr, 103, 4, RST, 0));
        assert_eq!(end.output(), None);
    }

    #[test]
    fn the_mtu_bounds_packets_and_the_device_bounds_frames() {
        for (mtu, mss, burst) in [(1280, 1240, 64_480), (1500, 1460, 64_240), (65_535, 65_495u16, 65_495)] {
            let size = Size::of(mtu.to_string().parse().unwrap());
            assert_eq!((size.mss, size.burst()), (mss, burst));
            let mut end = TrivialEnd::new(size);
            end.input(&from_client(Work::Send, 99, 0, SYN, 0));
            let syn_ack = end.output().unwrap();
            assert_eq!(syn_ack.head[IP_LEN + TCP_LEN + 2..][..2], mss.to_be_bytes());
        }
    }

    #[test]
    fn arbitrary_bytes_are_dropped() {
        let mut end = TrivialEnd::new(Size::of(Mtu::default()));
        let whole = from_client(Work::Send, 1, 1, SYN, 0);
        for len in 0..whole.len() {
            end.input(&whole[..len]);
        }
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0xff;
            end.input(&damaged);
            end.output();
        }
        assert!(In::of(&[]).is_none());
    }
}
