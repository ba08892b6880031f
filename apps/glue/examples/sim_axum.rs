//! An axum service and a client that retries, in the simulator, under random faults.
//!
//! The service counts; a request has a number, so that a repeated one counts once. Its table stands for a database: it outlives the process. What holds: each request
//! that was answered has counted exactly once. The handlers iterate a `HashMap`, answers have a date, and the client's `select!` is fair: all of it follows from the seed.
//!
//! `cargo run --example sim_axum` in this folder runs a thousand seeds, with the argument `twice` in each of two processes, and compares them; `RUSTFLAGS="--cfg tokio_unstable"` has `select!` follow from the seed, too.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::routing::{get, post};
use bytes::Bytes;
use http::Method;
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::Connect;
use hyper_util::rt::TokioExecutor;
use sockeye::tokio::TcpListener;
use sockeye::tokio::hyper_util::Connector;
use sockeye_sim::{FaultConfig, Host, Net, Seeds};
use tokio::time;

const REQUESTS: u64 = 40;
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(200);

/// How often each request was counted.
type Counted = Arc<Mutex<HashMap<u64, u64>>>;

async fn add(State(counted): State<Counted>, Path(request): Path<u64>) -> String {
    let mut counted = counted.lock().unwrap();
    // Once: a repetition finds it.
    counted.entry(request).or_insert(0);
    counted.insert(request, 1);
    counted.len().to_string()
}

async fn all(State(counted): State<Counted>) -> String {
    let counted = counted.lock().unwrap();
    counted.keys().map(u64::to_string).collect::<Vec<_>>().join(" ")
}

async fn serve(counted: Counted) {
    let app = Router::new().route("/add/{request}", post(add)).route("/all", get(all)).with_state(counted);
    let listener = TcpListener::bind("0.0.0.0:80").await.unwrap();
    axum::serve(listener, app).await.unwrap();
}

/// Any connector will do: in a product `hyper_util`'s own, here that of the simulation's sockets.
type Http<C> = Client<C, Empty<Bytes>>;

/// One try: the answer's date and body.
async fn call<C>(http: &Http<C>, method: &Method, path: &str) -> Result<(String, String), String>
where
    C: Connect + Clone + Send + Sync + 'static,
{
    let request = http::Request::builder().method(method).uri(format!("http://server{path}"));
    let request = request.body(Empty::new()).map_err(|error| error.to_string())?;
    let answer = tokio::select! {
        answer = http.request(request) => answer.map_err(|error| error.to_string())?,
        () = time::sleep(PATIENCE) => return Err("no answer".into()),
    };
    if answer.status() != 200 {
        return Err(answer.status().to_string());
    }
    let date = answer.headers().get("date").map_or("", |date| date.to_str().unwrap_or("")).to_owned();
    let body = time::timeout(PATIENCE, answer.into_body().collect()).await;
    let body = body.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
    Ok((date, String::from_utf8_lossy(&body.to_bytes()).into_owned()))
}

/// Tries until there is an answer, and writes down what happened.
async fn insist<C>(http: &Http<C>, method: Method, path: &str, story: &mut Vec<String>) -> String
where
    C: Connect + Clone + Send + Sync + 'static,
{
    loop {
        match call(http, &method, path).await {
            Ok((date, body)) => {
                story.push(format!("{path}: {body}, {date}"));
                return body;
            }
            Err(error) => story.push(format!("{path}: {error}")),
        }
        time::sleep(PAUSE).await;
    }
}

/// All requests, in order; then what the server has.
async fn talk<C>(connector: C) -> Vec<String>
where
    C: Connect + Clone + Send + Sync + 'static,
{
    let http: Http<C> = Client::builder(TokioExecutor::new()).build(connector);
    let mut story = Vec::new();
    for request in 0..REQUESTS {
        insist(&http, Method::POST, &format!("/add/{request}"), &mut story).await;
        time::sleep(PAUSE).await;
    }
    let listed = insist(&http, Method::GET, "/all", &mut story).await;
    assert_eq!(listed.split(' ').count() as u64, REQUESTS, "{listed}");
    story
}

async fn program(net: Net) {
    let counted = Counted::default();
    let (client, server): (Host, Host) = (net.host("client"), net.host("server"));
    let table = Arc::clone(&counted);
    server.program(move || serve(Arc::clone(&table)));
    let faults = net.random_faults(&[server], FaultConfig::default());
    let story = client.spawn(talk(Connector::new())).await.expect("no fault is the client's");
    story.into_iter().for_each(|line| net.note(line));
    faults.over().await;
    let counted = counted.lock().unwrap();
    assert!((0..REQUESTS).all(|request| counted.get(&request) == Some(&1)), "{counted:?}");
}

fn main() {
    if sockeye_glue::is_twice() {
        return;
    }
    Seeds::new(sockeye_glue::seeds()).sim(|sim| sim.tokio()).run(program);
    println!("each request counts once");
}

#[sockeye_sim::test(seeds = 0..6, tokio)]
async fn each_request_that_a_client_repeats_counts_once(net: Net) {
    program(net).await;
}

/// Needs `--cfg tokio_unstable`, for `select!`.
#[cfg(tokio_unstable)]
#[test]
fn a_seed_is_the_same_run_in_another_process() {
    sockeye_glue::same_in_two_processes("each_request_that_a_client_repeats_counts_once");
}
