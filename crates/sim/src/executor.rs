//! Tasks: the programs of a simulation, one at a time, in an order that only the seed and the programs decide.
//!
//! A task that is woken goes to the end of [`Ready`]; the loop takes from its front. Each task belongs to a host, or to
//! none, and runs within the scope of that host's stack, so that `TcpStream::connect` in it means that host. Tasks of a
//! host that crashes are dropped where they stand, after the task that is running has returned. Each belongs to one life of its host: what it
//! does after a crash, as destructors do, is without effect for the host's next life, and a host that is down starts no task.
//!
//! Why no wake-up is lost: a waker puts its task into the queue unless it is there already, and the mark that it
//! is there is taken away before the task is polled. Tests: `tests/hosts/programs.rs`.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;
use sockeye::Stack;
use tokio::task::coop;

use crate::process::Program;
use crate::rules::Rules;
use crate::runtime::Runtimes;
use crate::world::World;

/// Tasks that can go on, oldest first.
#[derive(Default)]
pub(crate) struct Ready(Mutex<VecDeque<u64>>);

impl Ready {
    pub fn pop(&self) -> Option<u64> {
        self.0.lock().pop_front()
    }

    /// The one that [`pop`](Self::pop) takes.
    pub fn front(&self) -> Option<u64> {
        self.0.lock().front().copied()
    }

    pub fn push(&self, task: u64) {
        self.0.lock().push_back(task);
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.lock().len()
    }

    /// Puts those behind the first `count` into the order in which they were spawned.
    pub fn sort_behind(&self, count: usize) {
        let mut all = self.0.lock();
        if let Some(woken) = all.make_contiguous().get_mut(count..) {
            woken.sort_unstable();
        }
    }
}

/// The waker of a task.
struct Alarm {
    task: u64,
    is_queued: AtomicBool,
    ready: Arc<Ready>,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Only one thread of a simulation runs at a time; the exchange is for the compiler.
        if !self.is_queued.swap(true, Ordering::AcqRel) {
            self.ready.push(self.task);
        }
    }
}

type Body = Pin<Box<dyn Future<Output = ()>>>;

struct Task {
    /// `None` while it runs.
    body: Option<Body>,
    host: Option<usize>,
    /// That of the host, in which it was started.
    life: u32,
    alarm: Arc<Alarm>,
}

/// All tasks of a simulation. Only its own thread has it.
pub(crate) struct Tasks {
    world: Arc<World>,
    /// Those that have not ended.
    all: RefCell<BTreeMap<u64, Task>>,
    next: Cell<u64>,
    /// Tasks to be dropped, once the running one has returned.
    doomed: RefCell<Vec<u64>>,
    running: Cell<Option<u64>>,
    /// What hosts run when they start.
    programs: RefCell<BTreeMap<usize, Program>>,
    pub rules: RefCell<Rules>,
    /// In a run with `Sim::tokio`.
    pub runtimes: Option<Rc<Runtimes>>,
}

/// The current context of the running task.
#[derive(Clone)]
pub(crate) struct Ambient {
    pub world: Arc<World>,
    pub host: Option<usize>,
    /// The life of the host that its programs here are of; 0 without a host.
    pub life: u32,
    /// `None` on a thread of the blocking kind, which cannot start tasks.
    pub tasks: Option<Rc<Tasks>>,
}

thread_local! {
    static AMBIENT: RefCell<Option<Ambient>> = const { RefCell::new(None) };
}

impl Ambient {
    /// That of the running task.
    ///
    /// # Panics
    /// Outside of a simulation.
    pub fn current() -> Self {
        let ambient = AMBIENT.with_borrow(Clone::clone);
        ambient
            .expect("this works within a simulation only: call it from a program that sockeye_sim::run runs")
    }

    /// That of the running task, if one runs.
    #[cfg(feature = "tracing")]
    pub fn if_any() -> Option<Self> {
        // Where another task's is being set, or the thread ends, there is none.
        AMBIENT.try_with(|ambient| ambient.try_borrow().ok()?.clone()).ok()?
    }

    /// Whether a task of this life of a host may run as things are, since its runtime has its turn.
    fn is_within(host: Option<usize>, life: u32) -> bool {
        AMBIENT.with_borrow(|ambient| {
            let is_it =
                |ambient: &Self| (ambient.host, ambient.life) == (host, life) && ambient.tasks.is_some();
            ambient.as_ref().is_some_and(is_it)
        })
    }

