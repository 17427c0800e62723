//! Files that are not a pool, or no longer one: a clear error, no panic, and no change.

use darter::engine::Engine;
use darter::{Error, Store};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::fs;
use std::path::{Path, PathBuf};

const SUPERBLOCK_BYTES: usize = 4096;
const POOL_BYTES: usize = 4 << 20;

fn url(path: &Path) -> String {
    format!("file:{}", path.display())
}

/// A sound pool with some keys in it, as bytes.
fn sound_pool(directory: &Path, nodes: usize, seed: u64) -> Vec<u8> {
    let path = directory.join("sound");
    let size = format!("{}?size={POOL_BYTES}&nodes={nodes}", url(&path));
    let secret = [seed, 1, 2, 3];
    let store = Store::options().block_bytes(256 << 10).secret(secret).open(&size).unwrap();
    let session = store.session().unwrap();
    for n in 0..2000_u32 {
        session.put(n.wrapping_mul(0x9e37_79b9).to_be_bytes(), n.to_string()).unwrap();
    }
    drop((session, store));
    let bytes = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    bytes
}

fn put_file(directory: &Path, bytes: &[u8]) -> PathBuf {
    let path = directory.join("pool");
    fs::write(&path, bytes).unwrap();
    path
}

/// Opening must fail with a message that contains `word`, and leave the file unchanged.
fn refused(path: &Path, word: &str) -> Error {
    let before = fs::read(path).unwrap();
    let error = Store::options().maintenance(false).open(url(path)).map(drop).expect_err("it opened");
    let message = error.to_string();
    assert!(message.contains(word) && message.contains(&path.display().to_string()), "{message}");
    assert!(fs::read(path).unwrap() == before, "the refused file was changed");
    error
}

#[test]
fn absent_and_empty_files_require_a_size() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let error = Store::open(url(&path)).unwrap_err();
    assert!(error.is_usage() && error.to_string().contains("?size="), "{error}");
    assert!(!path.exists());
    assert!(refused(&put_file(directory.path(), b""), "?size=").is_usage());
    // With a size an empty file becomes a pool, in place.
    let store = Store::open(format!("{}?size=4M", url(&path))).unwrap();
    store.session().unwrap().put("k", "v").unwrap();
    drop(store);
    assert_eq!(Store::open(url(&path)).unwrap().session().unwrap().get("k").unwrap().unwrap(), b"v");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "a file was left next to the pool");
}

/// Pools of format version 2 had the records of gateways among the keys of programs.
#[test]
fn a_pool_of_the_version_before_is_refused_with_the_way_out() {
    let directory = tempfile::tempdir().unwrap();
    let mut bytes = sound_pool(directory.path(), 1, 7);
    let version = u64::from_le_bytes(bytes[8..16].try_into().unwrap());
    for earlier in 2..version {
        bytes[8..16].copy_from_slice(&earlier.to_le_bytes());
        let path = put_file(directory.path(), &bytes);
        refused(&path, &format!("format version {earlier}"));
        refused(&path, "export the pool with that program and import the file into a new pool");
    }
    assert!(version > 2);
}

#[test]
fn a_size_does_not_reshape_an_existing_pool() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    drop(Store::open(format!("{}?size=8M&nodes=2", url(&path))).unwrap());
    let store = Store::open(format!("{}?size=64M&nodes=1", url(&path))).unwrap();
    assert_eq!(store.pool().nodes(), 2);
    assert_eq!(fs::metadata(&path).unwrap().len(), 8 << 20);
}

#[test]
fn overwriting_needs_its_option_and_spares_a_pool_in_use() {
    let directory = tempfile::tempdir().unwrap();
    let path = put_file(directory.path(), b"an unrelated file");
    let sized = format!("{}?size=4M", url(&path));
    assert!(Store::open(&sized).is_err());
    assert_eq!(fs::read(&path).unwrap(), b"an unrelated file");
    let overwrite = Store::options().truncate(true);
    let store = overwrite.open(&sized).unwrap();
    store.session().unwrap().put("k", "v").unwrap();
    let error = overwrite.open(&sized).unwrap_err();
    assert!(error.to_string().contains("in use"), "{error}");
    assert_eq!(store.session().unwrap().get("k").unwrap().unwrap(), b"v");
}

#[test]
fn a_failed_creation_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    for size in ["4K", "64K", "1T&nodes=256"] {
        assert!(Store::open(format!("{}?size={size}", url(&path))).is_err(), "{size}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "{size}");
    }
    assert!(Store::open("file:/no/such/directory/pool?size=4M").is_err());
    assert!(Store::open(format!("{}?size=4M", url(directory.path()))).is_err());
}

#[test]
fn foreign_files_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let mut dice = Pcg64Mcg::seed_from_u64(3);
    let noise: Vec<u8> = (0..20_000).map(|_| dice.random::<u8>()).collect();
    for bytes in [&b"x"[..], b"DARTER", &b"key,value\n".repeat(2000), &[0; 10_000], &[0xff; 4096], &noise] {
        refused(&put_file(directory.path(), bytes), "pool");
    }
}

