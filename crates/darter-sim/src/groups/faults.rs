//! Faults. A group survives the death of a replica as long as another member of its view lives. So
//! no fault kills the last member, either of the current view or of a requested one. With logs all
//! may die, and a disk is lost only while another member of each such view has its own.

use super::client::Users;
use super::event::{MS, address};
use super::world::World;
use darter_group::{ReplicaId, Start, View};
use std::sync::Arc;

impl<U: Users> World<U> {
    fn is_sound(&self, id: ReplicaId) -> bool {
        let life = self.nodes[address(id)].life.as_ref();
        life.is_some_and(|life| life.id == id && life.replica.is_sound())
    }

    /// Returns the current view and the requested ones, which may replace it.
    fn views(&self) -> impl Iterator<Item = &Arc<View>> {
        let next = self.store.number + 1;
        std::iter::once(&self.store).chain(self.asked.iter().filter(move |view| view.number == next))
    }

    /// Whether each view still has enough members with their state without this node: live ones or,
    /// with logs, some with their disks.
    fn can_spare(&self, node: usize) -> bool {
        let has_state = |id| match &self.nodes[address(id)].disk {
            Some(disk) => disk.has(id),
            None => self.is_sound(id),
        };
        let is_left = |view: &Arc<View>| {
            let left = view.members().filter(|&id| address(id) != node && has_state(id));
            left.count() >= self.setup.options.members_min.min(view.members().count())
        };
        self.views().all(is_left)
    }

    /// Injects a random fault.
    pub(super) fn fault(&mut self) {
        let nodes = self.nodes.len() as u64;
        let node = self.random.below(nodes) as usize;
        match self.random.below(16) {
            0..=2 => self.kill(node),
            3..=4 => self.come_back(node),
            5..=6 => {
                let pause = self.random.below(4000) * MS;
                let paused_until = &mut self.nodes[node].paused_until;
                *paused_until = self.now.max(*paused_until) + pause;
                self.note(|| format!("node {node} pauses for {} ms", pause / MS));
                self.count("pauses");
            }
            7..=8 => {
                let other = (node + 1 + self.random.below(nodes - 1) as usize) % self.nodes.len();
                let until = self.now + self.random.below(4000) * MS;
                self.cuts.insert((node.min(other), node.max(other)), until);
                self.break_link(node, other);
                self.note(|| format!("nodes {node} and {other} are disconnected until {} ms", until / MS));
                self.count("cuts");
            }
            9 => {
                self.store_ails_until = self.now + self.random.below(6000) * MS;
                self.note(|| "the store is slow or loses requests".to_owned());
                self.count("store faults");
            }
            10 if self.nodes[node].disk.is_some() => {
                self.count("power failures of all nodes");
                for node in 0..self.nodes.len() {
                    self.kill(node);
                    let pause = self.random.below(3000 * MS);
                    self.strike_after(pause, node);
                }
            }
            10..=11 => self.hand_over(node),
            12..=14 => {
                let other = (node + 1 + self.random.below(nodes - 1) as usize) % self.nodes.len();
                let until = self.now + self.random.below(5000) * MS;
                let most = self.random.below(1500) * MS;
                self.slow.insert((node, other), (until, most));
                self.note(|| format!("node {node} to {other} takes up to {} ms", most / MS));
                self.count("slow links");
            }
            _ => {
                self.lose_disk(node);
                let pause = self.random.below(1000) * MS;
                self.strike_after(pause, node);
            }
        }
    }

    /// Kills or pauses a node, or restarts a dead one.
    pub(super) fn strike(&mut self, node: usize) {
        if self.nodes[node].life.is_none() {
            self.come_back(node);
        } else if self.random.happens(700) {
            self.kill(node);
            if self.random.happens(300) {
                self.come_back(node);
            }
        } else {
            let pause = self.random.below(3000) * MS;
            self.nodes[node].paused_until = self.now + pause;
        }
    }

    pub(super) fn kill(&mut self, node: usize) {
        if self.nodes[node].life.is_none() {
            return;
        }
        if self.nodes[node].disk.is_some() {
            self.count("deaths");
            self.die(node);
            let disk = self.nodes[node].disk.as_mut();
            if disk.is_some_and(|disk| disk.lose_power(&mut self.random)) {
                self.count("logs that lost entries");
            }
        } else if self.can_spare(node) {
            self.count("deaths");
            self.die(node);
        }
    }

    /// Replaces a node's disk, and so its memory, if that is permitted.
    fn lose_disk(&mut self, node: usize) {
        if self.nodes[node].disk.is_some() && self.can_spare(node) {
            self.die(node);
            self.note(|| format!("node {node} loses its disk"));
            self.count("lost disks");
            self.nodes[node].disk = Some(self.new_disk(false));
        }
    }

    /// Restarts a dead node, with nothing or with its disk.
    pub(super) fn come_back(&mut self, node: usize) {
        if self.nodes[node].life.is_some() {
            return;
        }
        self.count(if self.nodes[node].disk.is_some() {
            "returns with a log"
        } else {
            "returns with nothing"
        });
        self.begin(node, Start::Empty, None);
    }

    fn hand_over(&mut self, node: usize) {
        let backups: Vec<_> = self.store.backups.iter().copied().collect();
        let clock = self.nodes[node].clock(self.now);
        if let Some(&to) = backups.first() {
            let mut has_begun = false;
            self.nodes[node].replica(|replica| has_begun = replica.hand_over(to, clock));
            if has_begun {
                self.note(|| format!("node {node} hands over to replica {to}"));
                self.count("handovers");
            }
        }
    }
}
