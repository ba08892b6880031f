//! Programs of the blocking kind: a thread of its own for each, and only one of all threads runs at a time.
//!
//! A closure gets an operating system's thread, because it cannot be left in the middle otherwise. The *baton* goes
//! to and fro between the simulation and the thread: the one that does not have it sleeps. A blocking call of the thread
//! polls the asynchronous form of itself; while that waits, the baton is with the simulation, and the task that stands
//! for the thread waits for the same waker. So the order of everything is still decided by the programs and the seed.
//!
//! States of the baton: `Simulation` ⇄ `Thread` → `Over`. Only its holder moves it, under the mutex, and wakes the other
//! side in the same section; so no wake-up is lost.
//!
//! A host's crash, or the end of the run, takes the task away; the thread is then ended by a silent panic,
//! at its next blocking call or in the one that it is in. Destructors run during this panic, and those of a `BufWriter` or of a guard may make
//! blocking calls; a second panic would abort the process, so these calls return an error at once.
//! Tests: `tests/hosts/blocking.rs`.

pub mod fs;

use std::future::Future;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle as Thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::executor::Ambient;
use crate::net::{self, ToSocketAddrs};
use crate::time;

/// Whose turn it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    Simulation,
    Thread,
    /// The thread has ended.
    Over,
}

struct Baton {
    state: Mutex<State>,
    moved: Condvar,
}

struct State {
    turn: Turn,
    /// The target of a blocking call's wake-up.
    waker: Option<Waker>,
    /// The task is gone: the thread has to end.
    is_cancelled: bool,
}

thread_local! {
    /// The baton of this thread, if it is one of ours.
    static OWN: std::cell::RefCell<Option<Arc<Baton>>> = const { std::cell::RefCell::new(None) };
}

/// Panic payload of a cancelled thread.
struct Cancelled;

/// Runs `program` on a thread of its own, as a program of the calling task's host, and waits for it. In it the types of this
/// module block, for virtual time.
///
/// # Panics
/// Outside of a simulation, with the program, or if no thread can be started.
pub async fn run<T: Send + 'static>(program: impl FnOnce() -> T + Send + 'static) -> T {
    let Ambient { world, host, life, .. } = Ambient::current();
    let state = State { turn: Turn::Simulation, waker: None, is_cancelled: false };
    let baton = Arc::new(Baton { state: Mutex::new(state), moved: Condvar::new() });
    let own = Arc::clone(&baton);
    let thread = std::thread::Builder::new().name("sockeye-sim".into()).spawn(move || {
        let _over = Over(&own);
        own.wait_for(Turn::Thread);
        if own.state.lock().is_cancelled {
            return None;
        }
        // From here on: what the thread does before its turn is not decided by the seed.
        let _machine = world.machine.enter();
        OWN.set(Some(Arc::clone(&own)));
        let ambient = Ambient { world, host, life, tasks: None };
        let done = catch_unwind(AssertUnwindSafe(|| ambient.scope_on_thread(program)));
        match done {
            Ok(value) => Some(value),
            Err(panic) if panic.is::<Cancelled>() => None,
            Err(panic) => resume_unwind(panic),
        }
    });
    let mut keeper = Keeper { baton, thread: Some(thread.expect("a thread for a blocking program")) };
    std::future::poll_fn(|cx| keeper.turn(cx)).await;
    let thread = keeper.thread.take().expect("it is joined once");
    match thread.join() {
        Ok(value) => value.expect("only a cancelled thread has no value"),
        Err(panic) => resume_unwind(panic),
    }
}

/// Whether this is a thread of [`run`].
pub(crate) fn is_own_thread() -> bool {
    OWN.with_borrow(Option::is_some)
}

/// Waits for `future` on a thread of [`run`].
///
/// # Panics
/// On any other thread. Also in a destructor that runs because the program is being ended, by its host's crash or by the end of the run: this
/// aborts the process. The calls of this module's types return `BrokenPipe` there instead, and [`sleep`] returns at once.
pub fn block_on<F: Future>(future: F) -> F::Output {
    wait_for(future).unwrap_or_else(|cancelled| {
        assert!(
            !std::thread::panicking(),
            "a destructor called block_on while its program was being ended; the calls of sockeye_sim::blocking return an error there"
        );
        // Without the hook that prints: this is no failure.
        resume_unwind(Box::new(cancelled))
    })
}

/// [`block_on`] for the calls of this module.
///
/// # Errors
/// Those of the call, and `BrokenPipe` in a destructor of a program that is being ended.
fn block_on_call<T>(call: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match wait_for(call) {
        Ok(done) => done,
        Err(_) if std::thread::panicking() => Err(ending()),
        Err(cancelled) => resume_unwind(Box::new(cancelled)),
    }
}

/// Lets the simulation and `future` go on by turns, until the future is ready or the program has to end.
fn wait_for<F: Future>(future: F) -> Result<F::Output, Cancelled> {
    let baton = OWN.with_borrow(Clone::clone);
    let baton = baton.expect("block_on works on a thread of sockeye_sim::blocking::run only");
    let mut future = pin!(future);
    loop {
        let waker = baton.waker()?;
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return Ok(value),
            Poll::Pending => baton.yield_turn(),
        }
    }
}

