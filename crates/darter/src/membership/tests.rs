//! Memberships that end: in files, whose members end only when a test ends them.

use super::Reopen;
use crate::link::{Attempts, Link, Repeat};
use crate::open_index::OpenIndex;
use crate::{Error, Store, StoreOptions, block_on, engine};
use darter_fabric::{FabricError, PoolUrl};
use darter_index::IndexOptions;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tempfile::TempDir;

/// Pools in files, a store of one of them, and the attempts to open it again.
struct Scene {
    files: TempDir,
    attempts: Arc<AtomicUsize>,
    /// Whether attempts fail.
    is_away: Arc<AtomicBool>,
    /// Whether attempts find the other pool.
    is_other: Arc<AtomicBool>,
}

impl Scene {
    fn new() -> Self {
        let scene = Self {
            files: tempfile::tempdir().unwrap(),
            attempts: Arc::default(),
            is_away: Arc::default(),
            is_other: Arc::default(),
        };
        for name in ["pool", "other"] {
            drop(Store::options().open(scene.url(name).sized(16 << 20, 1)).unwrap());
        }
        scene
    }

    fn url(&self, name: &str) -> PoolUrl {
        PoolUrl::file(self.files.path().join(name))
    }

    fn store(&self, options: &StoreOptions) -> Store {
        let open = |url: &PoolUrl| -> Result<OpenIndex, Error> {
            let options = Store::options().create(false);
            engine::open_index(&options, url, IndexOptions::default(), std::convert::identity)
        };
        let first = open(&self.url("pool")).unwrap();
        let (pool, other) = (self.url("pool"), self.url("other"));
        let (attempts, is_away, is_other) =
            (Arc::clone(&self.attempts), Arc::clone(&self.is_away), Arc::clone(&self.is_other));
        let again: Reopen = Arc::new(move || {
            attempts.fetch_add(1, Ordering::SeqCst);
            if is_away.load(Ordering::SeqCst) {
                return Err(Error::Fabric(FabricError::Unreachable { node: 0 }));
            }
            open(if is_other.load(Ordering::SeqCst) { &other } else { &pool })
        });
        Store::over(first, options, Some(pool_name()), Some(again)).unwrap()
    }
}

fn pool_name() -> PoolUrl {
    PoolUrl::file("pool")
}

/// Ends the membership as the pool does.
fn shut_out(store: &Store) {
    store.membership().current().open.note_shut_out();
}

fn fenced() -> Error {
    Error::Fabric(FabricError::Fenced)
}

fn forgotten() -> Error {
    Error::Fabric(FabricError::Forgotten { node: 0 })
}

#[test]
fn sessions_of_all_threads_go_on_after_one_join() {
    let scene = Scene::new();
    let store = scene.store(&Store::options());
    let mut sessions: Vec<_> = (0..8).map(|_| store.session().unwrap()).collect();
    sessions[0].put("key", "value").unwrap();
    for round in 1..=3 {
        shut_out(&store);
        std::thread::scope(|scope| {
            for session in &mut sessions {
                let store = &store;
                scope.spawn(move || {
                    assert_eq!(session.get("key").unwrap().as_deref(), Some(&b"value"[..]));
                    session.put("key", "value").unwrap();
                    assert_eq!(store.session().unwrap().range(..).count(), 1);
                });
            }
        });
        assert_eq!((store.joins(), store.is_shut_out()), (round, false));
        assert_eq!(scene.attempts.load(Ordering::SeqCst) as u64, round);
    }
    assert!(sessions[0].counters().total().round_trips > 0);
}

#[test]
fn a_scan_goes_on_after_the_last_key_that_it_returned() {
    let scene = Scene::new();
    let store = scene.store(&Store::options());
    let session = store.session().unwrap();
    let keys: Vec<_> = (0..1000_u32).map(u32::to_be_bytes).collect();
    session.put_many(&keys.iter().map(|key| (key, "")).collect::<Vec<_>>()).unwrap();
    let met = session.range(..).enumerate().map(|(at, pair)| {
        if at % 100 == 50 {
            shut_out(&store);
        }
        pair.unwrap().0
    });
    assert!(met.eq(keys));
    assert!(store.joins() > 1);
}

