//! Chains and rings that no driver makes, and those that each makes. The guest is this file.

use std::os::fd::AsFd;

use rustix::event::{EventfdFlags, eventfd};
use sockeye_mbuf::{Chain, Pool, PoolConfig};
use sockeye_netif::Checksum;

use super::*;

const DESCRIPTORS: u64 = 0x1000;
const AVAILABLE: u64 = 0x2000;
const USED: u64 = 0x3000;
const BUFFERS: u64 = 0x1_0000;
const MEMORY: u64 = 0x20_0000;
const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
const SIZE: u16 = 8;

/// A ring, and what its guest does with it.
struct Guest {
    memory: Memory,
    ring: Ring,
    available: u16,
}

impl Guest {
    fn new(features: u64) -> Self {
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), MEMORY as usize)]).unwrap();
        let (memory, mut ring) = (Arc::new(memory), Ring::new());
        ring.set_memory(&memory);
        ring.set_features(features | feature::VERSION_1);
        assert!(ring.set_size(SIZE.into()) && ring.set_addrs(DESCRIPTORS, AVAILABLE, USED));
        ring.enable(true);
        ring.start();
        Self { memory, ring, available: 0 }
    }

    fn describe(&self, table: u64, index: u16, (addr, len): (u64, u32), flags: u16, next: u16) {
        let at = GuestAddress(table + u64::from(index) * 16);
        self.memory.write_obj(addr, at).unwrap();
        self.memory.write_obj(len, GuestAddress(at.0 + 8)).unwrap();
        self.memory.write_obj(flags, GuestAddress(at.0 + 12)).unwrap();
        self.memory.write_obj(next, GuestAddress(at.0 + 14)).unwrap();
    }

    fn offer(&mut self, head: u16) {
        let slot = u64::from(self.available % SIZE);
        self.memory.write_obj(head, GuestAddress(AVAILABLE + 4 + slot * 2)).unwrap();
        self.available = self.available.wrapping_add(1);
        self.memory.write_obj(self.available, GuestAddress(AVAILABLE + 2)).unwrap();
    }

    /// A chain of one descriptor, by its number.
    fn offer_one(&mut self, index: u16, place: (u64, u32), flags: u16) {
        self.describe(DESCRIPTORS, index, place, flags, 0);
        self.offer(index);
    }

    /// Chains that the guest sees as used: the index, and an element.
    fn used(&self, slot: u64) -> (u16, u32, u32) {
        let load = |at: u64| self.memory.read_obj::<u32>(GuestAddress(USED + at)).unwrap();
        let index = self.memory.read_obj(GuestAddress(USED + 2)).unwrap();
        (index, load(4 + slot * 8), load(8 + slot * 8))
    }

    fn take(&mut self) -> (Taken, Vec<u8>) {
        let mut bytes = vec![0; 70_000];
        let taken = self.ring.take(&mut bytes);
        let Taken::Frame(len) = taken else { return (taken, Vec::new()) };
        bytes.truncate(len);
        (taken, bytes)
    }
}

fn frame(len: usize) -> TxFrame {
    let pool = Pool::new(PoolConfig::default());
    let payload = if len == 0 { Chain::new() } else { pool.copy_in(&vec![7; len]).unwrap() };
    TxFrame::new(&[9; 40], payload, Checksum::Software).unwrap()
}

#[test]
fn chains_of_the_guest_are_taken_in_order_and_used() {
    let mut guest = Guest::new(0);
    guest.memory.write_slice(b"head", GuestAddress(BUFFERS)).unwrap();
    guest.memory.write_slice(b"rest", GuestAddress(BUFFERS + 100)).unwrap();
    guest.describe(DESCRIPTORS, 0, (BUFFERS, 4), NEXT, 3);
    guest.describe(DESCRIPTORS, 3, (BUFFERS + 100, 4), 0, 0);
    // The same by a table in the guest's memory.
    guest.describe(BUFFERS + 4096, 0, (BUFFERS + 100, 4), NEXT, 1);
    guest.describe(BUFFERS + 4096, 1, (BUFFERS, 4), 0, 0);
    guest.describe(DESCRIPTORS, 1, (BUFFERS + 4096, 32), INDIRECT, 0);
    guest.offer(0);
    guest.offer(1);
    assert_eq!(guest.take(), (Taken::Frame(8), b"headrest".to_vec()));
    assert_eq!(guest.take(), (Taken::Frame(8), b"resthead".to_vec()));
    assert_eq!(guest.take().0, Taken::Nothing);
    assert_eq!(guest.used(1).0, 0, "the guest is told once");
    guest.ring.tell();
    assert_eq!((guest.used(0), guest.used(1)), ((2, 0, 0), (2, 1, 0)));
}

