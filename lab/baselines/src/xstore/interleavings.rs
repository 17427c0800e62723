//! Deaths of the server at every word it writes, and readers that race it, in the simulator.

mod chronicle;
mod dice;
mod late;
mod limits;
mod models;
mod pointers;
mod ranges;
mod service;
mod strangers;
mod torn;

use super::client::look::{Look, look};
use super::leaf::Header;
use super::{XStore, XStoreOptions, XStoreService};
use chronicle::Chronicle;
use darter_fabric::{OpKind, block_on};
use darter_index::{Condition, IndexError, OrderedIndex, ScanRange, Swept};
use darter_pool::{Client, Pool, PoolOptions};
use darter_sim::{Event, EventKind, Executor, Relaxations, Sim, SimServer, WordOrder};
use dice::{Dice, Turns};
use std::cell::Cell;
use std::collections::BTreeMap;

const INLINE: XStoreOptions = XStoreOptions {
    value_words: 2,
    node: 0,
    nodes: 1,
    server: None,
    fill_percent: 75,
    cache_bytes: 0,
    tree_from: None,
};
const FAT: XStoreOptions = XStoreOptions { value_words: 0, ..INLINE };

/// Processes of the servers of nodes behind the first count up from here.
const OTHERS: u32 = 40;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// A pool with an index, and a server in a process of its own.
struct World {
    sim: Sim,
    pool: Pool<Sim>,
    index: XStore<Sim>,
    client: Client<Sim>,
    server: Option<SimServer>,
    process: u32,
    /// Those of the nodes behind the first, and the number of the last one's process.
    others: Vec<SimServer>,
    last_other: u32,
}

impl Drop for World {
    /// A test that fails while verbs wait for its executor must not wait for them, too.
    fn drop(&mut self) {
        self.sim.schedule(false);
    }
}

impl World {
    fn new(options: XStoreOptions) -> Self {
        Self::on(1, options)
    }

    /// On so many nodes, with a server of its own each.
    fn on(nodes: u8, options: XStoreOptions) -> Self {
        let sim = Sim::new(nodes.into(), 8 << 20);
        let pool_options = PoolOptions { block_bytes: Some(256 << 10), ..PoolOptions::default() };
        let pool = block_on(Pool::create(sim.clone(), &pool_options)).unwrap();
        pool.set_magazine_objects_max(1);
        let mut client = pool.client().unwrap();
        let index = block_on(XStore::open_or_create(&mut client, options)).unwrap();
        let (server, others) = (None, Vec::new());
        let mut world = Self { sim, pool, index, client, server, process: 0, others, last_other: OTHERS };
        world.serve();
        (1..nodes).for_each(|node| world.serve_at(node));
        world
    }

    /// Another process becomes the server.
    fn serve(&mut self) {
        self.process += 1;
        let fabric = self.sim.process(self.process);
        self.server = Some(fabric.serve(0, XStoreService::new(&fabric).procedures()));
    }

    /// Another process becomes the server of a node behind the first.
    fn serve_at(&mut self, node: u8) {
        self.last_other += 1;
        let fabric = self.sim.process(self.last_other);
        self.others.push(fabric.serve(node, XStoreService::new(&fabric).procedures()));
    }

    fn put(&mut self, model: &mut Model, key: u64, value: &[u8]) {
        let key = key.to_be_bytes();
        block_on(self.index.put(&mut self.client, &key, value, Condition::Always)).unwrap();
        model.insert(key.to_vec(), value.to_vec());
    }

    /// Lets a call go on until the first node's server has written so many words, and kills that.
    /// Returns whether it had written so many.
    fn kill_after(&mut self, written: u32, order: WordOrder, call: impl Future<Output = ()>) -> bool {
        self.kill_process_after(self.process, written, order, call)
    }

