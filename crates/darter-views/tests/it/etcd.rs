//! Views in real etcd: one server, one that wants a password, three of which one at a time is
//! killed or stopped.

use crate::contract::{assert_has_one_winner, assert_keeps_views, set, view};
use darter_views::{StoreError, ViewStore};
use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Looks at a server that starts, until it answers: one in 50 ms.
const LOOKS_MAX: usize = 1200;

fn is_installed() -> bool {
    let is_there = Command::new("etcd").arg("--version").output().is_ok_and(|output| output.status.success());
    if !is_there {
        assert!(std::env::var_os("DARTER_TEST_ALL").is_none(), "etcd is not installed");
        println!("skipped: etcd is not installed");
    }
    is_there
}

/// Returns a port that nobody listens on, each one once. Below those that the system gives to
/// connections, which could take it while a server that was killed is started again.
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
struct Cluster {
    folder: tempfile::TempDir,
    /// The client's and the peers' port of each.
    ports: Vec<(u16, u16)>,
    servers: Vec<Child>,
}

impl Cluster {
    fn start<const N: usize>() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let ports: Vec<_> = (0..N).map(|_| (free_port(), free_port())).collect();
        let mut cluster = Self { folder, ports, servers: Vec::new() };
        cluster.servers = (0..N).map(|at| cluster.spawn(at)).collect();
        cluster
    }

    fn spawn(&self, at: usize) -> Child {
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let (client, peer) = (url(self.ports[at].0), url(self.ports[at].1));
        let all = self.ports.iter().enumerate().map(|(at, ports)| format!("s{at}={}", url(ports.1)));
        Command::new("etcd")
            .args(["--name", &format!("s{at}"), "--data-dir"])
            .arg(self.folder.path().join(format!("s{at}")))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &all.collect::<Vec<_>>().join(",")])
            .args(["--heartbeat-interval", "50", "--election-timeout", "500", "--log-level", "error"])
            .stdout(Stdio::null())
            .stderr(File::options().create(true).append(true).open(self.log(at)).unwrap())
            .spawn()
            .unwrap()
    }

    fn log(&self, at: usize) -> PathBuf {
        self.folder.path().join(format!("s{at}.log"))
    }

    fn url(&self) -> String {
        let hosts: Vec<_> = self.ports.iter().map(|(client, _)| format!("127.0.0.1:{client}")).collect();
        format!("etcd://{}/darter", hosts.join(","))
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

/// Asks until the store answers.
fn patiently<T>(mut ask: impl FnMut() -> Result<T, StoreError>) -> T {
    for _ in 0..LOOKS_MAX {
        match ask() {
            Ok(answer) => return answer,
            Err(StoreError::Unreachable(_)) => std::thread::sleep(Duration::from_millis(50)),
            Err(error) => panic!("{error}"),
        }
    }
    panic!("no answer");
}

#[test]
fn etcd_keeps_views() {
    if !is_installed() {
        return;
    }
    let cluster = Cluster::start::<1>();
    let url = cluster.url();
    patiently(|| ViewStore::open(&url, 9).unwrap().view());
    assert_keeps_views(&url);
    assert_has_one_winner(&format!("{url}/contended?timeout-ms=10000"), 20);
    std::fs::write(cluster.folder.path().join("password"), "right\n").unwrap();
    with_a_password(&cluster, &cluster.folder.path().join("password"));
}

/// Turns passwords on, and looks whether the right one is needed.
fn with_a_password(cluster: &Cluster, password: &Path) {
    let url = cluster.url();
    let post = |path: &str, body: &str| {
        let address = format!("http://127.0.0.1:{}/v3/auth/{path}", cluster.ports[0].0);
        ureq::post(&address).send(body).unwrap();
    };
    post("user/add", r#"{"name":"root","password":"right"}"#);
    post("user/grant", r#"{"user":"root","role":"root"}"#);
    post("enable", "{}");
    let account = |file: &Path| format!("{url}?timeout-ms=10000&user=root&password-file={}", file.display());
    let mut store = ViewStore::open(&account(password), 0).unwrap();
    assert_eq!(store.view().unwrap(), Some(view(2, 8)));
    assert_eq!(set(&mut store, view(3, 7)).unwrap(), Some(view(3, 7)));
    let wrong = password.with_file_name("wrong");
    std::fs::write(&wrong, "wrong").unwrap();
    for url in [account(&wrong), format!("{url}?timeout-ms=10000")] {
        let error = ViewStore::open(&url, 0).unwrap().view().unwrap_err();
        assert!(matches!(error, StoreError::Refused { .. }), "{error}");
    }
}

#[test]
fn one_of_three_servers_at_a_time_is_killed_or_stopped() {
    if !is_installed() {
        return;
    }
    let mut cluster = Cluster::start::<3>();
    let mut store = ViewStore::open(&cluster.url(), 0).unwrap();
    patiently(|| store.view());
    let mut number = 0;
    // Each of them, so the leader too.
    for at in 0..3 {
        for signal in ["-KILL", "-STOP"] {
            cluster.signal(at, signal);
            for _ in 0..3 {
                number += 1;
                // A request that was not answered may have taken effect: then the view is ours.
                let held = patiently(|| set(&mut store, view(number, 7)));
                assert_eq!(held, Some(view(number, 7)), "{signal} {at}");
            }
            if signal == "-KILL" {
                cluster.restart(at);
            } else {
                cluster.signal(at, "-CONT");
            }
        }
        // All three are needed again before the next one is struck.
        let host = format!("etcd://127.0.0.1:{}/darter", cluster.ports[at].0);
        let held = patiently(|| ViewStore::open(&host, 0).unwrap().view());
        assert_eq!(held, Some(view(number, 7)));
    }
}
