//! A key-value protocol over TCP, written for this bench: one connection, one request at a time.
//!
//! A request is an operation, a key, and the length and bytes of a value; an answer is the length and bytes of a value, empty for a key that is not there. Numbers
//! are big-endian. A call is counted when its answer has been read and is the right one.
//!
//! Does not depend on the simulator. Tests: `tests/samples.rs`.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::net::Net;

/// The port of a server.
pub const PORT: u16 = 7000;
/// Bytes of a value.
const VALUE_LEN: usize = 64;
/// The longest value that a server takes, bytes.
const VALUE_LEN_MAX: usize = 1 << 20;
/// Keys that a client uses.
const KEYS: u32 = 16;
const GET: u8 = 0;
const SET: u8 = 1;

type Table = Arc<Mutex<HashMap<u32, Vec<u8>>>>;

/// Accepts connections and answers their requests.
pub async fn serve<N: Net>() -> io::Result<()> {
    let listener = N::bind(PORT).await?;
    let table = Table::default();
    loop {
        let stream = N::accept(&listener).await?;
        let table = Arc::clone(&table);
        N::spawn(async move {
            // The client reports how a connection ends.
            let _ = answer::<N>(stream, table).await;
        });
    }
}

async fn answer<N: Net>(mut stream: N::Stream, table: Table) -> io::Result<()> {
    let mut head = [0; 9];
    loop {
        stream.read_exact(&mut head).await?;
        let [op, k0, k1, k2, k3, l0, l1, l2, l3] = head;
        let key = u32::from_be_bytes([k0, k1, k2, k3]);
        let len = u32::from_be_bytes([l0, l1, l2, l3]) as usize;
        if len > VALUE_LEN_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut value = vec![0; len];
        stream.read_exact(&mut value).await?;
        let found = match op {
            SET => table.lock().unwrap().insert(key, value),
            _ => table.lock().unwrap().get(&key).cloned(),
        };
        stream.write_all(&message(&[], &found.unwrap_or_default())).await?;
    }
}

/// Makes so many calls to a server, one after the other: a value is set, and the next call reads it.
pub async fn call<N: Net>(server: String, count: u32) -> io::Result<()> {
    let mut stream = N::connect(server, PORT).await?;
    let mut kept: HashMap<u32, Vec<u8>> = HashMap::new();
    for number in 0..count {
        let key = number / 2 % KEYS;
        let value = match number % 2 {
            0 => number.to_be_bytes().repeat(VALUE_LEN / 4),
            _ => Vec::new(),
        };
        let op = if value.is_empty() { GET } else { SET };
        let [k0, k1, k2, k3] = key.to_be_bytes();
        stream.write_all(&message(&[op, k0, k1, k2, k3], &value)).await?;
        let expected = match op {
            SET => kept.insert(key, value).unwrap_or_default(),
            _ => kept[&key].clone(),
        };
        let len = stream.read_u32().await? as usize;
        if len != expected.len() {
            return Err(io::Error::other(format!("call {number}: {len} bytes")));
        }
        let mut found = vec![0; len];
        stream.read_exact(&mut found).await?;
        if found != expected {
            return Err(io::Error::other(format!("call {number}: another value")));
        }
    }
    Ok(())
}

/// A head, and a value with its length before it, for one write.
fn message(head: &[u8], value: &[u8]) -> Vec<u8> {
    let len = u32::try_from(value.len()).expect("a value is short");
    [head, &len.to_be_bytes(), value].concat()
}
