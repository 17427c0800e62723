//! An index behind a pointer, for programs that are compiled once and work with an index that is
//! chosen at startup.
//!
//! [`DynIndex`] calls through a table of functions and boxes each operation's future. Both costs
//! are negligible compared with a round trip.

use crate::ordered::{
    Access, CheckReport, Commit, Condition, Decide, Decision, IndexStats, KeyValue, OrderedIndex, PutOutcome,
};
use crate::ordered::{ScanRange, Swept, Versioned};
use crate::{IndexError, Result};
use darter_fabric::{Fabric, OpKind};
use darter_pool::{Client, ReachableSet};
use std::any::Any;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

/// The future of an operation.
type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// The part of [`OrderedIndex`] that has no generic parameters.
trait Methods<F: Fabric>: Send + Sync {
    fn as_any(&self) -> &dyn Any;
    fn name(&self) -> &'static str;
    fn get<'a>(&'a self, client: &'a mut Client<F>, key: &'a [u8]) -> Pending<'a, Option<Vec<u8>>>;
    fn put<'a>(
        &'a self,
        client: &'a mut Client<F>,
        key: &'a [u8],
        value: &'a [u8],
        condition: Condition<'a>,
    ) -> Pending<'a, PutOutcome>;
    fn delete_when<'a>(
        &'a self,
        client: &'a mut Client<F>,
        key: &'a [u8],
        condition: Condition<'a>,
    ) -> Pending<'a, bool>;
    fn modify_as<'a>(
        &'a self,
        client: &'a mut Client<F>,
        kind: OpKind,
        key: &'a [u8],
        decide: &'a mut Decide<'_>,
    ) -> Pending<'a, Decision>;
    fn read_versions<'a>(
        &'a self,
        client: &'a mut Client<F>,
        keys: &'a [&'a [u8]],
    ) -> Pending<'a, Vec<Versioned>>;
    fn commit<'a>(
        &'a self,
        client: &'a mut Client<F>,
        accesses: &'a [Access<'a>],
        attempt: u16,
    ) -> Pending<'a, Commit>;
    fn check_key(&self, key: &[u8]) -> Result<()>;
    fn multi_get_chunk<'a>(
        &'a self,
        client: &'a mut Client<F>,
        keys: &'a [&'a [u8]],
    ) -> Pending<'a, Vec<Option<Vec<u8>>>>;
    fn scan<'a>(
        &'a self,
        client: &'a mut Client<F>,
        range: &'a ScanRange,
        limit: usize,
    ) -> Pending<'a, Vec<KeyValue>>;
    fn bulk_load<'a>(
        &'a self,
        client: &'a mut Client<F>,
        sorted: &'a mut (dyn Iterator<Item = KeyValue> + Send),
    ) -> Pending<'a, u64>;
    fn maintain<'a>(&'a self, client: &'a mut Client<F>) -> Pending<'a, ()>;
    fn adapt<'a>(&'a self, client: &'a mut Client<F>) -> Pending<'a, ()>;
    fn check<'a>(&'a self, client: &'a mut Client<F>) -> Pending<'a, CheckReport>;
    fn sweep_dead<'a>(&'a self, client: &'a mut Client<F>) -> Pending<'a, Swept>;
    fn scrub_unreachable<'a>(
        &'a self,
        client: &'a mut Client<F>,
        reachable: &'a ReachableSet,
    ) -> Pending<'a, bool>;
    fn stats<'a>(&'a self, client: &'a mut Client<F>) -> Pending<'a, IndexStats>;
    fn cache_used_bytes(&self) -> u64;
}

/// Defines the methods whose futures are those of [`OrderedIndex`], boxed.
macro_rules! boxed {
    ($($method:ident($($arg:ident: $type:ty),*) -> $output:ty;)*) => {
        $(fn $method<'a>(&'a self, client: &'a mut Client<F>, $($arg: $type),*) -> Pending<'a, $output> {
            Box::pin(OrderedIndex::$method(self, client, $($arg),*))
        })*
    };
}

