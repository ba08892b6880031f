//! Two stacks and a wire between them: transfers, closes and connects in every setting of `input`.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::settings::{Entry, GRAINS, Input, Rcvd, RxFree, Setting, Wake};
use crate::common::{Random, counter, eventually, hash_of, join_all, receive_chunked, scaled, send_chunked};
use crate::lab::{Lab, Tap, V4};
use sockeye::netif::{Prefix, RxFrame, TxFrame, WireConfig, wire};
use sockeye::{Config, MbufChain, TcpListener, TcpSocket, TcpStream};

/// Sends `bytes` both ways over every connection at once, and compares.
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
    let _guard = crate::common::watchdog("transfers over the wire");
    for (round, input) in Input::ALL.iter().cycle().take(4 * 6).enumerate() {
        let (mtu, queues) = ([1500, 65536][round / 4 % 2], [1, 2, 4][round / 8]);
        let config = WireConfig { mtu, queues, offload: round % 5 == 0, ..WireConfig::default() };
        let grain = GRAINS[round % GRAINS.len()];
        let mut lab = Lab::new(&config, |c| {
            input.set(c);
            grain.set(c);
            // The other switches change from round to round.
            Entry::ALL[round / 3 % Entry::ALL.len()].set(c);
            Rcvd::ALL[round % Rcvd::ALL.len()].set(c);
            Wake::ALL[round / 2 % Wake::ALL.len()].set(c);
            RxFree::ALL[round / 5 % RxFree::ALL.len()].set(c);
        });
        lab.v6 = round / 2 % 2 == 0;
        let pairs = (0..3).map(|_| lab.pair()).collect();
        transfer(pairs, scaled(1) * 500_000, &format!("{input} {mtu} {queues}"));
        lab.assert_empty();
        for reason in ["bad_checksum", "malformed", "not_for_us", "unsendable", "no_memory"] {
            assert_eq!(lab.count(&format!("frames_{reason}")), 0, "{reason}");
        }
        // The answer to a FIN that was sent again may still be on its way.
        crate::common::eventually("every frame came", || lab.count("frames_in") == lab.count("frames_out"));
        crate::common::eventually("every frame was input", || {
            lab.count("input_packets") == lab.count("frames_in")
        });
    }
}

#[test]
fn tcp_repairs_frames_that_a_full_queue_drops() {
    let _guard = crate::common::watchdog("full queues");
    for input in Input::ALL {
        let config = WireConfig { queue_len: 12, ..WireConfig::default() };
        let lab = Lab::new(&config, |c| {
            input.set(c);
            c.tcp.rto_min = Duration::from_millis(5);
        });
        let pairs = (0..4).map(|_| lab.pair()).collect();
        transfer(pairs, 200_000, &format!("full {input}"));
        assert!(lab.count("frames_queue_full") > 0, "four windows do not fit into 12 frames");
        lab.assert_empty();
    }
}

#[test]
fn lent_bytes_are_retransmitted_from_the_lent_memory() {
    let _guard = crate::common::watchdog("full queues, lent");
    let config = WireConfig { queue_len: 12, ..WireConfig::default() };
    let lab = Lab::new(&config, |c| c.tcp.rto_min = Duration::from_millis(5));
    let data = Random::new("lent").bytes(400_000);
    let page = MbufChain::copied(&lab.stacks[0], &data).unwrap();
    let senders: Vec<_> = (0..4)
        .map(|_| {
            let ((client, mut server), mut page) = (lab.pair(), page.clone());
            let sender = std::thread::spawn(move || client.send_mbufs(&mut page).unwrap());
            let reader = std::thread::spawn(move || {
                let mut got = Vec::new();
                server.read_to_end(&mut got).unwrap();
                got
            });
            (sender, reader)
        })
        .collect();
    for (sender, reader) in senders {
        assert_eq!(crate::common::join(sender), data.len());
        assert!(crate::common::join(reader) == data);
    }
    assert!(lab.count("frames_queue_full") > 0, "four windows do not fit into 12 frames");
    drop(page);
    lab.assert_empty();
}

