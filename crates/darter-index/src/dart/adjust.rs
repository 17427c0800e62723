//! Run-time adjustment of the prefix list (paper, section 3.1), and the change from one express
//! skip table to the next.
//!
//! A list never changes in place; a new list is a new table. While the new table is filled, the
//! root word "next" names it, so that every client that scrubs a retired node scrubs both tables.
//! The builder enters only nodes that it finds in the tree while pinned and after "next" was set,
//! so no node that was scrubbed before can be entered (rule R3).
//!
//! ```text
//!   EST word     next word          who may do the step
//!   old          0
//!   old          new                the builder, by CAS from 0 (or from a table whose builder has died)
//!   old          new | committed    the builder, by CAS: fails when it has been taken over
//!   new          new | committed    anyone
//!   new          0                  anyone; then the version word is bumped and the old table retired
//! ```
//!
//! A client that changes the EST word has been pinned since before it read the word. So the table
//! that it replaces cannot be freed in between, nor can another table be built in its memory, and
//! the CAS cannot take another change for this one. A builder therefore reads the word under the
//! pin under which it commits: the word cannot change in between, because only the table that
//! "next" names can replace the current one. A helper reads "next" before and after the EST word,
//! and helps only if both reads agree: otherwise the change that "next" named may be over, and the
//! table found current a later one. And "next" is cleared only by clients that have seen the EST
//! word name the new table: a client that is late, and compares the word with a table that was
//! replaced long ago, must not disturb a change that another client has committed since.
//!
//! Operations that began with the old table continue with it, including its list; it is taken apart
//! after they have ended.

use super::Dart;
use super::descend_any::keys_below;
use super::est::install::{PendingEntry, install, pending_for};
use super::est::table::{DESCRIPTOR_BYTES, SegmentSize, Table};
use super::leaf;
use super::operation::Operation;
use super::retired_log::LogWrites;
use super::retirement::{COMMITTED, table_note};
use super::situations;
use crate::Result;
use crate::checker::note;
use crate::radix::choose::Summary;
use crate::radix::prefix_list::{AdjustReport, PrefixList};
use darter_fabric::{Fabric, GlobalAddr, OpKind};
use darter_pool::{AllocKind, Client};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Leaf headers read for their frequency before sampling is reduced to every second, fourth, …
/// leaf.
const FREQUENCY_READS: u64 = 2 << 20;
/// Epochs after which a table that is still being built counts as abandoned.
const ABANDONED_EPOCHS: u64 = 10_000;
/// Maximum size of the express skip table after an adjustment, in percent of the inner nodes'
/// bytes.
const BUDGET_PERCENT: u64 = 40;

impl<F: Fabric> Dart<F> {
    /// Whether enough searches were sampled, and they read too many nodes below their hints, so
    /// that an adjustment is worthwhile.
    pub fn wants_adjust(&self) -> bool {
        let shared = &self.shared;
        if shared.table().list == PrefixList::NONE {
            return false;
        }
        shared.table().saturated.load(Ordering::Relaxed) || shared.sampling.wants_adjust()
    }

    /// Walks the tree, chooses the prefix list that saves the most round trips for the sampled
    /// accesses, and changes to it.
    ///
    /// # Errors
    /// Those of the fabric, and out of space; the old table then stays.
    pub async fn adjust(&self, client: &mut Client<F>) -> Result<AdjustReport> {
        let shared = &self.shared;
        shared.sampling.adjusted();
        let segment = shared.table().segment;
        self.adjust_by(client, |summary| {
            let budget = segment.entries_within(summary.node_bytes * BUDGET_PERCENT / 100).max(4096);
            summary.choose(budget, f64::from(shared.verb_percent) / 100.0)
        })
        .await
    }

    /// Changes to a prefix list of these lengths, in bytes. An empty list stands for the list of a
    /// new index.
    ///
    /// # Errors
    /// As [`Dart::adjust`].
    pub async fn adjust_to(&self, client: &mut Client<F>, lengths: &[u8]) -> Result<AdjustReport> {
        self.adjust_by(client, |_| PrefixList::new(lengths)).await
    }

