//! Insert, update, conditional put, modify and delete: one CAS each, on the word of the key's home.
//!
//! Rare steps are boxed: otherwise their futures would make up most of the size of every write's
//! future. The others are pinned where they are created, since awaiting a future moves it.

use super::Quiver;
use super::blind::Overwrite;
use super::descent::{Found, Lookup, PageSearchEnd, Purpose};
use super::direct;
use super::nibble::EdgeRange;
use super::node::{Content, Slot};
use super::operation::Operation;
use super::outcome::Home;
use super::page::{self, Head};
use super::pair::{Maker, Pair, Place};
use super::parent_slot::ParentSlot;
use super::search::value_at;
use super::situations;
use super::word::{State, Word};
use crate::checker::note;
use crate::ordered::check_key;
use crate::radix::drafts::Draft;
use crate::radix::{TURNS_MAX, no_progress};
use crate::{Condition, Decide, Decision, IndexError, PutOutcome, Result};
use darter_fabric::{Fabric, OpKind, turns};
use darter_pool::Client;
use std::pin::pin;

/// Other clients' concurrent deletes in one page for which a delete checks whether together they
/// left the page empty.
pub(super) const CONCURRENT_DELETES_MAX: u64 = 4;

/// The outcome of one attempt.
pub(super) enum Attempt {
    Done(PutOutcome),
    Again,
}

impl<F: Fabric> Quiver<F> {
    /// Stores a value under a key if the condition holds.
    pub(super) async fn put_value(
        &self,
        client: &mut Client<F>,
        key: &[u8],
        value: &[u8],
        condition: Condition<'_>,
    ) -> Result<PutOutcome> {
        let mut draft = Draft::new(client, key, value)?;
        turns::passed_over(value).await;
        let mut operation = Operation::begin(&self.shared, client, condition.op_kind()).await?;
        for turn in 0..TURNS_MAX {
            let taken = pin!(operation.put_turn(&mut draft, value, condition, turn == 0)).await;
            match taken {
                Ok(Attempt::Done(outcome)) => {
                    draft.discard(&mut operation.client);
                    return Ok(outcome);
                }
                Ok(Attempt::Again) => operation.client.retried(),
                Err(error) => return Err(operation.after_error(&mut draft, error)),
            }
        }
        Err(no_progress(self.shared.words.root))
    }

    /// Puts, changes or removes a key as `decide` returns: [`crate::OrderedIndex::modify_as`].
    pub(super) async fn modify_value(
        &self,
        client: &mut Client<F>,
        kind: OpKind,
        key: &[u8],
        decide: &mut Decide<'_>,
    ) -> Result<Decision> {
        check_key(key)?;
        let mut operation = Operation::begin(&self.shared, client, kind).await?;
        let mut value = Vec::new();
        for _ in 0..TURNS_MAX {
            let end = operation.find(key).await?;
            if let PageSearchEnd::Sealed { .. } = end {
                Box::pin(operation.help_above(key)).await?;
                operation.client.retried();
                continue;
            }
            let end = operation.decided(end).await?;
            value.clear();
            let decision = decide(value_at(&end)?, &mut value);
            let is_done = match decision {
                Decision::Keep => true,
                Decision::Remove => operation.remove(key, end).await?,
                Decision::Put => {
                    turns::passed_over(&value).await;
                    let mut draft = Draft::new(&operation.client, key, &value)?;
                    turns::passed_over(&value).await;
                    match operation.place(&mut draft, &value, end, false).await {
                        Ok(turn) => {
                            draft.discard(&mut operation.client);
                            matches!(turn, Attempt::Done(_))
                        }
                        Err(error) => return Err(operation.after_error(&mut draft, error)),
                    }
                }
            };
            if is_done {
                return Ok(decision);
            }
            operation.client.retried();
        }
        Err(no_progress(self.shared.words.root))
    }
}

