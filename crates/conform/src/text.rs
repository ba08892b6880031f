//! Scenarios and segments as text, a line for each event.
//!
//! ```text
//! # The second of two segments comes first.
//! set ecn on
//! 0    listen 5
//! 0    peer S 0 win 65535 mss 1460 sackok ts 100 0 wscale 7
//! 20   peer A 1 ack 1 win 500 ts 120 last
//! 20   accept
//! 50   peer A 1001:2001 ack 1 win 500 ts 150 last
//! 60   peer PA 1:1001 ack 1 win 500 ts 160 last
//! ```
//!
//! The page `docs/reference/conformance.md` explains the words. What is printed is read back as the same. Tests: below.

use std::fmt::{self, Display, Write};
use std::str::FromStr;

use crate::codec::{self, MTU, OPTIONS_MAX, PACKET_MAX, Report, Reported};
use crate::scenario::{Action, Event, How, Question, Scenario, SockOpt};
use crate::segment::{Cookie, Echo, Flags, Opt, Segment};
use crate::settings;

/// Text that is no scenario: the line from 1, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TextError {
    /// The line.
    pub line: usize,
    /// What is wrong with it.
    pub why: String,
}

impl Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}

impl std::error::Error for TextError {}

impl FromStr for Scenario {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        let mut scenario = Self::default();
        for (number, line) in text.lines().enumerate() {
            let refused = |why| TextError { line: number + 1, why };
            let (words, comment) =
                line.split_once('#').map_or((line, ""), |(words, comment)| (words, comment));
            let words: Vec<&str> = words.split_whitespace().collect();
            if words.is_empty() {
                if scenario.events.is_empty() && !comment.trim().is_empty() {
                    scenario.about += if scenario.about.is_empty() { "" } else { "\n" };
                    scenario.about += comment.trim();
                }
                continue;
            }
            if words == ["ipv6"] && scenario.events.is_empty() {
                scenario.is_ipv6 = true;
                continue;
            }
            if words[0] == "set" && scenario.events.is_empty() {
                let [_, key, value] = words[..] else {
                    return Err(refused("write: set KEY VALUE".to_owned()));
                };
                settings::check(key, value).map_err(refused)?;
                scenario.settings.insert(key.to_owned(), value.to_owned());
                continue;
            }
            let at_ms = number_of(words[0]).map_err(refused)?;
            if scenario.events.last().is_some_and(|last| last.at_ms > at_ms) {
                return Err(refused("it is before the line above".to_owned()));
            }
            let action = action(&words[1..], scenario.is_ipv6).map_err(refused)?;
            scenario.events.push(Event { at_ms, action });
        }
        Ok(scenario)
    }
}

fn number_of<T: FromStr>(word: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("{word:?} is no number that fits here"))
}

fn action(words: &[&str], is_ipv6: bool) -> Result<Action, String> {
    Ok(match words {
        ["listen", backlog] => Action::Listen(number_of(backlog)?),
        ["connect"] => Action::Connect,
        ["connect", len] => Action::ConnectWith(number_of(len)?),
        ["again"] => Action::Again,
        ["accept"] => Action::Accept,
        ["read", len] => Action::Read(number_of(len)?),
        ["read", len, "inq"] => Action::ReadInq(number_of(len)?),
        ["peek", len] => Action::Peek(number_of(len)?),
        ["write", len] => Action::Write(number_of(len)?),
        ["write", len, "more"] => Action::WriteMore(number_of(len)?),
        ["write", len, "oob"] => Action::WriteUrgent(number_of(len)?),
        ["write", len, "eor"] => Action::WriteRecord(number_of(len)?),
        ["shutdown", "rd"] => Action::Shutdown(How::Read),
        ["shutdown", "wr"] => Action::Shutdown(How::Write),
        ["shutdown", "both"] => Action::Shutdown(How::Both),
        ["close"] => Action::Close,
        ["close", "listener"] => Action::CloseListener,
        ["error"] => Action::TakeError,
        ["wait"] => Action::Wait,
        ["opt", name, value] => Action::Set(option(name)?, number_of(value)?),
        ["getopt", name] => Action::Get(option(name)?),
        ["ask", what] => Action::Ask(question(what)?),
        [what, number, "about", seq] => {
            Action::Report(Report { what: reported(what, number, is_ipv6)?, seq: number_of(seq)? })
        }
        ["peer", rest @ ..] => Action::Segment(segment(rest, is_ipv6)?),
        _ => return Err(format!("{:?} is no event", words.join(" "))),
    })
}

/// Reads an option's name.
fn option(name: &str) -> Result<SockOpt, String> {
    let known = SockOpt::ALL.iter().find(|(word, _)| *word == name);
    known.map(|(_, option)| *option).ok_or_else(|| format!("no option is called {name}"))
}

