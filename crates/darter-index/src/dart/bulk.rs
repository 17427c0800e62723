//! Bulk load: an empty index from strictly ascending keys, built bottom-up and published by one CAS on the root word.
//!
//! Sorted keys arrive; the open nodes of the last key's path lie on a stack. Where the next key parts from the last, every
//! open node deeper than that is complete: its type is the smallest that fits, and it is written once. Nothing is visible
//! before the end, so a failure gives everything back.

use super::Dart;
use super::descent::SlotAt;
use super::est::install::{Wish, install, wishes_for};
use super::leaf;
use super::node::{self, NodeRef, NodeType};
use super::prefix_hash::HashedKey;
use super::retirement::node_note;
use super::seal::seal_all;
use super::search::check_key;
use super::slot::{END, Held, SKIP_MAX, Slot};
use super::split::common_prefix;
use super::switch::Target;
use crate::{IndexError, KeyValue};
use darter_fabric::{Batch, Fabric, OpKind};
use darter_pool::size_class::class_bytes;
use darter_pool::{AllocKind, Client};

/// Words collected before they are written.
const BATCH_WORDS: usize = 16 << 10;
/// Express entries kept until the end; more are dropped, which costs round trips until the next adjustment.
const WISHES_MAX: usize = 16 << 20;
/// Leaves in a row on one memory node.
const LEAF_RUN: u64 = 64;

/// A node whose last child has not come yet.
struct Open {
    depth: usize,
    children: Vec<Slot>,
}

/// A finished child without its edge: a leaf, or a node of known depth.
#[derive(Clone, Copy)]
struct Child {
    slot: Slot,
    /// Of a node.
    depth: Option<usize>,
}

struct Builder<'d, F: Fabric> {
    dart: &'d Dart<F>,
    stack: Vec<Open>,
    batch: Option<Batch>,
    batch_words: usize,
    wishes: Vec<Wish>,
    list: super::est::PrefixList,
    count: u64,
}

impl<F: Fabric> Dart<F> {
    /// Fills an empty index.
    pub(super) async fn load_sorted<I>(&self, client: &mut Client<F>, sorted: I) -> Result<u64, IndexError>
    where
        I: Iterator<Item = KeyValue> + Send,
    {
        let list = {
            let mut client = client.pin(OpKind::Load).await?;
            let table = self.shared.view(&mut client).await?;
            let root = self.read_root(&mut client).await?;
            let words = self.read_node(&mut client, root).await?;
            if node::slots(root.ty, &words).any(|(_, slot)| slot.is_live()) {
                return Err(IndexError::NotEmpty);
            }
            table.list
        };
        let mut builder = Builder {
            dart: self,
            stack: vec![Open { depth: 0, children: Vec::new() }],
            batch: None,
            batch_words: 0,
            wishes: Vec::new(),
            list,
            count: 0,
        };
        let outcome = match builder.run(client, sorted).await {
            Ok(root) => match self.publish_root(client, root, &builder.wishes).await {
                // After any other error the root may be linked: the CAS may have landed though its reply was lost.
                Err(IndexError::NotEmpty) => Err(IndexError::NotEmpty),
                published => return published.map(|()| builder.count),
            },
            Err(error) => Err(error),
        };
        let count = builder.count;
        builder.give_back(client).await?;
        outcome.map(|()| count)
    }

    /// Puts the built root in the place of the empty one.
    async fn publish_root(
        &self,
        client: &mut Client<F>,
        new: NodeRef,
        wishes: &[Wish],
    ) -> Result<(), IndexError> {
        let mut client = client.pin(OpKind::Load).await?;
        let table = self.shared.view(&mut client).await?;
        let (old, old_slot) = self.read_root_slot(&mut client).await?;
        let mut words = self.read_node(&mut client, old).await?;
        if node::slots(old.ty, &words).any(|(_, slot)| slot.is_live()) {
            return Err(IndexError::NotEmpty);
        }
        seal_all(&mut client, old.addr, &mut words, Some(old.ty.bucket_words())).await?;
        let at = SlotAt { addr: self.shared.words.root, slot: old_slot };
        if node::slots(old.ty, &words).any(|(_, slot)| slot.is_live()) {
            // Somebody put a key while we were sealing: finish the switch that the seals began.
            let target = Target { node: old, incoming: at, above: 0, words: None };
            self.switch(&mut client, &table, &mut self.hashed(&[]), &target, None, &[]).await?;
            return Err(IndexError::NotEmpty);
        }
        let slot = Slot::node(0, new.ty, 0, new.addr);
        if !self.publish(&mut client, &[], at, slot).await? {
            return Err(IndexError::NotEmpty);
        }
        self.shared.remember_root(slot);
        client.unlink(old.addr, old.ty.bytes(), AllocKind::Inner, node_note(&[]));
        for chunk in wishes.chunks(64) {
            let (keys, version) = (&self.shared.keys, self.shared.words.version);
            install(&mut client, &table, keys, version, chunk, &[]).await?;
        }
        Ok(())
    }
}

