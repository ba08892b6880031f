//! Chains: runs of bytes made of mbufs.
//!
//! It does not depend on sockets or segments, or on which chains share the clusters. Invariants: no mbuf in a chain is
//! empty; where one mbuf continues the one before it in the same cluster, the two are one. Nothing here blocks. Tests:
//! `tests/chain_model.rs` (against a `Vec<u8>`).

use std::fmt;
use std::io::IoSlice;
use std::iter::{self, FusedIterator};
use std::slice;

use crate::freed::Freed;
use crate::links::Links;
use crate::mbuf::Mbuf;
use crate::pool::{Exhausted, Pool};

/// A queue of mbufs that reads as one run of bytes. 40 bytes; allocates only to hold more than two
/// mbufs.
///
/// Cloning, slicing and splitting copy references, never bytes.
#[derive(Clone, Default)]
pub struct Chain {
    links: Links,
}

const _: () = assert!(size_of::<Chain>() <= 40);

/// A new cluster at the end of a chain takes at least this part of the chain's length: a stream of small
/// writes gathers in ever larger clusters, while a chain that holds little does not pin much.
const GROWTH_SHARE: usize = 2;

impl Chain {
    /// A chain without bytes.
    pub const fn new() -> Chain {
        Chain { links: Links::Empty }
    }

    /// Bytes in the chain.
    #[inline]
    pub fn len(&self) -> usize {
        self.links.len()
    }

