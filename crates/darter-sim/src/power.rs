//! The medium of all nodes: stores that reach it, batches that wait for it, and power failures.

use super::endpoint::Sim;
use super::medium::{Choices, Medium, Volatile};
use super::memory::Memory;
use super::world::{Lane, Posted, World};
use darter_fabric::{Verb, VerbKind};

impl Posted {
    /// Returns whether a verb has to wait until an earlier verb of its batch is on the medium.
    pub(super) fn awaits_medium(&self, medium: Medium, lane: &Lane, verb: &Verb) -> bool {
        let is_ordered = verb.kind == VerbKind::Write || verb.is_atomic() || verb.is_fenced;
        if medium != Medium::Flush || !is_ordered || verb.is_volatile && !verb.is_fenced {
            return false;
        }
        let is_before = |by: VerbKind| by == VerbKind::Write || verb.is_fenced && by != VerbKind::Read;
        self.needs.iter().any(|need| need.node == lane.node && is_before(need.by))
    }
}

impl World {
    /// Sets the rule of the medium until the next restore.
    fn set_medium(&mut self, medium: Medium) {
        self.medium = medium;
        self.nodes.iter_mut().for_each(|memory| memory.watch(medium));
    }

    /// Moves an offered store to the medium.
    pub(super) fn write_back(&mut self, node: u8, word: u32, (pieces, most): (u32, u32), descending: bool) {
        let memory = self.nodes.get_mut(usize::from(node));
        if let Some(volatile) = memory.and_then(Memory::volatile) {
            volatile.reach(word, pieces, most, descending);
        }
        self.end_needs();
    }

    /// Moves all stores so far to the medium.
    pub(super) fn reach_all(&mut self) {
        self.nodes.iter_mut().for_each(Memory::flush);
        self.end_needs();
    }

    /// Removes the needs that are on the medium.
    fn end_needs(&mut self) {
        let nodes = &self.nodes;
        for posted in self.posted.iter_mut().filter(|posted| !posted.needs.is_empty()) {
            posted.needs.retain(|need| {
                let lacks = nodes.get(usize::from(need.node)).and_then(Memory::lacks);
                lacks.is_some_and(|volatile| !volatile.meets(need))
            });
        }
    }

    fn lose_power(&mut self, script: Vec<u16>) {
        self.choices = Choices::of(script);
        for memory in &mut self.nodes {
            memory.lose_power(&mut self.choices);
        }
        self.end_needs();
    }
}

impl Sim {
    /// Sets the rule of all nodes' medium until the next restore. Earlier stores are on it.
    pub fn set_medium(&self, medium: Medium) {
        self.world().set_medium(medium);
    }

    /// Returns the maximum number of choices that a power failure would leave now.
    pub fn choices_max(&self) -> usize {
        let lacks = |memory: &Memory| memory.lacks().map_or(0, Volatile::choices_max);
        self.world().nodes.iter().map(lacks).sum()
    }

    /// Makes all nodes lose power: the medium's content remains, and by choice more of the stores.
    /// `script` has the choices, each as a number of possibilities to go back from the newest,
    /// modulo their count; after its end all choices are zero. Kill the processes too.
    pub fn lose_power(&self, script: Vec<u16>) {
        self.world().lose_power(script);
    }

    /// Returns the choices made since the power failed, counted back from the newest, each with its
    /// number of possibilities. Words that no verb has read are not settled yet.
    pub fn choices(&self) -> Vec<(usize, usize)> {
        self.world().choices.made().to_vec()
    }
}
