//! Wrong hints: with every remembered map and every copy of one wrong, results are still right.

use super::hint::PageHint;
use super::map_copy::{self, COPIES, COPY_WORDS};
use super::nibble::NibbleKey;
use super::node::{self, Content};
use super::operation::Operation;
use super::page::{PageRef, Shape};
use super::word::{Print, Word};
use super::{Quiver, QuiverOptions};
use crate::fixtures::{alone, process_on, verify};
use crate::radix::leaf;
use crate::{Condition, OrderedIndex, ScanRange};
use darter_fabric::OpKind;
use darter_sim::Sim;

use darter_pool::Client;
use std::collections::BTreeMap;

const OPTIONS: fn() -> QuiverOptions =
    || QuiverOptions { page_records: 8, page_delta: 3, ..QuiverOptions::default() };

/// Pseudo-random words and numbers, the same in each run.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ mixed >> 27
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

fn key_of(number: u64) -> [u8; 2] {
    (number as u16).wrapping_mul(0x5bd1).to_be_bytes()
}

/// Overwrites the map that the process remembers for a key.
fn scramble_map(quiver: &Quiver<Sim>, key: &[u8], noise: &mut Noise) -> bool {
    let cache = &quiver.shared.cache;
    let Some(hit) = cache.find(&mut NibbleKey::new(quiver.shared.keys, key)) else { return false };
    let Some(page) = hit.page else { return false };
    let map: Vec<u64> = page.map.iter().map(|_| noise.next()).collect();
    let wrong = PageHint { delta: page.delta, ..PageHint::new(page.page, page.shape, &map) };
    cache.learn_page((hit.identity, hit.node), &wrong, 1);
    true
}

/// Overwrites the copies of maps in the root.
async fn scramble_copies(quiver: &Quiver<Sim>, client: &mut Client<Sim>, noise: &mut Noise) {
    let mut client = client.pin(OpKind::Maintain).await.unwrap();
    let [root] = client.read_words(quiver.shared.words.root).await.unwrap();
    let Content::Node { addr, .. } = node::Slot(root).content() else { unreachable!() };
    let mut words: Vec<u64> = (0..COPIES * COPY_WORDS).map(|_| noise.next()).collect();
    // Some keep their first words, so that they pass for copies of existing pages.
    let copies = client.read(node::copy_addr(addr, 0), words.len()).await.unwrap();
    for at in (0..words.len()).step_by(COPY_WORDS).filter(|at| at % (2 * COPY_WORDS) == 0) {
        words[at] = copies[at];
    }
    client.post(|batch| batch.write(node::copy_addr(addr, 0), &words)).await.unwrap();
}

#[test]
fn wrong_maps_cost_round_trips_and_nothing_else() {
    let sim = Sim::new(1, 8 << 20);
    let (pool, quiver) = process_on::<Quiver<Sim>>(&sim, OPTIONS(), &[]);
    let mut client = pool.client().unwrap();
    let (mut noise, mut model, mut scrambled) = (Noise(7), BTreeMap::new(), 0);
    alone(&pool, async {
        for step in 0..4_000_u64 {
            let (key, other) = (key_of(noise.below(400)), key_of(noise.below(400)));
            for key in [key, other] {
                scrambled += u32::from(scramble_map(&quiver, &key, &mut noise));
            }
            if step % 16 == 0 {
                scramble_copies(&quiver, &mut client, &mut noise).await;
            }
            let value = step.to_le_bytes();
            match noise.below(8) {
                0..3 => {
                    quiver.put(&mut client, &key, &value, Condition::Always).await.unwrap();
                    model.insert(key, value.to_vec());
                }
                3 => {
                    let was_there = quiver.delete(&mut client, &key).await.unwrap();
                    assert_eq!(was_there, model.remove(&key).is_some(), "step {step}");
                }
                4 => {
                    let range = ScanRange { reverse: step % 2 == 0, ..ScanRange::all() };
                    let found = quiver.scan(&mut client, &range, 1 << 16).await.unwrap();
                    let expected = model.iter().map(|(key, value)| (key.to_vec(), value.clone()));
                    let expected: Vec<_> =
                        if range.reverse { expected.rev().collect() } else { expected.collect() };
                    assert_eq!(found, expected, "step {step}");
                }
                _ => {
                    let found = quiver.get(&mut client, &key).await.unwrap();
                    assert_eq!(found.as_ref(), model.get(&key), "step {step}");
                }
            }
        }
    });
    assert!(scrambled > 1_000, "{scrambled} maps were wrong");
    verify(&pool, &quiver, &[]);
}

#[test]
fn record_bytes_within_a_value_are_not_a_record() {
    let sim = Sim::new(1, 8 << 20);
    let options = QuiverOptions { cache_bytes: 0, ..OPTIONS() };
    let (pool, quiver) = process_on::<Quiver<Sim>>(&sim, options, &[]);
    let mut client = pool.client().unwrap();
    let (key, absent) = ([0x10; 8], [0x20; 8]);
    let found = alone(&pool, async {
        let born = client.pin(OpKind::Get).await.unwrap().epoch() as u32;
        // The value is a record of the other key; it begins three words after its own record.
        let print = Print::new(quiver.shared.keys, &absent);
        let spelled = [&[Word::inline(born, print).0], &leaf::image(&absent, b"spelled!")[..]].concat();
        let mut value: Vec<u8> = spelled.iter().flat_map(|word| word.to_le_bytes()).collect();
        value.resize(28 * 8, 0);
        quiver.put(&mut client, &key, &value, Condition::Always).await.unwrap();
        let mut operation = Operation::begin(&quiver.shared, &mut client, OpKind::Get).await.unwrap();
        let (root, _, words) = operation.read_root().await.unwrap();
        let Content::Page { addr, class, .. } = node::slots(&words)[0].content() else { unreachable!() };
        let (shape, _) = operation.read_page(PageRef { addr, class }).await.unwrap();
        assert_eq!((shape.born, shape.records, shape.map_words), (born, 1, 0));
        // With a map of three words, as another page may have had, records begin there.
        let map = [0; 3];
        let other = Shape { records: 6, record_words: 4, map_words: 3, base: 1, width: 31, ..shape };
        let copy = map_copy::copy(&other, &map).unwrap();
        operation.client.post(|batch| batch.write(node::copy_addr(root.addr, 0), &copy)).await.unwrap();
        drop(operation);
        quiver.get(&mut client, &absent).await.unwrap()
    });
    assert_eq!(found, None);
}
