//! A connection's protocol state as seen from outside, like Linux's `TCP_INFO`.
//!
//! A look is taken under the connection's socket lock, where the pcb stands too, so its parts belong together. Tests: `tests/seeded.rs`.

use std::io;
use std::time::Duration;

use sockeye_proto::tcp::info::Info;
use sockeye_proto::tcp::meter::Limit;
use sockeye_sync::facade::Arc;

use super::TcpStream;
use crate::tcp::Core;
use crate::tcp::conn::Conn;
use crate::tcp::conn::engine;
use crate::tcp::conn::sockbuf::Socket;
use sockeye_proto::tcp::cc::Algorithm as CongestionControl;

/// The state of a connection at one moment. Sizes are bytes.
#[derive(Clone, Debug)]
pub struct TcpInfo {
    /// The state's name in RFC 9293 section 3.3.2.
    pub state: &'static str,
    /// Payload of a full segment to the peer (`tcpi_snd_mss`).
    pub snd_mss: u32,
    /// The smoothed round-trip time (`tcpi_rtt`); `None` before the first measurement.
    pub srtt: Option<Duration>,
    /// The retransmission timeout, back-off included (`tcpi_rto`).
    pub rto: Duration,
    /// The congestion window (`tcpi_snd_cwnd`, there in segments).
    pub cwnd: u32,
    /// The slow start threshold (`tcpi_snd_ssthresh`, there in segments).
    pub ssthresh: u32,
    /// Sent and not acknowledged, FIN and SYN counted as one each (`tcpi_unacked`, there in segments).
    pub in_flight: u32,
    /// The window that the peer offers (`tcpi_snd_wnd`).
    pub snd_wnd: u32,
    /// The window that we offered last, as far as it is not used up (`tcpi_rcv_wnd`).
    pub rcv_wnd: u32,
    /// Written and not sent yet (`tcpi_notsent_bytes`).
    pub not_sent: u32,
    /// Segments sent again in fast recovery; shorter ones than the MSS count as one.
    pub rexmt_fast: u32,
    /// Segments sent again as tail loss probes.
    pub rexmt_probe: u32,
    /// Segments sent again after the retransmission timer had expired.
    pub rexmt_rto: u32,
    /// Bytes sent again (`tcpi_bytes_retrans`).
    pub rexmt_bytes: u64,
    /// Recoveries and timeouts that turned out to be needless, and were undone.
    pub undo_count: u32,
    /// The algorithm that the path got (`TCP_CONGESTION`).
    pub congestion_control: CongestionControl,
    /// Both ends agreed to ECN (`TCPI_OPT_ECN`).
    pub ecn: bool,
    /// Marks of the network that the peer echoed and for which the window was reduced.
    pub mark_count: u32,
    /// Duplicates that the peer reported (`tcpi_dsack_dups`).
    pub dsack_count: u32,
    /// Segments sent again in smaller ones, because the path does not take larger.
    pub rexmt_mtu: u32,
    /// Bytes that the peer holds behind holes (`tcpi_sacked`, there in segments).
    pub sacked: u32,
    /// Bytes believed lost and not sent again yet (`tcpi_lost`, there in segments).
    pub lost: u32,
    /// Bytes that have reached the peer, as far as it was recorded: not on loopback (`tcpi_delivered`, there in
    /// segments).
    pub delivered_bytes: u64,
    /// The path was seen to reorder segments (`tcpi_reord_seen`, there a count).
    pub reordering_seen: bool,
    /// The least round trip of the last minutes (`tcpi_min_rtt`); `None` if unknown.
    pub min_rtt: Option<Duration>,
    /// Timestamps are on (`TCPI_OPT_TIMESTAMPS`).
    pub timestamps: bool,
    /// Both ends use SACK (`TCPI_OPT_SACK`).
    pub sack: bool,
    /// The rest: state of recovery and timers, sizes, times, and traffic over an interface.
    pub more: Info,
}