impl<F: Fabric, I: OrderedIndex<F>> Methods<F> for I {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn name(&self) -> &'static str {
        OrderedIndex::name(self)
    }

    fn check_key(&self, key: &[u8]) -> Result<()> {
        OrderedIndex::check_key(self, key)
    }

    fn cache_used_bytes(&self) -> u64 {
        OrderedIndex::cache_used_bytes(self)
    }

    boxed! {
        get(key: &'a [u8]) -> Option<Vec<u8>>;
        put(key: &'a [u8], value: &'a [u8], condition: Condition<'a>) -> PutOutcome;
        delete_when(key: &'a [u8], condition: Condition<'a>) -> bool;
        modify_as(kind: OpKind, key: &'a [u8], decide: &'a mut Decide<'_>) -> Decision;
        read_versions(keys: &'a [&'a [u8]]) -> Vec<Versioned>;
        commit(accesses: &'a [Access<'a>], attempt: u16) -> Commit;
        multi_get_chunk(keys: &'a [&'a [u8]]) -> Vec<Option<Vec<u8>>>;
        scan(range: &'a ScanRange, limit: usize) -> Vec<KeyValue>;
        bulk_load(sorted: &'a mut (dyn Iterator<Item = KeyValue> + Send)) -> u64;
        maintain() -> ();
        adapt() -> ();
        check() -> CheckReport;
        sweep_dead() -> Swept;
        scrub_unreachable(reachable: &'a ReachableSet) -> bool;
        stats() -> IndexStats;
    }
}

/// Any index, behind a pointer.
pub struct DynIndex<F: Fabric>(Arc<dyn Methods<F>>);

impl<F: Fabric> DynIndex<F> {
    /// Puts an open index behind a pointer.
    pub fn new<I: OrderedIndex<F>>(index: I) -> Self {
        Self(Arc::new(index))
    }

    /// Returns the index as its own type, if that is `I`.
    pub fn downcast_ref<I: OrderedIndex<F>>(&self) -> Option<&I> {
        self.0.as_any().downcast_ref()
    }
}

impl<F: Fabric> Clone for DynIndex<F> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<F: Fabric> fmt::Debug for DynIndex<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DynIndex").field(&self.0.name()).finish()
    }
}

impl<F: Fabric> OrderedIndex<F> for DynIndex<F> {
    const NAME: &'static str = "an index behind a pointer";

    type Options = ();

    fn name(&self) -> &'static str {
        self.0.name()
    }

    /// Always fails: an index is opened by its own type, and then put behind a pointer.
    async fn open(_client: &mut Client<F>, (): ()) -> Result<Self> {
        Err(IndexError::Options("an index is opened by its own type"))
    }

    /// Always fails, as [`DynIndex::open`] does.
    async fn create(client: &mut Client<F>, (): ()) -> Result<Self> {
        Self::open(client, ()).await
    }

    async fn get(&self, client: &mut Client<F>, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.0.get(client, key).await
    }

    async fn put(
        &self,
        client: &mut Client<F>,
        key: &[u8],
        value: &[u8],
        condition: Condition<'_>,
    ) -> Result<PutOutcome> {
        self.0.put(client, key, value, condition).await
    }

    async fn delete_when(
        &self,
        client: &mut Client<F>,
        key: &[u8],
        condition: Condition<'_>,
    ) -> Result<bool> {
        self.0.delete_when(client, key, condition).await
    }

    async fn modify_as(
        &self,
        client: &mut Client<F>,
        kind: OpKind,
        key: &[u8],
        decide: &mut Decide<'_>,
    ) -> Result<Decision> {
        self.0.modify_as(client, kind, key, decide).await
    }

    async fn read_versions(&self, client: &mut Client<F>, keys: &[&[u8]]) -> Result<Vec<Versioned>> {
        self.0.read_versions(client, keys).await
    }

    async fn commit(&self, client: &mut Client<F>, accesses: &[Access<'_>], attempt: u16) -> Result<Commit> {
        self.0.commit(client, accesses, attempt).await
    }

    fn check_key(&self, key: &[u8]) -> Result<()> {
        self.0.check_key(key)
    }

    async fn multi_get_chunk(&self, client: &mut Client<F>, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        self.0.multi_get_chunk(client, keys).await
    }

    async fn scan(&self, client: &mut Client<F>, range: &ScanRange, limit: usize) -> Result<Vec<KeyValue>> {
        self.0.scan(client, range, limit).await
    }

    async fn bulk_load<P>(&self, client: &mut Client<F>, mut sorted: P) -> Result<u64>
    where
        P: Iterator<Item = KeyValue> + Send,
    {
        self.0.bulk_load(client, &mut sorted).await
    }

    async fn maintain(&self, client: &mut Client<F>) -> Result<()> {
        self.0.maintain(client).await
    }

    async fn adapt(&self, client: &mut Client<F>) -> Result<()> {
        self.0.adapt(client).await
    }

    async fn check(&self, client: &mut Client<F>) -> Result<CheckReport> {
        self.0.check(client).await
    }

    async fn sweep_dead(&self, client: &mut Client<F>) -> Result<Swept> {
        self.0.sweep_dead(client).await
    }

    async fn scrub_unreachable(&self, client: &mut Client<F>, reachable: &ReachableSet) -> Result<bool> {
        self.0.scrub_unreachable(client, reachable).await
    }

    async fn stats(&self, client: &mut Client<F>) -> Result<IndexStats> {
        self.0.stats(client).await
    }

    fn cache_used_bytes(&self) -> u64 {
        self.0.cache_used_bytes()
    }
}
