//! TCP_NOTSENT_LOWAT step by step: which events make a socket writable again, at how many unsent bytes, compared with the kernel.
//!
//! Blocking writers, with every pair of settings, are in `suite/notsent.rs`.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use crate::common::watchdog;
use rustix::event::{PollFd, PollFlags, Timespec};
use sockeye::netif::{ChannelConfig, ChannelPort, FrameBytes, channel};
use sockeye::poll::{Event, Events, Interest, Poll, Token, Trigger};
use sockeye::{Config, Stack, TcpConfig, TcpSocket, TcpStream};

/// A writer and a reader with a small window, on stacks without threads, whose frames the test carries.
struct World {
    stacks: [Stack; 2],
    ports: [ChannelPort; 2],
    now: Duration,
    writer: TcpStream,
    reader: TcpStream,
}

/// Bytes of the reader's buffer.
const WINDOW: usize = 4096;

impl World {
    fn new(lowat: u32) -> Self {
        let made = ["10.9.0.1/24", "10.9.0.2/24"].map(|addr| {
            let (netif, mut ports) = channel(&ChannelConfig::default()).unwrap();
            let stack = Stack::new(Config { workers: 0, ..Config::default() }).unwrap();
            stack.attach(netif, &[addr.parse().unwrap()]).unwrap();
            (stack, ports.remove(0))
        });
        let [(here, port), (there, far_port)] = made;
        let mut socket = TcpSocket::new_v4(&there);
        socket.set_recv_buffer_size(WINDOW);
        let at: SocketAddr = "10.9.0.2:7".parse().unwrap();
        socket.bind(at).unwrap();
        let listener = socket.listen(1).unwrap();
        listener.set_nonblocking(true).unwrap();
        let mut socket = TcpSocket::new_v4(&here);
        socket.set_nonblocking(true);
        socket.set_notsent_lowat(Some(lowat)).unwrap();
        let writer = socket.connect(at).unwrap();
        writer.set_nodelay(true).unwrap();
        let (stacks, ports, mut now) = ([here, there], [port, far_port], Duration::ZERO);
        let reader = loop {
            settle(&stacks, &ports, &mut now);
            if let Ok((reader, _)) = listener.accept() {
                break reader;
            }
        };
        reader.set_nonblocking(true).unwrap();
        Self { stacks, ports, now, writer, reader }
    }

    /// Everything arrives, delayed acknowledgments too.
    fn settle(&mut self) {
        settle(&self.stacks, &self.ports, &mut self.now);
    }

    /// Writes until the window is closed and the writer is refused: then all unacknowledged bytes are unsent.
    fn stall(&mut self) {
        loop {
            let result = self.writer.write(&[7; 100_000]);
            self.settle();
            match result {
                Ok(_) => {}
                Err(error) if self.not_sent() == self.writer.unacknowledged().unwrap() => {
                    return assert_eq!(error.kind(), ErrorKind::WouldBlock);
                }
                Err(_) => {}
            }
        }
    }

    /// The reader reads everything, and only its window update reaches the writer, which sends; these segments do not arrive.
    fn open_window(&mut self) {
        while self.reader.read(&mut [0; WINDOW]).is_ok_and(|len| len > 0) {}
        self.stacks[1].poll(self.now);
        assert!(carry(&self.ports[1], &self.ports[0]) > 0, "a window update");
        self.stacks[0].poll(self.now);
    }

    fn not_sent(&self) -> usize {
        self.writer.info().unwrap().not_sent as usize
    }
}

/// Moves all frames. Returns how many.
fn carry(from: &ChannelPort, to: &ChannelPort) -> usize {
    let mut count = 0;
    while let Some(frame) = from.try_recv() {
        let mut bytes = vec![0; frame.len()];
        frame.copy_to(&mut bytes);
        to.try_send(FrameBytes::from(&bytes[..])).unwrap();
        count += 1;
    }
    count
}

fn settle(stacks: &[Stack; 2], ports: &[ChannelPort; 2], now: &mut Duration) {
    for _ in 0..4 {
        loop {
            for stack in stacks {
                stack.poll(*now);
            }
            if carry(&ports[0], &ports[1]) + carry(&ports[1], &ports[0]) == 0 {
                break;
            }
        }
        // Past a delayed acknowledgment.
        *now += Duration::from_millis(50);
    }
}

fn watch(stream: &TcpStream, trigger: Trigger) -> Poll {
    let poll = Poll::new(Duration::ZERO);
    poll.register(stream, Token(0), Interest::WRITABLE, trigger).unwrap();
    poll
}

fn is_writable(poll: &Poll) -> bool {
    let mut events = Events::with_capacity(1);
    poll.wait(&mut events, Some(Duration::ZERO)).unwrap();
    events.iter().any(Event::is_writable)
}

