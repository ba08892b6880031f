//! What a child of fork(2) can do with the stacks and sockets of its parent (`docs/fork.md`).

#[path = "../common/mod.rs"]
mod common;

mod child;
mod detached;
mod lost;
mod threadless;
mod world;
