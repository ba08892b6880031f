//! The program, with programs inside it.
//!
//! A program inside is this test program once more: the test [`inside`] runs what the environment says. Where user namespaces or `/dev/net/tun` are not to be had,
//! each test says so and passes; in continuous integration (`CI=true`) that is a failure.

mod common;
#[path = "gateway/control.rs"]
mod control;
#[path = "gateway/datagrams.rs"]
mod datagrams;
#[path = "gateway/endings.rs"]
mod endings;
#[path = "gateway/ends.rs"]
mod ends;
#[path = "gateway/floods.rs"]
mod floods;
#[path = "gateway/flows.rs"]
mod flows;
#[path = "gateway/names.rs"]
mod names;
#[path = "gateway/sandbox.rs"]
mod sandbox;
#[path = "gateway/signals.rs"]
mod signals;
#[path = "gateway/truth.rs"]
mod truth;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::thread;
use std::time::Duration;

use common::{Gateway, HOST, accept_all, echo_server, inside_command, pattern, proxy, resolver, unavailable};
use socket2::SockRef;
use sockeye_drivers::testing::skip;

/// What runs inside. Not a test of its own: it does nothing without the environment's say.
#[test]
fn inside() {
    let Ok(what) = std::env::var("GATEWAY_TEST_INSIDE") else { return };
    let words: Vec<&str> = what.split(' ').collect();
    match words[..] {
        ["echo", to, bytes] => echo(to, bytes.parse().unwrap()),
        ["connect-fails", to, kind] => {
            let error = TcpStream::connect(to).unwrap_err();
            assert_eq!(format!("{:?}", error.kind()), kind);
        }
        ["is-reset", to] => {
            let mut stream = TcpStream::connect(to).unwrap();
            stream.write_all(b"reset me").unwrap();
            let error = stream.read_to_end(&mut Vec::new()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        }
        ["is-reset-behind", to, count] => (0..count.parse().unwrap()).for_each(|_| {
            let (mut stream, mut bytes) = (TcpStream::connect(to).unwrap(), Vec::new());
            stream.write_all(b"?").unwrap();
            let error = stream.read_to_end(&mut bytes).unwrap_err();
            assert_eq!((bytes.as_slice(), error.kind()), (&b"last words"[..], ErrorKind::ConnectionReset));
        }),
        ["is-reset-at-once", to, count] => {
            let connected = (0..count.parse().unwrap()).filter(|_| reset_at_once(to)).count();
            assert!(connected > 0, "no connection was made");
        }
        ["resets", to] => {
            let mut stream = TcpStream::connect(to).unwrap();
            stream.read_exact(&mut [0; 2]).unwrap();
            SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
        }
        ["datagrams", to, nobody] => datagrams(to, nobody),
        ["many", to, count] => many(to, count.parse().unwrap()),
        ["echoes", to, count] => (0..count.parse().unwrap()).for_each(|_| echo(to, 100)),
        ["greet", port] => greet(port.parse().unwrap()),
        ["hold-until-refused", to] => hold_until_refused(to),
        ["orders", socket, to] => control::orders(socket, to),
        ["fails-within", to, seconds, kind] => truth::fails_within(to, seconds.parse().unwrap(), kind),
        ["urgent", to] => truth::urgent(to),
        ["write-until-stopped", to] => truth::write_until_stopped(to),
        ["floods", echo, endless, silent, least] => {
            floods::run(echo, endless, silent.parse().unwrap(), least.parse().unwrap());
        }
        ["outsiders", port, to] => floods::connects_beside_outsiders(port.parse().unwrap(), to),
        ["in-fragments", to] => datagrams::in_fragments(to),
        ["return-all", port] => datagrams::return_all(port.parse().unwrap()),
        ["leave-behind", to] => endings::leave_behind(to),
        ["leave-a-datagram", to] => endings::leave_a_datagram(to),
        ["ends", to] => ends::run(to),
        ["flows", to, count] => flows::run(to, count.parse().unwrap()),
        ["listen", port] => listen(port.parse().unwrap()),
        ["exit", code] => std::process::exit(code.parse().unwrap()),
        _ => panic!("{what} is nothing that this program does"),
    }
}

/// Sends so many bytes, and the end; everything comes back, and then the end.
fn echo(to: &str, bytes: usize) {
    let stream = TcpStream::connect(to).unwrap();
    let sent = pattern(bytes);
    thread::scope(|scope| {
        scope.spawn(|| {
            (&stream).write_all(&sent).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
        });
        let mut received = Vec::new();
        (&stream).read_to_end(&mut received).unwrap();
        assert!(received == sent, "{} bytes of {bytes} came back, or others", received.len());
    });
}

/// A connection is made, what the server sends is there, and then the reset. False if that was there before this thread ran again, which `connect` then tells: as
/// without a gateway.
fn reset_at_once(to: &str) -> bool {
    let mut stream = match TcpStream::connect(to) {
        Err(error) if error.kind() == ErrorKind::ConnectionReset => return false,
        connected => connected.unwrap(),
    };
    let mut bytes = Vec::new();
    let error = stream.read_to_end(&mut bytes).unwrap_err();
    assert_eq!((bytes.as_slice(), error.kind()), (&b"last words"[..], ErrorKind::ConnectionReset));
    true
}

fn datagrams(to: &str, nobody: &str) {
    let to: SocketAddr = to.parse().unwrap();
    let socket = UdpSocket::bind((if to.is_ipv4() { "0.0.0.0" } else { "::" }, 0)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    socket.connect(to).unwrap();
    let mut bytes = [0; 65_000];
    for len in [1, 1472, 9000, 40_000] {
        let sent = pattern(len);
        socket.send(&sent).unwrap();
        let got = socket.recv(&mut bytes).unwrap();
        assert!(bytes[..got] == sent, "{got} bytes of {len} came back, or others");
    }
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    socket.connect(nobody).unwrap();
    socket.send(b"?").unwrap();
    assert_eq!(socket.recv(&mut bytes).unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

fn many(to: &str, count: usize) {
    thread::scope(|scope| {
        for worker in 0..8 {
            scope.spawn(move || {
                for turn in 0..count / 8 {
                    echo(to, (worker * 7919 + turn * 104_729) % 40_000 + 1);
                }
            });
        }
    });
}

/// Answers one connection and one datagram with the address of the client.
fn listen(port: u16) {
    let listener = TcpListener::bind(("0.0.0.0", port)).unwrap();
    let socket = UdpSocket::bind(("0.0.0.0", port)).unwrap();
    let (mut stream, from) = listener.accept().unwrap();
    stream.write_all(from.ip().to_string().as_bytes()).unwrap();
    drop(stream);
    let mut bytes = [0; 100];
    let (len, from) = socket.recv_from(&mut bytes).unwrap();
    socket.send_to(&bytes[..len], from).unwrap();
}

/// Says the client's address to each that comes.
fn greet(port: u16) {
    let listener = TcpListener::bind(("0.0.0.0", port)).unwrap();
    for mut stream in listener.incoming().flatten() {
        let from = stream.peer_addr().unwrap().ip().to_string();
        // It fails if the client does not want to hear it.
        let _ = stream.write_all(from.as_bytes());
    }
}

/// Holds a connection until another one is refused, 30 s at most.
fn hold_until_refused(to: &str) {
    let _held = TcpStream::connect(to).unwrap();
    for _ in 0..300 {
        thread::sleep(Duration::from_millis(100));
        if TcpStream::connect(to).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused) {
            return;
        }
    }
    panic!("nothing is refused");
}

#[test]
fn bytes_and_ends_pass_both_ways_and_refusals_are_refusals() {
    if unavailable() {
        return;
    }
    let (server, port) = echo_server();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let log = common::temporary("flows.jsonl");
    let rules = [
        "--allow",
        &format!("127.0.0.1:{port}"),
        "--allow",
        &format!("127.0.0.1:{free}"),
        "--log",
        log.to_str().unwrap(),
    ];
    Gateway::runs(&rules, &format!("echo {HOST}:{port} 3000000"));
    Gateway::runs(&rules, &format!("connect-fails {HOST}:{free} ConnectionRefused"));
    Gateway::runs(&[], &format!("connect-fails {HOST}:{port} ConnectionRefused"));
    Gateway::runs(&rules, &format!("many {HOST}:{port} 400"));
    assert_eq!(server.count(), 401, "the one that no rule permits did not get there");

    let log = std::fs::read_to_string(&log).unwrap();
    let lines: Vec<serde_json::Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 402, "{log}");
    assert_eq!((&lines[0]["bytes_out"], &lines[0]["bytes_in"]), (&3_000_000.into(), &3_000_000.into()));
    assert_eq!(lines[1]["end"], "connection refused");
}

#[test]
fn on_an_ethernet_device_it_is_the_same() {
    if unavailable() {
        return;
    }
    let (server, port) = echo_server();
    let options = ["--tap", "--network", "192.168.77.0/24", "--allow", "127.0.0.1"];
    Gateway::runs(&options, &format!("echo 192.168.77.2:{port} 3000000"));
    Gateway::runs(&options, "connect-fails 192.168.77.2:9 ConnectionRefused");
    server.finish(1);
}

#[test]
fn a_reset_on_one_side_is_one_on_the_other() {
    if unavailable() {
        return;
    }
    let (_server, port) = accept_all(|mut stream| {
        stream.read_exact(&mut [0; 8]).unwrap();
        SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    });
    Gateway::runs(&["--allow", "127.0.0.1"], &format!("is-reset {HOST}:{port}"));
    let (_server, port) = accept_all(|mut stream| {
        stream.read_exact(&mut [0]).unwrap();
        stream.write_all(b"last words").unwrap();
        SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    });
    Gateway::runs(&["--allow", "127.0.0.1"], &format!("is-reset-behind {HOST}:{port} 100"));
    let (server, port) = accept_all(|mut stream| {
        stream.write_all(b"go").unwrap();
        let error = stream.read_to_end(&mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    });
    Gateway::runs(&["--allow", "127.0.0.1"], &format!("resets {HOST}:{port}"));
    server.finish(1);
}

#[test]
fn a_server_that_resets_at_once_has_accepted_and_its_words_arrive() {
    if unavailable() {
        return;
    }
    // Without a thread for each connection, so the reset is there before the gateway's connect is looked at.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            stream.write_all(b"last words").unwrap();
            SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
        }
    });
    Gateway::runs(&["--allow", "127.0.0.1"], &format!("is-reset-at-once {HOST}:{port} 200"));
}

