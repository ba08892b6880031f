//! The captures, read by an independent reader.

use std::time::Duration;

use pcap_parser::pcapng::{Block, OptionCode};
use pcap_parser::{Linktype, PcapBlockOwned, PcapError, PcapNGReader, traits::PcapReaderIterator};
use sockeye_sim::net::{TcpListener, TcpStream};
use sockeye_sim::{Capture, LinkConfig, Sim};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A capture, and its expected content: packets and losses.
fn capture() -> (Vec<u8>, u64, u64) {
    Sim::exactly(9).capture(Capture::All).run(|net| async move {
        let (client, server) = (net.host("client"), net.host("server"));
        net.link(&client, &server, LinkConfig { loss: 0.05, ..LinkConfig::rtt(Duration::from_millis(20)) });
        let addr = server.at(80);
        server.spawn(async move {
            let (mut stream, _) = TcpListener::bind(addr).await?.accept().await?;
            stream.write_all(&[7; 100_000]).await
        });
        let all = client.spawn(async move {
            let mut all = Vec::new();
            TcpStream::connect(addr).await?.read_to_end(&mut all).await
        });
        assert_eq!(all.await.unwrap().unwrap(), 100_000);
        let mut file = Vec::new();
        net.write_pcap(&mut file).unwrap();
        let stats = net.stats();
        (file, stats.offered, stats.lost)
    })
}

#[test]
fn another_reader_finds_interfaces_packets_times_and_comments() {
    let (file, offered, lost) = capture();
    let mut reader = PcapNGReader::new(1 << 16, &file[..]).unwrap();
    let (mut names, mut packets, mut comments, mut last) = (Vec::new(), 0, 0, 0);
    loop {
        let (len, block) = match reader.next() {
            Ok(next) => next,
            Err(PcapError::Eof) => break,
            Err(PcapError::Incomplete(_)) => {
                reader.refill().unwrap();
                continue;
            }
            Err(error) => panic!("{error:?}"),
        };
        match block {
            PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
                assert_eq!((interface.linktype, interface.if_tsresol), (Linktype(101), 9));
                names.push(interface.if_name().unwrap().unwrap().to_owned());
            }
            PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
                let at = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
                assert!(at >= last && packet.if_id < 2 && packet.caplen == packet.origlen);
                assert_eq!(packet.data[0] >> 4, 4, "the packet begins with an IPv4 header");
                let total = u16::from_be_bytes([packet.data[2], packet.data[3]]);
                assert_eq!(u32::from(total), packet.origlen);
                comments +=
                    packet.options.iter().filter(|option| option.code == OptionCode::Comment).count() as u64;
                (packets, last) = (packets + 1, at);
            }
            PcapBlockOwned::NG(Block::SectionHeader(_)) => {}
            _ => panic!("there are no other blocks"),
        }
        reader.consume(len);
    }
    assert_eq!(names, ["client → server", "server → client"]);
    assert_eq!((packets, comments), (offered, lost));
    assert!(last > 20_000_000 && lost > 0, "nanoseconds: {last}");
}
