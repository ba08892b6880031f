//! Generated cases: random sequences of calls, one by one on the kernel and on Sockeye.
//!
//! Purpose: proptest generates sequences of calls on a few sockets and names; each call is made on both
//! sides and the answers are compared at once. Calls that the library's types cannot express are left out on
//! both sides, so that both stay in the same state. The sequences are the same in every run
//! (`SOCKEYE_TEST_SCALE` scales their number); proptest shrinks a failure, which is shown as a transcript.
//!
//! Invariants: nothing blocks; so little is sent that no buffer's size matters; a socket that is passed
//! never carries one itself, so nothing waits for the kernel's collector, which runs at any time.

use crate::common::settings::{Setting, UnixLocking};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

use crate::common;
use crate::compare::difference;
use crate::kernel::Kernel;
use crate::ours::Ours;
use crate::provider::{KINDS, Kind, Name, Provider, Side, hidden, path};
use crate::script::Run;

/// One of the sockets that carry, by number.
type Slot = usize;

#[derive(Clone, Debug)]
enum Call {
    Socket(Kind, Slot),
    Pair(Kind, Slot, Slot),
    /// Two new ends of the kind that is only passed along.
    Cargo(Kind),
    Bind(Slot, Name),
    Listen(Slot),
    Connect(Slot, Name),
    Disconnect(Slot),
    Accept(Slot, Slot),
    LocalName(Slot),
    PeerName(Slot),
    Unlink(Name),
    Send(Slot, usize),
    SendTo(Slot, usize, Name),
    SendRights(Slot, usize, Vec<usize>),
    Receive(Slot, usize),
    ReceiveRights(Slot, usize, usize),
    Peek(Slot, usize),
    Shutdown(Slot, Side),
    Poll(Slot),
    Unread(Slot),
    TakeError(Slot),
    Close(Slot),
    /// The cargo's ends: 0 and 1 are passed along, 2 and 3 are their other ends.
    CargoPoll(usize),
    CargoSend(usize),
    CargoReceive(usize),
    CargoClose(usize),
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let slot = || 0..SLOTS;
    let kind = || prop::sample::select(KINDS.to_vec());
    let name = || prop::sample::select(vec![path("one"), path("two"), hidden("one"), hidden("two")]);
    let side = prop::sample::select(vec![Side::Read, Side::Write, Side::Both]);
    let len = || prop::sample::select(vec![0, 1, 2, 7, 100]);
    // Not 0: see `a_read_without_room_and_rights_that_wait`.
    let room = || prop::sample::select(vec![1, 3, 8, 250]);
    let end = || 0..CARGO.len();
    let making = prop_oneof![
        2 => (kind(), slot()).prop_map(|(k, s)| Call::Socket(k, s)),
        3 => (kind(), slot(), slot()).prop_map(|(k, a, b)| Call::Pair(k, a, b)),
        2 => (slot(), name()).prop_map(|(s, n)| Call::Bind(s, n)),
        2 => slot().prop_map(Call::Listen),
        4 => (slot(), name()).prop_map(|(s, n)| Call::Connect(s, n)),
        1 => slot().prop_map(Call::Disconnect),
        3 => (slot(), slot()).prop_map(|(a, b)| Call::Accept(a, b)),
        1 => slot().prop_map(Call::LocalName),
        1 => slot().prop_map(Call::PeerName),
        1 => name().prop_map(Call::Unlink),
        1 => kind().prop_map(Call::Cargo),
    ];
    let using = prop_oneof![
        5 => (slot(), len()).prop_map(|(s, l)| Call::Send(s, l)),
        2 => (slot(), len(), name()).prop_map(|(s, l, n)| Call::SendTo(s, l, n)),
        2 => (slot(), len(), prop::collection::vec(0..2_usize, 0..3))
            .prop_map(|(s, l, c)| Call::SendRights(s, l, c)),
        5 => (slot(), room()).prop_map(|(s, r)| Call::Receive(s, r)),
        2 => (slot(), room(), 1..3_usize).prop_map(|(s, r, n)| Call::ReceiveRights(s, r, n)),
        2 => (slot(), room()).prop_map(|(s, r)| Call::Peek(s, r)),
        2 => (slot(), side).prop_map(|(s, d)| Call::Shutdown(s, d)),
        4 => slot().prop_map(Call::Poll),
        2 => slot().prop_map(Call::Unread),
        1 => slot().prop_map(Call::TakeError),
        2 => slot().prop_map(Call::Close),
    ];
    let cargo = prop_oneof![
        end().prop_map(Call::CargoPoll),
        end().prop_map(Call::CargoSend),
        end().prop_map(Call::CargoReceive),
        end().prop_map(Call::CargoClose),
    ];
    prop::collection::vec(prop_oneof![4 => making, 6 => using, 1 => cargo], 1..CALLS_MAX)
}

impl Call {
    fn sends(&self) -> bool {
        matches!(self, Call::Send(..) | Call::SendTo(..) | Call::SendRights(..) | Call::CargoSend(_))
    }

