//! A walk of all nodes, for building a skip table and for counting.
//!
//! It visits some nodes at a time, each time under another pin. What it keeps from one pin to the
//! next is treated like remembered nodes (L2): a node that was replaced in the meantime is skipped
//! with everything below it. A table does not need every entry, and a count taken while others
//! write is only approximate.

use super::cache::is_old;
use super::hint::NodeHint;
use super::map_copy;
use super::nibble::{EdgeRange, first_below, identity_of, nibbles};
use super::node::{self, NodeAt};
use super::operation::Operation;
use super::page::standing_whole;
use crate::Result;
use crate::radix::prefix_list::{PathDepths, with_depth};
use crate::radix::seal::SEAL;
use darter_fabric::{Fabric, GlobalAddr};

/// Nodes whose children are read under one pin.
const PARENTS: usize = 32;

/// A visited node.
#[derive(Debug)]
pub(super) struct Met {
    pub(super) node: NodeHint,
    identity: u64,
    /// The depth of its parent.
    pub(super) above: usize,
    /// The depths of all nodes from the root to this one.
    pub(super) path: PathDepths,
    /// The number of these nodes.
    pub(super) levels: usize,
    /// Bytes of its pages.
    pub(super) page_bytes: u64,
    /// A key, or the beginning of one, with the node's prefix.
    pub(super) key: Option<Vec<u8>>,
}

/// A walk in progress.
#[derive(Debug)]
pub(super) struct Walk {
    /// Nodes whose children have not been visited yet.
    parents: Vec<Met>,
    /// Whether keys are wanted.
    wants_keys: bool,
    has_begun: bool,
}

/// A child node to be read.
struct Child {
    at: NodeAt,
    above: usize,
    path: PathDepths,
    levels: usize,
    /// The prefix, if its parent's is known and the edge skips nothing.
    key: Option<Vec<u8>>,
}

impl Walk {
    /// Creates a walk that has visited nothing yet.
    pub(super) fn new(wants_keys: bool) -> Self {
        Self { parents: Vec::new(), wants_keys, has_begun: false }
    }

    /// Visits the next nodes, with their words. Returns whether they were the last ones.
    ///
    /// # Errors
    /// Those of the fabric, and [`IndexError::Corrupt`](crate::IndexError::Corrupt).
    pub(super) async fn step<F: Fabric>(
        &mut self,
        operation: &mut Operation<'_, F>,
        visit: &mut (impl FnMut(&Met, &[u64]) + Send),
    ) -> Result<bool> {
        let mut children = Vec::new();
        if self.has_begun {
            let mut parents = self.parents.split_off(self.parents.len().saturating_sub(PARENTS));
            let forgotten = operation.shared.cache.forgotten();
            parents.retain(|met| !forgotten.contains(met.node.addr.node()));
            let words = operation.read_nodes(parents.iter().map(|met| met.node.into())).await?;
            for (met, words) in parents.iter().zip(words) {
                if words[0] == met.identity && node::proves(words[node::GUARD_AT], met.node.born) {
                    node::verify(met.node.into(), &words)?;
                    children.extend(children_of(met, &words));
                }
            }
        } else {
            let (at, ..) = operation.read_root().await?;
            let (path, key) = (PathDepths::default(), Some(Vec::new()));
            children.push(Child { at, above: 0, path, levels: 0, key });
            self.has_begun = true;
        }
        for (mut met, words) in operation.meet(children, self.wants_keys).await? {
            visit(&met, &words);
            if node::children(&node::slots(&words)).next().is_some() {
                met.page_bytes = 0;
                self.parents.push(met);
            }
        }
        Ok(self.parents.is_empty())
    }
}

fn children_of(met: &Met, words: &[u64]) -> Vec<Child> {
    let slots = node::slots(words);
    let depth = met.node.depth;
    let child = |(edge, skip, addr)| {
        let at = NodeAt { addr, depth: depth + 1 + skip };
        let prefix = met.key.as_ref().filter(|_| skip == 0);
        let (path, levels) = (met.path, met.levels);
        Child { at, above: depth, path, levels, key: prefix.map(|key| first_below(key, depth, edge)) }
    };
    node::children(&slots).map(child).collect()
}

