//! Wakers that panic on a worker, which runs everything with `entry = fill`: the worker continues.

use std::io::{Read, Write};
use std::pin::Pin;
use std::task::Context;

use sockeye::{Config, Stack, TcpStream};
use tokio::io::{AsyncRead, ReadBuf};

use crate::common::settings::{Entry, Setting};
use crate::common::{self, counter, eventually};
use crate::{LONG, waker};

/// A stack whose only worker runs everything, so that wakers are called there.
fn by_worker() -> (Stack, TcpStream, TcpStream) {
    let mut config = Config { workers: 1, ..Config::default() };
    Entry::Fill.set(&mut config);
    let stack = Stack::new(config).unwrap();
    let (one, other) = common::pair(&stack);
    one.set_read_timeout(Some(LONG)).unwrap();
    other.set_read_timeout(Some(LONG)).unwrap();
    (stack, one, other)
}

#[test]
fn a_worker_continues_after_a_waker_panics() {
    let (stack, one, other) = by_worker();
    let bad = waker(|| panic!("in a waker"));
    let mut reader = sockeye::tokio::TcpStream::from_std(other).unwrap();
    let mut bytes = [0; 5];
    let mut buf = ReadBuf::new(&mut bytes);
    assert!(Pin::new(&mut reader).poll_read(&mut Context::from_waker(&bad), &mut buf).is_pending());
    (&one).write_all(b"hello").unwrap();
    eventually("the waker is called", || counter(&stack, "panics_foreign") == 1);
    let reader = reader.into_std().unwrap();
    reader.set_nonblocking(false).unwrap();
    for _ in 0..3 {
        (&reader).read_exact(&mut bytes).unwrap();
        (&one).write_all(&bytes).unwrap();
        assert_eq!(&bytes, b"hello");
    }
}
