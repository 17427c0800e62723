//! Readers that models lead, against splits, training, another generation, and a server that dies.

mod calls;
pub(super) mod emptied;
mod tree;

use super::super::leaf::address;
use super::super::model::{Entry, SubModel, TableRef};
use super::super::root::{ModelsWord, ROOT_WORDS, Root, SLAB_HEAD_BYTES, parse_slab};
use super::*;
use darter_fabric::GlobalAddr;

pub(super) const BY_MODELS: XStoreOptions = XStoreOptions { cache_bytes: u64::MAX, ..INLINE };
pub(super) const BY_MODELS_FAT: XStoreOptions = XStoreOptions { cache_bytes: u64::MAX, ..FAT };

impl World {
    /// The server trains.
    pub(super) fn train(&mut self) {
        block_on(self.index.maintain(&mut self.client)).unwrap();
    }

    /// A process's own view of the index.
    pub(super) fn reader(&self, cache_bytes: u64) -> (XStore<Sim>, Client<Sim>) {
        let mut client = self.pool.client().unwrap();
        let options = XStoreOptions { cache_bytes, ..self.index.shared.options };
        (block_on(XStore::open(&mut client, options)).unwrap(), client)
    }

    /// Everything is as the model says for a reader, in all ways.
    pub(super) fn assert_read((index, client): &mut (XStore<Sim>, Client<Sim>), model: &Model, what: &str) {
        for key in 0..model.len() as u64 * 16 + 40 {
            let key = key.to_be_bytes();
            let found = block_on(index.get(client, &key)).unwrap();
            assert_eq!(found.as_ref(), model.get(&key[..]), "{what}: {key:?}");
        }
        for range in [ScanRange::all(), ScanRange::all().reversed()] {
            let mut found = block_on(index.scan(client, &range, usize::MAX)).unwrap();
            if range.reverse {
                found.reverse();
            }
            assert!(found.into_iter().eq(model.clone()), "{what}");
        }
    }
}

/// A world whose server has trained over so many keys.
fn trained(options: XStoreOptions, keys: u64) -> (World, Model) {
    let (mut world, model) = loaded(options, keys);
    world.train();
    (world, model)
}

/// What the tasks of a race share.
pub(super) struct Race {
    seed: u64,
    chronicle: Chronicle,
    hot: Vec<u64>,
    /// The number of the event at which the server dies, and another one begins.
    kill_at: u64,
    pub(super) was_killed: Cell<bool>,
    reads: Cell<u64>,
    /// Keys that were routed by models.
    routed: Cell<u64>,
    /// How often a range has given leaves away.
    pub(super) given: Cell<u64>,
}

impl Race {
    fn new(model: &Model, seed: u64, keys: u64, kill_at: u64) -> Self {
        let at = Dice(seed.wrapping_mul(0x9e37_79b9) + 7).below(keys) * 16;
        Self::of((0..6).map(|nth| at + nth * 2).collect(), model, seed, kill_at)
    }

    /// Of these keys.
    pub(super) fn of(hot: Vec<u64>, model: &Model, seed: u64, kill_at: u64) -> Self {
        let chronicle = Chronicle::default();
        for &key in &hot {
            chronicle.begin(key, model.get(&key.to_be_bytes()[..]).cloned());
            chronicle.end(key);
        }
        let (was_killed, reads, routed, given) = Default::default();
        Self { seed, chronicle, hot, kill_at, was_killed, reads, routed, given }
    }

    fn hot_key(&self, dice: &mut Dice) -> u64 {
        self.hot[dice.below(self.hot.len() as u64) as usize]
    }

    /// Only beside a server that dies may an operation fail.
    fn allow<T>(&self, outcome: Result<T, IndexError>) -> Option<T> {
        match outcome {
            Ok(done) => Some(done),
            Err(error) => {
                assert!(self.was_killed.get(), "seed {}: {error}", self.seed);
                None
            }
        }
    }

