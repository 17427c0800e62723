//! WORT, WOART and ART+CoW, measured as in their paper: on one thread, with keys in its three
//! distributions, inserted in random order. The cache lines that operations touch are counted.
//!
//! Counts are exact: `record_touches` of the trees reports the lines that an operation reads,
//! writes and flushes. [`LineCache`] determines which of them a cache would contain; the
//! resulting time is modelled ([`LineCounts::ns`]).

use super::figure::Scale;
use super::line_cache::LineCache;
use crate::index_target::{from_index, from_pool};
use darter::{ScanRange, block_on};
use darter_baselines::{Design, Line, Persistence, Touch, Wort, WortOptions};
use darter_bench::BenchError;
use darter_bench::permutation::{Permutation, derive_seed};
use darter_bench::progress::Progress;
use darter_bench::report::bytes_text;
use darter_fabric::{Local, SUPERBLOCK_BYTES};
use darter_index::{Condition, OrderedIndex};
use darter_pool::{Client, Pool, PoolOptions};
use std::collections::HashSet;
use std::ops::Bound;

/// Keys of the paper's trees, and the bytes of the cache that its machine has for them (section 4).
const PAPER_RECORDS: u64 = 128_000_000;
const PAPER_CACHE_BYTES: u64 = 15 << 20;
const LINE_BYTES: u64 = 64;
/// Consecutive keys of the clustered distribution.
const RUN: u64 = 64;

/// Bytes of a pool for each record, and in addition: for a tree, and for memory that waits to be
/// reclaimed.
const RECORD_ROOM: u64 = 1024;
const POOL_ROOM: u64 = 64 << 20;

/// Nanoseconds of a line in the cache: about 50 cycles of the paper's processor, at 2.4 GHz.
pub(super) const HIT_NS: f64 = 20.0;
/// Nanoseconds of an operation in addition to its lines: about 240 cycles for comparisons, two
/// fences and an allocation. An assumption. It is the same for all trees and keys, so it brings
/// ratios nearer to 1 and changes no order.
pub(super) const REST_NS: f64 = 100.0;

/// A measured operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// All keys, one after the other, into an empty tree.
    Insert,
    /// Searches for present keys, evenly distributed.
    Search,
    /// Scans of this many consecutive keys, from random places.
    Range(u64),
}

impl Operation {
    pub(super) fn name(self) -> String {
        match self {
            Self::Insert => "insert".to_owned(),
            Self::Search => "search".to_owned(),
            Self::Range(keys) => format!("range of {keys}"),
        }
    }
}

/// The paper's distributions of keys (section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keys {
    /// The integers from 1 on.
    Dense,
    /// Evenly over all 64 bits.
    Sparse,
    /// Runs of 64 integers, these evenly over all 64 bits.
    Clustered,
}

impl Keys {
    pub(super) const ALL: [Self; 3] = [Self::Dense, Self::Sparse, Self::Clustered];

    pub(super) const fn name(self) -> &'static str {
        ["dense", "sparse", "clustered"][self as usize]
    }

    /// Returns at most `count` keys, ascending: whole runs, in the clustered distribution.
    fn ascending(self, count: u64) -> Vec<u64> {
        match self {
            Self::Dense => (1..=count).collect(),
            Self::Sparse => (0..count).map(|nth| nth * (u64::MAX / count)).collect(),
            Self::Clustered => {
                let (runs, length) = ((count / RUN).max(1), RUN.min(count));
                let run = |number| (0..length).map(move |nth| number * (u64::MAX / runs) + nth);
                (0..runs).flat_map(run).collect()
            }
        }
    }
}

/// The trees, by their names among the variants.
pub(super) const DESIGNS: [(&str, Design); 3] =
    [("wort", Design::Wort), ("wort+woart", Design::Woart), ("wort+artcow", Design::ArtCow)];

/// Latencies of memory, in nanoseconds a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Latencies {
    pub(super) read: u32,
    pub(super) write: u32,
}

/// Total effects of operations on cache lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LineCounts {
    pub(super) ops: u64,
    /// Lines read, each once per operation.
    pub(super) read: u64,
    /// Of these, lines that were not in the cache.
    pub(super) read_missed: u64,
    /// Lines that were written and were not in the cache either.
    pub(super) write_missed: u64,
    /// Lines flushed.
    pub(super) flushed: u64,
    /// Fences that waited for flushes.
    pub(super) fences: u64,
}

