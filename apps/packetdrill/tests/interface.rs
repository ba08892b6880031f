//! The calls that packetdrill makes, made through its struct of C functions: a script's handshake, calls that wait, timers in virtual time.
//!
//! Packets are written and read here by hand, as the other host's. Nothing waits for real time but for threads to fall asleep.
#![cfg(target_os = "linux")]

mod common;

use std::ffi::c_int;
use std::time::Duration;

use common::{ACK, FIN, Host, PSH, RST, SYN, URG, errno};

#[test]
fn a_server_takes_a_connection_and_reads_what_the_peer_sends() {
    let host = Host::new("");
    let (server, isn) = host.accepted();
    host.inject(ACK | PSH, 1, isn + 1, b"hello");
    assert_eq!(host.read(server, 100), Ok(b"hello".to_vec()));
    assert_eq!(host.write(server, b"world"), Ok(5));
    let (data, text) = host.next_with_text();
    assert_eq!((data.seq, data.ack, text), (isn + 1, 6, b"world".to_vec()));
    assert_eq!(host.read(server, 100), Err(libc::EAGAIN), "O_NONBLOCK");
    host.inject(ACK | FIN, 6, isn + 6, b"");
    assert_eq!(host.read(server, 100), Ok(Vec::new()));
    assert_eq!(host.close(server), 0);
    let fin = std::iter::from_fn(|| host.next()).find(|packet| packet.flags & FIN != 0).unwrap();
    assert_eq!(fin.seq, isn + 6);
}

#[test]
fn a_client_connects_without_blocking_and_is_refused_by_a_reset() {
    let host = Host::new("");
    for refused in [false, true] {
        let fd = host.socket(libc::SOCK_NONBLOCK);
        assert_eq!(host.connect(fd), Err(libc::EINPROGRESS));
        assert_eq!(host.connect(fd), Err(libc::EALREADY));
        let syn = host.next().unwrap();
        assert_eq!(syn.flags, SYN);
        assert_eq!(host.poll(fd, libc::POLLOUT), 0);
        let port = syn.src_port;
        if refused {
            host.inject_to(port, ACK | RST, 0, syn.seq + 1, b"");
            assert_eq!(host.poll(fd, libc::POLLOUT) & libc::POLLERR, libc::POLLERR);
            assert_eq!(host.get_int(fd, libc::SOL_SOCKET, libc::SO_ERROR), Ok(libc::ECONNREFUSED));
        } else {
            host.inject_to(port, ACK | SYN, 0, syn.seq + 1, b"");
            assert_eq!(host.next().unwrap().flags, ACK);
            assert_eq!(host.poll(fd, libc::POLLOUT), libc::POLLOUT);
            assert_eq!((host.connect(fd), host.connect(fd)), (Ok(()), Err(libc::EISCONN)));
        }
        assert_eq!(host.close(fd), 0);
        while host.next().is_some() {}
    }
}

#[test]
fn time_outs_are_as_in_the_kernel() {
    let host = Host::new("");
    let timeout = |fd, seconds: i64, micros: i64| {
        let value = [seconds, micros].map(i64::to_ne_bytes).concat();
        host.set(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &value)
    };
    let (server, _) = host.accepted();
    host.set_blocking(server);
    for micros in [-1, 1_000_000] {
        assert_eq!(timeout(server, 0, micros), Err(libc::EDOM));
    }
    for (seconds, waits) in [(-1, Duration::ZERO), (2, Duration::from_secs(2))] {
        assert_eq!(timeout(server, seconds, 0), Ok(()));
        let before = host.time();
        assert_eq!(host.read(server, 1), Err(libc::EAGAIN));
        let waited = host.time() - before;
        assert!(waited.abs_diff(waits) < Duration::from_millis(1), "{seconds}: {waited:?}");
    }
    assert_eq!(timeout(server, i64::MAX, 999_999), Ok(()), "without end");
}

#[test]
fn an_accepted_socket_has_the_time_outs_of_its_listener() {
    let host = Host::new("");
    let listener = host.listener();
    let value = [3i64, 0].map(i64::to_ne_bytes).concat();
    assert_eq!(host.set(listener, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &value), Ok(()));
    let _ = host.shake();
    let server = host.accept(listener).unwrap();
    let before = host.time();
    assert_eq!(host.read(server, 1), Err(libc::EAGAIN));
    let waited = host.time() - before;
    assert!(waited.abs_diff(Duration::from_secs(3)) < Duration::from_millis(1), "{waited:?}");
}

