//! Messages between nodes, and from clients. A connection carries one call at a time.

use std::io;

use openraft::error::{InstallSnapshotError, NetworkError, RPCError, RaftError, RemoteError};
use openraft::network::RPCOption;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse,
    VoteRequest, VoteResponse,
};
use openraft::{BasicNode, RaftNetwork, RaftNetworkFactory};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sockeye_sim::net::TcpStream;

use crate::frames::{receive, send};
use crate::{Types, Write};

pub const PORT: u16 = 5000;

#[derive(Serialize, Deserialize)]
pub enum Call {
    Append(AppendEntriesRequest<Types>),
    Vote(VoteRequest<u64>),
    Snapshot(InstallSnapshotRequest<Types>),
    Write(Write),
    Read(String),
}

/// The answer to a client's call.
#[derive(Serialize, Deserialize, Debug)]
pub enum Answer {
    Written,
    Value(Option<u64>),
    /// Nothing was done.
    Refused,
    /// A write may have been done, or may be done yet.
    Unknown,
}

/// A connection to another node, made when it is needed.
pub struct Peer {
    target: u64,
    node: BasicNode,
    stream: Option<TcpStream>,
}

/// Makes them.
pub struct Peers;

impl RaftNetworkFactory<Types> for Peers {
    type Network = Peer;

    async fn new_client(&mut self, target: u64, node: &BasicNode) -> Peer {
        Peer { target, node: node.clone(), stream: None }
    }
}

type Failure<E> = RPCError<u64, BasicNode, E>;

impl Peer {
    async fn call<R, E>(&mut self, call: Call) -> Result<R, Failure<E>>
    where
        R: DeserializeOwned,
        E: DeserializeOwned + std::error::Error,
    {
        let answer: io::Result<Result<R, E>> = async {
            // A call that is given up takes its connection with it: a late answer is nobody's.
            let mut stream = match self.stream.take() {
                Some(stream) => stream,
                None => TcpStream::connect(&*self.node.addr).await?,
            };
            stream.set_nodelay(true)?;
            send(&mut stream, &call).await?;
            let answer = receive(&mut stream).await?;
            self.stream = Some(stream);
            Ok(answer)
        }
        .await;
        let answer = answer.map_err(|error| RPCError::Network(NetworkError::new(&error)))?;
        answer.map_err(|error| RPCError::RemoteError(RemoteError::new(self.target, error)))
    }
}

impl RaftNetwork<Types> for Peer {
    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<Types>,
        _: RPCOption,
    ) -> Result<AppendEntriesResponse<u64>, Failure<RaftError<u64>>> {
        self.call(Call::Append(request)).await
    }

    async fn install_snapshot(
        &mut self,
        request: InstallSnapshotRequest<Types>,
        _: RPCOption,
    ) -> Result<InstallSnapshotResponse<u64>, Failure<RaftError<u64, InstallSnapshotError>>> {
        self.call(Call::Snapshot(request)).await
    }

    async fn vote(
        &mut self,
        request: VoteRequest<u64>,
        _: RPCOption,
    ) -> Result<VoteResponse<u64>, Failure<RaftError<u64>>> {
        self.call(Call::Vote(request)).await
    }
}