#[test]
fn cut_files_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    for nodes in [1, 2] {
        let pool = sound_pool(directory.path(), nodes, 0);
        for keep in
            [1, 8, 4095, 4096, 4097, POOL_BYTES / 2 - 1, POOL_BYTES / 2, POOL_BYTES - 4096, POOL_BYTES - 1]
        {
            refused(&put_file(directory.path(), &pool[..keep]), "");
        }
    }
}

/// Flips bits of every constant word of the superblock, on both nodes.
#[test]
fn any_flipped_bit_of_a_superblock_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let pool = sound_pool(directory.path(), 2, 0);
    for node in 0..2 {
        for word in 0..16 {
            for bit in [0, 1, 7, 12, 31, 32, 33, 40, 62, 63] {
                let mut bytes = pool.clone();
                let at = node * POOL_BYTES / 2 + word * 8 + bit / 8;
                bytes[at] ^= 1 << (bit % 8);
                let path = put_file(directory.path(), &bytes);
                refused(&path, "");
            }
        }
    }
}

/// Flips bits anywhere else. Opening may succeed, a key may be missing or its search fail, but
/// nothing panics or hangs, and a check still walks the pool. A single flipped bit never yields a
/// wrong value.
fn flip_bits(seed: u64) {
    let directory = tempfile::tempdir().unwrap();
    let pool = sound_pool(directory.path(), 2, seed);
    let used: Vec<usize> = (0..POOL_BYTES / 8)
        .filter(|word| pool[word * 8..word * 8 + 8].iter().any(|&byte| byte != 0))
        .collect();
    let mut dice = Pcg64Mcg::seed_from_u64(seed);
    for flips in [1, 1, 1, 1, 3, 10, 100].into_iter().cycle().take(140) {
        let mut bytes = pool.clone();
        for _ in 0..flips {
            let word = used[dice.random_range(0..used.len())];
            bytes[word * 8 + dice.random_range(0..8_usize)] ^= 1 << dice.random_range(0..8);
        }
        let path = put_file(directory.path(), &bytes);
        let Ok(store) = Store::options().maintenance(false).open(url(&path)) else { continue };
        let Ok(session) = store.session() else { continue };
        for n in 0..2000_u32 {
            let key = n.wrapping_mul(0x9e37_79b9).to_be_bytes();
            if let Ok(Some(value)) = session.get(key) {
                assert!(flips > 1 || value == n.to_string().as_bytes(), "key {n}: {value:?}");
            }
        }
        for step in session.range(..).limit(10_000) {
            if step.is_err() {
                break;
            }
        }
        for n in 0..50_u32 {
            let _ = session.put(n.to_be_bytes(), "new");
            let _ = session.discard(n.wrapping_mul(0x9e37_79b9).to_be_bytes());
        }
        let _ = store.check();
    }
}

#[test]
fn flipped_bits_anywhere_neither_panic_nor_hang() {
    for seed in 5..10 {
        flip_bits(seed);
    }
}

/// Flips every bit of a pair and of the lengths before it, as a medium may do.
#[test]
fn a_flipped_bit_in_a_pair_is_an_error_and_no_answer() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sound");
    {
        let store = Store::open(format!("{}?size=4M", url(&path))).unwrap();
        let session = store.session().unwrap();
        for number in 0..30 {
            session.put(format!("fruit {number:02}"), "orange").unwrap();
        }
    }
    let pool = fs::read(&path).unwrap();
    let pair = b"fruit 17orange";
    let at = pool.windows(pair.len()).position(|bytes| bytes == pair).unwrap();
    // All bits of the header except those that count searches.
    let header = (0..49).map(|bit| (at - 8 + bit / 8, bit % 8));
    let bits = header.chain((0..pair.len() * 8).map(|bit| (at + bit / 8, bit % 8)));
    for (byte, bit) in bits {
        let mut damaged = pool.clone();
        damaged[byte] ^= 1 << bit;
        let store =
            Store::options().maintenance(false).open(url(&put_file(directory.path(), &damaged))).unwrap();
        let session = store.session().unwrap();
        let error = session.get("fruit 17").expect_err("damage was returned as a value");
        assert!(error.to_string().contains("damaged"), "{error}");
        // The other keys are found, even if their search meets the damaged pair on its way.
        for other in (0..30).filter(|&number| number != 17) {
            assert_eq!(session.get(format!("fruit {other:02}")).unwrap().unwrap(), b"orange");
        }
        assert!(!store.check().unwrap().is_sound(), "byte {byte}, bit {bit}");
    }
}

/// A slot of an unknown type once kept the check in a node's list of leaves for ever.
#[test]
fn a_slot_of_no_known_type_does_not_hang_the_check() {
    flip_bits(0);
}

/// A superblock of zeros after a sound first one, nodes in the wrong order, another pool's second
/// half.
#[test]
fn regions_that_do_not_belong_together_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (one, other) = (sound_pool(directory.path(), 2, 0), sound_pool(directory.path(), 2, 0));
    let half = POOL_BYTES / 2;
    let mixed = [&one[..half], &other[half..]].concat();
    let swapped = [&one[half..], &one[..half]].concat();
    let mut blanked = one.clone();
    blanked[half..half + SUPERBLOCK_BYTES].fill(0);
    for bytes in [mixed, swapped, blanked] {
        refused(&put_file(directory.path(), &bytes), "");
    }
}
