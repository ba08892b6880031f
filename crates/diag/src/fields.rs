//! A connection's figures as names and values.
//!
//! The names are those of `sockeye::TcpInfo`, `Info`, `Carried` and `Limiting`, with the unit behind where there is one.
//! Unknown values are `null`. Does not depend on how they are shown. Tests: `tests/diag.rs`.

use std::time::Duration;

use serde_json::{Map, Value, json};
use sockeye::{CaState, Carried, CongestionControl, Limit, Limiting, TcpInfo};

/// Protocol state.
pub fn tcp(info: &TcpInfo) -> Map<String, Value> {
    let more = &info.more;
    let mut fields = object(json!({
        "congestion_control": match info.congestion_control {
            CongestionControl::NewReno => "newreno",
            CongestionControl::Cubic => "cubic",
            CongestionControl::Bbr => "bbr",
        },
        "timestamps": info.timestamps,
        "sack": info.sack,
        "ecn": info.ecn,
        "snd_wscale": more.wscale.map(|(snd, _)| snd),
        "rcv_wscale": more.wscale.map(|(_, rcv)| rcv),
        "rto_us": micros(info.rto),
        "backoff": more.backoff,
        "rtt_us": info.srtt.map(micros),
        "rttvar_us": info.srtt.map(|_| micros(more.rttvar)),
        "min_rtt_us": info.min_rtt.map(micros),
        "ato_us": micros(more.ato),
        "snd_mss": info.snd_mss,
        "rcv_mss": more.rcv_mss,
        "advmss": more.advmss,
        "pmtu": more.pmtu,
        "cwnd": info.cwnd,
        "ssthresh": info.ssthresh,
        "in_flight": info.in_flight,
        "sacked": info.sacked,
        "lost": info.lost,
        "snd_wnd": info.snd_wnd,
        "rcv_wnd": info.rcv_wnd,
        "not_sent": info.not_sent,
        "rexmt_bytes": info.rexmt_bytes,
    }));
    fields.extend(object(json!({
        "ca_state": match more.ca_state {
            CaState::Open => "open",
            CaState::Disorder => "disorder",
            CaState::Recovery => "recovery",
            CaState::Loss => "loss",
        },
        "rexmt_fast": info.rexmt_fast,
        "rexmt_probe": info.rexmt_probe,
        "rexmt_rto": info.rexmt_rto,
        "dsack_count": info.dsack_count,
        "mark_count": info.mark_count,
        "pacing_rate": more.pacing_rate.map(std::num::NonZeroU64::get),
        "last_data_sent_us": micros(more.last_data_sent),
        "last_data_recv_us": more.last_data_recv.map(micros),
        "last_ack_recv_us": micros(more.last_ack_recv),
        "rcv_rtt_us": more.rcv_rtt.map(micros),
        "rcv_space": more.rcv_space,
        "rcv_ssthresh": more.rcv_ssthresh,
    })));
    fields.extend(more.carried.as_ref().map(carried).unwrap_or_default());
    fields
}

/// Traffic of an interface.
fn carried(carried: &Carried) -> Map<String, Value> {
    object(json!({
        "bytes_sent": carried.bytes_sent,
        "bytes_acked": carried.bytes_acked,
        "bytes_received": carried.bytes_received,
        "segs_out": carried.segs_out,
        "segs_in": carried.segs_in,
        "data_segs_out": carried.data_segs_out,
        "data_segs_in": carried.data_segs_in,
        "delivery_rate": carried.delivery_rate,
        "busy_us": micros(carried.busy_time),
        "rwnd_limited_us": micros(carried.rwnd_limited),
        "sndbuf_limited_us": micros(carried.sndbuf_limited),
    }))
}

/// The limit of a connection.
pub fn limiting(limiting: &Limiting) -> Map<String, Value> {
    object(json!({
        "by": limiting.by.map(|by| match by {
            Limit::Application => "application",
            Limit::ReceiveWindow => "receive_window",
            Limit::CongestionWindow => "congestion_window",
            Limit::SendBuffer => "send_buffer",
            Limit::Path => "path",
        }),
        "not_sent": limiting.not_sent,
        "in_flight": limiting.in_flight,
        "cwnd": limiting.cwnd,
        "ssthresh": limiting.ssthresh,
        "snd_wnd": limiting.snd_wnd,
        "sndbuf": limiting.sndbuf,
        "buffered": limiting.buffered,
        "snd_mss": limiting.snd_mss,
    }))
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
