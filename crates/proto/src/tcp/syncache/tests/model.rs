//! Random tests: the syncache beside a model of it that is plain and slow, and arbitrary segments.

use super::*;
use proptest::prelude::*;

/// One step of the random test.
#[derive(Clone, Debug)]
enum Step {
    Syn(u32),
    Ack(u32),
    Rst(u32),
    Remove(u32),
    Wait(u64),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u32..24).prop_map(Step::Syn),
        1 => (0u32..24).prop_map(Step::Ack),
        1 => (0u32..24).prop_map(Step::Rst),
        1 => (0u32..24).prop_map(Step::Remove),
        2 => prop_oneof![0u64..3000, 0u64..70_000].prop_map(Step::Wait),
    ]
}

/// The cache as one would write it without caring for time: entries in the order in which their timers have started.
#[derive(Default)]
struct Model {
    entries: Vec<Entry>,
}

#[derive(Clone, Copy)]
struct Entry {
    number: u32,
    retries: u32,
    sent_at: u64,
    is_repeated: bool,
}

impl Entry {
    fn deadline(&self) -> u64 {
        self.sent_at + (1000 << self.retries)
    }
}

impl Model {
    fn syn(&mut self, number: u32, now: u64) {
        if let Some(place) = self.entries.iter().position(|entry| entry.number == number) {
            let entry = self.entries[place];
            if !entry.is_repeated || now >= entry.sent_at + 500 {
                self.entries.remove(place);
                self.entries.push(Entry { sent_at: now, is_repeated: true, ..entry });
            }
            return;
        }
        if self.entries.len() == 8 {
            let most = self.entries.iter().map(|entry| entry.retries).max();
            let oldest = self.entries.iter().position(|entry| Some(entry.retries) == most);
            self.entries.remove(oldest.unwrap());
        }
        self.entries.push(Entry { number, retries: 0, sent_at: now, is_repeated: false });
    }

    fn holds(&self, number: u32) -> bool {
        self.entries.iter().any(|entry| entry.number == number)
    }

    fn drop(&mut self, number: u32) {
        self.entries.retain(|entry| entry.number != number);
    }

    fn wait(&mut self, now: u64) -> Vec<Key> {
        let (due, mut others): (Vec<Entry>, Vec<Entry>) =
            self.entries.drain(..).partition(|entry| entry.deadline() <= now);
        let again = due.into_iter().filter(|entry| entry.retries < 5).map(|entry| Entry {
            retries: entry.retries + 1,
            sent_at: now,
            is_repeated: false,
            ..entry
        });
        let again: Vec<Entry> = again.collect();
        others.extend(&again);
        self.entries = others;
        again.iter().map(|entry| key(entry.number)).collect()
    }
}

proptest! {
    #[test]
    fn the_syncache_agrees_with_a_plain_model(steps in prop::collection::vec(any_step(), 0..120)) {
        let mut cache = Cache::new(8, HASH_KEY);
        let mut model = Model::default();
        let mut now = 0;
        for step in steps {
            match step {
                Step::Syn(number) => {
                    cache.on_syn(key(number), LISTENER, &syn(), &PARAMS, NUMBERS, at(now));
                    model.syn(number, now);
                }
                Step::Ack(number) => {
                    let outcome = cache.on_ack(&key(number), &third(), 0, at(now), patient);
                    prop_assert_eq!(accepted(outcome).is_some(), model.holds(number));
                }
                Step::Rst(number) => {
                    let outcome = cache.on_rst(&key(number), &reset_at(IRS + 1), at(now));
                    prop_assert_eq!(outcome != RstOutcome::NoEntry, model.holds(number));
                    model.drop(number);
                }
                Step::Remove(number) => {
                    let removed = cache.remove(&key(number));
                    prop_assert_eq!(removed.is_some(), model.holds(number));
                    model.drop(number);
                }
                Step::Wait(millis) => {
                    now += millis;
                    let mut sent: Vec<Key> =
                        tick(&mut cache, at(now)).into_iter().map(|(key, _)| key).collect();
                    let mut expected = model.wait(now);
                    sent.sort_unstable();
                    expected.sort_unstable();
                    prop_assert_eq!(sent, expected);
                }
            }
            cache.table.assert_consistent();
            prop_assert_eq!(cache.len(), model.entries.len());
            let deadline = model.entries.iter().map(|entry| at(entry.deadline())).min();
            prop_assert_eq!(cache.next_deadline(), deadline);
        }
    }

    #[test]
    fn arbitrary_segments_never_panic_nor_complete_by_chance(
        raw in any::<[u32; 2]>(),
        bits in any::<u8>(),
        window in any::<u16>(),
        ts in any::<Option<(u32, u32)>>(),
        payload_len in 0usize..70_000,
    ) {
        let mut cache = cache_with_one(at(0));
        let hdr = Header {
            seq: SeqNum::new(raw[0]),
            ack: SeqNum::new(raw[1]),
            flags: Flags::from_bits(bits),
            window,
            options: Options {
                timestamps: ts.map(|(val, ecr)| Timestamps { val, ecr }),
                ..Options::default()
            },
            ..Header::default()
        };
        let outcome = cache.on_ack(&key(1), &hdr, payload_len, at(1), patient);
        prop_assert!(accepted(outcome).is_none() || hdr.ack == ISS + 1);
        prop_assert_eq!(cache.len(), 1);
        cache.on_rst(&key(1), &hdr, at(1));
        prop_assert_eq!(cache.is_empty(), hdr.seq == IRS + 1);
    }
}
