//! Sending: one copy into packet memory, then straight into the receiver's queue, or out of an interface.
//!
//! A send takes no lock of its own socket: the name is read from its cell, the options are words. It takes its core's
//! copy of the table (for reading) and the receiver's mutex, or the interface's queue. Datagrams of a batch that go the
//! same way are delivered as a run (`deliver.rs`); a receiver that waits for them is woken once, at the end of the call.
//!
//! A send that asks for its time (`stamps.rs`) takes the mutex of its own socket as well, and goes alone.
//!
//! There is no send buffer. A datagram to an own address is in its receiver's queue, or dropped because that is full,
//! when the call returns; one that leaves is its interface's, or dropped because that has no room. Only the cap of
//! packet memory holds a sender back: there a blocking call waits.
//!
//! Does not depend on how datagrams are received. Tests: `tests/udp/`.

use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};

use rustix::io::Errno;
use sockeye_mbuf::{CLUSTER_MAX, Chain, Exhausted, Pool};
use sockeye_proto::udp::{PAYLOAD_MAX_V4, PAYLOAD_MAX_V6, SEGMENTS_MAX};
use sockeye_sync::facade::Ordering;

use super::count;
use super::deliver::{Fate, Flow, Load, Loads, RUN_MAX};
use super::errors::{self, Unsent};
use super::flows;
use super::message::SendMeta;
use super::name::Name;
use super::naming::{Handle, endpoint};
use super::options::{HOPS_DEFAULT, Options};
use super::output;
use super::pcb::Pcb;
use super::route::{self, Way};
use super::stamps::{self, Notable, Stamp};
use crate::base::addr::{Endpoint, FourTuple, connect_target, unmapped};
use crate::base::errno;
use crate::inet::Core;
use crate::inet::ip::output::MtuDiscover;
use crate::inet::netif::scope::LOOPBACK;
use crate::inet::netif::{NetifId, scope};
use crate::rt::blocking::{Timeout, wait_for_memory};
use crate::rt::counter;
use crate::rt::memory;
use crate::rt::panics;
use crate::rt::wake::{Wake, fire_all};

/// Data of a datagram besides its bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Plan {
    flow: Flow,
    way: Way,
}

/// A send of one datagram or several.
pub(crate) struct Sending<'h> {
    handle: &'h Handle,
    name: Name,
    timeout: Timeout,
    cpu: u32,
    /// Datagrams that go the way of `plan` and were not handed over yet.
    run: Loads,
    plan: Option<Plan>,
    wakes: Vec<Wake>,
    /// What went wrong in the last hand-over. Nothing is pushed after an error that the caller is told of, so no later success hides it.
    failed: Option<Errno>,
    /// Datagrams that were handed over, before the first error that the caller is told of.
    handed_count: usize,
    /// The timer wheel was asked for a call.
    is_armed: bool,
}

impl<'h> Sending<'h> {
    pub fn new(handle: &'h Handle) -> Result<Self, Errno> {
        let name = handle.bound_name().map_err(|error| errno_of(&error))?;
        Ok(Self {
            handle,
            name,
            timeout: Timeout::of(&handle.pcb.options.snd_timeout),
            cpu: handle.core().cpu(),
            run: Loads::new(),
            plan: None,
            wakes: Vec::new(),
            failed: None,
            handed_count: 0,
            is_armed: false,
        })
    }

