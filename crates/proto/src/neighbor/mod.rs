//! Neighbors: which link-layer address stands behind an address on the same link, and whether it still answers.
//!
//! One entry is an [`Entry`], a neighbor's state of RFC 4861 section 7.3.2; ARP uses the same states, as on Linux. All of
//! a link's entries, their bounds, and the packets that wait for an address are a [`Cache`]. The caller writes
//! solicitations and ARP requests: an [`Action`] asks for them.
//!
//! ```text
//!             solicited advert                      silence           packet            5 s
//! INCOMPLETE ──────────────────► REACHABLE ─────────────────► STALE ────────► DELAY ───────► PROBE
//!     │ 3 requests                  ▲  ▲                        │ confirmed:     │              │ 3 probes
//!     ▼ unanswered                  │  └────────────────────────┴────────────────┴──────────────┤ unanswered
//!   gone                            advert, or a higher layer's progress                        ▼ gone
//! ```
//! REACHABLE ends by the clock and needs no timer: a lookup compares the time. PERMANENT entries are the user's and
//! never change. Tests: `neighbor/tests.rs`.

mod cache;
#[cfg(test)]
mod tests;

use core::time::Duration;

use crate::time::Instant;

pub use cache::{
    Cache, Due, ENTRIES_MAX, Expired, GIVE_WAY, Hint, INCOMPLETE_MAX, LEARNED_MAX, Learned, Listed,
    PENDING_BYTES_MAX, PENDING_MAX, Resolution,
};

/// An Ethernet address.
pub type LinkAddr = [u8; 6];

/// Unanswered requests before a neighbor is given up, to all (MAX_MULTICAST_SOLICIT) and to itself
/// (MAX_UNICAST_SOLICIT), RFC 4861 section 10.
pub const SOLICITS_MAX: u8 = 3;

/// The times of a link, RFC 4861 section 10. Routers may set the first two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Times {
    /// ReachableTime: how long a neighbor counts as reachable after it was confirmed. Drawn anew every few hours
    /// between half and one and a half of BaseReachableTime (30 s).
    pub reachable: Duration,
    /// RetransTimer: between two requests, 1 s.
    pub retrans: Duration,
    /// DELAY_FIRST_PROBE_TIME: how long a higher layer is given to confirm before we probe, 5 s.
    pub delay_first_probe: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            reachable: Duration::from_secs(30),
            retrans: Duration::from_secs(1),
            delay_first_probe: Duration::from_secs(5),
        }
    }
}

impl Times {
    /// The same with ReachableTime drawn for `base`: `random` of 0 gives half, of 65,535 one and a half (RFC 4861 section
    /// 6.3.2).
    #[must_use]
    pub fn with_base(self, base: Duration, random: u16) -> Self {
        let micros = base.as_micros().min(u128::from(u32::MAX) * 1000);
        let drawn = micros / 2 + micros * u128::from(random) / u128::from(u16::MAX);
        Self { reachable: Duration::from_micros(u64::try_from(drawn).unwrap_or(u64::MAX)), ..self }
    }
}

/// A neighbor's state, for diagnosis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Asked for, not known yet.
    Incomplete,
    /// Confirmed a short while ago.
    Reachable,
    /// Known, not confirmed lately, and not needed since.
    Stale,
    /// Needed again; a higher layer has a moment to confirm it.
    Delay,
    /// Being asked whether it is still there.
    Probe,
    /// Set by the user.
    Permanent,
}

/// Action for an entry's owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Nothing.
    None,
    /// Ask all hosts on the link (ARP), or the solicited-node group.
    SolicitAll,
    /// Ask the neighbor itself.
    Solicit(LinkAddr),
    /// Give it up: it does not answer.
    Unreachable,
}

/// A neighbor's statement about itself: an advertisement or an ARP reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Advert {
    /// Its address, if it was named.
    pub lladdr: Option<LinkAddr>,
    /// It answers a request of ours.
    pub solicited: bool,
    /// It replaces a different address that is known.
    pub overrides: bool,
    /// It is a router; `None` with ARP, which does not say.
    pub router: Option<bool>,
}

/// Changes by an advertisement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Change {
    /// The link-layer address is known now, or another one: waiting packets may go.
    pub resolved: bool,
    /// It was a router and is none any more (RFC 4861 section 7.2.5).
    pub router_lost: bool,
}

