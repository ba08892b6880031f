//! Helpers of the tests of the socket layer: a watchdog, seeds, scaling, stacks and hashes.
//!
//! Does not depend on any single test. Every test that blocks starts with [`watchdog`]: a lost wake-up is a
//! thread that sleeps for ever, and a test that hangs reports nothing. Every random test takes its numbers
//! from [`Random`], which prints the seed; `SOCKEYE_SEED` replays it. `SOCKEYE_TEST_SCALE` (percent) makes
//! the loops shorter for sanitizers and emulators. The whole set is meant to take less than a minute.
//! `SOCKEYE_TEST_SWITCHES` holds the settings of the switches for all stacks, as for one row of the matrix
//! (`suite/matrix.rs`): `grain=per_core rcvd=sync wake=elide`.
#![allow(dead_code)] // Each test binary uses its own part of this.

pub mod settings;

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use sha2::{Digest, Sha256};
use sockeye::{Config, Stack, TcpListener, TcpStream};

pub use settings::base;

/// Seconds that a test may take before it counts as hanging, at full scale.
const HANG_SECONDS: u32 = 120;
/// How often [`eventually`] looks, a millisecond apart. A number and not a time, here and for the watchdog: on a machine where the
/// process did not run for a while, its threads get their turn before either gives up.
const LOOKS: u32 = 60_000;

/// Aborts the process with a message if the guard is not dropped in time.
#[must_use = "the watchdog watches for as long as its guard lives"]
pub struct Watchdog {
    done: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Watches over the test that holds the guard. Abort, not panic: the hanging thread is another one.
pub fn watchdog(test: &'static str) -> Watchdog {
    let (done, over) = mpsc::channel::<()>();
    // Sanitizers scale the loops down because they are slow, so time is scaled up.
    let patience = HANG_SECONDS * if scale_percent() < 100 { 3 } else { 1 };
    let thread = std::thread::spawn(move || {
        let second = Duration::from_secs(1);
        if (0..patience).all(|_| over.recv_timeout(second) == Err(RecvTimeoutError::Timeout)) {
            // Not by `eprintln`: the harness would keep it for a report that is never made.
            let _ = writeln!(std::io::stderr(), "{test} hangs: no end after {patience} s");
            std::process::abort();
        }
    });
    Watchdog { done: Some(done), thread: Some(thread) }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.done.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Two cores that the calling thread may use: the same twice if there is one.
pub fn cores() -> (usize, usize) {
    let allowed = sched_getaffinity(None).unwrap();
    let mut usable = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
    let first = usable.next().unwrap();
    (first, usable.next().unwrap_or(first))
}

/// Binds the calling thread to a core.
pub fn run_on(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).unwrap();
}

/// `count`, scaled by `SOCKEYE_TEST_SCALE` percent, at least 1.
pub fn scaled(count: usize) -> usize {
    (count * scale_percent() / 100).max(1)
}

fn scale_percent() -> usize {
    std::env::var("SOCKEYE_TEST_SCALE").ok().and_then(|s| s.parse().ok()).unwrap_or(100)
}

/// Waits until `condition` holds; panics with `what` if it does not within [`LOOKS`] looks.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..LOOKS {
        if condition() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("still not true after {LOOKS} looks: {what}");
}

/// SplitMix64: numbers that depend on the seed and on nothing else.
#[derive(Clone)]
pub struct Random(u64);

impl Random {
    /// The test's numbers. The seed is printed (`cargo test` shows it when the test fails).
    pub fn new(test: &str) -> Self {
        let given = std::env::var("SOCKEYE_SEED").ok().and_then(|s| s.parse().ok());
        let seed = given.unwrap_or_else(|| {
            use std::hash::{BuildHasher, Hasher};
            std::collections::hash_map::RandomState::new().build_hasher().finish()
        });
        eprintln!("{test}: SOCKEYE_SEED={seed}");
        Self(seed)
    }

    /// Numbers for another thread.
    pub fn fork(&mut self) -> Self {
        Self(self.u64())
    }

    pub fn u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to `end`, `end` excluded.
    pub fn below(&mut self, end: usize) -> usize {
        (self.u64() % end.max(1) as u64) as usize
    }

    /// A size from 1 to `max`, small ones as likely as large ones.
    pub fn size(&mut self, max: usize) -> usize {
        let bits = self.below(max.ilog2() as usize + 1);
        1 + self.below((2usize << bits).min(max))
    }