    /// Whether the chain has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.links.count() == 0
    }

    /// Mbufs in the chain: how many pieces [`Chain::iter`] yields.
    #[inline]
    pub fn mbuf_count(&self) -> usize {
        self.links.count()
    }

    /// Bytes of memory that this chain's views keep from being used otherwise. A cluster counts once
    /// for each of its views here.
    pub fn footprint(&self) -> usize {
        self.mbufs().map(Mbuf::footprint).sum()
    }

    /// Appends a view.
    pub fn push_back(&mut self, mbuf: Mbuf) {
        if mbuf.is_empty() || self.links.edit_back(|back| back.try_merge(&mbuf)) == Some(true) {
            return;
        }
        self.links.push_back(mbuf);
    }

    /// Takes the first view out.
    pub fn pop_front(&mut self) -> Option<Mbuf> {
        self.links.pop_front()
    }

    /// Appends all of another chain.
    pub fn append(&mut self, mut other: Chain) {
        let links = std::mem::take(&mut other.links);
        let Some(links) = self.links.fill(links) else { return };
        other.links = links;
        // Only at the seam can there be something to merge.
        if let Some(first) = other.links.pop_front() {
            self.push_back(first);
        }
        while let Some(mbuf) = other.links.pop_front() {
            self.links.push_back(mbuf);
        }
    }

    /// Appends all of another chain to one that may become long and wait. Of its views, those of fewer than `small_len` bytes are copied into
    /// the room behind the last view, if nobody else views its cluster, or into a new cluster of their size: so many of them hold little more memory than their bytes. Those
    /// that begin the chain, continue the view before them in its cluster, or are met at the pool's cap, are appended as they are. Clusters
    /// that are not needed any more go to `freed`, as in [`Chain::take_into_releasing`].
    ///
    /// Does not block, beyond short locks.
    pub fn gather(&mut self, other: Chain, small_len: usize, pool: &Pool, freed: &mut Freed) {
        for mut mbuf in other {
            if mbuf.len() >= small_len || self.is_empty() {
                self.push_back(mbuf);
            } else if self.links.edit_back(|back| back.try_merge(&mbuf)) == Some(true)
                || self.copy_in(&mut mbuf, pool)
            {
                freed.release(mbuf);
            } else {
                self.links.push_back(mbuf);
            }
        }
    }

    /// Appends a copy of `mbuf`. False if the pool has no room for the part that is left in it.
    fn copy_in(&mut self, mbuf: &mut Mbuf, pool: &Pool) -> bool {
        // Not into one that others view: a driver may still have its next frames written there.
        let extend = |back: &mut Mbuf| if back.is_alone() { back.try_extend(mbuf) } else { 0 };
        let taken = self.links.edit_back(extend).unwrap_or(0);
        mbuf.trim_front(taken);
        if mbuf.is_empty() {
            return true;
        }
        let Ok(mut copy) = pool.alloc(mbuf.len()) else { return false };
        copy.try_extend(mbuf);
        self.links.push_back(copy);
        true
    }

    /// Drops the first `n` bytes; all, if there are fewer.
    pub fn trim_front(&mut self, n: usize) {
        self.consume(n, drop);
    }

    /// [`Chain::trim_front`]; clusters without another view go to `freed`, as in [`Chain::take_into_releasing`].
    #[inline]
    pub fn trim_front_releasing(&mut self, n: usize, freed: &mut Freed) {
        self.consume(n, |mbuf| freed.release(mbuf));
    }

    /// [`Chain::trim_front`]; `used` gets the mbufs that are used up.
    fn consume(&mut self, n: usize, mut used: impl FnMut(Mbuf)) {
        let mut left = n;
        while left > 0 {
            let front_len = self.links.front_len();
            if front_len > left {
                self.links.edit_front(|front| front.trim_front(left));
                return;
            }
            match self.links.pop_front() {
                Some(mbuf) => used(mbuf),
                None => return,
            }
            left -= front_len;
        }
    }

    /// Keeps the first `n` bytes. Does nothing if there are no more.
    pub fn truncate(&mut self, n: usize) {
        let mut excess = self.len().saturating_sub(n);
        while excess > 0 {
            let back_len = self.links.back_len();
            if back_len > excess {
                self.links.edit_back(|back| back.truncate(back_len - excess));
                return;
            }
            self.links.pop_back();
            excess -= back_len;
        }
    }

    /// Moves the first `n` bytes, or all if there are fewer, into a chain of their own. The caller
    /// may copy them out and drop them after it has given up its locks.
    pub fn split_front(&mut self, n: usize) -> Chain {
        if n >= self.len() {
            return std::mem::take(self);
        }
        let mut front = Chain::new();
        let mut left = n;
        while left > 0 {
            let front_len = self.links.front_len();
            if front_len > left {
                let part = self.links.edit_front(|mbuf| {
                    let part = mbuf.slice(..left);
                    mbuf.trim_front(left);
                    part
                });
                front.links.push_back(part.expect("a chain longer than n has a front"));
                return front;
            }
            let mbuf = self.links.pop_front().expect("a chain longer than n has a front");
            front.links.push_back(mbuf);
            left -= front_len;
        }
        front
    }

    /// New views of `len` bytes from `off` on. Looks for `off` from the nearer end, so that the unsent
    /// tail of a long buffer and its unacknowledged head are found at once.
    ///
    /// # Panics
    /// If the chain ends before `off + len`.
    pub fn slice(&self, off: usize, len: usize) -> Chain {
        let total = self.len();
        assert!(off <= total && len <= total - off, "{len} bytes at {off} of {total}");
        if len == 0 {
            return Chain::new();
        }
        let place = if off < self.links.front_len() { (0, off) } else { self.locate(off) };
        self.slice_at(place, len)
    }

    /// [`Chain::slice`] for a caller that reads on nearby: in a long chain the search for `off` also begins where
    /// something was found last.
    ///
    /// # Panics
    /// If the chain ends before `off + len`.
    #[inline]
    pub fn slice_near(&mut self, off: usize, len: usize) -> Chain {
        match self.links.long_ring() {
            Some(ring) if ring.holds(off, len) => {
                let place = ring.seek(off);
                self.slice_at(place, len)
            }
            Some(_) | None => self.slice(off, len),
        }
    }

    /// `len` bytes, at least one, from the byte at `skip` of the mbuf at `index` on, all of which are there.
    #[inline]
    fn slice_at(&self, (index, skip): (usize, usize), len: usize) -> Chain {
        let (head, tail) = self.links.as_slices();
        let (here, there) = match head.get(index..) {
            Some(here) => (here, tail),
            None => (tail.get(index - head.len()..).unwrap_or_default(), [].as_slice()),
        };
        let mut mbufs = here.iter().chain(there);
        let mut out = Chain::new();
        let (mut skip, mut left) = (skip, len);
        while left > 0
            && let Some(mbuf) = mbufs.next()
        {
            let take = left.min(mbuf.len() - skip);
            out.links.push_back(mbuf.slice(skip..skip + take));
            left -= take;
            skip = 0;
        }
        out
    }

    /// [`Chain::slice_near`] by the only thread that can reach this chain: of a single mbuf without a locked instruction, if
    /// there is no other view of its cluster.
    ///
    /// # Panics
    /// If the chain ends before `off + len`.
    #[inline]
    pub fn slice_alone(&mut self, off: usize, len: usize) -> Chain {
        match self.links.single_mut() {
            Some(mbuf) if len > 0 => Chain { links: Links::One(mbuf.slice_alone(off, len)) },
            Some(_) | None => self.slice_near(off, len),
        }
    }

    /// Which mbuf the byte at `off` is in, and where in it. `off` is less than the length.
    fn locate(&self, off: usize) -> (usize, usize) {
        let total = self.len();
        let (head, tail) = self.links.as_slices();
        if off < total / 2 {
            let (mut index, mut start) = (0, 0);
            for mbuf in head.iter().chain(tail) {
                if off < start + mbuf.len() {
                    return (index, off - start);
                }
                (index, start) = (index + 1, start + mbuf.len());
            }
        } else {
            let (mut index, mut start) = (head.len() + tail.len(), total);
            for part in [tail, head] {
                for mbuf in part.iter().rev() {
                    (index, start) = (index - 1, start - mbuf.len());
                    if off >= start {
                        return (index, off - start);
                    }
                }
            }
        }
        unreachable!("the byte at {off} of {total} is in some mbuf")
    }

    /// Appends a copy of `bytes`: first into free room behind the last mbuf, then in new clusters,
    /// larger ones the longer the chain is. Returns how many bytes were appended: fewer than all if
    /// the pool's cap was met on the way.
    ///
    /// # Errors
    /// [`Exhausted`] if nothing could be appended.
    pub fn extend_from_slice(&mut self, pool: &Pool, bytes: &[u8]) -> Result<usize, Exhausted> {
        let mut rest = bytes;
        if let Some(taken) = self.links.edit_back(|back| back.try_extend(rest)) {
            rest = &rest[taken..];
        }
        while !rest.is_empty() {
            let want = rest.len().max(self.len() / GROWTH_SHARE);
            let mut mbuf = match pool.alloc(want) {
                Ok(mbuf) => mbuf,
                Err(Exhausted) if rest.len() < bytes.len() => break,
                Err(Exhausted) => return Err(Exhausted),
            };
            let taken = mbuf.try_extend(rest);
            rest = &rest[taken..];
            self.links.push_back(mbuf);
        }
        Ok(bytes.len() - rest.len())
    }

    /// Copies bytes from `off` on into `into`, and keeps them. Returns how many: fewer than asked if
    /// the chain ends.
    pub fn copy_to(&self, off: usize, into: &mut [u8]) -> usize {
        if off >= self.len() {
            return 0;
        }
        let (index, mut skip) = self.locate(off);
        let mut done = 0;
        for mbuf in self.mbufs().skip(index) {
            let from = &mbuf[skip..];
            let take = from.len().min(into.len() - done);
            into[done..done + take].copy_from_slice(&from[..take]);
            done += take;
            if done == into.len() {
                break;
            }
            skip = 0;
        }
        done
    }

    /// Copies bytes from the front into `into`, and drops them. Returns how many: fewer than asked if
    /// the chain ends.
    pub fn take_into(&mut self, into: &mut [u8]) -> usize {
        let done = self.copy_to(0, into);
        self.trim_front(done);
        done
    }

    /// [`Chain::take_into`]; clusters whose last byte is taken so, and that have no other view, go to `freed` and not
    /// to this thread's cache, which is for after the caller's locks.
    #[inline]
    pub fn take_into_releasing(&mut self, into: &mut [u8], freed: &mut Freed) -> usize {
        if let Some(mbuf) = self.links.single()
            && mbuf.len() <= into.len()
        {
            let done = mbuf.len();
            into[..done].copy_from_slice(mbuf);
            self.links.pop_front().into_iter().for_each(|mbuf| freed.release(mbuf));
            return done;
        }
        let done = self.copy_to(0, into);
        self.consume(done, |mbuf| freed.release(mbuf));
        done
    }

    /// The bytes, piece by piece.
    #[inline]
    pub fn iter(&self) -> Slices<'_> {
        Slices(self.mbufs())
    }

    /// At most `len` bytes from `off` on, piece by piece; fewer if the chain ends. No piece is empty.
    #[inline]
    pub fn pieces(&self, mut off: usize, mut len: usize) -> impl Iterator<Item = &[u8]> {
        let parts = self.iter().map_while(move |piece| {
            if len == 0 {
                return None;
            }
            let skipped = off.min(piece.len());
            off -= skipped;
            let part = &piece[skipped..];
            let part = &part[..part.len().min(len)];
            len -= part.len();
            Some(part)
        });
        parts.filter(|part| !part.is_empty())
    }

    /// The views.
    #[inline]
    pub fn mbufs(&self) -> Mbufs<'_> {
        let (head, tail) = self.links.as_slices();
        Mbufs(head.iter().chain(tail))
    }

    /// Fills `into` with the chain's pieces for scatter output. Returns how many were filled; the
    /// chain has more if that is all of them and [`Chain::mbuf_count`] is larger.
    pub fn fill_io_slices<'a>(&'a self, into: &mut [IoSlice<'a>]) -> usize {
        let mut count = 0;
        for (slot, piece) in into.iter_mut().zip(self.iter()) {
            *slot = IoSlice::new(piece);
            count += 1;
        }
        count
    }

    /// Gives back memory that the chain keeps for mbufs it no longer holds. For chains at rest.
    pub fn shrink(&mut self) {
        self.links.shrink();
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Payload is the users' business, not a log's.
        f.debug_struct("Chain").field("len", &self.len()).field("mbuf_count", &self.mbuf_count()).finish()
    }
}

