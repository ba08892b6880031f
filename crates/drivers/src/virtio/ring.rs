//! One ring of a guest: chains of descriptors in its memory, which the guest makes available and we use.
//!
//! `virtio-queue` walks the ring and its chains, and `vm-memory` checks each address. Used chains are published by this file, all chains of a frame at once, since
//! a guest that has seen the first buffer of a merged frame takes the others without waiting (virtio 1.2, section 5.1.6.4).
//!
//! # The guest is the attacker
//! Every index, address and length is the guest's, and its memory changes while it is read. A chain has at most [`PIECES_MAX`] descriptors that count, whatever it
//! links to, and so have all chains together that a frame is written to. A chain is copied out before anything looks at it. One that makes no sense is used up without a frame; a ring that makes none (an index beyond the
//! ring, a place beyond the memory, a buffer without room) is *broken*: it is left alone until it is started again. Neither is a panic, and neither concerns anybody but the guest.
//!
//! Does not depend on frames, but for the header's count of buffers. Tests: `ring/tests.rs`, with chains that no driver makes.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::atomic::{Ordering, fence};

use sockeye_netif::TxFrame;
use sockeye_sync::facade::Arc;
use virtio_queue::{DescriptorChain, Queue, QueueOwnedT, QueueT};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use super::feature;

/// The memory of a guest.
pub(super) type Memory = Arc<GuestMemoryMmap>;

/// Descriptors of a ring, at most.
pub(super) const SIZE_MAX: u16 = 1024;
/// Descriptors that count of a chain, and of all chains of a frame.
const PIECES_MAX: usize = 1024;
/// Bytes of the header before each frame: without a count of buffers, and with it.
const HEADER_SHORT: usize = 10;
pub(super) const HEADER_LONG: usize = 12;
/// Where the count stands.
const BUFFERS_AT: usize = 10;

/// Offsets in the two rings (virtio 1.2, sections 2.7.6 and 2.7.8): the index, the first element.
const INDEX_AT: u64 = 2;
const ELEMENTS_AT: u64 = 4;
const AVAILABLE_LEN: u64 = 2;
const USED_LEN: u64 = 8;
/// The guest wants no interrupts.
const NO_INTERRUPT: u16 = 1;

/// The guest has broken the protocol of rings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Broken;

/// What a guest has made available.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Taken {
    /// A frame behind its header: bytes of both.
    Frame(usize),
    /// A chain without a frame.
    Nonsense,
    /// Nothing.
    Nothing,
}

/// What became of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Put {
    Done,
    /// The guest has to make more room available first.
    NoRoom,
    /// The guest's buffers are too small for it.
    TooLong,
}

/// See the module's head.
#[derive(Debug)]
pub(super) struct Ring {
    queue: Queue,
    memory: Option<Memory>,
    pub kick: Option<OwnedFd>,
    call: Option<File>,
    is_enabled: bool,
    is_broken: bool,
    features: u64,
    /// The guest's index when it was last looked at.
    looked: u16,
    /// The index of the used ring when the guest was last told, or was found to need no telling, or could not be told: `set_call` makes up for that.
    told: u16,
    /// Used chains that are written and not published.
    staged: u16,
    /// Places of the frame that is being written, and its chains with their lengths. Empty between two frames.
    places: Vec<(GuestAddress, usize)>,
    chains: Vec<(u16, usize)>,
}

impl Ring {
    pub fn new() -> Self {
        Self {
            // Fails for sizes that are no power of two.
            queue: Queue::new(SIZE_MAX).unwrap_or_default(),
            memory: None,
            kick: None,
            call: None,
            is_enabled: false,
            is_broken: false,
            features: 0,
            looked: 0,
            told: 0,
            staged: 0,
            places: Vec::new(),
            chains: Vec::new(),
        }
    }

    pub fn set_memory(&mut self, memory: &Memory) {
        self.memory = Some(Arc::clone(memory));
        self.look();
    }

    pub fn set_features(&mut self, features: u64) {
        self.features = features;
        self.queue.set_event_idx(features & feature::EVENT_IDX != 0);
    }

    pub fn enable(&mut self, on: bool) {
        self.is_enabled = on;
    }

