//! What can be asked and changed while the gateway runs, and its limits.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{
    Gateway, HOST, accept_all, echo_server, eventually, free_port, gateway_program, inside_command,
    temporary, unavailable,
};

/// What the gateway at `socket` answers.
pub fn ctl(socket: &Path, words: &[&str]) -> Result<Value, String> {
    let ran = Command::new(gateway_program()).arg("ctl").arg(socket).args(words).output().unwrap();
    if ran.status.success() {
        Ok(serde_json::from_slice(&ran.stdout).unwrap())
    } else {
        Err(String::from_utf8_lossy(&ran.stderr).into_owned())
    }
}

fn greeting(port: u16) -> Option<String> {
    let mut text = String::new();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.read_to_string(&mut text).ok()?;
    (!text.is_empty()).then_some(text)
}

#[test]
fn ports_appear_as_they_listen_inside_and_are_opened_and_closed_by_request() {
    if unavailable() {
        return;
    }
    let (socket, inside, other) = (temporary("ctl"), free_port(), free_port());
    let options = ["--ctl", socket.to_str().unwrap(), "-p", "127.0.0.1:auto"];
    let mut gateway = Gateway::start(&options, &inside_command(&format!("greet {inside}")));
    eventually("the port inside appears outside", || greeting(inside).is_some());
    let list = ctl(&socket, &["list"]).unwrap();
    assert_eq!((&list["forwards"][0]["by"], list["forwards"][1].is_null()), (&"auto".into(), true), "{list}");

    let added = ctl(&socket, &["add", &format!("127.0.0.1:{other}:{inside}")]).unwrap();
    assert_eq!(greeting(other).as_deref(), Some("10.0.2.2"));
    let list = ctl(&socket, &["list"]).unwrap();
    assert_eq!(list["forwards"][1]["publish"], format!("127.0.0.1:{other}:{inside}"));
    let again = ctl(&socket, &["add", &format!("127.0.0.1:{other}:{inside}")]).unwrap_err();
    assert!(again.contains("cannot listen"), "{again}");
    let number = added["forward"].to_string();
    ctl(&socket, &["remove", &number]).unwrap();
    eventually("the port is closed", || TcpStream::connect(("127.0.0.1", other)).is_err());
    assert!(ctl(&socket, &["remove", &number]).unwrap_err().contains("no forward"));
    let stats = ctl(&socket, &["stats"]).unwrap();
    assert!(stats["begun"].as_u64() >= Some(2) && stats["bytes_out"].as_u64() >= Some(8), "{stats}");
    assert!((1..=4).contains(&stats["loops"].as_u64().unwrap()), "{stats}");
    gateway.terminate();
    gateway.wait();
    assert!(!socket.exists(), "the socket's file goes with its gateway");
}

