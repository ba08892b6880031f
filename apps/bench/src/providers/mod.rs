//! The two sides: the kernel's sockets, and Sockeye's, once as it is used and once counting hand-offs.

#[cfg(test)]
pub mod checks;
pub mod counted;
pub mod kernel;
pub mod sockeye;
pub mod unix_kernel;
