//! The senders of a datagram socket, as their receiver knows them.
//!
//! Each sender has a *flow* here, with bounds of its own: [`QLEN_MAX`] datagrams, and its SO_SNDBUF in bytes.
//! So one that floods fills only its own share, waits for it alone, and cannot keep others from sending;
//! accepted datagrams are received in the order in which they came. A socket that the receiver is connected
//! to has no bound but the bytes, as on Linux.
//!
//! A flow exists while datagrams of it wait, while its sender is connected to the receiver, and while
//! a sender waits for room in it. Bound: one per sender. All of it stands under the receiver's `so`.
//!
//! Does not depend on buffers or locks. Tests: below, `tests/unix/stress.rs`.

use std::collections::HashMap;

use sockeye_sync::WaitQueue;
use sockeye_sync::facade::Arc;

use super::pcb::{Pcb, RECORD_COST};

/// Datagrams that may wait from one sender are one more than this (`net.unix.max_dgram_qlen` of Linux).
pub(crate) const QLEN_MAX: u32 = 10;

/// See the module's head.
#[derive(Default)]
pub(crate) struct Flows {
    list: Vec<Option<Flow>>,
    free: Vec<u32>,
    /// By [`Pcb::id`]. A sender cannot end while its flow holds it, so no two have one id.
    index: HashMap<usize, u32>,
    /// The id of the only socket that may send: the one that the receiver is connected to. 0: all may.
    pub only: usize,
}

/// One sender.
pub(crate) struct Flow {
    pub sender: Arc<Pcb>,
    count: u32,
    bytes: usize,
    /// It is connected to this receiver.
    is_linked: bool,
    /// It has been told that there is no room, and wants to know when there is.
    is_blocked: bool,
    wait: Option<Arc<WaitQueue>>,
}

/// A sender that wanted to know of room.
pub(crate) struct Unblocked {
    pub sender: Arc<Pcb>,
    /// Its sleeping threads, to be woken after unlocking.
    pub wake: Option<Arc<WaitQueue>>,
}

impl Flows {
    /// The place of `sender`'s flow; `hint` is where it was last time.
    #[inline]
    pub fn find(&self, sender: &Pcb, hint: u32) -> Option<u32> {
        if let Some(Some(flow)) = self.list.get(hint as usize)
            && std::ptr::eq(&*flow.sender, sender)
        {
            return Some(hint);
        }
        self.index.get(&sender.id()).copied()
    }

    /// The same; makes the flow if there is none.
    pub fn find_or_make(&mut self, sender: &Arc<Pcb>, hint: u32) -> u32 {
        if let Some(found) = self.find(sender, hint) {
            return found;
        }
        let flow = Flow {
            sender: Arc::clone(sender),
            count: 0,
            bytes: 0,
            is_linked: false,
            is_blocked: false,
            wait: None,
        };
        let place = self.free.pop().unwrap_or_else(|| {
            self.list.push(None);
            // A sender takes far more memory than its number: there cannot be 2^32.
            u32::try_from(self.list.len() - 1).unwrap_or(u32::MAX)
        });
        self.list[place as usize] = Some(flow);
        self.index.insert(sender.id(), place);
        place
    }

    /// Whether the flow may take another datagram from a sender with this SO_SNDBUF.
    #[inline]
    pub fn has_room(&self, place: u32, sndbuf: usize) -> bool {
        let Some(Some(flow)) = self.list.get(place as usize) else { return true };
        let is_mutual = self.only == flow.sender.id();
        (is_mutual || flow.count <= QLEN_MAX) && flow.bytes < sndbuf
    }

    /// Whether the flow is empty enough for its sender to count as writable.
    pub fn is_writable(&self, place: u32, sndbuf: usize) -> bool {
        let Some(Some(flow)) = self.list.get(place as usize) else { return true };
        self.has_room(place, sndbuf) && flow.bytes <= sndbuf / 4
    }

    /// A datagram was queued.
    #[inline]
    pub fn charge(&mut self, place: u32, len: usize) {
        if let Some(Some(flow)) = self.list.get_mut(place as usize) {
            flow.count += 1;
            flow.bytes += len + RECORD_COST;
        }
    }

    /// A datagram was taken. Returns the senders that waited for this.
    #[inline]
    pub fn discharge(&mut self, place: u32, len: usize) -> Option<Unblocked> {
        let flow = self.list.get_mut(place as usize)?.as_mut()?;
        flow.count -= 1;
        flow.bytes -= len + RECORD_COST;
        if !flow.is_blocked && (flow.is_linked || flow.count > 0) {
            return None;
        }
        let unblocked = flow.unblock();
        self.drop_if_idle(place);
        unblocked
    }

    /// The sender of the datagrams in this flow.
    pub fn sender(&self, place: u32) -> Option<&Arc<Pcb>> {
        self.list.get(place as usize)?.as_ref().map(|flow| &flow.sender)
    }

    /// Bytes of `sender` that wait.
    pub fn bytes_of(&self, sender: &Pcb) -> usize {
        let flow = self.find(sender, u32::MAX).and_then(|place| self.list.get(place as usize)?.as_ref());
        flow.map_or(0, |flow| flow.bytes - flow.count as usize * RECORD_COST)
    }

