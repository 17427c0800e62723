//! The procedures and the server that runs them. The server starts with the first call to a range,
//! because a memory node runs before there is a pool, and a pool exists before its index.

use super::super::wire::{self, PLAIN_WORDS, Reader, Taken, Text};
use super::super::{condition_of, range_of};
use super::{Descriptor, Operation, Owner};
use crate::compute_node::LocalLocks;
use crate::sync::lock;
use darter_fabric::{Answer, Fabric, FabricError, GlobalAddr, OpKind, Procedures};
use darter_index::radix::leaf as pair;
use darter_index::{IndexError, Result};
use darter_pool::{Pool, PoolError};
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// The server of a pool's index, or of those of its ranges that clients call. Clones share the same
/// server. It ends when the last clone and the last list of its procedures are dropped.
#[derive(Clone, Debug)]
pub struct XStoreService<F: Fabric> {
    state: Arc<State<F>>,
}

/// Stands for the range whose descriptor is the index's.
const INDEX: u64 = 0;
/// Number of the lock under which the pool is opened. The other numbers are addresses of
/// descriptors, of which none is 1.
const OPENING: u64 = 1;

/// Connects to the pool's memory nodes.
type Connect<F> = Box<dyn Fn() -> Result<F> + Send + Sync>;

struct State<F: Fabric> {
    connect: Connect<F>,
    role: Mutex<Role<F>>,
    starting: Arc<LocalLocks<()>>,
}

/// The server's current state.
struct Role<F: Fabric> {
    pool: Option<Pool<F>>,
    /// By the address of a range's descriptor; 0 stands for the index's.
    owners: BTreeMap<u64, Arc<Owner<F>>>,
    /// Whether the server has stopped accepting calls.
    has_ended: bool,
}

impl<F: Fabric> fmt::Debug for State<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").finish_non_exhaustive()
    }
}

impl<F: Fabric> XStoreService<F> {
    /// Creates a server that joins the fabric's pool and becomes the owner of its index with the
    /// first call.
    pub fn new(fabric: &F) -> Self {
        let fabric = fabric.clone();
        Self::connecting(move || Ok(fabric.clone()))
    }

    /// The same, with a fabric that the first call opens: the memory nodes need not be up before. A
    /// server that was evicted from its pool opens another fabric with the next call.
    pub fn connecting(connect: impl Fn() -> Result<F> + Send + Sync + 'static) -> Self {
        Self::with(connect, None)
    }

    /// Creates a server in a process that is already a member of the pool.
    pub fn of(pool: &Pool<F>) -> Self {
        let fabric = pool.fabric().clone();
        Self::with(move || Ok(fabric.clone()), Some(pool.clone()))
    }

    fn with(connect: impl Fn() -> Result<F> + Send + Sync + 'static, pool: Option<Pool<F>>) -> Self {
        let role = Mutex::new(Role { pool, owners: BTreeMap::new(), has_ended: false });
        Self { state: Arc::new(State { connect: Box::new(connect), role, starting: Arc::default() }) }
    }

    /// Returns the procedures that clients call.
    pub fn procedures(&self) -> Procedures {
        let procedures = Procedures::new();
        let procedures = self.add(procedures, wire::GET, get);
        let procedures = self.add(procedures, wire::PUT, put);
        let procedures = self.add(procedures, wire::DELETE, delete);
        let procedures = self.add(procedures, wire::SCAN, scan);
        let procedures = self.add(procedures, wire::MAINTAIN, maintain);
        let procedures = self.add(procedures, wire::PUBLISH, publish);
        let procedures = self.add(procedures, wire::PING, ping);
        let state = Arc::clone(&self.state);
        procedures.with_plain(wire::OF_RANGE, move |mut words| {
            let state = Arc::clone(&state);
            async move {
                let &[range, procedure, ..] = &words[..] else { return Err(wire::malformed()) };
                let range = GlobalAddr::from_bits(range).bits();
                words.drain(..2);
                state.run(range, |owner| run(owner, procedure, words)).await
            }
        })
    }

    fn add<R>(
        &self,
        procedures: Procedures,
        number: u64,
        procedure: impl Fn(Arc<Owner<F>>, Vec<u64>) -> R + Copy + Send + Sync + 'static,
    ) -> Procedures
    where
        R: Future<Output = Result<Option<Vec<u64>>>> + Send + 'static,
    {
        let state = Arc::clone(&self.state);
        procedures.with_plain(number, move |words| {
            let state = Arc::clone(&state);
            async move { state.run(INDEX, |owner| procedure(owner, words)).await }
        })
    }

