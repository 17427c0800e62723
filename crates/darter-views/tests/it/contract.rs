//! What every store does.

use darter_group::{StoreRequest, View};
use darter_views::{StoreError, ViewStore};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A view with a primary of its own number.
pub(crate) fn view(number: u64, primary: u64) -> View {
    View { number, ..View::bootstrap(primary, [u64::MAX - 1, u64::MAX]) }
}

/// Asks for a view; returns the one that the store holds then.
pub(crate) fn set(store: &mut ViewStore, wanted: View) -> Result<Option<View>, StoreError> {
    let reply = store.carry_out(&StoreRequest::Set(Arc::new(wanted)))?;
    Ok(reply.map(|reply| View::clone(&reply.view)))
}

/// One store, from its first view on.
pub(crate) fn assert_keeps_views(url: &str) {
    let mut store = ViewStore::open(url, 0).unwrap();
    let mut other = ViewStore::open(url, 0).unwrap();
    assert_eq!(store.view().unwrap(), None);
    assert_eq!(store.carry_out(&StoreRequest::Read).unwrap(), None);
    assert!(matches!(set(&mut store, view(2, 7)), Err(StoreError::Lost { wanted: 2, .. })));
    assert_eq!(set(&mut store, view(1, 7)).unwrap(), Some(view(1, 7)));
    assert_eq!(other.view().unwrap(), Some(view(1, 7)));
    // Not after the current one: too far, again, and late.
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

/// Several replicas ask for each next view at once: each number has one winner, whom all are told.
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
    assert!(beaten.into_inner() > 0, "nobody was in anybody's way");
}
