//! Where the threads of a workload run.
//!
//! Purpose: the same placement for both sides, so that a ratio compares stacks and not schedulers.
//!
//! Does not depend on providers or workloads.
//!
//! Invariants: only cores this process may use are pinned to. Threads are new for every sample, so
//! nothing is ever unpinned.
//!
//! Tests: below.

use std::io;

use clap::ValueEnum;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::Serialize;

/// How the two ends of a connection are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Pin {
    /// Both ends of a connection on one core
    Same,
    /// The ends on neighbouring cores
    Split,
    /// Wherever the kernel's scheduler puts them
    None,
}

impl Pin {
    /// The name used in output and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Pin::Same => "same",
            Pin::Split => "split",
            Pin::None => "none",
        }
    }
}

/// A [`Pin`] with the cores there are.
#[derive(Clone, Debug)]
pub struct Placement {
    pin: Pin,
    cores: Vec<usize>,
}

impl Placement {
    /// Over the cores this process may run on.
    pub fn new(pin: Pin) -> io::Result<Self> {
        Ok(Self { pin, cores: usable_cores()? })
    }

    /// The rule.
    pub fn pin(&self) -> Pin {
        self.pin
    }

    /// Pins the calling thread as the client side's thread `index`.
    pub fn client(&self, index: usize) -> io::Result<()> {
        self.apply(self.client_core(index))
    }

    /// Pins the calling thread as the server side's thread `index`.
    pub fn server(&self, index: usize) -> io::Result<()> {
        self.apply(self.server_core(index))
    }

    fn client_core(&self, index: usize) -> Option<usize> {
        match self.pin {
            Pin::Same | Pin::Split => self.cores.get(index % self.cores.len()).copied(),
            Pin::None => None,
        }
    }

    fn server_core(&self, index: usize) -> Option<usize> {
        match self.pin {
            Pin::Same => self.client_core(index),
            Pin::Split => self.client_core(index + 1),
            Pin::None => None,
        }
    }

    fn apply(&self, core: Option<usize>) -> io::Result<()> {
        let Some(core) = core else { return Ok(()) };
        let mut set = CpuSet::new();
        set.set(core);
        Ok(sched_setaffinity(None, &set)?)
    }
}

/// The numbers of the cores this process may run on; never empty.
pub fn usable_cores() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect();
    if cores.is_empty() {
        return Err(io::Error::other("the kernel names no core this process may run on"));
    }
    Ok(cores)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placement(pin: Pin) -> Placement {
        Placement { pin, cores: vec![3, 5] }
    }

    #[test]
    fn same_puts_both_ends_together_and_split_apart() {
        for index in 0..4 {
            let same = placement(Pin::Same);
            assert_eq!(same.client_core(index), same.server_core(index));
            let split = placement(Pin::Split);
            assert_ne!(split.client_core(index), split.server_core(index));
            assert_eq!(placement(Pin::None).client_core(index), None);
        }
        assert_eq!(placement(Pin::Split).client_core(0), Some(3));
        assert_eq!(placement(Pin::Split).server_core(1), Some(3));
    }

    #[test]
    fn a_pinned_thread_runs_on_its_core() {
        std::thread::spawn(|| {
            let placement = Placement::new(Pin::Same).unwrap();
            placement.client(1).unwrap();
            assert_eq!(usable_cores().unwrap(), [placement.client_core(1).unwrap()]);
        })
        .join()
        .unwrap();
    }
}
