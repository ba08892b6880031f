//! The gateways: how each is started for a namespace, and what version it has.
//!
//! Does not depend on the work. Invariant: a gateway's processes end when it is dropped.

use std::io;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use sockeye_drivers::Namespace;

use super::GatewayBenchArgs;
use super::place::{Ended, HOLD_PORT, Place, choose_congestion};

/// The host's loopback, as the inside reaches it.
const HOST: &str = "10.0.2.2";
/// For a gateway to serve.
const PATIENCE: Duration = Duration::from_secs(20);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(1);

/// A gateway, or none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Kind {
    /// The one that is measured
    Sockeye,
    /// slirp4netns, of Podman and RootlessKit
    Slirp4netns,
    /// pasta, of passt
    Pasta,
    /// The host's loopback without a gateway: what nobody can beat
    None,
}

impl Kind {
    /// In the order of the table.
    pub const ALL: [Kind; 4] = [Kind::Sockeye, Kind::Slirp4netns, Kind::Pasta, Kind::None];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Sockeye => "sockeye",
            Kind::Slirp4netns => "slirp4netns",
            Kind::Pasta => "pasta",
            Kind::None => "none",
        }
    }

    /// Whether it is one that sockeye is to beat.
    pub fn is_peer(self) -> bool {
        matches!(self, Kind::Slirp4netns | Kind::Pasta)
    }
}

/// One that serves.
pub struct Gateway {
    pub kind: Kind,
    /// Its name and version.
    pub version: String,
    /// Where clients run.
    pub inside: Namespace,
    /// The address of the servers from there.
    pub host: &'static str,
    /// The number of its process.
    pub pid: Option<u32>,
    /// From its start until the first byte has come through it.
    pub first_byte: Duration,
    _process: Option<Ended>,
    _holder: Option<Ended>,
}

impl Gateway {
    /// Starts one for a namespace of its own, and waits until a byte has come through.
    ///
    /// # Errors
    /// It is not installed, or does not serve; the system's.
    pub fn start(kind: Kind, args: &GatewayBenchArgs, place: &Place) -> io::Result<Self> {
        if kind == Kind::None {
            let inside = place.host.run(Namespace::current)??;
            let first_byte = first_byte(&inside, "127.0.0.1", Instant::now())?;
            let version = "none".to_owned();
            let (host, pid) = ("127.0.0.1", None);
            return Ok(Self { kind, version, inside, host, pid, first_byte, _process: None, _holder: None });
        }
        let program = program(kind, args)?;
        let version = version(kind, &program)?;
        let mut command = Command::new("unshare");
        command.args(["-Urn", "sleep", "infinity"]).stdin(Stdio::null());
        let holder = Ended(place.host.run(|| command.spawn())??);
        let inside = entered(holder.0.id(), place)?;
        let _ = choose_congestion(&inside)?;
        let mut command = command_of(kind, &program, holder.0.id(), args);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        if kind.is_peer() {
            // They say what they do as well as what is wrong.
            command.stderr(Stdio::null());
        }
        let start = Instant::now();
        let process = Ended(place.host.run(|| command.spawn())??);
        let first_byte = first_byte(&inside, HOST, start)?;
        let pid = Some(process.0.id());
        let (process, holder) = (Some(process), Some(holder));
        Ok(Self { kind, version, inside, host: HOST, pid, first_byte, _process: process, _holder: holder })
    }
}

/// The namespace of a process, once it has one of its own.
fn entered(pid: u32, place: &Place) -> io::Result<Namespace> {
    let own = |path: &str| std::fs::read_link(path);
    let outside = place.host.run(|| own("/proc/thread-self/ns/net"))??;
    let deadline = Instant::now() + PATIENCE;
    while own(&format!("/proc/{pid}/ns/net"))? == outside {
        if Instant::now() > deadline {
            return Err(io::Error::other("unshare made no namespace"));
        }
        thread::sleep(PAUSE);
    }
    Namespace::of_process(pid)
}

/// How long it takes from `start` until a byte has come.
fn first_byte(inside: &Namespace, host: &str, start: Instant) -> io::Result<Duration> {
    inside.run(|| {
        loop {
            let to = (host, HOLD_PORT);
            let tried = TcpStream::connect(to).and_then(|stream| {
                stream.set_read_timeout(Some(PATIENCE))?;
                io::Read::read_exact(&mut &stream, &mut [0])
            });
            match tried {
                Ok(()) => return Ok(start.elapsed()),
                Err(error) if start.elapsed() > PATIENCE => return Err(error),
                Err(_) => thread::sleep(PAUSE),
            }
        }
    })?
}

fn program(kind: Kind, args: &GatewayBenchArgs) -> io::Result<PathBuf> {
    match kind {
        Kind::Sockeye => match &args.program {
            Some(program) => Ok(program.clone()),
            None => Ok(std::env::current_exe()?.with_file_name("sockeye")),
        },
        Kind::Slirp4netns | Kind::Pasta | Kind::None => Ok(kind.name().into()),
    }
}

fn command_of(kind: Kind, program: &Path, pid: u32, args: &GatewayBenchArgs) -> Command {
    let mut command = Command::new(program);
    let pid = pid.to_string();
    match kind {
        Kind::Sockeye => {
            // The program of its own has no sub-commands.
            if program.file_name().is_none_or(|name| name != "sockeye-gateway") {
                command.arg("gateway");
            }
            command.args(["--netns", &pid, "--allow", "127.0.0.1"]);
            command.args(args.loops.map(|loops| format!("--loops={loops}")));
        }
        Kind::Slirp4netns => drop(command.args(["--configure", "--mtu=65520", &pid, "tap0"])),
        Kind::Pasta => {
            command.args(["--foreground", "--quiet", "--config-net", "--runas", "0", "-i", "uplink"]);
            command.args(["-4", "-a", "10.0.2.100", "-n", "255.255.255.0", "-g", HOST, "-m", "65520"]);
            command.args(["-t", "none", "-u", "none", "-T", "none", "-U", "none", &pid]);
        }
        Kind::None => {}
    }
    command
}

fn version(kind: Kind, program: &Path) -> io::Result<String> {
    let ran = Command::new(program).arg("--version").output();
    let ran = ran.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", program.display())))?;
    let text = String::from_utf8_lossy(&ran.stdout).into_owned();
    let line = text.lines().next().unwrap_or_default().trim().to_owned();
    if !line.contains("unknown") {
        return Ok(line);
    }
    // Debian's pasta does not know, but its package does.
    let package = Command::new("dpkg-query").args(["-W", "passt"]).output();
    let package = package.map(|ran| String::from_utf8_lossy(&ran.stdout).trim().replace('\t', " "));
    Ok(format!("{}: package {}", kind.name(), package.unwrap_or_default()))
}
