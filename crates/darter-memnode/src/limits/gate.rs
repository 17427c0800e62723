//! Decides which connections wait, and until when.
//!
//! A request is served if neither its session nor its tenant has overdrawn an account; then its cost
//! is taken from them. So an account is overdrawn by one request at most, which also lets requests
//! through that cost more than the accounts can hold. Connections that wait for one account take
//! turns: each is served one request, in the order in which they began to wait.

use super::bucket::Bucket;
use super::plan::{DEFAULT, Limits, Plan, Rates, TenantPlan};
use darter_telemetry::counters::Counter;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The accounts of a session or a tenant.
#[derive(Clone, Copy, Debug)]
struct Account {
    verbs: Bucket,
    bytes: Bucket,
}

impl Account {
    fn new(rates: Rates, now: Instant) -> Self {
        Self { verbs: Bucket::new(rates.verbs, now), bytes: Bucket::new(rates.bytes, now) }
    }

    fn change(&mut self, rates: Rates, now: Instant) {
        self.verbs.change(rates.verbs, now);
        self.bytes.change(rates.bytes, now);
    }

    fn take(&mut self, cost: Cost) {
        self.verbs.take(cost.verbs);
        self.bytes.take(cost.bytes);
    }

    fn wait(&mut self, now: Instant) -> Duration {
        self.verbs.wait(now).max(self.bytes.wait(now))
    }
}

/// The cost of a request: its verbs, and the bytes of the request and its reply.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    pub(crate) verbs: u64,
    pub(crate) bytes: u64,
}

/// The counters of a tenant.
#[derive(Debug, Default)]
pub(crate) struct TenantCounts {
    pub(crate) connections: Counter,
    pub(crate) verbs: Counter,
    pub(crate) bytes: Counter,
    /// Requests that waited.
    pub(crate) delays: Counter,
    pub(crate) delay_nanos: Counter,
}

/// The number of a tenant: its place in the gate's list, which only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TenantId(usize);

/// A token that a client has shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) tenant: TenantId,
    pub(crate) token: Vec<u8>,
    /// Whether the client may only read.
    pub(crate) reads_only: bool,
}

#[derive(Debug)]
struct Tenant {
    name: String,
    account: Account,
    counts: Arc<TenantCounts>,
}

#[derive(Debug)]
struct SessionEntry {
    connections: usize,
    account: Account,
}

/// A connection that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    /// Milliseconds after the gate's beginning: rounded up, so that connections that wait for one
    /// account are due at the same time.
    until: u64,
    /// The order in which connections began to wait.
    turn: u64,
    key: u64,
}

/// The state of all accounts, and the connections that wait.
#[derive(Debug)]
pub(crate) struct Gate {
    limits: Option<Limits>,
    plan: Arc<Plan>,
    began: Instant,
    sessions: HashMap<u64, SessionEntry>,
    /// The first is the default tenant.
    tenants: Vec<Tenant>,
    waiting: BTreeSet<Waiting>,
    last_turn: u64,
}

impl Gate {
    pub(crate) fn new(limits: Option<Limits>, now: Instant) -> Self {
        let plan = limits.as_ref().map(Limits::current).unwrap_or_default();
        let mut gate = Self {
            limits,
            plan: Arc::default(),
            began: now,
            sessions: HashMap::new(),
            tenants: Vec::new(),
            waiting: BTreeSet::new(),
            last_turn: 0,
        };
        gate.tenant_named(DEFAULT, now);
        gate.apply(plan, now);
        gate
    }

    /// Returns whether there are no limits.
    pub(crate) fn is_open(&self) -> bool {
        self.limits.is_none()
    }

    /// Reads the file of limits again if it has changed. Returns whether it has.
    pub(crate) fn renew(&mut self, now: Instant) -> bool {
        let Some(plan) = self.limits.as_ref().map(Limits::current) else { return false };
        let has_changed = !Arc::ptr_eq(&plan, &self.plan);
        if has_changed {
            self.apply(plan, now);
        }
        has_changed
    }

