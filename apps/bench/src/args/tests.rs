//! The meaning of command lines, and the messages of refused ones.

use clap::Parser;

use super::*;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    bench: BenchArgs,
}

fn parse(line: &str) -> BenchArgs {
    let words = std::iter::once("bench").chain(line.split_whitespace());
    Command::try_parse_from(words).unwrap_or_else(|error| panic!("{line}: {error}")).bench
}

fn parse_error(line: &str) -> String {
    let words = std::iter::once("bench").chain(line.split_whitespace());
    match Command::try_parse_from(words) {
        Ok(_) => panic!("{line} was taken"),
        Err(error) => error.to_string(),
    }
}

fn plan(line: &str) -> Plan {
    parse(line).plan().unwrap_or_else(|error| panic!("{line}: {error}"))
}

fn plan_error(line: &str) -> String {
    parse(line).plan().err().unwrap_or_else(|| panic!("{line} was taken")).to_string()
}

#[test]
fn without_a_workload_it_is_the_default_set_on_both_sides() {
    let plan = plan("--quick");
    assert_eq!(plan.cases.len(), default_set(None, Effort::QUICK).len());
    assert_eq!(plan.sides, [Side::Sockeye, Side::Kernel]);
}

#[test]
fn a_workload_alone_is_its_rows_of_the_default_set() {
    assert_eq!(plan("crr").cases.len(), 3);
    assert_eq!(plan("crr --samples 4 --on kernel").cases[0].samples, 4);
}

#[test]
fn one_way_has_64_bytes_and_nagles_algorithm_by_default() {
    let plan = plan("one-way");
    assert_eq!(plan.cases.iter().map(Case::label).collect::<Vec<_>>(), ["64 B, two cores"]);
    assert_eq!(
        self::plan("one-way --size 1K --nodelay --pin same").cases[0].label(),
        "1K, nodelay, same core"
    );
}

#[test]
fn a_list_of_connections_makes_a_row_each() {
    let plan = plan("stream --connections 1,2,10 --size 4K --nodelay --pin same --spin off");
    let labels: Vec<String> = plan.cases.iter().map(Case::label).collect();
    assert_eq!(labels.len(), 3);
    assert_eq!(labels[2], "10 conns, 4K writes, nodelay, same core, no spin");
}

#[test]
fn rr_blocks_on_one_connection_and_waits_for_readiness_on_more() {
    let plan = plan("rr --connections 1,100");
    assert_eq!(plan.cases[0].label(), "1 conn, two cores");
    assert_eq!(plan.cases[1].label(), "100 conns, 2+2 threads");
    assert_eq!(self::plan("rr --threads 1").cases[0].label(), "1 conn, 1+1 threads");
}

#[test]
fn sizes_have_suffixes() {
    for (text, want) in [("1", 1), ("64K", 65536), ("64k", 65536), ("1.5K", 1536), ("16M", 16 << 20)] {
        assert_eq!(size(text), Ok(want));
    }
    for text in ["0", "", "K", "-1", "1.3", "17M", "1G", "99999999999999999999K", "é"] {
        assert!(size(text).is_err(), "{text}");
    }
}

#[test]
fn an_error_names_flag_value_and_remedy() {
    for (line, flag, value, remedy) in [
        ("stream --size 12X", "--size", "12X", "64K"),
        ("stream --connections 0", "--connections", "0", "from 1 up"),
        ("rr --connections 1,x", "--connections", "x", "from 1 up"),
        ("rr --seconds 0", "--seconds", "0", "0.5"),
        ("rr --seconds nan", "--seconds", "nan", "0.5"),
        ("rr --samples 1001", "--samples", "1001", "1 to 1000"),
        ("rr --on linux", "--on", "linux", "kernel"),
        ("rr --pin both", "--pin", "both", "split"),
        ("sctp", "[WORKLOAD]", "sctp", "stream"),
    ] {
        let message = parse_error(line);
        for part in [flag, value, remedy] {
            assert!(message.contains(part), "{part} is not in: {message}");
        }
    }
}

#[test]
fn a_flag_of_another_workload_is_refused_instead_of_ignored() {
    for (line, flag, names) in [
        ("stream --clients 3", "--clients", "crr"),
        ("crr --connections 3", "--connections", "stream, rr, mem, idle, http1, http2"),
        ("mem --size 3", "--size", "stream, rr, one-way, crr"),
        ("rr --touch", "--touch", "mem"),
        ("mem --spin off", "--spin", "idle"),
        ("--size 3", "--size", "sockeye bench stream"),
    ] {
        let message = plan_error(line);
        assert!(message.contains(flag) && message.contains(names), "{message}");
    }
}

#[test]
fn values_beyond_a_bound_are_refused_with_it() {
    for (line, bound) in [
        ("stream --connections 1025", "1024"),
        ("rr --connections 100001", "100000"),
        ("rr --connections 2 --size 5K", "4K"),
        ("rr --threads 257", "256"),
        ("crr --clients 1025", "1024"),
        ("mem --connections 1000001", "1000000"),
    ] {
        let message = plan_error(line);
        assert!(message.contains(bound), "{message}");
    }
}

#[test]
fn the_device_takes_no_flag_that_would_be_ignored() {
    assert_eq!(parse("tun --samples 3 --quick --json").check_plain("tun"), Ok(()));
    for flag in ["--size 5", "--on kernel", "--pin same", "--set grain=per_core"] {
        let refused = parse(&format!("tun {flag}")).check_plain("tun").unwrap_err();
        let name = flag.split_whitespace().next().unwrap();
        assert!(refused.0.starts_with(name), "{}", refused.0);
    }
}
