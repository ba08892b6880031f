//! Workers: the threads that turn timers and take over protocol work nobody else finished.
//!
//! A *lane* is what one worker looks after: a timer wheel and a queue of perimeters that were handed
//! over. With `Config::workers = 0` there is one lane and no thread; `Stack::poll` turns it.
//!
//! # Sleeping
//! A worker announces that it will sleep (`prepare`), then looks at its wheel and its queue, and only
//! then sleeps, until the wheel's next deadline. Whoever brings work first puts it there and then
//! looks whether the worker has announced. Either the worker sees the work, or the bringer sees the
//! announcement and wakes it (the store-buffering argument of `sockeye_sync::Sleeper`). A timer that
//! is later than the deadline the worker sleeps towards needs no wake; that deadline is kept under
//! the wheel's mutex, so it cannot be misjudged. An idle stack's workers sleep without a deadline, except with
//! `Wake::Delayed`: then perimeters are left to workers without waking them, and they look every [`LOOK_INTERVAL`].
//!
//! # Without threads
//! Whoever calls `Stack::poll` is told when to call again, and may be doing something else when an application's call
//! makes that too late. `sleeps_until` is then what he was last told ([`Workers::told`] writes it, and looks at the queue
//! *afterwards*). Whoever arms an earlier timer, or puts a perimeter into the queue, looks at `sleeps_until` under the
//! same mutex *afterwards*, and sets it to 0. So of the two that come together one sees the other, and the driver's hook
//! ([`Workers::set_driver`]) is owed one call for each answer that was overtaken.
//!
//! The hook is the application's, and a timer may be armed under a lock. So the call is only noted in `driver_owed` there,
//! and made by [`Workers::tell_driver`], which every thread that may have noted it runs after its last lock is released:
//! the end of each [`Context`], and the few places that arm a timer outside of one. No call is lost: a thread that notes
//! one looks at the note afterwards, and finds it unless another thread has taken it, which then makes the call.

use std::time::{Duration, Instant as StdInstant};

use sockeye_proto::time::Instant;
use sockeye_sync::facade::{Arc, AtomicBool, Ordering};
use sockeye_sync::{Mutex, RunQueue, Sleeper, Spin};

use crate::inet::netif::departures;
use crate::rt::failpoints::{self, Point};
use crate::rt::panics::{self, PanicSource};
use crate::rt::threads::{self, Role};
use crate::rt::timers::{Entry, TimerKey, Wheel};
use crate::stack::{Core, counter};
use crate::switches::Wake;
use crate::tcp::conn::outbox::Context;
use crate::tcp::conn::{Conn, engine, reason, serve};
use crate::tcp::tables::demux::SHARDS;

/// All lanes of a stack.
pub(crate) struct Workers {
    lanes: Box<[Lane]>,
    stop: AtomicBool,
    /// Whether each lane has a worker of its own.
    has_threads: bool,
    /// Tells the driver of a stack without threads that it is wanted earlier than it was told. The mutex is a leaf; the hook
    /// is called and dropped outside of it.
    driver: Mutex<Option<Arc<Driver>>>,
    /// (a) The driver's hook is to be called. Only in a stack without threads.
    driver_owed: AtomicBool,
}

/// See [`Workers::set_driver`].
pub(crate) type Driver = Box<dyn Fn() + Send + Sync>;

struct Lane {
    clockwork: Mutex<Clockwork>,
    queue: RunQueue<Arc<Conn>>,
    /// (a) Packet memory that is parked for the lane's cores should be given back.
    flush: AtomicBool,
    sleeper: Sleeper,
}

struct Clockwork {
    wheel: Wheel,
    /// The deadline towards which the worker sleeps; 0 while it is awake, as it will look by itself.
    sleeps_until: u64,
}

