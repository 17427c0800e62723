//! The way from a key to its leaf through the image of the server's inner nodes, and a process's
//! cache of them. The cache holds the nodes from one level up, without a limit. Nodes below that
//! level are READ each time.
//!
//! All cached nodes belong to one generation, as with models: a client with a newer view clears the
//! cache, and a client with an older view finds nothing in it.

use super::super::image::{ImageWord, InnerNode, NODE_BYTES};
use super::super::model::{Cache, Entry, Leaves, NoModel, Route, RouteStep, View};
use crate::sync::lock;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// Shards with a lock each.
const SHARDS: usize = 16;

/// The cached nodes of a shard.
#[derive(Debug, Default)]
struct Nodes {
    generation: u64,
    by_number: HashMap<u32, Arc<InnerNode>>,
}

/// The inner nodes that a process caches.
#[derive(Debug)]
pub(crate) struct TreeCache {
    /// The lowest level that is cached; the level above the leaves is 1.
    from: u8,
    shards: [Mutex<Nodes>; SHARDS],
}

impl TreeCache {
    pub(super) fn new(from: u8) -> Self {
        Self { from, shards: Default::default() }
    }

    /// Returns the bytes of the cached nodes.
    pub(super) fn bytes(&self) -> u64 {
        self.shards.iter().map(|shard| lock(shard).by_number.len() as u64 * NODE_BYTES).sum()
    }

    /// Returns the shard of a node, after dropping nodes older than the view.
    fn shard(&self, generation: u64, number: u32) -> MutexGuard<'_, Nodes> {
        let mut nodes = lock(&self.shards[number as usize % SHARDS]);
        if nodes.generation < generation {
            nodes.generation = generation;
            nodes.by_number.clear();
        }
        nodes
    }

    fn find(&self, generation: u64, number: u32) -> Option<Arc<InnerNode>> {
        let nodes = self.shard(generation, number);
        nodes.by_number.get(&number).filter(|_| nodes.generation == generation).cloned()
    }

    fn learn(&self, generation: u64, (number, level): (u32, u8), node: &Arc<InnerNode>) {
        let mut nodes = self.shard(generation, number);
        if level >= self.from && nodes.generation == generation {
            nodes.by_number.insert(number, Arc::clone(node));
        }
    }

    /// Replaces an entry that led to a leaf by the state a client has read in the leaf's header.
    fn renew(&self, generation: u64, number: u32, place: u32, entry: Entry) {
        let mut nodes = self.shard(generation, number);
        let is_same = nodes.generation == generation;
        if let Some(node) = nodes.by_number.get_mut(&number).filter(|_| is_same) {
            Arc::make_mut(node).renew(place as usize, entry);
        }
    }
}

/// The progress of a way.
#[derive(Debug)]
enum State {
    /// A node has to be read.
    Node(u32),
    /// The lowest node leads to these leaves.
    Leaves(Vec<(u32, Entry)>),
    Nowhere,
}

/// A way through the tree.
#[derive(Debug)]
pub(super) struct TreeWay<'a> {
    cache: &'a TreeCache,
    generation: u64,
    key: u64,
    /// Number of leaves wanted before and after that of the key.
    more: (u32, u32),
    /// The last node visited, and its level.
    number: u32,
    level: u8,
    state: State,
}

impl<'a> TreeWay<'a> {
    fn new(
        cache: &'a TreeCache,
        generation: u64,
        image: Option<ImageWord>,
        key: u64,
        more: (u32, u32),
    ) -> Self {
        let ImageWord { levels, root } = image.unwrap_or(ImageWord { levels: 0, root: 0 });
        let state = if image.is_some() { State::Node(root) } else { State::Nowhere };
        let mut way = Self { cache, generation, key, more, number: root, level: levels, state };
        way.go_down();
        way
    }

    /// Follows the cached nodes.
    fn go_down(&mut self) {
        while let State::Node(number) = self.state
            && let Some(node) = self.cache.find(self.generation, number)
        {
            self.pass(&node);
        }
    }

    /// Moves from the node that had to be read to its child.
    fn pass(&mut self, node: &InnerNode) {
        let place = node.place_of(self.key);
        self.state = match place {
            Some(place) if self.level <= 1 => State::Leaves(node.entries(place, self.more)),
            Some(place) => node.node_at(place).map_or(State::Nowhere, State::Node),
            None => State::Nowhere,
        };
        if let State::Node(number) = self.state {
            (self.number, self.level) = (number, self.level - 1);
        }
    }

    fn step(&self) -> RouteStep {
        match &self.state {
            State::Node(number) => RouteStep::Inner(*number),
            State::Leaves(entries) if !entries.is_empty() => RouteStep::Children(entries.clone()),
            State::Leaves(_) | State::Nowhere => RouteStep::Call,
        }
    }

    fn absorb(&mut self, words: &[u64]) -> Result<(), NoModel> {
        let node = InnerNode::from_words(words).map(Arc::new).ok_or(NoModel)?;
        let State::Node(number) = self.state else { return Err(NoModel) };
        self.cache.learn(self.generation, (number, self.level), &node);
        self.pass(&node);
        self.go_down();
        Ok(())
    }
}