    fn apply(&mut self, plan: Arc<Plan>, now: Instant) {
        for session in self.sessions.values_mut() {
            session.account.change(plan.session, now);
        }
        // Sessions of a tenant that the file no longer names keep no limit but their own.
        for tenant in &mut self.tenants {
            tenant.account.change(Rates::default(), now);
        }
        for tenant in &plan.tenants {
            let TenantId(at) = self.tenant_named(&tenant.name, now);
            self.tenants[at].account.change(tenant.rates, now);
        }
        self.plan = plan;
    }

    fn tenant_named(&mut self, name: &str, now: Instant) -> TenantId {
        let known = self.tenants.iter().position(|tenant| tenant.name == name);
        TenantId(known.unwrap_or_else(|| {
            let account = Account::new(Rates::default(), now);
            self.tenants.push(Tenant { name: name.to_owned(), account, counts: Arc::default() });
            self.tenants.len() - 1
        }))
    }

    /// Returns the tenants' names and counters.
    pub(crate) fn counts(&self) -> Vec<(String, Arc<TenantCounts>)> {
        self.tenants.iter().map(|tenant| (tenant.name.clone(), Arc::clone(&tenant.counts))).collect()
    }

    /// Returns the token of a tenant that a client has shown.
    pub(crate) fn shown(&self, is_shown: impl Fn(&[u8]) -> bool) -> Option<Shown> {
        let tenant = self.plan.tenants.iter().find_map(|tenant| {
            let token = tenant.tokens.iter().find(|token| is_shown(token))?;
            Some((tenant, token.clone()))
        });
        let (TenantPlan { name, reads_only, .. }, token) = tenant?;
        let at = self.tenants.iter().position(|tenant| tenant.name == *name)?;
        Some(Shown { tenant: TenantId(at), token, reads_only: *reads_only })
    }

    /// Counts a connection.
    pub(crate) fn enter(&mut self, session: u64, TenantId(at): TenantId, now: Instant) {
        let account = Account::new(self.plan.session, now);
        self.sessions.entry(session).or_insert(SessionEntry { connections: 0, account }).connections += 1;
        self.tenants[at].counts.connections.add(1);
    }

    /// Stops counting a connection.
    pub(crate) fn leave(&mut self, session: u64, TenantId(at): TenantId) {
        if let Some(entry) = self.sessions.get_mut(&session) {
            entry.connections -= 1;
            if entry.connections == 0 {
                self.sessions.remove(&session);
            }
        }
        let connections = &self.tenants[at].counts.connections;
        connections.set(connections.get().saturating_sub(1));
    }

    /// Takes the cost of a request.
    pub(crate) fn take(&mut self, session: u64, TenantId(at): TenantId, cost: Cost) {
        if self.is_open() {
            return;
        }
        if let Some(entry) = self.sessions.get_mut(&session) {
            entry.account.take(cost);
        }
        let Tenant { account, counts, .. } = &mut self.tenants[at];
        account.take(cost);
        counts.verbs.add(cost.verbs);
        counts.bytes.add(cost.bytes);
    }

