//! Membership in multicast groups, on the side of a host: IGMP (RFC 1112, 2236, 3376) and MLD (RFC 2710, 3810).
//!
//! One machine for both families: IGMPv3 and MLDv2 are the same protocol, as are IGMPv2 and MLDv1 ([`Level`]). Any-source
//! membership only: a group is joined for all senders. [`igmp`] and [`mld`] have the formats of reports; the
//! machine says which to send. Joins are counted, so several sockets may join a group.
//!
//! A host speaks the newest version until it hears a querier of an older one, and then that one's for the Older
//! Version Querier Present Timeout. Tests: `group/tests.rs`.

pub mod igmp;
pub mod mld;
#[cfg(test)]
mod tests;

use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use crate::dad::part;
use crate::time::Instant;

/// Most groups of an interface.
pub const GROUPS_MAX: usize = 256;
/// Unsolicited reports of a change, unless the querier says otherwise (Robustness Variable, RFC 3376 section 8.1).
const ROBUSTNESS: u8 = 2;
/// The most that we repeat at a querier's word: its field has 3 bits.
const ROBUSTNESS_MAX: u8 = 7;
/// Unsolicited Report Interval: 1 s (RFC 3376 section 8.11; RFC 3810 section 9.11), and that of older versions.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
const REPORT_INTERVAL_OLDER: Duration = Duration::from_secs(10);
/// Between two answers to queries, of all groups together: a host that asks without end is answered so often. A querier that
/// asks for one group waits a second for the answer (RFC 3376 section 8.8).
pub const RESPONSE_GAP: Duration = Duration::from_millis(100);
/// Older Version Querier Present Timeout with the default Query Interval of 125 s and Robustness Variable, without
/// the response time (RFC 3376 section 8.12).
const OLDER_PRESENT: Duration = Duration::from_secs(2 * 125);

/// The version spoken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// IGMPv1: no leaving.
    Oldest,
    /// IGMPv2, MLDv1: a message for each group.
    Older,
    /// IGMPv3, MLDv2: a message with many groups.
    Current,
}

/// A router's query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Query {
    /// Its version.
    pub level: Level,
    /// Only this group, or all.
    pub group: Option<IpAddr>,
    /// The answer comes within this time.
    pub max_response: Duration,
    /// Its Robustness Variable; 0: it does not say.
    pub robustness: u8,
}

/// The kind of a record in a report (RFC 3376 section 4.2.12); the lists of sources are empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Record {
    /// MODE_IS_EXCLUDE: a member.
    IsMember,
    /// CHANGE_TO_EXCLUDE_MODE: a member from now on.
    Joins,
    /// CHANGE_TO_INCLUDE_MODE: none from now on.
    Leaves,
}

/// Reports to be sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Send {
    /// A report of the current version.
    Report(Vec<(IpAddr, Record)>),
    /// A report of an older version.
    Older(Level, IpAddr),
    /// IGMPv2's Leave, MLDv1's Done.
    Leave(IpAddr),
}

/// The groups of an interface, of one family.
#[derive(Debug, Default)]
pub struct Membership {
    groups: BTreeMap<IpAddr, Group>,
    /// When a general query is answered, in the current version.
    respond_at: Option<Instant>,
    /// When a query was answered last.
    answered_at: Option<Instant>,
    /// Until when older queriers count as present.
    older_until: Option<Instant>,
    oldest_until: Option<Instant>,
    robustness: u8,
    /// The group that a query or the timer is looking at.
    in_hand: Option<IpAddr>,
}

#[derive(Debug)]
struct Group {
    /// How many sockets have joined; 0: we have left and say so.
    joined_count: u32,
    /// Reports of the last change that are still to be sent, the next one at `report_at`.
    changes_left: u8,
    report_at: Option<Instant>,
    /// When a query is answered.
    respond_at: Option<Instant>,
    /// Ours was the last report of it (RFC 2236 section 3).
    is_last_reporter: bool,
}

impl Membership {
    /// Without groups.
    pub fn new() -> Self {
        Self { robustness: ROBUSTNESS, ..Self::default() }
    }

    /// Whether frames to the group are wanted.
    pub fn has(&self, group: &IpAddr) -> bool {
        self.groups.get(group).is_some_and(|group| group.joined_count > 0)
    }

    /// All groups that are joined.
    pub fn list(&self) -> impl Iterator<Item = IpAddr> {
        self.groups.iter().filter(|(_, group)| group.joined_count > 0).map(|(addr, _)| *addr)
    }

    /// The version that the link's queriers speak.
    pub fn level(&self, now: Instant) -> Level {
        let present = |until: Option<Instant>| until.is_some_and(|until| now < until);
        if present(self.oldest_until) {
            Level::Oldest
        } else if present(self.older_until) {
            Level::Older
        } else {
            Level::Current
        }
    }

    /// Joins. False if there is no room for another group, or it cannot be joined.
    pub fn join(&mut self, addr: IpAddr, now: Instant) -> bool {
        if !addr.is_multicast() || (!self.groups.contains_key(&addr) && self.groups.len() >= GROUPS_MAX) {
            return false;
        }
        let group = self.groups.entry(addr).or_insert(Group {
            joined_count: 0,
            changes_left: 0,
            report_at: None,
            respond_at: None,
            is_last_reporter: false,
        });
        let Some(count) = group.joined_count.checked_add(1) else { return false };
        group.joined_count = count;
        if count == 1 && is_reported(addr) {
            (group.changes_left, group.report_at) = (self.robustness, Some(now));
        }
        true
    }

