//! Sends consecutive datagrams of equal length with one system call (UDP_SEGMENT, udp(7)): a *run*.
//!
//! The kernel then routes and charges the run once, and the receiver gets single datagrams. If the kernel refuses a run, because its datagrams are longer than
//! the path MTU or because the device computes no checksums, the flow sends datagrams of this length and above one by one from then on.
//!
//! Sends do not wait for writability: there nearly always is room, and a datagram for which there is none is lost.
//!
//! Does not depend on flows. Bounds: [`RUN_MAX`] bytes and [`COUNT_MAX`] datagrams in a run. Tests: below.

use std::cell::Cell;
use std::io::{self, ErrorKind, IoSlice};

use socket2::{MsgHdr, SockRef};
use tokio::net::UdpSocket;

/// Bytes of a run: those of the longest datagram over IPv4, which is the kernel's bound.
const RUN_MAX: usize = 65_507;
/// Datagrams of a run: the bound of older kernels (UDP_MAX_SEGMENTS).
const COUNT_MAX: usize = 64;
/// Bytes of the largest datagram, and more.
pub const DATAGRAM_MAX: usize = 64 << 10;
/// Bytes of a buffer in which a run is put together: the run, and a datagram behind it that turns out not to belong to it.
pub const BUFFER_LEN: usize = 2 * DATAGRAM_MAX;

/// A run that is being put together in a buffer.
#[derive(Default)]
pub struct Run {
    /// Where it stands.
    start: usize,
    end: usize,
    /// Bytes of each datagram but the last, which may be shorter.
    size: usize,
    count: usize,
}

impl Run {
    /// Room for the next datagram, behind the run. `buffer` has [`BUFFER_LEN`] bytes at least.
    pub fn room<'b>(&mut self, buffer: &'b mut [u8]) -> &'b mut [u8] {
        if self.end + DATAGRAM_MAX > buffer.len() {
            buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        &mut buffer[self.end..]
    }

    /// Whether a datagram of this length can go with it.
    pub fn takes(&self, len: usize) -> bool {
        let bytes = self.end - self.start;
        // A shorter one is the last.
        let is_open = bytes == self.size * self.count && self.count < COUNT_MAX;
        self.count == 0 || (is_open && len > 0 && len <= self.size && bytes + len <= RUN_MAX)
    }

    /// The datagram of this length that stands in the room is the next of the run, or the first.
    pub fn push(&mut self, len: usize) {
        if self.count == 0 {
            self.size = len;
        }
        (self.end, self.count) = (self.end + len, self.count + 1);
    }

    /// Takes the run out; the next one begins behind it.
    pub fn take<'b>(&mut self, buffer: &'b [u8]) -> Option<Together<'b>> {
        let (start, size, count) = (self.start, self.size, std::mem::take(&mut self.count));
        self.start = self.end;
        (count > 0).then(|| Together { bytes: &buffer[start..self.end], size })
    }
}

/// Datagrams one behind the other, of one length; the last may be shorter.
pub struct Together<'b> {
    bytes: &'b [u8],
    size: usize,
}

/// How a flow sends.
pub struct Sender {
    /// The longest datagrams that the kernel takes together, as far as is known.
    size_max: Cell<usize>,
}

impl Default for Sender {
    fn default() -> Self {
        Self { size_max: Cell::new(DATAGRAM_MAX) }
    }
}

impl Sender {
    /// Sends a run. Errors are told one by one; a datagram for which there is no room is lost.
    pub fn send(&self, socket: &UdpSocket, run: &Together<'_>, mut told: impl FnMut(&io::Error)) {
        let Together { bytes, size } = *run;
        if bytes.len() > size && size <= self.size_max.get() {
            match together(socket, bytes, size) {
                Ok(()) => return,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINVAL | libc::EMSGSIZE | libc::EIO | libc::EOPNOTSUPP) => {
                        self.size_max.set(size - 1);
                    }
                    // It is about earlier datagrams, and none of these was sent.
                    _ => told(&error),
                },
            }
        }
        if bytes.is_empty() {
            // A datagram without bytes.
            let _ = SockRef::from(socket).send(bytes).inspect_err(&mut told);
        }
        for one in bytes.chunks(size.max(1)) {
            let _ = SockRef::from(socket).send(one).inspect_err(&mut told);
        }
    }
}

