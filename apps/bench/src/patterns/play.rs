//! A pattern's two ends, written once for all sockets.
//!
//! Purpose: [`connector`] and [`acceptor`] are one end of one connection each (of one connection after the other, where each message has
//! its own). They check every byte that they read and note when messages and turns end.
//!
//! Does not depend on the kind of sockets or of runner.
//!
//! Invariants: all ends begin together, when all connections are established. A connection begins with four bytes that tell the
//! acceptor which it is, unless each message has its own connection; those are all alike.
//!
//! Tests: with the command.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Barrier;

use super::content::Content;
use super::draw::{Pattern, Shape};
use super::net::{Net, Reader, Writer};
use super::runner::Starter;

/// What all ends of a run share.
pub struct Scene {
    /// What they do.
    pub pattern: Pattern,
    start: Barrier,
    epoch: Instant,
    /// When each message was written, in nanoseconds after `epoch`; by direction, connection and number.
    written: [Vec<AtomicU64>; 2],
}

/// What an end noted.
#[derive(Debug)]
pub struct Outcome {
    /// When it began.
    pub start: Instant,
    /// When all was done.
    pub end: Instant,
    /// Of messages or turns.
    pub latencies: Vec<Duration>,
}

impl Scene {
    /// Of one run.
    pub fn new(pattern: Pattern) -> Self {
        let stamps = |way: usize| {
            let has = match pattern.shape {
                Shape::Up => way == UP,
                Shape::Down => way == DOWN,
                Shape::Both => true,
                Shape::Turns { .. } | Shape::Connects => false,
            };
            let count = if has { pattern.connections * pattern.count } else { 0 };
            (0..count).map(|_| AtomicU64::new(0)).collect()
        };
        let written = [stamps(UP), stamps(DOWN)];
        Self { start: Barrier::new(pattern.connections * 2), epoch: Instant::now(), written, pattern }
    }

    /// Plays an end's part, once all others can begin, too.
    async fn timed(&self, part: impl Future<Output = io::Result<Vec<Duration>>>) -> io::Result<Outcome> {
        self.start.wait().await;
        let start = Instant::now();
        let latencies = part.await?;
        Ok(Outcome { start, end: Instant::now(), latencies })
    }

    fn stamp(&self, way: usize, index: usize, message: usize) {
        let nanos = u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX);
        // Its partner is the load in `age`; the bytes follow it.
        self.written[way][index * self.pattern.count + message].store(nanos, Ordering::Release);
    }

    fn age(&self, way: usize, index: usize, message: usize) -> Duration {
        let written = self.written[way][index * self.pattern.count + message].load(Ordering::Acquire);
        self.epoch.elapsed().saturating_sub(Duration::from_nanos(written))
    }

    fn content(&self, index: usize, way: usize) -> Content {
        Content::new(self.pattern.number, index, way)
    }
}

/// The end that connects.
///
/// # Errors
/// The sockets', and a byte that is not what it should be.
pub async fn connector<N: Net>(
    net: N,
    to: SocketAddr,
    index: usize,
    scene: Arc<Scene>,
    starter: Starter,
) -> io::Result<Outcome> {
    let held = End::connect(&net, to, index, &scene);
    match scene.pattern.shape {
        Shape::Up => scene.timed(held.await?.send_alone(UP)).await,
        Shape::Down => scene.timed(held.await?.receive_alone(DOWN)).await,
        Shape::Both => scene.timed(held.await?.both((UP, DOWN), &starter)).await,
        Shape::Turns { ahead } => scene.timed(held.await?.ask(ahead)).await,
        Shape::Connects => scene.timed(connect_repeatedly(&net, to, &scene)).await,
    }
}

/// The end that accepts.
///
/// # Errors
/// Those of [`connector`].
pub async fn acceptor<N: Net>(
    listener: Arc<N::Listener>,
    scene: Arc<Scene>,
    starter: Starter,
) -> io::Result<Outcome> {
    let held = End::<N>::accept(&listener, &scene);
    match scene.pattern.shape {
        Shape::Up => scene.timed(held.await?.receive_alone(UP)).await,
        Shape::Down => scene.timed(held.await?.send_alone(DOWN)).await,
        Shape::Both => scene.timed(held.await?.both((DOWN, UP), &starter)).await,
        Shape::Turns { ahead } => scene.timed(held.await?.answer(ahead)).await,
        Shape::Connects => scene.timed(accept_repeatedly::<N>(&listener, &scene)).await,
    }
}

/// A connection for each message, one after the other.
async fn accept_repeatedly<N: Net>(listener: &N::Listener, scene: &Arc<Scene>) -> io::Result<Vec<Duration>> {
    let pattern = &scene.pattern;
    for _ in 0..pattern.count {
        let (reader, writer) = N::accept(listener, pattern.nodelay).await?;
        let mut end = End::<N> { scene: Arc::clone(scene), index: 0, reader, writer };
        end.answer_one(1, (&mut 0, &mut 0), &mut vec![0; pattern.reads.size]).await?;
    }
    Ok(Vec::new())
}

