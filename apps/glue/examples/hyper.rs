//! hyper-util's client on Sockeye's sockets: names, TCP_NODELAY, connections that are used again, the addresses of each.
//!
//! `cargo run --example hyper` in this folder.

use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::get;
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use sockeye::tokio::TcpListener;
use sockeye::tokio::axum::PeerAddr;
use sockeye::tokio::hyper_util::{Connector, HttpInfo};
use sockeye_glue::{Done, stack};

async fn port(ConnectInfo(PeerAddr(addr)): ConnectInfo<PeerAddr>) -> String {
    addr.port().to_string()
}

#[tokio::main]
async fn main() -> Done {
    let stack = stack(&["server"])?;
    let listener = TcpListener::bind_on(&stack, "server:8080").await?;
    let app = Router::new().route("/", get(port)).into_make_service_with_connect_info::<PeerAddr>();
    tokio::spawn(async move { axum::serve(listener, app).await });

    let mut connector = Connector::new_on(&stack);
    connector.set_nodelay(true);
    let client = Client::builder(TokioExecutor::new()).build::<_, Empty<Bytes>>(connector);
    let mut ports = Vec::new();
    for _ in 0..3 {
        let answer = client.get("http://server:8080/".parse()?).await?;
        let info = answer.extensions().get::<HttpInfo>().expect("each answer has the addresses").clone();
        assert_eq!(info.remote_addr().port(), 8080);
        let seen = answer.into_body().collect().await?.to_bytes();
        assert_eq!(
            seen,
            info.local_addr().port().to_string(),
            "the server saw the address that the client has"
        );
        ports.push(seen);
    }
    println!("three requests came from the ports {ports:?}");

    // A name that the stack's resolver does not know: its error is at the end of the chain.
    let error = client.get("http://client:8080/".parse()?).await.unwrap_err();
    assert!(error.is_connect());
    let mut source: &dyn std::error::Error = &error;
    while let Some(inner) = source.source() {
        source = inner;
    }
    assert_eq!(source.to_string(), "client is not known, but these are: server");
    Ok(())
}

#[test]
fn hyper_utils_client_finds_servers_by_the_stacks_names() {
    main().unwrap();
}
