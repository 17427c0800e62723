//! The log of retired nodes, from which processes learn which cached nodes to forget (`hints.rs`).
//!
//! The root words hold a ring of the nodes that were retired last, by any process, and a count of
//! all retired nodes. A node's *position* is the count before it. The client that retires nodes
//! reserves their positions by one FAA of the count and then writes their entries. Both happen
//! after the nodes' first grace, and the second grace begins once the entries are written
//! (`retirement.rs`).
//!
//! ```text
//! root words   5         8        9                63
//!        +----------+---------+---------+-- ... --+----------+
//!        |  count   | entry 0 | entry 1 |         | entry 55 |
//!        +----------+---------+---------+-- ... --+----------+
//!
//!         63            44 43                                0
//! entry  +----------------+-----------------------------------+
//!        |     lap 20     |  the upper 44 bits of the hash    |     lap = position / 56 + 1
//!        +----------------+-----------------------------------+
//! ```
//!
//! A process reads the count together with its view of the index, once an epoch, and then the
//! entries that it has not read yet. It forgets the nodes cached under their hashes before any
//! operation uses that view. If the log does not say which nodes were retired, the process forgets
//! all: when more entries were added at once than the ring holds, when a sweep frees what dead
//! clients had unlinked, or when an entry belongs to another lap. Such an entry may be about to be
//! written, so the log is first read once more; otherwise its writer died, or a late write has
//! overwritten a newer entry.
//!
//! A process forgets the nodes that it retires itself without the log. It need not read their
//! positions, so it never misses one, however many there are.
//!
//! *Why no operation starts at a freed node.* Let an operation pinned at *p* find a node in the
//! cache. The operation that cached the node had found it in the tree while pinned. So the node's
//! first grace ended after that, and its entry was written later still. In every process,
//! therefore, the node is cached before it is forgotten, and a forgotten node stays forgotten. The
//! operation uses a reading of the log that was begun at *p* or later (rule R4). If the node's
//! entry had been written by then, the node was forgotten before the operation probed the cache. If
//! not, the node's stamp, which is read after the entry was written, is *p* or later, and the node
//! is not freed as long as *p* is pinned.
//!
//! *Sweeps.* No process awaits a first grace for nodes that a dead client had unlinked, so an
//! operation that found such a node may cache it after the process has forgotten all. Therefore a
//! process counts its *eras*: an era ends whenever all is forgotten, and a node is cached for the
//! era in which the operation that found it began. That operation began before the sweep, and the
//! era ends after it.

use super::hints::HintHash;
use super::log_reader::LOG_WORDS;
use super::operation::Operation;
use super::shared::Shared;
use super::situations;
use crate::Result;
use crate::checker::note;
use darter_fabric::{Batch, Fabric, GlobalAddr};
use darter_pool::Pinned;
use smallvec::SmallVec;
use std::ops::Range;

const LAP_SHIFT: u32 = 44;
const LAP_MASK: u64 = (1 << 20) - 1;
/// Words to be written to the log.
pub(super) type LogWrites = SmallVec<[(GlobalAddr, Vec<u64>); 2]>;

/// The entry of a position.
fn entry(position: u64, hash: HintHash) -> u64 {
    lap(position) << LAP_SHIFT | hash.bits()
}

fn lap(position: u64) -> u64 {
    (position / LOG_WORDS as u64 + 1) & LAP_MASK
}

/// The hash in the entry of a position; `None` if the word belongs to another position.
fn retired_at(position: u64, word: u64) -> Option<HintHash> {
    let is_its_own = word >> LAP_SHIFT == lap(position);
    is_its_own.then_some(HintHash::from_bits(word))
}

/// Splits a range of at most a ring's positions into parts that are contiguous in the ring.
fn spans(positions: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let turn = positions.start.next_multiple_of(LOG_WORDS as u64).clamp(positions.start, positions.end);
    [positions.start..turn, turn..positions.end].into_iter().filter(|part| !part.is_empty())
}

impl Shared {
    fn log_addr(&self, position: u64) -> GlobalAddr {
        self.words.log.plus(position % LOG_WORDS as u64 * 8)
    }

    /// Forgets the nodes that the log names up to `count`, which the caller has read in its pin's
    /// epoch.
    ///
    /// # Errors
    /// Those of the fabric; the process has then not followed the log.
    #[inline]
    pub(super) async fn follow_log<F: Fabric>(&self, client: &mut Pinned<'_, F>, count: u64) -> Result<()> {
        let positions = self.log.unread(count);
        if positions.is_empty() {
            return Ok(());
        }
        if !self.read_log(client, positions.clone()).await? {
            note(situations::LOG_ENTRY_AWAITED);
            if !self.read_log(client, positions).await? {
                note(situations::LOG_ENTRY_MISSED);
                self.log.forget_all(count);
            }
        }
        self.log.follow_to(count);
        Ok(())
    }

