//! The place of the models in the pool: the descriptor's word that leads to them, their root, and
//! the slabs with their tables.
//!
//! ```text
//! word of the models   generation 32 | number of the root 32 (its offset divided by 64; 0: no models)
//! root     word 0      magic 32 | number of sub-models 32
//!          words 1, 2  top model
//!          word 3      address of the first slab, 0 for none
//!          word 4      word of the image of the inner nodes ([`super::image`])
//!          words 5..   addresses of the segments, which hold 1,024 sub-models each
//! slab     word 0      magic 32 | size 32, in units of 64 bytes
//!          word 1      address of the next slab, 0 for none
//!          words 8..   tables
//! ```
//!
//! A root never changes except for its list of slabs, which only grows; new models have a new root
//! and a new generation. Segments hold two words per sub-model.

use super::image::ImageWord;
use super::leaf::UNIT;
use super::model::{SubModel, TopModel};
use darter_fabric::GlobalAddr;

/// Words of a root read first: most roots have no more.
pub(super) const ROOT_WORDS: usize = 8;
/// The word with the address of the first slab.
const SLABS_AT: usize = 1 + TopModel::WORDS;
const HEAD_WORDS: usize = SLABS_AT + 2;
const MAGIC: u64 = 0x584d_6601;
const SLAB_MAGIC: u64 = 0x5854_6601;
/// Number of sub-models in a segment.
pub(super) const SEGMENT: u32 = 1024;
/// Maximum number of sub-models in an index.
pub(super) const SUBMODELS_MAX: u32 = 1 << 22;
/// Words of a slab before its tables.
pub(super) const SLAB_HEAD_WORDS: usize = 2;
/// Bytes of a slab before its tables.
pub(super) const SLAB_HEAD_BYTES: u64 = UNIT;

/// The word of the models.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ModelsWord {
    pub(super) generation: u32,
    /// The number of the root, 0 for none.
    pub(super) root: u32,
}

impl ModelsWord {
    pub(super) fn from_word(word: u64) -> Self {
        Self { generation: (word >> 32) as u32, root: word as u32 }
    }

    pub(super) fn word(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.root)
    }

    /// Returns the next generation, with this root.
    pub(super) fn next(self, root: u32) -> Self {
        Self { generation: self.generation.wrapping_add(1), root }
    }
}

/// The content of a root.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Root {
    pub(super) submodels: u32,
    pub(super) top: TopModel,
    /// The first slab; null for none.
    pub(super) slabs: GlobalAddr,
    pub(super) image: Option<ImageWord>,
    pub(super) segments: Vec<GlobalAddr>,
}

impl Root {
    /// Returns the number of segments for this many sub-models.
    pub(super) fn segments_of(submodels: u32) -> usize {
        submodels.div_ceil(SEGMENT) as usize
    }

    /// Returns the words of a root of this many sub-models, at least those of the first READ.
    pub(super) fn room(submodels: u32) -> usize {
        (HEAD_WORDS + Self::segments_of(submodels)).max(ROOT_WORDS)
    }

    /// Returns the words of a segment of a root with this many sub-models.
    pub(super) fn segment_words(submodels: u32, segment: usize) -> usize {
        let behind = submodels.saturating_sub((segment as u32).saturating_mul(SEGMENT));
        behind.min(SEGMENT) as usize * SubModel::WORDS
    }

    pub(super) fn words(&self) -> Vec<u64> {
        let [origin, line] = self.top.words();
        let image = self.image.map_or(0, ImageWord::word);
        let mut words = vec![MAGIC << 32 | u64::from(self.submodels), origin, line, self.slabs.bits(), image];
        words.extend(self.segments.iter().map(|addr| addr.bits()));
        words.resize(Self::room(self.submodels), 0);
        words
    }