#[test]
fn operations_say_why_while_the_pool_cannot_be_joined_and_work_afterwards() {
    let scene = Scene::new();
    let store = scene.store(&Store::options());
    let session = store.session().unwrap();
    scene.is_away.store(true, Ordering::SeqCst);
    shut_out(&store);
    let error = session.put("key", "value").unwrap_err();
    assert!(matches!(error, Error::Outside(_)), "{error:?}");
    assert!(error.is_unsent() && error.is_shut_out() && error.is_disconnected());
    assert!(error.to_string().contains("memory node 0 cannot be reached"), "{error}");
    // After the first wait they fail at once: the number of attempts does not change.
    let before = scene.attempts.load(Ordering::SeqCst);
    for _ in 0..1000 {
        assert!(matches!(session.get("key"), Err(Error::Outside(_))));
    }
    assert!(scene.attempts.load(Ordering::SeqCst) < before + 1000);
    assert!(store.is_shut_out() && store.joins() == 0);
    scene.is_away.store(false, Ordering::SeqCst);
    let mut outcome = session.put("key", "value");
    while matches!(outcome, Err(Error::Outside(_))) {
        std::thread::yield_now();
        outcome = session.put("key", "value");
    }
    outcome.unwrap();
    assert_eq!(session.get("key").unwrap().as_deref(), Some(&b"value"[..]));
}

#[test]
fn operations_that_may_have_taken_effect_are_not_repeated() {
    let scene = Scene::new();
    let store = scene.store(&Store::options());
    let mut link = Link::open(store.membership()).unwrap();
    let mut recover = |error: Error, repeat| {
        block_on(async {
            if link.must_rejoin() {
                link.follow().await.unwrap();
            }
            link.recover(error, repeat, &mut Attempts::default()).await
        })
    };
    recover(fenced(), Repeat::Always).unwrap();
    recover(forgotten(), Repeat::IfUnsent).unwrap();
    let error = recover(fenced(), Repeat::IfUnsent).unwrap_err();
    assert!(matches!(error, Error::Interrupted(_)) && !error.is_unsent() && error.is_shut_out(), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("may have taken effect or not") && text.contains("by itself"), "{text}");
    assert!(matches!(recover(forgotten(), Repeat::Never), Err(Error::Fabric(FabricError::Forgotten { .. }))));
    // An error that does not end the membership is returned by the operation.
    assert!(recover(Error::Fabric(FabricError::Unreachable { node: 0 }), Repeat::Always).is_err());
    assert!(recover(Error::Fabric(FabricError::Lost { node: 1 }), Repeat::Always).is_err());
    recover(Error::Fabric(FabricError::Lost { node: 0 }), Repeat::Always).unwrap();
    assert!(store.joins() >= 4);
    store.session().unwrap().put("key", "value").unwrap();
}

#[test]
fn an_operation_that_ends_every_membership_fails_at_last() {
    let scene = Scene::new();
    let store = scene.store(&Store::options());
    let mut link = Link::open(store.membership()).unwrap();
    let mut attempts = Attempts::default();
    let mut recoveries = 0;
    while block_on(link.recover(forgotten(), Repeat::Always, &mut attempts)).is_ok() {
        recoveries += 1;
    }
    assert_eq!(recoveries, 3);
}

#[test]
fn a_pool_made_in_place_of_the_lost_one_is_joined_only_if_that_is_allowed() {
    let scene = Scene::new();
    let store = scene.store(&Store::options());
    let session = store.session().unwrap();
    scene.is_other.store(true, Ordering::SeqCst);
    shut_out(&store);
    let error = session.put("key", "value").unwrap_err();
    assert!(matches!(error, Error::Outside(_)), "{error:?}");
    assert!(error.to_string().contains("open the store again to use it"), "{error}");
    drop((session, store));

    scene.is_other.store(false, Ordering::SeqCst);
    let store = scene.store(&Store::options().accept_new_pool(true));
    let session = store.session().unwrap();
    session.put("old", "value").unwrap();
    scene.is_other.store(true, Ordering::SeqCst);
    shut_out(&store);
    assert!(matches!(session.put("key", "value"), Err(Error::Replaced)));
    assert!(session.is_empty().unwrap());
    session.put("key", "value").unwrap();
    assert_eq!(store.session().unwrap().range(..).count(), 1);
}

#[test]
fn a_store_that_is_not_to_rejoin_stays_shut_out() {
    let scene = Scene::new();
    for store in [scene.store(&Store::options().rejoin(false)), Store::open("mem:16M").unwrap()] {
        let mut link = Link::open(store.membership()).unwrap();
        let recovered = block_on(link.recover(forgotten(), Repeat::Always, &mut Attempts::default()));
        assert!(matches!(recovered, Err(Error::Fabric(FabricError::Forgotten { node: 0 }))));
        assert!(store.is_shut_out() && !link.must_rejoin() && store.joins() == 0);
    }
    assert_eq!(scene.attempts.load(Ordering::SeqCst), 0);
}

/// The thread that joins again must not keep a store open.
#[test]
fn a_store_is_dropped_while_its_pool_is_away() {
    let scene = Scene::new();
    let store = scene.store(&Store::options());
    scene.is_away.store(true, Ordering::SeqCst);
    shut_out(&store);
    store.session().unwrap().get("key").unwrap_err();
    let membership = Arc::downgrade(store.membership());
    drop(store);
    while membership.strong_count() > 0 {
        std::thread::yield_now();
    }
}
