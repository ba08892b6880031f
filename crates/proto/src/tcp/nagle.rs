//! Whether a segment that is not full may leave: Nagle's algorithm and what overrides it, in one octet (`tcp_sock.nonagle`).
//!
//! Output decides with it. Tests: below, `tests/output.rs`, `tests/tcp/sender.rs` of the stack.

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
    /// They do until the writer's output is over: more is to come (`MSG_MORE`).
    const HOLD: u8 = 1 << 2;
    /// The next short one may go in spite of the cork: `TCP_NODELAY` was just set (`TCP_NAGLE_PUSH`).
    const PUSH: u8 = 1 << 3;

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

    /// Whether short segments wait whatever else is set.
    #[inline]
    pub fn is_corked(self) -> bool {
        self.has(Self::CORK | Self::HOLD)
    }

    /// Whether one may go all the same.
    pub fn is_pushed(self) -> bool {
        self.has(Self::PUSH) && !self.has(Self::HOLD)
    }

    /// Whether `TCP_CORK` is on.
    pub fn cork(self) -> bool {
        self.has(Self::CORK)
    }

    pub fn set_nodelay(&mut self, nodelay: bool) {
        let is_pushed = self.has(Self::PUSH) || (nodelay && !self.is_off());
        self.set(Self::OFF, nodelay);
        self.set(Self::PUSH, is_pushed && self.cork());
    }

    /// `TCP_NODELAY` is set once more: what is corked may go.
    pub fn push(&mut self) {
        self.set(Self::PUSH, self.cork());
    }

    pub fn set_cork(&mut self, cork: bool) {
        self.set(Self::CORK, cork);
        self.set(Self::PUSH, false);
    }

    pub fn hold(&mut self, hold: bool) {
        self.set(Self::HOLD, hold);
    }

    /// A short segment has left.
    #[inline]
    pub fn on_short_sent(&mut self) {
        self.set(Self::PUSH, false);
    }
}

impl<P: Payload> Pcb<P> {
    /// Nagle's algorithm in Minshall's form: a segment below the MSS waits only for an earlier one below the
    /// MSS, not for full ones, so that the tail of a large write does not meet the peer's delayed
    /// acknowledgment. Behind the last byte before a FIN there is nothing to wait for; `ends`: the segment has that byte.
    pub(super) fn small_may_go(&self, ends: bool) -> bool {
        let is_last = self.fin_queued && ends;
        if self.nagle.is_corked() {
            return is_last || self.is_urgent() || self.nagle.is_pushed();
        }
        self.nagle.is_off()
            || is_last
            || self.snd_sml == self.snd_una
            || self.is_urgent()
            || self.loss.as_deref().is_some_and(Loss::pushes_new_data)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::script::{Script, plain};
    use super::*;

    #[test]
    fn nodelay_pushes_what_is_corked_once() {
        let mut nagle = Nagle::new(false);
        nagle.set_cork(true);
        assert!(nagle.is_corked() && !nagle.is_pushed());
        nagle.set_nodelay(true);
        assert!(nagle.is_corked() && nagle.is_pushed());
        nagle.hold(true);
        assert!(!nagle.is_pushed(), "a writer that has more does not push");
        nagle.hold(false);
        nagle.on_short_sent();
        assert!(nagle.is_corked() && !nagle.is_pushed());
        nagle.push();
        assert!(nagle.is_pushed());
        nagle.set_cork(false);
        assert!(!nagle.is_corked() && nagle.is_off());
    }

    #[test]
    fn only_switching_nagle_off_pushes_what_is_corked() {
        let mut nagle = Nagle::new(false);
        assert!(!nagle.cork());
        nagle.set_nodelay(true);
        assert!(!nagle.is_pushed(), "nothing is corked");
        nagle.set_cork(true);
        assert!(nagle.cork());
        nagle.set_nodelay(true);
        assert!(!nagle.is_pushed(), "it was off");
        nagle.set_nodelay(false);
        assert!(!nagle.is_pushed() && !nagle.is_off());
        nagle.set_nodelay(true);
        nagle.set_nodelay(false);
        assert!(nagle.is_pushed(), "it stays so until a short segment has left");
    }

    #[test]
    fn what_is_corked_leaves_with_the_end_of_the_stream_or_urgent_text_or_a_push() {
        let leaves = |change: fn(&mut Script)| {
            let mut t = Script::established(&plain());
            t.pcb.set_cork(true);
            assert!(t.write(100).is_empty());
            change(&mut t);
            t.lens() == [100]
        };
        assert!(!leaves(|_| ()));
        assert!(leaves(|t| t.pcb.shutdown_write()));
        assert!(leaves(|t| t.pcb.set_urgent(100)));
        assert!(leaves(|t| t.pcb.push_corked()));
    }
}
