//! An interface with a record of all that passes it, in pcap-ng files.
//!
//! [`capture`] puts itself around any interface. A thread that sends or receives appends the frame to a buffer, no more than
//! a copy of `snaplen` bytes under a mutex; a thread of the capture writes the buffer out. No caller waits for a disk: a
//! frame that finds the buffer full is not recorded, and counted. Frames on their way out are recorded as they are handed
//! over: checksums that a device completes look wrong, and frames that the device then drops are in the record too.
//!
//! # Why no wake-up is lost
//! The buffer and the writer's orders are under one mutex; the writer takes its ticket in the section that found
//! nothing. A frame out is appended in [`Netif::transmit`], where nothing may be woken, and the writer is woken by
//! [`Netif::ring`], which follows.
//!
//! It does not depend on the content of frames. Rank: the mutex is a leaf. Tests: what files can do wrong, below;
//! `crates/stack/tests/wire/capture.rs`.

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
#[cfg(unix)]
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use sockeye_mbuf::{Chain, Pool};
use sockeye_sync::facade::Arc;
use sockeye_sync::fork::Origin;
use sockeye_sync::{Local, Mutex, Spin, WaitQueue};

use crate::pcapng::{self, Direction, LinkType, Packet};
use crate::{Medium, Netif, RxFrame, Sent, TxFrame, Waited, Waking};

/// How an interface is recorded. Start from [`CaptureConfig::to`].
#[derive(Clone, Debug)]
pub struct CaptureConfig {
    /// The file, which is overwritten.
    pub path: PathBuf,
    /// The interface's name in the file. Default `sockeye`.
    pub name: String,
    /// Bytes of each frame that are kept, at least 1. Default 262,144, the most that readers of such files take: all but the end
    /// of the longest frames that a TUN device may get.
    pub snaplen: u32,
    /// Bytes after which a file is full, at least 4,096; a batch may go beyond. Default 1 GiB.
    pub file_max: u64,
    /// Files that are kept, at least 1. When one is full, the next is begun as `path.new`; then the full one gets the name `path.1`, older ones
    /// move up, and the oldest goes. While none can be begun, frames are not recorded and all files stay. With 1, frames after the file is full
    /// are not recorded. Default 1.
    pub files: u32,
    /// Bytes that wait to be written at most, at least 4,096. Default 8 MiB.
    pub buffer_max: usize,
}

impl CaptureConfig {
    /// Everything, into this file.
    pub fn to(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            name: "sockeye".to_owned(),
            snaplen: 262_144,
            file_max: 1 << 30,
            files: 1,
            buffer_max: 8 << 20,
        }
    }
}

/// Counters of a capture.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CaptureCounts {
    /// Frames that were recorded.
    pub recorded: u64,
    /// Frames that were not: the buffer or the file was full, or the file could not be written.
    pub lost: u64,
}

/// An interface that is recorded; see [`capture`].
pub struct Captured<N> {
    netif: N,
    recorder: Arc<Recorder>,
    writer: Option<JoinHandle<()>>,
    origin: Origin,
}

/// For a caller that wants to know of a capture whose interface was given to a stack.
#[derive(Clone)]
pub struct CaptureHandle {
    recorder: Arc<Local<Arc<Recorder>>>,
}

/// Records `netif`. The record is complete when the interface, and so its stack, is gone, or after
/// [`CaptureHandle::flush`].
///
/// # Errors
/// `InvalidInput` if a field is out of its bounds; the system's, if the file cannot be made.
pub fn capture<N: Netif>(netif: N, config: &CaptureConfig) -> io::Result<(Captured<N>, CaptureHandle)> {
    config.check()?;
    record(netif, config, File::create(&config.path)?)
}

