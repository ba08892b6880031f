//! The behaviour that every provider must have, as tests over any of them.
//!
//! Purpose: both sides mean the same by the same call; the providers' own tests run these.

use std::io;
use std::time::Duration;

use crate::provider::{Listener, Poller, Provider, Stream};

/// A connection's client and server end.
pub fn pair<P: Provider>(provider: &P) -> (P::Stream, P::Stream) {
    let listener = provider.listen().unwrap();
    let client = provider.connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap())
}

/// A poller reports unread bytes as long as they are unread, and nothing before.
pub fn readiness_is_level_triggered<P: Provider>(provider: &P) {
    let (client, server) = pair(provider);
    let mut poller = provider.poller().unwrap();
    poller.register(&server, 7).unwrap();
    assert!(ready(&mut poller, Duration::from_millis(1)).is_empty(), "nothing was sent yet");
    client.write_all(b"ping").unwrap();
    for _ in 0..2 {
        assert_eq!(ready(&mut poller, Duration::from_secs(5)), [7]);
    }
    let mut buf = [0; 4];
    server.read_exact(&mut buf).unwrap();
    assert_eq!(&buf, b"ping");
    assert!(ready(&mut poller, Duration::from_millis(1)).is_empty(), "all was read");
}

/// After the peer has closed, a read that needs more bytes fails.
pub fn a_closed_peer_ends_the_stream<P: Provider>(provider: &P) {
    let (client, server) = pair(provider);
    drop(client);
    let error = server.read_exact(&mut [0; 1]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
}

fn ready(poller: &mut impl Poller, timeout: Duration) -> Vec<usize> {
    let mut tokens = Vec::new();
    let collect = |token| {
        tokens.push(token);
        Ok(())
    };
    poller.wait(timeout, collect).unwrap();
    tokens
}
