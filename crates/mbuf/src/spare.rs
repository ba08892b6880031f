//! The room behind a view, to be written by something that is not Rust: a system call.
//!
//! It does not depend on which thread writes. Invariants: the room is reserved as long as the [`Spare`] lives, so no
//! other thread is given it; written bytes come into view only by [`Spare::commit`]; the rest is given back to the
//! cluster. Tests: at the end; the race for the room is that of `try_extend` (`cluster.rs`, models).

use std::mem::MaybeUninit;
use std::ptr;

use crate::facade::memory_written;
use crate::mbuf::Mbuf;

/// All the room behind a view, reserved for the holder of this. See [`Mbuf::spare`].
#[derive(Debug)]
pub struct Spare<'a> {
    mbuf: &'a mut Mbuf,
    len: usize,
}

impl Mbuf {
    /// Reserves all room behind this view, for a reader that writes to memory by itself. `None` if there is none, or
    /// other data stands behind the view already.
    #[inline]
    pub fn spare(&mut self) -> Option<Spare<'_>> {
        let len = self.reserve_behind(usize::MAX);
        // Not `then_some`: what it is given is made, and so dropped, in either case, and a drop gives room back.
        (len > 0).then(|| Spare { mbuf: self, len })
    }

    /// Has `fill` write into the room behind this view, `max` bytes at most, and takes into view what it returns: the bytes that it has
    /// written, from the first of the room on, as `rustix::io::read` returns them. Returns how many.
    ///
    /// Without room `fill` is not called, and the result is 0.
    ///
    /// # Errors
    /// That of `fill`; nothing comes into view.
    ///
    /// # Panics
    /// If `fill` returns other bytes than the first of the room.
    pub fn fill<E>(
        &mut self,
        max: usize,
        fill: impl for<'r> FnOnce(&'r mut [MaybeUninit<u8>]) -> Result<&'r mut [u8], E>,
    ) -> Result<usize, E> {
        let Some(mut spare) = self.spare() else { return Ok(0) };
        let (start, room_len) = (spare.as_mut_ptr(), spare.len().min(max));
        let room = ptr::slice_from_raw_parts_mut(start.cast::<MaybeUninit<u8>>(), room_len);
        // SAFETY: the room is ours to write for as long as `spare` lives, which is longer than this reference, and bytes that need not be
        // initialised are valid whatever stands there.
        let written = fill(unsafe { &mut *room })?;
        let (at, len) = (written.as_ptr(), written.len());
        assert!(
            len <= room_len && (len == 0 || ptr::eq(at, start)),
            "other bytes than the first of the room"
        );
        // SAFETY: `fill` returned a slice of these very bytes as `u8`, so they are initialised.
        unsafe { spare.commit(len) };
        Ok(len)
    }
}

impl Spare<'_> {
    /// Where the room begins. It may be written as long as this lives, and is not to be read before.
    #[inline]
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        memory_written(self.mbuf.data(0));
        self.mbuf.data_behind()
    }

    /// Bytes of room.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no room; never.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes the first `n` bytes of the room into view, and gives the rest back.
    ///
    /// # Safety
    /// They were written.
    ///
    /// # Panics
    /// If the room has fewer.
    #[inline]
    pub unsafe fn commit(self, n: usize) {
        assert!(n <= self.len, "{n} bytes written into a room of {}", self.len);
        self.mbuf.grow(n);
    }
}

