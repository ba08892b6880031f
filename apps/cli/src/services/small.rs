//! Echo, discard and chargen (RFC 862, 863 and 864), over TCP and UDP.
//!
//! Does not depend on the clients. Invariants: a datagram is answered by one that is no longer than it or a line, and never one
//! that a service like these has sent, so that two of them cannot be made to talk to each other for ever. A connection on which
//! nothing moves ends, whatever its client does or leaves undone ([`IdleMax`]).
//!
//! Tests: below; over a device in `tests/cli/tun.rs`.

use std::io;
use std::net::SocketAddr;

use sockeye::Stack;
use sockeye::tokio::{TcpListener, TcpStream, UdpSocket};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use tokio::task::coop::consume_budget;

use super::{IdleMax, RETRY, accept};

/// Bytes that a connection's task reads or writes at once.
const CHUNK: usize = 64 << 10;
/// The largest datagram, bytes.
const DATAGRAM_MAX: usize = 65_535;
/// Ports of services that answer whatever comes: echo, daytime, quote of the day, chargen, time.
const ANSWERING_PORTS: [u16; 5] = [7, 13, 17, 19, 37];

/// Serves RFC 862.
pub async fn echo(stack: &Stack, at: SocketAddr, idle: IdleMax, tasks: &mut JoinSet<()>) -> io::Result<()> {
    let (listener, socket) = bind(stack, at).await?;
    // A failure concerns only the client's connection.
    tasks.spawn(accept(listener, move |stream, _| async move { drop(send_back(stream, idle).await) }));
    tasks.spawn(answer(socket, |_, _| Answer::Same));
    Ok(())
}

/// Serves RFC 863.
pub async fn discard(
    stack: &Stack,
    at: SocketAddr,
    idle: IdleMax,
    tasks: &mut JoinSet<()>,
) -> io::Result<()> {
    let (listener, socket) = bind(stack, at).await?;
    tasks.spawn(accept(listener, move |stream, _| async move { drop(take(stream, idle).await) }));
    tasks.spawn(answer(socket, |_, _| Answer::Nothing));
    Ok(())
}

/// Serves RFC 864.
pub async fn chargen(
    stack: &Stack,
    at: SocketAddr,
    idle: IdleMax,
    tasks: &mut JoinSet<()>,
) -> io::Result<()> {
    let (listener, socket) = bind(stack, at).await?;
    tasks.spawn(accept(listener, move |stream, _| async move { drop(generate(stream, idle).await) }));
    tasks.spawn(answer(socket, |_, count| Answer::Line(line(count))));
    Ok(())
}

async fn bind(stack: &Stack, at: SocketAddr) -> io::Result<(TcpListener, UdpSocket)> {
    Ok((TcpListener::bind_on(stack, at).await?, UdpSocket::bind_on(stack, at).await?))
}

async fn send_back(mut stream: TcpStream, idle: IdleMax) -> io::Result<()> {
    idle.watch(&stream)?;
    let mut buffer = vec![0; CHUNK];
    loop {
        let read = idle.read(&mut stream, &mut buffer).await?;
        if read == 0 {
            return stream.shutdown().await;
        }
        stream.write_all(&buffer[..read]).await?;
        consume_budget().await;
    }
}

async fn take(mut stream: TcpStream, idle: IdleMax) -> io::Result<()> {
    idle.watch(&stream)?;
    let mut buffer = vec![0; CHUNK];
    while idle.read(&mut stream, &mut buffer).await? > 0 {
        consume_budget().await;
    }
    stream.shutdown().await
}

/// Sends until the client closes or resets; its data is ignored. There is always something to be sent, so that the stack's
/// clock alone says whether it stands still.
async fn generate(stream: TcpStream, idle: IdleMax) -> io::Result<()> {
    idle.watch(&stream)?;
    let (mut read, mut write) = stream.into_split();
    let lines: Vec<u8> = (0..PRINTABLE_COUNT).flat_map(line).collect();
    let sending = async {
        loop {
            write.write_all(&lines).await?;
            consume_budget().await;
        }
    };
    let hearing = async {
        let mut heard = [0; 1024];
        while read.read(&mut heard).await? > 0 {}
        Ok(())
    };
    tokio::select! {
        failed = sending => failed,
        ended = hearing => ended,
    }
}

/// The answer to a datagram.
enum Answer {
    Nothing,
    Same,
    Line([u8; LINE_LEN]),
}

/// Answers datagrams for ever; `choose` gets the number of those before.
async fn answer(socket: UdpSocket, choose: impl Fn(&[u8], usize) -> Answer) {
    let mut buffer = vec![0; DATAGRAM_MAX];
    for count in 0_usize.. {
        let received = socket.recv_from(&mut buffer).await;
        if received.is_err() {
            // That of an earlier answer, whose receiver has gone away.
            tokio::time::sleep(RETRY).await;
        }
        if let Ok((len, from)) = received
            && may_answer(from)
        {
            let sent = match choose(&buffer[..len], count) {
                Answer::Nothing => Ok(0),
                Answer::Same => socket.send_to(&buffer[..len], from).await,
                Answer::Line(line) => socket.send_to(&line, from).await,
            };
            // Datagrams may get lost, and so may this one.
            drop(sent);
        }
        consume_budget().await;
    }
}

