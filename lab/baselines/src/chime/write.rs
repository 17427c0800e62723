//! Put and delete: lock the leaf, read a neighbourhood or the slots up to the first vacant one,
//! write back the changes, and unlock (CHIME, sections 4.1.2 and 4.2.1).
//!
//! ```text
//! 1   CAS lock, READ vacancy
//! 2   READ slots, READ state     WRITE pair, if pairs are in blocks
//! 3   WRITE entry, WRITE its check, WRITE its home's check, WRITE vacancy, WRITE unlock
//! ```
//!
//! In the paper the lock word includes the vacancy bitmap, and a masked CAS returns both. Here the
//! lock word names its holder, so the bitmap is a word of the leaf, read after the CAS in the same
//! batch.
//!
//! The order of the WRITEs of 3 shows the next holder of the lock how far a dead writer came: an
//! entry's words change only while its slot is empty, and an entry that moves is in its new slot
//! before it leaves the old one. So live entries are whole, and all checks can be recomputed.

use super::search::Place;
use super::{Chime, Operation, situations};
use crate::hocl::Locked;
use crate::sherman::entry::{Block, Words, key_words};
use crate::sherman::hopscotch::{NEIGHBOURHOOD, SlotState, Table, first_vacant, home_of};
use crate::sherman::nodes::{Seen, is_harmless, note_taken_over};
use crate::sherman::page::{Aim, Page, Position};
use crate::sherman::search::Matches;
use crate::sherman::split::Parted;
use crate::sherman::walk::{Walk, WalkEnd, fetch_bounds};
use crate::sherman::write::Present;
use darter_fabric::{Batch, Fabric, OpKind};
use darter_index::checker::note;
use darter_index::radix::drafts::Draft as Pair;
use darter_index::{Condition, IndexError, PutOutcome, Result};
use darter_pool::{Client, PoolError};
use smallvec::SmallVec;

/// The part of a leaf that a writer reads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// The neighbourhood.
    Neighbourhood,
    /// The neighbourhood and the vacancy bitmap.
    WithVacancy,
    /// All slots up to the first vacant one, at least the neighbourhood.
    UpToVacant,
}

/// A locked leaf, with the part that was read.
struct Leaf<'s> {
    place: Place,
    table: Table<'s>,
    home: usize,
    /// Number of slots read, from the home on.
    count: usize,
    vacancy: u64,
    /// The whole leaf, if it was read.
    page: Option<Box<Page>>,
}

impl Leaf<'_> {
    /// Returns the entries whose words match a key.
    fn matches(&self, words: &[u64], slots: usize) -> Matches {
        let slots = (0..slots).map(|offset| self.table.layout.behind(self.home, offset));
        let live = slots.filter(|&slot| *self.table.key(slot) == *words);
        live.filter_map(|slot| self.table.parse(slot).entry().map(|entry| (slot, entry))).collect()
    }

    /// Returns whether the words that were read are consistent and belong to a leaf in the tree.
    fn is_sound(&self, knows_vacancy: bool) -> bool {
        let slots = (0..self.count).map(|offset| self.table.layout.behind(self.home, offset));
        let is_sound = |slot: usize| {
            let state = self.table.state(slot);
            let is_vacant = self.vacancy >> slot & 1 == 1;
            let agrees = !knows_vacancy || is_vacant == (state == SlotState::Empty);
            state != SlotState::Torn && self.table.is_in_tree(slot) && agrees
        };
        slots.into_iter().all(is_sound) && self.table.members(self.home, true).is_some()
    }
}

/// The result of an attempt to put.
enum Put {
    Done(PutOutcome),
    /// The key is stored and the leaf was split: its parent must list the new leaf.
    Split(Option<Parted>),
}

impl<F: Fabric> Chime<F> {
    pub(super) async fn put_in_table(
        &self,
        client: &mut Client<F>,
        key: &[u8],
        value: &[u8],
        condition: Condition<'_>,
    ) -> Result<PutOutcome> {
        self.tree.check_sizes(key, Some(value))?;
        let shared = &*self.tree.shared;
        let kind = condition.op_kind();
        let mut pair = if shared.format.is_inline() { None } else { Some(Pair::new(client, key, value)?) };
        if shared.cannot_tell() {
            self.tree.tell_parents(client).await?;
        }
        let mut operation: Operation<'_, F> = Operation::pin(shared, client, kind).await?;
        let outcome = operation.put_pair_in_table((key, value), condition, pair.as_mut()).await;
        if let Some(pair) = &mut pair {
            match &outcome {
                Ok(PutOutcome::Refused) => pair.discard(&mut operation.client),
                Err(error) if is_harmless(error) => pair.discard(&mut operation.client),
                _ => {}
            }
        }
        outcome
    }

