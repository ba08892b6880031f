//! Each of the kernel's and our options on and off: SACK, timestamps, window scaling, ECN.

use sockeye_drivers::{Layer, TunConfig};

use crate::common::skipped;
use crate::testbed::Testbed;

const LEN: usize = 2_000_000;

#[test]
fn streams_arrive_whole_with_each_of_the_kernels_options_on_and_off() {
    if skipped("the kernel's options") {
        return;
    }
    let testbed = Testbed::new(Layer::Ip);
    for name in ["tcp_sack", "tcp_timestamps", "tcp_window_scaling"] {
        for value in ["0", "1"] {
            testbed.sysctl(&format!("ipv4/{name}"), value);
            testbed.opened_by_kernel(false, 2, LEN);
            testbed.opened_by_stack(true, 2, LEN);
        }
    }
    for name in ["tcp_sack", "tcp_timestamps", "tcp_window_scaling"] {
        testbed.sysctl(&format!("ipv4/{name}"), "0");
    }
    testbed.opened_by_kernel(true, 2, LEN);
    testbed.opened_by_stack(false, 2, LEN);
    testbed.assert_all_understood();
    testbed.assert_empties();
}

#[test]
fn streams_arrive_whole_whichever_side_offers_ecn() {
    if skipped("ECN") {
        return;
    }
    for kernel in ["0", "1", "2"] {
        for ours in ["off", "accept", "on"] {
            let testbed = Testbed::with(&TunConfig::default(), |config| config.set("ecn", ours).unwrap());
            testbed.sysctl("ipv4/tcp_ecn", kernel);
            testbed.opened_by_kernel(false, 1, LEN);
            testbed.opened_by_stack(true, 1, LEN);
            testbed.assert_all_understood();
        }
    }
}

#[test]
fn streams_arrive_whole_with_our_options_off() {
    if skipped("our options") {
        return;
    }
    for (timestamps, window_scaling) in [(false, true), (true, false), (false, false)] {
        let testbed = Testbed::with(&TunConfig::default(), |config| {
            (config.tcp.timestamps, config.tcp.window_scaling) = (timestamps, window_scaling);
        });
        testbed.opened_by_kernel(false, 2, LEN);
        testbed.opened_by_stack(true, 2, LEN);
        testbed.assert_all_understood();
    }
}

#[test]
fn streams_arrive_whole_with_frames_lost_by_a_short_queue_and_each_recovery_of_the_kernels() {
    if skipped("losses") {
        return;
    }
    for (sack, recovery) in [("1", "1"), ("0", "1"), ("1", "0")] {
        let testbed = Testbed::with(&TunConfig { offload: false, ..TunConfig::default() }, |_| ());
        testbed.sysctl("ipv4/tcp_sack", sack);
        testbed.sysctl("ipv4/tcp_recovery", recovery);
        testbed.lab.namespace.run(|| testbed.lab.tun.link().set_queue_len(5).unwrap()).unwrap();
        testbed.opened_by_kernel(false, 2, LEN);
        testbed.opened_by_stack(true, 2, LEN);
        testbed.assert_empties();
    }
}
