//! The ranges of an index as a process knows them: which server to call and which models to use.
//!
//! They may be outdated, so they are hints: leaves prove what they hold by their own words, and a
//! server replies that keys belong to another server. Then the table is read again (rule X11).
//! Cached models are dropped with the table.

use super::super::XStoreOptions;
use super::super::descriptor::Descriptor;
use super::super::model::Hits;
use super::super::table::{Table, bound_bytes};
use super::super::{Shared, XStore};
use super::view::Sight;
use crate::sync::lock;
use darter_fabric::{Fabric, OpKind};
use darter_index::{IndexError, Result, ScanRange};
use darter_pool::Client;
use std::ops::Bound;
use std::sync::Arc;

/// Replies that keys have moved before an operation gives up.
const MOVES_MAX: u32 = 200;
/// Such replies before the operation yields each time.
const MOVES_AT_ONCE: u32 = 2;
/// A range.
#[derive(Debug)]
pub(in super::super) struct Range {
    pub(in super::super) descriptor: Descriptor,
    pub(super) low: Vec<u8>,
    pub(super) sight: Sight,
}

/// The ranges, ascending. There is at least one, and the first begins below all keys.
#[derive(Debug)]
pub(in super::super) struct Ranges {
    /// The number of their table. Its address is not enough: an older table may have been there.
    table: u64,
    pub(in super::super) all: Vec<Range>,
}

impl Ranges {
    /// Reads the table.
    ///
    /// # Errors
    /// A damaged index; errors of the fabric.
    pub(in super::super) async fn read<F: Fabric>(
        client: &mut Client<F>,
        index: &Descriptor,
        options: &XStoreOptions,
    ) -> Result<Self> {
        let table = Table::read(client, index).await?;
        let share = match options.cache_bytes / table.entries.len() as u64 {
            0 => options.cache_bytes.min(1),
            share => share,
        };
        let options = XStoreOptions { cache_bytes: share, ..*options };
        let mut all = Vec::with_capacity(table.entries.len());
        for entry in &table.entries {
            let low = bound_bytes(client, &entry.low).await?.unwrap_or_default();
            let descriptor = index.of_range(entry.descriptor, (entry.node, entry.server));
            all.push(Range { descriptor, low, sight: Sight::new(&options) });
        }
        Ok(Self { table: table.number, all })
    }

    /// Returns the position of the range of a key.
    pub(super) fn place_of(&self, key: &[u8]) -> usize {
        self.all.partition_point(|range| &range.low[..] <= key).saturating_sub(1)
    }

    /// Returns the range of a key.
    pub(in super::super) fn of(&self, key: &[u8]) -> &Range {
        &self.all[self.place_of(key)]
    }

    /// Returns the range in which a scan begins, and the part of the scan in it.
    pub(super) fn part_of(&self, scan: &ScanRange) -> (&Range, ScanRange) {
        let mut part = scan.clone();
        let at = match (if scan.reverse { &scan.to } else { &scan.from }, scan.reverse) {
            (Bound::Unbounded, true) => self.all.len() - 1,
            (Bound::Unbounded, false) => 0,
            // Keys below a range's low bound are in the previous range.
            (Bound::Excluded(key), true) => {
                self.all.partition_point(|range| range.low < *key).saturating_sub(1)
            }
            (Bound::Included(key) | Bound::Excluded(key), _) => self.place_of(key),
        };
        if scan.reverse {
            let low = &self.all[at].low;
            let is_within = match &scan.from {
                Bound::Unbounded => low.is_empty(),
                Bound::Included(from) | Bound::Excluded(from) => from >= low,
            };
            if !is_within {
                part.from = Bound::Included(low.clone());
            }
        } else if let Some(Range { low: high, .. }) = self.all.get(at + 1) {
            let is_within = match &scan.to {
                Bound::Unbounded => false,
                Bound::Included(to) => to < high,
                Bound::Excluded(to) => to <= high,
            };
            if !is_within {
                part.to = Bound::Excluded(high.clone());
            }
        }
        (&self.all[at], part)
    }

    pub(in super::super) fn hits(&self) -> Hits {
        self.all.iter().fold(Hits::default(), |sum, range| sum + range.sight.cache.hits())
    }

    /// Returns the bytes of the caches in use.
    pub(in super::super) fn cache_bytes(&self) -> u64 {
        self.all.iter().map(|range| range.sight.cache_bytes()).sum()
    }
}

impl Shared {
    /// Returns the ranges as last read.
    pub(in super::super) fn ranges(&self) -> Arc<Ranges> {
        Arc::clone(&lock(&self.ranges))
    }
}

