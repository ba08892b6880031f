//! The host under test: a stack without threads, its clock, and the threads that wait for it.
//!
//! packetdrill calls from two threads. Its main thread runs the script: it advances the clock ([`Adapter::sleep`], [`Adapter::receive`]) and
//! injects packets. The other one makes the calls that block. A call that has to wait sleeps on a condition variable, as packetdrill wants to see it
//! asleep in the kernel, and tries again in a *round*: whoever changes the stack's state calls [`Adapter::settle`], which runs the stack until
//! nothing is due, lets each waiting call try once, and goes on only when all have. So a call returns at the very moment of virtual time at which its
//! condition came true, whatever the machine's scheduler does, and what it makes the stack send is sent at that moment.
//!
//! # States
//! All state is under the lock `world`. `driving` is true while a thread is in `settle`; another one waits for it to end. `round` counts the
//! rounds, `untried` the waiting calls that have not tried in this one. A waiting call never drives. No wake-up is lost: a call looks at its condition
//! under the lock before it counts itself among the waiting, and `settle` changes the round under the lock.
//!
//! The clock moves only in `sleep`, `receive` and, by a microsecond each, in `time`, since packetdrill spins on it. On a thread whose call has just
//! ended, the first `time` gives the moment at which it ended. `sleep` and `receive` wait until that was asked for and the thread is asleep again, since
//! packetdrill's main thread may look at the call's result next, or the thread go on to a call that sends.
//!
//! Tests: `tests/interface.rs`.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use sockeye::netif::Prefix;
use sockeye::{Config, Stack};

use crate::error::{Call, Errno};
use crate::files::{File, Files};
use crate::flags::{BadFlag, Flags};
use crate::sysctl;
use crate::wire::{Queues, Wire};

/// The adapter of one script.
pub struct Adapter {
    world: Mutex<World>,
    /// Waiting calls sleep here until the next round.
    next_round: Condvar,
    /// Whoever drives sleeps here until all waiting calls have tried; others until it has ended.
    tried: Condvar,
    flags: Flags,
    sysctl_log: Option<PathBuf>,
    /// The thread that runs the script: it cannot wait for itself, so its blocking calls advance the clock.
    main: ThreadId,
}

/// What the lock guards.
pub(crate) struct World {
    /// Virtual time since the start.
    pub now: Duration,
    /// Files by descriptor.
    pub files: Files,
    running: Option<Running>,
    /// When the stack wants to run next.
    next: Option<Duration>,
    /// Sent packets, each with its time.
    sent: VecDeque<(Duration, Vec<u8>)>,
    driving: bool,
    round: u64,
    waiting: usize,
    untried: usize,
    /// Ended calls whose threads have not asked for the time yet.
    untold: usize,
    /// Their threads, as the kernel shows them.
    ended: Vec<PathBuf>,
    /// The ends of waiting calls' time-outs.
    deadlines: BTreeMap<u64, Duration>,
    serial: u64,
}

