//! Calls in progress in a simulation, and the server processes that run the procedures.
//!
//! A call has three moments, like a verb: it is *sent* when the caller's future is polled, its
//! procedure *begins* as a task of the server process, and its reply *arrives* after that task has
//! ended. Between two of them, and between any two verbs of the procedure, other tasks may do
//! anything.

use darter_fabric::{CallFault, Procedures};

/// A server process registered at a node.
#[derive(Debug)]
struct Server {
    number: u64,
    node: u8,
    process: u32,
    procedures: Procedures,
}

/// Progress of a call at its server.
#[derive(Debug)]
enum Stage {
    /// Its procedure has not begun.
    Sent {
        procedures: Procedures,
        words: Vec<u64>,
    },
    Running,
    /// Its procedure has ended, or will neither begin nor continue.
    Over,
}

/// A call that was sent.
#[derive(Debug)]
struct Call {
    id: u64,
    /// The caller: task, process and endpoint.
    task: u32,
    process: u32,
    endpoint: u64,
    node: u8,
    procedure: u64,
    server: u32,
    stage: Stage,
    /// The reply on its way to the caller.
    outcome: Option<Result<Vec<u64>, CallFault>>,
    /// The caller may see the outcome.
    is_completed: bool,
    /// The future that waited for it is gone.
    is_orphan: bool,
}

impl Call {
    fn has_not_begun(&self) -> bool {
        matches!(self.stage, Stage::Sent { .. })
    }
}

/// Identifies the caller of a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller {
    pub task: u32,
    pub process: u32,
    pub endpoint: u64,
}

/// All unfinished calls of a simulation, and its servers.
#[derive(Debug, Default)]
pub(super) struct Calls {
    servers: Vec<Server>,
    sent: Vec<Call>,
    /// Number of calls ever sent plus servers ever registered.
    numbered: u64,
    /// Calls without a task yet, with their servers' processes.
    arriving: Vec<(u64, u32)>,
    /// Procedures that no call or server holds any longer. Their destructors may use the
    /// simulation, so they must be dropped without its lock.
    given_up: Vec<Procedures>,
}

impl Calls {
    /// Takes everything out. Numbering continues, so that stale numbers never match anything later.
    pub(super) fn take_all(&mut self) -> Self {
        let numbered = self.numbered;
        std::mem::replace(self, Self { numbered, ..Self::default() })
    }

    /// Registers a process as the server of a node, replacing the previous one. Returns its number.
    pub(super) fn register(&mut self, node: u8, process: u32, procedures: Procedures) -> u64 {
        self.numbered += 1;
        let others = self.servers.extract_if(.., |server| server.node == node);
        self.given_up.extend(others.map(|server| server.procedures));
        self.servers.push(Server { number: self.numbered, node, process, procedures });
        self.numbered
    }

    /// Removes a server, if it is still the current one of its node.
    pub(super) fn unregister(&mut self, number: u64) {
        let its = self.servers.extract_if(.., |server| server.number == number);
        self.given_up.extend(its.map(|server| server.procedures));
    }

    /// Takes the procedures to be dropped without the lock.
    pub(super) fn take_given_up(&mut self) -> Vec<Procedures> {
        std::mem::take(&mut self.given_up)
    }

    /// Ends the server's work on the calls that match `is_it`.
    fn end_stages(&mut self, is_it: impl Fn(&Call) -> bool) {
        for call in self.sent.iter_mut().filter(|call| is_it(call)) {
            if let Stage::Sent { procedures, .. } = std::mem::replace(&mut call.stage, Stage::Over) {
                self.given_up.push(procedures);
            }
            call.outcome.get_or_insert(Err(CallFault::ServerGone));
        }
        self.forget_orphans();
    }

    /// Returns a node's server: its process and its procedures.
    pub(super) fn server(&self, node: u8) -> Option<(u32, &Procedures)> {
        let server = self.servers.iter().find(|server| server.node == node)?;
        Some((server.process, &server.procedures))
    }

