//! A stack on a device, and the kernel on the other side of it, in a namespace of their own.
#![allow(dead_code)]

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use sha2::{Digest, Sha256};
use sockeye::netif::Prefix;
use sockeye::{Config, Stack};
use sockeye_drivers::testing::{skip, unavailable};
use sockeye_drivers::{Namespace, Tun, TunConfig};

/// The kernel's addresses and the stack's.
pub const KERNEL: [&str; 2] = ["10.9.0.1/24", "fd09::1/64"];
/// Likewise.
pub const STACK: [&str; 2] = ["10.9.0.2/24", "fd09::2/64"];

/// Whether this test cannot run here; prints the reason on standard error, or fails in continuous integration.
pub fn skipped(test: &str) -> bool {
    unavailable().inspect(|reason| skip(&format!("{test}: {reason}"))).is_some()
}

pub struct Lab {
    pub namespace: Namespace,
    pub tun: Tun,
    pub stack: Stack,
}

impl Lab {
    pub fn new(config: &TunConfig) -> Self {
        Self::with(config, Config::default())
    }

    pub fn with(config: &TunConfig, of_stack: Config) -> Self {
        let namespace = Namespace::new().unwrap();
        let tun = open(&namespace, config);
        let stack = Stack::new(of_stack).unwrap();
        stack.attach(tun.clone(), &prefixes(STACK)).unwrap();
        Self { namespace, tun, stack }
    }

    pub fn stack_addr(&self, v6: bool, port: u16) -> SocketAddr {
        SocketAddr::new(addr(STACK[usize::from(v6)]), port)
    }

    pub fn kernel_addr(&self, v6: bool, port: u16) -> SocketAddr {
        SocketAddr::new(addr(KERNEL[usize::from(v6)]), port)
    }

    pub fn count(&self, name: &str) -> u64 {
        self.stack.counters().iter().find(|(known, _)| *known == name).unwrap().1
    }

    /// A thread in the kernel's namespace.
    pub fn kernel<R: Send + 'static>(&self, work: impl FnOnce() -> R + Send + 'static) -> JoinHandle<R> {
        let entered = self.namespace.spawn(work).unwrap();
        std::thread::spawn(move || entered.join().unwrap().unwrap())
    }
}

/// A device in `namespace` that has the kernel's addresses.
pub fn open(namespace: &Namespace, config: &TunConfig) -> Tun {
    let open = || -> io::Result<Tun> {
        let tun = Tun::open(config)?;
        for prefix in prefixes(KERNEL) {
            tun.link().add_addr(prefix)?;
        }
        Ok(tun)
    };
    namespace.run(open).unwrap().unwrap()
}

pub fn prefixes(texts: [&str; 2]) -> [Prefix; 2] {
    texts.map(|text| text.parse().unwrap())
}

pub fn addr(prefix: &str) -> IpAddr {
    prefix.parse::<Prefix>().unwrap().addr()
}

/// Bytes that are the same for the same seed, and no two seeds' are.
pub fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    std::iter::repeat_with(|| next().to_le_bytes()).flatten().take(len).collect()
}

pub fn hash(data: &[u8]) -> [u8; 32] {
    Sha256::digest(data).into()
}

/// The common operations of both kinds of streams.
pub trait Stream: Read + Write + Send {
    fn twin(&self) -> Box<dyn Stream>;
    fn end(&self);
}

macro_rules! stream {
    ($kind:ty) => {
        impl Stream for $kind {
            fn twin(&self) -> Box<dyn Stream> {
                Box::new(self.try_clone().unwrap())
            }
            fn end(&self) {
                self.shutdown(Shutdown::Write).unwrap();
            }
        }
    };
}
stream!(std::net::TcpStream);
stream!(sockeye::TcpStream);

/// Sends `len` bytes of `seed`, receives as many of the other side's until it ends, and returns both hashes.
pub fn exchange(stream: impl Stream, seed: u64, len: usize) -> [[u8; 32]; 2] {
    let data = bytes(seed, len);
    let sent = hash(&data);
    let mut writer = stream.twin();
    let mut reader = stream;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // Sizes that fit nothing.
            data.chunks(97_531).for_each(|chunk| writer.write_all(chunk).unwrap());
            writer.end();
        });
        let (mut hasher, mut buffer) = (Sha256::new(), vec![0; 70_001]);
        loop {
            match reader.read(&mut buffer).unwrap() {
                0 => return [sent, hasher.finalize().into()],
                n => hasher.update(&buffer[..n]),
            }
        }
    })
}

/// How often [`eventually`] looks, two milliseconds apart.
const LOOKS: u32 = 30_000;

/// Waits for `what`, which has to happen. It gives up after a number of looks and not at a time: on a machine where the process did not
/// run for a while, the threads that are waited for get their turn before the last look.
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..LOOKS {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    panic!("{what}: not within {LOOKS} looks");
}

/// A client of the kernel's, of the echo server at 10.9.0.2:7, that writes and reads at once, and once more after a pause in which nothing is on its way.
pub fn client(seed: u64) {
    let mut stream = TcpStream::connect("10.9.0.2:7").unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let data = bytes(seed, 1_000_000);
    let mut reader = stream.try_clone().unwrap();
    let reading = std::thread::spawn(move || {
        let mut all = Vec::new();
        reader.read_to_end(&mut all).unwrap();
        all
    });
    stream.write_all(&data).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    stream.write_all(&data).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let all = reading.join().unwrap();
    assert_eq!(hash(&all), hash(&[&data[..], &data[..]].concat()));
}
