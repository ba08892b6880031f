//! Misdirected packets have counters of their own, besides the total. Malformed packets: `malformed.rs`.

use crate::host::{Host, between, packet};

/// A protocol number for experiments (RFC 3692), which is not implemented.
const EXPERIMENT: u8 = 253;
const TCP: u8 = 6;

#[test]
fn martians_and_multicast_tcp_are_counted_apart_from_packets_for_other_hosts() {
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

#[test]
fn invalid_addresses_are_counted_as_the_kernel_counts_them() {
    let mut host = Host::new();
    for (src, dst) in [("127.0.0.1", "10.9.0.1"), ("240.0.0.1", "10.9.0.1"), ("::ffff:127.0.0.1", "fd09::1")]
    {
        host.send(&packet(between(src, dst), EXPERIMENT, b"?"));
    }
    for (src, dst) in [
        ("10.9.0.2", "127.0.0.1"),
        ("10.9.0.2", "0.0.0.0"),
        ("fd09::2", "::1"),
        ("fd09::2", "::ffff:10.9.0.1"),
        ("fd09::2", "ff01::1"),
    ] {
        host.send(&packet(between(src, dst), EXPERIMENT, b"?"));
    }
    host.send(&packet(between("10.9.0.2", "10.9.0.77"), EXPERIMENT, b"?"));
    host.send(&packet(between("fd09::2", "fd09::77"), EXPERIMENT, b"?"));
    for (name, count) in [
        ("frames_martian", 3),
        ("frames_martian_dst", 5),
        ("ip_in_addr_errors", 3),
        ("ip6_in_addr_errors", 4),
        ("ip6_in_hdr_errors", 1),
        ("frames_not_for_us", 10),
    ] {
        assert_eq!(host.count(name), count, "{name}");
    }
}
