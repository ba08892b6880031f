//! TCP Fast Open's memory (RFC 7413): a client's cookies, a server's keys, and how many a listener lets in unproven.
//!
//! The protocol is `proto/src/tcp/fast_open.rs`; the callers are `tcp/socket/fastopen.rs` (a connect), `passive.rs` (a
//! SYN) and `conn/engine.rs` (the end of a handshake).
//!
//! * A *server's* cookie is a keyed hash of both addresses, so the server remembers no client. The key is one of a row made from
//!   one secret; `Keys::rotate` goes on to the next, and cookies of the one before are good for as long as it stays.
//! * A *client* keeps a cookie and an MSS for each server, at most `CACHE_MAX`, the first that came going first. A
//!   SYN with text that had to be repeated, that was not answered, or whose text was not taken is held against the
//!   server: for a minute, and twice as long each time, SYNs to it carry none (section 4.1.3.1).
//! * A *listener* counts connections whose SYN is not acknowledged (`Queue`), against forged addresses (section
//!   5.1). One that was reset keeps its place for `RESET_KEEPS`: else a reset would clear the way for the next.
//!
//! Locks: the cache's and a queue's mutex are leaves. Tests: below, `tests/fastopen.rs`.

use std::collections::{HashMap, VecDeque};
use std::hash::Hasher;
use std::net::IpAddr;
use std::time::Duration;

use siphasher::sip::SipHasher24;
use sockeye_proto::tcp::fast_open::{Cookie, FastOpenSyn, SynText};
use sockeye_proto::time::Instant;
use sockeye_sync::Mutex;
use sockeye_sync::facade::{Arc, AtomicBool, AtomicU32, AtomicUsize, Ordering};

use crate::base::addr::octets;
use crate::base::entropy::Key;
pub use crate::config::fastopen::{CLIENT, CLIENT_WITHOUT_COOKIE, SERVER, SERVER_ALL, SERVER_WITHOUT_COOKIE};
use crate::tcp::handshake::listen::Listener;

/// Servers that a stack has cookies of, at most.
const CACHE_MAX: usize = 1024;
/// How long the first loss of a SYN with text counts.
const LOSS_COUNTS: Duration = Duration::from_secs(60);
/// Doublings of it, at most: 64 hours.
const LOSSES_MAX: u8 = 12;
/// How long a connection that was reset before its handshake was done keeps its place.
const RESET_KEEPS: Duration = Duration::from_secs(60);

/// The keys of a server's cookies.
pub(crate) struct Keys {
    secret: Key,
    generation: AtomicU32,
}

impl Keys {
    pub fn new(secret: [u8; 16]) -> Self {
        Self { secret: Key::new(secret), generation: AtomicU32::new(0) }
    }

    /// Changes the secret. Cookies of the old one are no good any more.
    pub fn rekey(&self, secret: [u8; 16]) {
        self.secret.set(secret);
    }

    /// Goes on to the next key. Cookies of the one before the present one are no good any more.
    pub fn rotate(&self) {
        self.generation.fetch_add(1, Ordering::Relaxed);
    }

    /// The cookie that `client` gets of us at `local`.
    pub fn cookie(&self, local: IpAddr, client: IpAddr) -> Option<Cookie> {
        self.cookie_of(self.generation.load(Ordering::Relaxed), local, client)
    }

    /// Whether `cookie` is one of ours; then also a new one, if it was made with the key before.
    pub fn check(&self, cookie: &Cookie, local: IpAddr, client: IpAddr) -> Option<Option<Cookie>> {
        let generation = self.generation.load(Ordering::Relaxed);
        let new = self.cookie_of(generation, local, client);
        if new.as_ref() == Some(cookie) {
            return Some(None);
        }
        let old = self.cookie_of(generation.checked_sub(1)?, local, client);
        (old.as_ref() == Some(cookie)).then_some(new)
    }

    fn cookie_of(&self, generation: u32, local: IpAddr, client: IpAddr) -> Option<Cookie> {
        let mut hasher = SipHasher24::new_with_key(&self.secret.bytes());
        hasher.write_u32(generation);
        let mut key = [0; 16];
        key[..8].copy_from_slice(&hasher.finish().to_be_bytes());
        hasher.write_u8(1);
        key[8..].copy_from_slice(&hasher.finish().to_be_bytes());
        let mut hasher = SipHasher24::new_with_key(&key);
        hasher.write(&octets(client));
        hasher.write(&octets(local));
        Cookie::new(&hasher.finish().to_be_bytes())
    }
}

