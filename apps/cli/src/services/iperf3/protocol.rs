//! The protocol of iperf3's control connection.
//!
//! ```text
//!   client                                   server
//!   cookie (37 bytes)          ───────────►
//!                              ◄───────────  PARAM_EXCHANGE, or ACCESS_DENIED while another test runs
//!   parameters (JSON)          ───────────►
//!                              ◄───────────  CREATE_STREAMS
//!   each stream: cookie (TCP), or a greeting and its answer (UDP)
//!                              ◄───────────  TEST_START, TEST_RUNNING
//!   …                                        …
//!   TEST_END                   ───────────►
//!                              ◄───────────  EXCHANGE_RESULTS
//!   results (JSON)             ───────────►
//!                              ◄───────────  results (JSON), DISPLAY_RESULTS
//!   IPERF_DONE                 ───────────►
//! ```
//!
//! A state is one byte; JSON has its length before it, four bytes, most significant first. Does not depend on how
//! data is moved. Invariant: input from the other end is read into types with bounds, or refused.
//!
//! Tests: below; with a stock client in `tests/cli/tun.rs`.

use std::io;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Names a test: its control connection and its streams begin with it. 36 characters and a NUL.
pub type Cookie = [u8; 37];

/// A state, as the byte that stands for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    TestStart,
    TestRunning,
    TestEnd,
    ParamExchange,
    CreateStreams,
    ServerTerminate,
    ClientTerminate,
    ExchangeResults,
    DisplayResults,
    IperfDone,
    AccessDenied,
    ServerError,
}

impl State {
    const ALL: [(State, i8); 12] = [
        (State::TestStart, 1),
        (State::TestRunning, 2),
        (State::TestEnd, 4),
        (State::ParamExchange, 9),
        (State::CreateStreams, 10),
        (State::ServerTerminate, 11),
        (State::ClientTerminate, 12),
        (State::ExchangeResults, 13),
        (State::DisplayResults, 14),
        (State::IperfDone, 16),
        (State::AccessDenied, -1),
        (State::ServerError, -2),
    ];

    fn code(self) -> u8 {
        Self::ALL.iter().find(|(state, _)| *state == self).map_or(0, |(_, code)| code.cast_unsigned())
    }

    fn of(code: u8) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| known.cast_unsigned() == code).map(|(state, _)| *state)
    }
}

/// Streams of a test in each direction, at most, as in iperf3.
pub const STREAMS_MAX: usize = 128;
/// Bytes of a write, at most, as in iperf3; of a datagram.
pub const BLOCK_MAX: usize = 1 << 20;
pub const DATAGRAM_MAX: usize = 65_507;
/// Bytes of a datagram's own header: seconds, microseconds, number.
pub const DATAGRAM_MIN: usize = 16;
/// Bytes of a JSON text, at most.
const JSON_MAX: u32 = 1 << 20;

/// The client's parameters, as far as they concern us.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Params {
    /// Over datagrams.
    #[serde(deserialize_with = "flag")]
    pub udp: bool,
    /// Over SCTP, which we do not speak.
    #[serde(deserialize_with = "flag")]
    pub sctp: bool,
    /// Seconds at the beginning that do not count.
    pub omit: u32,
    /// Seconds, or 0 if something else bounds the test.
    pub time: u64,
    /// Bytes of all streams of a direction together after which the client ends the test; 0 if its time does.
    pub num: u64,
    /// Streams in each direction; 0 is 1.
    pub parallel: usize,
    /// The server sends.
    #[serde(deserialize_with = "flag")]
    pub reverse: bool,
    /// Both send.
    #[serde(deserialize_with = "flag")]
    pub bidirectional: bool,
    /// Bytes of a write or datagram.
    pub len: usize,
    /// Bytes of the socket's buffers; 0 leaves them.
    pub window: usize,
    /// Bits a second of each stream; 0 for as many as go.
    pub bandwidth: u64,
    /// No Nagle.
    #[serde(deserialize_with = "flag")]
    pub nodelay: bool,
    /// Numbers of datagrams have 64 bits.
    #[serde(deserialize_with = "flag")]
    pub udp_counters_64bit: bool,
}

/// 1 and `true` are the same to iperf3.
fn flag<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    let value = Value::deserialize(deserializer)?;
    Ok(value.as_bool().unwrap_or_else(|| value.as_i64().is_some_and(|number| number != 0)))
}

/// Other ends count in signed numbers, and may come to less than nothing when datagrams come twice.
fn amount<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let value = Value::deserialize(deserializer)?;
    Ok(value.as_u64().unwrap_or_else(|| value.as_f64().unwrap_or_default().max(0.0) as u64))
}

/// Other ends write -1 as the largest number of 64 bits, too.
fn or_none<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    Ok(Value::deserialize(deserializer)?.as_i64().unwrap_or(-1))
}