    /// Sends a call to a server; returns its id.
    pub(super) fn send(
        &mut self,
        caller: Caller,
        node: u8,
        (server, procedures): (u32, Procedures),
        (procedure, words): (u64, Vec<u64>),
    ) -> u64 {
        self.numbered += 1;
        let (id, Caller { task, process, endpoint }) = (self.numbered, caller);
        self.arriving.push((id, server));
        self.sent.push(Call {
            id,
            task,
            process,
            endpoint,
            node,
            procedure,
            server,
            stage: Stage::Sent { procedures, words },
            outcome: None,
            is_completed: false,
            is_orphan: false,
        });
        id
    }

    /// Takes the calls that do not have a task yet.
    pub(super) fn take_arriving(&mut self) -> Vec<(u64, u32)> {
        std::mem::take(&mut self.arriving)
    }

    fn get(&mut self, id: u64) -> Option<&mut Call> {
        self.sent.iter_mut().find(|call| call.id == id)
    }

    /// Begins a call's procedure, unless the call was revoked.
    pub(super) fn begin(&mut self, id: u64) -> Option<(Procedures, u64, Vec<u64>)> {
        let call = self.get(id)?;
        match std::mem::replace(&mut call.stage, Stage::Running) {
            Stage::Sent { procedures, words } => Some((procedures, call.procedure, words)),
            other => {
                call.stage = other;
                None
            }
        }
    }

    /// Records the end of a procedure.
    pub(super) fn end(&mut self, id: u64, outcome: Result<Vec<u64>, CallFault>) {
        if let Some(call) = self.get(id) {
            call.stage = Stage::Over;
            call.outcome.get_or_insert(outcome);
        }
        self.forget_orphans();
    }

    /// Returns whether a reply is on its way to a task.
    pub(super) fn is_answered(&self, task: u32) -> bool {
        self.sent.iter().any(|call| call.task == task && call.outcome.is_some() && !call.is_orphan)
    }

    /// Delivers the oldest reply that is on its way to a task.
    pub(super) fn arrive(&mut self, task: u32) {
        let is_it = |call: &&mut Call| call.task == task && call.outcome.is_some() && !call.is_orphan;
        if let Some(call) = self.sent.iter_mut().find(is_it) {
            call.is_completed = true;
        }
    }

    /// Takes an outcome that has arrived.
    pub(super) fn take(&mut self, id: u64) -> Option<Result<Vec<u64>, CallFault>> {
        let call = self.get(id).filter(|call| call.is_completed)?;
        let outcome = call.outcome.take();
        self.sent.retain(|call| call.id != id);
        outcome
    }

    /// Notes that the future that waited for a call is gone.
    pub(super) fn orphan(&mut self, id: u64) {
        if let Some(call) = self.get(id) {
            call.is_orphan = true;
        }
        self.forget_orphans();
    }

    /// Returns the number of calls of an endpoint whose futures are gone and whose procedures have
    /// not ended.
    pub(super) fn in_flight(&self, endpoint: u64) -> usize {
        self.sent.iter().filter(|call| call.is_orphan && call.endpoint == endpoint).count()
    }

    fn forget_orphans(&mut self) {
        self.sent.retain(|call| !(call.is_orphan && matches!(call.stage, Stage::Over)));
    }

    /// Handles the death of a caller: its calls become orphans.
    pub(super) fn caller_died(&mut self, process: u32) {
        let its = self.sent.iter_mut().filter(|call| call.process == process);
        its.for_each(|call| call.is_orphan = true);
        self.forget_orphans();
    }

    /// Revokes the calls of a fenced caller that have not begun.
    pub(super) fn take_back(&mut self, process: u32) {
        self.end_stages(|call| call.process == process && call.has_not_begun());
    }

    /// Cuts a caller off from a node: requests and replies in flight are lost.
    pub(super) fn cut(&mut self, process: u32, node: u8) {
        let is_it = |call: &Call| call.process == process && call.node == node;
        for call in self.sent.iter_mut().filter(|call| is_it(call)) {
            call.outcome = Some(Err(CallFault::ServerGone));
        }
        self.end_stages(|call| is_it(call) && call.has_not_begun());
    }

    /// Ends the procedures of a server that died or was fenced. Replies that it has sent may still
    /// arrive.
    pub(super) fn server_died(&mut self, process: u32) {
        self.end_stages(|call| call.server == process);
    }
}
