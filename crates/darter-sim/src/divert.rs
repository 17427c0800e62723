//! Diverted batches: the simulation's nodes do not execute them; the driver supplies the outcome of
//! each. So programs that run on a simulation also run on simulated memory groups
//! (`group::testbed`) unchanged.

use super::diverted::{Diversion, DivertedBatch};
use super::endpoint::Sim;
use super::world::World;
use darter_fabric::FabricError;

impl World {
    /// Fills in the results of a batch and completes it.
    fn answer(&mut self, id: u64, answer: Result<Vec<u64>, FabricError>) {
        let Some(at) = self.posted.iter().position(|posted| posted.id == id) else { return };
        let posted = &mut self.posted[at];
        let (verbs, data) = posted.batch.parts_mut();
        match answer {
            Ok(words) => {
                let mut words = &words[..];
                for verb in verbs {
                    let (own, rest) = words.split_at(verb.reply_words());
                    data[verb.at as usize..][..own.len()].copy_from_slice(own);
                    words = rest;
                }
                self.counts.verbs += verbs.len() as u64;
            }
            Err(error) => posted.error = Some(error),
        }
        let count = posted.batch.len();
        posted.lanes.iter_mut().for_each(|lane| lane.at = count);
        if posted.orphan {
            self.posted.remove(at);
        }
    }
}

impl Sim {
    /// Starts or stops diverting the batches that wait for an executor ([`Sim::diverted`]). While
    /// they are diverted, the driver fences processes. A restore stops it.
    pub fn divert(&self, diverted: bool) {
        self.world().diversion = diverted.then(Diversion::default);
    }

    /// Returns the batches that were posted since the last call.
    pub fn diverted(&self) -> Vec<DivertedBatch> {
        let mut world = self.world();
        let Some(last) = world.diversion.as_ref().map(|diversion| diversion.last) else { return Vec::new() };
        let mut diverted = Vec::new();
        for posted in world.posted.iter_mut().filter(|posted| posted.id > last) {
            let (id, process) = (posted.id, posted.process);
            let (verbs, data) = posted.batch.parts_mut();
            diverted.push(DivertedBatch { id, process, verbs: verbs.to_vec(), data: data.to_vec() });
        }
        if let (Some(diversion), Some(newest)) = (&mut world.diversion, diverted.last()) {
            diversion.last = newest.id;
        }
        diverted
    }

    /// Supplies the outcome of a diverted batch: the words of its results one after the other, or
    /// the error.
    pub fn deliver(&self, id: u64, answer: Result<Vec<u64>, FabricError>) {
        self.world().answer(id, answer);
    }

    /// Returns the processes that others have requested to fence since the last call.
    pub fn suspects(&self) -> Vec<u32> {
        let mut world = self.world();
        world.diversion.as_mut().map(|diversion| std::mem::take(&mut diversion.suspects)).unwrap_or_default()
    }

    /// Fences this process: its posted verbs fail, and others may take its place.
    pub fn shut_out(&self) {
        self.world().shut_out(self.number());
    }

    /// Returns the memory of a node.
    pub fn content(&self, node: u8) -> Vec<u8> {
        bytemuck::cast_slice(self.world().nodes[usize::from(node)].words()).to_vec()
    }

    /// Replaces the memory of a node with other whole words. Objects in it count as written.
    pub fn set_content(&self, node: u8, content: &[u8]) {
        let words: Vec<u64> = bytemuck::pod_collect_to_vec(content);
        self.world().nodes[usize::from(node)].set_words(&words);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{EventKind, Executor, WordOrder};
    use super::*;
    use darter_fabric::{Endpoint, Fabric, FenceOutcome, GlobalAddr, Membership, Suspect};
    use std::cell::RefCell;

    fn poll(executor: &mut Executor<'_>) {
        let mut events = Vec::new();
        loop {
            executor.events(&mut events);
            let moves = |kind| matches!(kind, EventKind::Run | EventKind::Complete);
            let Some(&event) = events.iter().find(|event| moves(event.kind)) else { return };
            executor.perform(event, 0, WordOrder::Ascending);
        }
    }

    #[test]
    fn diverted_batches_wait_for_their_outcome() {
        let sim = Sim::new(1, 4096);
        let results = RefCell::new(Vec::new());
        let mut executor = Executor::new(&sim);
        sim.divert(true);
        executor.spawn(1, async {
            let mut endpoint = sim.process(1).endpoint().unwrap();
            for _ in 0..2 {
                let mut batch = endpoint.batch();
                batch.write(GlobalAddr::new(0, 64), &[5]);
                let pair = batch.read(GlobalAddr::new(0, 128), 2);
                let cas = batch.cas(GlobalAddr::new(0, 64), 5, 6);
                let done = endpoint.submit(batch).await;
                results.borrow_mut().push(done.map(|done| (done.words(pair).to_vec(), done.found(cas))).ok());
            }
        });
        poll(&mut executor);
        let diverted = sim.diverted();
        assert_eq!((diverted.len(), diverted[0].process, diverted[0].verbs.len()), (1, 1, 3));
        assert!(sim.diverted().is_empty() && results.borrow().is_empty());
        sim.deliver(diverted[0].id, Ok(vec![7, 8, 5]));
        poll(&mut executor);
        assert_eq!(*results.borrow(), [Some((vec![7, 8], 5))]);
        sim.deliver(sim.diverted()[0].id, Err(FabricError::Fenced));
        poll(&mut executor);
        assert_eq!(results.borrow().last(), Some(&None));
        assert!(sim.content(0).iter().all(|byte| *byte == 0), "nothing was executed here");
    }

    #[test]
    fn the_driver_of_diverted_batches_fences_processes() {
        let sim = Sim::new(1, 4096);
        let other = sim.process(1);
        let identity = other.claim(3).unwrap();
        let suspect = Suspect { slot: 3, holder: identity.holder(), lapsed: true };
        sim.divert(true);
        assert_eq!(sim.fence(suspect).unwrap(), FenceOutcome::Unknown);
        assert!(sim.claim(3).is_err());
        assert_eq!((sim.suspects(), sim.suspects()), (vec![1], Vec::new()));
        other.shut_out();
        assert!(other.is_fenced() && matches!(other.endpoint(), Err(FabricError::Fenced)));
        assert_eq!(sim.fence(suspect).unwrap(), FenceOutcome::Fenced);
        assert!(sim.claim(3).is_ok());
    }
}