/// The stack, from the first socket on.
struct Running {
    stack: Stack,
    queues: Arc<Queues>,
    /// When it was made.
    since: Duration,
    sysctl_text: String,
    /// Bytes of the log of commands that were read for the device.
    log_len: u64,
    /// The counters as they were published last.
    counters: Vec<(&'static str, u64)>,
}

pub(crate) type Locked<'a> = MutexGuard<'a, World>;

thread_local! {
    /// When this thread's blocking call ended, until it asks for the time.
    static ENDED_AT: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// The start of virtual time, as `gettimeofday` gives it.
pub(crate) const EPOCH: Duration = Duration::from_secs(1_000_000_000);
/// By how much a look at the clock advances it.
const TICK: Duration = Duration::from_micros(1);
/// How long a thread may take, in real time, to ask for the time at which its call has ended.
const TOLD_MAX: Duration = Duration::from_millis(200);
/// Runs of the stack at one moment that are not the end of its work yet.
const RUNS_MAX: usize = 1000;

impl Adapter {
    /// An adapter with these flags, whose kernel settings are in the file, if there is one.
    pub(crate) fn new(flags: &str, sysctl_log: Option<PathBuf>) -> Result<Self, BadFlag> {
        let world = World {
            now: Duration::ZERO,
            files: Files::default(),
            running: None,
            next: None,
            sent: VecDeque::new(),
            driving: false,
            round: 0,
            waiting: 0,
            untried: 0,
            untold: 0,
            ended: Vec::new(),
            deadlines: BTreeMap::new(),
            serial: 0,
        };
        Ok(Self {
            world: Mutex::new(world),
            next_round: Condvar::new(),
            tried: Condvar::new(),
            flags: Flags::read(flags)?,
            sysctl_log,
            main: thread::current().id(),
        })
    }

    pub(crate) fn lock(&self) -> Locked<'_> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The stack, with the kernel settings as they are now; made at the first call. The sizes of buffers stay those of that time.
    ///
    /// # Errors
    /// EINVAL for a setting that cannot be; it is said on the standard error.
    pub(crate) fn stack(&self, world: &mut World) -> Call<Stack> {
        let text = self.sysctl_text();
        if let Some(running) = &mut world.running {
            if running.sysctl_text != text {
                let config = sysctl::apply(&self.flags.config, &text).map_err(refused)?;
                running.change(&config, text).map_err(|error| refused(error.to_string()))?;
            }
            return Ok(running.stack.clone());
        }
        let config = sysctl::apply(&self.flags.config, &text).map_err(refused)?;
        let running = self.start(config, text, world.now).map_err(|error| refused(error.to_string()))?;
        let stack = running.stack.clone();
        world.running = Some(running);
        world.next = None;
        Ok(stack)
    }

    /// Sees whether a command has changed the device.
    fn refresh(&self, world: &mut World) {
        let Some(log) = &self.sysctl_log else { return };
        let len = std::fs::metadata(log).map_or(0, |data| data.len());
        if let Some(running) = world.running.as_mut().filter(|running| running.log_len != len) {
            running.log_len = len;
            running.queues.set_drops(sysctl::drops(&sysctl::read(log)));
        }
    }

    /// Writes the counters where the stand-in for `nstat` finds them, if they have changed.
    fn publish(&self, world: &mut World) {
        let (Some(log), Some(running)) = (&self.sysctl_log, &mut world.running) else { return };
        let counters = running.stack.counters();
        if counters == running.counters {
            return;
        }
        let names: BTreeMap<_, _> = Stack::mib_names().into_iter().collect();
        let line = |(name, value): &(&'static str, u64)| {
            names.get(name).map(|mib| format!("{mib} {value}\n")).unwrap_or_default()
        };
        let text: String = counters.iter().map(line).collect();
        running.counters = counters;
        // A script that asks for them finds out that there are none.
        let mut file = log.clone().into_os_string();
        file.push(".counters");
        let _ = std::fs::write(file, text);
    }

    fn sysctl_text(&self) -> String {
        self.sysctl_log.as_deref().map(sysctl::read).unwrap_or_default()
    }

    /// The settings as they are now.
    ///
    /// # Errors
    /// As [`stack`](Self::stack).
    pub(crate) fn config(&self) -> Call<Config> {
        sysctl::apply(&self.flags.config, &self.sysctl_text()).map_err(refused)
    }

    fn start(&self, config: Config, sysctl_text: String, since: Duration) -> std::io::Result<Running> {
        let mut seed = [0; 16];
        seed[..8].copy_from_slice(&self.flags.seed.to_le_bytes());
        let stack = Stack::seeded(config, seed)?;
        let (wire, queues) = Wire::new(self.flags.mtu);
        let netif = stack.attach(wire, &self.flags.local)?;
        for everything in ["0.0.0.0/0", "::/0"] {
            let everything: Prefix = everything.parse().map_err(std::io::Error::other)?;
            stack.add_route(everything, netif)?;
        }
        Ok(Running { stack, queues, since, sysctl_text, log_len: 0, counters: Vec::new() })
    }

    /// Lets everything happen that is due or has become possible.
    pub(crate) fn settle<'a>(&'a self, mut world: Locked<'a>) -> Locked<'a> {
        while world.driving {
            world = self.wait(&self.tried, world);
        }
        world.driving = true;
        self.refresh(&mut world);
        world.run();
        loop {
            let waiting = world.waiting;
            if waiting == 0 {
                break;
            }
            world.round += 1;
            world.untried = waiting;
            self.next_round.notify_all();
            while world.untried > 0 {
                world = self.wait(&self.tried, world);
            }
            world.run();
            if world.waiting == waiting {
                break;
            }
        }
        self.publish(&mut world);
        world.driving = false;
        self.tried.notify_all();
        world
    }

    /// Does `attempt` until it has a result, which is what a blocking call does, or the time is over: `None`. `until` is a moment of virtual time.
    /// On the thread of the script, and nowhere else, it advances the clock, by the longest wait at most.
    pub(crate) fn block<'a, T>(
        &'a self,
        mut world: Locked<'a>,
        until: Option<Duration>,
        mut attempt: impl FnMut(&mut World) -> Option<T>,
    ) -> (Locked<'a>, Option<T>) {
        if let Some(done) = attempt(&mut world) {
            return (self.settle(world), Some(done));
        }
        if until.is_some_and(|until| until <= world.now) {
            return (self.settle(world), None);
        }
        world = self.settle(world);
        if let Some(done) = attempt(&mut world) {
            return (self.settle(world), Some(done));
        }
        if thread::current().id() == self.main {
            return self.block_main(world, until, attempt);
        }
        world.waiting += 1;
        world.serial += 1;
        let serial = world.serial;
        if let Some(until) = until {
            let _ = world.deadlines.insert(serial, until);
        }
        loop {
            let round = world.round;
            while world.round == round {
                world = self.wait(&self.next_round, world);
            }
            let done = attempt(&mut world);
            let is_over = done.is_some() || until.is_some_and(|until| until <= world.now);
            world.untried -= 1;
            if is_over {
                world.waiting -= 1;
                let _ = world.deadlines.remove(&serial);
                world.untold += 1;
                world.ended.extend(std::fs::read_link("/proc/thread-self"));
                ENDED_AT.set(Some(world.now));
            }
            self.tried.notify_all();
            if is_over {
                return (world, done);
            }
        }
    }

    fn block_main<'a, T>(
        &'a self,
        mut world: Locked<'a>,
        until: Option<Duration>,
        mut attempt: impl FnMut(&mut World) -> Option<T>,
    ) -> (Locked<'a>, Option<T>) {
        let limit = until.unwrap_or(world.now + self.flags.receive_max);
        loop {
            let at = world.due().filter(|at| *at <= limit);
            world = self.advance(world, at.unwrap_or(limit));
            let done = attempt(&mut world);
            if done.is_some() || at.is_none() {
                return (self.settle(world), done);
            }
        }
    }

