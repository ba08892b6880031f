//! Servers of the host, and the program under test.

use std::ffi::OsString;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use simple_dns::rdata::{A, RData};
use simple_dns::{CLASS, Packet, QTYPE, ResourceRecord, TYPE};
use sockeye_drivers::testing::skip;

/// The host, as the inside sees it.
pub const HOST: &str = "10.0.2.2";
/// For anything to happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// The program under test: the one that cargo has built for these tests, or that which `SOCKEYE_GATEWAY_PROGRAM` names, such as a static one.
pub fn gateway_program() -> PathBuf {
    let other = std::env::var_os("SOCKEYE_GATEWAY_PROGRAM");
    other.map_or_else(|| env!("CARGO_BIN_EXE_sockeye-gateway").into(), PathBuf::from)
}

/// Whether there can be no gateway here, which is printed.
pub fn unavailable() -> bool {
    let tried = Command::new(gateway_program()).args(["--", "true"]).output().unwrap();
    if tried.status.success() {
        return false;
    }
    let why = String::from_utf8_lossy(&tried.stderr).into_owned();
    skip(&why);
    true
}

/// The program under test.
pub struct Gateway(pub Child);

impl Gateway {
    pub fn start(options: &[&str], command: &[OsString]) -> Self {
        let mut program = Command::new(gateway_program());
        program.args(options);
        if !command.is_empty() {
            program.arg("--").args(command);
        }
        Self(program.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// Runs this program's `what` inside, which has to succeed.
    pub fn runs(options: &[&str], what: &str) {
        let ran = Self::start(options, &inside_command(what)).0.wait_with_output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        assert!(ran.status.success(), "{options:?} {what}: {:?}\n{out}\n{err}", ran.status);
        assert!(out.contains("1 passed"), "{what} was not run: {out}");
    }

    /// Asks it to end, which it passes on to its command.
    pub fn terminate(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }

    /// Waits until its command, which runs, has ended: it may survive that.
    pub fn command_ends(&self) {
        let pid = self.0.id();
        let children = format!("/proc/{pid}/task/{pid}/children");
        eventually("the command has ended", || std::fs::read_to_string(&children).unwrap().trim().is_empty());
    }

    /// Whether it has not ended.
    pub fn runs_still(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }

    /// Its memory, if it runs.
    pub fn resident_mib(&self) -> Option<u64> {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.split_ascii_whitespace().next()?.parse::<u64>().ok().map(|kib| kib / 1024)
    }

    /// The code at the end, and all that was said.
    pub fn finish(self) -> (Option<i32>, String) {
        let ended = self.0.wait_with_output().unwrap();
        let said = [ended.stdout, ended.stderr].concat();
        (ended.status.code(), String::from_utf8_lossy(&said).into_owned())
    }

    /// The code at the end.
    pub fn wait(&mut self) -> Option<i32> {
        self.0.wait().unwrap().code()
    }

    /// Ends it at once.
    pub fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// What it has said at its end, which is a failure.
    pub fn output(self) -> String {
        let ended = self.0.wait_with_output().unwrap();
        assert!(!ended.status.success());
        String::from_utf8_lossy(&ended.stderr).into_owned()
    }
}

/// Waits until something is so.
pub fn eventually(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..PATIENCE.as_millis() / 20 {
        if is_so() {
            return;
        }
        thread::sleep(Duration::from_millis(20));
    }
    panic!("not in a minute: {what}");
}

/// The command that does `what` inside.
pub fn inside_command(what: &str) -> Vec<OsString> {
    let program = std::env::current_exe().unwrap();
    let mut words: Vec<OsString> =
        vec!["env".into(), format!("GATEWAY_TEST_INSIDE={what}").into(), program.into()];
    words.extend(["--exact", "inside", "--nocapture"].map(OsString::from));
    words
}

/// A server that serves each connection on a thread.
pub struct Server(Arc<AtomicUsize>);

impl Server {
    /// Connections that were served to their end.
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }

    /// Waits until so many were.
    pub fn finish(&self, count: usize) {
        for _ in 0..PATIENCE.as_millis() / 10 {
            if self.count() >= count {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("{} connections of {count} were served", self.count());
    }
}

pub fn accept_all(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> (Server, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (count, serve) = (Arc::new(AtomicUsize::new(0)), Arc::new(serve));
    let server = Server(Arc::clone(&count));
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (count, serve) = (Arc::clone(&count), Arc::clone(&serve));
            thread::spawn(move || {
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                serve(stream);
                count.fetch_add(1, Ordering::AcqRel);
            });
        }
    });
    (server, port)
}

/// A server that sends back what it has got until its end.
pub fn echo_server() -> (Server, u16) {
    accept_all(|mut stream| {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        stream.write_all(&bytes).unwrap();
    })
}

/// A TCP port of the loopback that nothing listened at just now.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Bytes that are all different in any window of some.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect()
}

