//! A stack and the kernel on a device of any kind, the kernel's settings, and external programs.
//!
//! Does not depend on the tests. Tests: its users.

use std::io::{self, Write};
use std::net::TcpListener as KernelListener;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use sockeye::netif::{LinkOptions, NetifId};
use sockeye::{Config, Stack, TcpListener, TcpStream};
use sockeye_drivers::testing::skip;
use sockeye_drivers::{Layer, Namespace, TunConfig};

use crate::common::{self, Lab, eventually, exchange};

/// Both kinds of devices.
pub const LAYERS: [Layer; 2] = [Layer::Ip, Layer::Ethernet];

/// A stack and the kernel, and the interface between them as the stack calls it.
pub struct Testbed {
    pub lab: Lab,
    pub netif: NetifId,
    /// Dropped with the testbed, which ends the watchdog.
    _watched: Sender<()>,
}

impl Testbed {
    /// On a device of one queue with offloads.
    pub fn new(layer: Layer) -> Self {
        Self::with(&TunConfig { layer, ..TunConfig::default() }, |_| ())
    }

    /// On this device, with settings of the stack changed. Returns once all addresses may be used.
    pub fn with(device: &TunConfig, change: impl FnOnce(&mut Config)) -> Self {
        let namespace = Namespace::new().unwrap();
        // The kernel would not use its addresses for a second or two.
        for which in ["all", "default"] {
            sysctl(&namespace, &format!("ipv6/conf/{which}/accept_dad"), "0");
        }
        let tun = common::open(&namespace, device);
        let mut config = Config::default();
        change(&mut config);
        let stack = Stack::new(config).unwrap();
        // There is no other host on this link.
        let options = LinkOptions { detect_duplicates: false, ..LinkOptions::default() };
        let netif = stack.attach_with(tun.clone(), &common::prefixes(common::STACK), &options).unwrap();
        let testbed = Self { lab: Lab { namespace, tun, stack }, netif, _watched: watch() };
        // The kernel takes a moment even to find that it need not probe its IPv6 address.
        let usable = || std::net::UdpSocket::bind(testbed.lab.kernel_addr(true, 0)).is_ok();
        testbed.lab.namespace.run(|| eventually("the kernel has its address", usable)).unwrap();
        testbed
    }

    /// The name of the device in the kernel.
    pub fn device(&self) -> String {
        self.lab.tun.link().name().to_owned()
    }

    /// Sets a setting of the kernel, below /proc/sys/net.
    pub fn sysctl(&self, name: &str, value: &str) {
        sysctl(&self.lab.namespace, name, value);
    }

    /// `count` connections at once that the kernel opens, `len` bytes in each direction.
    pub fn opened_by_kernel(&self, v6: bool, count: u64, len: usize) {
        let listener = TcpListener::bind_on(&self.lab.stack, self.lab.stack_addr(v6, 0)).unwrap();
        let to = listener.local_addr().unwrap();
        let serve: Vec<_> = (0..count)
            .map(|seed| {
                let client =
                    self.lab.kernel(move || exchange(std::net::TcpStream::connect(to).unwrap(), seed, len));
                // One after the other, so that each is known.
                let (stream, _) = listener.accept().unwrap();
                (client, std::thread::spawn(move || exchange(stream, 1000 + seed, len)))
            })
            .collect();
        for (client, server) in serve {
            let [sent, received] = server.join().unwrap();
            assert_eq!(client.join().unwrap(), [received, sent], "opened by the kernel");
        }
    }

    /// Likewise that the stack opens.
    pub fn opened_by_stack(&self, v6: bool, count: u64, len: usize) {
        let at = self.lab.kernel_addr(v6, 0);
        let listener = self.lab.kernel(move || KernelListener::bind(at).unwrap()).join().unwrap();
        let to = listener.local_addr().unwrap();
        let serve: Vec<_> = (0..count)
            .map(|seed| {
                let stream = TcpStream::connect_on(&self.lab.stack, to).unwrap();
                let client = std::thread::spawn(move || exchange(stream, seed, len));
                let (stream, _) = listener.accept().unwrap();
                (client, std::thread::spawn(move || exchange(stream, 1000 + seed, len)))
            })
            .collect();
        for (client, server) in serve {
            let [sent, received] = server.join().unwrap();
            assert_eq!(client.join().unwrap(), [received, sent], "opened by the stack");
        }
    }

    /// Nothing came that the stack did not understand.
    pub fn assert_all_understood(&self) {
        for reason in ["malformed", "bad_checksum", "unknown_protocol", "no_memory", "unsendable"] {
            assert_eq!(self.lab.count(&format!("frames_{reason}")), 0, "{reason}");
        }
    }

    /// All connections are closed except for TIME-WAIT, and all memory has been returned.
    pub fn assert_empties(&self) {
        eventually("all connections are gone", || self.lab.stack.connection_count() == 0);
        eventually("all memory came back", || {
            self.lab.stack.trim();
            self.lab.stack.memory_in_use() == 0
        });
    }
}

/// Ends the process if the returned value lives longer than [`LIFE_SECONDS_MAX`]: when one end has failed, the other waits.
fn watch() -> Sender<()> {
    let (watched, gone) = channel();
    let test = std::thread::current().name().unwrap_or_default().to_owned();
    std::thread::spawn(move || {
        let second = Duration::from_secs(1);
        if (0..LIFE_SECONDS_MAX).all(|_| gone.recv_timeout(second) == Err(RecvTimeoutError::Timeout)) {
            // Not by `eprintln`: the harness would keep it for a report that is never made.
            let _ = writeln!(io::stderr(), "{test} has not ended within {LIFE_SECONDS_MAX} s");
            std::process::abort();
        }
    });
    watched
}

/// Longest life of a [`Testbed`], in seconds in which this process runs.
const LIFE_SECONDS_MAX: u32 = 180;

/// Sets a setting of the kernel in a namespace, below /proc/sys/net.
pub fn sysctl(namespace: &Namespace, name: &str, value: &str) {
    let set = || std::fs::write(format!("/proc/sys/net/{name}"), value);
    namespace.run(set).unwrap().unwrap_or_else(|error| panic!("{name} = {value}: {error}"));
}

/// The output of a program on the kernel's side, and whether it succeeded; `None`, with a message on standard error, if
/// there is no such program.
pub fn program(namespace: &Namespace, words: &str) -> Option<Output> {
    let mut words = words.split_whitespace();
    let name = words.next().unwrap();
    let mut command = Command::new(name);
    command.args(words).stdin(Stdio::null());
    match namespace.run(|| command.output()).unwrap() {
        Ok(output) => Some(output),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            skip(&format!("there is no {name} here"));
            None
        }
        Err(error) => panic!("{name}: {error}"),
    }
}

/// The output of [`program`], whether it succeeded or not.
pub fn output(namespace: &Namespace, words: &str) -> Option<String> {
    program(namespace, words).map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// [`program`], which has to succeed; returns its output.
pub fn content(namespace: &Namespace, words: &str) -> Option<String> {
    let output = program(namespace, words)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{words}: {text}\n{}", String::from_utf8_lossy(&output.stderr));
    Some(text)
}

/// Long enough for an event that happens within a second, on a slow machine.
pub const PATIENCE: Duration = Duration::from_secs(60);
