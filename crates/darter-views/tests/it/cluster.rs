//! Servers of a program that stores views, as processes on loopback: one, or three of which one at
//! a time is killed or stopped.

use crate::contract::{set, view};
use darter_views::{StoreError, ViewStore};
use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Interval between checks whether a starting server replies: 50 ms.
const LOOKS_MAX: usize = 1200;

/// Adds the arguments of a cluster's server to its command.
pub(crate) type Arguments = Box<dyn Fn(&Cluster, usize, &mut Command)>;

/// A program whose servers are started.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    /// The argument that checks whether it is installed.
    pub(crate) probe: &'static str,
    /// Number of ports of a server. Clients connect to the first.
    pub(crate) ports: usize,
    pub(crate) arguments: Arguments,
    /// Returns the URL of views in servers at these addresses.
    pub(crate) url: Box<dyn Fn(&str) -> String>,
}

impl Program {
    /// Returns its path; `None`, with a message, if it is not installed.
    fn find(&self) -> Option<PathBuf> {
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools").join(self.name).join(self.name);
        let found = [own, self.name.into()].into_iter().find(|path| {
            let output = Command::new(path).arg(self.probe).output();
            output.is_ok_and(|output| output.status.success())
        });
        if found.is_none() {
            println!("skipped: {} is not installed", self.name);
        }
        found
    }
}

/// Returns a port that no process listens on, each one only once. It lies below the ports that the
/// system assigns to connections, which could take it while a killed server is restarted.
fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let candidate = 20_000 + (std::process::id() + NEXT.fetch_add(1, Ordering::Relaxed)) % 10_000;
        if TcpListener::bind(("127.0.0.1", candidate as u16)).is_ok() {
            return candidate as u16;
        }
    }
}

/// Servers of one cluster, killed when dropped.
pub(crate) struct Cluster {
    program: Program,
    path: PathBuf,
    pub(crate) folder: tempfile::TempDir,
    /// The ports of each server.
    pub(crate) ports: Vec<Vec<u16>>,
    servers: Vec<Child>,
}

impl Cluster {
    /// Starts `servers` servers of a program; `None`, with a message, if it is not installed.
    pub(crate) fn start(program: Program, servers: usize) -> Option<Self> {
        let path = program.find()?;
        let folder = tempfile::tempdir().unwrap();
        let ports = (0..servers).map(|_| (0..program.ports).map(|_| free_port()).collect()).collect();
        let mut cluster = Self { program, path, folder, ports, servers: Vec::new() };
        cluster.servers = (0..servers).map(|at| cluster.spawn(at)).collect();
        Some(cluster)
    }

    fn spawn(&self, at: usize) -> Child {
        let mut command = Command::new(&self.path);
        (self.program.arguments)(self, at, &mut command);
        let log = File::options().create(true).append(true).open(self.log(at)).unwrap();
        command.stdout(log.try_clone().unwrap()).stderr(log).stdin(Stdio::null()).spawn().unwrap()
    }

    fn log(&self, at: usize) -> PathBuf {
        self.folder.path().join(format!("s{at}.log"))
    }

    /// Returns a server's address for clients.
    pub(crate) fn host(&self, at: usize) -> String {
        format!("127.0.0.1:{}", self.ports[at][0])
    }

    /// Returns the URL of views in it, with all servers' addresses.
    pub(crate) fn url(&self) -> String {
        let hosts: Vec<_> = (0..self.ports.len()).map(|at| self.host(at)).collect();
        (self.program.url)(&hosts.join(","))
    }

    /// Returns the URL with the address of one server.
    fn url_at(&self, at: usize) -> String {
        (self.program.url)(&self.host(at))
    }

    fn signal(&self, at: usize, signal: &str) {
        let pid = self.servers[at].id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    fn restart(&mut self, at: usize) {
        let mut server = self.spawn(at);
        std::mem::swap(&mut self.servers[at], &mut server);
        server.wait().unwrap();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for server in &mut self.servers {
            let _ = server.kill();
            let _ = server.wait();
        }
        if std::thread::panicking() {
            for at in 0..self.servers.len() {
                println!("s{at}: {}", std::fs::read_to_string(self.log(at)).unwrap_or_default());
            }
        }
    }
}

/// Repeats a request until the store replies.
pub(crate) fn patiently<T>(mut ask: impl FnMut() -> Result<T, StoreError>) -> T {
    for _ in 0..LOOKS_MAX {
        match ask() {
            Ok(answer) => return answer,
            Err(StoreError::Unreachable(_)) => std::thread::sleep(Duration::from_millis(50)),
            Err(error) => panic!("{error}"),
        }
    }
    panic!("no answer");
}

/// Kills and stops each of three servers while views are set.
pub(crate) fn assert_survives_strikes(cluster: &mut Cluster) {
    let mut store = ViewStore::open(&cluster.url(), 0).unwrap();
    patiently(|| store.view());
    let mut number = 0;
    // Each of them, and so also the leader.
    for at in 0..3 {
        for signal in ["-KILL", "-STOP"] {
            cluster.signal(at, signal);
            for _ in 0..3 {
                number += 1;
                // A request without a reply may have taken effect: then the view is ours.
                let held = patiently(|| set(&mut store, view(number, 7)));
                assert_eq!(held, Some(view(number, 7)), "{signal} {at}");
            }
            if signal == "-KILL" {
                cluster.restart(at);
            } else {
                cluster.signal(at, "-CONT");
            }
        }
        // All three must be up again before the next one is hit.
        let held = patiently(|| ViewStore::open(&cluster.url_at(at), 0).unwrap().view());
        assert_eq!(held, Some(view(number, 7)));
    }
}
