//! The server of a run's index, where it has one: a process of the simulation that clients call, at every node, and another one
//! in its place when it has died or was shut out.

use super::subject::{Serves, Subject};
use darter_fabric::Fabric;
use darter_sim::{Executor, Sim, SimServer};

/// The process of the first server of a run; those that follow count up from it. Plans name the server by it, and count the pieces
/// of its verbs that have executed; what it has posted is lost with it.
pub const SERVER: u32 = 50;
/// By this plans name the server when they count whole verbs, and what it has posted may still land.
pub const LATE_SERVER: u32 = 49;

/// Batches that a renewal of the lease takes at most.
const RENEWAL_MAX: u64 = 10_000;

/// A server that runs.
struct Running {
    service: Box<dyn Serves>,
    /// Its procedures are the nodes' as long as these live.
    _registered: Vec<SimServer>,
}

/// The server of an index, and those before.
pub(super) struct Servers {
    sim: Sim,
    start: fn(&Sim) -> Option<Box<dyn Serves>>,
    process: u32,
    running: Option<Running>,
}

impl Servers {
    /// The first server of a subject, if it has one.
    pub(super) fn begin<S: Subject>(sim: &Sim) -> Self {
        let mut servers = Self { sim: sim.clone(), start: S::server, process: SERVER, running: None };
        servers.serve();
        servers
    }

    fn serve(&mut self) {
        let fabric = self.sim.process(self.process);
        self.running = (self.start)(&fabric).map(|service| {
            let nodes = 0..u8::try_from(fabric.nodes()).unwrap_or(u8::MAX);
            let registered = nodes.map(|node| fabric.serve(node, service.procedures())).collect();
            Running { service, _registered: registered }
        });
    }

    /// The process of the one that runs.
    pub(super) fn process(&self) -> Option<u32> {
        self.running.as_ref().map(|_| self.process)
    }

    /// What the one that runs has unlinked and not freed.
    pub(super) fn garbage(&self) -> usize {
        self.running.as_ref().map_or(0, |running| running.service.garbage())
    }

    /// Ends the server that runs as a crash would, with its tasks; another process takes its place.
    pub(super) fn replace(&mut self, executor: Option<&mut Executor<'_>>, lands: bool) {
        let Some(running) = self.running.take() else { return };
        if let Some(executor) = executor {
            executor.kill(self.process);
        }
        if !lands {
            self.sim.process(self.process).kill();
        }
        running.service.abandon();
        drop(running);
        self.process += 1;
        self.serve();
    }

    /// The one that runs renews its lease, as upkeep does all the time, however far the clock has moved.
    pub(super) fn renew(&self) {
        if let Some(running) = &self.running {
            self.sim.run_alone(RENEWAL_MAX, running.service.renew());
        }
    }

    /// Connects the one that runs to its memory again.
    pub(super) fn heal(&self) {
        self.sim.process(self.process).heal(0);
    }

    /// Whether the one that runs was shut out by others.
    pub(super) fn is_shut_out(&self) -> bool {
        self.running.is_some() && self.sim.process(self.process).is_fenced()
    }

    /// Whether sweeps wait for the end of the one that runs, whose frees had no reply.
    pub(super) fn holds_sweeps(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.service.has_unconfirmed_frees())
    }

    /// Has the server leave its pool in order.
    pub(super) fn end(mut self) {
        if let Some(running) = self.running.take() {
            running.service.end();
        }
    }
}

impl Drop for Servers {
    /// Closes nothing: nobody may execute verbs any more.
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.service.abandon();
        }
    }
}