impl<F: Fabric> XStore<F> {
    /// Returns whether to repeat an operation that used these ranges and is no longer pinned: its
    /// keys are now in other ranges, whose server can be found.
    ///
    /// # Errors
    /// A damaged index; errors of the fabric.
    pub(super) async fn goes_elsewhere<T>(
        &self,
        client: &mut Client<F>,
        ranges: &Arc<Ranges>,
        outcome: &Result<T>,
        tries: &mut u32,
    ) -> Result<bool> {
        if !matches!(outcome, Err(IndexError::Moved { .. })) || *tries >= MOVES_MAX {
            return Ok(false);
        }
        *tries += 1;
        if *tries > MOVES_AT_ONCE {
            client.pause().await;
        }
        self.find_ranges(client, ranges).await?;
        Ok(true)
    }

    /// Reads the table of ranges again, unless another client of this process has done so.
    ///
    /// # Errors
    /// A damaged index; errors of the fabric.
    pub(in super::super) async fn find_ranges(
        &self,
        client: &mut Client<F>,
        old: &Arc<Ranges>,
    ) -> Result<()> {
        if !Arc::ptr_eq(&self.shared.ranges(), old) {
            return Ok(());
        }
        let Shared { descriptor, options, ranges } = &*self.shared;
        let mut client = client.pin(OpKind::Maintain).await?;
        let found = Ranges::read(&mut client, descriptor, options).await?;
        let mut known = lock(ranges);
        if found.table != old.table && Arc::ptr_eq(&known, old) {
            *known = Arc::new(found);
        }
        Ok(())
    }
}

/// Narrows a scan to the rest after one of its parts. Returns whether any is left.
pub(super) fn behind(scan: &mut ScanRange, part: &ScanRange) -> bool {
    let is_more = if scan.reverse { part.from != scan.from } else { part.to != scan.to };
    match (if scan.reverse { &part.from } else { &part.to }, scan.reverse) {
        (Bound::Included(low), true) => scan.to = Bound::Excluded(low.clone()),
        (Bound::Excluded(high), false) => scan.from = Bound::Included(high.clone()),
        _ => {}
    }
    is_more
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_fabric::Local;
    use darter_fabric::block_on;
    use darter_pool::{Pool, PoolOptions};

    /// Three ranges, from "", "g" and "p" on.
    fn ranges() -> Ranges {
        let pool = block_on(Pool::create(
            Local::memory(8 << 20, 1).unwrap(),
            &PoolOptions { block_bytes: Some(256 << 10), ..PoolOptions::default() },
        ));
        let mut client = pool.unwrap().client().unwrap();
        let options = XStoreOptions::default();
        block_on(Descriptor::create(&mut client, &options)).unwrap();
        let descriptor = block_on(Descriptor::read(&mut client)).unwrap();
        let range = |low: &[u8]| Range { descriptor, low: low.to_vec(), sight: Sight::new(&options) };
        Ranges { table: 0, all: vec![range(b""), range(b"g"), range(b"p")] }
    }

    #[test]
    fn a_key_is_of_the_range_that_begins_at_it_or_before() {
        let ranges = ranges();
        for (key, place) in [("", 0), ("f", 0), ("g", 1), ("ga", 1), ("p", 2), ("z", 2)] {
            assert_eq!(ranges.place_of(key.as_bytes()), place, "{key}");
        }
    }

    /// The parts are adjacent and end where the scan ends.
    #[test]
    fn parts_of_a_scan_tile_it() {
        let ranges = ranges();
        let keys = ["", "a", "f", "g", "g0", "o", "p", "p0", "z"].map(|key| key.as_bytes().to_vec());
        let bounds: Vec<Bound<Vec<u8>>> = keys
            .iter()
            .flat_map(|key| [Bound::Included(key.clone()), Bound::Excluded(key.clone())])
            .chain([Bound::Unbounded])
            .collect();
        for (from, to) in bounds.iter().flat_map(|from| bounds.iter().map(move |to| (from, to))) {
            for reverse in [false, true] {
                let whole = ScanRange { from: from.clone(), to: to.clone(), reverse };
                let (mut left, mut seen) = (whole.clone(), Vec::new());
                for _ in 0..3 {
                    let (range, part) = ranges.part_of(&left);
                    let place = ranges.all.iter().position(|other| std::ptr::eq(range, other)).unwrap();
                    let met = keys.iter().filter(|key| part.contains(key));
                    let mut met: Vec<_> =
                        met.inspect(|key| assert_eq!(ranges.place_of(key), place)).collect();
                    if reverse {
                        met.reverse();
                    }
                    seen.extend(met.into_iter().cloned());
                    if !behind(&mut left, &part) {
                        break;
                    }
                }
                let mut expected: Vec<_> = keys.iter().filter(|key| whole.contains(key)).cloned().collect();
                if reverse {
                    expected.reverse();
                }
                assert_eq!(seen, expected, "{whole:?}");
            }
        }
    }
}