    /// Walks the tree and changes to the list that `choose` returns for the walk's summary.
    async fn adjust_by(
        &self,
        client: &mut Client<F>,
        choose: impl FnOnce(&Summary) -> PrefixList + Send,
    ) -> Result<AdjustReport> {
        let (old, idle) = self.claim_rebuild(client).await?;
        let mut report =
            AdjustReport { before: old.list.bytes(), after: old.list.bytes(), entries: 0, rebuilt: false };
        let Some(replaces) = idle.filter(|_| old.list != PrefixList::NONE) else { return Ok(report) };
        let summary = self.summarize(client).await?;
        let list = match choose(&summary) {
            PrefixList::NONE => PrefixList::POWERS,
            list => list,
        };
        let entries = summary.entries(list);
        if list == old.list && !old.is_oversized(entries) && !old.saturated.load(Ordering::Relaxed) {
            return Ok(report);
        }
        if let Some(entries) = self.rebuild(client, replaces, (list, old.segment), entries).await? {
            report = AdjustReport { after: list.bytes(), entries, rebuilt: true, ..report };
        }
        Ok(report)
    }

    /// The current table, and the "next" word if it may be replaced: zero, or an abandoned table.
    async fn claim_rebuild(&self, client: &mut Client<F>) -> Result<(Arc<Table>, Option<u64>)> {
        let mut operation = Operation::pin(&self.shared, client, OpKind::Maintain).await?;
        self.shared.refresh(&mut operation.client).await?;
        let (tables, next) = operation.live_tables(&LogWrites::new()).await?;
        let Some(next) = next else { return Ok((tables[0].clone(), None)) };
        if next & COMMITTED != 0 {
            operation.finish_change(tables[0].descriptor, GlobalAddr::from_bits(next & !COMMITTED)).await?;
            return Ok((tables[0].clone(), None));
        }
        let idle = match tables.get(1) {
            Some(building) if operation.client.epoch() < building.born + ABANDONED_EPOCHS => None,
            _ => Some(next),
        };
        Ok((tables[0].clone(), idle))
    }

    /// The first walk: shapes, frequencies, nodes per length.
    async fn summarize(&self, client: &mut Client<F>) -> Result<Summary> {
        let mut summary = Summary::default();
        let mut from: Option<Vec<u8>> = None;
        let (mut read_so_far, mut stride) = (0_u64, 1_u64);
        loop {
            let mut operation = Operation::pin(&self.shared, client, OpKind::Maintain).await?;
            let (visited, next) = operation.walk_chunk(from.as_deref(), self.shared.walk_nodes).await?;
            let mut batch = operation.client.batch();
            let mut reads = Vec::new();
            for visit in visited.iter().filter(|visit| !visit.again) {
                summary.note_node(visit.above, visit.node.depth, visit.node.ty.bytes());
                summary.note_keys(visit.path, visit.leaves.len() as f64, 0.0);
                for slot in &visit.leaves {
                    if (slot.addr().offset() >> 4).wrapping_mul(0x9e37_79b9) >> 7 & (stride - 1) == 0 {
                        reads.push((visit.path, batch.read(slot.addr(), 1)));
                    }
                }
            }
            let done = operation.client.submit(batch).await?;
            read_so_far += reads.len() as u64;
            for (path, read) in reads {
                let accesses = leaf::frequency(done.words(read)[0]);
                if accesses > 0 {
                    summary.note_keys(path, 0.0, accesses as f64 * stride as f64);
                }
            }
            operation.client.recycle(done);
            if read_so_far > FREQUENCY_READS * u64::from(stride.ilog2() + 1) {
                stride *= 2;
            }
            match next {
                Some(key) => from = Some(key),
                None => return Ok(summary),
            }
        }
    }

    /// The second walk: fills a new table and changes to it. Returns `None` if another client took
    /// over.
    async fn rebuild(
        &self,
        client: &mut Client<F>,
        replaces: u64,
        (list, segment): (PrefixList, SegmentSize),
        entries: u64,
    ) -> Result<Option<u64>> {
        let words = self.shared.words;
        let mut pinned = client.pin(OpKind::Maintain).await?;
        let table = Table::create(&mut pinned, list, segment, entries).await?;
        let descriptor = table.descriptor;
        if !pinned.cas(words.est_next, replaces, descriptor.bits()).await?.swapped {
            pinned.unlink(descriptor, DESCRIPTOR_BYTES, AllocKind::Inner, table_note());
            return Ok(None);
        }
        drop(pinned);
        let filled = self.fill(client, &table).await;
        let mut operation = Operation::pin(&self.shared, client, OpKind::Maintain).await?;
        let [old] = operation.client.read_words(words.est).await?;
        let next = if filled.is_ok() { descriptor.bits() | COMMITTED } else { 0 };
        let won = operation.client.cas(words.est_next, descriptor.bits(), next).await?.swapped;
        if !won || filled.is_err() {
            operation.client.unlink(descriptor, DESCRIPTOR_BYTES, AllocKind::Inner, table_note());
            return filled.map(|_| None);
        }
        operation.finish_change(GlobalAddr::from_bits(old), descriptor).await?;
        self.shared.refresh(&mut operation.client).await?;
        filled.map(Some)
    }

