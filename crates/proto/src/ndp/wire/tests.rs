//! Tests of the messages' codec: each check, and arbitrary bytes. smoltcp's parser reads the messages written here.

use super::*;
use proptest::prelude::*;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{Icmpv6Repr, Ipv6Packet, NdiscRepr};

const US: LinkAddr = [2, 0, 0, 0, 0, 1];

fn addr(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

/// An ICMPv6 body with its checksum, as a router or a neighbor would send it.
fn body(src: Ipv6Addr, dst: Ipv6Addr, mut bytes: Vec<u8>) -> Vec<u8> {
    bytes[2..4].fill(0);
    seal_checksum(src, dst, &mut bytes).unwrap();
    bytes
}

fn solicit() -> Message {
    Message::NeighborSolicit { target: addr("fe80::2"), lladdr: Some(US), nonce: None }
}

/// Type 134, lifetime 1800 s, one option per entry.
fn router_advert(options: &[&[u8]]) -> Vec<u8> {
    let mut bytes = vec![134, 0, 0, 0, 64, 0, 0x07, 0x08, 0, 0, 0x75, 0x30, 0, 0, 0x03, 0xe8];
    options.iter().for_each(|option| bytes.extend(*option));
    bytes
}

fn prefix_option(len: u8, flags: u8) -> Vec<u8> {
    let mut option = vec![3, 4, len, flags];
    option.extend(7200u32.to_be_bytes());
    option.extend(u32::MAX.to_be_bytes());
    option.extend([0; 4]);
    option.extend(addr("2001:db8:1::").octets());
    option
}

#[test]
fn written_messages_are_read_by_us_and_by_smoltcp() {
    let (src, dst) = (addr("fe80::1"), addr("ff02::1:ff00:2"));
    let advert = NeighborAdvert {
        target: addr("fe80::1"),
        lladdr: Some(US),
        router: false,
        solicited: true,
        overrides: true,
    };
    let probe =
        Message::NeighborSolicit { target: addr("fe80::2"), lladdr: None, nonce: Some([1, 2, 3, 4, 5, 6]) };
    let cases = [
        (src, dst, solicit()),
        (Ipv6Addr::UNSPECIFIED, dst, probe),
        (src, addr("fe80::2"), Message::NeighborAdvert(advert)),
        (src, addr("ff02::2"), Message::RouterSolicit { lladdr: Some(US) }),
    ];
    for (src, dst, message) in cases {
        let bytes = emit(src, dst, &message).unwrap();
        assert_eq!(parse(src, dst, bytes[7], &bytes[40..]).as_ref(), Ok(&message));
        let packet = Ipv6Packet::new_checked(&bytes[..]).unwrap();
        let icmp = Icmpv6Packet::new_checked(packet.payload()).unwrap();
        let repr = Icmpv6Repr::parse(&src, &dst, &icmp, &ChecksumCapabilities::default()).unwrap();
        let Icmpv6Repr::Ndisc(repr) = repr else { panic!("{repr:?}") };
        match (repr, &message) {
            (NdiscRepr::NeighborSolicit { target_addr, .. }, Message::NeighborSolicit { target, .. }) => {
                assert_eq!(target_addr, *target);
            }
            (NdiscRepr::NeighborAdvert { lladdr, .. }, Message::NeighborAdvert(_)) => {
                assert_eq!(lladdr.unwrap().as_bytes(), US);
            }
            (NdiscRepr::RouterSolicit { lladdr }, Message::RouterSolicit { .. }) => {
                assert_eq!(lladdr.unwrap().as_bytes(), US);
            }
            (other, _) => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_router_advertisement_with_several_prefixes_is_read_whole() {
    let (src, dst) = (addr("fe80::1"), super::super::ALL_NODES);
    let mtu = [5, 1, 0, 0, 0, 0, 5, 220];
    let unknown = [77, 1, 1, 2, 3, 4, 5, 6];
    let source = [1, 1, 2, 0, 0, 0, 0, 1];
    let options: [&[u8]; 5] = [&source, &prefix_option(64, 0xc0), &unknown, &mtu, &prefix_option(48, 0x80)];
    let bytes = body(src, dst, router_advert(&options));
    let Ok(Message::RouterAdvert(advert)) = parse(src, dst, 255, &bytes) else { panic!() };
    assert_eq!((advert.hop_limit, advert.lifetime), (64, Duration::from_secs(1800)));
    assert_eq!((advert.reachable, advert.retrans), (Duration::from_secs(30), Duration::from_secs(1)));
    assert_eq!((advert.mtu, advert.lladdr), (Some(1500), Some(US)));
    let [first, second] = advert.prefixes[..] else { panic!("{advert:?}") };
    assert!(first.on_link && first.autonomous && second.on_link && !second.autonomous);
    assert_eq!((first.len, second.len), (64, 48));
    assert_eq!((first.valid, first.preferred), (Duration::from_secs(7200), Duration::MAX));
}

#[test]
fn prefixes_beyond_the_bound_are_ignored() {
    let (src, dst) = (addr("fe80::1"), super::super::ALL_NODES);
    let option = prefix_option(64, 0xc0);
    let bytes = body(src, dst, router_advert(&vec![&option[..]; PREFIXES_MAX + 5]));
    let Ok(Message::RouterAdvert(advert)) = parse(src, dst, 255, &bytes) else { panic!() };
    assert_eq!(advert.prefixes.len(), PREFIXES_MAX);
}

#[test]
fn each_check_refuses_with_its_own_reason() {
    let (src, dst) = (addr("fe80::1"), addr("ff02::1:ff00:2"));
    let good = emit(src, dst, &solicit()).unwrap()[40..].to_vec();
    assert!(parse(src, dst, 255, &good).is_ok());
    assert_eq!(parse(src, dst, 254, &good), Err(Refusal::HopLimit));
    let mut flipped = good.clone();
    flipped[20] ^= 1;
    assert_eq!(parse(src, dst, 255, &flipped), Err(Refusal::Checksum));
    let changed = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        parse(src, dst, 255, &body(src, dst, bytes))
    };
    assert_eq!(changed(&|bytes| bytes[1] = 1), Err(Refusal::Malformed));
    assert_eq!(changed(&|bytes| bytes[25] = 0), Err(Refusal::OptionLen), "an option of no length");
    assert_eq!(changed(&|bytes| bytes[25] = 2), Err(Refusal::OptionLen), "an option beyond the end");
    assert_eq!(changed(&|bytes| bytes.truncate(20)), Err(Refusal::Malformed));
    assert_eq!(changed(&|bytes| bytes[8] = 0xff), Err(Refusal::Addresses), "a multicast target");
    assert_eq!(changed(&|bytes| bytes[0] = 128), Err(Refusal::Malformed), "an echo request");
}

#[test]
fn each_message_is_accepted_only_from_a_permitted_sender() {
    let unspecified = Ipv6Addr::UNSPECIFIED;
    let refused = |src, dst, bytes: Vec<u8>| {
        assert_eq!(parse(src, dst, 255, &body(src, dst, bytes)), Err(Refusal::Addresses));
    };
    let of = |message: &Message| emit(addr("fe80::1"), addr("fe80::2"), message).unwrap()[40..].to_vec();
    // A probe names no link-layer address and is sent to the solicited-node group.
    refused(unspecified, addr("ff02::1:ff00:2"), of(&solicit()));
    let probe = Message::NeighborSolicit { target: addr("fe80::2"), lladdr: None, nonce: None };
    refused(unspecified, addr("ff02::1"), of(&probe));
    refused(unspecified, addr("ff02::2"), of(&Message::RouterSolicit { lladdr: Some(US) }));
    // Only routers on the link advertise, from their link-local addresses.
    refused(addr("2001:db8::1"), addr("ff02::1"), router_advert(&[]));
    let advert = NeighborAdvert {
        target: addr("fe80::1"),
        lladdr: Some(US),
        router: false,
        solicited: true,
        overrides: true,
    };
    refused(addr("fe80::1"), addr("ff02::1"), of(&Message::NeighborAdvert(advert)));
    refused(addr("ff02::5"), addr("fe80::2"), of(&solicit()));
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(kind in 130u8..140, mut bytes in prop::collection::vec(any::<u8>(), 1..200)) {
        let (src, dst) = (addr("fe80::1"), addr("ff02::1:ff00:2"));
        bytes[0] = kind;
        let _ = parse(src, dst, 255, &bytes);
        if bytes.len() >= 4 {
            // With the right checksum they get further.
            bytes[1] = 0;
            let _ = parse(src, dst, 255, &body(src, dst, bytes));
        }
    }

    #[test]
    fn arbitrary_options_behind_an_advertisement_never_panic(options in prop::collection::vec(any::<u8>(), 0..200)) {
        let (src, dst) = (addr("fe80::1"), super::super::ALL_NODES);
        let bytes = body(src, dst, router_advert(&[&options]));
        if let Ok(Message::RouterAdvert(advert)) = parse(src, dst, 255, &bytes) {
            prop_assert!(advert.prefixes.len() <= PREFIXES_MAX);
            prop_assert!(advert.prefixes.iter().all(|info| info.len <= 128));
        }
    }
}
