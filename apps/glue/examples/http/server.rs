//! The server: files of one directory, and nothing outside of it, over HTTP/1.1.
//!
//! A path is taken apart into plain names before the file system sees it, so that neither `..` nor an
//! absolute path nor a percent-encoded form of them leads out; the target of a link must lie inside, too.

use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use sockeye::tokio::{TcpListener, TcpStream};

/// Serves the files below `root` until the task is dropped.
///
/// # Errors
/// If `root` is not a directory that can be read, or accepting fails.
pub async fn serve(listener: TcpListener, root: &Path) -> io::Result<()> {
    let root: Arc<Path> = tokio::fs::canonicalize(root).await?.into();
    loop {
        let (stream, from) = listener.accept().await?;
        let root = Arc::clone(&root);
        tokio::spawn(async move {
            if let Err(error) = connection(stream, root).await {
                eprintln!("connection from {from}: {error}");
            }
        });
    }
}

async fn connection(stream: TcpStream, root: Arc<Path>) -> hyper::Result<()> {
    let service = service_fn(move |request| answer(request, Arc::clone(&root)));
    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await
}

async fn answer(request: Request<Incoming>, root: Arc<Path>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (status, body) = match find(request.method(), request.uri().path(), &root).await {
        Ok(bytes) => (StatusCode::OK, Bytes::from(bytes)),
        Err(status) => (status, Bytes::from(format!("{status}\n"))),
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    Ok(response)
}

/// The file's bytes, or why not.
async fn find(method: &Method, path: &str, root: &Path) -> Result<Vec<u8>, StatusCode> {
    if method != Method::GET {
        return Err(StatusCode::METHOD_NOT_ALLOWED);
    }
    let names = plain(path).ok_or(StatusCode::BAD_REQUEST)?;
    let asked = names.iter().fold(root.to_path_buf(), |path, name| path.join(name));
    // Links are followed here, so the answer is where the bytes really lie.
    let file: PathBuf = tokio::fs::canonicalize(asked).await.map_err(status_of)?;
    if !file.starts_with(root) {
        return Err(StatusCode::FORBIDDEN);
    }
    if !tokio::fs::metadata(&file).await.map_err(status_of)?.is_file() {
        return Err(StatusCode::FORBIDDEN);
    }
    tokio::fs::read(file).await.map_err(status_of)
}

fn status_of(error: io::Error) -> StatusCode {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => StatusCode::NOT_FOUND,
        io::ErrorKind::PermissionDenied => StatusCode::FORBIDDEN,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// The names that a request's path is made of; `None` if one of them is not a plain file name.
pub fn plain(path: &str) -> Option<Vec<String>> {
    let names = path.strip_prefix('/')?.split('/').map(decoded);
    names
        .map(|name| {
            let name = name?;
            let odd = name.is_empty() || name == "." || name == ".." || name.contains(['/', '\\', '\0']);
            (!odd).then_some(name)
        })
        .collect()
}

/// Percent-decodes one name (RFC 3986 section 2.1); `None` if it is malformed or not UTF-8.
fn decoded(name: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = tail.get(..2)?;
        let digit = |byte: u8| char::from(byte).to_digit(16);
        bytes.push(u8::try_from(digit(digits[0])? * 16 + digit(digits[1])?).ok()?);
        rest = &tail[2..];
    }
    String::from_utf8(bytes).ok()
}

/// The path of a request for a file below the root: the opposite of [`plain`].
pub fn encoded(relative: &Path) -> Option<String> {
    let mut path = String::new();
    for part in relative.components() {
        path.push('/');
        for byte in part.as_os_str().to_str()?.bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                path.push(char::from(byte));
            } else {
                path.push_str(&format!("%{byte:02X}"));
            }
        }
    }
    Some(path)
}
