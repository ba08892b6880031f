//! The ancillary data of a stream, by position: rights, and changes of the sender's credentials.
//!
//! A read that gets the first byte that came with rights gets the rights, and ends at the end of the bytes
//! sent with them. Bytes before them are joined to them, as on Linux. A read of a socket that wants
//! credentials ends where they change.
//!
//! Positions are those of the stream (`So::head` is that of the first byte that is there), so nothing is
//! rewritten when bytes are read. Bound: one span per message with rights, which are bounded, and one
//! position per change of credentials. Does not depend on buffers. Tests: below.

use super::ancillary::UCred;
use super::pcb::{RightsSpan, StreamAncillary};
use super::rights::InFlight;

/// How far a read may go.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stop {
    /// Bytes that it may take.
    pub bytes: usize,
    /// It gets the rights of the first span.
    pub has_rights: bool,
    /// It ends here even if it wants more.
    pub is_end: bool,
}

impl StreamAncillary {
    /// How far a read of `want` bytes (there are as many) from `head` on may go.
    pub fn stop(&self, head: u64, want: usize, by_creds: bool) -> Stop {
        let mut stop = Stop { bytes: want, has_rights: false, is_end: false };
        if by_creds && let Some((at, _)) = self.creds.iter().find(|(at, _)| *at > head) {
            stop.limit(head, *at);
        }
        let Some(span) = self.rights.front() else { return stop };
        if span.start < head + stop.bytes as u64 {
            // A peek that goes on is past the rights if others have read meanwhile the bytes that it saw before: it ends,
            // without them.
            stop.has_rights = span.end > head;
            stop.limit(head, span.end);
        }
        stop
    }

    /// The credentials of the byte at `head`.
    pub fn creds_at(&self, head: u64) -> Option<UCred> {
        let change = self.creds.iter().take_while(|(at, _)| *at <= head).last();
        change.map_or(self.head_creds, |(_, creds)| *creds)
    }

    /// Bytes from `at` on, the end of the stream so far, come with `creds`.
    pub fn note_creds(&mut self, at: u64, creds: Option<UCred>) {
        let last = self.creds.back().map_or(self.head_creds, |(_, creds)| *creds);
        if last != creds {
            self.creds.push_back((at, creds));
        }
    }

    /// `rights` come with the bytes from `start` to `end`.
    pub fn note_rights(&mut self, start: u64, end: u64, rights: InFlight) {
        self.rights.push_back(RightsSpan { start, end, rights });
    }

    /// The first byte is now that at `head`.
    pub fn advance(&mut self, head: u64) {
        while let Some((at, creds)) = self.creds.front()
            && *at <= head
        {
            self.head_creds = *creds;
            self.creds.pop_front();
        }
    }

    /// Whether there is nothing to remember.
    pub fn is_idle(&self) -> bool {
        self.rights.is_empty() && self.creds.is_empty() && self.head_creds.is_none()
    }
}

impl Stop {
    fn limit(&mut self, head: u64, end: u64) {
        // Only values less than `bytes` count.
        let limit = usize::try_from(end.saturating_sub(head)).unwrap_or(usize::MAX);
        if limit <= self.bytes {
            self.bytes = limit;
            self.is_end = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rt::handle::Stack;

    fn rights() -> InFlight {
        InFlight::launch(Stack::global().core().unwrap(), Vec::new()).ok().unwrap()
    }

    #[test]
    fn a_read_joins_the_bytes_before_rights_and_ends_behind_them() {
        let mut ancillary = StreamAncillary::default();
        ancillary.note_rights(104, 105, rights());
        let stop = |ancillary: &StreamAncillary, head, want| ancillary.stop(head, want, false);
        assert_eq!(stop(&ancillary, 100, 20), Stop { bytes: 5, has_rights: true, is_end: true });
        assert_eq!(stop(&ancillary, 100, 4), Stop { bytes: 4, has_rights: false, is_end: false });
        ancillary.rights[0].end = 110;
        assert_eq!(stop(&ancillary, 100, 6), Stop { bytes: 6, has_rights: true, is_end: false });
        ancillary.rights.clear();
        assert_eq!(stop(&ancillary, 100, 6), Stop { bytes: 6, has_rights: false, is_end: false });
    }

    #[test]
    fn a_read_from_behind_rights_ends_at_once_without_them() {
        let mut ancillary = StreamAncillary::default();
        ancillary.note_rights(110, 115, rights());
        for head in [115, 120] {
            let stop = ancillary.stop(head, 15, false);
            assert_eq!(stop, Stop { bytes: 0, has_rights: false, is_end: true });
        }
    }

    #[test]
    fn credentials_divide_reads_only_if_the_reader_asked_for_them() {
        let (a, mut ancillary) = (UCred { pid: 1, uid: 2, gid: 3 }, StreamAncillary::default());
        ancillary.note_creds(10, None);
        ancillary.note_creds(10, Some(a));
        ancillary.note_creds(12, Some(a));
        ancillary.note_creds(15, None);
        assert_eq!(ancillary.creds.len(), 2);
        assert_eq!(ancillary.stop(8, 20, true).bytes, 2);
        assert_eq!(ancillary.stop(10, 20, true).bytes, 5);
        assert_eq!(ancillary.stop(8, 20, false).bytes, 20);
        assert_eq!(
            (ancillary.creds_at(9), ancillary.creds_at(14), ancillary.creds_at(15)),
            (None, Some(a), None)
        );
        ancillary.advance(11);
        assert_eq!((ancillary.head_creds, ancillary.creds_at(11)), (Some(a), Some(a)));
        ancillary.advance(15);
        assert!(ancillary.is_idle());
    }
}
