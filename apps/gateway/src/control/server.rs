//! The gateway's side of its control socket. It runs on the thread that waits for signals, so a request delays no flow.
//!
//! Bounds: [`CLIENTS_MAX`] clients, further ones wait; lines of [`LINE_MAX`] bytes; a client that is silent for [`IDLE`] is disconnected.
//! Tests: `tests/gateway/control.rs`; below.

use std::io;
use std::os::unix::net::UnixListener as StdListener;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::{FLOWS_MAX, LINE_MAX, Request, RuleText};
use crate::engine::Shared;
use crate::engine::forwards::By;
use crate::engine::inward::Publish;
use crate::policy::{Rule, rule};

/// Clients at a time.
const CLIENTS_MAX: usize = 16;
/// For a client to say something.
const IDLE: Duration = Duration::from_secs(300);
/// Between two tries to accept when there are no descriptors for it.
const RETRY: Duration = Duration::from_millis(50);

/// Serves a socket, on the runtime of the caller.
///
/// # Errors
/// The system's.
pub fn start(listener: StdListener, shared: &Arc<Shared>) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let (listener, shared) = (UnixListener::from_std(listener)?, Arc::clone(shared));
    tokio::spawn(async move {
        let places = Arc::new(Semaphore::new(CLIENTS_MAX));
        // The semaphore is never closed.
        while let Ok(place) = Arc::clone(&places).acquire_owned().await {
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(RETRY).await;
                continue;
            };
            let shared = Arc::clone(&shared);
            tokio::spawn(async move {
                // Its end, by error or not, is the end of the client.
                let _ = timeout(IDLE, serve(stream, &shared)).await;
                drop(place);
            });
        }
    });
    Ok(())
}

async fn serve(mut stream: UnixStream, shared: &Shared) -> io::Result<()> {
    let (read, mut write) = stream.split();
    let mut read = BufReader::new(read);
    loop {
        let mut line = String::new();
        let len = (&mut read).take(LINE_MAX as u64).read_line(&mut line).await?;
        if len == 0 {
            return Ok(());
        }
        let answer = answer(&line, shared).await.unwrap_or_else(|error| json!({ "error": error }));
        write.write_all(format!("{answer}\n").as_bytes()).await?;
        if !line.ends_with('\n') {
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
