//! A process as the server of a node: its registration, and the tasks of its calls.

use super::endpoint::Sim;
use darter_fabric::Procedures;

/// A server process at a node. After it is dropped the node runs no procedures for new calls.
#[derive(Debug)]
#[must_use = "dropping it removes the procedures from the node"]
pub struct SimServer {
    sim: Sim,
    number: u64,
}

impl Sim {
    /// Makes this process the server of a node, replacing the previous one. Each call of a
    /// procedure is a task of this process: it can be killed and paused like any other, and another
    /// process can take its place.
    pub fn serve(&self, node: u8, procedures: Procedures) -> SimServer {
        let number = self.world().calls.register(node, self.number(), procedures);
        self.drop_given_up();
        SimServer { sim: self.clone(), number }
    }

    /// Drops the procedures that no server or call holds any longer.
    pub(super) fn drop_given_up(&self) {
        let given_up = self.world().calls.take_given_up();
        drop(given_up);
    }

    /// Runs a call at its server.
    pub(super) async fn run_call(self, id: u64) {
        let Some((procedures, procedure, words)) = self.world().calls.begin(id) else { return };
        let outcome = procedures.run(procedure, words).await;
        self.world().calls.end(id, outcome);
    }
}

impl Drop for SimServer {
    fn drop(&mut self) {
        self.sim.world().calls.unregister(self.number);
        self.sim.drop_given_up();
    }
}
