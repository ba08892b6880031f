//! Chains against a model that is hard to get wrong: a vector of bytes.
//!
//! Three chains that share clusters with each other go through random operations; after each, all of
//! them must read as their models do. Whatever happened, dropping everything leaves nothing in use.
#![cfg(not(loom))]

use std::io::IoSlice;

use proptest::collection::vec;
use proptest::prelude::*;
use sockeye_mbuf::{Chain, Freed, Pool, PoolConfig};

const CHAINS: usize = 3;

/// Under miri every byte is dear.
const CASES: u32 = if cfg!(miri) { 6 } else { 400 };
const STEPS_MAX: usize = if cfg!(miri) { 20 } else { 60 };

/// Lengths that cross the classes' borders, and far more small ones than large ones.
fn byte_count() -> impl Strategy<Value = usize> {
    if cfg!(miri) {
        return prop_oneof![6 => 0..200usize, 1 => 200..600usize].boxed();
    }
    prop_oneof![
        8 => 0..200usize,
        4 => 200..2100usize,
        2 => 2000..20_000usize,
        1 => 60_000..150_000usize,
    ]
    .boxed()
}

/// A place in a chain, as a part of its length.
#[derive(Clone, Copy, Debug)]
struct Part(u16);

impl Part {
    fn of(self, len: usize) -> usize {
        len * usize::from(self.0) / usize::from(u16::MAX)
    }
}

fn part() -> impl Strategy<Value = Part> {
    prop_oneof![Just(Part(0)), Just(Part(u16::MAX)), any::<u16>().prop_map(Part)]
}

#[derive(Clone, Debug)]
enum Op {
    Extend(usize),
    PushCopy(usize),
    /// Appends another chain; it becomes empty.
    Append(usize),
    /// Appends views of part of another chain, or of itself.
    AppendSlice(usize, Part, Part),
    /// Appends another chain, of which pieces below this length are copied; it becomes empty.
    Gather(usize, usize),
    TrimFront(Part),
    /// Trims by more than there is.
    TrimBeyond,
    Truncate(Part),
    SplitFront(usize, Part),
    TakeInto(Part),
    TakeBeyond,
    CopyTo(Part, usize),
    Clone(usize),
    /// Takes mbufs out and puts each back in two halves, so that they must merge again.
    Reassemble,
    Shrink,
    Lengthen(usize),
    SliceNear(Part, usize),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => byte_count().prop_map(Op::Extend),
        3 => byte_count().prop_map(Op::PushCopy),
        2 => (0..CHAINS).prop_map(Op::Append),
        4 => (0..CHAINS, part(), part()).prop_map(|(from, off, len)| Op::AppendSlice(from, off, len)),
        3 => (0..CHAINS, 0..600usize).prop_map(|(from, small_len)| Op::Gather(from, small_len)),
        2 => part().prop_map(Op::TrimFront),
        1 => Just(Op::TrimBeyond),
        2 => part().prop_map(Op::Truncate),
        2 => (0..CHAINS, part()).prop_map(|(to, at)| Op::SplitFront(to, at)),
        2 => part().prop_map(Op::TakeInto),
        1 => Just(Op::TakeBeyond),
        2 => (part(), byte_count()).prop_map(|(off, len)| Op::CopyTo(off, len)),
        1 => (0..CHAINS).prop_map(Op::Clone),
        1 => Just(Op::Reassemble),
        1 => Just(Op::Shrink),
    ]
}

/// As a sender does with a long buffer.
fn sending() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (part(), 0..20usize).prop_map(|(off, count)| Op::SliceNear(off, count)),
        8 => (50_000..65_000u16, 0..20usize).prop_map(|(off, count)| Op::SliceNear(Part(off), count)),
        4 => (0..30usize).prop_map(Op::Lengthen),
        4 => (0..3000u16).prop_map(|few| Op::TrimFront(Part(few))),
        4 => (60_000..=u16::MAX).prop_map(|most| Op::Truncate(Part(most))),
        1 => part().prop_map(Op::TrimFront),
        1 => (0..CHAINS, part()).prop_map(|(to, at)| Op::SplitFront(to, at)),
        1 => (0..CHAINS).prop_map(Op::Clone),
        1 => Just(Op::Shrink),
    ]
}