impl LineCounts {
    /// Returns an average over the operations.
    pub(super) fn each(&self, count: u64) -> f64 {
        count as f64 / self.ops.max(1) as f64
    }

    /// Returns the modelled nanoseconds of an operation.
    ///
    /// A store does not wait, as in the paper's emulation: the flush of its line does.
    pub(super) fn ns(&self, latencies: Latencies) -> f64 {
        let hits = self.each(self.read - self.read_missed) * HIT_NS;
        self.each(self.read_missed) * f64::from(latencies.read) + hits + self.ns_without_reads(latencies)
    }

    /// Returns the same without a cache.
    pub(super) fn ns_uncached(&self, latencies: Latencies) -> f64 {
        self.each(self.read) * f64::from(latencies.read) + self.ns_without_reads(latencies)
    }

    fn ns_without_reads(&self, latencies: Latencies) -> f64 {
        self.each(self.flushed) * f64::from(latencies.write) + REST_NS
    }

    /// Counts the touches of one operation.
    pub(super) fn add(&mut self, touches: &[Touch], cache: &mut LineCache, seen: &mut HashSet<Line>) {
        self.ops += 1;
        seen.clear();
        for &touch in touches {
            match touch {
                Touch::Read(line) => {
                    if seen.insert(line) {
                        self.read_missed += u64::from(!cache.touch(line));
                    }
                }
                Touch::Written(line) => self.write_missed += u64::from(!cache.touch(line)),
                Touch::Flushed(line) => {
                    cache.flush(line);
                    self.flushed += 1;
                }
            }
        }
        self.read += seen.len() as u64;
    }
}

/// One operation on one tree with keys of one distribution.
#[derive(Clone, Debug)]
pub(super) struct Studied {
    pub(super) operation: Operation,
    pub(super) index: &'static str,
    pub(super) keys: Keys,
    /// Keys in the tree at the end.
    pub(super) records: u64,
    /// Nodes above a leaf at the end, on average.
    pub(super) depth: f64,
    pub(super) counts: LineCounts,
}

/// Fails if the study does not support this number of records.
pub(super) fn validate(scale: &Scale) -> Result<(), BenchError> {
    let what = match (scale.records, scale.ops) {
        (1..=PAPER_RECORDS, 1..) => return Ok(()),
        (1..=PAPER_RECORDS, 0) => "--ops: choose at least 1".to_owned(),
        _ => format!("--records: choose from 1 to {PAPER_RECORDS}, the number in WORT's paper"),
    };
    Err(BenchError::Usage(what))
}

/// Measures operations, of which inserts come first, on every tree with keys of every distribution.
pub(super) fn study(
    operations: &[Operation],
    scale: &Scale,
    stop: &Progress,
) -> Result<Vec<Studied>, BenchError> {
    let mut all = Vec::new();
    for keys in Keys::ALL {
        for (index, design) in DESIGNS {
            let bar = stop.of_part(&format!("{index} {}", keys.name()), scale.records);
            all.extend(block_on(Tree::grow(index, design, keys, scale, &bar)?.measure(operations, &bar))?);
            bar.finish_and_clear();
        }
    }
    Ok(all)
}

/// Bytes of a cache that holds the same share of these records' tree as the paper's cache of its
/// tree.
pub(super) fn cache_lines(records: u64) -> usize {
    (u128::from(PAPER_CACHE_BYTES) * u128::from(records) / u128::from(PAPER_RECORDS * LINE_BYTES)) as usize
}

/// A tree, and the cache above its memory.
struct Tree<'s> {
    name: &'static str,
    keys: Keys,
    ascending: Vec<u64>,
    scale: &'s Scale,
    index: Wort<Local>,
    client: Client<Local>,
    cache: LineCache,
    inserts: LineCounts,
    /// Lines of the current operation.
    seen: HashSet<Line>,
}

