//! A tonic service, written by hand where a program would have `tonic-prost-build` write it.
//!
//! Does not depend on what its server listens on. Tests: those of the examples that include it.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use sockeye::tokio::tonic::UdsConnectInfo;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

pub const SHOUT: &str = "/words.Words/Shout";
pub const ECHO: &str = "/words.Words/Echo";

#[derive(Clone, PartialEq, prost::Message)]
pub struct Word {
    #[prost(string, tag = "1")]
    pub text: String,
    /// In an answer of `Shout`, from where it was asked.
    #[prost(string, tag = "2")]
    pub from: String,
}

pub fn word(text: impl Into<String>) -> Word {
    Word { text: text.into(), from: String::new() }
}

pub fn codec() -> ProstCodec<Word, Word> {
    ProstCodec::default()
}

/// `Shout` answers in capitals, `Echo` sends back each word of a stream.
#[derive(Clone)]
pub struct Words;

impl NamedService for Words {
    const NAME: &'static str = "words.Words";
}

impl tower::Service<http::Request<Body>> for Words {
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
                SHOUT => grpc.unary(tower::service_fn(shout), request).await,
                ECHO => grpc.streaming(tower::service_fn(echo), request).await,
                _ => Status::unimplemented("there are Shout and Echo").into_http(),
            })
        })
    }
}

async fn shout(request: Request<Word>) -> Result<Response<Word>, Status> {
    let from = match (request.remote_addr(), request.extensions().get::<UdsConnectInfo>()) {
        (Some(addr), _) => addr.ip().to_string(),
        (None, Some(info)) => {
            let cred = info.peer_cred.ok_or_else(|| Status::internal("a connection has credentials"))?;
            format!("user {}", cred.uid)
        }
        (None, None) => return Err(Status::internal("a connection has an address")),
    };
    Ok(Response::new(Word { text: request.into_inner().text.to_uppercase(), from }))
}

type Echo = Pin<Box<dyn tokio_stream::Stream<Item = Result<Word, Status>> + Send>>;

async fn echo(request: Request<Streaming<Word>>) -> Result<Response<Echo>, Status> {
    Ok(Response::new(Box::pin(request.into_inner())))
}
