//! A stack with an interface whose other side is the test. It has no threads and simulated time: only the test drives it.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use sockeye::Config;
use sockeye_proto::icmp::{Error, Message};
use sockeye_proto::ip;
use sockeye_proto::seq::SeqNum;
use sockeye_proto::tcp::segment::{Flags, Header, Options};
use sockeye_proto::tcp::wire::{self, ChecksumIn, ChecksumOut, Ports};

use crate::host::{Host, icmp, packet};

/// The stack and its peer. The stack lives while a handle exists; dropping the last one removes the interface.
#[derive(Clone)]
pub struct Peer(Arc<Mutex<Host>>);

impl Peer {
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut Config)) -> Self {
        let host = Host::with(|config| {
            config.spin_max = Duration::ZERO;
            change(config);
        });
        Self(Arc::new(Mutex::new(host)))
    }

    pub fn host(&self) -> MutexGuard<'_, Host> {
        self.0.lock().unwrap()
    }

    /// Handles each packet that has arrived.
    pub fn react(&self, react: impl Fn(&mut Host, &[u8])) {
        let mut host = self.host();
        for packet in host.turn() {
            react(&mut host, &packet);
        }
    }

    /// The interface vanishes.
    pub fn unplug(&self) {
        let mut host = self.host();
        host.unplug();
        host.turn();
    }
}

/// Answers a SYN with a SYN-ACK.
pub fn syn_ack(host: &mut Host, syn: &[u8]) {
    syn_ack_with(host, syn, u16::MAX);
}

/// The same with this window.
pub fn syn_ack_with(host: &mut Host, syn: &[u8], window: u16) {
    let options = Options { mss: Some(1460), ..Options::default() };
    answer(
        host,
        syn,
        Header { seq: SeqNum::new(7), flags: Flags::SYN, window, options, ..Header::default() },
    );
}

/// Acknowledges all that a segment carries.
pub fn ack(host: &mut Host, segment: &[u8]) {
    ack_with(host, segment, u16::MAX);
}

/// The same with this window; returns the answers.
pub fn ack_with(host: &mut Host, segment: &[u8], window: u16) -> Vec<Vec<u8>> {
    answer(host, segment, Header { seq: SeqNum::new(8), window, ..Header::default() })
}

/// Resets the connection that a segment is of.
pub fn reset(host: &mut Host, segment: &[u8]) {
    answer(host, segment, Header { seq: SeqNum::new(8), flags: Flags::RST, ..Header::default() });
}

/// A segment without text that acknowledges all of another one.
fn answer(host: &mut Host, segment: &[u8], header: Header) -> Vec<Vec<u8>> {
    let (ip_header, range) = ip::parse(segment, ip::HeaderChecksum::Verify).unwrap();
    let (ports, received, payload) = wire::parse(&segment[range], ChecksumIn::Trusted).unwrap();
    let numbered = u32::from(received.flags.has(Flags::SYN)) + u32::from(received.flags.has(Flags::FIN));
    let end = received.seq + payload.len() as u32 + numbered;
    let header = Header { ack: end, flags: header.flags.with(Flags::ACK), ..header };
    let mut bytes = vec![0; wire::header_len(&header)];
    let addresses = ip_header.addresses.reversed();
    let pseudo = addresses.pseudo_header(ip::PROTOCOL_TCP, bytes.len() as u32);
    let ports = Ports { src: ports.dst, dst: ports.src };
    wire::emit(ports, &header, ChecksumOut::Full(pseudo), &mut bytes).unwrap();
    host.send(&packet(addresses, ip::PROTOCOL_TCP, &bytes))
}

/// Reports an error about a packet.
pub fn report(error: Error) -> impl Fn(&mut Host, &[u8]) {
    move |host, about| {
        let (header, _) = ip::parse(about, ip::HeaderChecksum::Verify).unwrap();
        host.send(&icmp(header.addresses.reversed(), Message::Error(error), about));
    }
}
