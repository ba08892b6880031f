//! Bytes over 1 and 10 connections at once, in both directions, opened by either side.

use sockeye_drivers::{Layer, TunConfig};

use crate::common::skipped;
use crate::testbed::{LAYERS, Testbed};

/// Bytes of each connection and direction.
const LEN: usize = 3_000_000;

#[test]
fn one_stream_and_ten_arrive_whole_over_tun_and_tap_and_both_versions_of_ip() {
    if skipped("streams") {
        return;
    }
    for layer in LAYERS {
        let testbed = Testbed::new(layer);
        for (v6, count) in [(false, 1), (false, 10), (true, 1), (true, 10)] {
            testbed.opened_by_kernel(v6, count, LEN);
            testbed.opened_by_stack(v6, count, LEN);
        }
        testbed.assert_all_understood();
        testbed.assert_empties();
    }
}

#[test]
fn streams_arrive_whole_without_offloads_and_over_several_queues() {
    if skipped("streams without offloads") {
        return;
    }
    for (layer, queues, offload) in
        [(Layer::Ip, 2, false), (Layer::Ethernet, 1, false), (Layer::Ethernet, 2, true)]
    {
        let testbed = Testbed::with(&TunConfig { layer, queues, offload, ..TunConfig::default() }, |_| ());
        for v6 in [false, true] {
            testbed.opened_by_kernel(v6, 10, LEN / 4);
            testbed.opened_by_stack(v6, 10, LEN / 4);
        }
        testbed.assert_all_understood();
        testbed.assert_empties();
    }
}

#[test]
fn streams_arrive_whole_with_small_and_large_mtus() {
    if skipped("streams with other MTUs") {
        return;
    }
    for (layer, mtu, offload) in [
        (Layer::Ip, 1280, false),
        (Layer::Ethernet, 1280, true),
        (Layer::Ip, 65_535, true),
        (Layer::Ethernet, 9000, false),
    ] {
        let testbed =
            Testbed::with(&TunConfig { layer, mtu: Some(mtu), offload, ..TunConfig::default() }, |_| ());
        for v6 in [false, true] {
            testbed.opened_by_kernel(v6, 2, LEN);
            testbed.opened_by_stack(v6, 2, LEN);
        }
        testbed.assert_all_understood();
        testbed.assert_empties();
    }
}
