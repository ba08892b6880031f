//! The connector: which URIs it takes, where it connects to, and that a call can be given up.

use std::io::ErrorKind;
use std::task::{Context, Waker};

use http::Uri;
use sockeye::tokio::TcpListener;
use sockeye::tokio::hyper_util::Connector;
use sockeye_glue::stack;
use tower::Service;

async fn connect(connector: &mut Connector, uri: &str) -> std::io::Result<String> {
    let stream = connector.call(uri.parse::<Uri>().unwrap()).await?;
    Ok(stream.inner().peer_addr()?.to_string())
}

#[tokio::test]
async fn the_port_is_that_of_the_uri_or_of_its_scheme() {
    let stack = stack(&["server"]).unwrap();
    let mut listeners = Vec::new();
    for addr in ["127.0.0.1:80", "127.0.0.1:443", "127.0.0.1:8080", "[::1]:80"] {
        listeners.push(TcpListener::bind_on(&stack, addr).await.unwrap());
    }
    let mut connector = Connector::new_on(&stack);
    assert_eq!(connect(&mut connector, "http://server").await.unwrap(), "127.0.0.1:80");
    assert_eq!(connect(&mut connector, "http://server:8080/path").await.unwrap(), "127.0.0.1:8080");
    assert_eq!(connect(&mut connector, "http://127.0.0.1/").await.unwrap(), "127.0.0.1:80");
    assert_eq!(connect(&mut connector, "http://[::1]/").await.unwrap(), "[::1]:80");
    connector.enforce_http(false);
    assert_eq!(connect(&mut connector, "https://server").await.unwrap(), "127.0.0.1:443");
    let mut current = Connector::new();
    let stream = stack.scope(|| current.call("http://server".parse().unwrap())).await.unwrap();
    assert_eq!(stream.inner().get_ref().stack().connection_count(), stack.connection_count());
}

#[tokio::test]
async fn other_schemes_and_uris_without_a_host_are_refused() {
    let mut connector = Connector::new_on(&stack(&["server"]).unwrap());
    for uri in ["https://server", "ftp://server", "/path"] {
        assert_eq!(connect(&mut connector, uri).await.unwrap_err().kind(), ErrorKind::InvalidInput, "{uri}");
    }
    connector.enforce_http(false);
    assert_eq!(connect(&mut connector, "/path").await.unwrap_err().kind(), ErrorKind::InvalidInput);
    let refused = connect(&mut connector, "http://server").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    let unknown = connect(&mut connector, "http://client").await.unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::NotFound, "the resolver's error");
}

#[tokio::test]
async fn nodelay_is_set_where_it_is_asked_for() {
    let stack = stack(&["server"]).unwrap();
    let _listener = TcpListener::bind_on(&stack, "server:80").await.unwrap();
    let mut connector = Connector::new_on(&stack);
    for is_set in [false, true] {
        connector.set_nodelay(is_set);
        let stream = connector.call("http://server".parse().unwrap()).await.unwrap();
        assert_eq!(stream.inner().nodelay().unwrap(), is_set);
    }
}

#[test]
fn a_call_can_be_given_up_and_needs_no_runtime() {
    let stack = stack(&["server"]).unwrap();
    let mut connector = Connector::new_on(&stack);
    let mut connecting = connector.call("http://server".parse().unwrap());
    // With one poll or none, whatever the stack's worker does meanwhile.
    let _ = connecting.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    drop(connecting);
    drop(connector.call("http://server".parse().unwrap()));
    assert_eq!(stack.connection_count(), 0);
}
