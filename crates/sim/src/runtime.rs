//! A runtime of tokio for each host, and one for the main program: what `tokio::spawn` and `tokio::time` use in a run with [`Sim::tokio`](crate::Sim::tokio).
//!
//! A task that a program or a library spawns goes to the runtime of the host that is running, and is dropped with it when the host crashes. All runtimes are
//! of the current-thread kind, and the run's thread takes turns with them: it enters one when a task of that host can go on, and leaves it when nothing there can. Their clock is
//! `std`'s, which is the simulation's (`machine.rs`), so tokio and the network have one clock.
//!
//! tokio does not say when a runtime has nothing to do. But it then parks its thread until its next timer. [`sockeye_entropy::arm_wait`] makes that wait wake the
//! future of [`Runtime::turn`] instead, which ends the turn, and keeps its limit: the moment at which the runtime wants another turn. A timer of tokio's fires at a whole millisecond since
//! the start of its runtime, at or after its deadline.
//!
//! Closures of `spawn_blocking` run on a thread of tokio's, one at a time, while the run's thread waits for them and the clock stands ([`Blocking`]).
//!
//! A timer may be set in a runtime that is not running: by a future that was made in the main program and is polled on a host. So the main program's runtime gets a turn before
//! a jump of the clock that passes a tick, if a host's program has run since its last one.
//!
//! Why no wake-up is lost: tokio does not say that a task was woken. A runtime is looked at when its host's stack has worked, and all are looked at before the clock jumps, unless nothing
//! happened that wakes tasks ([`Runtimes::find`]); ADR 96. Tests: `tests/tokio.rs`.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use sockeye_entropy::Scope;
use tokio::runtime::{Builder, RuntimeMetrics};

use crate::drive::Stuck;
use crate::event::{Nanos, runtime_of};
use crate::executor::Ambient;
use crate::pipe::nanos;
use crate::world::World;

/// Real time that closures of `spawn_blocking` get before the run fails: they may be waiting for the simulation, which waits for them.
const BLOCKING_MAX: Duration = if cfg!(test) { Duration::from_millis(100) } else { Duration::from_secs(120) };
/// tokio's resolution of time.
const TICK: Nanos = 1_000_000;
/// Ticks from a runtime's start to a timer that each has. With it tokio always parks until some time; a park without an end could not be ended from its own thread.
/// It is the longest that tokio's wheel of timers can tell from longer ones.
const LAST_TICK: u64 = (1 << 36) - 2;
/// Ticks to the slot of the wheel that has that timer, more than two years: tokio's limit if no other timer runs.
const LAST_SLOT: u64 = 63 << 30;

const PAUSED: &str = "tokio's clock does not follow the simulation's: a program called tokio::time::pause or advance. Time is simulated already; leave them out, and with \
     them `start_paused`";

/// Why a turn does not come to its end.
enum Endless {
    /// See [`PAUSED`].
    Paused,
    /// Its tasks go on and on at one moment.
    Restless,
}

thread_local! {
    /// The waker of the turn that this thread is in.
    static TURN: RefCell<Option<Waker>> = const { RefCell::new(None) };
    /// A runtime's clock was found not to follow the simulation's.
    static IS_PAUSED: Cell<bool> = const { Cell::new(false) };
    /// tokio has read a clock that stands still so often that the tasks of this thread's turn must be waking each other for ever.
    static IS_RESTLESS: Cell<bool> = const { Cell::new(false) };
    /// That a thread of tokio's is one of the run's.
    static SCOPE: RefCell<Option<Scope>> = const { RefCell::new(None) };
}

/// All runtimes of a run. That of the main program is the first, a host's has the number of the host plus 1.
pub(crate) struct Runtimes {
    all: RefCell<Vec<Option<Rc<Runtime>>>>,
    /// Those that may have something to do: their next timer has come, or their host's stack has worked.
    due: RefCell<VecDeque<usize>>,
    /// A program has run since all of them were last looked at; it may have woken tasks of any.
    is_unsure: Cell<bool>,
    /// A host's program has run since the main program's last turn.
    is_main_unsure: Cell<bool>,
    /// When the main program's runtime had its last turn for that.
    main_looked_at: Cell<Nanos>,
    /// Threads of [`Blocking`] in all of them.
    blocking: Arc<AtomicUsize>,
    /// Those of hosts that have crashed, until the turn that is running has ended.
    doomed: RefCell<Vec<(usize, Rc<Runtime>)>>,
    world: Arc<World>,
}

/// The thread's turn is to end. tokio reads the clock whenever it has run 61 tasks, so this comes to turns that would not end.
fn end_turn() {
    IS_RESTLESS.set(true);
    // The waker may be read or written by whoever reads the clock just now; then there is another time.
    TURN.with(|turn| {
        if let Ok(Some(waker)) = turn.try_borrow().as_deref() {
            waker.wake_by_ref();
        }
    });
}

