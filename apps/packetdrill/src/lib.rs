//! An adapter by which packetdrill runs its scripts against a Sockeye stack, and a runner for folders of scripts.
//!
//! packetdrill (`--so_filename`) loads a shared object and makes all its calls through a struct of functions that this fills. The stack has no threads
//! and no real time: a script of half a minute runs in a fraction of a second, and the same way each time. `docs/reference/packetdrill.md` tells how to
//! use it; `apps/packetdrill-plugin` is the shared object.
//!
//! | file | content |
//! |---|---|
//! | `abi.rs`, `marshal.rs`, `user.rs` | the C functions, their arguments, the caller's memory |
//! | `adapter.rs` | the stack, virtual time, calls that wait |
//! | `files.rs`, `socket/`, `pipe.rs`, `epoll.rs`, `ready.rs` | what descriptors stand for, and their calls |
//! | `tcp_info.rs`, `sockaddr.rs`, `error.rs` | layouts and numbers of Linux |
//! | `flags.rs`, `sysctl.rs` | settings |
//! | `interpose.rs` | calls that go to libc instead |
//! | `run/` | the runner |
//!
//! Invariants: all calls work on any thread; no memory of the caller is touched except by the kernel, which checks it; nothing waits for real time.
//! Linux only. Tests: `tests/interface.rs` makes the calls that packetdrill makes.
#![warn(missing_docs)]

#[cfg(target_os = "linux")]
pub mod abi;
#[cfg(target_os = "linux")]
mod adapter;
#[cfg(target_os = "linux")]
mod epoll;
#[cfg(target_os = "linux")]
mod error;
#[cfg(target_os = "linux")]
mod files;
#[cfg(target_os = "linux")]
mod flags;
#[cfg(target_os = "linux")]
pub mod interpose;
#[cfg(target_os = "linux")]
mod marshal;
#[cfg(target_os = "linux")]
mod pipe;
#[cfg(target_os = "linux")]
mod ready;
#[cfg(target_os = "linux")]
pub mod run;
#[cfg(target_os = "linux")]
mod sockaddr;
#[cfg(target_os = "linux")]
mod socket;
#[cfg(target_os = "linux")]
mod sysctl;
#[cfg(target_os = "linux")]
mod tcp_info;
#[cfg(target_os = "linux")]
mod user;
#[cfg(target_os = "linux")]
mod wire;

#[cfg(target_os = "linux")]
pub use sysctl::FILE as SYSCTL_LOG;
