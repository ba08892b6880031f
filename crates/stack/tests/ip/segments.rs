//! A connection whose peer is the test, which builds segments by hand.

use std::net::SocketAddr;

use sockeye::{TcpSocket, TcpStream};
use sockeye_proto::ip::{self, Addresses};
use sockeye_proto::seq::SeqNum;
use sockeye_proto::tcp::segment::{Flags, Header, Options};
use sockeye_proto::tcp::wire::{self, ChecksumIn, ChecksumOut, Ports};

use crate::host::{Host, packet};

/// A connect that has sent its SYN, and that SYN.
pub fn connecting(host: &mut Host, to: &str) -> (TcpStream, Vec<u8>) {
    let to: SocketAddr = to.parse().unwrap();
    let socket = if to.is_ipv4() { TcpSocket::new_v4(&host.stack) } else { TcpSocket::new_v6(&host.stack) };
    connecting_with(host, socket, to)
}

/// The same with a socket that has its options.
pub fn connecting_with(host: &mut Host, mut socket: TcpSocket, to: SocketAddr) -> (TcpStream, Vec<u8>) {
    socket.set_nonblocking(true);
    let stream = socket.connect(to).unwrap();
    (stream, host.turn().remove(0))
}

/// The other side's SYN-ACK to a SYN, as a packet.
pub fn syn_ack(syn: &[u8]) -> Vec<u8> {
    let (ip_header, range) = ip::parse(syn, ip::HeaderChecksum::Verify).unwrap();
    let (ports, syn, _) = wire::parse(&syn[range], ChecksumIn::Trusted).unwrap();
    let header = Header {
        seq: SeqNum::new(7),
        ack: syn.seq + 1,
        flags: Flags::SYN.with(Flags::ACK),
        window: u16::MAX,
        options: Options { mss: Some(1460), ..Options::default() },
        ..Header::default()
    };
    segment_of(ip_header.addresses.reversed(), Ports { src: ports.dst, dst: ports.src }, &header)
}

/// A segment without text between these addresses.
pub fn segment_of(addresses: Addresses, ports: Ports, header: &Header) -> Vec<u8> {
    let mut bytes = vec![0; wire::header_len(header)];
    let pseudo = addresses.pseudo_header(ip::PROTOCOL_TCP, bytes.len() as u32);
    wire::emit(ports, header, ChecksumOut::Full(pseudo), &mut bytes).unwrap();
    packet(addresses, ip::PROTOCOL_TCP, &bytes)
}
