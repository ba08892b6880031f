//! A process that is run to its end, or to a limit.
//!
//! Nothing is polled while it runs, since that would disturb the measurement: two threads sleep in reads of its output and the
//! caller sleeps until both are done.
//!
//! Invariant: the process has ended when [`run`] returns, however it returns.
//!
//! Tests: below.

use std::io::{self, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// The result of a process.
#[derive(Debug)]
pub struct Ended {
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl Ended {
    /// The error: its last line with an error, or its exit status.
    pub fn complaint(&self) -> String {
        let message = self.stderr.lines().rev().find_map(|line| line.strip_prefix("error: "));
        message.map_or_else(|| format!("it ended with {}", self.status), str::to_owned)
    }
}

/// Runs `command` with no input. Blocks for at most `limit`.
///
/// # Errors
/// It cannot be started; or `TimedOut`, and then it has been killed.
pub fn run(command: &mut Command, limit: Duration) -> io::Result<Ended> {
    let deadline = Instant::now() + limit;
    let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (sender, outputs) = mpsc::channel();
    read_in_thread(0, process.stdout.take(), sender.clone());
    read_in_thread(1, process.stderr.take(), sender);
    let mut texts = [String::new(), String::new()];
    for _ in 0..texts.len() {
        match outputs.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok((index, text)) => texts[index] = text,
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => return Err(killed(&mut process)),
        }
    }
    let [stdout, stderr] = texts;
    Ok(Ended { status: wait_until(&mut process, deadline)?, stdout, stderr })
}

/// Waits for a process that has closed its output, and so is about to end.
fn wait_until(process: &mut Child, deadline: Instant) -> io::Result<ExitStatus> {
    loop {
        if let Some(status) = process.try_wait()? {
            return Ok(status);
        }
        if Instant::now() >= deadline {
            return Err(killed(process));
        }
        thread::sleep(POLL);
    }
}

/// Ends a process whose time is over.
fn killed(process: &mut Child) -> io::Error {
    // Both can only fail because it has just ended.
    let _ = process.kill();
    let _ = process.wait();
    io::Error::new(io::ErrorKind::TimedOut, "it did not end in time and was killed")
}

const POLL: Duration = Duration::from_millis(2);

/// Sends all of `from` when it has ended.
fn read_in_thread(index: usize, from: Option<impl Read + Send + 'static>, to: mpsc::Sender<(usize, String)>) {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // The output ends with the bytes read before an error.
        let _ = from.map(|mut from| from.read_to_end(&mut bytes));
        // The receiver is dropped if the limit is over.
        let _ = to.send((index, String::from_utf8_lossy(&bytes).into_owned()));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn both_outputs_and_the_status_are_returned() {
        let ended = run(&mut sh("echo out; echo err >&2; exit 3"), LONG).unwrap();
        assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("out\n", "err\n"));
        assert_eq!(ended.status.code(), Some(3));
    }

    #[test]
    fn the_message_is_the_last_error_or_the_status() {
        let ended = |script: &str| run(&mut sh(script), LONG).unwrap();
        assert_eq!(ended("echo 'error: a' >&2; echo 'error: b' >&2; echo more >&2; exit 1").complaint(), "b");
        assert!(ended("exit 7").complaint().contains('7'));
    }

    #[test]
    fn more_output_than_a_pipe_holds_does_not_block() {
        let ended = run(&mut sh("head -c 300000 /dev/zero; head -c 300000 /dev/zero >&2"), LONG).unwrap();
        assert_eq!((ended.stdout.len(), ended.stderr.len()), (300_000, 300_000));
    }

    #[test]
    fn a_process_that_does_not_end_is_killed_at_the_limit() {
        for script in ["exec sleep 600", "exec sleep 600 >&- 2>&-"] {
            let error = run(&mut sh(script), Duration::from_millis(50)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{script}");
        }
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error() {
        let error = run(&mut Command::new("/nonexistent/program"), LONG).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
