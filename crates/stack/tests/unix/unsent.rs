//! SIOCOUTQ, without a comparison with the kernel, which also counts its own overhead. The documented meaning is
//! the number of bytes that the peer has not received yet.

use crate::common::settings::{Setting, UnixLocking};
use sockeye::unix::{UnixDatagram, UnixSeqpacket, UnixStream};

use crate::common;

#[test]
fn sent_bytes_count_as_unsent_until_the_peer_receives_them() {
    use std::io::{Read, Write};
    for locking in UnixLocking::ALL {
        let stack = common::stack_with(|config| locking.set(config));
        let (mut a, mut b) = UnixStream::pair_on(&stack).unwrap();
        assert_eq!(a.bytes_unsent().unwrap(), 0);
        a.write_all(b"abcdef").unwrap();
        assert_eq!((a.bytes_unsent().unwrap(), b.bytes_unsent().unwrap()), (6, 0));
        b.read_exact(&mut [0; 2]).unwrap();
        assert_eq!((a.bytes_unsent().unwrap(), b.bytes_readable().unwrap()), (4, 4));
        b.read_exact(&mut [0; 4]).unwrap();
        assert_eq!(a.bytes_unsent().unwrap(), 0);

        let (a, b) = UnixSeqpacket::pair_on(&stack).unwrap();
        a.send(b"abc").unwrap();
        a.send(b"de").unwrap();
        assert_eq!(a.bytes_unsent().unwrap(), 5);
        b.recv(&mut [0; 1]).unwrap();
        assert_eq!(a.bytes_unsent().unwrap(), 2);
        drop(b);
        assert_eq!(a.bytes_unsent().unwrap(), 0);

        let (a, b) = UnixDatagram::pair_on(&stack).unwrap();
        a.send(b"abc").unwrap();
        a.send(b"de").unwrap();
        b.send(b"x").unwrap();
        assert_eq!((a.bytes_unsent().unwrap(), b.bytes_unsent().unwrap()), (5, 1));
        b.recv(&mut [0; 8]).unwrap();
        assert_eq!(a.bytes_unsent().unwrap(), 2);
    }
}
