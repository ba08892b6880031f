//! The world: hosts, pipes, packets on their way, and the clock. One mutex around all of it.
//!
//! It is entered by a host's interface (`port.rs`, from inside the stack, with a socket lock held), by the programs'
//! handles (`network.rs`) and by the loop that drives everything (`drive.rs`). Under the mutex nothing of a stack is called, no
//! program's code runs but a link's predicate, and nothing wakes: the mutex is a leaf. Only one thread of a simulation
//! runs at a time, so it is never contended; it is a mutex because interfaces have to be `Sync`.
//!
//! Invariants: `now` never goes back; a frame in `frames` has exactly one `Arrive` event, or is held by its pipe with one
//! `Release` event. Tests: `tests/`.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use slab::Slab;
use sockeye::Stack;
use sockeye::netif::TxFrame;
use sockeye_mbuf::{Chain, Pool, PoolConfig};

use crate::capture::{Capture, Tape};
use crate::case::{Case, Drawn};
use crate::clock::LocalClock;
use crate::disk::FileSystem;
use crate::event::{Event, Nanos, Queue};
use crate::executor::Ready;
use crate::hold::HoldState;
use crate::link::{LinkConfig, LinkStats};
use crate::machine::Machine;
use crate::names;
use crate::packet::{Packet, Segment};
use crate::pipe::{Course, Held, Pipe, stream_of};
use crate::rng::Rng;
use crate::signal::Signals;
use crate::trace::{Keep, Names, Seen, Trace, What, digest_of};
use crate::watch::{Heard, Watch};

/// See the module's head.
pub(crate) struct World {
    state: Mutex<State>,
    /// Tasks that can go on.
    pub ready: Arc<Ready>,
    pub seed: u64,
    /// What the threads of the run have for a clock and random numbers.
    pub machine: Machine,
}

/// The state under the mutex.
pub(crate) struct State {
    /// Moved by [`set_now`](Self::set_now).
    pub now: Nanos,
    pub queue: Queue,
    pub hosts: Vec<HostState>,
    pub pipes: Vec<Pipe>,
    /// From one host to another.
    pub paths: BTreeMap<(usize, usize), usize>,
    pub addresses: BTreeMap<IpAddr, usize>,
    /// The stack of programs that are on no host (`names.rs`). `None` before the run and after it.
    pub outside: Option<Stack>,
    /// The link between two hosts that were not linked.
    pub default_link: LinkConfig,
    /// Hosts whose stack may have something to do, each once.
    pub dirty: VecDeque<usize>,
    pub timers: Slab<Timer>,
    pub holds: Slab<HoldState>,
    /// What a smaller case has.
    pub case: Case,
    /// What the run drew.
    pub drawn: Drawn,
    /// Faults that have begun or ended, and when the last one did.
    pub fault_count: u64,
    pub last_fault_at: Nanos,
    /// Faults of schedules that are not over.
    pub planned: usize,
    /// Faults that are there are to stay.
    pub has_settled: bool,
    pub tape: Tape,
    pub watch: Watch,
    pub trace: Trace,
    pub rng: Rng,
    /// Events that were handled.
    pub events: u64,
    /// Frames that are put in order before they are sent (`unordered.rs`), with their senders.
    pub gathered: Option<Vec<(usize, TxFrame)>>,
    /// What programs say is not noted.
    pub is_silent: bool,
    machine: Machine,
    frames: Slab<InFlight>,
    /// Packets that came to a pipe.
    sent_count: u64,
    /// Memory of packets that differ from the sent ones.
    pool: Pool,
}

