//! Fragments in every order, against a model that keeps bytes in an array, and the bounds.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

type Table = Reass<u8, Vec<u8>>;

fn key(src: u32, id: u32) -> Key {
    let addresses = Addresses::new(IpAddr::V4(src.into()), IpAddr::V4(1.into())).unwrap();
    Key::new(&addresses, 17, id)
}

fn piece(offset: u16, more: bool, payload: Vec<u8>) -> Piece<u8, Vec<u8>> {
    let cost = payload.len();
    let fragment = Fragment { id: 0, offset, more };
    Piece { fragment, len: cost, header_len: 20, cost, ecn: 0, headers: 7, payload }
}

fn give(table: &mut Table, key: Key, offset: u16, more: bool, len: usize) -> Outcome<u8, Vec<u8>> {
    table.on_fragment(key, piece(offset, more, vec![offset as u8; len]), Instant::ZERO)
}

fn refusal(outcome: Outcome<u8, Vec<u8>>) -> Option<Refused> {
    match outcome {
        Outcome::Refused(why) => Some(why),
        Outcome::Pending | Outcome::Complete(..) => None,
    }
}

#[test]
fn a_fragment_that_does_not_fit_drops_the_datagram_and_its_later_fragments() {
    for (fragments, why) in [
        (&[(0, true, 16), (8, true, 16)][..], Refused::Overlap),
        (&[(8, true, 16), (0, true, 16)], Refused::Overlap),
        (&[(0, true, 16), (0, true, 8)], Refused::Overlap),
        (&[(16, false, 8), (24, false, 8)], Refused::Inconsistent),
        (&[(16, false, 8), (24, true, 8)], Refused::Inconsistent),
        (&[(24, true, 8), (16, false, 8)], Refused::Inconsistent),
        (&[(65512, false, 16), (0, true, 8)], Refused::TooLong),
    ] {
        let mut table = Table::default();
        let outcomes: Vec<_> = fragments
            .iter()
            .map(|(offset, more, len)| refusal(give(&mut table, key(1, 1), *offset, *more, *len)))
            .collect();
        assert_eq!(outcomes, [None, Some(why)], "{fragments:?}");
        assert_eq!(refusal(give(&mut table, key(1, 1), 0, true, 8)), Some(Refused::Dead));
        assert_eq!((table.cost(), table.len()), (0, 1));
        let mut expired = 0;
        assert_eq!(table.expire(Instant::ZERO + TIME_V4, |_| expired += 1), 0);
        assert_eq!((expired, table.len(), table.next_deadline()), (0, 0, None));
    }
}

#[test]
fn an_invalid_fragment_leaves_no_trace() {
    let mut table = Table::default();
    for (offset, more, len, why) in [
        (0, true, 9, Refused::Length),
        (0, true, 0, Refused::Length),
        (8, false, 0, Refused::Length),
        (65528, false, 8, Refused::TooLong),
        (65528, true, 65528, Refused::TooLong),
    ] {
        assert_eq!(refusal(give(&mut table, key(1, 1), offset, more, len)), Some(why));
    }
    assert!(table.is_empty() && table.next_deadline().is_none());
}

#[test]
fn a_duplicate_is_ignored_and_reassembly_continues() {
    let mut table = Table::default();
    assert_eq!(refusal(give(&mut table, key(1, 1), 0, true, 8)), None);
    assert_eq!(refusal(give(&mut table, key(1, 1), 0, true, 8)), Some(Refused::Duplicate));
    assert_eq!(table.cost(), 8);
    let Outcome::Complete(7, 0, pieces) = give(&mut table, key(1, 1), 8, false, 3) else {
        panic!("not whole")
    };
    assert_eq!(pieces, [vec![0; 8], vec![8; 3]]);
    assert!(table.is_empty() && table.sources.is_empty() && table.cost() == 0);
}

