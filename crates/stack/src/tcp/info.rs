//! What a connection's protocol state looks like from outside, as Linux's `TCP_INFO` shows it.
//!
//! A look is taken inside the connection's perimeter, so its parts belong together. Tests: `tests/seeded.rs`.

use std::io;
use std::time::Duration;

use sockeye_sync::facade::Arc;

use super::TcpStream;
use crate::CongestionControl;
use crate::conn::Conn;
use crate::conn::engine;
use crate::conn::outbox::Context;
use crate::stack::Core;

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
}

impl TcpStream {
    /// What the protocol knows of the connection. Waits for whoever runs it, for as long as a batch of segments
    /// takes.
    ///
    /// # Errors
    /// `WouldBlock` if somebody does in a stack without threads; `ConnectionAborted` if protocol code panicked.
    pub fn info(&self) -> io::Result<TcpInfo> {
        TcpInfo::of(self.core(), &self.conn)
    }
}

impl TcpInfo {
    /// See [`TcpStream::info`].
    pub(crate) fn of(core: &Core, conn: &Arc<Conn>) -> io::Result<Self> {
        let perimeter = conn.perimeter();
        let mut inside = match perimeter.try_enter() {
            Some(inside) => inside,
            None if core.config.workers == 0 => return Err(io::ErrorKind::WouldBlock.into()),
            None => perimeter.enter_blocking().map_err(|_| io::ErrorKind::ConnectionAborted)?,
        };
        let pcb = conn.pcb.get(&mut inside);
        let buffered = conn.so.lock().snd.len();
        let in_flight = pcb.snd_max().since(pcb.snd_una());
        let loss = pcb.loss_stats();
        let info = TcpInfo {
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
        };
        Context::run(core, |cx| engine::drive(cx, inside, conn, 0));
        Ok(info)
    }
}