impl Workers {
    pub fn new(threads: usize, now: Instant) -> Self {
        let lane = |_| Lane {
            clockwork: Mutex::new(Clockwork { wheel: Wheel::new(now.as_micros()), sleeps_until: 0 }),
            queue: RunQueue::new(),
            flush: AtomicBool::new(false),
            sleeper: Sleeper::new(),
        };
        Self {
            lanes: (0..threads.max(1)).map(lane).collect(),
            stop: AtomicBool::new(false),
            has_threads: threads > 0,
            driver: Mutex::new(None),
            driver_owed: AtomicBool::new(false),
        }
    }

    pub fn lane_count(&self) -> usize {
        self.lanes.len()
    }

    fn lane(&self, pick: u64) -> &Lane {
        &self.lanes[(pick % self.lanes.len() as u64) as usize]
    }

    /// Asks for a call at `at` microseconds, on `cpu`, whose own wheel is taken where there may be many calls. Outside of a
    /// [`Context`] the caller looks with [`tell_driver`](Self::tell_driver) afterwards.
    pub fn arm(&self, cpu: u32, at: u64, key: TimerKey) {
        let pick = match key {
            TimerKey::Conn { .. } | TimerKey::Shard { .. } => u64::from(cpu),
            TimerKey::Link(id) => id.index() as u64,
            TimerKey::Frames(exit) => exit.netif.index() as u64,
            TimerKey::Memory | TimerKey::Prune | TimerKey::Parked | TimerKey::Fragments => 0,
        };
        let lane = self.lane(pick);
        let mut clockwork = lane.clockwork.lock();
        if matches!(key, TimerKey::Conn { .. }) {
            failpoints::hit(Point::Arm, 0);
        }
        clockwork.wheel.insert(Entry { at, key });
        let sleeps_too_long = at < clockwork.sleeps_until;
        drop(clockwork);
        if sleeps_too_long {
            if self.has_threads {
                lane.sleeper.wake_if_sleeping();
            } else {
                self.owe_driver(lane);
            }
        }
    }

    /// Has `driver` called when `Stack::poll` is wanted earlier than its last answer said.
    pub fn set_driver(&self, core: &Core, driver: Option<Driver>) {
        let before = std::mem::replace(&mut *self.driver.lock(), driver.map(Arc::new));
        panics::release(core, PanicSource::Hook, "drop of a driver's hook", before);
    }

    /// The driver has come: until he is told anew, he looks by himself.
    pub fn driver_came(&self) {
        for lane in &self.lanes {
            lane.clockwork.lock().sleeps_until = 0;
        }
    }

    /// The driver is about to be told to call again at `next`; returns what to tell him.
    pub fn told(&self, core: &Core, index: usize, next: Option<Instant>) -> Option<Instant> {
        let lane = &self.lanes[index];
        // Since `next` was looked up somebody may have armed an earlier one, who found 0 here and told nobody.
        let mut clockwork = lane.clockwork.lock();
        let next = next.into_iter().chain(clockwork.wheel.next().map(Instant::from_micros)).min();
        clockwork.sleeps_until = next.map_or(u64::MAX, Instant::as_micros);
        drop(clockwork);
        if lane.queue.is_empty() { next } else { Some(core.clock.now()) }
    }

    /// Notes that the driver is wanted, unless that was noted since its last answer.
    #[cold]
    fn owe_driver(&self, lane: &Lane) {
        if std::mem::take(&mut lane.clockwork.lock().sleeps_until) != 0 {
            // Release, with the acquire in `tell_driver`.
            self.driver_owed.store(true, Ordering::Release);
        }
    }

    /// Calls the driver's hook if that was noted. With no lock held: the hook is foreign and may call the stack.
    #[inline]
    pub fn tell_driver(&self, core: &Core) {
        if !self.has_threads && self.driver_owed.load(Ordering::Relaxed) {
            self.call_driver(core);
        }
    }

    #[cold]
    fn call_driver(&self, core: &Core) {
        if !self.driver_owed.swap(false, Ordering::Acquire) {
            return;
        }
        let driver = self.driver.lock().clone();
        if let Some(driver) = driver {
            panics::contain(core, PanicSource::Hook, "a driver's hook", &*driver);
            // It may have been replaced meanwhile; then this is its last reference.
            panics::release(core, PanicSource::Hook, "drop of a driver's hook", driver);
        }
    }

