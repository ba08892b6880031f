//! The properties that must hold when a plan is over, and which faults explain which errors.
//!
//! An explanation has to be possible, not proven: a reset needs an end that resets or has forgotten the connection, a
//! timeout a path that was cut for long enough. Loss explains no error at all, whatever the plans' links do: TCP
//! repairs it. Tests: `tests/hosts/checkers.rs`.

use std::io::ErrorKind;
use std::rc::Rc;

use super::conversation::{CLIENT, Conversation, End, SERVER};
use super::plan::{LONG_CUT, Leaves, Plan};
use crate::network::{Host, Net};

/// Where nothing is lost, so many segments go with a tail loss probe on average, at least; and so many are nothing yet. The worst are short messages in twos
/// over a short path: the acknowledgment of the second is delayed, and with two segments out the probe does not wait for that (`tcp_schedule_loss_probe`).
const PROBES_PER_SEGMENTS: u64 = 16;
const PROBES_FEW: u64 = 5;

/// Rules 1 and 2.
pub(super) fn on_conversations(plan: &Plan, talks: &[Rc<Conversation>]) {
    for talk in talks {
        for side in [CLIENT, SERVER] {
            let case = Case { plan, talk, side };
            case.opening();
            case.reading();
            case.writing();
        }
    }
}

/// Rules 3, 5 and 6, of the stacks that are up.
pub(super) fn on_hosts(hosts: &[Host]) {
    for host in hosts {
        let Some(stack) = host.stack() else { continue };
        let name = host.name();
        assert_eq!(stack.connection_count(), 0, "{name} has connections without a holder");
        assert_eq!(stack.memory_in_use(), 0, "{name} has packet memory without a holder");
        on_panics(host);
    }
}

/// Rule 6, of a stack that is up. One that crashes takes its counters with it, so it is asked before.
pub(super) fn on_panics(host: &Host) {
    let counters = host.stack().map(|stack| stack.counters()).unwrap_or_default();
    for (name, count) in counters {
        assert!(count == 0 || !name.starts_with("panics_"), "{}: {name} is {count}", host.name());
    }
}

/// Rules 3 and 4. `spoken` is how many segments had been sent when all should have been silent.
pub(super) fn on_traffic(net: &Net, plan: &Plan, spoken: u64) {
    let traffic = net.traffic();
    assert_eq!(traffic.segments, spoken, "a host still sends, long after everything is over");
    if plan.is_calm {
        // A tail loss probe is a guess: an acknowledgment that is delayed for longer than two round trips brings it
        // about, and no end can know (RFC 8985 section 7.1). It is one segment, and rare.
        let (probes, others): (Vec<_>, Vec<_>) =
            net.retransmissions().into_iter().partition(|again| again.is_tail && !again.by_ack);
        assert!(others.is_empty(), "nothing was lost, yet this was sent again: {:?}", others.first());
        let most = traffic.segments / PROBES_PER_SEGMENTS + PROBES_FEW;
        assert!(
            probes.len() as u64 <= most,
            "{} tail loss probes in {} segments",
            probes.len(),
            traffic.segments
        );
        assert_eq!(net.stats().faults(), 0, "the plan was to be calm");
    }
}

/// One side of a conversation, and its possible excuses.
struct Case<'a> {
    plan: &'a Plan,
    talk: &'a Conversation,
    side: usize,
}