    /// False for a length that no ring has.
    pub fn set_size(&mut self, size: u32) -> bool {
        let Ok(size) = u16::try_from(size) else { return false };
        self.queue.try_set_size(size).is_ok()
    }

    /// Where its parts are in the guest's memory. False if they cannot be there.
    pub fn set_addrs(&mut self, descriptors: u64, available: u64, used: u64) -> bool {
        let set = self
            .queue
            .try_set_desc_table_address(GuestAddress(descriptors))
            .and_then(|()| self.queue.try_set_avail_ring_address(GuestAddress(available)))
            .and_then(|()| self.queue.try_set_used_ring_address(GuestAddress(used)));
        let Some(memory) = &self.memory else { return false };
        // It is the guest's own count: a ring that goes on after a reset of the device, or of us, goes on there.
        let Ok(index) = self.queue.used_idx(&**memory, Ordering::Acquire) else { return false };
        self.queue.set_next_used(index.0);
        (self.told, self.staged) = (index.0, 0);
        set.is_ok()
    }

    /// Where the guest's next chain stands.
    pub fn set_next(&mut self, index: u16) {
        self.queue.set_next_avail(index);
    }

    /// Where the guest is interrupted. It was not told of what was used while there was no such file, and by indices it would not be told later either: so it is
    /// interrupted once, perhaps for nothing.
    pub fn set_call(&mut self, call: Option<File>) {
        self.call = call;
        self.interrupt();
    }

    fn interrupt(&self) {
        // Refused only if the count is at its end, and then the interrupt is there.
        let _ = self.call.as_ref().map(|call| rustix::io::write(call, &1u64.to_ne_bytes()));
    }

    /// Starts it. It is served from then on, while it is enabled.
    pub fn start(&mut self) {
        self.is_broken = false;
        self.queue.set_ready(true);
        self.look();
    }

    /// Stops it. Returns where the guest's next chain stands.
    pub fn stop(&mut self) -> u16 {
        self.queue.set_ready(false);
        (self.kick, self.call) = (None, None);
        self.queue.next_avail()
    }

    /// As it was at first: without memory.
    pub fn reset(&mut self) {
        *self = Self::new();
    }

    /// Whether all of it lies in the memory, if it has started.
    fn look(&mut self) {
        let is_there = self.memory.as_ref().is_some_and(|memory| self.queue.is_valid(&**memory));
        self.is_broken |= self.queue.ready() && !is_there;
    }

    /// The memory to serve it in, if it may be served.
    fn served(&self) -> Option<Memory> {
        self.memory.clone().filter(|_| self.is_served())
    }

    /// Whether it may be served.
    pub fn is_served(&self) -> bool {
        self.is_enabled && !self.is_broken && self.queue.ready() && self.memory.is_some()
    }

    fn has(&self, feature: u64) -> bool {
        self.features & feature != 0
    }

    /// Bytes of the header before a frame. Guests of before version 1 have a shorter one, unless buffers are merged.
    pub fn header_len(&self) -> usize {
        let is_long = self.has(feature::VERSION_1) || self.has(feature::MERGED_BUFFERS);
        if is_long { HEADER_LONG } else { HEADER_SHORT }
    }

    /// What the guest has agreed to.
    pub fn features(&self) -> u64 {
        self.features
    }

    /// The guest need not say that it has made something available.
    pub fn quiet(&mut self) {
        if let Some(memory) = self.served() {
            self.is_broken |= self.queue.disable_notification(&*memory).is_err();
        }
    }

    /// The guest is to say when it makes something available from now on. True if it has since it was last looked, and need not have said so.
    pub fn listen(&mut self) -> bool {
        let Some(memory) = self.served() else { return false };
        self.listened(&memory).unwrap_or_else(|Broken| self.broken())
    }

    fn listened(&mut self, memory: &Memory) -> Result<bool, Broken> {
        let next = self.queue.next_avail();
        // The index at which we want to hear: what was available and did not suffice is not news.
        self.queue.set_next_avail(self.looked);
        let is_more = self.queue.enable_notification(&**memory);
        self.queue.set_next_avail(next);
        is_more.map_err(|_| Broken)
    }

    fn broken(&mut self) -> bool {
        self.is_broken = true;
        false
    }

