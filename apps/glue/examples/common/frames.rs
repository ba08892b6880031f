//! Messages on a connection: frames of JSON, each with its length before it.

use std::io;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

const FRAME_BYTES_MAX: u32 = 16 << 20;

pub async fn send(stream: &mut (impl AsyncWrite + Unpin), message: &impl Serialize) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    let len = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    stream.write_all(&[&len.to_be_bytes()[..], &bytes].concat()).await
}

pub async fn receive<M: DeserializeOwned>(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<M> {
    let len = stream.read_u32().await?;
    if len > FRAME_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a frame is too long"));
    }
    let mut bytes = vec![0; len as usize];
    stream.read_exact(&mut bytes).await?;
    Ok(serde_json::from_slice(&bytes)?)
}
