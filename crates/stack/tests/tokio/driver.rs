//! `sockeye::tokio::Driver`, without devices: timers, wakers of its own and of the program, its end and its refusals. With devices:
//! `crates/drivers/tests/driver.rs`.

use std::future::poll_fn;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use sockeye::netif::{
    ChannelConfig, ChannelPort, FrameBytes, Netif, RxFrame, Sent, TxFrame, WireConfig, channel, wire,
};
use sockeye::tokio::{Driver, TcpListener, TcpStream};
use sockeye::{Config, Stack};
use sockeye_mbuf::Chain;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{advance, sleep, timeout};

/// Longer than the stack's first retransmission of a SYN, which comes after a second.
const AFTER_REPEAT: Duration = Duration::from_millis(1500);

fn stack() -> Stack {
    Stack::new(Config { workers: 0, ..crate::common::base() }).unwrap()
}

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// A stack with an address on a channel, and the channel's other side.
fn behind_channel(addr: &str) -> (Stack, ChannelPort) {
    let (netif, mut ports) = channel(&ChannelConfig::default()).unwrap();
    let stack = stack();
    stack.attach(netif, &[addr.parse().unwrap()]).unwrap();
    (stack, ports.remove(0))
}

async fn recv(port: &ChannelPort) -> Option<TxFrame> {
    poll_fn(|cx| port.poll_recv(cx)).await
}

#[test]
fn timers_run_by_the_driver_and_by_nobody_while_there_is_none() {
    let _watchdog = crate::common::watchdog("timers of a driver");
    one_thread().block_on(async {
        let (stack, port) = behind_channel("10.0.0.1/24");
        let driven = tokio::spawn(Driver::new(&stack).unwrap());
        let client = stack.clone();
        let connects = tokio::spawn(async move {
            TcpStream::connect_on(&client, SocketAddr::from(([10, 0, 0, 2], 7))).await.map(drop)
        });
        assert!(recv(&port).await.is_some(), "a SYN");
        driven.abort();
        assert!(driven.await.unwrap_err().is_cancelled());
        assert!(
            timeout(AFTER_REPEAT, recv(&port)).await.is_err(),
            "a stack without a driver repeats nothing"
        );
        let _driven = tokio::spawn(Driver::new(&stack).unwrap());
        for _ in 0..2 {
            assert!(timeout(AFTER_REPEAT * 3, recv(&port)).await.unwrap().is_some(), "another SYN");
        }
        connects.abort();
    });
}

/// Carries the frames of one stack to another one.
fn carry(from: Arc<ChannelPort>, to: Arc<ChannelPort>) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        while let Some(frame) = from.recv(None) {
            let mut bytes = vec![0; frame.len()];
            frame.copy_to(&mut bytes);
            if to.send(FrameBytes::from(&bytes[..]), None).is_err() {
                break;
            }
        }
    })
}

/// A megabyte there and back between two stacks, 10.0.0.1 and 10.0.0.2, each with a driver on this runtime.
async fn echo_between(left: Stack, right: Stack) {
    let ends = [&left, &right].map(|stack| tokio::spawn(Driver::new(stack).unwrap()));
    let to = SocketAddr::from(([10, 0, 0, 2], 7));
    let listener = TcpListener::bind_on(&right, to).await.unwrap();
    let serves = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let (mut reader, mut writer) = stream.into_split();
        tokio::io::copy(&mut reader, &mut writer).await.unwrap();
        writer.shutdown().await.unwrap();
    });
    let (mut reader, mut writer) = TcpStream::connect_on(&left, to).await.unwrap().into_split();
    let sent: Vec<u8> = (0..1_000_000u32).map(|byte| byte.to_le_bytes()[0] ^ byte.to_le_bytes()[2]).collect();
    let copy = sent.clone();
    let writes = tokio::spawn(async move {
        writer.write_all(&copy).await.unwrap();
        writer.shutdown().await.unwrap();
    });
    let mut received = Vec::new();
    reader.read_to_end(&mut received).await.unwrap();
    assert!(received == sent);
    writes.await.unwrap();
    serves.await.unwrap();
    drop((reader, left, right));
    for end in ends {
        end.await.unwrap().unwrap();
    }
}

async fn echo_over_channels() {
    let (left, near) = behind_channel("10.0.0.1/24");
    let (right, far) = behind_channel("10.0.0.2/24");
    let (near, far) = (Arc::new(near), Arc::new(far));
    let carriers = [carry(Arc::clone(&near), Arc::clone(&far)), carry(far, near)];
    echo_between(left, right).await;
    for carrier in carriers {
        carrier.join().unwrap();
    }
}

async fn echo_over_a_wire() {
    let (here, there) = wire(&WireConfig::default()).unwrap();
    let (left, right) = (stack(), stack());
    left.attach(here, &["10.0.0.1/24".parse().unwrap()]).unwrap();
    right.attach(there, &["10.0.0.2/24".parse().unwrap()]).unwrap();
    echo_between(left, right).await;
}

