//! Rare situations of Quiver's protocol, which a full exploration must meet.

#[cfg(feature = "checker")]
use crate::checker::Situation;

crate::situations! {
    /// A page replaced by one page.
    COPIED = "PageCopied";
    /// A page split at an edge.
    PARTED = "PageParted";
    /// A page's edge became a node.
    DESCENDED = "PageDescended";
    /// A part was found linked by another client.
    PART_FOUND = "PartFound";
    /// A replacement of a page failed because another client had already made it.
    REBUILD_LOST = "RebuildLost";
    /// A client replaced a page whose seals another client had begun.
    HELPED = "Helped";
    /// A client replaced a node whose seals another client had begun.
    NODE_HELPED = "NodeHelped";
    /// A page without pairs was removed.
    EMPTIED = "PageEmptied";
    /// A node replaced by a page.
    COLLAPSE_TO_PAGE = "CollapseToPage";
    /// A node replaced by its only child.
    COLLAPSE_TO_NODE = "CollapseToNode";
    /// A node without keys was removed.
    COLLAPSE_TO_NOTHING = "CollapseToNothing";
    /// A node that had to be kept was copied.
    NODE_COPIED = "NodeCopied";
    /// A node was moved to another memory node: in a drain, or to balance the pool.
    NODE_MOVED = "NodeMoved";
    /// A page was.
    PAGE_MOVED = "PageMoved";
    /// A key left a compressed path.
    DIVERGED = "Diverged";
    /// A page was read that is no longer responsible for the key.
    OUT_OF_BOUNDS = "OutOfBounds";
    /// An insert reused the slot that its key had left.
    TOMB_REUSED = "TombReused";
    /// A blind CAS changed the right key's record.
    BLIND_WON = "BlindWon";
    /// A blind CAS changed another key's record, and INLINE was restored.
    BLIND_UNDONE = "BlindUndone";
    /// The same, but another client had already changed the word or sealed it.
    BLIND_LEFT = "BlindLeft";
    /// A put lost its word to another put of the same key, and counted as done.
    SUPERSEDED = "Superseded";
    /// A page was rebuilt because many of its pairs were stored elsewhere.
    FOLDED = "Folded";
    /// A remembered page was rejected.
    PAGE_HINT_STALE = "PageHintStale";
    /// A leaf was read together with the word that names it.
    HOT_WORD = "HotWord";
    /// The same in a scan.
    HOT_WORD_SCANNED = "HotWordScanned";
    /// A reader met an intent, and read the status word.
    INTENT_READ = "IntentRead";
    /// A writer met an intent whose transaction was decided.
    INTENT_DECIDED = "IntentDecided";
    /// A writer aborted a transaction to change one of its keys.
    INTENT_ABORTED = "IntentAborted";
    /// A transaction waited for an older one.
    INTENT_AWAITED = "IntentAwaited";
    /// A transaction that only read was committed without a write.
    READS_VERIFIED = "ReadsVerified";
    /// A transaction that only reads was committed by one read: the versions are those that it had
    /// read.
    VERSIONS_VERIFIED = "VersionsVerified";
    /// A page with an intent was replaced.
    INTENT_MOVED = "IntentMoved";
    /// A page was replaced by one with the intents of several new keys.
    INTENTS_ADDED = "IntentsAdded";
    /// The same was given up because another client was faster, or had inserted one of the keys.
    INTENTS_NOT_ADDED = "IntentsNotAdded";
    /// A sweep settled the intents of a page.
    INTENT_SWEPT = "IntentSwept";
    /// A transaction found another value than it had read.
    TRANSACTION_CONFLICT = "TransactionConflict";
    /// A remembered word with a leaf was stale.
    HOT_WORD_STALE = "HotWordStale";
    /// A remembered node was rejected.
    NODE_HINT_STALE = "NodeHintStale";
    /// A descent began at a node from the skip table.
    SKIP_BEGUN = "SkipBegun";
    /// A node from the skip table was rejected.
    SKIP_STALE = "SkipStale";
    /// Words in the skip table did not form an entry.
    SKIP_ENTRY_TORN = "SkipEntryTorn";
    /// A descent found that another skip table is current.
    SKIP_TABLE_CHANGED = "SkipTableChanged";
    /// A skip table was discarded because another client was faster.
    SKIP_TABLE_LOST = "SkipTableLost";
    /// The copy of a page's map in its node did not lead to a result.
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
