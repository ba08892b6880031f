//! Workloads of experiments that run over a [`Provider`].
//!
//! Purpose: the shapes that `stream`, `rr` and `crr` measure, opened on the kernel or on a stack with any
//! configuration.
//!
//! Does not depend on which experiment it is.
//!
//! Invariants: both sides run the same code, compiled twice.
//!
//! Tests: below.

use std::io;

use crate::experiment::model::{On, Taken, Testbed, Work};
use crate::meter::{Timing, Window};
use crate::pin::{Pin, Placement};
use crate::provider::Provider;
use crate::providers::kernel::Kernel;
use crate::providers::sockeye;
use crate::workloads::{crr, rr, stream};

/// The work on a provider's sockets.
#[derive(Clone, Debug)]
pub enum Shape {
    /// Bulk one way.
    Stream(stream::Spec),
    /// Request and response on open connections.
    Rr(rr::Spec),
    /// Connect, request, response, close.
    Crr(crr::Spec),
}

impl Shape {
    /// One sample of `provider`. Blocks for its time.
    pub fn sample<P: Provider>(
        &self,
        provider: &P,
        placement: &Placement,
        timing: Timing,
    ) -> io::Result<Window> {
        match self {
            Shape::Stream(spec) => stream::sample(provider, spec, placement, timing),
            Shape::Rr(spec) => rr::sample(provider, spec, placement, timing),
            Shape::Crr(spec) => crr::sample(provider, spec, placement, timing),
        }
    }

    /// Converts its counts a second to the unit: bytes to Gbit/s, others as they are.
    fn scale(&self) -> f64 {
        match self {
            Shape::Stream(_) => BITS_PER_BYTE / GIGA,
            Shape::Rr(_) | Shape::Crr(_) => 1.0,
        }
    }

    /// The count of one operation: for bulk the length of one receive.
    fn per_operation(&self) -> f64 {
        match self {
            Shape::Stream(spec) => spec.reading.size as f64,
            Shape::Rr(_) | Shape::Crr(_) => 1.0,
        }
    }
}

/// A shape over loopback.
#[derive(Clone, Debug)]
pub struct Loopback {
    /// The operation.
    pub shape: Shape,
    /// Where its threads run.
    pub pin: Pin,
}

impl Work for Loopback {
    fn open(&self, on: &On<'_>) -> io::Result<Box<dyn Testbed>> {
        Ok(match (on, &self.shape) {
            (On::Kernel, Shape::Crr(_)) => {
                self.testbed(Kernel::for_short_connections()?, &self.shape, self.pin)?
            }
            (On::Kernel, Shape::Stream(_) | Shape::Rr(_)) => {
                self.testbed(Kernel::new()?, &self.shape, self.pin)?
            }
            (On::Sockeye(config), shape) => {
                self.testbed(sockeye::Sockeye::over((*config).clone())?, shape, self.pin)?
            }
        })
    }
}

impl Loopback {
    fn testbed<P: Provider + 'static>(
        &self,
        provider: P,
        shape: &Shape,
        pin: Pin,
    ) -> io::Result<Box<dyn Testbed>> {
        Ok(Box::new(Opened::new(provider, shape.clone(), pin)?))
    }
}

/// A shape from one stack to another, over a wire between them. The kernel has none.
#[derive(Clone, Debug)]
pub struct OverWire {
    /// The operation.
    pub shape: Shape,
    /// Where its threads run.
    pub pin: Pin,
    /// Bytes of the largest packet.
    pub mtu: u32,
    /// Input threads at each end.
    pub queues: usize,
}

impl Work for OverWire {
    fn open(&self, on: &On<'_>) -> io::Result<Box<dyn Testbed>> {
        let (shape, pin) = (self.shape.clone(), self.pin);
        Ok(match on {
            On::Kernel => return Err(io::Error::from(io::ErrorKind::Unsupported)),
            On::Sockeye(config) => {
                let wire = sockeye::Wire::over(config, self.mtu, self.queues)?;
                Box::new(Opened::new(wire, shape, pin)?)
            }
        })
    }
}

/// A shape on one provider.
pub struct Opened<P> {
    provider: P,
    shape: Shape,
    placement: Placement,
}

impl<P: Provider> Opened<P> {
    /// With threads placed by `pin`.
    pub fn new(provider: P, shape: Shape, pin: Pin) -> io::Result<Self> {
        Ok(Self { provider, shape, placement: Placement::new(pin)? })
    }
}

impl<P: Provider> Testbed for Opened<P> {
    fn sample(&self, timing: Timing) -> io::Result<Taken> {
        let window = self.shape.sample(&self.provider, &self.placement, timing)?;
        Ok(Taken::of(window, self.shape.scale(), self.shape.per_operation()))
    }
}

const BITS_PER_BYTE: f64 = 8.0;
const GIGA: f64 = 1e9;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ::sockeye::Config;

    use super::*;

    const TIMING: Timing = Timing { warm_up: Duration::from_millis(5), timed: Duration::from_millis(200) };

    #[test]
    fn both_sides_do_each_shape_and_count_operations() {
        let reading = stream::Reader { size: 10_000, whole: true, ..stream::Reader::PLAIN };
        for shape in [
            Shape::Stream(stream::Spec { connections: 2, size: 10_000, nodelay: false, reading }),
            Shape::Rr(rr::Spec { connections: 5, threads: Some(2), size: 1, nodelay: false }),
            Shape::Crr(crr::Spec { clients: 2, acceptors: 1, size: 100, response: 512 }),
        ] {
            let config = Config::default();
            for on in [On::Kernel, On::Sockeye(&config)] {
                let work = Loopback { shape: shape.clone(), pin: Pin::None };
                let taken = work.open(&on).unwrap().sample(TIMING).unwrap();
                assert!(taken.value > 0.0 && taken.operations >= 1.0, "{shape:?}: {taken:?}");
                let counts = !matches!(on, On::Kernel);
                assert_eq!(taken.counters.get("segments_in").is_some_and(|&n| n > 0), counts, "{taken:?}");
            }
        }
    }

    #[test]
    fn a_wire_carries_each_shape_and_is_not_the_kernels() {
        let reading = stream::Reader::PLAIN;
        for shape in [
            Shape::Stream(stream::Spec { connections: 2, size: 10_000, nodelay: false, reading }),
            Shape::Rr(rr::Spec { connections: 5, threads: Some(2), size: 1, nodelay: false }),
        ] {
            let work = OverWire { shape, pin: Pin::None, mtu: 1500, queues: 2 };
            assert!(work.open(&On::Kernel).is_err());
            let config = Config::default();
            let taken = work.open(&On::Sockeye(&config)).unwrap().sample(TIMING).unwrap();
            assert!(taken.value > 0.0 && taken.counters["frames_in"] > 0, "{taken:?}");
        }
    }
}
