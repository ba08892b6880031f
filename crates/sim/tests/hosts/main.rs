//! Simulated hosts: their clocks, entropy, files, programs, signals and logs, and that a seed decides everything.

#[path = "../common/mod.rs"]
mod common;

mod blocking;
mod checkers;
#[cfg(all(
    target_os = "linux",
    target_pointer_width = "64",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
mod clocks;
mod determinism;
mod disk;
#[cfg(all(
    target_os = "linux",
    target_pointer_width = "64",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
mod entropy;
mod fs;
mod processes;
mod programs;
mod signals;
mod tracing;