#[test]
fn datagrams_of_all_sizes_pass_and_an_unreachable_port_is_told() {
    if unavailable() {
        return;
    }
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    thread::spawn(move || {
        let mut bytes = [0; 65_000];
        while let Ok((len, from)) = socket.recv_from(&mut bytes) {
            let _ = socket.send_to(&bytes[..len], from);
        }
    });
    let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    Gateway::runs(&["--allow", "127.0.0.1"], &format!("datagrams {HOST}:{port} {HOST}:{free}"));
}

#[test]
fn names_are_forwarded_and_a_rule_with_a_name_permits_its_address() {
    if unavailable() {
        return;
    }
    let (_server, port) = accept_all(|mut stream| drop(stream.write_all(b"go")));
    let dns = resolver(&[("far.test", HOST), ("other.test", HOST), ("away.test", "192.0.2.1")]);
    let dns = ["--dns", &format!("127.0.0.1:{dns}")];
    // A name cannot name the host itself; an address can.
    let [option, value] = dns;
    Gateway::runs(
        &[option, value, "--allow", "far.test"],
        &format!("connect-fails far.test:{port} ConnectionRefused"),
    );
    Gateway::runs(&[option, value, "--allow", "127.0.0.1"], &format!("resets far.test:{port}"));
    Gateway::runs(&[option, value, "--allow", "far.test"], "connect-fails away.test:9 ConnectionRefused");
    Gateway::runs(&["--allow", "127.0.0.1"], &format!("resets host.internal:{port}"));
}