    /// Forgets the nodes at these positions. Returns whether all entries were present.
    async fn read_log<F: Fabric>(&self, client: &mut Pinned<'_, F>, positions: Range<u64>) -> Result<bool> {
        let mut batch = client.batch();
        let reads: SmallVec<[_; 2]> = spans(positions)
            .map(|part| (batch.read(self.log_addr(part.start), (part.end - part.start) as usize), part))
            .collect();
        let done = client.submit(batch).await?;
        let mut are_all_there = true;
        for (read, part) in reads {
            for (position, &word) in part.zip(done.words(read)) {
                match retired_at(position, word) {
                    Some(hash) => {
                        note(situations::LOG_FOLLOWED);
                        self.hints.forget(hash);
                    }
                    None => are_all_there = false,
                }
            }
        }
        client.recycle(done);
        Ok(are_all_there)
    }
}

impl<F: Fabric> Operation<'_, F> {
    /// Reserves positions in the log for nodes that have passed their first grace, and forgets them
    /// in this process. Returns the words that must be written before the nodes are retired.
    pub(super) async fn reserve_log(&mut self, hashes: &[HintHash]) -> Result<LogWrites> {
        for &hash in hashes {
            self.shared.hints.forget(hash);
        }
        let count = hashes.len() as u64;
        let start = self.count_retired(count).await?;
        self.shared.log.note_own(start..start + count);
        if count > LOG_WORDS as u64 {
            // No other process can follow the log.
            return Ok(LogWrites::new());
        }
        let at = |position: u64| entry(position, hashes[(position - start) as usize]);
        let words = |part: Range<u64>| (self.shared.log_addr(part.start), part.map(at).collect());
        Ok(spans(start..start + count).map(words).collect())
    }

    /// Announces that any node may be about to be freed: all processes, including this one, forget
    /// all.
    pub(super) async fn end_eras(&mut self) -> Result<()> {
        self.count_retired(LOG_WORDS as u64 + 1).await?;
        Ok(())
    }

    async fn count_retired(&mut self, nodes: u64) -> Result<u64> {
        let mut batch = self.client.batch();
        let before = batch.faa(self.shared.words.retired, nodes);
        let done = self.client.submit(batch).await?;
        let before = done.fetched(before);
        self.client.recycle(done);
        Ok(before)
    }
}

/// Posts the words to be written to the log.
pub(super) fn write_log(batch: &mut Batch, writes: &LogWrites) {
    for (addr, words) in writes {
        batch.write(*addr, words);
    }
}

#[cfg(test)]
mod tests {
    use super::super::interleavings::options;
    use super::super::log_reader::LogReader;
    use super::super::{Dart, DartOptions};
    use super::*;
    use crate::fixtures::{self, Unscheduled, alone, finish, go_on, touches};
    use crate::{Condition, OrderedIndex};
    use darter_fabric::{Local, OpKind, block_on};
    use darter_pool::{Client, Pool, PoolOptions};
    use darter_sim::Executor;

    #[test]
    fn a_range_is_written_in_the_parts_that_lie_side_by_side() {
        let parts = |positions| spans(positions).map(|part| (part.start, part.end)).collect::<Vec<_>>();
        assert_eq!(parts(0..56), [(0, 56)]);
        assert_eq!(parts(56..60), [(56, 60)]);
        assert_eq!(parts(50..56), [(50, 56)]);
        assert_eq!(parts(50..60), [(50, 56), (56, 60)]);
        assert_eq!(parts(50..106), [(50, 56), (56, 106)]);
        assert_eq!(parts(9..9), []);
    }

    #[test]
    fn an_entry_is_of_one_position() {
        let hash = HintHash::from_bits(0x0fed_cba9_8765);
        for position in [0, 55, 56, 1 << 40] {
            assert_eq!(retired_at(position, entry(position, hash)), Some(hash));
            assert_eq!(retired_at(position + 56, entry(position, hash)), None, "not written yet");
            assert_eq!(retired_at(position, entry(position + 56, hash)), None, "written over");
        }
        assert_eq!(retired_at(3, 0), None, "never written");
    }

