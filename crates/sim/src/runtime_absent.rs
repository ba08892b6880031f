//! Without the feature `tokio`: no runtimes.
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
    pub fn start(&self, _: Option<usize>, _: Nanos, _: u32, _: u32) {
        match self.0 {}
    }

    pub fn get(&self, _: Option<usize>) -> Option<Rc<Runtime>> {
        match self.0 {}
    }

    pub fn doom(&self, _: usize) {
        match self.0 {}
    }

    pub fn pause(&self, _: usize) {
        match self.0 {}
    }

    pub fn resume(&self, _: usize) {
        match self.0 {}
    }

    #[cfg(feature = "entropy")]
    pub fn clock_changed(&self, _: usize) {
        match self.0 {}
    }

    pub fn take_doomed(&self) -> Vec<(usize, Rc<Runtime>)> {
        match self.0 {}
    }

    pub fn fire(&self, _: usize, _: Nanos) {
        match self.0 {}
    }

    pub fn stack_worked(&self, _: usize) {
        match self.0 {}
    }

    pub fn look_at_all(&self) {
        match self.0 {}
    }

    pub fn program_ran(&self) {
        match self.0 {}
    }

    pub fn main_needs_turn(&self, _: Nanos, _: Option<Nanos>) -> bool {
        match self.0 {}
    }

    pub fn find(&self) -> bool {
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
    pub fn life(&self) -> u32 {
        match self.0 {}
    }

    pub fn turn(&self, _: impl FnOnce()) -> Option<Nanos> {
        match self.0 {}
    }

    pub fn schedule(&self, _: Nanos) -> bool {
        match self.0 {}
    }
}
