//! Races of scrubs and splits, with explicit schedules.

use super::super::Dart;
use super::super::interleavings::options;
use super::scrub::{Retired, scrub, scrub_everywhere, segments};
use super::split::split;
use super::table::hits;
use super::{BUCKET_SLOTS, Entry};
use crate::fixtures::{
    LEASE_MS, ROUNDS, Unscheduled, advance, alone, each_pair_of_stops, executes, finish, process, touches,
    verify, writes,
};
use crate::{Condition, IndexError, OrderedIndex};
use darter_fabric::{GlobalAddr, OpKind, block_on};
use darter_pool::{Client, Pool};
use darter_sim::{Executor, Sim};

/// Prefixes with one node each. Their entries fill a one-bucket segment enough for it to split.
const STEMS: [u8; 6] = *b"abcdef";

/// Two keys below each of these one-byte prefixes.
fn keys_of(stems: &[u8]) -> Vec<[u8; 2]> {
    stems.iter().flat_map(|&stem| [[stem, b'1'], [stem, b'2']]).collect()
}

/// A pool whose express skip table has one segment of one bucket, with the entries of these
/// prefixes.
fn one_segment(stems: &[u8]) -> (Pool<Sim>, Dart<Sim>) {
    let keys = keys_of(stems);
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let (pool, dart) = process::<Dart<Sim>>(options(), &keys);
    for &stem in stems {
        assert!(!node_of(&pool, &dart, stem).addr.is_null());
    }
    (pool, dart)
}

/// The node of a prefix, found by its entry.
fn node_of(pool: &Pool<Sim>, dart: &Dart<Sim>, stem: u8) -> Retired {
    let mut client = pool.client().unwrap();
    alone(pool, async {
        let mut client = client.pin(OpKind::Maintain).await.unwrap();
        let table = dart.shared.view(&mut client).await.unwrap();
        let hash = dart.shared.hashed(&[stem]).express(1);
        let mut batch = client.batch();
        let read = batch.read(table.bucket_addr(hash), BUCKET_SLOTS);
        let done = client.submit(batch).await.unwrap();
        let node = hits(done.words(read), hash, 1).next().expect("an entry");
        Retired { addr: node.addr, prefix: vec![stem] }
    })
}

/// Whether an unsealed entry, which a reader would take for a hint, names one of the nodes.
fn is_named(pool: &Pool<Sim>, dart: &Dart<Sim>, nodes: &[Retired]) -> bool {
    let mut client = pool.client().unwrap();
    alone(pool, async {
        let mut client = client.pin(OpKind::Maintain).await.unwrap();
        let table = dart.shared.view(&mut client).await.unwrap();
        let mut is_named = false;
        for segment in segments(&mut client, &table).await.unwrap() {
            let mut batch = client.batch();
            let read = batch.read(segment.segment(), table.segment.words());
            let done = client.submit(batch).await.unwrap();
            let mut entries = done.words(read).iter().map(|&word| Entry::from_word(word));
            is_named |=
                entries.any(|entry| !entry.is_sealed() && nodes.iter().any(|node| node.addr == entry.addr()));
        }
        is_named
    })
}

/// Splits the segment of a prefix the given number of times.
async fn split_at(dart: &Dart<Sim>, client: &mut Client<Sim>, stem: u8, times: usize) {
    let mut client = client.pin(OpKind::Maintain).await.unwrap();
    let table = dart.shared.view(&mut client).await.unwrap();
    for _ in 0..times {
        let hash = dart.shared.hashed(&[stem]).express(1);
        split(&mut client, dart.shared.express(&table), hash, true).await.unwrap();
    }
}

async fn scrub_nodes(
    dart: &Dart<Sim>,
    client: &mut Client<Sim>,
    nodes: &[Retired],
    everywhere: bool,
) -> Result<(), IndexError> {
    let mut client = client.pin(OpKind::Maintain).await.unwrap();
    let table = dart.shared.view(&mut client).await.unwrap();
    if everywhere {
        let is_doomed = |addr: GlobalAddr| nodes.iter().any(|node| node.addr == addr);
        return scrub_everywhere(&mut client, dart.shared.express(&table), is_doomed).await;
    }
    scrub(&mut client, dart.shared.express(&table), nodes).await.map(drop)
}

