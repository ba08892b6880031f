//! The behaviour of a parent's stacks and sockets in a child of fork(2) (`docs/fork.md`).

#[path = "../common/mod.rs"]
mod common;

mod child;
mod detached;
mod lost;
mod threadless;
mod world;
