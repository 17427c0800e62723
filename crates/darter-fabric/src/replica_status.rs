//! Status of a memory node's replicas, for operators.

use crate::FabricError;
use std::fmt;
use std::time::Duration;

/// Role of a replica of a memory group in its view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaRole {
    /// Serves.
    Primary,
    /// Has every record on which a reply was ever based, and may become the next primary.
    Backup,
    /// Is being brought up, or has no state yet.
    Learner,
}

impl fmt::Display for ReplicaRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Primary => "primary",
            Self::Backup => "backup",
            Self::Learner => "learner",
        })
    }
}

/// Status of a replica of a memory node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaStatus {
    /// Its address.
    pub address: String,
    /// `None` if it does not reply.
    pub state: Option<ReplicaState>,
}

/// State that a replica reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaState {
    /// Its role.
    pub role: ReplicaRole,
    /// The number of its current view; 0 for none.
    pub view: u64,
    /// The number of its last record, and so of its changes.
    pub record: u64,
    /// Number of replies that wait for other replicas.
    pub held: u64,
    /// Bytes of records that it keeps for other replicas.
    pub log_bytes: u64,
}

/// Result of a comparison of the replicas of a memory group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicaComparison {
    /// Places where replicas hold different bytes, described for an operator.
    pub differences: Vec<String>,
    /// Parts that were not compared, and the reasons.
    pub remarks: Vec<String>,
}

/// Memory nodes that are groups of replicas.
pub trait ReplicaGroups {
    /// Returns the state of a node's replicas, if it is a memory group; none otherwise.
    fn replicas(&self, node: u8) -> Vec<ReplicaStatus>;

    /// Compares the memories of a node's replicas, if it is a memory group, part by part, each at a
    /// time when all have the same records. Blocks the calling thread while it waits for nodes.
    fn compare_replicas(&self, node: u8) -> ReplicaComparison;

    /// Makes a memory group's primary hand over to the replica at an address, and waits until that
    /// replica serves.
    ///
    /// # Errors
    /// Fails if the node is not a group, the replica is not a backup of it, or does not serve
    /// within `patience`.
    fn hand_over(&self, node: u8, to: &str, patience: Duration) -> Result<(), FabricError>;
}

/// Returns the error of a node that is not a memory group.
#[cold]
pub(crate) fn no_group(node: u8) -> FabricError {
    FabricError::geometry(format!("memory node {node} is not a memory group: no replica can take its place"))
}