/// A way from a key to the leaves that can hold it.
#[derive(Debug)]
pub(super) enum Way<'a> {
    Models(Route<'a>),
    Tree(TreeWay<'a>),
}

impl<'a> Way<'a> {
    /// Starts with the cached nodes: by the tree if one is cached, with up to this many leaves
    /// before and after that of the key if they are adjacent in the same table or node.
    pub(super) fn new(
        (cache, tree): (&'a Cache, Option<&'a TreeCache>),
        (view, image): (View, Option<ImageWord>),
        key: u64,
        more: (u32, u32),
    ) -> Self {
        match tree {
            Some(tree) => Self::Tree(TreeWay::new(tree, view.generation, image, key, more)),
            None => Self::Models(cache.route_scan(view, key, more)),
        }
    }

    /// Returns the next step.
    pub(super) fn step(&self) -> RouteStep {
        match self {
            Self::Models(route) => route.step(),
            Self::Tree(way) => way.step(),
        }
    }

    /// Processes the words of the last step.
    pub(super) fn absorb(&mut self, words: &[u64]) -> Result<(), NoModel> {
        match self {
            Self::Models(route) => route.absorb(words),
            Self::Tree(way) => way.absorb(words),
        }
    }

    /// Returns the sub-model that is responsible for the key once it is known.
    pub(super) fn submodel(&self) -> Option<u32> {
        match self {
            Self::Models(route) => route.submodel(),
            Self::Tree(_) => None,
        }
    }

    /// Updates an entry that has led to a leaf of another incarnation.
    pub(super) fn renew(
        &self,
        cache: &Cache,
        view: View,
        leaves: Option<&Leaves>,
        (place, entry): (u32, Entry),
    ) {
        match (self, leaves) {
            (Self::Models(_), Some(leaves)) => cache.renew_entry(view, leaves, place, entry),
            (Self::Models(_), None) => {}
            (Self::Tree(way), _) => way.cache.renew(view.generation, way.number, place, entry),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VIEW: View = View { generation: 7, submodels: 1 };

    /// Two levels over four leaves, numbered 1 to 4, whose keys begin at 0, 10, 20 and 30.
    fn node(number: u32) -> InnerNode {
        let leaf = |number| Entry::new(number, 2, 3).word();
        match number {
            100 => InnerNode::new(&[(0, 101), (20, 102)]),
            101 => InnerNode::new(&[(0, leaf(1)), (10, leaf(2))]),
            _ => InnerNode::new(&[(20, leaf(3)), (30, leaf(4))]),
        }
    }

    fn way(cache: &TreeCache, generation: u64, key: u64) -> TreeWay<'_> {
        TreeWay::new(cache, generation, Some(ImageWord { levels: 2, root: 100 }), key, (0, 0))
    }

    /// Proceeds until a leaf is found; returns its number and how many nodes were read.
    fn walk(cache: &TreeCache, generation: u64, key: u64) -> (u32, u32) {
        let (mut way, mut reads) = (way(cache, generation, key), 0);
        loop {
            match way.step() {
                RouteStep::Inner(number) => way.absorb(node(number).words()).unwrap(),
                RouteStep::Children(entries) => return (entries[0].1.number(), reads),
                step => panic!("{step:?}"),
            }
            reads += 1;
        }
    }

    #[test]
    fn nodes_from_a_level_on_are_read_once() {
        for (from, again, bytes) in [(1, 0, 2), (2, 1, 1), (3, 2, 0)] {
            let cache = TreeCache::new(from);
            assert_eq!(walk(&cache, 7, 15), (2, 2));
            assert_eq!(walk(&cache, 7, 15), (2, again));
            assert_eq!(walk(&cache, 7, 3), (1, again));
            assert_eq!(cache.bytes(), bytes * NODE_BYTES);
            assert_eq!(walk(&cache, 7, 30).0, 4);
        }
    }

    #[test]
    fn nodes_end_with_their_generation() {
        let cache = TreeCache::new(1);
        assert_eq!(walk(&cache, 7, 15), (2, 2));
        assert_eq!(walk(&cache, 8, 15), (2, 2), "another generation has other nodes");
        assert_eq!(walk(&cache, 8, 15), (2, 0));
        assert_eq!(walk(&cache, 7, 15), (2, 2), "an older view finds nothing, and adds nothing");
        assert_eq!(cache.bytes(), 2 * NODE_BYTES);
    }

    #[test]
    fn an_entry_is_renewed_and_no_image_is_a_call() {
        let cache = TreeCache::new(1);
        walk(&cache, 7, 15);
        let models = Cache::new(0);
        let way =
            Way::new((&models, Some(&cache)), (VIEW, Some(ImageWord { levels: 2, root: 100 })), 15, (0, 0));
        let renewed = Entry::new(2, 8, 1);
        way.renew(&models, VIEW, None, (1, renewed));
        let again =
            Way::new((&models, Some(&cache)), (VIEW, Some(ImageWord { levels: 2, root: 100 })), 15, (9, 9));
        let RouteStep::Children(entries) = again.step() else { panic!("{again:?}") };
        assert_eq!(entries.iter().map(|(_, entry)| entry.incarnation()).collect::<Vec<_>>(), [2, 8]);
        let nowhere = Way::new((&models, Some(&cache)), (VIEW, None), 15, (0, 0));
        assert_eq!((nowhere.step(), nowhere.submodel()), (RouteStep::Call, None));
    }
}
