//! The medium of all nodes: what reaches it, who waits for that, and the failure of the power.

use super::endpoint::Sim;
use super::medium::{Choices, Medium, Volatile};
use super::memory::Memory;
use super::world::{Lane, Posted, World};
use darter_fabric::{Verb, VerbKind};

impl Posted {
    /// Returns whether a verb has to wait until something before it in its batch is on the medium.
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
    /// From now on until the next restore this is the rule of the medium.
    fn set_medium(&mut self, medium: Medium) {
        self.medium = medium;
        self.nodes.iter_mut().for_each(|memory| memory.watch(medium));
    }

    /// Something that was offered reaches the medium.
    pub(super) fn write_back(&mut self, node: u8, word: u32, (pieces, most): (u32, u32), descending: bool) {
        let memory = self.nodes.get_mut(usize::from(node));
        if let Some(volatile) = memory.and_then(Memory::volatile) {
            volatile.reach(word, pieces, most, descending);
        }
        self.end_needs();
    }

    /// All that was written so far is on the medium.
    pub(super) fn reach_all(&mut self) {
        self.nodes.iter_mut().for_each(Memory::flush);
        self.end_needs();
    }

    /// Batches need no more what is on the medium.
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
    /// From now on until the next restore this is the rule of all nodes' medium. What was written
    /// before is on it.
    pub fn set_medium(&self, medium: Medium) {
        self.world().set_medium(medium);
    }

    /// Returns how many choices a power failure would leave now, at most.
    pub fn choices_max(&self) -> usize {
        let lacks = |memory: &Memory| memory.lacks().map_or(0, Volatile::choices_max);
        self.world().nodes.iter().map(lacks).sum()
    }

    /// All nodes lose power: what is left is what the medium has, and by choice more of what was
    /// stored. `script` has the choices, each as a number of possibilities to go back from the
    /// newest, modulo what there are; zeros where it ends. Kill the processes too.
    pub fn lose_power(&self, script: Vec<u16>) {
        self.world().lose_power(script);
    }

    /// Returns what was chosen since the power failed, counted back from the newest, and of how many
    /// possibilities. Words that nobody has looked at are not settled yet.
    pub fn choices(&self) -> Vec<(usize, usize)> {
        self.world().choices.made().to_vec()
    }
}
