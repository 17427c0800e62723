//! Races with explicit schedules: processes over the simulated fabric, and operations that are
//! stopped between two of their events while others continue.

use crate::{Condition, OrderedIndex};
use darter_fabric::{GlobalAddr, block_on};
use darter_pool::{Client, Pool, PoolOptions};
use darter_sim::{Event, EventKind, Executor, Sim, TaskId, WordOrder};

/// Rounds of upkeep after which every unlinked object is free, unless another client is pinned.
pub(crate) const ROUNDS: usize = 20;
/// How long a process may be silent before its lease expires.
pub(crate) const LEASE_MS: u64 = 5000;
/// Maximum number of events in which any operation here ends.
const EVENTS: usize = 100_000;

/// Lets verbs execute at once when a test ends; otherwise closing its pool would wait for a
/// scheduler for ever.
pub(crate) struct Unscheduled(pub(crate) Sim);

impl Drop for Unscheduled {
    fn drop(&mut self) {
        self.0.schedule(false);
    }
}

/// Creates a pool of one simulated node, whose hashes are the same in every run, with an index of
/// these keys.
pub(crate) fn process<I: OrderedIndex<Sim>>(options: I::Options, keys: &[&[u8]]) -> (Pool<Sim>, I) {
    process_on(&Sim::new(1, 8 << 20), options, keys)
}

/// Does the same on the caller's memory nodes.
pub(crate) fn process_on<I: OrderedIndex<Sim>>(
    sim: &Sim,
    options: I::Options,
    keys: &[&[u8]],
) -> (Pool<Sim>, I) {
    let secret = Some([0x9e37_79b9_7f4a_7c15, 0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb, 1]);
    let pool_options = PoolOptions { block_bytes: Some(256 << 10), lease_ms: LEASE_MS, secret };
    block_on(async {
        let pool = Pool::create(sim.clone(), &pool_options).await.unwrap();
        pool.set_magazine_objects_max(1);
        let mut client = pool.client().unwrap();
        let index = I::open_or_create(&mut client, options).await.unwrap();
        for key in keys {
            index.put(&mut client, key, b"true", Condition::Always).await.unwrap();
        }
        (pool, index)
    })
}

/// Runs a task until it has performed an event for which `is_last` holds, or has ended.
pub(crate) fn go_on(executor: &mut Executor<'_>, task: TaskId, is_last: impl FnMut(&Event) -> bool) {
    drive(executor, task, <[Event]>::first, is_last);
}

/// Does the same, but picks the last of the events that may come next: of a batch to several nodes,
/// the verbs to the last node execute first.
pub(crate) fn go_on_by_the_last(
    executor: &mut Executor<'_>,
    task: TaskId,
    is_last: impl FnMut(&Event) -> bool,
) {
    drive(executor, task, <[Event]>::last, is_last);
}

fn drive(
    executor: &mut Executor<'_>,
    task: TaskId,
    choose: impl Fn(&[Event]) -> Option<&Event>,
    mut is_last: impl FnMut(&Event) -> bool,
) {
    let mut events = Vec::new();
    for _ in 0..EVENTS {
        executor.events(&mut events);
        events.retain(|event| event.task == task);
        let Some(&event) = choose(&events) else { return };
        executor.perform(event, u32::MAX, WordOrder::Ascending);
        if is_last(&event) {
            return;
        }
    }
    panic!("the task does not end");
}

/// Runs a task until it has performed the given number of counted events. Returns whether it has
/// ended.
pub(crate) fn advance(
    executor: &mut Executor<'_>,
    task: TaskId,
    count: usize,
    is_counted: impl Fn(&Event) -> bool,
) -> bool {
    let mut left = count;
    if left > 0 {
        go_on(executor, task, |event| {
            left -= usize::from(is_counted(event));
            left == 0
        });
    }
    executor.has_ended(task)
}

/// Whether the event executes a verb.
pub(crate) fn executes(event: &Event) -> bool {
    matches!(event.kind, EventKind::Execute { .. })
}