/// A host, up or down.
pub(crate) struct HostState {
    pub name: String,
    /// `None` while it is down.
    pub stack: Option<Stack>,
    /// How often it was started. Frames of an earlier life go nowhere.
    pub life: u32,
    pub inbox: VecDeque<TxFrame>,
    /// Where it sent last, and by which pipe.
    pub last_route: Option<(IpAddr, usize)>,
    /// The event at which its stack wants to be polled; `Nanos::MAX` for none.
    pub wake_at: Nanos,
    pub is_dirty: bool,
    /// Something is in its inbox that a program may wait for.
    pub has_news: bool,
    /// Its programs are stopped.
    pub is_paused: bool,
    /// Tasks that can go on when it is not paused any more.
    pub parked: Vec<u64>,
    /// Its programs were killed, and not started again since.
    pub is_killed: bool,
    /// How often its programs were killed.
    pub processes: u32,
    /// What its programs see of time.
    pub local: LocalClock,
    /// The time that its stack got last; `Nanos::MAX` if none.
    pub clock: Nanos,
    pub setup: Setup,
    pub disk: FileSystem,
    pub signals: Signals,
}

/// The configuration of a host, for each start.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub config: sockeye::Config,
    pub v4: std::net::Ipv4Addr,
    pub v6: std::net::Ipv6Addr,
    pub mtu: u32,
    pub offload: bool,
}

/// A sleeper.
pub(crate) struct Timer {
    pub number: u64,
    pub waker: Option<Waker>,
}

pub(crate) struct InFlight {
    pub frame: TxFrame,
    pub pipe: usize,
    /// Which of all packets it is.
    pub number: u64,
    /// When it arrives, at the latest.
    pub at: Nanos,
    /// What its segment tells the other direction, if it is one.
    pub heard: Option<Heard>,
}

impl World {
    pub fn new(seed: u64, capture: Capture, keep: Keep, machine: Machine) -> Arc<Self> {
        let state = State {
            machine: machine.clone(),
            now: 0,
            queue: Queue::default(),
            hosts: Vec::new(),
            pipes: Vec::new(),
            paths: BTreeMap::new(),
            addresses: BTreeMap::new(),
            outside: None,
            default_link: LinkConfig::default(),
            dirty: VecDeque::new(),
            timers: Slab::new(),
            holds: Slab::new(),
            case: Case::default(),
            drawn: Drawn::default(),
            fault_count: 0,
            last_fault_at: 0,
            planned: 0,
            has_settled: false,
            tape: Tape::new(capture),
            watch: Watch::default(),
            trace: Trace::new(keep),
            rng: Rng::new(seed),
            events: 0,
            gathered: None,
            is_silent: false,
            frames: Slab::new(),
            sent_count: 0,
            pool: Pool::new(PoolConfig::default()),
        };
        let world = Arc::new(Self { state: Mutex::new(state), ready: Arc::default(), seed, machine });
        let outside = names::outside(&world);
        world.lock().outside = Some(outside);
        world
    }

    /// The stack of a host's programs, or of those that are on none. While a host is down, what its programs drop has the latter: it reaches no host. With `shows_clock`, the threads of the run see that host's clock from now on, as after
    /// [`show_clock_of`](Self::show_clock_of).
    pub fn stage(&self, host: Option<usize>, shows_clock: bool) -> Stack {
        let state = self.lock();
        let entry = host.map(|host| &state.hosts[host]);
        if shows_clock {
            let local = entry.map(|entry| entry.local).unwrap_or_default();
            let (monotonic, real) = local.offsets(state.now);
            self.machine.set_offsets(monotonic, real);
        }
        let stack = entry.and_then(|entry| entry.stack.as_ref()).or(state.outside.as_ref());
        // Without one, programs would be on the process's stack, in real time.
        stack.cloned().expect("a run has the stack of the main program until it is over")
    }

    /// The present life of a host; `None` while it is down. 0 for programs that are on none.
    pub fn life_of(&self, host: Option<usize>) -> Option<u32> {
        let Some(host) = host else { return Some(0) };
        let state = self.lock();
        let host = &state.hosts[host];
        host.stack.is_some().then_some(host.life)
    }

    /// The threads of the run see the clock of this host from now on, or the simulation's own.
    pub fn show_clock_of(&self, host: Option<usize>) {
        // The simulation's own has no offset.
        let Some(host) = host else { return self.machine.set_offsets(0, 0) };
        let state = self.lock();
        let local = state.hosts.get(host).map(|host| host.local).unwrap_or_default();
        let (monotonic, real) = local.offsets(state.now);
        drop(state);
        self.machine.set_offsets(monotonic, real);
    }

