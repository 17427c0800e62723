//! Records with the words of other records, and leaves in the places of others, as after a sector
//! was written to the wrong place.

use super::nibble::NibbleKey;
use super::page::{PageRef, Shape};
use super::word::{Print, Word};
use super::{Quiver, QuiverOptions};
use crate::fixtures::process;
use crate::{Condition, OrderedIndex, ScanRange};
use darter_fabric::block_on;
use darter_pool::{Client, Pool};
use darter_sim::Sim;
use std::collections::BTreeMap;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;
type Mixed = (Pool<Sim>, Quiver<Sim>, Client<Sim>, Model, Vec<Vec<u8>>);

const OPTIONS: fn() -> QuiverOptions = || QuiverOptions { folds: false, ..QuiverOptions::default() };

/// An index with one page, in which words have all kinds: of records with and without a pair,
/// unchanged, changed and removed. Returns its content, and all keys in order.
fn mixed() -> Mixed {
    let (pool, quiver) = process::<Quiver<Sim>>(OPTIONS(), &[]);
    let mut client = pool.client().unwrap();
    let keys: Vec<Vec<u8>> = (0..48).map(|n| format!("key {n:02}").into_bytes()).collect();
    let mut model: Model = BTreeMap::new();
    for (n, key) in keys.iter().enumerate() {
        model.insert(key.clone(), vec![b'o'; if n % 2 == 0 { 20 } else { 600 }]);
    }
    block_on(quiver.bulk_load(&mut client, model.clone().into_iter())).unwrap();
    for (n, key) in keys.iter().enumerate() {
        match n % 6 {
            2 | 3 => {
                block_on(quiver.put(&mut client, key, b"new", Condition::Always)).unwrap();
                model.insert(key.clone(), b"new".to_vec());
            }
            4 | 5 => {
                block_on(quiver.delete(&mut client, key)).unwrap();
                model.remove(key);
            }
            _ => {}
        }
    }
    (pool, quiver, client, model, keys)
}

/// The page of a key, and the key's rank in it.
fn place(quiver: &Quiver<Sim>, key: &[u8]) -> (PageRef, Shape, usize) {
    let hit = quiver.shared.cache.find(&mut NibbleKey::new(quiver.shared.keys, key)).unwrap();
    let hint = hit.page.unwrap();
    (hint.page, hint.shape, hint.shape.rank(&hint.map, key).unwrap())
}

#[test]
fn a_word_of_another_record_is_damage() {
    let (pool, quiver, mut client, model, keys) = mixed();
    let all: Vec<_> = model.clone().into_iter().collect();
    block_on(async {
        let mut other_client = pool.client().unwrap();
        assert_eq!(quiver.scan(&mut client, &ScanRange::all(), 100).await.unwrap(), all);
        let (page, shape, _) = place(&quiver, &keys[0]);
        let words = client.read(page.addr, page.words()).await.unwrap();
        let mut sector_ends = 0;
        for (key, from) in keys.iter().flat_map(|key| keys.iter().map(move |from| (key, from))) {
            let at = shape.record_at(place(&quiver, key).2);
            let word = words[shape.record_at(place(&quiver, from).2)];
            if word == words[at] {
                continue;
            }
            let addr = page.addr.plus(at as u64 * 8);
            client.post(|batch| batch.write(addr, &[word])).await.unwrap();
            let what = format!("{} of {}", key.escape_ascii(), from.escape_ascii());
            let cold = Quiver::open(&mut other_client, OPTIONS()).await.unwrap();
            assert!(cold.get(&mut other_client, key).await.is_err(), "{what}");
            assert!(quiver.get(&mut client, key).await.is_err(), "{what}, remembered");
            let report = quiver.check(&mut client).await.unwrap();
            assert!(!report.violations.is_empty(), "{what}");
            // A scan checks the hash of an INLINE pair only if it must.
            let ends_sector = addr.offset() % 512 == 504;
            sector_ends += usize::from(ends_sector);
            for range in [ScanRange::all(), ScanRange::all().reversed()] {
                for index in [&quiver, &cold] {
                    let found = index.scan(&mut other_client, &range, 100).await;
                    let is_inline = word >> 61 == 1;
                    assert!(found.is_err() || is_inline && !ends_sector, "{what}: scan");
                }
            }
            client.post(|batch| batch.write(addr, &words[at..=at])).await.unwrap();
        }
        assert!(sector_ends > 0, "no record begins with the last word of a sector");
        assert_eq!(quiver.scan(&mut client, &ScanRange::all(), 100).await.unwrap(), all);
    });
}

