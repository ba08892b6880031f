//! An HTTP server that the kernel's programs reach through a TUN device: `tun_http [DIRECTORY [DEVICE]]`.
//!
//! The server's TCP is in this process; the kernel is a neighbor. `curl http://10.9.0.2/` then shows the directory.
//! A thread for each connection, a request for each connection: the point is the network below.
//!
//! Needs root (CAP_NET_ADMIN). Tests: `tests/examples.rs`.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use sockeye::netif::Prefix;
use sockeye::{Config, Stack, TcpListener, TcpStream};
use sockeye_drivers::{Tun, TunConfig};

/// The kernel's address on the device, and ours.
pub const KERNEL: &str = "10.9.0.1/24";
/// Likewise.
pub const SERVER: &str = "10.9.0.2/24";
/// Most connections at a time.
const CONNECTIONS_MAX: usize = 256;
/// Most bytes of a request's head.
const HEAD_MAX: u64 = 8 << 10;
/// How long a client may be silent.
const SILENCE_MAX: Duration = Duration::from_secs(10);

#[allow(dead_code, reason = "a test calls `start` instead")]
fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let root = args.next().map_or_else(|| PathBuf::from("."), PathBuf::from);
    let device = args.next().map_or(Some(String::new()), |name| name.into_string().ok());
    let Some(device) = device.filter(|_| args.next().is_none()) else {
        eprintln!("usage: tun_http [DIRECTORY [DEVICE]]");
        return ExitCode::from(2);
    };
    let served = start(&root, &device).and_then(|(tun, listener)| {
        println!("http://{} through {}", listener.local_addr()?, tun.link().name());
        serve(&listener, &root)
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tun_http: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A stack on a device of this name (empty: the kernel chooses), and a listener on it.
pub fn start(root: &Path, device: &str) -> io::Result<(Tun, TcpListener)> {
    root.read_dir()?;
    let prefix = |text: &str| text.parse::<Prefix>().map_err(io::Error::other);
    let tun = Tun::open(&TunConfig { name: device.to_owned(), ..TunConfig::default() })?;
    tun.link().add_addr(prefix(KERNEL)?)?;
    let stack = Stack::new(Config::default())?;
    stack.attach(tun.clone(), &[prefix(SERVER)?])?;
    let listener = TcpListener::bind_on(&stack, (prefix(SERVER)?.addr(), 80))?;
    Ok((tun, listener))
}

/// Answers requests, as long as there is a listener.
pub fn serve(listener: &TcpListener, root: &Path) -> io::Result<()> {
    let slots = Arc::new(());
    loop {
        let (stream, _) = listener.accept()?;
        // Beyond the bound a client's connection is closed.
        let slot = Arc::clone(&slots);
        if Arc::strong_count(&slot) > CONNECTIONS_MAX + 1 {
            continue;
        }
        let root = root.to_owned();
        let answered = thread::Builder::new().spawn(move || {
            // A client that goes away is its own affair.
            let _ = answer(&stream, &root);
            drop(slot);
        });
        drop(answered);
    }
}

fn answer(mut stream: &TcpStream, root: &Path) -> io::Result<()> {
    stream.set_read_timeout(Some(SILENCE_MAX))?;
    stream.set_write_timeout(Some(SILENCE_MAX))?;
    let mut head = BufReader::new(stream.take(HEAD_MAX));
    let mut request = String::new();
    head.read_line(&mut request)?;
    let mut line = String::new();
    while head.read_line(&mut line)? > 2 {
        line.clear();
    }
    let mut words = request.split_ascii_whitespace();
    let (method, path) = (words.next(), words.next());
    let (is_head, Some(path)) = (method == Some("HEAD"), path.and_then(|path| below(root, path))) else {
        return refuse(stream, "404 Not Found");
    };
    if !is_head && method != Some("GET") {
        return refuse(stream, "405 Method Not Allowed");
    }
    if path.is_dir() {
        let listing = listing(&path)?;
        head_of(stream, "200 OK", "text/plain; charset=utf-8", listing.len() as u64)?;
        return if is_head { Ok(()) } else { stream.write_all(listing.as_bytes()) };
    }
    let Ok(mut file) = std::fs::File::open(&path) else { return refuse(stream, "404 Not Found") };
    let len = file.metadata()?.len();
    head_of(stream, "200 OK", "application/octet-stream", len)?;
    if !is_head {
        io::copy(&mut (&mut file).take(len), &mut stream)?;
    }
    Ok(())
}

/// The file that a request names; `None` for a path that leads out of the directory.
fn below(root: &Path, path: &str) -> Option<PathBuf> {
    let path = Path::new(path.strip_prefix('/')?);
    let stays = path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    stays.then(|| root.join(path)).filter(|path| !path.is_symlink())
}

fn listing(path: &Path) -> io::Result<String> {
    let mut names = Vec::new();
    for entry in path.read_dir()? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names.iter().map(|name| format!("{name}\n")).collect())
}

fn head_of(mut stream: &TcpStream, status: &str, kind: &str, len: u64) -> io::Result<()> {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())
}

fn refuse(stream: &TcpStream, status: &str) -> io::Result<()> {
    head_of(stream, status, "text/plain", 0)
}
