//! Transfers that have to arrive whatever foreign code does, and the threads that trigger foreign code.

use std::future::Future;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sockeye::unix::UnixStream;
use sockeye::{Stack, Syn, TcpListener, TcpSocket, TcpStream, UdpSocket, tokio as shape};

use crate::common::{self, Random, eventually, hash_of};
use crate::mischief::{Callback, Mischief};

/// Bytes of a transfer, at most.
const LEN_MAX: usize = 200_000;
/// How long a connect to a listener whose hook misbehaves may take before it counts as unanswered.
const UNANSWERED: Duration = Duration::from_millis(300);
/// The longest time between two polls of the stack without threads.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// The stacks, and the state that all threads share.
pub struct World {
    pub left: Stack,
    /// Behind a wire to `left`.
    pub right: Stack,
    /// Without threads.
    pub driven: Stack,
    mischief: Arc<Mischief>,
    until: Instant,
}

impl World {
    pub fn new(
        left: Stack,
        right: Stack,
        driven: Stack,
        mischief: Arc<Mischief>,
        until: Instant,
    ) -> Arc<Self> {
        Arc::new(Self { left, right, driven, mischief, until })
    }

    fn goes_on(&self) -> bool {
        Instant::now() < self.until
    }

    /// Calls that misbehaving code makes.
    pub fn callbacks(&self) -> Vec<Callback> {
        let (socket, (near, far)) = (self.left.clone(), common::pair(&self.left));
        near.set_nonblocking(true).unwrap();
        far.set_nonblocking(true).unwrap();
        let (looked_at, dialled, sent) = (self.left.clone(), self.right.clone(), self.left.clone());
        vec![
            Box::new(move || drop(looked_at.sockets(true))),
            Box::new(move || drop(dialled.counters())),
            Box::new(move || {
                let _may_be_full = (&near).write(b"from a waker");
                let _may_be_empty = (&far).read(&mut [0; 64]);
            }),
            Box::new(move || {
                let udp = UdpSocket::bind_on(&sent, "127.0.0.1:0").unwrap();
                let _no_memory = udp.send_to(b"x", udp.local_addr().unwrap());
            }),
            Box::new(move || {
                let mut pair = UnixStream::pair_on(&socket).unwrap();
                pair.0.write_all(b"y").unwrap();
            }),
        ]
    }
}

/// Starts everything; each thread returns how many transfers of its own arrived.
pub fn start(world: &Arc<World>, random: &mut Random) -> Vec<JoinHandle<u64>> {
    let mut threads = Vec::new();
    let mut spawn = |work: fn(&World, Random) -> u64| {
        let (world, random) = (Arc::clone(world), random.fork());
        threads.push(std::thread::spawn(move || work(&world, random)));
    };
    spawn(loopback);
    spawn(over_the_wire);
    spawn(unix);
    spawn(tasks);
    spawn(tasks);
    spawn(datagram_tasks);
    spawn(listeners);
    spawn(hooks);
    spawn(without_threads);
    threads
}

/// Sends random bytes to the end that accepts, which sends back their hash.
fn transfer(random: &mut Random, mut client: TcpStream, mut server: TcpStream) {
    let data = random.bytes(1 + random.clone().below(LEN_MAX));
    let expected = hash_of(&data);
    let reader = std::thread::spawn(move || {
        let mut all = Vec::new();
        server.read_to_end(&mut all).expect("the whole transfer");
        server.write_all(&hash_of(&all)).expect("an open direction");
    });
    common::send_chunked(&client, &data, 30_000, random);
    let mut answer = [0; 32];
    client.read_exact(&mut answer).expect("the answer");
    assert_eq!(answer, expected, "the received bytes are those that were sent");
    common::join(reader);
}

fn loopback(world: &World, mut random: Random) -> u64 {
    let mut count = 0;
    while world.goes_on() {
        let (client, server) = common::pair(&world.left);
        transfer(&mut random, client, server);
        count += 1;
    }
    count
}

fn over_the_wire(world: &World, mut random: Random) -> u64 {
    let listener = TcpListener::bind_on(&world.right, "10.9.0.2:0").unwrap();
    let at = listener.local_addr().unwrap();
    let mut count = 0;
    while world.goes_on() {
        let client = TcpStream::connect_on(&world.left, at).expect("a lost SYN is repeated");
        transfer(&mut random, client, listener.accept().unwrap().0);
        count += 1;
    }
    count
}

fn unix(world: &World, mut random: Random) -> u64 {
    let mut count = 0;
    while world.goes_on() {
        let (mut near, mut far) = UnixStream::pair_on(&world.left).unwrap();
        let data = random.bytes(1 + random.clone().below(LEN_MAX));
        let expected = hash_of(&data);
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            far.read_to_end(&mut all).map(|_| hash_of(&all))
        });
        near.write_all(&data).unwrap();
        near.shutdown(Shutdown::Write).unwrap();
        assert_eq!(common::join(reader).unwrap(), expected);
        count += 1;
    }
    count
}