fn two_threads() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

#[test]
fn stacks_of_one_runtime_exchange_frames_that_other_threads_carry() {
    let _watchdog = crate::common::watchdog("frames carried by threads");
    one_thread().block_on(echo_over_channels());
    two_threads().block_on(echo_over_channels());
}

#[test]
fn stacks_of_one_runtime_exchange_frames_by_a_wire() {
    let _watchdog = crate::common::watchdog("frames by a wire");
    one_thread().block_on(echo_over_a_wire());
    two_threads().block_on(echo_over_a_wire());
}

#[test]
fn a_driver_ends_with_the_last_handle_whichever_executor_polls_it() {
    let _watchdog = crate::common::watchdog("the end of a driver");
    let runtime = one_thread();
    let stack = stack();
    let entered = runtime.enter();
    let driver = Driver::new(&stack).unwrap();
    drop(entered);
    // No runtime is entered on that thread, and none waits for events.
    let polls = std::thread::spawn(move || pollster::block_on(driver));
    let listener = sockeye::TcpListener::bind_on(&stack, "127.0.0.1:0").unwrap();
    drop(stack);
    std::thread::sleep(Duration::from_millis(50));
    assert!(!polls.is_finished(), "a socket keeps the stack");
    drop(listener);
    polls.join().unwrap().unwrap();
}

#[test]
fn what_cannot_be_driven_is_refused() {
    let kind = |stack: &Stack| Driver::new(stack).map(drop).unwrap_err().kind();
    let with_threads = Stack::new(Config { workers: 1, ..crate::common::base() }).unwrap();
    let stack = stack();
    assert_eq!(kind(&stack), ErrorKind::Other, "no runtime is entered");
    one_thread().block_on(async {
        assert_eq!(kind(&with_threads), ErrorKind::InvalidInput);
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        stack.set_driver_wake(Some(move || {
            let _ = counted.fetch_add(1, Ordering::Relaxed);
        }));
        assert_eq!(kind(&stack), ErrorKind::ResourceBusy, "it has a hook");
        assert_eq!(Arc::strong_count(&calls), 2, "which a refusal leaves alone");
        stack.set_driver_wake(None::<fn()>);
        let first = Driver::new(&stack).unwrap();
        assert_eq!(kind(&stack), ErrorKind::ResourceBusy, "it has a driver");
        assert_eq!(kind(&stack), ErrorKind::ResourceBusy, "which a refusal leaves alone");
        drop(first);
        assert!(Driver::new(&stack).is_ok(), "the first has gone");
    });
}

/// An interface that does what it is told when it is asked for at most so many frames, and says how many there are; and whether fewer mean that there are none.
struct Asked<F>(F, bool);

