//! Shows a running stack to other programs of the same user: `sockeye ss`, `sockeye nstat`, or your own.
//!
//! A program [publishes](publish) its stack; a program that may open that user's folder asks for a [`Report`] and gets
//! one. The publisher pays nothing until it is asked: one thread that sleeps in the kernel.
//!
//! ```text
//!   program ── publish(&stack, "vpn") ──► thread on  FOLDER/PID-N.sock  (a kernel UNIX-domain socket)
//!   sockeye ss ── reports() ──► connects to each, reads one line of JSON, end of stream
//! ```
//!
//! `FOLDER` is `$SOCKEYE_DIAG_DIR`, else `sockeye` in `$XDG_RUNTIME_DIR`, else `/tmp/sockeye-UID`. It belongs to the
//! user and no other user may enter it (mode 0700, checked at each use), which is all the access control that there is.
//!
//! # Bounds
//! A program serves four clients at a time, and each of them for at most a second from when its report is made. A report is read up to [`REPORT_MAX`]
//! bytes, and a program that has not sent all of it after five seconds is given up. Sockets of programs that ended are removed by
//! the next program that looks.
//!
//! Does not depend on command lines or how a report is shown. Tests: `tests/`.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod client;
mod fields;
mod folder;
mod name;
mod report;
mod serve;

/// The registry's page of this crate, whose program is tested here.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

pub use client::{REPORT_MAX, Unreachable, reports, reports_in};
pub use folder::folder;
pub use report::{Counter, Report, Socket, UnixSocket};
pub use serve::{Published, publish, publish_in};