pub fn temporary(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("sockeye-gateway-test-{}-{name}", std::process::id()))
}

/// A resolver that knows these names. Returns its port.
pub fn resolver(names: &[(&str, &str)]) -> u16 {
    let names: Vec<(String, Ipv4Addr)> =
        names.iter().map(|(name, addr)| ((*name).to_owned(), addr.parse().unwrap())).collect();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    thread::spawn(move || {
        let mut bytes = [0; 1500];
        while let Ok((len, from)) = socket.recv_from(&mut bytes) {
            let query = Packet::parse(&bytes[..len]).unwrap();
            let question = query.questions[0].clone();
            let mut reply = Packet::new_reply(query.id());
            let known = names.iter().find(|(name, _)| question.qname.to_string() == *name);
            if let (Some((_, addr)), QTYPE::TYPE(TYPE::A)) = (known, question.qtype) {
                let data = RData::A(A::from(*addr));
                reply.answers.push(ResourceRecord::new(question.qname.clone(), CLASS::IN, 60, data));
            }
            reply.questions.push(question);
            socket.send_to(&reply.build_bytes_vec().unwrap(), from).unwrap();
        }
    });
    port
}

/// A proxy, which says `no` where it cannot connect, and ends the connection. Returns its port.
pub fn proxy(scheme: &'static str, no: &'static [u8]) -> u16 {
    let (_, port) = accept_all(move |mut near| {
        let asked = match scheme {
            "socks5" => socks_asked(&mut near),
            _ => http_asked(&mut near),
        };
        let far = TcpStream::connect(&asked);
        let answer: &[u8] = match (scheme, &far) {
            ("socks5", Ok(_)) => &[5, 0, 0, 1, 0, 0, 0, 0, 0, 0],
            (_, Ok(_)) => b"HTTP/1.1 200 OK\r\n\r\n",
            (_, Err(_)) => no,
        };
        near.write_all(answer).unwrap();
        let Ok(mut far) = far else { return };
        let (mut near_too, mut far_too) = (near.try_clone().unwrap(), far.try_clone().unwrap());
        thread::scope(|scope| {
            scope.spawn(move || {
                let _ = std::io::copy(&mut near_too, &mut far);
                let _ = far.shutdown(std::net::Shutdown::Write);
            });
            let _ = std::io::copy(&mut far_too, &mut near);
            let _ = near.shutdown(std::net::Shutdown::Write);
        });
    });
    port
}

/// RFC 1928, IPv4 addresses only.
fn socks_asked(near: &mut TcpStream) -> String {
    let mut head = [0; 2];
    near.read_exact(&mut head).unwrap();
    near.read_exact(&mut vec![0; usize::from(head[1])]).unwrap();
    near.write_all(&[5, 0]).unwrap();
    let mut request = [0; 10];
    near.read_exact(&mut request).unwrap();
    assert_eq!(request[..4], [5, 1, 0, 1]);
    let addr = Ipv4Addr::new(request[4], request[5], request[6], request[7]);
    format!("{addr}:{}", u16::from_be_bytes([request[8], request[9]]))
}

fn http_asked(near: &mut TcpStream) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match near.read_exact(&mut byte) {
            Ok(()) => head.push(byte[0]),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => break,
            Err(error) => panic!("{error}"),
        }
    }
    let text = String::from_utf8(head).unwrap();
    text.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next()).unwrap().to_owned()
}
