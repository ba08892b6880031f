//! Start and end of the gateway.
//!
//! Order of the start:
//! 1. Open the host's sockets and files, with the rights of the calling user.
//! 2. The process inside makes the device.
//! 3. This process gives up its rights and its file system (`sandbox.rs`), and the loops start.
//! 4. The command runs.
//!
//! The end is in reverse order. Tests: `tests/gateway.rs`.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ExitCode, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use sockeye_shared::end::{CommandError, UsageError};
use sockeye_shared::{file, limit};
use tokio::sync::{Notify, oneshot};

use crate::args::GatewayArgs;
use crate::behind;
use crate::compat::{self, Said, api};
use crate::control::{Action, auto, client, server};
use crate::drain;
use crate::engine::forwards::{By, Forwards};
use crate::engine::inward::{Listening, Ports, Publish};
use crate::engine::messages::HOST_NAME;
use crate::engine::port::Source;
use crate::engine::{Running, Shared};
use crate::flows::Flows;
use crate::inside;
use crate::lan::{Facts, Router};
use crate::open::{Caller, Opened, Served, open};
use crate::policy::{Policy, Protocol};
use crate::rates::Rates;
use crate::resolvers::{self, Resolvers};
use crate::sandbox::{self, Needs};
use crate::signals::Surroundings;
use crate::sockets::{SocketFile, listen_at};

/// Runs the gateway until its command ends, the namespace's device goes, or a signal comes. `prefix` are the words of the command line before the
/// gateway's own arguments, without the program's name: it starts itself with them.
///
/// # Errors
/// A usage error if there is nothing to serve; the system's, with what was to be done and a remedy.
pub fn run(args: &GatewayArgs, prefix: &[&str]) -> Result<ExitCode, CommandError> {
    let given: Vec<OsString> = std::env::args_os().skip(1 + prefix.len()).collect();
    run_as(args, prefix, &given)
}

/// The main function of a program: `arguments` are all of its words, of which the first is its name. By the name of slirp4netns, pasta or passt it takes their arguments.
/// `usual` runs it otherwise; `parse` makes arguments of the gateway's own words, without the name.
pub fn main_of(
    arguments: &[OsString],
    parse: impl FnOnce(&[OsString]) -> Result<GatewayArgs, clap::Error>,
    usual: impl FnOnce() -> ExitCode,
) -> ExitCode {
    let said = match compat::read(arguments) {
        None => return usual(),
        Some(Ok(said)) => said,
        Some(Err(error)) => error.exit(),
    };
    let ended = match said {
        Said::Print(text) => {
            let printed = io::stdout().write_all(text.as_bytes());
            printed.map(|()| ExitCode::SUCCESS).map_err(CommandError::Io)
        }
        Said::RunBehind(words) => behind::start(&words).map_err(CommandError::Io),
        Said::Run(words) => match parse(&words) {
            Ok(args) => run_as(&args, &[], &words),
            Err(error) => error.exit(),
        },
    };
    let name = arguments.first().map(|name| name.to_string_lossy()).unwrap_or_default();
    ended.unwrap_or_else(|error| {
        match error {
            CommandError::Usage(error) => eprintln!("{name}: {error}"),
            CommandError::Io(error) => eprintln!("{name}: {error}"),
        }
        ExitCode::FAILURE
    })
}

