//! Options of the sockets in tokio's shape that programs set through `socket2` elsewhere: they are those of the socket inside.

use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::time::Duration;

use crate::common::watchdog;
use sockeye::TcpKeepalive;
use sockeye::tokio::{TcpListener, TcpSocket, TcpStream, UdpSocket, UnixStream};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_stream_has_the_options_of_the_stream_inside() {
    let _guard = watchdog("a_stream_has_the_options");
    pollster::block_on(async {
        let stack = crate::common::stack();
        let listener = TcpListener::bind_on(&stack, "127.0.0.1:80").await.unwrap();
        let stream = TcpStream::connect_on(&stack, listener.local_addr().unwrap()).await.unwrap();
        assert!(!stream.keepalive().unwrap());
        let times = TcpKeepalive::new().with_time(SECOND * 7).with_interval(SECOND * 3).with_retries(5);
        stream.set_tcp_keepalive(&times).unwrap();
        assert!(stream.keepalive().unwrap() && stream.get_ref().keepalive().unwrap());
        assert_eq!(stream.keepalive_time().unwrap(), SECOND * 7);
        assert_eq!(stream.keepalive_interval().unwrap(), SECOND * 3);
        assert_eq!(stream.keepalive_retries().unwrap(), 5);
        stream.set_keepalive(false).unwrap();
        assert!(!stream.get_ref().keepalive().unwrap());
        stream.set_user_timeout(Some(SECOND)).unwrap();
        assert_eq!(
            (stream.user_timeout().unwrap(), stream.get_ref().user_timeout().unwrap()),
            (Some(SECOND), Some(SECOND))
        );
        stream.set_send_buffer_size(10_000).unwrap();
        stream.set_recv_buffer_size(20_000).unwrap();
        assert_eq!(
            (stream.send_buffer_size().unwrap(), stream.recv_buffer_size().unwrap()),
            (20_000, 40_000)
        );
        stream.set_tos(0x28).unwrap();
        assert_eq!((stream.tos().unwrap(), stream.get_ref().tos().unwrap()), (0x28, 0x28));
    });
}

#[test]
fn a_socket_gives_its_options_to_its_connection() {
    let _guard = watchdog("a_socket_gives_its_options");
    pollster::block_on(async {
        let stack = crate::common::stack();
        let listener = TcpListener::bind_on(&stack, "127.0.0.1:80").await.unwrap();
        let socket = stack.scope(TcpSocket::new_v4).unwrap();
        socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(SECOND)).unwrap();
        socket.set_user_timeout(Some(SECOND)).unwrap();
        assert_eq!(socket.user_timeout().unwrap(), Some(SECOND));
        socket.set_ttl(9).unwrap();
        assert!(socket.set_ttl(0).is_err() && socket.set_ttl(256).is_err());
        let stream = socket.connect(listener.local_addr().unwrap()).await.unwrap();
        assert_eq!(stream.keepalive_time().unwrap(), SECOND);
        assert_eq!(stream.user_timeout().unwrap(), Some(SECOND));
        assert_eq!(stream.ttl().unwrap(), 9);

        let socket = stack.scope(TcpSocket::new_v6).unwrap();
        assert!(!socket.only_v6().unwrap());
        socket.set_only_v6(true).unwrap();
        assert!(socket.only_v6().unwrap());
        // Port 80 of IPv4 is the other listener's, and this one leaves IPv4 alone.
        socket.bind("[::]:80".parse().unwrap()).unwrap();
        let socket = stack.scope(TcpSocket::new_v6).unwrap();
        let taken = socket.bind("[::]:80".parse().unwrap()).unwrap_err();
        assert_eq!(taken.kind(), ErrorKind::AddrInUse);
    });
}

#[test]
fn datagram_and_unix_sockets_have_the_options_of_the_sockets_inside() {
    let _guard = watchdog("datagram_and_unix_sockets_have_the_options");
    let stack = crate::common::stack();
    let udp = pollster::block_on(UdpSocket::bind_on(&stack, "127.0.0.1:0")).unwrap();
    udp.set_recv_buffer_size(10_000).unwrap();
    assert_eq!((udp.recv_buffer_size().unwrap(), udp.get_ref().recv_buffer_size()), (20_000, 20_000));
    udp.set_unicast_hops_v6(7).unwrap();
    udp.set_multicast_hops_v6(8).unwrap();
    assert_eq!((udp.unicast_hops_v6().unwrap(), udp.multicast_hops_v6().unwrap()), (7, 8));
    udp.set_multicast_all(false).unwrap();
    assert!(!udp.multicast_all().unwrap() && !udp.get_ref().multicast_all().unwrap());
    udp.set_multicast_if_v4(&Ipv4Addr::LOCALHOST).unwrap();
    let error = udp.set_multicast_if_v4(&Ipv4Addr::new(192, 0, 2, 1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrNotAvailable);
    assert!(udp.set_multicast_if_v6(99).is_err());

    let (unix, _other) = stack.scope(UnixStream::pair).unwrap();
    unix.set_send_buffer_size(10_000).unwrap();
    unix.set_recv_buffer_size(20_000).unwrap();
    assert_eq!(unix.send_buffer_size().unwrap(), unix.get_ref().send_buffer_size().unwrap());
    assert_eq!(unix.recv_buffer_size().unwrap(), unix.get_ref().recv_buffer_size().unwrap());
    unix.set_passcred(true).unwrap();
    assert!(unix.passcred().unwrap() && unix.get_ref().passcred().unwrap());
}

#[test]
fn the_traffic_class_of_ipv6_is_a_byte() {
    let _guard = watchdog("the_traffic_class_of_ipv6_is_a_byte");
    pollster::block_on(async {
        let stack = crate::common::stack();
        let listener = TcpListener::bind_on(&stack, "[::1]:80").await.unwrap();
        let socket = stack.scope(TcpSocket::new_v6).unwrap();
        socket.set_tclass_v6(0x28).unwrap();
        assert_eq!(socket.set_tclass_v6(256).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(socket.tclass_v6().unwrap(), 0x28);
        let stream = socket.connect(listener.local_addr().unwrap()).await.unwrap();
        assert_eq!(stream.get_ref().tos().unwrap(), 0x28);
        let socket = UdpSocket::bind_on(&stack, "[::1]:0").await.unwrap();
        socket.set_tclass_v6(0x50).unwrap();
        assert_eq!(socket.set_tclass_v6(256).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(socket.tclass_v6().unwrap(), 0x50);
    });
}
