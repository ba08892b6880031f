//! `sockeye bench gateway`: its output without any gateway, and its mistakes. What other programs measure needs these installed.

use serde_json::Value;
use sockeye_drivers::testing::unavailable;

use super::*;

#[test]
fn without_a_gateway_the_work_is_measured_and_nothing_compared() {
    if let Some(reason) = unavailable() {
        println!("skipped: {reason}");
        return;
    }
    if Command::new("iperf3").arg("--version").output().is_err() {
        println!("skipped: iperf3 is not installed");
        return;
    }
    let output = run(bench("gateway --gateways none --work in --rounds 1 --seconds 1 --json"));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let row: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!((&row["work"], &row["ratio"], &row["reached"]), (&"in".into(), &Value::Null, &Value::Null));
    assert!(row["gateways"][0]["median"].as_f64() > Some(0.0), "{row}");
    assert!(stderr(&output).contains("interleaved rounds"), "the method is said");
}

#[test]
fn a_gateway_that_is_not_there_is_named() {
    let wrong = run(bench("gateway --gateways other"));
    assert_eq!(wrong.status.code(), Some(2));
    if unavailable().is_none() {
        let missing = run(bench("gateway --gateways sockeye --work start --program /nowhere/sockeye"));
        assert_eq!(missing.status.code(), Some(1));
        assert!(stderr(&missing).contains("/nowhere/sockeye"), "{}", stderr(&missing));
    }
    let help = run(bench("gateway --help"));
    assert!(stdout(&help).contains("keep-alive-32"), "{}", stdout(&help));
}