#[test]
fn rules_are_replaced_and_flows_listed_while_it_runs() {
    if unavailable() {
        return;
    }
    let socket = temporary("rules-ctl");
    let (server, port) = accept_all(|mut stream| {
        // Until the client has gone.
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let options = ["--ctl", socket.to_str().unwrap(), "--allow", &format!("127.0.0.1:{port}")];
    let mut gateway = Gateway::start(&options, &inside_command(&format!("hold-until-refused {HOST}:{port}")));
    let flows = || ctl(&socket, &["flows"]).ok().filter(|it| !it["flows"][0].is_null());
    eventually("there is a flow", || flows().is_some());
    let flow = flows().unwrap()["flows"][0].clone();
    assert_eq!((&flow["protocol"], &flow["onward"]), (&"tcp".into(), &format!("127.0.0.1:{port}").into()));
    let rules = ctl(&socket, &["rules"]).unwrap();
    assert_eq!(rules["rules"][0]["allow"], format!("127.0.0.1:{port}"));
    let set = ctl(&socket, &["set-rules", "--deny", "127.0.0.0/8", "--allow", "*"]).unwrap();
    assert_eq!(set["rules"][1]["allow"], "*");
    // The program inside tries until it is refused, and has its first connection then.
    assert_eq!(gateway.wait(), Some(0));
    server.finish(1);
    assert!(ctl(&socket, &["stats"]).is_err(), "it has ended");
}

/// From inside, whose files are those of the host: asks for other rules, is refused, and says so by a file. Then waits until `to` is permitted.
pub fn orders(socket: &str, to: &str) {
    for request in [r#"{"do":"set-rules","rules":[{"allow":"127.0.0.0/8"}]}"#, r#"{"do":"rules"}"#] {
        let mut stream = UnixStream::connect(socket).unwrap();
        // The gateway may have hung up.
        let _ = stream.write_all(format!("{request}\n").as_bytes());
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).unwrap();
        assert!(answer.contains("another network namespace"), "{answer}");
    }
    let said = ctl(Path::new(socket), &["set-rules", "--allow", "127.0.0.0/8"]).unwrap_err();
    assert!(said.contains("another network namespace"), "{said}");
    assert!(TcpStream::connect(to).is_err());
    std::fs::write(format!("{socket}.refused"), "").unwrap();
    eventually("the outside permits it", || TcpStream::connect(to).is_ok());
}

#[test]
fn what_is_restricted_cannot_change_its_rules() {
    if unavailable() {
        return;
    }
    let socket = temporary("own-ctl");
    let path = socket.to_str().unwrap();
    let (_server, port) = accept_all(drop);
    let command = inside_command(&format!("orders {path} {HOST}:{port}"));
    let mut gateway = Gateway::start(&["--ctl", path, "--deny", "*"], &command);
    let refused = PathBuf::from(format!("{path}.refused"));
    eventually("the inside is refused", || refused.exists());
    std::fs::remove_file(&refused).unwrap();
    let rules = ctl(&socket, &["rules"]).unwrap();
    assert_eq!((&rules["rules"][0]["deny"], rules["rules"][1].is_null()), (&"*".into(), true), "{rules}");
    ctl(&socket, &["set-rules", "--allow", "127.0.0.0/8"]).unwrap();
    assert_eq!(gateway.wait(), Some(0));
}

#[test]
fn rates_hold_back_connections_and_bytes() {
    if unavailable() {
        return;
    }
    let (_server, port) = echo_server();
    let allow = ["--allow", "127.0.0.1"];
    let timed = |options: &[&str], what: String| {
        let start = Instant::now();
        Gateway::runs(&[&allow[..], options].concat(), &what);
        start.elapsed()
    };
    let connects = timed(&["--rate", "4"], format!("echoes {HOST}:{port} 8"));
    assert!(connects >= Duration::from_millis(900), "8 connections at 4 a second took {connects:?}");
    let bytes = timed(&["--rate-bytes", "1M"], format!("echo {HOST}:{port} 2000000"));
    assert!(bytes >= Duration::from_millis(800), "2 MB at 1 MiB a second took {bytes:?}");
    assert!(connects.max(bytes) < Duration::from_secs(30));
}

#[test]
fn packets_are_recorded() {
    if unavailable() {
        return;
    }
    let (_server, port) = echo_server();
    let file = temporary("packets.pcapng");
    Gateway::runs(
        &["--allow", "127.0.0.1", "--pcap", file.to_str().unwrap()],
        &format!("echo {HOST}:{port} 100000"),
    );
    let bytes = std::fs::read(&file).unwrap();
    assert_eq!(bytes[..4], [0x0a, 0x0d, 0x0d, 0x0a], "a section header block");
    assert!(bytes.len() > 200_000, "{} bytes: both ways", bytes.len());
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn a_file_where_the_control_socket_should_be_is_left_alone() {
    let path = temporary("not-a-socket");
    std::fs::write(&path, "precious").unwrap();
    let said = Gateway::start(&["--ctl", path.to_str().unwrap(), "--", "true"], &[]).output();
    assert!(said.contains("no socket"), "{said}");
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    std::fs::remove_file(&path).unwrap();
}
