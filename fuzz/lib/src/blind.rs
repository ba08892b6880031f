//! Segments of a sender that cannot prove that it is the peer, beside a transfer.
//!
//! Each such segment fails the sequence check, the check of its ACK (RFC 5961 section 5), PAWS, or the rules for RST and SYN, and
//! is otherwise as harmful as the bytes make it. Invariants: it delivers nothing, acknowledges nothing and reports nothing; it
//! leaves the whole state of the pcb, as its `Debug` prints it, unchanged, except for the challenge that is owed and its time;
//! the answers are acknowledgments without text, within the limit of challenges; and the peer's stream arrives completely.
//! Text with an old timestamp is answered each time. One kind may do more: text from before our latest acknowledgment that has a plausible one, also with an old timestamp, is the same as text that the peer
//! repeats, so it is answered each time, and may be reported (D-SACK) and end request-response mode. `docs/blind.md` has the table.
//! Tests: `tests/corpus.rs`.

use core::time::Duration;

use arbitrary::{Result, Unstructured};
use sockeye_proto::seq::SeqNum;
use sockeye_proto::tcp::accecn::SynEcn;
use sockeye_proto::tcp::accepted::{Accepted, SynAcks, TimestampState};
use sockeye_proto::tcp::events::{Events, Input, Transmit};
use sockeye_proto::tcp::pcb::Pcb;
use sockeye_proto::tcp::sack::SackBlock;
use sockeye_proto::tcp::segment::{Flags, Header, Options, Payload, Timestamps};
use sockeye_proto::tcp::settings::Settings;
use sockeye_proto::tcp::state::State;
use sockeye_proto::tcp::user_timeout::UserTimeout;
use sockeye_proto::time::Instant;

use crate::segments::{Text, near, place};

/// Steps of one input.
const STEPS_MAX: usize = 400;
/// Segments of one poll.
const BURST_MAX: usize = 10_000;
/// Room of both buffers, bytes.
const BUFFER: u32 = 256 << 10;
/// The peer's window, bytes, which is not scaled.
const WND: u16 = 60_000;
/// TSval of the peer's first segment.
const CLOCK: u32 = 100;
/// The time between two challenges of a connection, at least (`input/challenge.rs`).
const CHALLENGE_INTERVAL_MS: u64 = 500;
const ISS: u32 = u32::MAX - 5000;
const IRS: u32 = u32::MAX - 9000;

/// The fields that a challenge changes.
const CHALLENGED: &[&str] = &["ack_now: ", "is_challenged: ", "challenged_at_ms: "];
/// The further fields that text changes if it may be the peer's own.
const REPEATED: &[&str] = &["reass: ", "acks: ", "ato_us: ", "rcv_last_len: "];

struct Bed {
    pcb: Pcb<Text>,
    now: Instant,
    /// Bytes in `so_snd`.
    snd: u32,
    /// The next byte that the application would read.
    next: SeqNum,
    /// The number of the latest acknowledgment that was sent.
    told: SeqNum,
    /// The sequence number that the peer sends next.
    peer: SeqNum,
    /// Text that the peer has sent, and that has not arrived: a hole.
    hole: Option<Text>,
    timestamps: bool,
    /// When the last challenge left.
    challenged_at: Option<Instant>,
}

/// A segment of the attacker's.
struct Forged {
    header: Header,
    len: u16,
    /// It may be taken for text that the peer repeats.
    is_plausible: bool,
    /// Its timestamp is old, its acknowledgment is not wrong.
    is_old: bool,
}

/// See the module's head.
pub fn blind(data: &[u8]) {
    let mut u = Unstructured::new(data);
    let Ok(mut bed) = Bed::new(&mut u) else { return };
    for _ in 0..STEPS_MAX {
        if u.is_empty() || bed.step(&mut u).is_err() {
            break;
        }
    }
    bed.end();
}

impl Bed {
    fn new(u: &mut Unstructured<'_>) -> Result<Self> {
        let settings = Settings {
            rcv_buf: BUFFER,
            rcv_buf_max: BUFFER,
            sack: u.arbitrary()?,
            timestamps: u.ratio(3, 4)?,
            nodelay: u.arbitrary()?,
            user_timeout_option: true,
            ..Settings::default()
        };
        let now = Instant::from_micros(1_000_000);
        let accepted = Accepted {
            iss: SeqNum::new(ISS),
            irs: SeqNum::new(IRS),
            peer_mss: 1460,
            snd_wnd: u32::from(WND),
            rcv_wnd: 60_000,
            window_scale: None,
            timestamps: settings.timestamps.then_some(TimestampState {
                ts_recent: CLOCK,
                ts_recent_at: now,
                ts_offset: 0,
            }),
            sack_permitted: settings.sack,
            ecn: u.arbitrary()?,
            accurate_ecn: u.ratio(1, 3)?.then(SynEcn::default),
            rtt: Some(Duration::from_millis(10)),
            syn_acks: SynAcks::One,
            rehashes: 0,
        };
        let first = SeqNum::new(IRS) + 1;
        let mut bed = Self {
            pcb: Pcb::accept(&settings, &accepted, now),
            now,
            snd: 0,
            next: first,
            told: first,
            peer: first,
            hole: None,
            timestamps: settings.timestamps,
            challenged_at: None,
        };
        bed.output();
        Ok(bed)
    }

