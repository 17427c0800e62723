//! All connections from this process to its memory nodes: one hub for each thread, one hub for the
//! tasks of other executors, and the control connections.

use super::control::ControlLinks;
use super::handshake::Caller;
use super::hub::Hub;
use super::reach::connect;
use super::reactor;
use super::session::Session;
use crate::FabricError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// State shared by clones of a fabric and its endpoints. It is dropped with the last of them, which
/// closes all hubs.
#[derive(Debug)]
pub(super) struct Links {
    pub session: Arc<Session>,
    pub control: ControlLinks,
    /// The hubs of all threads.
    hubs: Mutex<Vec<Weak<Hub>>>,
    /// The hub of tasks of other executors, created on first use.
    common: Mutex<Option<Arc<Hub>>>,
    /// A thread is checking whether absent nodes can be reached again.
    is_searching: Arc<AtomicBool>,
}

impl Links {
    pub(super) fn new(session: Session) -> Self {
        Self {
            session: Arc::new(session),
            control: ControlLinks::default(),
            hubs: Mutex::default(),
            common: Mutex::default(),
            is_searching: Arc::default(),
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

    /// Registers a hub, so that it is closed with the fabric.
    pub(super) fn enlist(&self, hub: &Arc<Hub>) {
        let mut hubs = self.hubs();
        hubs.retain(|hub| hub.strong_count() > 0);
        hubs.push(Arc::downgrade(hub));
    }

    /// Returns the number of posts to the device.
    pub(super) fn posts(&self) -> u64 {
        let hubs: Vec<Arc<Hub>> = self.hubs().iter().filter_map(Weak::upgrade).collect();
        hubs.iter().map(|hub| hub.posts()).sum()
    }

    /// Sends and receives as much as possible on all hubs.
    pub(super) fn turn_all(&self) {
        let hubs: Vec<Arc<Hub>> = self.hubs().iter().filter_map(Weak::upgrade).collect();
        for hub in hubs {
            hub.turn_once();
        }
    }

    /// Connects to absent nodes, in a separate thread, and records those that reply. Does nothing
    /// while the thread of an earlier call runs.
    pub(super) fn search_absent(&self) {
        let session = &self.session;
        let absent: Vec<u8> = session.nodes_in_use().filter(|&node| session.absent.contains(node)).collect();
        if absent.is_empty() || self.is_searching.swap(true, Ordering::AcqRel) {
            return;
        }
        let (session, is_searching) = (Arc::clone(session), Arc::clone(&self.is_searching));
        let search = move || {
            for node in absent {
                let Some(known) = session.node(node) else { continue };
                let connected = connect(&known.address, node, Caller::of(session.number), &session.options);
                let found = session.silent.judged(node, connected);
                let Ok((_, welcome)) = found else { continue };
                let is_lost = Some(welcome.boot_id) != known.boot_id;
                session.lost.note(node, is_lost);
                session.absent.note(node, is_lost);
            }
            is_searching.store(false, Ordering::Release);
        };
        if std::thread::Builder::new().name("darter-search".to_owned()).spawn(search).is_err() {
            self.is_searching.store(false, Ordering::Release);
        }
    }

    /// Closes the connections to a node that is not the expected one.
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
        // Threads keep their hubs, and nodes must notice that this client is gone.
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

    /// A thread that polls its tasks holds the lock of its hub, and its tasks may turn the hubs of
    /// other threads, whose tasks may turn this one.
    #[test]
    fn turning_all_hubs_waits_for_no_thread() {
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
            // Far longer than it can take, unless it waits for this thread.
            assert!(over.recv_timeout(Duration::from_secs(20)).is_ok(), "it waited for a thread");
        });
    }
}
