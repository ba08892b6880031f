//! Programs beside the conversations: streams of UNIX sockets within a host, and, in runs with `Sim::tokio`, a service of tokio's tasks and timers with clients that retry.
//!
//! Both have to come to their end, whatever happens: UNIX streams know no fault but the host's crash, and the clients go on until the faults are over. What they do follows from a stream of random
//! numbers of its own, so that the conversations of a seed are what they were. Tests: `tests/hosts/checkers.rs`.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use ::tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::conversation::Bytes;
use super::plan::Plan;
use crate::executor::JoinHandle;
use crate::net::{UnixListener, UnixStream};
use crate::network::{Host, Net};
use crate::rng::Rng;
use crate::time;

/// All of a seed.
pub(super) struct Neighbors {
    streams: Vec<(usize, JoinHandle<()>)>,
    /// Bytes that were read, all of them the right ones.
    bytes: Rc<Cell<u64>>,
    #[cfg(feature = "tokio")]
    service: Option<service::Service>,
}

/// What one side of a UNIX stream does.
#[derive(Clone, Copy)]
struct Side {
    sends: u64,
    expects: u64,
    send_len: u64,
    expect_len: u64,
    /// Largest write and read.
    piece_max: u64,
}

/// The longest that a stream waits for its peer.
const PATIENCE: Duration = Duration::from_secs(60);

impl Neighbors {
    pub fn start(net: &Net, hosts: &[Host]) -> Self {
        let mut rng = net.rng("neighbors");
        let bytes = Rc::new(Cell::new(0));
        let mut streams = Vec::new();
        for number in 0..rng.between(1, 4) {
            let index = usize::try_from(rng.below(hosts.len() as u64)).unwrap_or(0);
            let (one, other) = (rng.u64(), rng.u64());
            let lens = [(); 2].map(|()| rng.between(0, 30_000));
            let side = |sends, expects, [send_len, expect_len]: [u64; 2], rng: &mut Rng| Side {
                sends,
                expects,
                send_len,
                expect_len,
                piece_max: 1 << rng.between(4, 16),
            };
            let server = side(one, other, lens, &mut rng);
            let client = side(other, one, [lens[1], lens[0]], &mut rng);
            let path = format!("/run/stream{number}");
            let (at, rngs) = (Duration::from_millis(rng.below(5000)), [rng.fork(0), rng.fork(1)]);
            let counts = [Rc::clone(&bytes), Rc::clone(&bytes)];
            let stream = hosts[index].spawn(async move {
                time::sleep(at).await;
                let listener = UnixListener::bind(&path).expect("the name is free");
                let [server_rng, client_rng] = rngs;
                let [server_bytes, client_bytes] = counts;
                let serving = crate::spawn(async move {
                    let (stream, _) = listener.accept().await.expect("nothing prevents it");
                    server.talk(stream, server_rng, &server_bytes).await;
                });
                let stream = UnixStream::connect(&path).await.expect("there is a listener");
                client.talk(stream, client_rng, &client_bytes).await;
                serving.await.expect("it is of this host");
            });
            streams.push((index, stream));
        }
        Self {
            streams,
            bytes,
            #[cfg(feature = "tokio")]
            service: net.tasks.runtimes.is_some().then(|| service::Service::start(hosts, &mut rng)),
        }
    }

    /// Waits for all to end. Returns bytes of UNIX streams, and requests that were answered.
    ///
    /// # Panics
    /// If one has not come to its end, and no crash explains it.
    pub async fn ended(self, plan: &Plan) -> (u64, u64) {
        for (host, stream) in self.streams {
            let is_whole = stream.await.is_ok();
            assert!(is_whole || plan.crashes_host(host), "a UNIX stream ended early on host {host}");
        }
        #[cfg(feature = "tokio")]
        let requests = match self.service {
            Some(service) => service.ended(plan).await,
            None => 0,
        };
        #[cfg(not(feature = "tokio"))]
        let requests = 0;
        (self.bytes.get(), requests)
    }
}

impl Side {
    /// Writes and reads everything at the same time.
    async fn talk(self, stream: UnixStream, mut rng: Rng, count: &Cell<u64>) {
        let (mut read, mut write) = stream.into_split();
        let mut writer_rng = rng.fork(0);
        let writing = crate::spawn(async move {
            let mut bytes = Bytes::new(self.sends);
            let mut left = self.send_len;
            while left > 0 {
                let len = writer_rng.between(1, self.piece_max).min(left);
                let piece: Vec<u8> = (0..len).map(|_| bytes.next()).collect();
                let written = time::timeout(PATIENCE, write.write_all(&piece)).await;
                written.expect("the peer reads").expect("the peer is there");
                left -= len;
            }
            write.shutdown().await.expect("the peer is there");
        });
        let mut bytes = Bytes::new(self.expects);
        let mut got = 0;
        let mut buffer = vec![0; usize::try_from(self.piece_max).unwrap_or(1)];
        loop {
            let want = usize::try_from(rng.between(1, self.piece_max)).unwrap_or(1);
            let read = time::timeout(PATIENCE, read.read(&mut buffer[..want])).await;
            let len = read.expect("the peer writes").expect("the peer is there");
            if len == 0 {
                break;
            }
            for byte in &buffer[..len] {
                assert_eq!(*byte, bytes.next(), "byte {got} of a UNIX stream is another one");
                got += 1;
            }
            if rng.chance(0.02) {
                time::sleep(Duration::from_millis(rng.below(50))).await;
            }
        }
        assert_eq!(got, self.expect_len, "a UNIX stream has another length");
        writing.await.expect("it is of this host");
        count.set(count.get() + got);
    }
}

