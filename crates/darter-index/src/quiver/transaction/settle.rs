//! The second half of a commit: each intent is replaced by its outcome. A sweep does the same for
//! the transactions of dead clients.

use super::{CHUNK, Installed, Leaf, Own, Place, place_of};
use crate::ordered::LostNodes;
use crate::quiver::descent::PageSearchEnd;
use crate::quiver::intents::intent_in;
use crate::quiver::operation::Operation;
use crate::quiver::page::{self, Shape};
use crate::quiver::word::Word;
use crate::radix::intent::{STATUS_BYTES, State};
use crate::radix::{TURNS_MAX, leaf, no_progress};
use crate::{Access, Result};
use darter_fabric::{Batch, Fabric};
use darter_pool::AllocKind;
use darter_pool::size_class::class_bytes;

/// What remains to be done once all keys are settled.
struct Settled {
    /// Whether an intent stays.
    stays: bool,
    /// Keys that are gone, from pages that may be empty enough to be replaced.
    thin: Vec<usize>,
}

/// An intent of a decided transaction, and its outcome.
struct Replacement {
    place: Place,
    intent: Leaf,
    /// Whether the key had a value before the transaction.
    was_present: bool,
    /// The leaf with the key's value; `None` if the key is absent.
    leaf: Option<Leaf>,
}

