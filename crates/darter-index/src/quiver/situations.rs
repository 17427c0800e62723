//! Rare situations of Quiver's protocol, which a full exploration must meet.

#[cfg(feature = "checker")]
use crate::checker::Situation;

crate::situations! {
    /// A page replaced by one page.
    COPIED = "PageCopied";
    /// A page parted at an edge.
    PARTED = "PageParted";
    /// A page's edge became a node.
    DESCENDED = "PageDescended";
    /// A part was found linked by another client.
    PART_FOUND = "PartFound";
    /// A replacement of a page that another client had already made.
    REBUILD_LOST = "RebuildLost";
    /// A page whose seals another client had begun was replaced.
    HELPED = "Helped";
    /// A node whose seals another client had begun was replaced.
    NODE_HELPED = "NodeHelped";
    /// A page without pairs taken out.
    EMPTIED = "PageEmptied";
    /// A node replaced by a page.
    COLLAPSE_TO_PAGE = "CollapseToPage";
    /// A node replaced by its only child.
    COLLAPSE_TO_NODE = "CollapseToNode";
    /// A node without keys taken out.
    COLLAPSE_TO_NOTHING = "CollapseToNothing";
    /// A node that had to be kept was copied.
    NODE_COPIED = "NodeCopied";
    /// A key left a compressed path.
    DIVERGED = "Diverged";
    /// A page was met that is not responsible for the key any more.
    OUT_OF_BOUNDS = "OutOfBounds";
    /// An insert took the slot that its key had left.
    TOMB_REUSED = "TombReused";
    /// A blind CAS won the record of its own key.
    BLIND_WON = "BlindWon";
    /// A blind CAS won another key's record, and INLINE was put back.
    BLIND_UNDONE = "BlindUndone";
    /// The same, but another client had changed the word or sealed it.
    BLIND_LEFT = "BlindLeft";
    /// A put lost its word to another put of the same key, and was done.
    SUPERSEDED = "Superseded";
    /// A page was rebuilt because many of its pairs stood elsewhere.
    FOLDED = "Folded";
    /// A remembered page was refused.
    PAGE_HINT_STALE = "PageHintStale";
    /// A leaf was read beside the word that names it.
    HOT_WORD = "HotWord";
    /// The same in a scan.
    HOT_WORD_SCANNED = "HotWordScanned";
    /// A remembered word with a leaf was not what it was.
    HOT_WORD_STALE = "HotWordStale";
    /// A remembered node was refused.
    NODE_HINT_STALE = "NodeHintStale";
    /// A descent began at a node that the skip table told.
    SKIP_BEGUN = "SkipBegun";
    /// A node that the skip table told was refused.
    SKIP_STALE = "SkipStale";
    /// Words in the skip table that were no entry.
    SKIP_ENTRY_TORN = "SkipEntryTorn";
    /// A descent found that another skip table is current.
    SKIP_TABLE_CHANGED = "SkipTableChanged";
    /// A skip table was built in vain: another client was first.
    SKIP_TABLE_LOST = "SkipTableLost";
    /// The copy of a page's map in its node led to no answer.
    MAP_COPY_WRONG = "MapCopyWrong";
    /// A READ of a node was torn in an ascending scan, which read the node again.
    TORN_ASCENDING = "TornAscending";
    /// The same in a descending one.
    TORN_DESCENDING = "TornDescending";
    /// A scan had read too few records of a remembered page.
    PART_OF_PAGE_TOO_SMALL = "PartOfPageTooSmall";
    /// A search returned what it found in a sealed page.
    READ_SEALED = "ReadSealed";
}

/// Every situation that a full exploration must meet.
#[cfg(feature = "checker")]
pub fn quiver_situations() -> Vec<Situation> {
    ALL.to_vec()
}
