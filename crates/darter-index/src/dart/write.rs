//! Insert, update, conditional put and delete (paper, sections 4.2 and 4.3).
//!
//! Every change is one CAS on one slot. The objects that it links are written before it, in the
//! same doorbell batch if both are on one memory node. A CAS that fails changes nothing: the
//! operation searches again and counts a retry. The slot rules (`docs/dart.md`) keep keys unique
//! without a further round trip: slots of a bucket fill in order and never become empty again, so
//! two inserters of one edge compete for the same first empty slot.
//!
//! *Superseded puts.* A put that loses its slot to another put of the same key need not try again.
//! If the winner's leaf says that it replaced a leaf of this key unconditionally
//! ([`leaf::mark_replacement`]), the key was present just before the winner's CAS, which happened
//! between our read and our CAS. Our put takes effect at that moment and is overwritten at once,
//! unseen. So writers of one key do not delay each other, however many there are.

use super::Dart;
use super::access::{Parent, Target};
use super::descent::{Descent, DescentEnd, SlotAt};
use super::leaf;
use super::node::{Content, NodeType, Slot};
use super::operation::Operation;
use super::situations;
use super::switch::{NewChild, Switched};
use crate::checker::note;
use crate::ordered::check_key;
use crate::radix::drafts::Draft;
use crate::radix::slot::SKIP_MAX;
use crate::radix::{TURNS_MAX, no_progress};
use crate::{Condition, Decide, Decision, IndexError, PutOutcome, Result};
use darter_fabric::{Batch, Fabric, OpKind};
use darter_pool::size_class::class_bytes;
use darter_pool::{AllocKind, Client, Pinned};

/// Concurrent deletes from one node, other than the client's own, for which a delete checks whether
/// together they left the node sparse. If more of them did, the next delete collapses the node.
const CONCURRENT_DELETES_MAX: usize = 4;

/// The result of one attempt.
pub(super) enum Attempt {
    Done(PutOutcome),
    Again,
}

/// Where the search for a key ended.
enum Lookup {
    /// At the key's leaf.
    Key(SlotAt),
    /// At the leaf of another key.
    Other(SlotAt, Vec<u8>),
    /// At a node without a child under the key's edge.
    Vacant,
    /// Inside the compressed bytes before a node.
    Diverged,
    /// At a node that is being replaced.
    Sealed,
}

impl Lookup {
    /// Classifies the end of a writer's descent, using the batch that it left.
    fn of<F: Fabric>(client: &mut Pinned<'_, F>, end: DescentEnd, done: Batch) -> Result<Self> {
        let spot = match end {
            DescentEnd::Leaf { at, is_key: true, .. } => Self::Key(at),
            DescentEnd::Leaf { at, read, is_key: false } => {
                Self::Other(at, leaf::parse_again(at.slot.addr(), done.words(read))?.key.to_vec())
            }
            DescentEnd::Vacant => Self::Vacant,
            DescentEnd::Diverged => Self::Diverged,
            DescentEnd::Sealed | DescentEnd::Reached => Self::Sealed,
        };
        client.recycle(done);
        Ok(spot)
    }
}

