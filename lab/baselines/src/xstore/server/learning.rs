//! Training: builds models from the leaves, writes them to the pool, and updates them after splits.
//!
//! One call at a time trains. It holds a separate lock, taken before the lock of any leaf. Models
//! are written completely before a CAS makes the descriptor's word lead to them. That CAS begins a
//! generation; then the objects of the previous generation are retired. Within a generation, a
//! table's memory is reused only for tables: a sub-model that is trained again gets another table,
//! and its old table becomes free for the next one. A server that starts ends its predecessor's
//! generation, whose objects are reclaimed by the sweep.
//!
//! Models are hints, so a failure to train costs only speed. Even if a call fails or is cancelled
//! between two verbs, [`Learning`] never treats memory as free that a word of the pool may still
//! lead to.

use super::super::descriptor::alloc_numbered;
use super::super::leaf::{UNIT, address, number_of};
use super::super::model::{
    KEYS_MAX, Scope, SubModel, TableRef, TopModel, Trained, Trainer, last_below, model_key, resized,
    submodels_for, train_sub,
};
use super::super::root::{ModelsWord, Root, SEGMENT, SLAB_HEAD_BYTES, SUBMODELS_MAX, slab_words, slabs_of};
use super::emptied::Going;
use super::survey::Seen;
use super::{Operation, Owner};
use crate::sync::lock;
use darter_fabric::{Fabric, GlobalAddr};
use darter_index::Result;
use darter_index::radix::drafts::Drafts;
use darter_index::radix::writes::Writes;
use darter_pool::AllocKind;
use std::collections::BTreeMap;
use std::ops::Bound as At;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Number of the training lock. The numbers of leaf locks are smaller.
const TRAINING: u64 = 1 << 40;
/// Number of pending splits from which a call that splits a leaf also trains sub-models, without
/// waiting for upkeep.
const SPLITS_MAX: usize = 8;
/// Number of sub-models that such a call trains.
const RETRAINED: usize = 2;
/// Entries of the largest table.
const TABLE_MAX: u32 = 4096;
/// Bytes of a slab of tables: minimum, for few leaves, and maximum.
const SLAB_BYTES: (u64, u64) = (1 << 10, 64 << 10);
/// Bytes of tables that a leaf is expected to need.
const LEAF_TABLE_BYTES: u64 = 16;

/// Objects with their sizes in bytes.
type Objects = Vec<(GlobalAddr, u64)>;

/// The models of the current generation.
#[derive(Debug)]
pub(super) struct Models {
    generation: u32,
    root_at: GlobalAddr,
    pub(super) root: Root,
    /// The root, the segments and the slabs.
    objects: Objects,
    subs: Vec<SubModel>,
    /// Tables that no sub-model uses, by their size in entries.
    free: BTreeMap<u32, Vec<TableRef>>,
    /// Begin and end of the unused part of the newest slab.
    rest: (u64, u64),
    slab_bytes: u64,
}

impl Models {
    /// Takes a free table, or one from the unused part of the newest slab.
    fn take_table(&mut self, room: u32) -> Option<TableRef> {
        if let Some(table) = self.free.get_mut(&room).and_then(Vec::pop) {
            return Some(table);
        }
        let (from, to) = self.rest;
        let end = from + u64::from(room) * 8;
        if end > to {
            return None;
        }
        self.rest.0 = end;
        TableRef::new(from, room)
    }

    /// Adds a slab. The unused part of the previous one becomes free tables.
    fn add_slab(&mut self, addr: GlobalAddr, bytes: u64) {
        while self.rest.1 - self.rest.0 >= UNIT {
            let entries = (self.rest.1 - self.rest.0) / 8;
            let room = 1 << entries.ilog2();
            if let Some(table) = TableRef::new(self.rest.0, room) {
                self.free.entry(room).or_default().push(table);
            }
            self.rest.0 += u64::from(room) * 8;
        }
        self.rest = (addr.offset() + SLAB_HEAD_BYTES, addr.offset() + bytes);
        self.objects.push((addr, bytes));
        self.root.slabs = addr;
    }
}

