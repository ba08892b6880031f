//! The older settings of the techniques, which the feature `experiments` adds: who reports space to the peer, who frees a receive
//! buffer, and who wakes a reader.

#[path = "../common/mod.rs"]
mod common;

mod rcvd;
mod rx_free;
mod wake;
