//! Bulk load: a radix tree from strictly ascending keys, built bottom-up.
//!
//! The open nodes of the last key's path are on a stack. Where the next key diverges from the last,
//! every open node deeper than that is complete: it gets the smallest type that fits, and is
//! written once. Nothing is visible before the caller publishes the root, so after a failure
//! everything is freed.

use super::common_prefix;
use super::drafts::alloc;
use super::leaf;
use super::prefix_hash::{HashKeys, HashedKey};
use super::slot::{Content, NodeCode, Slot};
use super::writes::Writes;
use crate::ordered::check_key;
use crate::{IndexError, KeyValue, Result};
use darter_fabric::{Fabric, GlobalAddr};
use darter_pool::size_class::class_bytes;
use darter_pool::{AllocKind, Client};

/// Number of consecutive leaves on one memory node.
const LEAF_RUN: u64 = 64;

/// The format of the tree's nodes.
pub trait Shape: Send {
    /// The types of node.
    type Type: NodeCode + Send;

    /// Maximum number of bytes that an edge skips. If one would skip more, a chain of nodes with
    /// one child each is inserted.
    const SKIP_MAX: usize;

    /// The smallest type that holds these children.
    fn fit(&self, children: &[Slot<Self::Type>]) -> Self::Type;

    /// Bytes of a node.
    fn bytes(ty: Self::Type) -> u64;

    /// A node's words.
    fn image(ty: Self::Type, identity: u64, children: &[Slot<Self::Type>]) -> Vec<u64>;

    /// The live slots in a node's words.
    fn children(ty: Self::Type, words: &[u64]) -> Vec<Slot<Self::Type>>;

    /// The encoding in a slot of the number of bytes that its edge skips, at most
    /// [`Shape::SKIP_MAX`].
    fn skip(bytes: usize) -> u8;

    /// Called when a finished node is attached below a node of depth `above`. `key` has its prefix.
    fn attached(&mut self, key: &mut HashedKey<'_>, above: usize, node: Built<Self::Type>);
}

/// A finished node.
#[derive(Clone, Copy, Debug)]
pub struct Built<T> {
    /// The node's address.
    pub addr: GlobalAddr,
    /// Its type.
    pub ty: T,
    /// Length of its prefix in bytes.
    pub depth: usize,
}

/// A node that may still get further children.
struct Open<T> {
    depth: usize,
    children: Vec<Slot<T>>,
}

/// A finished child without its edge: a leaf, or a node of known depth.
#[derive(Clone, Copy)]
struct Child<T> {
    slot: Slot<T>,
    /// The depth, if it is a node.
    depth: Option<usize>,
}

/// A tree under construction.
pub struct Builder<S: Shape> {
    /// The format of its nodes.
    pub shape: S,
    keys: HashKeys,
    stack: Vec<Open<S::Type>>,
    /// The finished root, with the children of the lowest open node.
    root: Option<Built<S::Type>>,
    writes: Writes,
    /// Number of keys taken.
    count: u64,
}

impl<S: Shape> Builder<S> {
    /// An empty tree; `keys` hashes the prefixes of its nodes.
    pub fn new(shape: S, keys: HashKeys) -> Self {
        let stack = vec![Open { depth: 0, children: Vec::new() }];
        Self { shape, keys, stack, root: None, writes: Writes::default(), count: 0 }
    }

    /// Takes all keys and returns the finished root, to which nothing points yet. Replace an empty
    /// index's root by it, then call [`Builder::end`].
    ///
    /// # Errors
    /// [`IndexError::NotSorted`], a key or value that is too long, or those of the pool and the
    /// fabric. Everything built is then freed, unless freeing it fails, too.
    /// fabric. Everything built is freed then, except where freeing it fails too.
    pub async fn run<F: Fabric, I>(&mut self, client: &mut Client<F>, sorted: I) -> Result<Built<S::Type>>
    where
        I: Iterator<Item = KeyValue> + Send,
    {
        match self.build(client, sorted).await {
            Ok(root) => Ok(root),
            Err(error) => {
                self.give_back(client).await?;
                Err(error)
            }
        }
    }

    /// Ends a load, given the result of publishing its root. Returns the number of keys loaded.
    ///
    /// # Errors
    /// The given error. [`IndexError::NotEmpty`] means that the root was not published: everything
    /// is freed. After any other error it may be linked, since the CAS may have been executed
    /// although its reply was lost.
    pub async fn end<F: Fabric>(mut self, client: &mut Client<F>, published: Result<()>) -> Result<u64> {
        if matches!(published, Err(IndexError::NotEmpty)) {
            self.give_back(client).await?;
        }
        published.map(|()| self.count)
    }

