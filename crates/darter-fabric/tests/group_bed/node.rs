//! A memory node of the simulated world: its clock, and its lives.

use crate::random::Random;
use darter_fabric::Local;
use darter_fabric::group::{Kept, Memory, Options, Region, Replica, ReplicaId, Start};
use std::time::Duration;

/// Bytes of a region.
pub(crate) const REGION_BYTES: usize = 4096;

/// A node.
#[derive(Debug)]
pub(crate) struct Node {
    /// What its clock showed at first, and how many of its nanoseconds a thousand take.
    clock: (u64, u64),
    pub(crate) lives: u64,
    pub(crate) life: Option<Life>,
    pub(crate) paused_until: u64,
    /// What a copy of its disk has, of some moment.
    pub(crate) snapshot: Option<(Kept, Vec<u8>)>,
}

/// A node from its start to its death.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) id: ReplicaId,
    pub(crate) replica: Replica<Region>,
    _local: Local,
}

impl Life {
    pub(crate) fn new(
        id: ReplicaId,
        options: Options,
        start: Start,
        content: Option<&[u8]>,
        clock: Duration,
    ) -> Self {
        let local = Local::memory(REGION_BYTES as u64, 1).unwrap();
        let mut region = Region::new(&local).unwrap();
        let content = content.map_or_else(
            || {
                // Memory that nobody has cleared.
                let mut random = Random(id);
                let is_used = !matches!(start, Start::Founding(_));
                (0..REGION_BYTES).map(|_| if is_used { random.next() as u8 } else { 0 }).collect()
            },
            <[u8]>::to_vec,
        );
        assert!(region.store(0, &content));
        Self { id, replica: Replica::new(id, options, region, start, clock), _local: local }
    }

    /// Returns what it leaves.
    pub(crate) fn kept(&self) -> Option<(Kept, Vec<u8>)> {
        let mut content = vec![0; REGION_BYTES];
        self.replica.memory().copy(0, &mut content);
        self.replica.kept().map(|kept| (kept, content))
    }
}

impl Node {
    pub(crate) fn new(clock: (u64, u64)) -> Self {
        Self { clock, lives: 0, life: None, paused_until: 0, snapshot: None }
    }

    /// What its clock shows.
    pub(crate) fn clock(&self, now: u64) -> Duration {
        Duration::from_nanos(self.clock.0 + now / 1000 * self.clock.1)
    }

    pub(crate) fn replica(&mut self, act: impl FnOnce(&mut Replica<Region>)) {
        if let Some(life) = &mut self.life {
            act(&mut life.replica);
        }
    }
}