impl Runtimes {
    pub fn new(world: Arc<World>) -> Rc<Self> {
        world.machine.on_restless(end_turn);
        Rc::new(Self {
            all: RefCell::default(),
            due: RefCell::default(),
            is_unsure: Cell::new(false),
            is_main_unsure: Cell::new(true),
            main_looked_at: Cell::new(0),
            blocking: Arc::default(),
            doomed: RefCell::default(),
            world,
        })
    }

    /// Makes the runtime for the `process`-th process of a host, in a life of the host, when its monotonic clock shows `now`. In the host's scope, whose clock it reads.
    pub fn start(&self, host: Option<usize>, now: Nanos, life: u32, process: u32) {
        let index = runtime_of(host);
        let mut seed = crate::Rng::new(self.world.seed).fork(index as u64).fork(u64::from(process));
        let runtime = Rc::new(Runtime::new(&self.world, (host, life), (now, seed.u64()), &self.blocking));
        let mut all = self.all.borrow_mut();
        if all.len() <= index {
            all.resize_with(index + 1, || None);
        }
        all[index] = Some(runtime);
    }

    pub fn get(&self, host: Option<usize>) -> Option<Rc<Runtime>> {
        self.all.borrow().get(runtime_of(host)).cloned().flatten()
    }

    /// A host has crashed: its tasks end when the running one has returned.
    pub fn doom(&self, host: usize) {
        let runtime = self.all.borrow_mut().get_mut(runtime_of(Some(host))).and_then(Option::take);
        self.doomed.borrow_mut().extend(runtime.map(|runtime| (host, runtime)));
    }

    /// A host's programs stop.
    pub fn pause(&self, host: usize) {
        if let Some(runtime) = self.get(Some(host)) {
            runtime.is_paused.set(true);
        }
    }

    /// A host's programs go on.
    pub fn resume(&self, host: usize) {
        if let Some(runtime) = self.get(Some(host)) {
            runtime.is_paused.set(false);
            self.push(runtime_of(Some(host)), &runtime);
        }
    }

    /// A host's clock goes at another rate: its runtime says anew when its next timer ends. If it is paused, once it goes on.
    pub fn clock_changed(&self, host: usize) {
        if let Some(runtime) = self.get(Some(host)) {
            self.push(runtime_of(Some(host)), &runtime);
        }
    }

    /// The runtimes of hosts that have crashed, to be dropped outside of a turn.
    pub fn take_doomed(&self) -> Vec<(usize, Rc<Runtime>)> {
        self.doomed.take()
    }

    /// A runtime's next timer has come.
    pub fn fire(&self, index: usize, now: Nanos) {
        let runtime = self.all.borrow().get(index).cloned().flatten();
        if let Some(runtime) = runtime
            && runtime.wake_at.get() == now
        {
            runtime.wake_at.set(Nanos::MAX);
            self.push(index, &runtime);
        }
    }

    /// A host's stack has worked: it may have woken tasks of the host.
    pub fn stack_worked(&self, host: usize) {
        let index = runtime_of(Some(host));
        if let Some(Some(runtime)) = self.all.borrow().get(index)
            && runtime.is_ready()
        {
            self.push(index, runtime);
        }
        // A socket of the host may be in a program of another one.
        self.look_at_all();
    }

    /// Puts a runtime among those that are due, once.
    fn push(&self, index: usize, runtime: &Runtime) {
        if !runtime.is_due.replace(true) {
            self.due.borrow_mut().push_back(index);
        }
    }

    /// A program has run, or a waker was called from elsewhere: tasks of any host may have been woken.
    pub fn look_at_all(&self) {
        self.is_unsure.set(true);
    }

    /// A host's program has run: it may have set a timer that it got from the main program.
    pub fn program_ran(&self) {
        self.is_main_unsure.set(true);
    }

    /// Whether the main program's runtime needs a turn now, before the clock jumps to `next`, to learn of its next timer. Such a timer ends at a whole
    /// tick, so it does not matter before the first tick after the last turn: that turn learned of all that were set until then.
    pub fn main_needs_turn(&self, now: Nanos, next: Option<Nanos>) -> bool {
        let until = next.unwrap_or(Nanos::MAX).saturating_sub(1);
        if !self.is_main_unsure.get() || until / TICK == self.main_looked_at.get() / TICK {
            return false;
        }
        self.is_main_unsure.set(false);
        self.main_looked_at.set(now);
        true
    }

