//! A million damaged and invented frames of every protocol beside a transfer: it arrives whole, nothing panics, no memory
//! leaks.
//!
//! The frames are copies of valid ones, from a recorded exchange and from a list, with bytes changed, truncated,
//! lengthened, combined from two, with checksums and lengths corrected or left wrong. Frames with the transfer's own
//! address, ports and sequence numbers are left out: nothing protects from those.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown};
use std::time::Duration;

use sockeye::netif::LinkOptions;
use sockeye::{TcpListener, TcpStream, UdpSocket};

use crate::common::{Random, hash_of, scaled};
use crate::lab::{ARP, IPV4, IPV6, Lab, ethertype, mac};

/// Frames, all in all; a tenth where a test takes long anyway.
const FRAMES: usize = 1_000_000;
/// Frames between two polls of the stacks.
const BURST: usize = 64;
/// Longest frame, and most of a recorded one that is changed.
const FRAME_MAX: usize = 1514;
/// The most packet memory that the stack may hold: fragments (4 MiB), buffers of its sockets, queued frames.
const MEMORY_MAX: usize = 24 << 20;

/// The recorded conversation: everything that stacks say to one another, but for the transfer.
fn corpus(lab: &mut Lab) -> Vec<Vec<u8>> {
    let groups = UdpSocket::bind_on(&lab.stacks[0], "0.0.0.0:5000").unwrap();
    groups.join_multicast_v4(&Ipv4Addr::new(239, 1, 2, 3), &Ipv4Addr::new(10, 0, 0, 1)).unwrap();
    for (name, to, closed) in
        [("10.0.0.1:0", "10.0.0.2:9", "10.0.0.2:99"), ("[fd00::1]:0", "[fd00::2]:9", "[fd00::2]:99")]
    {
        let socket = UdpSocket::bind_on(&lab.stacks[0], name).unwrap();
        for len in [0, 10, 1000, 5000] {
            socket.send_to(&vec![7; len], to).unwrap();
            socket.send_to(&vec![7; len], closed).unwrap();
        }
        let (mut client, mut server) = lab.connected(&to.replace(":9", ":80"));
        assert!(lab.ping(&mut client, &mut server, Duration::from_secs(1)));
        assert!(lab.ping(&mut server, &mut client, Duration::from_secs(1)));
    }
    drop(groups);
    lab.pass(Duration::from_secs(200));
    let logged = lab.take_log().into_iter().map(|(_, frame)| frame);
    logged.chain(listed()).collect()
}

/// Good frames that stacks do not say to one another.
fn listed() -> Vec<Vec<u8>> {
    let v4 = |protocol: u8, options: &[u8], fragment: u16, body: &[u8]| {
        let mut packet = vec![0x45 + (options.len() / 4) as u8, 0];
        packet.extend((20 + options.len() as u16 + body.len() as u16).to_be_bytes());
        packet.extend([0, 9]);
        packet.extend(fragment.to_be_bytes());
        packet.extend([64, protocol, 0, 0, 10, 0, 0, 77, 10, 0, 0, 2]);
        packet.extend(options);
        packet.extend(body);
        framed(IPV4, &packet)
    };
    let v6 = |next: u8, body: &[u8]| {
        let mut packet = vec![0x60, 0, 0, 0];
        packet.extend((body.len() as u16).to_be_bytes());
        packet.extend([next, 255, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x77]);
        packet.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
        packet.extend(body);
        framed(IPV6, &packet)
    };
    let ping = [8, 0, 0, 0, 1, 2, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8];
    let ping_v6 = [128, 0, 0, 0, 1, 2, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8];
    let with = |extensions: &[u8]| [extensions, &ping_v6].concat();
    let advertisement = {
        // Hop limit, flags, lifetimes, a prefix of /64 and a source address.
        let mut body = vec![134, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0];
        body.extend([3, 4, 64, 0xc0, 0, 0, 1, 0, 0, 0, 0, 255, 0, 0, 0, 0]);
        body.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        body.extend([1, 1, 2, 0, 0, 0, 0, 0x77]);
        body
    };
    vec![
        v4(1, &[], 0, &ping),
        // Record route, timestamp, loose source route, and an invalid option.
        v4(1, &[7, 7, 4, 0, 0, 0, 0, 0], 0, &ping),
        v4(1, &[68, 8, 5, 0, 0, 0, 0, 0], 0, &ping),
        v4(1, &[131, 7, 4, 10, 0, 0, 9, 0], 0, &ping),
        v4(1, &[1, 200, 1, 0], 0, &ping),
        v4(1, &[], 0x2000, &ping),
        v4(1, &[], 0x2001, &ping),
        v4(17, &[], 0x1fff, &ping),
        v4(2, &[148, 4, 0, 0], 0, &[0x11, 10, 0, 0, 0, 0, 0, 0, 2, 10, 0, 0]),
        v4(253, &[], 0, &ping),
        v6(58, &ping_v6),
        v6(0, &with(&[58, 0, 1, 4, 0, 0, 0, 0])),
        v6(60, &with(&[58, 0, 0xc2, 4, 0, 0, 0, 0])),
        v6(43, &with(&[58, 0, 0, 1, 0, 0, 0, 0])),
        v6(43, &with(&[58, 0, 4, 0, 0, 0, 0, 0])),
        v6(44, &with(&[58, 0, 0, 1, 0, 0, 0, 9])),
        v6(44, &with(&[58, 0, 0, 8, 0, 0, 0, 9])),
        v6(51, &with(&[58, 1, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1])),
        v6(59, &ping),
        v6(
            58,
            &[
                135, 0, 0, 0, 0, 0, 0, 0, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 1, 1, 2, 0, 0,
                0, 0, 9,
            ],
        ),
        v6(58, &[130, 0, 0, 0, 3, 232, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 10, 0, 0]),
        v6(58, &advertisement),
    ]
}

