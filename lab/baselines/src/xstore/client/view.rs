//! What a process knows of the models: their generation and root, read anew by the first operation
//! of each epoch, and the cache of sub-models and table entries.
//!
//! What a view of an epoch leads to is kept by the pins of its readers (rule X1). A view never goes
//! back: an answer that comes late, of an earlier generation, serves the operation that asked for
//! it, whose pin is as old, and nobody else.

use super::super::XStoreOptions;
use super::super::descriptor::Descriptor;
use super::super::image::{ImageWord, NODE_WORDS};
use super::super::leaf::address;
use super::super::model::{Cache, Step, SubModel, TopModel, View};
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
    /// Where the words are that a step of a route asks for, and how many. `None` for what is no
    /// READ of models, or leads out of the node's memory.
    pub(super) fn place<F: Fabric>(
        &self,
        client: &Client<F>,
        index: &Descriptor,
        step: &Step,
    ) -> Option<(GlobalAddr, usize)> {
        let (addr, words) = match step {
            Step::Top => (top_of(self.root_at), TopModel::WORDS),
            Step::SubModel(submodel) => (self.submodel_at(*submodel)?, SubModel::WORDS),
            Step::Entries(table, positions) => {
                let offset = table.offset() + u64::from(*positions.start()) * 8;
                (GlobalAddr::new(index.node, offset), positions.clone().count())
            }
            Step::Inner(number) => (index.leaf(*number), NODE_WORDS),
            Step::Leaves(_) | Step::Children(_) | Step::Call => return None,
        };
        is_within(client, addr, words).then_some((addr, words))
    }

    /// The word of the image of the inner nodes.
    fn image(&self) -> Option<ImageWord> {
        self.root.image
    }

    /// The address of a sub-model's words.
    pub(super) fn submodel_at(&self, submodel: u32) -> Option<GlobalAddr> {
        self.root.place(submodel)
    }
}

/// Whether words lie in the memory of their node.
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
    /// Behind the last epoch in which they were read; 0 for never.
    until: u64,
    models: Option<Arc<Models>>,
}

/// What the clients of a process share of the models.
#[derive(Debug)]
pub(crate) struct Sight {
    pub(crate) cache: Cache,
    /// Where reads go by inner nodes.
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

    /// Bytes of the cache in use.
    pub(crate) fn cache_bytes(&self) -> u64 {
        self.cache.bytes() + self.tree.as_ref().map_or(0, TreeCache::bytes)
    }

    /// Begins a way to the leaves of a model key, with so many before and behind them, as far as
    /// they stand beside them.
    pub(super) fn way(&self, models: &Models, key: u64, more: (u32, u32)) -> Way<'_> {
        Way::new((&self.cache, self.tree.as_ref()), (models.view, models.image()), key, more)
    }

    /// Models that were known in any epoch, for hints that the server verifies.
    pub(super) fn recent(&self) -> Option<Arc<Models>> {
        lock(&self.known).models.clone()
    }

    /// The models of the caller's epoch, or a later one; `None` if there are none to be used.
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

/// Reads a root. `None` if there is none: words that are none's are left to the check.
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
