//! The gateway's side of its control socket. It runs on the thread that waits for signals, so a request delays no flow.
//!
//! Bounds: clients as in `sockets.rs`; lines of [`LINE_MAX`] bytes; a client that sends no line or takes no answer for [`IDLE`] is disconnected.
//! Tests: `tests/gateway/control.rs`; below.

use std::io;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, split};
use tokio::time::timeout;

use super::{FLOWS_MAX, LINE_MAX, Request, RuleText};
use crate::engine::Shared;
use crate::engine::forwards::By;
use crate::engine::inward::Publish;
use crate::policy::{Rule, rule};
use crate::sockets::serve_clients;

/// For a client to send a line, and to take its answer.
const IDLE: Duration = Duration::from_secs(300);
/// Serves a socket, on the runtime of the caller.
///
/// # Errors
/// The system's.
pub fn start(listener: UnixListener, shared: &Arc<Shared>) -> io::Result<()> {
    let shared = Arc::clone(shared);
    let refused = |why: &str| json!({ "error": why });
    serve_clients(listener, refused, move |client| {
        let shared = Arc::clone(&shared);
        async move {
            let answer = |line: String| {
                let shared = Arc::clone(&shared);
                async move { answer(&line, &shared).await.unwrap_or_else(|error| json!({ "error": error })) }
            };
            // Its end, by error or not, is the end of the client.
            let _ = serve(client, answer).await;
        }
    })
}

/// Serves a client until it ends or is idle.
async fn serve<Answered: Future<Output = Value>>(
    stream: impl AsyncRead + AsyncWrite,
    answer: impl Fn(String) -> Answered,
) -> io::Result<()> {
    let (read, mut write) = split(stream);
    let mut read = BufReader::new(read);
    loop {
        let mut line = String::new();
        let len = timeout(IDLE, (&mut read).take(LINE_MAX as u64).read_line(&mut line)).await??;
        if len == 0 {
            return Ok(());
        }
        let is_whole = line.ends_with('\n');
        let answer = answer(line).await;
        timeout(IDLE, write.write_all(format!("{answer}\n").as_bytes())).await??;
        if !is_whole {
            return Ok(());
        }
    }
}

/// The answer to a line, or what is wrong with it.
async fn answer(line: &str, shared: &Shared) -> Result<Value, String> {
    let request = serde_json::from_str(line).map_err(|error| format!("no request: {error}"))?;
    Ok(match request {
        Request::List => json!({ "forwards": shared.forwards.list() }),
        Request::Add { publish } => {
            let publish = publish.parse::<Publish>()?;
            let added = shared.forwards.add(publish, By::Ctl).await;
            json!({ "forward": added.map_err(|error| error.to_string())? })
        }
        Request::Remove { forward } => {
            if !shared.forwards.remove(forward) {
                return Err(format!("there is no forward {forward}"));
            }
            json!({ "removed": forward })
        }
        Request::Flows { from } => {
            let flows = shared.flows.list(from, FLOWS_MAX);
            let entries: Vec<_> = flows.iter().map(|record| record.entry()).collect();
            json!({ "flows": entries, "more": flows.len() == FLOWS_MAX })
        }
        Request::Stats => {
            let mut stats = json!(shared.flows.totals());
            stats["loops"] = shared.queues.as_ref().map_or(1, |queues| queues.in_use()).into();
            stats
        }
        Request::Rules => rules(shared),
        Request::SetRules { rules: texts } => {
            shared.policy.set_rules(texts.iter().map(parse).collect::<Result<_, _>>()?);
            rules(shared)
        }
    })
}

fn rules(shared: &Shared) -> Value {
    json!({ "rules": shared.policy.rules().iter().map(RuleText::from).collect::<Vec<_>>() })
}

fn parse(text: &RuleText) -> Result<Rule, String> {
    match text {
        RuleText::Allow(text) => rule::allow(text),
        RuleText::Deny(text) => rule::deny(text),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;
    use tokio::time::{Instant, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_is_served_as_long_as_it_asks_and_not_when_it_is_idle() {
        let (near, mut far) = duplex(100);
        let served = tokio::spawn(serve(near, |line: String| async move { json!(line.trim()) }));
        let mut answer = [0; 6];
        for _ in 0..10 {
            sleep(IDLE / 2).await;
            far.write_all(b"asks\n").await.unwrap();
            far.read_exact(&mut answer).await.unwrap();
            assert_eq!(&answer, b"\"asks\"");
            assert_eq!(far.read_u8().await.unwrap(), b'\n');
        }
        // A part of a line is none.
        let start = Instant::now();
        far.write_all(b"as").await.unwrap();
        assert_eq!(served.await.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(start.elapsed(), IDLE);
        // Nor is it served when it takes no answers.
        let (near, mut far) = duplex(100);
        let served = tokio::spawn(serve(near, |_| async { json!("a".repeat(101)) }));
        far.write_all(b"asks\n").await.unwrap();
        assert_eq!(served.await.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
