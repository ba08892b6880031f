//! Frames over a pair of sockets: whole frames in pieces, ends of connections, readers that are behind, waits.

use super::*;
use sockeye_mbuf::{Pool, PoolConfig};
use sockeye_netif::Checksum;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

fn pair() -> (FrameStream, UnixStream) {
    let stream = FrameStream::new(MacAddr([2, 0, 0, 0, 0, 1]), 65_520).unwrap();
    let (ours, theirs) = UnixStream::pair().unwrap();
    stream.connect(ours.into()).unwrap();
    (stream, theirs)
}

fn received(stream: &FrameStream, max: usize) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    stream.receive(0, max, &mut |frame| frames.push(frame.head.to_vec()));
    frames
}

fn framed(frame: &[u8]) -> Vec<u8> {
    [&(frame.len() as u32).to_be_bytes(), frame].concat()
}

#[test]
fn frames_arrive_in_pieces_of_any_size_and_in_bounded_batches() {
    let (stream, mut other) = pair();
    let frames: Vec<Vec<u8>> = [60, 1514, 65_534, 14].map(|len| vec![len as u8; len]).to_vec();
    let bytes: Vec<u8> = frames.iter().flat_map(|frame| framed(frame)).collect();
    let mut seen = Vec::new();
    for piece in bytes.chunks(977) {
        other.write_all(piece).unwrap();
        seen.extend(received(&stream, 2));
    }
    assert_eq!(seen, frames);
    other.write_all(&[framed(&[1]), framed(&[2]), framed(&[3])].concat()).unwrap();
    assert_eq!(received(&stream, 2), [[1], [2]]);
    assert_eq!(received(&stream, 2), [[3]]);
    assert!(stream.is_connected());
}

#[test]
fn what_is_no_frame_ends_the_connection_and_another_may_come() {
    for wrong in [[0, 0, 0, 0], [0, 2, 0, 0], [0xff; 4]] {
        let (stream, mut other) = pair();
        other.write_all(&framed(&[7])).unwrap();
        other.write_all(&wrong).unwrap();
        assert_eq!(received(&stream, 10), [[7]]);
        assert!(!stream.is_connected() && !stream.is_down());
        assert_eq!(stream.counts().broken, 1);
        other.set_nonblocking(true).unwrap();
        assert_eq!(other.read(&mut [0; 8]).unwrap(), 0, "the other side hears of it");
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        stream.connect(ours.into()).unwrap();
        theirs.write_all(&framed(&[8])).unwrap();
        assert_eq!(received(&stream, 10), [[8]]);
        drop(theirs);
        assert_eq!(received(&stream, 10).len(), 0);
        assert!(!stream.is_connected());
        stream.end();
        assert!(stream.is_down());
    }
}

#[test]
fn a_reader_that_stops_gets_whole_frames_later_and_the_rest_is_dropped() {
    let pool = Pool::new(PoolConfig::default());
    let (stream, mut other) = pair();
    let frame = |number: usize| {
        let payload = pool.copy_in(&vec![number as u8; 60_000]).unwrap();
        TxFrame::new(&[number as u8; 40], payload, Checksum::Software).unwrap()
    };
    let dropped: usize =
        (0..40).map(|number| stream.transmit(0, &mut vec![frame(number)]).dropped_count).sum();
    assert!(dropped > 0 && stream.has_unsent());
    let mut seen = Vec::new();
    let mut len = [0; 4];
    for _ in 0..40 - dropped {
        stream.flush();
        other.read_exact(&mut len).unwrap();
        let mut bytes = vec![0; u32::from_be_bytes(len) as usize];
        // It is longer than what the socket holds.
        let mut read = 0;
        while read < bytes.len() {
            stream.flush();
            read += other.read(&mut bytes[read..]).unwrap();
        }
        assert!(bytes.len() == 60_040 && bytes.iter().all(|byte| *byte == bytes[0]));
        seen.push(usize::from(bytes[0]));
    }
    assert_eq!(seen, (0..40 - dropped).collect::<Vec<_>>(), "the oldest are kept");
    assert!(!stream.has_unsent());
    drop(other);
    assert_eq!(stream.transmit(0, &mut vec![frame(1)]).dropped_count, 1);
    assert!(!stream.is_connected());
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn a_reader_that_is_always_behind_costs_no_more_memory_than_what_waits() {
    let pool = Pool::new(PoolConfig::default());
    let (stream, mut other) = pair();
    let transmit = || {
        let payload = pool.copy_in(&[7; 60_000]).unwrap();
        stream.transmit(0, &mut vec![TxFrame::new(&[7; 40], payload, Checksum::Software).unwrap()])
    };
    let mut bytes = vec![0; 60_044];
    for _ in 0..40 {
        transmit();
    }
    for turn in 0..1000 {
        other.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes[..4], 60_040u32.to_be_bytes(), "frame {turn}");
        assert!(bytes[4..].iter().all(|byte| *byte == 7), "frame {turn}");
        stream.flush();
        transmit();
        assert!(stream.has_unsent(), "the reader is behind");
    }
    assert!(stream.inner.sender.lock().unsent.capacity() <= 2 * UNSENT_MAX);
}

#[test]
fn a_connection_that_ends_while_it_begins_is_found_to_have_ended() {
    let stream = FrameStream::new(MacAddr([2, 0, 0, 0, 0, 1]), 1500).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Acquire) {
                received(&stream, 10);
            }
        });
        for _ in 0..100 {
            let (ours, theirs) = UnixStream::pair().unwrap();
            drop(theirs);
            stream.connect(ours.into()).unwrap();
            let begun = std::time::Instant::now();
            while stream.is_connected() && begun.elapsed() < Duration::from_secs(20) {
                std::thread::yield_now();
            }
            if stream.is_connected() {
                break;
            }
        }
        is_over.store(true, Ordering::Release);
    });
    assert!(!stream.is_connected());
}

#[test]
fn a_wait_ends_with_a_frame_a_connection_or_an_interruption() {
    let stream = FrameStream::new(MacAddr([2, 0, 0, 0, 0, 1]), 1500).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            while received(&stream, 10).is_empty() {
                stream.wait(0, Duration::ZERO);
            }
        });
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        stream.connect(ours.into()).unwrap();
        theirs.write_all(&framed(&[1])).unwrap();
        waiting.join().unwrap();
        let waiting = scope.spawn(|| stream.wait(0, Duration::ZERO));
        stream.interrupt(0);
        waiting.join().unwrap();
        // Another stack gets it.
        let pool = Pool::new(PoolConfig::default());
        stream.attached(&pool);
        let waiting = scope.spawn(|| {
            let mut waits = 0;
            while received(&stream, 10).is_empty() {
                stream.wait(0, Duration::ZERO);
                waits += 1;
            }
            waits
        });
        std::thread::sleep(Duration::from_millis(20));
        theirs.write_all(&framed(&[1])).unwrap();
        let waits = waiting.join().unwrap();
        assert!(waits < 10, "{waits} waits");
    });
}
