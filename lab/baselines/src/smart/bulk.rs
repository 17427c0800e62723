//! Bulk load: fills an empty index from strictly ascending keys, built bottom-up and published by
//! one CAS on the root word.
//!
//! Keys arrive in order; the open nodes of the last key's path are on a stack, each with its
//! address, since reverse pointers need it. At the byte where the next key differs from the last,
//! every deeper open node is complete and is written once. Nothing is visible before the end, so a
//! failed load frees everything.

use super::Smart;
use super::leaf::{self};
use super::node::{self, HEADER_WORDS, Header, NODE_BYTES, NodeType};
use super::shared::Operation;
use super::slot::{Content, Slot, SlotAt};
use super::split::{chain_image, chain_nodes, home};
use darter_fabric::{Fabric, GlobalAddr, OpKind};
use darter_index::check_key;
use darter_index::radix::common_prefix;
use darter_index::radix::drafts::alloc;
use darter_index::radix::slot::edge_of;
use darter_index::radix::writes::Writes;
use darter_index::{IndexError, KeyValue, Result};
use darter_pool::{AllocKind, Client};

/// A node whose last child is not known yet.
struct Open {
    /// The key byte that selects its slots.
    depth: usize,
    addr: GlobalAddr,
    children: Vec<Slot>,
}

struct Builder<'s, F: Fabric> {
    smart: &'s Smart<F>,
    stack: Vec<Open>,
    writes: Writes,
    count: u64,
}

impl<F: Fabric> Smart<F> {
    /// Fills an empty index.
    pub(super) async fn load_sorted<I>(&self, client: &mut Client<F>, sorted: I) -> Result<u64>
    where
        I: Iterator<Item = KeyValue> + Send,
    {
        {
            let mut operation = Operation::pin(&*self.shared, client, OpKind::Load).await?;
            let (_, (root, _)) = operation.read_root().await?;
            let words = operation.read_words(root).await?;
            if super::node::live_count(&words[HEADER_WORDS..]) > 0 {
                return Err(IndexError::NotEmpty);
            }
        }
        let mut builder = Builder { smart: self, stack: Vec::new(), writes: Writes::default(), count: 0 };
        let outcome = match builder.run(client, sorted).await {
            Ok(root) => match self.publish_root(client, root).await {
                // After any other error the root may be linked: the CAS may have taken effect
                // though its reply was lost.
                Err(IndexError::NotEmpty) => Err(IndexError::NotEmpty),
                published => return published.map(|()| builder.count),
            },
            Err(error) => Err(error),
        };
        let count = builder.count;
        builder.give_back(client).await?;
        outcome.map(|()| count)
    }

    /// Replaces the empty root by the built one.
    async fn publish_root(&self, client: &mut Client<F>, new: Slot) -> Result<()> {
        let mut operation = Operation::pin(&*self.shared, client, OpKind::Load).await?;
        let (slot, (old, _)) = operation.read_root().await?;
        let mut words = operation.read_words(old).await?;
        if super::node::live_count(&words[HEADER_WORDS..]) > 0 {
            return Err(IndexError::NotEmpty);
        }
        operation.seal(old, &mut words).await?;
        if super::node::live_count(&words[HEADER_WORDS..]) > 0 {
            // A client put a key during the sealing: finish the replacement.
            operation.help(&[], old).await?;
            return Err(IndexError::NotEmpty);
        }
        let at = SlotAt { addr: self.shared.words.root, slot };
        if !operation.publish(&[], at, new, None).await? {
            operation.help(&[], old).await?;
            return Err(IndexError::NotEmpty);
        }
        self.shared.remember_root(new);
        operation.set_aside(old, NODE_BYTES, AllocKind::Inner);
        Ok(())
    }
}

