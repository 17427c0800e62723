//! An index from the explorer's point of view: how to open it, its guarantees, and the scenarios
//! from which runs begin.
//!
//! An index's author implements [`Subject`] and adds a line to the registry ([`super::subjects`]).
//! Everything else (plans, campaigns, sweeps, shrinking, replay lines) works with the
//! [`Explored`](super::Explored) made from it.

use super::outcome::Violation;
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

/// Guarantees of an index beyond [`OrderedIndex`]'s contract. Linearizable point operations,
/// ordered scans and memory that is freed again are not optional: every index guarantees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promises {
    /// Names of the faults that may strike any client at any moment while the others continue
    /// correctly.
    pub survives: &'static [&'static str],
    /// The most round trips an operation takes while another client has stopped for ever; `None` if
    /// it may wait until the stopped client's lease has expired and others have shut it out.
    pub trips_while_stopped: Option<u64>,
    /// Whether a value may be lost if a client's write in place ends early; reads then fail with
    /// [`IndexError::LostInWrite`] until a client puts it again.
    pub may_lose_values: bool,
    /// Whether no operation touches memory that its pin does not protect. If hints may lead there, such
    /// uses are not reported. Memory that is allocated, retired or freed while it must not be always is.
    pub exact_uses: bool,
    /// Whether nothing is left over after all have ended normally. If it is not guaranteed, leaks are
    /// counted after a sweep.
    pub exact_memory: bool,
}

/// Returns the first misuse of memory that the promises rule out, and in a replay what has happened to that
/// memory.
pub(super) fn misuse_of(promises: &Promises, sim: &Sim) -> Option<Violation> {
    let misuse = if promises.exact_uses { sim.misuse() } else { sim.wrong_free() }?;
    let what = [misuse.to_string()].into_iter().chain(sim.journal_of(misuse.addr));
    Some(Violation::new("misuse", what.collect::<Vec<_>>().join("\n  ")))
}

/// The server of an index, which a simulated process runs for clients that call it.
pub trait Serves {
    /// Its procedures.
    fn procedures(&self) -> Procedures;

    /// Returns the number of objects it has unlinked that wait to be freed.
    fn garbage(&self) -> usize;

    /// Whether it has sent frees whose replies were lost; sweeps then wait until it has ended.
    fn has_unconfirmed_frees(&self) -> bool;

    /// Renews its lease.
    fn renew(&self) -> Pin<Box<dyn Future<Output = ()> + '_>>;

    /// Leaves everything as the death of its process would; it does not execute any further verb.
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

    /// Its guarantees.
    const PROMISES: Promises;

    /// Objects of which each client takes one before it begins, so that runs do not exercise block
    /// grants.
    const WARM: &'static [(u64, AllocKind)] = &[];

    /// Whether [`Subject::server`] returns a server. Faults may strike it, too.
    const HAS_SERVER: bool = false;

    /// Whether all clients of a run are threads of one process, because two processes may not open the
    /// index at the same time.
    const IN_ONE_PROCESS: bool = false;

    /// Returns a server of the index in a simulated process; it starts with its first call.
    fn server(_sim: &Sim) -> Option<Box<dyn Serves>> {
        None
    }

    /// The options with which processes open it. Runs must not depend on chance: a random choice
    /// must always be taken, or never.
    fn options() -> OptionsOf<Self>;

    /// The options with which it is created for a scenario.
    fn options_for(_scenario: &Scenario) -> OptionsOf<Self> {
        Self::options()
    }

    /// The scenarios from which runs begin: [`scenario::common`], and those that the index's own
    /// formats suggest.
    fn scenarios() -> Vec<Scenario> {
        scenario::common()
    }

    /// Chooses a scenario's keys anew if they depend on the index.
    fn refine(_scenario: &mut Scenario, _nodes: u8) {}

    /// Situations that must occur in a full exploration.
    fn situations() -> Vec<Situation> {
        Vec::new()
    }

    /// Stores a value under a key if a condition holds; an index that can do so in several ways
    /// chooses one by the value.
    fn put(
        index: &Self::Index,
        client: &mut Client<Sim>,
        key: &[u8],
        value: &[u8],
        condition: Condition<'_>,
    ) -> impl Future<Output = Result<PutOutcome, IndexError>> {
        index.put(client, key, value, condition)
    }

    /// Removes a key if it has this value; returns whether it did. For the operation `e` of
    /// scenarios that adjust.
    fn delete_if(
        index: &Self::Index,
        client: &mut Client<Sim>,
        key: &[u8],
        value: &[u8],
    ) -> impl Future<Output = Result<bool, IndexError>> {
        let _ = (index, client, key, value);
        std::future::ready(Ok(false))
    }

    /// An operation specific to the index that may happen at any time and changes no result: `A`
    /// does it if it is due, `L` in any case.
    fn adjust(
        _index: &Self::Index,
        _client: &mut Client<Sim>,
        _is_forced: bool,
    ) -> impl Future<Output = Result<(), IndexError>> {
        std::future::ready(Ok(()))
    }
}