    /// Notes that the sender waits for room.
    pub fn block(&mut self, place: u32) {
        if let Some(Some(flow)) = self.list.get_mut(place as usize) {
            flow.is_blocked = true;
        }
    }

    /// The same; returns where its thread is to wait.
    pub fn block_thread(&mut self, place: u32) -> Option<Arc<WaitQueue>> {
        let flow = self.list.get_mut(place as usize)?.as_mut()?;
        flow.is_blocked = true;
        Some(Arc::clone(flow.wait.get_or_insert_with(|| Arc::new(WaitQueue::new()))))
    }

    /// `sender` is connected to this receiver from now on.
    pub fn link(&mut self, sender: &Arc<Pcb>) {
        let place = self.find_or_make(sender, u32::MAX);
        if let Some(Some(flow)) = self.list.get_mut(place as usize) {
            flow.is_linked = true;
        }
    }

    /// `sender` is no longer connected to this receiver; its waiting threads check again.
    pub fn unlink(&mut self, sender: &Pcb) -> Option<Unblocked> {
        let place = self.find(sender, u32::MAX)?;
        let flow = self.list.get_mut(place as usize)?.as_mut()?;
        flow.is_linked = false;
        let unblocked = flow.unblock();
        self.drop_if_idle(place);
        unblocked
    }

    /// Makes all waiting senders check again.
    pub fn unblock_all(&mut self) -> Vec<Unblocked> {
        self.list.iter_mut().flatten().filter_map(Flow::unblock).collect()
    }

    /// All datagrams of all senders are gone; with `closed`, so are the flows.
    pub fn clear(&mut self, closed: bool) -> Vec<Unblocked> {
        let mut all = Vec::new();
        for place in 0..self.list.len() {
            let Some(flow) = &mut self.list[place] else { continue };
            (flow.count, flow.bytes) = (0, 0);
            flow.is_linked &= !closed;
            all.extend(flow.unblock());
            // As many as there were places.
            self.drop_if_idle(place as u32);
        }
        all
    }

    /// These datagrams, by length and flow, are all that wait. Makes all waiting senders check again.
    pub fn recount(&mut self, records: impl Iterator<Item = (usize, u32)>) -> Vec<Unblocked> {
        self.list.iter_mut().flatten().for_each(|flow| (flow.count, flow.bytes) = (0, 0));
        records.for_each(|(len, place)| self.charge(place, len));
        let unblocked = self.unblock_all();
        // As many as there were places.
        (0..self.list.len()).for_each(|place| self.drop_if_idle(place as u32));
        unblocked
    }

    /// Ends a flow that nothing refers to.
    pub fn drop_if_idle(&mut self, place: u32) {
        let slot = &mut self.list[place as usize];
        if let Some(flow) = slot
            && flow.count == 0
            && !flow.is_linked
            && !flow.is_blocked
        {
            self.index.remove(&flow.sender.id());
            *slot = None;
            self.free.push(place);
        }
    }
}

impl Flow {
    fn unblock(&mut self) -> Option<Unblocked> {
        if !std::mem::take(&mut self.is_blocked) {
            return None;
        }
        let wake = self.wait.take().filter(|wait| wait.notify().is_wake_owed());
        Some(Unblocked { sender: Arc::clone(&self.sender), wake })
    }
}

#[cfg(test)]
mod tests {
    use super::super::pcb::Kind;
    use super::*;
    use crate::Config;

    fn sender() -> Arc<Pcb> {
        Pcb::new(Kind::Datagram, &Config::default(), 1)
    }

    #[test]
    fn a_sender_that_fills_its_share_leaves_the_others_theirs() {
        let (mut flows, flooder, seldom) = (Flows::default(), sender(), sender());
        let flood = flows.find_or_make(&flooder, 0);
        for _ in 0..=QLEN_MAX {
            assert!(flows.has_room(flood, 4096));
            flows.charge(flood, 1);
        }
        assert!(!flows.has_room(flood, 4096));
        let other = flows.find_or_make(&seldom, flood);
        assert!(other != flood && flows.has_room(other, 4096));
        // Bytes bound it too, and a peer that we are connected to has only that bound.
        flows.only = flooder.id();
        assert!(flows.has_room(flood, 4096) && !flows.has_room(flood, 11 * (1 + RECORD_COST)));
    }

    #[test]
    fn a_flow_ends_when_it_is_empty_and_unlinked_and_has_no_waiter() {
        let (mut flows, sender) = (Flows::default(), sender());
        let place = flows.find_or_make(&sender, 9);
        flows.charge(place, 5);
        flows.block(place);
        assert_eq!(flows.bytes_of(&sender), 5);
        assert!(flows.discharge(place, 5).is_some());
        assert!(flows.find(&sender, place).is_none());
        assert_eq!(Arc::strong_count(&sender), 1);
        flows.link(&sender);
        let place = flows.find(&sender, 0).unwrap();
        flows.charge(place, 0);
        assert!(flows.discharge(place, 0).is_none());
        assert!(flows.find(&sender, 0).is_some());
        assert!(flows.unlink(&sender).is_none());
        assert_eq!(Arc::strong_count(&sender), 1);
    }
}