#[test]
fn frames_of_a_flow_arrive_in_the_order_of_their_sequence_numbers_though_many_threads_send() {
    let _guard = crate::common::watchdog("order");
    for queues in [1, 4] {
        let config = WireConfig { queues, queue_len: 1 << 16, ..WireConfig::default() };
        let (left, right) = wire(&config).unwrap();
        let edges: Arc<Mutex<HashMap<u16, u32>>> = Arc::default();
        let backwards: Arc<Mutex<Vec<(u32, u32)>>> = Arc::default();
        let (last, seen) = (Arc::clone(&edges), Arc::clone(&backwards));
        let watch = move |frame: RxFrame<'_>| {
            let (port, seq, len) = data_of(frame);
            let mut edges = last.lock().unwrap();
            let edge = edges.entry(port).or_insert(seq);
            // Acknowledgments begin at the edge, and probes of a shut window before it. The last segment once more is a
            // tail loss probe, which a machine with other work brings about; two that changed places look otherwise.
            let is_tail_again = seq.wrapping_add(len) == *edge;
            if len > 0 && seq.wrapping_sub(*edge) > 1 << 31 && !is_tail_again {
                seen.lock().unwrap().push((*edge, seq));
            }
            *edge = seq.wrapping_add(len);
            true
        };
        let right = Tap { end: right, sending: |_: &mut Vec<TxFrame>| {}, receiving: watch };
        // No timer may send anything again, but for the tail loss probe.
        let lab = Lab::between(left, right, |c| c.tcp.rto_min = Duration::from_secs(100));
        let pairs: Vec<_> = (0..3).map(|_| lab.pair()).collect();
        let mut threads = Vec::new();
        for (client, mut server) in pairs {
            for _ in 0..4 {
                let mut client = client.try_clone().unwrap();
                threads.push(std::thread::spawn(move || client.write_all(&vec![1; 300_000]).unwrap()));
            }
            threads.push(std::thread::spawn(move || server.read_exact(&mut vec![0; 4 * 300_000]).unwrap()));
        }
        join_all(threads);
        assert_eq!(*backwards.lock().unwrap(), []);
        assert!(edges.lock().unwrap().len() == 3);
    }
}

/// Source port, sequence number and bytes of data of an IPv4 frame with a SYN counted as one.
fn data_of(frame: RxFrame<'_>) -> (u16, u32, u32) {
    let tcp = &frame.head[20..];
    let seq = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
    let syn_or_fin = u32::from(tcp[13] & 2 != 0) + u32::from(tcp[13] & 1 != 0);
    (u16::from_be_bytes([tcp[0], tcp[1]]), seq, frame.rest.len() as u32 + syn_or_fin)
}

