//! The effect of links on connections over them.

use std::time::Duration;

use sockeye::{CongestionControl, MtuProbing};
use sockeye_sim::net::{TcpListener, TcpStream};
use sockeye_sim::{Burst, Fate, Host, HostConfig, LinkConfig, LinkStats, Net, Sim, time};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const MS: Duration = Duration::from_millis(1);

/// Which of a link's counters.
type Count = fn(&LinkStats) -> u64;

/// Two hosts and a link.
fn pair(net: &Net, config: LinkConfig) -> (Host, Host, sockeye_sim::Link) {
    let (client, server) = (net.host("client"), net.host("server"));
    let link = net.link(&client, &server, config);
    (client, server, link)
}

/// Bytes that a position decides, so that any loss or change of place shows.
fn bytes(len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

/// Sends `len` bytes from `client` to `server`; the time from the connect to the reader's end of stream.
async fn transfer(client: &Host, server: &Host, len: usize) -> Duration {
    let addr = server.at(80);
    let received = server.spawn(async move {
        let listener = TcpListener::bind(addr).await.unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).await.unwrap();
        all
    });
    let start = time::Instant::now();
    client.spawn(async move {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        stream.write_all(&bytes(len)).await.unwrap();
        stream.shutdown().await.unwrap();
        // Unread bytes would make the close a reset; the peer sends none.
        assert_eq!(stream.read(&mut [0; 1]).await.unwrap(), 0);
    });
    let all = received.await.unwrap();
    assert!(all == bytes(len), "{} of {len} bytes, or other ones", all.len());
    start.elapsed()
}

#[test]
fn a_perfect_link_takes_exactly_its_delay_and_serialisation_time_and_duplicates_nothing() {
    Sim::new(1).run(|net| async move {
        let config = LinkConfig { rate: Some(100_000_000), queue: 4 << 20, ..LinkConfig::rtt(20 * MS) };
        let (client, server, link) = pair(&net, config);
        let took = transfer(&client, &server, 4 << 20).await;
        // 4 MiB at 100 Mbit/s take 336 ms, plus the handshake and slow start.
        assert!(took > 356 * MS && took < 700 * MS, "{took:?}");
        let traffic = net.traffic();
        assert_eq!((traffic.retransmitted, traffic.resets, traffic.connects), (0, 0, 1));
        assert_eq!(traffic.payload_bytes, 4 << 20);
        assert_eq!(link.there().stats().faults() + link.back().stats().faults(), 0);
    });
}

#[test]
fn every_fault_is_survived_and_counted() {
    let faults: [(&str, LinkConfig, Count); 6] = [
        ("loss", LinkConfig { loss: 0.02, ..LinkConfig::default() }, |s| s.lost),
        (
            "burst",
            LinkConfig { burst: Some(Burst { begin: 0.005, end: 0.3, loss: 0.8 }), ..LinkConfig::default() },
            |s| s.lost,
        ),
        ("duplicate", LinkConfig { duplicate: 0.05, ..LinkConfig::default() }, |s| s.duplicated),
        ("reorder", LinkConfig { reorder: 0.05, ..LinkConfig::default() }, |s| s.held),
        ("corrupt", LinkConfig { corrupt: 0.02, ..LinkConfig::default() }, |s| s.corrupted),
        ("queue", LinkConfig { rate: Some(10_000_000), queue: 16 << 10, ..LinkConfig::default() }, |s| {
            s.queue_full
        }),
    ];
    for (name, config, count) in faults {
        Sim::new(2).run(|net| async move {
            let (client, server, link) = pair(&net, LinkConfig { delay: 5 * MS, ..config });
            transfer(&client, &server, 1 << 20).await;
            let seen = count(&link.there().stats());
            assert!(seen > 0, "no packet met with {name}: {:?}", link.there().stats());
        });
    }
}

#[test]
fn a_predicate_selects_packets_to_drop_and_tcp_sends_them_again() {
    Sim::new(3).run(|net| async move {
        let (client, server, link) = pair(&net, LinkConfig::rtt(10 * MS));
        let mut dropped = 0;
        link.there().filter(move |packet| {
            let data = packet.segment().is_some_and(|segment| segment.len > 0);
            dropped += u32::from(data);
            if data && dropped == 3 { Fate::Drop } else { Fate::Pass }
        });
        transfer(&client, &server, 100_000).await;
        assert_eq!(link.there().stats().filtered, 1);
        let again = net.retransmissions();
        assert_eq!(again.len(), 1, "{again:?}");
        assert!(!again[0].needless && again[0].by_ack && again[0].len > 0, "{again:?}");
    });
}

#[test]
fn a_partition_stalls_a_transfer_until_it_heals() {
    Sim::new(4).run(|net| async move {
        let (client, server, _) =
            pair(&net, LinkConfig { rate: Some(8_000_000), ..LinkConfig::rtt(10 * MS) });
        let cut = net.clone();
        let (left, right) = (client.clone(), server.clone());
        sockeye_sim::spawn(async move {
            time::sleep(300 * MS).await;
            cut.partition(&[&left], &[&right]);
            time::sleep(Duration::from_secs(20)).await;
            cut.heal();
        });
        let took = transfer(&client, &server, 1 << 20).await;
        assert!(took > Duration::from_secs(20), "{took:?}");
        assert!(net.stats().cut > 0);
    });
}

