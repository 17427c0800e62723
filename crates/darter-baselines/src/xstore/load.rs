//! Bulk load: the client writes leaves from strictly ascending keys, and the server makes them the
//! index's by one call. Nothing is visible before, so a failure gives everything back.

use super::XStore;
use super::descriptor::alloc_leaf;
use super::leaf::{Bound, Head, Header, Leaf, NEW, Pointer, SLOTS, key_hash};
use super::record::Record;
use super::wire;
use crate::sherman::bound::separator;
use darter_fabric::{Fabric, OpKind};
use darter_index::radix::drafts::Drafts;
use darter_index::radix::leaf as pair;
use darter_index::radix::writes::Writes;
use darter_index::{IndexError, KeyValue, Result};
use darter_pool::size_class::class_bytes;
use darter_pool::{AllocKind, Client, Pinned};

/// The leaf being filled.
struct Open {
    number: u32,
    low: Bound,
    words: Vec<u64>,
    records: Vec<Record>,
}

/// A load under way.
#[derive(Default)]
struct Loading {
    drafts: Drafts,
    writes: Writes,
    open: Option<Open>,
    first: u32,
    last_key: Vec<u8>,
    count: u64,
}

impl<F: Fabric> XStore<F> {
    pub(super) async fn load_sorted<I>(&self, client: &mut Client<F>, sorted: I) -> Result<u64>
    where
        I: Iterator<Item = KeyValue> + Send,
    {
        let mut client = client.pin(OpKind::Load).await?;
        let mut loading = Loading::default();
        let outcome = match self.write_leaves(&mut client, &mut loading, sorted).await {
            Ok(()) if loading.count == 0 => return Ok(0),
            Ok(()) => {
                let request = vec![u64::from(loading.first)];
                // When no answer comes the leaves may be the index's: they are left to the sweep.
                let answer = match client.call(self.shared.descriptor.server, wire::PUBLISH, request).await {
                    Ok(answer) => answer,
                    Err(error) => {
                        loading.drafts.keep();
                        return Err(error.into());
                    }
                };
                wire::outcome(&answer).map(|_| loading.count)
            }
            Err(error) => Err(error),
        };
        if outcome.is_ok() {
            loading.drafts.keep();
        } else {
            loading.drafts.discard(&mut client);
        }
        outcome
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
        }
        if let Some(open) = loading.open.take() {
            self.end_leaf(client, loading, open, Bound::None, 0).await?;
        }
        loading.writes.flush(client).await
    }

    /// Ends the leaf being filled, and begins the next one, whose first key this is.
    async fn begin_leaf(&self, client: &mut Pinned<'_, F>, loading: &mut Loading, key: &[u8]) -> Result<()> {
        let descriptor = &self.shared.descriptor;
        let number = alloc_leaf(client, &mut loading.drafts, descriptor.node, descriptor.layout).await?;
        let mut low = Bound::LEAST;
        match loading.open.take() {
            Some(open) => {
                let parts = separator(&loading.last_key, key);
                low = if parts.len() <= 8 {
                    Bound::Short(parts.to_vec())
                } else {
                    let pointer = self.write_blob(client, loading, parts, &[]).await?;
                    Bound::Blob(pointer.addr(), pointer.class())
                };
                self.end_leaf(client, loading, open, low.clone(), number).await?;
            }
            None => loading.first = number,
        }
        loading.open = Some(Open { number, low, words: Vec::new(), records: Vec::new() });
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
        loading.writes.write(client, self.shared.descriptor.leaf(open.number), &image).await
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
        let (node, bytes) = (self.shared.descriptor.node, class_bytes(class));
        let addr = loading.drafts.alloc(client, node, bytes, AllocKind::Leaf).await?;
        loading.writes.write(client, addr, &pair::image(key, value)).await?;
        Ok(Pointer::new(addr, class, key_hash(key)))
    }
}