/// [`run`], of a command line that says the same as `given` does in the gateway's own words.
pub fn run_as(args: &GatewayArgs, prefix: &[&str], given: &[OsString]) -> Result<ExitCode, CommandError> {
    if let Some(name) = &args.inside {
        return inside::main(args, name).map(|()| ExitCode::SUCCESS).map_err(CommandError::Io);
    }
    if let Some(Action::Ctl(ctl)) = &args.action {
        return client::run(ctl).map_err(CommandError::Io);
    }
    check(args)?;
    let mut caller = Caller::of(args)?;
    let surroundings = Surroundings::look(!args.command.is_empty());
    let (published, auto) = publish(args)?;
    let log = args.log.as_ref().map(|path| {
        let file = OpenOptions::new().create(true).append(true).open(path);
        file.map(|file| Box::new(file) as Box<dyn Write + Send>).map_err(|error| file::at(path, error))
    });
    let log = log.transpose()?;
    let mut control = args.control.ctl.as_ref().map(|path| listen_at(path)).transpose()?;
    let mut api = args.frames.slirp_api.as_ref().map(|path| listen_at(path)).transpose()?;
    let upstream = args.upstream.clone().unwrap_or_default().resolve()?;
    let Opened { sources, served, mut file } = open(args, prefix, given)?;
    // Each flow has one; where the limit stays there are fewer at a time. The command has been started, and has its own as it was.
    limit::raise_descriptors();
    let pcaps = pcaps(args, sources.len())?;
    let system = resolvers::text();
    let (resolvers, router) = (Resolvers::new(args, &system), router(args, &system));
    let mut auto = auto.map(|places| Ok::<_, io::Error>((places, tables(args, &served)?))).transpose()?;
    let files = [&mut control, &mut api].into_iter().flatten().map(|socket| &mut socket.1).chain(&mut file);
    sandbox(args, &served, auto.as_mut().map(|auto| &mut auto.1), files)?;
    let (flows, writer) = Flows::new(args.flows_max, Rates::new(args.rates), log)?;
    let shared = Arc::new(Shared {
        policy: Policy::new(args.rules.0.clone(), args.plan()),
        upstream,
        flows,
        forwards: Forwards::new(!args.ipv4_only),
        resolvers,
        device_gone: Notify::new(),
        plan: args.plan(),
        router: Arc::new(router),
        mtu: args.mtu,
        memory_max: args.memory_max,
        flows_max: args.flows_max as usize / if args.loops_join() { 1 } else { sources.len().max(1) },
        busy: Duration::from_micros(args.busy.into()),
        queues: sources.iter().find_map(Source::queues),
        captures: Mutex::default(),
    });
    let loops: Vec<Running> = sources
        .into_iter()
        .zip(pcaps)
        .enumerate()
        .map(|(index, source)| Running::start(Arc::clone(&shared), source, index))
        .collect::<io::Result<_>>()?;
    // A loop that does not read has each packet of its flows from another one: published ports are served by one that always reads.
    let serving = if args.loops_join() { 1 } else { loops.len() };
    shared.forwards.set_loops(loops.iter().take(serving).map(|running| running.opens.clone()).collect());
    if args.verbose {
        greet(args, &shared);
    }
    let ((control, _file), (api, _api_file)) = (control.unzip(), api.unzip());
    let ended = serve(served, &shared, (published, auto, (control, api)), (&mut caller, surroundings));
    drop(file);
    // What has panicked has said so, and what follows is to be done nevertheless.
    loops.into_iter().for_each(|running| drop(running.stop()));
    if let Some(writer) = writer {
        shared.flows.end_log(&writer);
    }
    say_what_is_lost(&shared);
    ended.map_err(CommandError::Io)
}

/// What records of this run lack.
fn say_what_is_lost(shared: &Shared) {
    let why = "its file took them too slowly, or no more";
    let flows = shared.flows.lines_lost();
    if flows > 0 {
        eprintln!("sockeye gateway: the log lacks {flows} flows: {why}");
    }
    let captures = shared.captures.lock().unwrap_or_else(PoisonError::into_inner);
    let packets: u64 = captures.iter().map(|capture| capture.counts().lost).sum();
    if packets > 0 {
        eprintln!("sockeye gateway: the record of packets lacks {packets}: {why}");
    }
}

/// That the command line asks for something that can be.
fn check(args: &GatewayArgs) -> Result<(), CommandError> {
    if args.command.is_empty() && args.netns.is_none() && !args.frames.is_some() {
        let message = "nothing to serve: give a command behind --, a namespace (--netns), a device (--fd) or a machine (--qemu, --vhost-user)";
        return Err(CommandError::Usage(UsageError(message.to_owned())));
    }
    let fds = &args.frames.fd;
    if fds.iter().enumerate().any(|(index, number)| fds[..index].contains(number)) {
        return Err(CommandError::Usage(UsageError("--fd: a descriptor is named twice".to_owned())));
    }
    if args.frames.tap && args.loops.is_some_and(|loops| loops > 1) {
        let message = "--tap: an Ethernet device has one loop, since answers to ARP come by any queue";
        return Err(CommandError::Usage(UsageError(message.to_owned())));
    }
    Ok(())
}

/// Ports of the command line, with their sockets.
type Published = Vec<(Publish, Vec<Listening>)>;
/// Those of `--ctl` and of slirp4netns' API.
type Listeners = (Option<UnixListener>, Option<UnixListener>);
/// `-p auto`: where ports appear, and the tables of the inside.
type Auto = (auto::Places, OwnedFd);

/// Opens the published ports. Says whether `auto` is among them, and where.
fn publish(args: &GatewayArgs) -> io::Result<(Published, Option<auto::Places>)> {
    let (mut published, mut places) = (Vec::new(), auto::Places::new());
    for ports in &args.publish {
        match ports {
            Ports::These(publish) => published.push((*publish, publish.listen(!args.ipv4_only)?)),
            Ports::Auto(addr, Some(protocol)) => drop(places.insert(*protocol, *addr)),
            Ports::Auto(addr, None) => places.extend([Protocol::Tcp, Protocol::Udp].map(|it| (it, *addr))),
        }
    }
    Ok((published, Some(places).filter(|places| !places.is_empty())))
}

/// The tables of the network that is served.
fn tables(args: &GatewayArgs, served: &Served) -> io::Result<OwnedFd> {
    let pid = match served {
        Served::Command(inside) => Some(inside.child.id()),
        Served::Device => args.netns.as_ref().and_then(|netns| netns.parse().ok()),
    };
    let message = "-p auto needs a command, or a process with --netns PID: it reads what listens there";
    auto::tables_of(pid.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, message))?)
}