/// Bytes of the control message that says how long each datagram is: a header of a length, a level and a kind, and 16 bits, padded to whole words.
const CONTROL_LEN: usize = (HEADER_LEN + 2).next_multiple_of(size_of::<usize>());
const HEADER_LEN: usize = size_of::<usize>() + 2 * size_of::<i32>();

/// Sends datagrams of `size` bytes, the last of which may have fewer, by one call.
fn together(socket: &UdpSocket, bytes: &[u8], size: usize) -> io::Result<()> {
    let size = u16::try_from(size).map_err(|_| io::Error::from_raw_os_error(libc::EMSGSIZE))?;
    let fields: [&[u8]; 4] = [
        &(HEADER_LEN + 2).to_ne_bytes(),
        &libc::IPPROTO_UDP.to_ne_bytes(),
        &libc::UDP_SEGMENT.to_ne_bytes(),
        &size.to_ne_bytes(),
    ];
    let mut control = [0; CONTROL_LEN];
    control.iter_mut().zip(fields.iter().copied().flatten()).for_each(|(to, from)| *to = *from);
    let pieces = [IoSlice::new(bytes)];
    let message = MsgHdr::new().with_buffers(&pieces).with_control(&control);
    SockRef::from(socket).sendmsg(&message, 0).map(drop)
}

#[cfg(test)]
mod tests {
    use tokio::io::Interest;

    use super::*;

    /// Puts datagrams of these lengths together, and returns the lengths of each run.
    fn runs(lens: &[usize]) -> Vec<Vec<usize>> {
        let (mut buffer, mut run, mut runs) = (vec![0; BUFFER_LEN], Run::default(), Vec::new());
        let mut note = |together: Option<Together<'_>>| {
            let Some(Together { bytes, size }) = together else { return };
            runs.push(bytes.chunks(size.max(1)).map(<[u8]>::len).collect());
        };
        for (number, len) in lens.iter().enumerate() {
            let room = run.room(&mut buffer);
            assert!(room.len() >= DATAGRAM_MAX);
            room[..*len].fill(number as u8);
            if !run.takes(*len) {
                note(run.take(&buffer));
            }
            run.push(*len);
        }
        note(run.take(&buffer));
        assert!(run.take(&buffer).is_none());
        runs
    }

    #[test]
    fn a_run_has_datagrams_of_one_length_and_a_shorter_one_is_its_last() {
        assert_eq!(runs(&[100, 100, 40, 40, 100]), [vec![100, 100, 40], vec![40], vec![100]]);
        assert_eq!(runs(&[40, 41]), [[40], [41]]);
        assert_eq!(runs(&[0, 0, 5, 0]), [vec![], vec![], vec![5], vec![]]);
        assert_eq!(runs(&[10; 130]).iter().map(Vec::len).collect::<Vec<_>>(), [64, 64, 2]);
        assert_eq!(runs(&[65_507; 5]).len(), 5);
        assert_eq!(runs(&[8192; 16]).iter().map(Vec::len).collect::<Vec<_>>(), [7, 7, 2]);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_run_arrives_as_single_datagrams_and_a_report_costs_none() {
        let receiver = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let closed = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        sender.connect(closed).await.unwrap();
        sender.send(b"to nobody").await.unwrap();
        sender.ready(Interest::ERROR).await.unwrap();
        sender.connect(receiver.local_addr().unwrap()).await.unwrap();
        let bytes: Vec<u8> = (0..250u8).collect();
        for size_max in [DATAGRAM_MAX, 0] {
            let how = Sender { size_max: Cell::new(size_max) };
            how.send(&sender, &Together { bytes: &bytes, size: 100 }, |error| {
                assert_eq!(error.kind(), ErrorKind::ConnectionRefused)
            });
            let mut buffer = [0; 1000];
            for expected in bytes.chunks(100) {
                let len = receiver.recv(&mut buffer).await.unwrap();
                assert_eq!(&buffer[..len], expected);
            }
        }
    }
}