/// # Errors
/// `BrokenPipe` if this thread's program is being ended: what its destructors do has to be without effect, as in a process that was killed.
pub(crate) fn check_not_ending() -> io::Result<()> {
    let is_cancelled =
        OWN.with_borrow(|own| own.as_ref().is_some_and(|baton| baton.state.lock().is_cancelled));
    if is_cancelled { Err(ending()) } else { Ok(()) }
}

pub(crate) fn ending() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the program is being ended")
}

/// Lets virtual time pass.
///
/// # Panics
/// On a thread that is not one of [`run`].
pub fn sleep(time: Duration) {
    // The only error is the end of the program.
    let _ = block_on_call(async {
        time::sleep(time).await;
        Ok(())
    });
}

impl Baton {
    /// The waker of the task that stands for this thread, unless that is gone.
    fn waker(&self) -> Result<Waker, Cancelled> {
        let state = self.state.lock();
        if state.is_cancelled {
            return Err(Cancelled);
        }
        Ok(state.waker.clone().unwrap_or_else(|| Waker::noop().clone()))
    }

    fn wait_for(&self, turn: Turn) {
        let mut state = self.state.lock();
        while state.turn != turn {
            self.moved.wait(&mut state);
        }
    }

    fn give(&self, to: Turn) {
        self.state.lock().turn = to;
        self.moved.notify_all();
    }

    /// Lets the simulation go on until something has woken the task.
    fn yield_turn(&self) {
        self.give(Turn::Simulation);
        self.wait_for(Turn::Thread);
    }
}

/// Says that the thread has ended, however.
struct Over<'a>(&'a Baton);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.give(Turn::Over);
    }
}

/// The simulation's side of a thread.
struct Keeper<T> {
    baton: Arc<Baton>,
    thread: Option<Thread<Option<T>>>,
}

impl<T> Keeper<T> {
    /// Lets the thread run until it waits or is over.
    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.baton.state.lock();
        if state.turn != Turn::Over {
            state.waker = Some(cx.waker().clone());
            state.turn = Turn::Thread;
            self.baton.moved.notify_all();
            while state.turn == Turn::Thread {
                self.baton.moved.wait(&mut state);
            }
        }
        if state.turn == Turn::Over { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl<T> Drop for Keeper<T> {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        self.baton.state.lock().is_cancelled = true;
        let mut state = self.baton.state.lock();
        if state.turn != Turn::Over {
            state.turn = Turn::Thread;
            self.baton.moved.notify_all();
        }
        drop(state);
        // It ends at once; any other panic payload is discarded.
        let _ = thread.join();
    }
}

/// A connection whose calls block, in the shape of `std::net::TcpStream`.
#[derive(Debug)]
pub struct TcpStream(net::TcpStream);

impl TcpStream {
    /// Connects.
    ///
    /// # Errors
    /// As for `sockeye::TcpStream::connect`. `BrokenPipe` in a destructor that runs because the program is being ended by its host's crash or by the end of
    /// the run; so do all calls that wait.
    ///
    /// # Panics
    /// On a thread that is not one of [`run`]; so do all calls that wait.
    pub fn connect<A: ToSocketAddrs>(addr: A) -> io::Result<Self> {
        block_on_call(net::TcpStream::connect(addr)).map(Self)
    }

    /// The stream of the asynchronous kind inside, for its queries and options.
    pub fn get_ref(&self) -> &net::TcpStream {
        &self.0
    }

    /// Closes one direction or both.
    ///
    /// # Errors
    /// `NotConnected` if the connection is closed.
    pub fn shutdown(&self, how: std::net::Shutdown) -> io::Result<()> {
        self.0.get_ref().shutdown(how)
    }
}

impl Read for TcpStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let mut buf = ReadBuf::new(buf);
        block_on_call(std::future::poll_fn(|cx| Pin::new(&mut self.0).poll_read(cx, &mut buf)))?;
        Ok(buf.filled().len())
    }
}

impl Write for TcpStream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        block_on_call(std::future::poll_fn(|cx| Pin::new(&mut self.0).poll_write(cx, buf)))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A listener whose calls block, in the shape of `std::net::TcpListener`.
#[derive(Debug)]
pub struct TcpListener(net::TcpListener);

impl TcpListener {
    /// Listens.
    ///
    /// # Errors
    /// As for `sockeye::TcpListener::bind`.
    pub fn bind<A: ToSocketAddrs>(addr: A) -> io::Result<Self> {
        block_on_call(net::TcpListener::bind(addr)).map(Self)
    }

    /// The next connection, and where it comes from.
    ///
    /// # Errors
    /// None today.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        block_on_call(self.0.accept()).map(|(stream, from)| (TcpStream(stream), from))
    }

    /// The address that is listened on.
    ///
    /// # Errors
    /// None; the signature is that of `std`.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}
