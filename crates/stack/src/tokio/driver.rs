//! Drives a stack without threads on a runtime of tokio.
//!
//! A segment from a device wakes the stack's input thread, and that wakes the task that reads: two switches of threads. A [`Driver`] runs on the thread
//! of the tasks instead: the runtime wakes it when a device is readable, it takes the frames, and the tasks that they are for run next.
//!
//! # Why nothing is missed
//! A turn of the driver looks at all its sources, calls [`Stack::poll`] if one of them asked for it, and looks again. Each look registers the task's
//! waker with every source that has nothing to say, so one that speaks up after it wakes the task.
//!
//! | source | taken back |
//! |---|---|
//! | a device's descriptor, an edge | *before* `poll` reads the device, so an edge for a frame that it did not find is kept. `poll` says so if it has stopped before the queue was empty |
//! | the bell, which the stack's hook rings (`rt/workers.rs`) for calls on sockets, frames of channels and wires, and new interfaces | before `poll`. It is a flag, and the waker is there before the flag is looked at |
//! | the timer of the last answer | when it has passed; each answer sets it anew |
//!
//! After one `poll` the driver lets other tasks run, whatever is left. It holds no handle between turns, and no lock while it calls anything: the bell's
//! mutex is a leaf, under which wakers are compared and moved, never cloned, dropped or called.
//!
//! Does not depend on sockets. Tests: `tests/tokio/driver.rs`; with devices `crates/drivers/tests/driver.rs`.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ::tokio::io::Interest;
use ::tokio::io::unix::AsyncFd;
use ::tokio::runtime::Handle;
use ::tokio::task::unconstrained;
use ::tokio::time::{Instant, Sleep, sleep_until};
use sockeye_sync::Mutex;
use sockeye_sync::facade::Arc;

use crate::base::clock::Clock;
use crate::inet::Core;
use crate::inet::netif::NetifId;
use crate::rt::handle::{Stack, WeakStack};

/// A future that drives a stack without threads (`Config { workers: 0, .. }`): it waits for the descriptors of the stack's devices, for calls on sockets that
/// leave it something to do, and for its timers, and calls [`Stack::poll`]. Spawn it on the runtime whose tasks use the sockets.
///
/// ```
/// use sockeye::tokio::{Driver, TcpListener, TcpStream};
/// use sockeye::{Config, Stack};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// let stack = Stack::new(Config { workers: 0, ..Config::default() })?;
/// // stack.attach(tun, &["10.0.0.2/24".parse()?])?;
/// let driven = tokio::spawn(Driver::new(&stack)?);
///
/// let listener = TcpListener::bind_on(&stack, "127.0.0.1:0").await?;
/// let (client, accepted) = tokio::join!(TcpStream::connect_on(&stack, listener.local_addr()?), listener.accept());
/// # let (client, accepted) = (client?, accepted?);
///
/// // It ends when the stack has no other handle and no socket.
/// drop((client, accepted, listener, stack));
/// driven.await??;
/// # Ok(())
/// # }
/// ```
///
/// The stack's protocol work runs in this future and in the calls on its sockets; input from devices is processed on
/// one thread at a time. That is best where one core can carry the traffic: a packet reaches its task without a switch
/// of threads. A stack with threads has a thread for each queue of a device instead, and processes bulk data on several
/// cores.
///
/// **Devices.** It waits for all interfaces of the stack that have a [`descriptor`](crate::netif::Netif::descriptor),
/// with all their queues, including those attached later. The devices of `sockeye_drivers` have one. A
/// [`channel`](fn@crate::netif::channel) and a [`wire`](fn@crate::netif::wire) report by themselves that a frame has
/// arrived, and so can any interface ([`Waking::announce`](crate::netif::Waking::announce)). When a device vanishes,
/// its connections end with ENETDOWN, as in any stack, and the driver continues with the rest.
///
/// **Time.** The stack's clock is tokio's, for calls on sockets as well, so it stands still while tokio's clock is
/// [paused](https://docs.rs/tokio/latest/tokio/time/fn.pause.html), except for calls of threads outside of the runtime,
/// which have the system's clock. Timers are up to 1 ms late, which is the resolution
/// of tokio's timers. A kernel with a tick of 250 Hz may be 4 ms late; a program that prefers fewer wake-ups to exact
/// timers can drive the stack itself (`docs/embedding.md`).
///
/// **Turns.** One poll of the future calls `Stack::poll` at most once: that takes up to 256 short frames, or 128 KiB,
/// from each queue. It blocks only if the wakers, hooks and interfaces that it calls do. It does not use tokio's
/// cooperative budget.
///
/// **When it is dropped**, or its runtime ends, the stack stays as it is: nothing is sent or received until another
/// driver is made or `Stack::poll` is called, the stack's clock stands still, packets wait in their devices, and the
/// last bytes of closed connections stay unsent: keep the runtime until [`Stack::connection_count`] is 0 if that
/// matters. Blocking calls on other threads continue to wait. A device's descriptor closes when both the driver and the
/// stack have released it.
///
/// While there is a driver, the program must not call `Stack::poll`, [`Stack::set_driver_wake`] or
/// [`Stack::set_driver_clock`].
#[must_use = "a driver does nothing unless it is awaited or spawned"]
pub struct Driver {
    stack: WeakStack,
    runtime: Handle,
    /// When it was made, and what the stack's clock said then.
    since: (Instant, Duration),
    bell: Arc<Bell>,
    queues: Vec<Queue>,
    /// Interfaces that were asked for their descriptors: the first so many.
    netifs: usize,
    timer: Pin<Box<Sleep>>,
    /// The time for which `timer` is set.
    until: Option<Duration>,
    /// `Stack::poll` is to be called.
    is_due: bool,
}