#[test]
fn a_writer_is_notified_by_sending_alone_and_only_below_half_of_the_mark() {
    let _guard = watchdog("told by sending alone");
    for lowat in [2, 1000, 4096, 16_384, 40_000] {
        let mut world = World::new(lowat);
        world.stall();
        let mss = world.writer.info().unwrap().snd_mss as usize;
        // A packet that was begun below the mark is filled: here one segment, as half of the window has no second.
        let most = lowat as usize - 1 + mss;
        // A probe of the closed window takes what still fits into it, less than a segment.
        let not_sent = world.not_sent();
        assert!(not_sent <= most && not_sent + mss >= lowat as usize, "{lowat}: {not_sent} of {most}");
        let [level, edge] = [Trigger::Level, Trigger::Edge].map(|trigger| watch(&world.writer, trigger));
        let mut is_low = 2 * not_sent < lowat as usize;
        assert_eq!((is_writable(&level), is_writable(&edge)), (is_low, is_low), "{lowat}: of {not_sent}");
        while !is_low {
            let unacknowledged = world.writer.unacknowledged().unwrap();
            world.open_window();
            assert_eq!(world.writer.unacknowledged().unwrap(), unacknowledged, "nothing was acknowledged");
            is_low = 2 * world.not_sent() < lowat as usize;
            assert_eq!((is_writable(&level), is_writable(&edge)), (is_low, is_low), "{lowat}");
            if !is_low {
                world.settle();
                is_low = 2 * world.not_sent() < lowat as usize;
                let what = (is_writable(&level), is_writable(&edge));
                assert_eq!(what, (is_low, is_low), "{lowat}: after the acknowledgment");
            }
        }
        assert!(world.writer.write(&[7; 100_000]).is_ok());
        assert!(world.not_sent() <= most);
    }
}