    /// The same of the server in this process.
    fn kill_process_after(
        &mut self,
        process: u32,
        written: u32,
        order: WordOrder,
        call: impl Future<Output = ()>,
    ) -> bool {
        let mut executor = Executor::new(&self.sim);
        executor.spawn(0, call);
        let (mut events, mut left, mut was_killed) = (Vec::new(), written, false);
        for _ in 0..1_000_000 {
            executor.events(&mut events);
            // What a server that died had posted executes no more.
            let is_servers = |event: &Event| executor.process_of(event.task) == process;
            events.retain(|event| !(was_killed && is_servers(event)));
            let Some(&event) = events.first() else { break };
            let is_servers = is_servers(&event);
            if let EventKind::Execute { access, .. } = event.kind
                && is_servers
                && access.writes
            {
                if left == 0 {
                    executor.kill(process);
                    was_killed = true;
                    left = u32::MAX;
                    continue;
                }
                left -= 1;
                executor.perform(event, 1, order);
            } else {
                executor.perform(event, u32::MAX, order);
            }
        }
        drop(executor);
        self.sim.schedule(false);
        if was_killed {
            // Otherwise the next server waits for the lease of this one to end.
            block_on(self.pool.evict(&mut self.client)).unwrap();
        }
        was_killed
    }

    /// Runs a future to its end, whatever else goes on: its waits and the server's take turns.
    fn run<T>(sim: &Sim, future: impl Future<Output = T>) -> T {
        let output = Cell::new(None);
        let mut executor = Executor::new(sim);
        executor.spawn(0, async { output.set(Some(future.await)) });
        let (mut events, mut dice) = (Vec::new(), Dice(1));
        while !executor.all_ended() {
            executor.events(&mut events);
            let event = events[dice.below(events.len() as u64) as usize];
            executor.perform(event, u32::MAX, WordOrder::Ascending);
        }
        drop(executor);
        sim.schedule(false);
        output.into_inner().unwrap()
    }

    /// The index is sound, and with everything dead swept nothing is lost.
    fn assert_sound(&mut self, model: &Model, what: &str) {
        let (index, client) = (&self.index, &mut self.client);
        Self::run(&self.sim, async {
            let expected: Vec<_> = model.clone().into_iter().collect();
            assert_eq!(index.scan(client, &ScanRange::all(), usize::MAX).await.unwrap(), expected, "{what}");
            for (key, value) in model {
                assert_eq!(index.get(client, key).await.unwrap().as_ref(), Some(value), "{what}");
            }
            let report = index.check(client).await.unwrap();
            assert_eq!(report.violations, Vec::<String>::new(), "{what}");
            assert_eq!(report.stats.keys, model.len() as u64, "{what}");
            match index.sweep_dead(client).await.unwrap() {
                Swept::Done(report) => assert!(report.finished && report.violations.is_empty(), "{what}"),
                Swept::Refused(violations) => panic!("{what}: {violations:?}"),
            }
            let report = index.check(client).await.unwrap();
            let audit = self.pool.audit(client, &report.reachable).await.unwrap();
            assert_eq!(audit.violations, Vec::<String>::new(), "{what}");
            assert_eq!(audit.leaked_bytes, 0, "{what}");
        });
        assert_eq!(self.sim.misuse(), None, "{what}");
    }
}

/// What the server is asked for when it dies.
#[derive(Clone, Copy, Debug)]
enum Asked {
    Put(u64),
    Delete(u64),
}

impl Asked {
    const NEW: &[u8] = b"new value";

    async fn call(self, index: &XStore<Sim>, client: &mut Client<Sim>) -> Result<(), IndexError> {
        match self {
            Self::Put(key) => {
                index.put(client, &key.to_be_bytes(), Self::NEW, Condition::Always).await.map(drop)
            }
            Self::Delete(key) => index.delete(client, &key.to_be_bytes()).await.map(drop),
        }
    }

    fn applied(self, model: &Model) -> Model {
        let mut model = model.clone();
        match self {
            Self::Put(key) => drop(model.insert(key.to_be_bytes().to_vec(), Self::NEW.to_vec())),
            Self::Delete(key) => drop(model.remove(&key.to_be_bytes()[..])),
        }
        model
    }
}

/// A world whose first leaf has so many keys, in no order.
fn loaded(options: XStoreOptions, keys: u64) -> (World, Model) {
    loaded_on(1, options, keys)
}

/// The same on so many nodes.
fn loaded_on(nodes: u8, options: XStoreOptions, keys: u64) -> (World, Model) {
    let (mut world, mut model) = (World::on(nodes, options), Model::new());
    for number in 0..keys {
        world.put(&mut model, (number * 7 % keys) * 16, &number.to_le_bytes());
    }
    (world, model)
}

