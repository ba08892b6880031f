//! A test as one JSON object, by the names of iperf3's.
//!
//! A subset: iperf3's data on itself and on its machine are left out. Does not depend on how it is measured.
//! Tests: below; against iperf3's own in `tests/cli/iperf3.rs`.

use std::io;

use serde_json::{Map, Value, json};

use crate::services::iperf3::client::{Ends, Interval, Measured, Moved, Show, Wishes};
use crate::services::iperf3::protocol::{Params, Results, StreamResult};

/// Collects the reports, for the end.
pub struct Json {
    params: Params,
    start: Map<String, Value>,
    intervals: Vec<Value>,
}

impl Json {
    pub fn new(wishes: &Wishes) -> Self {
        let start = json!({
            "version": concat!("sockeye ", env!("CARGO_PKG_VERSION")),
            "connecting_to": { "host": wishes.host, "port": wishes.to.port() },
        });
        Self { params: wishes.params.clone(), start: fields(start), intervals: Vec::new() }
    }

    /// The whole object, or the part that there is with the error.
    pub fn end(self, measured: io::Result<Measured>) -> Value {
        let Self { params, start, intervals } = self;
        let whole = json!({ "start": start, "intervals": intervals });
        let last = match measured {
            Ok(measured) => json!({ "end": end(&params, &measured) }),
            Err(error) => json!({ "end": {}, "error": error.to_string() }),
        };
        Value::Object(fields(whole).into_iter().chain(fields(last)).collect())
    }
}

impl Show for Json {
    fn connected(&mut self, params: &Params, streams: &[Ends]) {
        self.params = params.clone();
        let connected = streams.iter().map(|ends| {
            json!({
                "socket": ends.id,
                "local_host": ends.local.ip(), "local_port": ends.local.port(),
                "remote_host": ends.remote.ip(), "remote_port": ends.remote.port(),
            })
        });
        self.start.insert("connected".to_owned(), connected.collect());
        self.start.insert(
            "test_start".to_owned(),
            json!({
                "protocol": if params.udp { "UDP" } else { "TCP" },
                "num_streams": params.parallel, "blksize": params.len, "omit": params.omit,
                "duration": params.time, "bytes": params.num, "blocks": 0, "reverse": u8::from(params.reverse),
                "bidir": u8::from(params.bidirectional),
                "target_bitrate": params.bandwidth,
            }),
        );
    }

    fn passed(&mut self, interval: &Interval) {
        let spans = |bytes, sends| span(interval.start, interval.end, bytes, sends);
        let each = interval.streams.iter().map(|moved| self.moved(moved, spans(moved.bytes, moved.sends)));
        let sum = |sends: bool| {
            let of = interval.streams.iter().filter(|moved| moved.sends == sends);
            spans(of.map(|moved| moved.bytes).sum(), sends)
        };
        let mut object = json!({ "streams": each.collect::<Vec<Value>>(), "sum": sum(!self.params.reverse) });
        if self.params.bidirectional {
            object["sum_bidir_reverse"] = sum(false).into();
        }
        self.intervals.push(object);
    }
}

impl Json {
    fn moved(&self, moved: &Moved, mut object: Map<String, Value>) -> Value {
        object.insert("socket".to_owned(), moved.id.into());
        if let Some((again, window)) = moved.tcp {
            object.extend(fields(json!({ "retransmits": again, "snd_cwnd": window })));
        }
        if self.params.udp && !moved.sends {
            object.extend(datagrams(moved.jitter, moved.errors, moved.packets));
        } else if self.params.udp {
            object.insert("packets".to_owned(), moved.packets.into());
        }
        object.into()
    }
}