    /// Takes one join back. False if there is none.
    pub fn leave(&mut self, addr: IpAddr, now: Instant) -> bool {
        let Some(group) = self.groups.get_mut(&addr).filter(|group| group.joined_count > 0) else {
            return false;
        };
        group.joined_count -= 1;
        if group.joined_count == 0 {
            if is_reported(addr) {
                group.respond_at = None;
                (group.changes_left, group.report_at) = (self.robustness, Some(now));
            } else {
                self.groups.remove(&addr);
            }
        }
        true
    }

    /// A router asks.
    pub fn on_query(&mut self, query: &Query, now: Instant, mut random: impl FnMut() -> u16) {
        let present_until = Some(now + OLDER_PRESENT + query.max_response);
        match query.level {
            Level::Oldest => self.oldest_until = present_until,
            Level::Older => self.older_until = present_until,
            Level::Current if query.robustness > 0 => self.robustness = query.robustness.min(ROBUSTNESS_MAX),
            Level::Current => {}
        }
        let earliest = self.answered_at.map_or(now, |last| last + RESPONSE_GAP);
        let mut at = || (now + part(query.max_response, random())).max(earliest);
        if query.group.is_none() && self.level(now) == Level::Current {
            return sooner(&mut self.respond_at, at());
        }
        for (addr, group) in &mut self.groups {
            self.in_hand = Some(*addr);
            let is_asked = query.group.is_none_or(|asked| asked == *addr);
            if is_asked && group.joined_count > 0 && is_reported(*addr) {
                sooner(&mut group.respond_at, at());
            }
        }
        self.in_hand = None;
    }

    /// Forgets a group, however many have joined it. Nothing is said of that.
    pub fn forget(&mut self, addr: &IpAddr) {
        self.groups.remove(addr);
    }

    /// After [`on_query`](Self::on_query) or [`on_timer`](Self::on_timer) has panicked: forgets the group that it was looking at, over
    /// which it would panic again.
    pub fn drop_in_hand(&mut self) {
        if let Some(addr) = self.in_hand.take() {
            self.forget(&addr);
        }
    }

    /// Another member has reported the group, in an older version: one report is enough.
    pub fn on_report(&mut self, addr: &IpAddr) {
        if let Some(group) = self.groups.get_mut(addr) {
            group.respond_at = None;
            group.is_last_reporter = false;
        }
    }

    /// When to call [`on_timer`](Self::on_timer).
    pub fn deadline(&self) -> Option<Instant> {
        let groups = self.groups.values().flat_map(|group| [group.report_at, group.respond_at]).flatten();
        self.respond_at.into_iter().chain(groups).min()
    }

    /// Reports to be sent now.
    pub fn on_timer(&mut self, now: Instant, mut random: impl FnMut() -> u16) -> Vec<Send> {
        let level = self.level(now);
        let is_due = |at: &mut Option<Instant>| at.take_if(|at| *at <= now).is_some();
        let answers_all = is_due(&mut self.respond_at);
        let (mut sends, mut records, mut answers) = (Vec::new(), Vec::new(), answers_all);
        for (addr, group) in &mut self.groups {
            self.in_hand = Some(*addr);
            let asked = is_due(&mut group.respond_at) || (answers_all && is_reported(*addr));
            answers |= asked;
            let changed = is_due(&mut group.report_at);
            let is_member = group.joined_count > 0;
            if changed {
                group.changes_left = group.changes_left.saturating_sub(1);
                let interval = if level == Level::Current { REPORT_INTERVAL } else { REPORT_INTERVAL_OLDER };
                group.report_at = (group.changes_left > 0).then(|| now + part(interval, random()));
            }
            let record = match (changed, asked, is_member) {
                (true, _, true) => Record::Joins,
                (true, _, false) => Record::Leaves,
                (false, true, true) => Record::IsMember,
                (false, true, false) | (false, false, _) => continue,
            };
            match (level, record) {
                (Level::Current, record) => records.push((*addr, record)),
                (Level::Oldest | Level::Older, Record::IsMember | Record::Joins) => {
                    group.is_last_reporter = true;
                    sends.push(Send::Older(level, *addr));
                }
                // Said once, and only by the host that reported last (RFC 2236 section 3).
                (Level::Older, Record::Leaves) => {
                    (group.changes_left, group.report_at) = (0, None);
                    if group.is_last_reporter {
                        sends.push(Send::Leave(*addr));
                    }
                }
                (Level::Oldest, Record::Leaves) => (group.changes_left, group.report_at) = (0, None),
            }
        }
        self.in_hand = None;
        self.groups.retain(|_, group| group.joined_count > 0 || group.changes_left > 0);
        self.answered_at = if answers { Some(now) } else { self.answered_at };
        if !records.is_empty() {
            sends.push(Send::Report(records));
        }
        sends
    }
}

fn sooner(timer: &mut Option<Instant>, at: Instant) {
    *timer = Some(timer.map_or(at, |known| known.min(at)));
}

/// Membership in the groups that every node is in is not reported (RFC 3376 section 5, RFC 3810 section 6), nor that
/// which does not leave the interface.
fn is_reported(addr: IpAddr) -> bool {
    match addr {
        IpAddr::V4(v4) => v4.octets() != [224, 0, 0, 1],
        IpAddr::V6(v6) => v6.octets()[1] & 0xf > 1 && v6 != crate::ndp::ALL_NODES,
    }
}

/// A response time or interval of the newer versions (RFC 3376 section 4.1.1, RFC 3810 section 5.1.3): the value itself
/// below 2^(`bits` - 1), else an exponent of 3 bits and a mantissa of the rest.
fn floating(code: u16, bits: u32) -> u32 {
    let code = u32::from(code);
    if code < 1 << (bits - 1) {
        return code;
    }
    let mantissa_bits = bits - 4;
    let mantissa = (code & ((1 << mantissa_bits) - 1)) | 1 << mantissa_bits;
    mantissa << (((code >> mantissa_bits) & 7) + 3)
}
