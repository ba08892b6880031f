//! Virtual time: it stands still while programs run, and jumps when all of them wait.
//!
//! The shapes are those of `tokio::time`. Tests: `tests/hosts/programs.rs`.

use std::fmt;
use std::future::{Future, poll_fn};
use std::ops::{Add, Sub};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::event::Event;
use crate::executor::Ambient;
use crate::pipe::nanos;
use crate::world::{Timer, World};

/// A point of virtual time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Instant(Duration);

impl Instant {
    /// The present.
    ///
    /// # Panics
    /// Outside of a simulation.
    pub fn now() -> Self {
        Self(Ambient::current().world.now())
    }

    /// That time after the start.
    pub(crate) fn at(since_start: Duration) -> Self {
        Self(since_start)
    }

    /// Time since then; zero if that lies ahead.
    pub fn elapsed(&self) -> Duration {
        Self::now().0.saturating_sub(self.0)
    }

    /// Time from `earlier` to this; zero if that is later.
    pub fn duration_since(&self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// Time since the simulation began.
    pub fn since_start(&self) -> Duration {
        self.0
    }
}

impl Add<Duration> for Instant {
    type Output = Self;
    fn add(self, time: Duration) -> Self {
        Self(self.0.saturating_add(time))
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;
    fn sub(self, time: Duration) -> Self {
        Self(self.0.saturating_sub(time))
    }
}

impl Sub for Instant {
    type Output = Duration;
    fn sub(self, earlier: Self) -> Duration {
        self.duration_since(earlier)
    }
}

/// Waits until `time` has passed.
///
/// # Panics
/// Outside of a simulation, when it is called or awaited.
pub fn sleep(time: Duration) -> Sleep {
    sleep_until(Instant::now() + time)
}

/// Waits for a point of time.
///
/// # Panics
/// Outside of a simulation.
pub fn sleep_until(at: Instant) -> Sleep {
    Sleep { world: Ambient::current().world, at, timer: None }
}

/// See [`sleep`].
pub struct Sleep {
    world: Arc<World>,
    at: Instant,
    timer: Option<usize>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let world = Arc::clone(&self.world);
        let mut state = world.lock();
        let at = nanos(self.at.0);
        if state.now >= at {
            return Poll::Ready(());
        }
        let waker = Some(cx.waker().clone());
        let old = match self.timer {
            Some(timer) => std::mem::replace(&mut state.timers[timer].waker, waker),
            None => {
                let number = state.queue.number();
                let timer = state.timers.insert(Timer { number, waker });
                state.queue.push(at, Event::Wake { timer, number });
                self.timer = Some(timer);
                None
            }
        };
        drop(state);
        drop(old);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(timer) = self.timer.take() {
            // The event stays behind and finds no timer.
            let gone = self.world.lock().timers.try_remove(timer);
            drop(gone);
        }
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep").field("until", &self.at).finish_non_exhaustive()
    }
}

/// A [`timeout`] came to its end first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the time is over")
    }
}

impl std::error::Error for Elapsed {}

impl From<Elapsed> for std::io::Error {
    fn from(elapsed: Elapsed) -> Self {
        Self::new(std::io::ErrorKind::TimedOut, elapsed)
    }
}

/// Waits for `future`, but no longer than `time`; then it is dropped.
///
/// # Errors
/// [`Elapsed`] if it was not ready in time.
///
/// # Panics
/// Outside of a simulation.
pub async fn timeout<F: Future>(time: Duration, future: F) -> Result<F::Output, Elapsed> {
    let mut future = pin!(future);
    let mut end = pin!(sleep(time));
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(value) => Poll::Ready(Ok(value)),
        Poll::Pending => end.as_mut().poll(cx).map(|()| Err(Elapsed)),
    })
    .await
}
