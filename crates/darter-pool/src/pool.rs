//! A process's membership in a pool.
//!
//! [`Pool`] is a cheap handle; the last of a process's handles and clients to go closes the membership (`close`).
//! All parts that need verbs are functions of [`Shared`] and an endpoint, so that closing, which has no client any
//! more, runs the same code.

use darter_fabric::{Endpoint, Fabric, GlobalAddr, Identity, mutant};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::adoption::{Adoption, SweepReport};
use crate::audit::AuditReport;
use crate::block::Owner;
use crate::client::Client;
use crate::epoch::{Clients, lock};
use crate::heap::Heap;
use crate::hold::Holds;
use crate::layout::{BlockId, Layout};
use crate::limbo::Limbo;
use crate::magazine::MAGAZINE_OBJECTS_MAX;
use crate::nodes::Addition;
use crate::superblock::{self, LEASE_MS_MAX, Superblock};
use crate::upkeep::Upkeep;
use crate::usage::PoolUsage;
use crate::{PoolError, ReachableSet, member, nodes};

/// What an object is. A block holds objects of one kind as long as it is granted, so that an inner node's memory never
/// becomes a leaf's while anyone can mistake one for the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum AllocKind {
    /// Part of an index's structure.
    Inner = 0,
    /// Keys and values.
    Leaf = 1,
}

impl AllocKind {
    pub(crate) const COUNT: usize = 2;
}

/// How to create a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolOptions {
    /// Bytes of a block, the unit in which processes get memory: a power of two from 256 KiB to 64 MiB. By default a
    /// 64th of the smallest node, from 2 to 16 MiB.
    pub block_bytes: Option<u64>,
    /// How long a process may go without upkeep before others ask the fabric whether it lives, in milliseconds.
    pub lease_ms: u64,
    /// What the secret that keys the index's hashes is made from; random by default. A known one makes counts repeatable,
    /// and lets whoever knows it make up keys that collide: for measurements only.
    pub secret: Option<[u64; 4]>,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self { block_bytes: None, lease_ms: 5000, secret: None }
    }
}

/// What all handles and clients of one membership share.
pub(crate) struct Shared<F: Fabric> {
    pub fabric: F,
    pub layout: Layout,
    pub superblock: Superblock,
    pub me: Owner,
    pub clients: Clients,
    pub limbo: Limbo,
    pub heap: Mutex<Heap>,
    pub holds: Arc<Holds>,
    pub addition: Mutex<Addition>,
    pub upkeep: Upkeep,
    /// Other members have been seen, so objects of ours may be freed from outside.
    pub had_company: AtomicBool,
    /// Blocks of others in which this process has freed objects.
    pub touched: Mutex<BTreeSet<BlockId>>,
    /// Closing has begun, or is not to be done.
    pub closing: AtomicBool,
    pub identity: Mutex<Option<Box<dyn Identity>>>,
    /// What the provider calls this process.
    pub holder: u64,
    /// Nodes that every live member can reach.
    pub usable: AtomicU8,
    /// Most objects in a client's magazine.
    pub magazine_objects_max: AtomicUsize,
    /// Blocks that sweeps of this process are at.
    pub in_sweep: Arc<Mutex<BTreeSet<BlockId>>>,
    /// Members were ended since [`Pool::take_buried`] was last asked.
    pub buried: AtomicBool,
}

/// A process's membership in a pool. Clones are handles of the same membership.
pub struct Pool<F: Fabric> {
    pub(crate) shared: Arc<Shared<F>>,
}

impl<F: Fabric> Clone for Pool<F> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<F: Fabric> std::fmt::Debug for Pool<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shared = &self.shared;
        f.debug_struct("Pool")
            .field("id", &format_args!("{:#x}", shared.superblock.pool_id))
            .field("nodes", &shared.layout.node_count())
            .field("block_bytes", &shared.layout.block_bytes)
            .field("member", &shared.me)
            .finish_non_exhaustive()
    }
}

impl<F: Fabric> Pool<F> {
    /// Makes a pool of the fabric's memory and joins it.
    ///
    /// # Errors
    /// [`PoolError::AlreadyAPool`], [`PoolError::TooSmall`], [`PoolError::Options`]; fabric errors.
    pub async fn create(fabric: F, options: &PoolOptions) -> Result<Self, PoolError> {
        let sizes = superblock::node_sizes(&fabric)?;
        let smallest = sizes.iter().copied().min().unwrap_or(0);
        let block_bytes = options.block_bytes.unwrap_or_else(|| Layout::default_block_bytes(smallest));
        if !(1..=LEASE_MS_MAX).contains(&options.lease_ms) {
            return Err(PoolError::Options("lease_ms must be from one millisecond to a day"));
        }
        let layout = Layout::new(&sizes, block_bytes)?;
        let superblock = Superblock::new(sizes.len() as u32, block_bytes, options.lease_ms, options.secret);
        let mut endpoint = fabric.endpoint()?;
        superblock::write(&fabric, &mut endpoint, &superblock, &layout).await?;
        Self::join(fabric, endpoint, superblock, layout).await
    }