    /// Brings a perimeter that was filled to its worker, as a message that does not wait.
    pub fn call(&self, core: &Core, conn: &Arc<Conn>) {
        let lane = self.lane(conn.hash);
        lane.queue.push(Arc::clone(conn));
        if !self.has_threads {
            self.owe_driver(lane);
        } else if lane.sleeper.wake_if_sleeping() {
            core.count(counter::WORKER_WAKES);
        }
    }

    /// Takes over a perimeter that was left with items in its queue; when, `Config::wake` says.
    pub fn leave_to(&self, core: &Core, conn: &Arc<Conn>) {
        match core.config.wake {
            // Nobody looks by himself where there is no worker.
            Wake::Delayed if self.has_threads => {
                self.lane(conn.hash).queue.push(Arc::clone(conn));
            }
            Wake::Delayed | Wake::Immediate | Wake::Elide => self.call(core, conn),
        }
    }

    /// The list of buffers parked for a core is half full: whoever looks after the core empties it.
    pub fn kick(&self, of: usize) {
        let lane = self.lane(of as u64);
        lane.flush.store(true, Ordering::Release);
        lane.sleeper.wake_if_sleeping();
    }

    /// Ends the threads.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        for lane in &self.lanes {
            lane.sleeper.wake_if_sleeping();
        }
    }

    /// A worker thread's life.
    pub fn run(&self, core: &Core, index: usize) {
        let lane = &self.lanes[index];
        let mut due = Vec::new();
        threads::enter(Role::Worker);
        loop {
            // Each item of a turn is contained by itself: this is for what is around them.
            panics::contain(core, PanicSource::Protocol, "a worker's turn", || {
                self.turn(core, index, &mut due);
                core.recycler.flush_lane(core, index);
            });
            let ticket = lane.sleeper.prepare_sleep();
            let deadline = {
                let mut clockwork = lane.clockwork.lock();
                let next = clockwork.wheel.next();
                clockwork.sleeps_until = next.unwrap_or(u64::MAX);
                next
            };
            if self.stop.load(Ordering::Acquire) {
                ticket.cancel();
                return;
            }
            if lane.queue.is_empty() && !lane.flush.load(Ordering::Acquire) {
                core.count(counter::WORKER_SLEEPS);
                let until = deadline.and_then(|at| core.clock.to_std(Instant::from_micros(at)));
                ticket.sleep(sooner(core, until), Spin::OFF);
            } else {
                ticket.cancel();
            }
            lane.clockwork.lock().sleeps_until = 0;
        }
    }

    /// Does what is due in one lane; returns when the next timer is.
    pub fn turn(&self, core: &Core, index: usize, due: &mut Vec<Entry>) -> Option<Instant> {
        let lane = &self.lanes[index];
        let handed: Vec<Arc<Conn>> = lane.queue.take_all().collect();
        let now = core.clock.now().as_micros();
        let advanced = panics::catch(PanicSource::Protocol, "the timer wheel", || {
            lane.clockwork.lock().wheel.advance(now, due);
        });
        if let Err(caught) = advanced {
            self.begin_anew(core, lane, due);
            caught.report(core);
        }
        if lane.flush.load(Ordering::Relaxed) && lane.flush.swap(false, Ordering::Acquire) {
            core.recycler.flush_lane(core, index);
        }
        for conn in handed {
            panics::contain(core, PanicSource::Protocol, "a connection left to a worker", || {
                Context::run_as_worker(core, |cx| serve::take_over(cx, &conn));
            });
        }
        for entry in due.drain(..) {
            panics::contain(core, PanicSource::Protocol, "a timer", || fire(core, entry));
        }
        // Asked for last: what was just done has set timers of its own, and may have handed over more.
        if !lane.queue.is_empty() {
            return Some(core.clock.now());
        }
        lane.clockwork.lock().wheel.next().map(Instant::from_micros)
    }

    /// The wheel of a lane has panicked and may have lost calls. A new one takes its place: connections say when they are to be called, and
    /// everybody else is called now and asks again. Calls for nothing do no harm.
    #[cold]
    fn begin_anew(&self, core: &Core, lane: &Lane, due: &mut Vec<Entry>) {
        let now = core.clock.now().as_micros();
        let lost = std::mem::replace(&mut lane.clockwork.lock().wheel, Wheel::new(now));
        panics::contain(core, PanicSource::Protocol, "the timer wheel", || drop(lost));
        let mut conns: Vec<Arc<Conn>> = Vec::new();
        core.demux.each_shard(|shard| conns.extend(shard.conns().cloned()));
        for conn in conns {
            let at = conn.timer_at.load(Ordering::Relaxed);
            if at != 0 {
                let key = TimerKey::Conn { hash: conn.hash, serial: conn.serial as u32 };
                lane.clockwork.lock().wheel.insert(Entry { at, key });
            }
        }
        let shards = (0..SHARDS).map(|index| TimerKey::Shard { index });
        let links = core.netifs.each().map(|(id, _)| TimerKey::Link(id));
        let others = [TimerKey::Memory, TimerKey::Prune, TimerKey::Parked, TimerKey::Fragments];
        due.extend(shards.chain(links).chain(others).map(|key| Entry { at: now, key }));
    }

    /// After the threads have ended: runs what was handed to them and not done. A connection in the queue of a
    /// shared perimeter keeps that perimeter, which keeps the queue: neither would ever be freed.
    pub fn finish(&self, core: &Core) {
        let mut due = Vec::new();
        for _ in 0..FINISH_TURNS_MAX {
            if self.lanes.iter().all(|lane| lane.queue.is_empty()) {
                return;
            }
            for index in 0..self.lanes.len() {
                self.turn(core, index, &mut due);
            }
        }
    }
}