/// The server dies at each word that a call writes. Another one begins, and dies at each word that
/// it writes (every `second`-th, to save time); a third goes on.
fn dies_at_every_word(options: XStoreOptions, keys: u64, asked: Asked, second: usize) {
    for order in [WordOrder::Ascending, WordOrder::Descending] {
        for written in 0.. {
            assert!(written < 2000, "the call never ends");
            let what = format!("{asked:?} {order:?} after {written} words");
            let mut recovered = 0;
            let was_killed = loop {
                let (mut world, before) = loaded(options, keys);
                let outcome = Cell::new(None);
                let (index, mut client) = (world.index.clone(), world.pool.client().unwrap());
                let call = async { outcome.set(Some(asked.call(&index, &mut client).await.is_ok())) };
                let was_killed = world.kill_after(written, order, call);
                let was_answered = outcome.get().unwrap();
                assert!(was_killed || was_answered, "{what}");
                if !was_killed {
                    break false;
                }
                let mut what = what.clone();
                world.serve();
                let mut is_last = true;
                if second != usize::MAX {
                    let (index, mut client) = (world.index.clone(), world.pool.client().unwrap());
                    let call = async {
                        let _ = index.get(&mut client, &0_u64.to_be_bytes()).await;
                    };
                    is_last = !world.kill_after(recovered, order, call);
                    what = format!("{what}, and after {recovered} words of recovery");
                    if !is_last {
                        world.serve();
                    }
                }
                let after = asked.applied(&before);
                let (index, client) = (&world.index, &mut world.client);
                let pairs = World::run(&world.sim, index.scan(client, &ScanRange::all(), usize::MAX));
                let found: Model = pairs.unwrap().into_iter().collect();
                assert!(found == after || found == before && !was_answered, "{what}: a third state");
                world.assert_sound(&found, &what);
                if is_last {
                    break true;
                }
                recovered += second as u32;
            };
            if !was_killed {
                break;
            }
        }
    }
}

#[test]
fn an_insert_survives_its_server() {
    dies_at_every_word(INLINE, 5, Asked::Put(40), usize::MAX);
    dies_at_every_word(FAT, 5, Asked::Put(40), 7);
}

#[test]
fn an_update_survives_its_server() {
    dies_at_every_word(INLINE, 5, Asked::Put(32), 5);
    dies_at_every_word(FAT, 5, Asked::Put(32), usize::MAX);
}

#[test]
fn a_delete_survives_its_server() {
    for key in [0, 32, 64] {
        dies_at_every_word(INLINE, 5, Asked::Delete(key), 3);
        dies_at_every_word(FAT, 5, Asked::Delete(key), 9);
    }
}

#[test]
fn a_split_survives_its_server() {
    dies_at_every_word(INLINE, 16, Asked::Put(100), usize::MAX);
    dies_at_every_word(FAT, 16, Asked::Put(100), usize::MAX);
}

#[test]
fn a_split_survives_its_server_and_the_next() {
    dies_at_every_word(INLINE, 16, Asked::Put(8), 29);
    dies_at_every_word(FAT, 16, Asked::Put(8), 29);
}

/// Reads a key by looks at leaves, from the first one on, and by calls when that leads nowhere.
async fn read(
    index: &XStore<Sim>,
    client: &mut Client<Sim>,
    chronicle: &Chronicle,
    (key, first): (u64, u32),
    known: &mut BTreeMap<u32, u32>,
) -> Option<Vec<u8>> {
    let bytes = key.to_be_bytes();
    let mut number = first;
    {
        let mut pinned = client.pin(OpKind::Get).await.unwrap();
        for _ in 0..6 {
            let seen = known.get(&number).copied();
            let outcome = look(&mut pinned, &index.shared.descriptor, number, &bytes, seen).await.unwrap();
            let note = |known: &mut BTreeMap<u32, u32>, header: Header| {
                known.insert(number, header.incarnation);
            };
            match outcome {
                Look::Present { value, header } => {
                    note(known, header);
                    chronicle.found.set(chronicle.found.get() + 1);
                    return Some(value);
                }
                Look::Absent { .. } => {
                    chronicle.proven.set(chronicle.proven.get() + 1);
                    return None;
                }
                Look::Elsewhere { header } if header.next != 0 => {
                    note(known, header);
                    number = header.next;
                }
                Look::Elsewhere { .. } => break,
                Look::Unproven { header } => note(known, header),
                Look::Again => {}
            }
        }
    }
    index.get(client, &bytes).await.unwrap()
}

