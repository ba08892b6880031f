//! A buffer of a loop's thread, for bytes on their way between two calls.
//!
//! Invariant: it is in use within one poll of one task only, so tasks share it. Does not depend on what the bytes are.

use std::cell::RefCell;

use super::CHUNK;

thread_local! {
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; CHUNK].into());
}

/// Lends the buffer, of [`CHUNK`] bytes, to `work`, which must not ask for it again.
pub fn with<R>(work: impl FnOnce(&mut [u8]) -> R) -> R {
    BUFFER.with_borrow_mut(|buffer| work(buffer))
}
