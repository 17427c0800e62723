//! All steps that a client can take from a state.

use crate::state::{Op, Pc};
use crate::turn::Turn;

impl Turn<'_> {
    /// Puts every state to which one step of the client leads in `out`.
    ///
    /// The beginning of an operation coincides with its first step, and its return with its last:
    /// shorter operations allow fewer orders, and hold fewer frames back.
    pub(crate) fn step(&mut self) {
        match self.state.clients[self.client].pc {
            Pc::Idle => self.begin(),
            Pc::Record { .. } => self.record(),
            Pc::LeafGuard { slot, value } => self.leaf_guard(slot, value),
            Pc::Undo { inline } => self.undo(inline),
            Pc::Head { .. } => self.head(),
            Pc::Route { .. } => self.route(),
            Pc::Page { frame, .. } => self.page(frame),
            Pc::Static { frame, rank } => self.read_static(frame, rank),
            Pc::Swap { frame, at, expect, put, result } => self.swap(frame, at, expect, put, result),
            Pc::Seal { frame, at } => self.seal(frame, at),
            Pc::Part { frame, part, whole } => self.part(frame, part, whole),
            Pc::Draft { job, draft, left } => self.write(job, draft, left),
        }
    }

    /// Begins the next operation, if there is one, and takes its first step.
    fn begin(&mut self) {
        let Some(&op) = self.later().first() else { return };
        let key = op.key() as usize;
        self.state.judged[key] = self.judge.begins(self.state.judged[key], self.client, op);
        let client = &mut self.state.clients[self.client];
        client.begun += 1;
        let hinted = client.hints[key].is_some() && !matches!(op, Op::Rebuild(_));
        client.pc = if hinted { Pc::RECORD } else { Pc::ROUTE };
        self.step();
    }
}
