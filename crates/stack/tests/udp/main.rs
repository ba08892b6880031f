//! UDP beside the kernel's: the same cases run on Linux's sockets and on Sockeye's, and must tell the same story, down to
//! addresses, errnos, what is cut off and what is ready.
//!
//! A case is a function over [`provider::Net`] that notes what it observes in a [`story::Story`]; Linux's is the
//! expectation. Where they are meant to differ, [`story::DIFFERENCES`] says how and why. What has no safe call on the
//! kernel's side (UDP_SEGMENT, the error queue) is in `alone.rs`.

#[path = "../common/mod.rs"]
mod common;

mod alone;
mod bind;
mod cases;
mod multicast;
mod provider;
mod story;
