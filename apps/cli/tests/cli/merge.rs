//! `sockeye sim merge`: results of several machines in one report.

use std::fs;

use super::*;

#[test]
fn results_of_parts_are_joined_and_a_failed_seed_is_an_exit_code() {
    let folder = std::env::temp_dir().join(format!("sockeye-merge-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let line = |seed: u64, outcome: &str| {
        format!(
            r#"{{"test":"t","seed":{seed},"outcome":"{outcome}","simulated_ns":1,"events":2,"digest":"{seed:016x}"}}"#
        )
    };
    let write = |name: &str, lines: &[String]| fs::write(folder.join(name), lines.join("\n")).unwrap();
    write("t.0-of-2.jsonl", &[line(2, "passed"), line(0, "passed")]);
    write("t.1-of-2.jsonl", &[line(1, "passed")]);
    let out = folder.join("all.lines");
    let merge = |more: &str| {
        run(sockeye(&format!("sim merge {} --seeds 0..3 --out {} {more}", folder.display(), out.display())))
    };
    let good = merge("");
    assert_eq!(
        (good.status.code(), stdout(&good).as_str()),
        (Some(0), "t: 3 seeds, 0 failed, 0 h of simulated time\n"),
        "{}",
        stderr(&good)
    );
    let all = fs::read_to_string(&out).unwrap();
    assert_eq!(all.lines().count(), 3);
    write("late.jsonl", &[line(2, "failed")]);
    let bad = merge("");
    assert_eq!(bad.status.code(), Some(1));
    assert!(stdout(&bad).contains("replay: SOCKEYE_SIM_SEED=2 cargo test -- --exact t"), "{}", stdout(&bad));
    write("late.jsonl", &["no result".to_owned()]);
    assert!(stderr(&merge("")).contains("late.jsonl: line 1"));
    fs::remove_dir_all(&folder).unwrap();
    let gone = merge("");
    assert_eq!(gone.status.code(), Some(1));
    assert!(stderr(&gone).contains(&format!("{}: ", folder.display())), "{}", stderr(&gone));
}