    /// Joins the pool in the fabric's memory.
    ///
    /// # Errors
    /// [`PoolError::NotAPool`], [`PoolError::WrongVersion`], [`PoolError::Damaged`], [`PoolError::NodeMismatch`] and
    /// [`PoolError::MembersFull`], all before anything is changed; fabric errors.
    pub async fn open(fabric: F) -> Result<Self, PoolError> {
        let sizes = superblock::node_sizes(&fabric)?;
        let mut endpoint = fabric.endpoint()?;
        let (superblock, count) = superblock::read(&mut endpoint, &sizes).await?;
        let damaged = PoolError::Damaged { node: 0, what: "its superblock holds numbers that cannot be" };
        if !(1..=LEASE_MS_MAX).contains(&superblock.lease_ms) {
            return Err(damaged);
        }
        let layout = Layout::new(&sizes, superblock.block_bytes).map_err(|_| damaged)?;
        nodes::learn(&fabric, &mut endpoint, &superblock, &layout, count).await?;
        Self::join(fabric, endpoint, superblock, layout).await
    }

    async fn join(
        fabric: F,
        mut endpoint: F::Endpoint,
        superblock: Superblock,
        layout: Layout,
    ) -> Result<Self, PoolError> {
        let nodes = layout.node_count();
        let membership = member::register(&fabric, &mut endpoint, superblock.lease_ms, nodes).await?;
        // Whoever missed our line went no further than this; the next upkeep tells the others that we follow.
        if !mutant!("join-without-the-nodes-that-came-since") {
            nodes::learn(&fabric, &mut endpoint, &superblock, &layout, membership.nodes).await?;
        }
        let shared = Shared {
            heap: Mutex::new(Heap::new(layout.clone())),
            clients: Clients::new(membership.epoch),
            limbo: Limbo::new(),
            holds: Arc::default(),
            addition: Mutex::default(),
            upkeep: Upkeep::new(membership.epoch, superblock.lease_ms, endpoint.now_ms()),
            had_company: AtomicBool::new(false),
            touched: Mutex::default(),
            closing: AtomicBool::new(false),
            usable: AtomicU8::new(membership.usable.min(nodes)),
            magazine_objects_max: AtomicUsize::new(MAGAZINE_OBJECTS_MAX),
            in_sweep: Arc::default(),
            buried: AtomicBool::new(membership.buried),
            holder: membership.identity.holder(),
            identity: Mutex::new(Some(membership.identity)),
            me: membership.me,
            fabric,
            layout,
            superblock,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The fabric below.
    pub fn fabric(&self) -> &F {
        &self.shared.fabric
    }

    /// A client, for one thread or task.
    ///
    /// # Errors
    /// When the fabric gives no endpoint.
    pub fn client(&self) -> Result<Client<F>, PoolError> {
        Client::new(self.clone())
    }

    /// The address of root word `i`, below [`crate::ROOT_WORDS`]. Root words are zero in a new pool; what they hold is
    /// the index's affair.
    ///
    /// # Panics
    /// When there is no such word.
    pub fn root_word(&self, i: usize) -> GlobalAddr {
        Layout::root_word(i)
    }

    /// Random words, made with the pool and the same for all its members: the key for keyed hashes.
    pub fn secret(&self) -> [u64; 4] {
        self.shared.superblock.secret
    }

    /// The pool's random id.
    pub fn id(&self) -> u64 {
        self.shared.superblock.pool_id
    }

    /// Memory nodes in use: those that every member can reach. Grows when one is added.
    pub fn nodes(&self) -> u8 {
        self.shared.usable_nodes()
    }

    /// Bytes of a block.
    pub fn block_bytes(&self) -> u64 {
        self.shared.layout.block_bytes
    }

    /// The largest object, in bytes.
    pub fn object_bytes_max(&self) -> u64 {
        self.shared.layout.object_bytes_max()
    }

    /// This process's view of the global epoch.
    pub fn epoch(&self) -> u64 {
        self.shared.clients.epoch()
    }

    /// Objects of this process that wait to be freed, as far as it knows at once (clients keep up to 64 more each).
    pub fn garbage(&self) -> usize {
        self.shared.limbo.waiting()
    }

    /// Frees of this process that named no object in use: signs of damage, which changed nothing.
    pub fn bad_frees(&self) -> u64 {
        lock(&self.shared.heap).bad_frees()
    }

    /// One round of upkeep: renews the lease, takes over and helps along the global epoch, frees what is ripe, gives
    /// surplus blocks back, and ends members that are proved dead. To be called every 50 ms or so by one thread of
    /// each process; clients with garbage call it themselves now and then. Does nothing when a round is under way.
    ///
    /// # Errors
    /// [`PoolError::Damaged`]; fabric errors.
    pub async fn maintain(&self, client: &mut Client<F>) -> Result<(), PoolError> {
        client.upkeep().await
    }

    /// Rounds of upkeep until nothing waits to be freed or other members hold it back for about a quarter of a second,
    /// then gives back what is empty, the client's magazines included. Blocks the thread for a millisecond at a time
    /// when it waits for others. Objects that wait for [`Client::take_graced`] are not waited for.
    ///
    /// # Errors
    /// As [`Pool::maintain`].
    pub async fn settle(&self, client: &mut Client<F>) -> Result<(), PoolError> {
        client.settle().await
    }

    /// How long a process may be silent before others ask whether it lives.
    pub fn lease(&self) -> Duration {
        Duration::from_millis(self.shared.superblock.lease_ms)
    }

    /// Whether this process has ended members since this was last asked: they may have left blocks to be swept.
    pub fn take_buried(&self) -> bool {
        self.shared.buried.swap(false, Ordering::Relaxed)
    }

    /// Who holds how much.
    ///
    /// # Errors
    /// [`PoolError::Damaged`]; fabric errors.
    pub async fn usage(&self, client: &mut Client<F>) -> Result<PoolUsage, PoolError> {
        let (shared, endpoint) = client.parts();
        shared.usage(endpoint).await
    }

    /// Adds the memory node at an address to the pool, for all members to use as soon as each of them can reach it.
    /// Answers its number.
    ///
    /// # Errors
    /// [`PoolError::AlreadyAPool`], [`PoolError::TooSmall`]; fabric errors, among them that pools of this kind cannot
    /// grow; [`PoolError::Options`] while another addition is under way. The pool is then as it was.
    pub async fn add_node(&self, client: &mut Client<F>, address: &str) -> Result<u8, PoolError> {
        let (shared, endpoint) = client.parts();
        shared.add_node(endpoint, address).await
    }

    /// Waits until all live members can reach all nodes, a few of their rounds of upkeep; answers the slots of those that
    /// could not in `patience_ms` milliseconds.
    ///
    /// # Errors
    /// As [`Pool::maintain`].
    pub async fn await_nodes(&self, client: &mut Client<F>, patience_ms: u64) -> Result<Vec<u32>, PoolError> {
        let (shared, endpoint) = client.parts();
        shared.await_nodes(endpoint, patience_ms).await
    }

    /// First step of a sweep: takes the blocks of dead members, and those that members left behind at their clean
    /// end. Then walk the index, clear hints that name unreachable objects, and call [`Pool::finish_adoption`].
    ///
    /// # Errors
    /// [`PoolError::Damaged`]; fabric errors.
    pub async fn adopt(&self, client: &mut Client<F>) -> Result<Adoption, PoolError> {
        let (shared, endpoint) = client.parts();
        shared.adopt(endpoint).await
    }

    /// Second step of a sweep: frees all objects of the adopted blocks that were not reachable in a walk that began
    /// after [`Pool::adopt`]. The client must not be pinned. Waits for every member to pass the epoch of this call,
    /// a few of their rounds of upkeep; when one does not in a lease's time, nothing is freed and the report says so:
    /// the blocks stay with this process for the next [`Pool::adopt`].
    ///
    /// # Errors
    /// [`PoolError::Damaged`]; fabric errors.
    pub async fn finish_adoption(
        &self,
        client: &mut Client<F>,
        adoption: Adoption,
        reachable: &ReachableSet,
    ) -> Result<SweepReport, PoolError> {
        let (shared, endpoint) = client.parts();
        shared.finish_adoption(endpoint, adoption, reachable).await
    }

    /// Compares the pool's books with what the index can reach. Exact when nobody works on the pool; an operation
    /// under way can show as a leak.
    ///
    /// # Errors
    /// [`PoolError::Damaged`]; fabric errors.
    pub async fn audit(
        &self,
        client: &mut Client<F>,
        reachable: &ReachableSet,
    ) -> Result<AuditReport, PoolError> {
        client.flush_magazines();
        let (shared, endpoint) = client.parts();
        shared.audit(endpoint, reachable).await
    }

    /// Ends the membership: frees what can be freed, gives empty blocks back, leaves exact books in the others. Dropping
    /// the last handle does the same and keeps errors to itself.
    ///
    /// # Errors
    /// [`PoolError::StillInUse`] when other handles or clients are alive; the last of them closes. Fabric errors: the
    /// blocks are then left as by a process that died.
    pub async fn close(self) -> Result<(), PoolError> {
        let handles = Arc::strong_count(&self.shared) - 1;
        match Arc::into_inner(self.shared) {
            Some(mut shared) => shared.close().await,
            None => Err(PoolError::StillInUse { handles }),
        }
    }

    /// For tests: most objects that this process's clients keep of each size from now on. With one, memory that is freed is
    /// used again at once.
    #[doc(hidden)]
    pub fn set_magazine_objects_max(&self, objects: usize) {
        self.shared.magazine_objects_max.store(objects.max(1), Ordering::Relaxed);
    }

    /// For tests: ends this process's proof of life and leaves everything as a crash would. Clients must not be used
    /// afterwards.
    #[doc(hidden)]
    pub fn abandon(&self) {
        self.shared.closing.store(true, Ordering::SeqCst);
        lock(&self.shared.identity).take();
    }
}
