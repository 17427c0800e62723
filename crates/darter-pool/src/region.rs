//! Layout of a memory node's region, up to its blocks.
//!
//! ```text
//! region            0 +--------------------------------------------+
//!                     | superblock constants, 16 words             |  every node (`superblock`)
//!                 128 | epoch | member lines | nodes | snapshot      |  node 0, zero elsewhere
//!                 160 | rebalancing (`balancing`), then unused       |  node 0
//!                 512 | root words, 64, for the index              |  node 0
//!                1024 | founder word, then unused                  |  every node (`bootstrap`)
//!                1536 | mark of an index, then unused              |  node 0, for the index
//!                2048 | file identity, 3 words, then unused        |  node 0 (`local/stamp.rs` of the fabric)
//!                4096 +--------------------------------------------+
//!                     | member lines, 256 of 64 bytes (`member`)   |  node 0
//!               20480 +--------------------------------------------+
//!                     | node directory, 256 of 128 bytes (`nodes`) |  node 0
//!               53248 +--------------------------------------------+
//!                     | block table, one word a block (`block`)    |  every node
//!           multiple  +--------------------------------------------+
//!          of 64 KiB  | block 0 | block 1 | …                      |
//!                     +--------------------------------------------+
//! ```

use darter_fabric::{GlobalAddr, SUPERBLOCK_BYTES, member_lines};

/// Words on node 0 that belong to the index.
pub const ROOT_WORDS: usize = 64;
/// Member lines in the member table.
pub(crate) const MEMBERS: u32 = 256;
/// Bytes of a member line.
pub(crate) const MEMBER_BYTES: u64 = 64;
/// Lines in the node directory.
pub(crate) const NODES: u64 = 256;
/// Bytes of a line of the node directory.
pub(crate) const NODE_LINE_BYTES: u64 = 128;

/// The global epoch, followed by the number of member lines ever used, the number of nodes in use,
/// the word of the open snapshot (`snapshot`), and the word of the member that rebalances the pool
/// (`balancing`).
pub(crate) const EPOCH_AT: u64 = 128;
pub(crate) const LINES_AT: u64 = EPOCH_AT + 8;
pub(crate) const NODES_AT: u64 = EPOCH_AT + 16;
pub(crate) const SNAPSHOT_AT: u64 = EPOCH_AT + 24;
pub(crate) const BALANCING_AT: u64 = EPOCH_AT + 32;
const ROOT_AT: u64 = 512;
/// The word that names the process that is creating a pool on the node.
pub(crate) const FOUNDER_AT: u64 = 1024;
/// The word that marks the root words as those of an index. It lies in another sector.
const INDEX_MARK_AT: u64 = 1536;
pub(crate) const MEMBERS_AT: u64 = 4096;
/// Bytes at the beginning of memory node 0 that hold the words shared by all processes: the global
/// epoch and the root words.
#[doc(hidden)]
pub const HEAD_BYTES: u64 = MEMBERS_AT;
pub(crate) const DIRECTORY_AT: u64 = MEMBERS_AT + MEMBERS as u64 * MEMBER_BYTES;
pub(crate) const TABLE_AT: u64 = DIRECTORY_AT + NODES * NODE_LINE_BYTES;

const _: () = assert!(EPOCH_AT.is_multiple_of(64) && ROOT_AT.is_multiple_of(64));
const _: () = assert!(
    ROOT_AT + ROOT_WORDS as u64 * 8 <= FOUNDER_AT
        && FOUNDER_AT + 8 <= INDEX_MARK_AT
        && INDEX_MARK_AT + 8 <= MEMBERS_AT
        && MEMBERS_AT >= SUPERBLOCK_BYTES
);
const _: () = assert!(DIRECTORY_AT == 20480 && TABLE_AT == 53248);
// What memory nodes let a session with a read-only token change.
const _: () = assert!(
    MEMBERS_AT == member_lines::MEMBER_LINES_AT
        && MEMBERS as u64 == member_lines::MEMBER_LINES
        && MEMBER_BYTES == member_lines::MEMBER_LINE_BYTES
        && LINES_AT == member_lines::MEMBER_LINES_USED_AT
);

/// The address of the index's mark.
pub(crate) fn index_mark() -> GlobalAddr {
    GlobalAddr::new(0, INDEX_MARK_AT)
}

/// The address of a root word.
pub(crate) fn root_word(i: usize) -> GlobalAddr {
    assert!(i < ROOT_WORDS, "no root word {i}: a pool has {ROOT_WORDS}");
    GlobalAddr::new(0, ROOT_AT + i as u64 * 8)
}
