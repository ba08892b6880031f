//! The list of mbufs inside a chain: up to two in place, more in a ring.
//!
//! It does not depend on merging or offsets. Why these forms: a connection at rest has two chains and a
//! segment has one, so the empty form must be small; a segment is cut from one or two clusters, so the usual
//! chain in transit must not allocate; a socket buffer is consumed at its front, which a vector could do only
//! by moving the rest.
//!
//! A long ring is sought in from places where something was found before ([`Mark`]): two, since a sender goes through its
//! buffer at two places, where it sends for the first time and where it fills holes. Their positions count everything that has
//! ever been in the ring, so nothing is to be moved when mbufs leave at the front; an mbuf that leaves at the back makes them
//! void.
//!
//! Invariants: `Ring::len` is the sum of its mbufs' lengths, so each change of a length goes through
//! [`Links::edit_front`] or [`Links::edit_back`]. A mark that lies inside the ring is the beginning of an mbuf. A ring stays a ring, even empty, until
//! [`Links::shrink`]: a busy socket buffer does not allocate each time it fills.
//! Tests: through `chain.rs`, `tests/chain_model.rs`.

use std::collections::VecDeque;
use std::slice;

use crate::mbuf::Mbuf;

#[derive(Clone, Default)]
pub(crate) enum Links {
    #[default]
    Empty,
    One(Mbuf),
    Two(Mbuf, Mbuf),
    Ring(Box<Ring>),
}

const _: () = assert!(size_of::<Links>() <= 40);

/// Mbufs that a new ring has room for: a socket buffer of some hundred KiB in large clusters.
const RING_MIN: usize = 8;

/// Mbufs of a ring from which on it pays to remember where something was found.
const MARKED_MIN: usize = 16;

#[derive(Clone)]
pub(crate) struct Ring {
    len: usize,
    mbufs: VecDeque<Mbuf>,
    /// Mbufs, and bytes, that have left at the front. Both wrap: a connection may carry more than an address says.
    gone_count: usize,
    gone_len: usize,
    /// The one used last stands first.
    marks: [Mark; 2],
}

/// Where an mbuf begins: how many others, and how many bytes, have come before it. That of a new ring's first is harmless.
#[derive(Clone, Copy, Default)]
struct Mark {
    count: usize,
    len: usize,
}

impl Links {
    pub(crate) fn len(&self) -> usize {
        match self {
            Links::Empty => 0,
            Links::One(a) => a.len(),
            Links::Two(a, b) => a.len() + b.len(),
            Links::Ring(ring) => ring.len,
        }
    }

    pub(crate) fn count(&self) -> usize {
        match self {
            Links::Empty => 0,
            Links::One(_) => 1,
            Links::Two(..) => 2,
            Links::Ring(ring) => ring.mbufs.len(),
        }
    }

    /// The mbufs in order, in two pieces.
    pub(crate) fn as_slices(&self) -> (&[Mbuf], &[Mbuf]) {
        match self {
            Links::Empty => (&[], &[]),
            Links::One(a) => (slice::from_ref(a), &[]),
            Links::Two(a, b) => (slice::from_ref(a), slice::from_ref(b)),
            Links::Ring(ring) => ring.mbufs.as_slices(),
        }
    }

    pub(crate) fn front_len(&self) -> usize {
        match self {
            Links::Empty => 0,
            Links::One(a) | Links::Two(a, _) => a.len(),
            Links::Ring(ring) => ring.mbufs.front().map_or(0, Mbuf::len),
        }
    }

    pub(crate) fn back_len(&self) -> usize {
        match self {
            Links::Empty => 0,
            Links::One(b) | Links::Two(_, b) => b.len(),
            Links::Ring(ring) => ring.mbufs.back().map_or(0, Mbuf::len),
        }
    }

    /// Lets `edit` change the first mbuf. `None` if there is none.
    pub(crate) fn edit_front<R>(&mut self, edit: impl FnOnce(&mut Mbuf) -> R) -> Option<R> {
        match self {
            Links::Empty => None,
            Links::One(a) | Links::Two(a, _) => Some(edit(a)),
            Links::Ring(ring) => {
                let front = ring.mbufs.front_mut()?;
                let before = front.len();
                let result = edit(front);
                ring.len = ring.len - before + front.len();
                ring.gone_len = ring.gone_len.wrapping_add(before - front.len());
                Some(result)
            }
        }
    }

