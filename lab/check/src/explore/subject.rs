//! An index as the explorer sees it: how to open it, what it promises, and where runs begin.
//!
//! An index's author implements [`Subject`] and adds a line to the registry ([`super::subjects`]). Everything else
//! (plans, campaigns, sweeps, shrinking, replay lines) works with the [`Explored`](super::Explored) that is made of it.

use super::scenario::{self, Scenario};
use darter_fabric::Procedures;
use darter_index::checker::Situation;
use darter_index::{Condition, IndexError, OrderedIndex, PutOutcome};
use darter_pool::{AllocKind, Client};
use darter_sim::Sim;
use std::future::Future;
use std::pin::Pin;

/// The options of a subject's index.
pub type OptionsOf<S> = <<S as Subject>::Index as OrderedIndex<Sim>>::Options;

/// What an index promises beyond [`OrderedIndex`]'s contract. Linearizable point operations, ordered scans and memory that comes
/// back are no choice: those are promised by all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promises {
    /// Names of the faults that may strike any client at any moment, and the others go on rightly.
    pub survives: &'static [&'static str],
    /// The most round trips an operation takes beside a client that has stopped for ever; `None` when it may wait until the
    /// stopped one's lease is over and others have shut it out.
    pub trips_beside_stopped: Option<u64>,
    /// Whether a value may be lost when a client's write in place ends early; whoever reads it is told so
    /// ([`IndexError::LostInWrite`]) until somebody puts it again.
    pub may_lose_values: bool,
    /// Whether no operation touches memory that its pin does not protect, and nothing is left over when all have ended well.
    /// Where it is not promised, such uses are not reported, and leaks are counted after a sweep.
    pub exact_memory: bool,
}

/// A server of an index: what a process of the simulation runs for clients that call it.
pub trait Serves {
    /// Its procedures.
    fn procedures(&self) -> Procedures;

    /// How many objects it has unlinked that wait to be freed.
    fn garbage(&self) -> usize;

    /// Whether it has sent frees whose reply was lost, for which sweeps wait until it has ended.
    fn has_unconfirmed_frees(&self) -> bool;

    /// Renews its lease.
    fn renew(&self) -> Pin<Box<dyn Future<Output = ()> + '_>>;

    /// Leaves everything as the death of its process does; nothing of it does any verb any more.
    fn abandon(&self);

    /// Leaves the pool in order.
    fn end(&self);
}

/// An index that can be explored.
pub trait Subject: 'static {
    /// Its type.
    type Index: OrderedIndex<Sim>;

    /// Its name in commands and replay lines, without slashes.
    const NAME: &'static str;

    /// What it promises.
    const PROMISES: Promises;

    /// Objects of which each client takes one before it begins, so that no run is about block grants.
    const WARM: &'static [(u64, AllocKind)] = &[];

    /// Whether [`Subject::server`] returns one. Faults may strike it, too.
    const HAS_SERVER: bool = false;

    /// A server of the index in a process of the simulation, which begins with its first call.
    fn server(_sim: &Sim) -> Option<Box<dyn Serves>> {
        None
    }

    /// How processes open it. Runs must not hang on chance: what is done now and then is done always, or never.
    fn options() -> OptionsOf<Self>;

    /// Where runs begin: [`scenario::common`], and what the index's own formats make worth meeting.
    fn scenarios() -> Vec<Scenario> {
        scenario::common()
    }

    /// Chooses a scenario's keys anew where they depend on what the index does with them.
    fn refine(_scenario: &mut Scenario, _nodes: u8) {}

    /// Situations that a full exploration must meet.
    fn situations() -> Vec<Situation> {
        Vec::new()
    }

    /// Stores a value under a key when a condition holds; an index that has several ways to do so takes one by the value.
    fn put(
        index: &Self::Index,
        client: &mut Client<Sim>,
        key: &[u8],
        value: &[u8],
        condition: Condition<'_>,
    ) -> impl Future<Output = Result<PutOutcome, IndexError>> {
        index.put(client, key, value, condition)
    }

    /// Removes a key when it has this value; answers whether it did. For the operation `e` of scenarios that adjust.
    fn delete_if(
        index: &Self::Index,
        client: &mut Client<Sim>,
        key: &[u8],
        value: &[u8],
    ) -> impl Future<Output = Result<bool, IndexError>> {
        let _ = (index, client, key, value);
        std::future::ready(Ok(false))
    }

    /// Something of the index's own that may happen at any time and changes no answer: if it is due, the operation `A`, or
    /// whether it is due or not, `L`.
    fn adjust(
        _index: &Self::Index,
        _client: &mut Client<Sim>,
        _is_forced: bool,
    ) -> impl Future<Output = Result<(), IndexError>> {
        std::future::ready(Ok(()))
    }
}
