//! The server of a run's index, if it has one: a simulated process that clients call, at every
//! node. When it has died or was shut out, another process replaces it.

use super::subject::{Serves, Subject};
use darter_fabric::Fabric;
use darter_sim::{Executor, Sim, SimServer};

/// Process number of the first server of a run; its successors count up from it. Faults that name
/// this number count executed pieces of the server's verbs, and verbs it has posted are lost with
/// it.
pub const SERVER: u32 = 50;
/// Faults that name the server by this number count whole verbs, and verbs it has posted may still
/// take effect.
pub const LATE_SERVER: u32 = 49;

/// Maximum number of batches for a renewal of the lease.
const RENEWAL_MAX: u64 = 10_000;

/// A running server.
struct Running {
    service: Box<dyn Serves>,
    /// Keep its procedures registered at the nodes.
    _registered: Vec<SimServer>,
}

/// The running server of an index, and how to start its successors.
pub(super) struct Servers {
    sim: Sim,
    start: fn(&Sim) -> Option<Box<dyn Serves>>,
    process: u32,
    running: Option<Running>,
}

impl Servers {
    /// Starts the first server of a subject, if it has one.
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

    /// Returns the process of the running server.
    pub(super) fn process(&self) -> Option<u32> {
        self.running.as_ref().map(|_| self.process)
    }

    /// Returns the number of objects that the running server has unlinked and not freed.
    pub(super) fn garbage(&self) -> usize {
        self.running.as_ref().map_or(0, |running| running.service.garbage())
    }

    /// Ends the running server as a crash would, with its tasks; another process takes its place.
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

    /// Renews the lease of the running server, as continuous upkeep does, however far the clock has
    /// moved.
    pub(super) fn renew(&self) {
        if let Some(running) = &self.running {
            self.sim.run_alone(RENEWAL_MAX, running.service.renew());
        }
    }

    /// Reconnects the running server to its memory.
    pub(super) fn heal(&self) {
        self.sim.process(self.process).heal(0);
    }

    /// Whether others have shut out the running server.
    pub(super) fn is_shut_out(&self) -> bool {
        self.running.is_some() && self.sim.process(self.process).is_fenced()
    }

    /// Whether sweeps wait for the end of the running server because its frees had no reply.
    pub(super) fn holds_sweeps(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.service.has_unconfirmed_frees())
    }

    /// Lets the server leave its pool in order.
    pub(super) fn end(mut self) {
        if let Some(running) = self.running.take() {
            running.service.end();
        }
    }
}

impl Drop for Servers {
    /// Does not close anything: verbs may no longer execute.
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.service.abandon();
        }
    }
}
