//! A tonic service and a channel to it, in the simulator: calls and a stream while the network is cut and healed, and under random faults.
//!
//! Calls fail within their time while the network is cut, and the same channel works again afterwards. Words of a stream arrive in order, whole, or the stream ends with an
//! error.
//!
//! `cargo run --example sim_tonic` in this folder runs a thousand seeds, with the argument `twice` in each of two processes, and compares them; `RUSTFLAGS="--cfg tokio_unstable"` has `select!` follow from the seed, too.

#[path = "common/words.rs"]
mod words;

use std::time::Duration;

use http::uri::PathAndQuery;
use sockeye::tokio::TcpListener;
use sockeye::tokio::hyper_util::Connector;
use sockeye::tokio::tonic::TcpIncoming;
use sockeye_sim::{FaultConfig, Net, Seeds};
use tokio::time;
use tokio_stream::StreamExt;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status, Streaming};

use words::{ECHO, SHOUT, Word, Words, codec, word};

const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(250);
const CALLS: usize = 40;
const STREAMED: usize = 200;

async fn serve() {
    let listener = TcpListener::bind("0.0.0.0:50051").await.unwrap();
    let incoming = TcpIncoming::new(listener).with_nodelay(Some(true));
    Server::builder().add_service(Words).serve_with_incoming(incoming).await.unwrap();
}

/// Connects when it is first used, and again when the connection is lost.
fn channel() -> Channel {
    let endpoint = Endpoint::from_static("http://words:50051")
        .connect_timeout(PATIENCE)
        .http2_keep_alive_interval(PATIENCE)
        .keep_alive_timeout(PATIENCE)
        .keep_alive_while_idle(true);
    endpoint.connect_with_connector_lazy(Connector::new())
}

async fn call(channel: &Channel, text: &str) -> Result<String, Status> {
    let mut client = tonic::client::Grpc::new(channel.clone());
    client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let request = Request::new(word(text));
    let answer = tokio::select! {
        answer = client.unary(request, PathAndQuery::from_static(SHOUT), codec()) => answer?,
        () = time::sleep(PATIENCE) => return Err(Status::deadline_exceeded("no answer")),
    };
    let answer: Word = answer.into_inner();
    Ok(answer.text)
}

/// How many words of a stream came back, in order, until its end or an error.
async fn stream(channel: &Channel) -> Result<usize, (usize, Status)> {
    let mut client = tonic::client::Grpc::new(channel.clone());
    client.ready().await.map_err(|error| (0, Status::unavailable(error.to_string())))?;
    let word = |number: usize| word(format!("word {number}"));
    let words = tokio_stream::iter((0..STREAMED).map(word)).throttle(Duration::from_millis(10));
    let path = PathAndQuery::from_static(ECHO);
    let answers = time::timeout(PATIENCE, client.streaming(Request::new(words), path, codec())).await;
    let answers = answers.map_err(|_| (0, Status::deadline_exceeded("no stream")))?;
    let answers: Response<Streaming<Word>> = answers.map_err(|status| (0, status))?;
    let (mut answers, mut came) = (answers.into_inner(), 0);
    while let Some(answer) = answers.next().await {
        let answer = answer.map_err(|status| (came, status))?;
        assert_eq!(answer, word(came));
        came += 1;
    }
    Ok(came)
}

/// While the network is cut, calls fail; before and after, they do not.
async fn cut(net: Net) {
    let (client, server) = (net.host("client"), net.host("words"));
    server.spawn(serve());
    let channel = client.spawn(async { channel() }).await.unwrap();
    let one = |text: &'static str| {
        let channel = channel.clone();
        client.spawn(async move { call(&channel, text).await })
    };
    assert_eq!(one("before").await.unwrap().unwrap(), "BEFORE");
    net.partition(&[&client], &[&server]);
    let begin = net.now();
    assert!(one("cut").await.unwrap().is_err());
    assert!(net.now() - begin <= 2 * PATIENCE, "a call fails in time, not after {:?}", net.now() - begin);
    time::sleep(5 * PATIENCE).await;
    net.heal();
    let begin = net.now();
    while one("after").await.unwrap().is_err() {
        assert!(net.now() - begin < 10 * PATIENCE, "the channel connects again");
        time::sleep(PAUSE).await;
    }
}

/// Calls and streams under random faults; what is answered is right, and after the last fault all works.
async fn program(net: Net) {
    let (client, server) = (net.host("client"), net.host("words"));
    server.program(serve);
    let faults = net.random_faults(&[client.clone(), server], FaultConfig::default());
    // The client's programs may be killed: then there is another one.
    client.program({
        let net = net.clone();
        move || talk(net.clone())
    });
    faults.over().await;
    time::sleep(10 * PATIENCE).await;
    let channel = client.spawn(async { channel() }).await.unwrap();
    let all = client.spawn(async move { stream(&channel).await }).await.unwrap();
    assert_eq!(all.map_err(|(came, status)| format!("{came}: {status}")), Ok(STREAMED));
}

async fn talk(net: Net) {
    let channel = channel();
    for number in 0..CALLS {
        let text = format!("call {number}");
        match call(&channel, &text).await {
            Ok(answer) => assert_eq!(answer, text.to_uppercase()),
            Err(status) => net.note(format!("{text}: {status}")),
        }
        if number % 10 == 0 {
            let came = stream(&channel).await;
            net.note(format!("{came:?} words"));
        }
        time::sleep(PAUSE).await;
    }
}

fn main() {
    if sockeye_glue::is_twice() {
        return;
    }
    if !sockeye_glue::is_only_seeds() {
        Seeds::new(0..10).sim(|sim| sim.tokio()).run(cut);
    }
    Seeds::new(sockeye_glue::seeds()).sim(|sim| sim.tokio()).run(program);
    println!("calls and streams are right");
}

#[sockeye_sim::test(seeds = 0..2, tokio)]
async fn calls_fail_in_time_while_the_network_is_cut_and_work_again(net: Net) {
    cut(net).await;
}

#[sockeye_sim::test(seeds = 0..2, tokio)]
async fn answers_are_right_under_random_faults(net: Net) {
    program(net).await;
}

/// Needs `--cfg tokio_unstable`, for `select!`.
#[cfg(tokio_unstable)]
#[test]
fn a_seed_is_the_same_run_in_another_process() {
    sockeye_glue::same_in_two_processes("answers_are_right_under_random_faults");
}
