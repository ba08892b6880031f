//! TCP Fast Open's memory (RFC 7413): a client's cookies, a server's keys, and how many a listener lets in unproven.
//!
//! The protocol is `proto/src/tcp/fast_open.rs`; the callers are `tcp/socket/fastopen.rs` (a connect), `passive.rs` (a
//! SYN) and `conn/engine.rs` (the end of a handshake).
//!
//! * A *server's* cookie is a keyed hash of both addresses, so the server remembers no client: `fastopen/keys.rs`.
//! * A *client* keeps a cookie and an MSS for each server, at most `CACHE_MAX`, the first that came going first. A server that
//!   answers a request without a cookie is asked by the experimental option next, and then as before. A
//!   SYN with text that had to be repeated, that was not answered, or whose text was not taken is held against the
//!   server: for `TcpConfig::fastopen_blackhole_timeout`, and twice as long each time, SYNs to it carry none (section 4.1.3.1).
//! * A *listener* counts connections whose SYN is not acknowledged (`Queue`), against forged addresses (section
//!   5.1). One that was reset keeps its place for `RESET_KEEPS`: else a reset would clear the way for the next.
//!
//! Locks: the cache's and a queue's mutex are leaves. Tests: `fastopen/tests.rs`, `tests/tcp/fastopen.rs`.

mod keys;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use sockeye_proto::tcp::fast_open::{Cookie, FastOpenSyn, SynText};
use sockeye_proto::time::Instant;
use sockeye_sync::Mutex;
use sockeye_sync::facade::{Arc, AtomicBool, AtomicUsize, Ordering};

pub(crate) use self::keys::KeyRing;
pub use crate::config::fastopen::{
    BadKeys, CLIENT, CLIENT_WITHOUT_COOKIE, Keys, SERVER, SERVER_ALL, SERVER_WITHOUT_COOKIE,
};
use crate::tcp::conn::Conn;
use crate::tcp::handshake::listen::Listener;

/// Servers that a stack has cookies of, at most.
const CACHE_MAX: usize = 1024;
/// Doublings of the time for which a loss counts, at most.
const LOSSES_MAX: u8 = 12;
/// How long a connection that was reset before its handshake was done keeps its place.
const RESET_KEEPS: Duration = Duration::from_secs(60);

/// A client's record of a server.
#[derive(Clone, Copy)]
struct Known {
    cookie: Option<Cookie>,
    mss: u16,
    losses: u8,
    lost_at: Instant,
    /// Requests for a cookie that were answered without one: after the first the next is the experiment's, after that none is.
    denials: u8,
}

/// What a handshake has shown of Fast Open with its server.
#[derive(Clone, Copy)]
pub(crate) struct Lesson {
    /// The option of our first SYN.
    pub asked: Option<Cookie>,
    /// The option of the SYN-ACK.
    pub answer: Option<Cookie>,
    /// The MSS of the SYN-ACK.
    pub mss: u16,
    /// The fate of the text on our SYN.
    pub text: SynText,
    /// Our SYN had to be repeated.
    pub is_repeated: bool,
}

/// What a connect may do.
#[derive(Clone, Copy)]
pub(crate) struct Wish {
    /// No cookie is needed.
    pub no_cookie: bool,
    /// The MSS of a server of which none is known.
    pub mss_default: u16,
    /// For how long the first loss of a SYN with text counts; zero: not at all.
    pub loss_counts: Duration,
}

/// A client's cookies.
#[derive(Default)]
pub(crate) struct Cache {
    /// Whether there has ever been an entry: without one, a handshake need not lock the others' line.
    has_entries: AtomicBool,
    entries: Mutex<Entries>,
}

#[derive(Default)]
struct Entries {
    known: HashMap<IpAddr, Known>,
    order: VecDeque<IpAddr>,
}

impl Cache {
    /// Use of Fast Open by a connect to `server`. `None`: the text that was lost forbids it for now.
    pub fn syn(&self, server: IpAddr, wish: Wish, now: Instant) -> Option<FastOpenSyn> {
        let known = self.entries.lock().known.get(&server).copied();
        if known.is_some_and(|known| known.is_black_hole(wish.loss_counts, now)) {
            return None;
        }
        let mss = known.map_or(0, |known| known.mss);
        let mss = if mss == 0 { wish.mss_default } else { mss };
        if wish.no_cookie {
            return Some(FastOpenSyn { cookie: None, mss });
        }
        let is_experimental = known.is_some_and(|known| known.denials == 1);
        let request = if is_experimental { Cookie::REQUEST.experimental() } else { Cookie::REQUEST };
        let cookie = known.and_then(|known| known.cookie).unwrap_or(request);
        Some(FastOpenSyn { cookie: Some(cookie), mss })
    }

