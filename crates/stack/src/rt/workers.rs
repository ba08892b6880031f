//! Workers: the threads that turn timers and take over protocol work that no other thread finished.
//!
//! A *lane* is the part of one worker: a timer wheel, and the work that was handed to it, which a layer above keeps
//! ([`Duties`]). With `Config::workers = 0` there is one lane and no thread; `Stack::poll` turns it.
//!
//! # Entries that do not count
//! A wheel keeps the calls of what has ended until their time has come, which is hours for a keepalive. When it has [`PURGE_MIN`] entries, or twice
//! those that counted the last time, the lane's next turn takes all out, asks for each whether it counts ([`Duties::counts`]) with no lock held, and puts those
//! back. A call that is asked for meanwhile goes into the wheel as ever. An entry is in the wheel only after its owner is in its table and has noted
//! the time, so none that counts is taken for one that does not.
//!
//! # Sleeping
//! A worker announces that it will sleep (`prepare`), then looks at its wheel and its queue, and only then sleeps, until the wheel's
//! next deadline. A thread that brings work first puts it there and then looks whether the worker has announced. Either the worker
//! sees the work, or the bringer sees the announcement and wakes it (the store-buffering argument of `sockeye_sync::Sleeper`). A timer
//! that is later than the deadline the worker sleeps towards needs no wake; that deadline is kept under the wheel's mutex, so it
//! cannot be misjudged. An idle stack's workers sleep without a deadline. (A setting's additions are in `rt/discipline.rs`, by the
//! same rule: its work is there before the worker is looked at.)
//!
//! # Without threads
//! The driver, which calls `Stack::poll`, learns from the result when to call again, and may be doing something else when an application's call
//! makes that too late. `sleeps_until` is then the last time that it got ([`Workers::schedule`] writes it, and looks at the queue *afterwards*). A
//! thread that arms an earlier timer, or hands over a connection, looks at `sleeps_until` under the same mutex *afterwards*, and sets it to 0.
//! So of the two that come together one sees the other, and the driver's hook ([`Workers::set_driver`]) is owed one call for each answer that
//! was overtaken. What is neither a timer nor work of the queue, such as a new interface, is noted under that mutex (`is_asked`), too: a driver that has come
//! before it finds the note when it gets its result.
//!
//! The hook is the application's, and a timer may be armed under a lock. So the call is only noted in `driver_owed` there,
//! and made by [`Workers::tell_driver`], which every thread that may have noted it runs after its last lock is released:
//! the end of each call into the stack, and the few places that arm a timer outside of one. No call is lost: a thread that notes
//! one looks at the note afterwards, and finds it unless another thread has taken it, which then makes the call.

use std::time::{Duration, Instant as StdInstant};

use sockeye_proto::time::Instant;
use sockeye_sync::facade::{Arc, AtomicBool, Ordering};
use sockeye_sync::{Mutex, Sleeper, Spin};

use crate::rt::counter;
use crate::rt::discipline::{Chosen, Discipline};
use crate::rt::env::Env;
use crate::rt::failpoints::{self, Point};
use crate::rt::panics::{self, PanicSource};
use crate::rt::threads::{self, Role};
use crate::rt::timers::{Entry, TimerKey, Wheel};

/// All lanes of a stack.
pub(crate) struct Workers {
    lanes: Box<[Lane]>,
    stop: AtomicBool,
    /// Whether each lane has a worker of its own.
    has_threads: bool,
    /// Asks the driver of a stack without threads to call earlier than agreed. The mutex is a leaf; the hook is called and
    /// dropped outside of it.
    driver: Mutex<Option<Arc<Driver>>>,
    /// (a) The driver's hook is to be called. Only in a stack without threads.
    driver_owed: AtomicBool,
}

/// See [`Workers::set_driver`].
pub(crate) type Driver = Box<dyn Fn() + Send + Sync>;

struct Lane {
    clockwork: Mutex<Clockwork>,
    sleeper: Sleeper,
}