impl Params {
    /// A requested option that cannot be had.
    pub fn refusal(&self) -> Option<String> {
        let len_max = if self.udp { DATAGRAM_MAX } else { BLOCK_MAX };
        let len_min = if self.udp { DATAGRAM_MIN } else { 1 };
        if self.sctp {
            Some("SCTP is not spoken here".to_owned())
        } else if self.parallel > STREAMS_MAX {
            Some(format!("{} streams: {STREAMS_MAX} are possible", self.parallel))
        } else if !(len_min..=len_max).contains(&self.len) {
            Some(format!("blocks of {} bytes: {len_min} to {len_max} are possible", self.len))
        } else {
            None
        }
    }

    /// A client's report of them. A flag is set by being there, whatever its value, so those that are not are left out.
    pub fn wishes(&self) -> Value {
        let mut wishes = json!({
            "omit": self.omit, "time": self.time, "num": self.num, "blockcount": 0, "parallel": self.parallel.max(1),
            "len": self.len, "bandwidth": self.bandwidth, "pacing_timer": 1000, "client_version": "3.12",
        });
        let flags = [
            (if self.udp { "udp" } else { "tcp" }, true),
            ("reverse", self.reverse),
            ("bidirectional", self.bidirectional),
            ("nodelay", self.nodelay),
            ("udp_counters_64bit", self.udp && self.udp_counters_64bit),
        ];
        for (name, _) in flags.into_iter().filter(|(_, is_set)| *is_set) {
            wishes[name] = true.into();
        }
        if self.window > 0 {
            wishes["window"] = self.window.into();
        }
        wishes
    }

    /// Streams of the test.
    pub fn stream_count(&self) -> usize {
        self.receiving_count() + self.sending_count()
    }

    /// Whether the client sends on the stream of this index. In a test of both directions it does on those that it opens first.
    pub fn client_sends(&self, index: usize) -> bool {
        if self.bidirectional { index < self.receiving_count() } else { !self.reverse }
    }

    /// Streams on which we, the server, receive.
    pub fn receiving_count(&self) -> usize {
        if self.reverse && !self.bidirectional { 0 } else { self.parallel.max(1) }
    }

    /// Streams on which we send. In a test of both directions they come after those on which we receive.
    pub fn sending_count(&self) -> usize {
        if self.reverse || self.bidirectional { self.parallel.max(1) } else { 0 }
    }
}

/// The results of an end.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Results {
    /// Percent of a core.
    pub cpu_util_total: f64,
    pub cpu_util_user: f64,
    pub cpu_util_system: f64,
    /// 1 if `retransmits` of a stream is a number that means something.
    #[serde(deserialize_with = "or_none")]
    pub sender_has_retransmits: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion_used: Option<String>,
    pub streams: Vec<StreamResult>,
}

/// Of one stream.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamResult {
    pub id: usize,
    #[serde(deserialize_with = "amount")]
    pub bytes: u64,
    /// Segments sent again, or -1.
    #[serde(deserialize_with = "or_none")]
    pub retransmits: i64,
    /// Seconds.
    pub jitter: f64,
    /// Datagrams that did not come.
    #[serde(deserialize_with = "amount")]
    pub errors: u64,
    #[serde(deserialize_with = "amount")]
    pub omitted_errors: u64,
    #[serde(deserialize_with = "amount")]
    pub packets: u64,
    #[serde(deserialize_with = "amount")]
    pub omitted_packets: u64,
    /// Seconds since the test began.
    pub start_time: f64,
    pub end_time: f64,
}

impl StreamResult {
    /// All of them together; the jitter is their mean.
    pub fn sum<'r>(results: impl ExactSizeIterator<Item = &'r Self>) -> Self {
        let count = results.len().max(1) as f64;
        results.fold(Self::default(), |mut sum, one| {
            sum.bytes = sum.bytes.saturating_add(one.bytes);
            sum.retransmits =
                if one.retransmits < 0 { -1 } else { sum.retransmits.saturating_add(one.retransmits) };
            sum.jitter += one.jitter / count;
            sum.errors = sum.errors.saturating_add(one.errors);
            sum.packets = sum.packets.saturating_add(one.packets);
            sum
        })
    }
}

/// The number that iperf3 gives to the stream of this index: there is no 2.
pub fn stream_id(index: usize) -> usize {
    if index == 0 { 1 } else { index + 2 }
}