/// The limit of a connection, and the figures by which that was decided. Sizes are bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limiting {
    /// The limit now; `None` while there is nothing to send and nothing on its way.
    pub by: Option<Limit>,
    /// Written and not sent yet.
    pub not_sent: u32,
    /// Sent and not acknowledged.
    pub in_flight: u32,
    /// The congestion window.
    pub cwnd: u32,
    /// The slow start threshold: a window below it still grows from the start.
    pub ssthresh: u32,
    /// The window that the peer offers.
    pub snd_wnd: u32,
    /// The send buffer, and its length.
    pub sndbuf: u32,
    /// As [`sndbuf`](Self::sndbuf).
    pub buffered: u32,
    /// The path is believed to take segments of so many bytes.
    pub snd_mss: u32,
}

impl TcpStream {
    /// The protocol's state of the connection. Waits for the thread that runs it, for as long as a few segments
    /// take.
    ///
    /// # Errors
    /// `ConnectionAborted` if protocol code panicked.
    pub fn info(&self) -> io::Result<TcpInfo> {
        let (core, conn) = self.enter()?;
        TcpInfo::of(core, conn)
    }

    /// The limit that keeps this connection from sending more just now: the application, a window, a buffer, or the
    /// path. How long each did so is in [`TcpInfo::more`]. Waits as [`info`](Self::info) does.
    ///
    /// # Errors
    /// As for [`info`](Self::info).
    pub fn limit(&self) -> io::Result<Limiting> {
        Limiting::of(self.conn()?)
    }
}

/// Looks at a connection's buffers and pcb, which belong together under the socket lock.
fn look<R>(conn: &Conn, query: impl FnOnce(&Socket) -> R) -> io::Result<R> {
    if let Some(error) = conn.panicked() {
        return Err(error.into());
    }
    Ok(query(&conn.so.lock()))
}

impl Limiting {
    /// See [`TcpStream::limit`].
    pub(crate) fn of(conn: &Conn) -> io::Result<Self> {
        look(conn, |so| {
            let pcb = &so.pcb;
            let buffered = so.snd.len();
            let in_flight = pcb.snd_max().since(pcb.snd_una());
            let is_busy = in_flight > 0 || buffered > 0;
            Limiting {
                by: is_busy.then(|| pcb.limit(engine::is_full(so))),
                not_sent: buffered.saturating_sub(in_flight),
                in_flight,
                cwnd: pcb.cwnd(),
                ssthresh: pcb.ssthresh(),
                snd_wnd: pcb.snd_wnd(),
                sndbuf: so.snd.hiwat,
                buffered,
                snd_mss: u32::from(pcb.mss()),
            }
        })
    }
}

impl TcpInfo {
    /// See [`TcpStream::info`].
    pub(crate) fn of(core: &Core, conn: &Arc<Conn>) -> io::Result<Self> {
        look(conn, |so| Self::read(core, conn, so))
    }

    fn read(core: &Core, conn: &Conn, so: &Socket) -> Self {
        let (pcb, buffered) = (&so.pcb, so.snd.len());
        let in_flight = pcb.snd_max().since(pcb.snd_una());
        let loss = pcb.loss_stats();
        TcpInfo {
            state: super::stream::state_name(conn.state()),
            snd_mss: u32::from(pcb.mss()),
            srtt: pcb.srtt(),
            rto: pcb.rto(),
            cwnd: pcb.cwnd(),
            ssthresh: pcb.ssthresh(),
            in_flight,
            snd_wnd: pcb.snd_wnd(),
            rcv_wnd: pcb.rcv_adv().since(pcb.rcv_nxt()),
            not_sent: buffered.saturating_sub(in_flight),
            rexmt_fast: loss.rexmt_fast,
            rexmt_probe: loss.rexmt_probe,
            rexmt_rto: loss.rexmt_rto,
            rexmt_bytes: loss.rexmt_bytes,
            undo_count: loss.undo_count,
            congestion_control: pcb.congestion_control(),
            ecn: pcb.ecn(),
            mark_count: loss.mark_count,
            dsack_count: loss.dsack_count,
            rexmt_mtu: loss.rexmt_mtu,
            sacked: loss.sacked_bytes,
            lost: loss.lost_bytes,
            delivered_bytes: loss.delivered_bytes,
            reordering_seen: loss.reordering_seen,
            min_rtt: (loss.min_rtt_us != 0).then(|| Duration::from_micros(u64::from(loss.min_rtt_us))),
            timestamps: pcb.timestamps(),
            sack: pcb.sack_permitted(),
            more: pcb.info(core.clock.now()),
        }
    }
}
