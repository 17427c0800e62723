//! Pools with flipped bits: results may be wrong or errors, but nothing panics, hangs or allocates
//! memory without bound, and a check still walks the pool.

use super::{Bench, TestFabric, Tested};
use darter_fabric::{Endpoint, Fabric, GlobalAddr, block_on};
use darter_index::{Condition, OrderedIndex, ScanRange};
use darter_pool::Pool;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// The size of a pool's memory.
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) nodes: usize,
    pub(crate) node_words: usize,
}

impl Memory {
    fn at(self, word: usize) -> GlobalAddr {
        GlobalAddr::new((word / self.node_words) as u8, (word % self.node_words * 8) as u64)
    }
}

const MEMORY: Memory = Memory { nodes: 2, node_words: (2 << 20) / 8 };
/// Number of words that one READ or WRITE moves here.
const PIECE: usize = 1 << 13;
const KEYS: u32 = 2000;

fn key(n: u32) -> [u8; 4] {
    n.wrapping_mul(0x9e37_79b9).to_be_bytes()
}

/// Every word of every node.
pub(crate) fn image(fabric: &TestFabric, memory: Memory) -> Vec<u64> {
    let mut endpoint = fabric.endpoint().unwrap();
    let mut words = Vec::new();
    for piece in (0..memory.nodes * memory.node_words).step_by(PIECE) {
        let mut batch = endpoint.batch();
        let read = batch.read(memory.at(piece), PIECE);
        let done = block_on(endpoint.submit(batch)).unwrap();
        words.extend_from_slice(done.words(read));
        endpoint.recycle(done);
    }
    words
}

/// Memory that holds an image.
pub(crate) fn memory_with(words: &[u64], memory: Memory) -> TestFabric {
    let fabric = super::memory(memory.node_words as u64 * 8, memory.nodes);
    let mut endpoint = fabric.endpoint().unwrap();
    for (nth, piece) in
        words.chunks(PIECE).enumerate().filter(|(_, piece)| piece.iter().any(|&word| word != 0))
    {
        let mut batch = endpoint.batch();
        batch.write(memory.at(nth * PIECE), piece);
        let done = block_on(endpoint.submit(batch)).unwrap();
        endpoint.recycle(done);
    }
    fabric
}

/// A sound pool with some keys in it.
fn sound_pool<T: Tested>(seed: u64) -> Vec<u64> {
    let mut bench = Bench::<T>::small(MEMORY.nodes, MEMORY.node_words as u64 * 8, seed);
    for n in 0..KEYS {
        let value = n.to_string();
        block_on(bench.index.put(&mut bench.client, &key(n), value.as_bytes(), Condition::Always)).unwrap();
    }
    let Bench { client, index, pool } = bench;
    let fabric = pool.fabric().clone();
    drop((client, index));
    block_on(pool.close()).unwrap();
    image(&fabric, MEMORY)
}

/// Runs every kind of operation; the results do not matter.
async fn try_everything<T: Tested>(fabric: TestFabric) {
    let Ok(pool) = Pool::open(fabric).await else { return };
    let Ok(mut client) = pool.client() else { return };
    let Ok(index) = T::Index::<TestFabric>::open(&mut client, T::options()).await else { return };
    for n in 0..KEYS {
        if let Ok(Some(value)) = index.get(&mut client, &key(n)).await {
            assert!(value.len() < MEMORY.nodes * MEMORY.node_words * 8);
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
    for seed in 0..2 {
        let sound = sound_pool::<T>(seed);
        let used: Vec<usize> = (0..sound.len()).filter(|&word| sound[word] != 0).collect();
        let mut dice = Pcg64Mcg::seed_from_u64(seed);
        for flips in [1, 1, 1, 1, 3, 10, 100].into_iter().cycle().take(140) {
            let mut words = sound.clone();
            for _ in 0..flips {
                let word = used[dice.random_range(0..used.len())];
                words[word] ^= 1 << dice.random_range(0..64);
            }
            block_on(try_everything::<T>(memory_with(&words, MEMORY)));
        }
    }
}
