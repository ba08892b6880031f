//! A connection's figures as names and values.
//!
//! The names are those of `sockeye::TcpInfo`, `Carried`, `Bottleneck` and `RunningTimer`, with the unit behind where there is one.
//! Unknown values are `null`. Does not depend on how they are shown. Tests: `tests/diag.rs`.

use std::time::Duration;

use serde_json::{Map, Value, json};
use sockeye::{Bottleneck, CaState, Carried, CongestionControl, Limit, RunningTimer, TcpInfo, TimerKind};

/// Protocol state.
pub fn tcp(info: &TcpInfo) -> Map<String, Value> {
    let mut fields = object(json!({
        "congestion_control": match info.congestion_control {
            CongestionControl::NewReno => "newreno",
            CongestionControl::Cubic => "cubic",
            CongestionControl::Bbr => "bbr",
        },
        "timestamps": info.timestamps,
        "sack": info.sack,
        "ecn": info.ecn,
        "accurate_ecn": info.accurate_ecn.is_some(),
        "snd_wscale": info.wscale.map(|(snd, _)| snd),
        "rcv_wscale": info.wscale.map(|(_, rcv)| rcv),
        "rto_us": micros(info.rto),
        "backoff": info.backoff,
        "rtt_us": info.srtt.map(micros),
        "rttvar_us": info.srtt.map(|_| micros(info.rttvar)),
        "min_rtt_us": info.min_rtt.map(micros),
        "ato_us": micros(info.ato),
        "snd_mss": info.snd_mss,
        "rcv_mss": info.rcv_mss,
        "advmss": info.advmss,
        "pmtu": info.pmtu,
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
        "ca_state": match info.ca_state {
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
        "pacing_rate": info.pacing_rate.map(std::num::NonZeroU64::get),
        "last_data_sent_us": micros(info.last_data_sent),
        "last_data_recv_us": info.last_data_recv.map(micros),
        "last_ack_recv_us": micros(info.last_ack_recv),
        "rcv_rtt_us": info.rcv_rtt.map(micros),
        "rcv_space": info.rcv_space,
        "rcv_ssthresh": info.rcv_ssthresh,
    })));
    fields.extend(info.carried.as_ref().map(carried).unwrap_or_default());
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
pub fn bottleneck(limits: &Bottleneck) -> Map<String, Value> {
    object(json!({
        "by": limits.by.map(|by| match by {
            Limit::Application => "application",
            Limit::ReceiveWindow => "receive_window",
            Limit::CongestionWindow => "congestion_window",
            Limit::SendBuffer => "send_buffer",
            Limit::Path => "path",
        }),
        "not_sent": limits.not_sent,
        "in_flight": limits.in_flight,
        "cwnd": limits.cwnd,
        "ssthresh": limits.ssthresh,
        "snd_wnd": limits.snd_wnd,
        "sndbuf": limits.sndbuf,
        "buffered": limits.buffered,
        "snd_mss": limits.snd_mss,
    }))
}

/// A timer that runs.
pub fn timer(timer: &RunningTimer) -> Map<String, Value> {
    object(json!({
        "kind": match timer.kind {
            TimerKind::Rexmt => "on",
            TimerKind::Persist => "persist",
            TimerKind::Keepalive => "keepalive",
            TimerKind::TimeWait => "timewait",
        },
        "left_us": micros(timer.left),
        "expiries": timer.expiries,
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