    fn step(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        match u.int_in_range(0..=15u8)? {
            0..=1 => self.peer_text(u.int_in_range(1..=1460)?),
            2 => self.peer_skips(u.int_in_range(1..=1460)?),
            3 => self.peer_sends(self.peer, 0, Flags::ACK),
            4 => {
                self.snd = (self.snd + u.int_in_range(1..=20_000)?).min(BUFFER);
                self.output();
            }
            5 => self.pass(u.int_in_range(0..=100_000)?),
            _ => {
                let forged = self.forged(u)?;
                self.attack(&forged);
            }
        }
        Ok(())
    }

    fn clock(&self) -> u32 {
        CLOCK.wrapping_add(u32::try_from(self.now.as_millis()).unwrap_or(u32::MAX))
    }

    fn timestamps(&self, val: u32) -> Option<Timestamps> {
        self.timestamps.then_some(Timestamps { val, ecr: 0 })
    }

    /// The peer acknowledges everything with each segment.
    fn peer_sends(&mut self, seq: SeqNum, len: u32, flags: Flags) {
        let options = Options { timestamps: self.timestamps(self.clock()), ..Options::default() };
        let ack = self.pcb.snd_max();
        let header = Header { seq, ack, flags, window: WND, urgent: 0, gso_size: 0, options };
        let input = self.feed(&header, len);
        self.snd -= input.acked;
        if !input.deliver.is_empty() {
            assert_eq!(input.deliver.start, self.next, "bytes out of order");
            self.next += input.deliver.len;
        }
        self.output();
    }

    /// The next text, or the text that was left out.
    fn peer_text(&mut self, len: u32) {
        let text = match self.hole.take() {
            Some(hole) => hole,
            None => {
                self.peer += len;
                Text { start: self.peer - len, len }
            }
        };
        self.peer_sends(text.start, text.len, Flags::ACK);
    }

    /// Text arrives before text that was sent earlier.
    fn peer_skips(&mut self, len: u32) {
        if self.hole.is_none() {
            self.hole = Some(Text { start: self.peer, len });
            self.peer += 2 * len;
            self.peer_sends(self.peer - len, len, Flags::ACK);
        }
    }

    fn pass(&mut self, micros: u64) {
        self.now = self.now + Duration::from_micros(micros);
        let outcome = self.pcb.on_timer(self.now);
        assert!(!outcome.events.has(Events::CLOSED), "the peer acknowledges received text");
        self.output();
    }

    fn feed(&mut self, header: &Header, len: u32) -> Input<Text> {
        let start = header.seq + u32::from(header.flags.has(Flags::SYN));
        self.pcb.on_segment(header, Text { start, len }, self.now)
    }

    fn output(&mut self) -> Vec<Transmit> {
        let mut sent = Vec::new();
        while let Some(segment) = self.pcb.poll_transmit(self.snd, BUFFER, self.now) {
            sent.push(segment);
            self.told = self.pcb.rcv_nxt();
            assert!(sent.len() < BURST_MAX, "a poll that never ends");
        }
        sent
    }

    /// A segment that fails one of the checks.
    fn forged(&self, u: &mut Unstructured<'_>) -> Result<Forged> {
        let (nxt, una, max) = (self.pcb.rcv_nxt(), self.pcb.snd_una(), self.pcb.snd_max());
        let wnd = self.pcb.rcv_adv().since(nxt);
        let far = u.int_in_range(1..=1u32 << 29)?;
        let harmful = Flags::from_bits(u.arbitrary()?).without(Flags::RST).without(Flags::SYN);
        let mut header = Header {
            seq: place(nxt, near(u)?),
            ack: place(una, 0),
            flags: harmful.with(Flags::ACK),
            window: u.arbitrary()?,
            urgent: u.arbitrary()?,
            gso_size: 0,
            options: self.harmful_options(u, una)?,
        };
        let mut len = if u.arbitrary()? { u.int_in_range(0..=2000)? } else { u.int_in_range(0..=2)? };
        let (mut is_plausible, mut is_old) = (false, false);
        match u.int_in_range(0..=7u8)? {
            0 => header.ack = max + far,
            1 => header.ack = una - u32::from(WND) - far,
            2 => header.flags = harmful.without(Flags::ACK),
            3 => {
                header.flags = header.flags.with(Flags::SYN);
                header.ack = place(una, near(u)?);
            }
            // In the window but not at its beginning, or outside.
            4 => {
                (header.flags, header.seq) =
                    (Flags::RST.with(harmful), nxt + u.int_in_range(1..=2 * wnd + 1)?)
            }
            5 if self.timestamps => {
                // Older than a duplicate acknowledgment may be (1.2 retransmission timeouts).
                header.options.timestamps = self.timestamps(CLOCK.wrapping_sub(150_000 + far));
                is_old = true;
            }
            6 => {
                header.seq = self.pcb.rcv_adv() + 2 + far;
                is_plausible = true;
            }
            _ => {
                let back = u.int_in_range(2..=30_000u32)?;
                header.seq = self.told - back;
                header.flags = harmful.without(FIN).with(Flags::ACK);
                len = len.min(u16::try_from(back - 1).unwrap_or(u16::MAX));
                is_plausible = true;
            }
        }
        Ok(Forged { header, len, is_plausible, is_old })
    }

