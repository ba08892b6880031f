//! What TCP gets through keeps its neighbor reachable: no probes, no lock.

use std::time::Duration;

use sockeye::netif::NeighborState;

use crate::lab::Lab;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_connection_that_gets_through_keeps_its_neighbor_reachable_without_probes_and_without_the_lock() {
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
