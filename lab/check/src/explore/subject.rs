//! An index as the explorer sees it: how to open it, what it promises, where runs begin, and which errors it can bring back.
//!
//! An index's author implements [`Subject`] and adds a line to the registry ([`super::subjects`]). Everything else
//! (plans, campaigns, sweeps, shrinking, replay lines) works with the [`Explored`](super::Explored) that is made of it.

use super::scenario::{self, Scenario};
use darter_fabric::{Procedures, Sim};
use darter_index::checker::Situation;
use darter_index::{Condition, IndexError, OrderedIndex, PutOutcome};
use darter_pool::{AllocKind, Client};
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

/// An error that can be brought back, and how it shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hole {
    /// Its name in commands and replay lines.
    pub name: &'static str,
    /// What it brings back, for a person.
    pub what: &'static str,
    /// Whether the published design has it; else it is a canary of our own.
    pub is_published: bool,
    /// Schedules within which the explorer must find it.
    pub budget: u64,
    /// Names of faults that show it; none when schedules alone do.
    pub faults: &'static [&'static str],
    /// Scenarios that show it; all when there are none.
    pub scenarios: &'static [&'static str],
    /// Whether the faults are to strike at every point, instead of at random.
    pub sweep: bool,
}

impl Hole {
    /// One of the published design, which schedules alone show.
    pub const fn published(name: &'static str, what: &'static str, budget: u64) -> Self {
        Self { name, what, is_published: true, budget, faults: &[], scenarios: &[], sweep: false }
    }

    /// The same, shown by these faults.
    #[must_use]
    pub const fn with_faults(mut self, faults: &'static [&'static str]) -> Self {
        self.faults = faults;
        self
    }

    /// The same, shown in these scenarios.
    #[must_use]
    pub const fn in_scenarios(mut self, scenarios: &'static [&'static str]) -> Self {
        self.scenarios = scenarios;
        self
    }

    /// The same, with its faults at every point.
    #[must_use]
    pub const fn swept(mut self) -> Self {
        self.sweep = true;
        self
    }

    /// The same, as a canary of our own.
    #[must_use]
    pub const fn of_our_own(mut self) -> Self {
        self.is_published = false;
        self
    }
}

/// Which of a subject's holes are open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holes(u32);

impl Holes {
    /// With one more open, by its place among the subject's.
    #[must_use]
    pub const fn with(self, hole: usize) -> Self {
        Self(self.0 | 1 << hole)
    }

    /// Whether one is open.
    pub const fn has(self, hole: usize) -> bool {
        self.0 & 1 << hole != 0
    }
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

    /// Errors that can be brought back, 32 at most.
    const HOLES: &'static [Hole] = &[];

    /// Objects of which each client takes one before it begins, so that no run is about block grants.
    const WARM: &'static [(u64, AllocKind)] = &[];

    /// Whether [`Subject::server`] returns one. Faults may strike it, too.
    const HAS_SERVER: bool = false;

    /// A server of the index in a process of the simulation, which begins with its first call.
    fn server(_sim: &Sim) -> Option<Box<dyn Serves>> {
        None
    }

    /// How processes open it, with these of [`Subject::HOLES`] open. Runs must not hang on chance: what is done now and then
    /// is done always, or never.
    fn options(open: Holes) -> OptionsOf<Self>;

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
