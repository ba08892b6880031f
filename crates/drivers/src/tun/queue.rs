//! One queue of a device: frames in, frames out, and the wait for them.
//!
//! It does not depend on how the device was opened. Threads receive one at a time (`Netif`'s contract), the mutex
//! around its reader is there for the compiler and for a caller that asks at the wrong time, and is not contended.
//! Frames out are written by any thread, each by one system call, in which the kernel's own input runs: nothing waits
//! in between, so there is no doorbell.
//!
//! # Why no wake-up is lost
//! A wait is a `poll` of the device and of an eventfd; both are asked for their level, so an earlier frame or
//! interruption ends it. An interruption sets its flag and writes the eventfd, which is read by the next stack that gets the queue alone: it stays. A device
//! that was deleted reports an error for ever, so once that is seen the wait is for the eventfd alone.
//!
//! A caller's wait is a `poll` of a third, too, which ends it. It is written when a caller waits for it
//! (`stack/src/inet/input/leader.rs`), and read by the thread that was woken, before that thread looks whether the kick
//! was meant for it.
//!
//! A driver that waits at the descriptor itself may say when frames have come ([`Queue::announce`]); then no system call is made to find a queue empty that
//! was found so before. The announcement is taken back *before* the frames are read, so one that comes meanwhile stays. A driver that goes says so
//! ([`Queue::unannounce`]), and the queue is read each time again.
//!
//! # Why an idle queue holds no packet memory
//! A reader keeps the room that is left in its clusters for the next frames, until it finds nothing. The thread that waits here gives that room back
//! first. Callers may take frames meanwhile, so fast that the wait does not end; then no thread is left that would find nothing. So the wait sets
//! `is_waited_on` before it locks the reader to give back, and a thread that receives looks at it under that lock, behind its last frame: either it sees
//! the flag and gives back itself, or the wait has yet to lock.
//!
//! Tests: `tests/devices.rs`.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, retry_on_intr};
use sockeye_mbuf::Pool;
use sockeye_netif::{RxFrame, TxFrame, Waited};
use sockeye_sync::facade::{AtomicBool, AtomicU8, Ordering};
use sockeye_sync::{Counters, Mutex, Spin};

use super::read::Reader;
use super::vnet;

/// Pieces of a frame that are written without being joined first: header of the device, headers, and payload of so
/// many mbufs but two.
const PIECES_MAX: usize = 64;
/// Mbufs of most frames: a segment of 64 KiB lies in two clusters, or three; one of 256 KiB in four to six.
const PIECES_FEW: usize = 6;

/// Counters of a queue.
pub(super) mod count {
    pub const FRAMES_IN: usize = 0;
    pub const BYTES_IN: usize = 1;
    pub const FRAMES_OUT: usize = 2;
    pub const BYTES_OUT: usize = 3;
    pub const REFUSED: usize = 4;
    pub const FAILED_READS: usize = 5;
    pub const SLEEPS: usize = 6;
    pub const COUNT: usize = 7;
}

/// What is known of frames that wait.
mod known {
    /// Nothing, since nobody says it.
    pub const NOTHING: u8 = 0;
    /// There were none, and none were announced since.
    pub const EMPTY: u8 = 1;
    /// There may be some.
    pub const ANNOUNCED: u8 = 2;
}

/// See the module's head.
pub(super) struct Queue {
    fd: OwnedFd,
    has_header: bool,
    reader: Mutex<Reader>,
    /// (a) A thread is in [`Queue::wait`].
    is_waited_on: AtomicBool,
    /// (a) Whether there may be frames, one of [`known`].
    known: AtomicU8,
    interrupted: AtomicBool,
    interrupt: OwnedFd,
    /// Written to end the wait of a caller, which reads it.
    kick: OwnedFd,
    pub counters: Counters<{ count::COUNT }>,
}

/// Result of an attempt to read or write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    Done,
    /// Nothing there, or no room.
    Nothing,
    /// The device does not exist any more.
    Gone,
}

