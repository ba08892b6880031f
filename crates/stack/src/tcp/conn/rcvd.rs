//! How a reader reports to the protocol that it has taken bytes from `so_rcv` (BSD's `pru_rcvd`): by the connection's one message, and
//! only if a window update is due, or an acknowledgment because `so_rcv` is empty or much waits for one. It never waits.
//!
//! The reader decides under the hold of the lock that unlinks the bytes ([`Discipline::owes_message`](crate::tcp::discipline::Discipline)),
//! and runs the message itself, before it lets go. Whether taking bytes makes an acknowledgment due is the pcb's decision
//! (`proto/src/tcp/delack.rs`); it stands in `RecvBuf::acks_at_read`. When the message is run and bytes have come meanwhile, the
//! receive that takes those decides.
//!
//! The message is [`Conn::notify`](super::Conn): the protocol re-arms it *before* it looks at the buffers, so space that is freed
//! while it looks sends it again. (Older settings bring the message to the protocol by other ways, and may wait for a reply:
//! `tcp/experiments/rcvd.rs`.)
//!
//! # Why no update is lost
//!
//! By the order of re-arming and looking (head of `sockeye_sync`'s `notify.rs`), and by the section: bytes are unlinked and "due" is
//! decided in one hold of the lock, the window is computed and its edge stored in one hold of the same (`sockbuf.rs`). So a reader
//! may go to sleep for more than the buffer can hold: the message for the bytes that it took was sent, or was not due, before it
//! waits.
//!
//! The same holds for the acknowledgment: `acks_at_read` is stored in the hold that appended the bytes, and read in the hold
//! that unlinks the last of them. If bytes come between that and the message, the buffer is not empty when it is run; the flag is
//! still set then, and the read that takes them decides again.
//!
//! Tests: `tests/experiments/rcvd.rs`; the orders in `crates/sync/tests/loom/{notify,precheck}.rs`.

use sockeye_proto::tcp::pcb::Pcb;
use sockeye_sync::Post;

use super::sockbuf::Buffers;
use super::{Conn, Work, reason};
use crate::base::payload::Data;
use crate::rt::counter;
use crate::tcp::Core;

/// A reader's message, if it is not on its way already. Counts it.
#[inline]
pub(crate) fn message(core: &Core, conn: &Conn) -> Option<Work> {
    is_posted(core, conn, reason::RCVD).then_some(Work::Notify)
}

/// Posts the message and counts the result. True if the caller has to bring it.
pub(crate) fn is_posted(core: &Core, conn: &Conn, reasons: u32) -> bool {
    let posted = conn.notify.post(reasons);
    core.count(match posted {
        Post::Fire => counter::RCVD_SENT,
        Post::Coalesced | Post::Dead => counter::RCVD_COALESCED,
    });
    posted == Post::Fire
}

/// The protocol has got the message: the reader may have emptied the buffer. The window is a matter of output.
pub(super) fn heard(pcb: &mut Pcb<Data>, so: &Buffers, reasons: u32) {
    if reasons & reason::RCVD != 0 {
        pcb.on_read(so.rcv.chain.is_empty());
    }
}
