//! A memory node: executes READ, WRITE, CAS and FAA against one region for whoever is let in.
//!
//! One thread serves all connections. It takes in what a socket has, executes the whole frames in it, and sends all their
//! answers in one call; between looks it spins for a while, then sleeps in `epoll`. Whatever a peer sends, it costs the peer
//! its connection at most: lengths are checked before anything is kept, verbs before anything is touched, and a peer that
//! does not read its answers is heard no further, and dropped when that lasts.

mod ledger;
mod peer;
mod region;
mod sessions;

pub use region::Region;

use darter_fabric::tcp::wire;
use darter_fabric::{Endpoint, Fabric, FabricError, Local};
use peer::{Peer, Progress};
use rustix::event::epoll;
use sessions::Sessions;
use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How a memory node serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemNodeOptions {
    /// What a client must know; empty to let in whoever can connect.
    pub token: Vec<u8>,
    /// Connections at most.
    pub connections_max: usize,
    /// Payload bytes of a frame at most.
    pub frame_bytes_max: u32,
    /// Bytes of answers that wait for one peer, beyond which it is heard no further.
    pub waiting_bytes_max: usize,
    /// How long a peer may leave its answers unread, or its greeting unfinished.
    pub patience: Duration,
    /// How long to look again and again before sleeping.
    pub spin: Duration,
}

impl Default for MemNodeOptions {
    fn default() -> Self {
        Self {
            token: Vec::new(),
            connections_max: 1024,
            frame_bytes_max: wire::FRAME_BYTES_MAX,
            waiting_bytes_max: 16 << 20,
            patience: Duration::from_secs(10),
            spin: Duration::from_micros(50),
        }
    }
}

/// Why a memory node cannot serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemNodeError {
    /// The address cannot be listened on.
    #[error("{address}: cannot listen there: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's answer.
        source: io::Error,
    },
    /// The system refused something that serving needs.
    #[error("cannot {action}: {source}")]
    System {
        /// What was tried.
        action: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// The region is not one node's memory.
    #[error("a memory node serves one region; this pool has {nodes}")]
    Regions {
        /// How many there are.
        nodes: usize,
    },
    /// The file beside the region's, where the node keeps whom it has shut out, cannot be used.
    #[error("{}: cannot {action}: {source}; it belongs to the region's file and goes with it", path.display())]
    Ledger {
        /// The file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// The region cannot be reached.
    #[error(transparent)]
    Fabric(#[from] FabricError),
}

/// What a memory node has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemNodeCounts {
    /// Connections let in.
    pub accepted: u64,
    /// Connections refused: credentials, version, fenced, busy.
    pub refused: u64,
    /// Connections ended for what they sent, or for not reading.
    pub dropped: u64,
    /// Frames executed.
    pub frames: u64,
    /// Verbs executed.
    pub verbs: u64,
}

/// A memory node that listens.
#[derive(Debug)]
pub struct MemNode {
    listener: TcpListener,
    memory: Local,
    boot_id: u64,
    sessions: Sessions,
    options: MemNodeOptions,
    counts: MemNodeCounts,
}

/// What all peers share while they are served.
struct Service<'s> {
    options: &'s MemNodeOptions,
    region: &'s Local,
    boot_id: u64,
    sessions: &'s mut Sessions,
    counts: MemNodeCounts,
}

/// The listener's key among the sockets' numbers.
const LISTENER: u64 = 0;
/// Most sockets heard in one turn.
const EVENTS_MAX: usize = 256;
/// How often peers are looked at that do nothing.
const SWEEP: Duration = Duration::from_millis(500);

fn system(action: &'static str) -> impl FnOnce(io::Error) -> MemNodeError {
    move |source| MemNodeError::System { action, source }
}

