//! Whether a segment that is not full may be sent: Nagle's algorithm and what overrides it, in one octet
//! (`tcp_sock.nonagle`).
//!
//! Output decides with it. Tests: below, `tests/output.rs`, `tests/tcp/sender.rs` of the stack.

use crate::seq::SeqNum;

use super::loss::Loss;
use super::pcb::Pcb;
use super::segment::Payload;

/// The switches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Nagle(u8);

impl Nagle {
    /// `TCP_NODELAY`: Nagle's algorithm is off.
    const OFF: u8 = 1;
    /// `TCP_CORK`: short segments wait until they are full.
    const CORK: u8 = 1 << 1;
    /// Short segments wait for more text, which the writer has announced (`MSG_MORE`); see [`Held`].
    const HOLD: u8 = 1 << 2;
    /// What has been written may be sent in spite of a cork: `TCP_NODELAY` was just set, or a cork was removed while it
    /// was set (`TCP_NAGLE_PUSH`). [`Pcb::note_push`] sets how far.
    const PUSH: u8 = 1 << 3;
    /// The present output is for a write before which nothing waited.
    const WRITE: u8 = 1 << 4;

    pub fn new(nodelay: bool) -> Self {
        Self(if nodelay { Self::OFF } else { 0 })
    }

    fn has(self, bits: u8) -> bool {
        self.0 & bits != 0
    }

    fn set(&mut self, bits: u8, on: bool) {
        if on {
            self.0 |= bits;
        } else {
            self.0 &= !bits;
        }
    }

    /// Whether Nagle's algorithm is off, if nothing is corked.
    #[inline]
    pub fn is_off(self) -> bool {
        self.has(Self::OFF)
    }

    /// Whether a short segment may be sent in spite of `TCP_CORK`.
    #[inline]
    pub fn is_pushed(self) -> bool {
        self.has(Self::PUSH)
    }

    /// Whether a writer's `MSG_MORE` may still hold short segments back; [`Held`] decides whether it does.
    #[inline]
    pub fn is_held(self) -> bool {
        self.has(Self::HOLD)
    }

    /// Whether the present output is for a write before which nothing waited: its segments are sent one by one.
    #[inline]
    pub fn is_write(self) -> bool {
        self.has(Self::WRITE)
    }

    /// Sets that.
    #[inline]
    pub fn set_write(&mut self, on: bool) {
        self.set(Self::WRITE, on);
    }

    /// Whether `TCP_CORK` is on.
    pub fn cork(self) -> bool {
        self.has(Self::CORK)
    }

    /// Sets `TCP_NODELAY`. Returns whether that pushes corked text.
    pub fn set_nodelay(&mut self, nodelay: bool) -> bool {
        let pushes = nodelay && !self.is_off();
        self.set(Self::OFF, nodelay);
        pushes
    }

    /// Sets `TCP_CORK`. Returns whether that pushes corked text.
    pub fn set_cork(&mut self, cork: bool) -> bool {
        self.set(Self::CORK, cork);
        !cork && self.is_off()
    }
}

/// The position of the stream when a writer announced more (`MSG_MORE`). As on Linux, a short segment waits until more
/// is written, something is acknowledged, or a segment arrives or a call is made for which output looks for something
/// to send (`look_at_usage_after`). It still waits after a read or after setting another option.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    /// SND.UNA.
    una: SeqNum,
    /// The number after the last byte of `so_snd`.
    end: SeqNum,
}

impl<P: Payload> Pcb<P> {
    /// The queued part of the `snd_len` bytes in `so_snd` may be sent in spite of a cork, with data that fills up its
    /// last packet. A write that begins another packet ends the push, as on Linux (`tcp_skb_entail`).
    #[cold]
    pub(super) fn note_push(&mut self, snd_len: u32) {
        let full = self.whole_packet(self.send_mss());
        let unsent = snd_len.saturating_sub(self.snd_max.since(self.snd_una));
        self.nagle.set(Nagle::PUSH, unsent > 0);
        let tail = self.unsent_in_record(snd_len).min(unsent);
        let packet = self.snd_una + snd_len - tail;
        self.rare.set_pushed((unsent > 0).then(|| packet + tail.next_multiple_of(full)));
    }

    /// A short segment was sent, up to `end`: it was the last one that was pushed, unless it is the end of a record.
    #[cold]
    pub(super) fn end_push(&mut self, end: SeqNum) {
        if self.rare.records().is_some_and(|ends| ends.parts_at(end, self.snd_una + self.snd_len)) {
            return;
        }
        self.nagle.set(Nagle::PUSH, false);
        self.rare.set_pushed(None);
    }

    /// Whether a push covers everything that was written.
    #[cold]
    fn is_push_current(&self) -> bool {
        let end = self.snd_una + self.snd_len;
        self.rare.pushed().is_some_and(|pushed| end.at_or_before(*pushed))
    }

    /// The writer of the last of the `snd_len` bytes in `so_snd` will write more (`MSG_MORE`): a short segment waits
    /// for that, for an acknowledgment, or for a timeout.
    #[cold]
    pub fn hold_small(&mut self, snd_len: u32) {
        self.nagle.set(Nagle::HOLD, true);
        self.rare.set_held(Some(Held { una: self.snd_una, end: self.snd_una + snd_len }));
    }

