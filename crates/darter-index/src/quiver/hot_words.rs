//! Stale hot words: of another life of their page's memory, or taken from a record that another
//! key's put has changed.

use super::descent::hot_reads;
use super::hint::{HotWord, NodeHint, PageHint, PageSlot};
use super::nibble::NibbleKey;
use super::page::{PageRef, Shape};
use super::word::{Print, Word, twins};
use super::{Quiver, QuiverOptions};
use crate::fixtures::process;
use crate::radix::drafts::Draft;
use crate::{Condition, OrderedIndex, ScanRange};
use darter_fabric::{Batch, OpKind, VerbKind, block_on};
use darter_pool::{AllocKind, Client, Pool};
use darter_sim::Sim;

const OPTIONS: fn() -> QuiverOptions =
    || QuiverOptions { page_records: 8, page_delta: 4, folds: false, ..QuiverOptions::default() };

/// What the process remembers of a key's page: the identity, the node, and the page.
fn remembered(quiver: &Quiver<Sim>, key: &[u8]) -> (u64, NodeHint, PageHint) {
    let hit = quiver.shared.cache.find(&mut NibbleKey::new(quiver.shared.keys, key)).unwrap();
    (hit.identity, hit.node, hit.page.unwrap())
}

/// The hot words of a key's page.
fn hot_words(quiver: &Quiver<Sim>, key: &[u8]) -> Vec<HotWord> {
    let (identity, _, hint) = remembered(quiver, key);
    quiver.shared.cache.hot_words(identity, &hint, 0..hint.shape.records).into_iter().collect()
}

async fn put(quiver: &Quiver<Sim>, client: &mut Client<Sim>, key: &[u8], value: &[u8]) {
    quiver.put(client, key, value, Condition::Always).await.unwrap();
}

/// Creates an index with these keys, whose pairs are all stored in one page, which is remembered.
fn bulk_loaded(keys: &[&[u8]]) -> (Pool<Sim>, Quiver<Sim>, Client<Sim>) {
    let (pool, quiver) = process::<Quiver<Sim>>(OPTIONS(), &[]);
    let mut client = pool.client().unwrap();
    block_on(async {
        let pairs: Vec<_> = keys.iter().map(|key| (key.to_vec(), b"old".to_vec())).collect();
        quiver.bulk_load(&mut client, pairs.into_iter()).await.unwrap();
        for key in keys {
            assert_eq!(quiver.get(&mut client, key).await.unwrap().as_deref(), Some(&b"old"[..]));
        }
    });
    (pool, quiver, client)
}

#[test]
fn a_hot_word_of_another_life_is_not_believed() {
    let key = &b"pear"[..];
    let (_pool, quiver, mut client) = bulk_loaded(&[b"fig", key, b"plum"]);
    let found = block_on(async {
        put(&quiver, &mut client, key, b"older").await;
        assert_eq!(quiver.get(&mut client, key).await.unwrap().as_deref(), Some(&b"older"[..]));
        let (identity, node, hint) = remembered(&quiver, key);
        let [hot] = hot_words(&quiver, key)[..] else { panic!("one word names a leaf") };
        // The page's words, in memory that now has another life.
        let mut operation = client.pin(OpKind::Maintain).await.unwrap();
        let mut words = operation.read(hint.page.addr, hint.page.words()).await.unwrap();
        let addr = operation.alloc(0, hint.page.bytes(), AllocKind::Inner).await.unwrap();
        words[0] = Shape { born: hint.shape.born + 1, ..hint.shape }.guard();
        operation.post(|batch| batch.write(addr, &words)).await.unwrap();
        drop(operation);
        put(&quiver, &mut client, key, b"new").await;
        let gone = PageHint { page: PageRef { addr, ..hint.page }, ..hint };
        quiver.shared.cache.learn_page((identity, node), &gone, gone.shape.born.into());
        quiver.shared.cache.learn_hot(identity, (addr, gone.shape.born), hot);
        assert_eq!(remembered(&quiver, key).2.page, gone.page);
        assert_eq!(hot_words(&quiver, key), [hot]);
        quiver.get(&mut client, key).await.unwrap()
    });
    assert_eq!(found.as_deref(), Some(&b"new"[..]));
}

