//! The host that the gateways run on: a network namespace with servers on its loopback.
//!
//! Does not depend on gateways. Invariant: the servers end when this is dropped.

use std::fs;
use std::io;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use sockeye_drivers::{Layer, Namespace, Tun, TunConfig};
use sockeye_shared::limit;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::work::Work;
use crate::providers::kernel::congestion;

/// Where the servers are.
pub const HTTP_PORT: u16 = 8090;
pub const IPERF_PORT: u16 = 5201;
pub const HOLD_PORT: u16 = 5300;
/// For a server to be there.
const PATIENCE: Duration = Duration::from_secs(10);

/// See the module's head.
pub struct Place {
    /// The host's network.
    pub host: Namespace,
    _uplink: Tun,
    children: Vec<Ended>,
    folder: PathBuf,
}

/// A process that is ended with this.
pub struct Ended(pub Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Place {
    /// A host with the servers that this work needs.
    ///
    /// # Errors
    /// A program is not installed; the system's.
    pub fn new(works: &[Work]) -> io::Result<Self> {
        let host = Namespace::new()?;
        if let Some(default) = choose_congestion(&host)? {
            eprintln!(
                "connections use {default}, the machine's default: net.ipv4.tcp_allowed_congestion_control allows no \
                 namespace the congestion control of other measurements"
            );
        }
        // pasta takes its way out for granted. Nobody reads what is sent there.
        let uplink = host.run(|| -> io::Result<Tun> {
            let tun = Tun::open(&TunConfig {
                name: "uplink".to_owned(),
                layer: Layer::Ethernet,
                ..TunConfig::default()
            })?;
            tun.link().add_addr("198.51.100.2/24".parse().map_err(io::Error::other)?)?;
            tun.link().add_route("0.0.0.0/0".parse().map_err(io::Error::other)?)?;
            Ok(tun)
        })??;
        let folder = std::env::temp_dir().join(format!("sockeye-bench-gateway-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let mut place = Self { host, _uplink: uplink, children: Vec::new(), folder };
        if works.iter().any(|work| work.needs_http()) {
            place.http()?;
        }
        if works.iter().any(|work| work.needs_iperf()) {
            place.start("iperf3", &["-s", "-p", &IPERF_PORT.to_string()], IPERF_PORT)?;
        }
        place.hold()?;
        Ok(place)
    }

    fn http(&mut self) -> io::Result<()> {
        let root = self.folder.display().to_string();
        fs::write(self.folder.join("index.html"), "hello\n")?;
        let text = format!(
            "daemon off; master_process off; error_log {root}/error.log crit; pid {root}/pid;\n\
             events {{ worker_connections 4096; }}\n\
             http {{ access_log off; keepalive_requests 100000000; client_body_temp_path {root}; proxy_temp_path {root};\n\
             fastcgi_temp_path {root}; uwsgi_temp_path {root}; scgi_temp_path {root};\n\
             server {{ listen 127.0.0.1:{HTTP_PORT} backlog=4096; root {root}; }} }}\n"
        );
        let config = self.folder.join("nginx.conf");
        fs::write(&config, text)?;
        self.start("nginx", &["-c", &config.display().to_string(), "-e", "stderr"], HTTP_PORT)
    }

    /// Starts a server, and waits until it listens.
    fn start(&mut self, program: &str, args: &[&str], port: u16) -> io::Result<()> {
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = self.host.run(|| command.spawn())?;
        let child = child.map_err(|error| io::Error::new(error.kind(), format!("{program}: {error}")))?;
        self.children.push(Ended(child));
        let deadline = Instant::now() + PATIENCE;
        while self.host.run(|| TcpStream::connect(("127.0.0.1", port)))?.is_err() {
            if Instant::now() > deadline {
                return Err(io::Error::other(format!("{program} does not listen at port {port}")));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// A server that says a byte to each client, and keeps the connection: this program once more, which has descriptors of its own.
    fn hold(&mut self) -> io::Result<()> {
        let program = std::env::current_exe()?;
        self.start(&program.to_string_lossy(), &[HOLD_SUBCOMMAND], HOLD_PORT)
    }
}

/// Makes connections of a namespace use the [congestion control](congestion) of the other comparisons with the kernel. The machine's default may suit one
/// gateway better than another. Returns that default if the system allows namespaces nothing else
/// (`tcp_allowed_congestion_control`, which also root inside obeys).
///
/// # Errors
/// The system's.
pub fn choose_congestion(namespace: &Namespace) -> io::Result<Option<String>> {
    const SYSCTL: &str = "/proc/sys/net/ipv4/tcp_congestion_control";
    let Some(name) = congestion().set() else { return Ok(None) };
    namespace.run(|| match fs::write(SYSCTL, name) {
        Ok(()) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Ok(Some(fs::read_to_string(SYSCTL)?.trim().to_owned()))
        }
        Err(error) => Err(error),
    })?
}

/// The hidden sub-command of the server that holds connections.
pub const HOLD_SUBCOMMAND: &str = "__gateway-hold";

/// The server that holds connections, each until its client has gone. Returns only if it cannot listen.
///
/// # Errors
/// The system's.
pub fn hold_connections() -> io::Result<()> {
    limit::raise_descriptors();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", HOLD_PORT)).await?;
        loop {
            // No descriptors, which come back.
            let Ok((mut stream, _)) = listener.accept().await else {
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            };
            tokio::spawn(async move {
                if stream.write_all(b"!").await.is_ok() {
                    // Its end, by error or not.
                    let _ = stream.read(&mut [0]).await;
                }
            });
        }
    })
}

impl Drop for Place {
    fn drop(&mut self) {
        self.children.clear();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
