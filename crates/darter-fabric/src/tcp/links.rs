//! All ways from this process to its memory nodes: one hub for each thread, one hub for the tasks
//! of other executors, and the control connections.

use super::control::ControlLinks;
use super::handshake::Caller;
use super::hub::Hub;
use super::reach::connect;
use super::reactor;
use super::session::Session;
use crate::FabricError;
use std::sync::atomic::{AtomicBool, Ordering};
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
    /// A thread looks whether absent nodes can be reached again.
    looking: Arc<AtomicBool>,
}

impl Links {
    pub(super) fn new(session: Session) -> Self {
        Self {
            session: Arc::new(session),
            control: ControlLinks::default(),
            hubs: Mutex::default(),
            common: Mutex::default(),
            looking: Arc::default(),
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

    /// Returns how often verbs were handed to the device.
    pub(super) fn posts(&self) -> u64 {
        let hubs: Vec<Arc<Hub>> = self.hubs().iter().filter_map(Weak::upgrade).collect();
        hubs.iter().map(|hub| hub.posts()).sum()
    }

    /// Sends and receives what is possible on all hubs.
    pub(super) fn turn_all(&self) {
        let hubs: Vec<Arc<Hub>> = self.hubs().iter().filter_map(Weak::upgrade).collect();
        for hub in hubs {
            hub.turn_once();
        }
    }

    /// Connects to absent nodes, in a thread, and notes those that answer. Does nothing while the
    /// thread of an earlier call is at it.
    pub(super) fn look_for_absent(&self) {
        let session = &self.session;
        let absent: Vec<u8> = (0..session.node_count())
            .map(|node| node as u8)
            .filter(|&node| session.absent.contains(node))
            .collect();
        if absent.is_empty() || self.looking.swap(true, Ordering::AcqRel) {
            return;
        }
        let (session, looking) = (Arc::clone(session), Arc::clone(&self.looking));
        let looks = move || {
            for node in absent {
                let Some(known) = session.node(node) else { continue };
                let connected = connect(&known.address, node, Caller::of(session.number), &session.options);
                let found = session.silent.judged(node, connected);
                let Ok((_, welcome)) = found else { continue };
                let is_lost = Some(welcome.boot_id) != known.boot_id;
                session.lost.note(node, is_lost);
                session.absent.note(node, is_lost);
            }
            looking.store(false, Ordering::Release);
        };
        if std::thread::Builder::new().name("darter-look".to_owned()).spawn(looks).is_err() {
            self.looking.store(false, Ordering::Release);
        }
    }

    /// Closes the connections to a node that is another than was expected.
    pub(super) fn disconnect(&self, node: u8) {
        self.control.drop_link(node);
        self.hubs().iter().filter_map(Weak::upgrade).for_each(|hub| hub.forget(node));
    }

    /// Closes the connections to a node that has left the pool: the last one.
    pub(super) fn forget(&self, node: u8) {
        self.control.truncate(usize::from(node));
        for hub in self.hubs().iter().filter_map(Weak::upgrade) {
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

#[cfg(test)]
mod tests {
    use super::super::hub::Driver;
    use super::super::options::TcpOptions;
    use super::*;
    use crate::executor::Drive;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    /// A thread that polls its tasks has its hub locked meanwhile, and they may look at the hubs of
    /// others, as those do at its own.
    #[test]
    fn a_look_at_all_hubs_waits_for_no_thread() {
        let links = Arc::new(Links::new(Session::new(TcpOptions::default()).unwrap()));
        let hub = Hub::new(&links.session, Driver::Tasks).unwrap();
        links.enlist(&hub);
        hub.hold(&mut || {
            let (done, over) = channel();
            let links = Arc::clone(&links);
            std::thread::spawn(move || {
                links.turn_all();
                done.send(())
            });
            // Far longer than it can take; only a look that waits for this thread takes it all.
            assert!(over.recv_timeout(Duration::from_secs(20)).is_ok(), "it waits for a thread");
        });
    }
}
