//! The operation on the sockets, and the meaning of its result.
//!
//! Purpose: the closed list of workloads, with their parameters, units and one way to take a sample
//! of any of them.
//!
//! Does not depend on how results are compared or printed.
//!
//! Invariants: every workload's load is bounded in time and in number; its threads end when the sample
//! does, whatever the sockets return. All threads are new for each sample, and connections are made
//! before its window opens.
//!
//! Tests: each workload's own, over the kernel; `tests/bench` through the command.

use std::io;

use clap::ValueEnum;
use serde_json::{Map, Value, json};

use crate::meter::{Timing, Window};
use crate::pin::Placement;
use crate::provider::{Counters, Listener, Provider, Stream, difference};

pub mod crr;
pub mod http;
pub mod idle;
pub mod mem;
pub mod one_way;
pub mod rr;
pub mod stream;
pub mod unix;

/// Parameters by name, for output.
pub type Params = Map<String, Value>;

/// A workload's name on the command line and in output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// Bulk data over N connections, one writer and one reader thread each
    Stream,
    /// Request and response in turn on N open connections
    Rr,
    /// Small messages in one direction, each written when the one before has been read
    OneWay,
    /// Connect, request, response, close
    Crr,
    /// Memory of an idle connection, both ends
    Mem,
    /// CPU time that idle connections cost
    Idle,
    /// HTTP/1.1 calls of hyper under tokio, over connections that are kept open
    Http1,
    /// The same with HTTP/2, unary calls
    Http2,
}

impl Name {
    /// As a word.
    pub fn as_str(self) -> &'static str {
        match self {
            Name::Stream => "stream",
            Name::Rr => "rr",
            Name::OneWay => "one-way",
            Name::Crr => "crr",
            Name::Mem => "mem",
            Name::Idle => "idle",
            Name::Http1 => http::Version::One.name(),
            Name::Http2 => http::Version::Two.name(),
        }
    }
}

/// A workload with its parameters.
#[derive(Clone, Debug)]
pub enum Workload {
    /// See [`stream`].
    Stream(stream::Spec),
    /// See [`rr`].
    Rr(rr::Spec),
    /// See [`one_way`].
    OneWay(one_way::Spec),
    /// See [`crr`].
    Crr(crr::Spec),
    /// See [`mem`].
    Mem(mem::Spec),
    /// See [`idle`].
    Idle(idle::Spec),
    /// See [`http`].
    Http(http::Spec),
}

/// One measurement.
#[derive(Clone, Debug)]
pub struct Sample {
    /// In the workload's unit.
    pub value: f64,
    /// Cores used, if CPU time was measured.
    pub cpu: Option<f64>,
    /// Counts of the provider or the workload meanwhile.
    pub counters: Counters,
}

impl Workload {
    /// Its name.
    pub fn name(&self) -> Name {
        match self {
            Workload::Stream(_) => Name::Stream,
            Workload::Rr(_) => Name::Rr,
            Workload::OneWay(_) => Name::OneWay,
            Workload::Crr(_) => Name::Crr,
            Workload::Mem(_) => Name::Mem,
            Workload::Idle(_) => Name::Idle,
            Workload::Http(http::Spec { version: http::Version::One, .. }) => Name::Http1,
            Workload::Http(http::Spec { version: http::Version::Two, .. }) => Name::Http2,
        }
    }

