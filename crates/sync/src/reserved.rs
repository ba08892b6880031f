//! Room in a buffer that a writer has reserved for a copy outside of the buffer's mutex.
//!
//! [`Reserved`] stands under that mutex, beside the buffer, and counts against its bound: meanwhile others find less room, or none, and wait.
//!
//! # States of a reservation
//!
//! | from → to | by |
//! |---|---|
//! | - → reserved | [`take`](Reserved::take), in the section that has found room |
//! | reserved → in the buffer | [`give_back`](Reserved::give_back), with all bytes copied, in the section that appends them |
//! | reserved → room again, in part or all | the same, with fewer bytes: the copy ended short, for want of memory; or the buffer takes none any more |
//!
//! # Why no wake-up is lost
//!
//! A writer that waits has found no room and come onto the list in one section of the mutex (`wait_list.rs`). Room appears in two ways. *A
//! reader takes bytes*: it notifies, in its section, if there is room by then. *A reservation is given back short*: nothing that a reader
//! does will notify them, since the bytes were never in the buffer; so the writer does, in the section that gives the room back. A
//! reservation that is used in full makes no room, and needs no wake: its bytes are in the buffer now, and the reader that takes them
//! notifies.
//!
//! A reader that finds too little room because of a reservation notifies no writer. The space that it has freed is still there when
//! the reservation ends: short, then its writer notifies; or in full, then its bytes bring the next reader.
//!
//! A writer that unwinds between `take` and `give_back` leaves room that no writer can have, so the buffer has to end with it: owners break
//! the connection off, which wakes all waiters.
//!
//! Does not depend on the buffer, or on when there is enough room to notify. Tests: below,
//! `tests/loom/tasks.rs`.

/// See the head of the file.
#[derive(Debug, Default)]
pub struct Reserved {
    bytes: u32,
}

/// Bytes that one writer has reserved, until it gives them back.
#[must_use = "room that is not given back is lost"]
#[derive(Debug)]
pub struct Reservation {
    bytes: u32,
}

impl Reservation {
    /// How many bytes.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes as usize
    }
}

impl Reserved {
    /// Nothing is reserved.
    pub const fn new() -> Self {
        Self { bytes: 0 }
    }

    /// Bytes that all writers have reserved. The owner counts it as if it were in the buffer.
    #[inline]
    pub fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Reserves room. The caller has found it, in the same section.
    #[inline]
    pub fn take(&mut self, bytes: u32) -> Reservation {
        self.bytes += bytes;
        Reservation { bytes }
    }

    /// Ends a reservation of which `used` bytes go into the buffer, in the same section. True if that leaves room that others have to be told of.
    #[must_use = "others may wait for the room"]
    #[inline]
    pub fn give_back(&mut self, reservation: Reservation, used: usize) -> bool {
        self.bytes -= reservation.bytes;
        used < reservation.bytes()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_short_copy_needs_a_notification_and_a_full_one_does_not() {
        let mut reserved = Reserved::new();
        let (one, other) = (reserved.take(10), reserved.take(5));
        assert_eq!((reserved.bytes(), one.bytes()), (15, 10));
        assert!(!reserved.give_back(one, 10));
        assert!(reserved.give_back(other, 4));
        assert_eq!(reserved.bytes(), 0);
    }
}