#[test]
fn hostile_chains_are_used_up_without_a_frame_and_the_ring_goes_on() {
    let mut guest = Guest::new(0);
    let table = BUFFERS + 4096;
    for (what, place, flags) in [
        ("behind the memory", (MEMORY, 64), 0),
        ("over its end", (MEMORY - 8, 64), 0),
        ("over the end of all addresses", (u64::MAX - 8, 64), 0),
        ("too long", (0, 0x20_0000), 0),
        ("of all lengths", (0, u32::MAX), 0),
        ("to be written", (BUFFERS, 64), WRITE),
    ] {
        guest.offer_one(2, place, flags);
        assert_eq!(guest.take().0, Taken::Nonsense, "{what}");
    }
    for (what, place) in [
        ("a table behind the memory", (MEMORY, 32)),
        ("a table of odd length", (table, 17)),
        ("an empty table", (table, 0)),
        ("a table of too many", (0, u32::MAX - 15)),
    ] {
        guest.offer_one(2, place, INDIRECT);
        assert_eq!(guest.take(), (Taken::Frame(0), Vec::new()), "{what}");
    }
    guest.describe(table, 0, (table, 16), INDIRECT, 0);
    guest.offer_one(2, (table, 16), INDIRECT);
    assert_eq!(guest.take().0, Taken::Frame(0), "a table in a table");
    // Loops: of bytes, and of nothing.
    guest.describe(DESCRIPTORS, 4, (BUFFERS, 60_000), NEXT, 5);
    guest.describe(DESCRIPTORS, 5, (BUFFERS, 60_000), NEXT, 4);
    guest.offer(4);
    assert_eq!(guest.take().0, Taken::Nonsense);
    guest.describe(DESCRIPTORS, 6, (BUFFERS, 0), NEXT, 6);
    guest.offer(6);
    assert_eq!(guest.take().0, Taken::Frame(0));
    guest.describe(DESCRIPTORS, 7, (BUFFERS, 5), NEXT, u16::MAX);
    guest.offer(7);
    assert_eq!(guest.take().0, Taken::Frame(5), "it links to nowhere");
    // A long table of empty descriptors ends, too.
    for index in 0..2000 {
        guest.describe(table, index, (BUFFERS, 0), NEXT, index + 1);
    }
    guest.offer_one(2, (table, 2000 * 16), INDIRECT);
    assert_eq!(guest.take().0, Taken::Nonsense);
    guest.offer_one(0, (BUFFERS, 3), 0);
    assert_eq!(guest.take().0, Taken::Frame(3), "the ring goes on");
    guest.ring.tell();
    assert_eq!(guest.used(0).0, 16);
}

