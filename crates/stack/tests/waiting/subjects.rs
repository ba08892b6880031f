//! Each kind of socket and direction that can be waited for, in each way to wait.

use std::future::Future;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Mutex, OnceLock};
use std::task::{Context, Poll, ready};

use sockeye::poll::{self, Interest, Token, Trigger};
use sockeye::{IcmpSocket, Stack, TcpListener, TcpSocket, TcpStream, UdpSocket, tokio as face, unix};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

pub type Future1<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// A socket that is waited for. One of these is waited for in one way only: tasks make it non-blocking.
pub trait Subject: Send + Sync {
    /// A blocking call, which takes one byte, datagram or connection, or gives one.
    fn block(&self);
    /// A poll function, if there is one.
    fn poll(&self, cx: &mut Context<'_>) -> Option<Poll<()>>;
    /// A future that any number of tasks may have.
    fn wait(&self) -> Future1<'_>;
    fn register(&self, poll: &poll::Poll, trigger: Trigger);
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Read,
    Write,
}

impl Way {
    fn interest(self) -> Interest {
        match self {
            Self::Read => Interest::READABLE,
            Self::Write => Interest::WRITABLE,
        }
    }
}

/// A socket of the blocking kind, and, once a task waits for it, the same socket of the asynchronous kind.
pub struct Both<S, F> {
    way: Way,
    socket: S,
    face: OnceLock<Mutex<F>>,
}

impl<S, F> Both<S, F> {
    pub fn new(socket: S, way: Way) -> Self {
        Self { way, socket, face: OnceLock::new() }
    }
}

fn poll_read(stream: &mut (impl AsyncRead + Unpin), cx: &mut Context<'_>) -> Poll<()> {
    Pin::new(stream).poll_read(cx, &mut ReadBuf::new(&mut [0; 1])).map(|_| ())
}

/// The common interface of blocking and asynchronous sockets.
macro_rules! subject {
    ($socket:ty, $face:ty, $block:expr, $poll:expr, $wait:expr) => {
        impl Subject for Both<$socket, $face> {
            fn block(&self) {
                let block: fn(&$socket, Way) = $block;
                block(&self.socket, self.way);
            }
            fn poll(&self, cx: &mut Context<'_>) -> Option<Poll<()>> {
                let poll: fn(&mut $face, Way, &mut Context<'_>) -> Option<Poll<()>> = $poll;
                poll(&mut self.face().lock().unwrap(), self.way, cx)
            }
            fn wait(&self) -> Future1<'_> {
                // Each future has a handle of its own, so that none holds the mutex while it waits.
                let face = <$face>::from_std(self.socket.try_clone().unwrap()).unwrap();
                let wait: fn($face, Way) -> Future1<'static> = $wait;
                wait(face, self.way)
            }
            fn register(&self, poll: &poll::Poll, trigger: Trigger) {
                self.socket.set_nonblocking(true).unwrap();
                poll.register(&self.socket, Token(1), self.way.interest(), trigger).unwrap();
            }
        }

        impl Both<$socket, $face> {
            fn face(&self) -> &Mutex<$face> {
                let make = || <$face>::from_std(self.socket.try_clone().unwrap()).unwrap();
                self.face.get_or_init(|| Mutex::new(make()))
            }
        }
    };
}

fn block_on_bytes(mut stream: impl Read + Write, way: Way) {
    let _either = match way {
        Way::Read => stream.read(&mut [0; 1]),
        Way::Write => stream.write(&[0; 1]),
    };
}

subject!(
    TcpStream,
    face::TcpStream,
    |stream, way| block_on_bytes(stream, way),
    |stream, way, cx| {
        Some(match way {
            Way::Read => poll_read(stream, cx),
            Way::Write => Pin::new(stream).poll_write(cx, b"x").map(|_| ()),
        })
    },
    |stream, way| Box::pin(async move {
        match way {
            Way::Read => stream.readable().await.unwrap(),
            Way::Write => stream.writable().await.unwrap(),
        }
    })
);

subject!(
    TcpListener,
    face::TcpListener,
    |listener, _| drop(listener.accept()),
    |listener, _, cx| Some(listener.poll_accept(cx).map(|_| ())),
    |listener, _| Box::pin(async move { drop(listener.accept().await) })
);

subject!(
    UdpSocket,
    face::UdpSocket,
    |socket, _| drop(socket.recv(&mut [0; 9])),
    |socket, _, cx| Some(socket.poll_recv(cx, &mut ReadBuf::new(&mut [0; 9])).map(|_| ())),
    |socket, _| Box::pin(async move { socket.readable().await.unwrap() })
);

subject!(
    IcmpSocket,
    face::IcmpSocket,
    |socket, _| drop(socket.recv(&mut [0; 9])),
    |socket, _, cx| Some(socket.poll_recv(cx, &mut [0; 9]).map(|_| ())),
    |socket, _| Box::pin(async move { socket.readable().await.unwrap() })
);

subject!(
    unix::UnixStream,
    face::unix::UnixStream,
    |stream, way| block_on_bytes(stream, way),
    |stream, way, cx| {
        Some(match way {
            Way::Read => poll_read(stream, cx),
            Way::Write => Pin::new(stream).poll_write(cx, b"x").map(|_| ()),
        })
    },
    |stream, way| Box::pin(async move {
        match way {
            Way::Read => stream.readable().await.unwrap(),
            Way::Write => stream.writable().await.unwrap(),
        }
    })
);

subject!(
    unix::UnixDatagram,
    face::unix::UnixDatagram,
    |socket, way| {
        let _either = match way {
            Way::Read => socket.recv(&mut [0; 9]),
            Way::Write => socket.send(b"x"),
        };
    },
    |socket, way, cx| {
        Some(match way {
            Way::Read => socket.poll_recv(cx, &mut ReadBuf::new(&mut [0; 9])).map(|_| ()),
            Way::Write => socket.poll_send(cx, b"x").map(|_| ()),
        })
    },
    |socket, way| Box::pin(async move {
        match way {
            Way::Read => socket.readable().await.unwrap(),
            Way::Write => socket.writable().await.unwrap(),
        }
    })
);

subject!(
    unix::UnixSeqpacket,
    face::unix::UnixSeqpacket,
    |socket, way| {
        let _either = match way {
            Way::Read => socket.recv(&mut [0; 9]),
            Way::Write => socket.send(b"x"),
        };
    },
    |_, _, _| None,
    |socket, way| Box::pin(async move {
        let mut buf = [0; 9];
        let _either = match way {
            Way::Read => socket.recv(&mut buf).await,
            Way::Write => socket.send(b"x").await,
        };
    })
);

subject!(
    unix::UnixListener,
    face::unix::UnixListener,
    |listener, _| drop(listener.accept()),
    |listener, _, cx| Some(listener.poll_accept(cx).map(|_| ())),
    |listener, _| Box::pin(async move { drop(listener.accept().await) })
);

/// A connect to a host that does not answer. Each waiter has one of its own.
pub struct Connect {
    stack: Stack,
    to: SocketAddr,
    /// Those that a poller or a poll function waits for.
    started: Mutex<Vec<TcpStream>>,
    connecting: Mutex<Option<Future1<'static>>>,
}

impl Connect {
    pub fn new(stack: &Stack, to: SocketAddr) -> Self {
        Self { stack: stack.clone(), to, started: Mutex::new(Vec::new()), connecting: Mutex::new(None) }
    }

