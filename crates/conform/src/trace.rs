//! What a tested side did in a scenario: segments, results of calls, and its state before each next event.
//!
//! Both sides make the same records, whatever they are made from. `compare.rs` compares two traces. Tests: there.

use std::fmt;
use std::time::Duration;

use crate::codec::Packet;
use crate::scenario::Scenario;
use crate::segment::{Flags, Segment};

/// A trace, in the order in which things happened.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// The records.
    pub records: Vec<Record>,
    /// The machine was so busy that times and order may not be the tested side's: such a trace means nothing.
    pub is_disturbed: bool,
}

/// A record with its time since the scenario's begin.
#[derive(Clone, PartialEq, Debug)]
pub struct Record {
    /// When.
    pub at: Duration,
    /// What.
    pub what: What,
}

impl Record {
    /// The segment that the tested side sent, if it is one.
    pub fn segment(&self) -> Option<&Segment> {
        match &self.what {
            What::Sent(Packet::Tcp(segment)) => Some(segment),
            _ => None,
        }
    }
}

/// What was seen.
#[derive(Clone, PartialEq, Debug)]
pub enum What {
    /// The tested side sent this.
    Sent(Packet),
    /// The call of the event with this index returned so many bytes, or an error by number.
    Returned(usize, Result<u32, i32>),
    /// Text that was read is not what the peer's stream has there.
    Corrupt(usize),
    /// The state, before the event that follows the one with this index.
    State(usize, State),
}

/// The state of a connection.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct State {
    /// What a poll says.
    pub ready: Ready,
    /// TCP_INFO, if the socket is a connection's.
    pub info: Option<Info>,
}

/// What a poll says.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Ready {
    /// POLLIN.
    pub readable: bool,
    /// POLLOUT.
    pub writable: bool,
    /// POLLPRI.
    pub priority: bool,
    /// POLLRDHUP.
    pub read_closed: bool,
    /// POLLHUP.
    pub hung_up: bool,
    /// POLLERR.
    pub error: bool,
}

impl fmt::Debug for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = [
            (self.readable, 'r'),
            (self.writable, 'w'),
            (self.priority, 'p'),
            (self.read_closed, 'c'),
            (self.hung_up, 'h'),
            (self.error, 'e'),
        ];
        let letters: String = bits.iter().map(|(set, letter)| if *set { *letter } else { '-' }).collect();
        f.write_str(&letters)
    }
}

/// The figures of TCP_INFO that both sides have, in the kernel's units.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Info {
    /// `tcpi_state` in RFC 9293's words.
    pub state: &'static str,
    /// Figures that must be equal, by the kernel's names without `tcpi_`.
    pub figures: Vec<(&'static str, u64)>,
    /// `tcpi_rto`.
    pub rto: Duration,
}

impl Info {
    /// A figure.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.figures.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }
}

/// This figure from the latest of these records of the state that has it.
pub fn latest_figure(records: &[Record], name: &str) -> Option<u64> {
    records.iter().rev().find_map(|record| match &record.what {
        What::State(_, state) => state.info.as_ref()?.get(name),
        _ => None,
    })
}

impl Trace {
    /// The trace as lines, with the events between.
    pub fn lines(&self, scenario: &Scenario) -> Vec<String> {
        self.records.iter().map(|record| record.line(scenario)).collect()
    }
}

impl What {
    /// What the tested side does.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Sent(Packet::Tcp(segment)) if segment.len > 0 => "sends text",
            Self::Sent(Packet::Tcp(segment)) if segment.flags.numbers() > 0 => "sends SYN or FIN",
            Self::Sent(Packet::Tcp(segment)) if segment.flags.has(Flags::RST) => "sends a reset",
            Self::Sent(Packet::Tcp(segment)) if !segment.sack().is_empty() => {
                "sends an acknowledgment with SACK"
            }
            Self::Sent(Packet::Tcp(_)) => "sends an acknowledgment",
            Self::Sent(_) => "sends something else",
            Self::Returned(..) => "returns",
            Self::Corrupt(_) => "reads other bytes",
            Self::State(..) => "waits",
        }
    }
}

impl Record {
    /// One line.
    pub fn line(&self, scenario: &Scenario) -> String {
        let ms = self.at.as_secs_f64() * 1000.0;
        let of = |index: &usize| scenario.events.get(*index).map_or(String::new(), |e| e.action.to_string());
        match &self.what {
            What::Sent(Packet::Tcp(segment)) => format!("{ms:>8.1}  sent {segment}"),
            What::Sent(other) => format!("{ms:>8.1}  sent {other:?}"),
            What::Returned(index, Ok(count)) => format!("{ms:>8.1}  {} = {count}", of(index)),
            What::Returned(index, Err(number)) => {
                let error = std::io::Error::from_raw_os_error(*number);
                format!("{ms:>8.1}  {} = {error}", of(index))
            }
            What::Corrupt(index) => format!("{ms:>8.1}  {} read other bytes than the peer sent", of(index)),
            What::State(_, state) => format!("{ms:>8.1}  {state}"),
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ready {:?}", self.ready)?;
        let Some(info) = &self.info else { return Ok(()) };
        write!(f, " {} rto {}", info.state, info.rto.as_millis())?;
        for (name, value) in &info.figures {
            write!(f, " {name} {value}")?;
        }
        Ok(())
    }
}
