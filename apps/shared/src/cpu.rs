//! CPU time of the process.
//!
//! Tests: below.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// CPU time, user and system, that this process has used so far.
pub fn process_cpu() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    // The clock of a process starts at zero and nanoseconds are below a second.
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn the_cpu_clock_advances_with_work() {
        let before = process_cpu();
        let end = Instant::now() + Duration::from_secs(5);
        while process_cpu() < before + Duration::from_millis(2) {
            assert!(Instant::now() < end, "2 ms of CPU time do not take 5 s");
        }
    }
}