/// State of a server's training.
#[derive(Debug, Default)]
pub(super) struct Learning {
    models: Mutex<Option<Models>>,
    /// Objects to retire once another generation has begun.
    stale: Mutex<Objects>,
    /// Intervals of model keys between the bounds of leaves that have split since they were
    /// trained.
    splits: Mutex<BTreeMap<u64, u64>>,
    keys: AtomicU64,
    /// Whether splits are recorded.
    is_on: AtomicBool,
}

impl Learning {
    /// Sets the number of keys.
    pub(super) fn set_keys(&self, keys: u64) {
        self.keys.store(keys, Ordering::Relaxed);
    }

    /// Adds one to the number of keys.
    pub(super) fn count_insert(&self) {
        self.keys.fetch_add(1, Ordering::Relaxed);
    }

    /// Subtracts one from the number of keys.
    pub(super) fn count_delete(&self) {
        let fewer = |keys: u64| Some(keys.saturating_sub(1));
        let _ = self.keys.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer);
    }

    /// Returns the words of a sub-model if the models belong to this generation.
    pub(super) fn submodel_words(&self, generation: u64, submodel: u64) -> Option<[u64; SubModel::WORDS]> {
        let models = lock(&self.models);
        let models = models.as_ref().filter(|models| u64::from(models.generation) == generation)?;
        models.subs.get(usize::try_from(submodel).ok()?).map(SubModel::words)
    }

    /// Removes a pending split and returns the sub-model of the split leaf.
    fn take_split(&self) -> Option<u32> {
        let models = lock(&self.models);
        let Models { root, .. } = models.as_ref()?;
        let mut splits = lock(&self.splits);
        let (low, high) = splits.pop_first()?;
        let submodel = root.top.predict(low, root.submodels);
        let last = root.top.interval(submodel, root.submodels).map_or(u64::MAX, |(_, last)| last);
        splits.retain(|&from, &mut to| from > last || to > last);
        if high > last {
            let end = splits.entry(last + 1).or_insert(high);
            *end = high.max(*end);
        }
        Some(submodel)
    }

    /// Drops the models; their objects become stale.
    fn forget(&self) {
        let old = lock(&self.models).take();
        lock(&self.stale).extend(old.into_iter().flat_map(|models| models.objects));
    }
}

impl<F: Fabric> Owner<F> {
    /// Adds a leaf with this low bound to the inner nodes after a split.
    pub(super) fn learn_leaf(&self, low: &[u8], number: u32) {
        let split = {
            let mut tree = self.tree();
            tree.insert(low.to_vec(), number);
            let left = tree.by_low.range::<[u8], _>((At::Unbounded, At::Excluded(low))).next_back();
            let right = tree.by_low.range::<[u8], _>((At::Excluded(low), At::Unbounded)).next();
            let left = left.map_or(0, |(low, _)| model_key(low));
            (left, last_below(right.map(|(high, _)| &high[..])))
        };
        if self.learning.is_on.load(Ordering::Relaxed) {
            let mut splits = lock(&self.learning.splits);
            let end = splits.entry(split.0).or_insert(split.1);
            *end = split.1.max(*end);
        }
    }

    /// Returns whether enough splits are pending to train now.
    fn is_behind(&self) -> bool {
        lock(&self.learning.models).is_some() && lock(&self.learning.splits).len() >= SPLITS_MAX
    }
}