fn framed(ethertype: u16, packet: &[u8]) -> Vec<u8> {
    crate::lab::frame(mac(1), mac(8), ethertype, packet)
}

/// A frame that no host has sent in this form.
fn damaged(corpus: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut frame = corpus[random.below(corpus.len())].clone();
    if random.chance(8) {
        let other = &corpus[random.below(corpus.len())];
        frame.truncate(random.below(frame.len()).max(14));
        frame.extend_from_slice(&other[random.below(other.len())..]);
    }
    for _ in 0..random.below(5) {
        // Headers are where it matters.
        let end = if random.chance(4) { frame.len() } else { frame.len().min(80) };
        let at = random.below(end);
        frame[at] =
            if random.chance(2) { random.u64() as u8 } else { random.pick(&[0, 1, 0x7f, 0x80, 0xff]) };
    }
    if random.chance(8) {
        frame.truncate(random.below(frame.len()));
    }
    if random.chance(16) {
        let more = random.below(40);
        frame.extend(random.bytes(more));
    }
    frame.truncate(FRAME_MAX);
    if random.chance(2) {
        mend(&mut frame, random);
    }
    if frame.len() >= 6 && !random.chance(8) {
        frame[..6].copy_from_slice(&mac(1).0);
    }
    frame
}

/// Corrects lengths and checksums, so that the stack parses the bytes behind them.
fn mend(frame: &mut [u8], random: &mut Random) {
    if frame.len() < 14 + 40 {
        return;
    }
    let (is_v4, packet_len) = (ethertype(frame) == IPV4, frame.len() - 14);
    let packet = &mut frame[14..];
    let (at, protocol, addresses) = if is_v4 {
        let at = (usize::from(packet[0] & 15) * 4).clamp(20, packet_len);
        if random.chance(2) {
            packet[2..4].copy_from_slice(&(packet_len as u16).to_be_bytes());
        }
        packet[10..12].fill(0);
        let sum = !sum(&[&packet[..at]]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        (at, packet[9], 12..20)
    } else {
        if random.chance(2) {
            packet[4..6].copy_from_slice(&((packet_len - 40) as u16).to_be_bytes());
        }
        (40, packet[6], 8..40)
    };
    let (field, pseudo) = match protocol {
        6 => (16, true),
        17 => (6, true),
        58 => (2, true),
        _ => (2, false),
    };
    if packet_len < at + field + 2 {
        return;
    }
    packet[at + field..at + field + 2].fill(0);
    let len = (packet_len - at) as u16;
    let head = [0, protocol, (len >> 8) as u8, len as u8];
    let sum = if pseudo { sum(&[&packet[addresses], &head, &packet[at..]]) } else { sum(&[&packet[at..]]) };
    packet[at + field..at + field + 2].copy_from_slice(&(!sum).to_be_bytes());
}

/// The Internet checksum's sum; all parts but the last are of an even length.
fn sum(parts: &[&[u8]]) -> u16 {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let mut sum: u32 =
        words.map(|word| u32::from(word[0]) << 8 | word.get(1).map_or(0, |low| u32::from(*low))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Whether it could pass for a frame of an end of the transfer: it has the client's port, or contains the Ethernet
/// address of either end.
fn is_theirs(frame: &[u8], port: u16) -> bool {
    let speaks_of_link = ethertype_is(frame, ARP) && frame.len() >= 32 && frame[28..31] == [10, 0, 0];
    let names_port = frame.len() > 34 && frame[30..].windows(2).any(|two| two == port.to_be_bytes());
    speaks_of_link && matches!(frame[31], 1 | 2) || names_port
}

fn ethertype_is(frame: &[u8], wanted: u16) -> bool {
    frame.len() >= 14 && ethertype(frame) == wanted
}

/// Writes and reads as much as possible; returns the number of bytes written.
fn carry(from: &mut TcpStream, to: &mut TcpStream, unsent: &[u8], got: &mut Vec<u8>) -> usize {
    let sent = match from.write(&unsent[..unsent.len().min(3000)]) {
        Ok(sent) => sent,
        Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
        Err(error) => panic!("{error}"),
    };
    let mut buffer = [0; 4096];
    match to.read(&mut buffer) {
        Ok(read) => got.extend_from_slice(&buffer[..read]),
        Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
    }
    sent
}

#[test]
fn a_transfer_arrives_whole_among_a_million_damaged_frames_and_no_memory_leaks() {
    let options = LinkOptions { detect_duplicates: false, ..LinkOptions::default() };
    let mut lab = Lab::with(&[&["10.0.0.1/24", "fd00::1/64"], &["10.0.0.2/24", "fd00::2/64"]], &options);
    lab.pass(Duration::from_secs(15));
    let sockets: Vec<_> =
        ["0.0.0.0:9", "[::]:10"].map(|at| UdpSocket::bind_on(&lab.stacks[1], at).unwrap()).into();
    // Nothing reads these, so that they overflow.
    sockets.iter().for_each(|socket| socket.set_recv_buffer_size(64 << 10));
    let listeners: Vec<_> =
        ["10.0.0.2:81", "[fd00::2]:81"].map(|at| TcpListener::bind_on(&lab.stacks[1], at).unwrap()).into();
    let corpus = corpus(&mut lab);
    assert!(corpus.len() > 60, "{}", corpus.len());

    let (mut client, mut server) = lab.connected("10.0.0.2:7");
    let port = client.local_addr().unwrap().port();
    let mut random = Random::new("fuzzed frames");
    let frames = scaled(FRAMES);
    let data = random.bytes(frames / BURST * 1000);
    let (mut sent, mut got) = (0, Vec::new());
    for _ in 0..frames / BURST {
        for _ in 0..BURST {
            let frame = damaged(&corpus, &mut random);
            if !is_theirs(&frame, port) {
                lab.inject(1, frame);
            }
        }
        sent += carry(&mut client, &mut server, &data[sent..], &mut got);
        lab.pass(Duration::from_millis(1));
        lab.take_log();
        assert!(lab.stacks[1].memory_in_use() < MEMORY_MAX, "{}", lab.stacks[1].memory_in_use());
    }
    for _ in 0..100_000 {
        sent += carry(&mut client, &mut server, &data[sent..], &mut got);
        if got.len() == data.len() {
            break;
        }
        lab.pass(Duration::from_millis(5));
    }
    assert!(got.len() == data.len() && hash_of(&got) == hash_of(&data), "{} of {}", got.len(), data.len());
    client.shutdown(Shutdown::Both).unwrap();
    drop((client, server, sockets, listeners));
    lab.pass(Duration::from_secs(900));
    for stack in &lab.stacks {
        assert_eq!((stack.connection_count(), stack.memory_in_use()), (0, 0));
    }
    assert!(lab.count(1, "frames_in") > frames as u64 / 10 * 9, "{}", lab.count(1, "frames_in"));
    assert_each_was_looked_at(&lab);
}

/// Checks that the frames were valid enough to reach every part, and invalid enough to be refused there.
fn assert_each_was_looked_at(lab: &Lab) {
    let missing: Vec<_> = [
        "frames_malformed",
        "frames_bad_checksum",
        "frames_not_for_us",
        "ip_in_unknown_protos",
        "ip_reasm_reqds",
        "ip_reasm_timeout",
        "ip_frag_overlap",
        "ip_frag_inconsistent",
        "icmp_in_errors",
        "icmp_in_csum_errors",
        "icmp_in_echos",
        "icmp_in_dest_unreachs",
        "arp_in",
        "arp_refused",
        "ndp_in",
        "ndp_refused",
        "group_messages_in",
        "group_messages_refused",
        "udp_rcvbuf_errors",
        "udp_in_errors",
        "udp_in_csum_errors",
        "udp_no_ports",
    ]
    .into_iter()
    .filter(|name| lab.count(1, name) == 0)
    .collect();
    assert!(missing.is_empty(), "nothing was counted as {missing:?}");
}
