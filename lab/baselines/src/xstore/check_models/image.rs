//! The check of the image of the inner nodes, in slabs that have been read.

use crate::xstore::image::{ImageWord, InnerNode, NODE_WORDS};
use crate::xstore::leaf::UNIT;
use crate::xstore::model::Entry;
use darter_index::CheckReport;
use std::collections::{BTreeMap, HashSet};

/// Walks an image level by level: each node lies in a slab, is reached once, and has children whose
/// least keys ascend from that which its parent has for it. Adds the leaves that the lowest lead to.
pub(super) fn inspect_image(
    report: &mut CheckReport,
    slabs: &BTreeMap<u64, Vec<u64>>,
    image: ImageWord,
    leaves: &mut HashSet<u32>,
) {
    let (mut met, mut level) = (HashSet::new(), vec![(0, u64::from(image.root))]);
    for above in (0..image.levels).rev() {
        let mut below = Vec::new();
        for (least, number) in level {
            let node = node_of(slabs, number).filter(|_| met.insert(number));
            let Some(node) = node else {
                report.violation(format!("inner node {number}: it lies in no slab, or is reached twice"));
                continue;
            };
            let children: Vec<_> = node.children().collect();
            let ascends = children.windows(2).all(|pair| pair[0].0 <= pair[1].0);
            if !ascends || children.first().is_none_or(|&(first, _)| first != least) {
                report.violation(format!("inner node {number}: its children do not ascend from {least:#x}"));
            }
            below.extend(children);
        }
        if above == 0 {
            let entries = below.iter().map(|&(_, child)| Entry::from_word(child));
            leaves.extend(entries.map(|entry| if entry.is_valid() { entry.number() } else { 0 }));
            return;
        }
        level = below;
    }
}

/// The node of a number, if it lies in a slab.
fn node_of(slabs: &BTreeMap<u64, Vec<u64>>, number: u64) -> Option<InnerNode> {
    let offset = number.checked_mul(UNIT)?;
    let (from, words) = slabs.range(..=offset).next_back()?;
    let at = ((offset - from) / 8) as usize;
    InnerNode::from_words(words.get(at..at.checked_add(NODE_WORDS)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slabs(nodes: &[InnerNode]) -> BTreeMap<u64, Vec<u64>> {
        let words = nodes.iter().flat_map(|node| node.words().to_vec());
        BTreeMap::from([(640, words.collect())])
    }

    fn inspect(nodes: &[InnerNode]) -> (Vec<String>, HashSet<u32>) {
        let (mut report, mut leaves) = (CheckReport::default(), HashSet::new());
        inspect_image(&mut report, &slabs(nodes), ImageWord { levels: 2, root: 10 }, &mut leaves);
        (report.violations, leaves)
    }

    #[test]
    fn a_sound_image_names_its_leaves_and_others_are_told() {
        let leaf = |number| Entry::new(number, 2, 1).word();
        let root = InnerNode::new(&[(0, 14), (20, 18)]);
        let left = InnerNode::new(&[(0, leaf(1)), (10, leaf(2))]);
        let right = InnerNode::new(&[(20, leaf(3))]);
        let (none, leaves) = inspect(&[root.clone(), left.clone(), right.clone()]);
        assert_eq!((none, leaves), (vec![], HashSet::from([1, 2, 3])));
        for broken in [
            vec![root.clone(), left.clone()],
            vec![root.clone(), right.clone(), left.clone()],
            vec![InnerNode::new(&[(0, 14), (20, 14)]), left.clone(), right.clone()],
            vec![root, InnerNode::new(&[(0, leaf(1)), (30, leaf(2)), (10, leaf(4))]), right.clone()],
            vec![InnerNode::new(&[(0, u64::MAX)]), left, right],
        ] {
            assert!(!inspect(&broken).0.is_empty(), "{broken:?}");
        }
    }
}
