//! Every target over its corpus, over changed copies of it, and over a bounded number of random inputs.
//!
//! A seed decides the inputs, so a failure is reproducible: the panic names the target and writes the input where `cargo fuzz`
//! or this test can run it again. `SOCKEYE_TEST_SCALE` (percent) makes the random part longer or shorter.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use sockeye_fuzz_targets::{TARGETS, Target};

/// Random inputs of a target in an ordinary run.
const RANDOM: u64 = 1500;
/// Changed copies of each input of the corpus.
const CHANGED: u64 = 20;
/// Bytes of the longest random input.
const LEN_MAX: u64 = 1500;

/// SplitMix64: the same inputs on every machine.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    fn bytes(&mut self) -> Vec<u8> {
        let len = self.below(LEN_MAX);
        // Most decisions depend on small numbers.
        let is_small = self.below(2) == 0;
        (0..len).map(|_| (if is_small { self.below(24) } else { self.next() }) as u8).collect()
    }

    /// A copy with some bytes changed, left out or doubled.
    fn changed(&mut self, input: &[u8]) -> Vec<u8> {
        let mut bytes = input.to_vec();
        for _ in 0..=self.below(6) {
            let at = self.below(bytes.len() as u64) as usize;
            match self.below(4) {
                0 if !bytes.is_empty() => bytes[at] = self.next() as u8,
                1 if !bytes.is_empty() => bytes[at] ^= 1 << self.below(8),
                2 => bytes.truncate(at),
                _ => {
                    let tail = bytes[at.min(bytes.len())..].to_vec();
                    bytes.extend_from_slice(&tail[..tail.len().min(LEN_MAX as usize)]);
                }
            }
        }
        bytes
    }
}

fn scale() -> u64 {
    std::env::var("SOCKEYE_TEST_SCALE").ok().and_then(|text| text.parse().ok()).unwrap_or(100)
}

/// The committed inputs of a target, in the order of their names.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus").join(name);
    let mut files: Vec<PathBuf> =
        fs::read_dir(&folder).expect("a corpus").map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files.iter().map(|file| fs::read(file).expect("an input")).collect()
}

fn run((name, target): Target, input: &[u8]) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(input))) {
        let file = std::env::temp_dir().join(format!("sockeye-fuzz-{name}-{}", std::process::id()));
        let written = fs::write(&file, input);
        eprintln!("target {name} failed on {} bytes, in {} ({written:?})", input.len(), file.display());
        std::panic::resume_unwind(panic);
    }
}

fn run_all(index: usize) {
    let target = TARGETS[index];
    let inputs = corpus(target.0);
    assert!(!inputs.is_empty(), "{} has no corpus", target.0);
    let mut rng = Rng(index as u64 + 1);
    run(target, &[]);
    for input in &inputs {
        run(target, input);
        for _ in 0..CHANGED * scale() / 100 {
            run(target, &rng.changed(input));
        }
    }
    for _ in 0..RANDOM * scale() / 100 {
        run(target, &rng.bytes());
    }
}

/// Panics of the targets are failures; each target is a test of its own, to run beside the others.
macro_rules! tests {
    ($($name:ident = $index:literal),*) => {
        $(#[test]
        fn $name() {
            assert_eq!(stringify!($name), format!("{}_keeps_its_invariants", TARGETS[$index].0));
            run_all($index);
        })*

        #[test]
        fn no_target_is_left_out() {
            assert_eq!([$($index),*].len(), TARGETS.len());
        }
    };
}

tests!(
    ip_keeps_its_invariants = 0,
    tcp_keeps_its_invariants = 1,
    link_keeps_its_invariants = 2,
    pcb_keeps_its_invariants = 3,
    reass_keeps_its_invariants = 4,
    syncache_keeps_its_invariants = 5,
    stack_keeps_its_invariants = 6,
    hostile_keeps_its_invariants = 7,
    blind_keeps_its_invariants = 8,
    flows_keeps_its_invariants = 9,
    reach_keeps_its_invariants = 10,
    machine_keeps_its_invariants = 11
);

#[test]
fn every_target_has_its_binary_and_its_corpus() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let manifest = fs::read_to_string(root.join("Cargo.toml")).expect("the fuzzers' manifest");
    for (name, _) in TARGETS {
        assert!(root.join(format!("fuzz_targets/{name}.rs")).exists(), "{name} has no binary");
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name} is not in fuzz/Cargo.toml");
        assert!(!corpus(name).is_empty(), "{name} has no corpus");
    }
}