    /// The host of the running task, if a task runs and has one.
    pub fn host_of_caller() -> Option<usize> {
        AMBIENT.with_borrow(|ambient| ambient.as_ref()?.host)
    }

    /// Calls `f` with this as the current one, on the run's own thread.
    pub fn scope<R>(self, f: impl FnOnce() -> R) -> R {
        struct Clock(Arc<World>, Option<usize>);
        impl Drop for Clock {
            fn drop(&mut self) {
                self.0.show_clock_of(self.1);
            }
        }
        let outer = Self::host_of_caller();
        let is_new = outer != self.host;
        let _clock = is_new.then(|| Clock(Arc::clone(&self.world), outer));
        let stack = self.world.stage(self.host, is_new);
        self.within(stack, f)
    }

    /// This is the current one of a thread of tokio's for blocking closures, until [`clear_on_thread`](Self::clear_on_thread).
    #[cfg(feature = "tokio")]
    pub fn set_on_thread(self) {
        AMBIENT.set(Some(self));
    }

    #[cfg(feature = "tokio")]
    pub fn clear_on_thread() {
        drop(AMBIENT.take());
    }

    /// As [`scope`](Self::scope), on another thread, which runs within such a scope of the run's thread.
    pub fn scope_on_thread<R>(self, f: impl FnOnce() -> R) -> R {
        let stack = self.world.stage(self.host, false);
        self.within(stack, f)
    }

    fn within<R>(self, stack: Stack, f: impl FnOnce() -> R) -> R {
        struct Outer(Option<Ambient>);
        impl Drop for Outer {
            fn drop(&mut self) {
                drop(AMBIENT.replace(self.0.take()));
            }
        }
        let _outer = Outer(AMBIENT.replace(Some(self)));
        stack.scope(f)
    }
}

impl Tasks {
    pub fn new(world: Arc<World>, runtimes: Option<Rc<Runtimes>>) -> Rc<Self> {
        Rc::new(Self {
            world,
            all: RefCell::default(),
            next: Cell::new(0),
            doomed: RefCell::default(),
            running: Cell::new(None),
            programs: RefCell::default(),
            rules: RefCell::default(),
            runtimes,
        })
    }

    /// What a host runs when it starts.
    pub fn program(&self, host: usize) -> Option<Program> {
        self.programs.borrow().get(&host).cloned()
    }

    pub fn set_program(&self, host: usize, program: Program) {
        let old = self.programs.borrow_mut().insert(host, program);
        drop(old);
    }