async fn connect_repeatedly<N: Net>(
    net: &N,
    to: SocketAddr,
    scene: &Arc<Scene>,
) -> io::Result<Vec<Duration>> {
    let pattern = &scene.pattern;
    let mut latencies = Vec::with_capacity(pattern.count);
    let mut buf = vec![0; READ_LEN];
    for _ in 0..pattern.count {
        pause::<N>(pattern.think).await;
        let start = Instant::now();
        let (mut reader, mut writer) = net.connect(to, pattern.nodelay).await?;
        write_message(&mut writer, scene.content(0, UP), 0, pattern.sizes.one, pattern.writes).await?;
        read_span(&mut reader, scene.content(0, DOWN), 0..pattern.answer, &mut buf).await?;
        latencies.push(start.elapsed());
        expect_end(&mut reader, &mut buf).await?;
    }
    Ok(latencies)
}

/// One end of an established connection.
struct End<N: Net> {
    scene: Arc<Scene>,
    index: usize,
    reader: N::Reader,
    writer: N::Writer,
}

impl<N: Net> End<N> {
    /// Connects, and says which connection it is.
    async fn connect(net: &N, to: SocketAddr, index: usize, scene: &Arc<Scene>) -> io::Result<Self> {
        let (reader, mut writer) = net.connect(to, scene.pattern.nodelay).await?;
        let name = u32::try_from(index).map_err(io::Error::other)?;
        writer.write(&name.to_ne_bytes()).await?;
        Ok(Self { scene: Arc::clone(scene), index, reader, writer })
    }

    /// Accepts, and reads which connection it is.
    async fn accept(listener: &N::Listener, scene: &Arc<Scene>) -> io::Result<Self> {
        let (mut reader, writer) = N::accept(listener, scene.pattern.nodelay).await?;
        let mut name = [0; 4];
        let mut filled = 0;
        while filled < name.len() {
            match reader.read(&mut name[filled..]).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => filled += read,
            }
        }
        let index = u32::from_ne_bytes(name) as usize;
        if index >= scene.pattern.connections {
            let what = "the first bytes of a connection are wrong";
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        Ok(Self { scene: Arc::clone(scene), index, reader, writer })
    }

    /// Sends messages and the FIN, and reads what comes back over the half-closed connection.
    async fn send_alone(mut self, way: usize) -> io::Result<Vec<Duration>> {
        send::<N>(&self.scene, self.index, way, &mut self.writer).await?;
        let mut buf = vec![0; READ_LEN];
        let content = self.scene.content(self.index, way | TAIL);
        read_span(&mut self.reader, content, 0..self.scene.pattern.tail, &mut buf).await?;
        expect_end(&mut self.reader, &mut buf).await?;
        Ok(Vec::new())
    }

    async fn receive_alone(mut self, way: usize) -> io::Result<Vec<Duration>> {
        let latencies = receive::<N>(&self.scene, self.index, way, &mut self.reader).await?;
        let content = self.scene.content(self.index, way | TAIL);
        let tail = self.scene.pattern.tail;
        if tail > 0 {
            write_message(&mut self.writer, content, 0, tail, 1).await?;
        }
        self.writer.finish().await?;
        Ok(latencies)
    }

    /// Writes one way and reads the other, at once.
    async fn both(self, (out, back): (usize, usize), starter: &Starter) -> io::Result<Vec<Duration>> {
        let Self { scene, index, mut reader, mut writer } = self;
        let shared = Arc::clone(&scene);
        let sends = starter.start(async move { send::<N>(&shared, index, out, &mut writer).await })?;
        let latencies = receive::<N>(&scene, index, back, &mut reader).await?;
        sends.end().await??;
        Ok(latencies)
    }

    /// Messages, then an answer, again and again.
    async fn ask(mut self, ahead: usize) -> io::Result<Vec<Duration>> {
        let scene = Arc::clone(&self.scene);
        let pattern = &scene.pattern;
        let (content, answers) = (scene.content(self.index, UP), scene.content(self.index, DOWN));
        let mut latencies = Vec::with_capacity(pattern.count);
        let mut buf = vec![0; READ_LEN];
        let (mut offset, mut answered) = (0, 0);
        for turn in 0..pattern.count {
            pause::<N>(pattern.think).await;
            let start = Instant::now();
            for message in turn * ahead..(turn + 1) * ahead {
                let len = pattern.size(UP, message);
                write_message(&mut self.writer, content, offset, len, pattern.writes).await?;
                offset += len;
            }
            read_span(&mut self.reader, answers, answered..answered + pattern.answer, &mut buf).await?;
            answered += pattern.answer;
            latencies.push(start.elapsed());
        }
        Ok(latencies)
    }

