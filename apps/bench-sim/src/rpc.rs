//! A tonic service and a channel to it: unary calls.
//!
//! The service is written by hand where a program would have `tonic-prost-build` write it. Does not depend on the simulator. Tests: `tests/samples.rs`.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::Uri;
use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::transport::{Endpoint, Server};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use crate::net::{Net, Wire};

/// The port of a server.
pub const PORT: u16 = 50051;
const DOUBLE: &str = "/numbers.Numbers/Double";

#[derive(Clone, PartialEq, prost::Message)]
struct Number {
    #[prost(uint64, tag = "1")]
    value: u64,
}

fn codec() -> ProstCodec<Number, Number> {
    ProstCodec::default()
}

#[derive(Clone)]
struct Numbers;

impl NamedService for Numbers {
    const NAME: &'static str = "numbers.Numbers";
}

impl tower::Service<http::Request<Body>> for Numbers {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            let mut grpc = tonic::server::Grpc::new(codec());
            Ok(match request.uri().path() {
                DOUBLE => grpc.unary(tower::service_fn(double), request).await,
                _ => Status::unimplemented("there is Double").into_http(),
            })
        })
    }
}

async fn double(request: Request<Number>) -> Result<Response<Number>, Status> {
    Ok(Response::new(Number { value: request.into_inner().value * 2 }))
}

/// Serves until the simulation ends.
pub async fn serve<N: Net>() -> io::Result<()> {
    let listener = N::bind(PORT).await?;
    let (streams, incoming) = tokio::sync::mpsc::channel(1);
    N::spawn(async move {
        loop {
            let stream = N::accept(&listener).await.map(Wire);
            if streams.send(stream).await.is_err() {
                return;
            }
        }
    });
    let incoming = tokio_stream::wrappers::ReceiverStream::new(incoming);
    Server::builder().add_service(Numbers).serve_with_incoming(incoming).await.map_err(io::Error::other)
}

/// Makes so many calls to a server, one after the other.
pub async fn call<N: Net>(server: String, count: u32) -> io::Result<()> {
    let endpoint = Endpoint::from_shared(format!("http://{server}:{PORT}")).map_err(io::Error::other)?;
    let connector = tower::service_fn(|to: Uri| async move {
        let host = to.host().ok_or_else(|| io::Error::other("an endpoint has a host"))?;
        Ok::<_, io::Error>(TokioIo::new(N::connect(host.to_owned(), PORT).await?))
    });
    let channel = endpoint.connect_with_connector(connector).await.map_err(io::Error::other)?;
    let mut client = tonic::client::Grpc::new(channel);
    for number in 0..count {
        client.ready().await.map_err(io::Error::other)?;
        let request = Request::new(Number { value: u64::from(number) });
        let answer = client.unary(request, PathAndQuery::from_static(DOUBLE), codec()).await;
        let answer: Response<Number> = answer.map_err(io::Error::other)?;
        if answer.into_inner().value != u64::from(number) * 2 {
            return Err(io::Error::other(format!("call {number}: another number")));
        }
    }
    Ok(())
}