/// Runs a scrub and a split of the same segment, each stopped at every point.
fn race_of_scrub_and_split(everywhere: bool) {
    each_pair_of_stops(|stops| {
        let (pool, dart) = one_segment(&STEMS);
        let _at_the_end = Unscheduled(pool.fabric().clone());
        let (mut slow, mut quick) = (pool.client().unwrap(), pool.client().unwrap());
        let other = block_on(Dart::open(&mut quick, options())).unwrap();
        // One node belongs to each half.
        let nodes = [node_of(&pool, &dart, STEMS[0]), node_of(&pool, &dart, STEMS[1])];
        let mut executor = Executor::new(pool.fabric());
        let scrubber = executor.spawn(0, async {
            scrub_nodes(&dart, &mut slow, &nodes, everywhere).await.unwrap();
        });
        let splitter = executor.spawn(0, split_at(&other, &mut quick, STEMS[0], 1));
        let has_ended = [
            advance(&mut executor, scrubber, stops[0], executes),
            advance(&mut executor, splitter, stops[1], writes),
        ];
        finish(&mut executor, scrubber);
        finish(&mut executor, splitter);
        assert!(!is_named(&pool, &dart, &nodes), "stopped after {stops:?} verbs");
        verify(&pool, &dart, &[]);
        has_ended
    });
}

#[test]
fn scrub_during_a_split_leaves_no_entry() {
    race_of_scrub_and_split(false);
}

#[test]
fn scrub_of_all_segments_during_a_split_leaves_no_entry() {
    race_of_scrub_and_split(true);
}

/// A client stops for ever in the split of a segment that scrubs have made room in since it was
/// counted: a client that must clear an entry there finishes the split.
#[test]
fn a_split_begun_is_finished_however_few_entries_are_left() {
    each_pair_of_stops(|stops| {
        let (pool, dart) = one_segment(&STEMS);
        let _at_the_end = Unscheduled(pool.fabric().clone());
        let (mut slow, mut quick) = (pool.client().unwrap(), pool.client().unwrap());
        let other = block_on(Dart::open(&mut quick, options())).unwrap();
        let nodes: Vec<Retired> = STEMS[1..].iter().map(|&stem| node_of(&pool, &dart, stem)).collect();
        let mut executor = Executor::new(pool.fabric());
        let splitter = executor.spawn(0, split_at(&dart, &mut slow, STEMS[0], 1));
        let mut has_ended = [advance(&mut executor, splitter, stops[0], executes), false];
        alone(&pool, scrub_nodes(&other, &mut quick, &nodes[1..], false)).unwrap();
        has_ended[1] = advance(&mut executor, splitter, stops[1], writes);
        alone(&pool, scrub_nodes(&other, &mut quick, &nodes[..1], false)).unwrap();
        assert!(!is_named(&pool, &other, &nodes), "stopped after {stops:?} verbs");
        verify(&pool, &other, &[]);
        has_ended
    });
}

/// A client stops for ever in a split, and there is no room for the halves: a scrub reports an
/// error and does not treat the entry as cleared.
#[test]
fn a_split_begun_in_a_full_pool_is_an_error_for_scrubs() {
    let mut refused = 0;
    for verbs in 0.. {
        let (pool, dart) = one_segment(&STEMS);
        let _at_the_end = Unscheduled(pool.fabric().clone());
        let (mut slow, mut quick) = (pool.client().unwrap(), pool.client().unwrap());
        let other = block_on(Dart::open(&mut quick, options())).unwrap();
        let nodes = [node_of(&pool, &dart, STEMS[0]), node_of(&pool, &dart, STEMS[1])];
        let mut executor = Executor::new(pool.fabric());
        let splitter = executor.spawn(0, split_at(&dart, &mut slow, STEMS[0], 1));
        let has_ended = advance(&mut executor, splitter, verbs, executes);
        pool.fabric().refuse_allocation(Some(0));
        let scrubbed = alone(&pool, scrub_nodes(&other, &mut quick, &nodes, false));
        let is_refused = pool.fabric().allocations() > 0;
        pool.fabric().refuse_allocation(None);
        assert_eq!(scrubbed.is_err_and(|error| error.is_out_of_space()), is_refused, "after {verbs} verbs");
        refused += usize::from(is_refused);
        alone(&pool, scrub_nodes(&other, &mut quick, &nodes, false)).unwrap();
        assert!(!is_named(&pool, &other, &nodes), "after {verbs} verbs");
        if has_ended {
            break;
        }
    }
    assert!(refused > BUCKET_SLOTS, "from the first seal to the halves");
}