#[test]
fn a_timeout_reports_the_first_fragment_if_it_arrived() {
    let mut table = Table::default();
    give(&mut table, key(1, 1), 0, true, 8);
    give(&mut table, key(1, 2), 8, true, 8);
    let mut expired = Vec::new();
    assert_eq!(table.expire(Instant::from_micros(29_999_999), |_| panic!("early")), 0);
    assert_eq!(table.expire(Instant::from_micros(30_000_000), |first| expired.push(first)), 2);
    assert_eq!(expired, [(7, vec![0; 8])]);
    assert_eq!((table.len(), table.cost()), (0, 0));
}

#[test]
fn a_flood_of_one_source_uses_only_its_own_entries() {
    let mut table = Table::default();
    give(&mut table, key(1, 1), 0, true, 1000);
    for id in 0..10_000 {
        give(&mut table, key(2, id), 0, true, 1000);
    }
    assert_eq!(table.len(), 1 + SOURCE_DATAGRAMS_MAX);
    assert_eq!(table.take_evicted(), 10_000 - SOURCE_DATAGRAMS_MAX as u64);
    assert!(matches!(give(&mut table, key(1, 1), 1000, false, 1), Outcome::Complete(..)));
}

#[test]
fn forged_sources_never_block_a_fresh_datagram() {
    let mut table = Table::default();
    (10..3000).for_each(|src| drop(give(&mut table, key(src, 1), 0, true, 8)));
    assert_eq!(table.len(), DATAGRAMS_MAX);
    // As many newcomers as there are places, but one, between the two fragments.
    assert_eq!(refusal(give(&mut table, key(1, 1), 0, true, 8)), None);
    (5000..5000 + DATAGRAMS_MAX as u32 - 1).for_each(|src| drop(give(&mut table, key(src, 1), 0, true, 8)));
    assert!(matches!(give(&mut table, key(1, 1), 8, false, 1), Outcome::Complete(..)));
    // One more takes the place of the oldest.
    give(&mut table, key(1, 2), 0, true, 8);
    (9000..9000 + DATAGRAMS_MAX as u32).for_each(|src| drop(give(&mut table, key(src, 1), 0, true, 8)));
    assert!(matches!(give(&mut table, key(1, 2), 8, false, 1), Outcome::Pending));
    assert_eq!(table.len(), DATAGRAMS_MAX);
}

#[test]
fn bytes_of_forged_sources_never_block_a_long_fresh_datagram() {
    let mut table = Table::default();
    // None of them holds as much as the honest one will.
    for src in 10..200 {
        (0..2).for_each(|part| drop(give(&mut table, key(src, 1), part * 16_000, true, 16_000)));
    }
    assert!(table.cost() > COST_MAX - 32_000 && table.cost() <= COST_MAX);
    let parts = (0..4).map(|part| give(&mut table, key(1, 1), part * 16_000, part < 3, 16_000));
    assert!(matches!(parts.last(), Some(Outcome::Complete(..))));
    assert!(table.cost() > COST_MAX - 96_000, "no more gave way than was needed");
}

#[test]
fn a_source_within_its_share_loses_nothing_to_one_that_holds_more() {
    let mut table = Table::default();
    (0..7).for_each(|id| drop(give(&mut table, key(1, id), 0, true, 8)));
    // Sources that hold as many as they may, more than there are places for.
    for src in 10..100 {
        (0..100).for_each(|id| drop(give(&mut table, key(src, id), 0, true, 8)));
    }
    assert_eq!(table.len(), DATAGRAMS_MAX);
    for id in 0..7 {
        assert!(matches!(give(&mut table, key(1, id), 8, false, 1), Outcome::Complete(..)), "{id}");
    }
}

#[test]
fn memory_is_bounded_for_a_source_and_for_all() {
    let mut table = Table::default();
    let big = |table: &mut Table, src, id| {
        for part in 0..4u16 {
            give(table, key(src, id), part * 16_000, true, 16_000);
        }
    };
    (0..100).for_each(|id| big(&mut table, 1, id));
    assert!(table.cost() <= SOURCE_COST_MAX && table.cost() > SOURCE_COST_MAX / 2);
    for src in 0..100 {
        (0..100).for_each(|id| big(&mut table, src, id));
        assert!(table.cost() <= COST_MAX);
    }
    table.expire(Instant::ZERO + TIME_V6, drop);
    assert_eq!((table.cost(), table.len(), table.sources.len()), (0, 0, 0));
}