impl From<Mbuf> for Chain {
    fn from(mbuf: Mbuf) -> Chain {
        let mut chain = Chain::new();
        chain.push_back(mbuf);
        chain
    }
}

impl Extend<Mbuf> for Chain {
    fn extend<I: IntoIterator<Item = Mbuf>>(&mut self, mbufs: I) {
        for mbuf in mbufs {
            self.push_back(mbuf);
        }
    }
}

/// A chain's views, first to last.
#[derive(Clone)]
pub struct Mbufs<'a>(iter::Chain<slice::Iter<'a, Mbuf>, slice::Iter<'a, Mbuf>>);

impl<'a> Iterator for Mbufs<'a> {
    type Item = &'a Mbuf;

    #[inline]
    fn next(&mut self) -> Option<&'a Mbuf> {
        self.0.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }

    /// Constant time: a ring's pieces are slices.
    #[inline]
    fn nth(&mut self, n: usize) -> Option<&'a Mbuf> {
        self.0.nth(n)
    }
}

impl DoubleEndedIterator for Mbufs<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        self.0.next_back()
    }
}

impl FusedIterator for Mbufs<'_> {}

/// A chain's bytes, piece by piece. No piece is empty.
#[derive(Clone)]
pub struct Slices<'a>(Mbufs<'a>);

impl<'a> Iterator for Slices<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        self.0.next().map(Mbuf::as_slice)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl DoubleEndedIterator for Slices<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        self.0.next_back().map(Mbuf::as_slice)
    }
}

impl FusedIterator for Slices<'_> {}

impl<'a> IntoIterator for &'a Chain {
    type Item = &'a [u8];
    type IntoIter = Slices<'a>;

    fn into_iter(self) -> Slices<'a> {
        self.iter()
    }
}

/// A chain's views, taken out one by one. The rest is dropped.
pub struct IntoMbufs(Chain);

impl Iterator for IntoMbufs {
    type Item = Mbuf;

    fn next(&mut self) -> Option<Mbuf> {
        self.0.pop_front()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.0.mbuf_count(), Some(self.0.mbuf_count()))
    }
}

impl IntoIterator for Chain {
    type Item = Mbuf;
    type IntoIter = IntoMbufs;

    fn into_iter(self) -> IntoMbufs {
        IntoMbufs(self)
    }
}
