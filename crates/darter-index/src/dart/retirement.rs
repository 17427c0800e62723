//! The steps between the unlinking of a node and the reuse of its memory (rule R3).
//!
//! The pool awaits the graces; this file does the work between the first and the second: it scrubs
//! a node's express entries and takes a replaced express skip table apart. The information that
//! this needs is kept with the retired object as a note, so that another client of the process can
//! do the work after the retiring client is gone.
//!
//! A process also caches nodes in its own memory (`hints.rs`), and forgets those that a log in the
//! root names (`retired_log.rs`, which contains the argument). A node's entry in the log is written
//! after its first grace, before its second.
//! grace, before its second.

use super::Dart;
use super::est::scrub::{Retired, scrub, scrub_everywhere, segments};
use super::est::table::{DESCRIPTOR_BYTES, Table};
use super::hints::HintHash;
use super::operation::Operation;
use super::retired_log::{LogWrites, write_log};
use super::situations;
use crate::Result;
use crate::checker::note;
use darter_fabric::{Fabric, GlobalAddr, OpKind};
use darter_pool::{AllocKind, Client, Unlinked};
use std::collections::HashSet;
use std::sync::Arc;

const NOTE_NODE: u8 = 0;
const NOTE_TABLE: u8 = 1;
const NOTE_NAMELESS: u8 = 2;

/// Bit of the "next table" root word, set when its table is about to become current.
pub(super) const COMMITTED: u64 = 1 << 63;

/// The note of a retired node: its prefix.
pub(super) fn node_note(prefix: &[u8]) -> Box<[u8]> {
    std::iter::once(NOTE_NODE).chain(prefix.iter().copied()).collect()
}

/// The note of a retired node whose prefix is unknown: its identity. Its entries are searched for
/// in the whole table.
pub(super) fn nameless_note(identity: u64) -> Box<[u8]> {
    std::iter::once(NOTE_NAMELESS).chain(identity.to_le_bytes()).collect()
}

/// The note of a replaced table's descriptor.
pub(super) fn table_note() -> Box<[u8]> {
    Box::new([NOTE_TABLE])
}

impl<F: Fabric> Dart<F> {
    /// Scrubs and passes on the objects whose first grace has ended. Cheap if there are none.
    ///
    /// # Errors
    /// Those of the fabric. Objects that were not scrubbed or taken apart wait for another first
    /// grace.
    pub(super) async fn scrub_graced(&self, client: &mut Client<F>) -> Result<()> {
        // Taken before the pin, so that everything that this operation reads is read after the
        // first grace of the objects taken.
        let mut graced = client.take_graced();
        if graced.is_empty() {
            return Ok(());
        }
        let scrubbed = self.scrub_taken(client, &mut graced).await;
        for object in graced {
            client.put_back(object);
        }
        scrubbed
    }

    /// Removes from `graced` the objects that it has passed on.
    async fn scrub_taken(&self, client: &mut Client<F>, graced: &mut Vec<Unlinked>) -> Result<()> {
        let mut operation = Operation::begin(&self.shared, client, OpKind::Maintain).await?;
        let is_table = |object: &Unlinked| object.note.first() == Some(&NOTE_TABLE);
        graced.sort_by_key(is_table);
        let nodes = graced.partition_point(|object| !is_table(object));
        operation.scrub_nodes(&graced[..nodes]).await?;
        for object in graced.drain(..nodes) {
            operation.client.retire(object.addr, object.bytes, object.kind);
        }
        while let Some(table) = graced.last() {
            operation.take_apart(table.addr).await?;
            graced.pop();
        }
        Ok(())
    }
}

