//! A process's view of the models: their generation and root, read again by the first operation of
//! each epoch, and the cache of sub-models and table entries.
//!
//! The pins of readers keep the objects that a view of their epoch leads to (rule X1). A view never
//! goes back: a late reply of an earlier generation serves only the operation that requested it,
//! whose pin is as old.

use super::super::XStoreOptions;
use super::super::descriptor::Descriptor;
use super::super::image::{ImageWord, NODE_WORDS};
use super::super::leaf::address;
use super::super::model::{Cache, RouteStep, SubModel, TopModel, View};
use super::super::root::{ModelsWord, ROOT_WORDS, Root, top_of};
use super::tree::{TreeCache, Way};
use crate::sync::lock;
use darter_fabric::{Fabric, GlobalAddr};
use darter_index::Result;
use darter_pool::{Client, Pinned};
use std::sync::{Arc, Mutex};

/// Models that a client may use in its epoch.
#[derive(Debug)]
pub(crate) struct Models {
    pub(super) view: View,
    root_at: GlobalAddr,
    root: Root,
}

impl Models {
    /// Returns the address and number of words of a route's step. `None` if the step reads no
    /// models or leads outside the node's memory.
    pub(super) fn place<F: Fabric>(
        &self,
        client: &Client<F>,
        index: &Descriptor,
        step: &RouteStep,
    ) -> Option<(GlobalAddr, usize)> {
        let (addr, words) = match step {
            RouteStep::Top => (top_of(self.root_at), TopModel::WORDS),
            RouteStep::SubModel(submodel) => (self.submodel_at(*submodel)?, SubModel::WORDS),
            RouteStep::Entries(table, positions) => {
                let offset = table.offset() + u64::from(*positions.start()) * 8;
                (GlobalAddr::new(index.node, offset), positions.clone().count())
            }
            RouteStep::Inner(number) => (index.leaf(*number), NODE_WORDS),
            RouteStep::Leaves(_) | RouteStep::Children(_) | RouteStep::Call => return None,
        };
        is_within(client, addr, words).then_some((addr, words))
    }

    /// Returns the word of the image of the inner nodes.
    fn image(&self) -> Option<ImageWord> {
        self.root.image
    }

    /// Returns the address of a sub-model's words.
    pub(super) fn submodel_at(&self, submodel: u32) -> Option<GlobalAddr> {
        self.root.place(submodel)
    }
}

/// Returns whether words lie within the memory of their node.
pub(super) fn is_within<F: Fabric>(client: &Client<F>, addr: GlobalAddr, words: usize) -> bool {
    let fabric = client.pool().fabric();
    let is_node = usize::from(addr.node()) < fabric.nodes();
    is_node
        && addr.offset().is_multiple_of(8)
        && addr.offset() + words as u64 * 8 <= fabric.node_bytes(addr.node())
}

/// The models as last read.
#[derive(Clone, Debug, Default)]
struct Known {
    word: ModelsWord,
    /// The epoch after the last one in which they were read; 0 for never.
    until: u64,
    models: Option<Arc<Models>>,
}

/// State of the models shared by the clients of a process.
#[derive(Debug)]
pub(crate) struct Sight {
    pub(crate) cache: Cache,
    /// Set if reads use the inner nodes.
    tree: Option<TreeCache>,
    /// Whether models are used at all.
    is_on: bool,
    known: Mutex<Known>,
}

impl Sight {
    pub(crate) fn new(options: &XStoreOptions) -> Self {
        let tree = options.tree_from.map(TreeCache::new);
        let is_on = options.cache_bytes > 0 || tree.is_some();
        Self { cache: Cache::new(options.cache_bytes), tree, is_on, known: Mutex::default() }
    }

    /// Returns the bytes of the cache in use.
    pub(crate) fn cache_bytes(&self) -> u64 {
        self.cache.bytes() + self.tree.as_ref().map_or(0, TreeCache::bytes)
    }

    /// Starts a way to the leaf of a model key, with up to this many leaves before and after it if
    /// they are adjacent in the same table or node.
    pub(super) fn way(&self, models: &Models, key: u64, more: (u32, u32)) -> Way<'_> {
        Way::new((&self.cache, self.tree.as_ref()), (models.view, models.image()), key, more)
    }

    /// Returns the models of any epoch, for hints that the server verifies.
    pub(super) fn recent(&self) -> Option<Arc<Models>> {
        lock(&self.known).models.clone()
    }

    /// Returns the models of the caller's epoch or a later one; `None` if there are none to use.
    ///
    /// # Errors
    /// Errors of the fabric.
    pub(super) async fn models<F: Fabric>(
        &self,
        client: &mut Pinned<'_, F>,
        index: &Descriptor,
    ) -> Result<Option<Arc<Models>>> {
        if !self.is_on {
            return Ok(None);
        }
        {
            let known = lock(&self.known);
            let is_fresh = known.until > client.epoch();
            if is_fresh {
                return Ok(known.models.clone());
            }
        }
        self.refresh(client, index).await
    }

    #[cold]
    async fn refresh<F: Fabric>(
        &self,
        client: &mut Pinned<'_, F>,
        index: &Descriptor,
    ) -> Result<Option<Arc<Models>>> {
        let until = client.epoch() + 1;
        let [word] = client.read_words(index.models()).await?;
        let word = ModelsWord::from_word(word);
        {
            let mut known = lock(&self.known);
            if known.until > 0 && known.word == word {
                known.until = until.max(known.until);
                return Ok(known.models.clone());
            }
        }
        let models = read_models(client, index, word).await?.map(Arc::new);
        let mut known = lock(&self.known);
        if known.until == 0 || word.generation > known.word.generation {
            *known = Known { word, until, models: models.clone() };
        }
        Ok(models)
    }
}

/// Reads a root; `None` if there is none. Invalid words are left to the check.
async fn read_models<F: Fabric>(
    client: &mut Pinned<'_, F>,
    index: &Descriptor,
    word: ModelsWord,
) -> Result<Option<Models>> {
    let addr = address(index.node, word.root);
    if word.root == 0 || !is_within(client, addr, ROOT_WORDS) {
        return Ok(None);
    }
    let mut words = client.read(addr, ROOT_WORDS).await?;
    let room = Root::count(&words).map_or(0, Root::room);
    if room > ROOT_WORDS && is_within(client, addr, room) {
        words = client.read(addr, room).await?;
    }
    Ok(Root::parse(&words).map(|root| {
        let view = View { generation: word.generation.into(), submodels: root.submodels };
        Models { view, root_at: addr, root }
    }))
}