    pub fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        for chunk in bytes.chunks_mut(8) {
            let word = self.u64().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
        bytes
    }
}

pub type Hash = [u8; 32];

pub fn hash_of(bytes: &[u8]) -> Hash {
    Sha256::digest(bytes).into()
}

/// How long to wait until other threads have done the work that a call has left to them, which no call can query.
/// It is longer with settings that leave more to workers, which may look only every 10 ms.
pub fn settling_time() -> Duration {
    Duration::from_millis(if settings::given().is_empty() { 5 } else { 50 })
}

/// How often to wait for the [`settling_time`] once more before something counts as not coming.
pub fn settling_tries() -> usize {
    if settings::given().is_empty() { 0 } else { 100 }
}

/// The longest delay of an acknowledgment that [`settling_time`] has room for.
pub fn delack_max() -> Duration {
    if settings::given().is_empty() { Duration::MAX } else { settling_time() / 5 }
}

/// A stack with `change` applied to [`base`].
pub fn stack_with(change: impl FnOnce(&mut Config)) -> Stack {
    let mut config = base();
    change(&mut config);
    Stack::new(config).expect("a stack with a valid configuration")
}

pub fn stack() -> Stack {
    stack_with(|_| {})
}

/// A listener at a free port.
pub fn listener(stack: &Stack) -> TcpListener {
    TcpListener::bind_on(stack, "127.0.0.1:0").expect("a free port")
}

/// Two ends of a connection: client and server.
pub fn pair(stack: &Stack) -> (TcpStream, TcpStream) {
    let listener = listener(stack);
    let client = connect(stack, &listener);
    let (server, _) = listener.accept().expect("the connection that was just made");
    (client, server)
}

pub fn connect(stack: &Stack, listener: &TcpListener) -> TcpStream {
    TcpStream::connect_on(stack, listener.local_addr().expect("a bound listener"))
        .expect("a listener is there")
}

/// Nothing is left in the stack but names that rest in TIME-WAIT, and no byte of memory; and it has contained no panic.
pub fn assert_empty(stack: &Stack) {
    assert_nothing_left(stack);
    assert_no_panics(stack);
}

/// [`assert_empty`] of a stack in which something was made to panic.
pub fn assert_nothing_left(stack: &Stack) {
    eventually("connection_count is 0", || stack.connection_count() == 0);
    eventually("memory_in_use is 0", || stack.memory_in_use() == 0);
}

/// A stack goes on after a panic in its own code, and after one in an interface or a hook, which a test's assertion may be.
pub fn assert_no_panics(stack: &Stack) {
    let panics = ["panics_protocol", "panics_foreign"].map(|name| counter(stack, name));
    assert_eq!(panics, [0, 0], "panics of the stack's own code and of others'");
}

pub fn counter(stack: &Stack, name: &str) -> u64 {
    let counters = stack.counters();
    let found = counters.iter().find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("no counter has the name {name}")).1
}

/// Writes `data` in chunks of random sizes up to `chunk_max`, and ends the direction.
pub fn send_chunked(mut to: &TcpStream, data: &[u8], chunk_max: usize, random: &mut Random) {
    let mut rest = data;
    while !rest.is_empty() {
        let len = random.size(chunk_max).min(rest.len());
        to.write_all(&rest[..len]).expect("the peer reads to the end");
        rest = &rest[len..];
    }
    to.shutdown(Shutdown::Write).expect("an open direction");
}

/// Reads to the end in chunks of random sizes up to `chunk_max`, pausing now and then if `slow`.
pub fn receive_chunked(
    mut from: &TcpStream,
    chunk_max: usize,
    slow: bool,
    random: &mut Random,
) -> (usize, Hash) {
    let mut buf = vec![0; chunk_max];
    let (mut total, mut hash) = (0, Sha256::new());
    loop {
        if slow && random.chance(16) {
            std::thread::sleep(Duration::from_micros(random.below(600) as u64));
        }
        let room = random.size(chunk_max);
        let got = from.read(&mut buf[..room]).expect("the peer sends to the end");
        if got == 0 {
            return (total, hash.finalize().into());
        }
        total += got;
        hash.update(&buf[..got]);
    }
}

/// Joins threads and passes their panics on.
pub fn join_all<T>(threads: Vec<JoinHandle<T>>) -> Vec<T> {
    threads.into_iter().map(join).collect()
}

pub fn join<T>(thread: JoinHandle<T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
