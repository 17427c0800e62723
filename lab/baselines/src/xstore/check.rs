//! The check: a walk of all leaves by READs that verifies every invariant and the counts, for each
//! range of the table.
//!
//! For each leaf it verifies that the leaf is at rest, its bounds meet its neighbours', its keys
//! are between them and distinct, its records are whole, its blobs hold the keys whose hashes are
//! in their pointers, and no object is reached twice. Other clients may write at the same time: a
//! new leaf follows the leaf whose pairs it takes, and a removed leaf has no pairs and still leads
//! to its right neighbour.

use super::XStore;
use super::check_models::add_nodes;
use super::descriptor::{DESCRIPTOR_BYTES, Descriptor};
use super::leaf::{Bound, Leaf, Pointer, key_hash};
use super::table::{self, Table};
use crate::compute_node::yield_now;
use darter_fabric::{Fabric, OpKind};
use darter_index::radix::leaf as pair;
use darter_index::{CheckReport, NodeTypeStats, Result};
use darter_pool::{Client, Pinned};
use std::collections::HashSet;

/// READs of a leaf that is being written.
const TRIES: u32 = 200;

/// A walk of a range in progress.
struct Walk<'a> {
    report: &'a mut CheckReport,
    range: Descriptor,
    /// Whether to read pairs.
    reads_pairs: bool,
    leaves: u64,
    keys: u64,
    /// The high bound of the previous leaf, and its bytes.
    expected: Bound,
    low: Vec<u8>,
}

impl<F: Fabric> XStore<F> {
    /// Walks and verifies everything; without pairs it only counts.
    pub(super) async fn inspect(&self, client: &mut Client<F>, reads_pairs: bool) -> Result<CheckReport> {
        let mut client = client.pin(OpKind::Maintain).await?;
        let table = Table::read(&mut client, &self.shared.descriptor).await?;
        let mut report = CheckReport::default();
        self.inspect_ranges(&mut client, &mut report, &table, reads_pairs).await?;
        Ok(report)
    }

    async fn inspect_ranges(
        &self,
        client: &mut Pinned<'_, F>,
        report: &mut CheckReport,
        table: &Table,
        reads_pairs: bool,
    ) -> Result<()> {
        let index = self.shared.descriptor;
        report.reach(index.addr, DESCRIPTOR_BYTES, "descriptor");
        report.stats.index_bytes += DESCRIPTOR_BYTES;
        if !table.addr.is_null() {
            report.reach(table.addr, table.bytes(), "table of ranges");
            report.stats.index_bytes += table.bytes();
        }
        let mut last = None;
        for (at, entry) in table.entries.iter().enumerate() {
            let range = index.of_range(entry.descriptor, (entry.node, entry.server));
            if entry.descriptor != index.addr {
                report.reach(entry.descriptor, DESCRIPTOR_BYTES, "descriptor of a range");
                report.stats.index_bytes += DESCRIPTOR_BYTES;
                let [shape] = client.read_words(entry.descriptor).await?;
                if shape != range.words(0)[0] {
                    report.violation(format!(
                        "descriptor at {}: does not belong to its range",
                        entry.descriptor
                    ));
                }
            }
            let low = table::bound_bytes(client, &entry.low).await?.unwrap_or_default();
            if last.is_some_and(|last| low <= last) {
                report.violation(format!("table of ranges at {}: out of order", table.addr));
            }
            self.inspect_range(
                client,
                report,
                range,
                (entry.low.clone(), low.clone()),
                (&table.high(at), reads_pairs),
            )
            .await?;
            last = Some(low);
        }
        Ok(())
    }

    /// Walks a range that begins and ends at these bounds.
    async fn inspect_range(
        &self,
        client: &mut Pinned<'_, F>,
        report: &mut CheckReport,
        range: Descriptor,
        (expected, low): (Bound, Vec<u8>),
        (high, reads_pairs): (&Bound, bool),
    ) -> Result<()> {
        self.inspect_models(client, &range, report).await?;
        let mut walk = Walk { report, range, reads_pairs, leaves: 0, keys: 0, expected, low };
        let [mut number] = client.read_words(range.first()).await?;
        while number != 0 {
            let addr = range.leaf(number as u32);
            if !walk.report.reach(addr, range.layout.bytes(), "leaf") {
                break;
            }
            let Some(leaf) = self.leaf_at_rest(client, &mut walk, number as u32).await? else { break };
            if !self.inspect_leaf(client, &mut walk, number as u32, &leaf).await? {
                break;
            }
            number = leaf.head.header.next.into();
        }
        let Walk { leaves, keys, expected, .. } = walk;
        if number == 0 && expected != *high {
            report.violation(format!(
                "the last leaf of the range at {} does not end at the range's bound",
                range.addr
            ));
        }
        let bytes = leaves * range.layout.bytes();
        add_nodes(report, NodeTypeStats { name: "leaf", count: leaves, bytes, children: keys });
        report.stats.keys += keys;
        let is_inline = range.layout.is_inline();
        *(if is_inline { &mut report.stats.kv_bytes } else { &mut report.stats.index_bytes }) += bytes;
        Ok(())
    }

