//! The TUN device with virtio headers, as a device of smoltcp.
//!
//! Purpose: the same as smoltcp's own device for TUN, without an allocation for each packet, and with checksums and
//! segmentation left to the kernel, which smoltcp supports since 0.14, so that smoltcp is measured at its best.
//!
//! Does not depend on the content of packets, except that it finds the TCP header in those that smoltcp
//! writes.
//!
//! Invariant: there is room for any frame that the kernel may give.
//!
//! Tests: the bench's own.

use std::io;
use std::num::NonZeroUsize;

use rustix::io::Errno;
use smoltcp::phy::{self, Checksum, ChecksumCapabilities, DeviceCapabilities, Medium, PacketMeta};
use smoltcp::time::Instant;

/// The header before each frame: virtio 1.2, section 5.1.6.
const VNET_LEN: usize = 10;
const NEEDS_CHECKSUM: u8 = 1;
const GSO_TCPV4: u8 = 1;
/// Headers as smoltcp writes them on IPv4.
const IP_LEN: u16 = 20;
const TCP_CHECKSUM_AT: u16 = 16;
const PROTOCOL_AT: usize = 9;
const TCP: u8 = 6;
/// Bytes of the largest packet, also of those that the device cuts.
const PACKET_MAX: usize = 65_535;

/// The device that is standard input.
pub struct Device {
    mtu: u16,
    rx: Vec<u8>,
    tx: Vec<u8>,
    gone: bool,
}

impl Device {
    /// With packets of at most `mtu` bytes, and larger ones that the device cuts.
    ///
    /// # Errors
    /// The system's.
    pub fn new(mtu: u16) -> io::Result<Self> {
        let stdin = rustix::stdio::stdin();
        rustix::io::ioctl_fionbio(stdin, true)?;
        let room = || vec![0; VNET_LEN + PACKET_MAX];
        Ok(Self { mtu, rx: room(), tx: room(), gone: false })
    }

    /// Whether there is no device any more.
    pub fn is_gone(&self) -> bool {
        self.gone
    }
}

impl phy::Device for Device {
    type RxToken<'a> = RxToken<'a>;
    type TxToken<'a> = TxToken<'a>;

    fn receive(&mut self, _now: Instant) -> Option<(RxToken<'_>, TxToken<'_>)> {
        let read = match rustix::io::read(rustix::stdio::stdin(), &mut self.rx[..]) {
            Ok(read) => read,
            Err(Errno::AGAIN | Errno::INTR) => return None,
            Err(_) => {
                self.gone = true;
                return None;
            }
        };
        let packet = self.rx.get(VNET_LEN..read)?;
        Some((RxToken(packet), TxToken { room: &mut self.tx, meta: PacketMeta::default() }))
    }

    fn transmit(&mut self, _now: Instant) -> Option<TxToken<'_>> {
        Some(TxToken { room: &mut self.tx, meta: PacketMeta::default() })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut checksum = ChecksumCapabilities::default();
        // IP's own is not the device's to complete; on the way in it has been checked already.
        checksum.ipv4 = Checksum::Tx;
        checksum.tcp = Checksum::None;
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = usize::from(self.mtu);
        capabilities.checksum = checksum;
        capabilities.segmentation.tcpv4 = NonZeroUsize::new(PACKET_MAX);
        capabilities
    }
}

/// A packet that came.
pub struct RxToken<'a>(&'a [u8]);

impl phy::RxToken for RxToken<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.0)
    }
}

/// A packet that is to go.
pub struct TxToken<'a> {
    room: &'a mut [u8],
    meta: PacketMeta,
}

impl phy::TxToken for TxToken<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let end = (VNET_LEN + len).min(self.room.len());
        let (vnet, packet) = self.room[..end].split_at_mut(VNET_LEN);
        let result = f(packet);
        vnet.fill(0);
        if packet.get(PROTOCOL_AT) == Some(&TCP) {
            // The checksum field holds zero and not the sum of the pseudo header: no device completes it, since the other
            // side is the kernel itself.
            vnet[0] = NEEDS_CHECKSUM;
            vnet[6..8].copy_from_slice(&IP_LEN.to_ne_bytes());
            vnet[8..10].copy_from_slice(&TCP_CHECKSUM_AT.to_ne_bytes());
        }
        if let Some(size) = self.meta.segmentation_offload_size {
            let tcp_len = u16::from(packet.get(32).map_or(0, |words| words >> 4)) * 4;
            vnet[1] = GSO_TCPV4;
            vnet[2..4].copy_from_slice(&(IP_LEN + tcp_len).to_ne_bytes());
            vnet[4..6].copy_from_slice(&size.get().to_ne_bytes());
        }
        // A frame that the kernel does not take is lost, as on a wire.
        let _ = rustix::io::write(rustix::stdio::stdin(), &self.room[..end]);
        result
    }

    fn set_meta(&mut self, meta: PacketMeta) {
        self.meta = meta;
    }
}
