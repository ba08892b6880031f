//! What happens in the namespace.
//!
//! The gateway starts itself once more, with `--inside`. That process has one thread, as entering a user namespace demands. It
//! enters or makes the namespaces, makes the device there, and sends its queues outside:
//!
//! ```text
//! outside                                       inside
//! listen, start ──────────────────────────────► connect, unshare(user, network, mount) or setns(user, network)
//!                                               device, addresses, routes, /etc/resolv.conf
//! adopt the queues ◄─────────── Ready + queues ─┘  or Failed, and the end
//! stack attached, "go" ───────────────────────► exec of the command, or the end
//! ```
//!
//! If either side ends before the other is ready, the other reads the end of the socket and ends, too. The command is killed when the
//! gateway is: a network that nobody serves would hang it.
//!
//! What the command does not get from outside: `outside.rs`.
//!
//! Does not depend on the engine. Tests: `tests/gateway.rs`.

mod device;
mod namespaces;
mod outside;
mod resolver;

use std::ffi::OsString;
use std::fs;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect,
    listen, recvmsg, sendmsg, socket_with,
};
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};

use crate::args::GatewayArgs;

/// Queues of a device, at most.
const QUEUES_MAX: usize = 64;
/// Bytes of a message, at most.
const MESSAGE_MAX: usize = 8192;
/// How often is looked whether the process inside has ended instead of calling.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// What the outside says when it serves the device.
const GO: &[u8] = b"go";

/// What the inside says.
#[derive(Serialize, Deserialize, Debug)]
enum Said {
    /// The queues come along.
    Ready,
    /// It cannot be done: the message, and the error's number if the system said it.
    Failed { message: String, errno: Option<i32> },
}

/// The process inside, and its device.
pub struct Inside {
    /// The process: the command once it was told to go.
    pub child: Child,
    /// The queues of its device.
    pub queues: Vec<OwnedFd>,
    socket: OwnedFd,
}

impl Inside {
    /// Starts the process inside, and waits for its device: **blocks** until then, some milliseconds. `prefix` are the words of the command
    /// line before the gateway's own, and `given` the gateway's own.
    ///
    /// # Errors
    /// What the inside says, with a remedy; the system's.
    pub fn start(prefix: &[&str], given: &[OsString]) -> io::Result<Self> {
        // The process could inherit a descriptor, but then the command would, too.
        let name = format!("sockeye-gateway-{}", fs::read_to_string("/proc/sys/kernel/random/uuid")?.trim());
        let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        bind(&listener, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
        listen(&listener, 1)?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0("sockeye-gateway").args(prefix).arg("--inside").arg(&name).args(given);
        let mut child = command.spawn()?;
        let said = accept_from(&listener, &mut child).and_then(|socket| Ok((receive(&socket)?, socket)));
        match said {
            Ok(((Said::Ready, queues), socket)) => Ok(Self { child, queues, socket }),
            Ok(((Said::Failed { message, errno }, _), _)) => {
                child.wait()?;
                let kind =
                    errno.map_or(io::ErrorKind::Other, |errno| io::Error::from_raw_os_error(errno).kind());
                Err(io::Error::new(kind, message))
            }
            Err(error) => {
                let _ = child.kill();
                child.wait()?;
                Err(error)
            }
        }
    }

    /// Has the command run: its network is served.
    ///
    /// # Errors
    /// `Other`: the process inside has ended.
    pub fn go(&self) -> io::Result<()> {
        let sent = rustix::net::send(&self.socket, GO, SendFlags::NOSIGNAL);
        // Not as a broken pipe, which would be the end of who reads what we print.
        let said =
            |error| io::Error::other(format!("the process inside has ended before its command ran: {error}"));
        sent.map(drop).map_err(said)
    }
}

/// The connection of the process: others of the host may know the name, too.
fn accept_from(listener: &OwnedFd, child: &mut Child) -> io::Result<OwnedFd> {
    let pause = Timespec::try_from(LOOK_EVERY).map_err(io::Error::other)?;
    loop {
        let mut polled = [PollFd::new(listener, PollFlags::IN)];
        if poll(&mut polled, Some(&pause))? > 0 {
            let socket = accept_with(listener, SocketFlags::CLOEXEC)?;
            let peer = socket_peercred(&socket)?.pid.as_raw_nonzero().get();
            if u32::try_from(peer) == Ok(child.id()) {
                return Ok(socket);
            }
        } else if child.try_wait()?.is_some() {
            let message = "the process inside has ended before it had a device";
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
        }
    }
}

/// The process inside. It returns only if it is not to become the command.
///
/// # Errors
/// That the command cannot be started; what went wrong before is said to the outside.
pub fn main(args: &GatewayArgs, name: &str) -> io::Result<()> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    set_parent_process_death_signal(Some(Signal::KILL))?;
    match prepare(args) {
        Ok(queues) => {
            let queues: Vec<BorrowedFd<'_>> = queues.iter().map(AsFd::as_fd).collect();
            send(&socket, &Said::Ready, &queues)?;
        }
        Err(error) => {
            let said = Said::Failed { message: error.to_string(), errno: error.raw_os_error() };
            return send(&socket, &said, &[]);
        }
    }
    let mut word = [0; 8];
    let (_, told) = rustix::net::recv(&socket, &mut word, RecvFlags::empty())?;
    if word.get(..told) != Some(GO) {
        // The outside is gone, or could not serve.
        return Ok(());
    }
    let Some((program, arguments)) = args.command.split_first() else { return Ok(()) };
    outside::no_typing()?;
    let error = Command::new(program).args(arguments).exec();
    Err(io::Error::new(error.kind(), format!("cannot start {}: {error}", program.to_string_lossy())))
}

fn prepare(args: &GatewayArgs) -> io::Result<Vec<OwnedFd>> {
    if !args.command.is_empty() {
        outside::no_sockets()?;
    }
    match &args.netns {
        Some(netns) => namespaces::enter(netns, args.frames.userns.as_deref())?,
        None => namespaces::make()?,
    }
    let queues = device::make(args)?;
    if args.netns.is_none() {
        resolver::point(args)?;
    }
    Ok(queues)
}

fn send(socket: &OwnedFd, said: &Said, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let text = serde_json::to_vec(said)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(QUEUES_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{} queues, at most {QUEUES_MAX}", fds.len()),
        ));
    }
    sendmsg(socket, &[IoSlice::new(&text)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

fn receive(socket: &OwnedFd) -> io::Result<(Said, Vec<OwnedFd>)> {
    let mut text = [0; MESSAGE_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(QUEUES_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received =
        recvmsg(socket, &mut [IoSliceMut::new(&mut text)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let fds = ancillary
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        })
        .flatten()
        .collect();
    if received.bytes == 0 {
        let message = "the process inside has ended before it had a device";
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
    }
    Ok((serde_json::from_slice(&text[..received.bytes])?, fds))
}
