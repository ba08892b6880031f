//! Waking tasks from inside an interface, on behalf of the stack that it belongs to, and the stack's driver if it has no threads.
//!
//! A waker is the application's code and may panic. An interface has no stack at hand that would count and report it, so the stack
//! gives it a [`Waking`] when it is attached ([`Netif::wakes_by`](crate::Netif::wakes_by)). Does not depend on the stack. Tests:
//! `crates/stack/tests/panics/wakers.rs`.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

use sockeye_sync::discard_payload;
use sockeye_sync::facade::Arc;

/// Handles the payload of a panic.
type Report = Box<dyn Fn(Box<dyn Any + Send>) + Send + Sync>;

/// Tells that frames have come.
type News = Box<dyn Fn() + Send + Sync>;

/// Wakes tasks, and the stack's driver, for an interface; see [`Netif::wakes_by`](crate::Netif::wakes_by).
#[derive(Clone, Default)]
pub struct Waking {
    report: Option<Arc<Report>>,
    news: Option<Arc<News>>,
}

impl Waking {
    /// Panics of wakers are handed to `report`, with no lock of the interface held.
    pub fn reporting(report: impl Fn(Box<dyn Any + Send>) + Send + Sync + 'static) -> Self {
        Self { report: Some(Arc::new(Box::new(report))), news: None }
    }

    /// The same, with a call of `news` for each [`announce`](Self::announce).
    #[must_use]
    pub fn announcing(self, news: impl Fn() + Send + Sync + 'static) -> Self {
        Self { news: Some(Arc::new(Box::new(news))), ..self }
    }

    /// Says that frames have come, or that the interface is down: the driver of a stack without threads is called by its hook (`Stack::set_driver_wake`). Does
    /// nothing in a stack with threads, whose input threads the interface wakes itself, and without a stack. To be called behind the frames, without locks. For an
    /// interface whose [`descriptor`](crate::Netif::descriptor) becomes readable it is not needed.
    pub fn announce(&self) {
        if let Some(news) = &self.news {
            news();
        }
    }

    /// Wakes a task. If its waker panics, the panic is caught, and the stack counts and reports it. Without a stack, as with
    /// [`Waking::default`] or after the stack has ended, and in a child of fork(2), it is only caught. To be called without locks.
    pub fn wake(&self, waker: Waker) {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
            match &self.report {
                Some(report) => report(payload),
                None => discard_payload(payload),
            }
        }
    }
}

impl fmt::Debug for Waking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waking").finish_non_exhaustive()
    }
}
