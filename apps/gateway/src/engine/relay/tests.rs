//! A client of the stack, a server of the kernel and the relay between them, on one thread, so the test decides what the relay finds when it runs.

use std::future::Future;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;

use sockeye::{Config, Stack};
use tokio::task::LocalSet;
use tokio::time::{sleep, timeout};

use super::*;
use crate::flows::Flows;
use crate::policy::Protocol;
use crate::rates::Rates;

/// For anything to happen.
const PATIENCE: Duration = Duration::from_secs(30);
/// Both buffers of each end inside, bytes.
const BUFFER: u32 = 64 << 10;

/// A relay's two ends.
struct Ends {
    client: sockeye::TcpStream,
    server: std::net::TcpStream,
    flows: Arc<Flows>,
}

/// A client inside and a server outside, neither of which blocks, and the relay between them.
fn ends() -> (Ends, impl Future<Output = ()>) {
    let (rcvbuf, rcvbuf_max, sndbuf, sndbuf_max) = (BUFFER, BUFFER, BUFFER, BUFFER);
    let config = Config { rcvbuf, rcvbuf_max, sndbuf, sndbuf_max, ..Config::default() };
    let stack = Stack::new(config).unwrap();
    let listener = sockeye::TcpListener::bind_on(&stack, "127.0.0.1:0").unwrap();
    let client = sockeye::TcpStream::connect_on(&stack, listener.local_addr().unwrap()).unwrap();
    let inner = TcpStream::from_std(listener.accept().unwrap().0).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let outer = std::net::TcpStream::connect(to).unwrap();
    let server = listener.accept().unwrap().0;
    client.set_nonblocking(true).unwrap();
    [&outer, &server].into_iter().for_each(|stream| stream.set_nonblocking(true).unwrap());
    let (flows, _) = Flows::new(1, Rates::default(), None).unwrap();
    let flow = flows.begin(Protocol::Tcp, (to, to), to).unwrap();
    let relay = async move {
        let onward = Connected { stream: HostStream::new(outer).unwrap(), was_reset: false };
        run(inner, onward, flow).await;
        drop(stack);
    };
    (Ends { client, server, flows }, relay)
}

fn alone(test: impl AsyncFn()) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, test());
}

fn is_empty<R>(done: &io::Result<R>) -> bool {
    done.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

/// Writes until nothing more is taken for some time.
async fn write_until_full(mut to: impl Write, bytes: &[u8]) {
    let (mut at, mut in_vain) = (0, 0);
    while at < bytes.len() && in_vain < 50 {
        match to.write(&bytes[at..]) {
            Ok(len) => (at, in_vain) = (at + len, 0),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        in_vain += 1;
        sleep(Duration::from_millis(1)).await;
    }
}

/// What comes before an error, which is the reset.
async fn read_until_reset(mut from: impl Read, got: &mut Vec<u8>) {
    let reading = async {
        loop {
            match from.read_to_end(got) {
                done if is_empty(&done) => sleep(Duration::from_millis(1)).await,
                done => return assert_eq!(done.unwrap_err().kind(), ErrorKind::ConnectionReset),
            }
        }
    };
    timeout(PATIENCE, reading).await.unwrap();
}

#[test]
fn what_is_read_before_a_reset_has_no_gap() {
    let bytes: Vec<u8> = (0..4u32 << 20).map(|at| at.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    alone(async || {
        for turns in 0..4 {
            let (Ends { mut client, server, .. }, relay) = ends();
            let relay = tokio::task::spawn_local(relay);
            write_until_full(&server, &bytes).await;
            // The relay polls one direction first in one turn, and the other in the next.
            for _ in 0..turns {
                client.write_all(b".").unwrap();
                sleep(Duration::from_millis(1)).await;
            }
            // Now it has read what the client has no room for. It finds the reset by this.
            client.write_all(b"?").unwrap();
            SockRef::from(&server).set_linger(Some(Duration::ZERO)).unwrap();
            drop(server);
            // The client makes room before the relay runs.
            let mut got = Vec::new();
            for _ in 0..10 {
                assert!(is_empty(&client.read_to_end(&mut got)));
                std::thread::sleep(Duration::from_millis(1));
            }
            read_until_reset(&client, &mut got).await;
            assert!(got.len() >= BUFFER as usize && bytes.starts_with(&got), "{} bytes", got.len());
            relay.await.unwrap();
        }
    });
}

/// The client does this, and then resets: the server has this error.
fn resets_after(what: impl AsyncFn(&Ends), kind: ErrorKind) {
    alone(async || {
        let (ends, relay) = ends();
        let relay = tokio::task::spawn_local(relay);
        what(&ends).await;
        let Ends { client, server, flows } = ends;
        assert_eq!(flows.totals().flows, 1);
        client.set_linger(Some(Duration::ZERO)).unwrap();
        drop(client);
        timeout(PATIENCE, relay).await.expect("the relay ends").unwrap();
        assert_eq!(flows.totals().flows, 0);
        let told = async {
            loop {
                match server.take_error().unwrap() {
                    None => sleep(Duration::from_millis(1)).await,
                    Some(error) => return error.kind(),
                }
            }
        };
        assert_eq!(timeout(PATIENCE, told).await.unwrap(), kind);
    });
}

#[test]
fn a_relay_that_is_dropped_leaves_the_far_end_all_that_ended() {
    let bytes = vec![7; 1 << 20];
    alone(async || {
        let (Ends { client, server, flows }, relay) = ends();
        let relay = tokio::task::spawn_local(relay);
        write_until_full(&server, &vec![8; 8 << 20]).await;
        SockRef::from(&server).set_recv_buffer_size(8 << 10).unwrap();
        write_until_full(&client, &bytes).await;
        client.shutdown(Shutdown::Write).unwrap();
        let end = async {
            while flows.under_way().open > 0 {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(PATIENCE, end).await.expect("the host's kernel has everything");
        relay.abort();
        assert!(relay.await.unwrap_err().is_cancelled());
        let mut got = Vec::new();
        let reading = async {
            while is_empty(&(&server).read_to_end(&mut got)) {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(PATIENCE, reading).await.unwrap();
        assert!(got == bytes, "{} bytes", got.len());
    });
}

#[test]
fn a_clients_reset_passes_while_the_server_does_not_read() {
    let what = async |ends: &Ends| write_until_full(&ends.client, &vec![7; 64 << 20]).await;
    resets_after(what, ErrorKind::ConnectionReset);
}

#[test]
fn a_clients_reset_passes_after_its_end() {
    let what = async |ends: &Ends| {
        ends.client.shutdown(Shutdown::Write).unwrap();
        let read = async {
            while is_empty(&(&ends.server).read(&mut [0])) {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(PATIENCE, read).await.unwrap();
    };
    // What Linux calls a reset that comes behind an end.
    resets_after(what, ErrorKind::BrokenPipe);
}
