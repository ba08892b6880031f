//! Packets on their way: looked at, held, let go one by one, dropped.

use std::time::Duration;

use sockeye_sim::net::{TcpListener, TcpStream, UdpSocket};
use sockeye_sim::{Packet, Sim, time};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const MS: Duration = Duration::from_millis(1);

/// True for the `which`-th packet that it is asked about.
fn only(which: u32) -> impl FnMut(&Packet<'_>) -> bool {
    let mut asked = 0;
    move |_| {
        asked += 1;
        asked == which
    }
}

#[test]
fn packets_in_flight_are_seen_with_their_moment_of_arrival() {
    Sim::new(1).run(|net| async move {
        let (client, server) = (net.host("client"), net.host("server"));
        let addr = server.at(80);
        let connecting = client.spawn(async move { TcpStream::connect(addr).await.is_err() });
        time::sleep(MS / 2).await;
        let flying = net.packets_in_flight();
        assert_eq!(flying.len(), 1);
        assert_eq!((flying[0].from.as_str(), flying[0].to.as_str(), flying[0].at), ("client", "server", MS));
        let packet = flying[0].packet();
        assert!(packet.segment().unwrap().is_syn());
        assert_eq!((packet.src(), packet.dst()), (Some(client.addr()), Some(server.addr())));
        assert!(connecting.await.unwrap());
        assert_eq!(net.packets_in_flight(), []);
    });
}

#[test]
fn held_datagrams_are_released_and_dropped_one_by_one_and_others_overtake_them() {
    Sim::new(1).run(|net| async move {
        let (client, server) = (net.host("client"), net.host("server"));
        let to = server.at(53);
        let receiver = server.spawn(async move { UdpSocket::bind(to).await.unwrap() }).await.unwrap();
        let sender = client.spawn(async { UdpSocket::bind("client:0").await.unwrap() }).await.unwrap();
        let got = async || {
            let mut byte = [0];
            let came = time::timeout(10 * MS, receiver.recv(&mut byte)).await;
            came.ok().map(|_| byte[0])
        };
        let hold = net.hold(|packet| packet.len == 29);
        for byte in 1..=4 {
            sender.send_to(&[byte], to).await.unwrap();
        }
        sender.send_to(b"longer", to).await.unwrap();
        assert_eq!(got().await, Some(b'l'));
        assert_eq!(got().await, None);
        assert_eq!(hold.packets().len(), 4);
        assert_eq!(hold.packets()[0].at, MS);
        assert_eq!((hold.release_if(only(3)), got().await), (1, Some(3)));
        assert_eq!(hold.drop_if(only(2)), 1);
        hold.release();
        assert_eq!((got().await, got().await, got().await), (Some(1), Some(4), None));
        sender.send_to(&[5], to).await.unwrap();
        assert_eq!(got().await, Some(5));
    });
}

#[test]
fn a_held_segment_is_sent_again_and_its_late_copy_does_no_harm() {
    Sim::new(1).run(|net| async move {
        let (client, server) = (net.host("client"), net.host("server"));
        let addr = server.at(80);
        server.spawn(async move {
            let listener = TcpListener::bind(addr).await.unwrap();
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).await.unwrap();
            stream.write_all(text.as_bytes()).await.unwrap();
        });
        let mut count = 0;
        let hold = net.hold(move |packet| {
            let has_data = packet.segment().is_some_and(|segment| segment.len > 0);
            count += u32::from(has_data);
            has_data && count == 1
        });
        let talk = client.spawn(async move {
            let mut stream = TcpStream::connect(addr).await.unwrap();
            stream.write_all(b"once").await.unwrap();
            stream.shutdown().await.unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).await.unwrap();
            text
        });
        time::sleep(5 * MS).await;
        assert_eq!(hold.packets().len(), 1);
        time::sleep(1000 * MS).await;
        drop(hold);
        assert_eq!(talk.await.unwrap(), "once");
        assert_eq!(net.in_flight(), 0);
    });
}
