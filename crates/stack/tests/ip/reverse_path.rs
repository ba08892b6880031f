//! The check of the reverse path (RFC 3704): a host between two links, each of which has its network, with a default route
//! by the first.

use std::io::ErrorKind;
use std::time::Duration;

use sockeye::Stack;
use sockeye::netif::{ChannelConfig, ChannelPort, LinkOptions, NetifId, Route, RouteKind, RpFilter, channel};
use sockeye_proto::icmp::Message;

use crate::common;
use crate::host::{between, icmp};

struct Links {
    stack: Stack,
    ids: Vec<NetifId>,
    ports: Vec<ChannelPort>,
}

impl Links {
    fn new(filter: RpFilter) -> Self {
        let stack = common::stack_with(|config| config.workers = 0);
        let (mut ids, mut ports) = (Vec::new(), Vec::new());
        for addrs in
            [["10.1.0.1/24", "fd01::1/64", "fe80::a/64"], ["10.2.0.1/24", "fd02::1/64", "fe80::b/64"]]
        {
            let (channel, mut port) = channel(&ChannelConfig::default()).unwrap();
            let options = LinkOptions { rp_filter: filter, ..LinkOptions::default() };
            ids.push(stack.attach_with(channel, &addrs.map(|addr| addr.parse().unwrap()), &options).unwrap());
            ports.append(&mut port);
        }
        Self { stack, ids, ports }
    }

    fn with_default_route(filter: RpFilter) -> Self {
        let links = Self::new(filter);
        for network in ["0.0.0.0/0", "::/0"] {
            links.stack.add_route(network.parse().unwrap(), links.ids[0]).unwrap();
        }
        links
    }

    /// Whether an echo request that arrives over a link is answered, over either link.
    fn answers(&self, link: usize, src: &str, dst: &str) -> bool {
        let ask = icmp(between(src, dst), Message::EchoRequest { id: 1, seq: 1 }, b"data");
        self.ports[link].try_send(&ask[..]).unwrap();
        self.stack.poll(Duration::from_secs(1));
        let answers: usize =
            self.ports.iter().map(|port| std::iter::from_fn(|| port.try_recv()).count()).sum();
        answers == 1
    }

    fn dropped(&self) -> u64 {
        common::counter(&self.stack, "frames_rp_filter")
    }
}

/// By which link, from and to which address, and whether it is answered: without a check, with a loose one, with a
/// strict one.
const TABLE: [(usize, &str, &str, [bool; 3]); 12] = [
    (0, "10.1.0.9", "10.1.0.1", [true, true, true]),
    (0, "fd01::9", "fd01::1", [true, true, true]),
    // From a network of the other link, to an address of either.
    (0, "10.2.0.9", "10.1.0.1", [true, true, false]),
    (0, "10.2.0.9", "10.2.0.1", [true, true, false]),
    (0, "fd02::9", "fd01::1", [true, true, false]),
    (1, "10.1.0.9", "10.2.0.1", [true, true, false]),
    // To an address of the other link: the weak host model, which the check leaves as it is.
    (0, "10.1.0.9", "10.2.0.1", [true, true, true]),
    // From elsewhere: the default route leads there by the first link.
    (0, "192.0.2.9", "10.1.0.1", [true, true, true]),
    (1, "192.0.2.9", "10.2.0.1", [true, true, false]),
    (1, "2001:db8::9", "fd02::1", [true, true, false]),
    // Of the link, which is no matter of routes.
    (0, "fe80::9", "fe80::a", [true, true, true]),
    (1, "fe80::9", "fe80::b", [true, true, true]),
];

#[test]
fn the_reverse_path_of_a_source_is_checked_as_the_interface_is_configured() {
    for (column, filter) in [RpFilter::Off, RpFilter::Loose, RpFilter::Strict].into_iter().enumerate() {
        let links = Links::with_default_route(filter);
        for (link, src, dst, answered) in TABLE {
            assert_eq!(
                links.answers(link, src, dst),
                answered[column],
                "{filter:?}: {src} to {dst} by {link}"
            );
        }
        let refused = TABLE.iter().filter(|row| !row.3[column]).count() as u64;
        assert_eq!(links.dropped(), refused, "{filter:?}");
        assert_eq!(common::counter(&links.stack, "frames_not_for_us"), refused);
    }
}

#[test]
fn a_source_without_a_route_is_refused_by_either_check() {
    let nowhere = [("192.0.2.9", "10.1.0.1"), ("2001:db8::9", "fd01::1")];
    for filter in [RpFilter::Loose, RpFilter::Strict] {
        let links = Links::new(filter);
        for (src, dst) in nowhere {
            assert!(!links.answers(0, src, dst), "{filter:?} {src}");
        }
        assert_eq!(links.dropped(), 2);
        // A route that leads nowhere is no way back.
        for kind in [RouteKind::Blackhole, RouteKind::Unreachable, RouteKind::Prohibit] {
            let route = Route { destination: "192.0.2.0/24".parse().unwrap(), metric: 0, kind };
            links.stack.insert_route(route).unwrap();
            assert!(!links.answers(0, "192.0.2.9", "10.1.0.1"), "{kind:?}");
            links.stack.remove_route(&route).unwrap();
        }
        links.stack.add_route("192.0.2.0/24".parse().unwrap(), links.ids[0]).unwrap();
        assert!(links.answers(0, "192.0.2.9", "10.1.0.1"), "routes count as they are now");
        assert_eq!(links.answers(1, "192.0.2.9", "10.1.0.1"), filter == RpFilter::Loose);
    }
}

#[test]
fn each_interface_has_its_own_check_which_can_be_changed() {
    let links = Links::with_default_route(RpFilter::Off);
    let spoofed =
        |link: usize| links.answers(link, ["10.2.0.9", "10.1.0.9"][link], ["10.1.0.1", "10.2.0.1"][link]);
    assert_eq!(links.stack.rp_filter(links.ids[0]).unwrap(), RpFilter::Off);
    assert!(spoofed(0) && spoofed(1));
    links.stack.set_rp_filter(links.ids[1], RpFilter::Strict).unwrap();
    assert_eq!(
        links.ids.iter().map(|id| links.stack.rp_filter(*id).unwrap()).collect::<Vec<_>>(),
        [RpFilter::Off, RpFilter::Strict]
    );
    assert!(spoofed(0) && !spoofed(1));
    links.stack.set_rp_filter(links.ids[1], RpFilter::Loose).unwrap();
    assert!(spoofed(0) && spoofed(1));
    let other = Links::new(RpFilter::Off);
    let few = common::stack_with(|config| config.workers = 0);
    assert_eq!(few.set_rp_filter(other.ids[0], RpFilter::Off).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(few.rp_filter(other.ids[0]).unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn the_drop_counter_has_the_kernels_name() {
    let mib = Stack::mib_names();
    for (ours, theirs) in [
        ("frames_rp_filter", "TcpExtIPReversePathFilter"),
        ("ip_in_addr_errors", "IpInAddrErrors"),
        ("ip6_in_addr_errors", "Ip6InAddrErrors"),
        ("ip6_in_hdr_errors", "Ip6InHdrErrors"),
    ] {
        assert!(mib.contains(&(ours, theirs)), "{ours}");
    }
}
