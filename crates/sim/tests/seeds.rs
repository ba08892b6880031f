//! Tests that run once for each seed: the attribute, all cores, parts, results, replays.

use std::collections::BTreeMap;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sockeye_sim::net::{TcpListener, TcpStream};
use sockeye_sim::{Capture, LinkConfig, Net, Seeds, Sim, time};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Under this name a test calls itself in a process of its own.
const CHILD: &str = "SIM_SEEDS_CHILD";

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

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A lossy exchange, whose course depends on the seed.
async fn exchange(net: Net) {
    net.set_default_link(LinkConfig { loss: 0.1, ..LinkConfig::rtt(Duration::from_millis(30)) });
    let (client, server) = (net.host("client"), net.host("server"));
    server.program(|| async {
        let listener = TcpListener::bind("server:80").await.unwrap();
        listener.accept().await.unwrap().0.write_all(&[7; 20_000]).await.unwrap();
    });
    let got = client.spawn(async {
        let mut bytes = Vec::new();
        TcpStream::connect("server:80").await.unwrap().read_to_end(&mut bytes).await.unwrap();
        bytes.len()
    });
    assert_eq!(got.await.unwrap(), 20_000);
}

/// The attribute with its default.
#[sockeye_sim::test]
async fn a_test_of_seeds_gets_a_network(net: Net) {
    exchange(net).await;
}

/// With arguments, without a parameter, and with a result.
#[sockeye_sim::test(seeds = [3, 5], sim = |sim| sim.time_max(Duration::from_secs(7)).capture(Capture::Off),)]
#[should_panic(expected = "the program failed: \"no luck\"")]
async fn a_test_of_seeds_may_return_an_error() -> Result<(), &'static str> {
    time::sleep(Duration::from_secs(5)).await;
    Err("no luck")
}

#[cfg(all(
    target_os = "linux",
    target_pointer_width = "64",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
#[sockeye_sim::test(seeds = 0..3, tokio)]
async fn a_test_of_seeds_has_tokio_if_it_says_so(net: Net) {
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert_eq!(net.now(), Duration::from_secs(9));
}

/// The digest of each seed.
fn digests(seeds: impl IntoIterator<Item = u64>) -> BTreeMap<u64, u64> {
    let found = Arc::new(Mutex::new(BTreeMap::new()));
    Seeds::new(seeds).run(|net| {
        let found = Arc::clone(&found);
        async move {
            exchange(net.clone()).await;
            found.lock().unwrap().insert(net.seed(), net.digest());
        }
    });
    found.lock().unwrap().clone()
}

#[test]
fn a_seed_alone_is_the_same_as_among_others_on_several_threads() {
    let all = digests(0..200);
    assert_eq!(all.len(), 200);
    assert!(all.values().collect::<std::collections::BTreeSet<_>>().len() > 190, "seeds differ");
    assert_eq!(digests([150])[&150], all[&150]);
    let alone = Sim::exactly(70).run(|net| async move {
        exchange(net.clone()).await;
        net.digest()
    });
    assert_eq!(alone, all[&70]);
}

/// Fails for three seeds of a hundred.
fn unlucky() {
    Seeds::new(0..100).sim(|sim| sim.capture(Capture::Off)).run(|net| async move {
        println!("ran seed {}", net.seed());
        assert!(![13, 50, 51].contains(&net.seed()), "seed {} is unlucky", net.seed());
    });
}

#[test]
fn the_first_seed_that_fails_is_the_tests_failure_and_can_be_replayed() {
    let name = "the_first_seed_that_fails_is_the_tests_failure_and_can_be_replayed";
    if is_child() {
        return unlucky();
    }
    let output = child(name, &[]);
    let errors = text(&output.stderr);
    assert!(!output.status.success());
    assert!(errors.contains("sockeye-sim: the first seed that fails: 13\n"), "{errors}");
    assert!(
        errors.contains(&format!("SOCKEYE_SIM_SEED=13 cargo test -p sockeye-sim -- --exact {name}")),
        "{errors}"
    );
    let output = child(name, &[("SOCKEYE_SIM_SEED", "51")]);
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("seed 51 is unlucky"));
    assert_eq!(text(&output.stdout).matches("ran seed").count(), 1);
}

