//! slirp4netns' API socket: `add_hostfwd`, `list_hostfwd` and `remove_hostfwd` as JSON. RootlessKit and Podman publish ports with it.
//!
//! Each client sends one request, gets one answer, and is disconnected. The server runs on the thread that waits for signals. Bounds: clients as in `sockets.rs`, which also says whose requests are heard; a request of
//! [`REQUEST_MAX`] bytes, within [`PATIENCE`]; published ports as in `engine/forwards.rs`. Tests: below; `tests/names`.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::engine::Shared;
use crate::engine::forwards::By;
use crate::engine::inward::Publish;
use crate::plan::Plan;
use crate::sockets::serve_clients;

/// Bytes of a request, at most.
const REQUEST_MAX: usize = 8192;
/// For a client's request and its answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a client sends.
#[derive(Deserialize, Debug)]
struct Request {
    execute: String,
    #[serde(default)]
    arguments: Arguments,
}

/// Arguments of every request.
#[derive(Deserialize, Default, Debug)]
#[serde(default)]
struct Arguments {
    proto: String,
    host_addr: String,
    host_port: u16,
    guest_addr: String,
    guest_port: u16,
    id: Option<u64>,
}

/// Serves a socket, on the runtime of the caller.
///
/// # Errors
/// The system's.
pub fn start(listener: UnixListener, shared: &Arc<Shared>) -> io::Result<()> {
    let api = Arc::new(Api { shared: Arc::clone(shared), added: Mutex::default() });
    serve_clients(listener, refused, move |client| {
        let api = Arc::clone(&api);
        async move {
            // Its end, by error or not, is the end of the client.
            let _ = timeout(PATIENCE, serve(client, &api)).await;
        }
    })
}

fn refused(why: &str) -> Value {
    json!({ "error": { "desc": why } })
}

struct Api {
    shared: Arc<Shared>,
    /// What clients have added, by the number of the forward. A leaf.
    added: Mutex<BTreeMap<u64, Value>>,
}

async fn serve(mut stream: UnixStream, api: &Api) -> io::Result<()> {
    let mut bytes = Vec::new();
    // Clients end their request by an end, or by its last brace.
    let request = loop {
        let left = REQUEST_MAX.saturating_sub(bytes.len());
        let read = (&mut stream).take(left as u64).read_buf(&mut bytes).await?;
        let whole = serde_json::from_slice::<Request>(&bytes);
        if read == 0 || whole.is_ok() {
            break whole;
        }
    };
    let answer = match request {
        Ok(request) => api.answer(request).await,
        Err(error) => Err(format!("bad request: {error}")),
    };
    let answer = answer.map_or_else(|desc| refused(&desc), |value| json!({ "return": value }));
    stream.write_all(answer.to_string().as_bytes()).await
}

impl Api {
    async fn answer(&self, request: Request) -> Result<Value, String> {
        let arguments = request.arguments;
        match request.execute.as_str() {
            "add_hostfwd" => {
                let (publish, entry) = forward(&self.shared.plan, &arguments)
                    .map_err(|error| format!("bad request: add_hostfwd: {error}"))?;
                let added = self.shared.forwards.add(publish, By::Ctl).await;
                let id = added.map_err(|error| format!("bad request: add_hostfwd: {error}"))?;
                self.added().insert(id, entry);
                Ok(json!({ "id": id }))
            }
            "list_hostfwd" => {
                let entries: Vec<Value> =
                    self.added().iter().map(|(id, entry)| with_id(*id, entry)).collect();
                Ok(json!({ "entries": entries }))
            }
            "remove_hostfwd" => {
                let id = arguments.id.ok_or("bad request: remove_hostfwd: no arguments.id")?;
                if self.added().remove(&id).is_none() || !self.shared.forwards.remove(id) {
                    return Err("bad request: remove_hostfwd: bad arguments.id".to_owned());
                }
                Ok(json!({}))
            }
            other => Err(format!("bad request: unknown execute: {other}")),
        }
    }

    fn added(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, Value>> {
        self.added.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn with_id(id: u64, entry: &Value) -> Value {
    let mut entry = entry.clone();
    entry["id"] = id.into();
    entry
}

/// The forward that a client wants, and how it is listed.
fn forward(plan: &Plan, arguments: &Arguments) -> Result<(Publish, Value), String> {
    let Arguments { host_port, guest_port, .. } = *arguments;
    let protocol = match arguments.proto.as_str() {
        "tcp" | "tcp4" | "tcp6" => "tcp",
        "udp" | "udp4" | "udp6" => "udp",
        _ => return Err("bad arguments.proto".to_owned()),
    };
    let host_addr = if arguments.host_addr.is_empty() { "0.0.0.0" } else { &arguments.host_addr };
    let host: IpAddr = host_addr.parse().map_err(|_| "bad arguments.host_addr")?;
    let guest = match arguments.guest_addr.as_str() {
        "" => plan.inside[usize::from(host.is_ipv6())],
        text => text.parse().map_err(|_| "bad arguments.guest_addr")?,
    };
    if !plan.inside.contains(&guest) {
        return Err(format!("bad arguments.guest_addr: it can be {} only", plan.inside[0]));
    }
    let host_text = if host.is_ipv6() { format!("[{host}]") } else { host.to_string() };
    let publish = format!("{host_text}:{host_port}:{guest_port}/{protocol}").parse::<Publish>()?;
    let entry = json!({
        "proto": protocol, "host_addr": host, "host_port": host_port, "guest_addr": guest, "guest_port": guest_port,
    });
    Ok((publish, entry))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(Publish, Value), String> {
        let request: Request = serde_json::from_str(text).map_err(|error| error.to_string())?;
        forward(&Plan::default(), &request.arguments)
    }

    #[test]
    fn the_requests_of_callers_are_read_and_wrong_ones_say_what_is_wrong() {
        let (publish, entry) = read(
            r#"{"execute":"add_hostfwd","arguments":{"proto":"tcp","host_addr":"127.0.0.1","host_port":8080,"guest_addr":"10.0.2.100","guest_port":80}}"#,
        )
        .unwrap();
        assert_eq!(Ok(publish), "127.0.0.1:8080:80".parse());
        assert_eq!(with_id(7, &entry)["id"], 7);
        let (publish, entry) =
            read(r#"{"execute":"add_hostfwd","arguments":{"proto":"udp","host_port":53,"guest_port":53}}"#)
                .unwrap();
        assert_eq!(Ok(publish), "0.0.0.0:53:53/udp".parse());
        assert_eq!((&entry["host_addr"], &entry["guest_addr"]), (&"0.0.0.0".into(), &"10.0.2.100".into()));
        for (wrong, expected) in [
            (r#"{"execute":"add_hostfwd","arguments":{"proto":"sctp"}}"#, "arguments.proto"),
            (
                r#"{"execute":"add_hostfwd","arguments":{"proto":"tcp","host_addr":"x"}}"#,
                "arguments.host_addr",
            ),
            (
                r#"{"execute":"add_hostfwd","arguments":{"proto":"tcp","guest_addr":"10.0.2.7"}}"#,
                "10.0.2.100 only",
            ),
            (r#"{"execute":"add_hostfwd","arguments":{"proto":"tcp","host_port":70000}}"#, "u16"),
            (r#"{"arguments":{}}"#, "execute"),
        ] {
            let error = read(wrong).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