/// Reads a question.
fn question(what: &str) -> Result<Question, String> {
    let known = Question::ALL.iter().find(|(word, _)| *word == what);
    known
        .map(|(_, question)| *question)
        .ok_or_else(|| format!("nothing is called {what} that could be asked"))
}

/// Reads what a report says.
fn reported(what: &str, number: &str, is_ipv6: bool) -> Result<Reported, String> {
    Ok(match what {
        "unreachable" if number == "4" && !is_ipv6 => {
            return Err("write for \"unreachable 4\": too-big MTU".to_owned());
        }
        "unreachable" => Reported::Unreachable(number_of(number)?),
        "too-big" if is_ipv6 => Reported::TooBig(number_of(number)?),
        "too-big" => Reported::TooBig(number_of::<u16>(number)?.into()),
        "time-exceeded" => Reported::TimeExceeded(number_of(number)?),
        "parameter-problem" => Reported::ParameterProblem(number_of(number)?),
        _ => return Err(format!("{what} is no report")),
    })
}

/// Reads a segment's words.
fn segment(words: &[&str], is_ipv6: bool) -> Result<Segment, String> {
    let [flags, range, rest @ ..] = words else { return Err("a segment has flags and a number".to_owned()) };
    let mut segment = Segment::default();
    for letter in flags.chars().filter(|letter| *letter != '.') {
        let bit = Flags::LETTERS.iter().position(|known| *known == letter);
        segment.flags.0 |= 1 << bit.ok_or_else(|| format!("{letter} is no flag"))?;
    }
    let (from, to) = range.split_once(':').unwrap_or((range, range));
    segment.seq = number_of(from)?;
    segment.len = number_of::<u32>(to)?.wrapping_sub(segment.seq);
    let mut words = rest.iter().copied();
    while let Some(word) = words.next() {
        let mut next = || words.next().ok_or_else(|| format!("{word} needs more"));
        match word {
            "ack" => segment.ack = number_of(next()?)?,
            "win" => segment.win = number_of(next()?)?,
            "urg" => segment.urg = number_of(next()?)?,
            "ecn" => segment.ecn = number_of(next()?)?,
            "joined" => segment.gso_size = number_of(next()?)?,
            "burst" => segment.burst = number_of(next()?)?,
            "corrupt" => segment.is_corrupt = true,
            "mss" => segment.options.push(Opt::Mss(number_of(next()?)?)),
            "wscale" => segment.options.push(Opt::Wscale(number_of(next()?)?)),
            "sackok" => segment.options.push(Opt::SackOk),
            "nop" => segment.options.push(Opt::Nop),
            "ts" => {
                let value = number_of(next()?)?;
                let echo = next()?;
                let echo = match echo {
                    "last" => Echo::Last,
                    "none" => Echo::Nothing,
                    number => Echo::Is(number_of(number)?),
                };
                segment.options.push(Opt::Ts(value, echo));
            }
            "sack" => {
                let blocks = next()?;
                if blocks.split(',').count() > BLOCKS_MAX {
                    return Err(format!(
                        "{blocks} are more blocks than the {BLOCKS_MAX} that a header has room for"
                    ));
                }
                segment.options.push(Opt::Sack(blocks.split(',').map(block).collect::<Result<_, _>>()?));
            }
            "fo" => segment.options.push(Opt::FastOpen(cookie(next()?)?)),
            "foexp" => segment.options.push(Opt::FastOpenExperiment(cookie(next()?)?)),
            "bytes" => segment.options.push(Opt::Bytes(hex(next()?)?)),
            "raw" => segment.options.push(Opt::Raw(number_of(next()?)?, hex(next()?)?)),
            _ => return Err(format!("{word} is no part of a segment")),
        }
    }
    checked(segment, range, is_ipv6)
}

/// A segment that the peer can send.
fn checked(segment: Segment, range: &str, is_ipv6: bool) -> Result<Segment, String> {
    let each = segment.gso_size.max(segment.burst);
    match codec::sizes(&segment, is_ipv6) {
        (options, _) if options > OPTIONS_MAX => {
            Err(format!("{options} bytes of options, and a header has room for {OPTIONS_MAX}"))
        }
        _ if segment.gso_size > 0 && segment.burst > 0 => {
            Err("joined segments are one packet, and a burst is several; a segment is one of them".to_owned())
        }
        (_, packet) if each == 0 && packet > MTU => Err(format!(
            "{range} is longer than a packet may be: a packet of {packet} bytes with its headers, and the device carries {MTU}; \"joined N\" makes it \
             segments of N bytes that the device has joined, and \"burst N\" several packets of N bytes"
        )),
        (_, packet) if packet > PACKET_MAX => Err(format!(
            "{range} is longer than a joined packet or a burst may be: {packet} bytes with headers, and at most {PACKET_MAX}"
        )),
        (_, packet) if packet - segment.len as usize + usize::from(each) > MTU => Err(format!(
            "segments of {each} bytes are longer than the device carries, which is {MTU} bytes with headers"
        )),
        _ => Ok(segment),
    }
}