    /// Advances the clock to `to`, with everything that becomes due on the way at its own time.
    fn advance<'a>(&'a self, mut world: Locked<'a>, to: Duration) -> Locked<'a> {
        while let Some(at) = world.due().filter(|at| *at <= to) {
            world.now = world.now.max(at);
            world = self.settle(world);
            if world.due().is_some_and(|due| due <= world.now) {
                // Whatever is due now has run: it is wanted later.
                world.now += TICK;
            }
        }
        world.now = world.now.max(to);
        self.settle(world)
    }

    /// `usleep`.
    pub(crate) fn sleep(&self, time: Duration) {
        let world = self.lock();
        let to = world.now + time;
        let world = self.told(world);
        let world = self.advance(world, to);
        drop(self.told(world));
    }

    /// Waits until the threads whose calls have ended have asked for the time and sleep again. In real time, and not for ever: a caller that never asks
    /// gets on.
    fn told<'a>(&'a self, mut world: Locked<'a>) -> Locked<'a> {
        let until = Instant::now() + TOLD_MAX;
        while world.untold > 0 {
            let waited = self.tried.wait_timeout(world, TOLD_MAX);
            let is_over;
            (world, is_over) = waited.unwrap_or_else(PoisonError::into_inner);
            if is_over.timed_out() {
                world.untold = 0;
            }
        }
        let ended = std::mem::take(&mut world.ended);
        if ended.is_empty() {
            return world;
        }
        // They may ask for the time once more.
        drop(world);
        for thread in ended {
            while !is_asleep(&thread) && Instant::now() < until {
                thread::yield_now();
            }
        }
        self.lock()
    }

