//! Objects allocated for a change that is not visible yet.
//!
//! A writer allocates, writes, and links with one CAS. Until the CAS has succeeded, all objects can
//! be freed; afterwards none may. [`Drafts`] keeps the list in between. It frees nothing on drop:
//! verbs of a cancelled operation, including its CAS, may still be executed, so its objects are
//! left to the sweep (rule R6).

use super::leaf::{self, Image};
use crate::Result;
use crate::ordered::check_key;
use darter_fabric::{Batch, Fabric, GlobalAddr};
use darter_pool::size_class::class_bytes;
use darter_pool::{AllocKind, Client};
use smallvec::SmallVec;

/// Allocates an object. Avoids boxing the future if the client has a free object at hand.
///
/// # Errors
/// Those of the pool, most often out of space.
#[inline]
pub async fn alloc<F: Fabric>(
    client: &mut Client<F>,
    node: u8,
    bytes: u64,
    kind: AllocKind,
) -> Result<GlobalAddr> {
    match client.try_alloc(node, bytes, kind) {
        Some(addr) => Ok(addr),
        None => Ok(client.alloc(node, bytes, kind).await?),
    }
}

/// Unpublished objects of one operation.
#[derive(Debug, Default)]
pub struct Drafts {
    objects: SmallVec<[(GlobalAddr, u64, AllocKind); 4]>,
}

impl Drafts {
    /// Creates an empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Allocates an object, preferably on memory node `node`.
    ///
    /// # Errors
    /// Those of the pool, most often out of space.
    #[inline]
    pub async fn alloc<F: Fabric>(
        &mut self,
        client: &mut Client<F>,
        node: u8,
        bytes: u64,
        kind: AllocKind,
    ) -> Result<GlobalAddr> {
        let addr = alloc(client, node, bytes, kind).await?;
        self.objects.push((addr, bytes, kind));
        Ok(addr)
    }

    /// Adds an object that was allocated elsewhere and not published.
    pub fn add(&mut self, addr: GlobalAddr, bytes: u64, kind: AllocKind) {
        self.objects.push((addr, bytes, kind));
    }

    /// The change was published: the objects now belong to the index.
    pub fn keep(&mut self) {
        self.objects.clear();
    }

    /// The change was not published, and no CAS that could publish it is in flight.
    pub fn discard<F: Fabric>(&mut self, client: &mut Client<F>) {
        for (addr, bytes, kind) in self.objects.drain(..) {
            client.free_unpublished(addr, bytes, kind);
        }
    }
}

/// A pair that is being put: its leaf's words, and the leaf once it is allocated.
pub struct Draft<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The leaf's size class.
    pub class: u8,
    /// The leaf's words, to be written before it is linked.
    pub words: Image,
    leaf: Option<GlobalAddr>,
    /// Whether [`Draft::post`] has added its words to a batch.
    is_posted: bool,
    drafts: Drafts,
}

impl<'a> Draft<'a> {
    /// Creates the words of a leaf for this pair. Allocates nothing.
    ///
    /// # Errors
    /// Key or value too long for this pool.
    pub fn new<F: Fabric>(client: &Client<F>, key: &'a [u8], value: &[u8]) -> Result<Self> {
        check_key(key)?;
        let class = leaf::class_within(client.pool().object_bytes_max(), key.len(), value.len())?;
        let words = leaf::image(key, value);
        Ok(Self { key, class, words, leaf: None, is_posted: false, drafts: Drafts::new() })
    }

    /// Allocates the leaf, if it is not allocated yet, and returns its address: on the memory node
    /// of the slot that will point to it, if there is room.
    ///
    /// # Errors
    /// Those of the pool, most often out of space.
    pub async fn place<F: Fabric>(&mut self, client: &mut Client<F>, node: u8) -> Result<GlobalAddr> {
        if let Some(addr) = self.leaf {
            return Ok(addr);
        }
        let addr = self.drafts.alloc(client, node, class_bytes(self.class), AllocKind::Leaf).await?;
        (self.leaf, self.is_posted) = (Some(addr), false);
        Ok(addr)
    }

    /// Sets whether the leaf says that it replaces another leaf of its key unconditionally
    /// ([`leaf::mark_replacement`]). A leaf that was posted with another mark is posted again.
    pub fn mark_replacement(&mut self, is_one: bool) {
        let before = self.words[0];
        leaf::mark_replacement(&mut self.words, is_one);
        self.is_posted &= self.words[0] == before;
    }

    /// Whether the leaf that won the word for which this one was meant replaced another leaf of the
    /// same key unconditionally. If so, this put took effect just before that one, and was
    /// overwritten unseen.
    ///
    /// # Errors
    /// Those of the fabric; a damaged leaf.
    pub async fn is_superseded<F: Fabric>(
        &self,
        client: &mut Client<F>,
        (addr, class): (GlobalAddr, u8),
    ) -> Result<bool> {
        let words = client.read(addr, leaf::class_words(class)).await?;
        Ok(leaf::is_replacement(words[0]) && leaf::parse(addr, &words)?.key == self.key)
    }

    /// Adds the WRITE of a placed leaf, unless an earlier batch contained it. Do not use it for
    /// words that change between attempts.
    pub fn post(&mut self, batch: &mut Batch) {
        if let Some(addr) = self.leaf.filter(|_| !self.is_posted) {
            batch.write(addr, &self.words);
            self.is_posted = true;
        }
    }

    /// The leaf was published.
    pub fn linked(&mut self) {
        self.drafts.keep();
    }

    /// The leaf was published in a place that turned out not to hold pairs: another attempt
    /// allocates another leaf.
    pub fn lost(&mut self) {
        self.drafts.keep();
        self.leaf = None;
    }

    /// Frees objects that were not linked.
    pub fn discard<F: Fabric>(&mut self, client: &mut Client<F>) {
        self.drafts.discard(client);
    }
}