    /// Enters every node that the table's list covers.
    async fn fill(&self, client: &mut Client<F>, table: &Table) -> Result<u64> {
        let mut from: Option<Vec<u8>> = None;
        let mut entries = 0;
        loop {
            let mut operation = Operation::pin(&self.shared, client, OpKind::Maintain).await?;
            // A table that counted as abandoned is no longer scrubbed: nodes that its entries name
            // may be freed after this pin.
            let [next] = operation.client.read_words(self.shared.words.est_next).await?;
            if next != table.descriptor.bits() {
                return Ok(entries);
            }
            let (visited, next) = operation.walk_chunk(from.as_deref(), self.shared.walk_nodes).await?;
            let covered: Vec<_> = visited
                .iter()
                .filter(|visit| !visit.again)
                .filter(|visit| table.list.covering(visit.above, visit.node.depth).next().is_some())
                .collect();
            for chunk in covered.chunks(256) {
                let nodes: Vec<_> = chunk.iter().map(|visit| visit.node).collect();
                let keys = keys_below(&mut operation.client, &nodes).await?;
                let mut pending: Vec<PendingEntry> = Vec::with_capacity(chunk.len());
                for (visit, key) in chunk.iter().zip(keys) {
                    let Some(key) = key.filter(|key| key.len() >= visit.node.depth) else { continue };
                    let (mut key, cover) = (self.shared.hashed(&key), (visit.above, visit.node.depth));
                    pending.extend(pending_for(table.list, &mut key, cover, visit.node, None));
                }
                entries += pending.len() as u64;
                install(&mut operation.client, self.shared.express(table), &pending, &[]).await?;
            }
            match next {
                Some(key) => from = Some(key),
                None => return Ok(entries),
            }
        }
    }
}

