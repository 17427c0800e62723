//! Backups: what they restore, and that a damaged one is refused.

use darter::backup::BackupReader;
use darter::engine::{Engine, KeySpace};
use darter::{BackupError, Error, ErrorKind, IndexKind, Store};

/// A store with keys of a program, of gateways, without a value, and with a large one.
fn filled() -> Store {
    let store = Store::options().index(super::index()).open("mem:64M").unwrap();
    for n in 0..20_000_u32 {
        store.put(n.to_be_bytes(), vec![n as u8; n as usize % 100]).unwrap();
    }
    store.put("", "no key").unwrap();
    store.put([0xff, 0xff], "").unwrap();
    store.put("large", vec![7; 500_000]).unwrap();
    store.session_in(KeySpace::Gateway).unwrap().put("pear", "of a gateway").unwrap();
    store
}

fn pairs(store: &Store) -> Vec<darter::KeyValue> {
    store.session_in(KeySpace::Whole).unwrap().range(..).collect::<Result<_, _>>().unwrap()
}

fn error_of(result: Result<darter::BackupReport, Error>) -> BackupError {
    let Err(Error::Backup(error)) = result else { panic!("{result:?}") };
    error
}

#[test]
fn a_backup_restores_every_pair_in_any_pool() {
    let store = filled();
    let mut backup = Vec::new();
    let report = store.backup(&mut backup).unwrap();
    assert_eq!(report.pairs, 20_004);
    for (url, index) in [("mem:48M?nodes=3", IndexKind::Quiver), ("mem:96M", IndexKind::Dart)] {
        let copy = Store::options().index(index).open(url).unwrap();
        let restored = copy.restore(&backup[..]).unwrap();
        assert_eq!((restored.pairs, restored.bytes), (report.pairs, report.bytes));
        assert_eq!(restored.pool_id, store.pool().id());
        assert!(pairs(&copy) == pairs(&store));
        assert!(copy.check().unwrap().is_sound());
    }
    let mut empty = Vec::new();
    Store::open("mem:16M").unwrap().backup(&mut empty).unwrap();
    let copy = Store::open("mem:16M").unwrap();
    assert_eq!(copy.restore(&empty[..]).unwrap().pairs, 0);
    assert_eq!(pairs(&copy), []);
}

#[test]
fn a_pool_that_is_not_empty_is_left_alone() {
    let (store, mut backup) = (filled(), Vec::new());
    store.backup(&mut backup).unwrap();
    let copy = Store::open("mem:64M").unwrap();
    copy.session_in(KeySpace::Gateway).unwrap().put("plum", "of a gateway").unwrap();
    let error = copy.restore(&backup[..]).unwrap_err();
    assert!(matches!(error, Error::Backup(BackupError::NotEmpty)), "{error}");
    assert_eq!(error.kind(), ErrorKind::Exists);
    assert_eq!(pairs(&copy).len(), 1);
}

/// Every bit that is flipped, and every length, is found, and nothing is restored.
#[test]
fn a_damaged_backup_is_refused_and_restores_nothing() {
    let (store, mut backup) = (filled(), Vec::new());
    store.backup(&mut backup).unwrap();
    let copy = Store::open("mem:64M").unwrap();
    let mut seed = 1_usize;
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let last = backup.len() - 1;
    let early = (0..64).chain([last - 40, last - 20, last - 8, last]);
    for at in early.chain(std::iter::repeat_n(usize::MAX, 40)) {
        let at = if at == usize::MAX { random(last) } else { at };
        let mut damaged = backup.clone();
        damaged[at] ^= 1 << random(8);
        let error = error_of(copy.restore(&damaged[..]));
        assert!(!matches!(error, BackupError::NotEmpty | BackupError::Io(_)), "byte {at}: {error}");
        let error = error_of(copy.restore(&backup[..at]));
        assert!(
            matches!(error, BackupError::CutShort { .. } | BackupError::NotABackup),
            "byte {at}: {error}"
        );
        assert!(copy.session_in(KeySpace::Whole).unwrap().is_empty().unwrap());
    }
    copy.restore(&backup[..]).unwrap();
    assert_eq!(copy.check().unwrap().leaked_bytes, 0);
}

/// Damage that has a right checksum is found too.
#[test]
fn a_backup_of_keys_out_of_order_is_refused() {
    let store = Store::open("mem:16M").unwrap();
    store.put("pear", "green").unwrap();
    let mut backup = Vec::new();
    store.backup(&mut backup).unwrap();
    let (header, rest) = backup.split_at(48);
    let (part, _) = rest.split_at(rest.len() - 32);
    let twice = [header, part, part, &rest[part.len()..]].concat();
    let copy = Store::open("mem:16M").unwrap();
    let error = error_of(copy.restore(&twice[..]));
    assert!(error.to_string().contains("not in order"), "{error}");
    let missing = [header, &rest[part.len()..]].concat();
    let error = error_of(copy.restore(&missing[..]));
    assert!(error.to_string().contains("does not match"), "{error}");
    let mut newer = backup.clone();
    newer[16] = 2;
    assert!(matches!(error_of(copy.restore(&newer[..])), BackupError::Version(2)));
    assert!(matches!(error_of(copy.restore(&b"darter export 1\npear\tgreen"[..])), BackupError::NotABackup));
    assert!(matches!(BackupReader::new(&b""[..]).map(drop), Err(BackupError::NotABackup)));
}

/// Two backups of nearly the same pairs have most of their parts in common.
#[test]
fn parts_begin_at_the_same_keys() {
    use darter::backup::Parts;
    let store = Store::open("mem:256M").unwrap();
    for n in 0..100_000_u32 {
        store.put(n.to_be_bytes(), [7; 64]).unwrap();
    }
    let parts = |store: &Store| -> std::collections::HashSet<Vec<u8>> {
        let mut snapshot = store.snapshot_in(KeySpace::Whole).unwrap();
        Parts::new(&mut snapshot).map(|part| part.unwrap().bytes).collect()
    };
    let before = parts(&store);
    for n in (0..100_000_u32).step_by(40_000) {
        store.put([&n.to_be_bytes()[..], b"new"].concat(), "inserted").unwrap();
    }
    let after = parts(&store);
    assert!(before.len() > 10, "{}", before.len());
    assert!(
        after.difference(&before).count() <= 3,
        "{} of {}",
        after.difference(&before).count(),
        after.len()
    );
}
