//! Handshakes with a listener whose peer is the test: reports of the network, retries, TCP_DEFER_ACCEPT, a full accept queue, and how
//! closed connections end.

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use rustix::io::Errno;
use sockeye::fastopen::{CLIENT, CLIENT_WITHOUT_COOKIE, SERVER, SERVER_WITHOUT_COOKIE};
use sockeye::{Config, TcpListener, TcpSocket, TcpStream};
use sockeye_proto::icmp::{Error, Family, Message, Problem, Unreachable};
use sockeye_proto::ip;
use sockeye_proto::seq::SeqNum;
use sockeye_proto::tcp::segment::{Flags, Header, Options};
use sockeye_proto::tcp::wire::{self, ChecksumIn, ChecksumOut, Ports};

use crate::host::{Host, OURS, icmp, inwards, packet};
use crate::segments::syn_ack as syn_ack_to;

const ISS: u32 = 1000;
const SYN_ACK: Flags = Flags::SYN.with(Flags::ACK);
const FIN_ACK: Flags = Flags::FIN.with(Flags::ACK);

/// A stack that listens on port 80, and a client of it.
struct World {
    host: Host,
    listener: TcpListener,
    family: Family,
    port: u16,
    /// Where the stack's numbers begin.
    theirs: u32,
}

impl World {
    fn new(family: Family, change: impl FnOnce(&mut Config), options: impl FnOnce(&mut TcpSocket)) -> Self {
        let host = Host::with(change);
        let (mut socket, addr) = match family {
            Family::V4 => (TcpSocket::new_v4(&host.stack), format!("{}:80", OURS[0])),
            Family::V6 => (TcpSocket::new_v6(&host.stack), format!("[{}]:80", OURS[1])),
        };
        socket.set_nonblocking(true);
        socket.bind(addr.parse().unwrap()).unwrap();
        options(&mut socket);
        Self { listener: socket.listen(1).unwrap(), host, family, port: 5000, theirs: 0 }
    }

    fn plain(change: impl FnOnce(&mut Config)) -> Self {
        Self::new(Family::V4, change, |_| {})
    }

    /// A segment of the client's: numbers count from the SYNs. Returns the answers.
    fn send(&mut self, flags: Flags, seq: u32, ack: u32, text: &[u8]) -> Vec<Answer> {
        let is_syn = flags.has(Flags::SYN);
        let header = Header {
            seq: SeqNum::new(ISS + seq),
            ack: SeqNum::new(self.theirs.wrapping_add(ack)),
            flags,
            window: 60_000,
            options: Options { mss: is_syn.then_some(1460), ..Options::default() },
            ..Header::default()
        };
        let (addresses, ports) = (inwards(self.family), Ports { src: self.port, dst: 80 });
        let mut bytes = vec![0; wire::header_len(&header)];
        let pseudo = addresses.pseudo_header(ip::PROTOCOL_TCP, (bytes.len() + text.len()) as u32);
        let checksum = ChecksumOut::Full(pseudo.add_bytes(text));
        wire::emit(ports, &header, checksum, &mut bytes).unwrap();
        bytes.extend_from_slice(text);
        let sent = self.host.send(&packet(addresses, ip::PROTOCOL_TCP, &bytes));
        self.read(sent)
    }

    fn read(&mut self, packets: Vec<Vec<u8>>) -> Vec<Answer> {
        let read = |bytes: &Vec<u8>| {
            let (_, range) = ip::parse(bytes, ip::HeaderChecksum::Verify).unwrap();
            let (_, header, text) = wire::parse(&bytes[range.clone()], ChecksumIn::Trusted).unwrap();
            (header, text.len())
        };
        let read: Vec<_> = packets.iter().map(read).collect();
        if let Some((syn_ack, _)) = read.iter().find(|(header, _)| header.flags == SYN_ACK) {
            self.theirs = syn_ack.seq.raw();
        }
        let answer = |(header, len): &(Header, usize)| Answer {
            flags: header.flags,
            seq: header.seq.raw().wrapping_sub(self.theirs),
            ack: header.ack.raw().wrapping_sub(ISS),
            len: *len,
        };
        read.iter().map(answer).collect()
    }

    /// Lets time pass; returns what was sent, with the second.
    fn pass(&mut self, seconds: u64) -> Vec<(u64, Answer)> {
        let mut sent = Vec::new();
        for second in 1..=seconds {
            let packets = self.host.pass(Duration::from_secs(1));
            sent.extend(self.read(packets).into_iter().map(|answer| (second, answer)));
        }
        sent
    }

