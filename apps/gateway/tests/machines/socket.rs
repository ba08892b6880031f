//! Machines at a socket, by QEMU's protocol. The machine is a stack of this process.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use sockeye::netif::{LinkOptions, MacAddr, Prefix};
use sockeye::{Config, Stack, TcpStream};
use sockeye_drivers::FrameStream;

use crate::common::{Gateway, echo_server, pattern, temporary};

const PATIENCE: Duration = Duration::from_secs(30);

/// A machine with the first address, behind the gateway.
fn machine(socket: UnixStream, last: u8) -> Stack {
    let stack = Stack::new(Config::default()).unwrap();
    let stream = FrameStream::new(MacAddr([2, 0, 0, 0, 0, last]), 65_520).unwrap();
    stream.connect(socket.into()).unwrap();
    let options = LinkOptions { accept_ra: false, detect_duplicates: false, ..LinkOptions::default() };
    let addrs: [Prefix; 2] = ["10.0.2.100/24", "fd00::100/64"].map(|addr| addr.parse().unwrap());
    stack.attach_with(stream, &addrs, &options).unwrap();
    stack
}

/// Sends bytes to the host by a machine's stack, and gets them back.
pub fn echo(stack: &Stack, to: &str, bytes: usize) {
    let mut stream = TcpStream::connect_on(stack, to).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let sent = pattern(bytes);
    let mut writer = stream.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            writer.write_all(&sent).unwrap();
            writer.shutdown(std::net::Shutdown::Write).unwrap();
        });
        let mut received = Vec::new();
        stream.read_to_end(&mut received).unwrap();
        assert!(received == sent, "{} bytes of {bytes}", received.len());
    });
    // The stack contains what fails in its card, such as an assertion, and TCP repairs what is lost with that.
    let panics =
        stack.counters().into_iter().filter(|(name, count)| name.starts_with("panics_") && *count > 0);
    assert_eq!(panics.collect::<Vec<_>>(), []);
}

pub fn connected(path: &Path) -> UnixStream {
    let until = Instant::now() + PATIENCE;
    loop {
        match UnixStream::connect(path) {
            Ok(stream) => return stream,
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn machines_come_one_after_the_other_and_their_bytes_pass() {
    let (server, port) = echo_server();
    let path = temporary("machines.socket");
    let options = ["--qemu", path.to_str().unwrap(), "--allow", "127.0.0.1"];
    let mut gateway = Gateway::start(&options, &[]);
    for last in [1, 2] {
        let machine = machine(connected(&path), last);
        echo(&machine, &format!("10.0.2.2:{port}"), 3_000_000);
    }
    server.finish(2);
    gateway.kill();
    // It has left its socket, which the next one removes.
    let mut gateway = Gateway::start(&[&options[..], &["--once"]].concat(), &[]);
    let mut hostile = connected(&path);
    // No frame is so long.
    hostile.write_all(&[0xff; 4]).unwrap();
    assert_eq!(gateway.wait(), Some(0), "the only machine has gone");
    assert!(!path.exists(), "so has the socket");
}

#[test]
fn a_machine_that_listens_is_connected_to_and_an_ordinary_file_stays() {
    let (_server, port) = echo_server();
    let path = temporary("listens.socket");
    let listener = UnixListener::bind(&path).unwrap();
    let options = ["--qemu", path.to_str().unwrap(), "--allow", "127.0.0.1"];
    let mut gateway = Gateway::start(&options, &[]);
    let machine = machine(listener.accept().unwrap().0, 1);
    echo(&machine, &format!("10.0.2.2:{port}"), 100_000);
    drop(machine);
    assert_eq!(gateway.wait(), Some(0));
    drop(listener);
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "precious").unwrap();
    let said = Gateway::start(&options, &[]).output();
    assert!(said.contains("is no socket"), "{said}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_machine_that_comes_while_descriptors_are_used_up_is_served_later() {
    let (server, port) = echo_server();
    let path = temporary("descriptors.socket");
    let mut gateway = Gateway::start(&["--qemu", path.to_str().unwrap(), "--allow", "127.0.0.1"], &[]);
    let first = machine(connected(&path), 1);
    let to = format!("10.0.2.2:{port}");
    echo(&first, &to, 1000);
    server.finish(1);
    let limit = |number| {
        let limit = Rlimit { current: number, maximum: getrlimit(Resource::Nofile).maximum };
        prlimit(Some(Pid::from_child(&gateway.0)), Resource::Nofile, limit).unwrap().current
    };
    let earlier = limit(Some(3));
    drop(first);
    let second = machine(connected(&path), 2);
    // It has tried by then, unless it is very slow.
    std::thread::sleep(Duration::from_millis(300));
    limit(earlier);
    echo(&second, &to, 1000);
    gateway.kill();
}
