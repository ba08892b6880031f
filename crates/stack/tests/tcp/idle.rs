//! An idle stack burns no CPU: nothing wakes its workers, no timer fires, no segment moves.

use crate::common::settings::{GRAINS, Setting};
use std::time::Duration;

use crate::common::{counter, stack_with, watchdog};
use sockeye::Stack;

/// Everything that costs an idle stack something.
fn activity(stack: &Stack) -> [u64; 4] {
    ["worker_sleeps", "timers_fired", "segments_in", "conn_entered"].map(|name| counter(stack, name))
}

/// Waits until nothing has moved for a while; `false` if something always does.
fn falls_silent(stack: &Stack) -> bool {
    // A number of looks and not a time: on a busy machine the threads that have work left need their turn first.
    (0..20).any(|_| {
        let before = activity(stack);
        std::thread::sleep(Duration::from_millis(300));
        activity(stack) == before
    })
}

#[test]
fn a_hundred_idle_connections_cause_no_work() {
    let _guard = watchdog("a_hundred_idle_connections_cause_no_work");
    for grain in GRAINS {
        let stack = stack_with(|c| grain.set(c));
        let pairs: Vec<_> = (0..100).map(|_| crate::common::pair(&stack)).collect();
        for (client, server) in &pairs {
            use std::io::{Read, Write};
            let (mut client, mut server) = (client, server);
            client.write_all(b"once").unwrap();
            server.read_exact(&mut [0; 4]).unwrap();
        }
        assert!(falls_silent(&stack), "{grain:?}: {:?}", activity(&stack));
    }
}

#[test]
fn an_unused_stack_causes_no_work() {
    let _guard = watchdog("an_unused_stack_causes_no_work");
    assert!(falls_silent(&crate::common::stack()));
}

#[test]
fn threads_that_wait_for_ever_cause_no_work() {
    let _guard = watchdog("threads_that_wait_for_ever_cause_no_work");
    let stack = crate::common::stack();
    let (client, server) = crate::common::pair(&stack);
    let reader = std::thread::spawn(move || std::io::Read::read(&mut &server, &mut [0]).unwrap());
    let listener = crate::common::listener(&stack);
    let acceptor = std::thread::spawn(move || drop(listener.accept().unwrap()));
    assert!(falls_silent(&stack));
    assert!(!reader.is_finished() && !acceptor.is_finished());
    drop(client);
    assert_eq!(crate::common::join(reader), 0);
    // The acceptor is left waiting: a blocked accept has no other end than a connection.
    drop(acceptor);
}
