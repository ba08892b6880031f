//! TCP Fast Open over a path with delay: its purpose is to save a round trip (RFC 7413).

use std::net::SocketAddr;
use std::time::Duration;

use sockeye::TcpSocket;
use sockeye::fastopen::{CLIENT, SERVER_ALL};
use sockeye_sim::net::{TcpListener, TcpStream};
use sockeye_sim::{Host, HostConfig, LinkConfig, Sim, time};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const MS: Duration = Duration::from_millis(1);
const RTT: Duration = Duration::from_millis(100);

/// From the connect to the whole answer; `early`: the question may go with the SYN.
async fn ask(client: &Host, server: SocketAddr, early: bool) -> Duration {
    let stack = client.stack().unwrap();
    let asking = async move {
        let began = time::Instant::now();
        let mut stream = if early {
            let mut socket = TcpSocket::new_v4(&stack);
            socket.set_nonblocking(true);
            let (stream, taken) = socket.connect_with(server, b"question").unwrap();
            let mut stream = TcpStream::from_std(stream).unwrap();
            // Without a cookie the SYN takes nothing along.
            stream.write_all(&b"question"[taken..]).await.unwrap();
            stream
        } else {
            let mut stream = TcpStream::connect(server).await.unwrap();
            stream.write_all(b"question").await.unwrap();
            stream
        };
        let mut answer = [0; 6];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"answer");
        began.elapsed()
    };
    client.spawn(asking).await.unwrap()
}

/// Answers every client that connects.
async fn serve(addr: SocketAddr) {
    let listener = TcpListener::bind(addr).await.unwrap();
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.read_exact(&mut [0; 8]).await.unwrap();
        stream.write_all(b"answer").await.unwrap();
    }
}

#[test]
fn a_known_server_is_asked_and_answers_in_one_round_trip_instead_of_two() {
    Sim::new(1).run(|net| async move {
        let with = |fastopen| {
            let mut config = HostConfig::default();
            config.stack.tcp.fastopen = fastopen;
            config
        };
        let client = net.host_with("client", with(CLIENT)).unwrap();
        let server = net.host_with("server", with(SERVER_ALL | sockeye::fastopen::SERVER)).unwrap();
        net.link(&client, &server, LinkConfig::rtt(RTT));
        let addr = server.at(80);
        server.spawn(serve(addr));
        time::sleep(MS).await;
        let about = |round_trips: u32, took: Duration| {
            assert!((RTT * round_trips..RTT * round_trips + MS).contains(&took), "{took:?}");
        };
        about(2, ask(&client, addr, false).await);
        // The first one has no cookie yet and asks for it.
        about(2, ask(&client, addr, true).await);
        about(1, ask(&client, addr, true).await);
        about(2, ask(&client, addr, false).await);
        about(1, ask(&client, addr, true).await);
    });
}