    /// The network reports that a packet of the stack's with this number did not arrive.
    fn report(&mut self, error: Error, seq: u32) {
        let ports = Ports { src: 80, dst: self.port };
        let seq = SeqNum::new(self.theirs.wrapping_add(seq));
        let header = Header { seq, flags: SYN_ACK, ..Header::default() };
        let mut bytes = vec![0; wire::header_len(&header)];
        wire::emit(ports, &header, ChecksumOut::Omit, &mut bytes).unwrap();
        let quoted = packet(inwards(self.family).reversed(), ip::PROTOCOL_TCP, &bytes);
        let report = icmp(inwards(self.family), Message::Error(error), &quoted);
        assert!(self.host.send(&report).is_empty());
    }

    fn accept(&self) -> Option<TcpStream> {
        let (stream, _) = self.listener.accept().ok()?;
        stream.set_nonblocking(true).unwrap();
        Some(stream)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Answer {
    flags: Flags,
    seq: u32,
    ack: u32,
    len: usize,
}

fn syn_ack() -> Answer {
    Answer { flags: SYN_ACK, seq: 0, ack: 1, len: 0 }
}

#[test]
fn a_report_that_there_is_no_way_ends_a_handshake() {
    let host = Error::Unreachable(Unreachable::Host);
    let port = Error::Unreachable(Unreachable::Port);
    for (family, error, ends) in [
        (Family::V4, host, true),
        (Family::V4, Error::Unreachable(Unreachable::Network), true),
        (Family::V4, Error::HopLimitExceeded, true),
        (Family::V4, Error::ParameterProblem(Problem::Field, 20), true),
        (Family::V4, port, false),
        (Family::V4, Error::Unreachable(Unreachable::Prohibited), false),
        (Family::V4, Error::PacketTooBig(600), false),
        (Family::V6, host, false),
        (Family::V6, port, true),
        (Family::V6, Error::Unreachable(Unreachable::Prohibited), true),
        (Family::V6, Error::HopLimitExceeded, false),
    ] {
        let mut world = World::new(family, |_| {}, |_| {});
        assert_eq!(world.send(Flags::SYN, 0, 0, b""), [syn_ack()]);
        world.report(error, 1);
        world.report(error, u32::MAX);
        assert!(world.pass(1).len() == 1, "a number that was guessed changes nothing");
        world.report(error, 0);
        let answers = world.send(Flags::ACK, 1, 1, b"");
        let reset = Answer { flags: Flags::RST, seq: 1, ack: 0u32.wrapping_sub(ISS), len: 0 };
        assert_eq!(answers, if ends { vec![reset] } else { vec![] }, "{family:?} {error:?}");
        assert_eq!(world.accept().is_none(), ends);
    }
}

#[test]
fn a_report_ends_a_connection_by_fast_open_until_it_is_accepted() {
    let bits = SERVER | SERVER_WITHOUT_COOKIE;
    let fast = || World::new(Family::V4, |c| c.tcp.fastopen = bits, |s| s.set_fastopen(4));
    let error = Error::Unreachable(Unreachable::Host);
    let mut world = fast();
    assert_eq!(world.send(Flags::SYN, 0, 0, &[1; 10]), [Answer { ack: 11, ..syn_ack() }]);
    world.report(error, 5000);
    world.report(error, 0);
    let mut stream = world.accept().unwrap();
    assert_eq!(stream.read(&mut [0; 512]).unwrap(), 10);
    assert_eq!(stream.read(&mut [0; 512]).unwrap_err().kind(), ErrorKind::HostUnreachable);
    assert_eq!(stream.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
    let answers = world.send(Flags::ACK, 11, 1, b"");
    assert_eq!(answers.iter().map(|a| (a.flags, a.seq)).collect::<Vec<_>>(), [(Flags::RST, 1)]);
    let mut world = fast();
    world.send(Flags::SYN, 0, 0, &[1; 10]);
    let mut stream = world.accept().unwrap();
    world.report(error, 0);
    assert_eq!(stream.read(&mut [0; 512]).unwrap(), 10);
    assert_eq!(
        stream.read(&mut [0; 512]).unwrap_err().kind(),
        ErrorKind::WouldBlock,
        "it is the application's"
    );
    assert!(world.send(Flags::ACK, 11, 1, b"").is_empty());
}

#[test]
fn text_of_a_syn_that_was_not_taken_is_pushed_when_it_is_sent_again() {
    let mut host = Host::with(|c| c.tcp.fastopen = CLIENT | CLIENT_WITHOUT_COOKIE);
    let mut socket = TcpSocket::new_v4(&host.stack);
    socket.set_nonblocking(true);
    let (_stream, taken) = socket.connect_with("10.9.0.2:9".parse().unwrap(), &[7; 5000]).unwrap();
    let syn = host.turn();
    assert_eq!((taken, syn.len()), (1420, 1));
    let sent = host.send(&syn_ack_to(&syn[0]));
    let (_, range) = ip::parse(&sent[0], ip::HeaderChecksum::Verify).unwrap();
    let (_, header, text) = wire::parse(&sent[0][range], ChecksumIn::Trusted).unwrap();
    assert_eq!((sent.len(), text.len(), header.flags), (1, 1420, Flags::ACK.with(Flags::PSH)));
}

#[test]
fn a_listener_that_defers_wakes_its_application_for_text() {
    let defer = |socket: &mut TcpSocket| socket.set_defer_accept(Some(Duration::from_secs(5)));
    let world = || World::new(Family::V4, |_| {}, defer);
    let mut first = world();
    assert_eq!(first.listener.defer_accept().unwrap(), Some(Duration::from_secs(7)));
    first.send(Flags::SYN, 0, 0, b"");
    assert!(first.send(Flags::ACK, 1, 1, b"").is_empty() && first.accept().is_none());
    assert_eq!(first.pass(6), [], "the client has answered, and is not asked again");
    first.send(Flags::ACK, 1, 1, b"text");
    assert_eq!(first.accept().unwrap().read(&mut [0; 9]).unwrap(), 4);
    let mut late = world();
    late.send(Flags::SYN, 0, 0, b"");
    late.send(Flags::ACK, 1, 1, b"");
    assert_eq!(late.pass(7), [(7, syn_ack())]);
    late.send(Flags::ACK, 1, 1, b"");
    assert!(late.accept().is_some(), "the time is over");
    let mut off = world();
    off.listener.set_defer_accept(None).unwrap();
    off.send(Flags::SYN, 0, 0, b"");
    off.send(Flags::ACK, 1, 1, b"");
    assert!(off.accept().is_some());
}

#[test]
fn syn_acks_are_repeated_as_often_as_the_listener_or_the_stack_says() {
    let seconds = |world: &mut World| {
        world.send(Flags::SYN, 0, 0, b"");
        world.pass(200).iter().map(|(at, _)| *at).collect::<Vec<_>>()
    };
    assert_eq!(seconds(&mut World::plain(|_| {})), [1, 3, 7, 15, 31]);
    assert_eq!(seconds(&mut World::plain(|c| c.tcp.synack_retries = 2)), [1, 3]);
    assert_eq!(seconds(&mut World::plain(|c| c.tcp.synack_retries = 0)), []);
    let set = |socket: &mut TcpSocket| socket.set_syn_retries(3).unwrap();
    let mut world = World::new(Family::V4, |_| {}, set);
    assert_eq!(seconds(&mut world), [1, 3, 7]);
    world.listener.set_syn_retries(1).unwrap();
    assert_eq!(seconds(&mut world), [1]);
    for wrong in [0, 128] {
        let error = world.listener.set_syn_retries(wrong).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::INVAL.raw_os_error()));
    }
}

#[test]
fn a_connect_repeats_its_syn_as_often_as_it_was_told_on_the_way() {
    let mut host = Host::new();
    let mut socket = TcpSocket::new_v4(&host.stack);
    socket.set_syn_retries(100).unwrap();
    assert_eq!(socket.syn_retries(), Some(100));
    socket.set_nonblocking(true);
    let stream = socket.connect("10.9.0.2:9".parse().unwrap()).unwrap();
    assert_eq!((host.turn().len(), stream.syn_retries().unwrap()), (1, 100));
    stream.set_syn_retries(1).unwrap();
    assert_eq!(host.pass(Duration::from_millis(2900)).len(), 1);
    assert!(stream.take_error().unwrap().is_none());
    assert!(host.pass(Duration::from_millis(200)).is_empty());
    assert_eq!(stream.take_error().unwrap().unwrap().kind(), ErrorKind::TimedOut);
}

#[test]
fn a_timeout_is_no_longer_than_the_stack_or_the_socket_says() {
    // The seconds in which data is retransmitted.
    let seconds = |world: &mut World, set: Option<u64>| {
        world.send(Flags::SYN, 0, 0, b"");
        world.send(Flags::ACK, 1, 1, b"");
        let mut stream = world.accept().unwrap();
        if let Some(seconds) = set {
            stream.set_rto_max(Duration::from_secs(seconds)).unwrap();
        }
        stream.write_all(b"text").unwrap();
        world.host.turn();
        let sent: Vec<u64> = world.pass(30).iter().map(|(at, _)| *at).collect();
        assert!(stream.rto_max().unwrap() >= Duration::from_secs(1));
        sent
    };
    let longest_gap = |sent: &[u64]| sent.windows(2).map(|pair| pair[1] - pair[0]).max();
    assert!(longest_gap(&seconds(&mut World::plain(|_| {}), None)) > Some(10));
    let bounded = |c: &mut Config| c.tcp.rto_max = Duration::from_secs(2);
    assert_eq!(longest_gap(&seconds(&mut World::plain(bounded), None)), Some(2));
    assert_eq!(longest_gap(&seconds(&mut World::plain(bounded), Some(4))), Some(4));
    let set = |socket: &mut TcpSocket| socket.set_rto_max(Duration::from_secs(3)).unwrap();
    assert_eq!(longest_gap(&seconds(&mut World::new(Family::V4, |_| {}, set), None)), Some(3));
    let mut socket = TcpSocket::new_v4(&Host::new().stack);
    for wrong in [0, 999, 120_001] {
        let error = socket.set_rto_max(Duration::from_millis(wrong)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::INVAL.raw_os_error()));
    }
    assert_eq!(socket.rto_max(), Duration::from_secs(120));
}

