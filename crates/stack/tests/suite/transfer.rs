//! Bytes arrive whole, in order and once, with all sizes, chunkings and settings.
//!
//! Both directions are busy at once in every transfer; the receiver compares the SHA-256 of the received bytes
//! with that of the sent bytes. Without threads: `driven.rs`. Single shapes of reading and writing: `shapes.rs`.

use crate::common::settings::{Setting, grains};
use std::net::{Ipv6Addr, SocketAddr};
use std::time::Duration;

use crate::common::{
    self, Random, assert_empty, hash_of, join, join_all, receive_chunked, scaled, send_chunked,
};
use sockeye::{Config, Stack, TcpListener, TcpSocket, TcpStream};

/// The course of one transfer.
#[derive(Clone, Copy, Debug)]
struct Plan {
    bytes: usize,
    write_max: usize,
    read_max: usize,
    slow: bool,
    nodelay: bool,
}

impl Plan {
    fn random(random: &mut Random) -> Self {
        Self {
            bytes: random.size(1 << 20),
            write_max: random.size(128 << 10),
            read_max: random.size(128 << 10),
            slow: random.chance(4),
            nodelay: random.chance(2),
        }
    }
}

/// One end: sends its own bytes and receives the other's at the same time. Returns both hashes.
fn exchange(stream: TcpStream, plan: Plan, mut random: Random) -> [common::Hash; 2] {
    stream.set_nodelay(plan.nodelay).unwrap();
    let data = random.bytes(plan.bytes);
    let sent = hash_of(&data);
    let writing = stream.try_clone().unwrap();
    let mut numbers = random.fork();
    // Tiny chunks of a large transfer take too long, so the number of writes is bounded instead; `transfer` does so for reads.
    let write_max = plan.write_max.max(plan.bytes / 4096 + 1);
    let writer = std::thread::spawn(move || send_chunked(&writing, &data, write_max, &mut numbers));
    let (_, got) = receive_chunked(&stream, plan.read_max, plan.slow, &mut random);
    join(writer);
    [sent, got]
}

/// Both ends of one connection exchange random bytes.
fn transfer(client: TcpStream, server: TcpStream, mut plans: [Plan; 2], random: &mut Random) {
    let sizes = plans.map(|plan| plan.bytes);
    for (plan, peer_bytes) in plans.iter_mut().zip(sizes.into_iter().rev()) {
        plan.read_max = plan.read_max.max(peer_bytes / 4096 + 1);
    }
    let (mine, its) = (random.fork(), random.fork());
    let other = std::thread::spawn(move || exchange(server, plans[1], its));
    let [client_sent, client_got] = exchange(client, plans[0], mine);
    let [server_sent, server_got] = join(other);
    assert_eq!(client_sent, server_got, "client to server, {plans:?}");
    assert_eq!(server_sent, client_got, "server to client, {plans:?}");
}

/// Random transfers on one stack, one after the other, and nothing is left behind.
fn transfers(stack: &Stack, count: usize, random: &mut Random) {
    // A buffer's worth may cost a delayed acknowledgment, so tiny ones carry less.
    let bytes_max = stack.config().sndbuf.min(stack.config().rcvbuf) as usize * 16;
    for _ in 0..count {
        let (client, server) = common::pair(stack);
        let mut plans = [Plan::random(random), Plan::random(random)];
        for plan in &mut plans {
            plan.bytes = plan.bytes.min(bytes_max);
        }
        transfer(client, server, plans, random);
    }
    assert_empty(stack);
}

#[test]
fn random_transfers_arrive_whole_at_every_grain() {
    let _guard = common::watchdog("random_transfers_arrive_whole_at_every_grain");
    let mut random = Random::new("grains");
    for grain in grains() {
        transfers(&common::stack_with(|c| grain.set(c)), scaled(12), &mut random);
    }
}