    #[test]
    fn own_positions_are_not_read() {
        let log = LogReader::new(10);
        log.note_own(12..15);
        assert_eq!(log.unread(15), 10..15, "others have retired nodes before");
        log.note_own(10..12);
        assert!(log.unread(15).is_empty());
        log.note_own(15..1000);
        assert!(log.unread(1000).is_empty(), "however many");
        assert_eq!(log.unread(1003), 1000..1003);
        assert_eq!(log.era(), 0);
        log.follow_to(1003);
        assert!(log.unread(1060).is_empty(), "a ring's entries and one more");
        assert_eq!(log.era(), 1);
        assert!(log.unread(1060).is_empty());
        assert_eq!(log.era(), 1);
        assert_eq!(log.unread(1116), 1060..1116);
        assert!(log.unread(900).is_empty(), "read late");
    }

    /// Two processes of one pool with 100 nodes, all of which both have cached.
    async fn two_processes(fabric: &Local) -> [(Pool<Local>, Client<Local>, Dart<Local>); 2] {
        let here = Pool::create(fabric.clone(), &PoolOptions::default()).await.unwrap();
        let there = Pool::open(fabric.clone()).await.unwrap();
        let (mut client, mut other) = (here.client().unwrap(), there.client().unwrap());
        let dart = Dart::open_or_create(&mut client, DartOptions::default()).await.unwrap();
        for stem in 0..NODES {
            for end in [b'a', b'b'] {
                dart.put(&mut client, &key(stem, end), b"value", Condition::Always).await.unwrap();
            }
        }
        pass_graces(&here, &there, (&mut client, &dart), &mut other).await;
        let others = Dart::open(&mut other, DartOptions::default()).await.unwrap();
        for stem in 0..NODES {
            assert!(dart.get(&mut client, &key(stem, b'a')).await.unwrap().is_some());
            assert!(others.get(&mut other, &key(stem, b'a')).await.unwrap().is_some());
        }
        [(here, client, dart), (there, other, others)]
    }

    const NODES: u8 = 100;

    fn key(stem: u8, end: u8) -> [u8; 6] {
        [stem, b's', b't', b'e', b'm', end]
    }

    /// Waits until everything that one process has unlinked is free.
    async fn pass_graces(
        here: &Pool<Local>,
        there: &Pool<Local>,
        (client, dart): (&mut Client<Local>, &Dart<Local>),
        other: &mut Client<Local>,
    ) {
        for _ in 0..20 {
            here.maintain(client).await.unwrap();
            dart.maintain(client).await.unwrap();
            there.maintain(other).await.unwrap();
        }
    }

    fn remembers(dart: &Dart<Local>, stem: u8) -> bool {
        let hash = dart.shared.hashed(&key(stem, b'a')).express(5);
        dart.shared.hints.remembered(hash, dart.shared.log.era()).is_some()
    }

    /// One process is idle while the other retires this many nodes. Both forget these, and any
    /// others that the log requires.
    fn others_retire(nodes: u8) {
        block_on(async {
            let fabric = Local::memory(64 << 20, 1).unwrap();
            let [(here, mut client, dart), (there, mut other, others)] = two_processes(&fabric).await;
            // No more at a time than the log holds, so that there is an entry for each.
            for first in (0..nodes).step_by(LOG_WORDS / 2) {
                for stem in first..nodes.min(first + LOG_WORDS as u8 / 2) {
                    assert!(dart.delete(&mut client, &key(stem, b'b')).await.unwrap());
                }
                pass_graces(&here, &there, (&mut client, &dart), &mut other).await;
            }
            assert!(others.get(&mut other, b"else").await.unwrap().is_none());
            let is_lapped = usize::from(nodes) > LOG_WORDS;
            for stem in 0..NODES {
                assert_eq!(remembers(&dart, stem), stem >= nodes, "{stem} in the retiring process");
                assert_eq!(
                    remembers(&others, stem),
                    stem >= nodes && !is_lapped,
                    "{stem} of {nodes} in the idle process"
                );
            }
            assert_eq!((dart.shared.log.era(), others.shared.log.era()), (0, u64::from(is_lapped)));
            for stem in 0..NODES {
                assert!(others.get(&mut other, &key(stem, b'a')).await.unwrap().is_some());
            }
        });
    }

    #[test]
    fn only_the_nodes_that_others_retired_are_forgotten() {
        others_retire(7);
    }

    #[test]
    fn more_nodes_than_the_log_holds_are_not_missed() {
        others_retire(70);
    }

