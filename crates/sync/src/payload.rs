//! The payload of a caught panic, dropped without panicking.
//!
//! Does not depend on where the panic came from. Tests: `crates/stack/tests/panics`.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Drops the payload of a panic. That may panic in turn, and so on: after eight of them the last one is leaked, since
/// a type whose every drop panics with another of its kind would keep us here for ever.
pub fn discard_payload(mut payload: Box<dyn Any + Send>) {
    for _ in 0..PAYLOADS_MAX {
        match catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            Ok(()) => return,
            Err(next) => payload = next,
        }
    }
    std::mem::forget(payload);
}

/// Bound on panics in a row while payloads of panics are dropped.
const PAYLOADS_MAX: usize = 8;
