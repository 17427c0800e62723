//! The replicas of a memory group, as a client sees them: which of them serves, how they are, whether
//! they are equal, and how one is asked to hand over.
//!
//! A group's address is those of its replicas, `a:7000+b:7000`. Replicas say in their welcome which
//! view they go by and whether they serve in it. So a client asks all of them at once, and takes the
//! one that serves in the newest view that it has heard of; it needs to know no store of views.

use super::connection::{Connection, Sent};
use super::fabric::Tcp;
use super::handshake::{Caller, greet};
use super::options::TcpOptions;
use crate::replica_status::no_group;
use crate::wire::{self, Control, Digest, GroupStatus, Refusal, RequestKind, Welcome};
use crate::{ByteSize, FabricError, ReplicaComparison, ReplicaRole, ReplicaState, ReplicaStatus};
use bytemuck::Pod;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long one replica may take to greet before the others are asked again.
const GREETING: Duration = Duration::from_secs(1);
/// How often parts of replicas are read to be of one moment.
const COMPARISONS: usize = 200;
/// Between two rounds of asking.
const ROUND: Duration = Duration::from_millis(20);

/// Returns whether an address is that of a group.
pub(super) fn is_group(address: &str) -> bool {
    address.contains('+')
}

/// Returns the addresses of a node's replicas; one that has none is all there is.
pub(super) fn replicas(address: &str) -> impl Iterator<Item = &str> {
    address.split('+')
}

/// Connects to the replica that serves, which must be found within this time.
///
/// # Errors
/// [`FabricError::Io`] if none serves, [`FabricError::Geometry`] if what answers is no group, or
/// does not accept the client, [`FabricError::Fenced`].
pub(super) fn connect(
    patience: Duration,
    address: &str,
    node: u8,
    caller: Caller,
    options: &TcpOptions,
) -> Result<(Connection, Welcome), FabricError> {
    if options.device.is_some() {
        return Err(FabricError::geometry(format!(
            "{address}: a memory group cannot be reached through an RDMA device, whose verbs no memory node sees \
             and can send to its replicas; name it `tcp://…`"
        )));
    }
    let deadline = Instant::now() + patience;
    let mut newest = 0;
    loop {
        let round = ask_all(deadline, address, node, caller, options, &mut newest)?;
        if let Some(found) = round {
            return Ok(found);
        }
        if Instant::now() + ROUND >= deadline {
            let none = io::Error::new(ErrorKind::TimedOut, "no replica says that it serves");
            return Err(FabricError::io(Path::new(address), "find the replica that serves", none));
        }
        std::thread::sleep(ROUND);
    }
}

/// Asks all replicas. Returns the first that serves in the newest view of which any has told, and
/// does not wait for others then.
fn ask_all(
    deadline: Instant,
    address: &str,
    node: u8,
    caller: Caller,
    options: &TcpOptions,
    newest: &mut u64,
) -> Result<Option<(Connection, Welcome)>, FabricError> {
    let (sender, answers) = mpsc::channel();
    let patience = deadline.saturating_duration_since(Instant::now()).min(GREETING);
    for replica in replicas(address) {
        let (sender, replica, options) = (sender.clone(), replica.to_owned(), options.clone());
        let asks = move || drop(sender.send(greet(patience, &replica, node, caller, &options)));
        let spawned = std::thread::Builder::new().name("darter-connect".to_owned()).spawn(asks);
        spawned.map_err(|error| FabricError::io(Path::new(address), "start a thread to reach it", error))?;
    }
    drop(sender);
    let mut refusal = None;
    let mut found: Option<(Connection, Welcome)> = None;
    while let Ok(answer) = answers.recv() {
        match answer {
            Ok((_, welcome)) if welcome.flags & wire::IS_REPLICA == 0 => {
                return Err(FabricError::geometry(format!(
                    "{address}: a memory node that is no replica of a group answers there; name it alone, or start it \
                     with `--replicas`"
                )));
            }
            Ok((connection, welcome)) => {
                *newest = (*newest).max(welcome.view);
                let serves = welcome.flags & wire::SERVES_GROUP != 0;
                if serves && welcome.view >= *newest {
                    found = Some((connection, welcome));
                    break;
                }
            }
            Err(error @ FabricError::Fenced) => return Err(error),
            Err(FabricError::Io(_)) => {}
            // Another replica may still let it in, unless all say the same.
            Err(error) => refusal = Some(error),
        }
    }
    match (found, refusal) {
        (Some(found), _) => Ok(Some(found)),
        (None, Some(error)) if *newest == 0 => Err(error),
        (None, _) => Ok(None),
    }
}

