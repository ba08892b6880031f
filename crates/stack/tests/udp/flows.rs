//! UDP by flow: how flows begin, end and are bounded, and ICMP errors in both directions.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use crate::common::{counter, eventually, scaled, watchdog};
use crate::lab::Lab;
use sockeye::netif::{WireConfig, wire};
use sockeye::poll::{Events, Interest, Poll, Token, Trigger};
use sockeye::{Config, Stack, UdpBuilder, UdpFlow, UdpFlowConfig, UdpFlowListener, UdpSocket, Unsent};

fn config(change: impl FnOnce(&mut UdpFlowConfig)) -> UdpFlowConfig {
    let mut config = UdpFlowConfig::default();
    change(&mut config);
    config
}

/// A stack without threads, a listener of flows on its loopback, and its address.
fn driven(change: impl FnOnce(&mut UdpFlowConfig)) -> (Stack, UdpFlowListener, SocketAddr) {
    let stack = crate::common::stack_with(|config| config.workers = 0);
    let listener =
        UdpBuilder::new_v4(&stack).listen_flows("127.0.0.1:0".parse().unwrap(), &config(change)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let addr = listener.local_addr().unwrap();
    (stack, listener, addr)
}

fn client(stack: &Stack, to: SocketAddr) -> UdpSocket {
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind_on(stack, any).unwrap();
    socket.connect(to).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    socket
}

fn recv(flow: &UdpFlow) -> Result<Vec<u8>, ErrorKind> {
    let mut bytes = vec![0; 2000];
    let len = flow.recv(&mut bytes).map_err(|error| error.kind())?;
    bytes.truncate(len);
    Ok(bytes)
}

fn accept(listener: &UdpFlowListener) -> UdpFlow {
    let (flow, peer) = listener.accept().unwrap();
    assert_eq!(flow.peer_addr().unwrap(), peer);
    flow.socket().set_nonblocking(true).unwrap();
    flow
}

/// A client with a way everywhere, and a gateway behind it.
fn pair() -> [Stack; 2] {
    let (here, there) = wire(&WireConfig::default()).unwrap();
    let stacks = [0, 1].map(|_| Stack::new(Config::default()).unwrap());
    let parse = |text: &str| text.parse().unwrap();
    let out = stacks[0].attach(here, &[parse("10.0.0.1/24"), parse("fd00::1/64")]).unwrap();
    stacks[0].add_route(parse("0.0.0.0/0"), out).unwrap();
    stacks[0].add_route(parse("::/0"), out).unwrap();
    let device = stacks[1].attach(there, &[parse("10.0.0.2/24"), parse("fd00::2/64")]).unwrap();
    stacks[1].set_any_address(device, true).unwrap();
    stacks
}

#[test]
fn each_pair_of_addresses_is_a_flow_with_its_datagrams_in_order() {
    let (stack, listener, addr) = driven(|_| {});
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    let clients = [client(&stack, addr), client(&stack, addr)];
    for text in [b"one", b"two"] {
        for client in &clients {
            client.send(text).unwrap();
        }
    }
    assert_eq!((listener.flow_count(), counter(&stack, "udp_flows")), (2, 2));
    for client in &clients {
        let flow = accept(&listener);
        assert_eq!(flow.peer_addr().unwrap(), client.local_addr().unwrap());
        assert_eq!(flow.local_addr().unwrap(), addr);
        assert_eq!(
            [recv(&flow), recv(&flow), recv(&flow)],
            [Ok(b"one".to_vec()), Ok(b"two".to_vec()), Err(ErrorKind::WouldBlock)]
        );
        flow.send(b"three").unwrap();
        assert_eq!(client.recv(&mut [0; 8]).unwrap(), 5);
    }
    assert_eq!(listener.flow_count(), 0, "both were dropped");
    // The next datagram begins another one.
    clients[0].send(b"four").unwrap();
    let flow = accept(&listener);
    assert_eq!(recv(&flow), Ok(b"four".to_vec()));
    // Its name is its own.
    assert_eq!(flow.socket().connect("127.0.0.1:9").unwrap_err().kind(), ErrorKind::InvalidInput);
    flow.socket().disconnect();
    assert_eq!(flow.peer_addr().unwrap(), clients[0].local_addr().unwrap());
    assert_eq!(stack.memory_in_use(), 0);
}

#[test]
fn a_listener_for_every_port_answers_from_the_address_that_was_asked() {
    let _guard = watchdog("a_listener_for_every_port_answers_from_the_address_that_was_asked");
    let [inside, gateway] = pair();
    let builder = UdpBuilder::new_v6(&gateway).transparent(true);
    let unasked = UdpBuilder::new_v6(&gateway).listen_any_flows(&UdpFlowConfig::default()).unwrap_err();
    assert_eq!(unasked.kind(), ErrorKind::InvalidInput);
    for canonical in [false, true] {
        let listener =
            builder.clone().canonical_addrs(canonical).listen_any_flows(&UdpFlowConfig::default()).unwrap();
        for to in ["198.51.100.7:53", "[2001:db8::7]:4711"] {
            let to: SocketAddr = to.parse().unwrap();
            let client = client(&inside, to);
            client.send(b"who?").unwrap();
            let (flow, peer) = listener.accept().unwrap();
            let mapped = |addr: SocketAddr| match addr {
                SocketAddr::V4(v4) if !canonical => SocketAddr::from((v4.ip().to_ipv6_mapped(), v4.port())),
                _ => addr,
            };
            assert_eq!(flow.local_addr().unwrap(), mapped(to));
            assert_eq!(peer, mapped(client.local_addr().unwrap()));
            let mut bytes = [0; 8];
            let (len, from) = flow.socket().recv_from(&mut bytes).unwrap();
            assert_eq!((len, from), (4, peer));
            flow.send(b"me").unwrap();
            assert_eq!(client.recv(&mut bytes).unwrap(), 2);
        }
    }
}

#[test]
fn the_listener_that_ends_takes_waiting_flows_along_and_leaves_accepted_ones() {
    let (stack, listener, addr) = driven(|_| {});
    let clients = [client(&stack, addr), client(&stack, addr)];
    clients[0].send(b"accepted").unwrap();
    let flow = accept(&listener);
    clients[1].send(b"waiting").unwrap();
    let twin = listener.try_clone().unwrap();
    drop(listener);
    assert_eq!(twin.flow_count(), 2);
    drop(twin);
    clients.iter().for_each(|client| drop(client.send(b"more")));
    assert_eq!([recv(&flow), recv(&flow)], [Ok(b"accepted".to_vec()), Ok(b"more".to_vec())]);
    assert_eq!(clients[1].recv(&mut [0; 8]).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    // The port is free.
    let socket = UdpSocket::bind_on(&stack, addr).unwrap();
    clients[1].send(b"there").unwrap();
    assert_eq!(socket.recv(&mut [0; 8]).unwrap(), 5);
    drop((flow, socket));
    assert_eq!((stack.memory_in_use(), stack.sockets(false).len()), (0, 2));
}

/// A flow that its client's datagram "one" has begun, after a millisecond.
struct Begun {
    stack: Stack,
    listener: UdpFlowListener,
    addr: SocketAddr,
    client: UdpSocket,
    flow: UdpFlow,
}

fn begun(idle: Duration) -> Begun {
    let (stack, listener, addr) = driven(|config| config.idle = Some(idle));
    stack.poll(Duration::from_millis(1));
    let client = client(&stack, addr);
    client.send(b"one").unwrap();
    let flow = accept(&listener);
    Begun { stack, listener, addr, client, flow }
}

#[test]
fn an_idle_flow_ends_at_its_time_and_not_before() {
    let Begun { stack, listener, addr, client, flow } = begun(Duration::from_secs(60));
    let ms = Duration::from_millis;
    let at = |time| {
        stack.poll(time);
    };
    assert_eq!(flow.idle_timeout().unwrap(), Some(Duration::from_secs(60)));
    // Datagrams in either direction keep it.
    for round in 1..=6 {
        at(ms(50_000 * round));
        if round % 2 == 0 {
            client.send(b"in").unwrap()
        } else {
            flow.send(b"out").unwrap()
        };
    }
    let read: Vec<_> = (0..4).map(|_| recv(&flow).unwrap().len()).collect();
    assert_eq!((read, recv(&flow)), (vec![3, 2, 2, 2], Err(ErrorKind::WouldBlock)));
    client.send(b"last").unwrap();
    at(ms(300_000 + 59_999));
    assert_eq!(listener.flow_count(), 1);
    at(ms(300_000 + 64_000));
    assert_eq!((listener.flow_count(), counter(&stack, "udp_flows_idle")), (0, 1));
    // What waits first, then the end, again and again.
    assert_eq!(recv(&flow), Ok(b"last".to_vec()));
    assert_eq!([recv(&flow), recv(&flow)], [const { Err(ErrorKind::TimedOut) }; 2]);
    // Nothing is sent any more, also not elsewhere.
    let sent = [flow.send(b"late"), flow.socket().send_to(b"late", addr)];
    assert_eq!(sent.map(|sent| sent.unwrap_err().kind()), [ErrorKind::TimedOut; 2]);
    // The next datagram begins a new one, beside it.
    client.send(b"new").unwrap();
    let second = accept(&listener);
    assert_eq!((recv(&second), recv(&flow)), (Ok(b"new".to_vec()), Err(ErrorKind::TimedOut)));
    assert_eq!(flow.send(b"late").unwrap_err().kind(), ErrorKind::TimedOut);
    client.set_nonblocking(true).unwrap();
    let heard: Vec<_> = std::iter::from_fn(|| client.recv(&mut [0; 16]).ok()).collect();
    assert_eq!(heard, [3; 3], "what was sent before the end");
    // A shorter time counts from the last datagram on, none is for ever.
    assert_eq!(second.set_idle_timeout(Some(Duration::ZERO)).unwrap_err().kind(), ErrorKind::InvalidInput);
    second.set_idle_timeout(None).unwrap();
    at(ms(10_000_000));
    assert_eq!(recv(&second), Err(ErrorKind::WouldBlock));
    client.send(b"now").unwrap();
    second.set_idle_timeout(Some(ms(100))).unwrap();
    at(ms(10_000_099));
    assert_eq!(listener.flow_count(), 1);
    at(ms(10_000_120));
    assert_eq!((recv(&second), recv(&second)), (Ok(b"now".to_vec()), Err(ErrorKind::TimedOut)));
}

#[test]
fn a_flow_that_is_a_socket_only_stays_the_flow() {
    let Begun { client, flow, listener, .. } = begun(Duration::from_secs(60));
    let socket = flow.into_socket();
    let mut bytes = [0; 8];
    assert_eq!((socket.recv(&mut bytes).unwrap(), &bytes[..3]), (3, &b"one"[..]));
    socket.send(b"back").unwrap();
    client.send(b"more").unwrap();
    assert_eq!((client.recv(&mut bytes).unwrap(), socket.recv(&mut bytes).unwrap()), (4, 4));
    assert_eq!(listener.flow_count(), 1);
    drop(socket);
    assert_eq!(listener.flow_count(), 0);
}

#[test]
fn a_shorter_idle_time_counts_from_the_last_datagram() {
    let Begun { stack, listener: _listener, client: _client, flow, .. } = begun(Duration::from_secs(160));
    let ms = Duration::from_millis;
    let at = |time| {
        stack.poll(time);
    };
    // Less than a sixteenth of its time later, which is not noted.
    at(ms(9_000));
    flow.send(b"two").unwrap();
    flow.set_idle_timeout(Some(ms(5_000))).unwrap();
    at(ms(13_999));
    assert!(!flow.has_ended());
    at(ms(14_000 + 10_000 + 400));
    assert!(flow.has_ended());
}

#[test]
fn a_flow_that_was_idle_in_the_queue_is_not_accepted() {
    let (stack, listener, addr) = driven(|config| config.idle = Some(Duration::from_secs(1)));
    stack.poll(Duration::from_millis(1));
    client(&stack, addr).send(b"old").unwrap();
    stack.poll(Duration::from_secs(5));
    client(&stack, addr).send(b"new").unwrap();
    assert_eq!(recv(&accept(&listener)), Ok(b"new".to_vec()));
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(stack.memory_in_use(), 0);
}

#[test]
fn flows_that_wait_are_bounded() {
    let (stack, listener, addr) = driven(|config| config.backlog = 3);
    let clients: Vec<_> = (0..5).map(|_| client(&stack, addr)).collect();
    clients.iter().for_each(|client| {
        client.send(b"x").unwrap();
    });
    assert_eq!((listener.flow_count(), counter(&stack, "udp_flow_overflows")), (3, 2));
    let flows: Vec<_> = (0..3).map(|_| accept(&listener)).collect();
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    // Those that wait get their datagrams all the same.
    clients[0].send(b"y").unwrap();
    clients[4].send(b"z").unwrap();
    assert_eq!([recv(&flows[0]), recv(&flows[0])], [Ok(b"x".to_vec()), Ok(b"y".to_vec())]);
    assert_eq!(recv(&accept(&listener)), Ok(b"z".to_vec()));
}

#[test]
fn a_new_flow_displaces_the_one_that_was_idle_longest() {
    let (stack, listener, addr) = driven(|config| config.flows_max = 8);
    let clients: Vec<_> = (0..9).map(|_| client(&stack, addr)).collect();
    let flows: Vec<_> = clients[..8]
        .iter()
        .enumerate()
        .map(|(i, client)| {
            stack.poll(Duration::from_secs(10 * (i as u64 + 1)));
            client.send(b"x").unwrap();
            accept(&listener)
        })
        .collect();
    // The oldest has been busy since.
    stack.poll(Duration::from_secs(100));
    clients[0].send(b"y").unwrap();
    clients[8].send(b"new").unwrap();
    assert_eq!((listener.flow_count(), counter(&stack, "udp_flows_displaced")), (8, 1));
    assert_eq!(flows[1].send(b"late").unwrap_err().kind(), ErrorKind::ConnectionAborted);
    let ends: Vec<_> = flows.iter().map(|flow| (recv(flow), recv(flow))).collect();
    for (i, end) in ends.iter().enumerate() {
        let second = match i {
            0 => Ok(b"y".to_vec()),
            1 => Err(ErrorKind::ConnectionAborted),
            _ => Err(ErrorKind::WouldBlock),
        };
        assert_eq!(*end, (Ok(b"x".to_vec()), second), "{i}");
    }
    assert_eq!(recv(&accept(&listener)), Ok(b"new".to_vec()));
}

#[test]
fn timers_of_flows_that_have_ended_do_not_pile_up() {
    let _guard = watchdog("timers_of_flows_that_have_ended_do_not_pile_up");
    let (stack, listener, addr) = driven(|config| config.idle = Some(Duration::from_secs(3600)));
    let (kept, passing) = (client(&stack, addr), client(&stack, addr));
    kept.send(b"x").unwrap();
    let kept = accept(&listener);
    for number in 0..150_000 {
        passing.send(b"x").unwrap();
        drop(accept(&listener));
        if number % 1000 == 0 {
            stack.poll(Duration::ZERO);
        }
    }
    // The wheel may have 65,536, and those of one round.
    assert!(counter(&stack, "timers_purged") >= 150_000 - 65_536 - 2000);
    // The one that counts was put back.
    stack.poll(Duration::from_secs(3500));
    assert_eq!(kept.send(b"y").ok(), Some(1));
    stack.poll(Duration::from_secs(8000));
    assert!(kept.send(b"late").is_err());
}

#[test]
fn what_waits_in_all_flows_is_bounded() {
    let (stack, listener, addr) = driven(|config| config.queued_max = 64 << 10);
    let clients: Vec<_> = (0..8).map(|_| client(&stack, addr)).collect();
    // Far more than fits, by each of them.
    for _ in 0..100 {
        clients.iter().for_each(|client| {
            client.send(&[7; 1000]).unwrap();
        });
    }
    let most = (64 << 10) + 8 * 4096;
    let used = stack.memory_in_use();
    assert!(used <= most && used > most / 4, "{used} of {most}");
    let dropped = counter(&stack, "udp_rcvbuf_errors");
    assert!((700..800).contains(&dropped), "{dropped}");
    // One datagram fits into each flow whatever the others have.
    let flows: Vec<_> = (0..8).map(|_| accept(&listener)).collect();
    assert!(flows.iter().all(|flow| recv(flow).is_ok()));
    // What is received makes room for others.
    flows[..7].iter().for_each(|flow| while recv(flow).is_ok() {});
    (0..30).for_each(|_| {
        clients[7].send(&[8; 1000]).unwrap();
    });
    let count = std::iter::from_fn(|| recv(&flows[7]).ok()).count();
    assert!(count >= 20, "{count}");
    // A flow that is closed with datagrams in it gives back what they have taken.
    for _ in 0..20 {
        clients.iter().for_each(|client| {
            client.send(&[9; 1000]).unwrap();
        });
    }
    drop(flows);
    assert_eq!(stack.memory_in_use(), 0);
    (0..30).for_each(|_| {
        clients[0].send(&[8; 1000]).unwrap();
    });
    let flow = accept(&listener);
    assert!(std::iter::from_fn(|| recv(&flow).ok()).count() >= 20);
}

#[test]
fn a_rejected_flow_refuses_its_peer() {
    let _guard = watchdog("a_rejected_flow_refuses_its_peer");
    let lab = Lab::new(&WireConfig::default(), |_| {});
    let [inside, outside] = pair();
    let far =
        UdpBuilder::new_v6(&outside).transparent(true).listen_any_flows(&UdpFlowConfig::default()).unwrap();
    let near = UdpBuilder::new_v4(&lab.stacks[1])
        .listen_flows("10.9.0.2:0".parse().unwrap(), &UdpFlowConfig::default());
    let near = near.unwrap();
    let own = UdpBuilder::new_v4(&lab.stacks[1])
        .listen_flows("127.0.0.1:0".parse().unwrap(), &UdpFlowConfig::default());
    let own = own.unwrap();
    let cases = [
        (&inside, &far, "198.51.100.7:53".parse().unwrap()),
        (&inside, &far, "[2001:db8::7]:53".parse().unwrap()),
        (&lab.stacks[0], &near, near.local_addr().unwrap()),
        // Over loopback.
        (&lab.stacks[1], &own, own.local_addr().unwrap()),
    ];
    for (stack, listener, to) in cases {
        let client = client(stack, to);
        client.set_recv_err(true).unwrap();
        client.send(b"who are you?").unwrap();
        listener.accept().unwrap().0.reject(Unsent::PortUnreachable).unwrap();
        assert_eq!(client.recv(&mut [0; 8]).unwrap_err().kind(), ErrorKind::ConnectionRefused, "{to}");
        let mut text = [0; 64];
        let error = client.recv_err(&mut text).unwrap();
        assert_eq!((error.what, error.offender.ip(), error.dst), (Unsent::PortUnreachable, to.ip(), to));
        assert_eq!(&text[..error.len], b"who are you?");
    }
    eventually("all flows are gone", || far.flow_count() + near.flow_count() + own.flow_count() == 0);
}

#[test]
fn an_error_of_a_router_is_passed_on_and_the_flow_goes_on() {
    let _guard = watchdog("an_error_of_a_router_is_passed_on_and_the_flow_goes_on");
    let [inside, outside] = pair();
    let listener =
        UdpBuilder::new_v6(&outside).transparent(true).listen_any_flows(&UdpFlowConfig::default()).unwrap();
    for (to, router, other) in
        [("198.51.100.7:53", "203.0.113.1", "fd00::9"), ("[2001:db8::7]:53", "2001:db8:ffff::1", "10.0.0.9")]
    {
        let client = client(&inside, to.parse().unwrap());
        client.set_recv_err(true).unwrap();
        client.send(b"question").unwrap();
        let flow = listener.accept().unwrap().0;
        let told = [Unsent::TimeExceeded, Unsent::TooBig { mtu: 1400 }, Unsent::Prohibited];
        for (why, text) in told.into_iter().zip([&b"question"[..], b"quest", b""]) {
            flow.report(why, router.parse().unwrap(), text).unwrap();
            assert!(client.recv(&mut [0; 8]).is_err(), "{why:?}");
            let mut quoted = [0; 64];
            let error = client.recv_err(&mut quoted).unwrap();
            assert_eq!((error.what, error.offender.ip()), (why, router.parse().unwrap()));
            assert_eq!(&quoted[..error.len], text);
        }
        let refused = flow.report(Unsent::HostUnreachable, other.parse().unwrap(), b"").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
        flow.send(b"answer").unwrap();
        assert_eq!(client.recv(&mut [0; 8]).unwrap(), 6);
    }
}

#[test]
fn an_icmp_error_about_a_datagram_of_the_flow_is_the_flows() {
    let _guard = watchdog("an_icmp_error_about_a_datagram_of_the_flow_is_the_flows");
    let [inside, outside] = pair();
    let listener =
        UdpBuilder::new_v6(&outside).transparent(true).listen_any_flows(&UdpFlowConfig::default()).unwrap();
    for to in ["198.51.100.7:53", "[2001:db8::7]:53"] {
        let clients = [0, 1].map(|_| client(&inside, to.parse().unwrap()));
        clients.iter().for_each(|client| {
            client.send(b"x").unwrap();
        });
        let flows = [0, 1].map(|_| listener.accept().unwrap().0);
        flows.iter().for_each(|flow| assert_eq!(flow.recv(&mut [0; 8]).unwrap(), 1));
        // The client is gone: its host says so.
        let [first, second] = clients;
        drop(first);
        flows[0].send(b"answer").unwrap();
        assert_eq!(flows[0].recv(&mut [0; 8]).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        // Its errors are its own.
        second.send(b"yy").unwrap();
        assert_eq!(flows[1].recv(&mut [0; 8]).unwrap(), 2);
    }
}

#[test]
fn a_poll_reports_flows_that_wait_and_flows_that_end() {
    let (stack, listener, addr) = driven(|config| config.idle = Some(Duration::from_secs(1)));
    stack.poll(Duration::from_millis(1));
    let poll = Poll::new(Duration::ZERO);
    let mut events = Events::with_capacity(8);
    poll.register(&listener, Token(1), Interest::READABLE, Trigger::Level).unwrap();
    let mut ready = |poll: &Poll| {
        poll.wait(&mut events, Some(Duration::ZERO)).unwrap();
        events.iter().map(|event| (event.token().0, event.is_readable())).collect::<Vec<_>>()
    };
    assert!(ready(&poll).is_empty());
    let client = client(&stack, addr);
    client.send(b"x").unwrap();
    assert_eq!(ready(&poll), [(1, true)]);
    let flow = accept(&listener);
    assert!(ready(&poll).is_empty());
    poll.register(flow.socket(), Token(2), Interest::READABLE, Trigger::Level).unwrap();
    assert_eq!(ready(&poll), [(2, true)]);
    recv(&flow).unwrap();
    assert!(ready(&poll).is_empty());
    stack.poll(Duration::from_secs(10));
    assert_eq!(ready(&poll), [(2, true)]);
    assert_eq!(recv(&flow), Err(ErrorKind::TimedOut));
}

/// Clients on several threads open, use and leave flows, which an owner echoes and drops: each datagram is answered or was
/// dropped for a reason that is counted, and nothing is left.
#[test]
fn flows_of_many_threads_begin_once_and_end() {
    let _guard = watchdog("flows_of_many_threads_begin_once_and_end");
    let stack = crate::common::stack();
    let listener = UdpBuilder::new_v4(&stack)
        .listen_flows("127.0.0.1:0".parse().unwrap(), &UdpFlowConfig::default())
        .unwrap();
    let (addr, rounds) = (listener.local_addr().unwrap(), scaled(300));
    const CLIENTS: usize = 4;
    std::thread::scope(|scope| {
        let echoing = scope.spawn(|| {
            for _ in 0..CLIENTS * rounds {
                let (flow, _) = listener.accept().unwrap();
                let mut bytes = [0; 16];
                // Two threads send the two datagrams of each flow: one of them begins it.
                for _ in 0..2 {
                    let len = flow.recv(&mut bytes).unwrap();
                    flow.send(&bytes[..len]).unwrap();
                }
            }
        });
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                for _ in 0..rounds {
                    let one = client(&stack, addr);
                    let other = one.try_clone().unwrap();
                    std::thread::scope(|pair| {
                        pair.spawn(|| one.send(b"one").unwrap());
                        pair.spawn(|| other.send(b"other").unwrap());
                    });
                    let mut bytes = [0; 16];
                    let lens = [0, 1].map(|_| one.recv(&mut bytes).unwrap());
                    assert_eq!(lens[0] + lens[1], 8);
                }
            });
        }
        echoing.join().unwrap();
    });
    assert_eq!(counter(&stack, "udp_flows"), (CLIENTS * rounds) as u64);
    eventually("no flow is left", || listener.flow_count() == 0);
    eventually("all packet memory is back", || stack.memory_in_use() == 0);
}

