//! Names of hosts: the resolver of a stack, for blocking calls and for tasks.

use std::future::{Future, pending, poll_fn};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;

use crate::common::watchdog;
use sockeye::{
    PanicReport, PanicSource, Resolve, Resolving, Stack, TcpListener, TcpStream, ToSocketAddrs, UdpSocket,
};

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Answers by a function, at once, and remembers the questions.
struct Table<F>(F, Arc<Mutex<Vec<String>>>);

impl<F: Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync> Resolve for Table<F> {
    fn resolve<'a>(&'a self, _: &'a Stack, host: &'a str, port: u16) -> Resolving<'a> {
        self.1.lock().unwrap().push(format!("{host} {port}"));
        Box::pin(async move { (self.0)(host, port) })
    }
}

/// A stack whose names are resolved by `answer`, and the list of its questions.
fn stack(
    answer: impl Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
) -> (Stack, Arc<Mutex<Vec<String>>>) {
    let (stack, asked) = (crate::common::stack(), Arc::default());
    stack.set_resolver(Some(Box::new(Table(answer, Arc::clone(&asked)))));
    (stack, asked)
}

fn only_server(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    match host {
        "server" => Ok(vec![SocketAddr::new(LOCALHOST, port)]),
        _ => Err(io::Error::new(ErrorKind::NotFound, format!("{host} is unknown: there is server"))),
    }
}

/// Polls once.
fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    std::pin::Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

fn count(stack: &Stack, name: &str) -> u64 {
    stack.counters().into_iter().find(|(known, _)| *known == name).unwrap().1
}

#[test]
fn blocking_calls_ask_the_stacks_resolver_for_names_and_not_for_addresses() {
    let _guard = watchdog("blocking_calls_ask");
    let (stack, asked) = stack(only_server);
    let _listener = TcpListener::bind_on(&stack, "server:80").unwrap();
    TcpStream::connect_on(&stack, ("server", 80)).unwrap();
    TcpStream::connect_on(&stack, (String::from("server"), 80)).unwrap();
    let udp = UdpSocket::bind_on(&stack, String::from("server:53")).unwrap();
    udp.connect("server:53").unwrap();
    udp.send_to(b"to itself", "server:53").unwrap();
    let found: Vec<_> = "server:7".to_socket_addrs_on(&stack).unwrap().collect();
    assert_eq!(found, [SocketAddr::new(LOCALHOST, 7)]);
    let found = asked.lock().unwrap().split_off(0);
    let ports = ["80", "80", "80", "53", "53", "53", "7"];
    assert_eq!(found, ports.map(|port| format!("server {port}")));

    for addr in ["127.0.0.1:80", "[::1]:80"] {
        let _ = TcpStream::connect_on(&stack, addr);
        let _ = TcpStream::connect_on(&stack, addr.parse::<SocketAddr>().unwrap());
    }
    TcpStream::connect_on(&stack, ("127.0.0.1", 80)).unwrap();
    assert!("::1".parse::<IpAddr>().is_ok() && ("::1", 80).to_socket_addrs_on(&stack).is_ok());
    let error = TcpStream::connect_on(&stack, "server").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "a name without a port");
    assert_eq!(*asked.lock().unwrap(), [""; 0], "addresses are parsed, and other text is an error");
}

#[test]
fn calls_without_a_stack_ask_the_resolver_of_the_current_one() {
    let _guard = watchdog("calls_without_a_stack_ask");
    let (stack, asked) = stack(only_server);
    let (other, of_other) = self::stack(|_, _| Err(ErrorKind::Unsupported.into()));
    stack.scope(|| {
        let _listener = TcpListener::bind("server:80").unwrap();
        TcpStream::connect("server:80").unwrap();
        "server:80".to_socket_addrs().unwrap();
        assert_eq!(pollster::block_on(sockeye::tokio::lookup_host("server:80")).unwrap().count(), 1);
        let udp = other.scope(|| UdpSocket::bind("127.0.0.1:53").unwrap());
        let error = udp.connect("server:53").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "a socket asks on its own stack");
    });
    assert_eq!((asked.lock().unwrap().len(), of_other.lock().unwrap().len()), (4, 1));
}

