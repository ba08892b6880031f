//! The figures that the documents of the five techniques report.
//!
//! Purpose: the only place with figures from elsewhere. Each was measured by its author on another machine, so only the
//! ratios inside one figure can be compared with ratios here; every figure is shown with the [`DISCLAIMER`].
//!
//! Does not depend on this machine's measurements.
//!
//! Tests: `table.rs` has one that every experiment has its figure.

use crate::experiment::model::Figure;

/// Shown with every figure.
pub const DISCLAIMER: &str = "measured by its author on that machine; absolute figures do not compare with those here, only ratios may";

/// Technique 1.
pub const RCVD: Figure = Figure {
    source: "DragonFly BSD, commit 96c6eb29, 2012",
    workload: "32 parallel netperf TCP_STREAM over 127.0.0.1, 30 s, 4 runs, sum",
    machine: "Intel i7-2600, 4 cores, 8 threads, 3.4 GHz",
    found: &[
        ("old (sync)", "30,253.88 30,242.58 30,162.55 30,101.51 Mbit/s", "1"),
        ("new (async)", "33,962.74 33,798.70 33,499.92 33,482.35 Mbit/s", "1.12"),
    ],
};

/// Technique 2.
pub const INPUT: Figure = Figure {
    source: "OpenBSD, tech@ of January 2025 and the change of April 2025",
    workload: "iperf3 -R, 1 MB socket buffers, 10 s, 1 and 10 streams from another host",
    machine: "4 CPUs, not described further",
    found: &[
        ("exclusive", "base, 1 and 10 streams", "1"),
        ("exclusive+lock", "1 stream -6 %", "0.94"),
        ("per_packet", "1 stream -25 %, 10 streams +140 % (+100 % in January)", "0.75 / 2.40"),
        ("batched", "1 stream +5 %, 10 streams +160 %", "1.05 / 2.60"),
    ],
};

/// Beside the techniques: no figure of its author's is known here.
pub const GRO: Figure = Figure {
    source: "Linux, generic receive offload, 2009",
    workload: "not described",
    machine: "not described",
    found: &[("on, against off", "no figure known", "")],
};

/// Technique 3.
pub const RX_FREE: Figure = Figure {
    source: "Linux, commit 8b27dae5, 2019, and its successors",
    workload: "neper tcp_rr, 10,000 flows of 1 byte, 112 threads, two hosts",
    machine: "servers with 112 threads, not described further",
    found: &[
        ("inline", "8 Mpps", "1"),
        ("slot, with the like for sending", "9 Mpps", "1.12"),
        ("socket list (2021), 1 stream, MTU 1500", "55 to 66 Gbit/s", "1.20"),
        ("core list (2022), 1 flow", "49.7 to 73.1 Gbit/s", "1.47"),
        ("core list on loopback (a distributor's report, 2024)", "10 to 13 % slower", "0.87 to 0.90"),
    ],
};

/// Technique 4.
pub const WAKE: Figure = Figure {
    source: "illumos, OS-6344, 2017",
    workload: "ab(1) against a web server on the same host; iperf unchanged",
    machine: "not described",
    found: &[
        ("immediate", "about 15,500 requests/s", "1"),
        ("elide", "about 18,000 requests/s", "1.16"),
        (
            "leaving connect, before",
            "no wake needed 168,853; elidable (depth 1) 161,273; head is mine at depth 2 / 3: 894 / 2; \
             forced at depth 1 / 2 / 3 / 4: 3,345 / 4,720 / 168 / 8",
            "",
        ),
        (
            "queue depth when elision was tried, after",
            "0: 3,940,144; 1: 1,857,500; 2: 57,862; 3: 1,954; 4: 8; 5: 1",
            "",
        ),
    ],
};

/// Technique 5.
pub const UNIX: Figure = Figure {
    source: "FreeBSD, r333744 (D15430), 2018",
    workload: "will-it-scale unix1_processes: write 1 byte and read it, each task its own pair",
    machine: "96 hardware threads, not described further",
    found: &[
        ("1 task, before / after", "1,190,369 / 1,204,828 operations/s", "1.012"),
        ("2 tasks, before / after", "2,030,443 / 2,401,173 operations/s", "1.183"),
        ("4 tasks, before / after", "3,989,985 / 4,805,194 operations/s", "1.204"),
        ("96 tasks, before / after", "1,692,766 / 69,576,423 operations/s", "41.1"),
    ],
};