impl<F: Fabric> Builder<'_, F> {
    /// Takes all keys; answers the finished root.
    async fn run<I>(&mut self, client: &mut Client<F>, sorted: I) -> Result<NodeRef, IndexError>
    where
        I: Iterator<Item = KeyValue> + Send,
    {
        let mut last: Option<(Vec<u8>, Child)> = None;
        for (key, value) in sorted {
            check_key(&key)?;
            if let Some((previous, child)) = last.take() {
                if key <= previous {
                    // The leaf belongs to nobody yet; let the stack own it, so that it is given back.
                    self.adopt(&previous, child);
                    return Err(IndexError::NotSorted { at: self.count });
                }
                let shared = common_prefix(&previous, &key);
                self.close(client, &previous, child, shared).await?;
            }
            let leaf = self.write_leaf(client, &key, &value).await?;
            self.count += 1;
            last = Some((key, leaf));
        }
        if let Some((previous, child)) = last {
            self.close(client, &previous, child, 0).await?;
        }
        let root = self.stack.pop().map(|open| open.children).unwrap_or_default();
        let finished = self.finish_node(client, &mut self.dart.hashed(&[]), 0, &root).await;
        self.stack.push(Open { depth: 0, children: root });
        let root = finished?;
        self.flush(client).await?;
        Ok(root)
    }

    /// Attaches `child`, the last of `key`'s path, finishing every open node deeper than `shared`.
    async fn close(
        &mut self,
        client: &mut Client<F>,
        key: &[u8],
        mut child: Child,
        shared: usize,
    ) -> Result<(), IndexError> {
        let mut hashed = self.dart.hashed(key);
        while let Some(open) = self.stack.pop_if(|open| open.depth > shared) {
            let (depth, mut children) = (open.depth, open.children);
            match self.attach(client, &mut hashed, child, depth).await {
                Ok(slot) => children.push(slot),
                Err(error) => {
                    self.stack.push(Open { depth, children });
                    self.adopt(key, child);
                    return Err(error);
                }
            }
            match self.finish_node(client, &mut hashed, depth, &children).await {
                Ok(node) => {
                    child = Child { slot: Slot::node(0, node.ty, 0, node.addr), depth: Some(depth) };
                }
                Err(error) => {
                    self.stack.push(Open { depth, children });
                    return Err(error);
                }
            }
        }
        if self.stack.last().is_none_or(|open| open.depth < shared) {
            self.stack.push(Open { depth: shared, children: Vec::new() });
        }
        match self.attach(client, &mut hashed, child, shared).await {
            Ok(slot) => {
                if let Some(open) = self.stack.last_mut() {
                    open.children.push(slot);
                }
                Ok(())
            }
            Err(error) => {
                self.adopt(key, child);
                Err(error)
            }
        }
    }

    /// Lets the deepest open node own a child that could not be attached, for [`Builder::give_back`] to find.
    fn adopt(&mut self, key: &[u8], child: Child) {
        if let Some(open) = self.stack.last_mut() {
            let edge = key.get(open.depth).map_or(0, |&byte| u16::from(byte));
            open.children.push(child.slot.moved(edge, 0));
        }
    }

    /// The slot of a child in a node of depth `above`, chain nodes put between where an edge would skip too much.
    async fn attach(
        &mut self,
        client: &mut Client<F>,
        key: &mut HashedKey<'_>,
        child: Child,
        above: usize,
    ) -> Result<Slot, IndexError> {
        let Some(mut depth) = child.depth else {
            return Ok(child.slot.moved(key.edge(above), 0));
        };
        let mut slot = child.slot;
        loop {
            let upper = if depth - above - 1 > SKIP_MAX { depth - 1 - SKIP_MAX } else { above };
            if let Held::Node { addr, ty, .. } = slot.held() {
                let node = NodeRef { addr, ty, depth };
                if self.wishes.len() < WISHES_MAX {
                    self.wishes.extend(wishes_for(self.list, key, (upper, depth), node, None));
                }
            }
            slot = slot.moved(key.edge(upper), (depth - upper - 1) as u8);
            if upper == above {
                return Ok(slot);
            }
            let node = self.finish_node(client, key, upper, &[slot]).await?;
            slot = Slot::node(0, node.ty, 0, node.addr);
            depth = upper;
        }
    }

    async fn write_leaf(
        &mut self,
        client: &mut Client<F>,
        key: &[u8],
        value: &[u8],
    ) -> Result<Child, IndexError> {
        let max = client.pool().object_bytes_max();
        let Some(class) = leaf::leaf_class(key.len(), value.len()).filter(|&c| class_bytes(c) <= max) else {
            let max = (max as usize).saturating_sub(leaf::HEADER_BYTES + key.len());
            return Err(IndexError::ValueTooLong { bytes: value.len(), max });
        };
        let node = (self.count / LEAF_RUN % u64::from(client.pool().nodes())) as u8;
        let addr = alloc(client, node, class_bytes(class), AllocKind::Leaf).await?;
        self.write(client, addr, &leaf::image(key, value)).await?;
        Ok(Child { slot: Slot::leaf(0, class, addr), depth: None })
    }

    /// Writes a complete node. `key` has its prefix.
    async fn finish_node(
        &mut self,
        client: &mut Client<F>,
        key: &mut HashedKey<'_>,
        depth: usize,
        children: &[Slot],
    ) -> Result<NodeRef, IndexError> {
        let ty = NodeType::fit(children.iter().map(|slot| slot.edge().unwrap_or(END)));
        let home = ((key.express(depth) >> 16) % u64::from(client.pool().nodes())) as u8;
        let addr = alloc(client, home, ty.bytes(), AllocKind::Inner).await?;
        self.write(client, addr, &node::image(ty, key.identity(depth), children)).await?;
        Ok(NodeRef { addr, ty, depth })
    }

    async fn write(
        &mut self,
        client: &mut Client<F>,
        addr: darter_fabric::GlobalAddr,
        words: &[u64],
    ) -> Result<(), IndexError> {
        let batch = self.batch.get_or_insert_with(|| client.batch());
        batch.write(addr, words);
        self.batch_words += words.len();
        if self.batch_words >= BATCH_WORDS {
            self.flush(client).await?;
        }
        Ok(())
    }

    async fn flush(&mut self, client: &mut Client<F>) -> Result<(), IndexError> {
        self.batch_words = 0;
        if let Some(batch) = self.batch.take() {
            let done = client.submit(batch).await?;
            client.recycle(done);
        }
        Ok(())
    }

    /// Frees everything built, none of which was ever visible.
    async fn give_back(mut self, client: &mut Client<F>) -> Result<(), IndexError> {
        self.flush(client).await?;
        let mut doomed: Vec<Slot> = self.stack.into_iter().flat_map(|open| open.children).collect();
        while let Some(slot) = doomed.pop() {
            match slot.held() {
                Held::Leaf { addr, class } => {
                    client.free_unpublished(addr, class_bytes(class), AllocKind::Leaf);
                }
                Held::Node { addr, ty, .. } => {
                    let words = self.dart.read_node(client, NodeRef { addr, ty, depth: 0 }).await?;
                    doomed.extend(node::slots(ty, &words).map(|(_, slot)| slot));
                    client.free_unpublished(addr, ty.bytes(), AllocKind::Inner);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

async fn alloc<F: Fabric>(
    client: &mut Client<F>,
    node: u8,
    bytes: u64,
    kind: AllocKind,
) -> Result<darter_fabric::GlobalAddr, IndexError> {
    match client.try_alloc(node, bytes, kind) {
        Some(addr) => Ok(addr),
        None => Ok(client.alloc(node, bytes, kind).await?),
    }
}
