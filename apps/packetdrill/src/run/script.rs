//! One run of one script.
//!
//! The options are those of packetdrill's own runner, and the adapter is told the same address and MTU (`--so_flags`). A run that takes too long is
//! ended with all that it has started. Tests: below.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::Ip;
use super::folder::Folder;
use super::report::Outcome;
use crate::sysctl;

/// What all runs share.
pub(crate) struct Setup {
    pub packetdrill: PathBuf,
    /// `None`: against the kernel.
    pub plugin: Option<PathBuf>,
    pub flags: String,
    pub time_max: Duration,
}

/// A script in a version of IP.
pub(crate) struct Job {
    pub name: PathBuf,
    pub ip: Ip,
}

/// Between two looks whether a run has ended.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Bytes of a run's output that are kept.
const OUTPUT_LEN_MAX: usize = 16 << 10;

/// Runs a script; a run that cannot be started has failed.
pub(crate) fn run(setup: &Setup, folder: &Folder, job: &Job) -> Outcome {
    let start = Instant::now();
    let (passed, output) = match started(setup, folder, job) {
        Ok((status, output)) => (
            status.is_some_and(|status| status.success()),
            match status {
                Some(_) => output,
                None => format!("took more than {:?}\n{output}", setup.time_max),
            },
        ),
        Err(error) => (false, format!("cannot be run: {error}")),
    };
    let output = output.replace(&*folder.scripts_root().to_string_lossy(), "");
    let seconds = start.elapsed().as_secs_f64();
    Outcome { script: job.name.display().to_string(), ip: job.ip, passed, seconds, output }
}

fn started(setup: &Setup, folder: &Folder, job: &Job) -> io::Result<(Option<ExitStatus>, String)> {
    let path = folder.scripts_root().join(&job.name);
    let unique = job.name.display().to_string().replace('/', "_");
    let log = folder.logs().join(format!("{unique}-{:?}", job.ip));
    let mut command = match &setup.plugin {
        Some(plugin) => with_plugin(setup, folder, job.ip, plugin, &log),
        None => in_namespace(setup),
    };
    let (folder_of, name) = (path.parent(), path.file_name());
    let (Some(folder_of), Some(name)) = (folder_of, name) else { return Err(io::ErrorKind::NotFound.into()) };
    let said = log.with_extension("said");
    let file = File::create(&said)?;
    let _ = command.args(options(job.ip)).arg(name).current_dir(folder_of).process_group(0);
    let _ = command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    let mut child = command.spawn()?;
    let status = wait(&mut child, setup.time_max)?;
    let said = std::fs::read(said)?;
    let said = String::from_utf8_lossy(&said[..said.len().min(OUTPUT_LEN_MAX)]).into_owned();
    Ok((status, said))
}

/// Against a stack in the process.
fn with_plugin(setup: &Setup, folder: &Folder, ip: Ip, plugin: &PathBuf, log: &PathBuf) -> Command {
    let mut command = Command::new(&setup.packetdrill);
    let path = std::env::var("PATH").unwrap_or_default();
    let _ = command.env("PATH", format!("{}:{path}", folder.tools().display())).env(sysctl::FILE, log);
    // Preloaded too: some of packetdrill's calls go past its interface.
    let _ = command.env("LD_PRELOAD", plugin).arg(format!("--so_filename={}", plugin.display()));
    let _ = command.arg(format!("--so_flags={},{}", stack_flags(ip), setup.flags));
    command
}

/// Against the kernel, where settings and the device are those of a namespace.
fn in_namespace(setup: &Setup) -> Command {
    let mut command = Command::new("unshare");
    let _ = command
        .args(["--net", "--", "sh", "-c", r#"ip link set lo up; exec "$@""#, "sh"])
        .arg(&setup.packetdrill);
    command
}

/// The options of packetdrill's own runner.
fn options(ip: Ip) -> Vec<&'static str> {
    let mut options = vec!["--send_omit_free"];
    options.extend(match ip {
        Ip::Ipv4 => {
            vec!["--ip_version=ipv4", "-D", "CMSG_LEVEL_IP=SOL_IP", "-D", "CMSG_TYPE_RECVERR=IP_RECVERR"]
        }
        Ip::Mapped => vec!["--ip_version=ipv4-mapped-ipv6"],
        Ip::Ipv6 => vec![
            "--ip_version=ipv6",
            "--mtu=1520",
            "--local_ip=fd3d:0a0b:17d6::1",
            "--gateway_ip=fd3d:0a0b:17d6:8888::1",
            "--remote_ip=fd3d:fa7b:d17d::1",
            "-D",
            "TFO_COOKIE=c1d1e9742a47a9bc",
        ],
    });
    if ip != Ip::Ipv4 {
        options.extend(["-D", "CMSG_LEVEL_IP=SOL_IPV6", "-D", "CMSG_TYPE_RECVERR=IPV6_RECVERR"]);
    }
    if ip != Ip::Ipv6 {
        options.extend(["--local_ip=192.168.0.1", "--gateway_ip=192.168.0.1", "--netmask_ip=255.255.0.0"]);
        options.extend([
            "--remote_ip=192.0.2.1",
            "-D",
            "TFO_COOKIE=3021b9d889017eeb",
            "-D",
            "CODE=host_unreachable",
        ]);
    }
    options
}

/// The same for the adapter.
fn stack_flags(ip: Ip) -> &'static str {
    match ip {
        Ip::Ipv4 | Ip::Mapped => "local=192.168.0.1/16",
        Ip::Ipv6 => "local=fd3d:0a0b:17d6::1/48,mtu=1520",
    }
}

/// Waits for the end; `None` if the run had to be ended.
fn wait(child: &mut Child, time_max: Duration) -> io::Result<Option<ExitStatus>> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if start.elapsed() > time_max {
            if let Ok(group) = libc::pid_t::try_from(child.id()) {
                // SAFETY: no pointers. The child leads a group of its own and was not waited for, so the number is still its.
                let _ = unsafe { libc::kill(-group, libc::SIGKILL) };
            }
            let _ = child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_takes_too_long_is_ended() {
        let mut child = Command::new("sleep").arg("600").process_group(0).spawn().unwrap();
        assert!(wait(&mut child, Duration::from_millis(1)).unwrap().is_none());
        let mut child = Command::new("true").process_group(0).spawn().unwrap();
        assert!(wait(&mut child, Duration::from_secs(60)).unwrap().unwrap().success());
    }
}