    /// That host's clock.
    pub fn local_clock(&self, host: Option<usize>) -> LocalClock {
        let state = self.lock();
        host.and_then(|host| state.hosts.get(host)).map(|host| host.local).unwrap_or_default()
    }

    /// What the stack of a host in this life calls when a program's call has left work to it.
    pub fn waker_of(this: &Arc<Self>, host: usize, life: u32) -> impl Fn() + Send + Sync + 'static {
        let world = Arc::downgrade(this);
        move || {
            let Some(world) = world.upgrade() else { return };
            let mut state = world.lock();
            if state.hosts.get(host).is_some_and(|host| host.life == life) {
                state.mark(host);
            }
        }
    }

    /// The state, unless the caller is called from within it.
    #[cfg(feature = "tracing")]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, State>> {
        self.state.try_lock()
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Virtual time since the start.
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.lock().now)
    }
}

impl State {
    /// Moves the clock, unless it is there already: it never goes back.
    pub fn set_now(&mut self, now: Nanos) {
        self.now = self.now.max(now);
        self.machine.set_elapsed(Duration::from_nanos(self.now));
    }

    /// A host's stack has something to do.
    pub fn mark(&mut self, host: usize) {
        if let Some(state) = self.hosts.get_mut(host)
            && !state.is_dirty
        {
            state.is_dirty = true;
            self.dirty.push_back(host);
        }
    }

    /// The pipe from one host to another. Hosts that were never linked are now, by the default link.
    pub fn pipe(&mut self, from: usize, to: usize) -> usize {
        if let Some(pipe) = self.paths.get(&(from, to)) {
            return *pipe;
        }
        let config = self.default_link.clone();
        self.connect(from, to, config)
    }

    /// Lays a pipe, or gives the one that lies there new settings.
    pub fn connect(&mut self, from: usize, to: usize, config: LinkConfig) -> usize {
        if let Some(pipe) = self.paths.get(&(from, to)) {
            self.pipes[*pipe].config = config;
            return *pipe;
        }
        let name = format!("{} → {}", self.hosts[from].name, self.hosts[to].name);
        let rng = stream_of(&self.rng, from, to);
        self.pipes.push(Pipe::new(name, to, config, rng));
        self.paths.insert((from, to), self.pipes.len() - 1);
        self.pipes.len() - 1
    }

    /// A host's stack sends a frame.
    pub fn send(&mut self, from: usize, mut frame: TxFrame) {
        if let Some(gathered) = &mut self.gathered {
            return gathered.push((from, frame));
        }
        let at = Duration::from_nanos(self.now);
        let packet = Packet { at, index: 0, head: frame.head(), len: frame.len() };
        // Read once for all who want to know.
        let segment = packet.segment();
        let dst = segment.map(|segment| segment.dst.ip()).or_else(|| packet.dst());
        // To an address that no host has: there is no link that could carry it.
        let Some(index) = dst.and_then(|dst| self.route(from, dst)) else { return };
        let pipe = &mut self.pipes[index];
        if pipe.is_marking(self.now) {
            pipe.mark(frame.head_mut());
        }
        let packet = Packet { at, index: pipe.stats.offered, head: frame.head(), len: frame.len() };
        let course = pipe.course(self.now, &packet);
        if let Some(segment) = segment {
            let is_lost = matches!(course, Course::Dropped(_) | Course::Arrives { flip: Some(_), .. });
            self.watch.sent(self.now, &segment, is_lost);
        }
        let number = self.sent_count;
        self.sent_count += 1;
        self.note_sent(index, number, &frame, segment.as_ref(), course);
        let heard = segment.as_ref().map(Heard::of);
        if self.tape.is_on() {
            self.tape.push(index, self.now, pieces_of(&frame), course.note());
        }
        match course {
            Course::Dropped(_) => {}
            Course::Arrives { at, twice, flip } => {
                let copy = twice.then(|| copy(&frame)).flatten();
                // Without memory for a damaged copy the packet is lost, which is damage too.
                let (frame, of_frame) = match flip {
                    Some(bit) => {
                        let frame = flipped(&self.pool, &frame, bit);
                        let segment = frame.as_ref().and_then(segment_of);
                        (frame, segment.as_ref().map(Heard::of))
                    }
                    None => (Some(frame), heard),
                };
                let both = frame.map(|frame| (frame, of_frame)).into_iter();
                both.chain(copy.map(|copy| (copy, heard))).for_each(|(frame, heard)| {
                    self.put(at, InFlight { frame, pipe: index, number, at, heard });
                });
                for overtaken in self.pipes[index].overtake() {
                    self.queue.push(at, Event::Arrive { frame: overtaken });
                }
            }
            Course::Overtaken { at, span, wait } => {
                let at_latest = at.saturating_add(wait);
                let flight = InFlight { frame, pipe: index, number, at: at_latest, heard };
                let frame = self.frames.insert(flight);
                let number = self.queue.number();
                self.pipes[index].held.push(Held { frame, number, left: span });
                self.queue.push(at.saturating_add(wait), Event::Release { pipe: index, frame, number });
            }
        }
    }

