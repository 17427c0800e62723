//! The blind CAS of a put whose condition does not depend on the value: on the record given by a
//! remembered map, in the batch that reads it (`docs/quiver.md`, "Blind CAS").

use super::descent::{Descent, Lookup, PageSearchEnd, Purpose};
use super::direct::{self, Spot};
use super::operation::Operation;
use super::outcome::Home;
use super::page::{PageRef, Shape};
use super::situations;
use super::word::{State, Word};
use crate::Result;
use crate::checker::note;
use crate::radix::drafts::Draft;
use crate::radix::search::Search;
use darter_fabric::{Fabric, GlobalAddr};
use std::pin::pin;

/// The state of such a put before it knows its place.
#[allow(clippy::large_enum_variant)] // as `PageSearchEnd`
pub(super) enum Overwrite {
    /// The record of a key with a value, unchanged.
    At(Home),
    /// Another place, unchanged.
    Found(PageSearchEnd),
    /// The value is replaced.
    Done,
    /// Another key's record was changed; the put starts again.
    Again,
}

impl<F: Fabric> Operation<'_, F> {
    /// Finds the place of a key whose value is being replaced. If `may_be_blind` is true and the
    /// CAS is likely to win, it comes before the key is verified. An `is_update` never inserts, so
    /// its leaf need not be written again for an insert.
    pub(super) async fn overwrite(
        &mut self,
        draft: &mut Draft<'_>,
        may_be_blind: bool,
        is_update: bool,
    ) -> Result<Overwrite> {
        let loaded = self.memory().and_then(|memory| direct::spot_of(self.shared, memory, draft.key).ok());
        match loaded {
            Some(Spot::Home(home)) => return Ok(Overwrite::At(home)),
            Some(Spot::End(end)) => return Ok(Overwrite::Found(end)),
            None => {}
        }
        let mut descent = self.descent_for(draft.key, Purpose::Overwrite);
        let rate = &self.shared.inline_rate;
        let record = descent.foreseen().filter(|_| may_be_blind && rate.is_worthwhile());
        let overwrite = match record {
            Some(record) => pin!(self.cas_before_look(draft, &mut descent, record, is_update)).await?,
            None => Overwrite::Found(self.run(&mut descent).await?),
        };
        if may_be_blind {
            rate.note(match &overwrite {
                Overwrite::Found(end) => is_inline(end),
                Overwrite::At(home) => home.word.state() == State::Inline,
                Overwrite::Done => true,
                Overwrite::Again => false,
            });
        }
        Ok(overwrite)
    }

    /// Posts the CAS with the READs of the record and its page's head. If the CAS fails, the READs
    /// continue as without it.
    async fn cas_before_look(
        &mut self,
        draft: &mut Draft<'_>,
        descent: &mut Descent<'_>,
        (addr, page, shape): (GlobalAddr, PageRef, Shape),
        is_update: bool,
    ) -> Result<Overwrite> {
        let leaf = draft.place(&mut self.client, addr.node()).await?;
        let inline = Word::inline(shape.born, descent.print);
        let own = Word::leaf(shape.leaf_print(page.addr, draft.key, descent.print), draft.class, leaf);
        let mut batch = self.client.batch();
        draft.mark_replacement(is_update);
        draft.post(&mut batch);
        if leaf.node() != addr.node() {
            self.client.send(&mut batch).await?;
        }
        descent.post(self.shared, &mut batch)?;
        let cas = batch.cas(addr, inline.0, own.0);
        let done = self.client.submit(batch).await?;
        if !done.swapped(cas) {
            let end = descent.absorb(self.shared, &done)?;
            self.client.recycle(done);
            return Ok(Overwrite::Found(match end {
                Some(end) => end,
                None => self.run(descent).await?,
            }));
        }
        // INLINE shows that the remembered life lasts, so what the batch has read there is of it.
        let is_own = descent.foreseen_key(&done) == Some(draft.key);
        self.client.recycle(done);
        if is_own {
            draft.linked();
            if let Some(identity) = descent.remembered_under() {
                self.shared.learn_hot_at(identity, (page, &shape), addr, own);
            }
            note(situations::BLIND_WON);
            self.has_changed(draft.key, page).await?;
            return Ok(Overwrite::Done);
        }
        Box::pin(self.undo(draft, addr, [own, inline])).await?;
        Ok(Overwrite::Again)
    }

    /// Restores INLINE in another key's record. If that fails, the leaf belongs to the client that
    /// replaced the word or unlinks the page.
    async fn undo(
        &mut self,
        draft: &mut Draft<'_>,
        addr: GlobalAddr,
        [own, inline]: [Word; 2],
    ) -> Result<()> {
        let is_undone = self.client.cas(addr, own.0, inline.0).await?.swapped;
        draft.lost();
        // Others may be reading it.
        if is_undone {
            self.retire_leaf_of(own);
        }
        note(if is_undone { situations::BLIND_UNDONE } else { situations::BLIND_LEFT });
        Ok(())
    }
}

/// Whether the descent ended at a record for which a blind CAS would have won.
fn is_inline(end: &PageSearchEnd) -> bool {
    let PageSearchEnd::Page(found) = end else { return false };
    matches!(found.spot, Lookup::Record { word, .. } if word.state() == State::Inline && !word.is_sealed())
}
