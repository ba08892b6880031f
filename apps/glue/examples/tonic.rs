//! tonic over Sockeye: a server on TCP and on a UNIX-domain socket, and channels to both; a unary call and a stream in both directions.
//!
//! The service is written by hand where a program would have `tonic-prost-build` write it. `cargo run --example tonic` in this folder.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use sockeye::tokio::hyper_util::Connector;
use sockeye::tokio::tonic::{TcpIncoming, UdsConnectInfo, UnixIncoming};
use sockeye::tokio::{TcpListener, UnixListener, UnixStream, unix};
use sockeye_glue::{Done, stack};
use tokio_stream::StreamExt;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

#[derive(Clone, PartialEq, prost::Message)]
struct Word {
    #[prost(string, tag = "1")]
    text: String,
}

const SHOUT: &str = "/words.Words/Shout";
const ECHO: &str = "/words.Words/Echo";

fn word(text: &str) -> Word {
    Word { text: text.to_owned() }
}

fn codec() -> ProstCodec<Word, Word> {
    ProstCodec::default()
}

/// `Shout` answers in capitals and says from where it was asked, `Echo` sends back each word of a stream.
#[derive(Clone)]
struct Words;

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
    let text = request.into_inner().text.to_uppercase();
    Ok(Response::new(Word { text: format!("{text}, {from}") }))
}

type Echo = Pin<Box<dyn tokio_stream::Stream<Item = Result<Word, Status>> + Send>>;

async fn echo(request: Request<Streaming<Word>>) -> Result<Response<Echo>, Status> {
    Ok(Response::new(Box::pin(request.into_inner())))
}

/// A unary call and a stream, over a channel.
async fn talk(channel: Channel, from: &str) -> Done {
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await?;
    let path = PathAndQuery::from_static(SHOUT);
    let answer: Response<Word> = client.unary(Request::new(word("hello")), path, codec()).await?;
    assert_eq!(answer.into_inner().text, format!("HELLO, {from}"));

    client.ready().await?;
    let texts: Vec<String> = (0..100).map(|number| format!("word {number}")).collect();
    let words = tokio_stream::iter(texts.clone().into_iter().map(|text| Word { text }));
    let path = PathAndQuery::from_static(ECHO);
    let answers: Response<Streaming<Word>> = client.streaming(Request::new(words), path, codec()).await?;
    let mut answers = answers.into_inner();
    let mut back = Vec::new();
    while let Some(word) = answers.next().await {
        back.push(word?.text);
    }
    assert_eq!(back, texts);
    Ok(())
}

#[tokio::main]
async fn main() -> Done {
    let stack = stack(&["words"])?;
    let listener = TcpListener::bind_on(&stack, "words:50051").await?;
    let incoming = TcpIncoming::new(listener).with_nodelay(true);
    tokio::spawn(Server::builder().add_service(Words).serve_with_incoming(incoming));

    let mut connector = Connector::new_on(&stack);
    connector.set_nodelay(true);
    let channel = Endpoint::from_static("http://words:50051").connect_with_connector(connector).await?;
    talk(channel, "127.0.0.1").await?;

    let listener = stack.scope(|| UnixListener::bind("/run/words"))?;
    tokio::spawn(Server::builder().add_service(Words).serve_with_incoming(UnixIncoming::new(listener)));
    let path = unix::SocketAddr::from_pathname("/run/words")?;
    let connector = tower::service_fn(move |_: http::Uri| {
        let (stack, path) = (stack.clone(), path.clone());
        async move { UnixStream::connect_addr_on(&stack, &path).await.map(TokioIo::new) }
    });
    let channel = Endpoint::from_static("http://localhost").connect_with_connector(connector).await?;
    let uid = rustix::process::getuid().as_raw();
    talk(channel, &format!("user {uid}")).await?;
    println!("tonic talks over TCP and over a UNIX-domain socket");
    Ok(())
}

#[test]
fn tonic_talks_over_tcp_and_over_a_unix_domain_socket() {
    main().unwrap();
}