#[test]
fn a_write_below_the_mark_is_accepted_without_a_notification() {
    let _guard = watchdog("between half of the mark and the mark");
    let mut world = World::new(9000);
    world.stall();
    world.open_window();
    world.settle();
    let not_sent = world.not_sent();
    assert!((4500..9000).contains(&not_sent), "{not_sent}");
    assert!(!is_writable(&watch(&world.writer, Trigger::Level)));
    // Up to the mark, and to the end of the segment that this is in.
    let (taken, mss) = (world.writer.write(&[7; 100_000]).unwrap(), world.writer.info().unwrap().snd_mss);
    assert!((9000 - not_sent..9000 - not_sent + mss as usize).contains(&taken), "{taken} at {not_sent}");
    assert_eq!(world.writer.write(&[7]).unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn changing_or_removing_the_mark_notifies_the_writers_that_it_admits() {
    let _guard = watchdog("another mark");
    for other in [None, Some(u32::MAX), Some(100_000)] {
        let mut world = World::new(3000);
        world.stall();
        let [level, edge] = [Trigger::Level, Trigger::Edge].map(|trigger| watch(&world.writer, trigger));
        assert!(!is_writable(&level) && !is_writable(&edge));
        world.writer.set_notsent_lowat(Some(3500)).unwrap();
        assert!(!is_writable(&level) && !is_writable(&edge));
        world.writer.set_notsent_lowat(other).unwrap();
        assert!(is_writable(&level) && is_writable(&edge), "{other:?}");
        assert!(world.writer.write(&[7; 30_000]).unwrap() > 10_000);
        world.writer.set_notsent_lowat(Some(1)).unwrap();
        assert!(!is_writable(&level));
        // The last segment may be filled.
        let mss = world.writer.info().unwrap().snd_mss as usize;
        assert!(world.writer.write(&[7; 30_000]).unwrap_or(0) < mss);
        assert_eq!(world.writer.write(&[7]).unwrap_err().kind(), ErrorKind::WouldBlock);
    }
}

#[test]
fn bytes_sent_before_there_was_a_mark_count_as_sent() {
    let _guard = watchdog("a mark in the middle");
    let mut world = World::new(u32::MAX);
    assert_eq!(world.writer.notsent_lowat().unwrap(), None);
    assert_eq!(world.writer.write(&[7; 3000]).unwrap(), 3000);
    // All of it is on its way, and nothing acknowledged.
    assert_eq!((world.not_sent(), world.writer.unacknowledged().unwrap()), (0, 3000));
    world.writer.set_notsent_lowat(Some(10)).unwrap();
    assert!(is_writable(&watch(&world.writer, Trigger::Level)));
    assert!(world.writer.write(&[7; 10]).is_ok());
    world.settle();
}

#[test]
fn marks_are_read_back_inherited_and_refused_at_zero() {
    let stack = Stack::new(Config {
        tcp: TcpConfig { notsent_lowat: 5000, ..TcpConfig::default() },
        ..Config::default()
    })
    .unwrap();
    let mut socket = TcpSocket::new_v4(&stack);
    assert_eq!(socket.set_notsent_lowat(Some(0)).unwrap_err().kind(), ErrorKind::InvalidInput);
    socket.set_notsent_lowat(Some(700)).unwrap();
    let listener = socket.listen(4).unwrap();
    let client = crate::common::connect(&stack, &listener);
    let server = listener.accept().unwrap().0;
    assert_eq!((client.notsent_lowat().unwrap(), server.notsent_lowat().unwrap()), (Some(5000), Some(700)));
    assert_eq!(client.set_notsent_lowat(Some(0)).unwrap_err().kind(), ErrorKind::InvalidInput);
    for (given, read) in [(Some(1), Some(1)), (Some(u32::MAX), None), (Some(9), Some(9)), (None, None)] {
        client.set_notsent_lowat(given).unwrap();
        assert_eq!(client.notsent_lowat().unwrap(), read);
    }
    let none = Stack::new(Config {
        tcp: TcpConfig { notsent_lowat: 0, ..TcpConfig::default() },
        ..Config::default()
    });
    assert!(none.unwrap_err().to_string().contains("notsent_lowat"));
}

const DELACK_MAX: Duration = Duration::from_millis(220);

/// Bytes of a write in the comparison with the kernel.
const PIECE: usize = 512;

/// Writes pieces to a reader that reads nothing until the socket is no longer writable, and returns the number of bytes
/// that are unsent then.
fn stops_at(
    mut write: impl FnMut(&[u8]),
    is_writable: impl Fn() -> bool,
    not_sent: impl Fn() -> usize,
) -> usize {
    loop {
        while is_writable() {
            write(&[7; PIECE]);
        }
        // Segments in flight are acknowledged within the kernel's longest delay, which may allow more to be sent: on a busy
        // machine later, so the test waits until a second delay changes nothing.
        std::thread::sleep(DELACK_MAX);
        let unsent = not_sent();
        std::thread::sleep(DELACK_MAX);
        if !is_writable() && not_sent() == unsent {
            return unsent;
        }
    }
}

/// Bytes written and not acknowledged of a connection of the kernel's, which are the unsent ones once all others have arrived. A port may be another socket's, too.
fn kernels_unacknowledged(stream: &std::net::TcpStream) -> usize {
    let ends = [stream.local_addr(), stream.peer_addr()].map(|addr| format!(":{:04X}", addr.unwrap().port()));
    let table = std::fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
    let is_own = |line: &&str| {
        let addrs = line.split_whitespace().skip(1).take(2);
        addrs.zip(&ends).filter(|(addr, port)| addr.ends_with(port.as_str())).count() == 2
    };
    let line = table.lines().find(is_own).unwrap();
    let queues = line.split_whitespace().nth(4).unwrap();
    usize::from_str_radix(queues.split_once(':').unwrap().0, 16).unwrap()
}

#[test]
fn a_socket_stops_being_writable_at_as_many_unsent_bytes_as_the_kernels() {
    let _guard = watchdog("beside the kernel");
    for lowat in [2, 3000, 16_384, 65_536] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let kernel = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let _reader = listener.accept().unwrap();
        kernel.set_nodelay(true).unwrap();
        kernel.set_nonblocking(true).unwrap();
        let options = socket2::SockRef::from(&kernel);
        options.set_send_buffer_size(8 << 20).unwrap();
        options.set_tcp_notsent_lowat(lowat).unwrap();
        let kernels = stops_at(
            |piece| drop((&kernel).write(piece)),
            || {
                let mut fds = [PollFd::new(&kernel, PollFlags::OUT)];
                rustix::event::poll(&mut fds, Some(&Timespec::default())).unwrap() > 0
            },
            || kernels_unacknowledged(&kernel),
        );

        let (writer, _reader) = crate::common::pair(&crate::common::stack());
        writer.set_nodelay(true).unwrap();
        writer.set_nonblocking(true).unwrap();
        writer.set_send_buffer_size(8 << 20).unwrap();
        writer.set_notsent_lowat(Some(lowat)).unwrap();
        let level = watch(&writer, Trigger::Level);
        let not_sent = || writer.info().unwrap().not_sent as usize;
        let ours = stops_at(|piece| drop((&writer).write(piece)), || is_writable(&level), not_sent);
        let wanted = (lowat as usize).div_ceil(2);
        for unsent in [ours, kernels] {
            assert!(
                (wanted..wanted + PIECE).contains(&unsent),
                "{lowat}: ours {ours}, the kernel's {kernels}"
            );
        }
    }
}
