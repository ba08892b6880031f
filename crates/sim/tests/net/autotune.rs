//! Socket buffers that grow with the path.

use std::time::Duration;

use sockeye::{Carried, Limit};
use sockeye_sim::net::{TcpListener, TcpStream};
use sockeye_sim::{Host, HostConfig, LinkConfig, Net, Sim, time};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const MS: Duration = Duration::from_millis(1);
const MBIT: u64 = 1_000_000;

/// How the reader of a transfer behaves.
#[derive(Clone, Copy)]
struct Reader {
    /// Its own choice of a receive buffer, bytes.
    rcvbuf: Option<usize>,
    /// Most bytes of a read, and the pause after it.
    read_max: usize,
    pause: Duration,
}

const EAGER: Reader = Reader { rcvbuf: None, read_max: 1 << 20, pause: Duration::ZERO };

/// The result of a transfer.
struct Course {
    /// Bytes a second at the end.
    rate: u64,
    /// Sizes of the buffers at the end.
    sndbuf: usize,
    rcvbuf: usize,
    /// The limit that the sender reports at the end.
    limit: Option<Limit>,
    /// And for how long each limit applied.
    carried: Carried,
}

/// Sends from `client` to `server` as much as possible for `until`, and measures the last fifth of that time.
async fn course(client: &Host, server: &Host, reader: Reader, until: Duration) -> Course {
    let addr = server.at(80);
    let end = time::Instant::now() + until;
    let received = server.spawn(async move {
        let mut stream = TcpListener::bind(addr).await.unwrap().accept().await.unwrap().0;
        if let Some(bytes) = reader.rcvbuf {
            stream.get_ref().set_recv_buffer_size(bytes).unwrap();
        }
        let (mut buf, mut late) = (vec![0; reader.read_max], 0);
        while time::Instant::now() < end {
            let read = stream.read(&mut buf).await.unwrap();
            if time::Instant::now() >= end - until / 5 {
                late += read as u64;
            }
            time::sleep(reader.pause).await;
        }
        // Linux's answer is the double.
        let rcvbuf = stream.get_ref().recv_buffer_size().unwrap() / 2;
        (late * 1_000 / (until / 5).as_millis() as u64, rcvbuf)
    });
    let sent = client.spawn(async move {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        let data = vec![7; 1 << 20];
        while time::Instant::now() < end {
            if time::timeout(end - time::Instant::now(), stream.write_all(&data)).await.is_err() {
                break;
            }
        }
        let sender = stream.get_ref();
        let carried = sender.info().unwrap().carried.unwrap();
        (sender.send_buffer_size().unwrap() / 2, sender.bottleneck().unwrap().by, carried)
    });
    let (sndbuf, limit, carried) = sent.await.unwrap();
    let (rate, rcvbuf) = received.await.unwrap();
    Course { rate, sndbuf, rcvbuf, limit, carried }
}

fn hosts(net: &Net, config: HostConfig, mbit: u64, rtt: Duration) -> (Host, Host) {
    let client = net.host_with("client", config.clone()).unwrap();
    let server = net.host_with("server", config).unwrap();
    let rate = mbit * MBIT;
    // The queue holds half as much as the path.
    let queue = rate as usize / 8 * rtt.as_millis() as usize / 2_000;
    net.link(&client, &server, LinkConfig { rate: Some(rate), queue, ..LinkConfig::rtt(rtt) });
    (client, server)
}

#[test]
fn a_gigabit_over_two_hundred_milliseconds_is_filled_without_configuration() {
    Sim::new(1).run(|net| async move {
        let (client, server) = hosts(&net, HostConfig::default(), 1_000, 200 * MS);
        // By then the window has recovered from the losses of a queue of half a round trip at the end of slow start.
        let course = course(&client, &server, EAGER, 10_000 * MS).await;
        assert!(course.rate > 900 * MBIT / 8, "{} bytes a second", course.rate);
        assert!(course.sndbuf > 25_000_000 && course.rcvbuf > 25_000_000);
    });
}

#[test]
fn on_a_short_path_buffers_stay_small() {
    Sim::new(2).run(|net| async move {
        let (client, server) = hosts(&net, HostConfig::default(), 20, 10 * MS);
        let course = course(&client, &server, EAGER, 4_000 * MS).await;
        assert!(course.rate > 18 * MBIT / 8, "{} bytes a second", course.rate);
        assert_eq!(course.limit, Some(Limit::Path));
        assert!(course.carried.rwnd_limited < 100 * MS, "{:?}", course.carried);
        assert!(course.carried.bytes_acked > 20 * MBIT / 8 * 3, "{:?}", course.carried);
        assert!(
            course.sndbuf <= 512 << 10 && course.rcvbuf <= 512 << 10,
            "{} {}",
            course.sndbuf,
            course.rcvbuf
        );
    });
}

#[test]
fn a_slow_reader_and_one_that_has_chosen_a_size_get_no_more() {
    let slow = Reader { read_max: 20_000, pause: 100 * MS, ..EAGER };
    let fixed = Reader { rcvbuf: Some(100_000), ..EAGER };
    for (reader, most) in [(slow, 512 << 10), (fixed, 100_000)] {
        Sim::new(3).run(move |net| async move {
            let (client, server) = hosts(&net, HostConfig::default(), 100, 100 * MS);
            let course = course(&client, &server, reader, 5_000 * MS).await;
            assert!(course.rcvbuf <= most, "{} bytes", course.rcvbuf);
            assert_eq!(course.limit, Some(Limit::ReceiveWindow));
            assert!(course.carried.rwnd_limited > 3_000 * MS, "{:?}", course.carried);
        });
    }
}

#[test]
fn nothing_grows_while_memory_is_short() {
    Sim::new(4).run(|net| async move {
        let mut config = HostConfig::default();
        config.stack.memory_max = 2 << 20;
        let (client, server) = hosts(&net, config, 100, 100 * MS);
        let course = course(&client, &server, EAGER, 5_000 * MS).await;
        assert_eq!((course.rcvbuf, course.sndbuf), (256 << 10, 256 << 10));
    });
}