struct Clockwork {
    wheel: Wheel,
    /// The deadline towards which the worker sleeps; 0 while it is awake, as it will look by itself.
    sleeps_until: u64,
    /// Entries from which on those that do not count are taken out.
    purge_at: usize,
    /// The driver of a stack without threads is to look again since it came: see [`Workers::ask_driver`].
    is_asked: bool,
}

/// The least of [`Clockwork::purge_at`].
const PURGE_MIN: usize = 1 << 16;

impl Clockwork {
    fn new(now: u64) -> Self {
        Self { wheel: Wheel::new(now), sleeps_until: 0, purge_at: PURGE_MIN, is_asked: false }
    }

    fn is_crowded(&self) -> bool {
        self.wheel.len() >= self.purge_at
    }
}

/// The work of workers, which the layers above provide.
pub(crate) trait Duties {
    /// The work handed to a lane.
    type Work;

    fn env(&self) -> &Env;

    /// Whether something was handed to a lane.
    fn has_work(&self, lane: usize) -> bool;

    /// Takes the work handed to a lane.
    fn take_work(&self, lane: usize) -> Self::Work;

    /// Does it. Panics are contained, for each item by itself.
    fn work(&self, work: Self::Work);

    /// The wheel has called.
    fn fire(&self, entry: Entry);

    /// Whether a call would be for something that is there, and at the time that it has asked for last. Called with no lock held.
    fn counts(&self, entry: &Entry) -> bool;

    /// So many entries were taken out because they did not count.
    fn purged(&self, entries: usize);

    /// After a wheel was lost: calls `ask` for each call that may have been on it, with its time if that is known.
    fn each_timer(&self, ask: impl FnMut(Option<u64>, TimerKey));
}