#[test]
fn a_published_port_leads_inside() {
    if unavailable() {
        return;
    }
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let ports = [format!("127.0.0.1:{free}:7000"), format!("127.0.0.1:{free}:7000/udp")];
    let mut gateway = Gateway::start(&["-p", &ports[0], "-p", &ports[1]], &inside_command("listen 7000"));
    let mut text = String::new();
    for _ in 0..200 {
        // Until it listens inside, connections are reset.
        text.clear();
        let read =
            TcpStream::connect(("127.0.0.1", free)).and_then(|mut stream| stream.read_to_string(&mut text));
        if read.is_ok() && !text.is_empty() {
            break;
        }
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(text, "10.0.2.2");
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    socket.send_to(b"datagram", ("127.0.0.1", free)).unwrap();
    let mut bytes = [0; 100];
    assert_eq!(socket.recv(&mut bytes).unwrap(), 8);
    assert_eq!(gateway.wait(), Some(0));
}

#[test]
fn a_published_port_is_one_of_ipv4_if_the_inside_has_no_other() {
    if unavailable() {
        return;
    }
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let ports = format!("{free}:7000");
    let mut gateway = Gateway::start(&["--ipv4-only", "-p", &ports], &inside_command("greet 7000"));
    common::eventually("the port leads inside", || {
        let read = TcpStream::connect(("127.0.0.1", free))
            .and_then(|mut stream| stream.read_to_string(&mut String::new()));
        read.is_ok_and(|len| len > 0)
    });
    assert!(TcpStream::connect(("::1", free)).is_err(), "it leads nowhere");
    gateway.terminate();
    gateway.wait();
    let said = Gateway::start(&["--ipv4-only", "-p", &format!("[::1]:{ports}"), "--", "true"], &[]).output();
    assert!(said.contains("no IPv6 inside"), "{said}");
}

#[test]
fn a_proxy_is_a_way_onward() {
    if unavailable() {
        return;
    }
    let (_server, port) = echo_server();
    for scheme in ["socks5", "http"] {
        let through = format!("{scheme}://127.0.0.1:{}", proxy(scheme, b""));
        let options = ["--allow", "127.0.0.1", "--upstream", &through];
        Gateway::runs(&options, &format!("echo {HOST}:{port} 100000"));
    }
}

#[test]
fn a_proxy_that_says_no_in_any_way_refuses_at_once() {
    if unavailable() {
        return;
    }
    for (scheme, no, kind) in [
        ("socks5", &b"\x05\x05\0\x01\0\0\0\0\0\0"[..], "ConnectionRefused"),
        ("socks5", b"\x05\x01\0\x01\0\0\0\0\0\0", "ConnectionRefused"),
        ("socks5", b"\x05\x04\0\x01\0\0\0\0\0\0", "HostUnreachable"),
        ("socks5", b"SSH-2.0-x\r\n", "ConnectionRefused"),
        ("socks5", b"", "ConnectionRefused"),
        ("http", b"HTTP/1.1 502 Bad Gateway\r\n\r\n", "ConnectionRefused"),
        ("http", b"HTTP/1.1 503 Service Unavailable\r\n\r\n", "ConnectionRefused"),
        ("http", b"HTTP/1.1 504 Gateway Timeout\r\n\r\n", "HostUnreachable"),
        ("http", b"", "ConnectionRefused"),
    ] {
        let through = format!("{scheme}://127.0.0.1:{}", proxy(scheme, no));
        let options = ["--allow", "127.0.0.1", "--upstream", &through];
        Gateway::runs(&options, &format!("fails-within {HOST}:9 9 {kind}"));
    }
}

#[test]
fn the_namespace_of_a_process_is_served_and_several_loops_share_the_work() {
    if unavailable() {
        return;
    }
    let (server, port) = echo_server();
    let allow = format!("127.0.0.1:{port}");
    // A process with namespaces of its own and no network, as a container's; `nsenter` runs this program beside it.
    let mut other = Command::new("unshare").args(["-Urn", "sleep", "60"]).spawn().unwrap();
    let pid = other.id().to_string();
    let network = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net")).unwrap();
    while network(&pid) == network("self") {
        thread::sleep(Duration::from_millis(5));
    }
    let own = Gateway::start(&["--netns", &std::process::id().to_string()], &[]).output();
    assert!(own.contains("is the network that this program is in"), "{own}");
    let mut gateway = Gateway::start(&["--netns", &pid, "--allow", &allow], &[]);
    let words = inside_command(&format!("echo {HOST}:{port} 100000"));
    let ran = (0..100).any(|_| {
        thread::sleep(Duration::from_millis(50));
        let entered = Command::new("nsenter")
            .args(["-t", &pid, "-U", "-n", "--preserve-credentials"])
            .args(&words)
            .output();
        entered.is_ok_and(|ran| ran.status.success())
    });
    assert!(ran, "the namespace was not served");
    if Command::new("ip").arg("-V").output().is_ok() {
        // Whoever has the namespace takes the device away: there is nothing to serve any more.
        let deleted = Command::new("nsenter")
            .args(["-t", &pid, "-U", "-n", "--preserve-credentials", "ip", "link", "delete", "tun0"])
            .status();
        assert!(deleted.unwrap().success());
        assert_eq!(gateway.wait(), Some(0));
    } else {
        skip("the device is deleted: there is no program `ip`");
        gateway.kill();
    }
    other.kill().unwrap();
    other.wait().unwrap();
    let refused = Gateway::start(&["--netns", "4000000000"], &[]).output();
    assert!(refused.contains("/proc/4000000000/ns/net"), "{refused}");
    let before = server.count();
    Gateway::runs(&["--loops", "2", "--allow", &allow], &format!("many {HOST}:{port} 160"));
    assert_eq!(server.count() - before, 160);
}

#[test]
fn the_exit_code_is_the_commands_and_mistakes_are_said() {
    if unavailable() {
        return;
    }
    assert_eq!(Gateway::start(&[], &inside_command("exit 37")).wait(), Some(37));
    // Nobody reads that it is ready.
    let (_, nowhere) = rustix::pipe::pipe().unwrap();
    let mut unheard = Command::new(common::gateway_program());
    unheard.args(["--ready-fd", "1", "--", "sh", "-c", "exit 37"]).stdout(nowhere);
    assert_eq!(unheard.status().unwrap().code(), Some(37));
    let missing = Gateway::start(&[], &["/nowhere/at/all".into()]).output();
    assert!(missing.contains("cannot start /nowhere/at/all"), "{missing}");
    for (options, expected) in [
        (&[][..], "nothing to serve"),
        (&["--allow", "x:y", "--", "true"], "is no port"),
        (&["--upstream", "ftp://x", "--", "true"], "is no proxy"),
        (&["-p", "1-2:1", "--", "true"], "as many ports"),
        (&["--fd", "7", "--fd", "7"], "named twice"),
    ] {
        let said = Gateway::start(options, &[]).output();
        assert!(said.contains(expected), "{options:?}: {said}");
    }
}
