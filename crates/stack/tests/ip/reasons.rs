//! What is wrong with a packet is counted under a name of its own, besides the total.

use sockeye_proto::icmp::Family;

use crate::host::{Host, between, inwards, packet};

/// A protocol that nobody speaks (RFC 3692).
const EXPERIMENT: u8 = 253;
const DESTINATION_OPTIONS: u8 = 60;
const TCP: u8 = 6;

/// Destination options with `option` and padding, `count` times, then the experiment.
fn options(count: usize, option: u8) -> Vec<u8> {
    (0..count)
        .flat_map(|i| {
            let next = if i + 1 < count { DESTINATION_OPTIONS } else { EXPERIMENT };
            [next, 0, option, 4, 0, 0, 0, 0]
        })
        .collect()
}

#[test]
fn each_malformed_packet_is_counted_under_its_own_name() {
    let (v4, v6) = (inwards(Family::V4), inwards(Family::V6));
    let with = |mut bytes: Vec<u8>, at: usize, value: u8| {
        bytes[at] = value;
        bytes
    };
    let whole = packet(v4, EXPERIMENT, b"text");
    let mut hop_by_hop_second = options(2, 1);
    hop_by_hop_second[0] = 0;
    let tcp = |addresses: sockeye_proto::ip::Addresses, offset: u8| {
        let mut segment = vec![0; 20];
        segment[12] = offset << 4;
        let sum = addresses.pseudo_header(TCP, 20).add_bytes(&segment).checksum();
        segment[16..18].copy_from_slice(&sum.to_be_bytes());
        packet(addresses, TCP, &segment)
    };
    for (name, bytes) in [
        ("truncated", whole[..19].to_vec()),
        ("bad_version", with(whole.clone(), 0, 0x55)),
        ("bad_header_len", with(whole.clone(), 0, 0x44)),
        ("bad_length", with(whole.clone(), 3, 25)),
        ("bad_length", with(whole, 3, 19)),
        ("truncated", packet(v6, DESTINATION_OPTIONS, &options(1, 1)[..7])),
        ("too_many_extensions", packet(v6, DESTINATION_OPTIONS, &options(30, 1))),
        ("misplaced_hop_by_hop", packet(v6, DESTINATION_OPTIONS, &hop_by_hop_second)),
        ("refused_option", packet(v6, DESTINATION_OPTIONS, &options(1, 0x80))),
        ("bad_tcp_header", tcp(v4, 4)),
        ("bad_tcp_header", tcp(v6, 6)),
    ] {
        let mut host = Host::new();
        host.send(&bytes);
        assert_eq!((host.count(&format!("frames_{name}")), host.count("frames_malformed")), (1, 1), "{name}");
    }
}

#[test]
fn martians_and_tcp_to_many_are_told_from_what_is_for_others() {
    let mut host = Host::new();
    for src in ["0.0.0.0", "127.0.0.1", "224.0.0.1", "255.255.255.255", "10.9.0.1"] {
        host.send(&packet(between(src, "10.9.0.1"), EXPERIMENT, b"?"));
    }
    for dst in ["224.0.0.1", "10.9.0.255", "255.255.255.255"] {
        host.send(&packet(between("10.9.0.2", dst), TCP, &[0; 20]));
    }
    host.send(&packet(between("fd09::2", "ff02::1"), TCP, &[0; 20]));
    host.send(&packet(between("10.9.0.2", "10.9.0.77"), TCP, &[0; 20]));
    host.send(&packet(between("10.9.0.2", "10.9.0.77"), EXPERIMENT, b"?"));
    let count = |name| host.count(name);
    assert_eq!(
        (count("frames_martian"), count("frames_tcp_to_many"), count("frames_not_for_us")),
        (5, 4, 11)
    );
}
