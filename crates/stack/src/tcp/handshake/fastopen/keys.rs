//! Keys of a server's cookies: a stack's, and those that a listener has of its own (`tcp_fastopen_key`, `TCP_FASTOPEN_KEY`).
//!
//! A cookie is Linux's: SipHash-2-4 of the client's and the server's address, so that servers behind one address may share
//! keys, whatever they run. New cookies are of the *primary* key; those of the *backup* key are good too, and their
//! clients get a new one. A stack's first key is random unless [`TcpConfig::fastopen_key`](crate::TcpConfig::fastopen_key) has one.
//!
//! Every SYN with a cookie reads the keys, and hardly anything writes them: so they stand in a ring of slots that are written before the
//! number of the last one is published. A reader is disturbed only if the ring goes round while it reads, and then takes a cookie for
//! false, which costs its client a round trip.
//!
//! Writers exclude each other by a mutex, a leaf. Tests: `tests.rs`, `tests/tcp/fastopen.rs`.

use std::hash::Hasher;
use std::net::IpAddr;

use siphasher::sip::SipHasher24;
use sockeye_proto::tcp::fast_open::Cookie;
use sockeye_sync::Mutex;
use sockeye_sync::facade::{AtomicBool, AtomicU32, Ordering};

use crate::base::entropy::Key;
use crate::config::fastopen::Keys;

/// Keys that may be replaced while they are read.
pub(crate) struct KeyRing {
    slots: [Slot; SLOT_COUNT],
    /// (a) How many slots were written: the last of them is the primary key's, and there is none at 0. Partner: [`KeyRing::keys`].
    written: AtomicU32,
    writing: Mutex<()>,
}

/// A key, with whether the one before it is its backup.
struct Slot {
    key: Key,
    has_backup: AtomicBool,
}

/// A change of keys takes one or two slots.
const SLOT_COUNT: usize = 8;

impl KeyRing {
    /// No keys.
    pub fn new() -> Self {
        let slot = || Slot { key: Key::new([0; 16]), has_backup: AtomicBool::new(false) };
        Self { slots: std::array::from_fn(|_| slot()), written: AtomicU32::new(0), writing: Mutex::new(()) }
    }

    /// These keys.
    pub fn of(keys: Keys) -> Self {
        let ring = Self::new();
        ring.set(keys);
        ring
    }

    /// Replaces the keys. Cookies of others are no good any more.
    pub fn set(&self, keys: Keys) {
        let _writing = self.writing.lock();
        self.put(keys);
    }

    /// Makes `primary` the key of new cookies, and the key of those so far the backup.
    pub fn rotate(&self, primary: [u8; 16]) {
        let _writing = self.writing.lock();
        let backup = self.keys().map(|keys| keys.primary);
        self.put(Keys { primary, backup });
    }

    /// [`KeyRing::set`] where there is one thread: in a child of fork(2) the mutex may be that of a thread that is not there.
    pub fn set_alone(&self, keys: Keys) {
        self.put(keys);
    }

    fn put(&self, keys: Keys) {
        let mut written = self.written.load(Ordering::Relaxed);
        let mut write = |key, has_backup| {
            // Never 0 again: that would be no keys.
            let slot = &self.slots[written as usize % SLOT_COUNT];
            slot.key.set(key);
            slot.has_backup.store(has_backup, Ordering::Relaxed);
            written = written.checked_add(1).unwrap_or(SLOT_COUNT as u32);
        };
        if let Some(backup) = keys.backup {
            write(backup, false);
        }
        write(keys.primary, keys.backup.is_some());
        self.written.store(written, Ordering::Release);
    }

    /// Another number after each change, from which with a secret the next key is made.
    pub fn nonce(&self) -> [u8; 16] {
        let mut nonce = *b"fast open key\0\0\0";
        let written = self.written.load(Ordering::Relaxed).to_ne_bytes();
        nonce[12..].copy_from_slice(&written);
        nonce
    }

    /// The keys now.
    pub fn keys(&self) -> Option<Keys> {
        let last = self.written.load(Ordering::Acquire).checked_sub(1)?;
        let slot = |index: u32| &self.slots[index as usize % SLOT_COUNT];
        let primary = slot(last).key.bytes();
        let has_backup = slot(last).has_backup.load(Ordering::Relaxed);
        let backup = if has_backup { last.checked_sub(1) } else { None };
        Some(Keys { primary, backup: backup.map(|before| slot(before).key.bytes()) })
    }
}

