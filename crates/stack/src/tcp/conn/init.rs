//! How a connection comes into being: the one place where its parts are put together, for one that connects and one that
//! is accepted alike.
//!
//! The settings of a socket before it had a connection ([`SocketSettings`], a listener's being those of its
//! children) become the pcb's settings, the options and the sizes of the buffers here. It does not depend on
//! handshakes or tables: the caller has the pcb and puts the connection into the table.

use std::time::Duration;

use sockeye_proto::tcp::pcb::Pcb;
use sockeye_proto::tcp::push::Pushes;
use sockeye_proto::tcp::settings::Settings;
use sockeye_sync::facade::{Arc, Ordering};

use super::reports::Reports;
use super::sockbuf::{RecvBuf, SendBuf};
use super::{Conn, ConnInit, SocketOptions};
use crate::base::addr::FourTuple;
use crate::base::payload::Data;
use crate::base::report::Timestamping;
use crate::inet::netif::table::Via;
use crate::tcp::Core;
use crate::tcp::discipline::{Chosen, Discipline};
use crate::tcp::socket::SocketSettings;

/// The name of a connection, and the way of its segments.
#[derive(Clone, Copy)]
pub(crate) struct Name {
    pub tuple: FourTuple,
    /// The keyed hash of `tuple`.
    pub hash: u64,
    pub via: Via,
}

/// The parameters of a pcb for a connection of this name.
pub(crate) fn tcp_settings(core: &Core, name: &Name, settings: &SocketSettings, ts_offset: u32) -> Settings {
    let mut tcp = core.tcp_settings(&name.tuple, name.via, settings.rcv_room(), ts_offset);
    let known = core.ip.path_mtus.get(&core.key, name.tuple.remote.addr, core.clock.now());
    tcp.path_mtu = known.map_or(0, |path| u16::try_from(path.mtu).unwrap_or(u16::MAX));
    tcp.nodelay = settings.nodelay;
    tcp.quickack = settings.quickack;
    tcp.writes_first = settings.defers > 0;
    tcp.rcv_lowat = settings.rcvlowat;
    tcp.keepalive = settings.keepalive;
    tcp.user_timeout = Duration::from_millis(u64::from(settings.user_timeout_ms));
    tcp.syn_retries = settings.syn_retries_or(tcp.syn_retries);
    tcp.fin_wait_2 = Duration::from_millis(u64::from(settings.fin_timeout_ms));
    tcp.rto_max = Duration::from_millis(u64::from(settings.rto_max_ms));
    tcp.congestion_control = settings.congestion_control;
    tcp.mss = settings.mss(tcp.mss);
    tcp
}

/// The connection around `pcb`, which was made of `tcp`. `is_mapped`: IPv4 addresses are shown as mapped ones. If the handshake is done, `so_rcv` takes over
/// the agreed values.
pub(crate) fn make(
    core: &Core,
    name: Name,
    discipline: <Chosen as Discipline>::OfConn,
    (pcb, tcp): (Pcb<Data>, &Settings),
    settings: &SocketSettings,
    is_mapped: bool,
) -> Arc<Conn> {
    let options = SocketOptions::new(settings.reuse_addr, settings.reuse_port, is_mapped);
    options.nodelay.store(settings.nodelay, Ordering::Relaxed);
    options.tos.store(settings.tos_ttl.tos, Ordering::Relaxed);
    options.hop_limit.store(settings.tos_ttl.ttl, Ordering::Relaxed);
    options.nonblocking.store(settings.nonblocking, Ordering::Relaxed);
    options.set_keepalive_settings(&settings.keepalive);
    if name.via.is_wire() {
        let remote = name.tuple.remote.addr;
        options.path.note(core.ip.path_mtus.get(&core.key, remote, core.clock.now()));
    }
    options.linger_ms.store(settings.linger_ms, Ordering::Relaxed);
    options.user_timeout_ms.store(settings.user_timeout_ms, Ordering::Relaxed);
    options.syn_retries.store(tcp.syn_retries, Ordering::Relaxed);
    options.fin_timeout_ms.store(settings.fin_timeout_ms, Ordering::Relaxed);
    let is_connected = pcb.state().can_send();
    let mut reports = Reports::of(settings.zerocopy, settings.timestamping);
    let mut rcv = RecvBuf::new(settings.rcvbuf, !settings.rcvbuf_set);
    rcv.lowat = settings.rcvlowat;
    if is_connected {
        rcv.on_connected(&pcb);
    }
    if settings.timestamping.has(Timestamping::RECEIVED)
        && is_connected
        && let Some(reports) = &mut reports
    {
        reports.begin_receiving(rcv.nxt);
    }
    // As on Linux, where packets are joined only if the device completes the checksums of the parts.
    let netif = core.netifs.netif(name.via.netif());
    let is_joined = netif.is_some_and(|netif| netif.offloads_checksum());
    let pushes = name.via.is_wire().then(|| Pushes::new(is_joined, core.tcp_config().min_tso_segs));
    let mut snd =
        SendBuf::new(settings.sndbuf, !settings.sndbuf_set, is_connected, settings.notsent_lowat, pushes);
    if reports.is_some() {
        snd.rare_mut().reports = reports;
    }
    Conn::new(
        core.conn_serials.next(core.cpu()),
        ConnInit { discipline, pcb, tuple: name.tuple, hash: name.hash, via: name.via, snd, rcv, options },
    )
}
