//! Datagrams between simulated hosts: links lose and delay them, without retransmission.

use std::io::ErrorKind;
use std::time::Duration;

use sockeye_sim::net::UdpSocket;
use sockeye_sim::{LinkConfig, Sim, time};

const MS: Duration = Duration::from_millis(1);

/// The datagrams of `count` that arrive over a lossy link.
fn arrivals(seed: u64, loss: f64, count: u32) -> Vec<u32> {
    Sim::new(seed).run(move |net| async move {
        let (client, server) = (net.host("client"), net.host("server"));
        net.link(&client, &server, LinkConfig { loss, ..LinkConfig::default() });
        let addr = server.at(53);
        let receiving = server.spawn(async move {
            let socket = UdpSocket::bind(addr).await.unwrap();
            let (mut got, mut buf) = (Vec::new(), [0; 16]);
            while let Ok(len) = time::timeout(2000 * MS, socket.recv(&mut buf)).await {
                assert_eq!(len.unwrap(), 4);
                got.push(u32::from_be_bytes(buf[..4].try_into().unwrap()));
            }
            got
        });
        let sending = client.spawn(async move {
            let socket = UdpSocket::bind("0.0.0.0:0").await.unwrap();
            socket.connect(addr).await.unwrap();
            for number in 0..count {
                socket.send(&number.to_be_bytes()).await.unwrap();
                time::sleep(MS).await;
            }
        });
        sending.await.unwrap();
        receiving.await.unwrap()
    })
}

#[test]
fn a_clean_link_carries_all_in_order_and_a_lossy_one_some() {
    assert_eq!(arrivals(1, 0.0, 50), (0..50).collect::<Vec<_>>());
    let some = arrivals(2, 0.3, 200);
    assert!((100..180).contains(&some.len()), "{} of 200 at a loss of 30 %", some.len());
    assert!(some.is_sorted());
    assert_eq!(some, arrivals(2, 0.3, 200), "a seed determines everything");
    assert_ne!(some, arrivals(3, 0.3, 200));
}

#[test]
fn a_port_without_a_socket_is_reported_after_a_round_trip() {
    Sim::new(4).run(|net| async move {
        let (client, server) = (net.host("client"), net.host("server"));
        net.link(&client, &server, LinkConfig { delay: 30 * MS, ..LinkConfig::default() });
        let addr = server.at(9);
        let asked = client.spawn(async move {
            let socket = UdpSocket::bind("0.0.0.0:0").await.unwrap();
            socket.connect(addr).await.unwrap();
            socket.send(b"anybody?").await.unwrap();
            socket.recv(&mut [0; 8]).await.unwrap_err().kind()
        });
        assert_eq!(asked.await.unwrap(), ErrorKind::ConnectionRefused);
        assert!(net.now() >= 60 * MS);
    });
}