    /// Changes keys of one leaf by calls, and lets the server train.
    async fn write(&self, index: &XStore<Sim>, mut client: Client<Sim>) {
        let mut dice = Dice(self.seed + 1);
        for turn in 0..14_u64 {
            if dice.below(4) == 0 {
                if index.shared.descriptor.nodes > 1 && dice.below(2) == 0 {
                    self.given
                        .set(self.given.get() + self.allow(index.spread(&mut client).await).unwrap_or(0));
                } else {
                    self.allow(index.maintain(&mut client).await);
                }
                continue;
            }
            let key = self.hot_key(&mut dice);
            let new = (dice.below(4) > 0).then(|| (turn + 1000).to_be_bytes().repeat(2));
            self.chronicle.begin(key, new.clone());
            let bytes = key.to_be_bytes();
            let outcome = match new {
                Some(new) => index.put(&mut client, &bytes, &new, Condition::Always).await.map(drop),
                None => index.delete(&mut client, &bytes).await.map(drop),
            };
            // What a server did that died nobody knows.
            if self.allow(outcome).is_some() {
                self.chronicle.end(key);
            }
        }
    }

    /// Reads by models, keys and ranges.
    async fn read(&self, nth: u64, (index, mut client): (XStore<Sim>, Client<Sim>)) {
        let mut dice = Dice(self.seed * 2 + nth);
        let mut seen = BTreeMap::<u64, usize>::new();
        for turn in 0..12 {
            let began = self.chronicle.now.get();
            let found: Option<Vec<(u64, Option<Vec<u8>>)>> = if turn % 4 == 3 {
                let range = ScanRange { reverse: dice.below(2) == 0, ..ScanRange::all() };
                let pairs = self.allow(index.scan(&mut client, &range, usize::MAX).await);
                pairs.map(|pairs| {
                    let is_in_order = pairs.is_sorted_by(|(a, _), (b, _)| a != b && (a < b) != range.reverse);
                    assert!(is_in_order, "seed {}: a scan goes back", self.seed);
                    let pairs: Model = pairs.into_iter().collect();
                    self.hot.iter().map(|key| (*key, pairs.get(&key.to_be_bytes()[..]).cloned())).collect()
                })
            } else {
                let key = self.hot_key(&mut dice);
                let value = self.allow(index.get(&mut client, &key.to_be_bytes()).await);
                value.map(|value| vec![(key, value)])
            };
            self.reads.set(self.reads.get() + 1);
            for (key, value) in found.into_iter().flatten() {
                let seen = seen.entry(key).or_default();
                let is_right = self.chronicle.is_right(key, value.as_ref(), began, seen);
                assert!(is_right, "seed {}: key {key} read as {value:?}", self.seed);
            }
        }
        self.routed.set(self.routed.get() + index.cache_hits().keys);
    }

    /// Lets words interleave as the seed says. Returns the server that has begun, which is to live as
    /// long as its tasks.
    fn drive(&self, world: &World, executor: &mut Executor<'_>) -> Vec<SimServer> {
        let World { sim, pool, process, .. } = world;
        let mut turns = Turns::new(Dice(self.seed.wrapping_mul(0x9e37_79b9) + 3), [1, 3, 9]);
        let (mut events, mut servers) = (Vec::new(), Vec::new());
        loop {
            executor.events(&mut events);
            // What a server that died had posted executes no more.
            events.retain(|event| servers.is_empty() || executor.process_of(event.task) != *process);
            if events.is_empty() {
                break;
            }
            let now = &self.chronicle.now;
            now.set(now.get() + 1);
            if now.get() == self.kill_at {
                self.was_killed.set(true);
                executor.kill(*process);
                let fabric = sim.process(process + 1);
                servers.push(fabric.serve(0, XStoreService::new(&fabric).procedures()));
                let (pool, mut evictor) = (pool.clone(), pool.client().unwrap());
                executor.spawn(0, async move { pool.evict(&mut evictor).await.unwrap() });
                continue;
            }
            turns.take(executor, &events);
        }
        assert!(executor.all_ended(), "seed {}", self.seed);
        servers
    }
}

