//! The simulated network: links, congestion, packets held on their way, names, and what is captured.

mod autotune;
mod congestion;
mod emulate;
mod fast_open;
mod holds;
mod links;
mod memory;
mod names;
mod pcapng;
mod udp;
mod unix;
mod yardsticks;
