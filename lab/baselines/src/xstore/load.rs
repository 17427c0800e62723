//! Bulk load: the client writes leaves from strictly ascending keys, and one call makes the server
//! adopt them as the index's. They are invisible before, so a failed load frees everything. If
//! several nodes may hold ranges, each gets its share of the keys that the iterator reports, or
//! fewer if it has no room.

use super::XStore;
use super::descriptor::{DESCRIPTOR_BYTES, alloc_leaf};
use super::leaf::{Bound, Head, Header, Leaf, NEW, Pointer, SLOTS, address, key_hash};
use super::record::Record;
use super::table::{Entry, Table};
use super::wire;
use crate::sherman::bound::separator;
use darter_fabric::{Fabric, GlobalAddr, OpKind};
use darter_index::radix::drafts::Drafts;
use darter_index::radix::leaf as pair;
use darter_index::radix::writes::Writes;
use darter_index::{Condition, IndexError, KeyValue, Result, ScanRange};
use darter_pool::size_class::class_bytes;
use darter_pool::{AllocKind, Client, Pinned};

/// The leaf being filled.
struct Open {
    node: u8,
    number: u32,
    low: Bound,
    words: Vec<u64>,
    records: Vec<Record>,
}

/// The leaves on one node.
struct Part {
    node: u8,
    low: Bound,
    first: u32,
}

/// A load in progress.
#[derive(Default)]
struct Loading {
    drafts: Drafts,
    writes: Writes,
    open: Option<Open>,
    /// The nodes that take leaves, in order, and the current one.
    nodes: Vec<u8>,
    at: usize,
    /// Keys of each node except the last, and those still missing on the current one.
    share: u64,
    left: u64,
    parts: Vec<Part>,
    last_key: Vec<u8>,
    count: u64,
}

impl Loading {
    /// Returns the node that is being filled.
    fn node(&self) -> u8 {
        self.nodes[self.at]
    }
}

impl<F: Fabric> XStore<F> {
    pub(super) async fn load_sorted<I>(&self, client: &mut Client<F>, sorted: I) -> Result<u64>
    where
        I: Iterator<Item = KeyValue> + Send,
    {
        // The ranges known to this process may be outdated, and the pairs can be consumed only
        // once.
        self.find_ranges(client, &self.shared.ranges()).await?;
        if self.shared.ranges().all.len() > 1 {
            return self.load_by_puts(client, sorted).await;
        }
        let own = client;
        let mut client = own.pin(OpKind::Load).await?;
        let index = self.shared.descriptor;
        let nodes: Vec<u8> = index.held_nodes().take_while(|&node| node < client.pool().nodes()).collect();
        let share = match sorted.size_hint().0 as u64 {
            0 => u64::MAX,
            keys => keys.div_ceil(nodes.len() as u64),
        };
        let mut loading = Loading { nodes, share, ..Loading::default() };
        let outcome = match self.write_leaves(&mut client, &mut loading, sorted).await {
            Ok(()) if loading.count == 0 => return Ok(0),
            Ok(()) => self.publish(&mut client, &mut loading).await,
            Err(error) => Err(error),
        };
        if outcome.is_ok() {
            loading.drafts.keep();
        } else {
            loading.drafts.discard(&mut client);
        }
        drop(client);
        // If the index has keys, they are elsewhere now: another load was faster.
        if matches!(outcome, Err(IndexError::Moved { .. }))
            && !self.pairs_of(own, &ScanRange::all(), 1).await?.is_empty()
        {
            return Err(IndexError::NotEmpty);
        }
        if outcome.is_ok() && !self.is_whole(&loading) {
            // The ranges' servers train. Without models keys are read by calls.
            let _ = self.call_all(own, wire::MAINTAIN).await;
        }
        outcome
    }

    /// Loads into an index whose keys are already on several nodes, by one put per pair.
    async fn load_by_puts<I>(&self, client: &mut Client<F>, sorted: I) -> Result<u64>
    where
        I: Iterator<Item = KeyValue> + Send,
    {
        if !self.pairs_of(client, &ScanRange::all(), 1).await?.is_empty() {
            return Err(IndexError::NotEmpty);
        }
        let (mut count, mut last) = (0, Vec::new());
        for (key, value) in sorted {
            if count > 0 && key <= last {
                return Err(IndexError::NotSorted { at: count });
            }
            self.put_by_call(client, (&key, &value), Condition::Always).await?;
            (last, count) = (key, count + 1);
        }
        Ok(count)
    }

    /// Returns whether all leaves are on the node of the index's.
    fn is_whole(&self, loading: &Loading) -> bool {
        matches!(&loading.parts[..], [Part { node, .. }] if *node == self.shared.descriptor.node)
    }

    /// Makes the server adopt the leaves as the index's.
    async fn publish(&self, client: &mut Pinned<'_, F>, loading: &mut Loading) -> Result<u64> {
        let index = self.shared.descriptor;
        let mut request = vec![u64::from(loading.parts[0].first)];
        if !self.is_whole(loading) {
            request = vec![0, self.write_table(client, loading).await?.bits()];
        }
        // Without a reply the leaves may belong to the index: they are left to the sweep.
        let answer = match client.call(index.server, wire::PUBLISH, request).await {
            Ok(answer) => answer,
            Err(error) => {
                loading.drafts.keep();
                return Err(error.into());
            }
        };
        wire::outcome(&answer)?;
        Ok(loading.count)
    }

