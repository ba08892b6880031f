//! Boundaries of datagrams and packets in a receive buffer, the first of them in place.
//!
//! A conversation of one message at a time has one record at most. In place it lies on the cache line of the buffer's
//! lock ([`super::pcb::So`]), and the queue behind it is not touched.
//!
//! Does not depend on bytes or locks. Invariant: the queue is empty while there is no first record. Tests:
//! below.

use std::collections::{VecDeque, vec_deque};

use super::pcb::{Extra, Record};

/// See the module's head.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Records {
    extra: Option<Box<Extra>>,
    len: u32,
    flow: u32,
    has_first: bool,
    rest: VecDeque<Record>,
}

impl Records {
    #[inline]
    pub fn len(&self) -> usize {
        usize::from(self.has_first) + self.rest.len()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        !self.has_first
    }

    /// Length and flow of the first record.
    #[inline]
    pub fn first(&self) -> Option<(usize, u32)> {
        self.has_first.then_some((self.len as usize, self.flow))
    }

    /// Ancillary data of the first record.
    #[inline]
    pub fn first_extra(&self) -> Option<&Extra> {
        self.extra.as_deref()
    }

    #[inline]
    pub fn push_back(&mut self, record: Record) {
        if self.has_first {
            self.rest.push_back(record);
        } else {
            self.set_first(record);
        }
    }

    #[inline]
    pub fn pop_front(&mut self) -> Option<Record> {
        if !std::mem::take(&mut self.has_first) {
            return None;
        }
        let first = Record { len: self.len, flow: self.flow, extra: self.extra.take() };
        if let Some(second) = self.rest.pop_front() {
            self.set_first(second);
        }
        Some(first)
    }

    /// Ancillary data of each record.
    pub fn extras(&self) -> impl Iterator<Item = &Extra> {
        self.extra.as_deref().into_iter().chain(self.rest.iter().filter_map(|r| r.extra.as_deref()))
    }

    /// Length and flow of each record, in order.
    pub fn each(&self) -> impl Iterator<Item = (usize, u32)> {
        self.first().into_iter().chain(self.rest.iter().map(|record| (record.len as usize, record.flow)))
    }

    #[inline]
    fn set_first(&mut self, Record { len, flow, extra }: Record) {
        (self.len, self.flow, self.extra, self.has_first) = (len, flow, extra, true);
    }
}

impl IntoIterator for Records {
    type Item = Record;
    type IntoIter = std::iter::Chain<std::option::IntoIter<Record>, vec_deque::IntoIter<Record>>;

    fn into_iter(mut self) -> Self::IntoIter {
        let rest = std::mem::take(&mut self.rest);
        self.pop_front().into_iter().chain(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lens(records: Records) -> Vec<u32> {
        records.into_iter().map(|record| record.len).collect()
    }

    #[test]
    fn records_arrive_in_the_order_in_which_they_were_sent_in_place_or_not() {
        let mut records = Records::default();
        assert!(records.is_empty() && records.pop_front().is_none() && records.first().is_none());
        for len in 0..4 {
            records.push_back(Record { len, flow: 10 + len, extra: (len == 2).then(Box::default) });
        }
        assert_eq!((records.len(), records.first()), (4, Some((0, 10))));
        assert_eq!((records.first_extra().is_some(), records.extras().count()), (false, 1));
        assert_eq!(records.pop_front().map(|r| (r.len, r.flow)), Some((0, 10)));
        records.push_back(Record { len: 4, flow: 14, extra: None });
        assert_eq!(records.pop_front().map(|r| r.len), Some(1));
        assert_eq!((records.first(), records.first_extra().is_some()), (Some((2, 12)), true));
        assert_eq!(records.extras().count(), 1);
        assert_eq!(lens(records), [2, 3, 4]);
    }

    #[test]
    fn an_emptied_queue_is_filled_again() {
        let mut records = Records::default();
        for len in 0..3 {
            records.push_back(Record { len, flow: 0, extra: None });
            assert_eq!(records.pop_front().map(|r| r.len), Some(len));
            assert_eq!((records.len(), records.is_empty()), (0, true));
        }
        assert!(lens(records).is_empty());
    }
}
