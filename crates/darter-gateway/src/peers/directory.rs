//! The task that keeps this gateway's record in the pool, finds the other gateways there, and keeps
//! a connection to each.
//!
//! A gateway that ends removes its record. A record that its gateway has not renewed for a long
//! time, by the clock of the gateway that reads it, is removed by that one: no two clocks are
//! compared.

use super::PeerId;
use super::link;
use crate::clock::now_ms;
use crate::fault::Fault;
use crate::keyspace::{GatewayRecord, Keyspace};
use crate::turns::in_turns;
use crate::worker::Worker;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tracing::{info, warn};

/// The interval between two renewals.
const RENEWAL: Duration = Duration::from_secs(5);
/// How long a record counts that is not renewed.
const FORGOTTEN: Duration = Duration::from_secs(30);
/// The shortest pause between two readings.
const PAUSE: Duration = Duration::from_millis(50);
/// How long a gateway that ends may take to remove its record.
const LEAVE_PATIENCE: Duration = Duration::from_secs(1);

/// The directory of gateways, as seen by one.
pub(crate) struct Directory {
    worker: Rc<Worker>,
    own: GatewayRecord,
    others: BTreeMap<PeerId, Other>,
    /// Whether it was logged that another gateway announces the same address.
    is_doubled: bool,
}

/// Another gateway.
struct Other {
    /// Its last record that was read, and since when the record has been that one.
    record: GatewayRecord,
    since: Instant,
    /// The task that connects to it, if its address is not this gateway's.
    link: Option<JoinHandle<()>>,
}

impl Drop for Other {
    fn drop(&mut self) {
        if let Some(link) = &self.link {
            link.abort();
        }
    }
}

impl Directory {
    /// Creates the directory of a gateway that others reach at an address.
    pub(crate) fn new(worker: Rc<Worker>, address: String) -> Self {
        let own = GatewayRecord { renewals: 0, address };
        Self { worker, own, others: BTreeMap::new(), is_doubled: false }
    }

    /// Keeps the directory until the task is aborted. Must run in a set of local tasks.
    pub(crate) async fn run(mut self) {
        let mut fails = false;
        loop {
            let worker = Rc::clone(&self.worker);
            let mut lease = worker.keyspace().await;
            lease.keys.now = now_ms();
            match self.round(&mut lease.keys, Instant::now()).await {
                Ok(()) => {
                    worker.shared.peers.announced();
                    if std::mem::take(&mut fails) {
                        info!("the directory of gateways works again");
                    }
                }
                Err(fault) => {
                    if !std::mem::replace(&mut fails, true) {
                        warn!(error = %fault.text(), "the directory of gateways has failed, and is tried again");
                    }
                }
            }
            worker.give_keyspace(lease);
            tokio::time::sleep(PAUSE).await;
            let _ = tokio::time::timeout(RENEWAL, worker.shared.peers.news.notified()).await;
        }
    }

    /// Renews this gateway's record, and reads those of the others.
    async fn round(&mut self, keys: &mut Keyspace, now: Instant) -> Result<(), Fault> {
        let own = self.worker.shared.peers.id;
        self.own.renewals += 1;
        keys.announce_gateway(own.to_bytes(), &self.own).await?;
        let records = keys.gateways().await?;
        let found = records.into_iter().map(|(id, record)| (PeerId::from_bytes(id), record));
        let found: BTreeMap<PeerId, GatewayRecord> = found.filter(|(id, _)| *id != own).collect();
        self.others
            .retain(|id, other| found.get(id).is_some_and(|record| record.address == other.record.address));
        for (id, record) in found {
            match self.others.get_mut(&id) {
                None => drop(self.others.insert(id, self.meet(id, record, now))),
                Some(other) if other.record != record => {
                    if other.link.is_none() && !std::mem::replace(&mut self.is_doubled, true) {
                        warn!(
                            address = record.address,
                            "another gateway announces this address; use --announce"
                        );
                    }
                    (other.record, other.since) = (record, now);
                }
                Some(other) if now.saturating_duration_since(other.since) < FORGOTTEN => {}
                Some(_) => {
                    keys.remove_gateway(id.to_bytes(), Some(&record)).await?;
                    info!(gateway = %id, address = record.address, "a gateway has not renewed its record");
                    self.others.remove(&id);
                }
            }
        }
        self.worker.shared.tracking.has_read(self.others.keys().copied(), Instant::now());
        Ok(())
    }