/// Without a runtime of tokio: the future of the resolver is polled by the task's own executor.
#[test]
fn tasks_ask_the_stacks_resolver_on_any_executor() {
    let _guard = watchdog("tasks_ask");
    let (stack, asked) = stack(only_server);
    pollster::block_on(async {
        use sockeye::tokio::{TcpListener, TcpStream, UdpSocket, lookup_host_on};
        let _listener = TcpListener::bind_on(&stack, "server:80").await.unwrap();
        TcpStream::connect_on(&stack, ("server", 80)).await.unwrap();
        let udp = UdpSocket::bind_on(&stack, "server:53").await.unwrap();
        udp.connect("server:53").await.unwrap();
        udp.send_to(b"to itself", "server:53").await.unwrap();
        let found: Vec<_> = lookup_host_on(&stack, "server:7").await.unwrap().collect();
        assert_eq!(found, [SocketAddr::new(LOCALHOST, 7)]);
        assert_eq!(asked.lock().unwrap().len(), 6);
        let _ = TcpStream::connect_on(&stack, "127.0.0.1:80").await.unwrap();
        let error = TcpStream::connect_on(&stack, "server:http").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert_eq!(asked.lock().unwrap().len(), 6, "addresses are parsed");
        let error = TcpStream::connect_on(&stack, "client:80").await.unwrap_err();
        assert_eq!(
            (error.kind(), &*error.to_string()),
            (ErrorKind::NotFound, "client is unknown: there is server")
        );
    });
    let error = TcpStream::connect_on(&stack, "client:80").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[test]
fn addresses_are_tried_in_their_order_and_at_most_64_of_them() {
    let _guard = watchdog("addresses_are_tried_in_their_order");
    let dead = |count: u16| (1..=count).map(|port| SocketAddr::new(LOCALHOST, port));
    let (stack, _) = stack(move |host, port| {
        let live = SocketAddr::new(LOCALHOST, port);
        Ok(match host {
            "none" => Vec::new(),
            "last" => dead(63).chain([live]).collect(),
            "beyond" => dead(64).chain([live]).collect(),
            _ => vec![live, SocketAddr::new(LOCALHOST, 1)],
        })
    });
    let listener = TcpListener::bind_on(&stack, "127.0.0.1:80").unwrap();
    let stream = TcpStream::connect_on(&stack, "first:80").unwrap();
    assert_eq!(stream.peer_addr().unwrap(), listener.local_addr().unwrap());
    assert!(TcpStream::connect_on(&stack, "last:80").is_ok());
    let error = TcpStream::connect_on(&stack, "beyond:80").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "the error is that of the last one tried");
    assert_eq!("beyond:80".to_socket_addrs_on(&stack).unwrap().len(), 64);

    let error = TcpStream::connect_on(&stack, "none:80").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let udp = UdpSocket::bind_on(&stack, "127.0.0.1:53").unwrap();
    assert_eq!(udp.send_to(b"", "none:80").unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!("none:80".to_socket_addrs_on(&stack).unwrap().len(), 0);
    assert_eq!(pollster::block_on(sockeye::tokio::lookup_host_on(&stack, "none:80")).unwrap().count(), 0);
}

/// Waits until another thread lets it go on.
#[derive(Clone, Default)]
struct Slow(Arc<Mutex<(bool, Option<Waker>)>>);

impl Slow {
    fn let_go(&self) {
        let mut state = self.0.lock().unwrap();
        state.0 = true;
        if let Some(waker) = state.1.take() {
            waker.wake();
        }
    }

    fn is_waiting(&self) -> bool {
        self.0.lock().unwrap().1.is_some()
    }
}

impl Resolve for Slow {
    fn resolve<'a>(&'a self, _: &'a Stack, _: &'a str, port: u16) -> Resolving<'a> {
        Box::pin(async move {
            poll_fn(|cx| {
                let mut state = self.0.lock().unwrap();
                if state.0 {
                    return Poll::Ready(());
                }
                state.1 = Some(cx.waker().clone());
                Poll::Pending
            })
            .await;
            Ok(vec![SocketAddr::new(LOCALHOST, port)])
        })
    }
}

#[test]
fn a_blocking_call_sleeps_until_the_resolver_has_an_answer() {
    let _guard = watchdog("a_blocking_call_sleeps");
    let (stack, slow) = (crate::common::stack(), Slow::default());
    stack.set_resolver(Some(Box::new(slow.clone())));
    let caller =
        thread::spawn(move || "server:80".to_socket_addrs_on(&stack).map(|addrs| (addrs.len(), stack)));
    while !slow.is_waiting() {
        thread::yield_now();
    }
    slow.let_go();
    let (found, stack) = caller.join().unwrap().unwrap();
    assert_eq!(found, 1);
    drop(stack);
}

#[test]
fn a_resolver_that_is_replaced_answers_those_that_are_asking_it() {
    let _guard = watchdog("a_resolver_that_is_replaced");
    let (stack, slow) = (crate::common::stack(), Slow::default());
    let asked = Arc::clone(&slow.0);
    stack.set_resolver(Some(Box::new(slow.clone())));
    let mut asking = Box::pin(sockeye::tokio::lookup_host_on(&stack, "server:80"));
    assert!(poll_once(&mut asking).is_pending());
    stack.set_resolver(Some(Box::new(Table(only_server, Arc::default()))));
    let error = "client:80".to_socket_addrs_on(&stack).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "later calls ask the new one");
    assert_eq!(Arc::strong_count(&asked), 3, "the old one is still asked");
    slow.let_go();
    let Poll::Ready(found) = poll_once(&mut asking) else { panic!("there is an answer") };
    assert_eq!(found.unwrap().count(), 1);
    drop(asking);
    assert_eq!(Arc::strong_count(&asked), 2, "and is dropped after that");
}