/// A writer and two readers of one leaf. Returns what was counted.
fn race_by_models(options: XStoreOptions, seed: u64, keys: u64, kill_at: u64) -> Race {
    race_with([u64::MAX, [16, 40, 200][seed as usize % 3]], options, seed, (keys, kill_at))
}

/// The same, with caches of these sizes.
fn race_with(caches: [u64; 2], options: XStoreOptions, seed: u64, (keys, kill_at): (u64, u64)) -> Race {
    let (world, model) = trained(options, keys);
    race_in(&world, Race::new(&model, seed, keys, kill_at), caches, keys)
}

/// The same in a world with so many keys.
pub(super) fn race_in(world: &World, race: Race, caches: [u64; 2], keys: u64) -> Race {
    let (World { sim, pool, index, .. }, seed) = (world, race.seed);
    if seed % 2 == 1 {
        sim.relax(Relaxations { order: true, cas_writes_back: true, split_atomics: true });
    }
    let mut readers = caches.map(|bytes| world.reader(bytes));
    for (index, client) in &mut readers {
        for key in (0..keys).map(|key| (key * 16).to_be_bytes()) {
            block_on(index.get(client, &key)).unwrap();
        }
    }
    let writer = pool.client().unwrap();
    let mut executor = Executor::new(sim);
    executor.spawn(0, race.write(index, writer));
    for (nth, reader) in (1..).zip(readers) {
        executor.spawn(0, race.read(nth, reader));
    }
    let servers = race.drive(world, &mut executor);
    drop(executor);
    sim.schedule(false);
    assert_eq!(sim.misuse(), None, "seed {seed}");
    drop(servers);
    let mut client = pool.client().unwrap();
    if !race.was_killed.get() {
        let report = block_on(index.check(&mut client)).unwrap();
        assert_eq!(report.violations, Vec::<String>::new(), "seed {seed}");
    }
    race
}

#[test]
fn readers_by_models_race_a_server() {
    for (options, seeds) in [(BY_MODELS, 150), (BY_MODELS_FAT, 80)] {
        for seed in 0..seeds {
            let race = race_by_models(options, seed, 15, u64::MAX);
            assert!(race.routed.get() >= race.reads.get(), "nothing was read by models");
        }
    }
}

/// The number of sub-models doubles meanwhile.
#[test]
fn readers_by_models_race_another_generation() {
    for seed in 0..40 {
        race_by_models(BY_MODELS, seed, 199, u64::MAX);
    }
}

#[test]
fn readers_by_models_race_a_server_that_dies() {
    let mut kills = 0;
    for (options, seeds) in [(BY_MODELS, 120), (BY_MODELS_FAT, 60)] {
        for seed in 0..seeds {
            let race = race_by_models(options, seed, 15, seed * 37 % 600);
            kills += u64::from(race.was_killed.get());
        }
    }
    assert!(kills > 100, "{kills}");
}

/// The server dies at words that it writes while it trains, from nothing, for more sub-models, or
/// after a split; another one goes on.
#[test]
fn training_survives_its_server() {
    for (options, keys, more) in [(BY_MODELS, 30, 0), (BY_MODELS, 30, 20), (BY_MODELS_FAT, 195, 12)] {
        for order in [WordOrder::Ascending, WordOrder::Descending] {
            for written in (0..).step_by(5) {
                let what = format!("{keys} keys and {more} more, {order:?} after {written} words");
                let (mut world, mut model) = loaded(options, keys);
                let mut reader = world.reader(u64::MAX);
                if more > 0 {
                    world.train();
                    World::assert_read(&mut reader, &model, &what);
                }
                for number in 0..more {
                    world.put(&mut model, 40 + number * 2 + 1, b"more");
                }
                let (index, mut client) = (world.index.clone(), world.pool.client().unwrap());
                let call = async {
                    let _ = index.maintain(&mut client).await;
                };
                let was_killed = world.kill_after(written, order, call);
                if was_killed {
                    world.serve();
                }
                World::assert_read(&mut reader, &model, &what);
                world.train();
                World::assert_read(&mut reader, &model, &what);
                let mut fresh = world.reader(u64::MAX);
                World::assert_read(&mut fresh, &model, &what);
                drop((reader, fresh, client));
                world.assert_sound(&model, &what);
                if !was_killed {
                    break;
                }
            }
        }
    }
}