/// Reads the cookie with which every connection begins.
pub async fn read_cookie(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Cookie> {
    let mut cookie = [0; 37];
    from.read_exact(&mut cookie).await?;
    Ok(cookie)
}

/// Tells a state.
pub async fn write_state(to: &mut (impl AsyncWrite + Unpin), state: State) -> io::Result<()> {
    to.write_all(&[state.code()]).await
}

/// Reads a state. One byte, so that waiting for it may be given up and begun again.
pub async fn read_state(from: &mut (impl AsyncRead + Unpin)) -> io::Result<State> {
    let mut code = [0];
    from.read_exact(&mut code).await?;
    State::of(code[0]).ok_or_else(|| invalid(format!("state {}", code[0].cast_signed())))
}

/// Reads the client's parameters, and refuses those beyond the bounds.
pub async fn read_params(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Params> {
    let params: Params = read_json(from).await?;
    params.refusal().map_or(Ok(params), |refusal| Err(invalid(refusal)))
}

/// Reads a JSON text.
pub async fn read_json<T: DeserializeOwned>(from: &mut (impl AsyncRead + Unpin)) -> io::Result<T> {
    let len = from.read_u32().await?;
    if len > JSON_MAX {
        return Err(invalid(format!("{len} bytes of JSON: {JSON_MAX} are possible")));
    }
    let mut text = Vec::new();
    from.take(u64::from(len)).read_to_end(&mut text).await?;
    serde_json::from_slice(&text).map_err(|error| invalid(error.to_string()))
}

/// Writes a JSON text.
pub async fn write_json(to: &mut (impl AsyncWrite + Unpin), value: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_vec(value)?;
    let len = u32::try_from(text.len()).map_err(|_| invalid("too long a text".to_owned()))?;
    let mut message = len.to_be_bytes().to_vec();
    message.extend(text);
    to.write_all(&message).await
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
    }

    fn framed(text: &str) -> Vec<u8> {
        let mut out = (text.len() as u32).to_be_bytes().to_vec();
        out.extend(text.as_bytes());
        out
    }

    #[test]
    fn the_parameters_of_a_stock_client_are_parsed() {
        let text = r#"{"tcp":true,"omit":0,"time":10,"num":0,"blockcount":0,"parallel":4,"reverse":true,
            "len":131072,"bandwidth":0,"pacing_timer":1000,"client_version":"3.12"}"#;
        let params = read(read_params(&mut framed(text).as_slice())).unwrap();
        assert_eq!((params.time, params.parallel, params.len), (10, 4, 131_072));
        assert_eq!((params.receiving_count(), params.sending_count()), (0, 4));
        let text = r#"{"udp":true,"len":1448,"bidirectional":true,"udp_counters_64bit":1}"#;
        let params = read(read_params(&mut framed(text).as_slice())).unwrap();
        assert!(params.udp_counters_64bit);
        assert_eq!((params.receiving_count(), params.sending_count()), (1, 1));
    }

    #[test]
    fn a_server_reads_the_parameters_that_a_client_writes_and_unset_flags_are_absent() {
        for params in [
            Params { parallel: 4, len: 131_072, time: 10, reverse: true, ..Params::default() },
            Params {
                parallel: 2,
                len: 1,
                num: 1 << 40,
                bidirectional: true,
                window: 65_536,
                ..Params::default()
            },
            Params {
                udp: true,
                udp_counters_64bit: true,
                len: 1448,
                parallel: 1,
                bandwidth: 7,
                ..Params::default()
            },
        ] {
            let wishes = params.wishes();
            assert_eq!(wishes.get("reverse").is_some(), params.reverse);
            assert_eq!(wishes.get("tcp").is_some(), !params.udp);
            let read = read(read_params(&mut framed(&wishes.to_string()).as_slice())).unwrap();
            assert_eq!(read, params);
        }
    }

    #[test]
    fn results_with_missing_or_negative_fields_are_read() {
        let text = r#"{"cpu_util_total":3.5,"sender_has_retransmits":18446744073709551615,"streams":[
            {"id":3,"bytes":5e9,"errors":-1,"retransmits":18446744073709551615}]}"#;
        let results: Results = read(read_json(&mut framed(text).as_slice())).unwrap();
        let stream = &results.streams[0];
        assert_eq!((stream.id, stream.bytes, stream.errors, stream.retransmits), (3, 5_000_000_000, 0, -1));
    }

    #[test]
    fn parameters_out_of_bounds_are_refused_with_the_bounds() {
        for (text, expected) in [
            (r#"{"len":0}"#, "1 to 1048576"),
            (r#"{"len":1048577}"#, "1 to 1048576"),
            (r#"{"udp":true,"len":15}"#, "16 to 65507"),
            (r#"{"len":1,"parallel":129}"#, "128"),
            (r#"{"len":1,"sctp":true}"#, "SCTP"),
            ("{", "EOF"),
        ] {
            let error = read(read_params(&mut framed(text).as_slice())).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let long = [0xff, 0xff, 0xff, 0xff];
        assert!(read(read_json::<Params>(&mut long.as_slice())).is_err());
    }

    #[test]
    fn states_are_one_byte_and_unknown_ones_are_errors() {
        let mut out = Vec::new();
        read(write_state(&mut out, State::AccessDenied)).unwrap();
        read(write_state(&mut out, State::ExchangeResults)).unwrap();
        assert_eq!(out, [255, 13]);
        let mut bytes = [4, 77].as_slice();
        assert_eq!(read(read_state(&mut bytes)).unwrap(), State::TestEnd);
        assert!(read(read_state(&mut bytes)).is_err());
        assert_eq!([0, 1, 2].map(stream_id), [1, 3, 4]);
    }
}