    /// `gettimeofday`.
    pub(crate) fn time(&self) -> Duration {
        let mut world = self.lock();
        if let Some(ended_at) = ENDED_AT.take() {
            world.untold = world.untold.saturating_sub(1);
            self.tried.notify_all();
            return EPOCH + ended_at;
        }
        world.now += TICK;
        let now = world.now;
        if world.due().is_some_and(|at| at <= now) {
            drop(self.settle(world));
        }
        EPOCH + now
    }

    /// Gives the stack a packet.
    pub(crate) fn inject(&self, packet: Vec<u8>) {
        let world = self.lock();
        if let Some(running) = &world.running {
            running.queues.inject(packet);
        }
        drop(self.settle(world));
    }

    /// The next packet of the stack and its time. Advances the clock until there is one; `None` if none comes.
    pub(crate) fn receive(&self) -> Option<(Duration, Vec<u8>)> {
        let mut world = self.lock();
        let limit = world.now + self.flags.receive_max;
        loop {
            world.collect();
            if let Some((at, packet)) = world.sent.pop_front() {
                return Some((EPOCH + at, packet));
            }
            world = self.told(world);
            if world.sent_count() > 0 {
                continue;
            }
            let at = world.due().filter(|at| *at <= limit)?;
            world = self.advance(world, at);
        }
    }

    /// Takes a file out of the table. It is dropped with no lock held but the world's.
    pub(crate) fn close(&self, fd: RawFd) -> Call<()> {
        let mut world = self.lock();
        let file = world.files.remove(fd)?;
        drop(file);
        drop(self.settle(world));
        Ok(())
    }

    /// Drops everything.
    pub(crate) fn clear(&self) {
        let mut world = self.lock();
        world.files = Files::default();
        world.running = None;
    }

    fn wait<'a>(&self, condition: &Condvar, world: Locked<'a>) -> Locked<'a> {
        condition.wait(world).unwrap_or_else(PoisonError::into_inner)
    }
}

impl Running {
    /// Kernel settings have changed.
    fn change(&mut self, config: &Config, text: String) -> std::io::Result<()> {
        if let Some(keys) =
            config.tcp.fastopen_key.filter(|keys| self.stack.tcp_config().fastopen_key != Some(*keys))
        {
            self.stack.set_fastopen_keys(keys);
        }
        self.stack.set_tcp_config(config.tcp)?;
        if sysctl::flush_count(&text) > sysctl::flush_count(&self.sysctl_text) {
            self.stack.clear_fastopen_cache();
        }
        self.sysctl_text = text;
        Ok(())
    }
}

impl World {
    /// Runs the stack until nothing is due.
    fn run(&mut self) {
        let Some(running) = &self.running else { return };
        let now = self.now - running.since;
        let mut next = running.stack.poll(now);
        for _ in 0..RUNS_MAX {
            if next.is_none_or(|next| next > now) {
                break;
            }
            next = running.stack.poll(now);
        }
        self.next = next.map(|next| next + running.since);
        self.collect();
    }

    /// Gives what was sent its time.
    fn collect(&mut self) {
        if let Some(running) = &self.running {
            let now = self.now;
            self.sent.extend(running.queues.take_sent().into_iter().map(|packet| (now, packet)));
        }
    }

    /// When something is to happen next: a timer of the stack, or the end of a call's time.
    fn due(&self) -> Option<Duration> {
        self.next.into_iter().chain(self.deadlines.values().copied()).min()
    }

    /// How many packets were sent and not taken yet.
    pub fn sent_count(&mut self) -> usize {
        self.collect();
        self.sent.len()
    }

    /// When the stack was made.
    pub fn since(&self) -> Duration {
        self.running.as_ref().map_or(self.now, |running| running.since)
    }

    /// The file of a descriptor.
    pub fn file(&mut self, fd: RawFd) -> Call<&mut File> {
        self.files.get(fd)
    }
}

/// Whether a thread sleeps in the kernel, or is gone.
fn is_asleep(thread: &Path) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(thread).join("stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('S'))
}

/// Says why the stack cannot be as it was asked to be.
fn refused(why: String) -> Errno {
    eprintln!("sockeye: {why}");
    Errno(libc::EINVAL)
}
