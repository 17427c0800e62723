//! Memory groups of nodes in threads of the test, with a store of views in its memory.

use super::{Node, until};
use darter_fabric::wire::{ClientTls, NodeTls, Secrets};
use darter_fabric::{Local, ReplicaGroups, ReplicaRole, ReplicaState, Tcp, TcpOptions};
use darter_group::{Options, StoreReply, StoreRequest, View};
use darter_memnode::{GroupOptions, MemNodeOptions, Region, Views};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A store of views in this process, which can be shut.
#[derive(Clone, Default)]
pub struct Store(Arc<Mutex<(Option<View>, bool)>>);

impl Store {
    pub fn views(&self) -> Views {
        let store = Arc::clone(&self.0);
        Views::new(move |request| {
            let mut store = store.lock().unwrap();
            if store.1 {
                return Err("it is shut".to_owned());
            }
            if let StoreRequest::Set(wanted) = request
                && wanted.number == store.0.as_ref().map_or(0, |view| view.number) + 1
            {
                store.0 = Some(View::clone(wanted));
            }
            Ok(store.0.clone().map(|view| StoreReply { view: Arc::new(view) }))
        })
    }

    pub fn shut(&self, is_shut: bool) {
        self.0.lock().unwrap().1 = is_shut;
    }

    pub fn view(&self) -> Option<View> {
        self.0.lock().unwrap().0.clone()
    }
}

/// A group; some replicas may have ended.
pub struct TestGroup {
    pub store: Store,
    pub addresses: Vec<String>,
    pub nodes: Vec<Option<Node>>,
    /// The replicas' regions, accessed as by their own processes.
    pub memories: Vec<Local>,
    pub region_bytes: u64,
    pub times: Options,
    pub token: Secrets,
    /// TLS of nodes and of their clients, including replicas.
    pub tls: Option<(NodeTls, ClientTls)>,
}

/// Returns this number of addresses that no process listens on.
pub fn free_addresses(count: usize) -> Vec<String> {
    let listeners: Vec<_> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    listeners.iter().map(|listener| listener.local_addr().unwrap().to_string()).collect()
}

impl TestGroup {
    /// The token of clients that may only read, if there is a token.
    pub const READERS: &[u8] = b"readers of a group";

    /// Starts replicas that suspect each other after this time.
    pub fn start(replicas: usize, region_bytes: u64, patience: Duration) -> Self {
        Self::start_guarded(replicas, region_bytes, patience, b"", None)
    }

    /// Starts replicas of which this number are members at a time.
    pub fn start_with_spares(
        replicas: usize,
        members_max: usize,
        region_bytes: u64,
        patience: Duration,
    ) -> Self {
        let times = Options { lease: patience * 3 / 5, patience, members_max, ..Options::default() };
        Self::start_so(replicas, region_bytes, times, b"", None)
    }

    /// Starts replicas that require a token, and use TLS with each other and with clients.
    pub fn start_guarded(
        replicas: usize,
        region_bytes: u64,
        patience: Duration,
        token: &[u8],
        tls: Option<(NodeTls, ClientTls)>,
    ) -> Self {
        let times = Options { lease: patience * 3 / 5, patience, ..Options::default() };
        Self::start_so(replicas, region_bytes, times, token, tls)
    }

    fn start_so(
        replicas: usize,
        region_bytes: u64,
        times: Options,
        token: &[u8],
        tls: Option<(NodeTls, ClientTls)>,
    ) -> Self {
        let mut group = Self {
            store: Store::default(),
            addresses: free_addresses(replicas),
            nodes: (0..replicas).map(|_| None).collect(),
            memories: (0..replicas).map(|_| Local::memory(region_bytes, 1).unwrap()).collect(),
            region_bytes,
            times,
            token: token.to_vec().into(),
            tls,
        };
        (0..replicas).for_each(|at| group.revive(at));
        group
    }

    pub fn options(&self, at: usize) -> MemNodeOptions {
        let group = GroupOptions {
            replicas: self.addresses.clone(),
            me: at,
            views: self.store.views(),
            times: self.times.clone(),
            tls: self.tls.as_ref().map(|(_, client)| client.clone()),
        };
        let tls = self.tls.as_ref().map(|(node, _)| node.clone());
        let has_token = !self.token.current().is_empty();
        let read_only_token = if has_token { Self::READERS.into() } else { Secrets::default() };
        let token = self.token.clone();
        MemNodeOptions { group: Some(group), token, read_only_token, tls, ..MemNodeOptions::default() }
    }

    /// Starts a replica with zeroed memory.
    pub fn revive(&mut self, at: usize) {
        self.memories[at] = Local::memory(self.region_bytes, 1).unwrap();
        let region = Region::of(self.memories[at].clone()).unwrap();
        self.nodes[at] = Some(Node::start(region, &self.addresses[at], self.options(at)));
    }

    /// Ends a replica at once.
    pub fn kill(&mut self, at: usize) {
        if let Some(mut node) = self.nodes[at].take() {
            node.stop.ask();
            node.stop.ask();
            node.ended().unwrap();
        }
    }

    /// Returns its address as a node of a pool.
    pub fn address(&self) -> String {
        self.addresses.join("+")
    }

    pub fn connect(&self) -> Tcp {
        let (token, tls) = (self.token.clone(), self.tls.as_ref().map(|(_, client)| client.clone()));
        Tcp::connect(&[self.address()], TcpOptions { token, tls, ..TcpOptions::default() }).unwrap()
    }

    /// Returns the number of the replica that serves, when there is one.
    pub fn primary(tcp: &Tcp) -> usize {
        let mut found = None;
        until("a primary", || {
            let serves = |state: ReplicaState| state.role == ReplicaRole::Primary;
            found = tcp.replicas(0).iter().position(|replica| replica.state.is_some_and(serves));
            found.is_some()
        });
        found.unwrap()
    }

    fn states(tcp: &Tcp) -> Vec<ReplicaState> {
        tcp.replicas(0).iter().filter_map(|replica| replica.state).collect()
    }

    /// Waits until all replicas are members of one view.
    pub fn settle_members(&self, tcp: &Tcp) {
        until("all replicas are members", || {
            let states = Self::states(tcp);
            let is_member =
                |state: &ReplicaState| state.role != ReplicaRole::Learner && state.view == states[0].view;
            states.len() == self.nodes.len() && states.iter().all(is_member)
        });
    }

    /// Waits until all replicas are members of one view and have the same records.
    pub fn settle(&self, tcp: &Tcp) {
        self.settle_members(tcp);
        until("all replicas have the same records", || {
            let states = Self::states(tcp);
            states.iter().all(|state| state.record == states[0].record)
        });
    }
}
