//! Senders whose frames are taken at the other end of a wire by their own thread (`netif/src/wire/inline.rs`): nothing is lost or stranded, and no input thread
//! is woken for it.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use crate::common::{Random, counter, hash_of, join_all, receive_chunked, send_chunked};
use crate::lab::Lab;
use sockeye::netif::WireConfig;
use sockeye::{Syn, TcpListener, TcpStream};

const TURNS: u32 = 400;

/// No caller is busy: each frame is for a thread that sleeps.
fn lab() -> Lab {
    Lab::new(&WireConfig::default(), |config| config.spin_max = Duration::ZERO)
}

/// Sends back what comes.
fn echo(mut stream: TcpStream) {
    let mut buf = [0; 100];
    while let Ok(read @ 1..) = stream.read(&mut buf) {
        stream.write_all(&buf[..read]).unwrap();
    }
}

fn turns(mut stream: TcpStream, count: u32) {
    for turn in 0..count {
        stream.write_all(&turn.to_be_bytes()).unwrap();
        let mut buf = [0; 4];
        stream.read_exact(&mut buf).unwrap();
        assert_eq!(u32::from_be_bytes(buf), turn);
    }
}

#[test]
fn a_turn_wakes_the_two_threads_that_wait_and_no_input_thread() {
    let _guard = crate::common::watchdog("turns by senders");
    let lab = lab();
    let (client, server) = lab.pair();
    let echo = std::thread::spawn(move || echo(server));
    let before = (lab.count("input_sleeps"), lab.count("input_by_senders"));
    turns(client, TURNS);
    let sleeps = lab.count("input_sleeps") - before.0;
    let by_senders = lab.count("input_by_senders") - before.1;
    echo.join().unwrap();
    // A timer's frames may come in between, and find a sender at work.
    assert!(sleeps < u64::from(TURNS) / 4, "input threads slept {sleeps} times");
    assert!(by_senders > u64::from(TURNS), "{by_senders} by senders");
}

#[test]
fn many_senders_at_once_leave_nothing_behind() {
    let _guard = crate::common::watchdog("many senders");
    let lab = lab();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            let (client, server) = lab.pair();
            scope.spawn(move || echo(server));
            scope.spawn(move || turns(client, TURNS / 4));
        }
    });
    lab.assert_empty();
}

#[test]
fn bulk_data_both_ways_arrives_whole() {
    let _guard = crate::common::watchdog("bulk data by senders");
    let lab = lab();
    let (client, server) = lab.pair();
    let mut threads = Vec::new();
    for (from, to, way) in [(&client, &server, 0), (&server, &client, 1)] {
        let data = Random::new(&format!("senders {way}")).bytes(4_000_000);
        let expected = (data.len(), hash_of(&data));
        let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
        let mut random = Random::new(&format!("sender chunks {way}"));
        threads.push(std::thread::spawn(move || send_chunked(&from, &data, 100_000, &mut random)));
        let mut random = Random::new(&format!("sender reads {way}"));
        threads.push(std::thread::spawn(move || {
            assert_eq!(receive_chunked(&to, 70_000, false, &mut random), expected);
        }));
    }
    join_all(threads);
    drop((client, server));
    assert!(lab.count("input_by_senders") > 0);
    lab.assert_empty();
}

/// The hook runs deep inside the call of a sender.
#[test]
fn a_hook_may_send_over_the_wire_that_has_brought_the_syn() {
    let _guard = crate::common::watchdog("hooks that send");
    let lab = lab();
    let (to, mut from) = lab.pair();
    let listener = lab.listener();
    let hook = move |syn: Syn| {
        (&to).write_all(b"from a hook").unwrap();
        syn.accept();
    };
    listener.set_syn_hook(Some(Box::new(hook)));
    let _client = lab.connect(&listener);
    let mut buf = [0; 11];
    from.read_exact(&mut buf).unwrap();
    assert_eq!(&buf, b"from a hook");
}

/// The receiving stack ends while threads have their frames taken there.
#[test]
fn a_stack_may_end_under_its_senders() {
    let _guard = crate::common::watchdog("a stack that ends");
    for _ in 0..20 {
        let lab = lab();
        let listener: TcpListener = lab.listener();
        let client = lab.connect(&listener);
        let server = listener.accept().unwrap().0;
        let Lab { stacks: [near, far], .. } = lab;
        let sender = std::thread::spawn(move || {
            // Until the buffer is full, or the connection is gone.
            client.set_write_timeout(Some(Duration::from_millis(20))).unwrap();
            while (&client).write_all(&[7; 5000]).is_ok() {}
            let _ = client.shutdown(Shutdown::Both);
            drop(client);
        });
        std::thread::sleep(Duration::from_millis(2));
        drop((server, listener));
        drop(far);
        sender.join().unwrap();
        assert!(counter(&near, "input_by_senders") + counter(&near, "frames_out") > 0);
    }
}