impl<F: Fabric> Operation<'_, F> {
    /// Finds a key's place for a change.
    async fn find(&mut self, key: &[u8]) -> Result<PageSearchEnd> {
        let loaded = self.memory().and_then(|memory| direct::place_of(self.shared, memory, key).ok());
        if let Some(end) = loaded {
            return Ok(end);
        }
        let mut descent = self.descent_for(key, Purpose::Write);
        self.run(&mut descent).await
    }

    async fn put_turn(
        &mut self,
        draft: &mut Draft<'_>,
        value: &[u8],
        condition: Condition<'_>,
        is_first: bool,
    ) -> Result<Attempt> {
        let is_unconditional = matches!(condition, Condition::Always | Condition::Present);
        let end = if is_unconditional {
            let overwritten = pin!(self.overwrite(draft, is_first, condition == Condition::Present)).await?;
            match overwritten {
                Overwrite::At(home) => return pin!(self.put_at(draft, &home, true)).await,
                Overwrite::Found(end) => end,
                Overwrite::Done => return Ok(Attempt::Done(PutOutcome::Replaced)),
                Overwrite::Again => return Ok(Attempt::Again),
            }
        } else {
            pin!(self.find(draft.key)).await?
        };
        if let PageSearchEnd::Sealed { .. } = end {
            Box::pin(self.help_above(draft.key)).await?;
            return Ok(Attempt::Again);
        }
        let end = self.decided(end).await?;
        let holds = match condition {
            Condition::Present => matches!(&end, PageSearchEnd::Page(found) if found.spot.is_present()),
            _ => condition.holds_for(value_at(&end)?),
        };
        if !holds {
            return Ok(Attempt::Done(PutOutcome::Refused));
        }
        pin!(self.place(draft, value, end, is_unconditional)).await
    }

    /// Handles a draft after an error: discards it if the pool is out of space.
    fn after_error(&mut self, draft: &mut Draft<'_>, error: IndexError) -> IndexError {
        if error.is_out_of_space() {
            draft.discard(&mut self.client);
        }
        error
    }

    /// Puts a pair where the search for its key ended. The attempt fails if another client was
    /// faster.
    async fn place(
        &mut self,
        draft: &mut Draft<'_>,
        value: &[u8],
        end: PageSearchEnd,
        is_unconditional: bool,
    ) -> Result<Attempt> {
        match end {
            PageSearchEnd::Page(found) => pin!(self.place_in_page(draft, found, is_unconditional)).await,
            PageSearchEnd::Vacant { parent } => {
                let pair = Pair::new(self.shared.keys, draft.key, value);
                Box::pin(self.fill_vacancy(&[pair], parent)).await
            }
            PageSearchEnd::Diverged { parent, child } => {
                let pair = Pair::new(self.shared.keys, draft.key, value);
                Box::pin(self.part_path(pair, parent, child)).await
            }
            PageSearchEnd::Sealed { .. }
            | PageSearchEnd::Value(_)
            | PageSearchEnd::Standing(..)
            | PageSearchEnd::Hot(_) => Ok(Attempt::Again),
        }
    }

    /// Puts a page with some pairs, in key order, in a slot with NONE.
    pub(super) async fn fill_vacancy(&mut self, pairs: &[Pair], parent: ParentSlot) -> Result<Attempt> {
        debug_assert!(pairs.is_sorted_by(|a, b| a.key < b.key), "a page has its pairs in key order");
        let ParentSlot { node, identity, edges, at, mut copied } = parent;
        let Content::None { hi } = at.slot.content() else { return Ok(Attempt::Again) };
        let mut maker = Maker::new(self.shared, self.client.epoch());
        let edges = EdgeRange { hi, ..edges };
        let place = Place { identity, depth: node.depth, edges, home: node.addr.node() };
        let made = maker.page(&mut self.client, place, pairs).await;
        let page = self.made(&mut maker, made)?;
        maker.copy_map(node.addr, &mut copied, &page);
        let found = maker
            .link(&mut self.client, at.addr, parent.stored(at.slot), parent.stored(Slot::of(&page)))
            .await?;
        let is_won = found == parent.stored(at.slot);
        Ok(if is_won { Attempt::Done(PutOutcome::Inserted) } else { Attempt::Again })
    }

    /// Returns the result of a maker; if it failed, gives back the parts that were made.
    pub(super) fn made<T>(&mut self, maker: &mut Maker, made: Result<T>) -> Result<T> {
        made.inspect_err(|_| maker.discard(&mut self.client))
    }

    async fn place_in_page(
        &mut self,
        draft: &mut Draft<'_>,
        found: Box<Found>,
        is_unconditional: bool,
    ) -> Result<Attempt> {
        let was_there = found.spot.is_present();
        let (addr, word) = match &found.spot {
            Lookup::Record { addr, word, .. } | Lookup::Delta { addr, word, .. } => (*addr, *word),
            Lookup::Absent { vacancy } => match *vacancy {
                Some(place) => place,
                None => return self.make_room(draft.key, found).await,
            },
        };
        if word.is_sealed() || found.head.is_sealed {
            return self.make_room(draft.key, found).await;
        }
        let Head { page, shape, identity, .. } = found.head;
        let is_put_again = matches!(found.spot, Lookup::Record { .. }) && !was_there;
        let home = Home { page, shape, identity, print: found.print, addr, word, was_there, is_put_again };
        pin!(self.put_at(draft, &home, is_unconditional)).await
    }

    /// Puts a pair in its home.
    async fn put_at(
        &mut self,
        draft: &mut Draft<'_>,
        home: &Home,
        is_unconditional: bool,
    ) -> Result<Attempt> {
        let &Home { page, ref shape, addr, word, was_there, .. } = home;
        let print = shape.leaf_print(page.addr, draft.key, home.print);
        let leaf = draft.place(&mut self.client, addr.node()).await?;
        let new = Word::leaf(print, draft.class, leaf);
        let mut batch = self.client.batch();
        draft.mark_replacement(was_there && is_unconditional);
        draft.post(&mut batch);
        if leaf.node() != addr.node() && !batch.is_empty() {
            self.client.send(&mut batch).await?;
        }
        let cas = batch.cas(addr, word.0, new.0);
        if home.is_put_again {
            batch.faa(page.removals_addr(), page::REMOVAL.wrapping_neg());
        }
        let done = self.client.submit(batch).await?;
        let winner = Word(done.found(cas));
        self.client.recycle(done);
        if winner != word {
            return if was_there && is_unconditional {
                Box::pin(self.accept_superseded(draft, winner)).await
            } else {
                Ok(Attempt::Again)
            };
        }
        draft.linked();
        self.shared.learn_hot_at(home.identity, (page, shape), addr, new);
        self.retire_leaf_of(word);
        match word.state() {
            State::Tomb => note(situations::TOMB_REUSED),
            State::Inline => self.has_changed(draft.key, page).await?,
            _ => self.has_changed_again(),
        }
        Ok(Attempt::Done(if was_there { PutOutcome::Replaced } else { PutOutcome::Inserted }))
    }

    /// Handles an unconditional put whose CAS failed because of `winner`. If that is another
    /// unconditional put of the same key, the put counts as done and overwritten at once.
    async fn accept_superseded(&mut self, draft: &Draft<'_>, winner: Word) -> Result<Attempt> {
        let may_be_superseded = !winner.is_sealed();
        if may_be_superseded
            && let State::Leaf { addr, class } = winner.unsealed().state()
            && draft.is_superseded(&mut self.client, (addr, class)).await?
        {
            note(situations::SUPERSEDED);
            self.has_changed_again();
            self.client.retried();
            return Ok(Attempt::Done(PutOutcome::Replaced));
        }
        Ok(Attempt::Again)
    }

    /// Replaces a page that has no room or is already being replaced.
    pub(super) async fn make_room(&mut self, key: &[u8], found: Box<Found>) -> Result<Attempt> {
        if found.head.is_sealed {
            note(situations::HELPED);
        }
        match found.from {
            Some(from) => Box::pin(self.rebuild(from, found.head.page)).await?,
            None => Box::pin(self.rebuild_remembered(key, found.head.page)).await?,
        }
        Ok(Attempt::Again)
    }

    /// Removes a key from its home. Returns false if another client was faster.
    async fn remove(&mut self, key: &[u8], end: PageSearchEnd) -> Result<bool> {
        let PageSearchEnd::Page(found) = end else { return Ok(true) };
        let print = found.print;
        let (addr, word, tomb) = match &found.spot {
            Lookup::Record { addr, word, is_inline: true, value: Some(_) } => {
                (*addr, *word, Word::tomb(found.head.shape.born, print))
            }
            Lookup::Record { addr, word, value: Some(_), .. } | Lookup::Delta { addr, word, .. } => {
                (*addr, *word, Word::erased(*addr, print))
            }
            _ => return Ok(true),
        };
        if word.is_sealed() || found.head.is_sealed {
            self.make_room(key, found).await?;
            return Ok(false);
        }
        let mut batch = self.client.batch();
        let cas = batch.cas(addr, word.0, tomb.0);
        if let Lookup::Record { .. } = found.spot {
            batch.faa(found.head.page.removals_addr(), page::REMOVAL);
        }
        let before = found.head.live_about();
        let is_likely = before <= 1 + CONCURRENT_DELETES_MAX || found.head.is_thin(before - 1);
        // Read after the CAS: the last of several concurrent deletes sees the effect of all of
        // them.
        let look = is_likely.then(|| batch.read(found.head.page.addr, found.head.shape.head_words()));
        let done = self.client.submit(batch).await?;
        let is_won = done.swapped(cas);
        let left = match look {
            Some(look) => page::Head::parse(found.head.page, done.words(look))?.ok(),
            None => None,
        };
        self.client.recycle(done);
        if !is_won {
            return Ok(false);
        }
        self.retire_leaf_of(word);
        if left.is_some_and(|head| head.is_thin(head.live_about())) {
            // The key is gone even if tidying fails: another delete tidies then.
            match Box::pin(self.tidy(key)).await {
                Err(error) if !error.is_out_of_space() => return Err(error),
                _ => {}
            }
        }
        Ok(true)
    }
}