#[test]
fn half_close_close_and_abort_reach_the_other_side_in_every_setting() {
    let _guard = crate::common::watchdog("closes over the wire");
    for input in Input::ALL {
        let lab = Lab::new(&WireConfig::default(), |c| input.set(c));
        let (mut client, mut server) = lab.pair();
        client.write_all(b"question").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut got = Vec::new();
        server.read_to_end(&mut got).unwrap();
        assert_eq!(got, b"question");
        server.write_all(b"answer").unwrap();
        drop(server);
        got.clear();
        client.read_to_end(&mut got).unwrap();
        assert_eq!(got, b"answer");
        drop(client);

        let (client, mut server) = lab.pair();
        client.set_linger(Some(Duration::ZERO)).unwrap();
        drop(client);
        assert_eq!(server.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);

        let (client, mut server) = lab.pair();
        server.write_all(b"unread").unwrap();
        eventually("the bytes have arrived", || client.peek(&mut [0; 6]).unwrap() == 6);
        drop(client);
        let refused = eventually_error(&mut server);
        assert!(matches!(refused, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{refused}");
        drop(server);
        lab.assert_empty();
    }
}

/// Reads until there is an error.
fn eventually_error(stream: &mut TcpStream) -> ErrorKind {
    loop {
        match stream.read(&mut [0; 10]) {
            Ok(0) => return ErrorKind::BrokenPipe,
            Ok(_) => {}
            Err(error) => return error.kind(),
        }
    }
}

#[test]
fn a_closed_port_an_absent_host_and_a_missing_route_give_different_errors() {
    let _guard = crate::common::watchdog("refusals");
    let lab = Lab::new(&WireConfig::default(), |c| {
        (c.tcp.syn_retries, c.tcp.rto_min) = (0, Duration::from_millis(1))
    });
    let connect = |to: &str| TcpStream::connect_on(&lab.stacks[0], to).unwrap_err().kind();
    assert_eq!(connect("10.9.0.2:9"), ErrorKind::ConnectionRefused);
    assert_eq!(connect("10.9.0.77:9"), ErrorKind::TimedOut);
    assert_eq!(connect("10.10.0.1:9"), ErrorKind::NetworkUnreachable);
    assert_eq!(lab.count("frames_not_for_us"), 1);
    let bind = TcpSocket::new_v4(&lab.stacks[0]).bind("10.9.0.2:0".parse().unwrap());
    assert_eq!(bind.unwrap_err().kind(), ErrorKind::AddrNotAvailable);
}

#[test]
fn many_connects_at_once_to_one_listener_over_four_queues_are_all_accepted() {
    let _guard = crate::common::watchdog("many connects");
    for input in Input::ALL {
        let lab = Lab::new(&WireConfig { queues: 4, ..WireConfig::default() }, |c| input.set(c));
        let mut socket = TcpSocket::new_v4(&lab.stacks[1]);
        socket.bind(lab.addr(0)).unwrap();
        let listener = socket.listen(4096).unwrap();
        let (clients, each) = (4, scaled(100));
        let mut threads = Vec::new();
        for number in 0..clients {
            let (stack, to) = (lab.stacks[0].clone(), listener.local_addr().unwrap());
            threads.push(std::thread::spawn(move || {
                for turn in 0..each {
                    let mut stream = TcpStream::connect_on(&stack, to).unwrap();
                    stream.write_all(&[number as u8, turn as u8]).unwrap();
                    let mut echo = [0; 2];
                    stream.read_exact(&mut echo).unwrap();
                    assert_eq!(echo, [number as u8, turn as u8]);
                }
            }));
        }
        for _ in 0..clients * each {
            let (mut stream, _) = listener.accept().unwrap();
            let mut message = [0; 2];
            stream.read_exact(&mut message).unwrap();
            stream.write_all(&message).unwrap();
        }
        join_all(threads);
        drop(listener);
        lab.assert_empty();
        assert_eq!(counter(&lab.stacks[1], "passive_opens"), (clients * each) as u64);
    }
}

#[test]
fn a_stack_may_be_dropped_while_frames_are_in_flight_and_the_other_continues() {
    let _guard = crate::common::watchdog("stacks that go");
    for input in Input::ALL {
        for queues in [1, 4] {
            let Lab { stacks: [left, right], .. } =
                Lab::new(&WireConfig { queues, ..WireConfig::default() }, |c| input.set(c));
            let listener = TcpListener::bind_on(&right, "10.9.0.2:0").unwrap();
            let mut clients = Vec::new();
            let mut servers = Vec::new();
            for _ in 0..4 {
                clients.push(TcpStream::connect_on(&left, listener.local_addr().unwrap()).unwrap());
                servers.push(listener.accept().unwrap().0);
            }
            for client in &mut clients {
                client.set_nonblocking(true).unwrap();
                let _ = client.write(&[1; 200_000]).unwrap();
            }
            drop((servers, listener, right));
            for client in &mut clients {
                let _ = client.write(&[1; 200_000]);
                client.set_linger(Some(Duration::ZERO)).unwrap();
            }
            drop(clients);
            crate::common::assert_empty(&left);
            // Its loopback is as it was.
            let (mut a, mut b) = crate::common::pair(&left);
            a.write_all(b"x").unwrap();
            b.read_exact(&mut [0]).unwrap();
        }
    }
}

#[test]
fn two_stacks_without_threads_talk_when_both_are_polled() {
    let _guard = crate::common::watchdog("driven wire");
    for (input, queues) in Input::ALL.iter().flat_map(|input| [(*input, 1), (*input, 3)]) {
        let lab = Lab::new(&WireConfig { queues, ..WireConfig::default() }, |c| {
            input.set(c);
            c.workers = 0;
        });
        let listener = lab.listener();
        listener.set_nonblocking(true).unwrap();
        let mut client = lab.start(&listener);
        lab.drive(Duration::ZERO);
        let mut server = listener.accept().unwrap().0;
        server.set_nonblocking(true).unwrap();
        let data = Random::new("driven wire").bytes(1_000_000);
        let (mut sent, mut got, mut buf) = (0, Vec::new(), vec![0; 50_000]);
        for turn in 0..100_000 {
            sent += client.write(&data[sent..]).unwrap_or(0);
            lab.drive(Duration::from_millis(turn));
            let count = server.read(&mut buf).unwrap_or(0);
            got.extend_from_slice(&buf[..count]);
            if got.len() == data.len() {
                break;
            }
        }
        assert!(got == data, "{input}: {} bytes", got.len());
        drop((client, server, listener));
        lab.drive(Duration::from_secs(200));
        assert_eq!(lab.stacks.each_ref().map(|stack| stack.connection_count()), [0, 0]);
    }
}

#[test]
fn one_thread_that_polls_serves_the_blocking_calls_of_others() {
    let _guard = crate::common::watchdog("polled for others");
    for input in Input::ALL {
        for grain in GRAINS {
            let config = WireConfig { queues: 2, ..WireConfig::default() };
            let lab = Lab::new(&config, |c| {
                input.set(c);
                grain.set(c);
                c.workers = 0;
            });
            let stop = std::sync::Arc::new(AtomicBool::new(false));
            let poller = {
                let (stacks, stop) = (lab.stacks.clone(), stop.clone());
                std::thread::spawn(move || {
                    let start = Instant::now();
                    while !stop.load(Ordering::Relaxed) {
                        for stack in &stacks {
                            stack.poll(start.elapsed());
                        }
                        std::thread::yield_now();
                    }
                })
            };
            let pairs = (0..3).map(|_| lab.pair()).collect();
            transfer(pairs, 100_000, &format!("polled {input}"));
            lab.assert_empty();
            stop.store(true, Ordering::Relaxed);
            crate::common::join(poller);
        }
    }
}

/// Runs one long transfer without threads, where nothing depends on the machine, and gives the receiver's
/// acquisitions, packets, and runs by length.
fn bulk(input: Input) -> (u64, u64, [u64; 5]) {
    let lab = bulk_with(|c| input.set(c));
    let of = |name: &str| counter(&lab.stacks[1], name);
    assert_eq!(of("input_contended"), 0, "one thread does not contend");
    let runs = ["1", "2_to_3", "4_to_7", "8_to_15", "16_up"].map(|len| of(&format!("input_runs_of_{len}")));
    (of("input_acquisitions"), of("input_packets"), runs)
}

/// The same, with the two stacks.
fn bulk_with(change: impl Fn(&mut Config)) -> Lab {
    let lab = Lab::new(&WireConfig::default(), |c| {
        c.workers = 0;
        change(c);
    });
    let listener = lab.listener();
    listener.set_nonblocking(true).unwrap();
    let mut client = lab.start(&listener);
    lab.drive(Duration::ZERO);
    let mut server = listener.accept().unwrap().0;
    server.set_nonblocking(true).unwrap();
    let data = Random::new("bulk").bytes(10_000_000);
    let (mut sent, mut got, mut buf) = (0, Vec::new(), vec![0; 128 << 10]);
    while got.len() < data.len() {
        sent += client.write(&data[sent..]).unwrap_or(0);
        lab.drive(Duration::ZERO);
        let read = server.read(&mut buf).unwrap_or(0);
        got.extend_from_slice(&buf[..read]);
    }
    assert!(got == data);
    lab
}

#[cfg(feature = "experiments")]
#[test]
fn with_older_settings_a_lock_is_taken_once_for_a_packet() {
    let _guard = crate::common::watchdog("acquisitions for packets");
    for input in [Input::ExclusiveLock, Input::PerPacket] {
        let (acquisitions, packets, runs) = bulk(input);
        // The SYN is no connection's, and the handshake's third segment is routed.
        assert_eq!(acquisitions, packets - 2, "{input}");
        assert_eq!(runs, [packets - 2, 0, 0, 0, 0]);
    }
}

#[test]
fn a_lock_is_taken_once_for_a_run_of_packets() {
    let _guard = crate::common::watchdog("acquisitions for runs");
    let is_older = |input: &&Input| matches!(input.to_string().as_str(), "exclusive+lock" | "per_packet");
    for input in Input::ALL.iter().filter(|input| !is_older(input)) {
        let (acquisitions, packets, runs) = bulk(*input);
        assert!(acquisitions * 5 <= packets, "{input}: {acquisitions} for {packets}");
        assert_eq!(runs.iter().sum::<u64>(), acquisitions);
        assert!(runs[4] > 0, "{runs:?}");
    }
}

#[test]
fn consecutive_segments_are_processed_in_one_step_and_answered_as_if_one_by_one() {
    let _guard = crate::common::watchdog("joined segments");
    let counts = [true, false].map(|gro| {
        let lab = bulk_with(|c| c.tcp.gro = gro);
        ["input_joined", "input_packets", "segments_in", "segments_out", "window_updates"]
            .map(|name| counter(&lab.stacks[1], name))
    });
    let [[joined, packets, ..], [none, ..]] = counts;
    assert_eq!(none, 0);
    assert!(joined * 2 > packets, "{joined} of {packets}");
    assert_eq!(counts[0][1..], counts[1][1..], "packets, segments and acknowledgments");
}

#[test]
fn an_acknowledgment_of_new_data_confirms_the_next_hop() {
    let _guard = crate::common::watchdog("confirmation");
    for input in Input::ALL {
        let lab = Lab::new(&WireConfig::default(), |c| input.set(c));
        let far: Prefix = V4[1].parse().unwrap();
        let confirmed = || lab.stacks[0].next_hop_confirmed(far.addr());
        assert_eq!(confirmed(), None);
        let (mut client, mut server) = lab.pair();
        client.write_all(b"x").unwrap();
        server.read_exact(&mut [0]).unwrap();
        eventually("the next hop is confirmed", || confirmed().is_some());
        assert_eq!(lab.stacks[0].next_hop_confirmed("127.0.0.1".parse().unwrap()), None);
    }
}

#[test]
fn a_stack_with_an_interface_still_reaches_itself_by_loopback_and_by_its_own_address() {
    let _guard = crate::common::watchdog("own address");
    for input in Input::ALL {
        let lab = Lab::new(&WireConfig::default(), |c| input.set(c));
        for at in ["127.0.0.1:0", "10.9.0.2:0", "[::1]:0", "[fd09::2]:0"] {
            let listener = TcpListener::bind_on(&lab.stacks[1], at).unwrap();
            let to = listener.local_addr().unwrap();
            let client = TcpStream::connect_on(&lab.stacks[1], to).unwrap();
            let (server, from) = listener.accept().unwrap();
            assert_eq!(from.ip(), to.ip());
            transfer(vec![(client, server)], 100_000, "own");
        }
        assert_eq!(lab.count("frames_out"), 0);
    }
}

#[test]
fn a_wildcard_listener_takes_connections_of_every_interface_and_family() {
    let _guard = crate::common::watchdog("wildcard");
    let mut lab = Lab::new(&WireConfig::default(), |_| {});
    let listener = TcpListener::bind_on(&lab.stacks[1], "[::]:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let loopback: SocketAddr = format!("127.0.0.1:{port}").parse().unwrap();
    let first = lab.addr(port);
    lab.v6 = true;
    for (stack, to) in [(0, first), (0, lab.addr(port)), (1, loopback)] {
        let mut client = TcpStream::connect_on(&lab.stacks[stack], to).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(b"hello").unwrap();
        server.read_exact(&mut [0; 5]).unwrap();
    }
}
