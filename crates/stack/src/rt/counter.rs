//! The stack's counters, by index. `docs/reference/counters.md` explains them.
//!
//! The names are those of `Stack::counters`, in this order; a test holds that page to them.

pub const SEGMENTS_IN: usize = 0;
pub const SEGMENTS_OUT: usize = 1;
pub const ENTERED: usize = 2;
pub const QUEUED: usize = 3;
pub const COALESCED: usize = 4;
pub const HANDED_OFF: usize = 5;
pub const SLEEPS: usize = 6;
pub const WORKER_SLEEPS: usize = 7;
pub const TIMERS_FIRED: usize = 8;
pub const ACTIVE_OPENS: usize = 9;
pub const PASSIVE_OPENS: usize = 10;
pub const RESETS_OUT: usize = 11;
pub const LISTEN_OVERFLOWS: usize = 12;
pub const TIME_WAIT_OVERFLOW: usize = 13;
pub const SEGMENTS_LOST: usize = 14;
pub const MEMORY_WAITS: usize = 15;
pub const RX_FREE_KICKS: usize = 16;
pub const RX_FREE_FLUSHES: usize = 17;
/// A receive that took bytes counts once under one of these three.
pub const RCVD_SENT: usize = 18;
pub const RCVD_COALESCED: usize = 19;
pub const RCVD_SKIPPED: usize = 20;
pub const RCVD_SLEEPS: usize = 21;
pub const WINDOW_UPDATES: usize = 22;
pub const WORKER_WAKES: usize = 23;
/// The first of seven: nothing queued, own at depth 1 to 3, another's at depth 1 to 3.
pub const LEFT: usize = 24;
/// As [`LEFT`].
pub const LEFT_CONNECT: usize = 31;
pub const UNIX_GLOBAL_LOCKS: usize = 38;
pub const UNIX_PCB_LOCKS: usize = 39;
pub const UNIX_PAIR_SLOW_PATHS: usize = 40;
pub const UNIX_BUSY_WAITS: usize = 41;
pub const SYNCOOKIES_SENT: usize = 42;
pub const SYNCOOKIES_RECV: usize = 43;
pub const SYNCOOKIES_FAILED: usize = 44;
pub const FASTOPEN_ACTIVE: usize = 45;
pub const FASTOPEN_ACTIVE_FAIL: usize = 46;
pub const FASTOPEN_PASSIVE: usize = 47;
pub const FASTOPEN_PASSIVE_FAIL: usize = 48;
pub const FASTOPEN_LISTEN_OVERFLOWS: usize = 49;
pub const FASTOPEN_COOKIE_REQD: usize = 50;
pub const FASTOPEN_BLACKHOLE: usize = 51;
/// Queues behind holes that were dropped at the memory cap.
pub const OFO_PRUNED: usize = 52;
/// Run tokens that writers have waited for.
pub const WRITERS_ADMITTED: usize = 53;
/// Panics of wakers, hooks and interfaces that were caught.
pub const PANICS_FOREIGN: usize = 54;
/// Panics of protocol code that were caught.
pub const PANICS_PROTOCOL: usize = 55;
/// Small writes that were held back: see `tcp/conn/cork.rs`.
pub const CORKED: usize = 56;
/// Of [`WORKER_WAKES`], those for one item alone, of the connection that was left.
pub const WORKER_WAKES_NEEDLESS: usize = 57;
pub const COUNT: usize = 58;

pub const NAMES: [&str; COUNT] = [
    "segments_in",
    "segments_out",
    "conn_entered",
    "conn_queued",
    "notify_coalesced",
    "conn_handed_off",
    "user_sleeps",
    "worker_sleeps",
    "timers_fired",
    "active_opens",
    "passive_opens",
    "resets_out",
    "listen_overflows",
    "time_wait_overflows",
    "segments_lost",
    "memory_waits",
    "rx_free_kicks",
    "rx_free_flushes",
    "rcvd_sent",
    "rcvd_coalesced",
    "rcvd_skipped",
    "rcvd_sleeps",
    "window_updates",
    "worker_wakes",
    "left_empty",
    "left_own_1",
    "left_own_2",
    "left_own_3",
    "left_other_1",
    "left_other_2",
    "left_other_3",
    "connect_left_empty",
    "connect_left_own_1",
    "connect_left_own_2",
    "connect_left_own_3",
    "connect_left_other_1",
    "connect_left_other_2",
    "connect_left_other_3",
    "unix_global_locks",
    "unix_pcb_locks",
    "unix_pair_slow_paths",
    "unix_busy_waits",
    "syncookies_sent",
    "syncookies_recv",
    "syncookies_failed",
    "fastopen_active",
    "fastopen_active_fail",
    "fastopen_passive",
    "fastopen_passive_fail",
    "fastopen_listen_overflows",
    "fastopen_cookie_reqd",
    "fastopen_blackhole",
    "ofo_pruned",
    "writers_admitted",
    "panics_foreign",
    "panics_protocol",
    "writes_corked",
    "worker_wakes_needless",
];

/// Their names in the kernel's MIB, where it has the same (RFC 4022, and Linux's TcpExt).
pub const MIB: [(usize, &str); 18] = [
    (SEGMENTS_IN, "TcpInSegs"),
    (SEGMENTS_OUT, "TcpOutSegs"),
    (ACTIVE_OPENS, "TcpActiveOpens"),
    (PASSIVE_OPENS, "TcpPassiveOpens"),
    (RESETS_OUT, "TcpOutRsts"),
    (LISTEN_OVERFLOWS, "TcpExtListenOverflows"),
    (TIME_WAIT_OVERFLOW, "TcpExtTCPTimeWaitOverflow"),
    (SYNCOOKIES_SENT, "TcpExtSyncookiesSent"),
    (SYNCOOKIES_RECV, "TcpExtSyncookiesRecv"),
    (SYNCOOKIES_FAILED, "TcpExtSyncookiesFailed"),
    (FASTOPEN_ACTIVE, "TcpExtTCPFastOpenActive"),
    (FASTOPEN_ACTIVE_FAIL, "TcpExtTCPFastOpenActiveFail"),
    (FASTOPEN_PASSIVE, "TcpExtTCPFastOpenPassive"),
    (FASTOPEN_PASSIVE_FAIL, "TcpExtTCPFastOpenPassiveFail"),
    (FASTOPEN_LISTEN_OVERFLOWS, "TcpExtTCPFastOpenListenOverflow"),
    (FASTOPEN_COOKIE_REQD, "TcpExtTCPFastOpenCookieReqd"),
    (FASTOPEN_BLACKHOLE, "TcpExtTCPFastOpenBlackhole"),
    (OFO_PRUNED, "TcpExtOfoPruned"),
];