/// A queue of a device.
struct Queue {
    netif: NetifId,
    queue: usize,
    fd: AsyncFd<OwnedFd>,
    /// The descriptor reports that nothing comes any more.
    is_closed: bool,
}

impl Driver {
    /// A driver of `stack`, which starts when it is polled. Must be called within a tokio runtime of either kind with
    /// I/O and time (`enable_all`): devices and timers belong to that runtime, whichever executor polls the driver.
    /// Does not block.
    ///
    /// # Errors
    /// `InvalidInput` for a stack with threads; `ResourceBusy` for one that has a driver or a
    /// [hook](Stack::set_driver_wake); `Other` outside a runtime; the system's error, if a device cannot be waited for.
    ///
    /// # Panics
    /// If the runtime has no I/O or no time, as with tokio's own types.
    pub fn new(stack: &Stack) -> io::Result<Self> {
        let core = stack.core::<Core>()?;
        let workers = stack.config().workers;
        if workers != 0 {
            let message =
                format!("Config::workers is {workers}: a stack with a driver has none, set it to 0");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let runtime = Handle::try_current().map_err(io::Error::other)?;
        let now = Instant::now();
        let timer = Box::pin(sleep_until(now));
        let bell = Arc::new(Bell::default());
        let rings = RingsInDrop(Arc::clone(&bell));
        core.workers
            .take_driver(Box::new(move || rings.0.ring()))
            .map_err(|_hook| io::Error::new(io::ErrorKind::ResourceBusy, "the stack has a driver already"))?;
        // From here on its drop takes the hook away.
        let mut driver = Self {
            stack: stack.downgrade(),
            since: (now, Clock::since_start(core.clock.now())),
            queues: Vec::new(),
            netifs: 0,
            until: None,
            is_due: true,
            runtime,
            bell,
            timer,
        };
        core.clock.follow(Some((now.into_std(), driver.since.1)));
        driver.watch(core)?;
        Ok(driver)
    }

    /// The time by the stack's clock.
    fn now(&self) -> Duration {
        self.since.1 + self.since.0.elapsed()
    }

    /// Starts to wait for the devices that are new.
    fn watch(&mut self, core: &Core) -> io::Result<()> {
        for (netif, device) in core.netifs.each().skip(self.netifs) {
            self.netifs += 1;
            self.is_due = true;
            for queue in 0..device.queue_count() {
                let Some(fd) = device.descriptor(core, queue)? else { continue };
                let _entered = self.runtime.enter();
                // Newer versions of tokio want a promise that the descriptor stays the same, as an `OwnedFd` does; older ones have only this.
                #[allow(deprecated)]
                let fd = AsyncFd::with_interest(fd, Interest::READABLE)?;
                self.queues.push(Queue { netif, queue, fd, is_closed: false });
            }
        }
        Ok(())
    }

    /// Notes what has happened, and registers the waker where nothing has.
    fn look(&mut self, core: &Core, cx: &mut Context<'_>) -> io::Result<()> {
        self.is_due |= self.bell.take();
        for queue in &mut self.queues {
            self.is_due |= queue.look(core, cx)?;
        }
        if self.until.is_some() && self.timer.as_mut().poll(cx).is_ready() {
            self.until = None;
            self.is_due = true;
        }
        Ok(())
    }

    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.bell.listen(cx.waker());
        let Some(stack) = self.stack.upgrade() else { return Poll::Ready(Ok(())) };
        let core = stack.core::<Core>()?;
        self.watch(core)?;
        self.look(core, cx)?;
        if !self.is_due {
            return Poll::Pending;
        }
        let now = self.now();
        let next = stack.poll(now);
        self.is_due = next.is_some_and(|next| next <= now);
        self.queues.retain(|queue| !queue.is_closed);
        if !self.is_due {
            self.set_timer(next);
        }
        self.look(core, cx)?;
        if self.is_due {
            // The tasks that `poll` has woken come first.
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    fn set_timer(&mut self, next: Option<Duration>) {
        if self.until == next {
            return;
        }
        self.until = next;
        // A time that tokio cannot express is as good as none.
        let at = next.and_then(|next| self.since.0.checked_add(next.saturating_sub(self.since.1)));
        match at {
            Some(at) => self.timer.as_mut().reset(at),
            None => self.until = None,
        }
    }
}

impl Future for Driver {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Turns are bounded by themselves, and a source that pleads the task's budget would seem to have nothing.
        pin!(unconstrained(poll_fn(|cx| self.turn(cx)))).poll(cx)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if let Some(stack) = self.stack.upgrade() {
            stack.set_driver_clock(None);
            // Before there can be another driver, or the program polls the stack itself.
            if let Ok(core) = stack.core::<Core>() {
                for queue in &self.queues {
                    if let Some(device) = core.netifs.netif(queue.netif) {
                        device.unannounced(core, queue.queue);
                    }
                }
            }
            stack.set_driver_wake(None::<fn()>);
        }
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("queues", &self.queues.len()).finish_non_exhaustive()
    }
}

impl Queue {
    /// Whether frames may have arrived, or the device may have vanished. Clears its readiness.
    fn look(&mut self, core: &Core, cx: &mut Context<'_>) -> io::Result<bool> {
        if self.is_closed {
            return Ok(false);
        }
        // An error without a hang-up, as of a TUN device that was deleted, is reported to writers alone. Nothing else is: no other interest was declared.
        let mut ready = false;
        if let Poll::Ready(failed) = self.fd.poll_write_ready(cx) {
            let mut failed = failed?;
            self.is_closed = failed.ready().is_write_closed();
            failed.clear_ready();
            ready = true;
        }
        if let Poll::Ready(readable) = self.fd.poll_read_ready(cx) {
            let mut readable = readable?;
            self.is_closed |= readable.ready().is_read_closed();
            readable.clear_ready();
            ready = true;
        }
        if ready && let Some(device) = core.netifs.netif(self.netif) {
            device.announced(core, self.queue);
        }
        Ok(ready)
    }
}

/// See the module's head.
#[derive(Default)]
struct Bell(Mutex<Rung>);

#[derive(Default)]
struct Rung {
    is_rung: bool,
    waker: Option<Waker>,
}

impl Bell {
    fn ring(&self) {
        let mut rung = self.0.lock();
        rung.is_rung = true;
        let waker = rung.waker.take();
        drop(rung);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Sets the waker that the stack's hook wakes from now on.
    fn listen(&self, waker: &Waker) {
        if !self.0.lock().waker.as_ref().is_some_and(|own| own.will_wake(waker)) {
            let waker = waker.clone();
            let before = self.0.lock().waker.replace(waker);
            drop(before);
        }
    }

    fn take(&self) -> bool {
        std::mem::take(&mut self.0.lock().is_rung)
    }
}

/// The stack's hook. It goes with the stack, and then the driver is to end.
struct RingsInDrop(Arc<Bell>);

impl Drop for RingsInDrop {
    fn drop(&mut self) {
        self.0.ring();
    }
}
