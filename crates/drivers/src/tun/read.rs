//! Frames from a queue of a device into mbufs of the stack's pool.
//!
//! A frame is read by one `readv` into three places: the device's header, the room that is left in the current cluster, and a
//! second cluster. Long frames so lie one behind the other, and the stack references the parts that it keeps; a frame of up
//! to [`COPY_MAX`] bytes is only lent, and the next one is read over it, for a few bytes in a socket's buffer would otherwise
//! keep 64 KiB from being used. Where the pool has nothing left, frames are read into a buffer of our own and lent, so that
//! acknowledgments, which give memory back, are seen.
//!
//! It does not depend on queues, waiting or IP. Invariants: the first place has at least [`FIRST_MIN`] bytes, so
//! that all headers lie in one piece; a reader that found nothing holds no packet memory, nor does that of a queue at which a thread waits
//! (`queue.rs`). Tests: `tests/devices.rs`.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use libc::iovec;
use sockeye_mbuf::{CLUSTER_MAX, Chain, Mbuf, Pool};
use sockeye_netif::RxFrame;

use super::vnet;

/// The longest frame that is lent, bytes. A longer one keeps at most sixteen times its length from being used.
const COPY_MAX: usize = 4096;
/// The least room for the first part of a frame, bytes: more than all headers together.
const FIRST_MIN: usize = 512;
/// The longest frame, bytes: an Ethernet header with two VLAN tags, and the longest IP packet.
pub(super) const FRAME_MAX: usize = 22 + 65_535;
const _: () = assert!(FIRST_MIN + CLUSTER_MAX >= FRAME_MAX);

/// The buffers that a queue reads into.
#[derive(Default)]
pub(super) struct Reader {
    pool: Option<Pool>,
    /// An empty view at the end of the bytes read into its cluster.
    current: Option<Mbuf>,
    /// An empty cluster.
    next: Option<Mbuf>,
    /// For when the pool is exhausted.
    spill: Vec<u8>,
}

impl Reader {
    /// Where memory comes from, from now on.
    pub fn attach(&mut self, pool: &Pool) {
        self.pool = Some(pool.clone());
    }

    /// Reads a frame of the device and shows it to `sink`, with its header if the device has one. Returns its length.
    ///
    /// # Errors
    /// The system's; `WouldBlock` if there is none.
    pub fn frame(
        &mut self,
        fd: BorrowedFd<'_>,
        has_header: bool,
        sink: &mut dyn FnMut(RxFrame<'_>),
    ) -> io::Result<usize> {
        let mut header = [0; vnet::LEN];
        let header_len = if has_header { vnet::LEN } else { 0 };
        if !self.provide() {
            return self.spilled(fd, has_header, sink);
        }
        let (Some(current), Some(next)) = (&mut self.current, &mut self.next) else {
            return self.spilled(fd, has_header, sink);
        };
        let (Some(mut first), Some(mut second)) = (current.spare(), next.spare()) else {
            // What the stack has kept was extended into the room behind it.
            self.rest();
            return self.spilled(fd, has_header, sink);
        };
        let places = [
            iovec { iov_base: header.as_mut_ptr().cast(), iov_len: header_len },
            iovec { iov_base: first.as_mut_ptr().cast(), iov_len: first.len() },
            iovec { iov_base: second.as_mut_ptr().cast(), iov_len: second.len() },
        ];
        let count = i32::try_from(places.len()).unwrap_or_default();
        // SAFETY: each place is memory that is ours to write for as long as the call lasts: the header above and the
        // reserved room of two clusters, each with its own length.
        let read = unsafe { libc::readv(fd.as_raw_fd(), places.as_ptr(), count) };
        let len = usize::try_from(read).map_err(|_| io::Error::last_os_error())?;
        let len = len.saturating_sub(header_len);
        if len <= COPY_MAX.min(first.len()) {
            let bytes = ptr::slice_from_raw_parts(first.as_mut_ptr(), len);
            // SAFETY: the call has written `len` bytes there, and nothing is written there again before `first` is gone.
            let bytes: &[u8] = unsafe { &*bytes };
            sink(with_header(RxFrame::new(bytes, &Chain::new()), header));
            return Ok(len);
        }
        let in_first = len.min(first.len());
        // SAFETY: the call has filled the first place before it went on to the second.
        unsafe { first.commit(in_first) };
        // SAFETY: the rest of its frame stands there.
        unsafe { second.commit(len - in_first) };
        let rest = Chain::from(next.slice(..));
        sink(with_header(RxFrame::in_mbufs(current, &rest), header));
        self.advance();
        Ok(len)
    }

    /// Gives back unused memory. To be called when nothing was found, or when no thread may come to find nothing.
    pub fn rest(&mut self) {
        (self.current, self.next) = (None, None);
    }

    /// Sees to it that there is room for a frame. False if the pool has none.
    fn provide(&mut self) -> bool {
        let Some(pool) = &self.pool else { return false };
        for place in [&mut self.current, &mut self.next] {
            if place.is_none() {
                *place = pool.alloc(CLUSTER_MAX).ok();
            }
        }
        self.current.is_some() && self.next.is_some()
    }

    /// After a frame that the stack may have kept: the next begins behind it, or in the second cluster if there is no
    /// room for headers in the first. The second is used only once the first is full.
    fn advance(&mut self) {
        for place in [&mut self.current, &mut self.next].into_iter().flatten() {
            place.trim_front(place.len());
        }
        let is_used_up = |mbuf: &mut Mbuf| mbuf.spare().is_none_or(|spare| spare.len() < FIRST_MIN);
        if self.current.as_mut().is_none_or(is_used_up) {
            self.current = self.next.take();
        }
        if self.current.as_mut().is_some_and(is_used_up) {
            self.current = None;
        }
    }

    /// Reads into a buffer of our own.
    fn spilled(
        &mut self,
        fd: BorrowedFd<'_>,
        has_header: bool,
        sink: &mut dyn FnMut(RxFrame<'_>),
    ) -> io::Result<usize> {
        self.spill.resize(vnet::LEN + FRAME_MAX, 0);
        let read = rustix::io::read(fd, &mut self.spill[..])?;
        let (header, frame) = if has_header {
            let Some((header, _)) = self.spill.split_first_chunk() else { return Ok(0) };
            (*header, self.spill.get(vnet::LEN..read).unwrap_or_default())
        } else {
            ([0; vnet::LEN], &self.spill[..read])
        };
        sink(with_header(RxFrame::new(frame, &Chain::new()), header));
        Ok(frame.len())
    }
}

/// The frame with the data of the device's header.
fn with_header(frame: RxFrame<'_>, header: [u8; vnet::LEN]) -> RxFrame<'_> {
    let (checksum, gso_size) = vnet::read(header);
    RxFrame { checksum, gso_size, ..frame }
}