    /// The host of a runtime that is known to have something to do.
    pub fn next(&self) -> Option<Option<usize>> {
        let all = self.all.borrow();
        let mut dues = self.due.borrow_mut();
        // A paused one is due again when it goes on; one that is gone has nothing to do.
        let is_running = |due: &usize| {
            let runtime = all.get(*due).and_then(Option::as_ref);
            runtime.is_some_and(|runtime| {
                runtime.is_due.set(false);
                !runtime.is_paused.get()
            })
        };
        let index = std::iter::from_fn(|| dues.pop_front()).find(is_running)?;
        Some(index.checked_sub(1))
    }

    /// Looks at all of them, if that was asked for. Whether one has something to do, which [`next`](Self::next) then returns.
    pub fn find(&self) -> bool {
        if !self.is_unsure.replace(false) && self.blocking.load(Ordering::Relaxed) == 0 {
            return false;
        }
        for (index, runtime) in self.all.borrow().iter().enumerate() {
            if let Some(runtime) = runtime
                && runtime.is_ready()
            {
                self.push(index, runtime);
            }
        }
        !self.due.borrow().is_empty()
    }

    /// Takes all of them, the main program's last.
    pub fn take_all(&self) -> Vec<(Option<usize>, Rc<Runtime>)> {
        let all = self.all.take();
        all.into_iter()
            .enumerate()
            .rev()
            .filter_map(|(index, one)| Some((index.checked_sub(1), one?)))
            .collect()
    }
}

/// The runtime of a host.
pub(crate) struct Runtime {
    runtime: Option<tokio::runtime::Runtime>,
    metrics: RuntimeMetrics,
    blocking: Arc<Blocking>,
    /// That of its host.
    life: u32,
    /// When it was made, by its host's monotonic clock: its timers fire at whole milliseconds from then on.
    start: Nanos,
    /// Its host is paused.
    is_paused: Cell<bool>,
    /// It is among those that are due.
    is_due: Cell<bool>,
    /// The event by which it gets its next turn; `Nanos::MAX` for none.
    wake_at: Cell<Nanos>,
}

impl Runtime {
    fn new(
        world: &Arc<World>,
        (host, life): (Option<usize>, u32),
        (start, seed): (Nanos, u64),
        threads: &Arc<AtomicUsize>,
    ) -> Self {
        let blocking = Arc::new(Blocking { all: Arc::clone(threads), ..Blocking::default() });
        let [name, begin, end] = [(); 3].map(|()| Arc::clone(&blocking));
        let [world, park] = [(); 2].map(|()| Arc::clone(world));
        // Reading a clock of tokio's or `std`'s costs more than to compute what it has to show.
        let (zero, zero_shown) = (Instant::now(), park.machine.shown());
        let mut builder = Builder::new_current_thread();
        builder
            .enable_time()
            .max_blocking_threads(1)
            .thread_keep_alive(Duration::ZERO)
            .on_thread_park(move || {
                let Some(waker) = TURN.with_borrow(Clone::clone) else { return };
                let (shown, tokios) =
                    park.machine.a_nanosecond_later(|| (park.machine.shown(), tokio::time::Instant::now()));
                if Some(tokios.into_std()) == zero.checked_add(shown.saturating_sub(zero_shown)) {
                    sockeye_entropy::arm_wait(waker);
                } else {
                    IS_PAUSED.set(true);
                    waker.wake();
                }
            })
            .on_thread_unpark(sockeye_entropy::disarm_wait)
            .thread_name_fn(move || {
                name.lock().threads += 1;
                name.all.fetch_add(1, Ordering::Relaxed);
                "sockeye-sim-blocking".to_owned()
            })
            .on_thread_start(move || begin.begin(&world, host, life))
            .on_thread_stop(move || end.end());
        #[cfg(tokio_unstable)]
        builder.rng_seed(tokio::runtime::RngSeed::from_bytes(&seed.to_le_bytes()));
        // Without that flag, tokio takes no seed.
        let _seed = seed;
        let runtime = builder.build().expect("a runtime without I/O needs nothing of the system");
        let metrics = runtime.metrics();
        runtime.spawn(async { tokio::time::sleep(Duration::from_millis(LAST_TICK)).await });
        Self {
            runtime: Some(runtime),
            metrics,
            blocking,
            life,
            start,
            is_paused: Cell::new(false),
            is_due: Cell::new(false),
            wake_at: Cell::new(Nanos::MAX),
        }
    }

    /// The life of its host that it is of.
    pub fn life(&self) -> u32 {
        self.life
    }

    /// Whether a task was woken from outside, or a closure waits for its thread.
    fn is_ready(&self) -> bool {
        !self.is_paused.get() && (self.metrics.global_queue_depth() > 0 || self.blocking.has_threads())
    }

    /// Notes the event by which it gets its next turn. Whether that is a new one.
    pub fn schedule(&self, at: Nanos) -> bool {
        self.wake_at.replace(at) != at
    }

