//! A directory of files over HTTP/1.1: `hyper` as server and client, on Sockeye's sockets. `cargo run --example http` in this folder.
//!
//! `http [directory] [connections]` serves the directory, downloads every file of it over several
//! connections at once and compares SHA-256. Without a directory it makes one with files of many sizes and
//! takes it away again. Ends with a status other than 0 if a single byte is wrong.

mod client;
mod server;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use sockeye::Stack;
use sockeye::tokio::TcpListener;

const USAGE: &str =
    "usage: http [directory; default: one that is made up] [connections, 1 to 1000; default 16]";

/// Sizes of the files that are made up, bytes: around the borders of buffers and segments, and large.
const SIZES: [usize; 14] =
    [0, 1, 100, 1459, 1460, 4096, 65_482, 65_483, 65_535, 65_536, 262_144, 1_000_000, 5_000_000, 20_000_000];
/// Files of each size.
const COPIES: usize = 3;

fn main() -> ExitCode {
    let Some((directory, connections)) = arguments() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match run(directory, connections) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("http: {error}");
            ExitCode::FAILURE
        }
    }
}

fn arguments() -> Option<(Option<PathBuf>, usize)> {
    let mut args = std::env::args().skip(1);
    let directory = args.next();
    let connections = args.next().map_or(Some(16), |arg| arg.parse().ok())?;
    let ok = args.next().is_none() && (1..=1000).contains(&connections);
    let is_option = directory.as_ref().is_some_and(|d| d.starts_with('-'));
    (ok && !is_option).then_some((directory.map(PathBuf::from), connections))
}

fn run(directory: Option<PathBuf>, connections: usize) -> io::Result<bool> {
    let runtime = tokio::runtime::Runtime::new()?;
    match directory {
        Some(directory) => runtime.block_on(transfer(&directory, connections)),
        None => {
            let made = MadeUp::new()?;
            runtime.block_on(transfer(&made.0, connections))
        }
    }
}

/// Serves and downloads the directory; true if everything arrived as it was.
async fn transfer(root: &Path, connections: usize) -> io::Result<bool> {
    let files = client::files_below(root)?;
    let count = files.len();
    let stack = Stack::global();
    let listener = TcpListener::bind_on(stack, "127.0.0.1:0").await?;
    let addr = listener.local_addr()?;
    let served = root.to_path_buf();
    let server = tokio::spawn(async move { server::serve(listener, &served).await });
    let start = Instant::now();
    let summary = client::download_all(stack, addr, root, files, connections).await?;
    report(count, connections, &summary, start.elapsed());
    server.abort();
    Ok(summary.different == 0 && summary.same == count)
}

fn report(files: usize, connections: usize, summary: &client::Summary, took: Duration) {
    println!("{:>12}  files over {connections} connections", files);
    println!("{:>12}  the same as on disk (SHA-256)", summary.same);
    println!("{:>12}  different", summary.different);
    println!("{:>12}  bytes in {took:.2?}", summary.bytes);
    println!("{:>12.2}  Gbit/s", summary.bytes as f64 * 8e-9 / took.as_secs_f64());
}

/// A directory of files that is taken away with the value.
struct MadeUp(PathBuf);

impl MadeUp {
    fn new() -> io::Result<Self> {
        let root = std::env::temp_dir().join(format!("sockeye-http-{}", std::process::id()));
        let made = Self(root);
        std::fs::create_dir_all(made.0.join("a directory"))?;
        for (number, size) in SIZES.iter().flat_map(|size| [*size; COPIES]).enumerate() {
            let dir = if number % 2 == 0 { made.0.clone() } else { made.0.join("a directory") };
            let bytes: Vec<u8> =
                (0..size).map(|at| ((at >> 9) ^ at.wrapping_mul(7) ^ number) as u8).collect();
            std::fs::write(dir.join(format!("{number} of {size} bytes")), bytes)?;
        }
        Ok(made)
    }
}

impl Drop for MadeUp {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("{} is left behind: {error}", self.0.display());
        }
    }
}