    fn future(&self) -> Future1<'static> {
        let (stack, to) = (self.stack.clone(), self.to);
        Box::pin(async move { drop(face::TcpStream::connect_on(&stack, to).await) })
    }
}

impl Subject for Connect {
    fn block(&self) {
        drop(TcpStream::connect_on(&self.stack, self.to));
    }
    fn poll(&self, cx: &mut Context<'_>) -> Option<Poll<()>> {
        let mut connecting = self.connecting.lock().unwrap();
        Some(connecting.get_or_insert_with(|| self.future()).as_mut().poll(cx))
    }
    fn wait(&self) -> Future1<'_> {
        self.future()
    }
    fn register(&self, poll: &poll::Poll, trigger: Trigger) {
        let mut socket = TcpSocket::new_v4(&self.stack);
        socket.set_nonblocking(true);
        let stream = socket.connect(self.to).unwrap();
        poll.register(&stream, Token(1), Interest::WRITABLE, trigger).unwrap();
        self.started.lock().unwrap().push(stream);
    }
}

/// A send for which there is no packet memory. Pollers do not learn of memory.
pub struct Hungry(pub Both<TcpStream, face::TcpStream>);

impl Subject for Hungry {
    fn block(&self) {
        self.0.block();
    }
    fn poll(&self, cx: &mut Context<'_>) -> Option<Poll<()>> {
        self.0.poll(cx)
    }
    fn wait(&self) -> Future1<'_> {
        let mut face = face::TcpStream::from_std(self.0.socket.try_clone().unwrap()).unwrap();
        Box::pin(std::future::poll_fn(move |cx| {
            ready!(Pin::new(&mut face).poll_write(cx, b"x")).map_or(Poll::Ready(()), |_| Poll::Ready(()))
        }))
    }
    fn register(&self, _poll: &poll::Poll, _trigger: Trigger) {
        unreachable!("only threads and tasks wait for memory");
    }
}
