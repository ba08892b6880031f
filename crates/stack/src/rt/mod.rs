//! Execution and waiting: workers, timers, blocked threads, tasks, pollers; panics, memory and fork.
//!
//! | module | has |
//! |---|---|
//! | [`handle`] | the counted handles of a stack, and its end |
//! | [`mod@env`], [`counter`] | the environment of all layers, and its counters |
//! | [`workers`], [`timers`] | the stack's own threads and their timer wheels |
//! | [`threads`] | which kind of thread the calling one is |
//! | [`blocking`], [`tasks`], [`poll`] | the three ways to wait for a socket |
//! | [`wake`] | tasks and pollers that a change concerns, until they can be woken |
//! | [`memory`] | threads and tasks that wait for packet memory |
//! | [`discipline`] | the parts that settings measured against each other change here; the older ones are in `experiments/` |
//! | [`panics`] | panics of foreign code and of protocol code, caught and reported |
//! | [`asked`] | values of the application that calls ask |
//! | [`resolve`] | the resolver of names |
//! | `signals` | the source of signals, for tasks |
//! | [`fork`] | the state of a child of fork(2) |
//! | [`failpoints`] | panics on purpose, for tests |

pub(crate) mod asked;
pub(crate) mod blocking;
#[cfg_attr(not(feature = "experiments"), allow(dead_code, reason = "some count what only older settings do"))]
pub(crate) mod counter;
pub(crate) mod discipline;
pub(crate) mod env;
#[cfg(feature = "experiments")]
pub(crate) mod experiments;
#[cfg(feature = "failpoints")]
pub mod failpoints;
#[cfg(not(feature = "failpoints"))]
pub(crate) mod failpoints;
pub mod fork;
pub(crate) mod handle;
pub(crate) mod memory;
pub(crate) mod panics;
pub mod poll;
pub(crate) mod resolve;
#[cfg(all(feature = "tokio", unix))]
pub(crate) mod signals;
#[cfg_attr(not(feature = "tokio"), allow(dead_code, reason = "tasks wait through the tokio face"))]
pub(crate) mod tasks;
pub(crate) mod threads;
pub(crate) mod timers;
pub(crate) mod wake;
pub(crate) mod workers;
