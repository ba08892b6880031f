//! The hook for IP packets that the model has chosen, and what has to leave for it.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arbitrary::{Result, Unstructured};
use sockeye::{IpPacket, IpSend, Stack, UdpSocket, Unsent};
use sockeye_proto::icmp::{Family, Message};
use sockeye_proto::ip;

use super::model::Bed;
use super::packets::{self, HOSTS, Left, THEIRS, UNKNOWN};

/// Packets that may be undecided, as `Stack::set_ip_hook` says.
const UNDECIDED_MAX: usize = 1024;
/// Echo requests of one step: a few steps are more than may be undecided.
const BURST_MAX: u16 = 600;

/// What the hook does with a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    /// There is no hook.
    None,
    Answer,
    Reject,
    Ignore,
    Keep,
    Panic,
    /// It uses sockets, sends a packet of its own, replaces itself, and has the stack answer.
    CallBack,
}

/// What the hook and the model share.
pub struct Hook(Mutex<State>);

struct State {
    mode: Mode,
    kept: Vec<IpPacket>,
    calls: usize,
    panics: usize,
    /// Until the end: the stack keeps the hook.
    stack: Option<Stack>,
}

impl Hook {
    pub fn new(stack: &Stack) -> Arc<Self> {
        let stack = Some(stack.clone());
        Arc::new(Self(Mutex::new(State { mode: Mode::None, kept: Vec::new(), calls: 0, panics: 0, stack })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets go of the stack and of packets. Returns how often it has panicked.
    pub fn end(&self) -> usize {
        let mut state = self.state();
        let (panics, left) = (state.panics, (std::mem::take(&mut state.kept), state.stack.take()));
        drop(state);
        drop(left);
        panics
    }
}

/// What the stack calls.
fn on_packet(hook: &Arc<Hook>, packet: IpPacket) {
    let (mode, stack) = {
        let mut state = hook.state();
        state.calls += 1;
        (state.mode, state.stack.clone())
    };
    match mode {
        Mode::Answer => packet.answer(),
        Mode::Reject => packet.reject(Unsent::HostUnreachable),
        Mode::Ignore | Mode::None => packet.ignore(),
        Mode::Keep => hook.state().kept.push(packet),
        Mode::Panic => {
            hook.state().panics += 1;
            // Not by `panic!`: a fuzzer's own panic hook ends the process.
            std::panic::resume_unwind(Box::new("a hook that panics"));
        }
        Mode::CallBack => call_back(hook, &stack.expect("there until the end"), packet),
    }
}

fn call_back(hook: &Arc<Hook>, stack: &Stack, packet: IpPacket) {
    stack.set_ip_hook(None);
    set(stack, hook);
    let socket = UdpSocket::bind_on(stack, "127.0.0.1:0").expect("a free port");
    socket.send_to(b"x", socket.local_addr().expect("a name")).expect("packet memory");
    socket.set_nonblocking(true).expect("a socket");
    assert_eq!(socket.recv(&mut [0; 8]).expect("what was sent"), 1);
    // An echo reply of its own before the stack's.
    let (family, protocol) = match packet.src() {
        IpAddr::V4(_) => (Family::V4, ip::PROTOCOL_ICMP),
        IpAddr::V6(_) => (Family::V6, ip::PROTOCOL_ICMPV6),
    };
    let reply = Message::EchoReply { id: 7, seq: 9 }.emit(family).expect("a message that hosts send");
    stack.send_ip(&IpSend::new(packet.dst(), packet.src(), protocol, &reply)).expect("a way back");
    packet.answer();
}

fn set(stack: &Stack, hook: &Arc<Hook>) {
    let hook = Arc::clone(hook);
    stack.set_ip_hook(Some(Box::new(move |packet| on_packet(&hook, packet))));
}

/// Sets a hook of a chosen kind, or none.
pub fn choose(bed: &mut Bed, u: &mut Unstructured<'_>) -> Result<()> {
    use Mode::{Answer, CallBack, Ignore, Keep, Panic, Reject};
    let mode = *u.choose(&[Mode::None, Answer, Reject, Ignore, Keep, Keep, Panic, CallBack])?;
    bed.hook.state().mode = mode;
    if mode == Mode::None {
        bed.stack.set_ip_hook(None);
    } else {
        set(&bed.stack, &bed.hook);
    }
    Ok(())
}

/// Packets that the stack would answer by itself.
pub fn ask(bed: &mut Bed, u: &mut Unstructured<'_>) -> Result<()> {
    let version = usize::from(u.arbitrary::<bool>()?);
    let (src, dst) = (THEIRS[version], HOSTS[version]);
    let is_echo = u.ratio(3, 4)?;
    let packet = if is_echo {
        packets::icmp(src, dst, Message::EchoRequest { id: 7, seq: 9 }, b"data")
    } else {
        packets::packet(src, dst, UNKNOWN, b"whatever")
    };
    let times = if u.ratio(1, 8)? { u.int_in_range(1..=BURST_MAX)? } else { 1 };
    ask_often(bed, &packet, is_echo, usize::from(times));
    Ok(())
}

/// Calls of the hook, packets that it has kept and its panics; packets that were too many, and panics that the stack has caught.
fn counts(bed: &Bed) -> ([usize; 3], [u64; 2]) {
    let state = bed.hook.state();
    let own = [state.calls, state.kept.len(), state.panics];
    drop(state);
    (own, bed.counts(["ip_hook_overflows", "panics_foreign"]))
}

fn ask_often(bed: &mut Bed, packet: &[u8], is_echo: bool, times: usize) {
    let mode = bed.hook.state().mode;
    let ([calls, kept, panics], [overflows, caught]) = counts(bed);
    let left: Vec<Left> = (0..times).flat_map(|_| bed.give(packet)).collect();
    let room = UNDECIDED_MAX - kept;
    let asked = match mode {
        Mode::None => 0,
        Mode::Keep => times.min(room),
        // Decided on before the next one comes.
        _ if room > 0 => times,
        _ => 0,
    };
    let of = |is_it: bool| if is_it { asked } else { 0 };
    let (over, panicked) = (if mode == Mode::None { 0 } else { times - asked }, of(mode == Mode::Panic));
    let expected = (
        [calls + asked, kept + of(mode == Mode::Keep), panics + panicked],
        [overflows + over as u64, caught + panicked as u64],
    );
    assert_eq!(counts(bed), expected, "{mode:?}");
    let replies = left.iter().filter(|left| **left == Left::EchoReply).count();
    let errors = left.len() - replies;
    let answers = match mode {
        Mode::None => times,
        Mode::Answer | Mode::CallBack => asked,
        Mode::Reject | Mode::Ignore | Mode::Keep | Mode::Panic => 0,
    };
    // Errors are limited in number, answers to requests are not.
    assert_eq!(replies, of(mode == Mode::CallBack) + if is_echo { answers } else { 0 }, "{mode:?}");
    let errors_max = if is_echo { 0 } else { answers } + of(mode == Mode::Reject);
    assert!(errors <= errors_max, "{mode:?} has left {errors} errors");
}

/// Decides on packets that were kept.
pub fn decide(bed: &mut Bed, u: &mut Unstructured<'_>) -> Result<()> {
    let count = u.int_in_range(0..=BURST_MAX)?;
    let how = u.int_in_range(0..=2u8)?;
    let kept: Vec<IpPacket> = {
        let mut state = bed.hook.state();
        let from = state.kept.len().saturating_sub(usize::from(count));
        state.kept.split_off(from)
    };
    let echoes = kept.iter().filter(|packet| packet.echo() == Some((7, 9))).count();
    for packet in kept {
        match how {
            0 => packet.answer(),
            1 => packet.reject(Unsent::Prohibited),
            _ => drop(packet),
        }
    }
    let replies = bed.turn().iter().filter(|left| **left == Left::EchoReply).count();
    assert_eq!(replies, if how == 0 { echoes } else { 0 });
    Ok(())
}
