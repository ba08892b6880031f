//! Stacks for simulations: seeded, ambient, and looked into.

use std::io::ErrorKind;

use sockeye::{Config, Stack, TcpListener, TcpSocket, TcpStream};

fn driven() -> Config {
    Config { workers: 0, ..Config::default() }
}

/// The part of a stack's secrets that a peer could observe: the ports that it chooses.
fn ports(stack: &Stack) -> Vec<u16> {
    let listener = TcpListener::bind_on(stack, "127.0.0.1:80").unwrap();
    let connect = |_| {
        let mut socket = TcpSocket::new_v4(stack);
        socket.set_nonblocking(true);
        socket.connect(listener.local_addr().unwrap()).unwrap().local_addr().unwrap().port()
    };
    (0..8).map(connect).collect()
}

#[test]
fn a_seed_determines_a_stacks_random_numbers_on_any_thread() {
    let of = |seed: u8| ports(&Stack::seeded(driven(), [seed; 16]).unwrap());
    let first = of(1);
    assert_eq!(first, of(1));
    assert_ne!(first, of(2));
    let elsewhere = std::thread::spawn(move || of(1)).join().unwrap();
    assert_eq!(first, elsewhere);
    assert_ne!(ports(&Stack::new(driven()).unwrap()), ports(&Stack::new(driven()).unwrap()));
}

#[test]
fn a_seeded_stack_has_no_threads() {
    let error = Stack::seeded(Config { workers: 1, ..Config::default() }, [0; 16]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("workers"), "{error}");
}

#[test]
fn a_scope_sets_the_default_stack_until_it_ends() {
    let (outer, inner) = (Stack::new(driven()).unwrap(), Stack::new(driven()).unwrap());
    outer.scope(|| {
        let listener = TcpListener::bind("127.0.0.1:7000").unwrap();
        inner.scope(|| TcpListener::bind("127.0.0.1:7000").expect("another stack, another port 7000"));
        // A panic ends a scope too.
        let _ =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| inner.scope(|| panic!("on purpose"))));
        let again = TcpListener::bind("127.0.0.1:7000").unwrap_err();
        assert_eq!(again.kind(), ErrorKind::AddrInUse, "the outer stack is the current one again");
        drop(listener);
    });
    assert_eq!(TcpListener::bind_on(&outer, "127.0.0.1:7000").unwrap().local_addr().unwrap().port(), 7000);
}

#[test]
fn info_reports_the_state_and_windows_of_a_connection() {
    let stack = Stack::new(Config::default()).unwrap();
    let listener = TcpListener::bind_on(&stack, "127.0.0.1:0").unwrap();
    let client = TcpStream::connect_on(&stack, listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    std::io::Write::write_all(&mut &client, &[1; 5000]).unwrap();
    let info = client.info().unwrap();
    assert_eq!((info.state, info.not_sent), ("ESTABLISHED", 0));
    assert!(info.cwnd >= info.snd_mss && info.snd_mss > 1000 && info.in_flight <= 5000, "{info:?}");
    assert!(info.rto >= stack.config().tcp.rto_min && info.snd_wnd > 0, "{info:?}");
    let window = server.info().unwrap().rcv_wnd;
    assert!(window > 0 && window as usize <= server.recv_buffer_size().unwrap(), "{window}");
}