#[test]
fn times_of_keepalive_do_not_turn_it_on() {
    let host = Host::new("");
    let (server, _) = host.accepted();
    for fd in [server, host.socket(0)] {
        for on in [0, 1] {
            assert_eq!(host.set_int(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, on), Ok(()));
            for name in [libc::TCP_KEEPIDLE, libc::TCP_KEEPINTVL, libc::TCP_KEEPCNT] {
                assert_eq!(host.set_int(fd, libc::IPPROTO_TCP, name, 7), Ok(()));
            }
            assert_eq!(host.get_int(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE), Ok(on));
        }
    }
}

#[test]
fn a_read_that_waits_ends_at_the_moment_of_its_segment() {
    let host = Host::new("");
    let (server, isn) = host.accepted();
    host.set_blocking(server);
    let start = host.time();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let got = host.read(server, 100);
            // packetdrill asks for the time on the call's own thread, whenever that runs.
            (got, host.time())
        });
        host.wait_asleep();
        host.sleep(Duration::from_millis(250));
        host.inject(ACK | PSH, 1, isn + 1, b"late");
        host.sleep(Duration::from_secs(30));
        let (got, ended) = reader.join().unwrap();
        assert_eq!(got, Ok(b"late".to_vec()));
        let waited = ended - start;
        assert!(waited >= Duration::from_millis(250) && waited < Duration::from_millis(251), "{waited:?}");
    });
}

#[test]
fn a_write_that_waits_takes_all_and_accept_waits_too() {
    let host = Host::new("sndbuf=4096,sndbuf_max=4096");
    let listener = host.listener();
    std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let fd = host.accept(listener).unwrap();
            let _ = host.time();
            (fd, host.write(fd, &[7; 20_000]))
        });
        host.wait_asleep();
        let isn = host.shake();
        let mut got = 0;
        while got < 20_000 {
            let (packet, text) = host.next_with_text();
            assert_eq!(packet.seq, isn + 1 + got);
            got += text.len() as u32;
            host.inject(ACK, 1, isn + 1 + got, b"");
        }
        assert_eq!(server.join().unwrap().1, Ok(20_000));
    });
}

#[test]
fn a_lost_segment_is_sent_again_at_its_time_and_half_a_minute_takes_no_time() {
    let host = Host::new("");
    let (server, _isn) = host.accepted();
    assert_eq!(host.write(server, b"x"), Ok(1));
    let sent: Vec<Duration> = (0..7).map(|_| host.next_with_text().0.at).collect();
    let gaps: Vec<Duration> = sent.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let doubled =
        gaps.windows(2).skip(1).all(|pair| pair[1].abs_diff(2 * pair[0]) < Duration::from_millis(20));
    assert!(doubled && gaps[5] > Duration::from_secs(2), "{gaps:?}");
}

#[test]
fn epoll_tells_edges_once_and_oneshot_until_it_is_armed_again() {
    let host = Host::new("");
    let (server, isn) = host.accepted();
    let set = host.epoll();
    let edge = (libc::EPOLLIN | libc::EPOLLET) as u32;
    host.epoll_ctl(set, libc::EPOLL_CTL_ADD, server, edge).unwrap();
    assert_eq!(host.epoll_ctl(set, libc::EPOLL_CTL_ADD, server, edge), Err(libc::EEXIST));
    assert_eq!(host.epoll_wait(set, Duration::ZERO), []);
    host.inject(ACK | PSH, 1, isn + 1, b"a");
    assert_eq!(host.epoll_wait(set, Duration::ZERO), [(libc::EPOLLIN as u32, server as u64)]);
    assert_eq!(host.epoll_wait(set, Duration::ZERO), []);
    let once = (libc::EPOLLIN | libc::EPOLLONESHOT) as u32;
    for _ in 0..2 {
        host.epoll_ctl(set, libc::EPOLL_CTL_MOD, server, once).unwrap();
        assert_eq!(host.epoll_wait(set, Duration::ZERO).len(), 1);
        assert_eq!(host.epoll_wait(set, Duration::ZERO), []);
    }
    host.epoll_ctl(set, libc::EPOLL_CTL_DEL, server, 0).unwrap();
    assert_eq!(host.epoll_ctl(set, libc::EPOLL_CTL_DEL, server, 0), Err(libc::ENOENT));
    let before = host.time();
    assert_eq!(host.epoll_wait(set, Duration::from_secs(5)), [], "virtual time: it ends at once");
    assert!(host.time() - before >= Duration::from_secs(5));
}