/// Whether the event executes a verb that writes. Between two such events, others see the same
/// state.
pub(crate) fn writes(event: &Event) -> bool {
    matches!(event.kind, EventKind::Execute { access, .. } if access.writes)
}

/// Runs a task until `words` words of its `nth` READ of several words, counted from 0, have
/// executed in this order. Returns whether that READ has more words.
pub(crate) fn tear(
    executor: &mut Executor<'_>,
    task: TaskId,
    (nth, words, order): (usize, u32, WordOrder),
) -> bool {
    let (mut events, mut reads) = (Vec::new(), 0);
    for _ in 0..EVENTS {
        executor.events(&mut events);
        let Some(&event) = events.iter().find(|event| event.task == task) else { return false };
        if let EventKind::Execute { access, .. } = event.kind
            && access.is_long
            && !access.writes
        {
            if reads == nth {
                executor.perform(event, words, order);
                return access.words > words;
            }
            reads += 1;
        }
        executor.perform(event, u32::MAX, WordOrder::Ascending);
    }
    panic!("the task does not end");
}

/// Runs a task to its end.
pub(crate) fn finish(executor: &mut Executor<'_>, task: TaskId) {
    go_on(executor, task, |_| false);
    assert!(executor.has_ended(task), "the task waits for others");
}

/// Runs all tasks to their ends, in turn, as long as any can go on: their next events one after the other.
pub(crate) fn finish_in_turn(executor: &mut Executor<'_>) {
    let mut events = Vec::new();
    while !executor.all_ended() {
        executor.events(&mut events);
        // The one that moved last is first in turn.
        for event in events.chunk_by(|one, other| one.task == other.task).map(|of_task| of_task[0]) {
            executor.perform(event, u32::MAX, WordOrder::Ascending);
        }
    }
}

/// Tries every pair of stops: stops `one` after each number of events, and for each of these stops
/// `two` after each number of events; then lets `one` finish, then `two`. `run` drives one such
/// schedule and returns for each of the two whether it had ended before its stop.
pub(crate) fn each_pair_of_stops(mut run: impl FnMut([usize; 2]) -> [bool; 2]) {
    for one in 0.. {
        for two in 0.. {
            let [is_one_over, is_two_over] = run([one, two]);
            if is_one_over {
                assert!(one > 1, "an operation of several verbs");
                return;
            }
            if is_two_over {
                break;
            }
        }
    }
}

/// Whether the event executes a verb that writes a word, or one that reads it.
pub(crate) fn touches(event: &Event, word: GlobalAddr, does_write: bool) -> bool {
    matches!(event.kind, EventKind::Execute { access, .. }
        if access.start == word.offset() / 8 && access.writes == does_write)
}

/// Runs an operation to its end while all others stand still.
pub(crate) fn alone<T>(pool: &Pool<Sim>, future: impl Future<Output = T>) -> T {
    pool.fabric().run_alone(1 << 20, future).expect("it ends while others stand still")
}

/// Waits until every unlinked object is free, unless another client is pinned.
pub(crate) async fn pass_graces(pool: &Pool<Sim>, index: &impl OrderedIndex<Sim>, client: &mut Client<Sim>) {
    for _ in 0..ROUNDS {
        pool.maintain(client).await.unwrap();
        index.maintain(client).await.unwrap();
    }
}

/// Verifies that no memory was misused and that the index is sound. Returns the number of hints
/// that name nodes that are no longer in the tree.
pub(crate) fn verify(pool: &Pool<Sim>, index: &impl OrderedIndex<Sim>, keys: &[&[u8]]) -> u64 {
    alone(pool, async {
        let mut client = pool.client().unwrap();
        for key in keys {
            assert_eq!(index.get(&mut client, key).await.unwrap(), Some(b"true".to_vec()), "{key:?}");
        }
        let report = index.check(&mut client).await.unwrap();
        assert_eq!(report.violations, Vec::<String>::new());
        assert_eq!(pool.fabric().misuse(), None);
        report.stale_hints
    })
}
