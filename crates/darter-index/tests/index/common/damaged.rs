//! Pools with flipped bits: answers may be wrong or errors, but nothing panics, hangs or takes
//! memory without bound, and a check still walks the pool.

use super::{Bench, Dice, TestFabric, Tested};
use darter_fabric::{Endpoint, Fabric, GlobalAddr, block_on};
use darter_index::{Condition, OrderedIndex, ScanRange};
use darter_pool::Pool;

const NODES: usize = 2;
const NODE_WORDS: usize = (2 << 20) / 8;
/// Words that one READ or WRITE moves here.
const PIECE: usize = 1 << 13;
const KEYS: u32 = 2000;

fn key(n: u32) -> [u8; 4] {
    n.wrapping_mul(0x9e37_79b9).to_be_bytes()
}

fn at(word: usize) -> GlobalAddr {
    GlobalAddr::new((word / NODE_WORDS) as u8, (word % NODE_WORDS * 8) as u64)
}

/// Every word of every node.
fn image(fabric: &TestFabric) -> Vec<u64> {
    let mut endpoint = fabric.endpoint().unwrap();
    let mut words = Vec::new();
    for piece in (0..NODES * NODE_WORDS).step_by(PIECE) {
        let mut batch = endpoint.batch();
        let read = batch.read(at(piece), PIECE);
        let done = block_on(endpoint.submit(batch)).unwrap();
        words.extend_from_slice(done.words(read));
        endpoint.recycle(done);
    }
    words
}

/// Memory that holds an image.
fn memory_with(words: &[u64]) -> TestFabric {
    let fabric = super::memory(NODE_WORDS as u64 * 8, NODES);
    let mut endpoint = fabric.endpoint().unwrap();
    for (nth, piece) in
        words.chunks(PIECE).enumerate().filter(|(_, piece)| piece.iter().any(|&word| word != 0))
    {
        let mut batch = endpoint.batch();
        batch.write(at(nth * PIECE), piece);
        let done = block_on(endpoint.submit(batch)).unwrap();
        endpoint.recycle(done);
    }
    fabric
}

/// A sound pool with some keys in it.
fn sound_pool<T: Tested>(seed: u64) -> Vec<u64> {
    let mut bench = Bench::<T>::small(NODES, NODE_WORDS as u64 * 8, seed);
    for n in 0..KEYS {
        let value = n.to_string();
        block_on(bench.index.put(&mut bench.client, &key(n), value.as_bytes(), Condition::Always)).unwrap();
    }
    let Bench { client, index, pool } = bench;
    let fabric = pool.fabric().clone();
    drop((client, index));
    block_on(pool.close()).unwrap();
    image(&fabric)
}

/// Does a bit of everything; what it returns does not matter.
async fn try_everything<T: Tested>(fabric: TestFabric) {
    let Ok(pool) = Pool::open(fabric).await else { return };
    let Ok(mut client) = pool.client() else { return };
    let Ok(index) = T::Index::<TestFabric>::open(&mut client, T::options()).await else { return };
    for n in 0..KEYS {
        if let Ok(Some(value)) = index.get(&mut client, &key(n)).await {
            assert!(value.len() < NODES * NODE_WORDS * 8);
        }
    }
    let _ = index.scan(&mut client, &ScanRange::all(), 10_000).await;
    let _ = index.scan(&mut client, &ScanRange::all().reversed(), 10_000).await;
    for n in 0..50_u32 {
        let _ = index.put(&mut client, &n.to_be_bytes(), b"new", Condition::Always).await;
        let _ = index.delete(&mut client, &key(n)).await;
    }
    let _ = index.maintain(&mut client).await;
    let _ = index.stats(&mut client).await;
    let _ = index.check(&mut client).await;
}

pub(crate) fn damaged_words_neither_panic_nor_hang<T: Tested>() {
    for seed in 0..4 {
        let sound = sound_pool::<T>(seed);
        let used: Vec<usize> = (0..sound.len()).filter(|&word| sound[word] != 0).collect();
        let mut dice = Dice::new(seed);
        for flips in [1, 1, 1, 1, 3, 10, 100].into_iter().cycle().take(140) {
            let mut words = sound.clone();
            for _ in 0..flips {
                let word = used[dice.below(used.len() as u64) as usize];
                words[word] ^= 1 << dice.below(64);
            }
            block_on(try_everything::<T>(memory_with(&words)));
        }
    }
}
