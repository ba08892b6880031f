//! Interfaces that lie about where they have put a frame's payload.

use std::io::{ErrorKind, Read, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use sockeye::netif::{Netif, RxDirect, RxFrame, Sent, TxFrame, WireConfig, WireEnd, wire};

use crate::LONG;
use crate::common;
use crate::lab::{Lab, as_its_end};

#[derive(Clone, Copy, PartialEq, Debug)]
enum Lie {
    /// More payload than there is room for, in memory of the interface's own.
    TooLong,
    /// The payload, in memory of the interface's own.
    Elsewhere,
    /// The payload, not at the beginning of the place.
    Shifted,
    /// The same place holds two frames.
    Twice,
    /// No payload at all.
    Nothing,
    /// Frames that are not shown.
    Uncounted,
}

const LIES: [Lie; 6] = [Lie::TooLong, Lie::Elsewhere, Lie::Shifted, Lie::Twice, Lie::Nothing, Lie::Uncounted];

/// An end of a wire that puts payload where it is wanted, but for one lie.
struct Lying {
    end: WireEnd,
    next: &'static Mutex<Option<Lie>>,
}

impl Lying {
    /// Shows a frame with the next lie, if that can be told of it.
    fn show(&self, bytes: &[u8], head_len: usize, place: &mut [u8], sink: &mut dyn FnMut(RxDirect<'_>)) {
        let (head, text) = bytes.split_at(bytes.len().min(head_len));
        let (fits, rest) = text.split_at(text.len().min(place.len()));
        let is_possible = |lie: &mut Lie| match lie {
            Lie::TooLong => !rest.is_empty(),
            Lie::Shifted => !text.is_empty() && text.len() < place.len(),
            Lie::Elsewhere | Lie::Twice | Lie::Nothing => !text.is_empty(),
            Lie::Uncounted => false,
        };
        let lie = self.next.lock().unwrap().take_if(is_possible);
        let offset = usize::from(lie == Some(Lie::Shifted));
        place[offset..offset + fits.len()].copy_from_slice(fits);
        let placed = &place[offset..offset + fits.len()];
        let checksum = sockeye::netif::Checksum::Device;
        let honest = RxDirect { head, placed, rest, checksum, gso_size: 0 };
        match lie {
            None | Some(Lie::Shifted | Lie::Uncounted) => sink(honest),
            Some(Lie::TooLong) => sink(RxDirect { placed: text, rest: &[], ..honest }),
            Some(Lie::Elsewhere) => sink(RxDirect { placed: fits, ..honest }),
            Some(Lie::Twice) => (0..2).for_each(|_| sink(honest)),
            Some(Lie::Nothing) => sink(RxDirect { placed: &[], rest: &[], ..honest }),
        }
    }
}

impl Netif for Lying {
    as_its_end!();
    fn transmit(&self, flow: u64, frames: &mut Vec<TxFrame>) -> Sent {
        self.end.transmit(flow, frames)
    }
    fn receive(&self, queue: usize, max: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        self.end.receive(queue, max, sink)
    }
    fn receive_into(
        &self,
        queue: usize,
        head_len: usize,
        place: &mut [u8],
        sink: &mut dyn FnMut(RxDirect<'_>),
    ) -> Option<usize> {
        if self.next.lock().unwrap().take_if(|lie| *lie == Lie::Uncounted).is_some() {
            return Some(usize::MAX);
        }
        Some(self.end.receive(queue, 1, &mut |frame| {
            let mut bytes = frame.head.to_vec();
            frame.rest.iter().for_each(|piece| bytes.extend_from_slice(piece));
            self.show(&bytes, head_len, place, sink);
        }))
    }
    fn wait(&self, queue: usize, spin: Duration) {
        self.end.wait(queue, spin);
    }
}

/// What a reader with this room is sent: just enough for it, less, and more.
const ROOM: usize = 100;
const SIZES: [usize; 3] = [100, 60, 200];

#[test]
fn a_frame_that_its_interface_has_not_put_in_its_place_is_dropped_and_counted() {
    static NEXT: Mutex<Option<Lie>> = Mutex::new(None);
    let (left, right) = wire(&WireConfig::default()).unwrap();
    let lying = |end| Lying { end, next: &NEXT };
    let lab = Lab::between(lying(left), lying(right), |config| {
        // Callers take frames themselves, and lost ones are repeated soon.
        (config.spin_max, config.tcp.rto_min) = (Duration::from_millis(10), Duration::from_millis(10));
    });
    let (mut client, mut server) = lab.pair();
    client.set_read_timeout(Some(LONG)).unwrap();
    let echo = std::thread::spawn(move || {
        let mut buf = [0; ROOM];
        loop {
            match server.read(&mut buf) {
                Ok(0) => return,
                Ok(len) => server.write_all(&buf[..len]).unwrap(),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Interrupted),
            }
        }
    });
    let mut round = 0_u8;
    for lie in LIES {
        let before = lab.count("frames_misplaced");
        *NEXT.lock().unwrap() = Some(lie);
        let end = Instant::now() + LONG;
        while NEXT.lock().unwrap().is_some() {
            assert!(Instant::now() < end, "{lie:?} was never told");
            for len in SIZES {
                round = round.wrapping_add(1);
                let sent: Vec<u8> = (0..len).map(|at| round.wrapping_add(at as u8)).collect();
                client.write_all(&sent).unwrap();
                let (mut got, mut room) = (Vec::new(), [0; ROOM]);
                while got.len() < len {
                    let taken = client.read(&mut room).unwrap();
                    got.extend_from_slice(&room[..taken]);
                }
                assert_eq!(got, sent, "{lie:?}");
            }
        }
        // The others are no frames, or such as the parser refuses.
        let is_misplaced = !matches!(lie, Lie::Nothing | Lie::Uncounted);
        assert_eq!(lab.count("frames_misplaced") - before, u64::from(is_misplaced), "{lie:?}");
    }
    drop(client);
    common::join(echo);
    assert_eq!((lab.count("panics_protocol"), lab.count("panics_foreign")), (0, 0));
}