impl<'s> Tree<'s> {
    /// Inserts the keys in random order.
    fn grow(
        name: &'static str,
        design: Design,
        keys: Keys,
        scale: &'s Scale,
        bar: &Progress,
    ) -> Result<Self, BenchError> {
        let bytes = (scale.records * RECORD_ROOM + POOL_ROOM).next_multiple_of(SUPERBLOCK_BYTES);
        let fabric = Local::memory(bytes, 1).map_err(|error| {
            BenchError::Usage(format!("{name} needs a pool of {}: {error}", bytes_text(bytes)))
        })?;
        let pool = block_on(Pool::create(fabric, &PoolOptions::default())).map_err(from_pool)?;
        let mut client = pool.client().map_err(from_pool)?;
        let options = WortOptions::of(design);
        let index = block_on(Wort::open_or_create(&mut client, options)).map_err(from_index)?;
        index.record_touches(true);
        let (ascending, cache) = (keys.ascending(scale.records), LineCache::new(cache_lines(scale.records)));
        let (inserts, seen) = (LineCounts::default(), HashSet::new());
        let mut tree = Self { name, keys, ascending, scale, index, client, cache, inserts, seen };
        let (count, seed) = (tree.ascending.len() as u64, derive_seed(scale.seed, keys as u64));
        let order = Permutation::new(count);
        for nth in 0..count {
            bar.go_on()?;
            let key = tree.ascending[order.apply(nth, seed) as usize];
            let (index, client) = (&tree.index, &mut tree.client);
            let (key, value) = (key.to_be_bytes(), key.to_le_bytes());
            block_on(index.put(client, &key, &value, Condition::Absent)).map_err(from_index)?;
            tree.inserts.add(&index.take_touches(), &mut tree.cache, &mut tree.seen);
            bar.inc(1);
        }
        let Persistence { lines, fences } = tree.index.persistence();
        tree.inserts.fences = fences;
        if lines != tree.inserts.flushed {
            return Err(tree.wrong(format!("{lines} lines flushed, {} recorded", tree.inserts.flushed)));
        }
        Ok(tree)
    }

    async fn measure(mut self, operations: &[Operation], bar: &Progress) -> Result<Vec<Studied>, BenchError> {
        let (records, mut all) = (self.ascending.len() as u64, Vec::new());
        let stats = self.index.stats(&mut self.client).await.map_err(from_index)?;
        if stats.keys != records {
            return Err(self.wrong(format!("a walk finds {} keys of {records}", stats.keys)));
        }
        let levels = stats.levels.iter().enumerate();
        let sum: f64 = levels.map(|(depth, &leaves)| depth as f64 * leaves as f64).sum();
        for &operation in operations {
            let counts = match operation {
                Operation::Insert => self.inserts,
                Operation::Search => self.search(bar).await?,
                Operation::Range(keys) => self.scan(keys.min(records), bar).await?,
            };
            let (index, keys, depth) = (self.name, self.keys, sum / records as f64);
            all.push(Studied { operation, index, keys, records, depth, counts });
        }
        Ok(all)
    }

    /// Returns an index into the keys, the same in every run.
    fn draw(&self, below: usize, nth: u64) -> usize {
        (derive_seed(self.scale.seed ^ 0x5345_4152, nth) % below.max(1) as u64) as usize
    }

    async fn search(&mut self, bar: &Progress) -> Result<LineCounts, BenchError> {
        let mut counts = LineCounts::default();
        for nth in 0..self.scale.ops {
            bar.go_on()?;
            let key = self.ascending[self.draw(self.ascending.len(), nth)];
            let found = self.index.get(&mut self.client, &key.to_be_bytes()).await.map_err(from_index)?;
            if found.as_deref() != Some(&key.to_le_bytes()) {
                return Err(self.wrong(format!("key {key:#x} has the value {found:?}")));
            }
            counts.add(&self.index.take_touches(), &mut self.cache, &mut self.seen);
        }
        Ok(counts)
    }

