//! Memory for queue nodes, recycled.
//!
//! A node is made by the thread that finds a squeue occupied and given back by the thread
//! inside, so with a plain allocator each contended hand-off would free memory of another thread,
//! the slowest thing that allocators do. Here every thread keeps two magazines of blocks and trades
//! whole ones with a depot: one lock per [`MAGAZINE_BLOCKS`] hand-offs, no allocation once the
//! traffic is steady.
//!
//! Two block sizes; a value that fits neither lives in a box. Blocks have the alignment of a cache
//! line, so that two producers never write the same one.
//!
//! Bounds: two magazines a thread and size, [`DEPOT_MAGAZINES_MAX`] a size in the depot (128 and
//! 256 KiB). A full depot gives to the allocator, an empty one takes from it. A thread that ends
//! gives its blocks to the allocator.
//!
//! Does not depend on the type of nodes. Nothing here is modelled: a block has one owner all the time, and
//! changes owner through the depot's mutex or through the queue that its value travels in. Tests: below (also
//! under miri), `tests/stress.rs`.

use core::alloc::Layout;
use core::cell::Cell;
use core::ptr;
use std::alloc::{alloc, dealloc, handle_alloc_error};

use crate::facade::memory_written;
use crate::facade::unmodelled::{Mutex, thread_local};
use crate::fork::PerProcess;

/// Moves `value` to memory of its own.
#[inline]
pub(crate) fn put<V>(value: V) -> *mut V {
    let Some(size) = Size::of::<V>() else {
        return Box::into_raw(Box::new(value));
    };
    // A thread whose locals are gone (it is ending) uses the allocator.
    let block = MAGAZINES.try_with(|magazines| magazines.of(size).get(size)).ok().flatten();
    let at = block.unwrap_or_else(|| size.allocate()).cast::<V>();
    memory_written(at);
    // SAFETY: the block is ours, and large and aligned enough by the choice of its size.
    unsafe { at.write(value) };
    at
}

/// Moves the value out and gives the memory back.
///
/// # Safety
/// `at` came from [`put`], the caller owns its target, and never uses it again.
#[inline]
pub(crate) unsafe fn take<V>(at: *mut V) -> V {
    let Some(size) = Size::of::<V>() else {
        // SAFETY: for this type `put` made a box, which the caller gives up.
        return *unsafe { Box::from_raw(at) };
    };
    // SAFETY: the caller owns the value and does not use its place again.
    let value = unsafe { at.read() };
    let block = at.cast::<Block>();
    if MAGAZINES.try_with(|magazines| magazines.of(size).put(size, block)).is_err() {
        // SAFETY: `put` took the block of this size from `allocate`, at first or second hand.
        unsafe { size.deallocate(block) };
    }
    value
}

/// A block that holds no value now, linked into a magazine.
struct Block {
    next: *mut Block,
}

/// A stack of blocks.
#[derive(Clone, Copy)]
struct Magazine {
    head: *mut Block,
    blocks_count: u32,
}

impl Magazine {
    const EMPTY: Self = Self { head: ptr::null_mut(), blocks_count: 0 };

    fn pop(&mut self) -> Option<*mut Block> {
        let block = self.head;
        if block.is_null() {
            return None;
        }
        // SAFETY: a block in a magazine is the magazine's, and its link was written by `push`.
        self.head = unsafe { (*block).next };
        self.blocks_count -= 1;
        Some(block)
    }

    fn push(&mut self, block: *mut Block) {
        let link = Block { next: self.head };
        memory_written(block);
        // SAFETY: the caller gave the block, which is large and aligned enough for a link.
        unsafe { block.write(link) };
        self.head = block;
        self.blocks_count += 1;
    }

    fn is_full(self) -> bool {
        self.blocks_count >= MAGAZINE_BLOCKS
    }

    /// Gives every block to the allocator.
    fn deallocate(mut self, size: Size) {
        while let Some(block) = self.pop() {
            // SAFETY: all blocks of a magazine have its size and came from the allocator.
            unsafe { size.deallocate(block) };
        }
    }
}

