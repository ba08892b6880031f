//! A value of the application's that calls ask: the resolver of names, the source of signals.
//!
//! It is foreign code: it is called and dropped with no lock held, and a panic in its drop is caught. The mutex is a leaf. Does not depend on what is
//! asked. Tests: those of its users.

use sockeye_sync::Mutex;
use sockeye_sync::facade::Arc;

use crate::rt::panics;

/// The place of a value that the application sets.
pub(crate) struct Slot<T: ?Sized> {
    set: Mutex<Option<Asked<T>>>,
}

/// A value that is kept while it is asked.
pub(crate) struct Asked<T: ?Sized>(Option<Arc<Box<T>>>);

impl<T: ?Sized> Default for Slot<T> {
    fn default() -> Self {
        Self { set: Mutex::new(None) }
    }
}

impl<T: ?Sized> Slot<T> {
    /// Sets it, or takes it away. Calls that are asking the one before go on with it.
    pub fn set(&self, value: Option<Box<T>>) {
        let value = value.map(|value| Asked(Some(Arc::new(value))));
        let before = std::mem::replace(&mut *self.set.lock(), value);
        drop(before);
    }

    /// The value; `None` if the application has set none.
    pub fn get(&self) -> Option<Asked<T>> {
        self.set.lock().clone()
    }
}

impl<T: ?Sized> Asked<T> {
    /// The value itself, which is there until the drop.
    pub fn value(&self) -> Option<&T> {
        self.0.as_deref().map(|value| &**value)
    }
}

impl<T: ?Sized> Clone for Asked<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: ?Sized> Drop for Asked<T> {
    fn drop(&mut self) {
        panics::discard(self.0.take());
    }
}