/// One neighbor. See the module's head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    nud: Nud,
    is_router: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Nud {
    Incomplete { deadline: Instant, sent_count: u8 },
    Reachable { lladdr: LinkAddr, until: Instant },
    Stale { lladdr: LinkAddr },
    Delay { lladdr: LinkAddr, until: Instant },
    Probe { lladdr: LinkAddr, deadline: Instant, sent_count: u8 },
    Permanent { lladdr: LinkAddr },
}

impl Entry {
    /// A neighbor that is asked for; the caller sends the first request.
    pub fn incomplete(now: Instant, times: &Times) -> Self {
        Self { nud: Nud::Incomplete { deadline: now + times.retrans, sent_count: 1 }, is_router: false }
    }

    /// A neighbor that has told us its address without being asked.
    pub const fn stale(lladdr: LinkAddr) -> Self {
        Self { nud: Nud::Stale { lladdr }, is_router: false }
    }

    /// A neighbor that the user vouches for.
    pub const fn permanent(lladdr: LinkAddr) -> Self {
        Self { nud: Nud::Permanent { lladdr }, is_router: false }
    }

    /// Its state at `now`.
    pub fn state(&self, now: Instant) -> State {
        match self.nud {
            Nud::Incomplete { .. } => State::Incomplete,
            Nud::Reachable { until, .. } if now < until => State::Reachable,
            Nud::Reachable { .. } | Nud::Stale { .. } => State::Stale,
            Nud::Delay { .. } => State::Delay,
            Nud::Probe { .. } => State::Probe,
            Nud::Permanent { .. } => State::Permanent,
        }
    }

    /// Its link-layer address, unless that is being asked for.
    pub fn lladdr(&self) -> Option<LinkAddr> {
        match self.nud {
            Nud::Incomplete { .. } => None,
            Nud::Reachable { lladdr, .. }
            | Nud::Stale { lladdr }
            | Nud::Delay { lladdr, .. }
            | Nud::Probe { lladdr, .. }
            | Nud::Permanent { lladdr } => Some(lladdr),
        }
    }

    /// Until when packets may be sent without telling the entry ([`on_use`](Self::on_use)). In the states that a
    /// timer ends, that is for ever.
    pub fn good_until(&self) -> Option<Instant> {
        match self.nud {
            Nud::Incomplete { .. } | Nud::Stale { .. } => None,
            Nud::Reachable { until, .. } => Some(until),
            Nud::Delay { .. } | Nud::Probe { .. } | Nud::Permanent { .. } => Some(END_OF_TIME),
        }
    }

    /// Whether it is a router.
    pub fn is_router(&self) -> bool {
        self.is_router
    }

    /// It is, or is not: a router advertisement came from it, or it has sent a router solicitation.
    pub fn set_router(&mut self, is_router: bool) {
        self.is_router = is_router;
    }

    /// When to call [`on_timer`](Self::on_timer).
    pub fn deadline(&self) -> Option<Instant> {
        match self.nud {
            Nud::Incomplete { deadline, .. } | Nud::Probe { deadline, .. } => Some(deadline),
            Nud::Delay { until, .. } => Some(until),
            Nud::Reachable { .. } | Nud::Stale { .. } | Nud::Permanent { .. } => None,
        }
    }

    /// A packet is sent to it (RFC 4861 section 7.3.3).
    pub fn on_use(&mut self, now: Instant, times: &Times) {
        if self.state(now) == State::Stale
            && let Some(lladdr) = self.lladdr()
        {
            self.nud = Nud::Delay { lladdr, until: now + times.delay_first_probe };
        }
    }

    /// A higher layer knows that it got through at `at` (RFC 4861 section 7.3.1).
    pub fn on_confirm(&mut self, at: Instant, times: &Times) {
        let until = at + times.reachable;
        match self.nud {
            Nud::Incomplete { .. } | Nud::Permanent { .. } => {}
            Nud::Reachable { until: known, .. } if known >= until => {}
            Nud::Reachable { lladdr, .. }
            | Nud::Stale { lladdr }
            | Nud::Delay { lladdr, .. }
            | Nud::Probe { lladdr, .. } => self.nud = Nud::Reachable { lladdr, until },
        }
    }

