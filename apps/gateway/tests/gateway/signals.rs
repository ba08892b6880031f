//! Signals that somebody sends to the gateway alone.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::common::{eventually, gateway_program, unavailable};

/// A shell with usual dispositions, also where this test was started with some ignored (`nohup`, a job in the background).
fn shell() -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP,INT,QUIT,TERM", "sh"]);
    command
}

/// Runs the gateway by a shell that begins with `before`. The command inside runs `traps`, says that it runs, and waits.
fn start(before: &str, traps: &str) -> Child {
    let inner = format!("sleep 60 >/dev/null 2>&1 & {traps}; echo runs; wait; kill $!");
    let outer = format!(r#"{before} exec "$1" -- sh -c "$2""#);
    let program = gateway_program();
    let mut command = shell();
    command.args(["-c", &outer, "sh", program.to_str().unwrap(), &inner]);
    // In a group of its own, so a terminal of this test's is none that it is in front of.
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "runs\n");
    child
}

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

fn code(mut child: Child) -> Option<i32> {
    let _ = child.stdout.take().unwrap().read_to_end(&mut Vec::new());
    child.wait().unwrap().code()
}

#[test]
fn a_command_gets_the_signals_that_are_sent_to_the_gateway() {
    if unavailable() {
        return;
    }
    for signal in [Signal::INT, Signal::QUIT, Signal::TERM, Signal::HUP, Signal::USR1, Signal::USR2] {
        let number = signal.as_raw();
        let child = start("", &format!("trap 'kill $!; exit {}' {number}", 40 + number));
        send(&child, signal);
        assert_eq!(code(child), Some(40 + number), "{signal:?}");
    }
}

#[test]
fn an_interrupt_of_the_terminal_reaches_a_command_in_a_session_of_its_own() {
    if unavailable() {
        return;
    }
    let Ok(found) = Command::new("script").arg("--version").output() else {
        return eprintln!("skipped: there is no script(1)");
    };
    assert!(found.status.success());
    let inner = "trap 'exit 42' INT; echo runs; for _ in \\$(seq 200); do sleep 0.1; done";
    // A shell that stays between would get the interrupt, too, and end by it. Which shell script(1) takes depends on the environment.
    let outer = format!("exec {} -- setsid sh -c \"{inner}\"", gateway_program().to_str().unwrap());
    let mut command = shell();
    command.args(["-c", r#"exec script -qec "$1" /dev/null"#, "sh", &outer]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line.trim(), "runs");
    let mut keys = child.stdin.take().unwrap();
    keys.write_all(b"\x03").unwrap();
    assert_eq!(code(child), Some(42));
}

#[test]
fn a_signal_that_is_ignored_at_the_start_stays_ignored() {
    if unavailable() {
        return;
    }
    let child = start("trap '' HUP INT;", "trap 'kill $!; exit 41' TERM");
    send(&child, Signal::HUP);
    send(&child, Signal::INT);
    send(&child, Signal::TERM);
    assert_eq!(code(child), Some(41));

    // Without a command they would end it.
    let mut inside = Command::new("unshare").args(["-Urn", "sleep", "60"]).spawn().unwrap();
    let pid = inside.id();
    let network = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net")).unwrap();
    eventually("a namespace", || network(&pid.to_string()) != network("self"));
    let line = format!(r#"trap '' HUP; exec "$1" --netns {pid} --ready-fd 1"#);
    let mut command = shell();
    command.args(["-c", &line, "sh", gateway_program().to_str().unwrap()]);
    let mut child = command.process_group(0).stdout(Stdio::piped()).spawn().unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    send(&child, Signal::HUP);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(child.try_wait().unwrap(), None, "it goes on");
    send(&child, Signal::INT);
    assert_eq!(code(child), Some(0));
    inside.kill().unwrap();
    inside.wait().unwrap();
}
