//! Faults. A group survives the death of a replica as long as another member of its view lives. So
//! no fault kills the last member, either of the current view or of a requested one.

use super::client::Users;
use super::event::{MS, address};
use super::node::Life;
use super::world::World;
use darter_group::{ReplicaId, Start, View};
use std::sync::Arc;

impl<U: Users> World<U> {
    fn is_sound(&self, id: ReplicaId) -> bool {
        let life = self.nodes[address(id)].life.as_ref();
        life.is_some_and(|life| life.id == id && life.replica.kept().is_some())
    }

    /// Returns the current view and the requested ones, which may replace it.
    fn views(&self) -> impl Iterator<Item = &Arc<View>> {
        let next = self.store.number + 1;
        std::iter::once(&self.store).chain(self.asked.iter().filter(move |view| view.number == next))
    }

    /// Whether each view still has a live member without this node.
    fn can_spare(&self, node: usize) -> bool {
        let is_left = |view: &Arc<View>| view.members().any(|id| address(id) != node && self.is_sound(id));
        self.views().all(is_left)
    }

    /// Whether a node is the only member of the only possible view, and knows it.
    fn is_alone(&self, node: usize) -> bool {
        let known = self.nodes[node].life.as_ref().and_then(|life| life.replica.view());
        if known != Some(&self.store) {
            return false;
        }
        let is_it = |view: &Arc<View>| {
            address(view.primary) == node && view.backups.is_empty() && self.is_sound(view.primary)
        };
        self.views().all(is_it)
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
            10 => {
                self.nodes[node].snapshot = self.nodes[node].life.as_ref().and_then(Life::kept);
            }
            11 => self.hand_over(node),
            12..=14 => {
                let other = (node + 1 + self.random.below(nodes - 1) as usize) % self.nodes.len();
                let until = self.now + self.random.below(5000) * MS;
                let most = self.random.below(1500) * MS;
                self.slow.insert((node, other), (until, most));
                self.note(|| format!("node {node} to {other} takes up to {} ms", most / MS));
                self.count("slow links");
            }
            _ => {
                // An earlier copy of a disk is restored.
                self.nodes[node].snapshot = self.nodes[node].life.as_ref().and_then(Life::kept);
                let pause = self.random.below(1000) * MS;
                self.strike_after(pause, node);
            }
        }
    }

    /// Kills or pauses a node.
    pub(super) fn strike(&mut self, node: usize) {
        if self.nodes[node].snapshot.is_some() || self.random.happens(700) {
            self.kill(node);
            if self.random.happens(300) || self.nodes[node].snapshot.is_some() {
                self.come_back(node);
            }
        } else {
            let pause = self.random.below(3000) * MS;
            self.nodes[node].paused_until = self.now + pause;
        }
    }

    fn kill(&mut self, node: usize) {
        if self.nodes[node].life.is_none() {
            return;
        }
        if self.can_spare(node) {
            self.count("deaths");
            self.die(node);
        } else if self.is_alone(node) {
            // Alone, and its memory kept: it must go on.
            self.count("deaths of sole members");
            let kept = self.die(node).and_then(|life| life.kept());
            self.nodes[node].snapshot = kept;
            self.return_kept(node);
        }
    }

    /// Restarts a dead node, with nothing or with an old memory.
    pub(super) fn come_back(&mut self, node: usize) {
        if self.nodes[node].life.is_some() {
            return;
        }
        if self.nodes[node].snapshot.is_some() {
            self.count("returns with an old memory");
            self.return_kept(node);
        } else {
            self.count("returns with nothing");
            self.begin(node, Start::Empty, None);
        }
    }

    fn return_kept(&mut self, node: usize) {
        let (start, content) = match self.nodes[node].snapshot.take() {
            Some((kept, content)) => (Start::Kept(Box::new(kept)), Some(content)),
            None => (Start::Empty, None),
        };
        self.begin(node, start, content.as_deref());
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