    /// Becomes the index's owner now instead of with the first call.
    ///
    /// # Errors
    /// [`IndexError::NoIndex`]; a damaged index; errors of the pool and the fabric.
    pub async fn start(&self) -> Result<()> {
        self.state.owner(INDEX).await.map(drop)
    }

    /// Runs one round of upkeep if the server has started. A server that is not called for longer
    /// than the pool's lease needs upkeep to stay a member; other members need it to free what they
    /// have unlinked. A failure in one range does not affect the others.
    ///
    /// # Errors
    /// Errors of the pool and the fabric; the first if there are several.
    pub async fn maintain(&self) -> Result<()> {
        let (pool, owners): (_, Vec<_>) = {
            let role = lock(&self.state.role);
            (role.pool.clone(), role.owners.values().cloned().collect())
        };
        let mut all = Ok(());
        for owner in &owners {
            let outcome = owner.maintain().await;
            self.state.leave_if_done(owner, &outcome);
            all = all.and(outcome);
        }
        if let (Some(pool), []) = (pool, &owners[..]) {
            // A member without a range.
            all = self.renew().await;
            self.state.leave_if_shut_out(&pool, &all);
        }
        all
    }

    /// Stops accepting calls, and leaves the pool when those in progress have ended.
    pub fn end(&self) {
        let mut role = lock(&self.state.role);
        role.has_ended = true;
        let left = (std::mem::take(&mut role.owners), role.pool.take());
        drop(role);
        drop(left);
    }

    /// Returns the number of objects that the server has unlinked and not freed, as far as is known
    /// without blocking.
    pub fn garbage(&self) -> usize {
        lock(&self.state.role).pool.as_ref().map_or(0, Pool::garbage)
    }

    /// Returns whether sweeps wait for the end of this server: [`Pool::has_unconfirmed_frees`].
    pub fn has_unconfirmed_frees(&self) -> bool {
        lock(&self.state.role).pool.as_ref().is_some_and(Pool::has_unconfirmed_frees)
    }

    /// Only renews the server's lease. For simulations.
    ///
    /// # Errors
    /// Errors of the pool and the fabric.
    #[doc(hidden)]
    pub async fn renew(&self) -> Result<()> {
        let pool = lock(&self.state.role).pool.clone();
        let Some(pool) = pool else { return Ok(()) };
        Ok(pool.client()?.maintain().await?)
    }

    /// Ends the server's membership as the death of its process would. For simulations, in which no
    /// verb of a dead process executes.
    #[doc(hidden)]
    pub fn abandon(&self) {
        if let Some(pool) = &lock(&self.state.role).pool {
            pool.abandon();
        }
    }
}

impl<F: Fabric> State<F> {
    /// Passes a call to the owner of a range.
    async fn run<R>(&self, range: u64, call: impl FnOnce(Arc<Owner<F>>) -> R) -> Answer
    where
        R: Future<Output = Result<Option<Vec<u64>>>>,
    {
        if lock(&self.role).has_ended {
            return Err(wire::stopping());
        }
        let outcome = match self.owner(range).await {
            Ok(owner) => {
                let outcome = call(Arc::clone(&owner)).await;
                self.leave_if_done(&owner, &outcome);
                outcome
            }
            Err(error) => Err(error),
        };
        match outcome {
            Ok(Some(words)) => wire::answer(Ok(words)),
            Ok(None) => Err(wire::malformed()),
            Err(error) => wire::answer(Err(error)),
        }
    }

    fn known(&self, range: u64) -> Option<Arc<Owner<F>>> {
        lock(&self.role).owners.get(&range).cloned()
    }

    /// Returns the owner of a range, and starts it if needed.
    async fn owner(&self, range: u64) -> Result<Arc<Owner<F>>> {
        if let Some(owner) = self.known(range) {
            return Ok(owner);
        }
        let pool = self.pool().await?;
        let started = self.start(&pool, range).await;
        self.leave_if_shut_out(&pool, &started);
        started
    }

    /// Starts the owner of a range unless another call has done so in between.
    async fn start(&self, pool: &Pool<F>, range: u64) -> Result<Arc<Owner<F>>> {
        let is_named = range != INDEX && Descriptor::read(&mut pool.client()?).await?.addr.bits() == range;
        let range = if is_named { INDEX } else { range };
        let _turn = self.starting.lock(range).await;
        if let Some(owner) = self.known(range) {
            return Ok(owner);
        }
        let addr = Some(GlobalAddr::from_bits(range)).filter(|_| range != INDEX);
        let owner = Owner::start(pool, addr).await?;
        lock(&self.role).owners.insert(range, Arc::clone(&owner));
        Ok(owner)
    }