#[test]
fn a_link_may_differ_by_direction_and_change_while_it_is_used() {
    Sim::new(5).run(|net| async move {
        let (client, server, link) = pair(&net, LinkConfig::rtt(2 * MS));
        link.back().update(|back| back.delay = 50 * MS);
        let took = transfer(&client, &server, 10).await;
        // SYN there, SYN-ACK back, data there.
        assert!(took >= 52 * MS && took < 60 * MS, "{took:?}");
        link.there().update(|there| there.rate = Some(800_000));
        let later = transfer(&client, &server, 100_000);
        let error = time::timeout(Duration::from_millis(900), later).await.unwrap_err();
        assert_eq!(error, time::Elapsed, "100,000 bytes take a second at 800 kbit/s");
    });
}

#[test]
fn packets_longer_than_the_links_mtu_vanish() {
    Sim::new(6).run(|net| async move {
        let mut wide = HostConfig { mtu: 9000, ..HostConfig::default() };
        wide.stack.tcp.mtu_probing = MtuProbing::Off;
        let (client, server) =
            (net.host_with("client", wide.clone()).unwrap(), net.host_with("server", wide).unwrap());
        let link = net.link(&client, &server, LinkConfig { mtu: 1500, ..LinkConfig::default() });
        let stuck = time::timeout(Duration::from_secs(5), transfer(&client, &server, 100_000)).await;
        assert_eq!(stuck, Err(time::Elapsed));
        assert!(link.there().stats().too_long > 0);
    });
}

#[test]
fn a_silently_smaller_mtu_stalls_a_transfer_until_the_black_hole_is_found() {
    Sim::new(6).run(|net| async move {
        let wide = HostConfig { mtu: 9000, ..HostConfig::default() };
        let (client, server) =
            (net.host_with("client", wide.clone()).unwrap(), net.host_with("server", wide).unwrap());
        let config = LinkConfig { rate: Some(100_000_000), mtu: 9000, ..LinkConfig::rtt(20 * MS) };
        let link = net.link(&client, &server, config);
        let narrow = link.clone();
        sockeye_sim::spawn(async move {
            time::sleep(300 * MS).await;
            narrow.there().update(|there| there.mtu = 1500);
            narrow.back().update(|back| back.mtu = 1500);
        });
        let took = transfer(&client, &server, 20 << 20).await;
        // 1.7 s at the full rate; timeouts for three seconds and more before a black hole is suspected; then the search rises to the size that passes.
        assert!(took < Duration::from_secs(8), "{took:?}");
        let stats = link.there().stats();
        assert!(stats.too_long > 0);
        let packet = stats.delivered_bytes / stats.delivered;
        // The search begins with packets of 1,076 bytes.
        assert!(packet > 1300, "{packet} bytes a packet");
    });
}

#[test]
fn hosts_that_were_never_linked_reach_each_other_by_the_default_link_and_over_ipv6_too() {
    Sim::new(7).run(|net| async move {
        net.set_default_link(LinkConfig { delay: 30 * MS, ..LinkConfig::default() });
        let hosts: Vec<Host> = (0..3).map(|i| net.host(&format!("h{i}"))).collect();
        let addr = std::net::SocketAddr::new(hosts[2].addr_v6(), 9);
        hosts[2].spawn(async move {
            let listener = TcpListener::bind(addr).await.unwrap();
            loop {
                let (mut stream, from) = listener.accept().await.unwrap();
                stream.write_all(from.ip().to_string().as_bytes()).await.unwrap();
            }
        });
        for host in &hosts[..2] {
            let expected = host.addr_v6().to_string();
            let start = time::Instant::now();
            let text = host.spawn(async move {
                let mut text = String::new();
                TcpStream::connect(addr).await.unwrap().read_to_string(&mut text).await.unwrap();
                text
            });
            assert_eq!(text.await.unwrap(), expected);
            assert_eq!(start.elapsed(), 120 * MS, "two round trips");
        }
    });
}

#[test]
fn one_loss_in_a_window_of_megabytes_causes_one_retransmission() {
    Sim::new(8).run(|net| async move {
        let mut large = HostConfig::default();
        (large.stack.sndbuf, large.stack.rcvbuf) = (16 << 20, 16 << 20);
        let client = net.host_with("client", large.clone()).unwrap();
        let server = net.host_with("server", large).unwrap();
        let config = LinkConfig { rate: Some(1_000_000_000), queue: 16 << 20, ..LinkConfig::rtt(100 * MS) };
        let link = net.link(&client, &server, config);
        // About 4 MB are in flight when it is lost, and as many more are sent before the loss is noticed.
        link.there().filter(|packet| if packet.index == 5000 { Fate::Drop } else { Fate::Pass });
        transfer(&client, &server, 20 << 20).await;
        assert_eq!(link.there().stats().filtered, 1);
        let again = net.retransmissions();
        assert!(again.len() == 1 && !again[0].needless, "{again:?}");
    });
}

#[test]
fn thousands_of_holes_are_repaired_by_retransmitting_only_the_lost_segments() {
    Sim::new(9).run(|net| async move {
        let mut large = HostConfig::default();
        (large.stack.sndbuf, large.stack.rcvbuf) = (32 << 20, 32 << 20);
        // Slow start fills the path and, as nothing but a loss ends NewReno's, overshoots the queue, which then drops
        // every second packet.
        large.stack.tcp.congestion_control = CongestionControl::NewReno;
        let client = net.host_with("client", large.clone()).unwrap();
        let server = net.host_with("server", large).unwrap();
        let config = LinkConfig { rate: Some(1_000_000_000), queue: 8 << 20, ..LinkConfig::rtt(100 * MS) };
        let link = net.link(&client, &server, config);
        transfer(&client, &server, 100 << 20).await;
        let dropped = link.there().stats().queue_full;
        let again = net.retransmissions();
        assert!(dropped > 4_000, "{dropped} dropped");
        assert_eq!(again.len() as u64, dropped);
        assert!(again.iter().all(|one| !one.needless));
    });
}
