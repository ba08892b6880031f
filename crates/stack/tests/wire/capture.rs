//! Capture on an interface: a reader of the format checks the files.

use std::io::{Read, Write};
use std::path::PathBuf;

use crate::lab::Lab;
use pcap_parser::traits::PcapReaderIterator;
use pcap_parser::{Block, Linktype, PcapBlockOwned, PcapError, PcapNGReader};
use sockeye::netif::{CaptureConfig, WireConfig, capture, wire};

/// A folder that is deleted with this value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sockeye-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

/// Bytes kept, original length and flags of every packet of a file, in order.
fn packets(path: &PathBuf) -> Vec<(Vec<u8>, u32)> {
    let mut reader = PcapNGReader::new(1 << 20, std::fs::File::open(path).unwrap()).unwrap();
    let mut found = Vec::new();
    loop {
        match reader.next() {
            Ok((used, block)) => {
                match block {
                    PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
                        let kept = packet.data[..packet.caplen as usize].to_vec();
                        found.push((kept, packet.origlen));
                    }
                    PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
                        assert_eq!(interface.linktype, Linktype(101));
                    }
                    _ => {}
                }
                reader.consume(used);
            }
            Err(PcapError::Eof) => return found,
            Err(PcapError::Incomplete(_)) => reader.refill().unwrap(),
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// Parts of a transfer.
const PIECES: usize = 10;

/// A transfer over a wire with a capture on one end; the capture is complete when this returns.
fn transfer(config: &CaptureConfig, bytes: usize) -> (u64, sockeye::netif::CaptureCounts) {
    let (left, right) = wire(&WireConfig::default()).unwrap();
    let (left, handle) = capture(left, config).unwrap();
    let lab = Lab::between(left, right, |_| {});
    let (mut client, mut server) = lab.pair();
    // In pieces, each of which is written out: so many batches there are at least.
    let piece = vec![7; bytes / PIECES];
    for _ in 0..PIECES {
        std::thread::scope(|scope| {
            scope.spawn(|| client.write_all(&piece).unwrap());
            server.read_exact(&mut vec![0; piece.len()]).unwrap();
        });
        handle.flush();
    }
    drop(client);
    drop(server);
    lab.assert_empty();
    let frames = crate::common::counter(&lab.stacks[0], "frames_in")
        + crate::common::counter(&lab.stacks[0], "frames_out");
    handle.flush();
    (frames, handle.counts())
}

#[test]
fn every_frame_of_both_directions_is_in_the_file_up_to_the_snap_length() {
    let _guard = crate::common::watchdog("capture");
    let folder = Folder::new("capture");
    let config = CaptureConfig { snaplen: 60, ..CaptureConfig::to(folder.file("all.pcapng")) };
    let (frames, counts) = transfer(&config, 300_000);
    let packets = packets(&config.path);
    assert_eq!((counts.recorded, counts.lost), (frames, 0));
    assert_eq!(packets.len() as u64, frames);
    assert!(packets.iter().all(|(kept, len)| kept.len() == (*len as usize).min(60)));
    let data: usize =
        packets.iter().map(|(kept, len)| *len as usize - 20 - usize::from(kept[32] >> 4) * 4).sum();
    assert!(data >= 300_000, "{data}");
    assert_eq!(packets[0].0[33], 2, "the first is a SYN");
}

#[test]
fn files_are_bounded_and_the_oldest_is_deleted() {
    let _guard = crate::common::watchdog("rotation");
    let folder = Folder::new("rotation");
    let path = folder.file("ring.pcapng");
    let config =
        CaptureConfig { file_max: 4096, files: 3, buffer_max: 16_384, ..CaptureConfig::to(path.clone()) };
    let (frames, counts) = transfer(&config, 1_000_000);
    assert_eq!(counts.recorded + counts.lost, frames);
    let names = ["ring.pcapng", "ring.pcapng.1", "ring.pcapng.2"];
    for name in names {
        assert!(!packets(&folder.file(name)).is_empty(), "{name}");
        assert!(std::fs::metadata(folder.file(name)).unwrap().len() <= 4096 + 16_384);
    }
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), names.len());
    let one = CaptureConfig { files: 1, ..config };
    let (frames, counts) = transfer(&one, 1_000_000);
    assert!(counts.lost > 0 && counts.recorded + counts.lost == frames, "{counts:?} of {frames}");
    assert_eq!(packets(&path).len() as u64, counts.recorded);
}

#[test]
fn an_invalid_capture_setting_is_refused_by_the_name_of_its_field() {
    let folder = Folder::new("refused");
    let good = CaptureConfig::to(folder.file("none"));
    for (config, name) in [
        (CaptureConfig { snaplen: 0, ..good.clone() }, "snaplen"),
        (CaptureConfig { files: 0, ..good.clone() }, "files"),
        (CaptureConfig { file_max: 1, ..good.clone() }, "file_max"),
        (CaptureConfig { buffer_max: 1, ..good.clone() }, "buffer_max"),
    ] {
        let (end, _) = wire(&WireConfig::default()).unwrap();
        assert!(capture(end, &config).err().unwrap().to_string().contains(name));
    }
    let (end, _) = wire(&WireConfig::default()).unwrap();
    assert!(capture(end, &CaptureConfig::to("/proc/no such file")).is_err());
}
