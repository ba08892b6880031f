//! ping, and traceroute by datagrams and by SYNs, from the kernel to a stack.

use sockeye::TcpListener;
use sockeye_drivers::Layer;

use crate::common::{STACK, addr, skipped};
use crate::testbed::{LAYERS, Testbed, content, program};

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
                let Some(text) = content(&testbed.lab.namespace, &words) else { return };
                assert!(text.contains(" 0% packet loss"), "{text}");
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
    let testbed = Testbed::new(Layer::Ip);
    for to in STACK.map(addr) {
        let Some(text) = content(&testbed.lab.namespace, &format!("ping -n -c 1 -W 5 {to}")) else { return };
        assert!(text.contains("ttl=64"), "{text}");
        // No more at once than one host gets answers (`ECHO_EACH_BURST` in `ip/icmp.rs`).
        let text = content(&testbed.lab.namespace, &format!("ping -n -q -c 400 -f {to}")).unwrap_or_default();
        assert!(text.contains("400 received"), "{text}");
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

#[test]
fn a_missing_program_is_no_failure() {
    if skipped("a missing program") {
        return;
    }
    let testbed = Testbed::new(Layer::Ip);
    assert!(program(&testbed.lab.namespace, "no-program-of-this-name").is_none());
}