    /// The pipe from a host to an address. The host's last one is known without a search: addresses and pipes stay what they are.
    fn route(&mut self, from: usize, dst: IpAddr) -> Option<usize> {
        if let Some((last, pipe)) = self.hosts[from].last_route
            && last == dst
        {
            return Some(pipe);
        }
        let to = *self.addresses.get(&dst)?;
        let pipe = self.pipe(from, to);
        self.hosts[from].last_route = Some((dst, pipe));
        Some(pipe)
    }

    fn note_sent(
        &mut self,
        pipe: usize,
        number: u64,
        frame: &TxFrame,
        segment: Option<&Segment>,
        course: Course,
    ) {
        // With a checksum, headers tell whether payload differs.
        let digest =
            if self.trace.is_whole() { digest_of(&bytes_of(frame)) } else { digest_of(frame.head()) };
        let seen = Seen::new(frame.len(), digest, segment);
        let arrival = match course {
            Course::Dropped(_) => None,
            Course::Arrives { at, .. } | Course::Overtaken { at, .. } => Some(at),
        };
        self.note(What::Sent { pipe, number, seen, arrival, note: course.note() });
    }

    /// Something happens now.
    pub fn note(&mut self, what: What) {
        if !(self.is_silent && matches!(what, What::Said { is_fault: false, .. })) {
            self.trace.push(self.now, what);
        }
    }

    /// A fault begins or ends.
    pub fn fault(&mut self, host: Option<usize>, text: impl Into<Arc<str>>) {
        self.fault_count += 1;
        self.last_fault_at = self.now;
        self.note(What::Said { host, is_fault: true, text: text.into() });
    }

    /// Cuts or mends a pipe.
    pub fn set_up(&mut self, pipe: usize, is_up: bool) {
        let pipe = &mut self.pipes[pipe];
        if pipe.is_up != is_up {
            pipe.is_up = is_up;
            let text = format!("{} {}", pipe.name, if is_up { "healed" } else { "cut" });
            self.fault(None, text);
        }
    }

    /// The names that the trace has numbers of.
    pub fn names(&self) -> Names {
        let hosts = self.hosts.iter().map(|host| host.name.clone()).collect();
        let mut pipes = vec![(0, 0); self.pipes.len()];
        self.paths.iter().for_each(|(ends, pipe)| pipes[*pipe] = *ends);
        Names { hosts, pipes }
    }

    fn put(&mut self, at: Nanos, flight: InFlight) {
        let frame = self.frames.insert(flight);
        self.queue.push(at, Event::Arrive { frame });
    }

    /// A frame arrives, or is held. The caller drops it outside the mutex.
    pub fn arrive(&mut self, frame: usize) -> Option<TxFrame> {
        let flight = self.frames.try_remove(frame)?;
        self.hold_or_deliver(flight)
    }