#[test]
fn random_transfers_arrive_whole_through_the_codec_at_every_mtu() {
    let _guard = common::watchdog("random_transfers_arrive_whole_through_the_codec_at_every_mtu");
    let mut random = Random::new("codec");
    let between = 1280 + random.below(65536 - 1280) as u32;
    for mtu in [1280, 1500, 9000, between, 65536] {
        let stack = common::stack_with(|c| {
            c.loopback_encode = true;
            c.loopback_mtu = mtu;
        });
        transfers(&stack, scaled(3), &mut random);
        assert_eq!(common::counter(&stack, "segments_lost"), 0, "MTU {mtu}: the codec refused a segment");
    }
}

#[test]
fn random_transfers_arrive_whole_at_every_mtu() {
    let _guard = common::watchdog("random_transfers_arrive_whole_at_every_mtu");
    let mut random = Random::new("mtu");
    let between = 1280 + random.below(65536 - 1280) as u32;
    for mtu in [1280, 1500, between, 65535] {
        transfers(&common::stack_with(|c| c.loopback_mtu = mtu), scaled(3), &mut random);
    }
}

#[test]
fn tiny_and_huge_buffers_carry_everything() {
    let _guard = common::watchdog("tiny_and_huge_buffers_carry_everything");
    let mut random = Random::new("buffers");
    for (sndbuf, rcvbuf) in [(2 << 10, 2 << 10), (2 << 10, 1 << 20), (1 << 20, 2 << 10), (16 << 20, 16 << 20)]
    {
        for encode in [false, true] {
            let stack =
                common::stack_with(|c| (c.sndbuf, c.rcvbuf, c.loopback_encode) = (sndbuf, rcvbuf, encode));
            transfers(&stack, scaled(3), &mut random);
        }
    }
}

#[test]
fn transfers_need_neither_timestamps_nor_window_scaling() {
    let _guard = common::watchdog("transfers_need_neither_timestamps_nor_window_scaling");
    let mut random = Random::new("options");
    for (timestamps, window_scaling) in [(false, false), (false, true), (true, false)] {
        let stack = common::stack_with(|c| {
            (c.tcp.timestamps, c.tcp.window_scaling) = (timestamps, window_scaling);
            (c.sndbuf, c.rcvbuf) = (1 << 20, 1 << 20);
        });
        transfers(&stack, scaled(4), &mut random);
    }
}

#[test]
fn buffer_sizes_may_change_in_the_middle_of_a_transfer() {
    let _guard = common::watchdog("buffer_sizes_may_change_in_the_middle_of_a_transfer");
    let mut random = Random::new("resize");
    let stack = common::stack();
    for _ in 0..scaled(6) {
        let (client, server) = common::pair(&stack);
        let ends = [client.try_clone().unwrap(), server.try_clone().unwrap()];
        let mut numbers = random.fork();
        let resizer = std::thread::spawn(move || {
            for _ in 0..40 {
                let end = &ends[numbers.below(2)];
                let bytes = numbers.pick(&[0, 2 << 10, 5000, 64 << 10, 1 << 20]);
                if numbers.chance(2) {
                    end.set_send_buffer_size(bytes).unwrap();
                } else {
                    end.set_recv_buffer_size(bytes).unwrap();
                }
                std::thread::sleep(Duration::from_micros(numbers.below(500) as u64));
            }
            // With 2 KiB and Nagle's algorithm each 2 KiB may cost a delayed acknowledgment.
            for end in &ends {
                end.set_send_buffer_size(256 << 10).unwrap();
                end.set_recv_buffer_size(256 << 10).unwrap();
            }
        });
        let plan = Plan { bytes: 2 << 20, ..Plan::random(&mut random) };
        transfer(client, server, [plan, plan], &mut random);
        join(resizer);
    }
    assert_empty(&stack);
}