/// At each word that a server writes while it trains a sub-model again, all that is there leads to
/// leaves.
#[test]
fn a_submodel_leads_to_a_table_that_is_written() {
    for written in 0..100 {
        let (mut world, mut model) = trained(BY_MODELS, 30);
        for number in 0..20 {
            world.put(&mut model, 41 + number * 2, b"more");
        }
        let World { sim, pool, index, process, .. } = &world;
        let (mut writing, mut reading) = (pool.client().unwrap(), pool.client().unwrap());
        let report = Cell::new(None);
        let mut executor = Executor::new(sim);
        executor.spawn(0, async { index.maintain(&mut writing).await.unwrap() });
        let (mut events, mut left) = (Vec::new(), written);
        let has_ended = loop {
            executor.events(&mut events);
            let Some(&event) = events.first() else { break true };
            if let EventKind::Execute { access, .. } = event.kind
                && access.writes
                && executor.process_of(event.task) == *process
            {
                if left == 0 {
                    break false;
                }
                left -= 1;
            }
            executor.perform(event, 1, WordOrder::Ascending);
        };
        let checker = executor.spawn(0, async {
            report.set(Some(index.inspect(&mut reading, true).await.unwrap().violations));
        });
        while !executor.has_ended(checker) {
            executor.events(&mut events);
            let event = *events.iter().find(|event| event.task == checker).unwrap();
            executor.perform(event, u32::MAX, WordOrder::Ascending);
        }
        drop(executor);
        sim.schedule(false);
        // A sub-model that is half written is no error.
        let mut violations = report.into_inner().unwrap();
        violations.retain(|violation| !violation.contains("do not belong together"));
        assert_eq!(violations, Vec::<String>::new(), "after {written} words");
        if has_ended {
            assert!(written >= 10);
            return;
        }
    }
    panic!("training never ends");
}

/// Leaves of an index that is loaded again are freed, and nobody reads them any more.
#[test]
fn another_generation_is_read_in_the_next_epoch() {
    for options in [BY_MODELS, BY_MODELS_FAT] {
        let (mut world, mut model) = trained(options, 100);
        let mut reader = world.reader(u64::MAX);
        World::assert_read(&mut reader, &model, "at first");
        for key in model.keys() {
            assert!(block_on(world.index.delete(&mut world.client, key)).unwrap());
        }
        for value in model.values_mut() {
            *value = b"again".to_vec();
        }
        let pairs = model.clone().into_iter();
        block_on(world.index.bulk_load(&mut world.client, pairs)).unwrap();
        for _ in 0..20 {
            block_on(world.pool.maintain(&mut world.client)).unwrap();
            world.train();
        }
        World::assert_read(&mut reader, &model, "later");
        assert_eq!(world.sim.misuse(), None);
        drop(reader);
        // What the server has freed of this process's memory is known to it from now on.
        block_on(world.pool.settle(&mut world.client)).unwrap();
        world.assert_sound(&model, "in the end");
    }
}

/// A put whose cache names a leaf that has split since goes to the leaf of its key.
#[test]
fn a_hint_of_a_leaf_that_has_split_is_no_more_than_one() {
    let (mut world, mut model) = trained(BY_MODELS, 30);
    let (index, mut client) = world.reader(u64::MAX);
    for key in 0..500_u64 {
        block_on(index.get(&mut client, &key.to_be_bytes())).unwrap();
    }
    for number in 0..30 {
        world.put(&mut model, 41 + number * 2, b"more");
    }
    let ranges = index.shared.ranges();
    let hinted = (0..500_u64).filter(|key| ranges.all[0].leaf_hint(&key.to_be_bytes()) != 0).count();
    assert!(hinted > 200, "only {hinted} puts have hints");
    for key in 0..500_u64 {
        let value = key.to_le_bytes();
        block_on(index.put(&mut client, &key.to_be_bytes(), &value, Condition::Always)).unwrap();
        model.insert(key.to_be_bytes().to_vec(), value.to_vec());
    }
    drop(client);
    world.assert_sound(&model, "after hints");
}

