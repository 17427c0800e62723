//! How a memory node is a replica of a memory group.

use darter_fabric::wire::ClientTls;
use darter_group::{Options, StoreReply, StoreRequest};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// How a memory node is a replica of a memory group.
#[derive(Clone, Debug)]
pub struct GroupOptions {
    /// Where all replicas are found, `host:port` each, in the same order at all of them. The first
    /// founds the group.
    pub replicas: Vec<String>,
    /// Which of them this is.
    pub me: usize,
    /// Where the group's views are kept.
    pub views: Views,
    /// The group's times and bounds, the same at all replicas.
    pub times: Options,
    /// How to use TLS with the other replicas.
    pub tls: Option<ClientTls>,
}

impl GroupOptions {
    /// Says what makes no sense in them.
    pub(super) fn verify(&self) -> Result<(), String> {
        let Options { lease, patience, .. } = self.times;
        if self.replicas.len() < 2 || self.me >= self.replicas.len() {
            return Err("a memory group has two replicas or more, of which this node is one".to_owned());
        }
        if self.times.members_max < 2 {
            return Err("a memory group has two members or more at a time".to_owned());
        }
        let is_twice = |(at, address)| self.replicas[..at].contains(address);
        if let Some((_, address)) = self.replicas.iter().enumerate().find(|&replica| is_twice(replica)) {
            return Err(format!("{address}: it is named twice among the replicas"));
        }
        if self.times.copy_rate == 0 {
            return Err("a new replica gets nothing at a rate of 0 bytes a second".to_owned());
        }
        if lease.is_zero() || patience < lease * 3 / 2 {
            return Err("replicas must wait for each other for one and a half leases or more".to_owned());
        }
        Ok(())
    }

    pub(super) fn is_founder(&self) -> bool {
        self.me == 0
    }

    /// Returns how many members the group is to have; further replicas are spares.
    pub(crate) fn members(&self) -> usize {
        self.replicas.len().min(self.times.members_max)
    }

    /// Returns the other replicas' addresses.
    pub(super) fn others(&self) -> Vec<String> {
        let others = self.replicas.iter().enumerate().filter(|(at, _)| *at != self.me);
        others.map(|(_, address)| address.clone()).collect()
    }
}

/// What carries out a request to a store of views: the reply, `None` for a read that finds no view.
type CarryOut = dyn FnMut(&StoreRequest) -> Result<Option<StoreReply>, String> + Send;

/// Where a group's views are kept. Calls block, so a thread of their own makes them.
#[derive(Clone)]
pub struct Views(Arc<Mutex<CarryOut>>);

impl Views {
    /// Returns the store whose requests this carries out, or says why not. A request that has failed
    /// may take effect later.
    pub fn new(
        carry_out: impl FnMut(&StoreRequest) -> Result<Option<StoreReply>, String> + Send + 'static,
    ) -> Self {
        Self(Arc::new(Mutex::new(carry_out)))
    }

    pub(super) fn carry_out(&self, request: &StoreRequest) -> Result<Option<StoreReply>, String> {
        (self.0.lock().unwrap_or_else(PoisonError::into_inner))(request)
    }
}

impl fmt::Debug for Views {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Views")
    }
}
