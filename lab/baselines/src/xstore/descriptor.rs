//! The descriptor: what everybody has to know of a range of keys before its leaves make sense. That
//! of the index is its first range's, as long as it has that one.
//!
//! ```text
//! word 0   value words 8 | node 8 | node of the server 8 | image of the inner nodes 8 | nodes 8
//! word 1   number of the first leaf
//! word 2   lock of the server: 0, or the word of its token
//! word 3   word of the models: generation 32 | number of their root 32 ([`super::root`])
//! word 4   of the index: address of the table of ranges ([`super::table`]), 0 for one range
//! ```
//!
//! *Nodes*: how many memory nodes, from that of the index on, may hold ranges, as far as the pool
//! has so many. Root words of the
//! pool: 3 the kind, 8 the address of the index's descriptor.

use super::NAME;
use super::leaf::{Bound, Header, Leaf};
use super::leaf::{Head, Layout, SLOTS, address, number_of};
use super::options::XStoreOptions;
use darter_fabric::{Fabric, GlobalAddr, OpKind};
use darter_index::radix::drafts::Drafts;
use darter_index::{IndexError, Result};
use darter_pool::{AllocKind, Client, Pinned, PoolError};

/// "XSTORE" and the format's version, in the kind word of a pool's root.
const KIND: u64 = u64::from_le_bytes(*b"XSTORE\x03\0");
const KIND_WORD: usize = 3;
const DESCRIPTOR_WORD: usize = 8;
const WORDS: usize = 5;
pub(crate) const DESCRIPTOR_BYTES: u64 = WORDS as u64 * 8;

/// The part of a descriptor that never changes, and where the rest is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descriptor {
    pub(crate) addr: GlobalAddr,
    pub(crate) layout: Layout,
    /// Of the leaves.
    pub(crate) node: u8,
    /// Whose server runs the calls.
    pub(crate) server: u8,
    /// Whether the server writes an image of its inner nodes.
    pub(crate) has_image: bool,
    /// How many memory nodes, from that of the index on, may hold ranges.
    pub(crate) nodes: u8,
}

impl Descriptor {
    /// The word with the number of the first leaf.
    pub(crate) fn first(&self) -> GlobalAddr {
        self.addr.plus(8)
    }

    /// The word of the server's lock.
    pub(crate) fn lock(&self) -> GlobalAddr {
        self.addr.plus(16)
    }

    /// The word of the models. Its generation counts what makes leaf numbers and incarnations of
    /// before meaningless.
    pub(crate) fn models(&self) -> GlobalAddr {
        self.addr.plus(24)
    }

    /// The word that leads to the table of ranges, in the index's descriptor.
    pub(crate) fn ranges(&self) -> GlobalAddr {
        self.addr.plus(32)
    }

    /// The descriptor of a range of this index, at an address, with leaves on a node.
    pub(crate) fn of_range(&self, addr: GlobalAddr, (node, server): (u8, u8)) -> Self {
        Self { addr, node, server, ..*self }
    }

    /// The node whose server is to write leaves of a node: the node itself, where that is so for the
    /// first range.
    pub(crate) fn server_of(&self, node: u8) -> u8 {
        if self.server == self.node { node } else { self.server }
    }

    /// The memory nodes that may hold ranges.
    pub(crate) fn held_nodes(&self) -> std::ops::Range<u8> {
        self.node..self.node.saturating_add(self.nodes)
    }

    /// The words of a range that is all in leaves from this one on, without a server or models.
    pub(crate) fn words(&self, first: u32) -> [u64; WORDS] {
        let Self { layout: Layout { value_words }, node, server, has_image, nodes, .. } = *self;
        let shape = [value_words, node, server, u8::from(has_image), nodes, 0, 0, 0];
        [u64::from_le_bytes(shape), u64::from(first), 0, 0, 0]
    }

    /// The address of a leaf.
    pub(crate) fn leaf(&self, number: u32) -> GlobalAddr {
        address(self.node, number)
    }

    /// Reads the pool's.
    ///
    /// # Errors
    /// [`IndexError::NoIndex`], damage, those of the fabric.
    pub(crate) async fn read<F: Fabric>(client: &mut Client<F>) -> Result<Self> {
        let mut client = client.pin(OpKind::Maintain).await?;
        let pool = client.pool();
        let (kind_word, descriptor_word) = (pool.root_word(KIND_WORD), pool.root_word(DESCRIPTOR_WORD));
        let [kind, addr] = client.read_each([kind_word, descriptor_word]).await?;
        if kind != KIND {
            return Err(IndexError::NoIndex { expected: NAME, found: kind });
        }
        let addr = GlobalAddr::from_bits(addr);
        let [shape, ..] = client.read_words::<WORDS>(addr).await?;
        Self::parse(addr, shape, client.pool().nodes())
            .ok_or(IndexError::corrupt(addr, "no XStore index has this shape"))
    }