/// [`capture`] into a file that is open, for a program that may open none any more. [`CaptureConfig::path`] is not looked at, and
/// [`CaptureConfig::files`] has to be 1.
///
/// # Errors
/// `InvalidInput` if a field is out of its bounds; the system's, if the file cannot be written.
pub fn capture_into<N: Netif>(
    netif: N,
    file: File,
    config: &CaptureConfig,
) -> io::Result<(Captured<N>, CaptureHandle)> {
    config.check()?;
    if config.files != 1 {
        let message = format!("CaptureConfig::files is {}: with an open file it must be 1", config.files);
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    record(netif, config, file)
}

impl CaptureConfig {
    fn check(&self) -> io::Result<()> {
        let least = LEAST_BYTES as u64;
        let bounds = [
            ("snaplen", u64::from(self.snaplen), 1),
            ("file_max", self.file_max, least),
            ("files", u64::from(self.files), 1),
            ("buffer_max", self.buffer_max as u64, least),
        ];
        if let Some((field, value, least)) = bounds.into_iter().find(|(_, value, least)| value < least) {
            let message = format!("CaptureConfig::{field} is {value}: it must be at least {least}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        Ok(())
    }
}

fn record<N: Netif>(
    netif: N,
    config: &CaptureConfig,
    file: File,
) -> io::Result<(Captured<N>, CaptureHandle)> {
    let link = match netif.medium() {
        Medium::Ip => LinkType::Raw,
        Medium::Ethernet(_) => LinkType::Ethernet,
    };
    let output = Output::begin(config, link, file)?;
    let recorder = Arc::new(Recorder {
        state: Mutex::new(State::default()),
        filled: WaitQueue::new(),
        drained: WaitQueue::new(),
        snaplen: config.snaplen as usize,
        buffer_max: config.buffer_max,
    });
    let own = Arc::clone(&recorder);
    let writer =
        thread::Builder::new().name("sockeye-capture".to_owned()).spawn(move || own.write_out(output))?;
    let handle = CaptureHandle { recorder: Arc::new(Local::new(Arc::clone(&recorder))) };
    Ok((Captured { netif, recorder, writer: Some(writer), origin: Origin::here() }, handle))
}

const LEAST_BYTES: usize = 4096;
/// Bytes of a packet's block beside the packet, at most.
const BLOCK_BYTES: usize = 64;

impl CaptureHandle {
    /// Counts so far. Zeros in a child of fork(2), which has no part in the capture.
    pub fn counts(&self) -> CaptureCounts {
        self.recorder.get().map_or_else(CaptureCounts::default, |recorder| recorder.state.lock().counts)
    }

    /// **Blocks** until everything that was recorded before is in the file, for as long as the file system takes.
    /// Does nothing in a child of fork(2).
    pub fn flush(&self) {
        let Some(recorder) = self.recorder.get() else { return };
        loop {
            let state = recorder.state.lock();
            if state.is_written() || state.ended {
                return;
            }
            let ticket = recorder.drained.prepare();
            drop(state);
            recorder.wake();
            recorder.drained.wait(ticket, None, Spin::OFF);
        }
    }
}

/// State that the interface and the writer share.
struct Recorder {
    state: Mutex<State>,
    /// The writer waits here.
    filled: WaitQueue,
    /// The thread that flushes waits here.
    drained: WaitQueue,
    snaplen: usize,
    buffer_max: usize,
}

#[derive(Default)]
struct State {
    buffer: Vec<u8>,
    /// Packets in it.
    packets: u64,
    counts: CaptureCounts,
    /// The writer has taken a buffer and is not done with it.
    writing: bool,
    /// The interface is gone.
    ending: bool,
    /// The writer is gone.
    ended: bool,
}

impl State {
    fn is_written(&self) -> bool {
        self.buffer.is_empty() && !self.writing
    }
}

impl Recorder {
    fn record(&self, at: u64, direction: Direction, head: &[u8], rest: &Chain) {
        let len = head.len() + rest.len();
        let mut left = self.snaplen.min(len);
        let mut state = self.state.lock();
        if state.buffer.len() + left + BLOCK_BYTES > self.buffer_max {
            state.counts.lost += 1;
            return;
        }
        let pieces = std::iter::once(head).chain(rest.iter()).map(|piece| {
            let taken = piece.len().min(left);
            left -= taken;
            &piece[..taken]
        });
        let packet = Packet { interface: 0, at, len, direction: Some(direction), note: None };
        pcapng::packet(&mut state.buffer, &packet, pieces);
        state.packets += 1;
    }

    /// Wakes the writer. With no socket lock held.
    fn wake(&self) {
        let state = self.state.lock();
        let owed = self.filled.notify().is_wake_owed();
        drop(state);
        if owed {
            self.filled.wake();
        }
    }

    /// The writer's life.
    fn write_out(&self, mut output: Output) {
        let mut spare = Vec::new();
        loop {
            let mut state = self.state.lock();
            if state.buffer.is_empty() {
                if state.ending {
                    state.ended = true;
                    return self.drained(state);
                }
                let ticket = self.filled.prepare();
                drop(state);
                self.filled.wait(ticket, None, Spin::OFF);
                continue;
            }
            std::mem::swap(&mut state.buffer, &mut spare);
            let packets = std::mem::take(&mut state.packets);
            state.writing = true;
            drop(state);
            let is_kept = output.write(&spare);
            spare.clear();
            let mut state = self.state.lock();
            state.writing = false;
            let count = if is_kept { &mut state.counts.recorded } else { &mut state.counts.lost };
            *count += packets;
            self.drained(state);
        }
    }

    fn drained(&self, state: sockeye_sync::MutexGuard<'_, State>) {
        let owed = self.drained.notify().is_wake_owed();
        drop(state);
        if owed {
            self.drained.wake();
        }
    }
}

/// The files.
struct Output {
    config: CaptureConfig,
    link: LinkType,
    file: File,
    /// Bytes of whole blocks that we have written.
    written: u64,
    /// Where the next block belongs in the file. `None` for one that has no such places, as a pipe.
    end: Option<u64>,
    /// A part of a block stands at the end, and cannot be removed: whatever came behind it could not be read.
    is_broken: bool,
}

impl Output {
    /// Writes the head of a file.
    fn begin(config: &CaptureConfig, link: LinkType, mut file: File) -> io::Result<Self> {
        let mut header = Vec::new();
        pcapng::section(&mut header);
        pcapng::interface(&mut header, &config.name, link, config.snaplen);
        file.write_all(&header)?;
        let end = file.stream_position().ok();
        Ok(Self { config: config.clone(), link, file, written: header.len() as u64, end, is_broken: false })
    }

    /// Writes whole blocks. False if they are not kept.
    fn write(&mut self, blocks: &[u8]) -> bool {
        let is_full = self.written >= self.config.file_max || self.is_broken;
        if is_full && !self.rotate() {
            return false;
        }
        if self.file.write_all(blocks).is_err() {
            self.is_broken = self.take_back().is_err();
            return false;
        }
        self.written += blocks.len() as u64;
        self.end = self.end.map(|end| end + blocks.len() as u64);
        true
    }

    /// Removes what stands behind the last whole block.
    fn take_back(&mut self) -> io::Result<()> {
        let end = self.end.ok_or(io::ErrorKind::NotSeekable)?;
        self.file.set_len(end)?;
        self.file.seek(SeekFrom::Start(end)).map(drop)
    }

    /// Begins the next file. False if there is none.
    fn rotate(&mut self) -> bool {
        if self.config.files < 2 {
            return false;
        }
        // Before any name is changed: if it cannot be, all files stay as they are, and the next blocks try again.
        let new = with_suffix(&self.config.path, "new");
        let begun = File::create(&new).and_then(|file| Self::begin(&self.config, self.link, file));
        let Ok(next) = begun else {
            let _ = fs::remove_file(&new);
            return false;
        };
        for number in (1..self.config.files).rev() {
            let from =
                if number == 1 { self.config.path.clone() } else { numbered(&self.config.path, number - 1) };
            let renamed = fs::rename(from, numbered(&self.config.path, number));
            // Those that do not exist yet cannot be renamed. If another cannot, a newer file must not be renamed to its name: the next blocks try again.
            if renamed.is_err_and(|error| error.kind() != io::ErrorKind::NotFound) {
                let _ = fs::remove_file(&new);
                return false;
            }
        }
        // Refused only if somebody else is at work in the folder; the file is the next all the same, by its other name.
        let _ = fs::rename(new, &self.config.path);
        *self = next;
        true
    }
}

fn numbered(path: &Path, number: u32) -> PathBuf {
    with_suffix(path, &number.to_string())
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    name.into()
}

impl<N> Drop for Captured<N> {
    fn drop(&mut self) {
        if !self.origin.is_here() {
            // In a child of fork(2): the file and the thread that writes it are its parent's.
            std::mem::forget((Arc::clone(&self.recorder), self.writer.take()));
            return;
        }
        self.recorder.state.lock().ending = true;
        self.recorder.wake();
        if let Some(writer) = self.writer.take() {
            // It has nothing to say.
            let _ = writer.join();
        }
    }
}

/// Nanoseconds since the epoch; 0 for a clock that stands before it.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

impl<N: Netif> Netif for Captured<N> {
    fn mtu(&self) -> u32 {
        self.netif.mtu()
    }

    fn queue_count(&self) -> usize {
        self.netif.queue_count()
    }

    fn medium(&self) -> Medium {
        self.netif.medium()
    }

    fn offloads_checksum(&self) -> bool {
        self.netif.offloads_checksum()
    }

    fn segment_max(&self) -> u32 {
        self.netif.segment_max()
    }

    fn udp_segment_max(&self) -> u32 {
        self.netif.udp_segment_max()
    }

    fn attached(&self, pool: &Pool) {
        self.netif.attached(pool);
    }

    fn wakes_by(&self, waking: &Waking) {
        self.netif.wakes_by(waking);
    }

    fn is_down(&self) -> bool {
        self.netif.is_down()
    }

    fn transmit(&self, flow: u64, frames: &mut Vec<TxFrame>) -> Sent {
        let at = now();
        frames.iter().for_each(|frame| {
            self.recorder.record(at, Direction::Outbound, frame.head(), &frame.payload);
        });
        self.netif.transmit(flow, frames)
    }

    fn ring(&self, queue: usize) {
        self.netif.ring(queue);
        self.recorder.wake();
    }

    fn receives_all(&self) -> bool {
        self.netif.receives_all()
    }

    fn receive(&self, queue: usize, max: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        let at = now();
        let frames = self.netif.receive(queue, max, &mut |frame| {
            self.recorder.record(at, Direction::Inbound, frame.head, frame.rest);
            sink(frame);
        });
        if frames > 0 {
            self.recorder.wake();
        }
        frames
    }

    fn wait(&self, queue: usize, spin: Duration) {
        self.netif.wait(queue, spin);
    }

    fn interrupt(&self, queue: usize) {
        self.netif.interrupt(queue);
    }

    fn wait_until(&self, queue: usize, deadline: Option<Instant>) -> Waited {
        self.netif.wait_until(queue, deadline)
    }

    fn kick(&self, queue: usize) {
        self.netif.kick(queue);
    }

    #[cfg(unix)]
    fn descriptor(&self, queue: usize) -> Option<BorrowedFd<'_>> {
        self.netif.descriptor(queue)
    }

    #[cfg(unix)]
    fn announced(&self, queue: usize) {
        self.netif.announced(queue);
    }

    #[cfg(unix)]
    fn unannounced(&self, queue: usize) {
        self.netif.unannounced(queue);
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
    use std::io::Read;

    fn begin(config: &CaptureConfig, file: File) -> Output {
        Output::begin(config, LinkType::Raw, file).unwrap()
    }

    #[test]
    fn files_stay_while_the_next_cannot_be_begun() {
        let folder = std::env::temp_dir().join(format!("sockeye-rotation-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let config = CaptureConfig { file_max: 4096, files: 3, ..CaptureConfig::to(folder.join("ring")) };
        let mut output = begin(&config, File::create(&config.path).unwrap());
        let blocks = |number: u8| vec![number; 4096];
        assert!(output.write(&blocks(1)) && output.write(&blocks(2)));
        let last = |name: &str| fs::read(folder.join(name)).ok().and_then(|bytes| bytes.last().copied());
        let files = || ["ring", "ring.1", "ring.2", "ring.new"].map(last);
        // No file can have the name of a folder.
        fs::create_dir(folder.join("ring.new")).unwrap();
        for _ in 0..4 {
            assert!(!output.write(&blocks(3)));
            assert_eq!(files(), [Some(2), Some(1), None, None]);
        }
        fs::remove_dir(folder.join("ring.new")).unwrap();
        assert!(output.write(&blocks(4)));
        assert_eq!(files(), [Some(4), Some(2), Some(1), None]);
        // Nor can it be renamed to that.
        fs::remove_file(folder.join("ring.2")).unwrap();
        fs::create_dir(folder.join("ring.2")).unwrap();
        for _ in 0..4 {
            assert!(!output.write(&blocks(5)));
            assert_eq!(files(), [Some(4), Some(2), None, None]);
        }
        fs::remove_dir(folder.join("ring.2")).unwrap();
        assert!(output.write(&blocks(6)));
        assert_eq!(files(), [Some(6), Some(4), Some(2), None]);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_block_of_which_a_part_was_written_is_removed() {
        const ROOM: u64 = 3 * 4096;
        let file = File::from(memfd_create("blocks", MemfdFlags::ALLOW_SEALING).unwrap());
        file.set_len(ROOM).unwrap();
        // What is written beyond ends at a page, as on a disk that is full.
        fcntl_add_seals(&file, SealFlags::GROW).unwrap();
        let mut output = begin(&CaptureConfig::to(""), file.try_clone().unwrap());
        assert!(output.write(&[1; 4000]));
        let end = output.written;
        assert!(!output.write(&[2; 3 * 4096]));
        assert_eq!((file.metadata().unwrap().len(), (&file).stream_position().unwrap()), (end, end));
        assert!(!output.is_broken);
    }

    #[test]
    fn nothing_follows_a_part_of_a_block_that_stays() {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut output = begin(&CaptureConfig::to(""), File::from(std::os::fd::OwnedFd::from(writer)));
        output.is_broken = output.take_back().is_err();
        assert!(output.is_broken && !output.write(&[1; 16]));
        let header_len = usize::try_from(output.written).unwrap();
        drop(output);
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes.len(), header_len);
    }
}