impl<F: Fabric> Dart<F> {
    /// Stores a value under a key if the condition holds.
    pub(super) async fn put_value(
        &self,
        client: &mut Client<F>,
        key: &[u8],
        value: &[u8],
        condition: Condition<'_>,
    ) -> Result<PutOutcome> {
        let mut draft = Draft::new(client, key, value)?;
        let kind = condition.op_kind();
        let mut operation = Operation::begin(&self.shared, client, kind).await?;
        for _ in 0..TURNS_MAX {
            match operation.put_turn(&mut draft, condition).await {
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

    /// Puts, changes or removes a key as `decide` says. Implements
    /// [`crate::OrderedIndex::modify_as`].
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
            let mut descent = operation.descent(key);
            let (end, done) = operation.run(&mut descent).await?;
            value.clear();
            let decision = match end {
                DescentEnd::Sealed => None,
                _ => Some(decide(value_at(end, &done)?, &mut value)),
            };
            let spot = Lookup::of(&mut operation.client, end, done)?;
            let is_done = match (decision, spot) {
                (None, _) => {
                    Box::pin(operation.help(key, descent.node)).await?;
                    false
                }
                (Some(Decision::Put), spot) => {
                    let mut draft = Draft::new(&operation.client, key, &value)?;
                    match operation.place(&mut draft, &mut descent, spot, false).await {
                        Ok(turn) => {
                            draft.discard(&mut operation.client);
                            matches!(turn, Attempt::Done(_))
                        }
                        Err(error) => return Err(operation.after_error(&mut draft, error)),
                    }
                }
                (Some(Decision::Remove), Lookup::Key(at)) => operation.remove(&descent, at).await?,
                (Some(Decision::Remove | Decision::Keep), _) => true,
            };
            match decision {
                Some(decision) if is_done => return Ok(decision),
                _ => operation.client.retried(),
            }
        }
        Err(no_progress(self.shared.words.root))
    }
}

impl<F: Fabric> Operation<'_, F> {
    async fn put_turn(&mut self, draft: &mut Draft<'_>, condition: Condition<'_>) -> Result<Attempt> {
        let mut descent = self.descent(draft.key);
        let (end, done) = self.run(&mut descent).await?;
        let is_known = !matches!(end, DescentEnd::Sealed);
        let is_refused = is_known && !condition.holds_for(value_at(end, &done)?);
        let spot = Lookup::of(&mut self.client, end, done)?;
        if is_refused {
            return Ok(Attempt::Done(PutOutcome::Refused));
        }
        let is_unconditional = matches!(condition, Condition::Always | Condition::Present);
        self.place(draft, &mut descent, spot, is_unconditional).await
    }

    /// Removes a key from the slot that holds its leaf. Returns whether the CAS succeeded.
    async fn remove(&mut self, descent: &Descent<'_>, at: SlotAt) -> Result<bool> {
        let tomb = Slot::tomb(descent.key.edge(descent.node.depth));
        let is_whole = descent.node.ty.buckets() == 1;
        let was_thin = thinned(descent, &descent.bucket, usize::from(is_whole));
        let looks = is_whole && !was_thin && thinned(descent, &descent.bucket, 1 + CONCURRENT_DELETES_MAX);
        let mut batch = self.client.batch();
        let cas = batch.cas(at.addr, at.slot.word(), tomb.word());
        // Read after the CAS: the last of several concurrent deletes sees the effects of all of
        // them.
        let look = looks.then(|| {
            let bucket = descent.node.bucket_addr(descent.key.edge(descent.node.depth));
            batch.read(bucket, descent.bucket.len())
        });
        let done = self.client.submit(batch).await?;
        let won = done.swapped(cas);
        let is_thin = look.map_or(was_thin, |read| thinned(descent, done.words(read), 0));
        self.client.recycle(done);
        if !won {
            return Ok(false);
        }
        self.retire_leaf(at.slot);
        if is_thin {
            // The key is deleted even if tidying fails; another delete will tidy.
            match Box::pin(self.tidy(descent.key.bytes())).await {
                Err(error) if !error.is_out_of_space() => return Err(error),
                _ => {}
            }
        }
        Ok(true)
    }

    /// Disposes of a draft after an error.
    fn after_error(&mut self, draft: &mut Draft<'_>, error: IndexError) -> IndexError {
        if error.is_out_of_space() {
            draft.discard(&mut self.client);
        }
        error
    }

    /// Puts a pair where the search for its key ended. The CAS may lose to another client.
    async fn place(
        &mut self,
        draft: &mut Draft<'_>,
        descent: &mut Descent<'_>,
        spot: Lookup,
        is_unconditional: bool,
    ) -> Result<Attempt> {
        leaf::mark_replacement(&mut draft.words, false);
        match spot {
            // Rare cases are boxed: otherwise their futures would dominate the size of every
            // write's future.
            Lookup::Key(at) => self.replace_leaf(draft, at, is_unconditional).await,
            Lookup::Other(at, other) => Box::pin(self.split_at(draft, descent, at, &other)).await,
            Lookup::Vacant => self.fill_vacancy(draft, descent).await,
            Lookup::Diverged => Box::pin(self.split_above(draft, descent)).await,
            Lookup::Sealed => {
                Box::pin(self.help(draft.key, descent.node)).await?;
                Ok(Attempt::Again)
            }
        }
    }

