//! What only older settings of the stack use, for experiments: remote-free lists (the setting `rx_free`).
//!
//! Must not know connections, or which thread empties a list. Tests: `tests/remote_free.rs`; models in `remote_list.rs` and
//! `remote_free/models.rs`.

mod remote_free;
mod remote_list;

pub use remote_free::Seen;
pub(crate) use remote_list::CoreLists;
pub use remote_list::{CORE_BYTES_MAX, RemoteFreeList, RemoteFreeSlot};
