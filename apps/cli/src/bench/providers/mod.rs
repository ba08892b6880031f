//! The two sides: the kernel's sockets, and Sockeye's.

#[cfg(test)]
pub mod checks;
pub mod kernel;
pub mod sockeye;
