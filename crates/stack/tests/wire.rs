//! Two stacks and a wire between them: transfers, closes and connects in every setting of `input`.

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::time::Duration;

use common::{Random, counter, eventually, hash_of, join_all, receive_chunked, scaled, send_chunked};
use sockeye::netif::{Netif, WireConfig, wire};
use sockeye::{Config, Input, Stack, TcpListener, TcpSocket, TcpStream};

const V4: [&str; 2] = ["10.9.0.1/24", "10.9.0.2/24"];
const V6: [&str; 2] = ["fd09::1/64", "fd09::2/64"];

/// Two stacks that are connected.
struct Lab {
    stacks: [Stack; 2],
    v6: bool,
}

impl Lab {
    fn new(config: &WireConfig, change: impl Fn(&mut Config)) -> Self {
        let (left, right) = wire(config).unwrap();
        Self::between(left, right, change)
    }

    fn between(left: impl Netif, right: impl Netif, change: impl Fn(&mut Config)) -> Self {
        let stacks = [common::stack_with(&change), common::stack_with(&change)];
        let addrs = |side: usize| [V4[side].parse().unwrap(), V6[side].parse().unwrap()];
        stacks[0].attach(left, &addrs(0)).unwrap();
        stacks[1].attach(right, &addrs(1)).unwrap();
        Self { stacks, v6: false }
    }

    /// The right stack's address.
    fn addr(&self, port: u16) -> SocketAddr {
        let prefix: sockeye::netif::Prefix = (if self.v6 { V6[1] } else { V4[1] }).parse().unwrap();
        SocketAddr::new(prefix.addr(), port)
    }

    fn listener(&self) -> TcpListener {
        TcpListener::bind_on(&self.stacks[1], self.addr(0)).unwrap()
    }

    fn connect(&self, listener: &TcpListener) -> TcpStream {
        TcpStream::connect_on(&self.stacks[0], listener.local_addr().unwrap()).unwrap()
    }

    fn pair(&self) -> (TcpStream, TcpStream) {
        let listener = self.listener();
        let client = self.connect(&listener);
        (client, listener.accept().unwrap().0)
    }

    fn count(&self, name: &str) -> u64 {
        self.stacks.iter().map(|stack| counter(stack, name)).sum()
    }

    fn assert_empty(&self) {
        for stack in &self.stacks {
            common::assert_empty(stack);
        }
    }
}

/// Sends `data` both ways over every connection at once, and compares.
fn transfer(pairs: Vec<(TcpStream, TcpStream)>, bytes: usize, name: &str) {
    let mut threads = Vec::new();
    for (index, (client, server)) in pairs.into_iter().enumerate() {
        for (from, to, way) in [(&client, &server, 0), (&server, &client, 1)] {
            let data = Random::new(&format!("{name} {index} {way}")).bytes(bytes);
            let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            let expected = (data.len(), hash_of(&data));
            let mut random = Random::new(&format!("{name} chunks {index} {way}"));
            threads.push(std::thread::spawn(move || send_chunked(&from, &data, 100_000, &mut random)));
            let mut random = Random::new(&format!("{name} reads {index} {way}"));
            threads.push(std::thread::spawn(move || {
                assert_eq!(receive_chunked(&to, 100_000, false, &mut random), expected);
            }));
        }
    }
    join_all(threads);
}

#[test]
fn transfers_arrive_whole_in_every_setting_at_both_mtus_in_both_families_over_1_2_and_4_queues() {
    let _guard = common::watchdog("transfers over the wire");
    for (round, input) in Input::ALL.iter().cycle().take(4 * 6).enumerate() {
        let (mtu, queues) = ([1500, 65536][round / 4 % 2], [1, 2, 4][round / 8]);
        let config = WireConfig { mtu, queues, offload: round % 5 == 0, ..WireConfig::default() };
        let mut lab = Lab::new(&config, |c| c.input = *input);
        lab.v6 = round % 3 == 0;
        let pairs = (0..3).map(|_| lab.pair()).collect();
        transfer(pairs, scaled(1) * 500_000, &format!("{input} {mtu} {queues}"));
        lab.assert_empty();
        assert_eq!(lab.count("frames_bad_checksum") + lab.count("frames_malformed"), 0);
        assert_eq!(lab.count("frames_not_for_us") + lab.count("frames_unsendable"), 0);
        assert!(lab.count("input_packets") > 0);
    }
}