#[test]
fn a_ring_that_makes_no_sense_is_left_alone_until_it_is_started_again() {
    let mut guest = Guest::new(0);
    guest.offer_one(0, (BUFFERS, 3), 0);
    guest.memory.write_obj(SIZE + 1, GuestAddress(AVAILABLE + 2)).unwrap();
    assert_eq!(guest.take().0, Taken::Nothing, "an index further ahead than the ring is long");
    assert!(!guest.ring.is_served() && !guest.ring.listen());
    guest.memory.write_obj(1u16, GuestAddress(AVAILABLE + 2)).unwrap();
    assert_eq!(guest.take().0, Taken::Nothing);
    guest.ring.start();
    assert_eq!(guest.take().0, Taken::Frame(3));
    guest.offer(SIZE);
    assert_eq!(guest.take().0, Taken::Nothing, "a descriptor behind the ring");
    assert!(!guest.ring.is_served());
    assert_eq!(guest.ring.put([0; HEADER_LONG], &frame(10)), Put::NoRoom);
    // Rings that are not in the memory, or nowhere.
    for (descriptors, available, used) in [
        (MEMORY - 64, AVAILABLE, USED),
        (DESCRIPTORS, MEMORY - 2, USED),
        (DESCRIPTORS, AVAILABLE, MEMORY - 8),
    ] {
        let mut guest = Guest::new(0);
        guest.ring.set_addrs(descriptors, available, used);
        guest.ring.start();
        assert!(!guest.ring.is_served(), "{descriptors:x} {available:x} {used:x}");
    }
    let mut guest = Guest::new(0);
    for size in [0, 3, 2048, 65_536, u32::MAX] {
        assert!(!guest.ring.set_size(size), "{size}");
    }
    assert!(!guest.ring.set_addrs(DESCRIPTORS + 1, AVAILABLE, USED));
    assert!(!guest.ring.set_addrs(DESCRIPTORS, AVAILABLE, u64::MAX - 3));
}

#[test]
fn a_frame_takes_as_many_buffers_as_it_needs_and_the_guest_sees_them_at_once() {
    let mut guest = Guest::new(feature::MERGED_BUFFERS);
    for index in 0..3 {
        guest.offer_one(index, (BUFFERS + u64::from(index) * 0x1000, 100), WRITE);
    }
    // 12 bytes of header, 40 of headers.
    let frame = frame(148);
    assert_eq!(guest.ring.put([1; HEADER_LONG], &frame), Put::Done);
    assert_eq!((guest.used(0), guest.used(1)), ((2, 0, 100), (2, 1, 100)));
    let mut bytes = [0; 100];
    guest.memory.read_slice(&mut bytes, GuestAddress(BUFFERS)).unwrap();
    assert_eq!(
        (&bytes[..12], &bytes[12..52], &bytes[52..]),
        (&[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 0][..], &[9; 40][..], &[7; 48][..])
    );
    guest.memory.read_slice(&mut bytes, GuestAddress(BUFFERS + 0x1000)).unwrap();
    assert_eq!(bytes, [7; 100]);
    // There is one buffer left, which stays until there are two.
    assert_eq!(guest.ring.put([0; HEADER_LONG], &frame), Put::NoRoom);
    assert!(!guest.ring.listen(), "nothing has come since");
    guest.offer_one(3, (BUFFERS, 100), WRITE);
    assert!(guest.ring.listen());
    assert_eq!(guest.ring.put([0; HEADER_LONG], &frame), Put::Done);
    assert_eq!(guest.used(2), (4, 2, 100));
}

#[test]
fn a_frame_that_never_fits_is_dropped_and_hostile_buffers_break_the_ring() {
    let mut guest = Guest::new(0);
    guest.offer_one(0, (BUFFERS, 100), WRITE);
    assert_eq!(guest.ring.put([0; HEADER_LONG], &frame(49)), Put::TooLong);
    assert_eq!(guest.ring.put([0; HEADER_LONG], &frame(48)), Put::Done, "the buffer was kept");
    let mut guest = Guest::new(feature::MERGED_BUFFERS);
    for index in 0..SIZE {
        guest.offer_one(index, (BUFFERS, 10), WRITE);
    }
    assert_eq!(guest.ring.put([0; HEADER_LONG], &frame(60)), Put::TooLong);
    for (place, flags) in [((MEMORY - 4, 100), WRITE), ((u64::MAX - 4, 100), WRITE), ((BUFFERS, 100), 0)] {
        let mut guest = Guest::new(feature::MERGED_BUFFERS);
        guest.offer_one(0, place, flags);
        assert_eq!(guest.ring.put([0; HEADER_LONG], &frame(48)), Put::NoRoom);
        assert!(!guest.ring.is_served(), "{place:?}");
    }
}

