//! Echo requests and their answers.

use sockeye_proto::icmp::{Family, Message};

use crate::host::{Host, between, icmp, inwards, read_icmp};

const ASK: Message = Message::EchoRequest { id: 7, seq: 9 };

#[test]
fn an_echo_request_is_answered_with_its_own_data() {
    for family in [Family::V4, Family::V6] {
        for len in [0, 1, 56, 1400] {
            let mut host = Host::new();
            let data: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let answers = host.send(&icmp(inwards(family), ASK, &data));
            assert_eq!(answers.len(), 1, "{family:?} {len}");
            let (addresses, message, echoed) = read_icmp(&answers[0]);
            assert_eq!(addresses, inwards(family).reversed());
            assert_eq!((message, echoed), (Message::EchoReply { id: 7, seq: 9 }, data));
            assert_eq!(host.count("icmp_out_echo_reps"), 1);
            assert_eq!(host.stack.memory_in_use(), 0);
        }
    }
}

#[test]
fn a_multicast_request_is_answered_in_ipv6_only_and_from_a_local_address() {
    let mut host = Host::new();
    for dst in ["224.0.0.1", "255.255.255.255", "10.9.0.255"] {
        assert!(host.send(&icmp(between("10.9.0.2", dst), ASK, b"x")).is_empty(), "{dst}");
    }
    assert_eq!(host.count("icmp_in_echos"), 3);
    let answers = host.send(&icmp(between("fd09::2", "ff02::1"), ASK, b"x"));
    assert_eq!(read_icmp(&answers[0]).0, between("fd09::1", "fd09::2"));
    assert!(host.send(&icmp(between("10.9.0.2", "224.0.0.9"), ASK, b"x")).is_empty());
    assert_eq!(host.count("frames_not_for_us"), 1);
}

#[test]
fn damaged_and_short_messages_are_counted_and_not_answered() {
    for (family, header) in [(Family::V4, 20), (Family::V6, 40)] {
        let mut host = Host::new();
        let mut damaged = icmp(inwards(family), ASK, b"data");
        damaged[header + 9] ^= 1;
        assert!(host.send(&damaged).is_empty());
        assert_eq!(host.count("icmp_in_csum_errors"), 1);
        let protocol = if family == Family::V4 { 1 } else { 58 };
        let short = crate::host::packet(inwards(family), protocol, &[8, 0, 0]);
        assert!(host.send(&short).is_empty());
        assert_eq!((host.count("icmp_in_errors"), host.count("icmp_in_msgs")), (1, 2));
    }
}

#[test]
fn each_request_of_a_flood_is_answered() {
    for family in [Family::V4, Family::V6] {
        let mut host = Host::new();
        let request = icmp(inwards(family), ASK, b"");
        let answered: usize = (0..20_000).map(|_| host.send(&request).len()).sum();
        assert_eq!((answered, host.stack.memory_in_use()), (20_000, 0));
    }
}