/// A client's record of a server.
#[derive(Clone, Copy)]
struct Known {
    cookie: Option<Cookie>,
    mss: u16,
    losses: u8,
    lost_at: Instant,
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
    /// Use of Fast Open by a connect to `server`. `mss_default` is assumed for an unknown server.
    pub fn syn(&self, server: IpAddr, bits: u32, mss_default: u16, now: Instant) -> Option<FastOpenSyn> {
        if bits & CLIENT == 0 {
            return None;
        }
        let known = self.entries.lock().known.get(&server).copied();
        let mss = known.map_or(0, |known| known.mss);
        let mss = if mss == 0 { mss_default } else { mss };
        if known.is_some_and(|known| known.is_black_hole(now)) {
            return None;
        }
        match known.and_then(|known| known.cookie) {
            Some(cookie) => Some(FastOpenSyn { cookie: Some(cookie), mss }),
            None if bits & CLIENT_WITHOUT_COOKIE != 0 => Some(FastOpenSyn { cookie: None, mss }),
            None => Some(FastOpenSyn { cookie: Some(Cookie::REQUEST), mss }),
        }
    }

    /// A handshake with `server` is done. Returns true if text on its SYN is now held to be dropped on the way.
    pub fn learn(
        &self,
        server: IpAddr,
        cookie: Option<Cookie>,
        mss: u16,
        text: SynText,
        now: Instant,
    ) -> bool {
        let cookie = cookie.filter(|cookie| !cookie.is_request());
        let is_negative = match text {
            SynText::Lost => true,
            // Whose cookie has become invalid gets another with the refusal.
            SynText::Refused => cookie.is_none(),
            SynText::None | SynText::Sent | SynText::Taken => false,
        };
        // Relaxed: this connection sees its own earlier accesses of the entries, which were under their lock.
        if cookie.is_none() && !is_negative && !self.has_entries.load(Ordering::Relaxed) {
            return false;
        }
        let mut entries = self.entries.lock();
        if cookie.is_none() && !is_negative && !entries.known.contains_key(&server) {
            return false;
        }
        self.has_entries.store(true, Ordering::Relaxed);
        let known = entries.make(server);
        known.mss = mss;
        known.cookie = cookie.or(known.cookie);
        if is_negative {
            known.lose(now);
        } else if text == SynText::Taken {
            known.losses = 0;
        }
        text == SynText::Lost
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

    fn is_black_hole(&self, now: Instant) -> bool {
        self.losses > 0 && now.since(self.lost_at) < LOSS_COUNTS * (1 << (self.losses - 1))
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
        let new = Known { cookie: None, mss: 0, losses: 0, lost_at: Instant::ZERO };
        self.known.entry(server).or_insert(new)
    }
}

/// The connections of a listener that were made at their SYN and have not proved themselves.
#[derive(Default)]
pub(crate) struct Queue {
    /// Most of them; 0: the listener does not do Fast Open.
    len_max: AtomicUsize,
    pending: Mutex<Pending>,
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