/// Chains and their models. `next` makes each written byte depend on when it was written.
struct World {
    pool: Pool,
    chains: [Chain; CHAINS],
    models: [Vec<u8>; CHAINS],
    next: u32,
}

impl World {
    fn new() -> World {
        World {
            pool: Pool::new(PoolConfig::default()),
            chains: std::array::from_fn(|_| Chain::new()),
            models: std::array::from_fn(|_| Vec::new()),
            next: 0,
        }
    }

    fn fresh_bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count)
            .map(|_| {
                self.next = self.next.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (self.next >> 24) as u8
            })
            .collect()
    }

    fn apply(&mut self, at: usize, op: Op) {
        let len = self.models[at].len();
        match op {
            Op::Extend(count) => {
                let bytes = self.fresh_bytes(count);
                let taken = self.chains[at].extend_from_slice(&self.pool, &bytes);
                assert_eq!(taken, Ok(count));
                self.models[at].extend(&bytes);
            }
            Op::PushCopy(count) => {
                let bytes = self.fresh_bytes(count);
                let copy = self.pool.copy_in(&bytes).expect("far from the cap");
                self.chains[at].extend(copy);
                self.models[at].extend(&bytes);
            }
            Op::Append(from) => {
                let other = std::mem::take(&mut self.chains[from]);
                let model = std::mem::take(&mut self.models[from]);
                self.chains[at].append(other);
                self.models[at].extend(model);
            }
            Op::AppendSlice(from, off, len) => self.append_slice(at, from, off, len),
            Op::Gather(from, small_len) => {
                let other = std::mem::take(&mut self.chains[from]);
                let model = std::mem::take(&mut self.models[from]);
                self.chains[at].gather(other, small_len, &self.pool, &mut Freed::new());
                self.models[at].extend(model);
            }
            Op::TrimFront(n) => {
                self.chains[at].trim_front(n.of(len));
                self.models[at].drain(..n.of(len));
            }
            Op::TrimBeyond => {
                self.chains[at].trim_front(len + 1);
                self.models[at].clear();
            }
            Op::Truncate(n) => {
                self.chains[at].truncate(n.of(len));
                self.models[at].truncate(n.of(len));
            }
            Op::SplitFront(to, n) => {
                let front = self.chains[at].split_front(n.of(len));
                let model: Vec<u8> = self.models[at].drain(..n.of(len)).collect();
                self.chains[to] = front;
                self.models[to] = model;
            }
            Op::TakeInto(n) => self.take_into(at, n.of(len)),
            Op::TakeBeyond => self.take_into(at, len + 10),
            Op::CopyTo(off, count) => {
                let mut into = vec![0xee; count];
                let copied = self.chains[at].copy_to(off.of(len), &mut into);
                assert_eq!(copied, count.min(len - off.of(len)));
                assert_eq!(into[..copied], self.models[at][off.of(len)..][..copied]);
                assert!(into[copied..].iter().all(|&byte| byte == 0xee), "wrote too far");
            }
            Op::Clone(to) => {
                self.chains[to] = self.chains[at].clone();
                self.models[to] = self.models[at].clone();
            }
            Op::Reassemble => self.reassemble(at),
            Op::Shrink => self.chains[at].shrink(),
            Op::Lengthen(count) => self.lengthen(at, count),
            Op::SliceNear(off, count) => self.slice_near(at, off, count),
        }
    }

    fn append_slice(&mut self, at: usize, from: usize, off: Part, len: Part) {
        let total = self.models[from].len();
        let off = off.of(total);
        let len = len.of(total - off);
        let slice = self.chains[from].slice(off, len);
        assert_eq!(slice.len(), len);
        let model = self.models[from][off..off + len].to_vec();
        self.chains[at].append(slice);
        self.models[at].extend(model);
    }

    /// Appends `count` mbufs that do not merge, so that the chain is long.
    fn lengthen(&mut self, at: usize, count: usize) {
        for i in 0..count {
            self.apply(at, Op::PushCopy(1 + i % 7));
        }
    }

    /// Views of some bytes, sought from where something was found before, without keeping them.
    fn slice_near(&mut self, at: usize, off: Part, count: usize) {
        let total = self.models[at].len();
        let off = off.of(total);
        let count = count.min(total - off);
        let slice = self.chains[at].slice_near(off, count);
        assert_eq!(slice.iter().collect::<Vec<_>>().concat(), self.models[at][off..off + count]);
    }

    fn take_into(&mut self, at: usize, count: usize) {
        let mut into = vec![0; count];
        let taken = self.chains[at].take_into(&mut into);
        assert_eq!(taken, count.min(self.models[at].len()));
        let expected: Vec<u8> = self.models[at].drain(..taken).collect();
        assert_eq!(into[..taken], expected);
    }

    fn reassemble(&mut self, at: usize) {
        let chain = std::mem::take(&mut self.chains[at]);
        let count = chain.mbuf_count();
        for mbuf in chain {
            let middle = mbuf.len() / 2;
            self.chains[at].push_back(mbuf.slice(..middle));
            self.chains[at].push_back(mbuf.slice(middle..));
        }
        // Halves merge; mbufs that were apart stay apart.
        assert_eq!(self.chains[at].mbuf_count(), count);
    }

    fn check(&self) {
        for (chain, model) in self.chains.iter().zip(&self.models) {
            assert_eq!(chain.len(), model.len());
            assert_eq!(chain.is_empty(), model.is_empty());
            assert_eq!(chain.iter().count(), chain.mbuf_count());
            assert!(chain.iter().all(|piece| !piece.is_empty()));
            assert!(chain.iter().collect::<Vec<_>>().concat() == *model, "contents differ");
            let backwards: usize = chain.iter().rev().map(<[u8]>::len).sum();
            assert_eq!(backwards, model.len());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: CASES,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn chains_read_as_the_bytes_they_were_given(steps in vec((0..CHAINS, op()), 1..STEPS_MAX)) {
        let mut world = World::new();
        for (at, op) in steps {
            world.apply(at, op);
            world.check();
        }
        let World { pool, chains, .. } = world;
        drop(chains);
        prop_assert_eq!(pool.in_use(), 0);
        pool.trim();
        prop_assert_eq!(pool.allocated(), 0);
    }

    #[test]
    fn lookups_in_long_chains_continue_near_the_last_one(steps in vec((0..2usize, sending()), 1..4 * STEPS_MAX)) {
        let mut world = World::new();
        for at in 0..CHAINS {
            world.lengthen(at, 40);
        }
        for (at, op) in steps {
            world.apply(at, op);
        }
        world.check();
    }
}

#[test]
#[should_panic(expected = "2 bytes at 199 of 200")]
fn an_offset_beyond_a_long_chain_is_not_found() {
    let mut chain = Chain::new();
    chain.extend((0..100).flat_map(|_| pool().copy_in(&[1; 2]).unwrap()));
    let _ = chain.slice_near(199, 2);
}

fn pool() -> Pool {
    Pool::new(PoolConfig::default())
}

#[test]
fn many_small_writes_fill_ever_larger_clusters() {
    let pool = pool();
    let mut chain = Chain::new();
    let mut mbuf_counts = Vec::new();
    for _ in 0..512 {
        assert_eq!(chain.extend_from_slice(&pool, &[5; 128]), Ok(128));
        mbuf_counts.push(chain.mbuf_count());
    }
    let capacities: Vec<usize> = chain.mbufs().map(|mbuf| mbuf.capacity()).collect();
    assert!(capacities.is_sorted(), "{capacities:?}");
    assert!(capacities.contains(&(16 * 1024)), "{capacities:?}");
    assert!(chain.mbuf_count() <= 10, "{capacities:?}");
    assert_eq!(chain.len(), 512 * 128);
}

#[test]
fn gathered_pieces_fill_clusters_and_long_ones_keep_theirs() {
    let pool = pool();
    let (mut chain, mut freed) = (Chain::new(), Freed::new());
    for _ in 0..1000 {
        chain.gather(pool.copy_in(&[1]).unwrap(), 512, &pool, &mut freed);
        drop(std::mem::take(&mut freed));
    }
    assert_eq!((chain.len(), chain.mbuf_count()), (1000, 4));
    chain.gather(pool.copy_in(&[2; 512]).unwrap(), 512, &pool, &mut freed);
    assert_eq!((chain.len(), chain.mbuf_count(), freed.count()), (1512, 5, 0));
    // Pieces that fill half a cluster and more leave no gap.
    for _ in 0..100 {
        chain.gather(pool.copy_in(&[3; 200]).unwrap(), 512, &pool, &mut freed);
    }
    assert_eq!(chain.len(), 1512 + 20_000);
    assert!(chain.footprint() < 4 * 320 + 2112 + 20_000 * 320 / 256, "{}", chain.footprint());
    let whole: Vec<u8> = chain.iter().flatten().copied().collect();
    assert_eq!(whole, [&[1; 1000][..], &[2; 512], &[3; 20_000]].concat());
}

/// A driver writes its frames one behind the other into a cluster, and has a view of its own there.
#[test]
fn gathered_pieces_leave_the_room_in_a_cluster_that_others_view() {
    let pool = pool();
    let mut driver = pool.alloc(65_536).unwrap();
    assert_eq!(driver.try_extend(&[1; 5000]), 5000);
    let (mut chain, mut freed) = (Chain::from(driver.slice(..)), Freed::new());
    for _ in 0..100 {
        chain.gather(pool.copy_in(&[2]).unwrap(), 512, &pool, &mut freed);
    }
    assert_eq!((chain.len(), chain.mbuf_count()), (5100, 2));
    assert_eq!(driver.try_extend(&[3; 60_000]), 60_000, "the driver's room");
    assert_eq!(chain.iter().flatten().filter(|byte| **byte == 2).count(), 100);
}

#[test]
fn at_the_cap_gathered_pieces_keep_their_clusters() {
    let pool = Pool::new(PoolConfig { memory_max: 0, ..PoolConfig::default() });
    let (mut chain, mut other) = (Chain::new(), Chain::new());
    chain.extend_from_slice(&pool, &[1; 250]).unwrap();
    other.extend_from_slice(&pool, b"0123456789").unwrap();
    let held: Vec<_> = std::iter::from_fn(|| pool.alloc(1).ok()).collect();
    chain.gather(other, 512, &pool, &mut Freed::new());
    assert_eq!(chain.iter().collect::<Vec<_>>(), [&[&[1; 250][..], b"012345"].concat()[..], b"6789"]);
    drop(held);
}

#[test]
fn a_write_into_an_empty_chain_takes_the_smallest_cluster_that_fits() {
    let pool = pool();
    for (count, capacity) in [(1, 256), (256, 256), (257, 2048), (2049, 16384), (16385, 65536)] {
        let mut chain = Chain::new();
        assert_eq!(chain.extend_from_slice(&pool, &vec![1; count]), Ok(count));
        assert_eq!(chain.mbuf_count(), 1);
        assert_eq!(chain.mbufs().next().map(|mbuf| mbuf.capacity()), Some(capacity));
    }
}

#[test]
fn segments_of_one_buffer_merge_again_in_the_other() {
    let pool = pool();
    let bytes: Vec<u8> = (0..60_000u32).map(|i| (i % 251) as u8).collect();
    let so_snd = pool.copy_in(&bytes).expect("far from the cap");
    let mut so_rcv = Chain::new();
    for off in (0..bytes.len()).step_by(1448) {
        so_rcv.append(so_snd.slice(off, 1448.min(bytes.len() - off)));
    }
    assert_eq!(so_rcv.mbuf_count(), 1);
    assert_eq!(so_rcv.iter().next(), Some(&bytes[..]));
}

#[test]
fn a_shared_tail_is_extended_by_one_of_its_views_only() {
    let pool = pool();
    let mut first = Chain::new();
    assert_eq!(first.extend_from_slice(&pool, b"common"), Ok(6));
    let mut second = first.clone();
    assert_eq!(first.extend_from_slice(&pool, b" one"), Ok(4));
    assert_eq!(second.extend_from_slice(&pool, b" two"), Ok(4));
    assert_eq!(first.iter().collect::<Vec<_>>().concat(), b"common one");
    assert_eq!(second.iter().collect::<Vec<_>>().concat(), b"common two");
    assert_eq!((first.mbuf_count(), second.mbuf_count()), (1, 2));
}

#[test]
fn scatter_output_gets_as_many_pieces_as_there_is_room_for() {
    let pool = pool();
    let mut chain = Chain::new();
    for piece in [b"one".as_slice(), b"two", b"three"] {
        chain.append(pool.copy_in(piece).expect("far from the cap"));
    }
    let mut slots = [IoSlice::new(&[]); 2];
    assert_eq!(chain.fill_io_slices(&mut slots), 2);
    assert_eq!((&*slots[0], &*slots[1]), (b"one".as_slice(), b"two".as_slice()));
    let mut slots = [IoSlice::new(&[]); 5];
    assert_eq!(chain.fill_io_slices(&mut slots), 3);
    assert_eq!(&*slots[2], b"three");
}

#[test]
#[should_panic(expected = "of 5")]
fn slicing_beyond_the_end_panics() {
    let chain = pool().copy_in(b"bytes").expect("far from the cap");
    chain.slice(3, 3);
}

#[test]
fn mbuf_views_trim_slice_and_truncate() {
    let mut mbuf = pool().alloc(10).expect("far from the cap");
    assert_eq!(mbuf.try_extend(b"0123456789"), 10);
    let middle = mbuf.slice(2..=5);
    assert_eq!(&*middle, b"2345");
    assert_eq!(&*middle.slice(1..), b"345");
    assert_eq!(&*middle.slice(..0), b"");
    mbuf.trim_front(7);
    assert_eq!(&*mbuf, b"789");
    mbuf.truncate(9);
    mbuf.truncate(1);
    assert_eq!(&*mbuf, b"7");
    // Its end is no longer at the fill mark, so others' bytes stay as they are.
    assert_eq!(mbuf.try_extend(b"x"), 0);
    assert_eq!(&*middle, b"2345");
}

#[test]
fn mbufs_merge_only_with_the_next_bytes_of_the_same_cluster() {
    let pool = pool();
    let mut mbuf = pool.alloc(10).expect("far from the cap");
    assert_eq!(mbuf.try_extend(b"abcdef"), 6);
    let mut head = mbuf.slice(..2);
    assert!(!head.try_merge(&mbuf.slice(3..)), "there is a gap");
    assert!(!head.try_merge(&mbuf.slice(1..)), "they overlap");
    assert!(!head.try_merge(&pool.alloc(1).expect("far from the cap")), "another cluster");
    assert!(head.try_merge(&mbuf.slice(2..4)));
    assert_eq!(&*head, b"abcd");
}

#[test]
fn a_nearly_full_cluster_takes_as_much_as_fits() {
    let mut mbuf = pool().alloc(256).expect("far from the cap");
    assert_eq!(mbuf.try_extend(&[1; 200]), 200);
    assert_eq!(mbuf.try_extend(&[2; 100]), 56);
    assert_eq!(mbuf.try_extend(&[3; 1]), 0);
    assert_eq!(mbuf.len(), mbuf.capacity());
}

/// Also where the end of the range does not fit: without checks of overflow it would be an empty view.
#[test]
#[should_panic(expected = "of 3 bytes")]
fn a_view_whose_end_overflows_is_refused() {
    let mut mbuf = Pool::new(PoolConfig::default()).alloc(3).unwrap();
    assert_eq!(mbuf.try_extend(b"abc"), 3);
    let _view = mbuf.slice(..=usize::MAX);
}