    /// Returns the pool, which the first caller opens.
    async fn pool(&self) -> Result<Pool<F>> {
        let _turn = self.starting.lock(OPENING).await;
        let known = lock(&self.role).pool.clone();
        if let Some(pool) = known {
            return Ok(pool);
        }
        let pool = Pool::open((self.connect)()?).await?;
        Ok(lock(&self.role).pool.insert(pool).clone())
    }

    /// Drops an owner that has ended, or all owners if other members have ended the membership. The
    /// next call starts another owner, which waits for this owner's calls.
    fn leave_if_done<T>(&self, owner: &Arc<Owner<F>>, outcome: &Result<T>) {
        if let Err(error) = outcome
            && is_shut_out(error)
        {
            self.leave(&owner.pool);
        } else if owner.is_lost.load(Ordering::Acquire) {
            let mut role = lock(&self.role);
            let its = role.owners.iter().find(|(_, now)| Arc::ptr_eq(now, owner)).map(|(&range, _)| range);
            let left = its.and_then(|range| role.owners.remove(&range));
            drop(role);
            drop(left);
        }
    }

    /// The same if there may be no owner to notice it.
    fn leave_if_shut_out<T>(&self, pool: &Pool<F>, outcome: &Result<T>) {
        if let Err(error) = outcome
            && is_shut_out(error)
        {
            self.leave(pool);
        }
    }

    /// Leaves a pool of which this process is no longer a member; the next call opens it again.
    fn leave(&self, pool: &Pool<F>) {
        let mut role = lock(&self.role);
        if role.pool.as_ref().is_some_and(|now| now.is_same(pool)) {
            // There is nothing to close.
            pool.abandon();
            let left = (std::mem::take(&mut role.owners), role.pool.take());
            drop(role);
            drop(left);
        }
    }
}

/// Returns whether an error means that this process is no longer a member.
fn is_shut_out(error: &IndexError) -> bool {
    matches!(
        error,
        IndexError::Fabric(FabricError::Fenced)
            | IndexError::Pool(PoolError::Evicted | PoolError::Fabric(FabricError::Fenced))
    )
}

/// Returns the bytes of a string of a request, which may be in a blob.
async fn bytes_of<F: Fabric>(operation: &mut Operation<'_, F>, taken: Taken) -> Result<Vec<u8>> {
    match taken {
        Taken::Absent => Ok(Vec::new()),
        Taken::Plain(bytes) => Ok(bytes),
        Taken::Blob(addr, class) => {
            let words = operation.client.read(addr, pair::class_words(class)).await?;
            Ok(pair::parse(addr, &words)?.value.to_vec())
        }
    }
}

/// Runs a procedure by its number.
async fn run<F: Fabric>(owner: Arc<Owner<F>>, procedure: u64, words: Vec<u64>) -> Words {
    match procedure {
        wire::GET => Box::pin(get(owner, words)).await,
        wire::PUT => Box::pin(put(owner, words)).await,
        wire::DELETE => Box::pin(delete(owner, words)).await,
        wire::SCAN => Box::pin(scan(owner, words)).await,
        wire::MAINTAIN => Box::pin(maintain(owner, words)).await,
        wire::PING => ping(owner, words).await,
        _ => Ok(None),
    }
}

/// The words of a reply; `None` if the request is malformed.
type Words = Result<Option<Vec<u64>>>;

async fn get<F: Fabric>(owner: Arc<Owner<F>>, words: Vec<u64>) -> Words {
    let mut reader = Reader(&words);
    let (Some(count), Some(model)) = (reader.word(), reader.word()) else { return Ok(None) };
    let mut client = owner.take_client()?;
    let mut answer = vec![0];
    {
        let mut operation = Operation::pin(&*owner, &mut client, OpKind::Get).await?;
        for at in 0..count {
            let Some(key) = reader.text() else { return Ok(None) };
            if answer.len() > wire::ANSWER_WORDS {
                break;
            }
            let key = bytes_of(&mut operation, key).await?;
            match operation.value_of(&key).await? {
                Some((value, Some(pointer))) if value.len() / 8 > PLAIN_WORDS => {
                    wire::write(&mut answer, Some(Text::Blob(pointer.addr(), pointer.class())));
                }
                Some((value, _)) => wire::write(&mut answer, Some(Text::Plain(&value))),
                None => wire::write(&mut answer, None),
            }
            answer[0] = at + 1;
        }
    }
    owner.give_back(client);
    if let Some((generation, submodel)) = wire::submodel_of(model) {
        answer.extend(owner.learning.submodel_words(generation, submodel).into_iter().flatten());
    }
    Ok(Some(answer))
}