impl<F: Fabric> Operation<'_, F> {
    /// The last steps of a change, which any client may do. The client that swings the EST word
    /// retires the old table.
    async fn finish_change(&mut self, old: GlobalAddr, new: GlobalAddr) -> Result<()> {
        let words = self.shared.words;
        let found = GlobalAddr::from_bits(self.client.cas(words.est, old.bits(), new.bits()).await?.found);
        if old != new && found == old {
            self.client.post(|batch| _ = batch.faa(words.version, 1)).await?;
            note(situations::LIST_CHANGED);
            self.client.unlink(old, DESCRIPTOR_BYTES, AllocKind::Inner, table_note());
        } else if found == new && old != new {
            note(situations::LIST_CHANGE_HELPED);
        } else if found != new {
            note(situations::LIST_CHANGE_OVER);
            return Ok(());
        }
        self.client.cas(words.est_next, new.bits() | COMMITTED, 0).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::DartOptions;
    use super::*;
    use crate::fixtures::{Unscheduled, alone, go_on, pass_graces, touches};
    use crate::{Condition, OrderedIndex};
    use darter_fabric::block_on;
    use darter_pool::Pool;
    use darter_sim::{Executor, Sim};
    use std::cell::Cell;

    const KEYS: [&[u8]; 3] = [b"stem1234a", b"stem1234b", b"else"];

    /// One process on a simulated node, with a tree of a few keys.
    fn process() -> (Pool<Sim>, Dart<Sim>) {
        crate::fixtures::process(DartOptions::default(), &KEYS)
    }

    async fn current(dart: &Dart<Sim>, client: &mut Client<Sim>) -> GlobalAddr {
        let [word] = client.read_words(dart.shared.words.est).await.unwrap();
        GlobalAddr::from_bits(word)
    }

    /// A client reads the root words, and receives them after the table was changed, the epoch has
    /// advanced, and another client of its process has read them again.
    #[test]
    fn a_late_answer_does_not_bring_an_old_table_back() {
        let (pool, dart) = process();
        let _at_the_end = Unscheduled(pool.fabric().clone());
        let (mut slow, mut quick) = (pool.client().unwrap(), pool.client().unwrap());
        // Gives the pool something to free, so that the epoch advances and views have to be read
        // anew.
        block_on(async {
            assert!(dart.delete(&mut quick, KEYS[2]).await.unwrap());
            pool.maintain(&mut quick).await.unwrap();
            pool.maintain(&mut quick).await.unwrap();
        });
        let found = Cell::new(None);
        let mut executor = Executor::new(pool.fabric());
        let late = executor.spawn(0, async {
            found.set(Some(dart.get(&mut slow, KEYS[0]).await.unwrap()));
        });
        // The last of the words has been read.
        go_on(&mut executor, late, |event| touches(event, dart.shared.words.retired, false));
        let new = alone(&pool, async {
            assert!(dart.adjust_to(&mut quick, &[3, 7]).await.unwrap().rebuilt);
            pool.maintain(&mut quick).await.unwrap();
            pool.maintain(&mut quick).await.unwrap();
            assert!(dart.get(&mut quick, KEYS[0]).await.unwrap().is_some());
            current(&dart, &mut quick).await
        });
        assert_eq!(dart.shared.table().descriptor, new);
        go_on(&mut executor, late, |_| false);
        assert_eq!(found.take(), Some(Some(b"true".to_vec())));
        assert_eq!(dart.shared.table().descriptor, new, "a table long replaced was shared again");
    }

    /// A builder is stopped between its commit and its CAS of the EST word, while others finish its
    /// change and do all they can to free the table that it replaces, and to build another at the
    /// same address.
    #[test]
    fn a_late_builder_does_not_swing_the_table_back() {
        let (pool, dart) = process();
        let _at_the_end = Unscheduled(pool.fabric().clone());
        let (mut slow, mut quick) = (pool.client().unwrap(), pool.client().unwrap());
        let first = block_on(current(&dart, &mut quick));
        let mut executor = Executor::new(pool.fabric());
        let late = executor.spawn(0, async {
            dart.adjust_to(&mut slow, &[3, 7]).await.unwrap();
        });
        // The first CAS of the word names the new table; the second commits it.
        for _ in 0..2 {
            go_on(&mut executor, late, |event| touches(event, dart.shared.words.est_next, true));
        }
        let last = alone(&pool, async {
            dart.adjust(&mut quick).await.unwrap();
            assert_ne!(current(&dart, &mut quick).await, first, "the change was finished");
            for lists in [[&[2_u8, 5][..], &[1, 6]], [&[3, 9], &[2, 8]]] {
                for list in lists {
                    pass_graces(&pool, &dart, &mut quick).await;
                    dart.adjust_to(&mut quick, list).await.unwrap();
                    assert_ne!(current(&dart, &mut quick).await, first, "its memory is used again");
                }
            }
            current(&dart, &mut quick).await
        });
        go_on(&mut executor, late, |_| false);
        alone(&pool, async {
            assert_eq!(current(&dart, &mut quick).await, last);
            dart.put(&mut quick, b"stem1234c", b"true", Condition::Always).await.unwrap();
        });
        assert_eq!(pool.fabric().misuse(), None);
    }

    /// A helper reads that a table is about to become current, and then, late, which one is
    /// current: by then that change is over and another has begun.
    #[test]
    fn a_late_helper_leaves_the_next_change_alone() {
        let (pool, dart) = process();
        let _at_the_end = Unscheduled(pool.fabric().clone());
        let (mut first, mut helper) = (pool.client().unwrap(), pool.client().unwrap());
        let mut quick = pool.client().unwrap();
        let words = dart.shared.words;
        let mut executor = Executor::new(pool.fabric());
        let builder = executor.spawn(0, async {
            dart.adjust_to(&mut first, &[3, 7]).await.unwrap();
        });
        let late = executor.spawn(0, async {
            dart.adjust(&mut helper).await.unwrap();
        });
        for _ in 0..2 {
            go_on(&mut executor, builder, |event| touches(event, words.est_next, true));
        }
        go_on(&mut executor, late, |event| touches(event, words.est_next, false));
        go_on(&mut executor, builder, |_| false);
        let last = alone(&pool, async {
            assert!(dart.adjust_to(&mut quick, &[2, 5]).await.unwrap().rebuilt);
            current(&dart, &mut quick).await
        });
        go_on(&mut executor, late, |_| false);
        alone(&pool, async {
            assert_eq!(current(&dart, &mut quick).await, last, "a table long replaced is current again");
            assert_eq!(dart.get(&mut quick, KEYS[0]).await.unwrap(), Some(b"true".to_vec()));
        });
        assert_eq!(pool.fabric().misuse(), None);
    }
}
