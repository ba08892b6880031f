//! An axum server on Sockeye's TCP and UNIX-domain sockets. The client finds it by a name that only the stack knows.
//!
//! `cargo run --example axum` in this folder.

use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::get;
use axum::serve::ListenerExt;
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use sockeye::tokio::axum::PeerAddr;
use sockeye::tokio::hyper_util::Connector;
use sockeye::tokio::{TcpListener, UnixListener, UnixStream, unix};
use sockeye_glue::{Done, stack};

async fn who(ConnectInfo(PeerAddr(addr)): ConnectInfo<PeerAddr>) -> String {
    format!("hello, {}", addr.ip())
}

async fn user(ConnectInfo(addr): ConnectInfo<unix::SocketAddr>) -> String {
    format!("hello, {}", if addr.is_unnamed() { "neighbor" } else { "stranger" })
}

#[tokio::main]
async fn main() -> Done {
    let stack = stack(&["web"])?;

    // Over TCP, and with an option of each connection.
    let listener = TcpListener::bind_on(&stack, "web:80").await?;
    let app = Router::new().route("/", get(who)).into_make_service_with_connect_info::<PeerAddr>();
    tokio::spawn(async move { axum::serve(listener, app).await });
    let listener = TcpListener::bind_on(&stack, "web:81").await?;
    let listener = listener.tap_io(|stream| stream.set_nodelay(true).expect("a connection has the option"));
    let app = Router::new().route("/", get(async || "no delay"));
    tokio::spawn(async move { axum::serve(listener, app).await });

    let client = Client::builder(TokioExecutor::new()).build::<_, Empty<Bytes>>(Connector::new_on(&stack));
    for (uri, expected) in [("http://web/", "hello, 127.0.0.1"), ("http://web:81/", "no delay")] {
        let answer = client.get(uri.parse()?).await?;
        assert_eq!(answer.into_body().collect().await?.to_bytes(), expected);
    }

    // Over a UNIX-domain socket of the stack. The client connects by a path, whatever the URI says.
    let listener = stack.scope(|| UnixListener::bind("/run/web"))?;
    let app = Router::new().route("/", get(user)).into_make_service_with_connect_info::<unix::SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, app).await });
    let path = unix::SocketAddr::from_pathname("/run/web")?;
    let connector = tower::service_fn(move |_: http::Uri| {
        let (stack, path) = (stack.clone(), path.clone());
        Box::pin(async move { UnixStream::connect_addr_on(&stack, &path).await.map(TokioIo::new) })
    });
    let client = Client::builder(TokioExecutor::new()).build::<_, Empty<Bytes>>(connector);
    let answer = client.get("http://localhost/".parse()?).await?;
    assert_eq!(answer.into_body().collect().await?.to_bytes(), "hello, neighbor");
    println!("axum answers over TCP and over a UNIX-domain socket");
    Ok(())
}

#[test]
fn axum_answers_over_tcp_and_over_a_unix_domain_socket() {
    main().unwrap();
}
