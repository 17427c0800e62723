//! Views: the primary, the backups, the learners, and the external store of the current view.

use std::collections::BTreeSet;
use std::sync::Arc;

/// Identifies a replica and one life of its memory: a replica that starts with nothing, or with a
/// memory that it cannot rely on, gets a new name. So no earlier view refers to it, including views
/// that are still on their way to the store.
pub type ReplicaId = u64;

/// The composition of a group until the next view. All other replicas are learners, which are being
/// brought up, or have failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Identifies the group by the primary of its first view. A group that was created anew is a
    /// different memory.
    pub group: ReplicaId,
    /// Counts the views of a group, from 1.
    pub number: u64,
    /// The replica that serves.
    pub primary: ReplicaId,
    /// Replicas with every record on which a reply was ever based. Each can become the next
    /// primary.
    pub backups: BTreeSet<ReplicaId>,
}

impl View {
    /// Returns a group's first view.
    pub fn bootstrap(primary: ReplicaId, backups: impl IntoIterator<Item = ReplicaId>) -> Self {
        Self { group: primary, number: 1, primary, backups: backups.into_iter().collect() }
    }

    /// Returns the primary and the backups.
    pub fn members(&self) -> impl Iterator<Item = ReplicaId> + '_ {
        std::iter::once(self.primary).chain(self.backups.iter().copied())
    }

    /// Returns the next view, in which this replica serves with these backups.
    pub(super) fn next(&self, primary: ReplicaId, backups: BTreeSet<ReplicaId>) -> Self {
        Self { group: self.group, number: self.number + 1, primary, backups }
    }
}

/// A request to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreRequest {
    /// The current view.
    Read,
    /// Replace the view whose number is lower by one with this view.
    Set(Arc<View>),
}

/// A reply of the store. A request that fails, or whose reply is late, needs no handling: the
/// replica repeats it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreReply {
    /// The current view, after the request.
    pub view: Arc<View>,
}