    /// Options that would do harm if they were taken.
    fn harmful_options(&self, u: &mut Unstructured<'_>, una: SeqNum) -> Result<Options> {
        let val = self.clock().wrapping_add(u.int_in_range(0..=1u32 << 30)?);
        let mut options = Options { timestamps: self.timestamps(val), ..Options::default() };
        if u.arbitrary()? {
            let start = place(una, near(u)?);
            options.sack.push(SackBlock { start, end: place(start, near(u)?) });
        }
        if u.arbitrary()? {
            options.user_timeout = Some(UserTimeout::new(Duration::from_secs(u.int_in_range(1..=5000)?)));
        }
        Ok(options)
    }

    fn attack(&mut self, forged: &Forged) {
        // Work that is due by now is due without the attack.
        self.pass(0);
        let has_length = forged.len > 0 || forged.header.flags.has(FIN);
        let is_repeated = forged.is_old && has_length && forged.header.seq.before(self.pcb.rcv_nxt());
        let allowed: Vec<_> = if forged.is_plausible || is_repeated {
            [CHALLENGED, REPEATED].concat()
        } else {
            CHALLENGED.to_vec()
        };
        let before = self.state_without(&allowed);
        let input = self.feed(&forged.header, u32::from(forged.len));
        let header = &forged.header;
        assert!(input.deliver.is_empty() && input.acked == 0, "{header:?} {input:?}");
        assert!(input.reply.is_none() && input.events.is_empty(), "{header:?} {input:?}");
        assert_eq!(self.state_without(&allowed), before, "{header:?}, {} bytes", forged.len);
        let answers = self.output();
        // Text that has waited behind a timer's repair leaves with the next segment that may be the peer's own.
        if !forged.is_plausible {
            let is_one_at_most = answers.iter().all(|answer| answer.len == 0) && answers.len() <= 1;
            assert!(is_one_at_most, "{header:?} {answers:?}");
            let is_limited = !forged.is_old || !has_length;
            if is_limited && !answers.is_empty() {
                self.note_challenge();
            }
        }
    }

    /// The state of the connection, without some fields. A flag that the next output takes back may change, where there is one.
    fn state_without(&self, fields: &[&str]) -> String {
        without(format!("{:?}", self.pcb), fields).replace("is_looked_at: true", "is_looked_at: false")
    }

    fn note_challenge(&mut self) {
        let (now_ms, last) = (self.now.as_millis(), self.challenged_at.replace(self.now));
        if let Some(last) = last {
            assert!(
                now_ms - last.as_millis() >= CHALLENGE_INTERVAL_MS,
                "challenges at {last:?} and {:?}",
                self.now
            );
        }
    }

    /// The peer's stream and ours complete as if nothing had happened.
    fn end(&mut self) {
        self.peer_text(1);
        self.peer_text(1);
        for _ in 0..BURST_MAX {
            if self.snd == 0 {
                break;
            }
            let at = self.pcb.next_deadline().filter(|_| self.pcb.snd_max() == self.pcb.snd_una());
            self.pass(at.map_or(1000, |at| at.since(self.now).as_micros().try_into().unwrap_or(u64::MAX)));
            self.peer_sends(self.peer, 0, Flags::ACK);
        }
        assert_eq!((self.snd, self.next), (0, self.peer), "{:?}", self.pcb);
        self.peer_sends(self.peer, 0, FIN.with(Flags::ACK));
        assert_eq!(self.pcb.state(), State::CloseWait);
    }
}

const FIN: Flags = Flags::FIN;

/// The output of `Debug`, without the values of some fields.
fn without(mut text: String, fields: &[&str]) -> String {
    for field in fields {
        let Some(begin) = text.find(field) else { panic!("no field {field}") };
        let mut depth = 0_i32;
        let end = text[begin..].char_indices().find(|(_, c)| {
            depth += match c {
                '{' | '(' | '[' => 1,
                '}' | ')' | ']' => -1,
                _ => 0,
            };
            depth < 0 || (depth == 0 && *c == ',')
        });
        let end = end.map_or(text.len(), |(at, _)| begin + at);
        text.replace_range(begin..end, "");
    }
    text
}
