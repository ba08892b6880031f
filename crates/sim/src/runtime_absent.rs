//! Without the feature `tokio`, and on systems where it has nothing to stand on: no runtimes.
//!
//! Has the names of `runtime.rs` that the loop uses.

use std::convert::Infallible;
use std::rc::Rc;

use crate::event::Nanos;

/// None can be made.
pub(crate) struct Runtimes(Infallible);

/// Nor its parts.
pub(crate) struct Runtime(Infallible);

impl Runtimes {
    #[cfg(feature = "tokio")]
    pub fn new(_: crate::machine::Machine, _: u64) -> Rc<Self> {
        unreachable!("Sim::run has refused it")
    }

    pub fn start(&self, _: Option<usize>, _: Nanos, _: u32) {
        match self.0 {}
    }

    pub fn get(&self, _: Option<usize>) -> Option<Rc<Runtime>> {
        match self.0 {}
    }

    pub fn doom(&self, _: usize) {
        match self.0 {}
    }

    pub fn take_doomed(&self) -> Vec<(usize, Rc<Runtime>)> {
        match self.0 {}
    }

    pub fn fire(&self, _: usize, _: Nanos) {
        match self.0 {}
    }

    pub fn next(&self) -> Option<Option<usize>> {
        match self.0 {}
    }

    pub fn take_all(&self) -> Vec<(Option<usize>, Rc<Runtime>)> {
        match self.0 {}
    }
}

impl Runtime {
    pub fn turn(&self, _: impl FnOnce()) -> Option<Nanos> {
        match self.0 {}
    }

    pub fn schedule(&self, _: Nanos) -> bool {
        match self.0 {}
    }
}

/// The number of a host's runtime.
pub(crate) fn index_of(host: Option<usize>) -> usize {
    host.map_or(0, |host| host + 1)
}