    /// Copies the next chain of the guest into `into`, and uses it.
    pub fn take(&mut self, into: &mut [u8]) -> Taken {
        let Some(memory) = self.served() else { return Taken::Nothing };
        self.taken(&memory, into).unwrap_or_else(|Broken| {
            self.is_broken = true;
            Taken::Nothing
        })
    }

    fn taken(&mut self, memory: &Memory, into: &mut [u8]) -> Result<Taken, Broken> {
        let Some(chain) = self.next_chain(memory)? else { return Ok(Taken::Nothing) };
        let head = chain.head_index();
        let mut len = 0;
        let mut is_frame = true;
        for (count, piece) in chain.enumerate() {
            let place = len..len + piece.len() as usize;
            let fits = count < PIECES_MAX && !piece.is_write_only();
            let Some(place) = into.get_mut(place).filter(|_| fits) else {
                is_frame = false;
                break;
            };
            if memory.read_slice(place, piece.addr()).is_err() {
                is_frame = false;
                break;
            }
            len += piece.len() as usize;
        }
        self.stage(memory, head, 0)?;
        Ok(if is_frame { Taken::Frame(len) } else { Taken::Nonsense })
    }

    fn next_chain(&mut self, memory: &Memory) -> Result<Option<DescriptorChain<Memory>>, Broken> {
        let index = self.queue.avail_idx(&**memory, Ordering::Acquire).map_err(|_| Broken)?;
        self.looked = index.0;
        if index.0 == self.queue.next_avail() {
            return Ok(None);
        }
        // It refuses an index further ahead than the ring is long.
        let chain = self.queue.iter(Arc::clone(memory)).map_err(|_| Broken)?.next().ok_or(Broken)?;
        if chain.head_index() >= self.queue.size() { Err(Broken) } else { Ok(Some(chain)) }
    }

    /// Writes a frame behind its header into buffers of the guest, and uses them.
    pub fn put(&mut self, header: [u8; HEADER_LONG], frame: &TxFrame) -> Put {
        let Some(memory) = self.served() else { return Put::NoRoom };
        let before = self.queue.next_avail();
        let put = self.gathered(&memory, self.header_len() + frame.len()).and_then(|put| match put {
            Put::Done => self.written(&memory, header, frame).map(|()| put),
            Put::NoRoom | Put::TooLong => {
                // The buffers stay available.
                self.queue.set_next_avail(before);
                Ok(put)
            }
        });
        self.places.clear();
        self.chains.clear();
        put.unwrap_or_else(|Broken| {
            self.is_broken = true;
            Put::NoRoom
        })
    }

    /// Takes chains with room for so many bytes.
    fn gathered(&mut self, memory: &Memory, len: usize) -> Result<Put, Broken> {
        let (mut room, is_merged) = (0usize, self.has(feature::MERGED_BUFFERS));
        while room < len {
            if !is_merged && !self.chains.is_empty() || self.chains.len() >= self.queue.size().into() {
                return Ok(Put::TooLong);
            }
            let Some(chain) = self.next_chain(memory)? else { return Ok(Put::NoRoom) };
            let (head, mut room_here) = (chain.head_index(), 0usize);
            for (count, piece) in chain.enumerate() {
                if count >= PIECES_MAX || !piece.is_write_only() {
                    return Err(Broken);
                }
                if self.places.len() >= PIECES_MAX {
                    return Ok(Put::TooLong);
                }
                self.places.push((piece.addr(), piece.len() as usize));
                room_here = room_here.saturating_add(piece.len() as usize);
            }
            // As many as the ring is long would be walked for each frame, and hold none.
            if room_here == 0 {
                return Err(Broken);
            }
            self.chains.push((head, room_here));
            room = room.saturating_add(room_here);
        }
        Ok(Put::Done)
    }

    /// Writes it to the places that were gathered.
    fn written(
        &mut self,
        memory: &Memory,
        mut header: [u8; HEADER_LONG],
        frame: &TxFrame,
    ) -> Result<(), Broken> {
        let count = u16::try_from(self.chains.len()).map_err(|_| Broken)?;
        header[BUFFERS_AT..].copy_from_slice(&count.to_le_bytes());
        let mut places = Places { memory, places: &self.places, offset: 0 };
        places.write(&header[..self.header_len()])?;
        places.write(frame.head())?;
        for piece in frame.payload.iter() {
            places.write(piece)?;
        }
        let mut left = self.header_len() + frame.len();
        for (head, room) in std::mem::take(&mut self.chains) {
            let used = room.min(left);
            left -= used;
            self.stage(memory, head, u32::try_from(used).map_err(|_| Broken)?)?;
        }
        self.publish(memory)
    }

