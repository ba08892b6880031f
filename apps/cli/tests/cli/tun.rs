//! `sockeye tun` on a device, with stock clients of the kernel's side, and `ss`, `nstat` and `why` looking at it.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use super::device::{PATIENCE, Tun};
use super::*;

/// The client's count: an end of iperf3 stops counting when the other reports that it has sent everything.
fn counted(result: &Value, is_reverse: bool) -> f64 {
    let sum = if is_reverse { "sum_received" } else { "sum_sent" };
    result["end"][sum]["bytes"].as_f64().unwrap()
}

#[test]
fn a_device_answers_serves_is_listed_and_is_removed_after_a_signal() {
    let Some(mut tun) = Tun::start("--addr 10.9.0.2/24 --addr fd09::2/64 --serve echo:7,chargen,discard")
    else {
        return;
    };
    assert!(tun.devices().contains("sock0"));
    tun.client("ping -c 2 -W 10 10.9.0.2");
    tun.client("ping -c 2 -W 10 fd09::2");
    let mut echo = tun.connect("[fd09::2]:7");
    let text: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
    let mut writer = echo.try_clone().unwrap();
    let sent = text.clone();
    let writing = std::thread::spawn(move || writer.write_all(&sent).unwrap());
    let mut back = vec![0; text.len()];
    echo.read_exact(&mut back).unwrap();
    writing.join().unwrap();
    assert!(back == text, "the echo is another");
    let mut lines = [0; 148];
    tun.connect("10.9.0.2:19").read_exact(&mut lines).unwrap();
    assert!(lines.starts_with(b" !\"#") && lines[74..].starts_with(b"!\"#"));

    let listening = stdout(&tun.look("ss -l"));
    assert!(listening.contains("10.9.0.2:19") && listening.contains("udp") && !listening.contains("ESTAB"));
    let buffers = stdout(&tun.look("ss -tm"));
    assert!(buffers.contains("skmem:(r0,rb") && !buffers.contains("rtt:"), "{buffers}");
    assert!(stdout(&tun.look("ss -to sport = :echo")).contains("ESTAB"));
    let shown = stdout(&tun.look("ss -ti"));
    assert!(shown.contains("ESTAB") && shown.contains("rtt:") && shown.contains("bytes_acked:"), "{shown}");
    let json: Value = serde_json::from_slice(&tun.look("ss -t --json").stdout).unwrap();
    assert!(
        json["sockets"].as_array().unwrap().iter().any(|socket| socket["local"] == "[fd09::2]:7"),
        "{json}"
    );
    let counters: Value = serde_json::from_slice(&tun.look("nstat --json").stdout).unwrap();
    assert_eq!(counters["counters"]["IcmpInEchos"], 4);
    assert!(counters["counters"]["TcpPassiveOpens"].as_u64().unwrap() >= 2, "{counters}");
    assert!(stdout(&tun.look("nstat -z udp")).contains("UdpNoPorts"));
    let port = echo.local_addr().unwrap().port();
    tun.shows_why(&format!("why {port}"), "nothing to send");
    assert_eq!(tun.look("why 1").status.code(), Some(1));

    let (text, code) = tun.end(Signal::INT);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("frames"), "{text}");
    assert!(!tun.devices().contains("sock0"));
    assert!(fs::read_dir(&tun.folder).unwrap().next().is_none(), "it is still shown");
}

#[test]
fn a_second_stack_with_the_same_addresses_is_refused_with_a_remedy() {
    let Some(tun) = Tun::start("--addr 10.9.0.2/24 --serve discard") else { return };
    let mut second = sockeye("tun --addr 10.9.0.3/24 --seconds 1");
    let output = tun.namespace.run(|| second.output()).unwrap().unwrap();
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("10.9.0.1 is in use") && text.contains("--peer-addr"), "{text}");
    let mut same_name = sockeye("tun --addr 10.8.0.2/24 --name sock0 --seconds 1");
    let text = stderr(&tun.namespace.run(|| same_name.output()).unwrap().unwrap());
    assert!(text.contains("sock0: another program has the device of this name open"), "{text}");
}

#[test]
fn why_names_the_reader_that_stalls_a_sender() {
    let Some(tun) = Tun::start("--addr 10.9.0.2/24 --serve chargen:19") else { return };
    let client = tun.connect("10.9.0.2:19");
    let port = client.local_addr().unwrap().port();
    tun.shows_why(&format!("why 10.9.0.2:19 10.9.0.1:{port}"), "the receive window");
}