/// The other key's put died before it restored INLINE.
#[test]
fn record_of_another_keys_leaf_is_not_a_hot_word() {
    // All these pools use the same hash keys.
    let [key, other] = &twins(bulk_loaded(&[b"fig"]).0.secret());
    let (key, other) = (&key[..], &other[..]);
    let (pool, quiver, mut client) = bulk_loaded(&[key]);
    block_on(async {
        let (_, _, hint) = remembered(&quiver, key);
        let rank = hint.shape.rank(&hint.map, key).unwrap();
        assert_eq!(hint.shape.rank(&hint.map, other), Some(rank), "the map leads both to one record");
        let at = hint.page.addr.plus(PageSlot::record(rank).word_at(&hint.shape) as u64 * 8);
        let mut draft = Draft::new(&client, other, b"lost").unwrap();
        let mut operation = client.pin(OpKind::Maintain).await.unwrap();
        let leaf = draft.place(&mut operation, 0).await.unwrap();
        let keys = quiver.shared.keys;
        let print = hint.shape.leaf_print(hint.page.addr, other, Print::new(keys, other));
        let inline = Word::inline(hint.shape.born, Print::new(keys, key));
        let mut batch = operation.batch();
        draft.post(&mut batch);
        let cas = batch.cas(at, inline.0, Word::leaf(print, draft.class, leaf).0);
        assert!(operation.complete(batch).await.unwrap().swapped(cas));
        draft.linked();
        drop(operation);
        // Searches through the nodes, and from what is remembered.
        let mut other_client = pool.client().unwrap();
        let cold = Quiver::open(&mut other_client, OPTIONS()).await.unwrap();
        for (quiver, client) in [(&cold, &mut other_client), (&quiver, &mut client)] {
            for _ in 0..3 {
                assert_eq!(quiver.get(client, key).await.unwrap().as_deref(), Some(&b"old"[..]));
                assert_eq!(quiver.get(client, other).await.unwrap(), None);
            }
        }
    });
}

/// Pairs stored in records are in order already; with leaves among them they are not.
#[test]
fn a_scan_hands_on_the_pair_of_a_hot_word_in_its_place() {
    let keys = [&b"fig"[..], b"pear", b"plum"];
    let (_pool, quiver, mut client) = bulk_loaded(&keys);
    block_on(async {
        put(&quiver, &mut client, keys[1], b"new").await;
        assert_eq!(hot_words(&quiver, keys[1]).len(), 1);
        let pairs = quiver.scan(&mut client, &ScanRange::all(), 9).await.unwrap();
        assert_eq!(pairs.iter().map(|(key, _)| &key[..]).collect::<Vec<_>>(), keys);
        assert_eq!(pairs[1].1, b"new");
    });
}

#[test]
fn leaf_is_read_after_the_words_that_protect_it() {
    let key = &b"pear"[..];
    let (_pool, quiver, mut client) = bulk_loaded(&[key]);
    block_on(put(&quiver, &mut client, key, b"new"));
    let (_, _, hint) = remembered(&quiver, key);
    let [hot] = hot_words(&quiver, key)[..] else { panic!("one word names a leaf") };
    let mut batch = Batch::new();
    hot_reads(&hint, hot, &mut batch).unwrap();
    let (leaf, class, _) = hot.word.leaf_object().unwrap();
    let verbs: Vec<_> = batch.verbs().iter().map(|verb| (verb.kind, verb.addr)).collect();
    let word = hint.page.addr.plus(hot.slot.word_at(&hint.shape) as u64 * 8);
    assert_eq!(verbs, [word, hint.page.addr, leaf].map(|addr| (VerbKind::Read, addr)), "class {class}");
}