    async fn build<F: Fabric, I>(&mut self, client: &mut Client<F>, sorted: I) -> Result<Built<S::Type>>
    where
        I: Iterator<Item = KeyValue> + Send,
    {
        let mut last: Option<(Vec<u8>, Child<S::Type>)> = None;
        for (key, value) in sorted {
            check_key(&key)?;
            if let Some((previous, child)) = last.take() {
                if key <= previous {
                    // The leaf is not on the stack yet; add it, so that it is freed.
                    self.adopt(&previous, child);
                    return Err(IndexError::NotSorted { at: self.count });
                }
                let common = common_prefix(&previous, &key);
                self.close(client, &previous, child, common).await?;
            }
            let leaf = self.write_leaf(client, &key, &value).await?;
            self.count += 1;
            last = Some((key, leaf));
        }
        if let Some((previous, child)) = last {
            self.close(client, &previous, child, 0).await?;
        }
        let root = self.stack.pop().map(|open| open.children).unwrap_or_default();
        let finished = self.finish_node(client, &mut HashedKey::new(self.keys, &[]), 0, &root).await;
        self.stack.push(Open { depth: 0, children: root });
        let root = finished?;
        self.root = Some(root);
        self.writes.flush(client).await?;
        Ok(root)
    }

    /// Attaches `child`, the last of `key`'s path, finishing every open node deeper than `common`.
    async fn close<F: Fabric>(
        &mut self,
        client: &mut Client<F>,
        key: &[u8],
        mut child: Child<S::Type>,
        common: usize,
    ) -> Result<()> {
        let mut hashed = HashedKey::new(self.keys, key);
        while let Some(open) = self.stack.pop_if(|open| open.depth > common) {
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
        if self.stack.last().is_none_or(|open| open.depth < common) {
            self.stack.push(Open { depth: common, children: Vec::new() });
        }
        match self.attach(client, &mut hashed, child, common).await {
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

    /// Adds a child that could not be attached to the deepest open node, so that
    /// [`Builder::give_back`] finds it.
    fn adopt(&mut self, key: &[u8], child: Child<S::Type>) {
        if let Some(open) = self.stack.last_mut() {
            let edge = key.get(open.depth).map_or(0, |&byte| u16::from(byte));
            open.children.push(child.slot.moved(edge, 0));
        }
    }

    /// The slot of a child in a node of depth `above`. Inserts chain nodes where an edge would skip
    /// too many bytes.
    async fn attach<F: Fabric>(
        &mut self,
        client: &mut Client<F>,
        key: &mut HashedKey<'_>,
        child: Child<S::Type>,
        above: usize,
    ) -> Result<Slot<S::Type>> {
        let Some(mut depth) = child.depth else {
            return Ok(child.slot.moved(key.edge(above), 0));
        };
        let mut slot = child.slot;
        loop {
            let upper = if depth - above - 1 > S::SKIP_MAX { depth - 1 - S::SKIP_MAX } else { above };
            if let Content::Node { addr, ty, .. } = slot.content() {
                self.shape.attached(key, upper, Built { addr, ty, depth });
            }
            slot = slot.moved(key.edge(upper), S::skip(depth - upper - 1));
            if upper == above {
                return Ok(slot);
            }
            let node = self.finish_node(client, key, upper, &[slot]).await?;
            slot = Slot::node(0, node.ty, 0, node.addr);
            depth = upper;
        }
    }

    async fn write_leaf<F: Fabric>(
        &mut self,
        client: &mut Client<F>,
        key: &[u8],
        value: &[u8],
    ) -> Result<Child<S::Type>> {
        let class = leaf::class_within(client.pool().object_bytes_max(), key.len(), value.len())?;
        let node = (self.count / LEAF_RUN % u64::from(client.pool().nodes())) as u8;
        let addr = alloc(client, node, class_bytes(class), AllocKind::Leaf).await?;
        self.writes.write(client, addr, &leaf::image(key, value)).await?;
        Ok(Child { slot: Slot::leaf(0, class, addr), depth: None })
    }

    /// Writes a complete node. `key` has its prefix.
    async fn finish_node<F: Fabric>(
        &mut self,
        client: &mut Client<F>,
        key: &mut HashedKey<'_>,
        depth: usize,
        children: &[Slot<S::Type>],
    ) -> Result<Built<S::Type>> {
        let ty = self.shape.fit(children);
        let home = ((key.express(depth) >> 16) % u64::from(client.pool().nodes())) as u8;
        let addr = alloc(client, home, S::bytes(ty), AllocKind::Inner).await?;
        self.writes.write(client, addr, &S::image(ty, key.identity(depth), children)).await?;
        Ok(Built { addr, ty, depth })
    }

    /// Frees everything built, none of which was ever visible. Objects that an error of the fabric
    /// leaves behind are freed by the sweep.
    async fn give_back<F: Fabric>(&mut self, client: &mut Client<F>) -> Result<()> {
        if self.writes.may_be_lost() {
            return Ok(());
        }
        self.writes.flush(client).await?;
        if let Some(Built { addr, ty, .. }) = self.root.take() {
            client.free_unpublished(addr, S::bytes(ty), AllocKind::Inner);
        }
        let mut doomed: Vec<Slot<S::Type>> = self.stack.drain(..).flat_map(|open| open.children).collect();
        while let Some(slot) = doomed.pop() {
            match slot.content() {
                Content::Leaf { addr, class } => {
                    client.free_unpublished(addr, class_bytes(class), AllocKind::Leaf);
                }
                Content::Node { addr, ty, .. } => {
                    let words = client.read(addr, (S::bytes(ty) / 8) as usize).await?;
                    doomed.extend(S::children(ty, &words));
                    client.free_unpublished(addr, S::bytes(ty), AllocKind::Inner);
                }
                _ => {}
            }
        }
        Ok(())
    }
}
