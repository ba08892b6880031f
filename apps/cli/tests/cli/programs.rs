//! ping and traceroute, from the kernel to the command's stack.

use super::device::Tun;
use super::*;

/// Addresses of the stack in these tests.
const ADDRS: [&str; 2] = ["10.9.0.2", "fd09::2"];
/// The kinds of devices.
const DEVICES: [&str; 3] = ["", "--no-offload", "--tap"];

fn start(device: &str, serve: &str) -> Option<Tun> {
    Tun::start(&format!("--addr {}/24 --addr {}/64 --serve {serve} {device}", ADDRS[0], ADDRS[1]))
}

#[test]
fn pings_of_both_versions_and_of_every_size_are_answered() {
    for device in DEVICES {
        let Some(tun) = start(device, "echo") else { return };
        for (version, addr) in ["-4", "-6"].into_iter().zip(ADDRS) {
            for size in [0, 56, 1473, 65_507] {
                // One request each: after an answer, ping waits for further ones for twice the round trip alone, whatever -W says.
                let line = format!("ping {version} -n -q -c 1 -W 10 -s {size} {addr}");
                let Some(reply) = tun.client(&line) else { return };
                assert!(stdout(&reply).contains(" 0% packet loss"), "{device} {line}: {}", stdout(&reply));
            }
        }
    }
}

#[test]
fn traceroute_finds_it_one_hop_away_by_datagrams_echo_requests_and_syns() {
    for device in DEVICES {
        let Some(tun) = start(device, "discard") else { return };
        for (version, addr) in ["-4", "-6"].into_iter().zip(ADDRS) {
            for how in ["", "-I", "-T -p 9"] {
                let line = format!("traceroute {version} -n -q 1 -m 4 -w 10 {how} {addr}");
                let Some(reply) = tun.client(&line) else { return };
                let reply = stdout(&reply);
                let hops: Vec<&str> = reply.lines().skip(1).collect();
                assert!(hops.len() == 1 && hops[0].contains(addr), "{device} {line}: {reply}");
            }
        }
    }
}
