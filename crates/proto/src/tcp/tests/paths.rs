//! exploratory
use super::super::settings::Settings;
use super::world::{Link, World, pattern};

fn go(seed: u64, link: Link, len: usize, s: Settings) -> String {
    let s = Settings { rcv_buf: 4 << 20, rcv_buf_max: 4 << 20, ..s };
    let mut w = World::established(seed, s.clone(), s, link);
    w.ends[0].to_write = pattern(len, 3);
    w.ends[0].snd_hiwat = 4 << 20;
    let start = w.now;
    w.run("transfer", |w| w.ends[1].received.len() == len);
    let secs = w.now.since(start).as_secs_f64();
    let st = w.ends[0].pcb().loss_stats();
    format!("{:.2} Mbit/s {:.2}s {:?}", len as f64 * 8e-6 / secs, secs, st)
}

#[test]
fn explore() {
    for (rate, delay) in [(1250, 5_000), (12_500, 5_000), (12_500, 25_000)] {
        for (loss, reorder) in [(0, 0), (1, 0), (0, 5), (1, 5)] {
            for ts in [true, false] {
                let link = Link { delay_us: delay, rate, loss, reorder, late: 3, ..Link::CLEAN };
                let s = Settings { timestamps: ts, ..Settings::default() };
                println!(
                    "rate {rate} delay {delay} loss {loss} reorder {reorder} ts {ts}: {}",
                    go(1, link, 6_000_000, s)
                );
            }
        }
    }
}
