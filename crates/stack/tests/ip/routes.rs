//! Routes and addresses that are added and removed.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use sockeye::netif::{AddressState, Route, RouteKind};
use sockeye::{TcpSocket, TcpStream};
use sockeye_proto::icmp::{Family, Message};

use crate::host::{Host, icmp, inwards, read_icmp};

const ASK: Message = Message::EchoRequest { id: 1, seq: 1 };

fn connect(host: &Host, to: &str) -> std::io::Result<TcpStream> {
    let to: SocketAddr = to.parse().unwrap();
    let mut socket =
        if to.is_ipv4() { TcpSocket::new_v4(&host.stack) } else { TcpSocket::new_v6(&host.stack) };
    socket.set_nonblocking(true);
    socket.connect(to)
}

#[test]
fn connect_to_a_broadcast_or_multicast_address_is_refused() {
    let mut host = Host::new();
    for to in ["10.9.0.255:1", "255.255.255.255:1", "127.255.255.255:1", "224.0.0.1:1", "[ff02::1]:1"] {
        let error = connect(&host, to).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NetworkUnreachable, "{to}");
    }
    assert!(host.turn().is_empty(), "no SYN has left");
    connect(&host, "10.9.0.254:1").unwrap();
    assert_eq!(host.turn().len(), 1);
}

#[test]
fn each_kind_of_route_has_its_error() {
    let host = Host::new();
    let refused = |to| connect(&host, to).map(drop).unwrap_err().kind();
    assert_eq!(refused("8.8.8.8:1"), ErrorKind::NetworkUnreachable);
    for (net, kind, error) in [
        ("8.8.8.0/24", RouteKind::Blackhole, ErrorKind::InvalidInput),
        ("8.8.8.8/32", RouteKind::Unreachable, ErrorKind::HostUnreachable),
        ("2001:db8::/32", RouteKind::Prohibit, ErrorKind::PermissionDenied),
    ] {
        host.stack.insert_route(Route { destination: net.parse().unwrap(), metric: 0, kind }).unwrap();
        let to = if net.contains(':') { "[2001:db8::1]:1" } else { "8.8.8.8:1" };
        assert_eq!(refused(to), error, "{net}");
    }
    assert_eq!(refused("8.8.8.9:1"), ErrorKind::InvalidInput);
}

#[test]
fn routes_are_listed_in_order_of_preference_and_can_be_removed() {
    let host = Host::new();
    let default = |metric, gateway: &str| Route {
        metric,
        ..Route::by("0.0.0.0/0".parse().unwrap(), host.netif, gateway.parse().unwrap())
    };
    host.stack.insert_route(default(20, "10.9.0.3")).unwrap();
    host.stack.insert_route(default(10, "10.9.0.2")).unwrap();
    let again = host.stack.insert_route(default(10, "10.9.0.2")).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::AlreadyExists);
    for bad in ["10.9.0.1", "127.0.0.1", "fd09::2", "224.0.0.1"] {
        assert_eq!(host.stack.insert_route(default(0, bad)).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    let metrics: Vec<u32> = host.stack.routes().iter().skip(2).map(|route| route.metric).collect();
    assert_eq!((metrics, host.stack.routes().len()), (vec![10, 20], 4));
    assert!(connect(&host, "8.8.8.8:1").is_ok());
    for route in host.stack.routes() {
        host.stack.remove_route(&route).unwrap();
    }
    assert_eq!(connect(&host, "10.9.0.2:1").map(drop).unwrap_err().kind(), ErrorKind::NetworkUnreachable);
    assert_eq!(host.stack.remove_route(&default(10, "10.9.0.2")).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_connection_without_a_route_waits_and_continues_when_a_route_is_added() {
    let mut host = Host::new();
    let _stream = connect(&host, "10.9.0.2:9").unwrap();
    assert_eq!(host.turn().len(), 1, "the SYN");
    let connected = host.stack.routes()[0];
    let connected =
        host.stack.routes().into_iter().find(|r| r.destination.addr().is_ipv4()).unwrap_or(connected);
    host.stack.remove_route(&connected).unwrap();
    assert!(host.pass(Duration::from_millis(1500)).is_empty());
    assert_eq!(host.count("ip_out_no_routes"), 1);
    host.stack.insert_route(connected).unwrap();
    assert_eq!(host.pass(Duration::from_secs(3)).len(), 1, "the SYN once more");
}

#[test]
fn an_address_receives_and_sends_while_it_is_there_and_not_tentative() {
    let mut host = Host::new();
    let ask = icmp(inwards(Family::V4), ASK, b"?");
    let ours = "10.9.0.1".parse().unwrap();
    host.stack.set_address_state(ours, AddressState::Tentative).unwrap();
    assert!(host.send(&ask).is_empty());
    assert!(connect(&host, "10.9.0.2:1").is_err());
    host.stack.set_address_state(ours, AddressState::Deprecated).unwrap();
    assert_eq!(host.send(&ask).len(), 1);
    assert!(connect(&host, "10.9.0.2:1").is_ok());
    host.turn();
    host.stack.add_address(host.netif, "10.9.0.7/24".parse().unwrap()).unwrap();
    let stream = connect(&host, "10.9.0.2:1").unwrap();
    assert_eq!(stream.local_addr().unwrap().ip().to_string(), "10.9.0.7", "the other one is deprecated");
    host.turn();
    host.stack.remove_address(ours).unwrap();
    assert!(host.send(&ask).is_empty());
    assert_eq!(host.stack.addresses().len(), 2);
    assert!(host.stack.remove_address(ours).is_err());
    assert!(connect(&host, "10.9.0.2:2").is_ok(), "the network's route stays with its last address");
}

#[test]
fn an_answer_without_a_chosen_source_takes_an_address_of_the_route() {
    let mut host = Host::new();
    let answers = host.send(&icmp(crate::host::between("fd09::2", "ff02::1"), ASK, b"x"));
    assert_eq!(read_icmp(&answers[0]).0, inwards(Family::V6).reversed());
}

#[test]
fn a_removed_device_ends_its_connections_and_removes_its_routes() {
    let mut host = Host::new();
    let mut stream = connect(&host, "10.9.0.2:9").unwrap();
    host.turn();
    host.unplug();
    host.turn();
    assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::NetworkDown);
    assert_eq!(stream.write(&[0]).unwrap_err().kind(), ErrorKind::BrokenPipe);
    assert_eq!(connect(&host, "10.9.0.2:9").map(drop).unwrap_err().kind(), ErrorKind::NetworkUnreachable);
    assert!(host.stack.routes().is_empty() && host.stack.addresses().is_empty());
    assert_eq!((host.stack.connection_count(), host.stack.memory_in_use()), (0, 0));
}
