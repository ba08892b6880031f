//! Progress of TCP keeps its neighbor reachable: no probes, no lock.

use std::io::{ErrorKind, Read};
use std::time::Duration;

use sockeye::netif::NeighborState;

use crate::lab::{Lab, mac};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_connection_that_makes_progress_keeps_its_neighbor_reachable_without_probes_and_without_the_lock() {
    for addr in ["10.0.0.2:80", "[fd00::2]:80"] {
        let mut lab = Lab::pair();
        let (mut client, mut server) = lab.connected(addr);
        assert!(lab.ping(&mut client, &mut server, SECOND));
        let before = [0, 1]
            .map(|stack| ["neighbor_solicits_out", "neighbor_slow_lookups"].map(|n| lab.count(stack, n)));
        // Ten minutes, twenty times ReachableTime, both ways: each side's progress is its own.
        for _ in 0..600 {
            assert!(lab.ping(&mut client, &mut server, SECOND / 2));
            assert!(lab.ping(&mut server, &mut client, SECOND / 2));
        }
        let after = [0, 1]
            .map(|stack| ["neighbor_solicits_out", "neighbor_slow_lookups"].map(|n| lab.count(stack, n)));
        assert_eq!(before[0], after[0]);
        // The side that has been asked first has its neighbor from the request, and has to learn that it is right.
        assert!(after[1][0] == before[1][0] && after[1][1] <= before[1][1] + 1, "{before:?} {after:?}");
        for stack in 0..2 {
            let reachable = |state| state == NeighborState::Reachable;
            assert!(lab.stacks[stack].neighbors().iter().any(|neighbor| reachable(neighbor.state)));
        }
    }
}

#[test]
fn packets_without_progress_do_not_keep_a_neighbor_reachable() {
    let mut lab = Lab::pair();
    let (mut client, mut server) = lab.connected("10.0.0.2:80");
    assert!(lab.ping(&mut client, &mut server, SECOND));
    let before = lab.count(0, "neighbor_solicits_out");
    lab.plug(1, false);
    lab.ping(&mut client, &mut server, Duration::from_secs(60));
    assert!(lab.count(0, "neighbor_solicits_out") >= before + 3);
}

#[test]
fn a_silent_change_of_a_link_layer_address_is_found_by_the_third_timeout() {
    for (addr, to) in [("10.0.0.2", "10.0.0.2:80"), ("fd00::2", "[fd00::2]:80")] {
        let near: &[&str] = &["10.0.0.1/24", "fd00::1/64"];
        let far: &[&str] = &["10.0.0.2/24", "fd00::2/64"];
        let mut lab = Lab::new(&[near, far, far]);
        // The other host with the same addresses, which has sent nothing before.
        lab.plug(2, false);
        lab.pass(15 * SECOND);
        let (mut client, mut server) = lab.connected(to);
        assert!(lab.ping(&mut client, &mut server, SECOND));
        assert_eq!(lab.neighbor(0, addr).and_then(|neighbor| neighbor.lladdr), Some(mac(1)));
        lab.plug(1, false);
        lab.plug(2, true);
        // Timeouts after 0.2, 0.6 and 1.4 s, three solicitations, and a retransmission 6.2 s after the first transmission.
        assert!(!lab.ping(&mut client, &mut server, 8 * SECOND));
        assert_eq!(lab.neighbor(0, addr).and_then(|neighbor| neighbor.lladdr), Some(mac(2)));
        // It does not know the connection, and sends a reset.
        let end = client.read(&mut [0; 8]).unwrap_err();
        assert_eq!(end.kind(), ErrorKind::ConnectionReset);
    }
}

#[test]
fn a_neighbor_that_was_silent_for_a_while_is_probed_and_keeps_its_address() {
    let mut lab = Lab::pair();
    let (mut client, mut server) = lab.connected("10.0.0.2:80");
    assert!(lab.ping(&mut client, &mut server, SECOND));
    let before = lab.count(0, "neighbor_solicits_out");
    lab.plug(1, false);
    assert!(!lab.ping(&mut client, &mut server, 2 * SECOND));
    lab.plug(1, true);
    lab.pass(10 * SECOND);
    let asked = lab.count(0, "neighbor_solicits_out") - before;
    assert!((1..=3).contains(&asked), "{asked}");
    assert_eq!(lab.neighbor(0, "10.0.0.2").and_then(|neighbor| neighbor.lladdr), Some(mac(1)));
    assert!(lab.ping(&mut client, &mut server, SECOND), "it was there all the time");
}