#[test]
fn marks_of_congestion_are_joined_and_impossible_ones_refused() {
    for (first, second, joined) in [
        (0, 0, Some(0)),
        (2, 2, Some(2)),
        (1, 2, Some(1)),
        (2, 3, Some(3)),
        (3, 1, Some(3)),
        (0, 3, None),
        (3, 0, None),
    ] {
        let mut table = Table::default();
        let with = |offset, more, ecn| Piece { ecn, ..piece(offset, more, vec![0; 8]) };
        table.on_fragment(key(1, 1), with(8, false, second), Instant::ZERO);
        let outcome = table.on_fragment(key(1, 1), with(0, true, first), Instant::ZERO);
        let got = if let Outcome::Complete(_, ecn, _) = outcome { Some(ecn) } else { None };
        assert_eq!(got, joined, "{first} {second}");
        assert!(table.is_empty());
    }
}

/// A direct implementation of the RFCs for one datagram: bytes in an array, each written once.
#[derive(Default)]
struct Model {
    bytes: Vec<Option<u8>>,
    seen: Vec<(usize, usize)>,
    end: Option<usize>,
    is_dead: bool,
}

impl Model {
    fn on_fragment(&mut self, start: usize, more: bool, bytes: &[u8]) -> Option<Vec<u8>> {
        let end = start + bytes.len();
        if self.is_dead || self.seen.contains(&(start, end)) {
            return None;
        }
        self.bytes.resize(self.bytes.len().max(end), None);
        let overlaps = self.bytes[start..end].iter().any(Option::is_some);
        let beyond = self.end.is_some_and(|known| end > known || !more && end != known);
        if overlaps || beyond || !more && self.bytes[end..].iter().any(Option::is_some) {
            self.is_dead = true;
            return None;
        }
        bytes.iter().zip(&mut self.bytes[start..end]).for_each(|(byte, place)| *place = Some(*byte));
        self.seen.push((start, end));
        self.end = self.end.or((!more).then_some(end));
        let whole: Option<Vec<u8>> = self.bytes.iter().copied().collect();
        whole.filter(|whole| Some(whole.len()) == self.end)
    }
}

proptest! {
    /// A few datagrams at once, with fragments that fit, repeat, overlap and have wrong fields.
    #[test]
    fn reassembly_agrees_with_a_model(
        fragments in prop::collection::vec((0u32..3, 0u16..8, 1usize..4, any::<bool>(), 0usize..8), 1..60),
    ) {
        let mut table = Table::default();
        let mut models: HashMap<u32, Model> = HashMap::new();
        for (n, (id, at, len, more, short)) in fragments.into_iter().enumerate() {
            let len = if more { len * 8 } else { len * 8 - short };
            let bytes = vec![n as u8; len];
            let expected = models.entry(id).or_default().on_fragment(usize::from(at) * 8, more, &bytes);
            match table.on_fragment(key(1, id), piece(at * 8, more, bytes), Instant::ZERO) {
                Outcome::Complete(_, _, pieces) => {
                    prop_assert_eq!(Some(pieces.concat()), expected);
                    models.remove(&id);
                }
                Outcome::Pending | Outcome::Refused(_) => prop_assert_eq!(None, expected),
            }
            let held: usize = table.datagrams.values().flat_map(|d| &d.pieces).map(|p| p.payload.len()).sum();
            prop_assert_eq!(held, table.cost());
        }
        table.expire(Instant::ZERO + TIME_V6, drop);
        prop_assert_eq!((table.cost(), table.len(), table.sources.len(), table.ends.len()), (0, 0, 0, 0));
    }
}