/// Polls `future` once with a waker that misbehaves, has `wake` make it ready, and then polls until it is.
///
/// A poll may itself meet a waker's panic while it replaces one; then it is made again.
fn through_a_waker<F: Future>(mischief: &Arc<Mischief>, future: F, wake: impl FnOnce()) -> F::Output {
    let mut future = pin!(future);
    for _ in 0..2 {
        let waker = mischief.waker();
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            wake();
            return output;
        }
        let _dropped_here_if_it_panics =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(waker)));
    }
    wake();
    let mut output = None;
    eventually("what was woken is ready", || {
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(ready) => output = Some(ready),
            Poll::Pending => {}
        }
        output.is_some()
    });
    output.expect("it is ready")
}

fn tasks(world: &World, mut random: Random) -> u64 {
    let mut count = 0;
    while world.goes_on() {
        let (mut near, far) = common::pair(&world.left);
        let far = shape::TcpStream::from_std(far).unwrap();
        through_a_waker(&world.mischief, far.readable(), || near.write_all(b"x").unwrap()).unwrap();
        if random.chance(2) {
            // Some later waker or hook ends the connection, on any thread.
            world.mischief.pack(near);
        }
        count += 1;
    }
    count
}

fn datagram_tasks(world: &World, _: Random) -> u64 {
    let (near, far) =
        (UdpSocket::bind_on(&world.left, "127.0.0.1:0"), UdpSocket::bind_on(&world.left, "127.0.0.1:0"));
    let (near, far) = (near.unwrap(), far.unwrap());
    let (at, mut count) = (far.local_addr().unwrap(), 0);
    let far = shape::UdpSocket::from_std(far).unwrap();
    while world.goes_on() {
        let woken = through_a_waker(&world.mischief, far.readable(), || {
            near.send_to(b"x", at).unwrap();
        });
        woken.unwrap();
        while far.try_recv(&mut [0; 8]).is_ok() {}
        count += 1;
    }
    count
}

fn listeners(world: &World, mut random: Random) -> u64 {
    let mut count = 0;
    while world.goes_on() {
        let listener = common::listener(&world.left);
        let at = listener.local_addr().unwrap();
        let listener = shape::TcpListener::from_std(listener).unwrap();
        let mut client = None;
        let accepted = through_a_waker(&world.mischief, listener.accept(), || {
            client = Some(TcpStream::connect_on(&world.left, at).unwrap());
        });
        accepted.unwrap();
        if random.chance(2) {
            world.mischief.pack(listener);
        }
        count += 1;
    }
    count
}

fn hooks(world: &World, _: Random) -> u64 {
    let mischief = Arc::clone(&world.mischief);
    let listener = TcpListener::bind_on(&world.right, "10.9.0.2:0").unwrap();
    let at: SocketAddr = listener.local_addr().unwrap();
    listener.set_syn_hook(Some(Box::new(move |syn: Syn| {
        mischief.strike();
        match syn.peer_addr().port() % 4 {
            0 => syn.refuse(),
            1 => mischief.pack(syn),
            _ => syn.accept(),
        }
    })));
    listener.set_nonblocking(true).unwrap();
    let mut count = 0;
    while world.goes_on() {
        let connected = TcpSocket::new_v4(&world.left).connect_timeout(at, UNANSWERED);
        match connected {
            Ok(client) => {
                let mut server = None;
                eventually("what is connected is accepted", || {
                    server = listener.accept().ok();
                    server.is_some()
                });
                drop(client);
                count += 1;
            }
            Err(error) => assert!(
                matches!(
                    error.kind(),
                    ErrorKind::ConnectionRefused | ErrorKind::TimedOut | ErrorKind::WouldBlock
                ),
                "{error}"
            ),
        }
        // Connections left behind by refused or unanswered connects are accepted and dropped.
        while listener.accept().is_ok() {}
    }
    listener.set_syn_hook(None);
    count
}

/// Transfers on the stack without threads; its driver's hook misbehaves, so it is polled now and then all the same.
fn without_threads(world: &World, mut random: Random) -> u64 {
    let mischief = Arc::clone(&world.mischief);
    world.driven.set_driver_wake(Some(move || mischief.strike()));
    let (stack, until, start) = (world.driven.clone(), world.until, Instant::now());
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let driver = std::thread::spawn(move || {
        while stopped.recv_timeout(POLL_INTERVAL) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            stack.poll(start.elapsed());
        }
        start.elapsed()
    });
    let mut count = 0;
    while Instant::now() < until {
        let (client, server) = common::pair(&world.driven);
        transfer(&mut random, client, server);
        count += 1;
    }
    drop(stop);
    common::join(driver);
    world.driven.set_driver_wake(None::<fn()>);
    count
}

/// Lets the stack without threads finish its pending work.
pub fn drain(stack: &Stack) {
    let mut now = Duration::from_secs(3600);
    eventually("the stack without threads is empty", || {
        now += Duration::from_secs(1);
        stack.poll(now);
        stack.connection_count() == 0 && stack.memory_in_use() == 0
    });
}
