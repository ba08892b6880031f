//! The two sides: the kernel's sockets, and Sockeye's; and the counts of a counting build.

#[cfg(test)]
pub mod checks;
pub mod handoffs;
pub mod kernel;
pub mod sockeye;
mod std_shape;
pub mod unix_kernel;