impl MemNode {
    /// Listens at an address, to serve a region.
    ///
    /// # Errors
    /// When the address is taken.
    pub fn bind(address: SocketAddr, region: Region, options: MemNodeOptions) -> Result<Self, MemNodeError> {
        let listener =
            TcpListener::bind(address).map_err(|source| MemNodeError::Listen { address, source })?;
        listener.set_nonblocking(true).map_err(system("set up the listening socket"))?;
        let Region { memory, ledger, remembered } = region;
        let sessions = Sessions::new(ledger, &remembered);
        let (boot_id, counts) = (remembered.boot_id, MemNodeCounts::default());
        Ok(Self { listener, memory, boot_id, sessions, options, counts })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn address(&self) -> Result<SocketAddr, MemNodeError> {
        self.listener.local_addr().map_err(system("ask for the listening address"))
    }

    /// Serves until `stop`, then answers what has arrived and goes.
    ///
    /// # Errors
    /// When the system refuses what serving needs; a peer's fault is never one.
    pub fn serve(&mut self, stop: &AtomicBool) -> Result<MemNodeCounts, MemNodeError> {
        let errno = |error: rustix::io::Errno| io::Error::from(error);
        let waiting: OwnedFd = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|error| system("wait for sockets")(errno(error)))?;
        let flags = |(hears, sends): (bool, bool)| {
            let mut flags = epoll::EventFlags::empty();
            flags.set(epoll::EventFlags::IN, hears);
            flags.set(epoll::EventFlags::OUT, sends);
            flags
        };
        let watch = |socket: &dyn AsFd, key: u64| {
            epoll::add(&waiting, socket.as_fd(), epoll::EventData::new_u64(key), flags((true, false)))
                .map_err(errno)
        };
        watch(&self.listener, LISTENER).map_err(system("wait for connections"))?;
        let mut endpoint = self.memory.endpoint()?;
        let mut service = Service {
            options: &self.options,
            region: &self.memory,
            boot_id: self.boot_id,
            sessions: &mut self.sessions,
            counts: self.counts,
        };
        let mut peers: HashMap<u64, Peer> = HashMap::new();
        let mut next_key = LISTENER + 1;
        let (mut busy_until, mut next_sweep) = (Instant::now(), Instant::now() + SWEEP);
        let mut events = Vec::with_capacity(EVENTS_MAX);
        while !stop.load(Ordering::Acquire) {
            let now = Instant::now();
            let nap = if now < busy_until { Duration::ZERO } else { SWEEP / 4 };
            let nap = rustix::event::Timespec { tv_sec: 0, tv_nsec: i64::from(nap.subsec_nanos()) };
            events.clear();
            match epoll::wait(&waiting, rustix::buffer::spare_capacity(&mut events), Some(&nap)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(system("wait for sockets")(errno(error))),
            }
            if !events.is_empty() {
                busy_until = Instant::now() + self.options.spin;
            }
            for event in &events {
                let key = event.data.u64();
                if key == LISTENER {
                    while let Ok((stream, _)) = self.listener.accept() {
                        let is_room = peers.len() < self.options.connections_max;
                        let Ok(peer) = Peer::new(stream, is_room) else { continue };
                        if watch(peer.socket(), next_key).is_ok() {
                            peers.insert(next_key, peer);
                            next_key += 1;
                        }
                    }
                    continue;
                }
                let Some(peer) = peers.get_mut(&key) else { continue };
                let mut goes_on = peer.serve(&mut service, &mut endpoint) == Progress::GoesOn;
                let interest = peer.interest(&self.options);
                if goes_on && interest != peer.watched {
                    peer.watched = interest;
                    let data = epoll::EventData::new_u64(key);
                    goes_on = epoll::modify(&waiting, peer.socket(), data, flags(interest)).is_ok();
                }
                if !goes_on && let Some(peer) = peers.remove(&key) {
                    peer.part(&mut service);
                }
            }
            let now = Instant::now();
            if now >= next_sweep {
                next_sweep = now + SWEEP;
                let gone: Vec<u64> = peers
                    .iter()
                    .filter(|(_, peer)| {
                        peer.is_late(now, &self.options) || service.sessions.is_fenced(peer.session())
                    })
                    .map(|(&key, _)| key)
                    .collect();
                for key in gone {
                    if let Some(peer) = peers.remove(&key) {
                        service.counts.dropped += 1;
                        peer.part(&mut service);
                    }
                }
            }
        }
        for mut peer in peers.into_values() {
            peer.serve(&mut service, &mut endpoint);
            peer.part(&mut service);
        }
        self.counts = service.counts;
        Ok(service.counts)
    }
}

/// What an endpoint of the region answers at once: the local provider's futures are always ready.
fn execute(
    endpoint: &mut impl Endpoint,
    batch: darter_fabric::Batch,
) -> Result<darter_fabric::Batch, FabricError> {
    darter_fabric::block_on(endpoint.submit(batch))
}