fn may_answer(from: SocketAddr) -> bool {
    !ANSWERING_PORTS.contains(&from.port())
}

/// Characters of a line of RFC 864, and bytes with its end.
const LINE_CHARS: usize = 72;
const LINE_LEN: usize = LINE_CHARS + 2;
/// Characters from the blank to the tilde.
const PRINTABLE_COUNT: usize = 95;

/// The line of this number: each begins one character later than the one before.
fn line(number: usize) -> [u8; LINE_LEN] {
    let mut line = *b"                                                                        \r\n";
    for (at, byte) in line[..LINE_CHARS].iter_mut().enumerate() {
        // Below 95, so it fits a byte.
        *byte = b' ' + ((number % PRINTABLE_COUNT + at) % PRINTABLE_COUNT) as u8;
    }
    line
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn lines_rotate_through_all_printable_characters() {
        assert!(line(0).starts_with(b" !\"#$%"));
        assert!(line(0).ends_with(b"defg\r\n"));
        assert!(line(1).starts_with(b"!\"#"));
        assert_eq!(line(PRINTABLE_COUNT), line(0));
        assert!(line(30).iter().all(|byte| (b' '..=b'~').contains(byte) || b"\r\n".contains(byte)));
    }

    #[test]
    fn ports_of_services_that_answer_get_no_answer() {
        assert!(may_answer("10.0.0.1:40000".parse().unwrap()));
        for port in ANSWERING_PORTS {
            assert!(!may_answer(SocketAddr::new([10, 0, 0, 1].into(), port)));
        }
    }

    /// The three on the loopback of a stack, and where.
    async fn serve(idle: IdleMax) -> (Stack, JoinSet<()>, [SocketAddr; 3]) {
        let stack = Stack::new(sockeye::Config::default()).unwrap();
        let mut tasks = JoinSet::new();
        let at = [7, 9, 19].map(|port| SocketAddr::new([127, 0, 0, 1].into(), port));
        echo(&stack, at[0], idle, &mut tasks).await.unwrap();
        discard(&stack, at[1], idle, &mut tasks).await.unwrap();
        chargen(&stack, at[2], idle, &mut tasks).await.unwrap();
        (stack, tasks, at)
    }

    /// Until no client is connected, however long that takes.
    async fn until_empty(stack: &Stack) {
        while stack.connection_count() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    #[tokio::test]
    async fn idle_clients_are_disconnected_and_their_pending_output_is_dropped() {
        let (stack, _tasks, at) = serve(IdleMax::new(Duration::from_millis(30))).await;
        let mut clients = Vec::new();
        for (addr, owed) in
            [(at[0], 0), (at[0], 50_000), (at[0], 10_000_000), (at[1], 0), (at[1], 1), (at[2], 0)]
        {
            let mut client = TcpStream::connect_on(&stack, addr).await.unwrap();
            // As much of it as the service takes while its answers are not read.
            let bytes = vec![1; owed];
            let _ = tokio::time::timeout(Duration::from_millis(5), client.write_all(&bytes)).await;
            clients.push(client);
        }
        until_empty(&stack).await;
        for mut client in clients {
            let mut buffer = vec![0; CHUNK];
            let ended = loop {
                match client.read(&mut buffer).await {
                    Ok(len) if len > 0 => {}
                    ended => break ended,
                }
            };
            assert!(ended.is_err(), "{ended:?}");
        }
    }

    #[tokio::test]
    async fn clients_that_have_finished_sending_and_read_nothing_are_disconnected() {
        let (stack, _tasks, at) = serve(IdleMax::new(Duration::from_millis(30))).await;
        let mut clients = Vec::new();
        for (addr, len) in [(at[0], 100_000), (at[2], 10)] {
            let mut client = TcpStream::connect_on(&stack, addr).await.unwrap();
            client.get_ref().set_recv_buffer_size(4 << 10).unwrap();
            client.write_all(&vec![1; len]).await.unwrap();
            client.shutdown().await.unwrap();
            clients.push(client);
        }
        // The services have dropped them; the stack still has the bytes that they do not read.
        until_empty(&stack).await;
    }

    #[tokio::test]
    async fn a_silent_client_stays_connected_without_a_bound() {
        let (bounded, _tasks, at) = serve(IdleMax::new(Duration::from_millis(10))).await;
        let (free, _free_tasks, _) = serve(IdleMax::default()).await;
        let mut patient = TcpStream::connect_on(&free, at[0]).await.unwrap();
        let mut given_up = TcpStream::connect_on(&bounded, at[0]).await.unwrap();
        assert!(given_up.read(&mut [0; 1]).await.is_err());
        patient.write_all(b"still here").await.unwrap();
        let mut back = [0; 10];
        patient.read_exact(&mut back).await.unwrap();
        assert_eq!(&back, b"still here");
    }
}