/// A thread's blocks of one size. With two magazines, a thread at the border between full and
/// empty does not go to the depot for every block.
struct Pair {
    in_use: Cell<Magazine>,
    spare: Cell<Magazine>,
}

impl Pair {
    const fn new() -> Self {
        Self { in_use: Cell::new(Magazine::EMPTY), spare: Cell::new(Magazine::EMPTY) }
    }

    /// A block, unless this thread and the depot have none.
    #[inline]
    fn get(&self, size: Size) -> Option<*mut Block> {
        let mut magazine = self.in_use.get();
        if magazine.head.is_null() {
            magazine = self.spare.replace(Magazine::EMPTY);
            if magazine.head.is_null() {
                magazine = size.depot().get()?;
            }
        }
        let block = magazine.pop();
        self.in_use.set(magazine);
        block
    }

    #[inline]
    fn put(&self, size: Size, block: *mut Block) {
        let mut magazine = self.in_use.get();
        if magazine.is_full() {
            let spare = self.spare.replace(magazine);
            magazine = Magazine::EMPTY;
            if spare.is_full() {
                size.depot().put(spare, size);
            } else {
                magazine = spare;
            }
        }
        magazine.push(block);
        self.in_use.set(magazine);
    }
}

/// Everything a thread keeps.
struct Magazines([Pair; SIZES_COUNT]);

impl Magazines {
    #[inline]
    fn of(&self, size: Size) -> &Pair {
        match size {
            Size::Line => &self.0[0],
            Size::TwoLines => &self.0[1],
        }
    }
}

impl Drop for Magazines {
    fn drop(&mut self) {
        for size in [Size::Line, Size::TwoLines] {
            let pair = self.of(size);
            for magazine in [&pair.in_use, &pair.spare] {
                magazine.replace(Magazine::EMPTY).deallocate(size);
            }
        }
    }
}

thread_local! {
    static MAGAZINES: Magazines = const { Magazines([const { Pair::new() }; SIZES_COUNT]) };
}

/// Full magazines between threads.
struct Depot(Mutex<Full>);

struct Full {
    magazines: [Magazine; DEPOT_MAGAZINES_MAX],
    magazines_count: usize,
}

// SAFETY: a magazine owns its blocks, which hold no value and belong to no thread.
unsafe impl Send for Full {}

impl Depot {
    const fn new() -> Self {
        Self(Mutex::new(Full { magazines: [Magazine::EMPTY; DEPOT_MAGAZINES_MAX], magazines_count: 0 }))
    }

    #[cold]
    fn get(&self) -> Option<Magazine> {
        let mut full = self.0.lock();
        full.magazines_count = full.magazines_count.checked_sub(1)?;
        let top = full.magazines_count;
        Some(full.magazines[top])
    }

    #[cold]
    fn put(&self, magazine: Magazine, size: Size) {
        let mut full = self.0.lock();
        let top = full.magazines_count;
        if let Some(place) = full.magazines.get_mut(top) {
            *place = magazine;
            full.magazines_count += 1;
        } else {
            drop(full);
            magazine.deallocate(size);
        }
    }
}

/// The block sizes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Size {
    Line,
    TwoLines,
}

impl Size {
    /// The smallest that holds a `V`.
    const fn of<V>() -> Option<Self> {
        let (size, align) = (size_of::<V>(), align_of::<V>());
        if align > LINE_BYTES || size > 2 * LINE_BYTES {
            None
        } else if size > LINE_BYTES {
            Some(Self::TwoLines)
        } else {
            Some(Self::Line)
        }
    }

