//! A pair of rings of a guest's card: what it receives, and what it sends.
//!
//! A card has up to [`PAIRS_MAX`] pairs. The guest's driver decides how many it uses, to spread its traffic over its processors.
//!
//! Locks: the sender's and the receiver's mutex, which are the two rings'. The sender's may be taken under the receiver's, since what is received may be answered at once; no other
//! two of any pairs. Bounds: [`UNSENT_MAX`] bytes wait for buffers of the guest; further frames are dropped, and so are those that wait when the guest stops its ring.
//!
//! Does not depend on connections or waits. Tests: `ring/tests.rs`; `apps/gateway/tests/machines`.

use std::collections::VecDeque;

use sockeye_mbuf::Chain;
use sockeye_netif::{RxFrame, TxFrame};
use sockeye_sync::Mutex;
use sockeye_sync::facade::{AtomicBool, Ordering};

use super::ring::{HEADER_LONG, Put, Ring, Taken};
use super::{FRAME_MAX, feature};
use crate::tun::vnet;

/// Pairs of a card, at most.
pub(super) const PAIRS_MAX: usize = 16;
/// Bytes of frames that wait for the guest's buffers in a pair, at most.
const UNSENT_MAX: usize = 1 << 20;
/// How often a ring that had nothing is looked at once more since the guest has made something available meanwhile.
const LOOKS_MAX: usize = 64;

/// See the module's head.
#[derive(Debug)]
pub(super) struct Pair {
    pub receiver: Mutex<Receiver>,
    pub sender: Mutex<Sender>,
    /// (a) Frames wait for the guest's buffers. Written under `sender`.
    has_unsent: AtomicBool,
}

#[derive(Debug)]
pub(super) struct Receiver {
    pub ring: Ring,
    /// Where a frame stands while it is shown. Empty before the first.
    buffer: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct Sender {
    pub ring: Ring,
    unsent: VecDeque<TxFrame>,
    /// Bytes of these.
    unsent_len: usize,
}

/// What a turn at a ring has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Turn {
    pub frames: usize,
    /// Frames for which there was no room, or chains that were no frame.
    pub lost: usize,
    /// The guest shall not keep this thread here, so it is to come again.
    pub again: bool,
}

impl Pair {
    pub fn new() -> Self {
        Self {
            receiver: Mutex::new(Receiver { ring: Ring::new(), buffer: Vec::new() }),
            sender: Mutex::new(Sender { ring: Ring::new(), unsent: VecDeque::new(), unsent_len: 0 }),
            has_unsent: AtomicBool::new(false),
        }
    }

    /// Shows up to `max` frames of the guest. If there were fewer, the guest says when it makes more available.
    pub fn receive(&self, max: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> Turn {
        let (mut turn, mut looks) = (Turn::default(), 0);
        let mut receiver = self.receiver.lock();
        receiver.ring.quiet();
        while turn.frames < max {
            match receiver.next(sink) {
                Taken::Frame(_) => turn.frames += 1,
                Taken::Nonsense if turn.lost < max => turn.lost += 1,
                Taken::Nothing if !receiver.ring.listen() => break,
                Taken::Nothing if looks < LOOKS_MAX => looks += 1,
                Taken::Nonsense | Taken::Nothing => {
                    turn.again = true;
                    break;
                }
            }
        }
        receiver.ring.tell();
        turn
    }

    /// Takes frames for the guest, if it receives in this pair.
    pub fn transmit(&self, frames: &mut Vec<TxFrame>) -> Option<Turn> {
        let mut sender = self.sender.lock();
        if !sender.ring.is_served() {
            return None;
        }
        let offered = frames.len();
        let sent = frames.drain(..).map(|frame| usize::from(sender.take(frame))).sum();
        let mut turn =
            if sender.unsent.is_empty() { Turn::default() } else { self.flush_locked(&mut sender) };
        (turn.frames, turn.lost) = (sent, turn.lost + offered - sent);
        Some(turn)
    }

    /// Tells the guest of what it has received.
    pub fn tell(&self) {
        self.sender.lock().ring.tell();
    }

    /// Gives the guest the frames that wait, as far as it has room.
    pub fn flush(&self) -> Turn {
        if !self.has_unsent.load(Ordering::Acquire) {
            return Turn::default();
        }
        let mut sender = self.sender.lock();
        let turn = self.flush_locked(&mut sender);
        sender.ring.tell();
        turn
    }

    fn flush_locked(&self, sender: &mut Sender) -> Turn {
        let (mut turn, mut looks) = (Turn::default(), 0);
        if !sender.ring.is_served() {
            turn.lost = sender.unsent.len();
            (sender.unsent, sender.unsent_len) = (VecDeque::new(), 0);
        }
        while let Some(frame) = sender.unsent.front() {
            match sender.ring.put(header(sender.ring.features()), frame) {
                Put::Done => {}
                Put::TooLong => turn.lost += 1,
                // It is asked to say when there is more, which it may have made available meanwhile.
                Put::NoRoom if sender.ring.listen() && looks < LOOKS_MAX => {
                    looks += 1;
                    continue;
                }
                Put::NoRoom => {
                    turn.again = looks == LOOKS_MAX;
                    break;
                }
            }
            let len = sender.unsent.pop_front().map_or(0, |frame| frame.len());
            sender.unsent_len = sender.unsent_len.saturating_sub(len);
        }
        if sender.unsent.is_empty() {
            sender.ring.quiet();
        }
        self.has_unsent.store(!sender.unsent.is_empty(), Ordering::Release);
        turn
    }
}

impl Sender {
    /// Takes a frame for the guest. False if it was dropped.
    fn take(&mut self, frame: TxFrame) -> bool {
        if self.unsent.is_empty() {
            match self.ring.put(header(self.ring.features()), &frame) {
                Put::Done => return true,
                Put::TooLong => return false,
                Put::NoRoom => {}
            }
        }
        if self.unsent_len + frame.len() > UNSENT_MAX {
            return false;
        }
        self.unsent_len += frame.len();
        self.unsent.push_back(frame);
        true
    }
}

/// The header before a frame to the guest: one packet, whose checksum is good.
fn header(features: u64) -> [u8; HEADER_LONG] {
    let mut header = [0; HEADER_LONG];
    header[0] = if features & feature::GUEST_CSUM != 0 { vnet::DATA_VALID } else { 0 };
    header
}

impl Receiver {
    /// Shows the guest's next frame. True if there was one, or something else.
    fn next(&mut self, sink: &mut dyn FnMut(RxFrame<'_>)) -> Taken {
        // Untouched pages of it take no memory.
        self.buffer.resize(HEADER_LONG + FRAME_MAX, 0);
        let taken = self.ring.take(&mut self.buffer);
        let Taken::Frame(len) = taken else { return taken };
        let (header_len, bytes) = (self.ring.header_len(), &self.buffer[..len]);
        let offers = vnet::Offers {
            checksum: self.ring.features() & feature::CSUM != 0,
            segments_v4: self.ring.features() & feature::HOST_TSO4 != 0,
            segments_v6: self.ring.features() & feature::HOST_TSO6 != 0,
        };
        let (Some(header), Some(frame)) = (bytes.first_chunk(), bytes.get(header_len..)) else {
            return Taken::Nonsense;
        };
        let Some((checksum, gso_size)) = vnet::of_guest(*header, offers) else { return Taken::Nonsense };
        if frame.is_empty() || frame.len() > FRAME_MAX {
            return Taken::Nonsense;
        }
        let nothing = Chain::new();
        sink(RxFrame { checksum, gso_size, ..RxFrame::new(frame, &nothing) });
        taken
    }
}
