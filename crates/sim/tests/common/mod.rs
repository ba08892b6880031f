//! Runs of one program in several processes, compared by their bytes.

use std::process::Command;

/// Under this name a test calls itself in a process of its own.
const CHILD: &str = "SIM_TEST_CHILD";

/// A fingerprint that is the same everywhere.
pub fn fingerprint(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// The test of this name, which calls this function, makes the same bytes in so many further processes.
///
/// # Panics
/// If one of them makes others.
pub fn assert_same_in_processes(test: &str, processes: usize, bytes: &[u8]) {
    let own = format!("fingerprint {:016x}", fingerprint(bytes));
    if std::env::var_os(CHILD).is_some() {
        println!("{own}");
        return;
    }
    for _ in 0..processes {
        let output = Command::new(std::env::current_exe().unwrap())
            .args([test, "--exact", "--nocapture"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains(&own), "not {own}: {text}");
    }
}
