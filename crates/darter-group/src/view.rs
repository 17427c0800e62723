//! Views: who serves, who follows, who learns. And the external store that holds the current one.

use std::collections::BTreeSet;
use std::sync::Arc;

/// Names a replica, and its memory's life: one that starts with nothing, or with a memory that it
/// cannot rely on, has another name than before. So no view of before speaks of it, among those that
/// are still on their way to the store.
pub type ReplicaId = u64;

/// What a group is made of, until the next view. All other replicas are learners, which are brought
/// up, or gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Names the group: the primary of its first view. A group that was founded anew is another
    /// memory.
    pub group: ReplicaId,
    /// Counts the views of a group, from 1.
    pub number: u64,
    /// The replica that serves.
    pub primary: ReplicaId,
    /// Replicas that have everything that was ever answered. Each of them may be the next primary.
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

/// What a replica wants of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreRequest {
    /// The current view.
    Read,
    /// This view instead of the one whose number is less by one.
    Set(Arc<View>),
}

/// What comes of it. A request that fails, or whose reply is late, needs no notice: the replica asks
/// again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreReply {
    /// The current view, after the request.
    pub view: Arc<View>,
}