impl<F: Fabric> Operation<'_, F> {
    /// The words of some nodes.
    async fn read_nodes(&mut self, nodes: impl Iterator<Item = NodeAt> + Send) -> Result<Vec<Vec<u64>>> {
        let mut batch = self.client.batch();
        let reads: Vec<_> = nodes.map(|node| batch.read(node.addr, node::NODE_WORDS)).collect();
        let done = self.client.submit(batch).await?;
        let words = reads.into_iter().map(|read| done.words(read).to_vec()).collect();
        self.client.recycle(done);
        Ok(words)
    }

    /// Reads child nodes. Returns the live ones, each with its words.
    async fn meet(&mut self, children: Vec<Child>, wants_keys: bool) -> Result<Vec<(Met, Vec<u64>)>> {
        let words = self.read_nodes(children.iter().map(|child| child.at)).await?;
        let mut all = Vec::with_capacity(children.len());
        let mut keyless = Vec::new();
        for (child, words) in children.into_iter().zip(words) {
            let Child { at, above, path, levels, key } = child;
            node::verify(at, &words)?;
            let (identity, guard) = (words[0], words[node::GUARD_AT]);
            let node = NodeHint { addr: at.addr, born: node::born(guard), depth: at.depth };
            if guard & SEAL != 0 || is_old(node.born, self.client.epoch()) {
                continue;
            }
            let page_bytes = node::pages(&node::slots(&words)).map(|(_, page)| page.bytes()).sum();
            let path = with_depth(path, at.depth);
            if key.is_none() && wants_keys {
                keyless.push(all.len());
            }
            let levels = levels + 1;
            all.push((Met { node, identity, above, path, levels, page_bytes, key }, words));
        }
        let nodes = keyless.iter().map(|&at| (all[at].0.node.into(), &all[at].1));
        let keys = self.keys_of(nodes).await?;
        for (at, key) in keyless.into_iter().zip(keys) {
            all[at].0.key = key;
        }
        Ok(all)
    }

    /// For each node with its words, a key below it, usually from the first record of a page; all
    /// records are read in one round trip.
    async fn keys_of<'w>(
        &mut self,
        nodes: impl Iterator<Item = (NodeAt, &'w Vec<u64>)> + Send,
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let delta = self.shared.geometry.delta;
        let mut batch = self.client.batch();
        let mut reads = Vec::new();
        for (at, words) in nodes {
            let record = first_record(at, words, delta);
            let read = record.map(|(page, addr, words)| (page, batch.read(addr, words)));
            reads.push((at, words[0], read));
        }
        let mut keys = Vec::with_capacity(reads.len());
        if reads.is_empty() {
            self.client.recycle(batch);
            return Ok(keys);
        }
        let done = self.client.submit(batch).await?;
        for (at, identity, read) in reads {
            let is_below = |key: &Vec<u8>| {
                nibbles(key) >= at.depth && identity_of(self.shared.keys, key, at.depth) == identity
            };
            // A copy of a map may have led to arbitrary words.
            let inline = read.and_then(|(page, read)| standing_whole(page, done.words(read)).ok()?);
            let key = match inline.map(|leaf| leaf.key.to_vec()).filter(is_below) {
                None => self.key_below(at).await?.filter(is_below),
                key => key,
            };
            keys.push(key);
        }
        self.client.recycle(done);
        Ok(keys)
    }
}

/// A node's first page that has a copy, the address of its first record, and the record's length.
fn first_record(at: NodeAt, words: &[u64], delta: usize) -> Option<(GlobalAddr, GlobalAddr, usize)> {
    let slots = node::slots(words);
    let copies = node::copies(words);
    node::pages(&slots).find_map(|(lo, page)| {
        let edges: EdgeRange = node::edges_of(&slots, lo);
        let copied = map_copy::page_for(copies, (page, edges), at.depth, delta, &[])?;
        let shape = copied.hint.shape;
        Some((page.addr, page.addr.plus(shape.record_at(0) as u64 * 8), shape.record_words))
    })
}
