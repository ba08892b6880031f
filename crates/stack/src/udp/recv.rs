//! Receiving: the receive queue's mutex and no other; the copy out is made after it.
//!
//! A pending error comes before the queue, as on Linux. Does not depend on how datagrams arrive. Why no wake-up is
//! lost: `pcb.rs`. Tests: `tests/udp/`.

use std::io::IoSliceMut;

use rustix::io::Errno;
use smallvec::SmallVec;
use sockeye_mbuf::Chain;
use sockeye_sync::facade::{Arc, Ordering};

use super::count;
use super::errors::{Queued, RecvError};
use super::message::RecvMeta;
use super::naming::Handle;
use super::pcb::{Datagram, Pcb, Protocol, So};
use super::stamps::{self, Notable};
use crate::base::addr::Endpoint;
use crate::inet::input::busy;
use crate::inet::netif::scope;
use crate::rt::blocking::{self, Timeout};
use crate::rt::failpoints::{self, Point};
use crate::rt::panics;

/// Most datagrams that are taken under one hold of the mutex.
const BATCH_MAX: usize = 16;

/// Receives a datagram into `bufs`.
#[inline]
pub(crate) fn recv(handle: &Handle, bufs: &mut [IoSliceMut<'_>]) -> Result<RecvMeta, Errno> {
    receive(handle, |payload| fill(payload, bufs))
}

/// [`recv`] of at most `room` bytes, which `put` gets piece by piece.
#[cfg(feature = "tokio")]
pub(crate) fn recv_pieces(
    handle: &Handle,
    room: usize,
    mut put: impl FnMut(&[u8]),
) -> Result<RecvMeta, Errno> {
    receive(handle, |payload| {
        payload.pieces(0, room).for_each(&mut put);
        payload.len().min(room)
    })
}

/// [`recv`] of at most `room` bytes as they lie in packet memory: not copied.
#[cfg(feature = "tokio")]
pub(crate) fn recv_chain(handle: &Handle, room: usize) -> Result<(Chain, RecvMeta), Errno> {
    panics::call_or_errno(handle.core(), "receive", || {
        let mut datagram = pop(handle)?;
        let meta = hand_out(handle, &datagram, |payload| payload.len().min(room));
        datagram.payload.truncate(room);
        Ok((datagram.payload, meta))
    })
}

/// Receives a datagram by `copy`, which returns the number of bytes.
#[inline]
fn receive(handle: &Handle, copy: impl FnOnce(&Chain) -> usize) -> Result<RecvMeta, Errno> {
    panics::call_or_errno(handle.core(), "receive", || {
        let datagram = pop(handle)?;
        Ok(hand_out(handle, &datagram, copy))
    })
}

#[inline]
fn pop(handle: &Handle) -> Result<Datagram, Errno> {
    let datagram = await_some(handle, blocks(&handle.pcb), So::pop)?;
    failpoints::hit(Point::UdpReceive, u64::from(handle.pcb.name.load().local.port));
    Ok(datagram)
}

/// Copies the oldest datagram into `bufs`, and keeps it.
pub(crate) fn peek(handle: &Handle, bufs: &mut [IoSliceMut<'_>]) -> Result<RecvMeta, Errno> {
    panics::call_or_errno(handle.core(), "peek", || {
        await_some(handle, blocks(&handle.pcb), |so| {
            let datagram = so.queue.front()?;
            let len = fill(&datagram.payload, bufs);
            Some(meta(&handle.pcb, datagram, len))
        })
    })
}

/// Receives a datagram into each of `bufs`, as many as there are, once there is one. Returns how many.
pub(crate) fn recv_batch(
    handle: &Handle,
    bufs: &mut [IoSliceMut<'_>],
    metas: &mut [RecvMeta],
) -> Result<usize, Errno> {
    panics::call_or_errno(handle.core(), "receive", || recv_several(handle, bufs, metas))
}

fn recv_several(
    handle: &Handle,
    bufs: &mut [IoSliceMut<'_>],
    metas: &mut [RecvMeta],
) -> Result<usize, Errno> {
    let wanted = bufs.len().min(metas.len());
    let mut places = bufs.chunks_mut(1).zip(metas);
    let mut done = 0;
    while done < wanted {
        let pop = |so: &mut So| {
            let most = BATCH_MAX.min(wanted - done);
            let taken: SmallVec<[Datagram; BATCH_MAX]> = (0..most).map_while(|_| so.pop()).collect();
            (!taken.is_empty()).then_some(taken)
        };
        let taken = if done == 0 {
            await_some(handle, blocks(&handle.pcb), pop)?
        } else {
            // The call has datagrams to return: it does not wait, and leaves an error that has come in since to the next call.
            let more = pop(&mut handle.pcb.receive.so.lock());
            let Some(more) = more else { break };
            more
        };
        for (datagram, (buf, meta)) in taken.iter().zip(&mut places) {
            *meta = hand_out(handle, datagram, |payload| fill(payload, buf));
        }
        done += taken.len();
    }
    Ok(done)
}

/// Takes an error off the queue of IP_RECVERR, and copies the sent data into `buf`. Never blocks.
pub(crate) fn recv_err(handle: &Handle, buf: &mut [u8]) -> Option<RecvError> {
    let pcb = &handle.pcb;
    let mut so = pcb.receive.so.lock();
    let Queued { what, errno, offender, dst, interface, payload } = so.errors.pop_front()?;
    // As on Linux, the pending error is then the next one's.
    so.error = so.errors.front().map(|next| next.errno);
    pcb.notable.set(Notable::ERROR, so.error.is_some());
    drop(so);
    let len = payload.copy_to(0, buf);
    let shown = |end: Endpoint| scope::with_interface(end.to_socket_addr(pcb.is_mapped), || interface);
    Some(RecvError {
        what,
        errno: errno.raw_os_error(),
        offender: shown(offender),
        dst: shown(dst),
        len,
        is_truncated: len < payload.len(),
    })
}

/// Takes the oldest flow off a listener's queue.
pub(crate) fn accept(handle: &Handle) -> Result<Arc<Pcb>, Errno> {
    panics::call_or_errno(handle.core(), "accept", || {
        await_some(handle, blocks(&handle.pcb), |so| so.flows.pop_front())
    })
}

fn blocks(pcb: &Pcb) -> bool {
    !pcb.options.nonblocking.load(Ordering::Relaxed)
}

/// Looks with `look` until it finds something. EAGAIN if that takes longer than the call may wait.
#[inline]
fn await_some<R>(
    handle: &Handle,
    blocks: bool,
    mut look: impl FnMut(&mut So) -> Option<R>,
) -> Result<R, Errno> {
    let pcb = &handle.pcb;
    let mut timeout = Timeout::of(&pcb.options.rcv_timeout);
    loop {
        let (ticket, cpu) = {
            let mut so = pcb.receive.so.lock();
            if let Some(error) = pcb.take_error_in(&mut so) {
                return Err(error);
            }
            if let Some(found) = look(&mut so) {
                return Ok(found);
            }
            if let Some(ended) = so.ended_errno() {
                return Err(ended);
            }
            if !blocks {
                return Err(Errno::AGAIN);
            }
            (so.waiters.prepare(&pcb.receive.wait), so.data_cpu)
        };
        busy::leave_all(handle.core());
        if !blocking::wait(handle.core(), &pcb.receive.wait, ticket, cpu, &mut timeout) {
            return Err(Errno::AGAIN);
        }
    }
}

/// Copies a datagram that was taken out by `copy`, which returns the number of bytes, and counts it.
#[inline]
fn hand_out(handle: &Handle, datagram: &Datagram, copy: impl FnOnce(&Chain) -> usize) -> RecvMeta {
    let len = copy(&datagram.payload);
    let meta = meta(&handle.pcb, datagram, len);
    if handle.pcb.protocol == Protocol::Udp {
        super::shared(handle.core()).count(count::IN_DATAGRAMS, meta.segment_count() as u64);
    }
    meta
}

/// Copies as much as there is room for; says how much.
#[inline]
fn fill(chain: &Chain, bufs: &mut [IoSliceMut<'_>]) -> usize {
    let mut done = 0;
    for buf in bufs {
        done += chain.copy_to(done, buf);
    }
    done
}

fn meta(pcb: &Pcb, datagram: &Datagram, len: usize) -> RecvMeta {
    let addr = |addr| Endpoint::new(addr, 0).to_socket_addr(pcb.is_mapped).ip();
    RecvMeta {
        from: scope::with_interface(datagram.from.to_socket_addr(pcb.is_mapped), || datagram.interface),
        len,
        datagram_len: datagram.payload.len(),
        segment_size: datagram.segment_size,
        dst: addr(datagram.to.addr),
        dst_port: datagram.to.port,
        interface: datagram.interface,
        traffic_class: datagram.traffic_class,
        hop_limit: datagram.hop_limit,
        drops: datagram.drops,
        received_at: stamps::received_at(datagram.at),
    }
}