    /// Takes a place; `false` if there is none.
    pub fn reserve(&self, now: Instant) -> bool {
        let mut pending = self.pending.lock();
        while pending.resets.front().is_some_and(|ends| *ends <= now) {
            pending.resets.pop_front();
        }
        let has_room = pending.count + pending.resets.len() < self.len_max();
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

/// A connection's place in its listener's queue, which it keeps until its SYN is acknowledged.
pub(crate) struct Place(Arc<Listener>);

impl Place {
    /// The place that [`Queue::reserve`] has granted.
    pub fn new(listener: &Arc<Listener>) -> Self {
        Self(Arc::clone(listener))
    }

    /// Gives it back; `reset_at` if the connection was reset.
    pub fn give_back(self, reset_at: Option<Instant>) {
        self.0.fast_open.give_back(reset_at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

    fn host(n: u32) -> IpAddr {
        std::net::Ipv4Addr::from(0x0a01_0000 + n).into()
    }

    fn at(seconds: u64) -> Instant {
        Instant::from_micros(seconds * 1_000_000)
    }

    #[test]
    fn a_cookie_is_good_for_its_address_and_for_one_rotation() {
        let keys = Keys::new(*b"sixteen bytes ok");
        let cookie = keys.cookie(HERE, host(1)).unwrap();
        assert_eq!(keys.check(&cookie, HERE, host(1)), Some(None));
        assert_eq!(keys.check(&cookie, HERE, host(2)), None);
        assert_eq!(keys.check(&cookie, host(9), host(1)), None);
        keys.rotate();
        let new = keys.cookie(HERE, host(1));
        assert!(new != Some(cookie));
        assert_eq!(keys.check(&cookie, HERE, host(1)), Some(new), "the old one, and a new one with it");
        keys.rotate();
        assert_eq!(keys.check(&cookie, HERE, host(1)), None);
    }

    #[test]
    fn a_client_asks_then_knows_and_stays_within_its_bound() {
        let cache = Cache::default();
        let cookie = Cookie::new(b"12345678");
        assert_eq!(cache.syn(HERE, 0, 536, at(0)), None);
        let asks = FastOpenSyn { cookie: Some(Cookie::REQUEST), mss: 536 };
        assert_eq!(cache.syn(HERE, CLIENT, 536, at(0)), Some(asks));
        let bare = FastOpenSyn { cookie: None, mss: 536 };
        assert_eq!(cache.syn(HERE, CLIENT | CLIENT_WITHOUT_COOKIE, 536, at(0)), Some(bare));
        cache.learn(HERE, cookie, 1460, SynText::None, at(0));
        let knows = FastOpenSyn { cookie, mss: 1460 };
        assert_eq!(cache.syn(HERE, CLIENT, 536, at(0)), Some(knows));
        for n in 0..2000 {
            cache.learn(host(n), cookie, 1000, SynText::None, at(1));
        }
        let entries = cache.entries.lock();
        assert_eq!((entries.known.len(), entries.order.len()), (CACHE_MAX, CACHE_MAX));
        assert!(!entries.known.contains_key(&HERE), "the first to come is the first to go");
    }

    #[test]
    fn each_lost_syn_disables_fast_open_to_the_server_for_longer() {
        let cache = Cache::default();
        let cookie = Cookie::new(b"12345678");
        cache.learn(HERE, cookie, 1460, SynText::None, at(0));
        let goes = |now| cache.syn(HERE, CLIENT, 536, at(now)).is_some();
        assert!(cache.learn(HERE, None, 1460, SynText::Lost, at(0)));
        assert!(!goes(59) && goes(60));
        assert!(cache.learn(HERE, None, 1460, SynText::Lost, at(60)));
        assert!(!goes(179) && goes(180));
        assert!(!cache.learn(HERE, None, 1460, SynText::Taken, at(180)));
        assert!(goes(180));
    }

    #[test]
    fn a_refusal_without_a_new_cookie_disables_fast_open_to_the_server() {
        let cache = Cache::default();
        let cookie = Cookie::new(b"12345678");
        cache.learn(HERE, cookie, 1460, SynText::None, at(0));
        let goes = |now| cache.syn(HERE, CLIENT, 536, at(now)).is_some();
        assert!(!cache.learn(HERE, cookie, 1460, SynText::Refused, at(0)));
        assert!(goes(0));
        assert!(!cache.learn(HERE, None, 1460, SynText::Refused, at(0)));
        assert!(!goes(59) && goes(60));
    }

    #[test]
    fn an_unknown_server_that_does_not_answer_gets_no_data_for_a_minute() {
        let cache = Cache::default();
        let bits = CLIENT | CLIENT_WITHOUT_COOKIE;
        cache.note_unanswered(HERE, at(0));
        assert_eq!(cache.syn(HERE, bits, 536, at(59)), None);
        assert_eq!(cache.syn(HERE, bits, 536, at(60)), Some(FastOpenSyn { cookie: None, mss: 536 }));
        assert!(cache.learn(HERE, None, 1460, SynText::Lost, at(60)));
        assert_eq!(cache.syn(HERE, bits, 536, at(179)), None);
    }

    #[test]
    fn a_reset_keeps_a_place_for_a_minute() {
        let queue = Queue::default();
        assert!(!queue.reserve(at(0)), "a listener that did not ask has none");
        queue.set_len_max(2);
        assert!(queue.reserve(at(0)) && queue.reserve(at(0)) && !queue.reserve(at(0)));
        queue.give_back(None);
        assert!(queue.reserve(at(1)));
        queue.give_back(Some(at(2)));
        assert!(!queue.reserve(at(61)) && queue.reserve(at(62)));
    }
}