impl<F: Fn(usize, &mut dyn FnMut(RxFrame<'_>)) -> usize + Send + Sync + 'static> Netif for Asked<F> {
    fn mtu(&self) -> u32 {
        1500
    }

    fn queue_count(&self) -> usize {
        1
    }

    fn offloads_checksum(&self) -> bool {
        false
    }

    fn transmit(&self, _flow: u64, frames: &mut Vec<TxFrame>) -> Sent {
        frames.clear();
        Sent { queue: 0, dropped_count: 0 }
    }

    fn ring(&self, _queue: usize) {}

    fn receive(&self, _queue: usize, max: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        (self.0)(max, sink)
    }

    fn receives_all(&self) -> bool {
        self.1
    }

    fn wait(&self, _queue: usize, _spin: Duration) {}

    fn interrupt(&self, _queue: usize) {}
}

/// As many frames as may be.
fn flood(max: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> usize {
    (0..max).for_each(|_| sink(RxFrame::new(&[0; 40], &Chain::new())));
    max
}

#[test]
fn an_interface_that_comes_during_a_poll_is_looked_at_by_the_next() {
    let stack = stack();
    let own = Mutex::new(Some(stack.clone()));
    let attaches = move |_: usize, _: &mut dyn FnMut(RxFrame<'_>)| {
        if let Some(stack) = own.lock().unwrap().take() {
            let idle = Asked(|_: usize, _: &mut dyn FnMut(RxFrame<'_>)| 0, false);
            stack.attach(idle, &["10.0.1.1/24".parse().unwrap()]).unwrap();
        }
        0
    };
    stack.attach(Asked(attaches, false), &["10.0.0.1/24".parse().unwrap()]).unwrap();
    let now = Duration::from_millis(1);
    assert_eq!(stack.poll(now), Some(now), "a driver that waits at descriptors has to see it");
    assert_eq!(stack.poll(now), None);
}

#[test]
fn an_interface_that_keeps_frames_for_itself_is_read_until_there_are_none() {
    // It keeps one in so many; with 1, all.
    for (says_all, one_in) in [(true, 16), (true, 1), (false, 16), (false, 1)] {
        let stack = stack();
        let left = Arc::new(AtomicUsize::new(300));
        let waiting = Arc::clone(&left);
        let keeps = move |max: usize, sink: &mut dyn FnMut(RxFrame<'_>)| {
            let before = waiting.load(Ordering::Relaxed);
            let after = before.saturating_sub(max);
            waiting.store(after, Ordering::Relaxed);
            for _ in (after..before).filter(|number| number % one_in != 0) {
                sink(RxFrame::new(&[0; 40], &Chain::new()));
            }
            before - after
        };
        stack.attach(Asked(keeps, says_all), &["10.0.0.1/24".parse().unwrap()]).unwrap();
        let now = Duration::from_millis(1);
        // As a driver that waits for an edge: it comes again only if it is told to.
        while stack.poll(now).is_some_and(|next| next <= now) {}
        assert_eq!(left.load(Ordering::Relaxed), 0, "{says_all} {one_in}");
    }
}

/// Lets each task that is ready run. (The runtime's own `yield_now` waits for its next look at events, which comes after some sixty tasks.)
async fn yield_once() {
    let mut has_yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[test]
fn a_flood_leaves_the_thread_to_other_tasks() {
    let _watchdog = crate::common::watchdog("a flood");
    one_thread().block_on(async {
        let stack = stack();
        let driven = tokio::spawn(Driver::new(&stack).unwrap());
        // Attached later: the driver is told.
        sleep(Duration::from_millis(5)).await;
        stack.attach(Asked(flood, false), &["10.0.0.1/24".parse().unwrap()]).unwrap();
        let other = async move {
            let frames = || stack.counters().into_iter().find(|(name, _)| *name == "frames_in").unwrap().1;
            let mut seen = frames();
            for _ in 0..100 {
                yield_once().await;
                let now = frames();
                assert!(now - seen <= 2 * 256, "more than a turn or two at once: {}", now - seen);
                seen = now;
            }
            assert!(seen > 0);
        };
        // A task like the driver: the runtime's first future has its turn between many of those.
        tokio::spawn(other).await.unwrap();
        driven.abort();
    });
}

#[test]
fn an_idle_driver_is_not_polled() {
    one_thread().block_on(async {
        let stack = stack();
        let mut driver = Driver::new(&stack).unwrap();
        let polls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&polls);
        let driven = tokio::spawn(poll_fn(move |cx| {
            counted.fetch_add(1, Ordering::Relaxed);
            Pin::new(&mut driver).poll(cx)
        }));
        sleep(Duration::from_millis(20)).await;
        let before = polls.load(Ordering::Relaxed);
        assert!(before > 0);
        sleep(Duration::from_millis(200)).await;
        assert_eq!(polls.load(Ordering::Relaxed), before);
        driven.abort();
    });
}

/// The frames that come without the time going on.
async fn frames_now(port: &ChannelPort) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for _ in 0..20 {
        // A runtime that has something to do does not move its paused clock.
        tokio::task::yield_now().await;
        while let Some(frame) = port.try_recv() {
            let mut bytes = vec![0; frame.len()];
            frame.copy_to(&mut bytes);
            frames.push(bytes);
        }
    }
    frames
}

/// A call that ends a pause of the driver is made now, and not at the end of the driver's last turn: what it has just sent is not late.
#[test]
fn what_is_sent_after_a_pause_is_sent_once() {
    let _watchdog = crate::common::watchdog("a pause of a driver");
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let pause = Duration::from_secs(10);
        let ((stack, near), (other, far)) = (behind_channel("10.0.0.1/24"), behind_channel("10.0.0.2/24"));
        let to = SocketAddr::from(([10, 0, 0, 2], 7));
        let _listener = sockeye::TcpListener::bind_on(&other, to).unwrap();
        let carry = async |frames: Vec<Vec<u8>>| {
            frames.into_iter().for_each(|bytes| far.send(FrameBytes::from(&bytes[..]), None).unwrap());
            other.poll(Duration::ZERO);
            for answer in frames_now(&far).await {
                near.send(FrameBytes::from(&answer[..]), None).unwrap();
            }
            frames_now(&near).await
        };
        let driven = tokio::spawn(Driver::new(&stack).unwrap());
        assert!(frames_now(&near).await.is_empty());

        advance(pause).await;
        let connects = tokio::spawn(async move { TcpStream::connect_on(&stack, to).await.unwrap() });
        let syn = frames_now(&near).await;
        assert_eq!(syn.len(), 1, "a SYN");
        let ack = carry(syn).await;
        let mut stream = connects.await.unwrap();
        stream.set_nodelay(true).unwrap();
        assert!(carry(ack).await.is_empty());

        advance(pause).await;
        stream.write_all(&[7; 2000]).await.unwrap();
        assert_eq!(frames_now(&near).await.len(), 2, "both segments");
        advance(pause).await;
        assert!(!frames_now(&near).await.is_empty(), "they were lost");
        driven.abort();
    });
}