/// Addresses of all sub-models' words, and of all words of tables.
fn words_of_models(world: &mut World) -> (GlobalAddr, Vec<GlobalAddr>, Vec<GlobalAddr>) {
    let descriptor = world.index.shared.descriptor;
    block_on(async {
        let client = &mut world.client;
        let [word] = client.read_words(descriptor.models()).await.unwrap();
        let root_at = address(descriptor.node, ModelsWord::from_word(word).root);
        let root = Root::parse(&client.read(root_at, ROOT_WORDS).await.unwrap()).unwrap();
        let submodels = (0..root.submodels).filter_map(|submodel| root.place(submodel)).collect();
        let (mut entries, mut slab) = (Vec::new(), root.slabs);
        while !slab.is_null() {
            let (bytes, next) = parse_slab(&client.read(slab, 2).await.unwrap()).unwrap();
            entries.extend((SLAB_HEAD_BYTES..bytes).step_by(8).map(|at| slab.plus(at)));
            slab = next;
        }
        (root_at, submodels, entries)
    })
}

/// Words of models that are any others, or those of other leaves and tables, cost speed alone.
#[test]
fn wrong_models_cost_speed_alone() {
    for seed in 0..60 {
        let options = if seed % 3 == 0 { BY_MODELS_FAT } else { BY_MODELS };
        let (mut world, model) = trained(options, 450);
        let (root, submodels, entries) = words_of_models(&mut world);
        let mut dice = Dice(seed);
        let mut writes: Vec<(GlobalAddr, Vec<u64>)> = Vec::new();
        let random =
            |dice: &mut Dice| dice.below(1 << 31) << 33 ^ dice.below(1 << 31) << 13 ^ dice.below(1 << 31);
        let table = |at: GlobalAddr, room| {
            TableRef::new(at.offset() & !63, room).map(|table| SubModel::NONE.with_table(table))
        };
        match seed % 6 {
            // Any bytes.
            0 => writes.extend(entries.iter().map(|&at| (at, vec![random(&mut dice)]))),
            1 => writes.extend(submodels.iter().map(|&at| (at, vec![random(&mut dice), random(&mut dice)]))),
            // Leaves that are others', in incarnations that they have had or not.
            2 | 3 => {
                let all = block_on(async {
                    let mut all = Vec::new();
                    for &at in &entries {
                        let [word] = world.client.read_words(at).await.unwrap();
                        all.push(Entry::from_word(word));
                    }
                    all
                });
                let mut other = || {
                    let entry = all[dice.below(all.len() as u64) as usize];
                    let count = dice.below(20) as u8;
                    Entry::new(entry.number(), entry.incarnation() + 2 * (seed as u32 % 2), count).word()
                };
                writes.extend(entries.iter().map(|&at| (at, vec![other()])));
            }
            // Tables that are others', or none.
            4 => writes.extend(submodels.iter().filter_map(|&at| {
                let other = entries[dice.below(entries.len() as u64) as usize];
                Some((at, table(other, 8 << dice.below(4))?.words().to_vec()))
            })),
            // A root that is none, with another top model, or other segments.
            _ => {
                let at = [0, 1, 2, 4][dice.below(4) as usize];
                writes.push((root.plus(at * 8), vec![random(&mut dice)]));
            }
        }
        block_on(async {
            for (addr, words) in &writes {
                world.client.post(|batch| batch.write(*addr, words)).await.unwrap();
            }
        });
        for cache_bytes in [u64::MAX, 16, 1] {
            let mut reader = world.reader(cache_bytes);
            World::assert_read(&mut reader, &model, &format!("seed {seed}"));
        }
    }
}