    /// The key is present: swings its slot to a new leaf.
    async fn replace_leaf(
        &mut self,
        draft: &mut Draft<'_>,
        at: SlotAt,
        is_unconditional: bool,
    ) -> Result<Attempt> {
        let addr = draft.place(&mut self.client, at.addr.node()).await?;
        let slot = Slot::leaf(at.slot.edge().unwrap_or(0), draft.class, addr);
        draft.mark_replacement(is_unconditional);
        let found = self.exchange(&[(addr, &draft.words)], at, slot).await?;
        if found == at.slot {
            draft.linked();
            self.retire_leaf(at.slot);
            return Ok(Attempt::Done(PutOutcome::Replaced));
        }
        let may_be_superseded = !found.is_sealed();
        if is_unconditional
            && may_be_superseded
            && let Content::Leaf { addr, class } = found.content()
            && draft.is_superseded(&mut self.client, (addr, class)).await?
        {
            note(situations::SUPERSEDED);
            self.client.retried();
            return Ok(Attempt::Done(PutOutcome::Replaced));
        }
        Ok(Attempt::Again)
    }

    /// The key's edge has no child: takes its slot, or switches the node's type if the bucket is
    /// full.
    async fn fill_vacancy(&mut self, draft: &mut Draft<'_>, descent: &mut Descent<'_>) -> Result<Attempt> {
        let node = descent.node;
        let edge = descent.key.edge(node.depth);
        let vacancy = vacancy(node.ty, &descent.bucket, edge);
        if let Some((word, old)) = vacancy {
            let at = SlotAt { addr: node.bucket_addr(edge).plus(word as u64 * 8), slot: old };
            let addr = draft.place(&mut self.client, at.addr.node()).await?;
            let slot = Slot::leaf(edge, draft.class, addr);
            if !self.publish(&[(addr, &draft.words)], at, slot).await? {
                return Ok(Attempt::Again);
            }
            draft.linked();
            if !old.is_empty() {
                note(situations::TOMB_REUSED);
            }
            return Ok(Attempt::Done(PutOutcome::Inserted));
        }
        Box::pin(self.grow(draft, descent)).await
    }

    /// The bucket of the key's edge is full: switches the node's type.
    async fn grow(&mut self, draft: &mut Draft<'_>, descent: &mut Descent<'_>) -> Result<Attempt> {
        let node = descent.node;
        let edge = descent.key.edge(node.depth);
        let (incoming, above) = match self.parent_of_end(descent).await? {
            Parent::Found { incoming, above } => (incoming, above),
            Parent::Sealed(upper) => {
                self.help(draft.key, upper).await?;
                return Ok(Attempt::Again);
            }
            Parent::Gone => return Ok(Attempt::Again),
        };
        let addr = draft.place(&mut self.client, incoming.addr.node()).await?;
        let words = (node.ty.buckets() == 1).then_some(&descent.bucket[..]);
        let target = Target { node, incoming, above, words };
        let child = NewChild { slot: Slot::leaf(edge, draft.class, addr), words: &draft.words };
        let switched = self.switch(&mut descent.key, &target, Some(child), &descent.probes).await?;
        if switched == (Switched::Done { added: true }) {
            draft.linked();
            return Ok(Attempt::Done(PutOutcome::Inserted));
        }
        Ok(Attempt::Again)
    }

    /// Rebuilds at a smaller size, or collapses, the node where a key ends, then its parents, as
    /// long as they are sparse.
    pub(super) async fn tidy(&mut self, key: &[u8]) -> Result<()> {
        for _ in 0..TURNS_MAX {
            let mut descent = self.descent(key);
            let (end, done) = self.run(&mut descent).await?;
            self.client.recycle(done);
            let (node, incoming, known) = match end {
                DescentEnd::Sealed => {
                    self.help(key, descent.node).await?;
                    continue;
                }
                DescentEnd::Vacant | DescentEnd::Leaf { is_key: false, .. } => {
                    let incoming = descent.incoming.map(|incoming| (incoming, descent.above));
                    (descent.node, incoming, Some(&descent.bucket[..]))
                }
                // The key left the path below `holder`, which is the node that may be sparse.
                DescentEnd::Diverged => match descent.holder {
                    Some(holder) => (holder, None, None),
                    None => return Ok(()),
                },
                DescentEnd::Leaf { .. } | DescentEnd::Reached => return Ok(()),
            };
            let words = match known {
                Some(words) if node.ty.buckets() == 1 => words.to_vec(),
                Some(_) if !thinned(&descent, &descent.bucket, 0) => return Ok(()),
                _ => self.read_node(node).await?,
            };
            if !node.ty.is_sparse(live_count(&words, node.ty)) {
                return Ok(());
            }
            let (incoming, above) = match incoming {
                Some(known) => known,
                None => match self.parent_of(key, node).await? {
                    Parent::Found { incoming, above } => (incoming, above),
                    Parent::Sealed(upper) => {
                        self.help(key, upper).await?;
                        continue;
                    }
                    Parent::Gone => continue,
                },
            };
            let target = Target { node, incoming, above, words: Some(&words) };
            if !self.is_worth_rebuilding(&target, &words) {
                return Ok(());
            }
            self.switch(&mut descent.key, &target, None, &descent.probes).await?;
        }
        Err(no_progress(self.shared.words.root))
    }