/// A writer changes a full leaf by calls, two readers look keys up meanwhile; words interleave as
/// the seed says. Returns how many reads found a value, and proved an absence, without a call.
fn race(options: XStoreOptions, seed: u64, keys: u64) -> (u64, u64) {
    let (world, model) = loaded(options, keys);
    let World { sim, pool, index, .. } = &world;
    if seed % 2 == 1 {
        // What RDMA devices promise.
        sim.relax(Relaxations { order: true, cas_writes_back: true, split_atomics: true });
    }
    let chronicle = Chronicle::default();
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9) + 1);
    let domain: Vec<u64> = (0..keys).flat_map(|number| [number * 16, number * 16 + 8]).collect();
    for &key in &domain {
        chronicle.begin(key, model.get(&key.to_be_bytes()[..]).cloned());
        chronicle.end(key);
    }
    let hot: Vec<u64> = (0..4).map(|_| domain[dice.below(domain.len() as u64) as usize]).collect();
    let first = block_on(async {
        let mut client = pool.client().unwrap();
        client.read_words::<1>(index.shared.descriptor.first()).await.unwrap()[0] as u32
    });
    let mut clients: Vec<_> = (0..3).map(|_| pool.client().unwrap()).collect();
    let mut executor = Executor::new(sim);
    let (mut writer, seeds) = (clients.pop().unwrap(), (dice.below(1 << 30), dice.below(1 << 30)));
    let (chronicle, hot) = (&chronicle, &hot);
    executor.spawn(0, async move {
        let mut dice = Dice(seeds.0);
        for turn in 0..10_u64 {
            let key = hot[dice.below(hot.len() as u64) as usize];
            let new = (dice.below(3) > 0).then(|| (turn + 1000).to_be_bytes().repeat(2));
            chronicle.begin(key, new.clone());
            let bytes = key.to_be_bytes();
            match new {
                Some(new) => {
                    let hint = [0, first, 1 << 20][turn as usize % 3];
                    let pair = (&bytes[..], &new[..]);
                    let ranges = index.shared.ranges();
                    let range = (ranges.of(pair.0), hint);
                    index.put_in(range, &mut writer, pair, Condition::Always).await.unwrap();
                }
                None => drop(index.delete(&mut writer, &bytes).await.unwrap()),
            }
            chronicle.end(key);
        }
    });
    for (reader, mut client) in (1..).zip(clients) {
        executor.spawn(0, async move {
            let mut dice = Dice(seeds.1 + reader);
            let (mut known, mut seen) = (BTreeMap::new(), BTreeMap::<u64, usize>::new());
            for _ in 0..12 {
                let key = hot[dice.below(hot.len() as u64) as usize];
                let began = chronicle.now.get();
                let value = read(index, &mut client, chronicle, (key, first), &mut known).await;
                let is_right = chronicle.is_right(key, value.as_ref(), began, seen.entry(key).or_default());
                assert!(is_right, "seed {seed}: key {key} read as {value:?}");
            }
        });
    }
    let mut events = Vec::new();
    let mut turns = Turns::new(dice, [1, 2, 7]);
    loop {
        executor.events(&mut events);
        if events.is_empty() {
            break;
        }
        turns.take(&mut executor, &events);
        chronicle.now.set(chronicle.now.get() + 1);
    }
    assert!(executor.all_ended(), "seed {seed}");
    drop(executor);
    sim.schedule(false);
    assert_eq!(sim.misuse(), None, "seed {seed}");
    let mut client = pool.client().unwrap();
    assert_eq!(block_on(index.check(&mut client)).unwrap().violations, Vec::<String>::new(), "seed {seed}");
    (chronicle.found.get(), chronicle.proven.get())
}

fn races(options: XStoreOptions, seeds: u64, keys: u64) {
    let (mut found, mut proven) = (0, 0);
    for seed in 0..seeds {
        let (more_found, more_proven) = race(options, seed, keys);
        (found, proven) = (found + more_found, proven + more_proven);
    }
    assert!(found > seeds && proven > seeds, "{found} found and {proven} proven absent");
}

