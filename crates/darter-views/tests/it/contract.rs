//! Properties of every store.

use darter_group::{StoreRequest, View};
use darter_views::{StoreError, ViewStore};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Returns a view whose primary has this number.
pub(crate) fn view(number: u64, primary: u64) -> View {
    View { number, ..View::bootstrap(primary, [u64::MAX - 1, u64::MAX]) }
}

/// Requests a view; returns the view that the store holds afterwards.
pub(crate) fn set(store: &mut ViewStore, wanted: View) -> Result<Option<View>, StoreError> {
    let reply = store.carry_out(&StoreRequest::Set(Arc::new(wanted)))?;
    Ok(reply.map(|reply| View::clone(&reply.view)))
}

/// Checks one store, starting with its first view.
pub(crate) fn assert_keeps_views(url: &str) {
    let mut store = ViewStore::open(url, 0).unwrap();
    let mut other = ViewStore::open(url, 0).unwrap();
    assert_eq!(store.view().unwrap(), None);
    assert_eq!(store.carry_out(&StoreRequest::Read).unwrap(), None);
    assert!(matches!(set(&mut store, view(2, 7)), Err(StoreError::Lost { wanted: 2, .. })));
    assert_eq!(set(&mut store, view(1, 7)).unwrap(), Some(view(1, 7)));
    assert_eq!(other.view().unwrap(), Some(view(1, 7)));
    // Numbers that do not follow the current one: too high, repeated, and old.
    assert_eq!(set(&mut other, view(3, 8)).unwrap(), Some(view(1, 7)));
    assert_eq!(set(&mut other, view(1, 8)).unwrap(), Some(view(1, 7)));
    assert_eq!(set(&mut other, view(2, 8)).unwrap(), Some(view(2, 8)));
    assert_eq!(set(&mut store, view(2, 7)).unwrap(), Some(view(2, 8)));
    assert_eq!(store.carry_out(&StoreRequest::Read).unwrap().unwrap().view.as_ref(), &view(2, 8));
    // Another group's views are its own.
    let mut second = ViewStore::open(url, 1).unwrap();
    assert_eq!(second.view().unwrap(), None);
    assert_eq!(set(&mut second, view(1, 9)).unwrap(), Some(view(1, 9)));
    assert_eq!(store.view().unwrap(), Some(view(2, 8)));
}

/// Several replicas request each next view at once: each number has one winner, which all of them
/// see.
pub(crate) fn assert_has_one_winner(url: &str, views: u64) {
    const REPLICAS: u64 = 4;
    let won: Vec<AtomicU64> = (0..=views).map(|_| AtomicU64::new(0)).collect();
    let beaten = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for replica in 1..=REPLICAS {
            let (won, beaten) = (&won, &beaten);
            scope.spawn(move || {
                let mut store = ViewStore::open(url, 0).unwrap();
                let mut known = 0;
                while known < views {
                    let Some(current) = set(&mut store, view(known + 1, replica)).unwrap() else { continue };
                    assert!(current.number > known);
                    known = current.number;
                    let before = won[known as usize].swap(current.primary, Ordering::SeqCst);
                    assert!(before == 0 || before == current.primary, "view {known} has two primaries");
                    beaten.fetch_add(u64::from(current.primary != replica), Ordering::SeqCst);
                }
            });
        }
    });
    assert!(beaten.into_inner() > 0, "no replica ever lost a race");
}
