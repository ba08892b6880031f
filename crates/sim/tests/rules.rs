//! Invariants, conditions that must come true, faults that the seed decides, and failures made smaller.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Output};
use std::rc::Rc;
use std::time::Duration;

use sockeye_sim::net::{TcpListener, TcpStream};
use sockeye_sim::{Capture, FaultConfig, LinkConfig, Net, Seeds, Sim, fs, time};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

#[test]
#[should_panic(expected = "the invariant \"at most two\" is broken at 3s, after a step of counter: it is 3")]
fn an_invariant_fails_the_run_at_the_step_that_breaks_it() {
    Sim::new(1).capture(Capture::Off).run(|net| async move {
        let count = Rc::new(Cell::new(0));
        let seen = Rc::clone(&count);
        net.always("at most two", move || {
            if seen.get() <= 2 { Ok(()) } else { Err(format!("it is {}", seen.get())) }
        });
        net.host("counter").program(move || {
            let count = Rc::clone(&count);
            async move {
                loop {
                    time::sleep(SECOND).await;
                    count.set(count.get() + 1);
                }
            }
        });
        time::sleep(10 * SECOND).await;
    });
}

/// A condition that is true from `at` on and must be within 3 s, beside a link that is cut from 1 s to 5 s. The main program ends then.
fn comes_true(at: Duration) {
    Sim::new(1).capture(Capture::Off).run(|net| {
        let (left, right) = (net.host("left"), net.host("right"));
        let link = net.link(&left, &right, LinkConfig::default());
        let clock = net.clone();
        net.eventually("it is done", 3 * SECOND, move || clock.now() >= at);
        async move {
            left.spawn(async {
                loop {
                    time::sleep(100 * MS).await;
                }
            });
            time::sleep(SECOND).await;
            link.cut();
            time::sleep(4 * SECOND).await;
            link.heal();
        }
    });
}

#[test]
fn a_condition_has_its_time_after_the_last_fault() {
    comes_true(8 * SECOND);
    let late = catch_unwind(|| comes_true(9 * SECOND)).unwrap_err();
    let message = late.downcast_ref::<String>().unwrap();
    assert_eq!(message, "\"it is done\" has not come true within 3s after the last fault, at 5s");
}

#[test]
fn faults_that_stay_are_the_last_ones_if_the_test_says_so() {
    let stays = |says_so: bool| {
        let run = AssertUnwindSafe(|| {
            Sim::new(1).capture(Capture::Off).run(|net| async move {
                net.eventually("never", SECOND, || false);
                net.host("gone").crash();
                if says_so {
                    net.faults_over();
                }
                time::sleep(10 * SECOND).await;
                net.now()
            })
        });
        let failure = catch_unwind(run).unwrap_err();
        failure.downcast_ref::<String>().unwrap().clone()
    };
    assert!(stays(true).ends_with("after the last fault, at 0ns"), "{}", stays(true));
    // Otherwise when the main program has ended, after which nobody starts it again.
    assert!(stays(false).ends_with("after the last fault, at 10s"), "{}", stays(false));
}

/// Three hosts that answer each other's questions, while things go wrong. Returns the faults.
async fn cluster(net: &Net) -> Vec<String> {
    let hosts: Vec<_> = (0..3).map(|number| net.host(&format!("h{number}"))).collect();
    let answers = Rc::new(Cell::new(0u32));
    for (number, host) in hosts.iter().enumerate() {
        let next = hosts[(number + 1) % 3].at(80);
        let answers = Rc::clone(&answers);
        host.program(move || {
            let answers = Rc::clone(&answers);
            async move {
                let listener = TcpListener::bind("0.0.0.0:80").await.unwrap();
                sockeye_sim::spawn(async move {
                    loop {
                        let Ok((mut stream, _)) = listener.accept().await else { return };
                        sockeye_sim::spawn(async move { stream.write_all(b"!").await });
                    }
                });
                loop {
                    time::sleep(200 * MS).await;
                    let ask = async { TcpStream::connect(next).await?.read_u8().await };
                    if let Ok(Ok(_)) = time::timeout(SECOND, ask).await {
                        answers.set(answers.get() + 1);
                    }
                }
            }
        });
    }
    let faults = net.random_faults(&hosts, FaultConfig::default());
    let words = faults.faults().to_vec();
    faults.over().await;
    assert!(hosts.iter().all(|host| host.is_up() && !host.is_paused()));
    let before = answers.get();
    net.eventually("hosts answer", 10 * SECOND, move || answers.get() >= before + 20);
    words
}

#[test]
fn random_faults_end_are_of_all_kinds_and_follow_from_the_seed() {
    let run = |seed| {
        Sim::exactly(seed).capture(Capture::Off).run(|net| async move { (cluster(&net).await, net.digest()) })
    };
    let all: Vec<String> = (0..16).flat_map(|seed| run(seed).0).collect();
    let words = [
        "crashes",
        "killed",
        "paused",
        "isolated",
        "the power of [",
        "cut off",
        "does not reach",
        "do not reach each other",
        "loses",
        "for a sync",
    ];
    for word in words {
        assert!(all.iter().any(|fault| fault.contains(word)), "{word}: {all:#?}");
    }
    assert!(run(3) == run(3));
}