impl<F: Fabric> Builder<'_, F> {
    /// Adds all keys. Returns the slot of the finished root.
    async fn run<I>(&mut self, client: &mut Client<F>, sorted: I) -> Result<Slot>
    where
        I: Iterator<Item = KeyValue> + Send,
    {
        self.open(client, &[], 0).await?;
        let mut last: Option<KeyValue> = None;
        for (key, value) in sorted {
            check_key(&key)?;
            if let Some(previous) = last.take() {
                if key <= previous.0 {
                    return Err(IndexError::NotSorted { at: self.count });
                }
                let common = common_prefix(&previous.0, &key);
                self.close(client, &previous, common).await?;
            }
            self.count += 1;
            last = Some((key, value));
        }
        if let Some(previous) = last {
            self.close(client, &previous, 0).await?;
        }
        let Some(root) = self.stack.first() else { unreachable!("the root was opened") };
        let ty = NodeType::fit(root.children.len());
        let image = node::image(GlobalAddr::NULL, Header::new(0, ty, &[]), &root.children);
        let slot = Slot::node(0, ty, root.addr);
        self.writes.write(client, slot.addr(), &image).await?;
        self.writes.flush(client).await?;
        Ok(slot)
    }

    async fn open(&mut self, client: &mut Client<F>, key: &[u8], depth: usize) -> Result<()> {
        let addr = alloc(client, home(client, &key[..depth]), NODE_BYTES, AllocKind::Inner).await?;
        self.stack.push(Open { depth, addr, children: Vec::new() });
        Ok(())
    }

    /// Adds a pair that shares `common` bytes with the next one: writes its leaf, and finishes
    /// every open node deeper than these bytes.
    async fn close(&mut self, client: &mut Client<F>, (key, value): &KeyValue, common: usize) -> Result<()> {
        if self.stack.last().is_none_or(|open| open.depth < common) {
            self.open(client, key, common).await?;
        }
        self.write_leaf(client, key, value).await?;
        while self.stack.last().is_some_and(|open| open.depth > common) {
            if self.stack.len() < 2 || self.stack[self.stack.len() - 2].depth < common {
                // The parent comes below the child on the stack.
                self.open(client, key, common).await?;
                let top = self.stack.len() - 1;
                self.stack.swap(top, top - 1);
            }
            self.finish(client, key).await?;
        }
        Ok(())
    }

    async fn write_leaf(&mut self, client: &mut Client<F>, key: &[u8], value: &[u8]) -> Result<()> {
        let (format, max) = (self.smart.shared.format, client.pool().object_bytes_max());
        let len = format.len_within(max, key.len(), value.len())?;
        let Some(parent) = self.stack.last_mut() else { unreachable!("the root is open") };
        let addr = alloc(client, parent.addr.node(), leaf::bytes_of(len), AllocKind::Leaf).await?;
        parent.children.push(Slot::leaf(edge_of(key, parent.depth), len, addr));
        let image = format.image(parent.addr, len, key, value);
        self.writes.write(client, addr, &image).await
    }

    /// Writes the node on top of the stack and the chain above it, and attaches it to the next node
    /// on the stack.
    async fn finish(&mut self, client: &mut Client<F>, key: &[u8]) -> Result<()> {
        let [.., above, open] = &self.stack[..] else { return Ok(()) };
        let (above_addr, arrival, depth) = (above.addr, above.depth + 1, open.depth);
        let path = &key[arrival..depth];
        let mut chain = Vec::with_capacity(chain_nodes(path.len()));
        for _ in 0..chain_nodes(path.len()) {
            match alloc(client, home(client, &key[..arrival]), NODE_BYTES, AllocKind::Inner).await {
                Ok(addr) => chain.push(addr),
                Err(error) => {
                    for addr in chain {
                        client.free_unpublished(addr, NODE_BYTES, AllocKind::Inner);
                    }
                    return Err(error);
                }
            }
        }
        let (Some(open), Some(above)) = (self.stack.pop(), self.stack.last_mut()) else { return Ok(()) };
        let ty = NodeType::fit(open.children.len());
        let last = Slot::node(u16::from(key[arrival - 1]), ty, open.addr);
        above.children.push(match chain.first() {
            Some(&first) => Slot::node(u16::from(key[arrival - 1]), NodeType::SMALLEST, first),
            None => last,
        });
        let begin = arrival + path.len() / node::CHAIN_BYTES * node::CHAIN_BYTES;
        let header = Header::new(begin, ty, &key[begin..depth]);
        let above_last = chain.last().copied().unwrap_or(above_addr);
        self.writes.write(client, open.addr, &node::image(above_last, header, &open.children)).await?;
        for (at, &addr) in chain.iter().enumerate() {
            let image = chain_image(&chain, at, (above_addr, arrival), path, last);
            self.writes.write(client, addr, &image).await?;
        }
        Ok(())
    }

    /// Frees everything built, none of which was ever visible. After an error of the fabric the
    /// rest is left to the sweep.
    async fn give_back(mut self, client: &mut Client<F>) -> Result<()> {
        if self.writes.may_be_lost() {
            return Ok(());
        }
        self.writes.flush(client).await?;
        let mut doomed = Vec::new();
        for open in self.stack {
            client.free_unpublished(open.addr, NODE_BYTES, AllocKind::Inner);
            doomed.extend(open.children);
        }
        while let Some(slot) = doomed.pop() {
            match slot.content() {
                Content::Leaf { addr, len } => {
                    client.free_unpublished(addr, leaf::bytes_of(len), AllocKind::Leaf);
                }
                Content::Node { addr, ty } => {
                    let words = client.read(node::slot_addr(addr, 0), ty.slots()).await?;
                    doomed.extend(words.iter().map(|&word| Slot::from_word(word)));
                    client.free_unpublished(addr, NODE_BYTES, AllocKind::Inner);
                }
                _ => {}
            }
        }
        Ok(())
    }
}
