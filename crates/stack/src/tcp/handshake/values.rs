//! Values that a SYN hook sends along with a SYN, on their way to the accepted stream.
//!
//! ```text
//! Syn::accept_with ─► Carried, in a Replica of the listener's that is made for this handshake
//!                       │            └─ the SYN cache keeps it with the entry
//!                       ├─ the handshake is done ─► the accept queue ─► TcpStream::take_accept_value
//!                       └─ it dies ─► Dropped ─► bury() ─► outbox ─► dropped
//! ```
//!
//! A handshake dies in many places, most of them under a shard's lock: refused by a reset, out of time, displaced, its listener
//! closed. The value's own drop is the application's code, and so runs outside all locks: a [`Carried`] that still has its value
//! when it is dropped leaves it in [`Dropped`], and the call that was under that lock [`bury`]s it when it has let go. A value is left by no
//! call: the thread that put it there looks afterwards, and finds it unless another thread has taken it, which then drops it.
//!
//! Rank: both mutexes are leaves. Does not depend on handshakes. Tests: `tests/tcp/accept_values.rs`.

use std::any::Any;

use sockeye_sync::Mutex;
use sockeye_sync::facade::{Arc, AtomicBool, Ordering};

use crate::rt::panics;
use crate::tcp::conn::outbox::{Context, Wake};

/// A value of the application's, of whatever type.
pub(crate) type Value = Box<dyn Any + Send>;

/// A value whose handshake is under way.
pub(crate) struct Carried {
    value: Mutex<Option<Value>>,
    dropped: Arc<Dropped>,
}

/// Values whose handshakes have died, until they are dropped.
#[derive(Default)]
pub(crate) struct Dropped {
    /// (a) Whether there are any. Partner: [`bury`].
    any: AtomicBool,
    values: Mutex<Vec<Value>>,
}

impl Carried {
    pub fn new(value: Value, dropped: &Arc<Dropped>) -> Self {
        Self { value: Mutex::new(Some(value)), dropped: Arc::clone(dropped) }
    }

    /// Takes the value out. Once.
    pub fn take(&self) -> Option<Value> {
        self.value.lock().take()
    }
}

impl Drop for Carried {
    fn drop(&mut self) {
        if let Some(value) = self.take() {
            let mut values = self.dropped.values.lock();
            values.push(value);
            // Under the mutex, as is the store of `take_all`: the word says what the list has.
            self.dropped.any.store(true, Ordering::Relaxed);
        }
    }
}

impl Dropped {
    fn take_all(&self) -> Vec<Value> {
        let mut values = self.values.lock();
        self.any.store(false, Ordering::Relaxed);
        std::mem::take(&mut *values)
    }
}

impl Drop for Dropped {
    /// The stack has ended.
    fn drop(&mut self) {
        self.take_all().into_iter().for_each(panics::discard);
    }
}

/// Has the values of handshakes that have died dropped at the end of the call. With no lock held that a value may have been dropped under.
#[inline]
pub(crate) fn bury(cx: &mut Context<'_>) {
    // Relaxed: this thread sees its own store; that of another thread is the other's to see to.
    if cx.core.dropped_values.any.load(Ordering::Relaxed) {
        let values = cx.core.dropped_values.take_all();
        cx.outbox.wakes.extend(values.into_iter().map(Wake::Release));
    }
}
