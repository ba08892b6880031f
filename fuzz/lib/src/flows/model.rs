//! A driven stack with a listener of flows, and the model of it: which flows there are, what waits in each, and how each has to end.
//!
//! Which flow a new one displaces is the stack's choice. So the model asks a held flow whether it has ended, and counts those that wait; the
//! sums have to agree with the stack's counters.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use arbitrary::{Result, Unstructured};
use sockeye::netif::{ChannelConfig, ChannelPort, Checksum, FrameBytes, LinkOptions, channel};
use sockeye::{Config, Stack, UdpBuilder, UdpFlow, UdpFlowConfig, UdpFlowListener, Unsent};
use sockeye_proto::icmp::{self, Message};
use sockeye_proto::ip;

use super::hook::Hook;
use super::packets::{self, HOSTS, Left, PAIRS, THEIRS};
use crate::port::assert_panics;

/// Time that passes at the end: longer than any idle time.
const REST: Duration = Duration::from_secs(3600);
/// Calls of `poll` for one moment, or for the end, at most.
const POLLS_MAX: usize = 20_000;
/// What the stack may be late by beyond a sixteenth of an idle time, at the granularity of its timers.
const LATE: Duration = Duration::from_millis(100);

/// A datagram: its number and its length.
type Text = (u32, usize);

/// A flow as the model knows it.
struct Known {
    pair: usize,
    /// What it is to receive.
    queue: VecDeque<Text>,
    /// When a datagram last went either way.
    last: Duration,
    idle: Option<Duration>,
    /// How much later it may end, after a change of its idle time.
    late: Duration,
    /// When its idle time was changed: it ends no earlier.
    changed: Duration,
    /// A port is unreachable, and no call has said so.
    has_error: bool,
    /// Of which listener it is: it counts there until it has ended.
    of: usize,
}

/// One that was accepted.
struct Held {
    known: Known,
    flow: UdpFlow,
    /// When it was seen to have ended.
    ended_at: Option<Duration>,
}

/// See the module's head.
pub struct Bed {
    pub stack: Stack,
    pub hook: Arc<Hook>,
    port: ChannelPort,
    listener: Option<UdpFlowListener>,
    config: UdpFlowConfig,
    /// Listeners that there were.
    listeners: usize,
    waiting: VecDeque<Known>,
    held: Vec<Held>,
    /// Flows that were dropped before they had ended, and after.
    dropped: [u64; 2],
    /// Flows that have ended earlier than their idle times.
    displaced_seen: u64,
    next: u32,
    /// What became of datagrams so far: flows begun, and those that were dropped, by reason.
    counted: [u64; 4],
    now: Duration,
}

impl Bed {
    pub fn new(u: &mut Unstructured<'_>) -> Result<Self> {
        let stack =
            Stack::seeded(Config { workers: 0, ..Config::default() }, [7; 16]).expect("valid settings");
        let now = Duration::from_secs(1);
        stack.poll(now);
        let channel_config = ChannelConfig { offload: true, queue_len: 4096, ..ChannelConfig::default() };
        let (netif, mut ports) = channel(&channel_config).expect("valid settings");
        let prefixes = ["10.9.0.1/24", "fd09::1/64"].map(|prefix| prefix.parse().expect("a prefix"));
        let mut quiet = LinkOptions::default();
        (quiet.accept_ra, quiet.link_local, quiet.detect_duplicates) = (false, false, false);
        let id = stack.attach_with(netif, &prefixes, &quiet).expect("an interface of its own");
        stack.set_any_address(id, true).expect("an interface of this stack");
        let mut config = UdpFlowConfig::default();
        config.flows_max = u.int_in_range(1..=6)?;
        config.backlog = u.int_in_range(1..=4)?;
        config.idle = idle(u)?;
        config.queued_max = u.int_in_range(0..=3usize)? * (16 << 10);
        let hook = Hook::new(&stack);
        let mut bed = Self {
            stack,
            hook,
            port: ports.remove(0),
            listener: None,
            config,
            listeners: 0,
            waiting: VecDeque::new(),
            held: Vec::new(),
            dropped: [0; 2],
            displaced_seen: 0,
            next: 0,
            counted: [0; 4],
            now,
        };
        bed.toggle_listener();
        Ok(bed)
    }

