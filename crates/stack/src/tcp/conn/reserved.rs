//! Room in `so_snd` that a writer has reserved for a copy outside of the socket lock, and gives back.
//!
//! Meanwhile others find none and wait: threads, tasks and pollers. When the copy ends short, for want of memory, nothing that the peer
//! does will notify them, so the writer does, in the section that gives the room back. If the socket is not writable all the same, its
//! buffer is in flight or in other writers' hands, and they bring the wake.
//!
//! Does not depend on why a copy ends short. Rank: the socket lock, which is let go to wake. Tests: below.

use sockeye_sync::facade::Arc;
use sockeye_sync::reserved::Reservation;

use super::outbox::Context;
use super::{Conn, Locked, contain, engine, serve};
use crate::tcp::Core;

/// Gives back the room reserved for a copy, of which `copied` bytes came about.
#[inline]
pub(super) fn give_back<'c>(
    core: &Core,
    conn: &'c Arc<Conn>,
    mut so: Locked<'c>,
    (reservation, copied): (Reservation, usize),
) -> Locked<'c> {
    let is_short = so.snd.reserved.give_back(reservation, copied);
    if is_short && so.snd.is_writable() { notify(core, conn, so) } else { so }
}

#[cold]
fn notify<'c>(core: &Core, conn: &'c Arc<Conn>, mut so: Locked<'c>) -> Locked<'c> {
    Context::run(core, |cx| {
        let _or_ended = contain::guarded(cx, conn, &mut so, "write", |cx, _, conn, so| {
            engine::wake_writers(cx, conn, so);
        });
        serve::let_go(cx, conn, so, 0);
    });
    conn.so.enter()
}

#[cfg(all(test, feature = "tokio"))]
mod tests {
    use std::future::{Future, poll_fn};
    use std::pin::Pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context as TaskContext, Wake, Waker};
    use std::time::Duration;

    use sockeye_mbuf::{Chain, Exhausted, Pool};

    use super::super::transfer::Source;
    use super::super::user::{Refusal, Rest, append};
    use ::tokio::io::AsyncWrite;

    use crate::Config;
    use crate::Stack;
    use crate::TcpListener;
    use crate::TcpStream;
    use crate::rt::poll::{Events, Interest, Poll, Token, Trigger};

    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    type Task<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

    /// The source of a writer that has reserved room. Other writers find no room and wait; then the copy fails for lack of memory.
    struct Fails<'a> {
        stream: &'a TcpStream,
        polls: &'a [Poll; 2],
        tasks: Vec<(Task<'a>, Waker)>,
        thread: Box<dyn FnMut() + 'a>,
    }

    impl Source for Fails<'_> {
        const LOCKED_MAX: usize = 0;
        type Mark = ();
        fn len(&self) -> usize {
            65_536
        }
        fn take(&mut self, _: &Pool, _: usize, _: &mut Chain) -> Result<(), Exhausted> {
            for (task, waker) in &mut self.tasks {
                assert!(task.as_mut().poll(&mut TaskContext::from_waker(waker)).is_pending());
            }
            for (poll, trigger) in self.polls.iter().zip([Trigger::Level, Trigger::Edge]) {
                poll.register(self.stream, Token(0), Interest::WRITABLE, trigger).unwrap();
                let mut events = Events::with_capacity(4);
                assert_eq!(poll.wait(&mut events, Some(Duration::ZERO)).unwrap(), 0);
            }
            (self.thread)();
            Err(Exhausted)
        }
        fn mark(&self) {}
        fn reset(&mut self, (): ()) {}
    }

    #[test]
    fn a_waiter_for_room_is_notified_when_reserved_room_is_returned() {
        let stack = Stack::new(Config { sndbuf: 65_536, ..Config::default() }).unwrap();
        let listener = TcpListener::bind_on(&stack, "127.0.0.1:0").unwrap();
        let client = TcpStream::connect_on(&stack, listener.local_addr().unwrap()).unwrap();
        let _server = listener.accept().unwrap();
        let face = crate::tokio::TcpStream::from_std(client.try_clone().unwrap()).unwrap();
        let mut polled = crate::tokio::TcpStream::from_std(client.try_clone().unwrap()).unwrap();
        let counts = [(); 3].map(|()| std::sync::Arc::new(Count(AtomicUsize::new(0))));
        let wakers = counts.clone().map(Waker::from);
        let poll_function = poll_fn(move |cx| Pin::new(&mut polled).poll_write(cx, b"x").map(drop));
        let writable = || async { face.writable().await.unwrap() };
        let tasks: [Task<'_>; 3] = [Box::pin(writable()), Box::pin(writable()), Box::pin(poll_function)];
        let polls = [(); 2].map(|()| Poll::new(Duration::ZERO));
        let conn = client.conn().unwrap();
        let ticket = std::cell::Cell::new(None);
        let fails = Fails {
            stream: &client,
            polls: &polls,
            tasks: tasks.into_iter().zip(wakers).collect(),
            thread: Box::new(|| {
                let _so = conn.so.lock();
                ticket.set(Some(conn.snd_wait.prepare()));
            }),
        };
        let mut rest = Rest::of(fails);
        let (core, ends) = client.sending().unwrap();
        let refused = append(core, &ends, &mut rest);
        assert!(matches!(refused, Err(Refusal::NoMemory)));
        assert_eq!(counts.map(|count| count.0.load(Ordering::Relaxed)), [1; 3], "tasks, and a poll function");
        for poll in &polls {
            let mut events = Events::with_capacity(4);
            assert_eq!(poll.wait(&mut events, Some(Duration::ZERO)).unwrap(), 1, "the pollers");
        }
        assert!(ticket.get().is_some_and(|ticket| conn.snd_wait.is_over(ticket)), "the thread");
    }
}
