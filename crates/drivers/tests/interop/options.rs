//! Each of the kernel's and our options on and off: SACK, timestamps, window scaling, ECN.

use sockeye_drivers::{Layer, TunConfig};

use crate::bed::Bed;
use crate::common::skipped;

const LEN: usize = 2_000_000;

#[test]
fn streams_arrive_whole_with_each_of_the_kernels_options_on_and_off() {
    if skipped("the kernel's options") {
        return;
    }
    let bed = Bed::new(Layer::Ip);
    for name in ["tcp_sack", "tcp_timestamps", "tcp_window_scaling"] {
        for value in ["0", "1"] {
            bed.sysctl(&format!("ipv4/{name}"), value);
            bed.opened_by_kernel(false, 2, LEN);
            bed.opened_by_stack(true, 2, LEN);
        }
    }
    for name in ["tcp_sack", "tcp_timestamps", "tcp_window_scaling"] {
        bed.sysctl(&format!("ipv4/{name}"), "0");
    }
    bed.opened_by_kernel(true, 2, LEN);
    bed.opened_by_stack(false, 2, LEN);
    bed.assert_all_understood();
    bed.assert_empties();
}

#[test]
fn streams_arrive_whole_whichever_side_offers_ecn() {
    if skipped("ECN") {
        return;
    }
    for kernel in ["0", "1", "2"] {
        for ours in ["off", "accept", "on"] {
            let bed = Bed::with(&TunConfig::default(), |config| config.set("ecn", ours).unwrap());
            bed.sysctl("ipv4/tcp_ecn", kernel);
            bed.opened_by_kernel(false, 1, LEN);
            bed.opened_by_stack(true, 1, LEN);
            bed.assert_all_understood();
        }
    }
}

#[test]
fn streams_arrive_whole_with_our_options_off() {
    if skipped("our options") {
        return;
    }
    for (timestamps, window_scaling) in [(false, true), (true, false), (false, false)] {
        let bed = Bed::with(&TunConfig::default(), |config| {
            (config.tcp.timestamps, config.tcp.window_scaling) = (timestamps, window_scaling);
        });
        bed.opened_by_kernel(false, 2, LEN);
        bed.opened_by_stack(true, 2, LEN);
        bed.assert_all_understood();
    }
}

#[test]
fn streams_arrive_whole_with_frames_lost_by_a_short_queue_and_each_recovery_of_the_kernels() {
    if skipped("losses") {
        return;
    }
    for (sack, recovery) in [("1", "1"), ("0", "1"), ("1", "0")] {
        let bed = Bed::with(&TunConfig { offload: false, ..TunConfig::default() }, |_| ());
        bed.sysctl("ipv4/tcp_sack", sack);
        bed.sysctl("ipv4/tcp_recovery", recovery);
        bed.lab.namespace.run(|| bed.lab.tun.link().set_queue_len(5).unwrap()).unwrap();
        bed.opened_by_kernel(false, 2, LEN);
        bed.opened_by_stack(true, 2, LEN);
        bed.assert_empties();
    }
}
