//! Ethernet frames by function call, as a virtual machine monitor moves them between a guest's queues and a stack.
//!
//! `vm_frames [bytes]`: one thread does everything. The *guest* stands in as a second stack; a real one has a virtio device, whose
//! queues the monitor reads and writes where this program calls [`Nic::carry`]. The host's stack serves the guest's requests.
//! Neither has a thread: the loop calls `Stack::poll` for both, with a time that is its own.
//!
//! Back-pressure: a queue into a stack that is full refuses a frame, which then stays where it was, in the guest's
//! queue, so that nothing is lost on the way. Tests: `tests/wire/vm_frames.rs`.

use std::error::Error;
use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use sockeye::netif::{
    ChannelConfig, ChannelPort, FrameBytes, MacAddr, Medium, Prefix, SendError, TxFrame, channel,
};
use sockeye::{Config, Stack, TcpListener, TcpSocket};

/// The longest frame, bytes: the MTU and the link header.
const FRAME_MAX: usize = 1514;

/// A stack on Ethernet, and the other side of its interface.
struct Nic {
    stack: Stack,
    port: ChannelPort,
    /// A frame that the other side had no room for.
    held: Option<TxFrame>,
}

impl Nic {
    fn new(last: u8) -> Result<Self, Box<dyn Error>> {
        let config = ChannelConfig {
            medium: Medium::Ethernet(MacAddr([0x02, 0, 0, 0, 0, last])),
            ..ChannelConfig::default()
        };
        let (interface, mut ports) = channel(&config)?;
        let stack = Stack::new(Config { workers: 0, ..Config::default() })?;
        stack.attach(interface, &[format!("192.168.0.{last}/24").parse::<Prefix>()?])?;
        let port = ports.pop().ok_or("a channel has a port")?;
        Ok(Self { stack, port, held: None })
    }

    /// Moves frames to the other side until there are none, or no room. Returns how many.
    fn carry(&mut self, to: &ChannelPort) -> Result<usize, SendError> {
        let mut bytes = [0; FRAME_MAX];
        let mut count = 0;
        while let Some(frame) = self.held.take().or_else(|| self.port.try_recv()) {
            let bytes = &mut bytes[..frame.len()];
            frame.copy_to(bytes);
            match to.try_send(FrameBytes::from(&*bytes)) {
                Ok(()) => count += 1,
                Err(SendError::Full) => {
                    self.held = Some(frame);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(count)
    }
}

#[allow(dead_code, reason = "a test calls `run` instead")]
fn main() -> Result<(), Box<dyn Error>> {
    let bytes = std::env::args().nth(1).map_or(Ok(20_000_000), |arg| arg.parse())?;
    let frames = run(bytes)?;
    println!("{bytes} bytes from the host to the guest in {} frames, {} back", frames[0], frames[1]);
    Ok(())
}

/// The host sends so many bytes to the guest. Returns the frames that went there and back.
pub fn run(bytes: usize) -> Result<[usize; 2], Box<dyn Error>> {
    let (mut host, mut guest) = (Nic::new(1)?, Nic::new(2)?);
    let listener = TcpListener::bind_on(&host.stack, "192.168.0.1:80")?;
    listener.set_nonblocking(true)?;
    let mut socket = TcpSocket::new_v4(&guest.stack);
    socket.set_nonblocking(true);
    let mut client = socket.connect(listener.local_addr()?)?;

    let (start, chunk, mut buffer) = (Instant::now(), vec![0x5a; 64 << 10], vec![0; 64 << 10]);
    let (mut server, mut sent, mut received, mut frames) = (None, 0, 0, [0, 0]);
    loop {
        let nexts = [&host, &guest].map(|nic| nic.stack.poll(start.elapsed()));
        let mut moved = [host.carry(&guest.port)?, guest.carry(&host.port)?];
        (frames[0], frames[1]) = (frames[0] + moved[0], frames[1] + moved[1]);

        if server.is_none() {
            server = ready(listener.accept())?.map(|(stream, _)| stream);
            if let Some(stream) = &server {
                stream.set_nonblocking(true)?;
            }
        }
        if let Some(stream) = &mut server
            && sent < bytes
        {
            let len = ready(stream.write(&chunk[..chunk.len().min(bytes - sent)]))?.unwrap_or(0);
            (sent, moved[0]) = (sent + len, moved[0] + len);
            if sent == bytes {
                stream.shutdown(std::net::Shutdown::Write)?;
            }
        }
        match ready(client.read(&mut buffer)) {
            Ok(Some(0)) => break,
            Ok(len) => (received, moved[1]) = (received + len.unwrap_or(0), moved[1] + len.unwrap_or(0)),
            // Before the handshake is over.
            Err(error) if error.kind() == ErrorKind::NotConnected => {}
            Err(error) => return Err(error.into()),
        }
        // A monitor would sleep in its own loop here, until a guest rings, a socket is used, or this time.
        let next = nexts.into_iter().flatten().min().unwrap_or(Duration::MAX);
        if moved == [0, 0] && next != Duration::MAX {
            std::thread::sleep(next.saturating_sub(start.elapsed()).min(Duration::from_millis(1)));
        }
    }
    if received != bytes {
        return Err(format!("{received} of {bytes} bytes arrived").into());
    }
    Ok(frames)
}

/// `None` where the call would have had to wait.
fn ready<T>(result: std::io::Result<T>) -> std::io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}
