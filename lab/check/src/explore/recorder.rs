//! The record that all clients of a run share, and a client's identity.

use super::op::Op;
use super::outcome::Violation;
use super::plan::Plan;
use super::scenario::Scenario;
use crate::history::{Action, Operation, Transaction};
use std::ops::Range;
use std::task::Waker;

/// The record that all clients of a run share.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    pub(super) clock: u64,
    pub history: Vec<Operation>,
    pub transactions: Vec<Transaction>,
    /// Verbs executed for each client.
    pub verbs: Vec<u64>,
    /// The operation of each client, while it performs one.
    pub operations: Vec<Option<Op>>,
    /// Awaits of each client.
    pub awaits: Vec<u64>,
    pub longest_op: Vec<(u64, u64)>,
    pub errors: Vec<String>,
    /// Operations that returned that a value was lost.
    pub lost: u64,
    /// Clients whose operation has not executed a verb yet.
    pub(super) fresh: Vec<bool>,
    pub violation: Option<Violation>,
    /// Clients that wait until no other client can move.
    pub(super) resting: Vec<Waker>,
    /// Sweeps and snapshots that have not ended.
    pub sweeps: usize,
    /// Memory nodes that are lost.
    pub lost_nodes: Vec<u8>,
    /// Processes that joined while clients ran, each with the process of the client that made it
    /// join.
    pub(super) visitors: Vec<(u32, u32)>,
}

impl Recorder {
    pub(super) fn new(clients: usize) -> Self {
        Self {
            verbs: vec![0; clients],
            operations: vec![None; clients],
            awaits: vec![0; clients],
            fresh: vec![false; clients],
            longest_op: vec![(0, 0); clients],
            ..Self::default()
        }
    }

    /// For the clients of a plan.
    pub(super) fn of(plan: &Plan) -> Self {
        let sweeps = plan.clients.iter().flatten().filter(|op| op.waits_for_members()).count();
        Self { sweeps, ..Self::new(plan.clients.len()) }
    }

    /// Continues after the history that others recorded.
    pub(super) fn begin_after(&mut self, history: Vec<Operation>, transactions: Vec<Transaction>) {
        let last = |operation: &Operation| operation.returned.map_or(operation.invoked, |(at, _)| at);
        let commits = transactions.iter().map(|one| one.returned.map_or(one.invoked, |(at, _)| at));
        self.clock = history.iter().map(last).chain(commits).max().unwrap_or(0);
        (self.history, self.transactions) = (history, transactions);
    }

    pub(super) fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Moves the beginning of a client's operation to now, unless the operation has begun.
    pub(super) fn begin_now(&mut self, client: u32) {
        if std::mem::take(&mut self.fresh[client as usize]) {
            let clock = self.clock;
            let open =
                |operation: &&mut Operation| operation.client == client && operation.returned.is_none();
            // A cancelled operation keeps its interval: it is open at the end anyway.
            let last = self.history.iter().rev().find(|operation| operation.client == client);
            let invoked = last.map_or(clock, |operation| operation.invoked);
            for operation in
                self.history.iter_mut().filter(open).filter(|operation| operation.invoked == invoked)
            {
                operation.invoked = clock;
            }
        }
    }

    /// Whether a value of these operations' keys can have been lost: another write of one of them
    /// has not returned.
    pub(super) fn may_be_lost(&self, mine: &Range<usize>) -> bool {
        let keys = &self.history[mine.clone()];
        self.history.iter().enumerate().any(|(at, other)| {
            !mine.contains(&at)
                && other.returned.is_none()
                && other.action != Action::Get
                && keys.iter().any(|operation| operation.key == other.key)
        })
    }

    /// A process, and those that joined on behalf of its clients: a fault that stops one stops all.
    pub(super) fn processes_of(&self, process: u32) -> impl Iterator<Item = u32> + '_ {
        let visitors = self.visitors.iter().filter(move |&&(host, _)| host == process);
        std::iter::once(process).chain(visitors.map(|&(_, visitor)| visitor))
    }

    /// Wakes the clients that wait until no other client can move. Returns whether there was one.
    pub(super) fn end_rests(&mut self) -> bool {
        let is_any = !self.resting.is_empty();
        self.resting.drain(..).for_each(Waker::wake);
        is_any
    }

    pub(super) fn violate(&mut self, kind: &'static str, text: String) {
        self.violation.get_or_insert(Violation::new(kind, text));
    }
}

/// The identity of a client.
pub(super) struct Identity<'s> {
    pub number: u32,
    /// Its process.
    pub process: u32,
    pub scenario: &'s Scenario,
    /// The await at which its operation is dropped; if `true`, after the await has ended.
    pub cancel_at: Option<(u64, bool)>,
    /// Whether its changes preserve old values for snapshots.
    pub preserves: bool,
}
