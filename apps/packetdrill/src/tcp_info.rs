//! A connection's state in the layout of Linux's `struct tcp_info`, and a socket's memory in that of SO_MEMINFO.
//!
//! Scripts read them with the `getsockopt` of libc. Sizes in segments are bytes divided by the MSS. A field that the stack does not have is 0. Tests:
//! below, and `tests/interface.rs`.

use sockeye::{CaState, FastOpenFail, TcpInfo};

use crate::error::{Call, Errno};
use crate::socket::{Shape, Socket};

/// Writes fields one behind the other; each is aligned by its place.
#[derive(Default)]
struct Layout {
    bytes: Vec<u8>,
}

impl Layout {
    fn u8(&mut self, values: &[u8]) {
        self.bytes.extend(values);
    }

    fn u32(&mut self, values: &[u32]) {
        values.iter().for_each(|value| self.bytes.extend(value.to_ne_bytes()));
    }

    fn u64(&mut self, values: &[u64]) {
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        values.iter().for_each(|value| self.bytes.extend(value.to_ne_bytes()));
    }
}

/// `struct tcp_info` of Linux 6.18.
pub(crate) fn of(socket: &Socket) -> Call<Vec<u8>> {
    match &socket.shape {
        Shape::Connecting(stream) | Shape::Connected(stream) => Ok(layout(&stream.info()?)),
        Shape::Listening(_) => Ok(bare(LISTEN)),
        Shape::Fresh(_) | Shape::Gone => Ok(bare(CLOSE)),
        Shape::Datagram(_) => Err(Errno(libc::ENOPROTOOPT)),
    }
}

/// SO_MEMINFO: nine numbers of bytes.
pub(crate) fn memory(socket: &Socket) -> Vec<u8> {
    let mut layout = Layout::default();
    let size = |size: usize| u32::try_from(size).unwrap_or(u32::MAX);
    let (mut rmem, mut rcvbuf, mut wmem, mut sndbuf) = (0, 0, 0, 0);
    if let Ok(stream) = socket.stream() {
        rmem = stream.available().map_or(0, size);
        rcvbuf = stream.recv_buffer_size().map_or(0, size);
        wmem = stream.unacknowledged().map_or(0, size);
        sndbuf = stream.send_buffer_size().map_or(0, size);
    }
    layout.u32(&[rmem, rcvbuf, wmem, sndbuf, 0, wmem, 0, 0, 0]);
    layout.bytes
}

/// Of a socket that has no connection.
fn bare(state: u8) -> Vec<u8> {
    let mut bytes = vec![0; LEN];
    bytes[0] = state;
    bytes
}

fn layout(info: &TcpInfo) -> Vec<u8> {
    let mut layout = Layout::default();
    let segments = |bytes: u32| bytes.div_ceil(info.snd_mss.max(1));
    let millis = |time: std::time::Duration| u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
    let micros = |time: std::time::Duration| u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
    let (snd_scale, rcv_scale) = info.wscale.unwrap_or_default();
    layout.u8(&[
        state(info.state),
        ca_state(info.ca_state),
        info.retransmits,
        info.probes,
        info.backoff,
        options(info),
        // Two fields of four bits.
        snd_scale | rcv_scale << 4,
        // `tcpi_fastopen_client_fail` behind one bit that is not kept here.
        info.fast_open_fail.map_or(0, fast_open_fail) << 1,
    ]);
    layout.u32(&[micros(info.rto), micros(info.ato), info.snd_mss, info.rcv_mss]);
    let unacked = segments(info.in_flight);
    // The kernel's count has those that were sent again since; a tail loss probe repeats what is not believed lost.
    let is_repairing = matches!(info.ca_state, CaState::Recovery | CaState::Loss);
    let lost = segments(info.lost) + if is_repairing { segments(info.retrans) } else { 0 };
    layout.u32(&[unacked, segments(info.sacked), lost, segments(info.retrans), 0]);
    let last_data_recv = info.last_data_recv.map_or(0, millis);
    layout.u32(&[millis(info.last_data_sent), 0, last_data_recv, millis(info.last_ack_recv)]);
    layout.u32(&[info.pmtu, info.rcv_ssthresh]);
    layout.u32(&[info.srtt.map_or(0, micros), micros(info.rttvar)]);
    layout.u32(&[ssthresh(info), (info.cwnd / info.snd_mss.max(1)).max(1), info.advmss, info.reordering]);
    layout.u32(&[info.rcv_rtt.map_or(0, micros), info.rcv_space]);
    layout.u32(&[info.rexmt_fast + info.rexmt_probe + info.rexmt_rto + info.rexmt_mtu]);
    traffic(&mut layout, info);
    layout.bytes.resize(LEN, 0);
    layout.bytes
}

