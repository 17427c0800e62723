//! The first half of a commit: an intent in the place of each key.

use super::{CHUNK, Installed, Leaf, Own, Place, place_of};
use crate::checker::note;
use crate::ordered::Write;
use crate::quiver::descent::PageSearchEnd;
use crate::quiver::operation::Operation;
use crate::quiver::search::value_at;
use crate::quiver::situations;
use crate::quiver::word::INTENT_CLASS;
use crate::radix::drafts::alloc;
use crate::radix::intent::{INTENT_BYTES, Intent, STATUS_BYTES, Status};
use crate::radix::leaf::{self, Image};
use crate::radix::{TURNS_MAX, no_progress};
use crate::{Access, IndexError, Result};
use darter_fabric::{Batch, CasId, Fabric, GlobalAddr};
use darter_pool::AllocKind;
use darter_pool::size_class::{class_bytes, class_of};

/// An object's address, and the words to write there.
pub(super) type Written = (GlobalAddr, Image);

/// An intent that is ready to be installed.
struct Ready {
    place: Place,
    installed: Installed,
    writes: Vec<Written>,
}

/// The result of the preparation of one key.
enum Prepared {
    Ready(Box<Ready>),
    /// The place has to be found again.
    Later,
    Conflict,
}

impl<F: Fabric> Operation<'_, F> {
    /// Installs an intent for each key. Returns false if there is a conflict.
    pub(super) async fn install_all(&mut self, own: &mut Own<'_>) -> Result<bool> {
        let mut pending: Vec<usize> = (0..own.accesses.len()).collect();
        for _ in 0..TURNS_MAX {
            if pending.is_empty() {
                return Ok(true);
            }
            let rest = pending.split_off(pending.len().min(CHUNK));
            let mut ends = self.find_all(own.accesses, pending.into_iter()).await?;
            let mut later = Vec::new();
            if !self.install_new(own, &mut ends, &mut later).await? {
                return Ok(false);
            }
            let mut chunk = Vec::with_capacity(ends.len());
            match self.prepare_all(own, ends, &mut chunk).await {
                Ok(Some(more)) => later.extend(more),
                stopped => {
                    for ready in chunk {
                        self.give_back(&ready.installed);
                    }
                    return stopped.map(|_| false);
                }
            }
            let Some(lost) = self.install(own, chunk).await? else { return Ok(false) };
            pending = [later, lost, rest].concat();
        }
        Err(no_progress(self.shared.words.root))
    }

    /// Prepares intents at the ends of some searches. Returns the keys whose places have to be
    /// found again; `None` if there is a conflict.
    async fn prepare_all(
        &mut self,
        own: &mut Own<'_>,
        ends: Vec<(usize, PageSearchEnd)>,
        chunk: &mut Vec<Ready>,
    ) -> Result<Option<Vec<usize>>> {
        let mut later = Vec::new();
        for (number, end) in ends {
            match Box::pin(self.prepare(own, number, end)).await? {
                Prepared::Ready(ready) => chunk.push(*ready),
                Prepared::Later => later.push(number),
                Prepared::Conflict => return Ok(None),
            }
        }
        Ok(Some(later))
    }

    async fn prepare(&mut self, own: &mut Own<'_>, number: usize, end: PageSearchEnd) -> Result<Prepared> {
        let Access { key, read, .. } = own.accesses[number];
        let end = self.decided_for(end, Some(own.age())).await?;
        let before = value_at(&end)?.map(<[u8]>::to_vec);
        let found = match end {
            PageSearchEnd::Page(found) => found,
            PageSearchEnd::Sealed { .. } => {
                self.help_above(key).await?;
                return Ok(Prepared::Later);
            }
            _ => return Ok(Prepared::Later),
        };
        if read.is_some_and(|read| read != before.as_deref()) {
            note(situations::TRANSACTION_CONFLICT);
            return Ok(Prepared::Conflict);
        }
        let Some(place) = place_of(key, &found) else {
            self.make_room(key, found).await?;
            return Ok(Prepared::Later);
        };
        let (installed, writes) = self.make_intent(own, number, before, found.head.page.addr.node()).await?;
        Ok(Prepared::Ready(Box::new(Ready { place, installed, writes })))
    }

    /// Allocates an intent, and the leaf that replaces it if the transaction commits. Returns them
    /// with their words.
    pub(super) async fn make_intent(
        &mut self,
        own: &mut Own<'_>,
        number: usize,
        before: Option<Vec<u8>>,
        home: u8,
    ) -> Result<(Installed, Vec<Written>)> {
        let Access { key, write, .. } = own.accesses[number];
        let status = match own.at {
            Some(at) => at,
            None => *own.at.insert(alloc(&mut self.client, home, STATUS_BYTES, AllocKind::Leaf).await?),
        };
        let (old, new) = (before.as_deref(), write.map_or(before.as_deref(), Write::value));
        let intent = Intent { status, first: Status::undecided(own.status.attempt).word(status), old, new };
        let image = intent.image(key, write.is_some());
        let bytes_max = self.client.pool().object_bytes_max();
        let class = class_of(image.len() as u64 * 8).filter(|&class| class_bytes(class) <= bytes_max);
        let Some(class) = class else {
            let bytes = new.unwrap_or_default().len();
            let max = leaf::value_bytes_max(bytes_max).saturating_sub(key.len() + INTENT_BYTES) / 2;
            return Err(IndexError::ValueTooLong { bytes, max });
        };
        let addr = alloc(&mut self.client, home, class_bytes(class), AllocKind::Leaf).await?;
        let mut installed = Installed {
            number,
            intent: (addr, class | INTENT_CLASS),
            place: None,
            after: None,
            before: None,
        };
        let mut writes = vec![(addr, image)];
        if let Some(value) = new {
            match self.made_leaf(key, value, home).await {
                Ok((leaf, words)) => {
                    installed.after = Some(leaf);
                    writes.push((leaf.0, words));
                }
                Err(error) => {
                    self.give_back(&installed);
                    return Err(error);
                }
            }
        }
        installed.before = before;
        Ok((installed, writes))
    }

    /// Allocates a leaf for a pair. Returns it with its words.
    pub(super) async fn made_leaf(&mut self, key: &[u8], value: &[u8], home: u8) -> Result<(Leaf, Image)> {
        let class = leaf::class_within(self.client.pool().object_bytes_max(), key.len(), value.len())?;
        let addr = alloc(&mut self.client, home, class_bytes(class), AllocKind::Leaf).await?;
        Ok(((addr, class), leaf::image(key, value)))
    }

    /// Frees an intent that was not linked, and the leaf for its outcome.
    pub(super) fn give_back(&mut self, installed: &Installed) {
        for (addr, class) in [Some(installed.intent), installed.after].into_iter().flatten() {
            self.client.free_unpublished(addr, class_bytes(class), AllocKind::Leaf);
        }
    }

    /// Installs some intents in one round trip if all words are on one memory node, otherwise in
    /// two. Returns the keys whose places have changed; `None` if another client has aborted the
    /// transaction.
    async fn install(&mut self, own: &mut Own<'_>, chunk: Vec<Ready>) -> Result<Option<Vec<usize>>> {
        let (Some(at), false) = (own.at, chunk.is_empty()) else { return Ok(Some(Vec::new())) };
        let mut batch = self.client.batch();
        let is_first = !own.is_written;
        for ready in &chunk {
            own.post(&mut batch, &ready.writes);
        }
        let node = at.node();
        let is_local = batch.verbs().iter().all(|verb| verb.addr.node() == node)
            && chunk.iter().all(|ready| ready.place.addr.node() == node);
        if !is_local {
            self.client.send(&mut batch).await?;
        }
        let bump = (!is_first).then(|| own.bump(at, &mut batch));
        let mut swaps = Vec::with_capacity(chunk.len());
        for Ready { place, installed, .. } in &chunk {
            let new = place.leaf(installed.intent);
            swaps.push((batch.cas(place.addr, place.word.0, new.0), new));
        }
        let done = self.client.submit(batch).await?;
        let mut lost = Vec::new();
        for (Ready { mut place, mut installed, .. }, (cas, new)) in chunk.into_iter().zip(swaps) {
            if done.swapped(cas) {
                self.retire_leaf_of(place.word);
                place.word = new;
                installed.place = Some(place);
                own.installed.push(installed);
            } else {
                self.give_back(&installed);
                lost.push(installed.number);
            }
        }
        let is_alive = bump.is_none_or(|bump| own.has_bumped(&done, bump));
        self.client.recycle(done);
        Ok(is_alive.then_some(lost))
    }
}

impl Own<'_> {
    /// Posts the WRITEs of some leaves, and of the status word if it is not written yet.
    pub(super) fn post(&mut self, batch: &mut Batch, writes: &[Written]) {
        if let (Some(at), false) = (self.at, self.is_written) {
            batch.write(at, &[self.status.word(at), 0]);
            self.is_written = true;
        }
        for (addr, words) in writes {
            batch.write(*addr, words);
        }
    }

    /// Posts a CAS of the status word that shows the transaction's progress.
    pub(super) fn bump(&self, at: GlobalAddr, batch: &mut Batch) -> CasId {
        batch.cas(at, self.status.word(at), self.status.advanced().word(at))
    }

    /// Whether the CAS of [`Self::bump`] succeeded. If not, another client has aborted the
    /// transaction.
    pub(super) fn has_bumped(&mut self, done: &Batch, bump: CasId) -> bool {
        let is_alive = done.swapped(bump);
        if is_alive {
            self.status = self.status.advanced();
        }
        is_alive
    }
}
