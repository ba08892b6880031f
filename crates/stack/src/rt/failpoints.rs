//! Places where a test makes the stack's own code panic, by name.
//!
//! A panic in protocol code is a bug, so no test can cause one by public calls; with the feature `failpoints` it can have one
//! injected. `arm` says where and when, and `hit`, which stands in the code at that place, panics. The table is the process's: tests
//! that use it stand in a binary of their own and take turns.
//!
//! Without the feature `hit` is empty and nothing of this is compiled. With it, a point that is not armed costs one relaxed load: the
//! feature only adds the ability, since cargo unites the features of all that is built together.
//!
//! Does not depend on the code at a place. Invariant: a point that is armed for `times` panics that often and is then
//! disarmed. Tests: below, `tests/contained`.

macro_rules! points {
    ($($(#[doc = $doc:literal])+ $point:ident = $name:literal,)+) => {
        /// A place where protocol code can be made to panic.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum Point {
            $($(#[doc = $doc])+ $point,)+
        }

        /// The names of all points.
        #[cfg(feature = "failpoints")]
        pub const NAMES: &[&str] = &[$($name,)+];
    };
}

points! {
    /// A segment or notice is about to be run for a connection.
    Step = "conn.step",
    /// A segment has changed the state machine, and nothing was done about it yet.
    Segment = "conn.segment",
    /// Acknowledged bytes were dropped, writers were not woken.
    Acked = "conn.acked",
    /// Text was put into the receive buffer, readers were not woken.
    Deliver = "conn.deliver",
    /// Segments of one run were joined, and their text is in the receive buffer.
    Joined = "conn.joined",
    /// The reasons of a notice were taken, and nothing was done about them yet.
    Notified = "conn.notified",
    /// The timer of a connection has expired.
    Timer = "conn.timer",
    /// The state machine has made a segment, which was not sent.
    Transmit = "conn.transmit",
    /// Segments were sent, and the agreements with reader and writer are those of the output before.
    Emitted = "conn.emitted",
    /// A report of the network is about to be applied.
    Undelivered = "conn.undelivered",
    /// The reset of a connection that ends because of a panic is being made.
    Reset = "conn.reset",
    /// Readers or writers are about to be told that the connection has ended because of a panic.
    Tell = "conn.tell",
    /// A writer has put bytes into the send buffer.
    Write = "conn.write",
    /// A reader has taken bytes from the receive buffer.
    Read = "conn.read",
    /// A connection's directions were shut by its application, and its state machine does not know it yet.
    ShutDown = "conn.shutdown",
    /// The last handle of a connection is gone, and its state machine does not know it yet.
    Close = "conn.close",
    /// A connection's timer is about to be given to the wheel.
    Arm = "timers.arm",
    /// A frame has arrived.
    Frame = "input.frame",
    /// The wheel takes out due timers, and has taken some of them.
    Advance = "timers.advance",
    /// The SYN cache has looked at a segment of a handshake. For the local port.
    Handshake = "syncache.segment",
    /// The SYN cache is about to repeat a SYN-ACK. For the local port.
    Repeat = "syncache.repeat",
    /// A listener's child was made, and is not in the table yet. For the local port.
    Establish = "demux.establish",
    /// A connect has its name, and is not in the table yet. For the remote port.
    Connect = "demux.connect",
    /// A connection is about to be looked up for a segment. For the local port.
    LookUp = "demux.look_up",
    /// A record in TIME-WAIT has looked at a segment. For the local port.
    TimeWait = "demux.time_wait",
    /// A connection is about to be queued at its listener. For the local port.
    Queue = "listener.push",
    /// A connection has left its listener's queue for a call of accept. For the local port.
    Accept = "listener.accept",
    /// A listener is in some copies of the table, but not in the others. For its port.
    Listen = "listeners.add",
    /// A place in the bind table is about to be taken. For the port.
    Bind = "ports.bind",
    /// The table of neighbors was asked for the way to one. For the last two bytes of its address.
    Resolve = "neighbor.resolve",
    /// The table of neighbors has learned from an ARP packet. For the last two bytes of its sender's address.
    Learn = "neighbor.learn",
    /// The timer of the table of neighbors is about to look at an entry.
    NeighborTimer = "neighbor.timer",
    /// A fragment was added to its datagram. For its identification.
    Reassemble = "reassembly.fragment",
    /// The timer of reassembly has expired.
    ReassemblyTimer = "reassembly.timer",
    /// Datagrams were queued at a UDP socket, and no waiter was woken. For its port.
    UdpDeliver = "udp.deliver",
    /// A UDP socket is in some copies of the table, but not in the others. For its port.
    UdpName = "udp.name",
    /// A UDP socket has taken a datagram. For its port.
    UdpReceive = "udp.receive",
    /// A request of an ICMP socket was made, and is not sent yet. For its identifier.
    EchoRequest = "echo.request",
    /// A link has joined or left a group, and said nothing of it yet. For the last two bytes of the group.
    Group = "groups.change",
    /// A query is being answered for one of a link's groups.
    GroupQuery = "groups.query",
    /// The table of path MTUs is about to be changed. For the last two bytes of the destination.
    PathMtu = "path_mtu.learn",
    /// A socket was added to a poller, which does not know its readiness yet. For the token.
    PollAdd = "poll.add",
    /// A poller is about to look at one of its sockets. For the token.
    PollLook = "poll.look",
    /// A poller that is dropped has left one of its sockets. For the token.
    PollLeave = "poll.leave",
    /// A UNIX name is in the table, and its socket does not know it yet.
    UnixName = "unix.name",
    /// The socket of a UNIX name has closed.
    UnixForget = "unix.forget",
    /// A UNIX pathname is about to leave the table.
    UnixUnlink = "unix.unlink",
    /// A UNIX connection is being made, for which there is a place in its listener's backlog.
    UnixConnect = "unix.connect",
    /// A UNIX connection is in its listener's backlog, and its client does not know it yet.
    UnixQueued = "unix.queued",
    /// A UNIX datagram socket has no peer any more, which does not know it yet.
    UnixDisconnect = "unix.disconnect",
    /// A UNIX connection has left its listener's backlog.
    UnixAccept = "unix.accept",
    /// A UNIX socket has put bytes into its peer's buffer.
    UnixSend = "unix.send",
    /// The waiters for a UNIX socket to become readable were noted, and are not woken yet.
    UnixTell = "unix.tell",
    /// A UNIX socket has taken bytes from its buffer.
    UnixReceive = "unix.receive",
    /// The bytes of a UNIX datagram or packet were put into a buffer, or taken from it, and its record was not.
    UnixRecord = "unix.record",
    /// Rights have left the buffer of a UNIX socket.
    UnixRights = "unix.rights",
}

#[cfg(feature = "failpoints")]
pub(crate) use armed::hit;
#[cfg(feature = "failpoints")]
pub use armed::{arm, disarm_all, fired};

/// Panics if a test has armed the point for `of`, which names its subject: see `of_conn`.
#[cfg(not(feature = "failpoints"))]
#[inline(always)]
pub(crate) fn hit(_point: Point, _of: u64) {}

/// Name of a connection: its two ports, the local one first.
pub(crate) trait Ports {
    fn ports(&self) -> (u16, u16);
}

/// Name of a connection: its two ports.
#[inline(always)]
pub(crate) fn of_conn(conn: &impl Ports) -> u64 {
    let (local, remote) = conn.ports();
    u64::from(local) << 16 | u64::from(remote)
}

/// Name of a neighbor: the last two bytes of its address.
#[inline(always)]
pub(crate) fn of_addr(addr: std::net::IpAddr) -> u64 {
    match addr {
        std::net::IpAddr::V4(v4) => u64::from(v4.to_bits() as u16),
        std::net::IpAddr::V6(v6) => u64::from(v6.to_bits() as u16),
    }
}

#[cfg(feature = "failpoints")]
mod armed {
    use sockeye_sync::facade::unmodelled::{AtomicU64, Ordering};

    use super::{NAMES, Point};

    /// One for each point.
    struct Shot {
        /// Hits to let pass, shifted by 32, and panics that are left. 0: not armed.
        left: AtomicU64,
        /// The name that it is armed for; 0 for everything.
        of: AtomicU64,
        fired: AtomicU64,
    }

    static SHOTS: [Shot; NAMES.len()] =
        [const { Shot { left: AtomicU64::new(0), of: AtomicU64::new(0), fired: AtomicU64::new(0) } };
            NAMES.len()];

    fn index(name: &str) -> usize {
        let known = NAMES.iter().position(|known| *known == name);
        known.unwrap_or_else(|| panic!("there is no failpoint {name:?}: see `failpoints::NAMES`"))
    }

    /// Makes the point `name` panic `times` times, after `skip` hits. `of` restricts it to one connection (its local
    /// port shifted by 16, and its remote port), or to one entry of a table, as the point's description says; 0 means
    /// everything.
    ///
    /// # Panics
    /// If there is no such point.
    pub fn arm(name: &str, skip: u32, times: u32, of: u64) {
        let shot = &SHOTS[index(name)];
        shot.left.store(0, Ordering::SeqCst);
        shot.of.store(of, Ordering::SeqCst);
        shot.left.store(u64::from(skip) << 32 | u64::from(times), Ordering::SeqCst);
    }

    /// Disarms all points.
    pub fn disarm_all() {
        SHOTS.iter().for_each(|shot| shot.left.store(0, Ordering::SeqCst));
    }

    /// How often the point `name` has panicked so far.
    ///
    /// # Panics
    /// If there is no such point.
    pub fn fired(name: &str) -> u64 {
        SHOTS[index(name)].fired.load(Ordering::SeqCst)
    }

    /// Panics if the point is armed for `of`.
    #[inline(always)]
    pub(crate) fn hit(point: Point, of: u64) {
        if SHOTS[point as usize].left.load(Ordering::Relaxed) != 0 {
            armed(point, of);
        }
    }

    #[cold]
    #[inline(never)]
    fn armed(point: Point, of: u64) {
        let shot = &SHOTS[point as usize];
        let wanted = shot.of.load(Ordering::SeqCst);
        if wanted != 0 && wanted != of {
            return;
        }
        let mut left = shot.left.load(Ordering::SeqCst);
        loop {
            let (skip, times) = (left >> 32, left & u64::from(u32::MAX));
            let next = match (skip, times) {
                (_, 0) => return,
                (0, times) => times - 1,
                (skip, times) => (skip - 1) << 32 | times,
            };
            match shot.left.compare_exchange(left, next, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) if skip > 0 => return,
                Ok(_) => break,
                Err(now) => left = now,
            }
        }
        shot.fired.fetch_add(1, Ordering::SeqCst);
        panic!("failpoint {}", NAMES[point as usize]);
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_failpoint_skips_and_panics_as_often_as_it_was_set() {
            // Nothing else has a connection of these ports.
            let of = 3 << 16 | 5;
            let panics = |of| std::panic::catch_unwind(|| hit(Point::Step, of)).is_err();
            arm("conn.step", 1, 2, of);
            let before = fired("conn.step");
            let hits = [of, of + 1, of, of, of].map(panics);
            assert_eq!(hits, [false, false, true, true, false]);
            assert_eq!(fired("conn.step") - before, 2);
        }
    }
}
