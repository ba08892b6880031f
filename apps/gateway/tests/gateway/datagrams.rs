//! Datagrams of published ports.

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::time::Duration;

use crate::common::{Gateway, eventually, inside_command, unavailable};

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