#[test]
fn splice_moves_bytes_through_a_pipe_and_back_to_the_peer() {
    let host = Host::new("");
    let (server, isn) = host.accepted();
    let [out, into] = host.pipe();
    host.inject(ACK | PSH, 1, isn + 1, b"echo");
    assert_eq!(host.splice(server, into, 100), Ok(4));
    assert_eq!(host.splice(server, into, 100), Err(libc::EAGAIN));
    assert_eq!(host.splice(out, server, 3), Ok(3));
    assert_eq!(host.next_with_text().1, b"ech");
    assert_eq!(host.read(out, 10), Ok(b"o".to_vec()));
    assert_eq!(host.splice(server, server, 1), Err(libc::EINVAL));
}

#[test]
fn splice_does_not_go_past_urgent_text() {
    let host = Host::new("");
    let (server, isn) = host.accepted();
    let [_out, into] = host.pipe();
    // A pointer of zero: the first byte.
    host.inject(ACK | URG, 1, isn + 1, b"!x");
    assert_eq!(host.splice(server, into, 100), Ok(0));
    assert!(host.read(server, 100).is_ok_and(|bytes| bytes.starts_with(b"!")));
}

#[test]
fn options_are_those_of_the_stack_and_others_are_not_there() {
    let host = Host::new("");
    let (server, _isn) = host.accepted();
    assert_eq!(host.set_int(server, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1), Ok(()));
    assert_eq!(host.get_int(server, libc::IPPROTO_TCP, libc::TCP_NODELAY), Ok(1));
    assert_eq!(host.get_int(server, libc::SOL_SOCKET, libc::SO_TYPE), Ok(libc::SOCK_STREAM));
    assert_eq!(host.set_int(server, 77, 1, 1), Err(libc::ENOPROTOOPT));
    assert_eq!(host.get_int(server, 77, 1), Err(libc::ENOPROTOOPT));
    let info = host.get(server, libc::IPPROTO_TCP, libc::TCP_INFO, 280).unwrap();
    assert_eq!((info.len(), info[0]), (280, 1), "TCP_ESTABLISHED");
    let cwnd = u32::from_ne_bytes(info[80..84].try_into().unwrap());
    assert_eq!(cwnd, 10, "tcpi_snd_cwnd");
}

#[test]
fn bad_descriptors_and_bad_memory_are_errors() {
    let host = Host::new("");
    let fd = host.socket(0);
    assert_eq!(host.read(4000, 1), Err(libc::EBADF));
    assert_eq!(host.read(fd, 1), Err(libc::ENOTCONN));
    assert_eq!(host.write(fd, b"x"), Err(libc::EPIPE));
    let (server, _isn) = host.accepted();
    // SAFETY: the adapter lets the kernel check the address.
    let sent = unsafe { (host.ifc.write)(host.ifc.userdata, server, std::ptr::without_provenance(8), 4) };
    assert_eq!((sent, errno()), (-1, libc::EFAULT));
    assert_eq!(host.close(server), 0);
    assert_eq!((host.close(server), errno()), (-1, libc::EBADF));
}

#[test]
fn the_calls_that_go_to_libc_know_our_descriptors() {
    use sockeye_packetdrill::interpose;
    let host = Host::new("");
    let (server, isn) = host.accepted();
    let mut len = 4_u32;
    let mut value = [0_u8; 4];
    let into = value.as_mut_ptr().cast();
    assert_eq!(interpose::getsockopt(server, libc::SOL_SOCKET, libc::SO_TYPE, into, &raw mut len), Some(0));
    assert_eq!(i32::from_ne_bytes(value), libc::SOCK_STREAM);
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    let from = std::os::fd::AsRawFd::as_raw_fd(&file);
    assert_eq!(interpose::sendfile(server, from, std::ptr::null_mut(), 4), Some(4));
    assert_eq!(host.next_with_text().1, b"\x7fELF");
    assert_eq!(interpose::close(from), None, "a file of the kernel's");
    host.inject(ACK, 1, isn + 5, b"");
    assert_eq!(interpose::close(server), Some(0));
    assert_eq!(interpose::close(server), None);
}

#[test]
fn without_any_timer_a_wait_for_a_packet_ends_and_fails() {
    let host = Host::new("");
    let _listener: c_int = host.listener();
    assert!(host.next().is_none());
}
