//! Scans with torn READs: some words are read before a page is split, and the others during the
//! split or after it.

use crate::fixtures::{Unscheduled, advance, finish, process_on, tear, verify, writes};
use crate::quiver::{Quiver, QuiverOptions};
use crate::{Condition, OrderedIndex, ScanRange};
use darter_fabric::block_on;
use darter_pool::Pool;
use darter_sim::{Executor, Sim, WordOrder};
use std::cell::RefCell;

/// Number of READs of a scan that are torn, from the first on.
const READS: usize = 4;
/// Most words of a READ that are read before the others: the head and all slots of a node.
const WORDS: u32 = 20;
/// Words of a node that scans do not need: copies of maps.
const COPIES: u32 = 50;

/// What the scanning process remembers.
#[derive(Clone, Copy, PartialEq)]
enum Memory {
    Nothing,
    Everything,
}

/// Keys of a root with some pages; those with low keys are split.
const PAGES: [&[u8]; 15] = [
    &[0x90],
    &[0xa0],
    &[0xb0],
    &[0xc0],
    &[0x10],
    &[0x20],
    &[0x30],
    &[0xd0],
    &[0x11],
    &[0x21],
    &[0x31],
    &[0x12],
    &[0x22],
    &[0x32],
    &[0x41],
];
/// The same with low keys under a single edge: their page becomes NONE, a node, and NONE.
const NODES: [&[u8]; 15] = [
    &[0x90],
    &[0xa0],
    &[0xb0],
    &[0xc0],
    &[0x30],
    &[0x31],
    &[0xd0],
    &[0x32],
    &[0x33],
    &[0x34],
    &[0x35],
    &[0x36],
    &[0x37],
    &[0x38],
    &[0x39],
];
/// Fewest writing verbs with which a put seals a page and links several parts.
const WRITES_OF_A_PARTING: usize = 9;

/// Most writing verbs of a put.
const WRITES_MAX: usize = 100;

/// Scans a pool with all keys except the last, while the last is put. Returns the keys that the
/// scan found, whether the put had ended when the scan continued, and whether the READ was torn.
fn scan_torn(
    keys: &[&[u8]],
    (reverse, memory): (bool, Memory),
    torn: (usize, u32, WordOrder),
    writes_done: usize,
) -> (Vec<Vec<u8>>, bool, bool) {
    let cache_bytes = if memory == Memory::Everything { 1 << 16 } else { 0 };
    let options = QuiverOptions { page_records: 3, page_delta: 2, cache_bytes, ..QuiverOptions::default() };
    let (last, before) = keys.split_last().unwrap();
    let sim = Sim::new(1, 8 << 20);
    let (pool, quiver) = process_on::<Quiver<Sim>>(&sim, options, before);
    let other = block_on(Pool::open(sim.process(1))).unwrap();
    let _at_the_end = Unscheduled(sim.clone());
    let (mut reads, mut writer) = (pool.client().unwrap(), other.client().unwrap());
    let theirs = block_on(Quiver::open(&mut writer, options)).unwrap();
    let range = ScanRange { reverse, ..ScanRange::all() };
    if memory == Memory::Everything {
        assert_eq!(block_on(quiver.scan(&mut reads, &range, 100)).unwrap().len(), before.len());
    }
    let found = RefCell::new(Vec::new());
    let mut executor = Executor::new(&sim);
    let scanning = executor.spawn(0, async {
        let pairs = quiver.scan(&mut reads, &range, 100).await.unwrap();
        *found.borrow_mut() = pairs.into_iter().map(|(key, _)| key).collect();
    });
    let putting = executor.spawn(1, async {
        theirs.put(&mut writer, last, b"true", Condition::Always).await.unwrap();
    });
    let is_torn = tear(&mut executor, scanning, torn);
    let has_ended = advance(&mut executor, putting, writes_done, writes);
    finish(&mut executor, scanning);
    finish(&mut executor, putting);
    verify(&pool, &quiver, keys);
    drop(executor);
    (found.into_inner(), has_ended, is_torn)
}

/// Tears every READ of a scan at each of its words, in both orders, while the last key's page is
/// split, up to each of the last writing verbs. Returns the number of torn READs.
fn scan_beside_a_put(keys: &[&[u8]], reverse: bool, memory: Memory) -> usize {
    let mut expected: Vec<Vec<u8>> = keys.iter().map(|key| key.to_vec()).collect();
    let last = expected.pop().unwrap();
    expected.sort();
    if reverse {
        expected.reverse();
    }
    let mut torn_reads = 0;
    let mut scan = |torn: (usize, u32, WordOrder), writes_done| {
        let (mut found, has_ended, is_torn) = scan_torn(keys, (reverse, memory), torn, writes_done);
        assert!(found.iter().is_sorted_by(|a, b| if reverse { a > b } else { a < b }), "{found:x?}");
        found.retain(|key| *key != last);
        assert_eq!(found, expected, "{torn:?}, {writes_done} writes of the put");
        torn_reads += usize::from(is_torn);
        (has_ended, is_torn)
    };
    let writes =
        (0..WRITES_MAX).find(|&writes| scan((usize::MAX, 0, WordOrder::Ascending), writes).0).unwrap();
    if writes < WRITES_OF_A_PARTING {
        return 0;
    }
    for nth in 0..READS {
        for words in 1..=WORDS {
            for (words, order) in [
                (words, WordOrder::Ascending),
                (words, WordOrder::Descending),
                (COPIES + words, WordOrder::Descending),
            ] {
                for writes_done in [writes - 3, writes] {
                    if !scan((nth, words, order), writes_done).1 {
                        break;
                    }
                }
            }
        }
    }
    torn_reads
}

fn no_key_is_missed(keys: &[&[u8]], reverse: bool, memory: Memory) {
    let all = (keys.len() / 2..=keys.len()).map(|count| &keys[..count]);
    let torn_reads: usize = all.map(|keys| scan_beside_a_put(keys, reverse, memory)).sum();
    assert!(torn_reads > 100, "{torn_reads} READs were torn during a split");
}

#[test]
fn an_ascending_scan_with_a_torn_read_misses_no_key_of_a_parted_page() {
    no_key_is_missed(&PAGES, false, Memory::Nothing);
}

#[test]
fn a_descending_scan_with_a_torn_read_misses_no_key_of_a_parted_page() {
    no_key_is_missed(&PAGES, true, Memory::Nothing);
}

#[test]
fn an_ascending_scan_with_a_torn_read_misses_no_key_of_a_page_that_becomes_a_node() {
    no_key_is_missed(&NODES, false, Memory::Nothing);
}

#[test]
fn a_descending_scan_with_a_torn_read_misses_no_key_of_a_page_that_becomes_a_node() {
    no_key_is_missed(&NODES, true, Memory::Nothing);
}

#[test]
fn scans_by_remembered_pages_with_a_torn_read_miss_no_key() {
    for keys in [&PAGES, &NODES] {
        for reverse in [false, true] {
            no_key_is_missed(keys, reverse, Memory::Everything);
        }
    }
}