async fn put<F: Fabric>(owner: Arc<Owner<F>>, words: Vec<u64>) -> Words {
    let mut reader = Reader(&words);
    let (Some(kind), Some(hint), Some(key), Some(value), Some(expected)) =
        (reader.word(), reader.word(), reader.text(), reader.text(), reader.text())
    else {
        return Ok(None);
    };
    let mut client = owner.take_client()?;
    let outcome = {
        let mut operation = Operation::pin(&*owner, &mut client, OpKind::Insert).await?;
        let key = bytes_of(&mut operation, key).await?;
        let value = bytes_of(&mut operation, value).await?;
        let expected = bytes_of(&mut operation, expected).await?;
        let Some(condition) = condition_of(kind, &expected) else { return Ok(None) };
        let outcome = operation.put(&key, &value, condition, hint as u32).await?;
        operation.learn_beside().await;
        outcome
    };
    owner.give_back(client);
    Ok(Some(vec![outcome as u64]))
}

async fn delete<F: Fabric>(owner: Arc<Owner<F>>, words: Vec<u64>) -> Words {
    let mut reader = Reader(&words);
    let (Some(kind), Some(key), Some(expected)) = (reader.word(), reader.text(), reader.text()) else {
        return Ok(None);
    };
    let mut client = owner.take_client()?;
    let is_gone = {
        let mut operation = Operation::pin(&*owner, &mut client, OpKind::Delete).await?;
        let key = bytes_of(&mut operation, key).await?;
        let expected = bytes_of(&mut operation, expected).await?;
        let Some(condition) = condition_of(kind, &expected) else { return Ok(None) };
        operation.delete(&key, condition).await?
    };
    owner.give_back(client);
    Ok(Some(vec![u64::from(is_gone)]))
}

async fn scan<F: Fabric>(owner: Arc<Owner<F>>, words: Vec<u64>) -> Words {
    let mut reader = Reader(&words);
    let (Some(shape), Some(limit), Some(from), Some(to)) =
        (reader.word(), reader.word(), reader.text(), reader.text())
    else {
        return Ok(None);
    };
    let mut client = owner.take_client()?;
    let answer = {
        let mut operation = Operation::pin(&*owner, &mut client, OpKind::Scan).await?;
        let from = bytes_of(&mut operation, from).await?;
        let to = bytes_of(&mut operation, to).await?;
        let Some(range) = range_of(shape, from, to) else { return Ok(None) };
        operation.scan(&range, limit).await?
    };
    owner.give_back(client);
    Ok(Some(answer))
}

async fn maintain<F: Fabric>(owner: Arc<Owner<F>>, _: Vec<u64>) -> Words {
    owner.maintain().await?;
    // If this range is over, the caller has to run the upkeep of the ranges that replaced it.
    if owner.is_empty() { Err(owner.moved()) } else { Ok(Some(Vec::new())) }
}

/// Publishes the leaves from a given one on, or the leaves of a table of ranges.
async fn publish<F: Fabric>(owner: Arc<Owner<F>>, words: Vec<u64>) -> Words {
    let mut reader = Reader(&words);
    let (first, table) = (reader.word().and_then(|first| u32::try_from(first).ok()), reader.word());
    if let (Some(0), Some(table)) = (first, table) {
        let mut client = owner.take_client()?;
        let mut operation = Operation::pin(&*owner, &mut client, OpKind::Load).await?;
        operation.publish_ranges(GlobalAddr::from_bits(table)).await?;
        return Ok(Some(Vec::new()));
    }
    let Some(first) = first.filter(|&first| first != 0) else { return Ok(None) };
    let mut client = owner.take_client()?;
    let keys = {
        let mut operation = Operation::pin(&*owner, &mut client, OpKind::Load).await?;
        let keys = operation.publish(first).await?;
        // The load is complete: without models its keys are read by calls.
        let _ = operation.learn().await;
        keys
    };
    owner.give_back(client);
    Ok(Some(vec![keys]))
}

async fn ping<F: Fabric>(_: Arc<Owner<F>>, _: Vec<u64>) -> Words {
    Ok(Some(Vec::new()))
}