    pub fn count(&self, name: &str) -> u64 {
        self.counts([name])[0]
    }

    /// Counters by their names.
    pub fn counts<const N: usize>(&self, names: [&str; N]) -> [u64; N] {
        let all = self.stack.counters();
        names.map(|name| all.iter().find(|(of, _)| *of == name).expect("a counter of the stack's").1)
    }

    /// Gives the stack a packet, and returns what leaves.
    pub fn give(&mut self, packet: &[u8]) -> Vec<Left> {
        let bytes = FrameBytes { bytes: packet, checksum: Checksum::Device, gso_size: 0 };
        self.port.try_send(bytes).expect("a channel with room");
        self.turn()
    }

    /// Has the stack do what is due, and returns what leaves.
    pub fn turn(&mut self) -> Vec<Left> {
        for _ in 0..POLLS_MAX {
            if self.stack.poll(self.now).is_none_or(|next| next > self.now) {
                break;
            }
        }
        let frames = std::iter::from_fn(|| self.port.try_recv());
        let read = |frame: sockeye::netif::TxFrame| {
            let mut bytes = vec![0; frame.len()];
            frame.copy_to(&mut bytes);
            packets::read(&bytes)
        };
        frames.map(read).collect()
    }

    pub fn pass(&mut self, time: Duration) {
        self.now += time;
        self.left_nothing();
    }

    fn left_nothing(&mut self) {
        let left = self.turn();
        assert_eq!(left, [], "nothing has asked for it");
    }

    /// A datagram of a pair with `len` bytes and a number, and the model's word on where it went.
    pub fn datagram(&mut self, pair: usize, len: usize) {
        let (serial, len) = (self.next, len.max(4));
        self.next += 1;
        let live = self.live_of(pair);
        let names = ["udp_flows", "udp_flow_overflows", "udp_no_ports", "udp_rcvbuf_errors"];
        let (peer, asked) = packets::ends(pair);
        let left = self.give(&packets::datagram(peer, asked, &text(serial, len), 0));
        let after = self.counts(names);
        let before = std::mem::replace(&mut self.counted, after);
        let [flows, overflows, no_ports, too_much] = std::array::from_fn(|i| after[i] - before[i]);
        assert!(left.iter().all(|left| *left == Left::Other), "{left:?} left");
        assert!(left.is_empty() || no_ports == 1, "{left:?} left");
        match (flows, overflows, no_ports) {
            (1, 0, 0) => {
                assert!(self.listener.is_some() && self.waiting.len() < self.config.backlog);
                assert!(!matches!(live, Some(Live::Held(_))), "two flows of one pair");
                self.waiting.push_back(Known {
                    pair,
                    queue: VecDeque::new(),
                    last: self.now,
                    idle: self.config.idle,
                    late: Duration::ZERO,
                    changed: self.now,
                    has_error: false,
                    of: self.listeners,
                });
                self.arrived(Live::Waiting(self.waiting.len() - 1), (serial, len), too_much);
            }
            (0, 0, 0) => {
                let live = live.expect("a flow that the datagram went to");
                self.arrived(live, (serial, len), too_much);
            }
            (0, 1, 0) => {
                assert!(self.listener.is_some() && self.waiting.len() == self.config.backlog);
                assert!(!matches!(live, Some(Live::Held(_))), "dropped beside its flow");
            }
            (0, 0, 1) => {
                assert!(self.listener.is_none() && live.is_none(), "refused beside a socket");
            }
            other => panic!("a datagram has counted as {other:?}"),
        }
    }

    fn arrived(&mut self, live: Live, text: Text, too_much: u64) {
        let now = self.now;
        let known = self.known(live);
        known.last = now;
        match too_much {
            0 => known.queue.push_back(text),
            1 => assert!(!known.queue.is_empty(), "no room in an empty flow"),
            other => panic!("a datagram was dropped {other} times"),
        }
    }

