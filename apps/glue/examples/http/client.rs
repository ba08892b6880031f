//! The client: downloads files over several connections at once and compares their SHA-256.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1::SendRequest;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use sha2::{Digest, Sha256};
use sockeye::Stack;
use sockeye::tokio::TcpStream;

use super::server::encoded;

/// Result of the transfers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Files that arrived as they are on disk.
    pub same: usize,
    /// Files that did not.
    pub different: usize,
    /// Bytes of all bodies.
    pub bytes: usize,
}

/// All files below `root`, relative to it, in no order. Blocks.
///
/// # Errors
/// If a directory cannot be read.
pub fn files_below(root: &Path) -> io::Result<Vec<PathBuf>> {
    let (mut files, mut dirs) = (Vec::new(), vec![root.to_path_buf()]);
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                dirs.push(entry.path());
            } else if kind.is_file() {
                let path = entry.path();
                files.push(path.strip_prefix(root).map_or_else(|_| path.clone(), Path::to_path_buf));
            }
        }
    }
    Ok(files)
}

/// A connection on which requests can be made one after the other.
///
/// # Errors
/// If connecting or the handshake fails.
pub async fn open(stack: &Stack, addr: SocketAddr) -> io::Result<SendRequest<Empty<Bytes>>> {
    let stream = TcpStream::connect_on(stack, addr).await?;
    let (sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            eprintln!("client connection: {error}");
        }
    });
    Ok(sender)
}

/// Asks for one path.
///
/// # Errors
/// If the path is not one, or the connection fails.
pub async fn get(sender: &mut SendRequest<Empty<Bytes>>, path: &str) -> io::Result<(StatusCode, Bytes)> {
    sender.ready().await.map_err(io::Error::other)?;
    let request =
        Request::get(path).header("host", "sockeye").body(Empty::new()).map_err(io::Error::other)?;
    let response = sender.send_request(request).await.map_err(io::Error::other)?;
    let status = response.status();
    let body = response.into_body().collect().await.map_err(io::Error::other)?.to_bytes();
    Ok((status, body))
}

/// Downloads `files` over `connections` connections and compares each with the file below `root`.
///
/// # Errors
/// If a connection fails or a file cannot be read; a file that differs is counted, not an error.
pub async fn download_all(
    stack: &Stack,
    addr: SocketAddr,
    root: &Path,
    files: Vec<PathBuf>,
    connections: usize,
) -> io::Result<Summary> {
    let queue = Arc::new(Mutex::new(files));
    let tasks: Vec<_> = (0..connections)
        .map(|_| {
            let (stack, root, queue) = (stack.clone(), root.to_path_buf(), Arc::clone(&queue));
            tokio::spawn(async move { download(&stack, addr, &root, &queue).await })
        })
        .collect();
    let mut all = Summary::default();
    for task in tasks {
        let part = task.await.map_err(io::Error::other)??;
        all.same += part.same;
        all.different += part.different;
        all.bytes += part.bytes;
    }
    Ok(all)
}

/// One connection's share.
async fn download(
    stack: &Stack,
    addr: SocketAddr,
    root: &Path,
    queue: &Mutex<Vec<PathBuf>>,
) -> io::Result<Summary> {
    let mut sender = open(stack, addr).await?;
    let mut summary = Summary::default();
    let next = || queue.lock().map_or(None, |mut files| files.pop());
    while let Some(file) = next() {
        let path = encoded(&file).ok_or_else(|| io::Error::other(format!("{file:?} is not a UTF-8 name")))?;
        let (status, body) = get(&mut sender, &path).await?;
        let expected = Sha256::digest(tokio::fs::read(root.join(&file)).await?);
        summary.bytes += body.len();
        if status == StatusCode::OK && Sha256::digest(&body) == expected {
            summary.same += 1;
        } else {
            eprintln!("{}: {status}, {} bytes that are not the file's", file.display(), body.len());
            summary.different += 1;
        }
    }
    Ok(summary)
}