/// SACK blocks that a header has room for.
const BLOCKS_MAX: usize = 4;

fn block(word: &str) -> Result<(u32, u32), String> {
    let (from, to) = word.split_once(':').ok_or_else(|| format!("{word} is no range"))?;
    Ok((number_of(from)?, number_of(to)?))
}

/// A cookie: `good`, or its bytes.
fn cookie(word: &str) -> Result<Cookie, String> {
    if word == "good" { Ok(Cookie::Good) } else { hex(word).map(Cookie::Is) }
}

/// Bytes in hexadecimal, `-` for none.
fn hex(word: &str) -> Result<Vec<u8>, String> {
    if word == "-" {
        return Ok(Vec::new());
    }
    if word.len() > 2 * OPTIONS_MAX {
        return Err(format!("{word} is longer than the {OPTIONS_MAX} bytes that a header has for options"));
    }
    let pair = |at| word.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    (0..word.len())
        .step_by(2)
        .map(|at| pair(at).ok_or_else(|| format!("{word} is not hexadecimal")))
        .collect()
}

fn hex_text(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "-".to_owned();
    }
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

impl Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in self.about.lines() {
            writeln!(f, "# {line}")?;
        }
        if self.is_ipv6 {
            writeln!(f, "ipv6")?;
        }
        for (key, value) in &self.settings {
            writeln!(f, "set {key} {value}")?;
        }
        for event in &self.events {
            writeln!(f, "{:<6} {}", event.at_ms, event.action)?;
        }
        Ok(())
    }
}

impl Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen(backlog) => write!(f, "listen {backlog}"),
            Self::Connect => write!(f, "connect"),
            Self::ConnectWith(len) => write!(f, "connect {len}"),
            Self::Again => write!(f, "again"),
            Self::Accept => write!(f, "accept"),
            Self::Read(len) => write!(f, "read {len}"),
            Self::ReadInq(len) => write!(f, "read {len} inq"),
            Self::Peek(len) => write!(f, "peek {len}"),
            Self::Write(len) => write!(f, "write {len}"),
            Self::WriteMore(len) => write!(f, "write {len} more"),
            Self::WriteUrgent(len) => write!(f, "write {len} oob"),
            Self::WriteRecord(len) => write!(f, "write {len} eor"),
            Self::Shutdown(How::Read) => write!(f, "shutdown rd"),
            Self::Shutdown(How::Write) => write!(f, "shutdown wr"),
            Self::Shutdown(How::Both) => write!(f, "shutdown both"),
            Self::Close => write!(f, "close"),
            Self::CloseListener => write!(f, "close listener"),
            Self::TakeError => write!(f, "error"),
            Self::Wait => write!(f, "wait"),
            Self::Set(option, value) => write!(f, "opt {} {value}", option.word()),
            Self::Get(option) => write!(f, "getopt {}", option.word()),
            Self::Ask(question) => write!(f, "ask {}", question.word()),
            Self::Report(Report { what, seq }) => write!(f, "{what} about {seq}"),
            Self::Segment(segment) => write!(f, "peer {segment}"),
        }
    }
}

impl Display for Reported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(code) => write!(f, "unreachable {code}"),
            Self::TooBig(mtu) => write!(f, "too-big {mtu}"),
            Self::TimeExceeded(code) => write!(f, "time-exceeded {code}"),
            Self::ParameterProblem(code) => write!(f, "parameter-problem {code}"),
        }
    }
}

impl Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = |bit: usize| self.flags.0 >> bit & 1 == 1;
        let letters: String =
            (0..Flags::LETTERS.len()).rev().filter(|bit| set(*bit)).map(|bit| Flags::LETTERS[bit]).collect();
        write!(f, "{} {}", if letters.is_empty() { "." } else { &letters }, self.seq)?;
        if self.len > 0 {
            write!(f, ":{}", self.seq.wrapping_add(self.len))?;
        }
        if self.ack != 0 || self.flags.has(Flags::ACK) {
            write!(f, " ack {}", self.ack)?;
        }
        write!(f, " win {}", self.win)?;
        let (urg, ecn, gso_size, burst) = (self.urg, self.ecn, self.gso_size, self.burst);
        for (word, value) in [("urg", urg), ("ecn", ecn.into()), ("joined", gso_size), ("burst", burst)] {
            if value != 0 {
                write!(f, " {word} {value}")?;
            }
        }
        for option in &self.options {
            write!(f, " {option}")?;
        }
        if self.ip.is_relabelled {
            write!(f, " relabelled")?;
        }
        if self.is_corrupt { write!(f, " corrupt") } else { Ok(()) }
    }
}