#[test]
fn the_guest_is_interrupted_when_it_wants_that_and_asked_for_kicks_when_we_wait() {
    let call = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    let interrupts = |call: &OwnedFd| {
        let mut count = [0; 8];
        rustix::io::read(call.as_fd(), &mut count).map_or(0, |_| u64::from_ne_bytes(count))
    };
    let with_call = |features| {
        let mut guest = Guest::new(features);
        guest.ring.set_call(Some(File::from(call.try_clone().unwrap())));
        assert_eq!(interrupts(&call), 1, "it looks at what it was not told of before");
        guest
    };
    // By flags.
    let mut guest = with_call(0);
    let send = |guest: &mut Guest| {
        guest.offer_one(0, (BUFFERS, 3), 0);
        assert_eq!(guest.take().0, Taken::Frame(3));
        guest.ring.tell();
        interrupts(&call)
    };
    assert_eq!(send(&mut guest), 1);
    guest.memory.write_obj(NO_INTERRUPT, GuestAddress(AVAILABLE)).unwrap();
    assert_eq!(send(&mut guest), 0);
    let wants_none = |guest: &Guest| guest.memory.read_obj::<u16>(GuestAddress(USED)).unwrap();
    guest.ring.quiet();
    assert_eq!(wants_none(&guest), 1);
    assert!(!guest.ring.listen());
    assert_eq!(wants_none(&guest), 0);
    // By indices: it wants to hear of the second chain from now on.
    let mut guest = with_call(feature::EVENT_IDX);
    guest.memory.write_obj(1u16, GuestAddress(AVAILABLE + 4 + 2 * u64::from(SIZE))).unwrap();
    assert_eq!((send(&mut guest), send(&mut guest), send(&mut guest)), (0, 1, 0));
    assert!(!guest.ring.listen());
    let asked: u16 = guest.memory.read_obj(GuestAddress(USED + 4 + 8 * u64::from(SIZE))).unwrap();
    assert_eq!(asked, 3);
}

#[test]
fn a_guest_hears_of_what_it_received_before_it_could_be_interrupted() {
    let mut guest = Guest::new(feature::EVENT_IDX);
    for index in 0..2 {
        guest.offer_one(index, (BUFFERS + u64::from(index) * 0x1000, 200), WRITE);
    }
    let put = |guest: &mut Guest| {
        assert_eq!(guest.ring.put([0; HEADER_LONG], &frame(10)), Put::Done);
        guest.ring.tell();
    };
    // It wants to hear of the first, and is not there yet; of the second it does not ask, as it has not seen the first.
    put(&mut guest);
    let call = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    guest.ring.set_call(Some(File::from(call.try_clone().unwrap())));
    put(&mut guest);
    let mut count = [0; 8];
    assert_eq!(rustix::io::read(&call, &mut count), Ok(8), "no interrupt");
}

#[test]
fn buffers_without_room_cost_no_frame_more_than_a_chain() {
    // All of a frame's chains are one, whose descriptors have no room.
    for (what, len) in [("no room", 0), ("hardly any", 1)] {
        let mut guest = Guest::new(feature::MERGED_BUFFERS);
        let table = BUFFERS + 4096;
        for index in 0..1000 {
            let len = if index == 0 { len } else { 0 };
            guest.describe(table, index, (BUFFERS, len), WRITE | NEXT, index + 1);
        }
        guest.describe(table, 1000, (BUFFERS, 0), WRITE, 0);
        guest.describe(DESCRIPTORS, 2, (table, 1001 * 16), INDIRECT, 0);
        (0..SIZE).for_each(|_| guest.offer(2));
        let put = guest.ring.put([0; HEADER_LONG], &frame(60));
        assert!(guest.ring.places.capacity() <= 2 * PIECES_MAX, "{what}: {}", guest.ring.places.capacity());
        let expected = if len == 0 { (Put::NoRoom, false) } else { (Put::TooLong, true) };
        assert_eq!((put, guest.ring.is_served()), expected, "{what}");
    }
    // An empty table is a chain of nothing.
    let mut guest = Guest::new(feature::MERGED_BUFFERS);
    guest.offer_one(0, (BUFFERS, 0), INDIRECT);
    assert_eq!(guest.ring.put([0; HEADER_LONG], &frame(60)), Put::NoRoom);
    assert!(!guest.ring.is_served());
}