impl Case<'_> {
    fn opening(&self) {
        match self.own().opened.get() {
            End::Clean | End::Left => {}
            End::Unknown => {
                assert!(self.is_crashed(self.side), "{self} never began, and its host did not crash")
            }
            // A server may wait in vain for a client if there was none.
            End::GaveUp if self.side == SERVER => {
                let must_learn = self.other().opened.get() == End::Clean && !self.may_be_half_open();
                assert!(
                    !must_learn || self.has_crash() || self.other_breaks_off(),
                    "{self} never saw its client"
                );
            }
            End::GaveUp => panic!("{self} waited for its connect longer than a connect lasts"),
            End::Error(kind) => self.must_be_explained("open", kind),
        }
    }

    fn reading(&self) {
        let (own, other) = (self.own(), self.other());
        let bytes = self.talk.talk.sides[1 - self.side].bytes;
        assert!(own.got.get() <= other.written.get(), "{self} read more than was written");
        match own.read.get() {
            End::Unknown => assert!(
                own.opened.get() != End::Clean || self.is_crashed(self.side),
                "{self} did not stop reading"
            ),
            End::Left => {}
            // An error is reported once, as on Linux: the writer got it, and the reader found an end.
            End::Clean if matches!(own.wrote.get(), End::Error(_)) => {}
            End::Clean => {
                // Leaving early with nothing unread is an orderly end too.
                assert_ne!(other.wrote.get(), End::GaveUp, "{self} read an end that was never written");
                assert_eq!(
                    own.got.get(),
                    bytes,
                    "{self} read the stream's end before its last byte; {own:?}, {other:?}"
                );
            }
            End::Error(kind) => self.must_be_explained("read", kind),
            End::GaveUp => assert!(self.may_be_forgotten(), "{self} waited for bytes for ever"),
        }
    }

    fn writing(&self) {
        let own = self.own();
        match own.wrote.get() {
            End::Unknown => assert!(
                own.opened.get() != End::Clean || self.is_crashed(self.side),
                "{self} did not stop writing"
            ),
            End::Clean | End::Left => {
                assert_eq!(own.written.get(), self.part().bytes, "{self} wrote other than its part");
            }
            End::Error(kind) => self.must_be_explained("write", kind),
            // A peer that does not read for ever would be an explanation, but all of ours go on.
            End::GaveUp => assert!(self.may_be_forgotten(), "{self} waited for room for ever"),
        }
    }

    /// An error needs a fault that can have brought it about.
    fn must_be_explained(&self, what: &str, kind: ErrorKind) {
        let explained = match kind {
            ErrorKind::ConnectionRefused => self.is_crashed(SERVER) || self.server_is_gone(),
            ErrorKind::ConnectionReset
            | ErrorKind::BrokenPipe
            | ErrorKind::ConnectionAborted
            | ErrorKind::NotConnected => {
                self.other_breaks_off() || self.has_crash() || self.was_cut_for_long()
            }
            // A burst lasts for some packets, and the SYNs of a connect may be all that there are; a cut takes most of them, and then a loss of two or three
            // is enough.
            ErrorKind::TimedOut if what == "open" && (self.has_bursts() || self.is_lossy_and_cut()) => true,
            ErrorKind::TimedOut => self.has_crash() || self.was_cut_for_long(),
            // Nothing else is for the network to say.
            _ => false,
        };
        let own = self.own();
        assert!(
            explained,
            "{self} cannot {what}: {kind:?}, which no fault explains; {own:?}, other: {:?}",
            self.other()
        );
    }

    /// The other side ends the connection before everything is exchanged.
    fn other_breaks_off(&self) -> bool {
        matches!(self.talk.talk.sides[1 - self.side].leaves, Leaves::Early | Leaves::Rudely)
    }

    /// The connection may have ended without this side being told: a reset is sent once.
    fn may_be_forgotten(&self) -> bool {
        let link = self.talk.talk.link;
        let reset_can_be_lost = self.plan.is_lossy(link) || !self.plan.cut(link).is_zero();
        self.has_crash()
            || self.was_cut_for_long()
            || (self.other_breaks_off() && reset_can_be_lost)
            || (self.talk.seen[SERVER].opened.get() == End::GaveUp && self.may_be_half_open())
    }

    /// The client may believe itself connected while the server has forgotten it: the last segment of the handshake and
    /// all SYN-ACKs after the first were lost, and the client has nothing to say, or its words were cut off.
    fn may_be_half_open(&self) -> bool {
        let link = self.talk.talk.link;
        let silent = self.talk.seen[CLIENT].written.get() == 0;
        self.was_cut_for_long() || (silent && self.plan.is_lossy(link))
    }

    /// The server has left, so that a SYN finds no listener.
    fn server_is_gone(&self) -> bool {
        self.talk.seen[SERVER].opened.get() == End::GaveUp
    }

    fn has_crash(&self) -> bool {
        self.is_crashed(CLIENT) || self.is_crashed(SERVER)
    }

    fn is_crashed(&self, side: usize) -> bool {
        let talk = &self.talk.talk;
        self.plan.crashes_host(if side == CLIENT { talk.client } else { talk.server })
    }

    fn has_bursts(&self) -> bool {
        self.plan.links[self.talk.talk.link].2.burst.is_some()
    }

    fn is_lossy_and_cut(&self) -> bool {
        let link = self.talk.talk.link;
        self.plan.is_lossy(link) && !self.plan.cut(link).is_zero()
    }

    fn was_cut_for_long(&self) -> bool {
        self.plan.cut(self.talk.talk.link) >= LONG_CUT
    }

    fn part(&self) -> &super::plan::Part {
        &self.talk.talk.sides[self.side]
    }

    fn own(&self) -> &super::conversation::Seen {
        &self.talk.seen[self.side]
    }

    fn other(&self) -> &super::conversation::Seen {
        &self.talk.seen[1 - self.side]
    }
}

impl std::fmt::Display for Case<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let side = if self.side == CLIENT { "client" } else { "server" };
        write!(f, "the {side} of conversation {}", self.talk.number)
    }
}