    /// A frame comes to its host. The caller drops what is returned outside the mutex.
    pub fn deliver(&mut self, flight: InFlight) -> Option<TxFrame> {
        let InFlight { frame, pipe: index, number, heard, .. } = flight;
        let to = self.pipes[index].to;
        let is_taken = self.hosts[to].stack.is_some();
        self.note(What::Arrived { pipe: index, number, is_taken });
        let pipe = &mut self.pipes[index];
        if !is_taken {
            pipe.stats.cut += 1;
            return Some(frame);
        }
        pipe.stats.delivered += 1;
        pipe.stats.delivered_bytes += frame.len() as u64;
        if let Some(heard) = heard {
            self.watch.arrived(self.now, &heard);
        }
        let host = &mut self.hosts[to];
        host.inbox.push_back(frame);
        host.has_news |= heard.is_none_or(|heard| heard.has_text);
        self.mark(to);
        None
    }

    /// All frames that are on their way, to be dropped outside the mutex.
    pub fn sweep(&mut self) -> Vec<TxFrame> {
        self.frames.drain().map(|flight| flight.frame).collect()
    }

    /// All of them.
    pub fn flights(&self) -> impl Iterator<Item = &InFlight> {
        self.frames.iter().map(|(_, flight)| flight)
    }

    /// Whether a task has to wait because its host is paused: it is then queued for later.
    pub fn park(&mut self, host: Option<usize>, task: u64) -> bool {
        let host = host.and_then(|host| self.hosts.get_mut(host)).filter(|host| host.is_paused);
        host.map(|host| host.parked.push(task)).is_some()
    }

    /// Packets that are on their way now.
    pub fn in_flight(&self) -> usize {
        self.frames.len()
    }

    /// Fate of all packets.
    pub fn link_stats(&self) -> LinkStats {
        let mut sum = LinkStats::default();
        self.pipes.iter().for_each(|pipe| sum.add(&pipe.stats));
        sum
    }
}

impl LinkStats {
    fn add(&mut self, more: &Self) {
        self.offered += more.offered;
        self.delivered += more.delivered;
        self.delivered_bytes += more.delivered_bytes;
        self.lost += more.lost;
        self.filtered += more.filtered;
        self.queue_full += more.queue_full;
        self.cut += more.cut;
        self.too_long += more.too_long;
        self.duplicated += more.duplicated;
        self.held += more.held;
        self.corrupted += more.corrupted;
        self.marked += more.marked;
    }
}

fn segment_of(frame: &TxFrame) -> Option<Segment> {
    Packet { at: Duration::ZERO, index: 0, head: frame.head(), len: frame.len() }.segment()
}

fn pieces_of(frame: &TxFrame) -> impl Iterator<Item = &[u8]> {
    std::iter::once(frame.head()).chain(frame.payload.iter())
}

fn bytes_of(frame: &TxFrame) -> Box<[u8]> {
    let mut bytes = vec![0; frame.len()];
    let (head, payload) = bytes.split_at_mut(frame.head().len());
    head.copy_from_slice(frame.head());
    frame.payload.copy_to(0, payload);
    bytes.into()
}

/// The same frame once more; the payload is shared.
fn copy(frame: &TxFrame) -> Option<TxFrame> {
    TxFrame::new(frame.head(), frame.payload.slice(0, frame.payload.len()), frame.checksum)
}

/// The frame with one bit turned over, in memory of its own: the sender still has the payload.
fn flipped(pool: &Pool, frame: &TxFrame, bit: u64) -> Option<TxFrame> {
    let mut bytes = bytes_of(frame);
    let place = usize::try_from(bit / 8).ok()?;
    *bytes.get_mut(place)? ^= 1 << (bit % 8);
    let (head, payload) = bytes.split_at(frame.head().len());
    let payload: Chain = pool.copy_in(payload).ok()?;
    TxFrame::new(head, payload, frame.checksum)
}