impl<F: Fabric> Operation<'_, F> {
    /// Trains whatever is due: all models if there are none, if the number of sub-models has to
    /// change or if emptied leaves are removed; otherwise the sub-models of leaves that have split.
    /// Without space the models stay as they are, or there are none.
    ///
    /// # Errors
    /// A damaged index; errors of the fabric.
    pub(super) async fn learn(&mut self) -> Result<()> {
        let owner = self.shared;
        let _guard = owner.locks.lock(TRAINING).await;
        owner.learning.is_on.store(true, Ordering::Relaxed);
        let keys = owner.learning.keys.load(Ordering::Relaxed);
        let known = lock(&owner.learning.models).as_ref().map(|models| models.root.submodels);
        if known.is_none() && !lock(&owner.learning.stale).is_empty() {
            self.end_generation().await?;
        }
        let mut due = known.unwrap_or_else(|| submodels_for(keys, KEYS_MAX));
        while let Some(other) = resized(keys, due) {
            due = other;
        }
        let due = due.min(SUBMODELS_MAX);
        let mut going = Going::default();
        let outcome = match self.take_out_emptied(&mut going).await {
            Ok(()) if known == Some(due) && !going.ends_generation() => self.retrain(usize::MAX).await,
            Ok(()) => self.train(due).await,
            Err(error) => Err(error),
        };
        if outcome.is_err() && going.ends_generation() {
            self.end_generation().await?;
        }
        self.retire_going(going);
        outcome.or_else(|error| if error.is_out_of_space() { Ok(()) } else { Err(error) })
    }

    /// Trains some sub-models again if many splits are pending and no other call trains. The
    /// caller's own operation is complete, so failures are ignored.
    pub(super) async fn learn_beside(&mut self) {
        if self.shared.is_behind()
            && let Some(_guard) = self.shared.locks.try_lock(TRAINING)
        {
            let _ = self.retrain(RETRAINED).await;
        }
    }

    /// Takes the lock under which the leaves of the index may be replaced by others.
    pub(super) async fn lock_training(&mut self) -> crate::compute_node::LocalGuard<()> {
        self.shared.locks.lock(TRAINING).await
    }

    /// Begins a generation without models and retires the objects of the previous one. The caller
    /// holds the training lock, or no other call can train.
    ///
    /// # Errors
    /// Errors of the fabric.
    pub(super) async fn end_generation(&mut self) -> Result<()> {
        self.bump_generation().await?;
        let stale = std::mem::take(&mut *lock(&self.shared.learning.stale));
        for (addr, bytes) in stale {
            self.client.retire(addr, bytes, AllocKind::Inner);
        }
        Ok(())
    }

    /// Begins a generation without models and records the objects of the previous one as stale.
    ///
    /// # Errors
    /// Errors of the fabric.
    pub(super) async fn bump_generation(&mut self) -> Result<()> {
        let at = self.shared.descriptor.models();
        loop {
            self.shared.learning.forget();
            let [word] = self.client.read_words(at).await?;
            let next = ModelsWord::from_word(word).next(0);
            if self.client.cas(at, word, next.word()).await?.swapped {
                return Ok(());
            }
        }
    }

    /// Trains everything, with this number of sub-models, and begins another generation.
    async fn train(&mut self, submodels: u32) -> Result<()> {
        let owner = self.shared;
        lock(&owner.learning.splits).clear();
        let mut drafts = Drafts::new();
        let mut models = match self.write_models(&mut drafts, submodels).await {
            Ok(models) => models,
            Err(error) => {
                drafts.discard(&mut self.client);
                return Err(error);
            }
        };
        let at = owner.descriptor.models();
        let [word] = self.client.read_words(at).await?;
        let next = ModelsWord::from_word(word).next(number_of(models.root_at).unwrap_or(0));
        models.generation = next.generation;
        // Until it is known which models belong to the index, neither may be freed.
        drafts.keep();
        owner.learning.forget();
        lock(&owner.learning.stale).extend(&models.objects);
        if !self.client.cas(at, word, next.word()).await?.swapped {
            // Another generation has begun in between: the next training starts over.
            return Ok(());
        }
        let stale = std::mem::take(&mut *lock(&owner.learning.stale));
        for (addr, bytes) in stale.into_iter().filter(|object| !models.objects.contains(object)) {
            self.client.retire(addr, bytes, AllocKind::Inner);
        }
        *lock(&owner.learning.models) = Some(models);
        Ok(())
    }

    /// Writes models that are not visible to clients yet.
    async fn write_models(&mut self, drafts: &mut Drafts, submodels: u32) -> Result<Models> {
        let (sample, total) = self.shared.sample();
        let top = TopModel::train(sample, total);
        let mut models = self.alloc_models(drafts, top, submodels, total).await?;
        let mut trainer = Trainer::new(top, submodels);
        let (mut writes, mut keys) = (Writes::default(), 0);
        let (mut next, mut children) = (Some(Vec::new()), Vec::new());
        while let Some(from) = next {
            let (leaves, behind) = self.survey(&from, u64::MAX).await?;
            let mut trained = Vec::new();
            for leaf in &leaves {
                keys += leaf.count();
                if self.shared.descriptor.has_image {
                    children.push((leaf.view().low, leaf.view().entry().word()));
                }
                trainer.push(&leaf.view(), |submodel, model| trained.push((submodel, model)));
            }
            self.write_tables(drafts, &mut models, &mut writes, &trained).await?;
            next = behind;
        }
        let mut trained = Vec::new();
        trainer.finish(|submodel, model| trained.push((submodel, model)));
        self.write_tables(drafts, &mut models, &mut writes, &trained).await?;
        models.root.image = self.write_image(drafts, &mut models, &mut writes, children).await?;
        for (segment, subs) in models.root.segments.iter().zip(models.subs.chunks(SEGMENT as usize)) {
            let words: Vec<u64> = subs.iter().flat_map(SubModel::words).collect();
            writes.write(&mut self.client, *segment, &words).await?;
        }
        writes.write(&mut self.client, models.root_at, &models.root.words()).await?;
        writes.flush(&mut self.client).await?;
        self.shared.learning.set_keys(keys);
        Ok(models)
    }

    /// Allocates the root and the segments.
    async fn alloc_models(
        &mut self,
        drafts: &mut Drafts,
        top: TopModel,
        submodels: u32,
        leaves: u64,
    ) -> Result<Models> {
        let node = self.shared.descriptor.node;
        let mut objects = Vec::new();
        let sizes = std::iter::once(Root::room(submodels))
            .chain((0..Root::segments_of(submodels)).map(|at| Root::segment_words(submodels, at)));
        for words in sizes {
            let bytes = (words as u64 * 8).next_multiple_of(UNIT);
            let number = alloc_numbered(&mut self.client, drafts, node, bytes).await?;
            objects.push((address(node, number), bytes));
        }
        let segments = objects[1..].iter().map(|&(addr, _)| addr).collect();
        let max = self.client.pool().object_bytes_max().min(SLAB_BYTES.1);
        let slab_bytes = (leaves.saturating_mul(LEAF_TABLE_BYTES)).next_power_of_two();
        Ok(Models {
            generation: 0,
            root_at: objects[0].0,
            root: Root { submodels, top, slabs: GlobalAddr::NULL, image: None, segments },
            objects,
            subs: vec![SubModel::NONE; submodels as usize],
            free: BTreeMap::new(),
            rest: (0, 0),
            slab_bytes: slab_bytes.clamp(SLAB_BYTES.0.min(max), max),
        })
    }

    /// Allocates a slab that has room for a table; `None` if no slab is that large.
    async fn alloc_slab(
        &mut self,
        drafts: &mut Drafts,
        room: u32,
        slab_bytes: u64,
    ) -> Result<Option<(GlobalAddr, u64)>> {
        let bytes = slab_bytes.max(u64::from(room) * 8 + SLAB_HEAD_BYTES);
        if room > TABLE_MAX || bytes > self.client.pool().object_bytes_max() {
            return Ok(None);
        }
        let node = self.shared.descriptor.node;
        let number = alloc_numbered(&mut self.client, drafts, node, bytes).await?;
        Ok(Some((address(node, number), bytes)))
    }

    /// Takes room for a table, or for an object of that size, in models that are not visible to
    /// clients yet. `None` if no slab is that large.
    ///
    /// # Errors
    /// Out of space; errors of the fabric.
    pub(super) async fn draft_table(
        &mut self,
        drafts: &mut Drafts,
        models: &mut Models,
        writes: &mut Writes,
        room: u32,
    ) -> Result<Option<TableRef>> {
        let table = models.take_table(room);
        if table.is_none()
            && let Some((addr, bytes)) = self.alloc_slab(drafts, room, models.slab_bytes).await?
        {
            let words = slab_words(bytes, models.root.slabs);
            writes.write(&mut self.client, addr, &words).await?;
            models.add_slab(addr, bytes);
            return Ok(models.take_table(room));
        }
        Ok(table)
    }

    /// Writes the tables of sub-models that are not visible to clients yet.
    async fn write_tables(
        &mut self,
        drafts: &mut Drafts,
        models: &mut Models,
        writes: &mut Writes,
        trained: &[(u32, Trained)],
    ) -> Result<()> {
        for (submodel, trained) in trained {
            let mut table = None;
            if let Some(room) = trained.room() {
                table = self.draft_table(drafts, models, writes, room).await?;
            }
            if let Some(table) = table {
                let words: Vec<u64> = trained.table_words().collect();
                writes.write(&mut self.client, self.shared.table_at(table), &words).await?;
            }
            models.subs[*submodel as usize] = trained.placed(table);
        }
        Ok(())
    }

    /// Retrains at most `max` sub-models of leaves that have split.
    async fn retrain(&mut self, max: usize) -> Result<()> {
        for _ in 0..max {
            let Some(submodel) = self.shared.learning.take_split() else { break };
            self.retrain_one(submodel).await?;
        }
        Ok(())
    }

    async fn retrain_one(&mut self, submodel: u32) -> Result<()> {
        let learning = &self.shared.learning;
        let known = lock(&learning.models).as_ref().map(|models| {
            let Root { top, submodels, .. } = models.root;
            (models.generation, Scope::of(&top, submodel, submodels), models.root.place(submodel))
        });
        let Some((generation, Some(scope), Some(place))) = known else { return Ok(()) };
        let mut trained = Trained::none();
        if self.shared.count_leaves(scope.interval, TABLE_MAX as usize) <= TABLE_MAX as usize {
            let leaves = self.survey_interval(scope.interval).await?;
            trained = train_sub(scope, leaves.iter().map(Seen::view));
        }
        let table = match trained.room() {
            Some(room) => self.new_table(room).await?,
            None => None,
        };
        let model = trained.placed(table);
        let words: Vec<u64> = trained.table_words().collect();
        let mut batch = self.client.batch();
        if let Some(table) = table {
            batch.write(self.shared.table_at(table), &words);
        }
        batch.write(place, &model.words());
        self.client.complete(batch).await?;
        let mut models = lock(&learning.models);
        if let Some(models) = models.as_mut().filter(|models| models.generation == generation) {
            let old = std::mem::replace(&mut models.subs[submodel as usize], model);
            if let Some(table) = old.table() {
                models.free.entry(table.entries()).or_default().push(table);
            }
        }
        Ok(())
    }

    /// Returns a table for a sub-model that is trained again; `None` if there is no room.
    async fn new_table(&mut self, room: u32) -> Result<Option<TableRef>> {
        let learning = &self.shared.learning;
        let known = {
            let mut models = lock(&learning.models);
            let Some(models) = models.as_mut() else { return Ok(None) };
            if let Some(table) = models.take_table(room) {
                return Ok(Some(table));
            }
            (models.generation, models.root_at, models.root.slabs, models.slab_bytes.min(SLAB_BYTES.0 * 4))
        };
        let (generation, root_at, slabs, slab_bytes) = known;
        let mut drafts = Drafts::new();
        let (addr, bytes) = match self.alloc_slab(&mut drafts, room, slab_bytes).await {
            Ok(Some(slab)) => slab,
            Ok(None) => return Ok(None),
            Err(error) if error.is_out_of_space() => return Ok(None),
            Err(error) => return Err(error),
        };
        drafts.keep();
        let mut batch = self.client.batch();
        batch.write(addr, &slab_words(bytes, slabs));
        let linked = batch.fence().cas(slabs_of(root_at), slabs.bits(), addr.bits());
        let done = self.client.complete(batch).await;
        if !done.as_ref().is_ok_and(|done| done.swapped(linked)) {
            // It is unknown what the root leads to: the next training rebuilds everything.
            lock(&learning.stale).push((addr, bytes));
            learning.forget();
            return Ok(done.map(|_| None)?);
        }
        drop(done);
        let mut models = lock(&learning.models);
        let models = models.as_mut().filter(|models| models.generation == generation);
        Ok(models.and_then(|models| {
            models.add_slab(addr, bytes);
            models.take_table(room)
        }))
    }
}

impl<F: Fabric> Owner<F> {
    /// Returns the address of a table.
    pub(super) fn table_at(&self, table: TableRef) -> GlobalAddr {
        GlobalAddr::new(self.descriptor.node, table.offset())
    }
}
