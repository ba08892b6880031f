//! TCP sockets by themselves: calls, options, limits and errors, on loopback and against a peer that the test scripts.
//!
//! One file for each topic. Segments through the Internet layer are tested in `tests/ip`, devices in `tests/wire`, each call under each
//! setting in `tests/suite`.

#[path = "../common/mod.rs"]
mod common;
#[allow(dead_code, reason = "the tests of the Internet layer use the rest of it")]
#[path = "../ip/host.rs"]
mod host;
#[allow(dead_code, reason = "the tests of waiting use the rest of it")]
#[path = "../common/peer.rs"]
mod peer;

mod accept_values;
mod admission;
mod bind;
mod canonical;
mod driven;
mod errno;
mod fastopen;
mod idle;
mod limited;
mod notsent;
mod one_way;
mod oracle;
mod pruning;
mod receiving;
mod reports;
mod seeded;
mod sender;
mod small_segments;
mod snapshot;
mod syn_flood;
mod urgent;
mod writer_admission;
