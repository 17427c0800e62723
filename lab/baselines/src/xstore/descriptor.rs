//! The descriptor: the data of a range of keys that are needed to interpret its leaves. The index's
//! descriptor is that of its first range until a bulk load replaces that range.
//!
//! ```text
//! word 0   value words 8 | node 8 | node of the server 8 | image of the inner nodes 8 | nodes 8
//! word 1   number of the first leaf
//! word 2   lock of the server: 0, or the word of its token
//! word 3   word of the models: generation 32 | number of their root 32 ([`super::root`])
//! word 4   index only: address of the table of ranges ([`super::table`]), 0 for one range
//! ```
//!
//! *Nodes*: the number of memory nodes, from that of the index on, that may hold ranges, limited to
//! those in the pool. Root words of the pool: 3 the kind, 8 the address of the index's descriptor.

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

/// The immutable part of a descriptor, and the addresses of the rest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descriptor {
    pub(crate) addr: GlobalAddr,
    pub(crate) layout: Layout,
    /// The memory node of the leaves.
    pub(crate) node: u8,
    /// The memory node whose server runs the calls.
    pub(crate) server: u8,
    /// Whether the server writes an image of its inner nodes.
    pub(crate) has_image: bool,
    /// Number of memory nodes, from that of the index on, that may hold ranges.
    pub(crate) nodes: u8,
}

impl Descriptor {
    /// Returns the address of the word with the number of the first leaf.
    pub(crate) fn first(&self) -> GlobalAddr {
        self.addr.plus(8)
    }

    /// Returns the address of the server's lock.
    pub(crate) fn lock(&self) -> GlobalAddr {
        self.addr.plus(16)
    }

    /// Returns the address of the models' word. Its generation counts the events that invalidate
    /// earlier leaf numbers and incarnations.
    pub(crate) fn models(&self) -> GlobalAddr {
        self.addr.plus(24)
    }

    /// Returns the address of the word that leads to the table of ranges, in the index's
    /// descriptor.
    pub(crate) fn ranges(&self) -> GlobalAddr {
        self.addr.plus(32)
    }

    /// Returns the descriptor of a range of this index, at an address, with leaves on a node.
    pub(crate) fn of_range(&self, addr: GlobalAddr, (node, server): (u8, u8)) -> Self {
        Self { addr, node, server, ..*self }
    }

    /// Returns the node whose server writes the leaves of a node: the node itself, if that holds
    /// for the first range.
    pub(crate) fn server_of(&self, node: u8) -> u8 {
        if self.server == self.node { node } else { self.server }
    }

    /// Returns the memory nodes that may hold ranges.
    pub(crate) fn held_nodes(&self) -> std::ops::Range<u8> {
        self.node..self.node.saturating_add(self.nodes)
    }

    /// Returns the words of a range whose leaves begin with this one, without a server or models.
    pub(crate) fn words(&self, first: u32) -> [u64; WORDS] {
        let Self { layout: Layout { value_words }, node, server, has_image, nodes, .. } = *self;
        let shape = [value_words, node, server, u8::from(has_image), nodes, 0, 0, 0];
        [u64::from_le_bytes(shape), u64::from(first), 0, 0, 0]
    }

    /// Returns the address of a leaf.
    pub(crate) fn leaf(&self, number: u32) -> GlobalAddr {
        address(self.node, number)
    }

    /// Reads the descriptor of the pool's index.
    ///
    /// # Errors
    /// [`IndexError::NoIndex`]; a damaged index; errors of the fabric.
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
            .ok_or(IndexError::corrupt(addr, "malformed descriptor of an XStore index"))
    }

    /// Reads the first word of a descriptor in a pool of this many nodes; `None` if it is invalid.
    pub(crate) fn parse(addr: GlobalAddr, shape: u64, pool_nodes: u8) -> Option<Self> {
        let [value_words, node, server, image, nodes, rest @ ..] = shape.to_le_bytes();
        let options = XStoreOptions { value_words, ..XStoreOptions::default() };
        let is_sound = node < pool_nodes && server < pool_nodes && image <= 1 && nodes > 0 && rest == [0; 3];
        let layout = options.layout().ok().filter(|_| is_sound)?;
        let has_image = image == 1;
        Some(Self { addr, layout, node, server, has_image, nodes })
    }

    /// Creates an index of one empty leaf; if several clients create it, one wins.
    ///
    /// # Errors
    /// Errors of the pool and the fabric.
    pub(crate) async fn create<F: Fabric>(client: &mut Client<F>, options: &XStoreOptions) -> Result<()> {
        let layout = options.layout()?;
        let mut client = client.pin(OpKind::Maintain).await?;
        let server = options.server.unwrap_or(options.node);
        if options.node.max(server) >= client.pool().nodes() {
            return Err(IndexError::Options("node or server is not in the pool"));
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

/// Allocates the memory of a leaf on a node and returns its number.
///
/// # Errors
/// Out of space, even if other nodes have room.
pub(crate) async fn alloc_leaf<F: Fabric>(
    client: &mut Pinned<'_, F>,
    drafts: &mut Drafts,
    node: u8,
    layout: Layout,
) -> Result<u32> {
    alloc_numbered(client, drafts, node, layout.bytes()).await
}

/// Allocates memory that has a number on a node, in multiples of 64 bytes.
///
/// # Errors
/// Out of space, even if other nodes have room.
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