impl Workers {
    pub fn new(threads: usize, now: Instant) -> Self {
        let lane =
            |_| Lane { clockwork: Mutex::new(Clockwork::new(now.as_micros())), sleeper: Sleeper::new() };
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

    /// The lane that looks after `pick`.
    #[inline]
    pub fn lane_of(&self, pick: u64) -> usize {
        (pick % self.lanes.len() as u64) as usize
    }

    fn lane(&self, pick: u64) -> &Lane {
        &self.lanes[self.lane_of(pick)]
    }

    /// Asks for a call at `at` microseconds, on `cpu`, whose own wheel is taken where there may be many calls. Outside of a
    /// call's outbox the caller looks with [`tell_driver`](Self::tell_driver) afterwards.
    pub fn arm(&self, cpu: u32, at: u64, key: TimerKey) {
        let pick = match key {
            TimerKey::Conn { .. } | TimerKey::Shard { .. } | TimerKey::Flow { .. } => u64::from(cpu),
            TimerKey::Link { netif } | TimerKey::Frames { netif, .. } => u64::from(netif),
            TimerKey::Memory | TimerKey::Prune | TimerKey::Fragments => 0,
            #[cfg(feature = "experiments")]
            TimerKey::RemoteSweep => 0,
        };
        let lane = self.lane(pick);
        let mut clockwork = lane.clockwork.lock();
        if matches!(key, TimerKey::Conn { .. }) {
            failpoints::hit(Point::Arm, 0);
        }
        clockwork.wheel.insert(Entry { at, key });
        let is_crowded = clockwork.is_crowded() && clockwork.sleeps_until != 0;
        let sleeps_too_long = at < clockwork.sleeps_until || is_crowded;
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
    pub fn set_driver(&self, env: &Env, driver: Option<Driver>) {
        let before = std::mem::replace(&mut *self.driver.lock(), driver.map(Arc::new));
        panics::release(env, PanicSource::Hook, "drop of a driver's hook", before);
    }

    /// [`set_driver`](Self::set_driver), if there is none.
    ///
    /// # Errors
    /// There is one. `driver` is dropped after the lock.
    #[cfg(all(feature = "tokio", unix))]
    pub fn take_driver(&self, driver: Driver) -> Result<(), Driver> {
        let mut current = self.driver.lock();
        if current.is_some() {
            return Err(driver);
        }
        *current = Some(Arc::new(driver));
        Ok(())
    }

    /// Has the driver of a stack without threads call soon: at the next result's time, if it is here and may have looked already. With no lock held.
    pub fn ask_driver(&self, env: &Env) {
        if !self.has_threads {
            for lane in &self.lanes {
                lane.clockwork.lock().is_asked = true;
                self.owe_driver(lane);
            }
            self.tell_driver(env);
        }
    }

    /// The driver has called: until the next result it looks by itself.
    pub fn driver_came(&self) {
        for lane in &self.lanes {
            let mut clockwork = lane.clockwork.lock();
            (clockwork.sleeps_until, clockwork.is_asked) = (0, false);
        }
    }

    /// The driver, which has come at `now`, is to call again at `next`; returns the time to give to it.
    pub fn schedule(
        &self,
        duties: &impl Duties,
        index: usize,
        next: Option<Instant>,
        now: Instant,
    ) -> Option<Instant> {
        let lane = &self.lanes[index];
        // Since `next` was looked up a thread may have armed an earlier one, found 0 here and woken no worker.
        let mut clockwork = lane.clockwork.lock();
        let next = next.into_iter().chain(clockwork.wheel.next().map(Instant::from_micros)).min();
        clockwork.sleeps_until = next.map_or(u64::MAX, Instant::as_micros);
        let is_asked = clockwork.is_asked;
        drop(clockwork);
        // A time that has been says "at once". The clock itself may have gone on.
        if is_asked || duties.has_work(index) { Some(now) } else { next }
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
    pub fn tell_driver(&self, env: &Env) {
        if !self.has_threads && self.driver_owed.load(Ordering::Relaxed) {
            self.call_driver(env);
        }
    }

    #[cold]
    fn call_driver(&self, env: &Env) {
        if !self.driver_owed.swap(false, Ordering::Acquire) {
            return;
        }
        let driver = self.driver.lock().clone();
        if let Some(driver) = driver {
            panics::contain(env, PanicSource::Hook, "a driver's hook", &*driver);
            // It may have been replaced meanwhile; then this is its last reference.
            panics::release(env, PanicSource::Hook, "drop of a driver's hook", driver);
        }
    }

    /// Something was [handed](Duties::has_work) to a lane. True if the worker was asleep and has been woken.
    pub fn call(&self, env: &Env, index: usize) -> bool {
        let Some(lane) = self.lanes.get(index) else { return false };
        if !self.has_threads {
            self.owe_driver(lane);
            return false;
        }
        let woken = lane.sleeper.wake_if_sleeping();
        if woken {
            env.count(counter::WORKER_WAKES);
        }
        woken
    }

    /// Something was handed to a lane that can wait. True if the worker was asleep and has been woken.
    pub fn leave_to(&self, env: &Env, index: usize) -> bool {
        Chosen::wakes_for_left_work(env) && self.call(env, index)
    }

    /// Wakes the worker of a lane that has [work of a setting](Discipline::has_work).
    #[cfg(feature = "experiments")]
    pub fn wake(&self, index: usize) {
        self.lanes[index].sleeper.wake_if_sleeping();
    }

    /// Ends the threads.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        for lane in &self.lanes {
            lane.sleeper.wake_if_sleeping();
        }
    }

    /// A worker thread's life.
    pub fn run(&self, duties: &impl Duties, index: usize) {
        let env = duties.env();
        let lane = &self.lanes[index];
        let mut due = Vec::new();
        threads::enter(Role::Worker);
        loop {
            // Each item of a turn is contained by itself: this is for the code around them.
            panics::contain(env, PanicSource::Protocol, "a worker's turn", || {
                self.turn(duties, index, &mut due);
                Chosen::before_sleep(env, index);
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
            if !duties.has_work(index) && !Chosen::has_work(env, index) {
                env.count(counter::WORKER_SLEEPS);
                let until = deadline.and_then(|at| env.clock.to_std(Instant::from_micros(at)));
                ticket.sleep(Chosen::sleeps_until(env, until), Spin::OFF);
            } else {
                ticket.cancel();
            }
            lane.clockwork.lock().sleeps_until = 0;
        }
    }

    /// Does the due work of one lane; returns when the next timer is.
    pub fn turn<D: Duties>(&self, duties: &D, index: usize, due: &mut Vec<Entry>) -> Option<Instant> {
        let (env, lane) = (duties.env(), &self.lanes[index]);
        let handed = duties.take_work(index);
        let now = env.clock.now().as_micros();
        let advanced = panics::catch(PanicSource::Protocol, "the timer wheel", || {
            let mut clockwork = lane.clockwork.lock();
            clockwork.wheel.advance(now, due);
            clockwork.is_crowded()
        });
        match advanced {
            Ok(false) => {}
            Ok(true) => Self::purge(duties, lane),
            Err(caught) => {
                self.begin_anew(duties, lane, due);
                caught.report(env);
            }
        }
        Chosen::turn(env, index);
        duties.work(handed);
        for entry in due.drain(..) {
            panics::contain(env, PanicSource::Protocol, "a timer", || duties.fire(entry));
        }
        // Asked for last: the work just done has set timers of its own, and may have handed over more.
        if duties.has_work(index) {
            return Some(env.clock.now());
        }
        lane.clockwork.lock().wheel.next().map(Instant::from_micros)
    }

    /// Takes the entries that do not count out of a lane's wheel: see the module's head.
    #[cold]
    fn purge(duties: &impl Duties, lane: &Lane) {
        let mut entries = lane.clockwork.lock().wheel.take_all();
        let before = entries.len();
        // After a panic those that were not asked about are still there.
        panics::contain(duties.env(), PanicSource::Protocol, "a look through the timers", || {
            entries.retain(|entry| duties.counts(entry));
        });
        duties.purged(before - entries.len());
        let mut clockwork = lane.clockwork.lock();
        clockwork.purge_at = PURGE_MIN.max(entries.len() * 2);
        entries.into_iter().for_each(|entry| clockwork.wheel.insert(entry));
    }

    /// The wheel of a lane has panicked and may have lost calls. A new one takes its place: connections say when they are to be called, and
    /// all others are called now and ask again. Calls for nothing do no harm.
    #[cold]
    fn begin_anew(&self, duties: &impl Duties, lane: &Lane, due: &mut Vec<Entry>) {
        let env = duties.env();
        let now = env.clock.now().as_micros();
        let lost = std::mem::replace(&mut lane.clockwork.lock().wheel, Wheel::new(now));
        panics::contain(env, PanicSource::Protocol, "the timer wheel", || drop(lost));
        duties.each_timer(|at, key| match at {
            Some(at) => lane.clockwork.lock().wheel.insert(Entry { at, key }),
            None => due.push(Entry { at: now, key }),
        });
    }

    /// After the threads have ended: runs the work that was handed to them and not done. A connection in the
    /// queue of a shared squeue keeps that squeue, which keeps the queue: neither would ever be freed.
    pub fn finish(&self, duties: &impl Duties) {
        let mut due = Vec::new();
        let lanes = || 0..self.lanes.len();
        for _ in 0..FINISH_TURNS_MAX {
            if !lanes().any(|index| duties.has_work(index)) {
                return;
            }
            for index in lanes() {
                self.turn(duties, index, &mut due);
            }
        }
    }
}

/// Turns of each lane at the end of a stack: work that makes work ends in a few.
const FINISH_TURNS_MAX: usize = 1000;

/// How long a caller may sleep for a deadline of the system's clock.
pub(crate) fn deadline_after(timeout: Option<Duration>) -> Option<StdInstant> {
    timeout.and_then(|t| StdInstant::now().checked_add(t))
}
