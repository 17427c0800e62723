//! A process that has a pool open forks: the child has no part of the pool. The parent's death is seen
//! although the child lives, and the child's end is not taken for the parent's. In a program of its
//! own, since it forks.

#![allow(clippy::unwrap_used)] // a test may panic

use darter::{Error, PoolUrl, Scheme, Session, Store};
use darter_fabric::{FabricError, FenceOutcome, Local, Membership, Suspect};
use darter_memnode::{MemNode, MemNodeOptions, Region, Stop};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// Names the pool to the process that forks.
const POOL: &str = "DARTER_TEST_FORKS_WITH";
const CHILD: &str = "child: as it should be";
const PARENT: &str = "parent: as it should be";

fn is_forked<T>(result: Result<T, Error>) -> bool {
    let Err(error) = result else { return false };
    matches!(error, Error::Fabric(FabricError::Forked))
        || error.to_string().contains("before the process forked")
}

/// What the child finds.
fn child(pool: &PoolUrl, store: Store) {
    assert!(is_forked(store.session()));
    assert!(is_forked(store.usage()));
    drop(store);
    // On memory nodes a thread that existed before the fork cannot be used.
    let pool = pool.clone();
    let reopened = std::thread::spawn(move || {
        let store = Store::options().create(false).open(&pool).unwrap();
        assert_eq!(store.session().unwrap().get("key").unwrap().as_deref(), Some(&b"value"[..]));
        store.session().unwrap().put("child", "value").unwrap();
    });
    reopened.join().unwrap();
}

/// What the parent finds when the child has ended.
fn parent(session: &Session, store: &Store) {
    for number in 0..1000_u32 {
        session.put(number.to_be_bytes(), "value").unwrap();
    }
    assert_eq!(session.get("child").unwrap().as_deref(), Some(&b"value"[..]));
    assert_eq!(store.joins(), 0, "the membership is the one from before the fork");
    let own = u64::from(std::process::id());
    assert!(store.usage().unwrap().members.iter().any(|member| member.pid == own));
}

/// Prints a line that says whether the checks have passed, whatever else is on the line.
fn report(line: &str, checks: impl FnOnce()) {
    let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(checks));
    println!("\n{}", if found.is_ok() { line } else { "failed" });
    std::io::stdout().flush().unwrap();
}

/// Opens the pool and forks. The child says what it found, and waits for the end of stdin if the
/// parent's death must come first. The parent waits to be killed, or for the child.
fn forks(pool: &PoolUrl) {
    let is_file = matches!(pool.scheme(), Scheme::File(_));
    let store = Store::options().create(false).open(pool).unwrap();
    let session = store.session().unwrap();
    session.put("key", "value").unwrap();
    // SAFETY: glibc makes the allocator usable in the child; the threads that are missing there are
    // those of the store, which does not wait for them.
    let process = unsafe { libc::fork() };
    if process == 0 {
        report(CHILD, || {
            assert!(is_forked(session.get("key")));
            assert!(is_forked(session.put("key", "other")));
            assert!(is_forked(session.discard("key")));
            assert!(is_forked(session.range(..).next().unwrap()));
            drop(session);
            child(pool, store);
        });
        if is_file {
            let _ = std::io::stdin().read(&mut [0]);
        }
        // SAFETY: ends the process.
        unsafe { libc::_exit(0) };
    }
    if is_file {
        loop {
            std::thread::park();
        }
    }
    // SAFETY: a child of this process, and no pointer is given.
    assert_eq!(unsafe { libc::waitpid(process, std::ptr::null_mut(), 0) }, process);
    report(PARENT, || parent(&session, &store));
}

/// Starts this program as one that forks, in the test of this name.
fn forking(test: &str, pool: &PoolUrl) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(POOL, pool.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Runs the process that forks, if this is it.
fn is_forking() -> bool {
    let Some(pool) = std::env::var_os(POOL) else { return false };
    forks(&pool.to_str().unwrap().parse().unwrap());
    true
}

#[test]
fn a_forked_child_has_no_part_of_its_parents_pool() {
    if is_forking() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    drop(Store::options().open(PoolUrl::file(&path).sized(16 << 20, 1)).unwrap());
    let mut parent = forking("a_forked_child_has_no_part_of_its_parents_pool", &PoolUrl::file(&path));
    let lines = BufReader::new(parent.stdout.take().unwrap()).lines();
    let found = lines.map(Result::unwrap).find(|line| [CHILD, "failed"].contains(&line.as_str()));
    // The first member's line, which the child has neither taken nor given back.
    let watcher = Local::file_open(&path).unwrap();
    let state = || watcher.fence(Suspect { slot: 0, holder: 0, lapsed: false }).unwrap();
    let before = state();
    parent.kill().unwrap();
    let stdin = parent.stdin.take();
    parent.wait().unwrap();
    let after = state();
    drop(stdin);
    assert_eq!(found.as_deref(), Some(CHILD));
    assert_eq!((before, after), (FenceOutcome::Alive, FenceOutcome::Fenced));
}

#[test]
fn a_forked_childs_end_leaves_its_parent_in_a_pool_of_memory_nodes() {
    if is_forking() {
        return;
    }
    let stop = Arc::new(Stop::default());
    let mut addresses = Vec::new();
    for _ in 0..2 {
        let region = Region::memory(32 << 20).unwrap();
        let node = MemNode::bind("127.0.0.1:0".parse().unwrap(), region, MemNodeOptions::default()).unwrap();
        addresses.push(node.address().unwrap().to_string());
        let stop = Arc::clone(&stop);
        std::thread::spawn(move || node.serve(&stop).map(drop));
    }
    let pool = PoolUrl::tcp(addresses);
    // A member that is not heard of for an hour is dead, and no machine is that busy.
    drop(Store::options().create(true).lease(Duration::from_secs(3600)).open(&pool).unwrap());
    let test = "a_forked_childs_end_leaves_its_parent_in_a_pool_of_memory_nodes";
    let output = forking(test, &pool).wait_with_output().unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    let reports: Vec<_> = lines.lines().filter(|line| [CHILD, PARENT, "failed"].contains(line)).collect();
    assert_eq!(reports, [CHILD, PARENT], "{lines}");
    stop.ask();
}