#[cfg(feature = "tokio")]
mod tasks {
    use super::*;
    use sockeye::tokio::{UdpFlowListener, UdpSocket};

    #[test]
    fn tasks_accept_flows_and_are_woken_by_their_end() {
        let _guard = watchdog("tasks_accept_flows_and_are_woken_by_their_end");
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let stack = crate::common::stack();
            let listener = UdpBuilder::new_v4(&stack)
                .listen_flows(
                    "127.0.0.1:0".parse().unwrap(),
                    &config(|config| config.idle = Some(Duration::from_millis(200))),
                )
                .unwrap();
            let addr = listener.local_addr().unwrap();
            let listener = UdpFlowListener::from_std(listener).unwrap();
            let echoing = tokio::spawn(async move {
                for _ in 0..10 {
                    let (flow, peer) = listener.accept().await.unwrap();
                    assert_eq!(flow.peer_addr().unwrap(), peer);
                    tokio::spawn(async move {
                        let mut bytes = [0; 16];
                        let error = loop {
                            match flow.recv(&mut bytes).await {
                                Ok(len) => drop(flow.send(&bytes[..len]).await.unwrap()),
                                Err(error) => break error,
                            }
                        };
                        assert_eq!(error.kind(), ErrorKind::TimedOut);
                    });
                }
                let (flow, _) = listener.accept().await.unwrap();
                flow.reject(Unsent::PortUnreachable).unwrap();
                let cancelled = tokio::time::timeout(Duration::from_millis(1), listener.accept()).await;
                assert!(cancelled.is_err());
                listener
            });
            for _ in 0..10 {
                let client = UdpSocket::bind_on(&stack, "127.0.0.1:0").await.unwrap();
                client.connect(addr).await.unwrap();
                for _ in 0..20 {
                    client.send(b"hello").await.unwrap();
                    assert_eq!(client.recv(&mut [0; 16]).await.unwrap(), 5);
                }
            }
            let client = UdpSocket::bind_on(&stack, "127.0.0.1:0").await.unwrap();
            client.connect(addr).await.unwrap();
            client.send(b"hello").await.unwrap();
            assert_eq!(client.recv(&mut [0; 16]).await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
            let listener = echoing.await.unwrap();
            while listener.get_ref().flow_count() > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
    }
}