    /// Begins to connect to a gateway. At this gateway's address there was another one that ended
    /// without removing its record.
    fn meet(&self, id: PeerId, record: GatewayRecord, now: Instant) -> Other {
        let has_other_address = record.address != self.own.address;
        let link = has_other_address.then(|| {
            let (worker, linking) = (Rc::clone(&self.worker), Rc::clone(&self.worker));
            let link = link::keep(linking, id, record.address.clone());
            tokio::task::spawn_local(in_turns(move |work| worker.has_worked(work), link))
        });
        Other { record, since: now, link }
    }

    /// Removes a gateway's record, unless others must assume that it has changed keys of which they
    /// will not hear: `is_cut` says that requests in progress were not finished. They remove it later.
    pub(crate) async fn leave(worker: &Worker, is_cut: bool) {
        let left = tokio::time::timeout(LEAVE_PATIENCE, async {
            let mut lease = worker.keyspace().await;
            let left = Self::remove_own(worker, &mut lease.keys, is_cut).await;
            worker.give_keyspace(lease);
            left
        });
        match left.await {
            Ok(Ok(true)) => {}
            Ok(Err(fault)) => {
                warn!(error = %fault.text(), "this gateway's record stays in the pool until others remove it");
            }
            Ok(Ok(false)) | Err(_) => info!("this gateway's record stays in the pool until others remove it"),
        }
    }

    async fn remove_own(worker: &Worker, keys: &mut Keyspace, is_cut: bool) -> Result<bool, Fault> {
        let peers = &worker.shared.peers;
        let others = keys.gateways().await?.into_iter().map(|(id, _)| PeerId::from_bytes(id));
        // A gateway without a connection may not know that this one has been there.
        if is_cut || !peers.reach(others.filter(|id| *id != peers.id)) {
            return Ok(false);
        }
        keys.remove_gateway(peers.id.to_bytes(), None).await?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::GatewayOptions;
    use crate::state::GatewayState;
    use darter::Store;
    use std::sync::Arc;
    use tokio::runtime::Builder;
    use tokio::task::LocalSet;

    #[test]
    fn a_record_that_is_not_renewed_is_removed() {
        let store = Store::open("mem:16M").unwrap();
        let shared = Arc::new(GatewayState::new(store.clone(), GatewayOptions::default()));
        let worker = Rc::new(Worker::new(shared, 0));
        let runtime = Builder::new_current_thread().enable_io().enable_time().build().unwrap();
        LocalSet::new().block_on(&runtime, async {
            let mut directory = Directory::new(Rc::clone(&worker), "127.0.0.1:1".to_owned());
            let mut keys = Keyspace::new(store, Arc::default());
            let record =
                |renewals, port: u16| GatewayRecord { renewals, address: format!("127.0.0.1:{port}") };
            keys.announce_gateway(*b"renewed ", &record(1, 2)).await.unwrap();
            keys.announce_gateway(*b"silent  ", &record(1, 3)).await.unwrap();
            // It was killed, and this gateway has taken its place.
            keys.announce_gateway(*b"replaced", &record(1, 1)).await.unwrap();
            let start = Instant::now();
            directory.round(&mut keys, start).await.unwrap();
            let links = directory.others.values().filter(|other| other.link.is_some()).count();
            assert_eq!((directory.others.len(), links), (3, 2));
            keys.announce_gateway(*b"renewed ", &record(2, 2)).await.unwrap();
            directory.round(&mut keys, start + FORGOTTEN / 2).await.unwrap();
            assert_eq!(directory.others.len(), 3);
            directory.round(&mut keys, start + FORGOTTEN).await.unwrap();
            assert_eq!(directory.others.len(), 1);
            let left = keys.gateways().await.unwrap();
            assert_eq!(left.len(), 2);
            assert!(left.contains(&(*b"renewed ", record(2, 2))));
            Directory::leave(&worker, true).await;
            assert_eq!(keys.gateways().await.unwrap().len(), 2);
            Directory::leave(&worker, false).await;
            assert_eq!(keys.gateways().await.unwrap().len(), 2);
            let _link = worker.shared.peers.open(PeerId::from_bytes(*b"renewed "));
            Directory::leave(&worker, false).await;
            assert_eq!(keys.gateways().await.unwrap().len(), 1);
            directory.round(&mut keys, start + FORGOTTEN * 2).await.unwrap();
            assert!(directory.others.is_empty());
        });
    }
}