/// The second half: counts.
fn traffic(layout: &mut Layout, info: &TcpInfo) {
    let micros = |time: std::time::Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let count = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    let carried = info.carried.as_ref();
    let of = |field: fn(&sockeye::Carried) -> u64| carried.map_or(0, field);
    let segments = |bytes: u64| count(bytes.div_ceil(u64::from(info.snd_mss.max(1))));
    layout.u64(&[info.pacing_rate.map_or(u64::MAX, |rate| rate.get()), u64::MAX]);
    layout.u64(&[of(|c| c.bytes_acked), of(|c| c.bytes_received)]);
    layout.u32(&[count(of(|c| c.segs_out)), count(of(|c| c.segs_in)), info.not_sent]);
    layout.u32(&[info.min_rtt.map_or(u32::MAX, |rtt| u32::try_from(rtt.as_micros()).unwrap_or(u32::MAX))]);
    layout.u32(&[count(of(|c| c.data_segs_in)), count(of(|c| c.data_segs_out))]);
    layout.u64(&[of(|c| c.delivery_rate)]);
    let times =
        carried.map_or([0; 3], |c| [micros(c.busy_time), micros(c.rwnd_limited), micros(c.sndbuf_limited)]);
    layout.u64(&times);
    // The handshake counts as one: the SYN, or the SYN-ACK, was delivered.
    let handshake = u32::from(!matches!(info.state, "SYN-SENT" | "SYN-RECEIVED" | "CLOSED"));
    let accurate = info.accurate_ecn;
    let marked = accurate.map_or(info.mark_count, |ecn| ecn.delivered_ce);
    layout.u32(&[segments(info.delivered_bytes) + handshake, marked]);
    layout.u64(&[of(|c| c.bytes_sent), info.rexmt_bytes]);
    layout.u32(&[info.dsack_count, info.reordered_count, 0, info.snd_wnd, info.rcv_wnd]);
    // `tcpi_rehash`, and three about timeouts.
    layout.u32(&[0; 3]);
    if let Some(ecn) = accurate {
        let (delivered, received) = (ecn.delivered, ecn.received);
        layout.u32(&[ecn.received_ce, delivered.ect_1, delivered.ect_0, delivered.ce]);
        layout.u32(&[received.ect_1, received.ect_0, received.ce]);
        layout.u32(&[u32::from(ecn.fail.bits()) | (ecn.option_seen as u32) << 16]);
    }
}

/// The number of a state in `tcp_states.h`, from its name in RFC 9293.
fn state(name: &str) -> u8 {
    match name {
        "ESTABLISHED" => 1,
        "SYN-SENT" => 2,
        "SYN-RECEIVED" => 3,
        "FIN-WAIT-1" => 4,
        "FIN-WAIT-2" => 5,
        "TIME-WAIT" => 6,
        "CLOSE-WAIT" => 8,
        "LAST-ACK" => 9,
        "CLOSING" => 11,
        _ => CLOSE,
    }
}

fn ca_state(state: CaState) -> u8 {
    match state {
        CaState::Open => 0,
        CaState::Disorder => 1,
        CaState::Recovery => 3,
        CaState::Loss => 4,
    }
}

fn fast_open_fail(why: FastOpenFail) -> u8 {
    match why {
        FastOpenFail::CookieUnavailable => 1,
        FastOpenFail::TextNotAcked => 2,
        FastOpenFail::SynRepeated => 3,
    }
}

/// `TCPI_OPT_*`.
fn options(info: &TcpInfo) -> u8 {
    u8::from(info.syn_text_taken) << 5
        | u8::from(info.timestamps)
        | u8::from(info.sack) << 1
        | u8::from(info.wscale.is_some()) << 2
        | u8::from(info.ecn) << 3
}

/// In segments; one that was never set is `TCP_INFINITE_SSTHRESH`.
fn ssthresh(info: &TcpInfo) -> u32 {
    let segments = info.ssthresh / info.snd_mss.max(1);
    if info.ssthresh >= SSTHRESH_UNSET { 0x7fff_ffff } else { segments }
}

const CLOSE: u8 = 7;
const LISTEN: u8 = 10;
/// Above any window: no loss has set it.
const SSTHRESH_UNSET: u32 = 1 << 30;
/// Bytes of the struct.
const LEN: usize = 280;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_stand_where_the_kernel_has_them() {
        let mut layout = Layout::default();
        layout.u8(&[0; 8]);
        layout.u32(&[0; 24]);
        assert_eq!(layout.bytes.len(), 104, "tcpi_pacing_rate");
        layout.u64(&[0; 4]);
        layout.u32(&[0; 6]);
        layout.u64(&[0]);
        assert_eq!(layout.bytes.len(), 168, "tcpi_busy_time");
        layout.u64(&[0; 3]);
        layout.u32(&[0; 2]);
        layout.u64(&[0; 2]);
        layout.u32(&[0; 5]);
        assert_eq!(layout.bytes.len(), 236, "tcpi_rehash");
    }
}
