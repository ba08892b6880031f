//! The descriptor of a poller where the system has no descriptors: there is none, and none can be made.
//!
//! Does not depend on pollers. Tests: none, as there is no value.

/// No value.
#[derive(Debug)]
pub(crate) enum Signal {}

impl Signal {
    pub fn show(&self) {
        match *self {}
    }

    pub fn hide(&self) {
        match *self {}
    }
}
