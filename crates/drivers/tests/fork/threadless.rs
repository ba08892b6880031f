//! Stacks without threads: a child can use them further, with keys of its own.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use sockeye::netif::{ChannelConfig, channel};
use sockeye::poll::{Events, Interest, Poll, Token, Trigger};
use sockeye::unix::UnixStream;
use sockeye::{Config, IcmpSocket, Stack, TcpListener, TcpSocket, TcpStream, UdpSocket};

use crate::child::{alone, end, fork};

const SEED: [u8; 16] = *b"a fork of a seed";

fn threadless() -> Config {
    Config { workers: 0, ..Config::default() }
}

/// Some bytes over a connection, there and back.
fn exchange(client: &TcpStream, server: &TcpStream, stack: &Stack, at: Duration) {
    for (mut from, mut to) in [(client, server), (server, client)] {
        // No call advances the clock for a delayed acknowledgment.
        from.set_nodelay(true).unwrap();
        from.write_all(&[1; 3000]).unwrap();
        stack.poll(at);
        to.read_exact(&mut [0; 3000]).unwrap();
    }
}

/// Old connections and new ones, and a poll.
fn everything(stack: &Stack, listener: &TcpListener, (client, server): &(TcpStream, TcpStream), poll: &Poll) {
    exchange(client, server, stack, Duration::from_millis(2));
    let new = TcpStream::connect_on(stack, listener.local_addr().unwrap()).unwrap();
    exchange(&new, &listener.accept().unwrap().0, stack, Duration::from_millis(3));
    (&*client).write_all(b"x").unwrap();
    let events = &mut Events::with_capacity(4);
    assert_eq!(poll.wait(events, Some(Duration::ZERO)).unwrap(), 1);
    (&*server).read_exact(&mut [0]).unwrap();
}

#[test]
fn a_stack_without_threads_works_in_a_child_and_in_its_parent() {
    alone("threadless::a_stack_without_threads_works_in_a_child_and_in_its_parent", || {
        let stack = Stack::new(threadless()).unwrap();
        let listener = TcpListener::bind_on(&stack, "127.0.0.1:0").unwrap();
        let client = TcpStream::connect_on(&stack, listener.local_addr().unwrap()).unwrap();
        let ends = (client, listener.accept().unwrap().0);
        let poll = Poll::new(Duration::ZERO);
        poll.register(&ends.1, Token(4), Interest::READABLE, Trigger::Level).unwrap();
        let (mut here, mut there) = UnixStream::pair_on(&stack).unwrap();
        exchange(&ends.0, &ends.1, &stack, Duration::from_millis(1));
        match fork() {
            Ok(child) => drop(child.answer()),
            Err(_) => end(|| {
                everything(&stack, &listener, &ends, &poll);
                match fork() {
                    Ok(child) => drop(child.answer()),
                    Err(_) => end(|| everything(&stack, &listener, &ends, &poll)),
                }
                here.write_all(b"unix").unwrap();
                there.read_exact(&mut [0; 4]).unwrap();
                drop(new_stacks_too());
                // Ends the connections and the stack.
                drop((ends, listener, poll, stack));
            }),
        }
        everything(&stack, &listener, &ends, &poll);
        here.write_all(b"unix").unwrap();
        there.read_exact(&mut [0; 4]).unwrap();
    });
}

fn new_stacks_too() -> Stack {
    let stack = Stack::new(Config::default()).unwrap();
    let listener = TcpListener::bind_on(&stack, "127.0.0.1:0").unwrap();
    TcpStream::connect_on(&stack, listener.local_addr().unwrap()).unwrap().write_all(b"x").unwrap();
    stack
}

/// Numbers that a stack chooses next: ports of TCP and UDP, an identifier of ICMP, and a sequence number, which it sends by
/// an interface that it is given.
fn choices(stack: &Stack) -> Vec<u8> {
    let addr = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut tcp = TcpSocket::new_v4(stack);
    tcp.bind(addr).unwrap();
    let udp = UdpSocket::bind_on(stack, addr).unwrap();
    let icmp = IcmpSocket::bind_on(stack, addr.ip()).unwrap();
    let (interface, ports) = channel(&ChannelConfig::default()).unwrap();
    stack.attach(interface, &["10.7.1.1/24".parse().unwrap()]).unwrap();
    let mut socket = TcpSocket::new_v4(stack);
    socket.bind("10.7.1.1:4000".parse().unwrap()).unwrap();
    socket.set_nonblocking(true);
    let _connecting = socket.connect("10.7.1.2:80".parse().unwrap()).unwrap();
    stack.poll(Duration::from_millis(1));
    let syn = ports[0].try_recv().expect("a SYN");
    let chosen =
        [tcp.local_addr().unwrap().port(), udp.local_addr().unwrap().port(), icmp.id()].map(u16::to_be_bytes);
    let mut answer = chosen.concat();
    answer.extend_from_slice(&syn.head()[24..28]);
    answer
}

/// The four choices of [`choices`].
fn four(choices: &[u8]) -> [&[u8]; 4] {
    [&choices[..2], &choices[2..4], &choices[4..6], &choices[6..10]]
}

#[test]
fn parent_and_children_choose_different_numbers_and_a_seeded_parent_those_of_its_seed() {
    alone(
        "threadless::parent_and_children_choose_different_numbers_and_a_seeded_parent_those_of_its_seed",
        || {
            let stack = Stack::seeded(threadless(), SEED).unwrap();
            let mut all = Vec::new();
            for _ in 0..3 {
                match fork() {
                    Ok(child) => all.push(child.answer()),
                    Err(mut answer) => end(|| answer.give(&choices(&stack))),
                }
            }
            let own = choices(&stack);
            assert_eq!(
                own,
                choices(&Stack::seeded(threadless(), SEED).unwrap()),
                "a fork has changed its parent"
            );
            all.push(own);
            for (one, other) in [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)] {
                let pairs = std::iter::zip(four(&all[one]), four(&all[other]));
                let equal = pairs.filter(|(one, other)| one == other).count();
                // One of the three ports may be the same by chance, in one of ten thousand runs.
                assert!(equal <= 1 && four(&all[one])[3] != four(&all[other])[3], "{all:?}");
            }
        },
    );
}