    /// Calls `first` in it, and runs its tasks until all wait. Returns the moment of its next timer, by its host's monotonic clock.
    ///
    /// # Panics
    /// With `first`; if closures of `spawn_blocking` do not end.
    pub fn turn(&self, first: impl FnOnce()) -> Option<Nanos> {
        let runtime = self.runtime.as_ref().expect("it is there until it is dropped");
        let mut first = Some(first);
        let outer = TURN.take();
        let wait = loop {
            let wait = runtime.block_on(poll_fn(|cx| {
                if let Some(first) = first.take() {
                    first();
                }
                if IS_PAUSED.take() {
                    return Poll::Ready(Err(Endless::Paused));
                }
                if IS_RESTLESS.take() {
                    return Poll::Ready(Err(Endless::Restless));
                }
                if let Some(wait) = sockeye_entropy::take_wait() {
                    return Poll::Ready(Ok(wait));
                }
                let old = TURN.replace(Some(cx.waker().clone()));
                drop(old);
                Poll::Pending
            }));
            // The panic of a program would be caught in its task.
            let wait = match wait {
                Ok(wait) => wait,
                Err(Endless::Paused) => panic!("{PAUSED}"),
                Err(Endless::Restless) => panic!("{}", Stuck::Spinning),
            };
            if !self.blocking.run() {
                break wait;
            }
        };
        TURN.set(outer);
        let until = nanos(wait.until);
        let ticks = until.saturating_sub(self.start) / TICK;
        (ticks < LAST_SLOT).then(|| self.start.saturating_add(ticks.saturating_mul(TICK)))
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.blocking.close();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Whose turn it is: the run's thread or tokio's thread for blocking closures. The other one waits, so their order does not depend on the machine.
#[derive(Default)]
struct Blocking {
    state: Mutex<Turns>,
    moved: Condvar,
    /// Threads of all runtimes of the run. Only one thread of a run is active at a time, so a mutex orders what it counts.
    all: Arc<AtomicUsize>,
}

#[derive(Default)]
struct Turns {
    /// Threads that were started and have not ended.
    threads: usize,
    is_theirs: bool,
    /// The runtime is gone: nobody waits for them.
    is_closed: bool,
}

impl Blocking {
    /// No code that panics runs within.
    fn lock(&self) -> MutexGuard<'_, Turns> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a closure waits for its thread.
    fn has_threads(&self) -> bool {
        self.all.load(Ordering::Relaxed) > 0 && self.lock().threads > 0
    }

    /// Lets the thread run, if there is one, until it has ended.
    fn run(&self) -> bool {
        if !self.has_threads() {
            return false;
        }
        let mut state = self.lock();
        state.is_theirs = true;
        self.moved.notify_all();
        // Real time: a limit for programs that would hang for ever. It is that of one wait for a futex (`sockeye-entropy`), as `std`'s condition variable waits. Those that wait again until a
        // clock shows the limit, as `parking_lot`'s, would do so for ever: the clock of this thread stands.
        while state.is_theirs {
            let waited = self.moved.wait_timeout(state, BLOCKING_MAX).unwrap_or_else(PoisonError::into_inner);
            state = waited.0;
            if waited.1.timed_out() && state.is_theirs {
                state.is_closed = true;
                drop(state);
                panic!(
                    "a closure of spawn_blocking has not ended within {BLOCKING_MAX:?} of real time: the simulation stands still meanwhile, so it must not \
                     wait for other tasks or for time"
                );
            }
        }
        true
    }

    /// Of tokio's thread, before its first closure.
    fn begin(&self, world: &Arc<World>, host: Option<usize>, life: u32) {
        let mut state = self.lock();
        while !state.is_theirs && !state.is_closed {
            state = self.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        SCOPE.set(world.machine.enter());
        Ambient { world: Arc::clone(world), host, life, tasks: None }.set_on_thread();
    }

    /// Of tokio's thread, after its last closure.
    fn end(&self) {
        SCOPE.set(None);
        Ambient::clear_on_thread();
        let mut state = self.lock();
        state.threads -= 1;
        self.all.fetch_sub(1, Ordering::Relaxed);
        state.is_theirs = state.threads > 0 && !state.is_closed;
        drop(state);
        self.moved.notify_all();
    }

    fn close(&self) {
        self.lock().is_closed = true;
        self.moved.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::Sim;

    #[test]
    #[should_panic(expected = "a closure of spawn_blocking has not ended within")]
    fn a_closure_that_waits_for_time_fails_the_run() {
        Sim::new(1).tokio().run(|net| async move {
            let waits =
                || tokio::runtime::Handle::current().block_on(tokio::time::sleep(Duration::from_secs(1)));
            let waiting = net.host("host").spawn(async move { tokio::task::spawn_blocking(waits).await });
            waiting.await.unwrap().unwrap();
        });
    }
}
