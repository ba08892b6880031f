//! UNIX-domain sockets of simulated hosts: each host has names of its own, and they end with it.

use std::cell::Cell;
use std::io::{ErrorKind, Result};
use std::rc::Rc;
use std::time::Duration;

use sockeye_sim::net::unix::{UnixDatagram, UnixListener, UnixSeqListener, UnixSeqpacket, UnixStream};
use sockeye_sim::{Aborted, Host, JoinHandle, Net, Sim, time};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const SECOND: Duration = Duration::from_secs(1);

/// A service on a host that sends every client the same bytes.
fn serve(host: &Host, word: &'static str) -> JoinHandle<Result<()>> {
    host.spawn(async move {
        let listener = UnixListener::bind("/run/service")?;
        loop {
            let (mut stream, _) = listener.accept().await?;
            stream.write_all(word.as_bytes()).await?;
        }
    })
}

async fn ask(host: &Host) -> Result<String> {
    let asking = host.spawn(async {
        let mut text = String::new();
        UnixStream::connect("/run/service").await?.read_to_string(&mut text).await?;
        Ok(text)
    });
    asking.await.unwrap()
}

fn kind<T>(result: Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

#[test]
fn two_hosts_have_the_same_path_and_a_third_has_none() {
    Sim::new(1).run(|net| async move {
        let [one, two, three] = ["one", "two", "three"].map(|name| net.host(name));
        let serving = [serve(&one, "1"), serve(&two, "2")];
        time::sleep(SECOND).await;
        assert_eq!(ask(&one).await.unwrap(), "1");
        assert_eq!(ask(&two).await.unwrap(), "2");
        assert_eq!(kind(ask(&three).await), Some(ErrorKind::NotFound));
        assert!(!serving.iter().any(JoinHandle::is_finished));
    });
}

#[test]
fn datagrams_packets_and_pairs_stay_within_the_host() {
    Sim::new(2).run(|net| async move {
        let (one, two) = (net.host("one"), net.host("two"));
        let bound = one.spawn(async { (UnixDatagram::bind("/log"), UnixSeqListener::bind("/packets")) });
        let _bound = bound.await.unwrap();
        let apart = two.spawn(async {
            let sender = UnixDatagram::unbound().unwrap();
            let kinds = [
                kind(sender.send_to(b"x", "/log").await),
                kind(sender.connect("/log")),
                kind(UnixSeqpacket::connect("/packets").await),
            ];
            (kinds, (UnixDatagram::pair(), UnixStream::pair(), UnixSeqpacket::pair()))
        });
        let (kinds, pairs) = apart.await.unwrap();
        assert_eq!(kinds, [Some(ErrorKind::NotFound); 3]);
        assert_eq!(two.stack().unwrap().unix_sockets().len(), 6);
        drop(pairs);
        let together = one.spawn(async {
            let sender = UnixDatagram::unbound().unwrap();
            sender.send_to(b"x", "/log").await.unwrap();
            UnixSeqpacket::connect("/packets").await.unwrap();
        });
        together.await.unwrap();
    });
}

#[test]
fn a_crash_ends_the_host_s_sockets_and_frees_its_names() {
    Sim::new(3).run(|net| async move {
        let (host, other) = (net.host("host"), net.host("other"));
        let (serving, bystander) = (serve(&host, "old"), serve(&other, "other"));
        time::sleep(SECOND).await;
        // One end is held outside of the host.
        let given = Rc::new(Cell::new(None));
        let giving = Rc::clone(&given);
        let held = host.spawn(async move {
            let (_kept, ours) = UnixStream::pair().unwrap();
            giving.set(Some(ours));
            std::future::pending::<()>().await;
        });
        time::sleep(SECOND).await;
        let mut given = given.take().unwrap();
        host.crash();
        assert_eq!((serving.await.map(drop), held.await), (Err(Aborted), Err(Aborted)));
        assert_eq!(given.read(&mut [0]).await.unwrap(), 0, "its peer has closed");
        host.restart();
        assert_eq!(kind(ask(&host).await), Some(ErrorKind::NotFound));
        let serving = serve(&host, "new");
        time::sleep(SECOND).await;
        assert_eq!(ask(&host).await.unwrap(), "new");
        assert_eq!(ask(&other).await.unwrap(), "other");
        assert!(!serving.is_finished() && !bystander.is_finished());
    });
}

#[test]
fn a_full_backlog_makes_a_task_wait_in_virtual_time() {
    Sim::new(4).run(|net| async move {
        let host = net.host("host");
        let done = host.spawn(async {
            let listener = UnixListener::bind("/slow").unwrap();
            listener.get_ref().set_backlog(0).unwrap();
            let clients: Vec<_> = (0..3)
                .map(|_| sockeye_sim::spawn(async { UnixStream::connect("/slow").await.map(drop) }))
                .collect();
            for _ in &clients {
                time::sleep(10 * SECOND).await;
                listener.accept().await.unwrap();
            }
            for client in clients {
                client.await.unwrap().unwrap();
            }
        });
        done.await.unwrap();
        assert_eq!(net.now().as_secs(), 30);
    });
}

/// The observations of a run: the automatic name of a socket, and whether another run's path exists.
async fn see(net: Net) -> (Vec<u8>, Option<ErrorKind>, UnixListener) {
    let host = net.host("host");
    let seen = host.spawn(async {
        let missing = kind(UnixStream::connect("/run/service").await);
        // Bound to nothing: it takes an abstract name.
        let autobind = sockeye::unix::SocketAddr::from_pathname("").unwrap();
        let bound = sockeye::unix::UnixDatagram::bind_addr(&autobind).unwrap();
        let name = bound.local_addr().unwrap().as_abstract_name().unwrap().to_vec();
        // It stays bound while the next run is on.
        (name, missing, UnixListener::bind("/run/service").unwrap())
    });
    seen.await.unwrap()
}

#[test]
fn runs_are_isolated_and_a_seed_determines_the_names() {
    let [first, other, again] = [5, 6, 5].map(|seed| Sim::new(seed).run(see));
    assert_eq!([&first, &other, &again].map(|seen| seen.1), [Some(ErrorKind::NotFound); 3]);
    assert_eq!(first.0, again.0);
    assert_ne!(first.0, other.0);
}

/// Two hosts that serve the same path; one crashes and comes back. What was seen, in order.
fn shared_paths(seed: u64) -> Vec<(Duration, String)> {
    Sim::exactly(seed).run(|net| async move {
        let hosts = ["left", "right"].map(|name| net.host(name));
        let mut seen = Vec::new();
        for (host, word) in hosts.iter().zip(["left", "right"]) {
            serve(host, word);
        }
        let crashed = usize::try_from(net.rng("crash").below(2)).unwrap();
        time::sleep(SECOND).await;
        for round in 0..3 {
            for host in &hosts {
                let answer = ask(host).await.map_err(|error| error.kind());
                seen.push((net.now(), format!("{round} {} {answer:?}", host.name())));
            }
            if round == 0 {
                hosts[crashed].crash();
                hosts[crashed].restart();
            } else if round == 1 {
                serve(&hosts[crashed], "again");
            }
            time::sleep(SECOND).await;
        }
        seen
    })
}

#[test]
fn two_hosts_two_seeds_and_a_crash_share_no_name() {
    let alone = [7, 8].map(shared_paths);
    for seen in &alone {
        let answers: Vec<&str> = seen.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(answers[..2], ["0 left Ok(\"left\")", "0 right Ok(\"right\")"]);
        assert_eq!(answers.iter().filter(|text| text.contains("Err(NotFound)")).count(), 1, "{answers:?}");
        assert_eq!(answers.iter().filter(|text| text.contains("\"again\"")).count(), 1, "{answers:?}");
    }
    // Both at once, on two threads: the paths of one run are not the other's.
    let threads = [7, 8].map(|seed| std::thread::spawn(move || shared_paths(seed)));
    assert_eq!(threads.map(|thread| thread.join().unwrap()), alone);
}
