//! The way from a key to its place: the first half of every point operation.
//!
//! A [`Descent`] is a state machine without a fabric, as in DART: [`Descent::post`] adds the next
//! verbs to a batch, [`Descent::absorb`] processes their results. It begins at the cached root and
//! accepts it if its header is a root's and not sealed; otherwise it reads the root word. From
//! there on every node was linked at some moment of this operation, so readers use its slots as
//! they are. A node's identity decides whether the key left the path in the bytes that the edge
//! skipped.
//!
//! In the hashed layout the header is read together with the bucket of the next byte, assuming that
//! the edge skips nothing. If it does skip bytes and the bucket is another, that bucket costs one
//! more round trip.

use super::node::{Content, HEADER_WORDS, Header, NodeType, Part, Slot};
use super::shared::Shared;
use super::situations::ROOT_STALE;
use darter_fabric::{Batch, GlobalAddr, ReadId};
use darter_index::checker::note;
use darter_index::radix::leaf;
use darter_index::radix::prefix_hash::HashedKey;
use darter_index::radix::search::Search;
use darter_index::radix::slot::END;
use darter_index::{IndexError, Result};

/// A slot, its address and its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotAt {
    pub(super) addr: GlobalAddr,
    pub(super) slot: Slot,
}

/// The purpose of a descent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To return a value: sealed nodes are as valid as others.
    Read,
    /// To change the place found: a sealed node on the way must be handled first.
    Write,
}

/// The end of a descent.
#[derive(Clone, Copy, Debug)]
pub(super) enum ArtEnd {
    /// No child under the key's edge at [`Descent::here`].
    Vacant,
    /// A leaf under the key's edge, read whole: that of the key or of another.
    Leaf { at: SlotAt, read: ReadId, is_key: bool },
    /// The key leaves the path in the bytes skipped before [`Descent::here`].
    Diverged,
    /// Not for readers: the node at [`Descent::here`] is being replaced.
    Sealed,
}

enum Stage {
    RootWord(Option<ReadId>),
    /// A whole node, or its header and the bucket from a word on, for the edge at the predicted
    /// depth.
    Node(Option<(ReadId, Option<(usize, ReadId)>)>),
    /// The bucket from a word on; the header is known.
    Bucket(usize, usize, Option<ReadId>),
    Leaf {
        at: SlotAt,
        class: u8,
        read: Option<ReadId>,
    },
}

/// A node on the way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Here {
    pub(super) addr: GlobalAddr,
    pub(super) ty: NodeType,
    pub(super) header: Header,
    /// The slot that points to it.
    pub(super) incoming: SlotAt,
    /// The node that holds that slot, and its depth; `None` for the root word.
    pub(super) above: Option<(GlobalAddr, usize)>,
}

impl Here {
    /// Returns the depth if its edge skips nothing, which is the minimum.
    fn predicted(&self) -> usize {
        self.above.map_or(0, |(_, depth)| depth + 1)
    }

    /// Returns the root from its pointer.
    fn root(shared: &Shared, slot: Slot) -> Result<Self> {
        let (addr, ty) = shared.node_of_root(slot)?;
        let incoming = SlotAt { addr: shared.words.root, slot };
        Ok(Self { addr, ty, header: Header::default(), incoming, above: None })
    }
}

/// A descent for one key.
pub(super) struct Descent<'k> {
    pub(super) key: HashedKey<'k>,
    purpose: Purpose,
    /// The epoch at which the operation is pinned.
    epoch: u64,
    stage: Stage,
    /// The current node; at the end, the node where the descent ended.
    pub(super) here: Here,
    /// Whether the root was read from its word.
    root_known: bool,
    /// For writers, the words read of the current node other than its header, and the first word's
    /// index.
    pub(super) words: Vec<u64>,
    pub(super) words_at: usize,
}

impl<'k> Descent<'k> {
    /// Begins at the cached root. The caller is pinned at this epoch and has called
    /// [`Shared::refresh`].
    pub(super) fn new(shared: &Shared, epoch: u64, key: &'k [u8], purpose: Purpose) -> Result<Self> {
        Ok(Self {
            key: HashedKey::new(shared.keys, key),
            purpose,
            epoch,
            stage: Stage::Node(None),
            here: Here::root(shared, shared.root())?,
            root_known: false,
            words: Vec::new(),
            words_at: 0,
        })
    }

    /// Returns the key's edge at the current node, which is on its path.
    pub(super) fn edge(&self) -> u16 {
        self.key.edge(self.here.header.depth())
    }

    /// Returns the part that a writer's descent read of the node where it ended.
    pub(super) fn part(&self) -> Part<'_> {
        Part { ty: self.here.ty, header: self.here.header, at: self.words_at, words: &self.words }
    }
}