/// A host that syncs a file again and again, while its disk is slow and fails. Returns the slowest sync, and how many failed.
fn disks(seed: u64) -> (Duration, usize) {
    Sim::exactly(seed).capture(Capture::Off).run(|net| async move {
        let host = net.host("host");
        let (slowest, failed) = (Rc::new(Cell::new(Duration::ZERO)), Rc::new(Cell::new(0)));
        let (seen, count) = (Rc::clone(&slowest), Rc::clone(&failed));
        host.program(move || {
            let (seen, count) = (Rc::clone(&seen), Rc::clone(&count));
            async move {
                loop {
                    let begin = time::Instant::now();
                    let synced = async {
                        let mut file = fs::File::create("/file").await?;
                        file.write_all(b"text").await?;
                        file.sync_all().await
                    };
                    count.set(count.get() + usize::from(synced.await.is_err()));
                    seen.set(seen.get().max(begin.elapsed()));
                    time::sleep(MS).await;
                }
            }
        });
        // Its disk is not used, so nothing happens to it.
        let idle = net.host("idle");
        let only =
            FaultConfig { crash: false, outage: false, kill: false, pause: false, ..FaultConfig::default() };
        let only = FaultConfig { partition: false, degrade: false, bad_disk: true, ..only };
        net.random_faults(&[host, idle.clone()], only).over().await;
        assert_eq!(idle.disk().used(), 0);
        let before = failed.get();
        time::sleep(SECOND).await;
        assert_eq!(failed.get(), before, "the disk is as it was");
        (slowest.get(), failed.get())
    })
}

#[test]
fn random_faults_of_disks_slow_syncs_down_and_fail_them_where_there_are_files() {
    let seen: Vec<(Duration, usize)> = (0..12).map(disks).collect();
    assert!(seen.iter().any(|(slowest, _)| *slowest > 200 * MS), "{seen:?}");
    assert!(seen.iter().any(|(_, failed)| *failed > 10), "{seen:?}");
    assert_eq!(disks(5), seen[5]);
}

/// Under this name a test calls itself in a process of its own, to fail there: from which seed on.
const CHILD: &str = "SIM_RULES_CHILD";

fn child(test: &str, variables: &[(&str, &str)]) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(CHILD, "0")
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

/// A test with a bug: after a crash of the second host, request 5 is lost.
async fn buggy(net: Net) {
    let count = net.pick("hosts", 3..=6);
    let requests = net.pick("requests", 1..=400);
    let hosts: Vec<_> = (0..count).map(|number| net.host(&format!("h{number}"))).collect();
    let crashed = Rc::new(RefCell::new(false));
    let starts = Rc::new(Cell::new(0));
    let noted = Rc::clone(&crashed);
    hosts[1].program(move || {
        starts.set(starts.get() + 1);
        *noted.borrow_mut() = starts.get() > 1;
        std::future::pending()
    });
    net.random_faults(&hosts, FaultConfig { pause: false, ..FaultConfig::default() }).over().await;
    for request in 0..requests {
        assert!(!*crashed.borrow() || request < 5, "request {request} is lost, after {:?}", net.now());
    }
}

#[test]
fn a_failure_is_made_smaller_and_the_smaller_case_can_be_replayed() {
    let name = "a_failure_is_made_smaller_and_the_smaller_case_can_be_replayed";
    if let Ok(first) = std::env::var(CHILD) {
        let first = first.parse().unwrap();
        return Seeds::new(first..200).sim(|sim| sim.capture(Capture::Off)).run(buggy);
    }
    let output = child(name, &[]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    assert!(text.contains("  faults: 1 of "), "{text}");
    assert!(text.contains("  hosts: 3 instead of") && text.contains("  requests: 6 instead of"), "{text}");
    let replays: Vec<&str> = text.lines().filter_map(|line| line.trim().strip_prefix("replay:  ")).collect();
    let replay = replays.last().unwrap();
    let variables: Vec<(&str, &str)> = replay.split(' ').map_while(|word| word.split_once('=')).collect();
    assert_eq!(variables.len(), 2, "{replay}");
    let again = child(name, &variables);
    let again = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(again.contains("request 5 is lost"), "{again}");
    // Another seed, whose fault was one of four hosts before.
    let other = child(name, &[(CHILD, "1")]);
    let other = String::from_utf8_lossy(&other.stderr).into_owned();
    assert!(other.contains("  hosts: 3 instead of 4"), "{other}");
    let fault = other.lines().skip_while(|line| !line.contains("  faults: 1 of ")).nth(1).unwrap();
    assert!(fault.contains("h1") && !fault.contains("h3"), "it names hosts that are not there: {fault}");
    let file_of = |line: &str| {
        let (kind, rest) = line.trim().split_once(": ")?;
        let file = rest.split(" (").next()?;
        ["packets", "timeline"].contains(&kind).then(|| file.to_owned()).filter(|file| file.starts_with('/'))
    };
    for file in text.lines().chain(again.lines()).chain(other.lines()).filter_map(file_of) {
        let _gone = std::fs::remove_file(file);
    }
    let quiet = child(name, &[("SOCKEYE_SIM_SHRINK", "0")]);
    assert!(!String::from_utf8_lossy(&quiet.stderr).contains("fails alike"));
}

/// A condition that comes true a moment after the schedule is over, which the main program waits for or not.
fn comes_true_after_random_faults(seed: u64, waits: bool) {
    Sim::exactly(seed).capture(Capture::Off).run(move |net| async move {
        let hosts: Vec<_> = (0..3).map(|number| net.host(&format!("h{number}"))).collect();
        let is_done = Rc::new(Cell::new(false));
        let done = Rc::clone(&is_done);
        net.eventually("done", SECOND, move || done.get());
        let faults = net.random_faults(&hosts, FaultConfig::default());
        let finish = async move {
            faults.over().await;
            time::sleep(500 * MS).await;
            is_done.set(true);
        };
        if waits {
            finish.await;
        } else {
            drop(sockeye_sim::spawn(finish));
        }
    });
}

#[test]
fn time_of_a_schedule_that_is_not_over_does_not_count() {
    for seed in 0..50 {
        comes_true_after_random_faults(seed, true);
        comes_true_after_random_faults(seed, false);
    }
}