/// A client stops in a split before it has updated all directory entries, and others split the
/// lower half twice more.
#[test]
fn all_directory_entries_follow_however_soon_halves_split() {
    // All belong to the lower half of a lower half of a lower half.
    let (_, dart) = one_segment(&STEMS);
    let stems: Vec<u8> = (b'a'..=b'z').chain(b'A'..=b'Z').collect();
    let mut low =
        stems.into_iter().filter(|&stem| dart.shared.hashed(&[stem]).express(1).trailing_zeros() >= 3);
    let low: [u8; 5] = std::array::from_fn(|_| low.next().expect("one in eight"));
    let keys = keys_of(&low);
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    for verbs in 0.. {
        let (pool, dart) = one_segment(&low);
        let _at_the_end = Unscheduled(pool.fabric().clone());
        let (mut slow, mut quick) = (pool.client().unwrap(), pool.client().unwrap());
        let mut executor = Executor::new(pool.fabric());
        let splitter = executor.spawn(0, split_at(&dart, &mut slow, low[0], 1));
        let has_ended = advance(&mut executor, splitter, verbs, executes);
        let other = alone(&pool, Dart::open(&mut quick, options())).unwrap();
        alone(&pool, split_at(&other, &mut quick, low[0], 3));
        finish(&mut executor, splitter);
        assert_eq!(verify(&pool, &other, &keys), 0, "after {verbs} verbs");
        let nodes = low.map(|stem| node_of(&pool, &other, stem));
        alone(&pool, scrub_nodes(&other, &mut quick, &nodes, true)).unwrap();
        assert!(!is_named(&pool, &other, &nodes), "after {verbs} verbs");
        verify(&pool, &other, &keys);
        if has_ended {
            return;
        }
    }
}

/// A process dies in a split that it had published, before the other processes were notified. They
/// continue to use the old segment, in which entries of freed nodes are no longer cleared.
#[test]
fn entries_left_in_a_split_segment_lead_no_search_to_free_memory() {
    for side in [0, 1] {
        let verbs = (0..1000).take_while(|&verbs| dies_in_a_split(verbs, side)).count();
        assert!((BUCKET_SLOTS..1000).contains(&verbs), "at least the seals");
    }
}

/// A process dies after `verbs` verbs of a split, and nodes are freed whose entries belong to one
/// half: a scrub of an entry of the other half finishes the split. Returns whether the split had
/// that many verbs.
fn dies_in_a_split(verbs: usize, side: u64) -> bool {
    let keys = keys_of(&STEMS);
    let (pool, dart) = one_segment(&STEMS);
    let sim = pool.fabric();
    let [dying, reading] = [1, 2].map(|process| block_on(Pool::open(sim.process(process))).unwrap());
    let _at_the_end = Unscheduled(sim.clone());
    let (mut client, mut late) = (pool.client().unwrap(), reading.client().unwrap());
    let mut slow = dying.client().unwrap();
    let [reader, writer] = [(); 2].map(|()| block_on(Dart::open(&mut late, options())).unwrap());
    let other = block_on(Dart::open(&mut slow, options())).unwrap();
    let mut executor = Executor::new(sim);
    let splitter = executor.spawn(1, async move {
        split_at(&other, &mut slow, STEMS[0], 1).await;
    });
    let has_ended = advance(&mut executor, splitter, verbs, executes);
    executor.kill(1);
    alone(&pool, async {
        let is_gone = |key: &[u8; 2]| {
            let half = dart.shared.hashed(&key[..1]).express(1) & 1;
            key[1] == b'1' && half == side
        };
        for &[stem, end] in keys.iter().filter(|key| is_gone(key)) {
            // A larger node, whose entry replaces that of the node that it replaces.
            for end in [b'3', b'4'] {
                writer.put(&mut late, &[stem, end], b"true", Condition::Always).await.unwrap();
            }
            for end in [end, b'3', b'4'] {
                assert!(dart.delete(&mut client, &[stem, end]).await.unwrap());
            }
        }
        for _ in 0..ROUNDS {
            sim.advance_ms(LEASE_MS / 4);
            pool.maintain(&mut client).await.unwrap();
            dart.maintain(&mut client).await.unwrap();
            reading.maintain(&mut late).await.unwrap();
        }
        for key in &keys {
            let value = reader.get(&mut late, key).await.unwrap();
            assert_eq!(value.is_none(), is_gone(key), "after {verbs} verbs");
        }
        assert_eq!(sim.misuse(), None, "a search, after {verbs} verbs");
        scrub_nodes(&reader, &mut late, &[], true).await.unwrap();
    });
    assert_eq!(sim.misuse(), None, "a sweep, after {verbs} verbs");
    drop(executor);
    !has_ended
}