/// Eviction as the module's head states it, by looking through a list: source, identification, cost, oldest first.
#[derive(Default)]
struct Shares(Vec<(u32, u32, usize)>);

impl Shares {
    fn of(&self, src: u32) -> (usize, usize) {
        let own = self.0.iter().filter(|datagram| datagram.0 == src);
        (own.clone().count(), own.map(|datagram| datagram.2).sum())
    }

    fn evict(&mut self, of: Option<u32>, spared: (u32, u32)) {
        // Of each source: datagrams, bytes, the place of the oldest.
        let mut sources: HashMap<u32, (usize, usize, usize)> = HashMap::new();
        for (at, (src, _, cost)) in self.0.iter().enumerate() {
            let source = sources.entry(*src).or_insert((0, 0, at));
            *source = (source.0 + 1, source.1 + cost, source.2);
        }
        let rank = |at: usize| {
            let (count, cost, oldest) = sources[&self.0[at].0];
            ((count / SHARE_DATAGRAMS).max(cost / SHARE_COST), Reverse(oldest))
        };
        let mut others = (0..self.0.len()).filter(|at| (self.0[*at].0, self.0[*at].1) != spared);
        let victim = match of {
            Some(src) => others.find(|at| self.0[*at].0 == src),
            None => others.reduce(|best, at| if rank(at) > rank(best) { at } else { best }),
        };
        self.0.remove(victim.expect("some datagram is evicted"));
    }

    fn on_fragment(&mut self, src: u32, id: u32, cost: usize) {
        if !self.0.iter().any(|datagram| (datagram.0, datagram.1) == (src, id)) {
            if self.of(src).0 >= SOURCE_DATAGRAMS_MAX {
                self.evict(Some(src), (src, id));
            } else if self.0.len() >= DATAGRAMS_MAX {
                self.evict(None, (src, id));
            }
            self.0.push((src, id, 0));
        }
        while self.of(src).1 + cost > SOURCE_COST_MAX {
            self.evict(Some(src), (src, id));
        }
        while self.0.iter().map(|datagram| datagram.2).sum::<usize>() + cost > COST_MAX {
            self.evict(None, (src, id));
        }
        self.0.iter_mut().find(|datagram| (datagram.0, datagram.1) == (src, id)).unwrap().2 += cost;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    /// Sources that hold little and much, until the table is full of datagrams, of bytes, or of both.
    #[test]
    fn evictions_follow_the_documented_order(
        filled in 0u32..1100,
        fragments in prop::collection::vec((0u32..40, 0u32..40, 0usize..3), 1..400),
        large in 1usize..120_000,
    ) {
        let (mut table, mut model) = (Table::default(), Shares::default());
        let many = (0..filled).map(|src| (1000 + src, 1, 0));
        for (n, (src, id, size)) in many.chain(fragments).enumerate() {
            let cost = [8, 1500, large][size];
            // The lengths are declared without data, and no two fragments of a datagram touch.
            let fragment = Piece { cost, ..piece((n * 16 % 65_000) as u16, true, vec![0; 8]) };
            if table.datagrams.get(&key(src, id)).is_some_and(|held| held.cost + cost > SOURCE_COST_MAX) {
                continue;
            }
            table.on_fragment(key(src, id), fragment, Instant::ZERO);
            model.on_fragment(src, id, cost);
            if n % 16 > 0 {
                continue;
            }
            let held: BTreeMap<Key, usize> = table.datagrams.iter().map(|(key, held)| (*key, held.cost)).collect();
            let expected: BTreeMap<Key, usize> = model.0.iter().map(|(src, id, cost)| (key(*src, *id), *cost)).collect();
            prop_assert_eq!(held, expected);
            prop_assert_eq!(table.ranks.len(), table.sources.len());
        }
        table.expire(Instant::ZERO + TIME_V6, drop);
        prop_assert_eq!((table.cost(), table.sources.len(), table.ranks.len()), (0, 0, 0));
    }
}
