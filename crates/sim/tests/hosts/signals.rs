//! Programs that are asked to end.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use sockeye_sim::signal::unix::{SignalKind, signal};
use sockeye_sim::signal::{self, ctrl_c};
use sockeye_sim::{Aborted, Sim, time};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_program_that_waits_for_ctrl_c_gets_it_and_lives() {
    Sim::new(1).tokio().run(|net| async move {
        let host = net.host("h");
        let program = host.spawn(async {
            // In a task of tokio's, as a server's graceful shutdown has it.
            let told = tokio::spawn(async { ctrl_c().await.unwrap() });
            told.await.unwrap();
            tokio::time::sleep(SECOND).await;
            "in order"
        });
        time::sleep(SECOND).await;
        host.ctrl_c();
        assert_eq!(program.await, Ok("in order"));
        host.ctrl_c();
        assert!(host.is_up() && host.spawn(async {}).await.is_ok(), "who has asked once is not ended by it");
    });
}

#[test]
fn a_program_that_does_not_is_killed_until_it_is_started_again() {
    Sim::new(1).run(|net| async move {
        let host = net.host("h");
        let starts = Rc::new(Cell::new(0));
        let counted = Rc::clone(&starts);
        host.program(move || {
            counted.set(counted.get() + 1);
            let number = counted.get();
            async move {
                if number == 2 {
                    signal(SignalKind::terminate()).unwrap().recv().await;
                }
                std::future::pending::<()>().await;
            }
        });
        let other = host.spawn(std::future::pending::<()>());
        host.signal(SignalKind::terminate());
        assert_eq!(other.await, Err(Aborted));
        host.signal(SignalKind::terminate());
        host.restart();
        time::sleep(SECOND).await;
        let other = host.spawn(time::sleep(SECOND));
        host.signal(SignalKind::terminate());
        assert_eq!(other.await, Ok(()), "the second has asked for it");
        let other = host.spawn(time::sleep(SECOND));
        host.ctrl_c();
        assert_eq!(other.await, Err(Aborted), "for that one, not for another");
        host.restart();
        let other = host.spawn(time::sleep(SECOND));
        host.signal(SignalKind::terminate());
        assert_eq!((other.await, starts.get()), (Err(Aborted), 3), "a new process has asked for nothing");
    });
}

#[test]
fn signals_that_are_not_taken_become_one_and_each_receiver_gets_it() {
    Sim::new(1).run(|net| async move {
        let host = net.host("h");
        let counts = [(); 2].map(|()| {
            host.spawn(async {
                let mut hangups = signal(SignalKind::hangup()).unwrap();
                time::sleep(SECOND).await;
                let mut count = 0;
                while time::timeout(SECOND, hangups.recv()).await == Ok(Some(())) {
                    count += 1;
                }
                count
            })
        });
        time::sleep(SECOND / 2).await;
        (0..5).for_each(|_| host.signal(SignalKind::hangup()));
        for count in counts {
            assert_eq!(count.await, Ok(1));
        }
        assert!(signal::ctrl_c().await.is_err(), "the main program is no process");
    });
}

#[test]
fn a_paused_program_ends_when_it_is_resumed() {
    Sim::new(1).run(|net| async move {
        let host = net.host("h");
        let end = host.spawn(time::sleep(SECOND));
        host.pause();
        host.ctrl_c();
        time::sleep(5 * SECOND).await;
        assert!(!end.is_finished());
        host.resume();
        assert_eq!(end.await, Err(Aborted));
    });
}
