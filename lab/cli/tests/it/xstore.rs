//! XStore's server as a process: killed repeatedly under clients over TCP, in a separate process
//! and in that of the memory node that holds the leaves; and, in [`nodes`], on three nodes.

mod nodes;

use darter_baselines::{XStore, XStoreOptions};
use darter_fabric::{CallFault, Counting, Endpoint, FabricError, OpKind, Tcp, TcpOptions, block_on};
use darter_index::{Condition, IndexError, OrderedIndex, ScanRange, Swept};
use darter_pool::{Client, Pool, PoolError, PoolOptions};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

type Nodes = Counting<Tcp>;
type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Keys that never change; the keys of each writer come after them.
const STILL: u64 = 2000;
const WRITTEN: u64 = 400;
const WRITERS: u64 = 2;
const KILLS: u64 = 8;
/// Minimum number of writes acknowledged between two kills.
const ACKNOWLEDGED: u64 = 60;
/// A time after which everything should have happened.
const LONG: Duration = Duration::from_secs(300);

/// A memory node, which can be killed and started again at its address.
struct Node {
    child: Option<Child>,
    options: Vec<String>,
    address: String,
}

impl Node {
    fn start(size: &str, options: &[&str]) -> Self {
        let options = ["--size", size].iter().chain(options).map(ToString::to_string).collect();
        let mut node = Self { child: None, options, address: "127.0.0.1:0".to_owned() };
        node.start_again();
        node
    }

    fn start_again(&mut self) {
        let mut command = Command::new(crate::PROGRAM);
        command.args(["memnode", "--listen", &self.address]).args(&self.options);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let child = self.child.insert(child);
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        line.trim().strip_prefix("tcp://").unwrap().clone_into(&mut self.address);
    }

