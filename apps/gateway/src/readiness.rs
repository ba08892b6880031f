//! Registers descriptors in the loop's runtime for which tokio has no type of its own.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Registers a descriptor's owner in the runtime of this task.
///
/// # Errors
/// The system's, as for a file that cannot be waited for.
pub fn register<T: AsFd + AsRawFd>(owner: T, interest: Interest) -> io::Result<AsyncFd<T>> {
    // Newer versions of tokio want a promise that the descriptor stays the same and open, which `AsFd` is; older ones have only this.
    #[allow(deprecated)]
    AsyncFd::with_interest(owner, interest)
}