    /// Reads the first word of a descriptor in a pool of so many nodes. `None` if it is none's.
    pub(crate) fn parse(addr: GlobalAddr, shape: u64, pool_nodes: u8) -> Option<Self> {
        let [value_words, node, server, image, nodes, rest @ ..] = shape.to_le_bytes();
        let options = XStoreOptions { value_words, ..XStoreOptions::default() };
        let is_sound = node < pool_nodes && server < pool_nodes && image <= 1 && nodes > 0 && rest == [0; 3];
        let layout = options.layout().ok().filter(|_| is_sound)?;
        let has_image = image == 1;
        Some(Self { addr, layout, node, server, has_image, nodes })
    }

    /// Makes an index of one empty leaf; of several creators one wins.
    ///
    /// # Errors
    /// Errors of the pool and the fabric.
    pub(crate) async fn create<F: Fabric>(client: &mut Client<F>, options: &XStoreOptions) -> Result<()> {
        let layout = options.layout()?;
        let mut client = client.pin(OpKind::Maintain).await?;
        let server = options.server.unwrap_or(options.node);
        if options.node.max(server) >= client.pool().nodes() {
            return Err(IndexError::Options("node or server is not one of the pool's"));
        }
        let nodes = if options.nodes == 0 { u8::MAX } else { options.nodes };
        let pool = client.pool();
        let (kind_word, descriptor_word) = (pool.root_word(KIND_WORD), pool.root_word(DESCRIPTOR_WORD));
        let mut drafts = Drafts::new();
        let made = async {
            let addr = drafts.alloc(&mut client, options.node, DESCRIPTOR_BYTES, AllocKind::Inner).await?;
            let first = alloc_leaf(&mut client, &mut drafts, options.node, layout).await?;
            Ok::<_, IndexError>((addr, first))
        };
        let (addr, first) = match made.await {
            Ok(made) => made,
            Err(error) => {
                drafts.discard(&mut client);
                return Err(error);
            }
        };
        let header = Header { incarnation: 2, count: 0, next: 0 };
        let head = Head { header, low: Bound::LEAST, high: Bound::None, keys: [0; SLOTS] };
        let index =
            Self { addr, layout, node: options.node, server, has_image: options.tree_from.is_some(), nodes };
        let mut batch = client.batch();
        batch.write(address(options.node, first), &Leaf::image(layout, &head, &[]));
        batch.write(addr, &index.words(first));
        client.complete(batch).await?;
        let mut batch = client.batch();
        let cas = batch.cas(descriptor_word, 0, addr.bits());
        batch.fence().cas(kind_word, 0, KIND);
        let done = client.submit(batch).await?;
        let won = done.swapped(cas);
        client.recycle(done);
        if won {
            drafts.keep();
        } else {
            drafts.discard(&mut client);
        }
        Ok(())
    }
}

/// Allocates memory of a leaf on a node, and returns its number.
///
/// # Errors
/// Out of space: also when there is room on other nodes only.
pub(crate) async fn alloc_leaf<F: Fabric>(
    client: &mut Pinned<'_, F>,
    drafts: &mut Drafts,
    node: u8,
    layout: Layout,
) -> Result<u32> {
    alloc_numbered(client, drafts, node, layout.bytes()).await
}

/// Allocates memory that has a number on a node: a multiple of 64 bytes.
///
/// # Errors
/// Out of space: also when there is room on other nodes only.
pub(crate) async fn alloc_numbered<F: Fabric>(
    client: &mut Pinned<'_, F>,
    drafts: &mut Drafts,
    node: u8,
    bytes: u64,
) -> Result<u32> {
    let addr = client.alloc(node, bytes, AllocKind::Inner).await?;
    let Some(number) = number_of(addr).filter(|_| addr.node() == node) else {
        client.free_unpublished(addr, bytes, AllocKind::Inner);
        return Err(PoolError::OutOfSpace { needed: bytes, node }.into());
    };
    drafts.add(addr, bytes, AllocKind::Inner);
    Ok(number)
}