#[cfg(feature = "tokio")]
mod service {
    //! Requests and answers over TCP, all by tasks and timers of tokio.

    use std::cell::{Cell, RefCell};
    use std::future::poll_fn;
    use std::io;
    use std::rc::Rc;
    use std::task::{Poll, Waker};
    use std::time::Duration;

    use ::tokio::io::{AsyncReadExt, AsyncWriteExt};
    use ::tokio::task::JoinSet;

    use super::super::plan::Plan;
    use crate::executor::JoinHandle;
    use crate::net::{TcpListener, TcpStream};
    use crate::network::Host;
    use crate::rng::{Rng, mix};

    /// Where it listens.
    const PORT: u16 = 4000;
    /// How long a client waits for an answer, and then before the next request.
    const ANSWER_WITHIN: Duration = Duration::from_secs(5);
    const RETRY_AFTER: Duration = Duration::from_secs(1);

    pub struct Service {
        /// Each with its host.
        clients: Vec<(usize, JoinHandle<u64>)>,
        stop: Rc<Stop>,
    }

    /// Ends the server.
    #[derive(Default)]
    struct Stop {
        is_set: Cell<bool>,
        waker: RefCell<Option<Waker>>,
    }

    impl Service {
        pub fn start(hosts: &[Host], rng: &mut Rng) -> Self {
            let index = |rng: &mut Rng| usize::try_from(rng.below(hosts.len() as u64)).unwrap_or(0);
            let server = &hosts[index(rng)];
            let stop = Rc::new(Stop::default());
            let stopped = Rc::clone(&stop);
            server.program(move || serve(Rc::clone(&stopped)));
            let addr = server.at(PORT);
            let mut clients = Vec::new();
            for _ in 0..rng.between(1, 3) {
                let host = index(rng);
                let (tasks, requests, len_max) =
                    (rng.between(1, 3), rng.between(1, 20), rng.between(1, 3000));
                let mut draws = rng.fork(0);
                let client = hosts[host].spawn(async move {
                    let mut set = JoinSet::new();
                    for task in 0..tasks {
                        let mut rng = draws.fork(task);
                        set.spawn(async move {
                            for _ in 0..requests {
                                let (number, len) = (rng.u64(), rng.between(1, len_max));
                                ask_until_answered(addr, number, len).await;
                                ::tokio::time::sleep(Duration::from_millis(rng.below(300))).await;
                            }
                        });
                    }
                    while let Some(done) = set.join_next().await {
                        done.expect("it does not panic");
                    }
                    tasks * requests
                });
                clients.push((host, client));
            }
            Self { clients, stop }
        }

        /// Returns how many requests were answered, of clients whose hosts did not crash.
        pub async fn ended(self, plan: &Plan) -> u64 {
            let mut answered = 0;
            for (host, client) in self.clients {
                match client.await {
                    Ok(requests) => answered += requests,
                    Err(_) => assert!(plan.crashes_host(host), "a client ended early on host {host}"),
                }
            }
            self.stop.is_set.set(true);
            let waker = self.stop.waker.take();
            waker.into_iter().for_each(Waker::wake);
            answered
        }
    }

    async fn serve(stop: Rc<Stop>) {
        let listener = TcpListener::bind(("0.0.0.0", PORT)).await.expect("the port is free");
        // Its tasks end with it.
        let mut tasks = JoinSet::new();
        loop {
            let accepted = poll_fn(|cx| {
                if stop.is_set.get() {
                    return Poll::Ready(None);
                }
                stop.waker.replace(Some(cx.waker().clone()));
                listener.poll_accept(cx).map(Some)
            });
            let Some(accepted) = accepted.await else { return };
            let (stream, _) = accepted.expect("nothing prevents it");
            tasks.spawn(async move {
                // The client is gone, or its host: it asks again.
                let _broken = ::tokio::time::timeout(60 * RETRY_AFTER, answer(stream)).await;
            });
            while tasks.try_join_next().is_some() {}
        }
    }

    async fn answer(mut stream: TcpStream) -> io::Result<()> {
        let (number, len) = (stream.read_u64().await?, stream.read_u64().await?);
        ::tokio::task::yield_now().await;
        stream.write_all(&text(number, len)).await?;
        stream.shutdown().await?;
        // Closing before the client has would be an abort.
        stream.read_u8().await.map(drop)
    }

    /// The answer to a request.
    fn text(number: u64, len: u64) -> Vec<u8> {
        (0..len).map(|at| mix(number ^ at).to_le_bytes()[0]).collect()
    }

    async fn ask_until_answered(addr: std::net::SocketAddr, number: u64, len: u64) {
        loop {
            match ::tokio::time::timeout(ANSWER_WITHIN, ask(addr, number, len)).await {
                Ok(Ok(answer)) => return assert_eq!(answer, text(number, len), "another answer"),
                // The server is down, or cannot be reached.
                Ok(Err(_)) | Err(_) => ::tokio::time::sleep(RETRY_AFTER).await,
            }
        }
    }

    async fn ask(addr: std::net::SocketAddr, number: u64, len: u64) -> io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect(addr).await?;
        stream.write_u64(number).await?;
        stream.write_u64(len).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        // The end came from a server that was killed, or whose host is gone.
        if answer.len() as u64 == len { Ok(answer) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}