    /// Scans `length` keys several times, so that about `ops` records are touched, at least once.
    async fn scan(&mut self, length: u64, bar: &Progress) -> Result<LineCounts, BenchError> {
        let mut counts = LineCounts::default();
        for nth in 0..(self.scale.ops / length).max(16) {
            bar.go_on()?;
            let first = self.draw(self.ascending.len() - length as usize + 1, nth);
            let wanted = &self.ascending[first..first + length as usize];
            let bound = |key: Option<&u64>| {
                key.map_or(Bound::Unbounded, |key| Bound::Included(key.to_be_bytes().to_vec()))
            };
            let (from, to) = (bound(wanted.first()), bound(wanted.last()));
            let range = ScanRange { from, to, reverse: false };
            let found = self.index.scan(&mut self.client, &range, wanted.len()).await.map_err(from_index)?;
            if !found.iter().map(|(key, _)| &key[..]).eq(wanted.iter().map(|key| key.to_be_bytes())) {
                return Err(self.wrong(format!("a scan of {length} keys returns {} others", found.len())));
            }
            counts.add(&self.index.take_touches(), &mut self.cache, &mut self.seen);
        }
        Ok(counts)
    }

    fn wrong(&self, what: String) -> BenchError {
        BenchError::WrongAnswer { index: self.name, what }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_distinct_and_the_cache_is_the_papers() {
        for keys in Keys::ALL {
            for count in [1, 63, 64, 1000] {
                let ascending = keys.ascending(count);
                assert!(ascending.windows(2).all(|pair| pair[0] < pair[1]), "{keys:?}");
                assert!((1..=count).contains(&(ascending.len() as u64)));
            }
        }
        assert_eq!(Keys::Clustered.ascending(500_000).len(), 7812 * 64);
        assert_eq!(cache_lines(PAPER_RECORDS) as u64 * LINE_BYTES, PAPER_CACHE_BYTES);
        assert_eq!(cache_lines(500_000), 960);
    }

    #[test]
    fn times_are_made_of_lines() {
        let counts = LineCounts { ops: 10, read: 80, read_missed: 30, flushed: 20, ..LineCounts::default() };
        let ns = counts.ns(Latencies { read: 300, write: 500 });
        assert!((ns - (3.0 * 300.0 + 5.0 * HIT_NS + 2.0 * 500.0 + REST_NS)).abs() < 1e-9);
        let uncached = counts.ns_uncached(Latencies { read: 300, write: 500 });
        assert!((uncached - (8.0 * 300.0 + 2.0 * 500.0 + REST_NS)).abs() < 1e-9);
    }

    /// Flushes, fences and depths of 5,000 inserts, equal to those that `tests/baselines/wort.rs`
    /// of `darter-baselines` computes from a model; and values that follow from the formats.
    #[test]
    fn a_study_counts_what_the_formats_say() {
        let scale = Scale { records: 5000, ops: 300, rounds: 1, seed: 1 };
        let operations =
            [Operation::Insert, Operation::Search, Operation::Range(100), Operation::Range(9999)];
        let run = || study(&operations, &scale, &Progress::hidden(&std::sync::Arc::default())).unwrap();
        let all = run();
        assert_eq!(all.len(), 4 * 9);
        let of = |index: &str, keys: Keys, operation: Operation| {
            let is_it = |one: &&Studied| one.index == index && one.keys == keys && one.operation == operation;
            all.iter().find(is_it).unwrap()
        };
        let insert = of("wort", Keys::Dense, Operation::Insert);
        assert!((insert.counts.each(insert.counts.flushed) - 2.2018).abs() < 0.006, "{insert:?}");
        assert!((insert.depth - 4.0).abs() < 0.01 && insert.counts.fences <= 2 * insert.counts.ops);
        for one in &all {
            let counts = one.counts;
            assert!(counts.read_missed <= counts.read && counts.ops > 0, "{one:?}");
            if one.operation != Operation::Insert {
                assert_eq!((counts.flushed, counts.write_missed, counts.fences), (0, 0, 0), "{one:?}");
            }
        }
        // A leaf is below a root word and four nodes of one line or two each.
        let search = of("wort", Keys::Dense, Operation::Search).counts;
        let lines = search.each(search.read);
        assert!((6.0..=10.0).contains(&lines), "{lines}");
        // In ART+CoW every insert sorts a node of 16 again.
        let whole = of("wort+artcow", Keys::Sparse, Operation::Range(9999)).counts;
        assert!(whole.read >= 5000 * whole.ops, "every leaf is a line");
        let again = run();
        assert!(all.iter().zip(&again).all(|(one, other)| one.counts == other.counts), "counts repeat");
    }
}