    /// A child of fork(2) has depots of its own: a thread of its parent's may have held the locks of the others.
    fn depot(self) -> &'static Depot {
        static LINES: PerProcess<Depot> = PerProcess::new();
        static TWO_LINES: PerProcess<Depot> = PerProcess::new();
        let depot = match self {
            Self::Line => &LINES,
            Self::TwoLines => &TWO_LINES,
        };
        depot.get_or_init(Depot::new)
    }

    fn layout(self) -> Layout {
        match self {
            Self::Line => LINE,
            Self::TwoLines => TWO_LINES,
        }
    }

    #[cold]
    fn allocate(self) -> *mut Block {
        let layout = self.layout();
        // SAFETY: the layout is not empty.
        let block = unsafe { alloc(layout) };
        if block.is_null() {
            handle_alloc_error(layout);
        }
        block.cast()
    }

    /// # Safety
    /// The block came from `allocate` of the same size, and is the caller's.
    unsafe fn deallocate(self, block: *mut Block) {
        // SAFETY: the caller's promise.
        unsafe { dealloc(block.cast(), self.layout()) };
    }
}

const fn lines(count: usize) -> Layout {
    match Layout::from_size_align(count * LINE_BYTES, LINE_BYTES) {
        Ok(layout) => layout,
        Err(_) => panic!("a power of two"),
    }
}

const LINE: Layout = lines(1);
const TWO_LINES: Layout = lines(2);
/// A cache line.
const LINE_BYTES: usize = 64;
const SIZES_COUNT: usize = 2;
/// Blocks that change hands at once.
const MAGAZINE_BLOCKS: u32 = 32;
/// Magazines of one size that the depot keeps.
const DEPOT_MAGAZINES_MAX: usize = 64;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_value_goes_into_the_smallest_block_that_fits() {
        assert_eq!(Size::of::<[u8; 64]>(), Some(Size::Line));
        assert_eq!(Size::of::<[u8; 65]>(), Some(Size::TwoLines));
        assert_eq!(Size::of::<[u8; 128]>(), Some(Size::TwoLines));
        assert_eq!(Size::of::<[u8; 129]>(), None);
        #[repr(align(128))]
        struct Page(#[allow(dead_code, reason = "only its alignment matters")] u8);
        assert_eq!(Size::of::<Page>(), None);
    }

    fn round_trip<const LEN: usize>(count: usize) {
        let places: Vec<_> = (0..count).map(|i| put((i, [7_u8; LEN]))).collect();
        for (i, place) in places.into_iter().enumerate() {
            // SAFETY: from `put`, taken once.
            assert_eq!(unsafe { take(place) }, (i, [7; LEN]));
        }
    }

    #[test]
    fn values_are_returned_intact_in_every_size() {
        // More than two magazines, so that the depot takes part.
        let count = 3 * MAGAZINE_BLOCKS as usize;
        for _ in 0..3 {
            round_trip::<1>(count);
            round_trip::<100>(count);
            round_trip::<1000>(count);
        }
    }

    #[test]
    fn the_last_block_given_back_is_the_next_one_used() {
        let first = put(1_u64);
        // SAFETY: from `put`, taken once.
        unsafe { take(first) };
        let second = put(2_u64);
        assert_eq!(first.addr(), second.addr());
        // SAFETY: from `put`, taken once.
        assert_eq!(unsafe { take(second) }, 2);
    }

    /// A place on its way to the thread that takes the value out.
    struct Sent(*mut u64);

    // SAFETY: it is the only pointer to its place, and a `u64` may go anywhere.
    unsafe impl Send for Sent {}

    #[test]
    fn blocks_freed_on_another_thread_return_through_the_depot() {
        let (send, receive) = std::sync::mpsc::sync_channel::<Sent>(64);
        let consumer = std::thread::spawn(move || {
            // SAFETY: from `put`, sent and taken once.
            receive.into_iter().map(|Sent(place)| unsafe { take(place) }).sum::<u64>()
        });
        let count = if cfg!(miri) { 200 } else { 10_000 };
        for i in 0..count {
            assert!(send.send(Sent(put(i))).is_ok(), "the consumer lives");
        }
        drop(send);
        assert_eq!(consumer.join().expect("no panic"), count * (count - 1) / 2);
    }
}
