//! The report when a program fails: seed, command, packets. A program that makes no progress fails too.

use std::process::{Command, Output};
use std::time::Duration;

use sockeye_sim::net::TcpStream;
use sockeye_sim::{Sim, time};

/// Under this name a test calls itself in a process of its own, to fail there.
const CHILD: &str = "SIM_FAILURES_CHILD";

/// Runs `test` of this file in a process of its own, with `variables` set.
fn child(test: &str, variables: &[(&str, &str)]) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(CHILD, "1")
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

#[test]
fn a_failure_names_its_seed_its_command_and_a_file_that_begins_as_pcapng_does() {
    if is_child() {
        return sockeye_sim::run(42, |net| async move {
            let (client, server) = (net.host("client"), net.host("server"));
            let addr = server.at(80);
            let refused = client.spawn(async move { TcpStream::connect(addr).await.is_err() }).await;
            assert_eq!(refused, Ok(true));
            panic!("as it was meant to");
        });
    }
    let name = "a_failure_names_its_seed_its_command_and_a_file_that_begins_as_pcapng_does";
    let output = child(name, &[]);
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("as it was meant to"), "{text}");
    assert!(text.contains("seed 42 failed at 2ms of simulated time"), "{text}");
    assert!(
        text.contains(&format!("SOCKEYE_SIM_SEED=42 cargo test -p sockeye-sim -- --exact {name}")),
        "{text}"
    );
    let path =
        text.lines().find_map(|line| line.trim().strip_prefix("packets: /")).expect("no file is named");
    let path = format!("/{}", path.split(" (").next().unwrap());
    let file = std::fs::read(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    assert_eq!(file[..4], [0x0a, 0x0d, 0x0d, 0x0a]);
    assert!(file.len() > 200, "a SYN and a reset at least");
    let page =
        text.lines().find_map(|line| line.trim().strip_prefix("timeline: ")).expect("no page is named");
    let drawn = std::fs::read_to_string(page).unwrap();
    std::fs::remove_file(page).unwrap();
    assert!(drawn.contains("<h1>Seed 42 failed</h1><pre>as it was meant to</pre>"), "{drawn}");
    assert!(drawn.contains(">client</text>") && drawn.contains(">server</text>"), "{drawn}");
    assert!(drawn.contains("packet 0, TCP 10.0.0.1:") && drawn.contains("RST"), "{drawn}");
}

#[test]
fn the_environment_chooses_the_seed_and_asks_for_a_file() {
    if is_child() {
        return sockeye_sim::run_seeds(0..3, |net| async move { println!("ran seed {}", net.seed()) });
    }
    let name = "the_environment_chooses_the_seed_and_asks_for_a_file";
    let text = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    let all = text(&child(name, &[]));
    assert!((0..3).all(|seed| all.contains(&format!("ran seed {seed}"))), "{all}");
    let path = std::env::temp_dir().join(format!("sockeye-sim-test-{}.pcapng", std::process::id()));
    let variables = [("SOCKEYE_SIM_SEED", "9"), ("SOCKEYE_SIM_PCAP", path.to_str().unwrap())];
    let one = text(&child(name, &variables));
    assert!(one.contains("ran seed 9") && !one.contains("ran seed 0"), "{one}");
    let file = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(file[..4], [0x0a, 0x0d, 0x0d, 0x0a]);
    assert!(!child(name, &[("SOCKEYE_SIM_SEED", "nine")]).status.success());
}

#[test]
#[should_panic(expected = "nothing will ever happen")]
fn a_program_that_waits_for_nothing_fails() {
    Sim::new(1).run(|_| std::future::pending::<()>());
}

#[test]
#[should_panic(expected = "within the simulated time")]
fn a_program_that_takes_too_long_fails() {
    let sim = Sim::new(1).time_max(Duration::from_secs(10));
    sim.run(|_| time::sleep(Duration::from_secs(11)));
}

#[test]
#[should_panic(expected = "a task's own failure")]
fn a_panic_of_any_task_fails_the_run() {
    Sim::new(1).run(|net| async move {
        net.host("lonely").spawn(async { panic!("a task's own failure") });
        time::sleep(Duration::from_secs(1)).await;
    });
}