#[test]
fn readers_of_records_race_a_server() {
    races(INLINE, 300, 15);
    races(INLINE, 300, 3);
}

#[test]
fn readers_of_pointers_race_a_server() {
    races(FAT, 150, 15);
    races(FAT, 150, 3);
}

/// A look at the first leaf that stops after some words of its first READ, or before its second,
/// until a writer has done what it does up to the server's write number `writes` of the leaf's
/// header.
fn look_around(
    (options, keys): (XStoreOptions, u64),
    (key, words): (u64, Option<u32>),
    writer: impl AsyncFnOnce(&XStore<Sim>, &mut Client<Sim>),
    writes: u32,
) -> Look {
    let (world, _) = loaded(options, keys);
    let World { sim, pool, index, .. } = &world;
    let (mut reading, mut writing) = (pool.client().unwrap(), pool.client().unwrap());
    let descriptor = index.shared.descriptor;
    let head = block_on(async {
        let first = reading.read_words::<1>(descriptor.first()).await.unwrap()[0] as u32;
        (first, Header::from_word(reading.read_words::<1>(descriptor.leaf(first)).await.unwrap()[0]))
    });
    let outcome = Cell::new(None);
    let mut executor = Executor::new(sim);
    let reader = executor.spawn(0, async {
        let mut pinned = reading.pin(OpKind::Get).await.unwrap();
        let known = Some(head.1.incarnation);
        outcome.set(Some(look(&mut pinned, &descriptor, head.0, &key.to_be_bytes(), known).await.unwrap()));
    });
    let mut events = Vec::new();
    let mut has_read = false;
    // The reader alone.
    loop {
        executor.events(&mut events);
        let event = *events.iter().find(|event| event.task == reader).unwrap();
        match (event.kind, words) {
            (EventKind::Execute { .. }, Some(words)) => {
                executor.perform(event, words, WordOrder::Ascending);
                break;
            }
            (EventKind::Execute { .. }, None) if has_read => break,
            (kind, _) => {
                has_read |= matches!(kind, EventKind::Execute { .. });
                executor.perform(event, u32::MAX, WordOrder::Ascending);
            }
        }
    }
    executor.spawn(0, writer(index, &mut writing));
    let (header_at, mut written) = (descriptor.leaf(head.0).offset() / 8, 0);
    loop {
        executor.events(&mut events);
        let Some(&event) = events.iter().find(|event| event.task != reader) else { break };
        if let EventKind::Execute { access, .. } = event.kind
            && access.writes
            && access.start == header_at
        {
            if written == writes {
                break;
            }
            written += 1;
        }
        executor.perform(event, u32::MAX, WordOrder::Ascending);
    }
    loop {
        executor.events(&mut events);
        let Some(&event) = events.iter().find(|event| event.task == reader) else { break };
        executor.perform(event, u32::MAX, WordOrder::Ascending);
    }
    assert!(executor.has_ended(reader));
    drop(executor);
    outcome.into_inner().unwrap()
}

/// A reader that has seen a key in the last slot meets the record of another insert of that key,
/// which has not counted yet.
#[test]
fn a_record_that_does_not_count_yet_is_not_there() {
    let again = async |index: &XStore<Sim>, client: &mut Client<Sim>| {
        let key = 48_u64.to_be_bytes();
        assert!(index.delete(client, &key).await.unwrap());
        index.put(client, &key, b"not yet", Condition::Always).await.unwrap();
    };
    assert_eq!(look_around((INLINE, 5), (48, None), again, 2), Look::Again);
    let all = look_around((INLINE, 5), (48, None), again, u32::MAX);
    assert!(all == Look::Again, "{all:?}");
}

/// Between two words of a look the last key moves into a slot that has been read, and another one
/// takes its slot.
#[test]
fn a_key_that_moves_during_a_look_is_not_absent() {
    let moves = async |index: &XStore<Sim>, client: &mut Client<Sim>| {
        assert!(index.delete(client, &80_u64.to_be_bytes()).await.unwrap());
        index.put(client, &8_u64.to_be_bytes(), b"another", Condition::Always).await.unwrap();
    };
    assert_eq!(look_around((INLINE, 16), (144, Some(12)), moves, u32::MAX), Look::Again);
}
