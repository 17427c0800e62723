//! Leaf split and header split: new nodes inserted where two keys differ (SMART, section 4.1.2).
//!
//! *Leaf split.* Two keys compete for one slot. The bytes they share after it take a chain of
//! nodes, six in a header and one in a slot; the last node has both leaves. All of it is written,
//! then the slot is swung to the topmost node by one CAS.
//!
//! *Header split.* A key leaves the path within the bytes of a node's header. A node with the bytes
//! before is put above it, by one CAS on the slot that points to it. In the paper, a second CAS
//! then removes those bytes from the header. Here they stay: a client knows the depth at which it
//! enters a node and skips them. That CAS could take effect late, after a delete has removed the
//! upper node again and nothing else has changed, and would then lose the bytes for good; and the
//! header has no bits for a version that would prevent this.

use super::descent::{Descent, LeafAt};
use super::leaf;
use super::node::{self, CHAIN_BYTES, Header, NodeType, PARTIAL_MAX};
use super::shared::Operation;
use super::slot::{Content, Slot};
use super::write::{Attempt, Draft};
use darter_fabric::{Fabric, GlobalAddr};
use darter_index::radix::common_prefix;
use darter_index::radix::drafts::Drafts;
use darter_index::radix::slot::{END, edge_of};
use darter_index::{IndexError, PutOutcome, Result};
use darter_pool::{AllocKind, Client};
use twox_hash::XxHash3_64;

/// Returns the number of nodes needed above the place where `bytes` compressed bytes end.
pub(super) fn chain_nodes(bytes: usize) -> usize {
    bytes / CHAIN_BYTES
}

/// Returns the nodes of a chain except the last: the words of the node at each address, with the
/// path's bytes between. `path` begins where the first node is entered.
pub(super) fn chain_image(
    chain: &[GlobalAddr],
    at: usize,
    (above, arrival): (GlobalAddr, usize),
    path: &[u8],
    last: Slot,
) -> Vec<u64> {
    let begin = at * CHAIN_BYTES;
    let header = Header::new(arrival + begin, NodeType::SMALLEST, &path[begin..begin + PARTIAL_MAX]);
    let edge = u16::from(path[begin + PARTIAL_MAX]);
    let below = match chain.get(at + 1) {
        Some(&next) => Slot::node(edge, NodeType::SMALLEST, next),
        None => last.moved(edge),
    };
    node::image(if at == 0 { above } else { chain[at - 1] }, header, &[below])
}

/// Returns the memory node for an inner node: they are spread by their prefix; leaves are placed
/// with their parents.
pub(super) fn home<F: Fabric>(client: &Client<F>, prefix: &[u8]) -> u8 {
    let nodes = u64::from(client.pool().nodes());
    // The end of a long prefix is sufficient.
    let tail = &prefix[prefix.len().saturating_sub(64)..];
    if nodes <= 1 { 0 } else { (XxHash3_64::oneshot(tail) % nodes) as u8 }
}