#[test]
fn idle_clients_are_disconnected_and_the_next_are_served() {
    let line = "--addr 10.9.0.2/24 --serve echo,discard,chargen --idle-timeout 0.2";
    let Some(tun) = Tun::start(line) else { return };
    let mut idle = ["10.9.0.2:7", "10.9.0.2:9", "10.9.0.2:19"].map(|addr| tun.connect(addr));
    let deadline = Instant::now() + PATIENCE;
    while stdout(&tun.look("ss -t")).contains("10.9.0.1:") {
        assert!(Instant::now() < deadline, "{}", stdout(&tun.look("ss -t")));
        std::thread::sleep(Duration::from_millis(20));
    }
    for client in &mut idle {
        let error = client.read_to_end(&mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
    let mut echo = tun.connect("10.9.0.2:7");
    echo.write_all(b"hello").unwrap();
    echo.read_exact(&mut [0; 5]).unwrap();
}

#[test]
fn iperf3_measures_both_directions_several_streams_and_datagrams() {
    let Some(mut tun) = Tun::start("--addr 10.9.0.2/24 --addr fd09::2/64 --serve iperf3 --queues 2") else {
        return;
    };
    for line in ["", "-R", "-P 10", "-P 10 -R", "--bidir", "-u -b 20M", "-u -b 20M -R -P 2", "-b 100M -R"] {
        let Some(result) = tun.iperf3(&format!("-c 10.9.0.2 -t 1 {line}")) else { return };
        let sum = if line.starts_with("-u") { "sum" } else { "sum_received" };
        assert!(result["end"][sum]["bytes"].as_f64().unwrap() > 100_000.0, "{line}: {result}");
    }
    let result = tun.iperf3("-c fd09::2 -n 20M").unwrap();
    // Blocks are whole, so the last may be more than was asked for.
    assert!((20.0 * 1_048_576.0..25.0 * 1_048_576.0).contains(&counted(&result, false)), "{result}");
    assert_eq!(tun.end(Signal::TERM).1, Some(0));
}

#[test]
fn ethernet_and_disabled_offloads_give_the_same_results() {
    for line in ["--tap", "--no-offload --mtu 1400", "--tap --no-offload"] {
        let Some(tun) = Tun::start(&format!("--addr 10.9.0.2/24 --serve iperf3 {line}")) else { return };
        tun.client("ping -c 1 -W 10 10.9.0.2");
        for direction in ["", "-R"] {
            let Some(result) = tun.iperf3(&format!("-c 10.9.0.2 -n 8M {direction}")) else { return };
            assert!(counted(&result, direction == "-R") >= 8e6, "{line} {direction}: {result}");
        }
    }
}

#[test]
fn a_record_stays_within_its_bound_and_is_pcap_ng() {
    let path = std::env::temp_dir().join(format!("sockeye-tun-test-{}.pcapng", std::process::id()));
    let line =
        format!("--addr 10.9.0.2/24 --serve echo --pcap {} --pcap-max 8K --seconds 30", path.display());
    let Some(mut tun) = Tun::start(&line) else { return };
    tun.client("ping -c 3 -i 0.2 -s 4000 10.9.0.2");
    let (text, code) = tun.end(Signal::INT);
    assert_eq!(code, Some(0));
    assert!(text.contains("recorded"), "{text}");
    let record = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    assert!(record.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]));
    assert!((100..64 << 10).contains(&record.len()), "{} bytes", record.len());
}

#[test]
fn unsupported_requests_are_usage_errors_or_name_a_remedy() {
    for (line, expected) in [
        ("tun", "--addr"),
        ("tun --addr 10.9.0.2/24 --serve finger", "echo, discard, chargen"),
        ("tun --addr 10.9.0.2/24 --serve http:80=/nonexistent/here", "/nonexistent/here: No such file"),
        ("tun --addr 10.9.0.2/24 --set sndbuff=1", "sndbuff"),
        ("tun --addr 10.9.0.2/24 --peer-addr 10.9.0.2/24", "both sides"),
        ("why nobody", "#ID"),
    ] {
        let output = run(sockeye(line));
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(stderr(&output).contains(expected), "{line}: {}", stderr(&output));
    }
    let missing = Path::new("/nonexistent/sockeye");
    for line in ["ss", "nstat"] {
        let mut command = sockeye(line);
        command.env("SOCKEYE_DIAG_DIR", missing);
        let output = run(command);
        assert_eq!(output.status.code(), Some(0), "{line}");
        assert!(stderr(&output).contains("/nonexistent/sockeye"), "{}", stderr(&output));
    }
}

#[test]
fn help_texts_have_examples() {
    for (line, expected) in [
        ("tun --help", "iperf3 -c"),
        ("iperf3 --help", "iperf3 -s -D"),
        ("ss --help", "ss -ti"),
        ("why --help", "sockeye why 10.9.0.2"),
    ] {
        let help = stdout(&run(sockeye(line)));
        assert!(help.contains(expected), "{line}: {help}");
    }
}
