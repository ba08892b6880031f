//! `gateway ctl`: one request, one answer.
//!
//! Tests: `tests/gateway/control.rs`.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::Duration;

use super::{CtlArgs, LINE_MAX, Request};

/// For the gateway to answer.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Asks, and prints the answer. The exit code is 1 if it is an error. **Blocks** until it is there, 30 s at most.
///
/// # Errors
/// Nobody listens at the socket; the system's.
pub fn run(args: &CtlArgs) -> io::Result<ExitCode> {
    // Of no kind: a broken pipe would be taken for a reader of the output that has seen enough.
    let said = |error: io::Error| io::Error::other(format!("{}: {error}", args.socket.display()));
    let mut stream = UnixStream::connect(&args.socket).map_err(said)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let request = serde_json::to_string(&Request::from(&args.what))?;
    // A gateway that refuses this client says so and hangs up.
    let sent = stream.write_all(format!("{request}\n").as_bytes());
    let mut answer = String::new();
    BufReader::new(stream).take(LINE_MAX as u64).read_line(&mut answer).map_err(said)?;
    if answer.is_empty() {
        sent.map_err(said)?;
    }
    let value: serde_json::Value = serde_json::from_str(&answer)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "the gateway's answer is no JSON"))?;
    if let Some(error) = value.get("error").and_then(serde_json::Value::as_str) {
        return Err(io::Error::other(error.to_owned()));
    }
    writeln!(io::stdout(), "{}", answer.trim_end())?;
    Ok(ExitCode::SUCCESS)
}
