//! Systems where nothing is replaced.
//!
//! Has the names of `linux.rs`.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use crate::{Machine, unsupported, wait};

/// Whether anything is replaced on this system: Linux on x86-64 and 64-bit ARM.
pub const IS_SUPPORTED: bool = false;

/// Cannot be made on this system.
#[derive(Debug)]
pub struct Scope(Infallible);

impl Scope {
    pub(crate) fn new(_: Arc<Machine>) -> io::Result<Self> {
        // What the other systems use.
        let _unused = (Machine::real, Machine::monotonic, Machine::is_read_too_often);
        let _unused = (wait::is_skipped, wait::shown, wait::show_next);
        Err(unsupported("the clock and random numbers of a thread can be replaced on 64-bit Linux only"))
    }
}
