//! Flow labels of IPv6 packets (RFC 6437): routers choose among paths of the same cost by addresses and label, without looking for
//! ports.
//!
//! All packets of a flow have one label, which nobody can guess: a keyed hash of the flow's hash, which is keyed itself, so that a label tells
//! nothing of where tables keep the flow. A connection whose packets seem to be lost takes another label, and with it perhaps another
//! path ([`Label::rehash`], Linux's `sk_rethink_txhash`): after a retransmission timeout, also of its SYN. Labels of received packets are not
//! looked at. Does not depend on protocols. Tests: below, `tests/ip/flow_labels.rs`.

use siphasher::sip::SipHasher13;
use sockeye_sync::facade::{AtomicU32, Ordering};

use crate::base::addr::HashKey;
use crate::rt::env::Env;

/// Bits of a label.
const MASK: u32 = 0x000f_ffff;

/// The label of packets of the flow with this hash; `rehashes`: how often another path was asked for. 0, which is none, where they are
/// switched off ([`Config::auto_flowlabels`](crate::Config::auto_flowlabels)).
pub(crate) fn of_flow(env: &Env, hash: u64, rehashes: u32) -> u32 {
    if env.config.auto_flowlabels { label(&env.key, hash, rehashes) } else { 0 }
}

fn label(key: &HashKey, hash: u64, rehashes: u32) -> u32 {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&hash.to_ne_bytes());
    bytes[8..].copy_from_slice(&rehashes.to_ne_bytes());
    SipHasher13::new_with_keys(key.0, key.1).hash(&bytes) as u32 & MASK
}

/// A connection's label. Written by the thread that runs its protocol code, read for each of its segments; the two words need no order
/// between them.
#[derive(Default)]
pub(crate) struct Label {
    now: AtomicU32,
    rehashes: AtomicU32,
}

impl Label {
    /// Takes the label of a connection that begins, after `rehashes` SYN-ACKs that were not heard of.
    pub fn begin(&self, env: &Env, hash: u64, rehashes: u32) {
        self.rehashes.store(rehashes, Ordering::Relaxed);
        self.now.store(of_flow(env, hash, rehashes), Ordering::Relaxed);
    }

    /// Takes another.
    pub fn rehash(&self, env: &Env, hash: u64) {
        self.begin(env, hash, self.rehashes.load(Ordering::Relaxed).wrapping_add(1));
    }

    /// How often another was taken, for a name in TIME-WAIT.
    pub fn rehashes(&self) -> u8 {
        u8::try_from(self.rehashes.load(Ordering::Relaxed)).unwrap_or(u8::MAX)
    }

    /// The label; 0 before it has begun, and for IPv4.
    #[inline]
    pub fn get(&self) -> u32 {
        self.now.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_follows_from_key_flow_and_repeats_and_has_20_bits() {
        let key = HashKey(1, 2);
        let first = label(&key, 7, 0);
        assert_eq!(first, label(&key, 7, 0));
        let others = [label(&HashKey(1, 3), 7, 0), label(&key, 8, 0), label(&key, 7, 1)];
        assert!(others.iter().all(|other| *other != first));
        let all = (0..1000).map(|hash| label(&key, hash, 0));
        assert_eq!(all.clone().fold(0, |bits, label| bits | label), MASK);
        assert_eq!(all.fold(MASK, |bits, label| bits & label), 0);
    }
}
