//! Wakers that panic where the stack calls them: the rest of the call is done, and no thread of the stack ends.

use std::future::Future;
use std::io::{Read, Write};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Context;
use std::time::Duration;

use sockeye::netif::{ChannelConfig, Netif, RxFrame, Sent, TxFrame, Waking, channel};
use sockeye::unix::{UnixDatagram, UnixListener, UnixSeqpacket, UnixStream};
use sockeye::{PanicSource, TcpListener, TcpStream, UdpSocket};
use tokio::io::{AsyncRead, ReadBuf};

use crate::common::{self, counter, eventually};
use crate::{Reports, waker};

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
fn a_task_at_a_channel_is_woken_although_another_waker_panics() {
    let (netif, ports) = channel(&Default::default()).unwrap();
    let stack = common::stack();
    let reports = Reports::of(&stack);
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
    assert_eq!(reports.all(), [(PanicSource::Waker, "Waker::wake")]);
    assert_eq!(counter(&stack, "panics_foreign"), 1);
}

#[test]
fn a_waker_that_panics_at_a_channel_is_reported_by_its_stack_on_any_thread() {
    let stack = common::stack();
    let reports = Reports::of(&stack);
    let bad = waker(|| panic!("in a waker"));
    let mut cx = Context::from_waker(&bad);
    // In the stack's input thread, which makes room.
    let (netif, ports) = channel(&ChannelConfig { queue_len: 1, ..Default::default() }).unwrap();
    let is_open = Arc::new(AtomicBool::new(false));
    let gate = Gate { netif, is_open: Arc::clone(&is_open) };
    stack.attach(gate, &["10.8.0.1/24".parse().unwrap()]).unwrap();
    ports[0].try_send(&[0_u8; 20][..]).unwrap();
    assert!(ports[0].poll_send(&mut cx, &[0_u8; 20][..]).is_pending());
    is_open.store(true, Ordering::Relaxed);
    eventually("the task is told of the room", || reports.all().len() == 1);
    // In the program's thread, which drops the port.
    let (netif, mut ports) = channel(&Default::default()).unwrap();
    stack.attach(netif, &["10.9.0.1/24".parse().unwrap()]).unwrap();
    assert!(ports[0].poll_recv(&mut cx).is_pending());
    ports.clear();
    assert_eq!(reports.all(), [(PanicSource::Waker, "Waker::wake"); 2]);
    assert_eq!(counter(&stack, "panics_foreign"), 2);
}

#[test]
fn a_waker_that_panics_at_a_channel_without_a_stack_is_only_caught() {
    let bad = waker(|| panic!("in a waker"));
    let mut cx = Context::from_waker(&bad);
    let (netif, ports) = channel(&Default::default()).unwrap();
    assert!(ports[0].poll_recv(&mut cx).is_pending());
    drop(netif);
    assert!(ports[0].poll_recv(&mut cx).is_ready());
    // Nor is there one while it ends.
    let (netif, ports) = channel(&Default::default()).unwrap();
    let stack = common::stack();
    stack.attach(netif, &["10.8.0.1/24".parse().unwrap()]).unwrap();
    assert!(ports[0].poll_recv(&mut cx).is_pending());
    drop(stack);
    assert!(ports[0].poll_recv(&mut cx).is_ready());
}

#[test]
fn a_waker_that_panics_at_a_unix_socket_is_counted_once() {
    for kind in ["stream", "packets", "datagrams", "listener"] {
        let stack = common::stack();
        let reports = Reports::of(&stack);
        let bad = waker(|| panic!("in a waker"));
        let mut cx = Context::from_waker(&bad);
        let mut bytes = [0; 5];
        match kind {
            "stream" => {
                let (one, other) = UnixStream::pair_on(&stack).unwrap();
                let mut other = sockeye::tokio::unix::UnixStream::from_std(other).unwrap();
                let mut buf = ReadBuf::new(&mut bytes);
                assert!(Pin::new(&mut other).poll_read(&mut cx, &mut buf).is_pending());
                (&one).write_all(b"hello").unwrap();
                (&other.into_std().unwrap()).read_exact(&mut bytes).unwrap();
            }
            "packets" => {
                let (one, other) = UnixSeqpacket::pair_on(&stack).unwrap();
                let other = sockeye::tokio::unix::UnixSeqpacket::from_std(other).unwrap();
                let mut recv = pin!(other.recv(&mut bytes));
                assert!(recv.as_mut().poll(&mut cx).is_pending());
                one.send(b"hello").unwrap();
                assert!(recv.as_mut().poll(&mut cx).is_ready());
            }
            "datagrams" => {
                let (one, other) = UnixDatagram::pair_on(&stack).unwrap();
                let other = sockeye::tokio::unix::UnixDatagram::from_std(other).unwrap();
                assert!(other.poll_recv(&mut cx, &mut ReadBuf::new(&mut bytes)).is_pending());
                one.send(b"hello").unwrap();
                assert_eq!(other.try_recv(&mut bytes).unwrap(), 5);
            }
            _ => {
                let listener = UnixListener::bind_on(&stack, "/run/it").unwrap();
                let listener = sockeye::tokio::unix::UnixListener::from_std(listener).unwrap();
                assert!(listener.poll_accept(&mut cx).is_pending());
                let _client = UnixStream::connect_on(&stack, "/run/it").unwrap();
                assert!(listener.poll_accept(&mut cx).is_ready());
            }
        }
        assert_eq!(reports.all(), [(PanicSource::Waker, "Waker::wake")], "{kind}");
        assert_eq!(counter(&stack, "panics_foreign"), 1, "{kind}");
        assert_eq!(counter(&stack, "panics_protocol"), 0, "{kind}");
    }
}

/// An interface that gives no frames until it is opened.
struct Gate<N> {
    netif: N,
    is_open: Arc<AtomicBool>,
}

impl<N: Netif> Netif for Gate<N> {
    fn mtu(&self) -> u32 {
        self.netif.mtu()
    }

    fn queue_count(&self) -> usize {
        self.netif.queue_count()
    }

    fn offloads_checksum(&self) -> bool {
        self.netif.offloads_checksum()
    }

    fn attached(&self, pool: &sockeye_mbuf::Pool) {
        self.netif.attached(pool);
    }

    fn wakes_by(&self, waking: &Waking) {
        self.netif.wakes_by(waking);
    }

    fn transmit(&self, flow: u64, frames: &mut Vec<TxFrame>) -> Sent {
        self.netif.transmit(flow, frames)
    }

    fn ring(&self, queue: usize) {
        self.netif.ring(queue);
    }

    fn receive(&self, queue: usize, max: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        if !self.is_open.load(Ordering::Relaxed) {
            return 0;
        }
        self.netif.receive(queue, max, sink)
    }

    fn wait(&self, queue: usize, spin: Duration) {
        self.netif.wait(queue, spin);
    }

    fn interrupt(&self, queue: usize) {
        self.netif.interrupt(queue);
    }
}
