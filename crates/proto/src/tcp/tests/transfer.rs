//! Streams arrive whole over any link.

use core::time::Duration;

use super::super::settings::Settings;
use super::super::state::State;
use super::world::{Link, Rng, World, pattern};

/// Sends `len` bytes each way and closes; both must arrive exactly.
fn both_ways(seed: u64, a: Settings, b: Settings, link: Link, len: usize, tune: impl Fn(&mut World)) {
    let mut world = World::new(seed, a, b, link);
    for (i, salt) in [(0, 0x00), (1, 0xa5)] {
        world.ends[i].to_write = pattern(len, salt);
        world.ends[i].close_after_write = true;
    }
    tune(&mut world);
    world.run("transfer", |w| {
        w.ends
            .iter()
            .all(|e| e.eof && e.rcv.is_empty() && matches!(e.state(), State::TimeWait | State::Closed))
    });
    for i in 0..2 {
        assert!(world.ends[i].received == world.ends[1 - i].to_write, "seed {seed}: streams differ");
    }
}

fn settings(rng: &mut Rng) -> Settings {
    let mss = [536, 1460, 8960, 65_495][rng.below(4) as usize];
    Settings {
        mss,
        rcv_buf: [4096, 20_000, 65_536, 262_144][rng.below(4) as usize],
        rcv_buf_max: [65_535, 262_144, 4 << 20][rng.below(3) as usize].max(262_144),
        timestamps: rng.percent(70),
        sack: rng.percent(80),
        lossless: rng.percent(10),
        window_scaling: rng.percent(70),
        nodelay: rng.percent(30),
        tso_max: if rng.percent(50) { 65_535 } else { 0 },
        ts_offset: rng.next() as u32,
        ..Settings::default()
    }
}

/// Many short runs with everything drawn from the seed.
#[test]
fn random_links_and_settings_deliver_every_stream() {
    for seed in 0..150 {
        let mut rng = Rng::new(seed ^ 0xface);
        let (a, b) = (settings(&mut rng), settings(&mut rng));
        let link = Link {
            delay_us: rng.below(30_000),
            jitter_us: rng.below(3) * rng.below(20_000),
            loss: rng.below(3) * rng.below(11),
            duplication: rng.below(2) * rng.below(20),
            rate: rng.below(3) * (100 + rng.below(20_000)),
            reorder: rng.below(2) * rng.below(20),
            late: 1 + rng.below(5),
            ..Link::CLEAN
        };
        let (write_max, read_max) = (1 + rng.below(20_000) as usize, 1 + rng.below(40_000) as usize);
        let len = 1 + rng.below(120_000) as usize;
        both_ways(seed, a, b, link, len, |w| {
            for end in &mut w.ends {
                (end.write_max, end.read_max) = (write_max, read_max);
            }
        });
    }
}

#[test]
fn a_fifth_of_all_segments_lost_loses_no_byte() {
    for seed in 0..6 {
        let link = Link { delay_us: 2_000, jitter_us: 0, loss: 20, duplication: 0, ..Link::CLEAN };
        both_ways(seed, Settings::default(), Settings::default(), link, 40_000, |_| {});
    }
}

#[test]
fn heavy_reordering_and_duplication_delivers_each_byte_once() {
    for seed in 0..6 {
        let link = Link { delay_us: 1_000, jitter_us: 50_000, loss: 0, duplication: 30, ..Link::CLEAN };
        both_ways(seed, Settings::default(), Settings::default(), link, 200_000, |_| {});
    }
}

#[test]
fn a_clean_link_repeats_nothing() {
    let mut world = World::established(1, Settings::default(), Settings::default(), Link::CLEAN);
    world.ends[0].to_write = pattern(1_000_000, 7);
    world.run("transfer", |w| w.ends[1].received.len() == 1_000_000);
    let sent: usize = world.trace.iter().filter(|(_, from, ..)| *from == 0).map(|(.., len)| len).sum();
    assert_eq!(sent, 1_000_000);
}

#[test]
fn large_segments_are_handed_down_unsplit_in_multiples_of_the_mss() {
    let s = Settings { tso_max: 65_536, ..Settings::default() };
    let mut world = World::established(2, s, Settings::default(), Link::CLEAN);
    world.ends[0].to_write = pattern(3_000_000, 7);
    world.ends[0].snd_hiwat = 1 << 20;
    world.run("transfer", |w| w.ends[1].received.len() == 3_000_000);
    let mss = usize::from(world.ends[0].pcb().mss());
    let lens: Vec<usize> =
        world.trace.iter().filter(|(_, from, _, len)| *from == 0 && *len > 0).map(|(.., len)| *len).collect();
    assert!(lens.iter().any(|len| *len > 20 * mss));
    assert!(lens.iter().all(|len| *len <= 65_536));
    let odd = lens.iter().filter(|len| *len % mss != 0).count();
    assert!(odd * 4 < lens.len(), "{odd} of {} segments end in a partial one", lens.len());
}

#[test]
fn a_request_and_its_answer_take_one_round_trip_each() {
    let mut world = World::established(3, Settings::default(), Settings::default(), Link::CLEAN);
    world.run_for(Duration::from_secs(1));
    let start = world.now;
    for round in 1..=20 {
        for i in 0..2 {
            world.ends[i].to_write.push(round);
            world.run("ping", |w| w.ends[1 - i].received.len() == usize::from(round));
        }
    }
    assert_eq!(world.now.since(start), Duration::from_millis(200));
    assert!(world.ends[0].sent_count <= 24, "acknowledgments travel with the data");
}