    async fn answer(mut self, ahead: usize) -> io::Result<Vec<Duration>> {
        let mut buf = vec![0; self.scene.pattern.reads.size];
        let (mut message, mut answered) = (0, 0);
        let mut offset = 0;
        for _ in 0..self.scene.pattern.count {
            let len = (message..message + ahead).map(|message| self.scene.pattern.size(UP, message)).sum();
            message += ahead;
            self.answer_one(len, (&mut offset, &mut answered), &mut buf).await?;
        }
        expect_end(&mut self.reader, &mut buf).await?;
        Ok(Vec::new())
    }

    /// Reads `len` bytes, or one message if each has a connection, and answers.
    async fn answer_one(
        &mut self,
        len: usize,
        (offset, answered): (&mut usize, &mut usize),
        buf: &mut [u8],
    ) -> io::Result<()> {
        let scene = Arc::clone(&self.scene);
        let pattern = &scene.pattern;
        let len = if pattern.shape == Shape::Connects { pattern.sizes.one } else { len };
        let end = *offset + len;
        while *offset < end {
            pause::<N>(pattern.reads.lag).await;
            let read = read_some(&mut self.reader, scene.content(self.index, UP), *offset..end, buf).await?;
            *offset += read;
        }
        pause::<N>(pattern.ponder).await;
        write_message(&mut self.writer, scene.content(self.index, DOWN), *answered, pattern.answer, 1)
            .await?;
        *answered += pattern.answer;
        Ok(())
    }
}

/// All messages of one direction, and the FIN.
async fn send<N: Net>(scene: &Scene, index: usize, way: usize, writer: &mut N::Writer) -> io::Result<()> {
    let pattern = &scene.pattern;
    let content = scene.content(index, way);
    let mut offset = 0;
    for message in 0..pattern.count {
        pause::<N>(pattern.think).await;
        let len = pattern.size(way, message);
        scene.stamp(way, index, message);
        write_message(writer, content, offset, len, pattern.writes).await?;
        offset += len;
    }
    writer.finish().await
}

/// All messages of one direction, and the FIN.
async fn receive<N: Net>(
    scene: &Scene,
    index: usize,
    way: usize,
    reader: &mut N::Reader,
) -> io::Result<Vec<Duration>> {
    let pattern = &scene.pattern;
    let content = scene.content(index, way);
    let total = (0..pattern.count).map(|message| pattern.size(way, message)).sum();
    let mut latencies = Vec::with_capacity(pattern.count);
    let mut buf = vec![0; pattern.reads.size];
    let (mut offset, mut end) = (0, pattern.size(way, 0));
    while offset < total {
        pause::<N>(pattern.reads.lag).await;
        offset += read_some(reader, content, offset..total, &mut buf).await?;
        while end <= offset && latencies.len() < pattern.count {
            latencies.push(scene.age(way, index, latencies.len()));
            end += pattern.size(way, latencies.len());
        }
    }
    expect_end(reader, &mut buf).await?;
    if !pattern.has_latency() {
        latencies.clear();
    }
    Ok(latencies)
}

async fn pause<N: Net>(time: Duration) {
    if !time.is_zero() {
        N::sleep(time).await;
    }
}

/// In one write, or a short header and the rest, or a header and two halves.
async fn write_message(
    writer: &mut impl Writer,
    content: Content,
    offset: usize,
    len: usize,
    writes: usize,
) -> io::Result<()> {
    let mut from = 0;
    for left in (1..=writes).rev() {
        let rest = len - from;
        let part = match left {
            1 => rest,
            _ if left == writes => rest.min(HEADER_LEN),
            _ => rest / left,
        };
        if part > 0 {
            writer.write(content.part(offset + from, part)).await?;
        }
        from += part;
    }
    Ok(())
}

/// One read within `span`, checked.
async fn read_some(
    reader: &mut impl Reader,
    content: Content,
    span: std::ops::Range<usize>,
    buf: &mut [u8],
) -> io::Result<usize> {
    match reader.read(buf).await? {
        0 => Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            format!("a stream ended {} bytes early", span.len()),
        )),
        read if read > span.len() => {
            Err(io::Error::new(io::ErrorKind::InvalidData, "a stream has more bytes than were written"))
        }
        read => content.check(span.start, &buf[..read]).map(|()| read),
    }
}

async fn read_span(
    reader: &mut impl Reader,
    content: Content,
    span: std::ops::Range<usize>,
    buf: &mut [u8],
) -> io::Result<()> {
    let mut at = span.start;
    while at < span.end {
        at += read_some(reader, content, at..span.end, buf).await?;
    }
    Ok(())
}

async fn expect_end(reader: &mut impl Reader, buf: &mut [u8]) -> io::Result<()> {
    match reader.read(buf).await? {
        0 => Ok(()),
        more => {
            let message = format!("{more} bytes after the end of a stream");
            Err(io::Error::new(io::ErrorKind::InvalidData, message))
        }
    }
}

/// Towards the end that accepted, and back.
const UP: usize = 0;
const DOWN: usize = 1;
/// Added to a direction: the bytes that come back after its FIN.
const TAIL: usize = 2;
/// Bytes of the first of several writes.
const HEADER_LEN: usize = 8;
/// Bytes of the buffer for answers.
const READ_LEN: usize = 64 << 10;