/// Counts drops.
struct Dropped(Arc<AtomicUsize>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Never answers.
struct Mute(Dropped);

impl Resolve for Mute {
    fn resolve<'a>(&'a self, _: &'a Stack, _: &'a str, _: u16) -> Resolving<'a> {
        let dropped = Dropped(Arc::clone(&self.0.0));
        Box::pin(async move {
            let _dropped = dropped;
            pending().await
        })
    }
}

#[test]
fn a_call_that_is_cancelled_drops_the_resolvers_future_and_the_stack_its_resolver() {
    let _guard = watchdog("a_call_that_is_cancelled");
    let (stack, dropped) = (crate::common::stack(), Arc::new(AtomicUsize::new(0)));
    stack.set_resolver(Some(Box::new(Mute(Dropped(Arc::clone(&dropped))))));
    let mut connecting = Box::pin(sockeye::tokio::TcpStream::connect_on(&stack, "server:80"));
    assert!(poll_once(&mut connecting).is_pending());
    assert_eq!(dropped.load(Ordering::Relaxed), 0);
    drop(connecting);
    assert_eq!(dropped.load(Ordering::Relaxed), 1, "the future");
    drop(stack);
    assert_eq!(dropped.load(Ordering::Relaxed), 2, "the resolver");
}

#[test]
fn without_a_resolver_the_machine_is_asked() {
    let _guard = watchdog("without_a_resolver");
    let (stack, asked) = stack(only_server);
    stack.set_resolver(None);
    // A name that no machine has, by RFC 6761 section 6.4.
    assert!("server.invalid:80".to_socket_addrs_on(&stack).is_err());
    assert!(pollster::block_on(sockeye::tokio::lookup_host_on(&stack, "server.invalid:80")).is_err());
    assert_eq!(*asked.lock().unwrap(), [""; 0]);
}

/// Panics where its name says.
struct Panics(&'static str);

impl Drop for Panics {
    fn drop(&mut self) {
        assert!(self.0 != "resolver", "the resolver is dropped");
    }
}

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("the future is dropped");
    }
}

impl Resolve for Panics {
    fn resolve<'a>(&'a self, _: &'a Stack, host: &'a str, port: u16) -> Resolving<'a> {
        assert!(host != "call", "the call");
        Box::pin(async move {
            let _bomb = matches!(host, "drop" | "cancel").then(|| Bomb);
            if host == "cancel" {
                pending::<()>().await;
            }
            assert!(host != "poll", "the poll");
            // The result of a future whose local panics in its drop is leaked by the compiler: an empty one has no memory.
            Ok(if host == "drop" { Vec::new() } else { vec![SocketAddr::new(LOCALHOST, port)] })
        })
    }
}

#[test]
fn a_panic_of_the_resolver_is_the_failure_of_the_call_and_is_reported() {
    let _guard = watchdog("a_panic_of_the_resolver");
    let (stack, told) = (crate::common::stack(), Arc::new(Mutex::new(Vec::new())));
    let listener = Arc::clone(&told);
    stack.set_panic_hook(Some(move |report: &PanicReport| {
        assert_eq!(report.source, PanicSource::Hook);
        listener.lock().unwrap().push(report.message.clone());
    }));
    stack.set_resolver(Some(Box::new(Panics("resolver"))));
    for host in ["call", "poll", "drop"] {
        let blocking = TcpStream::connect_on(&stack, (host, 80)).unwrap_err();
        let task = pollster::block_on(sockeye::tokio::TcpStream::connect_on(&stack, (host, 80))).unwrap_err();
        assert_eq!((blocking.kind(), task.kind()), (ErrorKind::Other, ErrorKind::Other), "{host}");
    }
    let messages = ["the call", "the poll", "the future is dropped"];
    assert_eq!(*told.lock().unwrap(), messages.map(|message| [message, message]).as_flattened());
    assert_eq!(count(&stack, "panics_foreign"), 6);
    let mut connecting = Box::pin(sockeye::tokio::TcpStream::connect_on(&stack, ("cancel", 80)));
    assert!(poll_once(&mut connecting).is_pending());
    drop(connecting);
    assert_eq!(told.lock().unwrap().last().unwrap(), "the future is dropped");
    assert_eq!(count(&stack, "panics_foreign"), 7, "the drop of a future that was given up");
    assert_eq!("server:80".to_socket_addrs_on(&stack).unwrap().len(), 1, "it is still asked");
    stack.set_resolver(None);
    assert!(
        "127.0.0.1:80".to_socket_addrs_on(&stack).is_ok(),
        "its drop has panicked, and nothing else happened"
    );
}