    pub(super) async fn delete_from_table(
        &self,
        client: &mut Client<F>,
        key: &[u8],
        condition: Condition<'_>,
    ) -> Result<bool> {
        self.tree.check_sizes(key, None)?;
        let shared = &*self.tree.shared;
        let mut operation: Operation<'_, F> = Operation::pin(shared, client, OpKind::Delete).await?;
        let first = operation.client.batch();
        let (mut locked, mut leaf) = operation.lock_table(key, Wanted::WithVacancy, first).await?;
        let words = key_words(&shared.format, key, 0);
        let found = async {
            let matches = leaf.matches(&words, NEIGHBOURHOOD);
            let addr = leaf.place.0.addr();
            let present = operation.find_among(addr, matches, key, condition).await?;
            let Some(present) = present.filter(|present| present.meets(condition)) else {
                return Ok(None);
            };
            leaf.table.clear(present.slot);
            leaf.vacancy |= 1 << present.slot;
            operation.write_table(&mut locked, &leaf, true).await?;
            Ok(Some(present))
        };
        let present = match found.await {
            Ok(present) => present,
            Err(error) => return operation.give_up(locked, error).await,
        };
        locked.end(&mut operation.client).await?;
        let Some(present) = present else { return Ok(false) };
        operation.retire_block(&present.entry);
        // Not on every delete from a leaf that cannot be merged.
        let span = leaf.table.layout.span;
        let left = span - leaf.vacancy.count_ones() as usize;
        let is_due = left == 0 || left * 4 <= span && left.is_power_of_two();
        let merged = is_due && operation.merge_upwards(key).await?;
        if left == 0 && !merged && leaf.place.0 != shared.root {
            shared.note_unmerged(key);
        }
        Ok(true)
    }
}

impl<'a, F: Fabric> Operation<'a, F> {
    async fn put_pair_in_table(
        &mut self,
        (key, value): (&[u8], &[u8]),
        condition: Condition<'_>,
        pair: Option<&mut Pair<'_>>,
    ) -> Result<PutOutcome> {
        let mut first = self.client.batch();
        let mut block = None;
        let payload: Words = if let Some(pair) = pair {
            let home = self.home(key);
            let addr = pair.place(&mut self.client, home).await?;
            first.write(addr, &pair.words);
            let placed = Block { addr, class: pair.class };
            block = Some(pair);
            SmallVec::from_slice(&[placed.word()])
        } else {
            let mut words: Words = SmallVec::from_elem(0, self.shared.format.payload_words());
            bytemuck::cast_slice_mut(&mut words)[..value.len()].copy_from_slice(value);
            words
        };
        let wanted = match condition {
            Condition::Always | Condition::Absent => Wanted::UpToVacant,
            Condition::Present | Condition::Equals(_) => Wanted::Neighbourhood,
        };
        let (mut locked, leaf) = self.lock_table(key, wanted, first).await?;
        let put = match self.put_in_leaf(&mut locked, leaf, (key, &payload), condition).await {
            Ok(put) => put,
            Err(error) => return self.give_up(locked, error).await,
        };
        if !matches!(put, Put::Done(PutOutcome::Refused))
            && let Some(pair) = block
        {
            pair.linked();
        }
        locked.end(&mut self.client).await?;
        match put {
            Put::Done(outcome) => Ok(outcome),
            Put::Split(parted) => {
                self.post_separator(0, parted).await?;
                Ok(PutOutcome::Inserted)
            }
        }
    }

