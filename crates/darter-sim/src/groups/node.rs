//! A memory node of the simulated world: its clock and its lives.

use super::disk::Disk;
use super::random::Random;
use darter_fabric::Local;
use darter_group::{Memory, Options, Region, Replica, ReplicaId, Start};
use std::time::Duration;

/// Bytes of uncleared memory that are drawn byte by byte; the remainder is drawn word by word.
const BYTES_DRAWN: usize = 4096;

/// A node.
#[derive(Debug)]
pub(super) struct Node {
    /// The initial reading of its clock, and its nanoseconds per thousand nanoseconds of the world.
    clock: (u64, u64),
    pub(super) lives: u64,
    pub(super) life: Option<Life>,
    pub(super) paused_until: u64,
    /// Its disk, if replicas keep logs.
    pub(super) disk: Option<Disk>,
}

/// A node from its start to its death.
#[derive(Debug)]
pub struct Life {
    pub(super) id: ReplicaId,
    /// The replica.
    pub replica: Replica<Region>,
    _local: Local,
}

impl Life {
    /// Returns a life of a node with `bytes` bytes and this start. Its memory holds `content` or,
    /// if that is `None`, zeros if the node founds its group and arbitrary bytes otherwise.
    ///
    /// # Panics
    /// Panics if the memory cannot be allocated.
    pub fn new(
        id: ReplicaId,
        (options, bytes): (Options, usize),
        start: Start,
        content: Option<&[u8]>,
        clock: Duration,
    ) -> Self {
        let local = Local::memory(bytes as u64, 1).expect("memory for a replica");
        let mut region = Region::new(&local).expect("an endpoint of this process");
        let content = content.map_or_else(
            || if matches!(start, Start::Bootstrap(_)) { vec![0; bytes] } else { used(id, bytes) },
            <[u8]>::to_vec,
        );
        assert!(region.store(0, &content), "the content does not fit into the region");
        Self { id, replica: Replica::new(id, options, region, start, clock), _local: local }
    }

    /// Returns its memory.
    pub(super) fn content(&self) -> Vec<u8> {
        let mut content = vec![0; self.replica.memory().bytes() as usize];
        self.replica.memory().copy(0, &mut content);
        content
    }
}

/// Returns memory that was not cleared.
fn used(id: ReplicaId, bytes: usize) -> Vec<u8> {
    let mut random = Random::new(id);
    let mut content = vec![0; bytes];
    let (head, rest) = content.split_at_mut(bytes.min(BYTES_DRAWN));
    head.fill_with(|| random.draw() as u8);
    for word in rest.chunks_exact_mut(8) {
        word.copy_from_slice(&random.draw().to_le_bytes());
    }
    content
}

impl Node {
    pub(super) fn new(clock: (u64, u64)) -> Self {
        Self { clock, lives: 0, life: None, paused_until: 0, disk: None }
    }

    /// Returns the reading of its clock.
    pub(super) fn clock(&self, now: u64) -> Duration {
        Duration::from_nanos(self.clock.0 + now / 1000 * self.clock.1)
    }

    pub(super) fn replica(&mut self, act: impl FnOnce(&mut Replica<Region>)) {
        if let Some(life) = &mut self.life {
            act(&mut life.replica);
        }
    }
}
