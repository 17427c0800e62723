//! Views in files.

use crate::contract::{assert_has_one_winner, assert_keeps_views, set, view};
use darter_views::{StoreError, ViewStore};

#[test]
fn a_file_keeps_views() {
    let folder = tempfile::tempdir().unwrap();
    assert_keeps_views(&format!("file:{}", folder.path().join("views").display()));
    let folder = tempfile::tempdir().unwrap();
    assert_has_one_winner(&format!("file:{}", folder.path().join("views").display()), 50);
}

#[test]
fn the_files_are_their_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let mut store = ViewStore::open(&format!("file:{}", folder.path().join("views").display()), 0).unwrap();
    set(&mut store, view(1, 7)).unwrap();
    for name in ["views-0", "views-0.lock"] {
        let mode = std::fs::metadata(folder.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[test]
fn files_left_by_a_dead_process_do_not_disturb() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file:{}", folder.path().join("views").display());
    std::fs::write(folder.path().join("views-0.new"), "half a vi").unwrap();
    std::fs::write(folder.path().join("views-0.lock"), "").unwrap();
    let mut store = ViewStore::open(&url, 0).unwrap();
    assert_eq!(store.view().unwrap(), None);
    assert_eq!(set(&mut store, view(1, 7)).unwrap(), Some(view(1, 7)));
}

#[test]
fn damage_is_reported_and_left_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("views-0");
    let mut store = ViewStore::open(&format!("file:{}", folder.path().join("views").display()), 0).unwrap();
    let long = vec![b'['; 1 << 20];
    for damage in [b"".as_slice(), b"{}", b"\xff\xfe", &long] {
        std::fs::write(&path, damage).unwrap();
        let error = set(&mut store, view(2, 7)).unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. } | StoreError::File { .. }), "{error}");
        assert!(error.to_string().contains("views-0"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), damage);
    }
    let mut nowhere = ViewStore::open("file:/nonexistent/views", 0).unwrap();
    assert_eq!(nowhere.view().unwrap(), None);
    assert!(matches!(set(&mut nowhere, view(1, 7)), Err(StoreError::File { .. })));
}
