//! Memory groups under stress: which replica can die without losing the group.
//!
//! A group survives the death of a member as long as another member of the current view lives.
//! Before a replica is killed, all must therefore report that they are members of one view; then the
//! replica is stopped, so that it cannot request another view, and the store must still hold the
//! same one.

use darter_fabric::{ReplicaGroups, ReplicaRole, Tcp, TcpOptions};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long replicas wait for each other: short, so that stops outlast it.
pub(super) const PATIENCE: Duration = Duration::from_millis(200);
/// How long a replica may take to report its state.
const ANSWER: Duration = Duration::from_millis(500);

/// The configuration of a memory node's process that is a replica.
#[derive(Clone, Debug)]
pub struct ReplicaConfig {
    /// The number of its group.
    pub group: u32,
    /// The addresses of all its replicas.
    pub replicas: Vec<SocketAddr>,
    /// The store of views, as a URL.
    pub views: String,
    /// How long replicas wait for each other.
    pub patience: Duration,
}

impl ReplicaConfig {
    /// Returns the group's address as a memory node.
    pub fn address(&self) -> String {
        let replicas: Vec<String> = self.replicas.iter().map(ToString::to_string).collect();
        replicas.join("+")
    }
}

/// Returns the URL of the store of views in a directory.
pub(super) fn views_url(directory: &Path) -> String {
    format!("file:{}", directory.join("views").display())
}

/// Returns the number of the view in which all replicas of a group are members, if there is one.
pub(super) fn whole_view(group: &ReplicaConfig) -> Option<u64> {
    let options = TcpOptions { patience: ANSWER, ..TcpOptions::default() };
    let tcp = Tcp::connect(&[group.address()], options).ok()?;
    let states: Option<Vec<_>> = tcp.replicas(0).into_iter().map(|replica| replica.state).collect();
    let states = states?;
    let view = states.first()?.view;
    let is_member =
        |state: &darter_fabric::ReplicaState| state.view == view && state.role != ReplicaRole::Learner;
    states.iter().all(is_member).then_some(view)
}

/// Returns the number of the view that the store holds for a group.
pub(super) fn stored_view(directory: &Path, group: u32) -> Option<u64> {
    let path: PathBuf = directory.join(format!("views-{group}"));
    let text = std::fs::read_to_string(path).ok()?;
    let (_, behind) = text.split_once("\"view\":")?;
    behind.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}