    /// Lets `edit` change the last mbuf. `None` if there is none.
    pub(crate) fn edit_back<R>(&mut self, edit: impl FnOnce(&mut Mbuf) -> R) -> Option<R> {
        match self {
            Links::Empty => None,
            Links::One(b) | Links::Two(_, b) => Some(edit(b)),
            Links::Ring(ring) => {
                let back = ring.mbufs.back_mut()?;
                let before = back.len();
                let result = edit(back);
                ring.len = ring.len - before + back.len();
                Some(result)
            }
        }
    }

    /// The mbuf of a list of one.
    #[inline]
    pub(crate) fn single(&self) -> Option<&Mbuf> {
        if let Links::One(mbuf) = self { Some(mbuf) } else { None }
    }

    /// [`Links::single`], to change it.
    #[inline]
    pub(crate) fn single_mut(&mut self) -> Option<&mut Mbuf> {
        if let Links::One(mbuf) = self { Some(mbuf) } else { None }
    }

    /// Puts `links` in the place of this one, if it is empty; gives them back if it is not.
    #[inline]
    pub(crate) fn fill(&mut self, links: Links) -> Option<Links> {
        if !matches!(self, Links::Empty) {
            return Some(links);
        }
        // There is nothing to drop, which the compiler does not see.
        std::mem::forget(std::mem::replace(self, links));
        None
    }

    #[inline]
    pub(crate) fn push_back(&mut self, mbuf: Mbuf) {
        if let Some(Links::One(mbuf)) = self.fill(Links::One(mbuf)) {
            self.push_behind(mbuf);
        }
    }

    fn push_behind(&mut self, mbuf: Mbuf) {
        if let Links::Ring(ring) = self {
            ring.push_back(mbuf);
            return;
        }
        *self = match std::mem::take(self) {
            Links::Empty => Links::One(mbuf),
            Links::One(a) => Links::Two(a, mbuf),
            Links::Two(a, b) => {
                let mut ring = Ring::new();
                ring.push_back(a);
                ring.push_back(b);
                ring.push_back(mbuf);
                Links::Ring(Box::new(ring))
            }
            Links::Ring(ring) => Links::Ring(ring),
        };
    }

    #[inline]
    pub(crate) fn pop_front(&mut self) -> Option<Mbuf> {
        if let Links::One(_) = self
            && let Links::One(mbuf) = std::mem::take(self)
        {
            return Some(mbuf);
        }
        self.pop_front_of_many()
    }

    fn pop_front_of_many(&mut self) -> Option<Mbuf> {
        if let Links::Ring(ring) = self {
            let mbuf = ring.mbufs.pop_front()?;
            ring.len -= mbuf.len();
            ring.gone_len = ring.gone_len.wrapping_add(mbuf.len());
            ring.gone_count = ring.gone_count.wrapping_add(1);
            return Some(mbuf);
        }
        let (rest, mbuf) = match std::mem::take(self) {
            Links::Empty => (Links::Empty, None),
            Links::One(a) => (Links::Empty, Some(a)),
            Links::Two(a, b) => (Links::One(b), Some(a)),
            Links::Ring(ring) => (Links::Ring(ring), None),
        };
        *self = rest;
        mbuf
    }

    pub(crate) fn pop_back(&mut self) -> Option<Mbuf> {
        if let Links::Ring(ring) = self {
            let mbuf = ring.mbufs.pop_back()?;
            ring.len -= mbuf.len();
            ring.marks = [Mark { count: ring.gone_count, len: ring.gone_len }; 2];
            return Some(mbuf);
        }
        let (rest, mbuf) = match std::mem::take(self) {
            Links::Empty => (Links::Empty, None),
            Links::One(b) => (Links::Empty, Some(b)),
            Links::Two(a, b) => (Links::One(a), Some(b)),
            Links::Ring(ring) => (Links::Ring(ring), None),
        };
        *self = rest;
        mbuf
    }

