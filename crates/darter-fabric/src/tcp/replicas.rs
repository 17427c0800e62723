//! The replicas of a memory group for operators: their status, whether they are equal, and handing
//! over to one.

use super::addresses::{is_group, replicas};
use super::connection::{Connection, Sent};
use super::fabric::Tcp;
use super::handshake::{Caller, greet};
use super::options::TcpOptions;
use crate::replica_status::no_group;
use crate::wire::{self, Control, Digest, GroupStatus, Refusal, RequestKind};
use crate::{
    ByteSize, FabricError, ReplicaComparison, ReplicaGroups, ReplicaRole, ReplicaState, ReplicaStatus,
};
use bytemuck::Pod;
use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

/// Timeout of one replica's reply.
const ANSWER: Duration = Duration::from_secs(1);
/// Number of attempts to read parts of all replicas at the same record.
const COMPARISONS: usize = 200;
/// Interval between two of these attempts.
const COMPARED_AGAIN: Duration = Duration::from_millis(5);
/// Interval between two checks whether a replica serves.
const LOOK: Duration = Duration::from_millis(100);

impl ReplicaGroups for Tcp {
    fn replicas(&self, node: u8) -> Vec<ReplicaStatus> {
        let Some(known) = self.known_node(node).filter(|known| is_group(&known.address)) else {
            return Vec::new();
        };
        let state = |status: GroupStatus| ReplicaState {
            role: match status.role {
                0 => ReplicaRole::Primary,
                1 => ReplicaRole::Backup,
                _ => ReplicaRole::Learner,
            },
            view: status.view,
            record: status.lsn,
            held: status.held,
            log_bytes: status.log_bytes,
        };
        let status = |address: &str| ReplicaStatus {
            address: address.to_owned(),
            state: Replica::reach(address, node, self.tcp_options())
                .and_then(|mut to| to.status())
                .ok()
                .map(state),
        };
        replicas(&known.address).map(status).collect()
    }

    fn compare_replicas(&self, node: u8) -> ReplicaComparison {
        let mut found = ReplicaComparison::default();
        let Some(known) = self.known_node(node).filter(|known| is_group(&known.address)) else {
            return found;
        };
        let mut reached = Vec::new();
        for address in replicas(&known.address) {
            match Replica::reach(address, node, self.tcp_options()) {
                Ok(mut replica) => match replica.status() {
                    Ok(status) if status.role > 1 => found.remarks.push(format!(
                        "memory node {node}: {address} was not compared: it is not a member of the group now"
                    )),
                    _ => reached.push(replica),
                },
                Err(error) => found.remarks.push(format!("memory node {node}: not compared: {error}")),
            }
        }
        let mut offset = 0;
        while offset < known.bytes && reached.len() > 1 {
            match same_moment(&mut reached, offset) {
                Ok(digests) => {
                    let differs = |at: &usize| digests[*at] != digests[0];
                    found.differences.extend((1..reached.len()).filter(differs).map(|at| {
                        format!(
                            "memory node {node}: {} and {} differ in the {} from {offset} on; make the right one \
                             serve (`darter pool handoff`), and restart the other: it is then brought up again",
                            reached[0].address,
                            reached[at].address,
                            ByteSize(wire::DIGEST_BYTES.min(known.bytes - offset)),
                        )
                    }));
                    offset += wire::DIGEST_BYTES;
                }
                Err(Incomparable::Lost(at, error)) => {
                    found.remarks.push(format!("memory node {node}: not compared from {offset} on: {error}"));
                    reached.remove(at);
                }
                Err(Incomparable::Busy) => {
                    found.remarks.push(format!(
                        "memory node {node}: replicas were not compared from {offset} on, as their records were never \
                         the same at that moment; try again when there are fewer writes"
                    ));
                    break;
                }
            }
        }
        found
    }

    fn hand_over(&self, node: u8, to: &str, patience: Duration) -> Result<(), FabricError> {
        let known = self.known_node(node).ok_or(FabricError::Unreachable { node })?;
        if !is_group(&known.address) {
            return Err(no_group(node));
        }
        if !replicas(&known.address).any(|address| address == to) {
            return Err(FabricError::geometry(format!(
                "{to}: it is not a replica of memory node {node}, {}",
                known.address
            )));
        }
        let deadline = Instant::now() + patience;
        loop {
            let status = Replica::reach(to, node, self.tcp_options())?.status()?;
            match status.role {
                0 => return Ok(()),
                1 => {}
                _ => {
                    return Err(FabricError::geometry(format!(
                        "{to}: it is not a backup, and lacks a part of the memory; wait until `pool status` says backup"
                    )));
                }
            }
            if Instant::now() >= deadline {
                return Err(FabricError::geometry(format!("{to}: it does not serve yet; check again later")));
            }
            // It may be handing over already, or may just have done so.
            self.request(node, RequestKind::HandOver, Control { number: status.replica, flag: 0 })?;
            std::thread::sleep(LOOK);
        }
    }
}

/// A connection to one replica, for queries.
struct Replica {
    address: String,
    node: u8,
    connection: Connection,
}

impl Replica {
    fn reach(address: &str, node: u8, options: &TcpOptions) -> Result<Self, FabricError> {
        let caller = Caller::of(crate::random_word());
        let (connection, _) = greet(ANSWER, address, node, caller, options)?;
        Ok(Self { address: address.to_owned(), node, connection })
    }

    /// Queries the status of its group.
    fn status(&mut self) -> Result<GroupStatus, FabricError> {
        self.ask(RequestKind::Status, &[])
    }

    /// Queries the digest of a part of its region.
    fn digest(&mut self, offset: u64) -> Result<Digest, FabricError> {
        self.ask(RequestKind::Digest, wire::as_bytes(&Control { number: offset, flag: 0 }))
    }

    fn ask<T: Pod>(&mut self, kind: RequestKind, payload: &[u8]) -> Result<T, FabricError> {
        let failed =
            |error| FabricError::io(Path::new(&self.address), "query the status of its group", error);
        let at = self.connection.begin_frame();
        self.connection.out.bytes.extend_from_slice(payload);
        let id = self.connection.end_frame(at, kind, 0);
        self.connection.sent.push_back(Sent { id, ..Sent::default() });
        let replied = self.connection.wait_for(Instant::now() + ANSWER, Connection::next_reply);
        let (_, refusal, range) = replied.map_err(failed)?;
        if refusal != Refusal::None {
            return Err(wire::error_of(refusal, self.node, &self.connection.text(range)));
        }
        let payload = self.connection.payload(range);
        wire::head(payload)
            .filter(|_| payload.len() == size_of::<T>())
            .ok_or_else(|| failed(ErrorKind::InvalidData.into()))
    }
}

/// The reason why parts of replicas cannot be compared.
enum Incomparable {
    /// One of them does not reply, or is not a member.
    Lost(usize, FabricError),
    /// New records kept arriving.
    Busy,
}

/// Returns the digests of a part of all replicas, taken when all had the same records.
fn same_moment(replicas: &mut [Replica], offset: u64) -> Result<Vec<u64>, Incomparable> {
    for _ in 0..COMPARISONS {
        let mut digests = Vec::new();
        for (at, replica) in replicas.iter_mut().enumerate() {
            digests.push(replica.digest(offset).map_err(|error| Incomparable::Lost(at, error))?);
        }
        if digests.iter().all(|digest| digest.lsn == digests[0].lsn) {
            return Ok(digests.iter().map(|digest| digest.digest).collect());
        }
        std::thread::sleep(COMPARED_AGAIN);
    }
    Err(Incomparable::Busy)
}
