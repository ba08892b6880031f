//! Records of the packets on interfaces while `sockeye bench` measures.

use std::fs;
use std::path::PathBuf;

use sockeye_drivers::testing::unavailable;

use super::*;

/// The first bytes of a pcap-ng file.
const MAGIC: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// Where records go; they go with the value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sockeye-records-{name}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// Runs a bench with a record, and returns the files' names in order.
    fn bench(&self, line: &str) -> Vec<String> {
        let output = run(bench(&format!("{line} --pcap {}", self.0.join("trace.pcapng").display())));
        assert_eq!(output.status.code(), Some(0), "{line}: {}", stderr(&output));
        let names = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = names.map(|name| name.to_str().unwrap().to_owned()).collect();
        names.sort();
        for name in &names {
            let record = fs::read(self.0.join(name)).unwrap();
            assert!(record.starts_with(&MAGIC) && record.len() > 1000, "{name}: {} bytes", record.len());
            assert!(stderr(&output).contains(name.as_str()), "{}", stderr(&output));
        }
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

#[test]
fn each_stack_on_a_wire_has_a_record_of_its_own() {
    let folder = Folder::new("wire");
    let names = folder
        .bench("input --connections 1 --threads 1 --variants exclusive,batched --samples 1 --seconds 0.05");
    // Two settings at two MTUs.
    assert_eq!(names, ["trace.2.pcapng", "trace.3.pcapng", "trace.4.pcapng", "trace.pcapng"]);
}

#[test]
fn a_stack_on_a_device_has_a_record() {
    if let Some(reason) = unavailable() {
        eprintln!("skipped: {reason}");
        return;
    }
    let folder = Folder::new("tun");
    assert_eq!(folder.bench("tun --samples 1 --seconds 0.05"), ["trace.pcapng"]);
}

#[test]
fn a_workload_without_an_interface_has_no_record_and_a_message() {
    for name in ["rr", "rcvd", "udp", "all"] {
        let output = run(bench(&format!("{name} --pcap /nonexistent/trace.pcapng")));
        assert_eq!(output.status.code(), Some(2), "{name}");
        let message = stderr(&output);
        assert!(
            message.contains(&format!("{name} runs over loopback")) && message.contains("input, gro, rxfree"),
            "{message}"
        );
    }
}
