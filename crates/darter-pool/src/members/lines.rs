//! The lines of the node directory (`nodes`): their place and contents, and which nodes have left the
//! pool.

use darter_fabric::{Endpoint, ExpectedNode, GlobalAddr};

use super::roster::{Roster, Stage};
use crate::error::PoolError;
use crate::region::{DIRECTORY_AT, NODE_LINE_BYTES};
use crate::round_trip::{cas, read_words, submit};

const LINE_WORDS: usize = (NODE_LINE_BYTES / 8) as usize;
pub(super) const READY: u64 = 1 << 63;
/// The first word of the line of a node that has left, many bits away from READY.
const REMOVED: u64 = READY | 0x6c65_6674 << 16;
/// Bytes of the longest address.
const ADDRESS_BYTES_MAX: usize = (LINE_WORDS - 4) * 8;
/// The word with the id of a node's memory.
const ID: usize = LINE_WORDS - 1;

const NO_ADDRESS: PoolError = PoolError::Damaged { node: 0, what: "its directory has no address for a node" };

pub(super) fn line_addr(node: u8) -> GlobalAddr {
    GlobalAddr::new(0, DIRECTORY_AT + u64::from(node) * NODE_LINE_BYTES)
}

/// Words 1 to 15 of a node's line.
pub(super) fn line_words(
    bytes: u64,
    address: &str,
    id: Option<u64>,
) -> Result<[u64; LINE_WORDS - 1], PoolError> {
    if address.is_empty() || address.len() > ADDRESS_BYTES_MAX {
        return Err(PoolError::Options("a memory node's address must have 1 to 96 bytes"));
    }
    let mut words = [0; LINE_WORDS - 1];
    (words[0], words[1]) = (bytes, address.len() as u64);
    for (word, bytes) in words[2..].iter_mut().zip(address.as_bytes().chunks(8)) {
        let mut whole = [0; 8];
        whole[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_le_bytes(whole);
    }
    words[ID - 1] = id.unwrap_or(0);
    Ok(words)
}

/// Parses a complete line.
pub(super) fn parse(words: &[u64]) -> Option<ExpectedNode> {
    let length = usize::try_from(words[2]).ok().filter(|length| (1..=ADDRESS_BYTES_MAX).contains(length))?;
    let bytes = words[3..ID].iter().flat_map(|word| word.to_le_bytes()).take(length).collect();
    let address = String::from_utf8(bytes).ok()?;
    let is_node = words[0] == READY || words[0] == REMOVED;
    is_node.then_some(ExpectedNode { address, bytes: words[1], id: words[ID] })
}

/// Reads a node's line.
pub(super) async fn read_line<E: Endpoint>(
    endpoint: &mut E,
    node: u8,
) -> Result<[u64; LINE_WORDS], PoolError> {
    Ok(read_words(endpoint, line_addr(node)).await?)
}

/// Returns the directory's description of a node; fails if there is none.
pub(super) async fn look_up<E: Endpoint>(endpoint: &mut E, node: u8) -> Result<ExpectedNode, PoolError> {
    parse(&read_line(endpoint, node).await?).ok_or(NO_ADDRESS)
}

/// Returns which nodes of a roster have left. A node that is *Gone* counts: its superblock may be
/// cleared although its line is READY.
pub(super) async fn removed<E: Endpoint>(endpoint: &mut E, roster: Roster) -> Result<Vec<bool>, PoolError> {
    let mut batch = endpoint.batch();
    let reads: Vec<_> = (0..roster.count).map(|node| batch.read(line_addr(node), 1)).collect();
    let done = submit(endpoint, batch).await?;
    let has_left = |node: u8, word: u64| word == REMOVED || roster.leaving == Some((node, Stage::Gone));
    Ok((0..).zip(reads).map(|(node, read)| has_left(node, done.words(read)[0])).collect())
}

/// Reads whether a node has left.
pub(super) async fn has_left<E: Endpoint>(endpoint: &mut E, node: u8) -> Result<bool, PoolError> {
    let roster = Roster::read(endpoint).await?;
    Ok(removed(endpoint, roster).await?.get(usize::from(node)) == Some(&true))
}

/// Writes into a node's line that it has left. Does nothing if the line has it already.
pub(super) async fn mark_removed<E: Endpoint>(endpoint: &mut E, node: u8) -> Result<(), PoolError> {
    let swap = cas(endpoint, line_addr(node), READY, REMOVED).await?;
    if swap.swapped || swap.found == REMOVED {
        return Ok(());
    }
    Err(NO_ADDRESS)
}