    fn known(&mut self, live: Live) -> &mut Known {
        match live {
            Live::Waiting(at) => &mut self.waiting[at],
            Live::Held(at) => &mut self.held[at].known,
        }
    }

    /// The pair's flow, if it has one: of those that wait only the last can be alive, and it may have ended.
    fn live_of(&self, pair: usize) -> Option<Live> {
        let held = self.held.iter().position(|held| held.known.pair == pair && !held.flow.has_ended());
        let waiting = || self.waiting.iter().rposition(|known| known.pair == pair);
        held.map(Live::Held).or_else(|| waiting().map(Live::Waiting))
    }

    pub fn accept(&mut self) {
        let Some(listener) = &self.listener else { return };
        match listener.accept() {
            Ok((flow, peer)) => {
                let asked = flow.local_addr().expect("a name");
                let pair = packets::pair_of(peer, asked).expect("a pair that has sent something");
                let at =
                    self.waiting.iter().rposition(|known| known.pair == pair).expect("a flow that waits");
                // Those before it have ended in the queue: they are not accepted.
                let known = self.waiting.drain(..=at).next_back().expect("it is there");
                self.dropped[1] += at as u64;
                flow.socket().set_nonblocking(true).expect("a socket");
                self.held.push(Held { known, flow, ended_at: None });
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                assert_eq!(listener.flow_count(), self.live_count(), "a flow that waits was not accepted");
                self.dropped[1] += self.waiting.len() as u64;
                self.waiting.clear();
            }
        }
    }

    /// Held flows of the listener that have not ended.
    fn live_count(&self) -> usize {
        let is_live = |held: &&Held| held.known.of == self.listeners && !held.flow.has_ended();
        self.held.iter().filter(is_live).count()
    }

    pub fn receive(&mut self, which: u8) {
        let Some(at) = self.index(which) else { return };
        self.receive_at(at);
    }

    fn index(&self, which: u8) -> Option<usize> {
        usize::from(which).checked_rem(self.held.len())
    }

    /// Receives one datagram, or the error that there has to be. Returns whether there was one.
    fn receive_at(&mut self, at: usize) -> bool {
        let now = self.now;
        let Held { known, flow, .. } = &mut self.held[at];
        let mut bytes = [0; 1500];
        let got = flow.recv(&mut bytes);
        if std::mem::take(&mut known.has_error) {
            assert_eq!(got.expect_err("a pending error").kind(), ErrorKind::ConnectionRefused);
            return true;
        }
        match (got, known.queue.pop_front()) {
            (Ok(got), Some((serial, len))) => {
                assert_eq!(bytes[..got], text(serial, len), "not the next datagram");
                true
            }
            (Err(error), None) => {
                expect_end(known, flow.has_ended(), error.kind(), now);
                false
            }
            (got, expected) => panic!("{got:?} instead of {expected:?}"),
        }
    }

    pub fn send(&mut self, which: u8) {
        let Some(at) = self.index(which) else { return };
        let now = self.now;
        let Held { known, flow, .. } = &mut self.held[at];
        let sent = flow.send(b"answer");
        if std::mem::take(&mut known.has_error) {
            assert_eq!(sent.expect_err("a pending error").kind(), ErrorKind::ConnectionRefused);
            return self.left_nothing();
        }
        match sent {
            Ok(len) => {
                assert!(len == 6 && !flow.has_ended(), "a flow that has ended sends");
                known.last = now;
                let (peer, asked) = packets::ends(known.pair);
                assert_eq!(self.turn(), [Left::Datagram(asked, peer, b"answer".to_vec())]);
            }
            Err(error) => {
                assert!(flow.has_ended(), "{error}");
                expect_end(known, true, error.kind(), now);
                self.left_nothing();
            }
        }
    }