impl Queue {
    /// A queue of the device that `fd` is open for, which must not block.
    pub fn new(fd: OwnedFd, has_header: bool) -> io::Result<Self> {
        Ok(Self {
            fd,
            has_header,
            reader: Mutex::new(Reader::default()),
            is_waited_on: AtomicBool::new(false),
            known: AtomicU8::new(known::NOTHING),
            interrupted: AtomicBool::new(false),
            interrupt: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            kick: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            counters: Counters::new(),
        })
    }

    /// Its descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Where received frames are to lie, for a stack. Nothing is left of an earlier one: that it has interrupted the queue, and that its driver has announced frames.
    pub fn attach(&self, pool: &Pool) {
        self.unannounce();
        self.interrupted.store(false, Ordering::Release);
        // `AGAIN` if there was no interruption.
        let _ = rustix::io::read(&self.interrupt, &mut [0; 8]);
        self.reader.lock().attach(pool);
    }

    /// Nobody announces frames any more.
    pub fn unannounce(&self) {
        self.known.store(known::NOTHING, Ordering::Release);
    }

    /// Frames may have come.
    pub fn announce(&self) {
        // Release, with the acquire in `receive`.
        self.known.store(known::ANNOUNCED, Ordering::Release);
    }

    /// Shows up to `max` frames to `sink`. How many there were, and how it ended.
    pub fn receive(&self, max: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> (usize, Outcome) {
        let known = self.known.load(Ordering::Acquire);
        match known {
            known::EMPTY => return (0, Outcome::Nothing),
            // Before the frames are read: see the module's head.
            known::ANNOUNCED => self.known.store(known::EMPTY, Ordering::Relaxed),
            _ => {}
        }
        let mut reader = self.reader.lock();
        let (mut frames, mut bytes, mut end) = (0, 0, Outcome::Done);
        let mut is_found_empty = false;
        while frames < max && end == Outcome::Done {
            match reader.frame(self.fd.as_fd(), self.has_header, sink) {
                Ok(len) => (frames, bytes) = (frames + 1, bytes + len),
                Err(error) => {
                    is_found_empty = error.kind() == io::ErrorKind::WouldBlock;
                    end = self.failed(&error);
                }
            }
        }
        if known == known::ANNOUNCED && !is_found_empty {
            // There may be more.
            self.announce();
        }
        // Relaxed: the lock orders it, see the module's head.
        if end != Outcome::Done || self.is_waited_on.load(Ordering::Relaxed) {
            reader.rest();
        }
        if frames > 0 {
            self.counters.add(count::FRAMES_IN, frames as u64);
            self.counters.add(count::BYTES_IN, bytes as u64);
        }
        (frames, end)
    }

    fn failed(&self, error: &io::Error) -> Outcome {
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::AGAIN | Errno::INTR) => Outcome::Nothing,
            Some(Errno::BADFD | Errno::NODEV) => Outcome::Gone,
            _ => {
                self.counters.inc(count::FAILED_READS);
                Outcome::Nothing
            }
        }
    }

    /// Writes one frame.
    pub fn transmit(&self, frame: &TxFrame) -> Outcome {
        let header = if self.has_header { vnet::of(frame) } else { [0; vnet::LEN] };
        let header: &[u8] = if self.has_header { &header } else { &[] };
        // To fill in many pieces takes longer than all else, so there are as few as suffice.
        let written = match frame.payload.mbuf_count() {
            0..=PIECES_FEW => self.write::<{ 2 + PIECES_FEW }>(header, frame),
            count if count <= PIECES_MAX - 2 => self.write::<PIECES_MAX>(header, frame),
            _ => {
                // Some hundred small writes in one segment: the system call takes no more pieces than it likes.
                let mut joined = vec![0; frame.payload.len()];
                frame.payload.copy_to(0, &mut joined);
                let pieces = [header, frame.head(), &joined].map(IoSlice::new);
                retry_on_intr(|| rustix::io::writev(&self.fd, &pieces))
            }
        };
        match written {
            Ok(_) => {
                self.counters.inc(count::FRAMES_OUT);
                self.counters.add(count::BYTES_OUT, frame.len() as u64);
                Outcome::Done
            }
            Err(error) => {
                self.counters.inc(count::REFUSED);
                if matches!(error, Errno::BADFD | Errno::NODEV) { Outcome::Gone } else { Outcome::Nothing }
            }
        }
    }

    /// Writes a frame whose payload is in at most `N - 2` mbufs.
    fn write<const N: usize>(&self, header: &[u8], frame: &TxFrame) -> rustix::io::Result<usize> {
        let mut pieces = [IoSlice::new(&[]); N];
        let (fixed, rest) = pieces.split_at_mut(2);
        (fixed[0], fixed[1]) = (IoSlice::new(header), IoSlice::new(frame.head()));
        let filled = frame.payload.fill_io_slices(rest);
        retry_on_intr(|| rustix::io::writev(&self.fd, &pieces[..2 + filled]))
    }

    /// **Blocks** until there is a frame or an interruption; for the latter alone if the device `is_gone`. True if the
    /// device reports that it is in error.
    pub fn wait(&self, spin: Duration, is_gone: bool) -> bool {
        // Relaxed, here and below: with the lock, see the module's head.
        self.is_waited_on.store(true, Ordering::Relaxed);
        self.reader.lock().rest();
        let error = self.wait_at_rest(spin, is_gone);
        self.is_waited_on.store(false, Ordering::Relaxed);
        error
    }

    /// [`Queue::wait`], with no packet memory.
    fn wait_at_rest(&self, spin: Duration, is_gone: bool) -> bool {
        if self.interrupted.load(Ordering::Acquire) {
            return false;
        }
        let mut error = false;
        let mut look = |timeout: Option<&Timespec>| {
            let (ready, failed) = self.poll(timeout, is_gone);
            error |= failed;
            ready
        };
        if !Spin::up_to(spin).until(|| look(Some(&NOW))) {
            self.counters.inc(count::SLEEPS);
            look(None);
        }
        error
    }

    /// Whether there is something to do, and whether the device is in error.
    fn poll(&self, timeout: Option<&Timespec>, is_gone: bool) -> (bool, bool) {
        let mut fds = [PollFd::new(&self.interrupt, PollFlags::IN), PollFd::new(&self.fd, PollFlags::IN)];
        let watched = if is_gone { 1 } else { fds.len() };
        // A signal ends it early, which the caller may stand.
        let ready = poll(&mut fds[..watched], timeout) != Ok(0);
        let failed = !is_gone && fds[1].revents().intersects(PollFlags::ERR | PollFlags::NVAL);
        (ready, failed)
    }

    /// **Blocks** a caller until there is a frame, a kick (which it takes away), an interruption or the deadline. How it ended,
    /// and whether the device reports that it is in error.
    pub fn wait_until(&self, deadline: Option<Instant>) -> (Waited, bool) {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        // A deadline that the system cannot express counts as none.
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        let mut fds = [&self.fd, &self.kick, &self.interrupt].map(|fd| PollFd::new(fd, PollFlags::IN));
        match poll(&mut fds, timeout.as_ref()) {
            Ok(0) => return (Waited::TimedOut, false),
            Ok(_) => {}
            // A signal.
            Err(Errno::INTR) => return (Waited::Woken, false),
            Err(_) => return (Waited::Unable, false),
        }
        let [device, kick, interrupt] = fds.map(|fd| fd.revents());
        if !kick.is_empty() {
            // The thread that has written it has set the condition that we look at next.
            let _ = rustix::io::read(&self.kick, &mut [0; 8]);
        }
        let failed = device.intersects(PollFlags::ERR | PollFlags::NVAL);
        (if failed || !interrupt.is_empty() { Waited::Unable } else { Waited::Woken }, failed)
    }

    /// Ends the wait of a caller.
    pub fn kick(&self) {
        // As in `interrupt`.
        let _ = rustix::io::write(&self.kick, &1u64.to_ne_bytes());
    }

    /// Ends the wait, and every later one.
    pub fn interrupt(&self) {
        // Release, with the acquire in `wait`; the eventfd orders it for a thread that is in `poll` already.
        self.interrupted.store(true, Ordering::Release);
        // Refused only if the count is at its end, and then the level is there.
        let _ = rustix::io::write(&self.interrupt, &1u64.to_ne_bytes());
    }
}

/// A poll that does not wait.
const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