    /// A higher layer gets no answer any more to its packets on this way: the neighbor is asked at once whether it is
    /// still there, as RFC 4861 section 7.3.3 lets one do. Nothing if that is being asked already, or the user vouches
    /// for it.
    pub fn on_suspect(&mut self, now: Instant, times: &Times) -> Action {
        match self.nud {
            Nud::Reachable { lladdr, .. } | Nud::Stale { lladdr } | Nud::Delay { lladdr, .. } => {
                self.nud = Nud::Probe { lladdr, deadline: now + times.retrans, sent_count: 1 };
                Action::Solicit(lladdr)
            }
            Nud::Incomplete { .. } | Nud::Probe { .. } | Nud::Permanent { .. } => Action::None,
        }
    }

    /// It has sent a request that names its address (RFC 4861 section 7.2.3; RFC 826's merge).
    pub fn on_solicit(&mut self, lladdr: LinkAddr) -> Change {
        match self.nud {
            Nud::Permanent { .. } => Change::default(),
            Nud::Incomplete { .. } => self.become_stale(lladdr),
            Nud::Reachable { lladdr: known, .. }
            | Nud::Stale { lladdr: known }
            | Nud::Delay { lladdr: known, .. }
            | Nud::Probe { lladdr: known, .. } => {
                if known == lladdr {
                    Change::default()
                } else {
                    self.become_stale(lladdr)
                }
            }
        }
    }

    /// It has advertised itself (RFC 4861 section 7.2.5).
    pub fn on_advert(&mut self, advert: &Advert, now: Instant, times: &Times) -> Change {
        let Some(known) = self.lladdr() else { return self.on_first_advert(advert, now, times) };
        if matches!(self.nud, Nud::Permanent { .. }) {
            return Change::default();
        }
        let advertised = advert.lladdr.unwrap_or(known);
        if advertised != known && !advert.overrides {
            if self.state(now) == State::Reachable {
                self.nud = Nud::Stale { lladdr: known };
            }
            return Change::default();
        }
        if advert.solicited {
            self.nud = Nud::Reachable { lladdr: advertised, until: now + times.reachable };
        } else if advertised != known {
            self.nud = Nud::Stale { lladdr: advertised };
        }
        Change { resolved: advertised != known, router_lost: self.learn_router(advert) }
    }

    fn on_first_advert(&mut self, advert: &Advert, now: Instant, times: &Times) -> Change {
        let Some(lladdr) = advert.lladdr else { return Change::default() };
        self.nud = if advert.solicited {
            Nud::Reachable { lladdr, until: now + times.reachable }
        } else {
            Nud::Stale { lladdr }
        };
        Change { resolved: true, router_lost: self.learn_router(advert) }
    }

    /// Action of its timer.
    pub fn on_timer(&mut self, now: Instant, times: &Times) -> Action {
        if self.deadline().is_none_or(|deadline| now < deadline) {
            return Action::None;
        }
        let deadline = now + times.retrans;
        match self.nud {
            Nud::Incomplete { sent_count, .. } if sent_count < SOLICITS_MAX => {
                self.nud = Nud::Incomplete { deadline, sent_count: sent_count + 1 };
                Action::SolicitAll
            }
            Nud::Delay { lladdr, .. } => {
                self.nud = Nud::Probe { lladdr, deadline, sent_count: 1 };
                Action::Solicit(lladdr)
            }
            Nud::Probe { lladdr, sent_count, .. } if sent_count < SOLICITS_MAX => {
                self.nud = Nud::Probe { lladdr, deadline, sent_count: sent_count + 1 };
                Action::Solicit(lladdr)
            }
            Nud::Incomplete { .. } | Nud::Probe { .. } => Action::Unreachable,
            Nud::Reachable { .. } | Nud::Stale { .. } | Nud::Permanent { .. } => Action::None,
        }
    }

    fn become_stale(&mut self, lladdr: LinkAddr) -> Change {
        self.nud = Nud::Stale { lladdr };
        Change { resolved: true, router_lost: false }
    }

    /// True if it was a router so far.
    fn learn_router(&mut self, advert: &Advert) -> bool {
        let Some(router) = advert.router else { return false };
        core::mem::replace(&mut self.is_router, router) && !router
    }
}

/// Later than every deadline.
const END_OF_TIME: Instant = Instant::from_micros(u64::MAX);