#[test]
fn a_full_accept_queue_may_reset_its_clients() {
    for aborts in [false, true] {
        let mut world = World::plain(|c| c.tcp.abort_on_overflow = aborts);
        // Both SYNs come while there is room for one connection.
        for port in [5000, 5001] {
            world.port = port;
            world.send(Flags::SYN, 0, 0, b"");
            if port == 5000 {
                continue;
            }
            let answers = world.send(Flags::ACK, 1, 1, b"");
            assert!(answers.is_empty());
        }
        world.port = 5000;
        let repeated = world.pass(1);
        assert_eq!(repeated.len(), 1, "the first handshake is not done");
        let answers = world.send(Flags::ACK, 1, 1, b"");
        let flags: Vec<_> = answers.iter().map(|answer| answer.flags).collect();
        assert_eq!(flags, if aborts { vec![Flags::RST] } else { vec![] });
        assert_eq!(world.pass(2).is_empty(), aborts, "and goes on unless it was reset");
    }
}

#[test]
fn a_closed_connection_waits_for_the_fin_as_long_as_it_was_told() {
    let closed = |set: Option<Duration>, change: fn(&mut Config)| {
        let mut world = World::plain(change);
        world.send(Flags::SYN, 0, 0, b"");
        world.send(Flags::ACK, 1, 1, b"");
        let stream = world.accept().unwrap();
        stream.set_fin_timeout(set).unwrap();
        let time = stream.fin_timeout().unwrap();
        drop(stream);
        let sent = world.host.turn();
        assert_eq!(world.read(sent).iter().map(|a| a.flags).collect::<Vec<_>>(), [FIN_ACK]);
        let answers = world.send(Flags::ACK, 1, 2, b"");
        (world, time, answers)
    };
    for (set, change, seconds) in [
        (None, (|_| {}) as fn(&mut Config), 60),
        (None, |c: &mut Config| c.tcp.fin_timeout = Duration::from_secs(20), 20),
        (Some(Duration::from_secs(30)), |_| {}, 30),
        (Some(Duration::from_secs(500)), |_| {}, 120),
    ] {
        let (mut world, time, answers) = closed(set, change);
        assert_eq!((time, answers.len()), (Duration::from_secs(seconds), 0));
        world.pass(seconds - 1);
        assert_eq!(world.host.stack.connection_count(), 1);
        world.pass(2);
        assert_eq!(world.host.stack.connection_count(), 0);
    }
    let (world, time, answers) = closed(Some(Duration::ZERO), |_| {});
    let resets: Vec<_> = answers.iter().map(|answer| (answer.flags, answer.seq)).collect();
    assert_eq!((time, resets), (Duration::ZERO, vec![(Flags::RST, 2)]));
    assert_eq!(world.host.stack.connection_count(), 0);
}
