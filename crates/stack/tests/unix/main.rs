//! UNIX-domain sockets compared with the kernel's: every case runs on both and the transcripts are compared.
//!
//! Purpose: Linux itself is the expectation, for values, errno, message flags and readiness, under each
//! setting of `unix_locking`. A case is a function over [`script::Run`]; [`provider`] has the calls that it may
//! make; [`compare`] lists the intended differences. [`random`] generates cases.
//!
//! Does not depend on how Sockeye's sockets are built, or on anything about time: a case neither measures it
//! nor depends on which side is faster.
//!
//! `rights`, `stacks`, `stress` and `tokio` test Sockeye's sockets alone.

// That a socket is `Send` is a longer proof with the feature `count`, whose types are wrapped once more.
#![recursion_limit = "256"]

#[path = "../common/mod.rs"]
mod common;

mod addresses;
mod cases;
mod compare;
mod kernel;
mod ours;
mod provider;
mod random;
mod rights;
mod script;
mod sockets;
mod stacks;
mod stress;
mod tokio;
mod unsent;
mod words;
