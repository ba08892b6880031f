//! Devices stay the parent's.

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use sockeye::netif::{ChannelConfig, SendError, channel};
use sockeye::{Config, Stack, TcpListener, TcpSocket, TcpStream, UdpSocket};
use sockeye_drivers::TunConfig;

use crate::child::{alone, end, fork};
use crate::common::{Lab, skipped};
use crate::world::refused;

fn threadless() -> Config {
    Config { workers: 0, ..Config::default() }
}

#[test]
fn a_stack_without_threads_continues_in_the_child_without_its_interface() {
    alone("detached::a_stack_without_threads_continues_in_the_child_without_its_interface", || {
        let stack = Stack::new(threadless()).unwrap();
        let (interface, ports) = channel(&ChannelConfig::default()).unwrap();
        stack.attach(interface, &["10.7.0.1/24".parse().unwrap()]).unwrap();
        let mut socket = TcpSocket::new_v4(&stack);
        socket.set_nonblocking(true);
        let connecting = socket.connect("10.7.0.2:80".parse().unwrap()).unwrap();
        stack.poll(Duration::from_millis(1));
        assert!(ports[0].try_recv().is_some(), "a SYN");
        let udp = UdpSocket::bind_on(&stack, "0.0.0.0:0").unwrap();
        match fork() {
            Ok(child) => drop(child.answer()),
            Err(_) => end(|| {
                assert_eq!(ports[0].try_send(&[0x45; 40][..]), Err(SendError::Detached));
                assert!(ports[0].try_recv().is_none());
                stack.poll(Duration::from_secs(2));
                let error = (&connecting).read(&mut [0]).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::NetworkDown, "{error}");
                let error = udp.send_to(b"x", "10.7.0.2:9").unwrap_err();
                assert_eq!(error.kind(), ErrorKind::NetworkUnreachable, "{error}");
                assert!(stack.addresses().is_empty() && stack.routes().is_empty());
                let own = udp.local_addr().unwrap().port();
                udp.send_to(b"x", ("127.0.0.1", own)).unwrap();
                assert_eq!(udp.recv(&mut [0; 9]).unwrap(), 1);
                // Interfaces that are its own work.
                let (interface, ports) = channel(&ChannelConfig::default()).unwrap();
                stack.attach(interface, &["10.8.0.1/24".parse().unwrap()]).unwrap();
                udp.send_to(b"x", "10.8.0.2:9").unwrap();
                assert!(ports[0].try_recv().is_some());
                drop((connecting, udp, ports, stack));
            }),
        }
        assert!(ports[0].try_recv().is_none(), "a child has sent on its parent's interface");
        udp.send_to(b"x", "10.7.0.2:9").unwrap();
        assert!(ports[0].try_recv().is_some());
        stack.poll(Duration::from_secs(2));
        assert!(ports[0].try_recv().is_some(), "the SYN again");
        assert_eq!(stack.addresses().len(), 1);
    });
}

/// A TUN device with a stack, and a connection of the kernel's to it; `fork` is called in between.
fn over_tun(config: Config, in_child: impl FnOnce(&Stack, &TcpStream)) {
    let Lab { namespace, tun, stack } = Lab::with(&TunConfig::default(), config);
    let listener = TcpListener::bind_on(&stack, "10.9.0.2:80").unwrap();
    listener.set_nonblocking(true).unwrap();
    let peer = namespace.spawn(|| {
        let mut stream = std::net::TcpStream::connect("10.9.0.2:80").unwrap();
        let mut all = Vec::new();
        stream.write_all(b"from the kernel").unwrap();
        stream.read_to_end(&mut all).unwrap();
        all
    });
    let start = std::time::Instant::now();
    let turn = || {
        stack.poll(start.elapsed());
        std::thread::yield_now();
        assert!(start.elapsed() < Duration::from_secs(60), "no answer");
    };
    let stream = loop {
        turn();
        if let Ok((stream, _)) = listener.accept() {
            break stream;
        }
    };
    match fork() {
        Ok(child) => drop(child.answer()),
        Err(_) => end(|| {
            in_child(&stack, &stream);
            drop((stream, listener, stack, tun));
        }),
    }
    stream.set_nonblocking(true).unwrap();
    let mut got = [0; 15];
    let mut len = 0;
    while len < got.len() {
        turn();
        len += (&stream).read(&mut got[len..]).unwrap_or(0);
    }
    assert_eq!(&got, b"from the kernel");
    (&stream).write_all(b"from the parent").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let peer = peer.unwrap();
    while !peer.is_finished() {
        turn();
    }
    assert_eq!(peer.join().unwrap().unwrap(), b"from the parent");
}

#[test]
fn a_child_neither_reads_nor_writes_nor_deletes_its_parents_tun_device() {
    alone("detached::a_child_neither_reads_nor_writes_nor_deletes_its_parents_tun_device", || {
        if skipped("a TUN device over a fork") {
            return;
        }
        over_tun(threadless(), |stack, mut stream| {
            stack.poll(Duration::from_secs(3));
            assert_eq!(stream.write(b"from the child").unwrap_err().kind(), ErrorKind::NetworkDown);
        });
        over_tun(Config { workers: 1, ..Config::default() }, |stack, mut stream| {
            assert_eq!(stack.poll(Duration::from_secs(3)), None);
            refused(stream.write(b"from the child"));
        });
    });
}
