//! What runs the ends of connections: threads, or tasks of a tokio runtime.
//!
//! Does not depend on patterns. Invariant: a panic in what is run is an error of the one who waits for it. Tests: below.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, JoinHandle, Thread};

use tokio::runtime::{Builder, Handle, Runtime};

/// Where futures are started.
#[derive(Clone)]
pub enum Starter {
    /// A thread for each.
    Threads,
    /// A task for each.
    Tasks(Handle),
}

/// Something that was started.
pub enum Started<T> {
    /// A thread.
    Thread(JoinHandle<T>),
    /// A task.
    Task(tokio::task::JoinHandle<T>),
}

impl Starter {
    /// Starts `future`.
    ///
    /// # Errors
    /// There can be no thread.
    pub fn start<F>(&self, future: F) -> io::Result<Started<F::Output>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        Ok(match self {
            Starter::Threads => Started::Thread(thread::Builder::new().spawn(|| block_on(future))?),
            Starter::Tasks(runtime) => Started::Task(runtime.spawn(future)),
        })
    }

    /// Runs `future` here.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        match self {
            Starter::Threads => block_on(future),
            Starter::Tasks(runtime) => runtime.block_on(future),
        }
    }
}

impl<T> Started<T> {
    /// Waits for its end. On a thread, it blocks.
    ///
    /// # Errors
    /// It has panicked.
    pub async fn end(self) -> io::Result<T> {
        match self {
            Started::Thread(thread) => thread.join().map_err(|_| io::Error::other("a thread has panicked")),
            Started::Task(task) => task.await.map_err(io::Error::other),
        }
    }
}

/// A runtime with so many worker threads, which are in the network namespace of the caller.
pub fn runtime(threads: usize) -> io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(threads).enable_all().build()
}

/// Runs a future on this thread, which sleeps while it waits.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::Barrier;

    #[test]
    fn threads_and_tasks_wait_for_each_other() {
        let runtime = runtime(1).unwrap();
        let barrier = Arc::new(Barrier::new(3));
        let wait = || {
            let barrier = Arc::clone(&barrier);
            async move { barrier.wait().await.is_leader() }
        };
        let thread = Starter::Threads.start(wait()).unwrap();
        let task = Starter::Tasks(runtime.handle().clone()).start(wait()).unwrap();
        let mut leaders = usize::from(block_on(wait()));
        leaders += usize::from(block_on(thread.end()).unwrap());
        leaders += usize::from(runtime.block_on(task.end()).unwrap());
        assert_eq!(leaders, 1);
    }

    #[test]
    fn a_panic_is_an_error() {
        let started = Starter::Threads.start(async { assert!(thread::current().name().is_some()) }).unwrap();
        assert!(block_on(started.end()).is_err());
    }
}
