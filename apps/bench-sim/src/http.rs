//! An axum service and a client of hyper over one connection of HTTP/1.1.
//!
//! Does not depend on the simulator. Tests: `tests/samples.rs`.

use std::io;

use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;

use crate::net::{Door, Net};

/// The port of a server.
pub const PORT: u16 = 80;

async fn double(Path(number): Path<u32>) -> String {
    (u64::from(number) * 2).to_string()
}

/// Serves until the simulation ends.
pub async fn serve<N: Net>() -> io::Result<()> {
    let app = Router::new().route("/double/{number}", get(double));
    let listener = N::bind(PORT).await?;
    axum::serve(Door::<N>(listener), app).await
}

/// Makes so many calls to a server, one after the other.
pub async fn call<N: Net>(server: String, count: u32) -> io::Result<()> {
    let io = TokioIo::new(N::connect(server.clone(), PORT).await?);
    let (mut sender, connection) = http1::handshake(io).await.map_err(io::Error::other)?;
    N::spawn(async move {
        // A connection that fails fails the call that waits for its answer.
        let _ = connection.await;
    });
    for number in 0..count {
        sender.ready().await.map_err(io::Error::other)?;
        let request = Request::get(format!("/double/{number}")).header("host", &server);
        let request = request.body(Empty::<Bytes>::new()).map_err(io::Error::other)?;
        let answer = sender.send_request(request).await.map_err(io::Error::other)?;
        let status = answer.status();
        let body = answer.into_body().collect().await.map_err(io::Error::other)?.to_bytes();
        if status != StatusCode::OK || body != (u64::from(number) * 2).to_string() {
            return Err(io::Error::other(format!("call {number}: {status}, {body:?}")));
        }
    }
    Ok(())
}