impl Search<Shared> for Descent<'_> {
    type End = ArtEnd;

    fn post(&mut self, shared: &Shared, batch: &mut Batch) -> Result<()> {
        let here = self.here;
        match &mut self.stage {
            Stage::RootWord(read) => *read = Some(batch.read(shared.words.root, 1)),
            Stage::Node(reads) => {
                let edge = self.key.edge(here.predicted());
                *reads = Some(match here.ty.bucket(edge) {
                    None => (batch.read(here.addr, here.ty.words()), None),
                    Some((at, len)) => {
                        let header = batch.read(here.addr, HEADER_WORDS);
                        (header, Some((at, batch.read(here.addr.plus(at as u64 * 8), len))))
                    }
                });
            }
            Stage::Bucket(at, len, read) => {
                *read = Some(batch.read(here.addr.plus(*at as u64 * 8), *len));
            }
            Stage::Leaf { at, class, read } => {
                *read = Some(batch.read(at.slot.addr(), leaf::class_words(*class)));
            }
        }
        Ok(())
    }

    fn absorb(&mut self, shared: &Shared, batch: &Batch) -> Result<Option<ArtEnd>> {
        match self.stage {
            Stage::RootWord(Some(read)) => {
                let slot = Slot::from_word(batch.words(read)[0]);
                self.here = Here::root(shared, slot)?;
                shared.remember_root(slot, self.epoch);
                self.root_known = true;
                self.stage = Stage::Node(None);
                Ok(None)
            }
            Stage::Node(Some((node, bucket))) => self.absorb_node(shared, batch, node, bucket),
            Stage::Bucket(at, _, Some(read)) => self.absorb_part(at, batch.words(read)),
            Stage::Leaf { at, read: Some(read), .. } => {
                let leaf = leaf::parse(at.slot.addr(), batch.words(read))?;
                Ok(Some(ArtEnd::Leaf { at, read, is_key: leaf.key == self.key.bytes() }))
            }
            _ => Err(IndexError::corrupt(self.here.addr, "descent absorbed before it was posted")),
        }
    }
}

impl Descent<'_> {
    fn absorb_node(
        &mut self,
        shared: &Shared,
        batch: &Batch,
        node: ReadId,
        bucket: Option<(usize, ReadId)>,
    ) -> Result<Option<ArtEnd>> {
        let words = batch.words(node);
        let header = Header::new(words);
        let predicted = self.here.predicted();
        self.here.header = header;
        if self.here.above.is_none() && !self.root_known && !shared.is_root(header) {
            note(ROOT_STALE);
            self.stage = Stage::RootWord(None);
            return Ok(None);
        }
        if self.purpose == Purpose::Write && header.is_sealed() {
            return Ok(Some(ArtEnd::Sealed));
        }
        let is_root = self.here.above.is_none();
        // Depths increase along every path, so pointers of a damaged pool cannot form cycles.
        if header.depth() < predicted || is_root && header.depth() > 0 {
            return Err(IndexError::corrupt(
                self.here.addr,
                "node is not deeper than the node that points to it",
            ));
        }
        if !header.is_on_path(&mut self.key) {
            return Ok(Some(ArtEnd::Diverged));
        }
        match bucket {
            None => self.absorb_part(HEADER_WORDS, &words[HEADER_WORDS..]),
            Some((at, read)) => match self.here.ty.bucket(self.edge()) {
                Some((wanted, len)) if wanted != at && self.edge() != END => {
                    self.stage = Stage::Bucket(wanted, len, None);
                    Ok(None)
                }
                _ => self.absorb_part(at, batch.words(read)),
            },
        }
    }

    fn absorb_part(&mut self, at: usize, words: &[u64]) -> Result<Option<ArtEnd>> {
        if self.purpose == Purpose::Write {
            self.words.clear();
            self.words.extend_from_slice(words);
            self.words_at = at;
        }
        let here = self.here;
        let part = Part { ty: here.ty, header: here.header, at, words };
        let edge = self.edge();
        let Some((at, slot)) = part.find(edge) else { return Ok(Some(ArtEnd::Vacant)) };
        let at = SlotAt { addr: here.addr.plus(at as u64 * 8), slot };
        match slot.content() {
            Content::Empty | Content::Tomb => Ok(Some(ArtEnd::Vacant)),
            Content::Leaf { class, .. } => {
                self.stage = Stage::Leaf { at, class, read: None };
                Ok(None)
            }
            Content::Node { addr, ty, .. } => {
                let above = Some((here.addr, here.header.depth()));
                self.here = Here { addr, ty, header: Header::default(), incoming: at, above };
                self.stage = Stage::Node(None);
                Ok(None)
            }
            Content::Invalid => Err(IndexError::corrupt(at.addr, "slot of an unknown type")),
        }
    }
}
