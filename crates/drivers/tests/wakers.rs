//! A waker that panics while it is cloned. (It is here because such a waker can only be made by hand, which takes `unsafe`.)

use std::future::Future;
use std::io::ErrorKind;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, RawWakerVTable, Waker};

use sockeye::tokio::unix::UnixStream;
use sockeye::tokio::{TcpListener, TcpStream, UdpSocket};
use sockeye::{Config, Stack};
use tokio::io::{AsyncRead, ReadBuf};

static VTABLE: RawWakerVTable =
    RawWakerVTable::new(|_| panic!("a clone that panics"), |_| {}, |_| {}, |_| {});

fn unclonable() -> Waker {
    // SAFETY: the functions do not touch the data, may be called on any thread, and there is nothing to free.
    unsafe { Waker::new(std::ptr::null(), &VTABLE) }
}

fn panics(stack: &Stack) -> u64 {
    stack.counters().into_iter().find(|(name, _)| *name == "panics_foreign").unwrap().1
}

/// The wait fails for this task, and continues for another one.
fn fails<R: std::fmt::Debug>(stack: &Stack, wait: impl Future<Output = std::io::Result<R>>) {
    let (mut wait, before) = (pin!(wait), panics(stack));
    let waker = unclonable();
    match wait.as_mut().poll(&mut Context::from_waker(&waker)) {
        Poll::Ready(Err(error)) => assert_eq!(error.kind(), ErrorKind::Other, "{error}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(panics(stack), before + 1);
}

#[test]
fn a_waker_that_panics_while_it_is_cloned_fails_only_its_own_call() {
    let stack = Stack::new(Config { workers: 0, ..Config::default() }).unwrap();
    let listener = sockeye::TcpListener::bind_on(&stack, "127.0.0.1:0").unwrap();
    let client = sockeye::TcpStream::connect_on(&stack, listener.local_addr().unwrap()).unwrap();
    let _server = listener.accept().unwrap();
    let listener = TcpListener::from_std(listener).unwrap();
    let mut client = TcpStream::from_std(client).unwrap();
    let udp = UdpSocket::from_std(sockeye::UdpSocket::bind_on(&stack, "127.0.0.1:0").unwrap()).unwrap();
    let (unix, _other) = UnixStream::pair_on(&stack).unwrap();
    fails(&stack, client.readable());
    fails(&stack, listener.accept());
    fails(&stack, udp.recv(&mut [0; 9]));
    fails(&stack, unix.readable());
    let mut buf = [0; 9];
    let read = std::future::poll_fn(|cx| Pin::new(&mut client).poll_read(cx, &mut ReadBuf::new(&mut buf)));
    fails(&stack, read);
    // The lists are as they were: others wait.
    assert!(pin!(client.readable()).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert!(pin!(listener.accept()).poll(&mut Context::from_waker(Waker::noop())).is_pending());
}