impl<F: Fabric> Operation<'_, F> {
    /// Replaces the intents of a decided transaction by their outcomes, and retires its status
    /// word. If there is no room for the values from before an aborted transaction, or to replace the
    /// page of an intent that is sealed, these intents and the status word stay.
    pub(super) async fn settle(&mut self, mut own: Own<'_>) -> Result<()> {
        let mut left = std::mem::take(&mut own.installed);
        if own.status.state == State::Aborted {
            for installed in left.iter_mut().filter(|one| own.accesses[one.number].write.is_some()) {
                self.free_after(installed);
            }
        }
        let mut settled = Settled { stays: false, thin: Vec::new() };
        for _ in 0..TURNS_MAX {
            if left.is_empty() {
                break;
            }
            let rest = left.split_off(left.len().min(CHUNK));
            let (located, later) = self.locate(&own, left, &mut settled).await?;
            let lost = self.settle_some(&own, located, &mut settled).await?;
            left = later.into_iter().chain(lost).chain(rest).collect();
        }
        if !left.is_empty() {
            return Err(no_progress(self.shared.words.root));
        }
        match own.at {
            Some(at) if own.is_written && !settled.stays => self.retire(at, STATUS_BYTES, AllocKind::Leaf),
            Some(at) if !own.is_written => {
                self.client.free_unpublished(at, STATUS_BYTES, AllocKind::Leaf);
            }
            _ => {}
        }
        for number in settled.thin {
            match Box::pin(self.tidy(own.accesses[number].key)).await {
                Err(error) if !error.is_out_of_space() => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Finds the intents whose places are unknown. Returns the intents with their places, and the
    /// intents to search for again. Intents that other clients have replaced are settled.
    async fn locate(
        &mut self,
        own: &Own<'_>,
        installed: Vec<Installed>,
        settled: &mut Settled,
    ) -> Result<(Vec<(Installed, Place)>, Vec<Installed>)> {
        let (mut located, mut unknown, mut later) = (Vec::new(), Vec::new(), Vec::new());
        for mut one in installed {
            match one.place.take() {
                Some(place) => located.push((one, place)),
                None => unknown.push(one),
            }
        }
        let ends = self.find_all(own.accesses, unknown.iter().map(|one| one.number)).await?;
        for (number, end) in ends {
            let Some(at) = unknown.iter().position(|one| one.number == number) else { continue };
            let mut one = unknown.swap_remove(at);
            let key = own.accesses[number].key;
            match end {
                PageSearchEnd::Sealed { .. } => {
                    let helped = self.help_above(key).await;
                    later.extend(self.after_help(helped, one, settled)?);
                }
                PageSearchEnd::Page(found)
                    if intent_in(&found.spot)?.is_some_and(|intent| Some(intent.status) == own.at) =>
                {
                    if let Some(place) = place_of(key, &found) {
                        located.push((one, place));
                    } else {
                        let helped = self.make_room(key, found).await.map(drop);
                        later.extend(self.after_help(helped, one, settled)?);
                    }
                }
                _ => self.free_after(&mut one),
            }
        }
        Ok((located, later))
    }

    /// Returns an intent that has to be searched for again, because its page or node has been
    /// replaced. If there was no room for that, the intent stays: the transaction is decided, so
    /// this is not an error.
    fn after_help(
        &mut self,
        helped: Result<()>,
        mut one: Installed,
        settled: &mut Settled,
    ) -> Result<Option<Installed>> {
        match helped {
            Err(error) if error.is_out_of_space() => {
                self.free_after(&mut one);
                settled.stays = true;
                Ok(None)
            }
            helped => helped.map(|()| Some(one)),
        }
    }

    /// Settles keys whose intents are in these places. Returns the intents that were not there.
    async fn settle_some(
        &mut self,
        own: &Own<'_>,
        located: Vec<(Installed, Place)>,
        settled: &mut Settled,
    ) -> Result<Vec<Installed>> {
        let mut batch = self.client.batch();
        let (mut settling, mut replacements) = (Vec::new(), Vec::new());
        for (mut one, place) in located {
            let Access { key, write, .. } = own.accesses[one.number];
            let is_undone = write.is_some() && own.status.state == State::Aborted;
            if let Some(before) = one.before.as_deref().filter(|_| is_undone) {
                match self.post_leaf(&mut batch, key, before, place.addr.node()).await {
                    Ok(leaf) => one.after = Some(leaf),
                    Err(error) if error.is_out_of_space() => {
                        settled.stays = true;
                        continue;
                    }
                    Err(error) => return Err(error),
                }
            }
            let (intent, was_present, leaf) = (one.intent, one.before.is_some(), one.after);
            replacements.push(Replacement { place, intent, was_present, leaf });
            settling.push((one, is_undone));
        }
        let is_done = self.replace_intents(batch, &replacements).await?;
        let mut lost = Vec::new();
        for (((mut one, is_undone), replacement), is_done) in
            settling.into_iter().zip(replacements).zip(is_done)
        {
            if !is_done {
                if is_undone {
                    self.free_after(&mut one);
                }
                lost.push(one);
            } else if replacement.leaf.is_none() && replacement.place.may_be_thin {
                settled.thin.push(one.number);
            }
        }
        Ok(lost)
    }

    /// Allocates a leaf for a pair, and posts its words.
    async fn post_leaf(&mut self, batch: &mut Batch, key: &[u8], value: &[u8], home: u8) -> Result<Leaf> {
        let (leaf, words) = self.made_leaf(key, value, home).await?;
        batch.write(leaf.0, &words);
        Ok(leaf)
    }

    /// Replaces intents in their places by leaves, whose WRITEs `batch` may contain, or by words
    /// without a value. Returns for each intent whether it was there; if so, retires it.
    async fn replace_intents(&mut self, mut batch: Batch, all: &[Replacement]) -> Result<Vec<bool>> {
        if all.is_empty() {
            self.client.recycle(batch);
            return Ok(Vec::new());
        }
        let is_local = |leaf: Leaf, place: &Place| leaf.0.node() == place.addr.node();
        let are_local = all.iter().all(|one| one.leaf.is_none_or(|leaf| is_local(leaf, &one.place)));
        if !are_local && !batch.is_empty() {
            self.client.send(&mut batch).await?;
        }
        let mut swaps = Vec::with_capacity(all.len());
        for Replacement { place, was_present, leaf, .. } in all {
            let new = leaf.map_or(place.removed, |leaf| place.leaf(leaf));
            swaps.push((batch.cas(place.addr, place.word.0, new.0), new));
            match (place.removals, was_present, leaf) {
                (Some(removals), true, None) => batch.faa(removals, page::REMOVAL),
                (Some(removals), false, Some(_)) => batch.faa(removals, page::REMOVAL.wrapping_neg()),
                _ => continue,
            };
        }
        let done = self.client.submit(batch).await?;
        let mut are_done = Vec::with_capacity(all.len());
        for (Replacement { place, intent, leaf, .. }, (cas, new)) in all.iter().zip(swaps) {
            let is_done = done.swapped(cas);
            if is_done {
                self.retire_leaf(*intent);
                if leaf.is_some() {
                    self.shared.learn_hot_at(place.identity, (place.page, &place.shape), place.addr, new);
                }
            }
            are_done.push(is_done);
        }
        self.client.recycle(done);
        Ok(are_done)
    }

    /// Settles the intents in a page's words. An undecided transaction is aborted. Returns whether
    /// there was any.
    pub(in crate::quiver) async fn settle_page(&mut self, shape: &Shape, words: &[u64]) -> Result<bool> {
        let mut any = false;
        // The first one is the guard.
        for at in shape.sealable().skip(1).filter(|&at| Word(words[at]).is_intent()) {
            if let Some((addr, class, _)) = Word(words[at]).leaf_object() {
                let image = self.client.read(addr, leaf::class_words(class)).await?;
                let key = leaf::parse(addr, &image)?.key.to_vec();
                self.settle_key(&key, LostNodes::NONE).await?;
                any = true;
            }
        }
        Ok(any)
    }

    /// Settles a key, if it has an intent. A transaction whose status word is on a lost memory node counts
    /// as aborted.
    pub(in crate::quiver) async fn settle_key(&mut self, key: &[u8], lost: LostNodes) -> Result<()> {
        for _ in 0..TURNS_MAX {
            let mut descent = self.descent_from_root(key);
            let found = match self.run(&mut descent).await? {
                PageSearchEnd::Page(found) => found,
                PageSearchEnd::Sealed { .. } => {
                    self.help_above(key).await?;
                    continue;
                }
                _ => return Ok(()),
            };
            let Some(intent) = intent_in(&found.spot)? else { return Ok(()) };
            let state = if lost.contains(intent.status.node()) {
                State::Aborted
            } else {
                self.decide(&intent, None).await?
            };
            let was_present = intent.old.is_some();
            let outcome = intent.value(state).map(<[u8]>::to_vec);
            let Some((place, (addr, class, _))) =
                place_of(key, &found).and_then(|place| place.word.leaf_object().map(|leaf| (place, leaf)))
            else {
                self.make_room(key, found).await?;
                continue;
            };
            let mut batch = self.client.batch();
            let leaf = match &outcome {
                Some(value) => Some(self.post_leaf(&mut batch, key, value, place.addr.node()).await?),
                None => None,
            };
            let replacement = Replacement { place, intent: (addr, class), was_present, leaf };
            let is_done = self.replace_intents(batch, &[replacement]).await?;
            if let (Some((addr, class)), [false]) = (leaf, &is_done[..]) {
                self.client.free_unpublished(addr, class_bytes(class), AllocKind::Leaf);
            }
        }
        Err(no_progress(self.shared.words.root))
    }

    /// Frees the leaf for the outcome, which was not linked.
    fn free_after(&mut self, installed: &mut Installed) {
        if let Some((addr, class)) = installed.after.take() {
            self.client.free_unpublished(addr, class_bytes(class), AllocKind::Leaf);
        }
    }
}