    /// Returns the number of sub-models in the first words of a root; `None` if they are not a
    /// root.
    pub(super) fn count(words: &[u64]) -> Option<u32> {
        let first = words.first().filter(|&first| first >> 32 == MAGIC)?;
        Some(*first as u32).filter(|count| (1..=SUBMODELS_MAX).contains(count))
    }

    /// Reads all words of a root.
    pub(super) fn parse(words: &[u64]) -> Option<Self> {
        let submodels = Self::count(words)?;
        let top = TopModel::from_words([*words.get(1)?, *words.get(2)?])?;
        let slabs = GlobalAddr::from_bits(*words.get(SLABS_AT)?);
        let image = ImageWord::from_word(*words.get(SLABS_AT + 1)?);
        let segments = words.get(HEAD_WORDS..HEAD_WORDS + Self::segments_of(submodels))?;
        let segments: Vec<_> = segments.iter().map(|&bits| GlobalAddr::from_bits(bits)).collect();
        (!segments.iter().any(|addr| addr.is_null())).then_some(Self {
            submodels,
            top,
            slabs,
            image,
            segments,
        })
    }

    /// Returns the address of a sub-model's words.
    pub(super) fn place(&self, submodel: u32) -> Option<GlobalAddr> {
        let segment = self.segments.get((submodel / SEGMENT) as usize)?;
        Some(segment.plus(u64::from(submodel % SEGMENT) * SubModel::WORDS as u64 * 8))
    }
}

/// Returns the address of the top model of a root.
pub(super) fn top_of(root: GlobalAddr) -> GlobalAddr {
    root.plus(8)
}

/// Returns the address of the word that leads to a root's first slab.
pub(super) fn slabs_of(root: GlobalAddr) -> GlobalAddr {
    root.plus(SLABS_AT as u64 * 8)
}

/// Returns the first words of a slab.
pub(super) fn slab_words(bytes: u64, next: GlobalAddr) -> [u64; SLAB_HEAD_WORDS] {
    [SLAB_MAGIC << 32 | (bytes / UNIT), next.bits()]
}

/// Returns the size of a slab and the next slab; `None` if the words are not a slab.
pub(super) fn parse_slab(words: &[u64]) -> Option<(u64, GlobalAddr)> {
    let [first, next] = *words.first_chunk()?;
    let bytes = u64::from(first as u32) * UNIT;
    (first >> 32 == SLAB_MAGIC && bytes > SLAB_HEAD_BYTES).then_some((bytes, GlobalAddr::from_bits(next)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_round_trip() {
        let top = TopModel::train([(3, 0), (9, 1)], 2);
        for submodels in [1, 1024, 1025, 9000] {
            let segments: Vec<_> =
                (1..=Root::segments_of(submodels) as u64).map(|at| GlobalAddr::new(1, at * 64)).collect();
            let image = (submodels > 1).then_some(ImageWord { levels: 2, root: submodels });
            let root = Root { submodels, top, slabs: GlobalAddr::new(1, 640), image, segments };
            let words = root.words();
            assert_eq!(Root::parse(&words), Some(root.clone()));
            assert_eq!(words.len(), Root::room(submodels));
            assert_eq!(Root::parse(&words[..HEAD_WORDS]), None);
            assert!(root.place(submodels - 1).is_some() && root.place(10 * SEGMENT).is_none());
            assert!(Root::segment_words(submodels, root.segments.len() - 1) > 0);
        }
        assert_eq!(Root::parse(&[0; 8]), None);
        assert_eq!(Root::parse(&[u64::MAX; 8]), None);
        let word = ModelsWord { generation: u32::MAX, root: 5 };
        assert_eq!(ModelsWord::from_word(word.word()), word);
        assert_eq!(word.next(0), ModelsWord { generation: 0, root: 0 });
        let next = GlobalAddr::new(1, 64);
        assert_eq!(parse_slab(&slab_words(4096, next)), Some((4096, next)));
        assert_eq!((parse_slab(&[0, 0]), parse_slab(&[])), (None, None));
    }
}
