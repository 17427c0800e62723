//! The simulated world at rest, and the conditions that must hold then.

use super::client::Users;
use super::event::address;
use super::node::Life;
use super::world::World;
use darter_group::Role;
use std::collections::BTreeSet;

impl<U: Users> World<U> {
    /// Ends all faults and restarts dead nodes. If a view needs more than one member, all nodes are
    /// restarted without that condition, as when disks of members are lost for good.
    pub fn calm(&mut self) {
        self.is_calm = true;
        self.cuts.clear();
        self.slow.clear();
        self.store_ails_until = 0;
        let waits = std::mem::replace(&mut self.setup.options.members_min, 1) > 1;
        for node in 0..self.nodes.len() {
            if waits {
                self.kill(node);
            }
            self.come_back(node);
        }
    }

    fn lives(&self) -> impl Iterator<Item = &Life> {
        self.nodes.iter().filter_map(|node| node.life.as_ref())
    }

    /// Returns why the replicas are not at rest; `None` if all are members and equal.
    pub fn unrest(&self) -> Option<String> {
        let members: BTreeSet<_> = self.store.members().collect();
        for life in self.lives() {
            if !members.contains(&life.id) {
                return Some(format!("replica {} is not a member of {:?}", life.id, self.store));
            }
            let role = life.replica.role();
            let is_primary = role == Role::Primary;
            if is_primary != (life.id == self.store.primary) || role == Role::Learner {
                return Some(format!("replica {} is a {role:?} in {:?}", life.id, self.store));
            }
        }
        let mut lives = self.lives();
        let first = lives.next()?;
        let (lsn, content) = (first.replica.lsn(), first.content());
        let other = lives.find(|life| life.replica.lsn() != lsn || life.content() != content)?;
        Some(format!("replicas {} and {} differ", first.id, other.id))
    }

    fn primary(&self) -> Option<&Life> {
        self.nodes[address(self.store.primary)].life.as_ref()
    }

    /// Returns the memory of the primary of the current view.
    pub fn content(&self) -> Vec<u8> {
        self.primary().map(Life::content).unwrap_or_default()
    }

    /// Returns an error in the log of the current view's primary: a frame that occurs twice, or one
    /// after the fence of its session.
    pub fn log_fault(&self) -> Option<String> {
        self.executed.fault(self.primary()?.replica.lsn())
    }
}