    /// The network says that a datagram of a pair's flow did not arrive.
    pub fn icmp_error(&mut self, which: u8, error: icmp::Error) {
        let pair = usize::from(which) % PAIRS;
        let (peer, asked) = packets::ends(pair);
        let quoted = packets::datagram(asked, peer, b"answer", 0);
        // One that waits may have ended, which nothing shows: the error is left out then.
        let live = self.live_of(pair);
        if matches!(live, Some(Live::Waiting(_))) {
            return;
        }
        let left = self.give(&packets::icmp(peer.ip(), asked.ip(), Message::Error(error), &quoted));
        assert_eq!(left, [], "an answer to an error");
        if let Some(live) = live.filter(|_| packets::is_fatal(error)) {
            self.known(live).has_error = true;
        }
    }

    /// Drops a flow: with what waits in it, after it was received, or with an error to its peer.
    pub fn leave(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let how = u.int_in_range(0..=3u8)?;
        let Some(at) = self.index(u.arbitrary()?) else { return Ok(()) };
        if how == 0 {
            while self.receive_at(at) {}
        }
        let Held { flow, known, .. } = self.held.swap_remove(at);
        self.dropped[usize::from(flow.has_ended())] += 1;
        let left = match how {
            2 => {
                let router = THEIRS[known.pair % 2];
                flow.report(Unsent::TimeExceeded, router, b"text").expect("packet memory");
                drop(flow);
                self.turn()
            }
            3 => {
                flow.reject(Unsent::PortUnreachable).expect("packet memory");
                self.turn()
            }
            _ => {
                drop(flow);
                self.turn()
            }
        };
        // Errors are limited in number.
        assert!(
            left.len() <= usize::from(how >= 2) && left.iter().all(|left| *left == Left::Other),
            "{left:?}"
        );
        Ok(())
    }

    pub fn set_idle(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let Some(at) = self.index(u.arbitrary()?) else { return Ok(()) };
        let idle = idle(u)?;
        let Held { known, flow, .. } = &mut self.held[at];
        flow.set_idle_timeout(idle).expect("not zero");
        assert_eq!(flow.idle_timeout().expect("a flow"), idle);
        if !flow.has_ended() {
            known.late = known.late.max(known.idle.unwrap_or_default() / 16);
            (known.idle, known.changed) = (idle, self.now);
        }
        self.left_nothing();
        Ok(())
    }

    /// The listener ends, and takes along the flows that wait; or there is one again.
    pub fn toggle_listener(&mut self) {
        if let Some(listener) = self.listener.take() {
            let live = listener.flow_count() - self.live_count();
            self.dropped[0] += live as u64;
            self.dropped[1] += (self.waiting.len() - live) as u64;
            self.waiting.clear();
            return;
        }
        let builder = UdpBuilder::new_v6(&self.stack).transparent(true).canonical_addrs(true);
        let listener =
            builder.recv_buffer_size(8 << 10).listen_any_flows(&self.config).expect("the only one");
        listener.set_nonblocking(true).expect("a listener");
        self.listeners += 1;
        self.listener = Some(listener);
    }

    /// A packet that is nobody's: of another protocol with any content, or a datagram that says it is longer.
    pub fn stray(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let version = usize::from(u.arbitrary::<bool>()?);
        if u.arbitrary()? {
            let (peer, asked) = packets::ends(packets::pair(u)?);
            let before = self.count("udp_in_bad_length");
            let left = self.give(&packets::datagram(peer, asked, b"longer", u.int_in_range(1..=9)?));
            assert_eq!((left, self.count("udp_in_bad_length")), (Vec::new(), before + 1));
            return Ok(());
        }
        let protocol = [ip::PROTOCOL_TCP, ip::PROTOCOL_IGMP][usize::from(u.arbitrary::<bool>()?)];
        let len = u.int_in_range(0..=100usize)?.min(u.len());
        let packet = packets::packet(THEIRS[version], HOSTS[version], protocol, u.bytes(len)?);
        // TCP may answer by a reset; IGMP over IPv6 is an unknown protocol, about which the hook is asked.
        if version == 0 || protocol == ip::PROTOCOL_TCP {
            let left = self.give(&packet);
            assert!(left.len() <= 1 && left.iter().all(|left| *left == Left::Other), "{left:?}");
        }
        Ok(())
    }

