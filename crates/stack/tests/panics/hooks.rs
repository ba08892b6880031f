//! Hooks: of SYNs, and of the driver of a stack without threads.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use sockeye::netif::{SendError, WireConfig, channel};
use sockeye::{PanicSource, Stack, Syn, TcpListener, TcpSocket, TcpStream};

use crate::common::{self, counter, eventually};
use crate::lab::Lab;
use crate::{LONG, PanicsInDrop, Reports, in_time};

/// A hook that panics the first time and then accepts.
fn panics_once() -> impl Fn(Syn) + Send + Sync {
    let calls = AtomicUsize::new(0);
    move |syn| {
        assert!(calls.fetch_add(1, Ordering::Relaxed) > 0, "the first SYN");
        syn.accept();
    }
}

/// A connect that does not wait.
fn start(stack: &Stack, listener: &TcpListener) -> TcpStream {
    let mut socket = TcpSocket::new_v4(stack);
    socket.set_nonblocking(true);
    socket.connect(listener.local_addr().unwrap()).unwrap()
}

#[test]
fn a_syn_hook_that_panics_ends_neither_the_input_thread_nor_its_own_use() {
    let lab = Lab::new(&WireConfig::default(), |c| c.tcp.syn_retries = 1);
    let reports = Reports::of(&lab.stacks[1]);
    let (plain, hooked) = (lab.listener(), lab.listener());
    hooked.set_syn_hook(Some(Box::new(panics_once())));
    let _ignored = start(&lab.stacks[0], &hooked);
    eventually("the hook is called", || counter(&lab.stacks[1], "panics_foreign") == 1);
    for listener in [&plain, &hooked] {
        let client = TcpStream::connect_on(&lab.stacks[0], listener.local_addr().unwrap()).unwrap();
        assert_eq!(listener.accept().unwrap().1, client.local_addr().unwrap());
    }
    assert_eq!(reports.all(), [(PanicSource::Hook, "a SYN hook")]);
}

#[test]
fn a_syn_hook_that_panics_does_not_change_the_result_of_the_caller() {
    let stack = common::stack_with(|c| c.workers = 0);
    let listener = TcpListener::bind_on(&stack, "127.0.0.1:0").unwrap();
    listener.set_syn_hook(Some(Box::new(panics_once())));
    let client = start(&stack, &listener);
    assert_eq!(counter(&stack, "panics_foreign"), 1);
    // The SYN was dropped and is repeated, by a timer.
    stack.poll(Duration::from_secs(2));
    listener.set_nonblocking(true).unwrap();
    assert_eq!(listener.accept().unwrap().1, client.local_addr().unwrap());
}