    /// Returns whether a connection must wait, and notes that it does: in the turn that it had
    /// before, if it has waited for that turn in vain.
    pub(crate) fn must_wait(
        &mut self,
        key: u64,
        session: u64,
        TenantId(at): TenantId,
        turn: &mut Option<u64>,
        now: Instant,
    ) -> bool {
        if self.is_open() {
            return false;
        }
        let of_session = self.sessions.get_mut(&session).map(|entry| entry.account.wait(now));
        let Tenant { account, counts, .. } = &mut self.tenants[at];
        let wait = account.wait(now).max(of_session.unwrap_or_default());
        if wait.is_zero() {
            return false;
        }
        if turn.is_none() {
            counts.delays.add(1);
            self.last_turn += 1;
        }
        counts.delay_nanos.add(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX));
        let turn = *turn.get_or_insert(self.last_turn);
        let until = (now + wait).saturating_duration_since(self.began).as_millis() + 1;
        self.waiting.insert(Waiting { until: u64::try_from(until).unwrap_or(u64::MAX), turn, key });
        true
    }

    /// Returns how long none of the waiting connections is due, if any waits.
    pub(crate) fn nap(&self, now: Instant) -> Option<Duration> {
        let first = self.waiting.first()?;
        let due = self.began + Duration::from_millis(first.until);
        Some(due.saturating_duration_since(now))
    }

    /// Removes the connections that are due, and returns their keys in the order of their turns.
    pub(crate) fn due(&mut self, now: Instant) -> Vec<u64> {
        let passed = u64::try_from(now.saturating_duration_since(self.began).as_millis()).unwrap_or(u64::MAX);
        let mut due = Vec::new();
        while self.waiting.first().is_some_and(|first| first.until <= passed) {
            due.extend(self.waiting.pop_first());
        }
        due.sort_unstable_by_key(|waiting| waiting.turn);
        due.into_iter().map(|waiting| waiting.key).collect()
    }

    /// Lets all go on: the node stops, or there are other limits.
    pub(crate) fn release(&mut self) -> Vec<u64> {
        let waiting = std::mem::take(&mut self.waiting);
        waiting.into_iter().map(|waiting| waiting.key).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COST: Cost = Cost { verbs: 500, bytes: 100 };

    fn gate(text: &str, now: Instant) -> (Gate, tempfile::NamedTempFile) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        (Gate::new(Some(Limits::from_file(file.path()).unwrap()), now), file)
    }

    #[test]
    fn connections_of_a_tenant_take_turns_and_others_do_not_wait() {
        let now = Instant::now();
        let at = |ms: u64| now + Duration::from_millis(ms);
        let text = "[[tenant]]\nname = 'slow'\ntokens = ['x']\nverbs_per_second = 1000";
        let (mut gate, _file) = gate(text, now);
        let Shown { tenant: slow, token, reads_only } = gate.shown(|token| token == b"x").unwrap();
        assert_eq!((slow, &token[..], gate.shown(|_| false)), (TenantId(1), &b"x"[..], None));
        assert!(!reads_only);
        for key in [1, 2, 3] {
            gate.enter(key, slow, now);
        }
        gate.enter(9, TenantId(0), now);
        let mut turns = [None; 4];
        let mut served = Vec::new();
        let mut serve = |gate: &mut Gate, key: u64, now: Instant| {
            let turn = &mut turns[key as usize];
            if !gate.must_wait(key, key, slow, turn, now) {
                gate.take(key, slow, COST);
                *turn = None;
                served.push(key);
                // Its next request follows at once.
                assert!(gate.must_wait(key, key, slow, turn, now));
            }
        };
        for key in [1, 2, 3] {
            serve(&mut gate, key, now);
        }
        for ms in (0..4000).step_by(50) {
            for key in gate.due(at(ms)) {
                serve(&mut gate, key, at(ms));
            }
        }
        // The first one's next request was there before those of the others.
        assert_eq!(served[..7], [1, 1, 2, 3, 1, 2, 3]);
        let mut turn = None;
        assert!(!gate.must_wait(9, 9, TenantId(0), &mut turn, now));
        gate.take(9, TenantId(0), Cost { verbs: 1 << 30, bytes: 1 << 40 });
        assert!(!gate.must_wait(9, 9, TenantId(0), &mut turn, now));
        assert!(gate.nap(now).is_some() && gate.release().len() == 3 && gate.nap(now).is_none());
    }

    #[test]
    fn each_session_has_its_own_account() {
        let now = Instant::now();
        let (mut gate, file) = gate("[session]\nverbs_per_second = 1000", now);
        let tenant = TenantId::default();
        gate.enter(1, tenant, now);
        gate.enter(1, tenant, now);
        gate.enter(2, tenant, now);
        gate.take(1, tenant, COST);
        let waits = |gate: &mut Gate, session: u64| gate.must_wait(session, session, tenant, &mut None, now);
        assert!(waits(&mut gate, 1) && !waits(&mut gate, 2));
        // Another connection of the session has the same account.
        gate.leave(1, tenant);
        assert!(waits(&mut gate, 1));
        std::fs::write(file.path(), "").unwrap();
        assert!(gate.renew(now) && !gate.renew(now));
        assert!(!waits(&mut gate, 1));
        gate.leave(1, tenant);
        gate.leave(2, tenant);
        assert!(gate.sessions.is_empty() && gate.tenants[0].counts.connections.get() == 0);
    }
}