impl<F: Fabric> Operation<'_, F> {
    /// Inserts nodes that hold both keys, because another key's leaf is in the key's slot.
    pub(super) async fn split_leaf(
        &mut self,
        draft: &mut Draft<'_>,
        descent: &Descent<'_>,
        old: LeafAt,
        (other, old_word): (Vec<u8>, u64),
    ) -> Result<Attempt> {
        let key = draft.key;
        let shared_bytes = common_prefix(key, &other);
        let arrival = descent.depth + 1;
        let edge = old.at.slot.edge().unwrap_or(END);
        if edge == END || shared_bytes < arrival || key == &other[..] {
            return Err(IndexError::corrupt(old.addr, "leaf in the slot of another edge"));
        }
        let path = &key[arrival..shared_bytes];
        let mut drafts = Drafts::new();
        let chain_len = chain_nodes(path.len());
        let mut nodes = Vec::with_capacity(chain_len + 1);
        for at in 0..=chain_len {
            let prefix = &key[..(arrival + at * CHAIN_BYTES + PARTIAL_MAX).min(shared_bytes)];
            let home = home(&self.client, prefix);
            match drafts.alloc(&mut self.client, home, node::NODE_BYTES, AllocKind::Inner).await {
                Ok(addr) => nodes.push(addr),
                Err(error) => {
                    drafts.discard(&mut self.client);
                    return Err(error);
                }
            }
        }
        let (last, chain) = (nodes[chain_len], &nodes[..chain_len]);
        let leaf = match draft.place(&mut self.client, old.at.addr.node()).await {
            Ok(leaf) => leaf,
            Err(error) => {
                drafts.discard(&mut self.client);
                return Err(error);
            }
        };
        let last_arrival = arrival + chain_len * CHAIN_BYTES;
        let header = Header::new(last_arrival, NodeType::SMALLEST, &key[last_arrival..shared_bytes]);
        let children = [
            Slot::leaf(edge_of(&other, shared_bytes), old.len, old.addr),
            Slot::leaf(edge_of(key, shared_bytes), draft.len, leaf),
        ];
        let above_last = chain.last().copied().unwrap_or(descent.node);
        let last_image = node::image(above_last, header, &children);
        let leaf_image = self.shared.format.image(last, draft.len, key, draft.value);
        let to_last = Slot::node(0, NodeType::SMALLEST, last);
        let images: Vec<Vec<u64>> =
            (0..chain_len).map(|at| chain_image(chain, at, (descent.node, arrival), path, to_last)).collect();
        let mut writes: Vec<(GlobalAddr, &[u64])> =
            chain.iter().zip(&images).map(|(&addr, image)| (addr, &image[..])).collect();
        writes.push((last, &last_image));
        writes.push((leaf, &leaf_image));
        let new = Slot::node(edge, NodeType::SMALLEST, nodes[0]);
        let aside = leaf::with_above(old_word, last).map(|turned| (old.addr, old_word, turned));
        if !self.publish(&writes, old.at, new, aside).await? {
            drafts.discard(&mut self.client);
            self.forget_slot(descent, old.index);
            return Ok(Attempt::Again);
        }
        drafts.keep();
        draft.linked();
        self.note_child(descent, old.index, new);
        let words = children.map(Slot::word);
        self.shared.cache.insert(&key[..shared_bytes], last, NodeType::SMALLEST, &words);
        Ok(Attempt::Done(PutOutcome::Inserted))
    }

    /// Puts a node above another, because the key leaves the path inside that node's header.
    pub(super) async fn split_above(
        &mut self,
        draft: &mut Draft<'_>,
        descent: &Descent<'_>,
        matched: usize,
    ) -> Result<Attempt> {
        let lower = descent.node;
        let (Some(at), Some(partial)) = (descent.incoming, descent.header.partial_from(descent.arrival))
        else {
            return Err(IndexError::corrupt(lower, "no slot leads to the path's node"));
        };
        let Content::Node { ty, .. } = at.slot.content() else { return Ok(Attempt::Again) };
        let mut drafts = Drafts::new();
        let depth = descent.arrival + matched;
        let home = home(&self.client, &draft.key[..depth]);
        let upper = drafts.alloc(&mut self.client, home, node::NODE_BYTES, AllocKind::Inner).await?;
        let leaf = match draft.place(&mut self.client, at.addr.node()).await {
            Ok(leaf) => leaf,
            Err(error) => {
                drafts.discard(&mut self.client);
                return Err(error);
            }
        };
        let children = [
            Slot::node(u16::from(partial[matched]), ty, lower),
            Slot::leaf(edge_of(draft.key, depth), draft.len, leaf),
        ];
        let header = Header::new(descent.arrival, NodeType::SMALLEST, &partial[..matched]);
        let upper_image = node::image(descent.holder, header, &children);
        let leaf_image = self.shared.format.image(upper, draft.len, draft.key, draft.value);
        let new = Slot::node(at.slot.edge().unwrap_or(0), NodeType::SMALLEST, upper);
        let writes: [(GlobalAddr, &[u64]); 2] = [(upper, &upper_image), (leaf, &leaf_image)];
        let aside = Some((lower, descent.holder.bits(), upper.bits()));
        if !self.publish(&writes, at, new, aside).await? {
            drafts.discard(&mut self.client);
            return Ok(Attempt::Again);
        }
        drafts.keep();
        draft.linked();
        descent.note_slot(self.shared, new);
        let words = children.map(Slot::word);
        self.shared.cache.insert(&draft.key[..depth], upper, NodeType::SMALLEST, &words);
        Ok(Attempt::Done(PutOutcome::Inserted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_spell_their_path() {
        for bytes in 0..60 {
            let path: Vec<u8> = (0..bytes).map(|at| at as u8 ^ 0x55).collect();
            let chain: Vec<_> = (1..=chain_nodes(bytes) as u64).map(|n| GlobalAddr::new(0, n * 64)).collect();
            let last = Slot::node(0, NodeType::SMALLEST, GlobalAddr::new(0, 1 << 20));
            let (mut arrival, mut spelt) = (300, Vec::new());
            for at in 0..chain.len() {
                let image = chain_image(&chain, at, (GlobalAddr::NULL, 300), &path, last);
                let header = Header::from_word(image[1]);
                spelt.extend_from_slice(&header.partial_from(arrival).unwrap());
                let slot = Slot::from_word(image[2]);
                spelt.push(slot.edge().unwrap() as u8);
                arrival = 300 + spelt.len();
                let next = chain.get(at + 1).copied().unwrap_or(GlobalAddr::new(0, 1 << 20));
                assert_eq!(slot.addr(), next);
            }
            assert!(path.len() - spelt.len() <= PARTIAL_MAX && path.starts_with(&spelt));
        }
    }
}