impl Tcp {
    /// [`crate::Fabric::replicas`].
    pub(super) fn replica_statuses(&self, node: u8) -> Vec<ReplicaStatus> {
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

    /// [`crate::Fabric::compare_replicas`].
    pub(super) fn compare_group(&self, node: u8) -> ReplicaComparison {
        let mut found = ReplicaComparison::default();
        let Some(known) = self.known_node(node).filter(|known| is_group(&known.address)) else {
            return found;
        };
        let mut reached = Vec::new();
        for address in replicas(&known.address) {
            match Replica::reach(address, node, self.tcp_options()) {
                Ok(replica) => reached.push(replica),
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
                            "memory node {node}: {} and {} differ in the {} from {offset} on; have the right one serve \
                             (`darter pool handoff`), and start the other again: it is brought up anew",
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
                         the same at that moment; try again when less is written"
                    ));
                    break;
                }
            }
        }
        found
    }

    /// [`crate::Fabric::hand_over`].
    pub(super) fn hand_group_over(&self, node: u8, to: &str, patience: Duration) -> Result<(), FabricError> {
        let known = self.known_node(node).ok_or(FabricError::Unreachable { node })?;
        if !is_group(&known.address) {
            return Err(no_group(node));
        }
        if !replicas(&known.address).any(|address| address == to) {
            return Err(FabricError::geometry(format!(
                "{to}: it is no replica of memory node {node}, {}",
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
                        "{to}: it is no backup, and lacks a part of the memory; wait until `pool status` says backup"
                    )));
                }
            }
            if Instant::now() >= deadline {
                return Err(FabricError::geometry(format!("{to}: it does not serve yet; look again later")));
            }
            // It may hand over already, or just have done so.
            self.request(node, RequestKind::HandOver, Control { number: status.replica, flag: 0 })?;
            std::thread::sleep(ROUND * 5);
        }
    }
}

/// A connection to one replica, for questions.
struct Replica {
    address: String,
    node: u8,
    connection: Connection,
}

impl Replica {
    fn reach(address: &str, node: u8, options: &TcpOptions) -> Result<Self, FabricError> {
        let caller = Caller::of(crate::random_word());
        let (connection, _) = greet(GREETING, address, node, caller, options)?;
        Ok(Self { address: address.to_owned(), node, connection })
    }

    /// Asks how its group is.
    fn status(&mut self) -> Result<GroupStatus, FabricError> {
        self.ask(RequestKind::Status, &[])
    }

    /// Asks what it has in a part of its region.
    fn digest(&mut self, offset: u64) -> Result<Digest, FabricError> {
        self.ask(RequestKind::Digest, wire::as_bytes(&Control { number: offset, flag: 0 }))
    }

    fn ask<T: Pod>(&mut self, kind: RequestKind, payload: &[u8]) -> Result<T, FabricError> {
        let failed = |error| FabricError::io(Path::new(&self.address), "ask it how its group is", error);
        let at = self.connection.begin_frame();
        self.connection.out.bytes.extend_from_slice(payload);
        let id = self.connection.end_frame(at, kind, 0);
        self.connection.sent.push_back(Sent { id, ..Sent::default() });
        let replied = self.connection.wait_for(Instant::now() + GREETING, Connection::next_reply);
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

/// Why parts of replicas cannot be compared.
enum Incomparable {
    /// One of them does not answer, or is no member.
    Lost(usize, FabricError),
    /// Records came all the time.
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
        std::thread::sleep(ROUND / 4);
    }
    Err(Incomparable::Busy)
}