/// Turns of each lane at the end of a stack: work that makes work ends in a few.
const FINISH_TURNS_MAX: usize = 1000;

/// When a worker wakes by itself: at its wheel's deadline, or to look for what was left without waking it.
fn sooner(core: &Core, deadline: Option<StdInstant>) -> Option<StdInstant> {
    match core.config.wake {
        Wake::Delayed => deadline.into_iter().chain(StdInstant::now().checked_add(LOOK_INTERVAL)).min(),
        Wake::Immediate | Wake::Elide => deadline,
    }
}

/// How often a worker looks for perimeters that were left to it without waking it (`Wake::Delayed`): the
/// longest delay of what is in them. 10 ms as illumos had it.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// One call of the wheel.
fn fire(core: &Core, entry: Entry) {
    match entry.key {
        TimerKey::Conn { hash, serial } => {
            let Some(conn) = core.demux.find(hash, |conn| conn.serial as u32 == serial) else {
                return;
            };
            // An entry that was overtaken by an earlier one is nobody's any more.
            if conn.timer_at.load(Ordering::Relaxed) == entry.at {
                core.count(counter::TIMERS_FIRED);
                Context::run_as_worker(core, |cx| engine::notify(cx, &conn, reason::TIMER));
            }
        }
        TimerKey::Shard { index } => {
            Context::run_as_worker(core, |cx| crate::tcp::tables::demux::on_timer(cx, index));
        }
        TimerKey::Memory => core.memory_waiters.on_timer(core),
        TimerKey::Prune => Context::run_as_worker(core, crate::tcp::prune::on_timer),
        TimerKey::Parked => core.recycler.sweep(core),
        TimerKey::Fragments => crate::inet::ip::fragments::on_timer(core),
        TimerKey::Frames(exit) => Context::run_as_worker(core, |cx| departures::pick_up(cx, exit)),
        TimerKey::Link(id) => Context::run_as_worker(core, |cx| crate::inet::link::on_timer(cx, id)),
    }
}

/// How long a caller may sleep for a deadline of the system's clock.
pub(crate) fn deadline_after(timeout: Option<Duration>) -> Option<StdInstant> {
    timeout.and_then(|t| StdInstant::now().checked_add(t))
}
