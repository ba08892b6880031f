//! Addresses of IPv4 on IPv6 sockets: mapped, as on Linux, or as they are.

use std::net::{Ipv4Addr, SocketAddr};

use sockeye::{TcpSocket, TcpStream};

#[test]
fn an_ipv6_socket_shows_ipv4_addresses_mapped_or_as_they_are() {
    let stack = crate::common::stack();
    for canonical in [false, true] {
        let mut socket = TcpSocket::new_v6(&stack);
        socket.set_canonical_addrs(canonical);
        socket.bind("[::]:0".parse().unwrap()).unwrap();
        let listener = socket.listen(4).unwrap();
        let port = listener.local_addr().unwrap().port();
        let client = TcpStream::connect_on(&stack, ("127.0.0.1", port)).unwrap();
        let (server, from) = listener.accept().unwrap();
        let shown = [from, server.peer_addr().unwrap(), server.local_addr().unwrap()];
        assert_eq!(shown.map(|addr| addr.is_ipv4()), [canonical; 3], "{shown:?}");
        assert!(shown.iter().all(|addr| addr.ip().to_canonical() == Ipv4Addr::LOCALHOST), "{shown:?}");
        drop(client);
        // Those of a client's stream are shown so as well, though the call had it mapped.
        let mut socket = TcpSocket::new_v6(&stack);
        socket.set_canonical_addrs(canonical);
        let client = socket.connect(SocketAddr::new("::ffff:127.0.0.1".parse().unwrap(), port)).unwrap();
        let shown = [client.peer_addr().unwrap(), client.local_addr().unwrap()];
        assert_eq!(shown.map(|addr| addr.is_ipv4()), [canonical; 2], "{shown:?}");
        drop(listener.accept().unwrap());
    }
}
