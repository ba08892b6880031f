//! Names that hickory asks for over the stack: failures, blocking calls.

use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::time::Duration;

use sockeye::tokio::hickory::Resolver;
use sockeye::tokio::hickory::hickory_resolver::config::{
    NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use sockeye::tokio::{TcpStream, lookup_host_on};
use sockeye::{Config, Stack, ToSocketAddrs};
use sockeye_glue::{Answer, DnsServer};

/// A stack with a name server, whose names hickory asks for.
async fn stack(timeout: Duration) -> (Stack, DnsServer) {
    let stack = Stack::new(Config { workers: 1, ..Config::default() }).unwrap();
    let server = DnsServer::start(&stack, |name| match name {
        "here.example." => Answer::Address(Ipv4Addr::new(127, 0, 0, 5)),
        "many.example." => Answer::Truncated(Ipv4Addr::new(127, 0, 0, 6)),
        "slow.example." => Answer::Silence,
        _ => Answer::NoName,
    })
    .await
    .unwrap();
    let config = ResolverConfig::from_parts(None, vec![], vec![NameServerConfig::udp_and_tcp(server.ip())]);
    let mut options = ResolverOpts::default();
    options.use_hosts_file = ResolveHosts::Never;
    (options.timeout, options.attempts) = (timeout, 0);
    stack.set_resolver(Some(Box::new(Resolver::new(&stack, config, options).unwrap())));
    (stack, server)
}

/// Longer than a test takes.
const FOREVER: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn a_name_that_does_not_exist_is_not_found() {
    let (stack, _server) = stack(FOREVER).await;
    let error = TcpStream::connect_on(&stack, "nowhere.example:80").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert_eq!(lookup_host_on(&stack, "here.example:80").await.unwrap().count(), 1);
}

#[tokio::test]
async fn a_name_server_that_is_silent_times_out() {
    let (stack, server) = stack(Duration::from_millis(100)).await;
    let error = TcpStream::connect_on(&stack, "slow.example:80").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    assert!(server.asked_by_udp() > 0);
}

#[tokio::test]
async fn a_call_that_is_cancelled_leaves_no_socket_behind() {
    let (stack, server) = stack(FOREVER).await;
    let before = stack.sockets(false).len();
    let connecting = tokio::spawn({
        let stack = stack.clone();
        async move { TcpStream::connect_on(&stack, "slow.example:80").await }
    });
    while server.asked_by_udp() == 0 {
        tokio::task::yield_now().await;
    }
    assert!(stack.sockets(false).len() > before, "the query has a socket");
    connecting.abort();
    assert!(connecting.await.unwrap_err().is_cancelled());
    while stack.sockets(false).len() > before {
        tokio::task::yield_now().await;
    }
}

/// On another thread than the runtime's, which has the timers of the lookup.
#[tokio::test]
async fn a_blocking_call_is_answered_by_the_runtime_of_the_resolver() {
    let (stack, server) = stack(FOREVER).await;
    let caller = std::thread::spawn(move || {
        let by_udp = "here.example:80".to_socket_addrs_on(&stack).unwrap().next();
        let by_tcp = "many.example:80".to_socket_addrs_on(&stack).unwrap().next();
        (by_udp.unwrap().to_string(), by_tcp.unwrap().to_string(), stack)
    });
    while !caller.is_finished() {
        tokio::task::yield_now().await;
    }
    let (by_udp, by_tcp, stack) = caller.join().unwrap();
    assert_eq!((&*by_udp, &*by_tcp), ("127.0.0.5:80", "127.0.0.6:80"));
    assert!(server.asked_by_tcp() > 0);
    // Its connection by TCP ends with the resolver.
    stack.set_resolver(None);
}

#[test]
fn a_resolver_needs_a_runtime_when_it_is_made() {
    let stack = Stack::new(Config { workers: 1, ..Config::default() }).unwrap();
    let servers = vec![NameServerConfig::udp_and_tcp(Ipv4Addr::LOCALHOST.into())];
    let config = ResolverConfig::from_parts(None, vec![], servers);
    let error = Resolver::new(&stack, config, ResolverOpts::default()).unwrap_err();
    assert!(error.to_string().contains("runtime"), "{error}");
}
