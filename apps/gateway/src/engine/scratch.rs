//! A buffer of the loop's thread, for bytes between two calls.
//!
//! Invariant: it is in use only within one poll of one task, so tasks can share it. Does not depend on the meaning of the bytes.

use std::cell::RefCell;

use super::CHUNK;

thread_local! {
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; CHUNK].into());
}

/// Lends the buffer, of [`CHUNK`] bytes, to `work`, which must not ask for it again.
pub fn with<R>(work: impl FnOnce(&mut [u8]) -> R) -> R {
    BUFFER.with_borrow_mut(|buffer| work(buffer))
}
