//! Panics over neighbors and over datagrams in fragments.

use std::net::SocketAddr;
use std::time::Duration;

use sockeye::UdpSocket;
use sockeye::failpoints::{arm, fired};

use crate::common::{self, counter};
use crate::hub::Lab;
use crate::world::end_of;

const MOMENT: Duration = Duration::from_millis(5);

/// Three hosts, the first of which has connections to the others.
struct Three {
    lab: Lab,
    talker: UdpSocket,
    others: [UdpSocket; 2],
}

impl Three {
    fn new() -> Self {
        let mut lab = Lab::new(&[&["10.0.0.1/24"], &["10.0.0.2/24"], &["10.0.0.3/24"]]);
        lab.may_panic = true;
        lab.pass(Duration::from_secs(15));
        let at = |stack: usize| {
            let socket =
                UdpSocket::bind_on(&lab.stacks[stack], SocketAddr::from(([10, 0, 0, stack as u8 + 1], 9)))
                    .unwrap();
            socket.set_nonblocking(true).unwrap();
            socket
        };
        let (talker, others) = (at(0), [at(1), at(2)]);
        Self { lab, talker, others }
    }

    /// Whether a datagram of `len` bytes arrives at another one.
    fn reaches(&mut self, other: usize, len: usize) -> bool {
        let sent = vec![other as u8; len];
        let _ = self.talker.send_to(&sent, self.others[other].local_addr().unwrap());
        self.lab.pass(MOMENT);
        let mut got = vec![0; len + 1];
        let mut arrived = std::iter::from_fn(|| {
            let len = self.others[other].recv(&mut got).ok()?;
            Some(got[..len] == sent)
        });
        arrived.any(|is_it| is_it)
    }

    fn panics(&self) -> u64 {
        self.lab.stacks.iter().map(|stack| counter(stack, "panics_protocol")).sum()
    }
}

#[test]
fn a_panic_over_a_neighbor_forgets_only_that_neighbor() {
    let _turn = crate::turn();
    let _guard = common::watchdog("panics over neighbors");
    let mut three = Three::new();
    assert!(three.reaches(1, 10));
    // The stack resolves the first next hop, and drops the packet that needed it.
    arm("neighbor.resolve", 0, 1, 2);
    assert!(!three.reaches(0, 10));
    assert!(three.lab.neighbor(0, "10.0.0.2").is_none());
    assert!(three.reaches(1, 10), "the other is still known");
    assert!(three.reaches(0, 10), "and the first is found again");
    // The neighbor's own advertisement.
    three.lab.stacks[0].remove_neighbor(three.lab.ids[0], "10.0.0.2".parse().unwrap()).unwrap();
    arm("neighbor.learn", 0, 1, 2);
    let _ = three.talker.send_to(b"asks", three.others[0].local_addr().unwrap());
    three.lab.pass(MOMENT);
    assert_eq!(three.panics(), 2);
    assert!(three.reaches(1, 10));
    three.lab.pass(Duration::from_secs(5));
    assert!(three.reaches(0, 10));
    // The timer looks at both, and panics over the first.
    arm("neighbor.timer", 0, 1, 2);
    let before = fired("neighbor.timer");
    for _ in 0..60 {
        three.lab.pass(Duration::from_secs(1));
        let _ = three.reaches(0, 10) && three.reaches(1, 10);
    }
    assert_eq!(fired("neighbor.timer") - before, 1);
    assert!(three.reaches(0, 10) && three.reaches(1, 10));
    assert_eq!(three.panics(), 3);
}

#[test]
fn a_connection_outlives_a_panic_over_its_next_hop() {
    let _turn = crate::turn();
    let _guard = common::watchdog("a panic under a connection");
    let mut lab = Lab::pair();
    lab.may_panic = true;
    let (mut client, mut server) = lab.connected("10.0.0.2:80");
    lab.stacks[0].remove_neighbor(lab.ids[0], "10.0.0.2".parse().unwrap()).unwrap();
    arm("neighbor.resolve", 0, 1, 2);
    assert!(lab.ping(&mut client, &mut server, Duration::from_secs(3)), "sent again by TCP");
    assert_eq!(counter(&lab.stacks[0], "panics_protocol"), 1);
}

#[test]
fn an_icmp_report_that_panics_ends_its_connection() {
    let _turn = crate::turn();
    let _guard = common::watchdog("a panic over a report");
    let mut lab = Lab::pair();
    lab.may_panic = true;
    let (client, server) = lab.connected("10.0.0.2:80");
    lab.plug(1, false);
    lab.stacks[0].remove_neighbor(lab.ids[0], "10.0.0.2".parse().unwrap()).unwrap();
    arm("conn.undelivered", 0, 1, 0);
    std::io::Write::write_all(&mut &client, b"nobody hears").unwrap();
    lab.pass(Duration::from_secs(10));
    let end = end_of(std::io::Read::read(&mut &client, &mut [0]), true);
    assert!(end.as_ref().is_some_and(|end| end.is_panic()), "{end:?}");
    assert_eq!(lab.stacks[0].connection_count(), 0);
    drop(server);
}

#[test]
fn a_panic_over_a_fragment_drops_only_its_datagram() {
    let _turn = crate::turn();
    let _guard = common::watchdog("panics over fragments");
    let mut three = Three::new();
    assert!(three.reaches(0, 4000) && three.reaches(1, 4000));
    // The panic is at the second of three fragments, so the third starts a new datagram, which is never complete.
    arm("reassembly.fragment", 1, 1, 0);
    assert!(!three.reaches(0, 4000));
    assert!(three.reaches(0, 4000) && three.reaches(1, 4000));
    assert!(three.lab.stacks[1].memory_in_use() > 0, "a fragment waits");
    arm("reassembly.timer", 0, 1, 0);
    let before = fired("reassembly.timer");
    three.lab.pass(Duration::from_secs(120));
    assert_eq!(fired("reassembly.timer") - before, 1);
    assert_eq!(three.lab.stacks[1].memory_in_use(), 0);
    assert_eq!(three.panics(), 2);
    assert!(three.reaches(0, 4000) && three.reaches(1, 4000));
}