impl Drop for Spare<'_> {
    #[inline]
    fn drop(&mut self) {
        self.mbuf.give_back_room();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::{Pool, PoolConfig};

    fn write(spare: &mut super::Spare<'_>, bytes: &[u8]) {
        assert!(bytes.len() <= spare.len());
        // SAFETY: the room is ours to write, as long as `spare` lives, and was seen to be long enough.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), spare.as_mut_ptr(), bytes.len()) };
    }

    #[test]
    fn committed_bytes_come_into_view_and_the_rest_is_given_back() {
        let pool = Pool::new(PoolConfig::default());
        let mut mbuf = pool.alloc(256).unwrap();
        let mut spare = mbuf.spare().unwrap();
        assert_eq!(spare.len(), 256);
        write(&mut spare, b"one two");
        // SAFETY: just written.
        unsafe { spare.commit(3) };
        assert_eq!(mbuf.as_slice(), b"one");
        let first = mbuf.slice(..);
        assert_eq!(mbuf.try_extend(b"!"), 1);
        assert_eq!((mbuf.as_slice(), first.as_slice()), (&b"one!"[..], &b"one"[..]));
        drop(mbuf.spare());
        assert_eq!(mbuf.spare().map(|spare| spare.len()), Some(252));
    }

    #[test]
    fn while_the_room_is_reserved_no_other_view_gets_any_of_it() {
        let pool = Pool::new(PoolConfig::default());
        let mut mbuf = pool.alloc(256).unwrap();
        assert_eq!(mbuf.try_extend(b"head"), 4);
        let mut other = mbuf.clone();
        let mut spare = mbuf.spare().unwrap();
        assert_eq!(other.try_extend(b"x"), 0);
        assert!(other.spare().is_none());
        write(&mut spare, b"tail");
        // SAFETY: just written.
        unsafe { spare.commit(4) };
        assert_eq!(other.try_extend(b"x"), 0, "it ends before the tail");
        assert_eq!((mbuf.as_slice(), other.as_slice()), (&b"headtail"[..], &b"head"[..]));
        assert_eq!(mbuf.clone().try_extend(&[0; 300]), 248);
        assert!(mbuf.spare().is_none());
    }

    #[test]
    fn a_view_that_gets_no_room_gives_none_back() {
        let pool = Pool::new(PoolConfig::default());
        let mut mbuf = pool.alloc(256).unwrap();
        assert_eq!(mbuf.try_extend(b"head"), 4);
        let (mut behind, mut late) = (mbuf.clone(), mbuf.clone());
        assert_eq!(behind.try_extend(b"tail"), 4);
        assert!(mbuf.spare().is_none());
        assert_eq!(late.try_extend(b"over"), 0, "other data stands there");
        assert_eq!(behind.as_slice(), b"headtail");
    }

    #[test]
    fn what_a_filler_returns_comes_into_view() {
        let pool = Pool::new(PoolConfig::default());
        let mut mbuf = pool.alloc(256).unwrap();
        let three = mbuf.fill(3, |room| {
            assert_eq!(room.len(), 3);
            Ok::<_, ()>(room.write_copy_of_slice(b"one"))
        });
        assert_eq!((three, mbuf.as_slice()), (Ok(3), &b"one"[..]));
        assert_eq!(mbuf.fill(9, |_| Err("nothing")), Err("nothing"));
        assert_eq!(mbuf.fill(0, |room| Ok::<_, ()>(room.write_copy_of_slice(b""))), Ok(0));
        assert_eq!(mbuf.fill(usize::MAX, |room| Ok::<_, ()>(room.write_copy_of_slice(&[7; 253]))), Ok(253));
        assert_eq!((mbuf.len(), mbuf.fill(1, |_| Err("not called"))), (256, Ok(0)));
    }

    #[test]
    #[should_panic(expected = "other bytes than the first of the room")]
    fn bytes_behind_the_first_do_not_come_into_view() {
        let pool = Pool::new(PoolConfig::default());
        let _ = pool.alloc(256).unwrap().fill(4, |room| Ok::<_, ()>(room[1..].write_copy_of_slice(b"one")));
    }

    #[test]
    #[should_panic(expected = "9 bytes written into a room of 8")]
    fn more_than_the_room_is_not_committed() {
        let pool = Pool::new(PoolConfig::default());
        let mut mbuf = pool.alloc(256).unwrap();
        assert_eq!(mbuf.try_extend(&[0; 248]), 248);
        let spare = mbuf.spare().unwrap();
        // SAFETY: refused before anything comes into view.
        unsafe { spare.commit(9) };
    }
}