impl Keys {
    /// The cookie that `client` gets of a server at `local`.
    pub(crate) fn cookie(&self, local: IpAddr, client: IpAddr) -> Option<Cookie> {
        cookie_of(self.primary, local, client)
    }

    /// Whether `cookie` is one of ours; then also a new one, if it is of the backup key.
    pub(crate) fn check(&self, cookie: &Cookie, local: IpAddr, client: IpAddr) -> Option<Option<Cookie>> {
        let is = |other: Option<Cookie>| other.is_some_and(|other| other.as_slice() == cookie.as_slice());
        let new = self.cookie(local, client);
        if is(new) {
            return Some(None);
        }
        is(cookie_of(self.backup?, local, client)).then_some(new)
    }
}

fn cookie_of(key: [u8; 16], local: IpAddr, client: IpAddr) -> Option<Cookie> {
    let mut hasher = SipHasher24::new_with_key(&key);
    for addr in [client, local] {
        match addr {
            IpAddr::V4(addr) => hasher.write(&addr.octets()),
            IpAddr::V6(addr) => hasher.write(&addr.octets()),
        }
    }
    Cookie::new(&hasher.finish().to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn keys(text: &str) -> Keys {
        text.parse().unwrap()
    }

    #[test]
    fn cookies_are_those_that_linux_makes() {
        // Seen from a kernel with these values of tcp_fastopen_key.
        for (key, client, server, cookie) in [
            ("a0bf63f7-ed803d81-cd641d30-cebc4a90", "10.248.0.2", "192.168.0.2", 0x00ab_aaab_e8e9_54c2_u64),
            ("a0bf63f7-ed803d81-cd641d30-cebc4a90", "10.248.0.3", "192.168.0.2", 0x1313_a2da_994a_0951),
            ("a1a1a1a1-b2b2b2b2-c3c3c3c3-d4d4d4d4", "192.0.2.1", "192.168.0.1", 0x3021_b9d8_8901_7eeb),
            (
                "a1a1a1a1-b2b2b2b2-c3c3c3c3-d4d4d4d4",
                "fd3d:fa7b:d17d::1",
                "fd3d:a0b:17d6::1",
                0xc1d1_e974_2a47_a9bc,
            ),
        ] {
            let made = keys(key).cookie(addr(server), addr(client)).unwrap();
            assert_eq!(made.as_slice(), cookie.to_be_bytes(), "{client} {server}");
        }
    }

    #[test]
    fn a_cookie_is_good_for_its_address_and_for_one_rotation() {
        let (here, client) = (addr("10.0.0.1"), addr("10.1.0.1"));
        let ring = KeyRing::of(Keys { primary: [1; 16], backup: None });
        let check = |cookie: &Cookie| ring.keys().unwrap().check(cookie, here, client);
        let cookie = ring.keys().unwrap().cookie(here, client).unwrap();
        assert_eq!(check(&cookie), Some(None));
        assert_eq!(check(&cookie.experimental()), Some(None));
        assert_eq!(ring.keys().unwrap().check(&cookie, here, addr("10.1.0.2")), None);
        assert_eq!(ring.keys().unwrap().check(&cookie, addr("10.0.0.9"), client), None);
        ring.rotate([2; 16]);
        let new = ring.keys().unwrap().cookie(here, client);
        assert!(new != Some(cookie));
        assert_eq!(check(&cookie), Some(new), "the old one, and a new one with it");
        ring.rotate([3; 16]);
        assert_eq!(check(&cookie), None);
    }

    #[test]
    fn the_keys_are_those_set_last_however_often() {
        let ring = KeyRing::new();
        assert_eq!(ring.keys(), None);
        for n in 0..50_u8 {
            let keys = Keys { primary: [n; 16], backup: n.is_multiple_of(3).then_some([n ^ 0xff; 16]) };
            ring.set(keys);
            assert_eq!(ring.keys(), Some(keys));
            ring.rotate([0x77; 16]);
            assert_eq!(ring.keys(), Some(Keys { primary: [0x77; 16], backup: Some([n; 16]) }));
        }
        ring.written.store(u32::MAX, Ordering::Relaxed);
        ring.set(Keys { primary: [1; 16], backup: Some([2; 16]) });
        assert_eq!(ring.keys(), Some(Keys { primary: [1; 16], backup: Some([2; 16]) }));
    }
}
