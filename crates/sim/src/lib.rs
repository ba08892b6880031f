//! A network of real TCP stacks inside one thread, under a virtual clock, decided by one seed.
//!
//! Programs are ordinary asynchronous functions over the `tokio`-shaped types of `sockeye`; every byte goes through a
//! whole stack on each side, as IP packets over links that delay, lose, reorder, double and damage them. Only the
//! programs and the seed decide the run: a run that fails can be played again, and looked at packet by packet.
//!
//! ```
//! use std::time::Duration;
//! use sockeye_sim::net::{TcpListener, TcpStream};
//! use sockeye_sim::{LinkConfig, time};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! sockeye_sim::run(7, |net| async move {
//!     let (client, server) = (net.host("client"), net.host("server"));
//!     net.link(&client, &server, LinkConfig { loss: 0.02, ..LinkConfig::rtt(Duration::from_millis(100)) });
//!     let addr = server.at(80);
//!     server.spawn(async move {
//!         let listener = TcpListener::bind(addr).await.unwrap();
//!         let (mut stream, _) = listener.accept().await.unwrap();
//!         stream.write_all(b"hello").await.unwrap();
//!     });
//!     let told = client.spawn(async move {
//!         let mut stream = TcpStream::connect(addr).await?;
//!         let mut hello = String::new();
//!         stream.read_to_string(&mut hello).await?;
//!         std::io::Result::Ok(hello)
//!     });
//!     assert_eq!(told.await.unwrap().unwrap(), "hello");
//!     assert!(net.now() >= Duration::from_millis(200), "two round trips at least");
//! });
//! ```
//!
//! # What to know
//! * [`run()`] and [`Sim`] run a program; [`Net`] makes hosts and links; [`LinkConfig`] describes a link.
//! * A program on a [`Host`] connects and binds on that host's stack, UNIX-domain sockets included. A host can [crash](Host::crash) and start again;
//!   links can be [cut](Link::cut), changed while they run, and asked about every packet ([`Direction::filter`]).
//! * A host is found by its name: `connect("server:80")` and `lookup_host` in a program, and in libraries that use the stack's resolver. A name
//!   that no host has is an error that lists the hosts; the machine's resolver is never asked.
//! * [`time`] has `sleep`, `timeout` and `Instant` in virtual time. The clock jumps when all programs wait: an hour costs
//!   nothing unless something happens in it. Programs must not wait for another thread, nor use another clock. With the feature `entropy`, `std`'s
//!   clocks show virtual time, and hash maps and `getrandom` follow from the seed.
//! * [`blocking`] runs programs of the blocking kind.
//! * [`fs`] has files for each host, of which a crash takes what was not synced; [`signal`] has Ctrl-C and other signals.
//! * On failure the seed is printed with the command that replays it, and the links' packets are written to a pcap-ng
//!   file. `SOCKEYE_SIM_SEED` and `SOCKEYE_SIM_PCAP` ask for one seed and for a file.
//!
//! Three longer examples are in `examples/`: retries against a partition, a slow reader, a lossy link. More in `docs/sim.md`.
//! The code is read best from `drive.rs` (the loop) over `world.rs` and `pipe.rs` (packets) to `executor.rs` (programs).
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod blocking;
mod capture;
mod case;
pub mod check;
mod clock;
mod difference;
mod disk;
mod drive;
pub mod emulate;
mod event;
mod executor;
mod faults;
pub mod fs;
mod hold;
mod link;
mod machine;
mod names;
mod network;
mod packet;
mod pipe;
mod port;
mod process;
mod processes;
mod rng;
mod rules;
mod run;
#[cfg_attr(not(feature = "tokio"), path = "runtime_absent.rs")]
mod runtime;
mod seeds;
mod shard;
pub mod signal;
pub mod time;
mod timeline;
mod trace;
#[cfg(feature = "tracing")]
pub mod tracing;
mod unordered;
mod watch;
mod world;

/// The registry's page of this crate, whose program is tested here.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

pub use capture::Capture;
pub use case::CASE_VARIABLE;
pub use difference::Difference;
pub use disk::{Disk, DiskConfig};
pub use executor::{Aborted, JoinHandle, spawn};
pub use faults::{FaultConfig, FaultSchedule};
pub use hold::{Hold, PacketInFlight};
pub use link::{Burst, Fate, LinkConfig, LinkStats};
pub use network::{Direction, Host, HostConfig, Link, Net};
pub use packet::{Packet, Segment};
pub use processes::PROCESSES_VARIABLE;
pub use rng::Rng;
pub use rules::Holds;
pub use run::{PCAP_VARIABLE, SEED_VARIABLE, Sim, run, run_seeds};
pub use seeds::{KEEP_GOING_VARIABLE, Outcome, SHRINK_VARIABLE, Seeds, THREADS_VARIABLE};
pub use shard::{RESULTS_VARIABLE, SHARD_VARIABLE, SHARDS_VARIABLE};
pub use sockeye_sim_macros::test;
pub use watch::{Retransmission, Traffic};

/// The sockets that programs use: those of `sockeye`, in the shape of `tokio::net`.
pub mod net {
    pub use sockeye::tokio::{
        OwnedReadHalf, OwnedWriteHalf, TcpListener, TcpSocket, TcpStream, ToSocketAddrs, UdpSocket,
        UnixDatagram, UnixListener, UnixSocket, UnixStream, lookup_host, tcp, unix,
    };
}
