//! Groups of a link: joining and leaving, reports, the filter of frames.
//!
//! The filter has a bit for each of 256 hashes of groups. A clear bit refuses a frame without a lock; a set one has the
//! list asked, under the link's mutex. It is written under that mutex. Tests: `tests/link/`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rustix::io::Errno;
use sockeye_proto::group::igmp::{self, Refusal};
use sockeye_proto::group::{self, Membership, Send, mld};
use sockeye_proto::ip;
use sockeye_sync::facade::Ordering;

use super::state::{Link, Work};
use super::{addresses, count, ndp};
use crate::base::errno;
use crate::inet::Core;
use crate::inet::context::Context;
use crate::inet::ip::Received;
use crate::inet::netif::table::NetifId;
use crate::rt::failpoints::{self, Point};

/// Words of the filter.
pub(super) const FILTER_WORDS: usize = 4;

/// Joins a group at an interface, once more. Where links have no addresses there is nothing to do.
///
/// # Errors
/// ENOBUFS if there is no room for another group; EIO after a panic, which takes the group away from all sockets that have joined it.
pub(crate) fn join(core: &Core, id: NetifId, group: IpAddr) -> Result<(), Errno> {
    let joined = change(core, id, group, |work| join_under(work, group))?;
    if joined { Ok(()) } else { Err(Errno::NOBUFS) }
}

/// Takes one join back, if there is one.
///
/// # Errors
/// EIO after a panic, as for [`join`].
pub(crate) fn leave(core: &Core, id: NetifId, group: IpAddr) -> Result<(), Errno> {
    change(core, id, group, |work| leave_under(work, group)).map(|_was_joined| ())
}

fn change(
    core: &Core,
    id: NetifId,
    group: IpAddr,
    change: impl FnOnce(&mut Work<'_, '_>) -> bool,
) -> Result<bool, Errno> {
    let Some(link) = core.links.get(id) else { return Ok(true) };
    Context::run(core, |cx| {
        let changed = link.work(cx, Some(group), |work| {
            let changed = change(work);
            failpoints::hit(Point::Group, failpoints::of_addr(group));
            // Reports are sent now, and repeated by the timer.
            super::timer::report(work);
            changed
        });
        changed.ok_or(errno::IO)
    })
}

/// After a panic: forgets the group that it was about, which is `about` or the one that its machine was at.
#[cold]
pub(super) fn give_up(work: &mut Work<'_, '_>, about: Option<IpAddr>) {
    if let Some(group) = about.filter(IpAddr::is_multicast) {
        work.state.groups[family(group)].forget(&group);
    }
    work.state.groups.iter_mut().for_each(Membership::drop_in_hand);
    set_filter(work);
}

pub(super) fn join_under(work: &mut Work<'_, '_>, group: IpAddr) -> bool {
    let now = work.now();
    let joined = work.state.groups[family(group)].join(group, now);
    if joined {
        let (word, bit) = place(group);
        work.link.filter[word].fetch_or(bit, Ordering::Relaxed);
    }
    joined
}

pub(super) fn leave_under(work: &mut Work<'_, '_>, group: IpAddr) -> bool {
    let now = work.now();
    let left = work.state.groups[family(group)].leave(group, now);
    if left {
        set_filter(work);
    }
    left
}

/// The filter as the groups are now.
fn set_filter(work: &Work<'_, '_>) {
    let mut words = [0; FILTER_WORDS];
    for group in work.state.groups.iter().flat_map(|groups| groups.list()) {
        let (word, bit) = place(group);
        words[word] |= bit;
    }
    for (to, word) in work.link.filter.iter().zip(words) {
        to.store(word, Ordering::Relaxed);
    }
}

impl Link {
    /// Whether frames to `group` are wanted.
    pub(super) fn wants(&self, group: IpAddr) -> bool {
        let (word, bit) = place(group);
        self.filter[word].load(Ordering::Relaxed) & bit != 0 && self.look().groups[family(group)].has(&group)
    }
}

/// The place of a family's groups.
fn family(addr: IpAddr) -> usize {
    usize::from(addr.is_ipv6())
}

/// The word and the bit of a group in the filter.
fn place(group: IpAddr) -> (usize, u64) {
    let low = match group {
        IpAddr::V4(v4) => u32::from(v4),
        IpAddr::V6(v6) => u128::from(v6) as u32,
    };
    let hash = low.wrapping_mul(0x9e37_79b9) >> 24;
    (hash as usize / 64, 1 << (hash % 64))
}

/// IGMP, or MLD, that has come in.
pub(crate) fn input(cx: &mut Context<'_>, received: &Received) {
    let core = cx.core;
    let Some(link) = core.links.get(received.netif) else { return };
    core.links.count(count::GROUP_IN);
    let (bytes, len) = received.first::<{ ndp::MESSAGE_MAX }>();
    let bytes = &bytes[..len];
    let message = match received.header.addresses {
        ip::Addresses::V4 { dst, .. } => igmp::parse(dst, received.header.hop_limit, bytes),
        ip::Addresses::V6 { src, dst } => mld::parse(src, dst, received.header.hop_limit, bytes),
    };
    let message = match message {
        Ok(message) => message,
        Err(refusal) => {
            core.links.count(count::GROUP_REFUSED);
            return core.links.count(match refusal {
                Refusal::Malformed => count::GROUP_MALFORMED,
                Refusal::Checksum => count::GROUP_BAD_CHECKSUM,
                Refusal::OffLink => count::GROUP_OFF_LINK,
                Refusal::Group => count::GROUP_BAD_GROUP,
            });
        }
    };
    link.work(cx, None, |work| {
        let (now, family) = (work.now(), family(received.header.addresses.dst()));
        match message {
            igmp::Message::Query(query) => {
                let mut randoms = [0; group::GROUPS_MAX + 1];
                randoms.fill_with(|| work.state.random());
                let mut randoms = randoms.into_iter();
                work.state.groups[family].on_query(&query, now, || {
                    failpoints::hit(Point::GroupQuery, 0);
                    randoms.next().unwrap_or(0)
                });
            }
            igmp::Message::Report(group) => work.state.groups[family].on_report(&group),
            igmp::Message::Other => {}
        }
    });
}

/// Sends the due membership reports.
pub(super) fn send(work: &mut Work<'_, '_>, sends: &[Send], family: usize) {
    for send in sends {
        if family == 0 {
            let src = work.state.own.iter().find_map(|own| match own.addr {
                IpAddr::V4(v4) => Some(v4),
                IpAddr::V6(_) => None,
            });
            for (dst, packet) in igmp::emit(src.unwrap_or(Ipv4Addr::UNSPECIFIED), send) {
                work.send_to_group(dst.into(), &packet);
                work.cx.core.links.count(count::GROUP_OUT);
            }
        } else {
            let src = addresses::link_local(work).unwrap_or(Ipv6Addr::UNSPECIFIED);
            for (dst, packet) in mld::emit(src, send) {
                work.send_to_group(dst.into(), &packet);
                work.cx.core.links.count(count::GROUP_OUT);
            }
        }
    }
}
