//! Flow labels of IPv6 packets (RFC 6437): routers choose among paths of the same cost by addresses and label, without looking for
//! ports.
//!
//! All packets of a flow have one label, which nobody can guess. A connection whose packets seem to be lost takes another one, and with it
//! perhaps another path ([`PathCell::rehash`], Linux's `sk_rethink_txhash`): after a retransmission timeout, also of its SYN. Labels of received
//! packets are not looked at. Does not depend on protocols. Tests: below, `tests/ip/flow_labels.rs`.

use sockeye_sync::facade::{AtomicU8, Ordering};

use super::path_mtu::Path;
use crate::base::addr::HashKey;
use crate::rt::env::Env;

/// Bits of a label.
const BITS: u32 = 20;

/// The label of packets of the flow with this hash, after another path was asked for `rehashes` times. 0, which is none, where they are
/// switched off ([`Config::auto_flowlabels`](crate::Config::auto_flowlabels)).
#[inline]
pub(crate) fn of_flow(env: &Env, hash: u64, rehashes: u8) -> u32 {
    if env.config.auto_flowlabels { label(&env.key, hash, rehashes) } else { 0 }
}

/// Multiply-shift hashing with a secret factor. The flow's hash chooses the places of tables, and is not to be seen from outside: a label tells
/// nothing of it to somebody who does not know the factor.
#[inline]
fn label(key: &HashKey, hash: u64, rehashes: u8) -> u32 {
    // Any odd number with bits all over it.
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    let input = hash ^ u64::from(rehashes).wrapping_mul(SPREAD);
    (input.wrapping_mul(key.1 | 1) >> (u64::BITS - BITS)) as u32
}

/// What a connection knows of its path, in a byte. Written by the thread that runs its protocol code, read for each of its segments.
#[derive(Default)]
pub(crate) struct PathCell(AtomicU8);

/// The bit of [`PathCell::is_cut`]; the others count.
const CUT: u8 = 1 << 7;

impl PathCell {
    /// What is known of the path.
    pub fn note(&self, known: Option<Path>) {
        let cut = if known.is_some_and(|path| path.is_cut) { CUT } else { 0 };
        self.0.store(self.rehashes() | cut, Ordering::Relaxed);
    }

    /// Routers may cut packets that are no longer than the least MTU ([`Path::is_cut`]).
    #[inline]
    pub fn is_cut(&self) -> bool {
        self.0.load(Ordering::Relaxed) & CUT != 0
    }

    /// Takes another path, if there is one. `count`: how often that was asked for since.
    pub fn rehash(&self, count: u8) {
        let rehashes = self.rehashes().wrapping_add(count) & !CUT;
        self.0.store(self.0.load(Ordering::Relaxed) & CUT | rehashes, Ordering::Relaxed);
    }

    /// How often another path was taken, modulo 128.
    #[inline]
    pub fn rehashes(&self) -> u8 {
        self.0.load(Ordering::Relaxed) & !CUT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_follows_from_key_flow_and_rehashes_and_has_20_bits() {
        let key = HashKey(1, 0xfedc_ba98_7654_3210);
        let first = label(&key, 7 << 40, 0);
        assert_eq!(first, label(&key, 7 << 40, 0));
        let others = [label(&HashKey(1, 3), 7 << 40, 0), label(&key, 8 << 40, 0)];
        assert!(others.iter().all(|other| *other != first));
        let mut all: Vec<u32> = (0..128).map(|rehashes| label(&key, 7, rehashes)).collect();
        assert_eq!(all.iter().fold(0, |bits, label| bits | label), (1 << BITS) - 1);
        all.sort_unstable();
        all.dedup();
        assert!(all.len() > 120, "{}", all.len());
    }

    #[test]
    fn a_path_counts_and_may_be_cut() {
        let path = PathCell::default();
        assert_eq!((path.rehashes(), path.is_cut()), (0, false));
        path.rehash(5);
        path.note(Some(Path { mtu: 552, is_cut: true }));
        assert_eq!((path.rehashes(), path.is_cut()), (5, true));
        path.rehash(123);
        assert_eq!((path.rehashes(), path.is_cut()), (0, true));
        path.rehash(1);
        path.note(None);
        assert_eq!((path.rehashes(), path.is_cut()), (1, false));
    }
}