    /// The ring, if there are so many mbufs that it pays to remember where something was found in it.
    #[inline]
    pub(crate) fn long_ring(&mut self) -> Option<&mut Ring> {
        match self {
            Links::Ring(ring) if ring.mbufs.len() >= MARKED_MIN => Some(ring),
            Links::Empty | Links::One(_) | Links::Two(..) | Links::Ring(_) => None,
        }
    }

    /// Gives spare memory back: a short ring becomes a form in place, a long one fits its content.
    pub(crate) fn shrink(&mut self) {
        let Links::Ring(ring) = self else { return };
        if ring.mbufs.len() > 2 {
            ring.mbufs.shrink_to_fit();
            return;
        }
        let (first, second) = (ring.mbufs.pop_front(), ring.mbufs.pop_front());
        *self = match (first, second) {
            (None, _) => Links::Empty,
            (Some(a), None) => Links::One(a),
            (Some(a), Some(b)) => Links::Two(a, b),
        };
    }
}

impl Ring {
    fn new() -> Self {
        let mbufs = VecDeque::with_capacity(RING_MIN);
        Self { len: 0, mbufs, gone_count: 0, gone_len: 0, marks: [Mark::default(); 2] }
    }

    /// True if there are `len` bytes from `off` on, and at least one.
    pub(crate) fn holds(&self, off: usize, len: usize) -> bool {
        len > 0 && off <= self.len && len <= self.len - off
    }

    /// Which mbuf the byte at `off` is in, and where in it, sought from the nearest of both ends and both marks. `off` is
    /// less than the length.
    pub(crate) fn seek(&mut self, off: usize) -> (usize, usize) {
        let ends = [(0, 0), (self.mbufs.len(), self.len)];
        let mut nearest = ends[usize::from(off > self.len / 2)];
        let mut used = 1;
        for (number, mark) in self.marks.iter().enumerate() {
            let index = mark.count.wrapping_sub(self.gone_count);
            // That of an mbuf of which some bytes have left lies before the front, which is far behind the end.
            let start = mark.len.wrapping_sub(self.gone_len);
            let is_inside = start <= self.len && index < self.mbufs.len();
            if is_inside && off.abs_diff(start) < off.abs_diff(nearest.1) {
                (nearest, used) = ((index, start), number);
            }
        }
        let (mut index, mut start) = nearest;
        while off < start {
            index -= 1;
            start -= self.mbufs[index].len();
        }
        while off - start >= self.mbufs[index].len() {
            start += self.mbufs[index].len();
            index += 1;
        }
        // A place that was found from an end replaces the one that was not used for longest.
        let (count, len) = (self.gone_count.wrapping_add(index), self.gone_len.wrapping_add(start));
        self.marks[used] = Mark { count, len };
        self.marks.swap(0, used);
        (index, off - start)
    }

    fn push_back(&mut self, mbuf: Mbuf) {
        self.len += mbuf.len();
        self.mbufs.push_back(mbuf);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::pool::{Pool, PoolConfig};

    #[test]
    fn offsets_are_found_while_the_counts_of_consumed_mbufs_wrap() {
        let pool = Pool::new(PoolConfig::default());
        let mbuf = || {
            let mut mbuf = pool.alloc(256).unwrap();
            assert_eq!(mbuf.try_extend(&[7; 100]), 100);
            mbuf
        };
        let mut ring = Ring::new();
        (0..40).for_each(|_| ring.push_back(mbuf()));
        (ring.gone_count, ring.gone_len) = (usize::MAX - 4, usize::MAX - 950);
        let mut links = Links::Ring(Box::new(ring));
        for gone in 0..20 {
            // Some bytes of the first have left when places are sought, too.
            links.edit_front(|front| front.trim_front(30));
            for off in [0, 69, 70, 500, 1_900, 70 + 100 * (38 - gone)] {
                let found = links.long_ring().map(|ring| ring.seek(off));
                let place = if off < 70 { (0, off) } else { ((off + 30) / 100, (off + 30) % 100) };
                assert_eq!(found, Some(place), "{off} with {gone} gone");
            }
            assert_eq!(links.pop_front().map(|mbuf| mbuf.len()), Some(70));
        }
    }
}