impl<F: Fabric> Operation<'_, F> {
    async fn scrub_nodes(&mut self, nodes: &[Unlinked]) -> Result<()> {
        if nodes.is_empty() {
            return Ok(());
        }
        let (named, nameless): (Vec<&Unlinked>, Vec<&Unlinked>) =
            nodes.iter().partition(|object| object.note.first() == Some(&NOTE_NODE));
        let writes = self.reserve_log(&self.hint_hashes(nodes)).await?;
        let retired: Vec<Retired> = named
            .iter()
            .map(|object| Retired { addr: object.addr, prefix: object.note[1..].to_vec() })
            .collect();
        let nameless: HashSet<GlobalAddr> = nameless.iter().map(|object| object.addr).collect();
        let (tables, _) = self.live_tables(&writes).await?;
        if !nameless.is_empty() {
            note(situations::SCRUB_NAMELESS);
        }
        if tables.len() > 1 {
            note(situations::SCRUB_BESIDE_BUILD);
        }
        for (at, table) in tables.into_iter().enumerate() {
            if scrub(&mut self.client, self.shared.express(&table), &retired).await? {
                note(if at == 0 { situations::SCRUB_CLEARED } else { situations::SCRUB_CLEARED_BUILD });
            }
            if !nameless.is_empty() {
                let is_nameless = |addr| nameless.contains(&addr);
                scrub_everywhere(&mut self.client, self.shared.express(&table), is_nameless).await?;
            }
        }
        Ok(())
    }

    /// The hashes under which these nodes are cached.
    fn hint_hashes(&self, nodes: &[Unlinked]) -> Vec<HintHash> {
        let hash = |note: &[u8]| match note {
            [NOTE_NAMELESS, identity @ ..] => {
                let identity = identity.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
                self.shared.keys.express_of(identity)
            }
            note => {
                let prefix = note.get(1..).unwrap_or_default();
                self.shared.hashed(prefix).express(prefix.len())
            }
        };
        nodes.iter().map(|object| HintHash::new(hash(&object.note))).collect()
    }

    /// Every table from which an operation could take a hint in a later epoch: the current one, and
    /// one that is being built. Also returns the word "next" at the moment at which the current
    /// table was read, if the word did not change around that read. Writes to the log of retired
    /// nodes in the same batch.
    pub(super) async fn live_tables(&mut self, log: &LogWrites) -> Result<(Vec<Arc<Table>>, Option<u64>)> {
        let words = &self.shared.words;
        let mut batch = self.client.batch();
        write_log(&mut batch, log);
        // The order matters: a table that becomes current between the two reads is seen by the
        // second.
        let next = batch.read(words.est_next, 1);
        let current = batch.read(words.est, 1);
        let again = batch.read(words.est_next, 1);
        let version = batch.read(words.version, 1);
        let done = self.client.submit(batch).await?;
        let next_word = done.words(next)[0];
        let is_steady = done.words(again)[0] == next_word;
        let next = GlobalAddr::from_bits(next_word & !COMMITTED);
        let current = GlobalAddr::from_bits(done.words(current)[0]);
        let version = done.words(version)[0];
        self.client.recycle(done);
        let known = arc_swap::Guard::into_inner(self.shared.table());
        let mut tables = Vec::with_capacity(2);
        // A directory read in an earlier epoch may name segments that have been freed since.
        tables.push(if known.descriptor == current && known.is_fresh(self.client.epoch()) {
            known
        } else {
            Arc::new(Table::load(&mut self.client, current, version).await?)
        });
        if !next.is_null() && next != current {
            tables.push(Arc::new(Table::load(&mut self.client, next, version).await?));
        }
        Ok((tables, is_steady.then_some(next_word)))
    }

    /// Retires all of a table that is no longer in use. On an error, retires nothing.
    async fn take_apart(&mut self, descriptor: GlobalAddr) -> Result<()> {
        let table = Table::load(&mut self.client, descriptor, 0).await?;
        note(situations::TABLE_RETIRED);
        for entry in segments(&mut self.client, &table).await? {
            self.client.retire(entry.segment(), table.segment.bytes(), AllocKind::Inner);
        }
        self.client.retire(table.directory_addr, 8 << table.bits, AllocKind::Inner);
        self.client.retire(descriptor, DESCRIPTOR_BYTES, AllocKind::Inner);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::DartOptions;
    use super::super::node::Slot;
    use super::super::node::{self, NodeType};
    use super::*;
    use crate::radix::leaf;
    use crate::{Condition, OrderedIndex};
    use darter_fabric::decorate::{FailPoint, Failing};
    use darter_fabric::{Local, block_on};
    use darter_pool::{Pool, PoolOptions};

    /// Rounds of upkeep after which every unlinked object is free.
    const ROUNDS: usize = 20;
    /// Maximum number of allocations before freed memory is reused.
    const ALLOCATIONS: usize = 10_000;

    /// If any batch of a scrub fails, the next scrub still finds every node that it must scrub.
    #[test]
    fn a_scrub_that_fails_anywhere_loses_no_node() {
        block_on(async {
            for fail_at in 0.. {
                let fabric = Failing::new(Local::memory(16 << 20, 1).unwrap());
                let pool = Pool::create(fabric.clone(), &PoolOptions::default()).await.unwrap();
                let mut client = pool.client().unwrap();
                let dart = Dart::open_or_create(&mut client, DartOptions::default()).await.unwrap();
                for key in [&b"stem1234a"[..], b"stem1234b", b"else"] {
                    dart.put(&mut client, key, b"value", Condition::Always).await.unwrap();
                }
                assert!(dart.delete(&mut client, b"stem1234b").await.unwrap());
                for _ in 0..ROUNDS {
                    pool.maintain(&mut client).await.unwrap();
                }
                fabric.plan().fail_once(FailPoint::Submit(fail_at));
                let scrubbed = dart.scrub_graced(&mut client).await;
                let has_failed = fabric.plan().has_failed();
                fabric.plan().heal();
                for _ in 0..ROUNDS {
                    pool.maintain(&mut client).await.unwrap();
                }
                assert_eq!(scrubbed.is_err(), has_failed);
                assert_eq!(client.take_graced().len(), usize::from(has_failed), "batch {fail_at}");
                if !has_failed {
                    assert!(fail_at > 2, "the view, the count of retired nodes, the log and the segments");
                    return;
                }
            }
        });
    }

    /// A process that has cached a node is idle while another removes the node and reuses its
    /// memory for a plausible impostor: a copy that never became reachable, with a leaf that must
    /// not be seen.
    #[test]
    fn what_is_remembered_of_a_node_ends_before_its_memory_is_used_again() {
        block_on(async {
            let fabric = Local::memory(16 << 20, 1).unwrap();
            let here = Pool::create(fabric.clone(), &PoolOptions::default()).await.unwrap();
            let there = Pool::open(fabric).await.unwrap();
            let (mut client, mut other) = (here.client().unwrap(), there.client().unwrap());
            let dart = Dart::open_or_create(&mut client, DartOptions::default()).await.unwrap();
            let others = Dart::open(&mut other, DartOptions::default()).await.unwrap();
            let keys = [&b"stem1234a"[..], b"stem1234b", b"else"];
            for key in keys {
                dart.put(&mut client, key, b"true", Condition::Always).await.unwrap();
            }

            assert_eq!(others.get(&mut other, keys[0]).await.unwrap().unwrap(), b"true");
            let mut hashed = others.shared.hashed(keys[0]);
            let hash = hashed.express(8);
            let (node, ty) = others.shared.hints.remembered(hash, 0).expect("a node that a search found");

            assert!(dart.delete(&mut client, keys[1]).await.unwrap());
            for _ in 0..ROUNDS {
                here.maintain(&mut client).await.unwrap();
                dart.maintain(&mut client).await.unwrap();
                there.maintain(&mut other).await.unwrap();
            }
            here.settle(&mut client).await.unwrap();
            let mut addr = GlobalAddr::NULL;
            for _ in 0..ALLOCATIONS {
                addr = client.alloc(0, ty.bytes(), AllocKind::Inner).await.unwrap();
                if addr == node {
                    break;
                }
            }
            assert_eq!(addr, node, "the node's memory is used again");
            let image = leaf::image(keys[0], b"false");
            let class = leaf::leaf_class(keys[0].len(), 5).unwrap();
            let false_leaf = client.alloc(0, 64, AllocKind::Leaf).await.unwrap();
            let slot = Slot::leaf(hashed.edge(8), class, false_leaf);
            let mut batch = client.batch();
            batch.write(addr, &node::image(NodeType::N4, hashed.identity(8), &[slot]));
            batch.write(false_leaf, &image);
            let done = client.submit(batch).await.unwrap();
            client.recycle(done);

            assert_eq!(
                others.shared.hints.remembered(hash, 0),
                Some((node, ty)),
                "it was not overwritten by chance"
            );
            assert_eq!(others.get(&mut other, keys[0]).await.unwrap().unwrap(), b"true");
            assert_eq!(others.shared.hints.remembered(hash, 0), None);
            assert_eq!(others.shared.log.era(), 0, "nothing else was forgotten");
        });
    }
}