    /// Writes the descriptors of the parts, and a table that leads to them.
    async fn write_table(&self, client: &mut Pinned<'_, F>, loading: &mut Loading) -> Result<GlobalAddr> {
        let index = self.shared.descriptor;
        // It replaces no table.
        let mut table = Table { addr: GlobalAddr::NULL, number: 1, entries: Vec::new() };
        for Part { node, low, first } in &loading.parts {
            let (node, server) = (*node, index.server_of(*node));
            let descriptor = loading.drafts.alloc(client, node, DESCRIPTOR_BYTES, AllocKind::Inner).await?;
            let words = index.of_range(descriptor, (node, server)).words(*first);
            loading.writes.write(client, descriptor, &words).await?;
            table.entries.push(Entry { low: low.clone(), node, server, descriptor });
        }
        let addr = loading.drafts.alloc(client, index.node, table.bytes(), AllocKind::Inner).await?;
        loading.writes.write(client, addr, &table.words()).await?;
        loading.writes.flush(client).await?;
        Ok(addr)
    }

    async fn write_leaves(
        &self,
        client: &mut Pinned<'_, F>,
        loading: &mut Loading,
        sorted: impl Iterator<Item = KeyValue> + Send,
    ) -> Result<()> {
        let slots = self.shared.options.loaded_slots();
        for (key, value) in sorted {
            self.check_pair(client, &key, &value)?;
            if loading.count > 0 && key <= loading.last_key {
                return Err(IndexError::NotSorted { at: loading.count });
            }
            if loading.open.as_ref().is_none_or(|open| open.words.len() == slots) {
                self.begin_leaf(client, loading, &key).await?;
            }
            self.add_pair(client, loading, &key, &value).await?;
            loading.last_key = key;
            loading.count += 1;
            loading.left = loading.left.saturating_sub(1);
        }
        if let Some(open) = loading.open.take() {
            self.end_leaf(client, loading, open, Bound::None, 0).await?;
        }
        loading.writes.flush(client).await
    }

    /// Closes the leaf being filled and begins the next one, whose first key is `key`.
    async fn begin_leaf(&self, client: &mut Pinned<'_, F>, loading: &mut Loading, key: &[u8]) -> Result<()> {
        if loading.left == 0 && loading.at + 1 < loading.nodes.len() && loading.open.is_some() {
            loading.at += 1;
        }
        let layout = self.shared.descriptor.layout;
        let number = loop {
            let node = loading.node();
            match alloc_leaf(client, &mut loading.drafts, node, layout).await {
                // The rest goes to the following nodes.
                Err(error) if error.is_out_of_space() && loading.at + 1 < loading.nodes.len() => {
                    loading.at += 1;
                }
                made => break made?,
            }
        };
        let node = loading.node();
        let mut low = Bound::LEAST;
        if let Some(open) = loading.open.take() {
            let parts = separator(&loading.last_key, key);
            low = if parts.len() <= 8 {
                Bound::Short(parts.to_vec())
            } else {
                let pointer = self.write_blob(client, loading, parts, &[]).await?;
                Bound::Blob(pointer.addr(), pointer.class())
            };
            let next = if open.node == node { number } else { 0 };
            self.end_leaf(client, loading, open, low.clone(), next).await?;
        }
        let is_first = loading.parts.last().is_none_or(|part| part.node != node);
        if is_first {
            loading.parts.push(Part { node, low: low.clone(), first: number });
            loading.left = loading.share;
        }
        loading.open = Some(Open { node, number, low, words: Vec::new(), records: Vec::new() });
        Ok(())
    }

    async fn end_leaf(
        &self,
        client: &mut Pinned<'_, F>,
        loading: &mut Loading,
        open: Open,
        high: Bound,
        next: u32,
    ) -> Result<()> {
        let mut keys = [0; SLOTS];
        keys[..open.words.len()].copy_from_slice(&open.words);
        let header = Header { incarnation: NEW, count: open.words.len() as u8, next };
        let head = Head { header, low: open.low, high, keys };
        let image = Leaf::image(self.shared.descriptor.layout, &head, &open.records);
        loading.writes.write(client, address(open.node, open.number), &image).await
    }

    async fn add_pair(
        &self,
        client: &mut Pinned<'_, F>,
        loading: &mut Loading,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        let number: Option<[u8; 8]> = key.try_into().ok();
        let (word, record) = match number.filter(|_| self.shared.descriptor.layout.is_inline()) {
            Some(number) => {
                let key = u64::from_be_bytes(number);
                (key, Some(Record { key, version: NEW, value: value.to_vec() }))
            }
            None => (self.write_blob(client, loading, key, value).await?.word(), None),
        };
        if let Some(open) = &mut loading.open {
            open.words.push(word);
            open.records.extend(record);
        }
        Ok(())
    }

    async fn write_blob(
        &self,
        client: &mut Pinned<'_, F>,
        loading: &mut Loading,
        key: &[u8],
        value: &[u8],
    ) -> Result<Pointer> {
        let class = pair::class_within(client.pool().object_bytes_max(), key.len(), value.len())?;
        let (node, bytes) = (loading.node(), class_bytes(class));
        let addr = loading.drafts.alloc(client, node, bytes, AllocKind::Leaf).await?;
        loading.writes.write(client, addr, &pair::image(key, value)).await?;
        Ok(Pointer::new(addr, class, key_hash(key)))
    }
}