    async fn put_in_leaf(
        &mut self,
        locked: &mut Locked,
        mut leaf: Leaf<'a>,
        (key, payload): (&[u8], &Words),
        condition: Condition<'_>,
    ) -> Result<Put> {
        let shared = self.shared;
        let words = key_words(&shared.format, key, 0);
        let matches = leaf.matches(&words, NEIGHBOURHOOD);
        let present = self.find_among(leaf.place.0.addr(), matches, key, condition).await?;
        let holds = present.as_ref().map_or(!condition.wants_key(), |present| present.meets(condition));
        if !holds {
            return Ok(Put::Done(PutOutcome::Refused));
        }
        if let Some(Present { slot, entry, .. }) = present {
            leaf.table.replace(slot, payload);
            self.write_table(locked, &leaf, false).await?;
            self.retire_block(&entry);
            return Ok(Put::Done(PutOutcome::Replaced));
        }
        let offset = first_vacant(leaf.table.layout, leaf.home, leaf.vacancy);
        if leaf.page.is_none() && offset.is_none_or(|offset| offset >= leaf.count) {
            self.read_rest(&mut leaf).await?;
        }
        let entry: Words = words.iter().chain(payload).copied().collect();
        if leaf.table.insert_with_hops(leaf.home, &entry, &mut leaf.vacancy) {
            if offset.is_some_and(|offset| offset >= NEIGHBOURHOOD) {
                note(situations::HOPPED);
            }
            self.write_table(locked, &leaf, true).await?;
            return Ok(Put::Done(PutOutcome::Inserted));
        }
        if shared.cannot_tell() {
            // There is no room to update parents: further splits would only move more keys away
            // from the nodes that parents list.
            let (needed, node) = (shared.format.leaf_bytes(), leaf.place.0.addr().node());
            return Err(PoolError::OutOfSpace { needed, node }.into());
        }
        if leaf.page.is_none() {
            self.read_rest(&mut leaf).await?;
        }
        if leaf.vacancy != 0 {
            note(situations::SPLIT_WITH_VACANT_SLOTS);
        }
        let unread = IndexError::corrupt(leaf.place.0.addr(), "the locked leaf could not be read");
        let page = leaf.page.as_ref().ok_or(unread)?;
        Ok(Put::Split(self.split_leaf(locked, page, (key, payload)).await?))
    }

    /// Returns the place of a key's leaf according to the copies of the nodes above.
    async fn place_of(&mut self, key: &[u8]) -> Result<Place> {
        let mut walk = Walk::above_leaf(Aim::At(key), false);
        Ok(match self.walk_on(&mut walk).await? {
            WalkEnd::Link(link) => (link, walk.sibling()),
            WalkEnd::Page(page) => (page.link(), None),
            WalkEnd::Stuck(link) => (link, None),
            WalkEnd::TooLow => (self.shared.root, None),
        })
    }

    /// Locks the leaf of a key and reads the wanted part, in a batch with other verbs. If the part
    /// is inconsistent, the whole leaf is read, and repaired if its writer died.
    async fn lock_table(&mut self, key: &[u8], wanted: Wanted, first: Batch) -> Result<(Locked, Leaf<'a>)> {
        let shared = self.shared;
        let format = &shared.format;
        let place = self.place_of(key).await?;
        let unfit = || IndexError::corrupt(shared.root.addr(), "leaves are not hopscotch tables");
        let layout = format.layout().ok_or_else(unfit)?;
        let home = home_of(format, layout, &key_words(format, key, 0));
        let at = |at: usize| place.0.addr().plus(at as u64 * 8);
        let beside = (wanted != Wanted::Neighbourhood).then(|| at(layout.vacancy_at()));
        let (locked, vacancy) = shared.locks.lock_reading(&mut self.client, place.0.addr(), beside).await?;
        note_taken_over(&locked);
        let count = match (wanted, vacancy) {
            (Wanted::UpToVacant, Some(vacancy)) => first_vacant(layout, home, vacancy)
                .map_or(layout.span, |offset| (offset + 1).max(NEIGHBOURHOOD)),
            _ => NEIGHBOURHOOD,
        };
        let mut batch = first;
        let header = batch.read(at(0), if place.1.is_some() { 1 } else { layout.vacancy_at() });
        let runs = layout.runs(home, count, true);
        let reads: SmallVec<[_; 2]> =
            runs.into_iter().map(|run| (run, batch.read(at(run.0), run.1))).collect();
        let late = (beside.is_some() && vacancy.is_none()).then(|| batch.read(at(layout.vacancy_at()), 1));
        let done = match self.client.submit(batch).await {
            Ok(done) => done,
            Err(error) => return self.give_up(locked, error.into()).await,
        };
        let is_whole = done.words(header)[0] == 0;
        let sibling = place.1.or_else(|| {
            let header = Page::parse_header(format, place.0, done.words(header))?;
            (header.place(Aim::At(key)) == Some(Position::Within)).then_some(header.sibling)
        });
        let leaf = sibling.filter(|_| is_whole).and_then(|sibling| {
            let mut table = Table::unread(format, layout, place.0, sibling);
            for (run, read) in reads {
                table.take(run, done.words(read));
            }
            let vacancy = vacancy.or_else(|| late.map(|late| done.words(late)[0]));
            let (place, knows_vacancy) = ((place.0, Some(sibling)), vacancy.is_some());
            let is_right = table.replica(home) == sibling;
            let leaf = Leaf { place, table, home, count, vacancy: vacancy.unwrap_or(0), page: None };
            (is_right && leaf.is_sound(knows_vacancy)).then_some(leaf)
        });
        self.client.recycle(done);
        match leaf {
            Some(leaf) => Ok((locked, leaf)),
            None => self.lock_whole(key, home, place, locked).await,
        }
    }

