//! Names that are asked for over the stack itself: `hickory-resolver` with Sockeye's sockets, and a name server on the same stack.
//!
//! `cargo run --example hickory` in this folder.

use std::net::Ipv4Addr;

use sockeye::tokio::hickory::Resolver;
use sockeye::tokio::hickory::hickory_resolver::config::{
    NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use sockeye::tokio::{TcpListener, TcpStream, lookup_host_on};
use sockeye::{Config, Stack};
use sockeye_glue::{Answer, DnsServer, Done};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::main]
async fn main() -> Done {
    let stack = Stack::new(Config { workers: 1, ..Config::default() })?;
    let server = DnsServer::start(&stack, |name| match name {
        "web.example." => Answer::Address(Ipv4Addr::new(127, 0, 0, 5)),
        "many.example." => Answer::Truncated(Ipv4Addr::new(127, 0, 0, 6)),
        _ => Answer::NoName,
    })
    .await?;

    let config = ResolverConfig::from_parts(None, vec![], vec![NameServerConfig::udp_and_tcp(server.ip())]);
    let mut options = ResolverOpts::default();
    // Only what the name server says counts here.
    options.use_hosts_file = ResolveHosts::Never;
    stack.set_resolver(Some(Box::new(Resolver::new(&stack, config, options)?)));

    let listener = TcpListener::bind_on(&stack, "web.example:80").await?;
    assert_eq!(listener.local_addr()?.to_string(), "127.0.0.5:80");
    let mut client = TcpStream::connect_on(&stack, "web.example:80").await?;
    client.write_all(b"hello").await?;
    let (mut accepted, _) = listener.accept().await?;
    let mut hello = [0; 5];
    accepted.read_exact(&mut hello).await?;
    assert_eq!(&hello, b"hello");

    // An answer that was cut off is asked for again by TCP.
    let found: Vec<_> = lookup_host_on(&stack, "many.example:80").await?.collect();
    assert_eq!(found, ["127.0.0.6:80".parse()?]);
    assert!(server.asked_by_tcp() > 0);
    println!("{} queries by UDP, {} by TCP", server.asked_by_udp(), server.asked_by_tcp());
    stack.set_resolver(None);
    Ok(())
}

#[test]
fn names_are_asked_for_over_the_stack_itself() {
    main().unwrap();
}