fn end(params: &Params, measured: &Measured) -> Value {
    let both = measured.ends(params);
    let object = |end: &StreamResult, is_sender: bool| {
        let mut object = span(0.0, measured.lasted, end.bytes, is_sender);
        if params.udp {
            object.extend(datagrams(end.jitter, end.errors, end.packets));
        } else if is_sender && end.retransmits >= 0 {
            object.insert("retransmits".to_owned(), end.retransmits.into());
        }
        object
    };
    let streams = both.iter().map(|(_, [sender, receiver])| {
        let numbered = |end: &StreamResult, is_sender| {
            object(end, is_sender)
                .into_iter()
                .chain([("socket".to_owned(), end.id.into())])
                .collect::<Map<_, _>>()
        };
        let [sender, receiver] = [numbered(sender, true), numbered(receiver, false)];
        // Of datagrams there is one object, whose loss and jitter are the receiver's.
        if params.udp {
            json!({ "udp": receiver })
        } else {
            json!({ "sender": sender, "receiver": receiver })
        }
    });
    let sum = |side: usize, sends: bool| {
        let of: Vec<_> = both.iter().filter(|(own, _)| *own == sends).map(|(_, ends)| &ends[side]).collect();
        object(&StreamResult::sum(of.into_iter()), side == 0)
    };
    // In a test of both directions the data that we sent; the other way has names of its own.
    let forth = !params.reverse;
    let [local, remote] = [&measured.own, &measured.server].map(load);
    let cpu = local.into_iter().map(|(name, value)| (format!("host_{name}"), value));
    let cpu = cpu.chain(remote.into_iter().map(|(name, value)| (format!("remote_{name}"), value)));
    let congestion = if params.reverse { &measured.server } else { &measured.own };
    let mut end = json!({
        "streams": streams.collect::<Vec<_>>(),
        "sum_sent": sum(0, forth),
        "sum_received": sum(1, forth),
        "cpu_utilization_percent": cpu.collect::<Map<_, _>>(),
        "sender_tcp_congestion": congestion.congestion_used,
    });
    if params.udp {
        end["sum"] = sum(1, forth).into();
    }
    if params.bidirectional {
        end["sum_sent_bidir_reverse"] = sum(0, false).into();
        end["sum_received_bidir_reverse"] = sum(1, false).into();
    }
    if params.udp && params.bidirectional {
        end["sum_bidir_reverse"] = sum(1, false).into();
    }
    end
}

/// A span of time, and the data moved in it.
fn span(start: f64, end: f64, bytes: u64, is_sender: bool) -> Map<String, Value> {
    let seconds = end - start;
    let rate = if seconds > 0.0 { 8.0 * bytes as f64 / seconds } else { 0.0 };
    fields(json!({
        "start": start, "end": end, "seconds": seconds, "bytes": bytes, "bits_per_second": rate, "omitted": false,
        "sender": is_sender,
    }))
}

fn datagrams(jitter: f64, lost: u64, all: u64) -> Map<String, Value> {
    let percent = if all > 0 { 100.0 * lost as f64 / all as f64 } else { 0.0 };
    fields(
        json!({ "jitter_ms": 1e3 * jitter, "lost_packets": lost, "packets": all, "lost_percent": percent }),
    )
}

fn load(results: &Results) -> [(&'static str, Value); 3] {
    [
        ("total", results.cpu_util_total.into()),
        ("user", results.cpu_util_user.into()),
        ("system", results.cpu_util_system.into()),
    ]
}

fn fields(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn wishes(params: Params) -> Wishes {
        let to = "10.9.0.1:5201".parse().unwrap();
        Wishes { host: "server.example".to_owned(), to, params, every: Duration::ZERO }
    }

    #[test]
    fn sums_cover_senders_and_receivers_on_either_side() {
        let result = |id, bytes| StreamResult { id, bytes, ..StreamResult::default() };
        let results = |streams| Results { streams, ..Results::default() };
        let measured = Measured {
            lasted: 2.0,
            own: results(vec![result(1, 1000), result(3, 2000)]),
            server: results(vec![result(3, 1900), result(1, 900)]),
        };
        let both = Params { bidirectional: true, parallel: 1, ..Params::default() };
        let object = &Json::new(&wishes(both)).end(Ok(measured.clone()))["end"];
        let bytes = |name: &str| object[name]["bytes"].as_u64();
        assert_eq!((bytes("sum_sent"), bytes("sum_received")), (Some(1000), Some(900)));
        let back = ["sum_sent_bidir_reverse", "sum_received_bidir_reverse"].map(bytes);
        assert_eq!(back, [Some(1900), Some(2000)]);
        for (reverse, sent, received) in [(false, 3000, 2800), (true, 2800, 3000)] {
            let params = Params { reverse, parallel: 2, ..Params::default() };
            let object = Json::new(&wishes(params)).end(Ok(measured.clone()));
            assert_eq!(object["end"]["sum_sent"]["bytes"], sent);
            assert_eq!(object["end"]["sum_received"]["bytes"], received);
            assert_eq!(object["end"]["sum_sent"]["bits_per_second"], 4.0 * f64::from(sent));
        }
    }

    #[test]
    fn an_error_is_reported_beside_the_available_results() {
        let object = Json::new(&wishes(Params::default())).end(Err(io::Error::other("the server is busy")));
        assert_eq!(
            (object["error"].as_str(), object["start"]["connecting_to"]["port"].as_u64()),
            (Some("the server is busy"), Some(5201))
        );
    }
}