#[test]
fn parts_write_their_results_as_lines_and_keep_going() {
    let name = "parts_write_their_results_as_lines_and_keep_going";
    if is_child() {
        return unlucky();
    }
    let folder = std::env::temp_dir().join(format!("sockeye-sim-seeds-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let results = ("SOCKEYE_SIM_RESULTS", folder.to_str().unwrap());
    let first = child(name, &[results, ("SOCKEYE_SIM_SHARD", "0/2")]);
    let second = child(
        name,
        &[results, ("SOCKEYE_SIM_SHARDS", "2"), ("JOB_COMPLETION_INDEX", "1"), ("SOCKEYE_SIM_THREADS", "3")],
    );
    assert!(text(&first.stderr).contains("part 0 of 2 (from 0): 50 of 100 seeds"), "{}", text(&first.stderr));
    assert!(text(&second.stderr).contains("2 of 50 seeds failed: 13, 51"), "{}", text(&second.stderr));
    let read = |index: u32| {
        std::fs::read_to_string(folder.join(format!("sockeye-sim.seeds.{name}.0.{index}-of-2.jsonl")))
            .unwrap()
    };
    let (even, odd) = (read(0), read(1));
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!((even.lines().count(), odd.lines().count()), (50, 50));
    assert_eq!((even.matches("\"failed\"").count(), odd.matches("\"failed\"").count()), (1, 2));
    assert!(
        even.contains(",\"seed\":50,\"outcome\":\"failed\",\"message\":\"seed 50 is unlucky\","),
        "{even}"
    );
    let wrong = child(name, &[("SOCKEYE_SIM_SHARD", "2/2")]);
    assert!(!wrong.status.success() && text(&wrong.stderr).contains("must be I/N"));
}

#[test]
fn results_tell_the_calls_of_a_test_and_the_programs_apart() {
    let name = "results_tell_the_calls_of_a_test_and_the_programs_apart";
    if is_child() {
        let quiet = || Seeds::new(0..3).sim(|sim| sim.capture(Capture::Off));
        quiet().run(|_| async {});
        return quiet().run(|_| time::sleep(Duration::from_secs(1)));
    }
    let folder = std::env::temp_dir().join(format!("sockeye-sim-calls-{}", std::process::id()));
    let given = format!("{}/", folder.display());
    let output = child(name, &[("SOCKEYE_SIM_RESULTS", &given)]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for call in 0..2 {
        let file = folder.join(format!("sockeye-sim.seeds.{name}.{call}.0-of-1.jsonl"));
        let lines = std::fs::read_to_string(file).unwrap();
        let begin = format!(r#"{{"binary":"sockeye-sim/seeds","test":"{name}","call":{call},"seed":"#);
        assert!(lines.lines().count() == 3 && lines.lines().all(|line| line.starts_with(&begin)), "{lines}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// What a library counts for the whole process.
static COUNTED: AtomicU64 = AtomicU64::new(0);

/// Its course depends on that count.
fn counting(processes: bool) {
    let seeds = Seeds::new(0..8).sim(|sim| sim.capture(Capture::Off));
    let seeds = if processes { seeds.processes() } else { seeds };
    seeds.run(|net| async move {
        exchange(net.clone()).await;
        net.note(COUNTED.fetch_add(1, Ordering::Relaxed).to_string());
    });
}

/// The lines that a child writes of its seeds, in their order.
fn results(test: &str, variables: &[(&str, &str)]) -> Vec<String> {
    let file = std::env::temp_dir().join(format!("sockeye-sim-results-{}-{test}", std::process::id()));
    let given = [variables, &[("SOCKEYE_SIM_RESULTS", file.to_str().unwrap())]].concat();
    let output = child(test, &given);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn a_process_for_each_seed_knows_nothing_of_what_other_seeds_counted() {
    let name = "a_process_for_each_seed_knows_nothing_of_what_other_seeds_counted";
    if is_child() {
        return counting(true);
    }
    let all = results(name, &[("SOCKEYE_SIM_THREADS", "3")]);
    assert_eq!(all.len(), 8);
    assert_eq!(results(name, &[("SOCKEYE_SIM_SHARD", "1/4")]), [1, 5].map(|seed| all[seed].clone()));
    let alone = |processes| results(name, &[("SOCKEYE_SIM_SEED", "5"), ("SOCKEYE_SIM_PROCESSES", processes)]);
    assert_eq!(alone("1"), [all[5].clone()]);
    assert_eq!(alone("0"), [all[5].clone()], "a replay has a process of its own anyway");
    // Otherwise it is the sixth that counts, or beside others some other one.
    let without = [("SOCKEYE_SIM_PROCESSES", "0"), ("SOCKEYE_SIM_THREADS", "1")];
    assert!(results(name, &without)[5] != all[5]);
}

/// `select!` without `biased;`, in any build, and a number of tokio's that counts for the process.
#[cfg(all(
    target_os = "linux",
    target_pointer_width = "64",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
#[test]
fn a_process_for_each_seed_repeats_what_tokio_draws_by_a_counter() {
    let name = "a_process_for_each_seed_repeats_what_tokio_draws_by_a_counter";
    if is_child() {
        let seeds = Seeds::new(0..6).sim(|sim| sim.tokio().capture(Capture::Off));
        return seeds.run(|net| async move {
            let mut drawn = String::new();
            for _ in 0..40 {
                drawn += tokio::select! { () = async {} => "a", () = async {} => "b" };
            }
            net.note(format!("{drawn} {}", tokio::spawn(async { tokio::task::id() }).await.unwrap()));
        });
    }
    let processes = ("SOCKEYE_SIM_PROCESSES", "1");
    let all = results(name, &[processes, ("SOCKEYE_SIM_THREADS", "3")]);
    assert_eq!(results(name, &[processes, ("SOCKEYE_SIM_THREADS", "1")]), all);
    let without = [("SOCKEYE_SIM_PROCESSES", "0"), ("SOCKEYE_SIM_THREADS", "1")];
    assert!(results(name, &without)[5] != all[5], "otherwise it counts on");
}

/// The second call fails, and one seed ends its process.
fn fatal() {
    Seeds::new(0..3).processes().run(|_| async {});
    Seeds::new(0..9).processes().sim(|sim| sim.capture(Capture::Off)).run(|net| async move {
        let requests = net.pick("requests", 1..=90);
        if net.seed() == 6 {
            std::process::abort();
        }
        assert!(net.seed() != 4 || requests < 3, "request {requests} is lost");
    });
}

#[test]
fn a_process_that_fails_or_ends_by_a_signal_is_a_failure_of_its_seed() {
    let name = "a_process_that_fails_or_ends_by_a_signal_is_a_failure_of_its_seed";
    if is_child() {
        return fatal();
    }
    let output = child(name, &[("SOCKEYE_SIM_THREADS", "1")]);
    let errors = text(&output.stderr);
    assert!(!output.status.success());
    assert!(errors.contains("sockeye-sim: the first seed that fails: 4\n"), "{errors}");
    assert!(errors.contains("sockeye-sim: seed 4 failed at 0ns of simulated time"), "{errors}");
    assert!(errors.contains("  requests: 3 instead of "), "{errors}");
    let replay =
        format!("SOCKEYE_SIM_SEED=4 SOCKEYE_SIM_CASE=requests=3 cargo test -p sockeye-sim -- --exact {name}");
    assert!(errors.contains(&replay), "{errors}");
    let output = child(name, &[("SOCKEYE_SIM_KEEP_GOING", "1"), ("SOCKEYE_SIM_SHRINK", "0")]);
    let errors = text(&output.stderr);
    assert!(errors.contains("2 of 9 seeds failed: 4, 6"), "{errors}");
    let output = child(name, &[("SOCKEYE_SIM_SEED", "6"), ("SOCKEYE_SIM_PROCESSES", "1")]);
    let errors = text(&output.stderr);
    assert!(errors.contains("the process of seed 6 ended with signal: 6"), "{errors}");
}