    /// Kills the node with SIGKILL.
    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A process's view of the pool's index.
struct View {
    addresses: Vec<String>,
    options: XStoreOptions,
    client: Client<Nodes>,
    index: XStore<Nodes>,
    pool: Pool<Nodes>,
    _upkeep: Upkeep,
}

/// The thread that does a process's upkeep, even while one of its calls waits.
struct Upkeep {
    has_ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Upkeep {
    fn of(pool: &Pool<Nodes>) -> Self {
        let has_ended = Arc::new(AtomicBool::new(false));
        let (told, mut client) = (Arc::clone(&has_ended), pool.client().unwrap());
        let thread = std::thread::spawn(move || {
            while !told.load(Ordering::Acquire) {
                if let Err(error) = block_on(client.maintain()) {
                    let error = error.into();
                    if is_shut_out(&error) {
                        break;
                    }
                    assert!(is_typed(&error), "{error}");
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        Self { has_ended, thread: Some(thread) }
    }
}

impl Drop for Upkeep {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::Release);
        let ended = self.thread.take().unwrap().join();
        assert!(std::thread::panicking() || ended.is_ok());
    }
}

impl View {
    fn open(addresses: &[String], options: XStoreOptions) -> Self {
        Self::try_open(addresses, options).unwrap()
    }

    fn try_open(addresses: &[String], options: XStoreOptions) -> Result<Self, IndexError> {
        let fabric = Counting::new(Tcp::connect_present(addresses, TcpOptions::default())?);
        let pool = block_on(Pool::open(fabric))?;
        let mut client = pool.client()?;
        let index = block_on(XStore::open(&mut client, options))?;
        Ok(Self { addresses: addresses.to_vec(), options, client, index, _upkeep: Upkeep::of(&pool), pool })
    }

    /// Handles an error that a caller must expect: a process that was shut out reopens the pool.
    fn go_on(&mut self, error: &IndexError) {
        if !is_shut_out(error) {
            assert!(is_typed(error), "{error:?}");
            return;
        }
        let began = Instant::now();
        *self = loop {
            match Self::try_open(&self.addresses, self.options) {
                Ok(view) => break view,
                Err(error) => {
                    assert!(is_typed(&error) || is_away(&error), "{error:?}");
                    assert!(began.elapsed() < LONG, "the pool is not reopened: {error}");
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        };
    }

    /// Retries until there is a reply.
    fn insist<T>(&mut self, mut what: impl FnMut(&mut Self) -> Result<T, IndexError>) -> T {
        let began = Instant::now();
        loop {
            match what(self) {
                Ok(answer) => return answer,
                Err(error) => {
                    assert!(began.elapsed() < LONG, "there is no reply: {error}");
                    self.go_on(&error);
                }
            }
        }
    }

    fn all_pairs(&mut self) -> Model {
        let scan =
            |view: &mut Self| block_on(view.index.scan(&mut view.client, &ScanRange::all(), usize::MAX));
        self.insist(scan).into_iter().collect()
    }

    /// Sweeps after other processes have died, until the sweep is done.
    fn sweep(&mut self) {
        let began = Instant::now();
        loop {
            match self.insist(|view| block_on(view.index.sweep_dead(&mut view.client))) {
                Swept::Done(report) if report.finished => {
                    assert_eq!(report.violations, Vec::<String>::new());
                    break;
                }
                Swept::Done(_) => assert!(began.elapsed() < LONG, "the sweep does not end"),
                Swept::Refused(violations) => panic!("{violations:?}"),
            }
        }
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), IndexError> {
        block_on(self.index.put(&mut self.client, key, value, Condition::Always)).map(drop)
    }

    fn get(&mut self, key: u64) -> Result<Option<Vec<u8>>, IndexError> {
        block_on(self.index.get(&mut self.client, &key.to_be_bytes()))
    }

    fn calls(&self) -> u64 {
        self.client.endpoint().counters().unwrap()[OpKind::Get].calls
    }
}

/// Returns the fabric's part of an error.
fn of_fabric(error: &IndexError) -> Option<&FabricError> {
    match error {
        IndexError::Fabric(error) | IndexError::Pool(PoolError::Fabric(error)) => Some(error),
        _ => None,
    }
}

/// Whether a caller must expect this error from a server, or a node, that dies.
fn is_typed(error: &IndexError) -> bool {
    match of_fabric(error) {
        Some(FabricError::Disconnected { .. } | FabricError::Unreachable { .. }) => true,
        Some(FabricError::Call(call)) => match &call.fault {
            CallFault::ServerGone | CallFault::NoServer => true,
            // The server's own verbs have failed, or it is not running yet.
            CallFault::Failed(failed) => failed.code == darter_fabric::ProcedureError::FABRIC,
            _ => false,
        },
        _ => false,
    }
}

/// Whether connecting to a memory node failed.
fn is_away(error: &IndexError) -> bool {
    matches!(of_fabric(error), Some(FabricError::Io(_)))
}

/// Whether the connection to a memory node has ended.
fn is_cut(error: &IndexError) -> bool {
    matches!(of_fabric(error), Some(FabricError::Disconnected { .. }))
}

/// Whether this process fell silent, on a busy machine, and was shut out: it must reopen the pool.
fn is_shut_out(error: &IndexError) -> bool {
    matches!(of_fabric(error), Some(FabricError::Fenced))
        || matches!(error, IndexError::Pool(PoolError::Evicted))
}

/// State shared by all threads.
#[derive(Default)]
struct Shared {
    acknowledged: AtomicU64,
    failed: AtomicU64,
    has_ended: AtomicBool,
    /// The contents of the writers' keys.
    written: Mutex<Model>,
}

impl Shared {
    fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// Retries until it is done; every error must be a typed one.
    fn persist(&self, view: &mut View, mut what: impl FnMut(&mut View) -> Result<(), IndexError>) -> bool {
        while let Err(error) = what(view) {
            view.go_on(&error);
            self.failed.fetch_add(1, Ordering::AcqRel);
            if self.has_ended() {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.acknowledged.fetch_add(1, Ordering::AcqRel);
        true
    }

    /// Writes its keys repeatedly, and deletes some of them. Reads acknowledged writes back.
    fn write(&self, writer: u64, mut view: View) {
        let mut own = Model::new();
        for turn in 0_u64.. {
            if self.has_ended() {
                break;
            }
            let key = STILL * 2 + writer * WRITTEN + turn * 37 % WRITTEN;
            let bytes = key.to_be_bytes();
            let is_delete = turn % 5 == 4;
            let value = turn.to_be_bytes().repeat(1 + turn as usize % 3);
            // Both are idempotent, so an operation whose reply is lost is retried.
            let done = self.persist(&mut view, |view| {
                if is_delete {
                    block_on(view.index.delete(&mut view.client, &bytes)).map(drop)
                } else {
                    view.put(&bytes, &value)
                }
            });
            if !done {
                // The content of this key is unknown.
                own.insert(bytes.to_vec(), b"?".to_vec());
                break;
            }
            if is_delete {
                own.remove(&bytes[..])
            } else {
                own.insert(bytes.to_vec(), value)
            };
            let read = turn.wrapping_mul(31) % WRITTEN + STILL * 2 + writer * WRITTEN;
            match view.get(read) {
                Ok(found) => assert_eq!(found.as_ref(), own.get(&read.to_be_bytes()[..]), "key {read}"),
                Err(error) => view.go_on(&error),
            }
        }
        self.written.lock().unwrap().append(&mut own);
    }

    /// Waits until `more` further writes are acknowledged.
    fn wait(&self, more: u64) {
        let (wanted, began) = (self.acknowledged.load(Ordering::Acquire) + more, Instant::now());
        while self.acknowledged.load(Ordering::Acquire) < wanted {
            assert!(began.elapsed() < LONG, "the writers make no progress");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn still_value(key: u64) -> Option<Vec<u8>> {
    (key.is_multiple_of(2) && key < STILL * 2).then(|| key.to_le_bytes().to_vec())
}

/// Lets the server train until all unchanging keys are read without a call, including absent keys.
fn learn(view: &mut View) {
    let began = Instant::now();
    loop {
        assert!(began.elapsed() < LONG, "the models never cover the keys");
        view.insist(|view| block_on(view.index.maintain(&mut view.client)));
        // A new generation is read in the next epoch.
        view.insist(|view| Ok(block_on(view.pool.maintain(&mut view.client))?));
        if assert_still(view) == 0 {
            return;
        }
    }
}

/// Asserts that all unchanging keys are read correctly, except in a leaf next to the written ones.
/// Returns the number of calls for that. Starts over if the process is shut out.
fn assert_still(view: &mut View) -> u64 {
    let began = Instant::now();
    'again: loop {
        assert!(began.elapsed() < LONG, "the process keeps being shut out");
        let before = view.calls();
        for key in 0..STILL * 2 - 64 {
            match view.get(key) {
                Ok(found) => assert_eq!(found, still_value(key), "key {key}"),
                // The first sign of having been shut out is that the connection ends.
                Err(error) if is_shut_out(&error) || is_cut(&error) => {
                    view.go_on(&error);
                    continue 'again;
                }
                Err(error) => panic!("key {key}: {error}"),
            }
        }
        return view.calls() - before;
    }
}

/// After all processes have ended, the index is sound, acknowledged writes are present, and nothing
/// is leaked.
fn assert_whole(view: &mut View, written: &Model) {
    let found = view.all_pairs();
    let still = (0..STILL * 2).filter_map(|key| Some((key.to_be_bytes().to_vec(), still_value(key)?)));
    let mut expected: Model = still.collect();
    for (key, value) in written {
        let value = if value == b"?" { found.get(key) } else { Some(value) };
        expected.extend(value.map(|value| (key.clone(), value.clone())));
    }
    assert!(found == expected, "{} pairs of {}", found.len(), expected.len());
    view.sweep();
    let report = view.insist(|view| block_on(view.index.check(&mut view.client)));
    assert_eq!(report.violations, Vec::<String>::new());
    assert_eq!(report.stats.keys, expected.len() as u64);
}

/// Creates a pool on these nodes and loads its index: all unchanging keys, and `more` after them.
fn loaded(addresses: &[String], options: XStoreOptions, pool_options: &PoolOptions, more: Model) -> View {
    let fabric = Counting::new(Tcp::connect(addresses, TcpOptions::default()).unwrap());
    let pool = block_on(Pool::create(fabric, pool_options)).unwrap();
    let mut client = pool.client().unwrap();
    let index = block_on(XStore::create(&mut client, options)).unwrap();
    let pairs = (0..STILL * 2).filter_map(|key| Some((key.to_be_bytes().to_vec(), still_value(key)?)));
    let pairs: Vec<_> = pairs.chain(more).collect();
    let keys = pairs.len() as u64;
    assert_eq!(block_on(index.bulk_load(&mut client, pairs.into_iter())).unwrap(), keys);
    View { addresses: addresses.to_vec(), options, client, index, _upkeep: Upkeep::of(&pool), pool }
}

/// Kills the server repeatedly while writers call it. `at` is the node of the server; with node 0
/// the leaves are gone with it until it is back.
fn kills(options: XStoreOptions, mut nodes: Vec<Node>, at: usize) {
    let addresses: Vec<String> = nodes.iter().map(|node| node.address.clone()).collect();
    let mut view = loaded(&addresses, options, &POOL, Model::new());
    let shared = Arc::new(Shared::default());
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (view, shared) = (View::open(&addresses, options), Arc::clone(&shared));
            std::thread::spawn(move || shared.write(writer, view))
        })
        .collect();
    for kill in 0..KILLS {
        shared.wait(ACKNOWLEDGED + kill * 7);
        if at != 0 {
            learn(&mut view);
        }
        let failed = shared.failed.load(Ordering::Acquire);
        nodes[at].kill();
        if at != 0 {
            // Each writer notices, at the latest with its next call.
            let began = Instant::now();
            while shared.failed.load(Ordering::Acquire) < failed + WRITERS {
                assert!(began.elapsed() < LONG, "calls without a server do not fail");
                std::thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(assert_still(&mut view), 0, "reads continue without the server");
        }
        nodes[at].start_again();
    }
    shared.wait(ACKNOWLEDGED);
    shared.has_ended.store(true, Ordering::Release);
    for writer in writers {
        writer.join().unwrap();
    }
    assert!(shared.failed.load(Ordering::Acquire) >= KILLS);
    // This thread may be connected to a process that is gone.
    view.insist(|view| view.get(0));
    let written = shared.written.lock().unwrap().clone();
    assert!(written.len() as u64 > WRITERS * 40, "{}", written.len());
    assert_whole(&mut view, &written);
    let mut fresh = View::open(&addresses, options);
    assert_still(&mut fresh);
}

const POOL: PoolOptions = PoolOptions { block_bytes: None, lease_ms: 1500, secret: None };

const OPTIONS: XStoreOptions = XStoreOptions {
    value_words: 3,
    node: 0,
    nodes: 1,
    server: None,
    fill_percent: 75,
    cache_bytes: 16 << 20,
    tree_from: None,
};

fn file(directory: &Path, name: &str) -> String {
    directory.join(name).to_str().unwrap().to_owned()
}

/// A server next to the memory: its node is one of the pool's, without any of the leaves.
#[test]
fn reads_continue_after_a_separate_server_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    for value_words in [3, 0] {
        let memory = Node::start("64M", &[]);
        let (pool, region) =
            (format!("tcp://{}", memory.address), file(directory.path(), &format!("region-{value_words}")));
        let server = Node::start(
            "64M",
            &["--file", &region, "--serve", "xstore", "--workers", "3", "--server-pool", &pool],
        );
        kills(XStoreOptions { value_words, server: Some(1), ..OPTIONS }, vec![memory, server], 1);
    }
}

/// A memory node with its server in one process.
#[test]
fn a_memory_node_is_killed_with_its_server() {
    let directory = tempfile::tempdir().unwrap();
    let region = file(directory.path(), "region");
    let node = Node::start("64M", &["--file", &region, "--serve", "xstore"]);
    kills(OPTIONS, vec![node], 0);
}
