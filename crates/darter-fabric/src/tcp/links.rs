//! All ways from this process to its memory nodes: one hub for each thread, one hub for the tasks
//! of other executors, and the control connections.

use super::control::ControlLinks;
use super::hub::Hub;
use super::reactor;
use super::session::Session;
use crate::{FabricError, mutant};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// What clones of a fabric and its endpoints share. Dropped with the last of them, which closes all
/// hubs.
#[derive(Debug)]
pub(super) struct Links {
    pub session: Arc<Session>,
    pub control: ControlLinks,
    /// The hubs of all threads.
    hubs: Mutex<Vec<Weak<Hub>>>,
    /// The hub of tasks of other executors, made when first used.
    common: Mutex<Option<Arc<Hub>>>,
}

impl Links {
    pub(super) fn new(session: Session) -> Self {
        Self {
            session: Arc::new(session),
            control: ControlLinks::default(),
            hubs: Mutex::default(),
            common: Mutex::default(),
        }
    }

    /// Returns the hub of tasks of other executors.
    pub(super) fn common_hub(&self) -> Result<Arc<Hub>, FabricError> {
        let mut common = self.common.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(hub) = &*common {
            return Ok(Arc::clone(hub));
        }
        let hub = reactor::start(&self.session)?;
        self.enlist(&hub);
        Ok(Arc::clone(common.insert(hub)))
    }

    fn hubs(&self) -> MutexGuard<'_, Vec<Weak<Hub>>> {
        self.hubs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a hub, to be closed with the fabric.
    pub(super) fn enlist(&self, hub: &Arc<Hub>) {
        let mut hubs = self.hubs();
        hubs.retain(|hub| hub.strong_count() > 0);
        hubs.push(Arc::downgrade(hub));
    }

    /// Sends and receives what is possible on all hubs.
    pub(super) fn turn_all(&self) {
        let hubs: Vec<Arc<Hub>> = self.hubs().iter().filter_map(Weak::upgrade).collect();
        for hub in hubs {
            hub.turn_once();
        }
    }

    /// Closes the connections to a node that has left the pool: the last one.
    pub(super) fn forget(&self, node: u8) {
        self.control.truncate(usize::from(node));
        for hub in self.hubs().iter().filter_map(Weak::upgrade) {
            if mutant!("tcp-forgotten-node-keeps-its-link") {
                continue;
            }
            hub.forget(node);
        }
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        // Threads keep their hubs, and nodes must see that this client is gone.
        for hub in self.hubs().iter().filter_map(Weak::upgrade) {
            hub.close();
        }
    }
}