    /// Sends `bufs` as one datagram, or as several if there is a segment size. Returns the bytes.
    pub fn push(&mut self, bufs: &[IoSlice<'_>], meta: &SendMeta) -> Result<usize, Errno> {
        panics::call_or_errno(self.handle.core(), "send", || self.push_one(bufs, meta))
    }

    fn push_one(&mut self, bufs: &[IoSlice<'_>], meta: &SendMeta) -> Result<usize, Errno> {
        let pcb = &self.handle.pcb;
        let len = bufs.iter().map(|buf| buf.len()).fold(0, usize::saturating_add);
        let to = meta.to.map(|addr| target(pcb, addr)).transpose()?;
        let remote = to.or(self.name.remote).ok_or(Errno::DESTADDRREQ)?;
        let plan = plan(self.handle.core(), pcb, &self.name, remote, meta)?;
        let segment_size = segment_size(pcb, remote.addr, len, meta)?;
        let notable = pcb.notable.load();
        if let Some(error) = pcb.take_noted_error(notable).or_else(|| flows::sending_ended(pcb)) {
            return Err(error);
        }
        let load = Load { payload: self.copy(bufs, len)?, segment_size };
        if notable & Notable::STAMPS != 0
            && let Some(stamp) = stamps::begin(pcb, meta.timestamping)?
        {
            self.send_stamped(plan, load, &stamp)?;
            return Ok(len);
        }
        if self.plan != Some(plan) || self.run.len() == RUN_MAX {
            self.finish()?;
            self.plan = Some(plan);
        }
        self.run.push(load);
        Ok(len)
    }

    /// Hands over a datagram that its sender is told of, alone, so that what is told is true of it.
    #[cold]
    fn send_stamped(&mut self, plan: Plan, load: Load, stamp: &Stamp) -> Result<(), Errno> {
        self.finish().inspect_err(|_| stamps::withdraw(&self.handle.pcb, stamp))?;
        self.plan = Some(plan);
        self.run.push(load);
        let at = self.handle.core().clock.now();
        self.flush();
        stamps::end(&self.handle.pcb, stamp, at, self.failed, &mut self.wakes);
        self.finish()
    }

    /// Copies into packet memory, waiting for it if need be.
    fn copy(&mut self, bufs: &[IoSlice<'_>], len: usize) -> Result<Chain, Errno> {
        let core = self.handle.core();
        loop {
            match memory::obtain(core, || gather(&core.pool, bufs, len)) {
                Ok(chain) => return Ok(chain),
                Err(Exhausted) => {
                    core.count(counter::MEMORY_WAITS);
                    self.flush();
                    self.result()?;
                    if self.handle.pcb.options.nonblocking.load(Ordering::Relaxed) {
                        super::shared(core).count(count::MEM_ERRORS, 1);
                        return Err(errno::NOMEM);
                    }
                    if !wait_for_memory(core, &mut self.timeout) {
                        return Err(Errno::AGAIN);
                    }
                }
            }
        }
    }

    /// Hands over the collected datagrams, up to the first whose error the caller is told of.
    fn flush(&mut self) {
        let Some(plan) = self.plan.take() else { return };
        let (core, udp) = (self.handle.core(), super::shared(self.handle.core()));
        self.handed_count += self.run.len();
        match plan.way {
            Way::Own => {
                udp.count(count::OUT_DATAGRAMS, self.run.iter().map(Load::count).sum());
                match udp.to_host(core, self.cpu, &plan.flow, &mut self.run, &mut self.wakes) {
                    Fate::Delivered => {}
                    Fate::Armed => self.is_armed = true,
                    Fate::Nobody => self.refused(&plan.flow),
                }
            }
            Way::All(interface) => {
                let is_out = interface != LOOPBACK;
                match NetifId::of_interface(core, interface) {
                    Some(netif) => self.send_out(netif, &plan.flow),
                    None => udp.count(count::OUT_DATAGRAMS, self.run.iter().map(Load::count).sum()),
                }
                // Datagrams by the loopback are received there whatever the option says, as on Linux.
                if !is_out || output::comes_back(&self.handle.pcb, &plan.flow) {
                    udp.to_all(core, self.cpu, &plan.flow, &mut self.run, &mut self.wakes);
                }
            }
            Way::Out(via) => self.send_out(via.netif(), &plan.flow),
        }
        self.run.clear();
        if let Some(part) = self.handle.pcb.role.flow() {
            part.note(core.clock.now());
        }
    }

    /// Hands the run to an interface. At an error that the caller is told of, those behind it are not sent, as by
    /// sendmmsg(2).
    fn send_out(&mut self, netif: NetifId, flow: &Flow) {
        let Err(refused) = output::send(&self.handle.pcb, self.handle.core(), netif, flow, &self.run) else {
            return;
        };
        self.failed = Some(refused.error);
        if let Some(at) = refused.ends_at {
            self.handed_count -= self.run.len() - at;
            // Members on this host have got the copy before the interface refuses.
            self.run.truncate(at + 1);
        }
    }

    /// The error of the last hand-over, if the caller is told of it.
    fn result(&mut self) -> Result<(), Errno> {
        self.failed.take().filter(|error| output::tells(&self.handle.pcb, *error)).map_or(Ok(()), Err)
    }

    /// Hands everything over, and returns the result.
    pub fn finish(&mut self) -> Result<(), Errno> {
        panics::call_or_errno(self.handle.core(), "send", || {
            self.flush();
            self.result()
        })
    }

    /// The end of a batch whose pushes ended so: how many datagrams were handed over before the first error, or that error if it
    /// is the first datagram's.
    pub fn finish_batch(&mut self, pushed: Result<(), Errno>) -> Result<usize, Errno> {
        let ended = self.finish().and(pushed);
        if self.handed_count == 0 { ended.map(|()| 0) } else { Ok(self.handed_count) }
    }

    /// No socket is bound there: the ICMP error that a host would send comes back at once, as over Linux's loopback.
    fn refused(&mut self, flow: &Flow) {
        let udp = super::shared(self.handle.core());
        udp.count(count::NO_PORTS, self.run.iter().map(Load::count).sum());
        let (pcb, tuple) = (&self.handle.pcb, flow.tuple.reversed());
        let from = (Endpoint::new(tuple.remote.addr, 0), flow.interface);
        for load in self.run.drain(..) {
            errors::report(pcb, Unsent::PortUnreachable, &tuple, from, load.payload, &mut self.wakes);
        }
    }
}

impl Drop for Sending<'_> {
    /// The end of the call: hands over everything, then wakes all receivers.
    fn drop(&mut self) {
        let _told_by_finish = panics::call_or_errno(self.handle.core(), "send", || {
            self.flush();
            Ok(())
        });
        let core = self.handle.core();
        fire_all(core, &mut self.wakes);
        if self.is_armed {
            core.workers.tell_driver(core);
        }
    }
}

/// The receiver that a call names.
fn target(pcb: &Pcb, addr: SocketAddr) -> Result<Endpoint, Errno> {
    let mut remote = endpoint(pcb, addr)?;
    if remote.port == 0 {
        return Err(Errno::INVAL);
    }
    remote.addr = connect_target(remote.addr);
    Ok(remote)
}

fn plan(core: &Core, pcb: &Pcb, name: &Name, remote: Endpoint, meta: &SendMeta) -> Result<Plan, Errno> {
    let dst = remote.addr;
    let options = &pcb.options;
    if dst.is_ipv4() && meta.hop_limit == Some(0) {
        return Err(Errno::INVAL);
    }
    let is_broadcast = scope::is_broadcast(&core.netifs, dst);
    if is_broadcast && !options.broadcast.load(Ordering::Relaxed) {
        return Err(Errno::ACCESS);
    }
    let interface = if is_broadcast || dst.is_multicast() || scope::is_of_link(dst) {
        let scope = meta.to.map_or(Ok(None), |to| scope::named(core, &to))?.map(NetifId::interface_index);
        let named = meta.interface.or(scope).unwrap_or_else(|| route::interface_for(pcb, dst));
        if named > LOOPBACK && NetifId::of_interface(core, named).is_none() {
            return Err(errno::NODEV);
        }
        named
    } else {
        0
    };
    let src = route::source(core, pcb, name, dst, meta.src.map(unmapped), interface)?;
    let way = route::way(core, src, dst, interface)?;
    let src_port = source_port(pcb, name, meta)?;
    let class = if dst.is_ipv4() { &options.tos } else { &options.tclass_v6 };
    let interface = match way {
        Way::Own => LOOPBACK,
        // The source is bound to another link than the one that is named.
        Way::Out(via) if interface != 0 && interface != via.netif().interface_index() => {
            return Err(Errno::INVAL);
        }
        Way::Out(via) => via.netif().interface_index(),
        Way::All(interface) => interface,
    };
    let flow = Flow {
        tuple: FourTuple { local: remote, remote: Endpoint::new(src, src_port) },
        interface,
        traffic_class: meta.traffic_class.unwrap_or_else(|| class.load(Ordering::Relaxed)),
        hop_limit: meta.hop_limit.unwrap_or_else(|| hop_limit(core, options, dst, way)),
        discover: MtuDiscover::of_u8(options.mtu_discover.load(Ordering::Relaxed)),
        may_join: false,
    };
    Ok(Plan { flow, way })
}

/// The socket's settings for datagrams to `dst`.
fn hop_limit(core: &Core, options: &Options, dst: IpAddr, way: Way) -> u8 {
    let of_way = || match way {
        Way::Out(via) => core.links.hop_limit(via.netif(), true),
        Way::Own | Way::All(_) => HOPS_DEFAULT,
    };
    match (dst, dst.is_multicast()) {
        (IpAddr::V4(_), false) => options.ttl.load(Ordering::Relaxed),
        (IpAddr::V4(_), true) => options.multicast_ttl_v4.load(Ordering::Relaxed),
        (IpAddr::V6(_), false) => options.unicast_hops_v6().unwrap_or_else(of_way),
        (IpAddr::V6(_), true) => options.multicast_hops_v6.load(Ordering::Relaxed),
    }
}

/// The port that a datagram comes from.
///
/// # Errors
/// EINVAL if a socket for every port does not say which, or another one says another than its own.
fn source_port(pcb: &Pcb, name: &Name, meta: &SendMeta) -> Result<u16, Errno> {
    match (pcb.any_port, meta.src_port) {
        (true, Some(port)) if port != 0 => Ok(port),
        (false, None) => Ok(name.local.port),
        (false, Some(port)) if port == name.local.port => Ok(port),
        (true | false, Some(_)) | (true, None) => Err(Errno::INVAL),
    }
}

/// The size of the datagrams that a buffer of `len` bytes is cut into; 0 if it is one.
///
/// # Errors
/// EMSGSIZE if it, or the size, is more than a datagram takes; EINVAL if there would be too many.
fn segment_size(pcb: &Pcb, dst: IpAddr, len: usize, meta: &SendMeta) -> Result<u16, Errno> {
    let most = if dst.is_ipv4() { PAYLOAD_MAX_V4 } else { PAYLOAD_MAX_V6 };
    if len > most {
        return Err(Errno::MSGSIZE);
    }
    let size = meta.segment_size.unwrap_or_else(|| pcb.options.segment_size.load(Ordering::Relaxed));
    match usize::from(size) {
        0 => Ok(0),
        of if len <= of => Ok(0),
        of if len.div_ceil(of) > SEGMENTS_MAX => Err(Errno::INVAL),
        _ => Ok(size),
    }
}

/// The bytes of all buffers, in packet memory.
#[inline]
fn gather(pool: &Pool, bufs: &[IoSlice<'_>], len: usize) -> Result<Chain, Exhausted> {
    if len == 0 {
        return Ok(Chain::new());
    }
    debug_assert!(len <= CLUSTER_MAX, "a datagram fits into one cluster");
    let mut mbuf = pool.alloc(len)?;
    for buf in bufs {
        let taken = mbuf.try_extend(buf);
        debug_assert_eq!(taken, buf.len(), "a new cluster takes what it was chosen for");
    }
    Ok(Chain::from(mbuf))
}

/// The errno of an error that naming has made.
fn errno_of(error: &std::io::Error) -> Errno {
    match error.kind() {
        std::io::ErrorKind::AddrInUse => Errno::ADDRINUSE,
        std::io::ErrorKind::AddrNotAvailable => Errno::ADDRNOTAVAIL,
        _ => error.raw_os_error().map_or(Errno::AGAIN, Errno::from_raw_os_error),
    }
}