    /// Starts a task, which runs when its turn comes. On a host that is down it is over at once.
    pub fn spawn<F: Future + 'static>(&self, host: Option<usize>, body: F) -> JoinHandle<F::Output> {
        self.spawn_in(host, self.world.life_of(host), body)
    }

    /// The same in a life of the host, if that goes on.
    fn spawn_in<F: Future + 'static>(
        &self,
        host: Option<usize>,
        life: Option<u32>,
        body: F,
    ) -> JoinHandle<F::Output> {
        let id = self.next.replace(self.next.get() + 1);
        let outcome = Rc::new(RefCell::new(Outcome { value: None, waker: None, is_over: false }));
        let Some(life) = life else {
            outcome.borrow_mut().is_over = true;
            return JoinHandle { task: id, outcome };
        };
        let finish = Finish(Rc::clone(&outcome));
        let body = Box::pin(async move {
            let value = body.await;
            finish.0.borrow_mut().value = Some(value);
        });
        let alarm = Arc::new(Alarm {
            task: id,
            is_queued: AtomicBool::new(true),
            ready: Arc::clone(&self.world.ready),
        });
        self.all.borrow_mut().insert(id, Task { body: Some(body), host, life, alarm });
        self.world.ready.push(id);
        JoinHandle { task: id, outcome }
    }

    /// Runs a task until it waits or is over. Whether it is over.
    pub fn run(self: &Rc<Self>, id: u64) -> bool {
        let mut all = self.all.borrow_mut();
        let Some((task, mut body)) =
            all.get_mut(&id).and_then(|task| task.body.take().map(|body| (task, body)))
        else {
            return false;
        };
        // Before the body is polled: a wake from now on queues it again.
        task.alarm.is_queued.store(false, Ordering::Release);
        let waker = Waker::from(Arc::clone(&task.alarm));
        let (host, life) = (task.host, task.life);
        drop(all);
        self.running.set(Some(id));
        let poll = || {
            // The budget of a tokio task that a simulation may run in is not its tasks' own.
            let mut polled = coop::unconstrained(body.as_mut());
            let is_over = Pin::new(&mut polled).poll(&mut Context::from_waker(&waker)).is_ready();
            // Sockets that go with a task close within its scope.
            (!is_over).then_some(body)
        };
        let body = if Ambient::is_within(host, life) {
            poll()
        } else {
            let tasks = Some(Rc::clone(self));
            Ambient { world: Arc::clone(&self.world), host, life, tasks }.scope(poll)
        };
        self.running.set(None);
        let is_over = body.is_none();
        let mut all = self.all.borrow_mut();
        if is_over {
            all.remove(&id);
        } else if let Some(task) = all.get_mut(&id) {
            task.body = body;
        }
        drop(all);
        self.bury();
        is_over
    }

    /// The host of a task that has not ended.
    pub fn host_of(&self, id: u64) -> Option<Option<usize>> {
        self.all.borrow().get(&id).map(|task| task.host)
    }

    /// Dooms the tasks of a host, the running one included.
    pub fn doom_host(&self, host: usize) {
        let of_host = |(id, task): (&u64, &Task)| (task.host == Some(host)).then_some(*id);
        let doomed = self.all.borrow().iter().filter_map(of_host).collect();
        self.doom(doomed);
    }

    /// Drops tasks: now, or when the running one has returned.
    pub fn doom(&self, ids: Vec<u64>) {
        self.doomed.borrow_mut().extend(ids);
        if self.running.get().is_none() {
            self.bury();
        }
    }

    fn bury(&self) {
        loop {
            // Dropping a task may doom others, so neither list is borrowed meanwhile.
            let Some(id) = self.doomed.borrow_mut().pop() else { return };
            let task = self.all.borrow_mut().remove(&id);
            if let Some(task) = task {
                // Its content may ask for the time when it is dropped.
                let (world, host, life) = (Arc::clone(&self.world), task.host, task.life);
                Ambient { world, host, life, tasks: None }.scope(|| drop(task));
            }
        }
    }

    /// Drops all tasks.
    pub fn clear(&self) {
        let ids = self.all.borrow().keys().copied().collect();
        self.running.set(None);
        self.doom(ids);
        let remains = (self.programs.take(), self.rules.take());
        drop(remains);
    }
}

struct Outcome<T> {
    value: Option<T>,
    waker: Option<Waker>,
    is_over: bool,
}

/// Says that a task is over, however that came.
struct Finish<T>(Rc<RefCell<Outcome<T>>>);

impl<T> Drop for Finish<T> {
    fn drop(&mut self) {
        let mut outcome = self.0.borrow_mut();
        outcome.is_over = true;
        let waker = outcome.waker.take();
        drop(outcome);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Waits for a task. Dropping it lets the task go on by itself.
pub struct JoinHandle<T> {
    task: u64,
    outcome: Rc<RefCell<Outcome<T>>>,
}

/// A task did not come to its end: it was aborted, or its host crashed, or was down when it was started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Aborted;

impl fmt::Display for Aborted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the task was aborted, or its host crashed or was down")
    }
}

impl std::error::Error for Aborted {}

impl<T> JoinHandle<T> {
    /// Ends the task where it stands.
    pub fn abort(&self) {
        if let Some(tasks) = Ambient::current().tasks {
            tasks.doom(vec![self.task]);
        }
    }

    /// Its value, if it has come to its end and it was not taken yet.
    pub(crate) fn take(&mut self) -> Option<T> {
        self.outcome.borrow_mut().value.take()
    }

    /// Whether the task is over.
    pub fn is_finished(&self) -> bool {
        self.outcome.borrow().is_over
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, Aborted>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut outcome = self.outcome.borrow_mut();
        if outcome.is_over {
            return Poll::Ready(outcome.value.take().ok_or(Aborted));
        }
        outcome.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").field("task", &self.task).finish_non_exhaustive()
    }
}

/// Starts a task on the host of the running one.
///
/// # Panics
/// Outside of a simulation, and on a thread of [`blocking`](crate::blocking).
pub fn spawn<F: Future + 'static>(body: F) -> JoinHandle<F::Output> {
    let ambient = Ambient::current();
    let tasks =
        ambient.tasks.expect("a blocking thread cannot start tasks: start them from an asynchronous one");
    // Not in the next life of a host that the running task has crashed and started again.
    let life = ambient.world.life_of(ambient.host).filter(|life| *life == ambient.life);
    tasks.spawn_in(ambient.host, life, body)
}