    /// Short segments no longer wait for more text.
    #[cold]
    pub(super) fn end_hold(&mut self) {
        self.nagle.set(Nagle::HOLD, false);
        self.rare.set_held(None);
    }

    /// Whether nothing was written or acknowledged since the hold began.
    #[cold]
    fn is_hold_current(&self) -> bool {
        let end = self.snd_una + self.snd_len;
        self.rare.held().is_some_and(|held| (held.una, held.end) == (self.snd_una, end))
    }

    /// Nagle's algorithm in Minshall's form: a segment below the MSS waits only for an earlier one below the MSS, not
    /// for full ones, so that the tail of a large write does not wait for the peer's delayed acknowledgment. After the
    /// last byte before a FIN, there is nothing to wait for; `ends`: the segment has that byte.
    pub(super) fn small_may_go(&self, ends: bool) -> bool {
        let is_held = self.nagle.is_held() && self.is_hold_current();
        self.small_may_go_if(is_held, ends)
    }

    /// Whether a short segment could be sent if more were written now, which would end a hold.
    pub(super) fn small_may_go_with_more(&self) -> bool {
        self.small_may_go_if(false, false)
    }

    #[inline]
    fn small_may_go_if(&self, is_held: bool, ends: bool) -> bool {
        let is_pushed = || self.nagle.is_pushed() && !is_held && self.is_push_current();
        let by_frto = || self.loss.as_deref().is_some_and(Loss::pushes_new_data);
        let waits = is_held || self.nagle.cork() || !(self.nagle.is_off() || self.snd_sml == self.snd_una);
        !waits || (ends && self.may_send_fin()) || self.is_urgent() || by_frto() || is_pushed()
    }
}

#[cfg(test)]
mod tests {
    use super::super::sack::SackBlock;
    use super::super::settings::{KeepaliveSettings, Settings};
    use super::super::tests::script::{ACK, MSS, Script, WND, ms, plain};
    use super::*;

    #[test]
    fn a_push_is_for_what_has_been_written() {
        let mut t = Script::established(&plain());
        t.pcb.set_cork(true, t.snd);
        t.pcb.push_corked(t.snd);
        assert!(t.lens().is_empty());
        assert!(t.write(100).is_empty());
    }

    /// As on Linux (`tcp_skb_entail`).
    #[test]
    fn a_push_goes_on_until_a_write_begins_a_packet() {
        let end_of = |more: u32| {
            let mut t = Script::established(&Settings { sack: true, ..plain() });
            t.pcb.set_cork(true, t.snd);
            t.write(10 * MSS);
            // The congestion window is full.
            assert!(t.write(MSS + 100).is_empty());
            t.pcb.push_corked(t.snd);
            assert!(t.write(more).is_empty());
            t.report(10, &[]);
            t.lens().last().copied()
        };
        assert_eq!(end_of(0), Some(100));
        assert_eq!(end_of(MSS - 200), Some(MSS - 100));
        assert_eq!(end_of(MSS - 100), Some(MSS));
        assert_eq!(end_of(MSS), Some(MSS), "the rest waits for more");
    }

    /// As on Linux: `tcp_nagle_test` sees the push first.
    #[test]
    fn a_push_goes_on_when_nodelay_is_taken_back() {
        for (nodelay, expected) in [(false, vec![MSS]), (true, vec![MSS, 100])] {
            let mut t = Script::established(&Settings { sack: true, ..plain() });
            // A short segment in flight, and the congestion window is full.
            assert_eq!(t.write(100), [100]);
            t.write(10 * MSS + 100);
            t.pcb.set_nodelay(nodelay, t.snd);
            t.pcb.set_nodelay(false, t.snd);
            assert!(t.lens().is_empty());
            let mut sack = t.ack_of(0, WND);
            let start = t.place(0) + 100;
            sack.options.sack = [SackBlock { start, end: start + 2 * MSS }].into_iter().collect();
            let _ = t.input(sack, &[]);
            assert_eq!(t.lens(), expected);
        }
    }

    /// As on Linux (`tcp_write_wakeup`).
    #[test]
    fn a_push_goes_on_behind_a_probe_with_the_rest_of_its_packet() {
        const SMALL: u16 = 960;
        let end_of = |more: u32| {
            let mut t = Script::established(&plain());
            let _ = t.input(t.ack_of(0, WND), b"text");
            let _ = t.input(t.ack_of(0, SMALL), b"");
            let _ = t.output();
            t.pcb.set_cork(true, t.snd);
            assert!(t.write(MSS).is_empty());
            t.pcb.push_corked(t.snd);
            assert!(t.lens().is_empty());
            assert!(t.wait(ms(1_000)).iter().any(|(_, probe)| probe.len == u32::from(SMALL)));
            assert!(t.write(more).is_empty());
            let _ = t.input(t.ack_of(SMALL.into(), WND), b"");
            t.lens()
        };
        assert_eq!(end_of(500), [MSS - u32::from(SMALL) + 500]);
        assert_eq!(end_of(MSS), [MSS], "the rest waits for more");
    }

