//! Datagrams in fragments, and those of published ports.

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::thread;
use std::time::Duration;

use crate::common::{Gateway, HOST, eventually, inside_command, pattern, unavailable};

/// For an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Sockets of a client, which two loops share.
const SOCKETS: usize = 24;

/// Sends datagrams that fit into a packet and datagrams that do not by each of some sockets, and gets each back. Inside.
pub fn in_fragments(to: &str) {
    let mut bytes = [0; 65_000];
    for _ in 0..SOCKETS {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.connect(to).unwrap();
        for len in [100, 4000, 200, 60_000, 1] {
            let sent = pattern(len);
            socket.send(&sent).unwrap();
            let got = socket.recv(&mut bytes).unwrap_or_else(|error| panic!("{len} bytes: {error}"));
            assert!(bytes[..got] == sent, "{got} bytes of {len} came back, or others");
        }
    }
}

/// Sends back what comes to a port, until there is nothing in a datagram. Inside.
pub fn return_all(port: u16) {
    let socket = UdpSocket::bind(("0.0.0.0", port)).unwrap();
    let mut bytes = [0; 100];
    loop {
        let (len, from) = socket.recv_from(&mut bytes).unwrap();
        if len == 0 {
            return;
        }
        socket.send_to(&bytes[..len], from).unwrap();
    }
}

#[test]
fn datagrams_in_fragments_reach_the_loop_that_has_their_flow() {
    if unavailable() {
        return;
    }
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    thread::spawn(move || {
        let mut bytes = [0; 65_000];
        while let Ok((len, from)) = server.recv_from(&mut bytes) {
            let _ = server.send_to(&bytes[..len], from);
        }
    });
    let options = ["--allow", "127.0.0.1", "--mtu", "1500", "--loops", "2"];
    Gateway::runs(&options, &format!("in-fragments {HOST}:{port}"));
}

#[test]
fn an_answer_of_a_published_port_comes_from_the_address_that_was_asked() {
    if unavailable() {
        return;
    }
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let ports = format!("{port}:7000/udp");
    let mut gateway = Gateway::start(&["-p", &ports], &inside_command("return-all 7000"));
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    for host in ["127.0.0.2", "127.0.0.1"] {
        // The same client, of two addresses of this host.
        client.connect(SocketAddr::new(host.parse().unwrap(), port)).unwrap();
        eventually("an answer comes", || {
            client.send(b"?").is_ok() && client.recv(&mut [0; 9]).is_ok_and(|len| len == 1)
        });
    }
    client.send(b"").unwrap();
    assert_eq!(gateway.wait(), Some(0));
}
