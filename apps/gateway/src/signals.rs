//! Signals to the gateway.
//!
//! | signal | with a command | without |
//! |---|---|---|
//! | TERM, HUP | goes to the command | ends the gateway |
//! | INT, QUIT | goes to the command, unless a terminal may have sent it, which sends it to the command, too | INT ends the gateway |
//! | USR1, USR2 | goes to the command | |
//! | XFSZ | nothing: a write to a file that may not grow fails, which is said where it is written | the same |
//!
//! A terminal sends to its foreground process group, so another one than the gateway's tells that it was somebody else. A command that has left the gateway's group gets nothing from it. A signal that is ignored when the gateway starts, as `nohup` and shells
//! with background jobs have it, stays ignored: its command ignores it, too.
//!
//! Tests: below; `tests/gateway/signals.rs`.

use std::fs::{self, OpenOptions};
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::task::Poll;

use rustix::process::{Pid, Signal, getpgid, getpgrp};
use rustix::termios::tcgetpgrp;
use tokio::signal::unix::{self, SignalKind, signal};

/// Those that end a gateway without a command.
const ENDING: [Signal; 3] = [Signal::INT, Signal::TERM, Signal::HUP];
/// Those that a command gets besides.
const PASSED_ON: [Signal; 3] = [Signal::QUIT, Signal::USR1, Signal::USR2];

/// What is known of signals at the start, before the gateway gives up its files.
pub struct Surroundings {
    /// A bit for each signal, from 1 on, that is ignored.
    ignored: u64,
    terminal: Option<Terminal>,
}

/// The controlling terminal.
struct Terminal {
    file: OwnedFd,
    /// Our process group.
    own: Pid,
}

impl Surroundings {
    /// Those of this process. It ignores nothing where the system does not tell, and has no terminal where that cannot be opened. Without a command, it opens none.
    pub fn look(has_command: bool) -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mut options = OpenOptions::new();
        // Only its foreground group is asked for.
        options.write(true).custom_flags(libc::O_NOCTTY);
        let terminal = has_command.then(|| options.open("/dev/tty").ok()).flatten();
        let terminal = terminal.map(|file| Terminal { file: file.into(), own: getpgrp() });
        Self { ignored: ignored(&status), terminal }
    }

    /// Takes signals from now on, in the runtime of this task: with a command those that it gets.
    ///
    /// # Errors
    /// The system's.
    pub fn listen(self, has_command: bool) -> io::Result<Signals> {
        let passed_on = PASSED_ON.iter().filter(|_| has_command);
        let heard = ENDING.iter().chain(passed_on).filter(|signal| !self.is_ignored(**signal));
        let listen = |which: Signal| signal(SignalKind::from_raw(which.as_raw()));
        let heard = heard.map(|which| Ok((*which, listen(*which)?))).collect::<io::Result<_>>()?;
        Ok(Signals { heard, _file_limit: listen(Signal::XFSZ)?, terminal: self.terminal })
    }

    fn is_ignored(&self, signal: Signal) -> bool {
        self.ignored >> (signal.as_raw() - 1) & 1 == 1
    }
}

/// The ignored signals in the text of a `/proc/PID/status`.
fn ignored(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or_default()
}

/// Signals that are heard.
pub struct Signals {
    heard: Vec<(Signal, unix::Signal)>,
    _file_limit: unix::Signal,
    terminal: Option<Terminal>,
}

impl Signals {
    /// The next one.
    pub async fn next(&mut self) -> Signal {
        poll_fn(|task| {
            let mut heard = self.heard.iter_mut();
            let came = heard.find_map(|(which, signal)| signal.poll_recv(task).is_ready().then_some(*which));
            came.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// The next one that is to end something.
    pub async fn end(&mut self) {
        while [Signal::USR1, Signal::USR2].contains(&self.next().await) {}
    }

    /// Whether the command has not got this signal, which we have.
    pub fn is_ours_alone(&self, signal: Signal, command: Option<Pid>) -> bool {
        let by_terminal = [Signal::INT, Signal::QUIT].contains(&signal);
        let are_in_front = |it: &Terminal| {
            tcgetpgrp(&it.file).is_ok_and(|front| front == it.own)
                && command.is_some_and(|command| getpgid(Some(command)).is_ok_and(|group| group == it.own))
        };
        !(by_terminal && self.terminal.as_ref().is_some_and(are_in_front))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read() {
        let status = "SigBlk:\t0000000000000000\nSigIgn:\t0000000000001003\nSigCgt:\t0000000000004000\n";
        let around = Surroundings { ignored: ignored(status), terminal: None };
        let ignored = [Signal::HUP, Signal::INT, Signal::QUIT, Signal::PIPE, Signal::TERM];
        assert_eq!(ignored.map(|signal| around.is_ignored(signal)), [true, true, false, true, false]);
        assert_eq!(super::ignored(""), 0);
    }
}