    /// Reads a leaf that is at rest and whole; `None` after a violation.
    async fn leaf_at_rest(
        &self,
        client: &mut Pinned<'_, F>,
        walk: &mut Walk<'_>,
        number: u32,
    ) -> Result<Option<Leaf>> {
        let (addr, layout) = (walk.range.leaf(number), walk.range.layout);
        for _ in 0..TRIES {
            let mut batch = client.batch();
            let first = batch.read(addr, 1);
            let whole = batch.read(addr, layout.words());
            let last = batch.read(addr, 1);
            let done = match client.submit(batch).await {
                Ok(done) => done,
                Err(error) => {
                    walk.report.unreadable(format_args!("leaf at {addr}"), error)?;
                    return Ok(None);
                }
            };
            let is_same =
                done.words(first) == done.words(last) && done.words(first)[0] == done.words(whole)[0];
            let leaf = Leaf::parse(layout, done.words(whole));
            client.recycle(done);
            let Some(leaf) = leaf else { break };
            let is_whole =
                !layout.is_inline() || (0..leaf.head.counted().len()).all(|slot| leaf.record(slot).is_some());
            let is_at_rest = !leaf.head.header.is_moving() || leaf.head.header.is_going();
            if is_same && is_whole && is_at_rest {
                return Ok(Some(leaf));
            }
            yield_now().await;
        }
        walk.report.violation(format!("leaf at {addr}: inconsistent words"));
        Ok(None)
    }

    /// Verifies a leaf; returns whether the walk can continue after it.
    async fn inspect_leaf(
        &self,
        client: &mut Pinned<'_, F>,
        walk: &mut Walk<'_>,
        number: u32,
        leaf: &Leaf,
    ) -> Result<bool> {
        let addr = walk.range.leaf(number);
        walk.leaves += 1;
        walk.keys += leaf.head.counted().len() as u64;
        if let Bound::Blob(bound, class) = leaf.head.low {
            let bytes = pair::class_words(class) as u64 * 8;
            walk.report.reach(bound, bytes, "bound");
            walk.report.stats.index_bytes += bytes;
        }
        let high = match self.bytes_of(client, walk, &leaf.head.high).await? {
            Some(high) => high,
            None if leaf.head.high == Bound::None => Vec::new(),
            None => return Ok(false),
        };
        let is_last = leaf.head.high == Bound::None;
        if leaf.head.low != walk.expected || !is_last && high <= walk.low {
            walk.report.violation(format!("leaf at {addr}: its bounds do not meet its neighbours'"));
            return Ok(false);
        }
        let mut keys = self.keys_of(client, walk, number, leaf).await?;
        keys.sort();
        if keys.windows(2).any(|pair| pair[0] == pair[1]) {
            walk.report.violation(format!("leaf at {addr}: duplicate key"));
        }
        if keys.iter().any(|key| *key < walk.low || !is_last && *key >= high) {
            walk.report.violation(format!("leaf at {addr}: a key outside its bounds"));
        }
        walk.low = high;
        walk.expected = leaf.head.high.clone();
        Ok(true)
    }

    /// Returns the bytes of a bound; `None` if there is none or after a violation.
    async fn bytes_of(
        &self,
        client: &mut Pinned<'_, F>,
        walk: &mut Walk<'_>,
        bound: &Bound,
    ) -> Result<Option<Vec<u8>>> {
        let (addr, class) = match bound {
            Bound::None => return Ok(None),
            Bound::Short(bytes) => return Ok(Some(bytes.clone())),
            Bound::Blob(addr, class) => (*addr, *class),
        };
        let words = match client.read(addr, pair::class_words(class)).await {
            Ok(words) => words,
            Err(error) => {
                walk.report.unreadable(format_args!("bound at {addr}"), error)?;
                return Ok(None);
            }
        };
        match pair::parse(addr, &words) {
            Ok(held) => Ok(Some(held.key.to_vec())),
            Err(error) => {
                walk.report.violation(error.to_string());
                Ok(None)
            }
        }
    }

    /// Returns the keys of a leaf and verifies its blobs.
    async fn keys_of(
        &self,
        client: &mut Pinned<'_, F>,
        walk: &mut Walk<'_>,
        number: u32,
        leaf: &Leaf,
    ) -> Result<Vec<Vec<u8>>> {
        let addr = walk.range.leaf(number);
        if self.shared.descriptor.layout.is_inline() {
            return Ok(leaf.head.counted().iter().map(|key| key.to_be_bytes().to_vec()).collect());
        }
        let (mut blobs, mut seen) = (Vec::new(), HashSet::new());
        for &word in leaf.head.counted() {
            match Pointer::from_word(word).filter(|_| seen.insert(word)) {
                Some(pointer) if walk.report.reach(pointer.addr(), pointer.bytes(), "pair") => {
                    walk.report.stats.kv_bytes += pointer.bytes();
                    blobs.push((pointer, pointer.addr(), pointer.words()));
                }
                Some(_) => {}
                None => walk.report.violation(format!("leaf at {addr}: a slot below the count is empty")),
            }
        }
        let mut keys = Vec::new();
        if walk.reads_pairs {
            let verify = |report: &mut CheckReport, pointer: &Pointer, words: &[u64]| match pair::parse(
                pointer.addr(),
                words,
            ) {
                Ok(held) if pointer.may_be(key_hash(held.key)) => keys.push(held.key.to_vec()),
                Ok(_) => {
                    report.violation(format!("pair at {}: does not hold its pointer's key", pointer.addr()));
                }
                Err(error) => report.violation(error.to_string()),
            };
            walk.report.verify_each(client, &blobs, verify).await?;
        }
        Ok(keys)
    }
}
