//! Hosts are found by their names, and nobody else is asked.

use std::io::{ErrorKind, Result};
use std::net::SocketAddr;

use sockeye_sim::net::{TcpListener, TcpStream, UdpSocket, lookup_host};
use sockeye_sim::{Host, HostConfig, Sim, blocking};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A service that sends every client one byte.
fn serve(host: &Host, byte: u8) {
    host.spawn(async move {
        let listener = TcpListener::bind("0.0.0.0:80").await.unwrap();
        loop {
            listener.accept().await.unwrap().0.write_u8(byte).await.unwrap();
        }
    });
}

async fn ask(addr: &str) -> Result<u8> {
    TcpStream::connect(addr).await?.read_u8().await
}

#[test]
fn a_program_connects_to_a_host_by_its_name_in_any_case() {
    Sim::new(1).run(|net| async move {
        let (client, server) = (net.host("client"), net.host("server"));
        serve(&server, 7);
        let asked = client.spawn(async { (ask("server:80").await, ask("SERVER.:80").await) }).await.unwrap();
        assert_eq!((asked.0.unwrap(), asked.1.unwrap()), (7, 7));
        let from = client.spawn(async {
            let socket = UdpSocket::bind("client:0").await.unwrap();
            socket.connect(("server", 53)).await.unwrap();
            (socket.local_addr().unwrap(), socket.peer_addr().unwrap())
        });
        let (from, to) = from.await.unwrap();
        assert_eq!((from.ip(), to), (client.addr(), server.at(53)));
    });
}

#[test]
fn a_name_has_both_addresses_and_hosts_of_one_name_are_all_of_it() {
    Sim::new(2).run(|net| async move {
        let hosts = [net.host("replica"), net.host("other"), net.host("replica")];
        let found = hosts[1].spawn(async { lookup_host("replica:9").await.unwrap().collect::<Vec<_>>() });
        let of = |host: &Host| (SocketAddr::new(host.addr(), 9), SocketAddr::new(host.addr_v6(), 9));
        let ((first, first_v6), (second, second_v6)) = (of(&hosts[0]), of(&hosts[2]));
        assert_eq!(found.await.unwrap(), [first, second, first_v6, second_v6]);
        let own = hosts[0].spawn(async { lookup_host("localhost:9").await.unwrap().next() }).await;
        assert_eq!(own.unwrap(), Some("127.0.0.1:9".parse().unwrap()));
    });
}

#[test]
fn an_unknown_name_is_an_error_that_lists_the_hosts() {
    Sim::new(3).run(|net| async move {
        let client = net.host("client");
        net.host("server");
        let error = client.spawn(async { ask("srever:80").await.unwrap_err() }).await.unwrap();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        let text = error.to_string();
        assert!(text.contains("\"srever\"") && text.contains("its hosts are client, server;"), "{text}");
        for number in 0..30 {
            net.host(&format!("node{number}"));
        }
        let error = client.spawn(async { ask("srever:80").await.unwrap_err() }).await.unwrap();
        assert!(error.to_string().contains("node17 and 12 more;"), "{error}");
    });
}

/// The machine's own names among them: its hosts file has this one on most machines.
#[test]
fn the_main_program_finds_names_and_is_itself_on_no_network() {
    Sim::new(4).run(|net| async move {
        let error = lookup_host("server:80").await.map(drop).unwrap_err();
        assert!(error.to_string().contains("it has no hosts"), "{error}");
        let server = net.host("server");
        serve(&server, 1);
        assert_eq!(lookup_host("server:80").await.unwrap().next(), Some(server.at(80)));
        let error = ask("server:80").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NetworkUnreachable);
        for name in ["ip6-allnodes:80", "example.com:80"] {
            assert_eq!(lookup_host(name).await.map(drop).unwrap_err().kind(), ErrorKind::NotFound);
        }
        // Loopback works there, as everywhere.
        let listener = TcpListener::bind("localhost:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let client = sockeye_sim::spawn(async move { ask(&addr.to_string()).await });
        listener.accept().await.unwrap().0.write_u8(5).await.unwrap();
        assert_eq!(client.await.unwrap().unwrap(), 5);
    });
}

#[test]
fn a_blocking_program_uses_names_too_and_a_host_keeps_its_name_over_a_restart() {
    Sim::new(5).run(|net| async move {
        let (client, server) = (net.host("client"), net.host("server"));
        server.crash();
        server.restart();
        serve(&server, 3);
        let asked = client.spawn(blocking::run(|| {
            let mut byte = [0];
            std::io::Read::read_exact(&mut blocking::TcpStream::connect("server:80")?, &mut byte)?;
            let unknown = blocking::TcpListener::bind("nobody:1").map(drop).unwrap_err();
            Result::Ok((byte[0], unknown.kind()))
        }));
        assert_eq!(asked.await.unwrap().unwrap(), (3, ErrorKind::NotFound));
    });
}

#[cfg(all(
    target_os = "linux",
    target_pointer_width = "64",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
#[test]
fn no_program_gets_to_the_machine_s_resolver() {
    use std::net::ToSocketAddrs as _;
    assert!("localhost:80".to_socket_addrs().is_ok(), "the machine knows it");
    Sim::new(1).run(|net| async move {
        let asked = net.host("host").spawn(async { "localhost:80".to_socket_addrs().is_err() });
        assert!(asked.await.unwrap(), "std's own lookup, as a library may call it");
        assert!("localhost:80".to_socket_addrs().is_err(), "nor does the main program");
    });
}

#[test]
fn a_host_that_cannot_be_made_leaves_no_name_and_no_address() {
    Sim::new(6).run(|net| async move {
        let config = HostConfig { mtu: 100, ..HostConfig::default() };
        assert_eq!(net.host_with("server", config).map(drop).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(lookup_host("server:80").await.map(drop).unwrap_err().kind(), ErrorKind::NotFound);
        let server = net.host("server");
        let found: Vec<SocketAddr> = lookup_host("server:80").await.unwrap().collect();
        assert_eq!(found, ["10.0.0.1:80".parse().unwrap(), "[fd00::1]:80".parse().unwrap()]);
        serve(&server, 9);
        assert_eq!(net.host("client").spawn(async { ask("server:80").await }).await.unwrap().unwrap(), 9);
    });
}