    /// Reads the whole leaf of a key, which is the locked one or another.
    async fn lock_whole(
        &mut self,
        key: &[u8],
        home: usize,
        place: Place,
        locked: Locked,
    ) -> Result<(Locked, Leaf<'a>)> {
        let shared = self.shared;
        let mut covering = None;
        match self.read_locked(place.0, true).await {
            Ok(Seen::Alive(mut page)) if page.is_leaf() => {
                if let Err(error) = fetch_bounds(&mut self.client, &mut page).await {
                    return self.give_up(locked, error).await;
                }
                if place.1.is_some_and(|sibling| sibling != page.sibling) {
                    note(situations::SIBLING_DIFFERS);
                    shared.drop_copy_above(key, 0);
                }
                if page.place(Aim::At(key)) == Some(Position::Within) {
                    covering = Some(page);
                }
            }
            Ok(_) => {}
            Err(error) => return self.give_up(locked, error).await,
        }
        let (locked, page) = if let Some(page) = covering {
            (locked, page)
        } else {
            locked.end(&mut self.client).await?;
            shared.drop_copy_above(key, 0);
            let missing = IndexError::corrupt(shared.root.addr(), "the tree has no leaves");
            let (locked, page, _) = self.lock_covering(key, 0, None, None).await?.ok_or(missing)?;
            (locked, page)
        };
        let mut leaf = Leaf {
            place: (page.link(), Some(page.sibling)),
            table: Table::unread(&shared.format, self.layout()?, page.link(), page.sibling),
            home,
            count: 0,
            vacancy: 0,
            page: None,
        };
        self.take_page(&mut leaf, page);
        Ok((locked, leaf))
    }

    fn layout(&self) -> Result<crate::sherman::hopscotch::Layout> {
        let unfit = || IndexError::corrupt(self.shared.root.addr(), "leaves are not hopscotch tables");
        self.shared.format.layout().ok_or_else(unfit)
    }

    /// Sets a leaf to the words of its whole page.
    fn take_page(&self, leaf: &mut Leaf<'a>, page: Box<Page>) {
        let (format, layout) = (&self.shared.format, leaf.table.layout);
        leaf.table = Table::new(format, layout, page.link(), page.sibling, page.words.to_vec().into());
        leaf.count = layout.span;
        leaf.vacancy = leaf.table.vacancy();
        leaf.page = Some(page);
    }

    /// Reads the whole of a leaf whose lock the caller holds.
    async fn read_rest(&mut self, leaf: &mut Leaf<'a>) -> Result<()> {
        match self.read_locked(leaf.place.0, false).await? {
            Seen::Alive(page) => {
                self.take_page(leaf, page);
                Ok(())
            }
            _ => Err(IndexError::corrupt(leaf.place.0.addr(), "the locked leaf could not be read")),
        }
    }

    /// Writes the changes of a leaf, and unlocks.
    async fn write_table(
        &mut self,
        locked: &mut Locked,
        leaf: &Leaf<'_>,
        changes_vacancy: bool,
    ) -> Result<()> {
        let mut batch = self.client.batch();
        leaf.table.post(&mut batch);
        if changes_vacancy {
            let at = leaf.table.layout.vacancy_at();
            batch.write(leaf.place.0.addr().plus(at as u64 * 8), &[leaf.vacancy]);
        }
        self.submit_and_unlock(batch, vec![locked]).await
    }
}
