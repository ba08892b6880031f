//! ping, and traceroute by datagrams and by SYNs, from the kernel to a stack.

use sockeye::TcpListener;
use sockeye_drivers::Layer;

use crate::common::{STACK, addr, skipped};
use crate::testbed::{LAYERS, Testbed, content, output};

/// Attempts of a ping. It waits for the last answer for no longer than two round trips, which is a moment only: on a busy machine
/// an answer comes later now and then, and counts as lost.
const PINGS: usize = 10;

#[test]
fn pings_of_every_size_are_answered() {
    if skipped("ping") {
        return;
    }
    for layer in LAYERS {
        let testbed = Testbed::new(layer);
        for to in STACK.map(addr) {
            // Both sides of one packet of 1500 bytes, and the largest.
            for size in [0, 56, 1452, 1453, 1472, 1473, 20_000, 65_507] {
                let words = format!("ping -n -q -c 3 -i 0.01 -W 5 -s {size} {to}");
                let mut text = String::new();
                let is_answered = (0..PINGS).any(|_| {
                    text = output(&testbed.lab.namespace, &words).unwrap_or_default();
                    text.is_empty() || text.contains(" 0% packet loss")
                });
                assert!(is_answered, "{words}: {text}");
                if text.is_empty() {
                    return;
                }
            }
        }
        assert!(testbed.lab.count("icmp_in_echos") >= 48);
        testbed.assert_all_understood();
    }
}

#[test]
fn a_flood_of_pings_is_answered_and_the_hop_limit_of_answers_is_whole() {
    if skipped("a flood of pings") {
        return;
    }
    for to in STACK.map(addr) {
        let mut text = String::new();
        let is_answered = (0..PINGS).any(|_| {
            // Another stack each time: no more at once than one host gets answers (`ECHO_EACH_BURST` in `ip/icmp.rs`).
            let testbed = Testbed::new(Layer::Ip);
            let namespace = &testbed.lab.namespace;
            let Some(once) = content(namespace, &format!("ping -n -c 1 -W 5 {to}")) else { return true };
            assert!(once.contains("ttl=64"), "{once}");
            text = output(namespace, &format!("ping -n -q -c 400 -f {to}")).unwrap_or_default();
            text.contains("400 received")
        });
        assert!(is_answered, "{text}");
    }
}

#[test]
fn traceroute_finds_the_stack_one_hop_away_by_datagrams_echo_requests_and_syns() {
    if skipped("traceroute") {
        return;
    }
    for layer in LAYERS {
        let testbed = Testbed::new(layer);
        let _listener = TcpListener::bind_on(&testbed.lab.stack, "[::]:80").unwrap();
        for (index, to) in STACK.map(addr).into_iter().enumerate() {
            for how in ["", "-I", "-T -p 80"] {
                let words = format!("traceroute {} -n -q 1 -m 4 -w 5 {how} {to}", ["-4", "-6"][index]);
                let Some(text) = content(&testbed.lab.namespace, &words) else { return };
                let hops: Vec<&str> = text.lines().skip(1).collect();
                assert!(hops.len() == 1 && hops[0].contains(&to.to_string()), "{how}: {text}");
            }
        }
    }
}