    /// Whether a rebuild would yield less than the node has now: a smaller type, a single child, or
    /// nothing.
    fn is_worth_rebuilding(&self, target: &Target<'_>, words: &[u64]) -> bool {
        let ty = target.node.ty;
        let live = super::node::children_in_order(ty, words);
        if !ty.is_sparse(live.len()) {
            return false;
        }
        let is_root = target.incoming.addr == self.shared.words.root;
        let smaller = NodeType::fit(live.iter().filter_map(|slot| slot.edge())) < ty;
        match live[..] {
            _ if is_root => smaller,
            [only] => match (only.content(), target.incoming.slot.content()) {
                (Content::Node { skip: below, .. }, Content::Node { skip: above, .. }) => {
                    smaller || usize::from(above) + 1 + usize::from(below) <= SKIP_MAX
                }
                _ => true,
            },
            [] => true,
            _ => smaller,
        }
    }

    fn retire_leaf(&mut self, slot: Slot) {
        if let Content::Leaf { addr, class } = slot.content() {
            self.client.retire(addr, class_bytes(class), AllocKind::Leaf);
        }
    }
}

/// The value of the key whose search has ended, as held by the batch that it left; `None` if the
/// key is absent.
fn value_at(end: DescentEnd, done: &Batch) -> Result<Option<&[u8]>> {
    match end {
        DescentEnd::Leaf { at, read, is_key: true } => {
            Ok(Some(leaf::parse_again(at.slot.addr(), done.words(read))?.value))
        }
        _ => Ok(None),
    }
}

/// The slot that an edge without a child takes in its bucket, and its current content: the edge's
/// own tombstone if there is one, else the first empty slot. `None` if the bucket is full.
fn vacancy(ty: NodeType, bucket: &[u64], edge: u16) -> Option<(usize, Slot)> {
    if let Some(word) = ty.direct_word(edge) {
        return bucket.get(word).map(|&old| (word, Slot::from_word(old)));
    }
    let slots = || bucket.iter().enumerate().skip(1).map(|(word, &old)| (word, Slot::from_word(old)));
    slots().find(|(_, slot)| slot.edge() == Some(edge)).or_else(|| slots().find(|(_, slot)| slot.is_empty()))
}

fn live_count(words: &[u64], ty: NodeType) -> usize {
    super::node::slots(ty, words).filter(|(_, slot)| slot.is_live()).count()
}

/// Whether a bucket with this many live children is empty enough that its node may be sparse.
fn bucket_is_sparse(ty: NodeType, live: usize) -> bool {
    ty == NodeType::N4 || {
        let smaller = NodeType::ALL[ty as usize - 1].capacity();
        live * ty.buckets() <= smaller / 2 + ty.buckets()
    }
}

/// Whether a node may be sparse, given that it has `fewer` children than the descent's copy of its
/// bucket shows.
fn thinned(descent: &Descent<'_>, bucket: &[u64], fewer: usize) -> bool {
    let ty = descent.node.ty;
    let slots = bucket.get(1..).unwrap_or_default();
    let live = slots.iter().filter(|&&word| Slot::from_word(word).is_live()).count().saturating_sub(fewer);
    if ty.buckets() == 1 { ty.is_sparse(live) } else { bucket_is_sparse(ty, live) }
}