/// A connection whose listener is bound to `bind` and whose client connects to `to`.
fn pair_at(stack: &Stack, bind: &str, to: &str) -> (TcpStream, TcpStream) {
    let bind: SocketAddr = bind.parse().unwrap();
    let listener = TcpListener::bind_on(stack, bind).unwrap();
    let port = listener.local_addr().unwrap().port();
    let client = TcpStream::connect_on(stack, SocketAddr::new(to.parse().unwrap(), port)).unwrap();
    let (server, from) = listener.accept().unwrap();
    assert_eq!(from.port(), client.local_addr().unwrap().port());
    assert_eq!(from, server.peer_addr().unwrap());
    assert_eq!(
        listener.local_addr().unwrap().is_ipv6(),
        from.is_ipv6(),
        "a peer is shown in the socket's family"
    );
    (client, server)
}

#[test]
fn both_families_and_a_dual_stack_listener_carry_transfers() {
    let _guard = common::watchdog("both_families_and_a_dual_stack_listener_carry_transfers");
    let mut random = Random::new("families");
    let cases = [
        ("127.0.0.1:0", "127.0.0.1"),
        ("127.1.2.3:0", "127.1.2.3"),
        ("0.0.0.0:0", "127.9.9.9"),
        ("0.0.0.0:0", "0.0.0.0"),
        ("[::1]:0", "::1"),
        ("[::]:0", "::1"),
        ("[::]:0", "127.0.0.1"),
        ("[::]:0", "::ffff:127.0.0.1"),
        ("[::ffff:127.0.0.1]:0", "127.0.0.1"),
    ];
    for encode in [false, true] {
        let stack = common::stack_with(|c| c.loopback_encode = encode);
        for (bind, to) in cases {
            let (client, server) = pair_at(&stack, bind, to);
            let plans = [Plan::random(&mut random), Plan::random(&mut random)];
            transfer(client, server, plans, &mut random);
        }
        assert_empty(&stack);
    }
}

#[test]
fn a_v6_only_listener_leaves_ipv4_alone() {
    let _guard = common::watchdog("a_v6_only_listener_leaves_ipv4_alone");
    let stack = common::stack();
    let mut socket = TcpSocket::new_v6(&stack);
    socket.set_only_v6(true);
    socket.bind(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0)).unwrap();
    let listener = socket.listen(8).unwrap();
    let port = listener.local_addr().unwrap().port();
    let refused = TcpStream::connect_on(&stack, ("127.0.0.1", port)).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    TcpStream::connect_on(&stack, ("::1", port)).unwrap();
    listener.accept().unwrap();
}

#[test]
fn many_transfers_at_once_do_not_mix() {
    let _guard = common::watchdog("many_transfers_at_once_do_not_mix");
    let mut random = Random::new("parallel");
    for grain in grains() {
        let stack = common::stack_with(|c| grain.set(c));
        let threads = (0..scaled(12)).map(|_| {
            let (stack, mut random) = (stack.clone(), random.fork());
            std::thread::spawn(move || {
                let (client, server) = common::pair(&stack);
                let plans = [Plan::random(&mut random), Plan::random(&mut random)];
                transfer(client, server, plans, &mut random);
            })
        });
        join_all(threads.collect());
        assert_empty(&stack);
    }
}

#[test]
fn more_threads_than_cores_finish() {
    let _guard = common::watchdog("more_threads_than_cores_finish");
    let mut random = Random::new("96 streams");
    let stack = common::stack();
    let threads = (0..96).map(|_| {
        let (stack, mut random) = (stack.clone(), random.fork());
        std::thread::spawn(move || {
            let (client, server) = common::pair(&stack);
            let plan = Plan {
                bytes: scaled(256 << 10),
                write_max: 16384,
                read_max: 65536,
                slow: false,
                nodelay: true,
            };
            transfer(client, server, [plan, plan], &mut random);
        })
    });
    join_all(threads.collect());
    assert_empty(&stack);
}

#[test]
fn disabling_spinning_changes_only_speed() {
    let _guard = common::watchdog("disabling_spinning_changes_only_speed");
    let mut random = Random::new("no spin");
    let stack = Stack::new(Config { spin_max: Duration::ZERO, workers: 1, ..common::base() }).unwrap();
    transfers(&stack, scaled(8), &mut random);
}