    #[test]
    fn a_push_lets_each_record_go_up_to_the_end_of_its_packet() {
        let leaves = |ends: &[u32], more: u32| {
            let mut t = Script::established(&plain());
            t.pcb.set_cork(true, t.snd);
            let _ = t.input(t.ack_of(0, 0), b"");
            ends.iter().for_each(|end| t.pcb.end_record(*end));
            assert!(t.write(300).is_empty());
            t.pcb.push_corked(t.snd);
            if more > 0 {
                t.pcb.end_record(300 + more);
                assert!(t.write(more).is_empty());
                assert!(t.write(1).is_empty());
            }
            let _ = t.input(t.ack_of(0, WND), b"");
            t.lens()
        };
        assert_eq!(leaves(&[100], 0), [100, 200]);
        assert_eq!(leaves(&[100, 300], 0), [100, 200]);
        assert_eq!(leaves(&[], 50), [350], "what is behind the record waits");
        assert_eq!(leaves(&[100], 50), [100, 250], "what is behind the record waits");
    }

    #[test]
    fn a_push_ends_with_the_short_segment_that_it_lets_go() {
        let mut t = Script::established(&plain());
        t.pcb.set_cork(true, t.snd);
        assert!(t.write(100).is_empty());
        t.pcb.push_corked(t.snd);
        assert_eq!(t.lens(), [100]);
        assert!(t.write(100).is_empty() && t.pcb.rare.pushed().is_none());
    }

    /// As on Linux, neither text from the peer nor other calls of the application end a hold.
    #[test]
    fn a_hold_ends_with_a_write_and_an_acknowledgment_and_a_call_that_looks_for_something_to_send() {
        let leaves = |change: fn(&mut Script)| {
            let mut t = Script::established(&Settings { nodelay: true, ..plain() });
            // The handshake's window was another.
            let _ = t.input(t.seg(ACK), b"text");
            assert_eq!(t.write(MSS), [MSS]);
            t.pcb.hold_small(MSS + 100);
            assert!(t.write(100).is_empty());
            change(&mut t);
            t.output().iter().any(|segment| segment.len > 0)
        };
        assert!(!leaves(|_| ()));
        assert!(!leaves(|t| t.pcb.set_keepalive(KeepaliveSettings::default(), false, t.now)));
        assert!(!leaves(|t| drop(t.input(t.ack_of(0, WND), b"text"))));
        assert!(!leaves(|t| t.pcb.set_nodelay(false, t.snd)));
        assert!(leaves(|t| drop(t.input(t.ack_of(MSS, WND), b""))));
        assert!(leaves(|t| drop(t.input(t.ack_of(0, WND - 1), b""))), "another window");
        assert!(!leaves(|t| t.pcb.set_nodelay(true, t.snd)), "it was on: another option was set");
        assert!(leaves(|t| t.pcb.push_corked(t.snd)));
        assert!(leaves(|t| t.pcb.set_cork(false, t.snd)));
        assert!(leaves(|t| t.pcb.shutdown_write()));
        assert!(leaves(|t| t.pcb.set_urgent(100)));
    }

    #[test]
    fn a_short_write_ends_a_hold_and_is_told() {
        let mut t = Script::established(&Settings { nodelay: true, ..plain() });
        assert_eq!(t.write(MSS), [MSS]);
        t.pcb.hold_small(MSS + 100);
        assert!(t.write(100).is_empty());
        assert_eq!(t.pcb.snd_due_at(), MSS + 1, "any further byte is told");
        assert_eq!(t.write(1), [101]);
        assert!(t.pcb.rare.held().is_some(), "it says nothing any more");
        t.pcb.push_corked(t.snd);
        assert!(t.pcb.rare.held().is_none());
    }

    #[test]
    fn only_switching_nagle_off_or_the_cork_pushes_what_is_corked() {
        let mut nagle = Nagle::new(true);
        assert!(!nagle.set_cork(true));
        assert!(!nagle.set_nodelay(true), "it was off");
        assert!(!nagle.set_nodelay(false) && !nagle.is_off());
        assert!(!nagle.set_cork(false), "Nagle's algorithm decides");
        assert!(nagle.set_nodelay(true) && nagle.is_off());
        assert!(!nagle.set_cork(true) && nagle.cork());
        assert!(nagle.set_cork(false) && !nagle.cork());
    }

    #[test]
    fn what_is_corked_leaves_with_the_end_of_the_stream_or_urgent_text_or_a_push() {
        let leaves = |change: fn(&mut Script)| {
            let mut t = Script::established(&plain());
            t.pcb.set_cork(true, t.snd);
            assert!(t.write(100).is_empty());
            change(&mut t);
            t.lens() == [100]
        };
        assert!(!leaves(|_| ()));
        assert!(leaves(|t| t.pcb.shutdown_write()));
        assert!(leaves(|t| t.pcb.set_urgent(100)));
        assert!(leaves(|t| t.pcb.push_corked(t.snd)));
    }
}