    /// Makes the call. Sockets are made not to block as part of it.
    fn make<P: Provider>(&self, r: &mut Run<P>) {
        match self {
            Call::Socket(kind, slot) => {
                r.socket(*kind, &carrier(*slot));
                r.nonblocking(&carrier(*slot));
            }
            Call::Pair(kind, one, other) => r.quiet_pair(*kind, &carrier(*one), &carrier(*other)),
            Call::Cargo(kind) => {
                r.quiet_pair(*kind, CARGO[0], CARGO[2]);
                r.quiet_pair(*kind, CARGO[1], CARGO[3]);
            }
            Call::Bind(slot, name) => r.bind(&carrier(*slot), name),
            Call::Listen(slot) => r.listen(&carrier(*slot), 2),
            Call::Connect(slot, name) => r.connect(&carrier(*slot), name),
            Call::Disconnect(slot) => r.disconnect(&carrier(*slot)),
            Call::Accept(slot, new) => {
                r.accept(&carrier(*slot), &carrier(*new));
                r.nonblocking(&carrier(*new));
            }
            Call::LocalName(slot) => r.local_name(&carrier(*slot)),
            Call::PeerName(slot) => r.peer_name(&carrier(*slot)),
            Call::Unlink(name) => r.unlink(name),
            Call::Shutdown(slot, side) => r.shutdown(&carrier(*slot), *side),
            Call::Poll(slot) => r.poll(&carrier(*slot)),
            Call::Unread(slot) => r.unread(&carrier(*slot)),
            Call::TakeError(slot) => r.take_error(&carrier(*slot)),
            Call::Close(slot) => r.close(&carrier(*slot)),
            Call::CargoPoll(end) => r.poll(CARGO[*end]),
            Call::CargoSend(end) => r.send(CARGO[*end], b"cargo"),
            Call::CargoReceive(end) => r.recv(CARGO[*end], 16),
            Call::CargoClose(end) => r.close(CARGO[*end]),
            Call::Send(..) | Call::SendTo(..) | Call::SendRights(..) => self.transmit(r),
            Call::Receive(..) | Call::ReceiveRights(..) | Call::Peek(..) => self.collect(r),
        }
    }

    fn transmit<P: Provider>(&self, r: &mut Run<P>) {
        let data: Vec<u8> = (b'a'..=b'z').cycle().take(LEN_MAX).collect();
        if let Call::Send(slot, len) = self {
            r.send(&carrier(*slot), &data[..*len]);
        } else if let Call::SendTo(slot, len, name) = self {
            r.send_to(&carrier(*slot), &data[..*len], name);
        } else if let Call::SendRights(slot, len, cargo) = self {
            let cargo: Vec<&str> = cargo.iter().map(|end| CARGO[*end]).collect();
            r.send_rights(&carrier(*slot), &data[..*len], &cargo);
        }
    }

    fn collect<P: Provider>(&self, r: &mut Run<P>) {
        if let Call::Receive(slot, room) = self {
            r.recv(&carrier(*slot), *room);
        } else if let Call::ReceiveRights(slot, room, count) = self {
            r.recv_rights(&carrier(*slot), *room, &CARGO[..*count]);
        } else if let Call::Peek(slot, room) = self {
            r.peek(&carrier(*slot), *room);
        }
    }
}

/// An upper-case letter distinguishes received sockets from files, so all names have one.
fn carrier(slot: Slot) -> String {
    format!("S{slot}")
}

/// Makes the calls on both sides and compares after each.
fn run_both(locking: UnixLocking, calls: &[Call]) -> Result<(), TestCaseError> {
    let stack = common::stack_with(|config| {
        locking.set(config);
        config.workers = 1;
    });
    let (mut kernel, mut ours) = (Run::new(Kernel::new()), Run::new(Ours::new(&stack)));
    let mut sent = 0;
    for call in calls {
        sent += usize::from(call.sends());
        if call.sends() && sent > SENDS_MAX {
            continue;
        }
        let before = ours.lines().len();
        call.make(&mut ours);
        if ours.lines()[before..].iter().any(|line| line.answer.is_none()) {
            ours.forget_after(before);
            continue;
        }
        call.make(&mut kernel);
        let title = format!("unix_locking = {locking}");
        if let Some(text) = difference(&title, "random", kernel.lines(), ours.lines()) {
            return Err(TestCaseError::fail(text));
        }
    }
    drop(ours);
    common::assert_empty(&stack);
    Ok(())
}

fn random_calls(locking: UnixLocking) {
    let cases = u32::try_from(common::scaled(CASES)).unwrap_or(u32::MAX);
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 2000, ..Config::default() };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let outcome = runner.run(&calls(), |calls| run_both(locking, &calls));
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

#[cfg(feature = "experiments")]
#[test]
fn random_calls_match_the_kernel_under_the_global_lock() {
    random_calls(UnixLocking::Global);
}

#[cfg(feature = "experiments")]
#[test]
fn random_calls_match_the_kernel_under_pair_locks() {
    random_calls(UnixLocking::Pair);
}

#[test]
fn random_calls_match_the_kernel_with_direct_delivery() {
    random_calls(UnixLocking::Direct);
}

/// Sockets that calls are made on.
const SLOTS: usize = 5;
const CARGO: [&str; 4] = ["C0", "C1", "O0", "O1"];
const CALLS_MAX: usize = 60;
/// Fewer than fill any queue.
const SENDS_MAX: usize = 10;
const LEN_MAX: usize = 100;
/// Sequences a setting, at full scale.
const CASES: usize = 1500;