#[test]
fn a_syn_hook_that_blocks_holds_up_its_own_call_only() {
    in_time("a hook that blocks", || {
        let stack = common::stack();
        let hooked = TcpListener::bind_on(&stack, "127.0.0.1:0").unwrap();
        let (enter, entered) = mpsc::channel();
        let (leave, left) = mpsc::channel::<()>();
        let both = Mutex::new((enter, left));
        hooked.set_syn_hook(Some(Box::new(move |syn: Syn| {
            let both = both.lock().unwrap();
            both.0.send(()).unwrap();
            let _ = both.1.recv();
            syn.refuse();
        })));
        let addr = hooked.local_addr().unwrap();
        let blocked = {
            let stack = stack.clone();
            std::thread::spawn(move || TcpStream::connect_on(&stack, addr).unwrap_err().kind())
        };
        entered.recv().unwrap();
        // All tables can be changed meanwhile, the listener's own entries too.
        let _pair = common::pair(&stack);
        assert!(!stack.sockets(true).is_empty());
        drop(hooked);
        drop(leave);
        assert_eq!(blocked.join().unwrap(), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn a_syn_hook_may_close_its_listener_and_drop_the_last_handle_on_an_input_thread() {
    let lab = Lab::new(&WireConfig::default(), |c| c.tcp.syn_retries = 1);
    let [client, server] = lab.stacks;
    let (netif, ports) = channel(&Default::default()).unwrap();
    server.attach(netif, &["10.8.0.1/24".parse().unwrap()]).unwrap();
    let listener = TcpListener::bind_on(&server, "10.9.0.2:0").unwrap();
    let all = Arc::new(Mutex::new(None));
    let last = Arc::clone(&all);
    listener.set_syn_hook(Some(Box::new(move |_: Syn| drop(last.lock().unwrap().take()))));
    let addr = listener.local_addr().unwrap();
    *all.lock().unwrap() = Some((listener, server));
    let mut socket = TcpSocket::new_v4(&client);
    socket.set_nonblocking(true);
    let _unanswered = socket.connect(addr).unwrap();
    eventually("the interfaces are closed", || ports[0].try_send(&[0x45u8][..]) == Err(SendError::Detached));
}

#[test]
fn values_captured_by_a_hook_may_panic_when_dropped() {
    let stack = common::stack_with(|c| c.workers = 0);
    let reports = Reports::of(&stack);
    let listener = TcpListener::bind_on(&stack, "127.0.0.1:0").unwrap();
    let of_syns = |held: PanicsInDrop| {
        move |_: Syn| {
            let _held = &held;
        }
    };
    listener.set_syn_hook(Some(Box::new(of_syns(PanicsInDrop))));
    listener.set_syn_hook(Some(Box::new(of_syns(PanicsInDrop))));
    drop(listener);
    let of_driver = |held: PanicsInDrop| {
        move || {
            let _held = &held;
        }
    };
    stack.set_driver_wake(Some(of_driver(PanicsInDrop)));
    stack.set_driver_wake(Some(of_driver(PanicsInDrop)));
    let (syn, driver) = ("drop of a SYN hook", "drop of a driver's hook");
    assert_eq!(reports.all(), [syn, syn, driver].map(|place| (PanicSource::Hook, place)));
    // The last one is dropped with the stack.
    drop(stack);
    assert_eq!(reports.all().len(), 4);
}

#[test]
fn a_hook_that_panics_may_have_replaced_itself_and_panic_again_when_it_is_dropped() {
    let stack = common::stack_with(|c| c.workers = 0);
    let listener = Arc::new(TcpListener::bind_on(&stack, "127.0.0.1:0").unwrap());
    let (own, held) = (Arc::downgrade(&listener), PanicsInDrop);
    listener.set_syn_hook(Some(Box::new(move |_: Syn| {
        let _held = &held;
        own.upgrade().unwrap().set_syn_hook(None);
        panic!("in the hook");
    })));
    let _client = start(&stack, &listener);
    assert_eq!(counter(&stack, "panics_foreign"), 2);
}

#[test]
fn the_hook_of_a_driver_is_called_without_locks_and_may_use_the_whole_stack() {
    in_time("a driver's hook that calls the stack", || {
        let stack = common::stack_with(|c| c.workers = 0);
        let calls = Arc::new(AtomicUsize::new(0));
        let (inner, called) = (stack.clone(), Arc::clone(&calls));
        stack.poll(Duration::ZERO);
        stack.set_driver_wake(Some(move || {
            called.fetch_add(1, Ordering::Relaxed);
            // Every shard of the table, every socket lock and the lists of names.
            assert!(!inner.sockets(true).is_empty());
            drop(TcpListener::bind_on(&inner, "127.0.0.1:0").unwrap());
            inner.poll(Duration::ZERO);
        }));
        let listener = TcpListener::bind_on(&stack, "127.0.0.1:0").unwrap();
        let client = start(&stack, &listener);
        let server = listener.accept().unwrap().0;
        // TIME-WAIT asks for a timer with the lock of its shard held.
        drop(client);
        drop(server);
        assert!(calls.load(Ordering::Relaxed) >= 2, "{calls:?}");
        assert_eq!(counter(&stack, "panics_foreign"), 0);
        stack.set_driver_wake(None::<fn()>);
    });
}

#[test]
fn the_hook_of_a_driver_may_panic_and_is_called_again_after_the_next_answer() {
    let stack = common::stack_with(|c| c.workers = 0);
    let reports = Reports::of(&stack);
    stack.set_driver_wake(Some(|| panic!("in the driver's hook")));
    let listener = TcpListener::bind_on(&stack, "127.0.0.1:0").unwrap();
    let mut streams = Vec::new();
    for round in 1..=2 {
        // Later than every timer, so that the next one is earlier than the answer.
        while stack.poll(Duration::from_secs(600 * round)).is_some() {}
        streams.push(start(&stack, &listener));
        streams.push(listener.accept().unwrap().0);
        let expected = vec![(PanicSource::Hook, "a driver's hook"); round as usize];
        assert_eq!(reports.all(), expected, "{round}");
    }
}

#[test]
fn a_panic_hook_may_block_without_blocking_other_threads() {
    in_time("a panic hook that blocks", || {
        let stack = common::stack_with(|c| c.workers = 0);
        let (leave, left) = mpsc::channel::<()>();
        let left = Mutex::new(left);
        let (enter, entered) = mpsc::channel();
        stack.set_panic_hook(Some(move |_: &sockeye::PanicReport| {
            enter.send(()).unwrap();
            let _ = left.lock().unwrap().recv_timeout(LONG);
        }));
        let listener = TcpListener::bind_on(&stack, "127.0.0.1:0").unwrap();
        listener.set_syn_hook(Some(Box::new(panics_once())));
        std::thread::scope(|scope| {
            let blocked = scope.spawn(|| start(&stack, &listener));
            entered.recv().unwrap();
            let _other = TcpListener::bind_on(&stack, "127.0.0.1:0").unwrap();
            assert!(!stack.sockets(true).is_empty());
            drop(leave);
            blocked.join().unwrap();
        });
    });
}
