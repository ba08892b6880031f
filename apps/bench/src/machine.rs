//! The machine on which the figures were measured.
//!
//! Purpose: a rate without its machine is meaningless; this is the header of every run.
//!
//! Does not depend on workloads. Reads /proc only; values that it cannot read are "unknown".
//!
//! Tests: below.

use std::fmt;
use std::fs;
use std::io;
use std::time::Duration;

use rustix::param::clock_ticks_per_second;

use crate::pin::usable_cores;
use crate::providers::kernel::{Congestion, congestion};

/// The machine, as far as it matters for the figures.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The cores this process may run on, by number.
    pub cores: Vec<usize>,
    /// The CPU's name for itself.
    pub cpu_model: String,
    /// The kernel's release.
    pub kernel: String,
    /// Memory in KiB.
    pub memory_kib: Option<u64>,
    /// Runnable threads over the last minute, as a measure of other load.
    pub load: Option<f64>,
}

impl Machine {
    /// This machine, now.
    pub fn read() -> io::Result<Self> {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Ok(Self {
            cores: usable_cores()?,
            cpu_model: cpu_model(&cpuinfo),
            kernel: or_unknown(release.trim()),
            memory_kib: meminfo_kib("MemTotal"),
            load: first_number("/proc/loadavg"),
        })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cores: Vec<String> = self.cores.iter().map(usize::to_string).collect();
        write!(f, "machine: {} core(s) ({}), {}", cores.len(), cores.join(","), self.cpu_model)?;
        if let Some(kib) = self.memory_kib {
            write!(f, ", {} GiB", kib.div_ceil(1 << 20))?;
        }
        write!(f, ", Linux {}", self.kernel)?;
        match self.load {
            Some(load) if load > LOAD_QUIET => {
                writeln!(f, "; load {load}: other work disturbs the figures")?;
            }
            Some(_) | None => writeln!(f)?,
        }
        match congestion() {
            Congestion::Set(name) => {
                write!(f, "kernel side: TCP_CONGESTION={name} on bulk sockets")
            }
            Congestion::Default { name, refusal } => write!(
                f,
                "kernel side: TCP_CONGESTION={name}, the machine's default, because cubic may not \
                 be set ({refusal}); add it to sysctl net.ipv4.tcp_allowed_congestion_control"
            ),
        }
    }
}

/// Whether the kernel can take the TIME-WAIT states of one more `crr` case: at most one for each
/// ephemeral port. Beyond its bound it closes connections without, which is less work. True if the
/// kernel does not report that.
pub fn has_time_wait_room() -> bool {
    let sockstat = fs::read_to_string("/proc/net/sockstat").unwrap_or_default();
    let most = first_number("/proc/sys/net/ipv4/tcp_max_tw_buckets");
    match (time_wait_count(&sockstat), most) {
        (Some(count), Some(most)) => count + f64::from(u16::MAX / 2) <= most,
        _ => true,
    }
}

fn time_wait_count(sockstat: &str) -> Option<f64> {
    let line = sockstat.lines().find_map(|line| line.strip_prefix("TCP:"))?;
    let mut fields = line.split_whitespace().skip_while(|&field| field != "tw");
    fields.nth(1)?.parse().ok()
}

/// How long the cores that the calling thread may use have been idle since the machine was started; `None` if the kernel does
/// not report all of them.
pub fn idle() -> Option<Duration> {
    idle_of(&fs::read_to_string("/proc/stat").ok()?, &usable_cores().ok()?)
}

fn idle_of(stat: &str, cores: &[usize]) -> Option<Duration> {
    let of = |core: &usize| {
        let name = format!("cpu{core}");
        let line = stat.lines().find(|line| line.split_whitespace().next() == Some(&name))?;
        // user, nice, system, idle, iowait.
        let mut fields = line.split_whitespace().skip(4).map(str::parse::<u64>);
        Some(fields.next()?.ok()? + fields.next()?.ok()?)
    };
    let ticks: u64 = cores.iter().map(of).sum::<Option<u64>>()?;
    Some(Duration::from_secs_f64(ticks as f64 / clock_ticks_per_second() as f64))
}

fn first_number(path: &str) -> Option<f64> {
    fs::read_to_string(path).ok()?.split_whitespace().next()?.parse().ok()
}

/// A value of /proc/meminfo, in KiB.
pub fn meminfo_kib(name: &str) -> Option<u64> {
    field_kib(&fs::read_to_string("/proc/meminfo").ok()?, name)
}

fn field_kib(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

fn cpu_model(cpuinfo: &str) -> String {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"));
    or_unknown(line.and_then(|line| line.split_once(':')).map_or("", |(_, name)| name.trim()))
}

fn or_unknown(text: &str) -> String {
    if text.is_empty() { "unknown".to_owned() } else { text.to_owned() }
}

/// A load below this is the command itself being started.
const LOAD_QUIET: f64 = 0.3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_wait_states_of_tcp_are_read() {
        let text = "sockets: used 9\nTCP: inuse 5 orphan 0 tw 28232 alloc 7 mem 1\nUDP: inuse 0\n";
        assert_eq!(time_wait_count(text), Some(28_232.0));
        assert_eq!(time_wait_count("UDP: tw 3\n"), None);
    }

    #[test]
    fn a_field_is_read_and_not_one_with_the_same_prefix() {
        let text = "MemTotal:       24636528 kB\nSlabExtra:  1 kB\nSlab:              89012 kB\n";
        assert_eq!(field_kib(text, "Slab"), Some(89012));
        assert_eq!(field_kib(text, "MemTotal"), Some(24_636_528));
        assert_eq!(field_kib(text, "Mem"), None);
    }

    #[test]
    fn idle_time_is_summed_over_the_requested_cores() {
        let stat =
            "cpu  9 9 9 900 90 0\ncpu0 1 0 1 300 20 0\ncpu1 1 0 1 400 10 0\ncpu10 1 0 1 7 0 0\nintr 1\n";
        let second = clock_ticks_per_second() as f64;
        let close = |cores: &[usize], ticks: f64| {
            let found = idle_of(stat, cores).unwrap().as_secs_f64();
            (found - ticks / second).abs() < 1e-6
        };
        assert!(close(&[0, 1], 730.0) && close(&[1], 410.0) && close(&[10], 7.0));
        assert_eq!(idle_of(stat, &[2]), None);
    }

    #[test]
    fn a_machine_without_a_model_is_unknown() {
        assert_eq!(cpu_model("processor : 0\n"), "unknown");
        assert_eq!(cpu_model("model\t: 2\nmodel name\t: A CPU\n"), "A CPU");
    }

    #[test]
    fn this_machine_has_memory_and_cores() {
        let machine = Machine::read().unwrap();
        assert!(machine.memory_kib.unwrap() > 0 && !machine.cores.is_empty());
    }
}
