//! tonic over Sockeye: a server on TCP and on a UNIX-domain socket, and channels to both; a unary call and a stream in both directions.
//!
//! `cargo run --example tonic` in this folder.

#[path = "common/words.rs"]
mod words;

use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use sockeye::tokio::hyper_util::Connector;
use sockeye::tokio::tonic::{TcpIncoming, UnixIncoming};
use sockeye::tokio::{TcpListener, UnixListener, UnixStream, unix};
use sockeye_glue::{Done, stack};
use tokio_stream::StreamExt;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Streaming};

use words::{ECHO, SHOUT, Word, Words, codec, word};

/// A unary call and a stream, over a channel.
async fn talk(channel: Channel, from: &str) -> Done {
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await?;
    let path = PathAndQuery::from_static(SHOUT);
    let answer: Response<Word> = client.unary(Request::new(word("hello")), path, codec()).await?;
    assert_eq!(answer.into_inner(), Word { text: "HELLO".to_owned(), from: from.to_owned() });

    client.ready().await?;
    let texts: Vec<String> = (0..100).map(|number| format!("word {number}")).collect();
    let words = tokio_stream::iter(texts.clone().into_iter().map(word));
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
    let incoming = TcpIncoming::new(listener).with_nodelay(Some(true));
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

#[tokio::test]
async fn a_connection_has_the_listeners_nodelay_unless_the_stream_of_connections_has_its_own() -> Done {
    use sockeye::tokio::{TcpSocket, TcpStream};

    let stack = stack(&[])?;
    for (inherited, own, nodelay) in
        [(true, None, true), (false, None, false), (true, Some(false), false), (false, Some(true), true)]
    {
        let socket = stack.scope(TcpSocket::new_v4)?;
        socket.set_nodelay(inherited)?;
        socket.bind("127.0.0.1:0".parse()?)?;
        let listener = socket.listen(8)?;
        let addr = listener.local_addr()?;
        let mut incoming = TcpIncoming::new(listener).with_nodelay(own);
        let _client = TcpStream::connect_on(&stack, addr).await?;
        let server = incoming.next().await.ok_or("the stream has no end")??;
        assert_eq!(server.nodelay()?, nodelay, "{inherited} {own:?}");
    }
    Ok(())
}