    /// A handshake with `server` is done. Returns true if text on its SYN was lost.
    pub fn learn(&self, server: IpAddr, lesson: &Lesson, now: Instant) -> bool {
        if lesson.asked.is_none() && lesson.text == SynText::None {
            return false;
        }
        // One that nobody asked for is no cookie.
        let answer = lesson.answer.filter(|_| lesson.asked.is_some());
        let cookie = answer.filter(|cookie| !cookie.is_request());
        let is_negative = match lesson.text {
            SynText::Lost => true,
            // Whose cookie has become invalid gets another with the refusal.
            SynText::Refused => cookie.is_none(),
            SynText::None | SynText::Sent | SynText::Taken | SynText::Part | SynText::TooLong => false,
        };
        self.has_entries.store(true, Ordering::Relaxed);
        let mut entries = self.entries.lock();
        let known = entries.make(server);
        known.mss = lesson.mss;
        known.cookie = cookie.or(known.cookie);
        if let Some(asked) = lesson.asked
            && asked.is_request()
            && answer.is_none()
            && !lesson.is_repeated
            && known.cookie.is_none()
        {
            known.denials = known.denials.max(if asked.is_experimental() { 2 } else { 1 });
        }
        if is_negative {
            known.lose(now);
        } else if matches!(lesson.text, SynText::Taken | SynText::Part) {
            known.losses = 0;
        }
        lesson.text == SynText::Lost
    }

    /// Forgets every server (`ip tcp_metrics flush`).
    pub fn clear(&self) {
        if self.has_entries.load(Ordering::Relaxed) {
            *self.entries.lock() = Entries::default();
        }
    }

    /// A handshake with `server` that began with text has failed, and the server has said nothing to it.
    pub fn note_unanswered(&self, server: IpAddr, now: Instant) {
        self.has_entries.store(true, Ordering::Relaxed);
        self.entries.lock().make(server).lose(now);
    }
}

impl Known {
    fn lose(&mut self, now: Instant) {
        (self.losses, self.lost_at) = ((self.losses + 1).min(LOSSES_MAX), now);
    }

    fn is_black_hole(&self, loss_counts: Duration, now: Instant) -> bool {
        self.losses > 0 && now.since(self.lost_at) < loss_counts.saturating_mul(1 << (self.losses - 1))
    }
}

impl Entries {
    fn make(&mut self, server: IpAddr) -> &mut Known {
        if !self.known.contains_key(&server) {
            if self.known.len() >= CACHE_MAX
                && let Some(first) = self.order.pop_front()
            {
                self.known.remove(&first);
            }
            self.order.push_back(server);
        }
        let new = Known { cookie: None, mss: 0, losses: 0, lost_at: Instant::ZERO, denials: 0 };
        self.known.entry(server).or_insert(new)
    }
}

/// The connections of a listener that were made at their SYN and have not proved themselves, and the options of the listener.
pub(crate) struct Queue {
    /// Most of them; 0: the listener does not do Fast Open.
    len_max: AtomicUsize,
    /// TCP_FASTOPEN_NO_COOKIE.
    pub no_cookie: AtomicBool,
    /// TCP_FASTOPEN_KEY: keys instead of the stack's.
    pub keys: KeyRing,
    pending: Mutex<Pending>,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            len_max: AtomicUsize::new(0),
            no_cookie: AtomicBool::new(false),
            keys: KeyRing::new(),
            pending: Mutex::default(),
        }
    }
}

#[derive(Default)]
struct Pending {
    count: usize,
    /// When the places of those that were reset come free.
    resets: VecDeque<Instant>,
}

impl Queue {
    pub fn set_len_max(&self, len_max: usize) {
        self.len_max.store(len_max, Ordering::Relaxed);
    }

    pub fn len_max(&self) -> usize {
        self.len_max.load(Ordering::Relaxed)
    }

    /// Whether there is a place.
    pub fn has_room(&self, now: Instant) -> bool {
        self.pending.lock().has_room(self.len_max(), now)
    }

    /// Takes a place; `false` if there is none.
    pub fn reserve(&self, now: Instant) -> bool {
        let mut pending = self.pending.lock();
        let has_room = pending.has_room(self.len_max(), now);
        pending.count += usize::from(has_room);
        has_room
    }

    fn give_back(&self, reset_at: Option<Instant>) {
        let mut pending = self.pending.lock();
        pending.count = pending.count.saturating_sub(1);
        if let Some(at) = reset_at {
            pending.resets.push_back(at + RESET_KEEPS);
        }
    }
}

impl Pending {
    fn has_room(&mut self, len_max: usize, now: Instant) -> bool {
        while self.resets.front().is_some_and(|ends| *ends <= now) {
            self.resets.pop_front();
        }
        self.count + self.resets.len() < len_max
    }
}

/// A connection's place in its listener's queue, which it keeps until its SYN is acknowledged.
pub(crate) struct Place(Arc<Listener>);

impl Place {
    /// The place that [`Queue::reserve`] has granted.
    pub fn new(listener: &Arc<Listener>) -> Self {
        Self(Arc::clone(listener))
    }

    /// Whether the connection waits to be accepted. Looks through the listener's queue, under the connection's lock.
    pub fn is_waiting(&self, conn: &Arc<Conn>) -> bool {
        self.0.holds(conn)
    }

    /// Gives it back; `reset_at` if the connection was reset.
    pub fn give_back(self, reset_at: Option<Instant>) {
        self.0.fast_open.give_back(reset_at);
    }
}
