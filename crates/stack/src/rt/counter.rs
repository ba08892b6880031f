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
/// A receive that took bytes counts once under one of these three.
pub const RCVD_SENT: usize = 16;
pub const RCVD_COALESCED: usize = 17;
pub const RCVD_SKIPPED: usize = 18;
pub const RCVD_SLEEPS: usize = 19;
pub const WINDOW_UPDATES: usize = 20;
pub const WORKER_WAKES: usize = 21;
/// The first of seven: nothing queued, own at depth 1 to 3, another's at depth 1 to 3.
pub const LEFT: usize = 22;
/// As [`LEFT`].
pub const LEFT_CONNECT: usize = 29;
pub const UNIX_GLOBAL_LOCKS: usize = 36;
pub const UNIX_PCB_LOCKS: usize = 37;
pub const UNIX_PAIR_SLOW_PATHS: usize = 38;
pub const UNIX_BUSY_WAITS: usize = 39;
pub const SYNCOOKIES_SENT: usize = 40;
pub const SYNCOOKIES_RECV: usize = 41;
pub const SYNCOOKIES_FAILED: usize = 42;
pub const FASTOPEN_ACTIVE: usize = 43;
pub const FASTOPEN_ACTIVE_FAIL: usize = 44;
pub const FASTOPEN_PASSIVE: usize = 45;
pub const FASTOPEN_PASSIVE_FAIL: usize = 46;
pub const FASTOPEN_LISTEN_OVERFLOWS: usize = 47;
pub const FASTOPEN_COOKIE_REQD: usize = 48;
pub const FASTOPEN_BLACKHOLE: usize = 49;
/// Queues behind holes that were dropped at the memory cap.
pub const OFO_PRUNED: usize = 50;
/// Run tokens that writers have waited for.
pub const WRITERS_ADMITTED: usize = 51;
/// Panics of wakers, hooks and interfaces that were caught.
pub const PANICS_FOREIGN: usize = 52;
/// Panics of protocol code that were caught.
pub const PANICS_PROTOCOL: usize = 53;
/// Small writes that were held back: see `tcp/conn/cork.rs`.
pub const CORKED: usize = 54;
/// Of [`WORKER_WAKES`], those for one item alone, of the connection that was left.
pub const WORKER_WAKES_NEEDLESS: usize = 55;
/// Reports of the network about segments that are not in flight.
pub const ICMP_OUT_OF_WINDOW: usize = 56;
/// Entries of the timer wheel that were taken out because they did not count any more.
pub const TIMERS_PURGED: usize = 57;
/// Segments and reports that found the backlog of their connection's lock full.
pub const BACKLOG_DROPS: usize = 58;
/// The last two count remote-free lists, which only stacks with the feature `experiments` have.
#[cfg(feature = "experiments")]
pub const RX_FREE_KICKS: usize = 59;
#[cfg(feature = "experiments")]
pub const RX_FREE_FLUSHES: usize = 60;
pub const COUNT: usize = 61;
/// Counters that `Stack::counters` shows.
pub const SHOWN_COUNT: usize = if cfg!(feature = "experiments") { COUNT } else { COUNT - 2 };

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
    "icmp_out_of_window",
    "timers_purged",
    "backlog_drops",
    "rx_free_kicks",
    "rx_free_flushes",
];

/// Their names in the kernel's MIB, where it has the same (RFC 4022, and Linux's TcpExt).
pub const MIB: [(usize, &str); 20] = [
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
    (ICMP_OUT_OF_WINDOW, "TcpExtOutOfWindowIcmps"),
    (BACKLOG_DROPS, "TcpExtTCPBacklogDrop"),
];