    /// Reserves a position for the node of this prefix, then either writes its entry or dies before
    /// that.
    async fn reserve<F: Fabric>(dart: &Dart<F>, client: &mut Client<F>, prefix: &[u8], is_written: bool) {
        // Pinned without reading the log.
        let mut operation = Operation::pin(&dart.shared, client, OpKind::Maintain).await.unwrap();
        let hash = HintHash::new(dart.shared.hashed(prefix).express(prefix.len()));
        let writes = operation.reserve_log(&[hash]).await.unwrap();
        if is_written {
            operation.client.post(|batch| write_log(batch, &writes)).await.unwrap();
        }
    }

    async fn refresh(dart: &Dart<Local>, client: &mut Client<Local>) {
        let mut pinned = client.pin(OpKind::Maintain).await.unwrap();
        dart.shared.refresh(&mut pinned).await.unwrap();
    }

    /// Two processes retire a node each, before either reads the other's entry.
    #[test]
    fn what_others_retired_before_own_nodes_is_forgotten() {
        block_on(async {
            let fabric = Local::memory(64 << 20, 1).unwrap();
            let [(_here, mut client, dart), (_there, mut other, others)] = two_processes(&fabric).await;
            reserve(&dart, &mut client, &key(1, b'a')[..5], true).await;
            reserve(&others, &mut other, &key(2, b'a')[..5], true).await;
            assert!(!remembers(&dart, 1) && !remembers(&others, 2), "their own at once");
            assert!(remembers(&dart, 2) && remembers(&others, 1), "not read yet");
            refresh(&dart, &mut client).await;
            refresh(&others, &mut other).await;
            for dart in [&dart, &others] {
                assert!(!remembers(dart, 1) && !remembers(dart, 2) && remembers(dart, 3));
                assert_eq!(dart.shared.log.era(), 0);
            }
        });
    }

    /// The client that reserved a position dies before it writes the entry.
    #[test]
    fn an_entry_that_is_never_written_ends_the_era() {
        block_on(async {
            let fabric = Local::memory(64 << 20, 1).unwrap();
            let [(_here, mut client, dart), (_there, mut other, others)] = two_processes(&fabric).await;
            reserve(&dart, &mut client, &key(1, b'a')[..5], false).await;
            refresh(&others, &mut other).await;
            assert!((0..NODES).all(|stem| !remembers(&others, stem)));
            assert_eq!((dart.shared.log.era(), others.shared.log.era()), (0, 1));
            assert!(others.get(&mut other, &key(1, b'a')).await.unwrap().is_some());
            reserve(&dart, &mut client, &key(2, b'a')[..5], true).await;
            refresh(&others, &mut other).await;
            assert!(remembers(&others, 1), "the lost entry counts once");
            assert_eq!(others.shared.log.era(), 1);
        });
    }

    /// A client is stopped after it has read how many nodes were retired, but not which. Another
    /// client of its process begins in the same epoch.
    #[test]
    fn view_is_not_used_before_the_log_is_followed() {
        const KEYS: [&[u8]; 3] = [b"stem1234a", b"stem1234b", b"else"];
        let (pool, dart) = fixtures::process::<Dart<_>>(options(), &KEYS);
        let _at_the_end = Unscheduled(pool.fabric().clone());
        let (mut slow, mut quick) = (pool.client().unwrap(), pool.client().unwrap());
        let reader = block_on(Dart::open(&mut slow, options())).unwrap();
        let is_remembered = || {
            let hash = reader.shared.hashed(KEYS[0]).express(8);
            reader.shared.hints.remembered(hash, 0).is_some()
        };
        let position = block_on(async {
            assert!(reader.get(&mut slow, KEYS[0]).await.unwrap().is_some());
            let [position] = quick.read_words(dart.shared.words.retired).await.unwrap();
            reserve(&dart, &mut quick, &KEYS[0][..8], true).await;
            // Gives the pool something to free, so that the epoch advances and views have to be
            // read anew.
            assert!(dart.delete(&mut quick, KEYS[2]).await.unwrap());
            pool.maintain(&mut quick).await.unwrap();
            pool.maintain(&mut quick).await.unwrap();
            position
        });
        assert!(is_remembered());
        let mut executor = Executor::new(pool.fabric());
        let held = executor.spawn(0, async {
            assert!(reader.get(&mut slow, KEYS[0]).await.unwrap().is_some());
        });
        // The entry has been read, and its value is on its way back.
        let entry = reader.shared.log_addr(position);
        go_on(&mut executor, held, |event| touches(event, entry, false));
        assert!(!executor.has_ended(held) && is_remembered());
        alone(&pool, async {
            Operation::begin(&reader.shared, &mut quick, OpKind::Maintain).await.unwrap();
            assert!(!is_remembered(), "it begins at a node that the log names");
        });
        finish(&mut executor, held);
    }
}