/// A file for each queue, if packets are recorded.
fn pcaps(args: &GatewayArgs, queues: usize) -> io::Result<Vec<Option<File>>> {
    let Some(path) = &args.pcap else { return Ok((0..queues).map(|_| None).collect()) };
    let named = |index: usize| {
        let mut name = path.clone().into_os_string();
        if index > 0 {
            name.push(format!(".{index}"));
        }
        let path = PathBuf::from(name);
        file::create(&path).map(Some)
    };
    (0..queues).map(named).collect()
}

/// Gives up what is not needed any more.
fn sandbox<'files>(
    args: &GatewayArgs,
    served: &Served,
    tables: Option<&'files mut OwnedFd>,
    files: impl Iterator<Item = &'files mut SocketFile>,
) -> io::Result<()> {
    if args.no_sandbox {
        return sandbox::give_up_rights();
    }
    let needs = Needs {
        signals: match served {
            Served::Command(inside) => Some(inside.child.id()),
            Served::Device => None,
        },
        reads: tables.into_iter().collect(),
        removes: files.map(SocketFile::folder).collect(),
    };
    if let Some(error) = sandbox::enter(needs)? {
        eprintln!(
            "sockeye gateway: files can still be reached, since the system does not let it close them off: {error}"
        );
    }
    Ok(())
}

/// Has the command run, if there is one. Waits for its end, for the device's, or for a signal.
fn serve(
    served: Served,
    shared: &Arc<Shared>,
    (published, auto, (control, slirp)): (Published, Option<Auto>, Listeners),
    (caller, surroundings): (&mut Caller, Surroundings),
) -> io::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        for (publish, sockets) in published {
            shared.forwards.serve(publish, sockets, By::Start).await?;
        }
        if let Some((places, tables)) = auto {
            auto::start(tables, places, shared.plan.inside.to_vec(), shared);
        }
        if let Some(listener) = control {
            server::start(listener, shared)?;
        }
        if let Some(listener) = slirp {
            api::start(listener, shared)?;
        }
        let mut signals = surroundings.listen(matches!(served, Served::Command(_)))?;
        caller.ready()?;
        let drained = drain::passed_on(&shared.flows, &shared.forwards);
        let Served::Command(inside) = served else {
            return Ok(tokio::select! {
                () = signals.end() => ExitCode::SUCCESS,
                () = shared.device_gone.notified() => ExitCode::SUCCESS,
                left = async { caller.exit().await?; drained.await; Ok::<_, io::Error>(()) } => {
                    left.map(|()| ExitCode::SUCCESS)?
                }
            });
        };
        inside.go()?;
        let (pid, mut ended) = watch(inside.child)?;
        let status = loop {
            tokio::select! {
                // A signal that has come before the end is none that comes behind it.
                biased;
                signal = signals.next() => if signals.is_ours_alone(signal, pid) {
                    forward(pid, signal);
                },
                status = &mut ended => break status.map_err(io::Error::other)??,
            }
        };
        tokio::select! {
            () = drained => {}
            () = signals.end() => {}
        }
        Ok(code(status))
    })
}

/// Waits for a process on a thread of its own. Returns its number, and its status when it has ended.
fn watch(mut child: Child) -> io::Result<(Option<Pid>, oneshot::Receiver<io::Result<ExitStatus>>)> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let (give, take) = oneshot::channel();
    thread::Builder::new().name("wait".to_owned()).spawn(move || give.send(child.wait()))?;
    Ok((pid, take))
}

fn forward(pid: Option<Pid>, signal: Signal) {
    // It fails if the command has just ended.
    let _ = pid.map(|pid| kill_process(pid, signal));
}

/// The command's own code, or as a shell has it for one that a signal has ended.
fn code(status: ExitStatus) -> ExitCode {
    let number = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    ExitCode::from(u8::try_from(number).unwrap_or(1))
}

/// What answers machines on Ethernet. Where we have configured the device inside, the first address is taken.
fn router(args: &GatewayArgs, system: &[u8]) -> Router {
    let plan = args.plan();
    let (has_v6, search) = (!args.ipv4_only, resolvers::search(args, system));
    let facts = Facts { plan, has_v6, mac: Facts::mac_of(&plan), mtu: args.mtu, search };
    Router::new(facts, args.frames.configures().into())
}

/// What is served, on standard error: standard output is the command's.
fn greet(args: &GatewayArgs, shared: &Shared) {
    let resolvers: Vec<String> = shared.resolvers.addrs.iter().map(|addr| addr.ip().to_string()).collect();
    eprintln!("inside: {} and {}, MTU {}", shared.plan.inside[0], shared.plan.inside[1], shared.mtu);
    eprintln!("this host: {} ({HOST_NAME}), if a rule permits it", shared.plan.host[0]);
    eprintln!(
        "names: {} asks {}",
        shared.plan.names[0],
        if resolvers.is_empty() { "nobody".to_owned() } else { resolvers.join(", ") }
    );
    for ports in &args.publish {
        match ports {
            Ports::These(publish) => eprintln!("published: {publish}"),
            Ports::Auto(_, protocol) => {
                let of = match protocol {
                    Some(Protocol::Tcp) => " of TCP",
                    Some(Protocol::Udp) => " of UDP",
                    Some(Protocol::Icmp) | None => "",
                };
                eprintln!("published: each port{of} that listens inside");
            }
        }
    }
}
