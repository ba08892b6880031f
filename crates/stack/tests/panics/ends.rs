//! Last handles that are dropped on threads of stacks.

use std::io::Write;
use std::pin::Pin;
use std::sync::{Arc, Barrier, Mutex};
use std::task::{Context, Waker};

use crate::common::settings::{Entry, Setting};
use sockeye::netif::{ChannelPort, SendError, channel};
use sockeye::{Config, Stack, TcpStream};
use tokio::io::{AsyncRead, ReadBuf};

use crate::common::{self, eventually};
use crate::{in_time, waker};

/// A stack with a worker that runs everything, an interface whose port shows when the stack has ended, and two ends of a
/// connection.
struct One {
    stack: Stack,
    port: ChannelPort,
    reader: sockeye::tokio::TcpStream,
    writer: TcpStream,
}

impl One {
    fn new() -> Self {
        let mut config = Config { workers: 1, ..Config::default() };
        Entry::Fill.set(&mut config);
        let stack = Stack::new(config).unwrap();
        let (netif, mut ports) = channel(&Default::default()).unwrap();
        stack.attach(netif, &["10.8.0.1/24".parse().unwrap()]).unwrap();
        let (reader, writer) = common::pair(&stack);
        let reader = sockeye::tokio::TcpStream::from_std(reader).unwrap();
        Self { stack, port: ports.remove(0), reader, writer }
    }

    /// Has `waker` called by the worker.
    fn call(&mut self, waker: &Waker) {
        let mut bytes = [0; 1];
        let mut buf = ReadBuf::new(&mut bytes);
        let polled = Pin::new(&mut self.reader).poll_read(&mut Context::from_waker(waker), &mut buf);
        assert!(polled.is_pending());
        self.writer.write_all(b"x").unwrap();
    }
}

fn is_gone(port: &ChannelPort) -> bool {
    port.try_send(&[0x45u8][..]) == Err(SendError::Detached)
}

#[test]
fn two_stacks_whose_workers_drop_each_others_last_handle_both_end() {
    let mut stacks = [One::new(), One::new()];
    // Each worker is in its waker before the test drops its handles, and drops the last one after that.
    let (inside, alone) = (Arc::new(Barrier::new(3)), Arc::new(Barrier::new(3)));
    let lasts: [Arc<Mutex<Option<Stack>>>; 2] = Default::default();
    for (one, last) in stacks.iter_mut().zip(&lasts) {
        let (inside, alone, last) = (Arc::clone(&inside), Arc::clone(&alone), Arc::clone(last));
        one.call(&waker(move || {
            inside.wait();
            alone.wait();
            drop(last.lock().unwrap().take());
        }));
    }
    inside.wait();
    let [one, other] = stacks;
    *lasts[0].lock().unwrap() = Some(other.stack);
    *lasts[1].lock().unwrap() = Some(one.stack);
    drop((one.reader, one.writer, other.reader, other.writer));
    alone.wait();
    for port in [&one.port, &other.port] {
        eventually("a stack whose last handle was dropped on the other's worker ends", || is_gone(port));
    }
}

#[test]
fn a_worker_that_drops_the_last_handle_of_its_own_stack_ends_it() {
    let mut one = One::new();
    let (inside, alone) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let last: Arc<Mutex<Option<Stack>>> = Arc::default();
    let (entered, left, taken) = (Arc::clone(&inside), Arc::clone(&alone), Arc::clone(&last));
    one.call(&waker(move || {
        entered.wait();
        left.wait();
        drop(taken.lock().unwrap().take());
    }));
    inside.wait();
    *last.lock().unwrap() = Some(one.stack);
    drop((one.reader, one.writer));
    alone.wait();
    eventually("the stack ends", || is_gone(&one.port));
}

#[test]
fn a_thread_of_the_application_that_drops_the_last_handle_finds_the_interfaces_closed() {
    in_time("the end of a stack", || {
        let One { stack, port, reader, writer } = One::new();
        drop((stack, reader, writer));
        assert!(is_gone(&port));
    });
}