impl Display for Opt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mss(mss) => write!(f, "mss {mss}"),
            Self::Wscale(shift) => write!(f, "wscale {shift}"),
            Self::SackOk => write!(f, "sackok"),
            Self::Nop => write!(f, "nop"),
            Self::Sack(blocks) => {
                let blocks: Vec<String> = blocks.iter().map(|(from, to)| format!("{from}:{to}")).collect();
                write!(f, "sack {}", blocks.join(","))
            }
            Self::Ts(value, Echo::Last) => write!(f, "ts {value} last"),
            Self::Ts(value, Echo::Nothing) => write!(f, "ts {value} none"),
            Self::Ts(value, Echo::Is(echo)) => write!(f, "ts {value} {echo}"),
            Self::FastOpen(cookie) => write!(f, "fo {cookie}"),
            Self::FastOpenExperiment(cookie) => write!(f, "foexp {cookie}"),
            Self::Raw(kind, value) => write!(f, "raw {kind} {}", hex_text(value)),
            Self::Bytes(bytes) => write!(f, "bytes {}", hex_text(bytes)),
        }
    }
}

impl Display for Cookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Good => write!(f, "good"),
            Self::Is(bytes) => write!(f, "{}", hex_text(bytes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL_WORDS: &str = "\
# About
# two lines.
ipv6
set ecn on
0      listen 5
0      connect
0      again
0      connect 100
0      opt nodelay 1
0      peer S 0 win 65535 mss 1460 sackok ts 100 0 nop wscale 7 fo -
20     peer CEUAPRSF 1:1001 ack 1 win 500 urg 3 ecn 2 ts 120 last sack 5:6,9:12 raw 253 00ff
20     peer . 4294967295:4 win 0 fo good
20     peer . 0 win 0 foexp 0011
20     peer AP 1:3001 ack 1 win 500 burst 1000
20     accept
30     read 5
30     write 5
30     write 5 oob
30     write 5 eor
30     read 5 inq
30     peek 5
40     shutdown wr
40     error
40     getopt linger2
40     ask mark
40     ask unread
40     ask unacknowledged
40     unreachable 4 about 1
40     too-big 70000 about 1
40     time-exceeded 1 about 1
40     parameter-problem 0 about 1
41     close
41     close listener
50     wait
";

    #[test]
    fn what_is_printed_is_read_back() {
        let scenario: Scenario = ALL_WORDS.parse().unwrap();
        assert_eq!(scenario.events.len(), 30);
        let text = scenario.to_string().replace("CEUAPRSF", "FSRPAUEC");
        assert_eq!(text.parse::<Scenario>().unwrap(), scenario);
        assert_eq!(scenario.about, "About\ntwo lines.");
        assert_eq!(scenario.to_string(), ALL_WORDS);
    }

    #[test]
    fn a_wrong_line_is_named() {
        for (text, why) in [
            ("0 listen", "no event"),
            ("x listen 1", "no number"),
            ("5 connect\n4 close", "before the line above"),
            ("0 peer S", "flags and a number"),
            ("0 peer Z 1", "no flag"),
            ("0 peer S 1 mss", "needs more"),
            ("0 peer S 2:1", "longer than a packet"),
            ("0 peer A 1:1450 ack 1 win 1 nop nop ts 1 last", "a packet of 1501 bytes with its headers"),
            ("0 peer A 1 ack 1 win 1 sack 1:2,3:4,5:6,7:8,9:10", "more blocks than the 4"),
            ("0 peer A 1 ack 1 win 1 nop nop ts 1 last sack 1:2,3:4,5:6,7:8", "48 bytes of options"),
            (&format!("0 peer S 1 fo {}", "00".repeat(254)), "longer than the 40 bytes"),
            (
                "ipv6\n0 peer A 1:1430 ack 1 win 1 nop nop ts 1 last",
                "a packet of 1501 bytes with its headers",
            ),
            ("0 peer A 1:2001 ack 1 win 1 joined 1000 burst 1000", "a segment is one of them"),
            ("0 peer A 1:9001 ack 1 win 1 burst 1500", "longer than the device carries"),
            ("0 unreachable 4 about 1", "too-big MTU"),
            ("0 too-big 70000 about 1", "no number"),
            ("0 forgotten 4 about 1", "no report"),
            ("0 opt x 1", "no option"),
            ("0 getopt x", "no option"),
            ("0 ask x", "nothing is called x"),
            ("set x 1", "x"),
        ] {
            let error = text.parse::<Scenario>().unwrap_err();
            assert!(error.to_string().contains(why), "{error}");
            assert_eq!(error.line, text.lines().count());
        }
    }
}