    /// Writes an element of the used ring, which the guest does not see yet.
    fn stage(&mut self, memory: &Memory, head: u16, len: u32) -> Result<(), Broken> {
        let index = self.queue.next_used().wrapping_add(self.staged);
        let slot = u64::from(index % self.queue.size());
        let element = u64::from(head) | u64::from(len) << 32;
        let addr = self.queue.used_ring().checked_add(ELEMENTS_AT + slot * USED_LEN).ok_or(Broken)?;
        memory.write_obj(element.to_le(), GuestAddress(addr)).map_err(|_| Broken)?;
        self.staged = self.staged.wrapping_add(1);
        // More would be written over each other.
        if self.staged >= self.queue.size() { self.publish(memory) } else { Ok(()) }
    }

    /// Shows the guest the elements that were written.
    fn publish(&mut self, memory: &Memory) -> Result<(), Broken> {
        let index = self.queue.next_used().wrapping_add(std::mem::take(&mut self.staged));
        self.queue.set_next_used(index);
        let addr = self.queue.used_ring().checked_add(INDEX_AT).ok_or(Broken)?;
        // Release, with the acquire of the guest: the elements first.
        memory.store(index.to_le(), GuestAddress(addr), Ordering::Release).map_err(|_| Broken)
    }

    /// Shows the guest what was used, and interrupts it if it wants that.
    pub fn tell(&mut self) {
        let Some(memory) = self.served() else { return };
        let wants = self.publish_if_staged(&memory).and_then(|()| self.wants_interrupt(&memory));
        match wants {
            Ok(true) => self.interrupt(),
            Ok(false) => {}
            Err(Broken) => self.is_broken = true,
        }
    }

    fn publish_if_staged(&mut self, memory: &Memory) -> Result<(), Broken> {
        if self.staged == 0 { Ok(()) } else { self.publish(memory) }
    }

    /// Whether the guest wants to be interrupted for what was used since it was last asked.
    fn wants_interrupt(&mut self, memory: &Memory) -> Result<bool, Broken> {
        let (before, now) = (self.told, self.queue.next_used());
        if before == now {
            return Ok(false);
        }
        self.told = now;
        // SeqCst: with the guest's fence between its word that it wants interrupts and its last look at the ring (section 2.7.7.2).
        fence(Ordering::SeqCst);
        let load = |offset: u64| {
            let addr = self.queue.avail_ring().checked_add(offset).ok_or(Broken)?;
            memory.load::<u16>(GuestAddress(addr), Ordering::Relaxed).map(u16::from_le).map_err(|_| Broken)
        };
        if !self.queue.event_idx_enabled() {
            return Ok(load(0)? & NO_INTERRUPT == 0);
        }
        let event = load(ELEMENTS_AT + AVAILABLE_LEN * u64::from(self.queue.size()))?;
        Ok(now.wrapping_sub(event).wrapping_sub(1) < now.wrapping_sub(before))
    }
}

/// Places in the guest's memory that are written one after the other.
struct Places<'a> {
    memory: &'a Memory,
    places: &'a [(GuestAddress, usize)],
    /// Bytes of the first that are written.
    offset: usize,
}

impl Places<'_> {
    fn write(&mut self, mut bytes: &[u8]) -> Result<(), Broken> {
        while !bytes.is_empty() {
            let Some(((addr, len), rest)) = self.places.split_first() else { return Err(Broken) };
            let (now, later) = bytes.split_at(bytes.len().min(len.saturating_sub(self.offset)));
            let at = addr.0.checked_add(self.offset as u64).ok_or(Broken)?;
            if !now.is_empty() {
                self.memory.write_slice(now, GuestAddress(at)).map_err(|_| Broken)?;
            }
            (bytes, self.offset) = (later, self.offset + now.len());
            if self.offset >= *len {
                (self.places, self.offset) = (rest, 0);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
