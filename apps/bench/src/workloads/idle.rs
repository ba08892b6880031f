//! `idle`: CPU time that connections cost on which nothing happens.
//!
//! Purpose: show that an idle stack sleeps. Connections are opened, left alone for [`SETTLE`], then the
//! process's CPU time is watched for [`WATCHED`], or for the sample's own time if that is longer.
//!
//! Does not depend on the provider.
//!
//! Tests: below.

use std::io;
use std::time::Duration;

use crate::meter::{Meter, Reading, Timing};
use crate::provider::{Provider, difference};
use crate::workloads::{Sample, pairs};

/// Its parameters.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Open connections.
    pub connections: usize,
}

/// Milliseconds of CPU time a second.
pub fn sample<P: Provider>(provider: &P, spec: &Spec, timing: Timing) -> io::Result<Sample> {
    let _connections = pairs(provider, spec.connections)?;
    let before = provider.counters();
    let timing = Timing { warm_up: SETTLE, timed: timing.timed.max(WATCHED) };
    let window = Meter::new(0, 0).observe(timing, || Ok(Reading::now(provider.counters())))?;
    let counters = difference(&before, &provider.counters());
    Ok(Sample { value: window.cores() * MILLIS_PER_SECOND, cpu: Some(window.cores()), counters })
}

/// Delayed acknowledgements and the like are over after this.
pub const SETTLE: Duration = Duration::from_millis(300);

/// The least time to watch.
pub const WATCHED: Duration = Duration::from_secs(2);

/// Connections at most; the kernel's side stops earlier, at the limit of descriptors.
pub const CONNECTIONS_MAX: usize = 100_000;

const MILLIS_PER_SECOND: f64 = 1e3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::kernel::Kernel;

    #[test]
    fn a_sleeping_process_uses_next_to_no_cpu() {
        let kernel = Kernel::new().unwrap();
        let timing = Timing { warm_up: Duration::ZERO, timed: Duration::ZERO };
        // Other tests of this binary run in the same process, so only the bounds can be checked.
        let sample = sample(&kernel, &Spec { connections: 10 }, timing).unwrap();
        assert!(sample.value >= 0.0 && sample.cpu.is_some());
    }
}
