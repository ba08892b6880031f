//! Wakers that panic where the stack calls them: the rest of the call is done, and no thread of the stack ends.

use std::future::Future;
use std::io::{Read, Write};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Context;
use std::time::Duration;

use sockeye::netif::channel;
use sockeye::{Config, Entry, PanicSource, Stack, TcpListener, TcpStream, UdpSocket};
use tokio::io::{AsyncRead, ReadBuf};

use crate::common::{self, counter, eventually};
use crate::{LONG, Reports, waker};

#[test]
fn a_connect_that_calls_a_waker_that_panics_succeeds_and_wakes_the_others() {
    let stack = common::stack_with(|c| c.spin_max = Duration::ZERO);
    let reports = Reports::of(&stack);
    let listener = TcpListener::bind_on(&stack, "127.0.0.1:0").unwrap();
    let (addr, blocked) = (listener.local_addr().unwrap(), listener.try_clone().unwrap());
    let accepting = std::thread::spawn(move || blocked.accept().map(|_| ()));
    // Both wait for the same connection, and one connect wakes both.
    std::thread::sleep(Duration::from_millis(50));
    let task = sockeye::tokio::TcpListener::from_std(listener).unwrap();
    let bad = waker(|| panic!("in a waker"));
    // A future that is dropped waits no more.
    let mut accept = pin!(task.accept());
    assert!(accept.as_mut().poll(&mut Context::from_waker(&bad)).is_pending());
    let _client = TcpStream::connect_on(&stack, addr).unwrap();
    eventually("the thread in accept is back", || accepting.is_finished());
    accepting.join().unwrap().unwrap();
    assert_eq!(reports.all(), [(PanicSource::Waker, "Waker::wake")]);
    assert_eq!(counter(&stack, "panics_foreign"), 1);
}

#[test]
fn a_task_at_a_channel_is_woken_though_the_waker_of_another_panics() {
    let (netif, ports) = channel(&Default::default()).unwrap();
    let stack = common::stack();
    stack.attach(netif, &["10.8.0.1/24".parse().unwrap()]).unwrap();
    let woken = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&woken);
    let bad = waker(|| panic!("in a waker"));
    let good = waker(move || seen.store(true, Ordering::Relaxed));
    for waker in [&bad, &good] {
        assert!(ports[0].poll_recv(&mut Context::from_waker(waker)).is_pending());
    }
    let udp = UdpSocket::bind_on(&stack, "10.8.0.1:0").unwrap();
    assert_eq!(udp.send_to(b"hello", "10.8.0.2:9").unwrap(), 5);
    assert!(woken.load(Ordering::Relaxed));
    assert!(ports[0].try_recv().is_some());
}

/// A stack whose only worker runs everything, so that wakers are called there.
fn by_worker() -> (Stack, TcpStream, TcpStream) {
    let config = Config { entry: Entry::Fill, workers: 1, ..Config::default() };
    let stack = Stack::new(config).unwrap();
    let (one, other) = common::pair(&stack);
    one.set_read_timeout(Some(LONG)).unwrap();
    other.set_read_timeout(Some(LONG)).unwrap();
    (stack, one, other)
}

#[test]
fn a_worker_on_which_a_waker_panics_goes_on() {
    let (stack, one, other) = by_worker();
    let bad = waker(|| panic!("in a waker"));
    let mut reader = sockeye::tokio::TcpStream::from_std(other).unwrap();
    let mut bytes = [0; 5];
    let mut buf = ReadBuf::new(&mut bytes);
    assert!(Pin::new(&mut reader).poll_read(&mut Context::from_waker(&bad), &mut buf).is_pending());
    (&one).write_all(b"hello").unwrap();
    eventually("the waker is called", || counter(&stack, "panics_foreign") == 1);
    let reader = reader.into_std();
    reader.set_nonblocking(false).unwrap();
    for _ in 0..3 {
        (&reader).read_exact(&mut bytes).unwrap();
        (&one).write_all(&bytes).unwrap();
        assert_eq!(&bytes, b"hello");
    }
}
