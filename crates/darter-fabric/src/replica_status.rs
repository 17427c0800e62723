//! How the replicas of a memory node are, for operators.

use crate::FabricError;
use std::fmt;
use std::time::Duration;

/// What a replica of a memory group is in its view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaRole {
    /// Serves.
    Primary,
    /// Has all that was ever answered, and may be the next primary.
    Backup,
    /// Is brought up, or knows nothing yet.
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

/// A replica of a memory node, as it says itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaStatus {
    /// Where it is found.
    pub address: String,
    /// `None` if it does not answer.
    pub state: Option<ReplicaState>,
}

/// What a replica says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaState {
    /// What it is.
    pub role: ReplicaRole,
    /// The number of the view that it goes by; 0 for none.
    pub view: u64,
    /// The number of its last record: how many changes it has.
    pub record: u64,
    /// Answers that wait for other replicas.
    pub held: u64,
    /// Bytes of records that it keeps for other replicas.
    pub log_bytes: u64,
}

/// What a comparison of the replicas of a memory group has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicaComparison {
    /// Where replicas hold different bytes, in words a person can act on.
    pub differences: Vec<String>,
    /// What was not compared, and why.
    pub remarks: Vec<String>,
}

/// Memory nodes that are groups of replicas.
pub trait ReplicaGroups {
    /// Returns the state of a node's replicas, if it is a memory group; none otherwise.
    fn replicas(&self, node: u8) -> Vec<ReplicaStatus>;

    /// Compares the memories of a node's replicas, if it is a memory group, part by part, each when
    /// all have the same records. Waits for nodes in the calling thread.
    fn compare_replicas(&self, node: u8) -> ReplicaComparison;

    /// Makes a memory group's primary hand over to the replica at an address, and waits until that
    /// replica serves.
    ///
    /// # Errors
    /// Fails if the node is not a group, the replica is not a backup of it, or does not serve within
    /// `patience`.
    fn hand_over(&self, node: u8, to: &str, patience: Duration) -> Result<(), FabricError>;
}

/// Returns the error of a node that is no memory group.
#[cold]
pub(crate) fn no_group(node: u8) -> FabricError {
    FabricError::geometry(format!("memory node {node} is no memory group: nobody can take its place"))
}