/// Two clients split a segment. One links the lower half. The other links the upper half, but dies
/// before the other directory entries name it. The first client retires the segment, so it must
/// complete the directory entries of both halves.
#[test]
fn no_directory_entry_names_a_segment_that_was_retired() {
    let keys = keys_of(&STEMS);
    let mut shared = 0;
    for verbs in 0.. {
        let (pool, dart) = one_segment(&STEMS);
        let sim = pool.fabric();
        let [dying, reading] = [1, 2].map(|process| block_on(Pool::open(sim.process(process))).unwrap());
        let _at_the_end = Unscheduled(sim.clone());
        let [mut client, mut keeper] = [(); 2].map(|()| pool.client().unwrap());
        let (mut doomed, mut late) = (dying.client().unwrap(), reading.client().unwrap());
        let other = block_on(Dart::open(&mut doomed, options())).unwrap();
        let heads = heads(&pool, &dart);
        let mut executor = Executor::new(sim);
        let lower = executor.spawn(0, split_at(&dart, &mut client, STEMS[0], 1));
        let upper = executor.spawn(1, async move {
            split_at(&other, &mut doomed, STEMS[0], 1).await;
        });
        let mut has_ended = advance(&mut executor, upper, verbs, executes);
        has_ended |= advance(&mut executor, lower, 1, |event| touches(event, heads[0], true));
        shared += usize::from(!advance(&mut executor, upper, 1, |event| touches(event, heads[1], true)));
        executor.kill(1);
        finish(&mut executor, lower);
        alone(&pool, async {
            for _ in 0..ROUNDS {
                sim.advance_ms(LEASE_MS / 4);
                pool.maintain(&mut keeper).await.unwrap();
                dart.maintain(&mut keeper).await.unwrap();
                reading.maintain(&mut late).await.unwrap();
            }
            let reader = Dart::open(&mut late, options()).await.unwrap();
            for key in &keys {
                assert!(reader.get(&mut late, key).await.unwrap().is_some(), "after {verbs} verbs");
            }
            scrub_nodes(&reader, &mut late, &[], true).await.unwrap();
        });
        assert_eq!(sim.misuse(), None, "after {verbs} verbs");
        drop(executor);
        if has_ended {
            break;
        }
    }
    assert!(shared > 0, "each links a half");
}

/// The directory entries that decide which client has linked the lower half of the first segment,
/// and the upper half.
fn heads(pool: &Pool<Sim>, dart: &Dart<Sim>) -> [GlobalAddr; 2] {
    let mut client = pool.client().unwrap();
    alone(pool, async {
        let mut client = client.pin(OpKind::Maintain).await.unwrap();
        let table = dart.shared.view(&mut client).await.unwrap();
        [0, 1].map(|index| table.entry_addr(index))
    })
}

/// A segment is split and retired, and a process that had cached it searches again this many rounds
/// later.
#[test]
fn a_view_is_read_again_before_what_it_names_may_be_used_again() {
    let keys = keys_of(&STEMS);
    for rounds in 0..ROUNDS {
        let (pool, dart) = one_segment(&STEMS);
        let (mut client, mut late) = (pool.client().unwrap(), pool.client().unwrap());
        let other = block_on(Dart::open(&mut late, options())).unwrap();
        block_on(async {
            assert!(other.get(&mut late, &keys[0]).await.unwrap().is_some());
            split_at(&dart, &mut client, STEMS[0], 1).await;
            for _ in 0..rounds {
                pool.maintain(&mut client).await.unwrap();
            }
        });
        let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        verify(&pool, &other, &keys);
    }
}