    /// The sums of the module's head, and the ends of flows that are held.
    pub fn check(&mut self) {
        let (now, mut ended) = (self.now, 0);
        for Held { known, flow, ended_at } in &mut self.held {
            let elapsed = now - known.last;
            let is_due = known.idle.is_some_and(|idle| {
                elapsed > idle + idle / 16 + known.late + LATE && now > known.changed + LATE
            });
            let has_ended = flow.has_ended();
            assert!(has_ended || !is_due, "a flow that is idle for {elapsed:?} of {:?} goes on", known.idle);
            if has_ended && ended_at.is_none() {
                *ended_at = Some(now);
                self.displaced_seen += u64::from(known.idle.is_none_or(|idle| elapsed < idle));
            }
            ended += u64::from(has_ended);
        }
        let [idle, displaced, begun] = self.counts(["udp_flows_idle", "udp_flows_displaced", "udp_flows"]);
        assert!(self.displaced_seen <= displaced, "a flow has ended before its time");
        let waiting = self.waiting.len();
        assert_eq!(begun, self.dropped[0] + self.dropped[1] + (self.held.len() + waiting) as u64);
        let Some(listener) = &self.listener else {
            assert_eq!(idle + displaced, self.dropped[1] + ended);
            return;
        };
        let count = listener.flow_count();
        assert!(count <= self.config.flows_max && waiting <= self.config.backlog, "{count} flows");
        let live = count.checked_sub(self.live_count()).expect("held flows count");
        assert_eq!(idle + displaced, self.dropped[1] + ended + (waiting - live) as u64, "places are lost");
    }

    /// Lets go of everything, and waits.
    pub fn end(mut self) {
        for at in 0..self.held.len() {
            while self.receive_at(at) {}
        }
        self.check();
        let Self { stack, hook, port, listener, held, now, .. } = self;
        drop((listener, held));
        let panics = hook.end();
        let (until, mut at) = (now + REST, now);
        for _ in 0..POLLS_MAX {
            while port.try_recv().is_some() {}
            match stack.poll(at).filter(|next| *next <= until) {
                Some(next) => at = next.max(at + Duration::from_micros(1)),
                None => break,
            }
        }
        assert_eq!(stack.sockets(true).len(), 0, "sockets without a holder");
        assert_eq!(stack.memory_in_use(), 0, "packet memory without a holder");
        assert_panics(&stack, panics);
    }
}

/// Where a flow is.
#[derive(Clone, Copy)]
enum Live {
    Waiting(usize),
    Held(usize),
}

/// A call on a flow with nothing in it has failed so.
fn expect_end(known: &Known, has_ended: bool, kind: ErrorKind, now: Duration) {
    match kind {
        ErrorKind::WouldBlock => assert!(!has_ended),
        ErrorKind::TimedOut => {
            let is_due = known.idle.is_some_and(|idle| now - known.last >= idle);
            assert!(has_ended && is_due, "idle for {:?} of {:?}", now - known.last, known.idle);
        }
        ErrorKind::ConnectionAborted => assert!(has_ended),
        other => panic!("{other:?}"),
    }
}

/// An idle time, also a short one.
fn idle(u: &mut Unstructured<'_>) -> Result<Option<Duration>> {
    Ok(match u.int_in_range(0..=4u8)? {
        0 => None,
        1 => Some(Duration::from_millis(u.int_in_range(1..=100)?)),
        2..=3 => Some(Duration::from_millis(u.int_in_range(500..=20_000)?)),
        _ => Some(Duration::from_secs(u.int_in_range(20..=300)?)),
    })
}

/// The bytes of a datagram with this number.
fn text(serial: u32, len: usize) -> Vec<u8> {
    let mut text = vec![serial as u8; len];
    text[..4].copy_from_slice(&serial.to_be_bytes());
    text
}