    /// Unit of a value.
    pub fn unit(&self) -> &'static str {
        match self {
            Workload::Stream(spec) if spec.counts_writes() => "writes/s",
            Workload::Stream(_) => "Gbit/s",
            Workload::Rr(_) => "transactions/s",
            Workload::OneWay(_) => "messages/s",
            Workload::Crr(_) => "connections/s",
            Workload::Mem(_) => "bytes",
            Workload::Idle(_) => "CPU ms/s",
            Workload::Http(_) => http::UNIT,
        }
    }

    /// Whether more is better.
    pub fn higher_is_better(&self) -> bool {
        match self {
            Workload::Stream(_)
            | Workload::Rr(_)
            | Workload::OneWay(_)
            | Workload::Crr(_)
            | Workload::Http(_) => true,
            Workload::Mem(_) | Workload::Idle(_) => false,
        }
    }

    /// Whether a ratio of the two sides says anything: not for CPU time that is next to nothing.
    pub fn has_ratio(&self) -> bool {
        match self {
            Workload::Stream(_)
            | Workload::Rr(_)
            | Workload::OneWay(_)
            | Workload::Crr(_)
            | Workload::Mem(_)
            | Workload::Http(_) => true,
            Workload::Idle(_) => false,
        }
    }

    /// The parameters that are the workload's own.
    pub fn params(&self) -> Params {
        let value = match self {
            Workload::Stream(spec) => json!({
                "connections": spec.connections, "size": spec.size, "nodelay": spec.nodelay,
            }),
            Workload::Rr(spec) => json!({
                "connections": spec.connections, "size": spec.size, "nodelay": spec.nodelay,
                "threads": spec.threads_a_side(), "readiness": spec.threads.is_some(),
            }),
            Workload::OneWay(spec) => json!({ "size": spec.size, "nodelay": spec.nodelay }),
            Workload::Crr(spec) => json!({
                "clients": spec.clients, "size": spec.size, "acceptors": spec.acceptors,
            }),
            Workload::Mem(spec) => json!({
                "connections": spec.connections, "touch": spec.touch,
            }),
            Workload::Idle(spec) => json!({ "connections": spec.connections }),
            Workload::Http(spec) => json!({ "connections": spec.connections, "runtimes": spec.runtimes }),
        };
        match value {
            Value::Object(params) => params,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                Params::new()
            }
        }
    }

    /// One sample over `provider`, in this process. [`Workload::Mem`] and [`Workload::Http`] have none: they measure
    /// processes of their own, see [`mem::sample`] and [`http::sample`].
    pub fn sample<P: Provider>(
        &self,
        provider: &P,
        placement: &Placement,
        timing: Timing,
    ) -> io::Result<Sample> {
        let before = provider.counters();
        let (window, scale) = match self {
            Workload::Stream(spec) => (stream::sample(provider, spec, placement, timing)?, spec.scale()),
            Workload::Rr(spec) => (rr::sample(provider, spec, placement, timing)?, 1.0),
            Workload::OneWay(spec) => (one_way::sample(provider, spec, placement, timing)?, 1.0),
            Workload::Crr(spec) => (crr::sample(provider, spec, placement, timing)?, 1.0),
            Workload::Idle(spec) => return idle::sample(provider, spec, timing),
            Workload::Mem(_) | Workload::Http(_) => {
                return Err(io::Error::other("this is not measured in this process"));
            }
        };
        let mut counters = difference(&before, &provider.counters());
        if let Workload::Stream(spec) = self
            && spec.counts_writes()
        {
            counters.insert("payload_bytes".to_owned(), window.count);
        }
        Ok(rate_sample(window, scale, counters))
    }
}

fn rate_sample(window: Window, scale: f64, counters: Counters) -> Sample {
    Sample { value: window.rate() * scale, cpu: Some(window.cores()), counters }
}

/// Both ends of some connections, in the same order.
pub struct Pairs<S> {
    /// The ends that connected.
    pub clients: Vec<S>,
    /// The ends that were accepted.
    pub servers: Vec<S>,
}

/// Opens `count` connections to the provider's listener.
pub fn pairs<P: Provider>(provider: &P, count: usize) -> io::Result<Pairs<P::Stream>> {
    pairs_with(provider, &provider.listen()?, count)
}

/// Opens `count` connections to `listener`.
pub fn pairs_with<P: Provider>(
    provider: &P,
    listener: &P::Listener,
    count: usize,
) -> io::Result<Pairs<P::Stream>> {
    let most = provider.pairs_max();
    if count > most {
        return Err(io::Error::new(
            io::ErrorKind::QuotaExceeded,
            format!(
                "{count} connections are more than this process may have with both ends ({most}); \
                 use fewer, or raise the limit of descriptors (ulimit -n)"
            ),
        ));
    }
    let address = listener.local_addr()?;
    let mut pairs = Pairs { clients: Vec::with_capacity(count), servers: Vec::with_capacity(count) };
    for _ in 0..count {
        let client = provider.connect(address)?;
        let server = listener.accept()?;
        if client.local_addr()? != server.peer_addr()? {
            return Err(io::Error::other("accept returned a connection from another client"));
        }
        pairs.clients.push(client);
        pairs.servers.push(server);
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::kernel::Kernel;

    #[test]
    fn pairs_are_connected_to_each_other() {
        let kernel = Kernel::new().unwrap();
        let Pairs { clients, servers } = pairs(&kernel, 5).unwrap();
        for (index, client) in clients.iter().enumerate() {
            Stream::write_all(client, &[index as u8]).unwrap();
        }
        for (index, server) in servers.iter().enumerate() {
            let mut byte = [0xFF];
            Stream::read_exact(server, &mut byte).unwrap();
            assert_eq!(usize::from(byte[0]), index);
        }
    }

    #[test]
    fn too_many_pairs_are_refused_before_any_is_made() {
        let kernel = Kernel::new().unwrap();
        let error = pairs(&kernel, kernel.pairs_max() + 1).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::QuotaExceeded);
    }
}
