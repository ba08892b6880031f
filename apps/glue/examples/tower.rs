//! The connector as a `tower` service, with layers around it: a limit of time, other types of target and stream.
//!
//! `cargo run --example tower` in this folder.

use std::time::Duration;

use http::Uri;
use sockeye::tokio::TcpListener;
use sockeye::tokio::hyper_util::Connector;
use sockeye_glue::{Done, stack};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tower::timeout::Timeout;
use tower::{Service, ServiceBuilder, ServiceExt};

#[tokio::main]
async fn main() -> Done {
    let stack = stack(&["echo"])?;
    let listener = TcpListener::bind_on(&stack, "echo:7").await?;
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut word = [0; 4];
                stream.read_exact(&mut word).await?;
                stream.write_all(&word).await
            });
        }
    });

    // From names to streams of tokio's kind, within ten seconds.
    let mut connect = ServiceBuilder::new()
        .map_request(|(host, port): (&str, u16)| {
            format!("http://{host}:{port}").parse::<Uri>().expect("a name is a URI's host")
        })
        .map_response(hyper_util::rt::TokioIo::into_inner)
        .layer_fn(|inner| Timeout::new(inner, Duration::from_secs(10)))
        .service(Connector::new_on(&stack));

    let mut stream = connect.ready().await?.call(("echo", 7)).await?;
    stream.write_all(b"ping").await?;
    let mut word = [0; 4];
    stream.read_exact(&mut word).await?;
    assert_eq!(&word, b"ping");
    assert!(connect.ready().await?.call(("echo", 8)).await.is_err(), "nothing listens there");
    println!("the connector is a tower service");
    Ok(())
}

#[test]
fn the_connector_is_a_tower_service() {
    main().unwrap();
}
