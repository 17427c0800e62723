//! The options of a memory node that is a replica of a memory group.

use darter_fabric::wire::ClientTls;
use darter_group::{Options, StoreReply, StoreRequest};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// The options of a replica of a memory group.
#[derive(Clone, Debug)]
pub struct GroupOptions {
    /// The addresses of all replicas, as `host:port`, in the same order on each. The first founds
    /// the group.
    pub replicas: Vec<String>,
    /// The index of this replica in `replicas`.
    pub me: usize,
    /// The store of the group's views.
    pub views: Views,
    /// The group's times and limits, the same on all replicas.
    pub times: Options,
    /// TLS for connections to the other replicas.
    pub tls: Option<ClientTls>,
}

impl GroupOptions {
    /// Returns an error message if the options are invalid.
    pub(super) fn verify(&self) -> Result<(), String> {
        let Options { lease, patience, .. } = self.times;
        if self.replicas.len() < 2 || self.me >= self.replicas.len() {
            return Err(
                "a memory group has two replicas or more, and this node must be one of them".to_owned()
            );
        }
        if self.times.members_max < 2 {
            return Err("a memory group must have two members or more".to_owned());
        }
        let is_twice = |(at, address)| self.replicas[..at].contains(address);
        if let Some((_, address)) = self.replicas.iter().enumerate().find(|&replica| is_twice(replica)) {
            return Err(format!("{address}: occurs twice among the replicas"));
        }
        if self.times.copy_rate == 0 {
            return Err("the copy rate for a new replica must not be 0 bytes a second".to_owned());
        }
        if lease.is_zero() || patience < lease * 3 / 2 {
            return Err("the time after which a replica is suspected must be at least one and a half leases"
                .to_owned());
        }
        Ok(())
    }

    pub(super) fn is_founder(&self) -> bool {
        self.me == 0
    }

    /// Returns the number of members of a full group; further replicas are spares.
    pub(crate) fn members(&self) -> usize {
        self.replicas.len().min(self.times.members_max)
    }

    /// Returns the other replicas' addresses.
    pub(super) fn others(&self) -> Vec<String> {
        let others = self.replicas.iter().enumerate().filter(|(at, _)| *at != self.me);
        others.map(|(_, address)| address.clone()).collect()
    }
}

/// Carries out a request to a store of views. Returns the reply; `None` for a read if there is no
/// view.
type CarryOut = dyn FnMut(&StoreRequest) -> Result<Option<StoreReply>, String> + Send;

/// The store of a group's views. Calls block, so a separate thread makes them.
#[derive(Clone)]
pub struct Views(Arc<Mutex<CarryOut>>);

impl Views {
    /// Returns a store whose requests are carried out by this function, which returns the reason if
    /// it fails. A failed request may take effect later.
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
