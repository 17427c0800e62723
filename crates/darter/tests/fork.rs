//! A process that has a pool open forks: the child has no part of the pool, and the parent's death
//! is seen although the child lives. In a program of its own, since it forks.

#![allow(clippy::unwrap_used)] // a test may panic

use darter::{Error, PoolUrl, Store};
use darter_fabric::{Fabric, FabricError, FenceOutcome, Local, Suspect};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

const NAME: &str = "a_forked_child_has_no_part_of_its_parents_pool";
/// Names the pool's file to the process that forks.
const FILE: &str = "DARTER_TEST_FORKS_WITH";

fn is_forked<T>(result: Result<T, Error>) -> bool {
    let Err(error) = result else { return false };
    matches!(error, Error::Fabric(FabricError::Forked))
        || error.to_string().contains("before the process forked")
}

/// What the child finds.
fn child(path: &Path, store: Store) {
    let url = PoolUrl::file(path);
    assert!(is_forked(store.session()));
    drop(store);
    let store = Store::options().must_exist(true).open_url(&url).unwrap();
    assert_eq!(store.session().unwrap().get("key").unwrap().as_deref(), Some(&b"value"[..]));
    store.session().unwrap().put("child", "value").unwrap();
}

/// Opens the pool, forks, and waits to be killed; its child says what it found and waits for the end
/// of stdin.
fn parent(path: &Path) {
    let store = Store::options().must_exist(true).open_url(&PoolUrl::file(path)).unwrap();
    let session = store.session().unwrap();
    session.put("key", "value").unwrap();
    // SAFETY: glibc makes the allocator usable in the child; the threads that are missing there are
    // those of the store, which does not wait for them.
    if unsafe { libc::fork() } == 0 {
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            assert!(is_forked(session.get("key")));
            assert!(is_forked(session.put("key", "other")));
            assert!(is_forked(session.delete("key")));
            assert!(is_forked(session.scan(..).next().unwrap()));
            drop(session);
            child(path, store);
        }));
        println!("\nchild: {}", if found.is_ok() { "as it should be" } else { "failed" });
        std::io::stdout().flush().unwrap();
        let _ = std::io::stdin().read(&mut [0]);
        // SAFETY: ends the process.
        unsafe { libc::_exit(0) };
    }
    loop {
        std::thread::park();
    }
}

#[test]
fn a_forked_child_has_no_part_of_its_parents_pool() {
    if let Some(path) = std::env::var_os(FILE) {
        return parent(Path::new(&path));
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    drop(Store::options().open_url(&PoolUrl::file(&path).sized(16 << 20, 1)).unwrap());
    let mut parent = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", NAME, "--nocapture"])
        .env(FILE, &path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(parent.stdout.take().unwrap()).lines();
    let found = lines.map(Result::unwrap).find(|line| line.starts_with("child: "));
    // The first member's line, which the child has neither taken nor given back.
    let watcher = Local::file_open(&path).unwrap();
    let state = || watcher.fence(Suspect { slot: 0, holder: 0, lapsed: false }).unwrap();
    let before = state();
    parent.kill().unwrap();
    let stdin = parent.stdin.take();
    parent.wait().unwrap();
    let after = state();
    drop(stdin);
    assert_eq!(found.as_deref(), Some("child: as it should be"));
    assert_eq!((before, after), (FenceOutcome::Alive, FenceOutcome::Fenced));
}
