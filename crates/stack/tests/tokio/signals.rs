//! Signals: the process's, and those of a stack's source.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::common::watchdog;
use sockeye::tokio::signal::unix::{SignalKind, signal};
use sockeye::tokio::signal::{ctrl_c, unix};
use sockeye::{PanicReport, PanicSource, SignalStream, Signals, Stack};

const COMING: Duration = Duration::from_secs(60);
const NOT_COMING: Duration = Duration::from_millis(50);

/// A source that sends what a test tells it to.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    asked: Vec<i32>,
    sent: usize,
    is_over: bool,
    dropped: usize,
    waker: Option<Waker>,
}

impl Told {
    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.0.lock().unwrap();
        change(&mut state);
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }
}

impl Signals for Told {
    fn catch(&self, _: &Stack, kind: i32) -> io::Result<Box<dyn SignalStream>> {
        let mut state = self.0.lock().unwrap();
        if kind == SignalKind::hangup().as_raw_value() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "no hangups here"));
        }
        state.asked.push(kind);
        Ok(Box::new(Receiver(self.clone())))
    }
}

struct Receiver(Told);

impl SignalStream for Receiver {
    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<()>> {
        let mut state = self.0.0.lock().unwrap();
        if state.sent > 0 {
            state.sent -= 1;
            return Poll::Ready(Some(()));
        }
        if state.is_over {
            return Poll::Ready(None);
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.0.0.lock().unwrap().dropped += 1;
    }
}

/// A stack with a source.
fn stack(signals: impl Signals + 'static) -> Stack {
    let stack = crate::common::stack();
    stack.set_signals(Some(Box::new(signals)));
    stack
}

fn asked(stack: &Stack, kind: SignalKind) -> io::Result<unix::Signal> {
    stack.scope(|| signal(kind))
}

#[tokio::test]
async fn a_stack_without_a_source_has_the_processs_signals() {
    let _guard = watchdog("a_stack_without_a_source");
    let told = Told::default();
    let stack = stack(told.clone());
    let mut own = asked(&stack, SignalKind::user_defined1()).unwrap();
    // Without a stack, on a stack that never had a source, and on one that has none any more.
    let nobodys = signal(SignalKind::user_defined1()).unwrap();
    let plain = asked(&crate::common::stack(), SignalKind::user_defined1()).unwrap();
    stack.set_signals(None);
    let former = asked(&stack, SignalKind::user_defined1()).unwrap();
    let process = rustix::process::getpid();
    rustix::process::kill_process(process, rustix::process::Signal::USR1).unwrap();
    for mut signals in [nobodys, plain, former] {
        assert_eq!(tokio::time::timeout(COMING, signals.recv()).await, Ok(Some(())));
    }
    assert!(
        tokio::time::timeout(NOT_COMING, own.recv()).await.is_err(),
        "it keeps to the source that it has asked"
    );
    told.change(|state| state.sent = 1);
    assert_eq!(tokio::time::timeout(COMING, own.recv()).await, Ok(Some(())));
}

#[tokio::test]
async fn a_source_is_asked_wakes_ends_and_is_told_who_is_gone() {
    let _guard = watchdog("a_source_is_asked");
    let told = Told::default();
    let stack = stack(told.clone());
    let mut signals = asked(&stack, SignalKind::terminate()).unwrap();
    let receiver = tokio::spawn(async move {
        let mut count = 0;
        while signals.recv().await.is_some() {
            count += 1;
        }
        count
    });
    for _ in 0..3 {
        told.change(|state| state.sent += 1);
        while told.0.lock().unwrap().sent > 0 {
            tokio::task::yield_now().await;
        }
    }
    told.change(|state| state.is_over = true);
    assert_eq!(tokio::time::timeout(COMING, receiver).await.unwrap().unwrap(), 3);
    let state = told.0.lock().unwrap();
    assert_eq!(
        (state.asked.as_slice(), state.dropped),
        ([SignalKind::terminate().as_raw_value()].as_slice(), 1)
    );
}

#[test]
fn ctrl_c_needs_no_runtime_where_there_is_a_source() {
    let _guard = watchdog("ctrl_c_needs_no_runtime");
    let told = Told::default();
    told.change(|state| state.sent = 1);
    stack(told.clone()).scope(|| pollster::block_on(ctrl_c())).unwrap();
    assert_eq!(told.0.lock().unwrap().asked, [SignalKind::interrupt().as_raw_value()]);
}

#[test]
fn errors_name_what_cannot_be_caught_or_come_from_the_source() {
    let told = Told::default();
    let stack = stack(told.clone());
    for number in [9, 19, 11, 0, -1] {
        let error = asked(&stack, SignalKind::from_raw(number)).unwrap_err();
        assert_eq!(error.to_string(), format!("signal {number} cannot be caught"));
    }
    let error = asked(&stack, SignalKind::hangup()).unwrap_err();
    assert_eq!((error.kind(), error.to_string()), (io::ErrorKind::Unsupported, "no hangups here".into()));
    assert!(told.0.lock().unwrap().asked.is_empty());
}

/// Panics in the call of this number.
struct Panics {
    at: usize,
    calls: Arc<AtomicUsize>,
}

impl Panics {
    fn call(&self) {
        assert!(self.calls.fetch_add(1, Ordering::Relaxed) != self.at, "a source of signals");
    }
}

impl Signals for Panics {
    fn catch(&self, _: &Stack, _: i32) -> io::Result<Box<dyn SignalStream>> {
        self.call();
        Ok(Box::new(Self { at: self.at, calls: Arc::clone(&self.calls) }))
    }
}

impl SignalStream for Panics {
    fn poll_recv(&mut self, _: &mut Context<'_>) -> Poll<Option<()>> {
        self.call();
        Poll::Ready(Some(()))
    }
}

impl Drop for Panics {
    fn drop(&mut self) {
        if self.at == 2 && !std::thread::panicking() {
            panic!("a drop of the source's");
        }
    }
}

#[test]
fn panics_of_a_source_are_caught_and_end_what_was_asked_for() {
    let _guard = watchdog("panics_of_a_source");
    let poll = |signals: &mut unix::Signal| signals.poll_recv(&mut Context::from_waker(Waker::noop()));
    let calls = || Arc::new(AtomicUsize::new(0));
    let reports = Arc::new(Mutex::new(Vec::new()));

    let reported = Arc::clone(&reports);
    let stack_of = |at| {
        let reported = Arc::clone(&reported);
        let stack = stack(Panics { at, calls: calls() });
        stack.set_panic_hook(Some(move |report: &PanicReport| {
            assert_eq!(report.source, PanicSource::Hook);
            reported.lock().unwrap().push(report.place);
        }));
        stack
    };
    let error = asked(&stack_of(0), SignalKind::quit()).unwrap_err();
    assert_eq!(error.to_string(), "the source of signals panicked");

    let mut signals = asked(&stack_of(1), SignalKind::quit()).unwrap();
    assert_eq!((poll(&mut signals), poll(&mut signals)), (Poll::Ready(None), Poll::Ready(None)));

    let dropped = stack_of(2);
    let signals = asked(&dropped, SignalKind::quit()).unwrap();
    drop(signals);
    dropped.set_signals(None);
    drop(dropped);
    assert_eq!(*reports.lock().unwrap(), ["Signals::catch", "SignalStream::poll_recv"]);
}