/// Such a put retired the other key's leaf.
#[test]
fn a_put_onto_the_leaf_of_another_key_fails() {
    let (pool, quiver, mut client, model, keys) = mixed();
    block_on(async {
        let mut other_client = pool.client().unwrap();
        quiver.scan(&mut client, &ScanRange::all(), 100).await.unwrap();
        let (page, shape, _) = place(&quiver, &keys[0]);
        let words = client.read(page.addr, page.words()).await.unwrap();
        let print = |key| shape.leaf_print(page.addr, key, Print::new(quiver.shared.keys, key));
        let (mut refused, mut twins) = (0, 0);
        for (key, from) in keys.iter().flat_map(|key| keys.iter().map(move |from| (key, from))) {
            let at = shape.record_at(place(&quiver, key).2);
            let word = words[shape.record_at(place(&quiver, from).2)];
            if key == from || Word(word).leaf_object().is_none() {
                continue;
            }
            // A put cannot distinguish such words without reading the leaf, which it does not do.
            if print(key) == print(from) {
                twins += 1;
                continue;
            }
            let addr = page.addr.plus(at as u64 * 8);
            client.post(|batch| batch.write(addr, &[word])).await.unwrap();
            let cold = Quiver::open(&mut other_client, OPTIONS()).await.unwrap();
            let what = format!("{} onto {}", key.escape_ascii(), from.escape_ascii());
            for index in [&cold, &quiver] {
                for condition in [Condition::Always, Condition::Present, Condition::Absent] {
                    let put = index.put(&mut other_client, key, b"lost", condition).await;
                    assert!(put.is_err(), "{what}");
                }
                assert!(index.delete(&mut other_client, key).await.is_err(), "{what}");
            }
            refused += 1;
            client.post(|batch| batch.write(addr, &words[at..=at])).await.unwrap();
        }
        assert!(refused > 1_000 && twins * 8 < refused, "{refused} refused, {twins} twins");
        let all: Vec<_> = model.into_iter().collect();
        assert_eq!(quiver.scan(&mut client, &ScanRange::all(), 100).await.unwrap(), all);
        assert_eq!(quiver.check(&mut client).await.unwrap().violations, [""; 0]);
    });
}

/// Both are complete leaves, so neither checksum shows it.
#[test]
fn a_leaf_in_the_place_of_another_is_damage() {
    let (_pool, quiver, mut client, _, keys) = mixed();
    block_on(async {
        let (page, shape, _) = place(&quiver, &keys[0]);
        let words = client.read(page.addr, page.words()).await.unwrap();
        let leaf = |key: &Vec<u8>| Word(words[shape.record_at(place(&quiver, key).2)]).leaf_object();
        let mut cases = 0;
        for (key, from) in keys.iter().flat_map(|key| keys.iter().map(move |from| (key, from))) {
            let (Some((at, class, bytes)), Some((other, other_class, _))) = (leaf(key), leaf(from)) else {
                continue;
            };
            if key == from || class != other_class {
                continue;
            }
            let own = client.read(at, bytes as usize / 8).await.unwrap();
            let others = client.read(other, bytes as usize / 8).await.unwrap();
            client.post(|batch| batch.write(at, &others)).await.unwrap();
            let what = format!("{} has that of {}", key.escape_ascii(), from.escape_ascii());
            let cold = Quiver::open(&mut client, OPTIONS()).await.unwrap();
            for index in [&cold, &quiver] {
                assert!(index.get(&mut client, key).await.is_err(), "{what}");
                for range in [ScanRange::all(), ScanRange::all().reversed()] {
                    assert!(index.scan(&mut client, &range, 100).await.is_err(), "{what}");
                }
            }
            assert!(!cold.check(&mut client).await.unwrap().violations.is_empty(), "{what}");
            client.post(|batch| batch.write(at, &own)).await.unwrap();
            cases += 1;
        }
        assert!(cases > 100, "{cases} cases");
    });
}
