//! A CAS of the ranges' word that comes late: its giver has read the table, and stalls with the CAS
//! on its way, alive, shut out, or dead, while others change the table as often as they can. At
//! whatever moment it lands, no key is lost, and none is two servers' (rule X11).

use super::super::wire;
use super::*;
use darter_fabric::GlobalAddr;

const SPREAD: XStoreOptions = XStoreOptions { nodes: 0, ..BY_MODELS };
const SPREAD_FAT: XStoreOptions = XStoreOptions { nodes: 0, ..BY_MODELS_FAT };

/// Keys of the worlds here: leaves for four gifts of one range.
const KEYS: u64 = 160;

/// Has the range at a place of the table, by the keys, give its upper half away.
async fn give(index: &XStore<Sim>, client: &mut Client<Sim>, at: usize) -> Result<bool, IndexError> {
    index.find_ranges(client, &index.shared.ranges()).await?;
    let (range, index) = (index.shared.ranges().all[at].descriptor, index.shared.descriptor);
    let answer = if range.addr == index.addr {
        client.call(range.server, wire::GIVE, Vec::new()).await?
    } else {
        client.call(range.server, wire::OF_RANGE, vec![range.addr.bits(), wire::GIVE]).await?
    };
    Ok(wire::outcome(&answer)?.word() == Some(1))
}

/// A giver whose CAS of the ranges' word is posted, and does not execute.
struct Late<'f> {
    executor: Executor<'f>,
    cas: Event,
    /// The giver's process, if it is dead: what else it has posted does not execute.
    dead: Option<u32>,
    dice: Pcg64Mcg,
}

impl<'f> Late<'f> {
    /// Lets the server in a process go on until it posts the CAS.
    fn stalls(sim: &Sim, process: u32, word: GlobalAddr, giver: impl Future<Output = ()> + 'f) -> Self {
        let mut executor = Executor::new(sim);
        executor.spawn(0, giver);
        let (mut events, mut dice) = (Vec::new(), Pcg64Mcg::seed_from_u64(1));
        loop {
            executor.events(&mut events);
            let event = events[dice.random_range(0..events.len())];
            if let EventKind::Execute { access, node, .. } = event.kind
                && (node, access.start * 8, access.writes) == (word.node(), word.offset(), true)
                && executor.process_of(event.task) == process
            {
                return Self { executor, cas: event, dead: None, dice };
            }
            executor.perform(event, u32::MAX, WordOrder::Ascending);
        }
    }

    /// Kills the giver.
    fn kill(&mut self) {
        let process = self.executor.process_of(self.cas.task);
        self.executor.kill(process);
        self.dead = Some(process);
    }

    /// Runs what others do meanwhile; the CAS lands after so many of their events, or behind them.
    /// Returns how many there were before.
    fn lands(mut self, others: impl Future<Output = ()> + 'f, after: u64) -> u64 {
        let others = self.executor.spawn(0, others);
        let (mut events, mut performed) = (Vec::new(), 0);
        while performed < after && !self.executor.has_ended(others) {
            self.perform_one(&mut events, |event, cas| event != cas);
            performed += 1;
        }
        self.executor.perform(self.cas, u32::MAX, WordOrder::Ascending);
        while self.perform_one(&mut events, |_, _| true) {}
        performed
    }

    fn perform_one(&mut self, events: &mut Vec<Event>, is_free: fn(&Event, &Event) -> bool) -> bool {
        self.executor.events(events);
        let is_dead = |event: &Event| self.dead == Some(self.executor.process_of(event.task));
        events.retain(|event| is_free(event, &self.cas) && !is_dead(event));
        if events.is_empty() {
            return false;
        }
        let event = events[self.dice.random_range(0..events.len())];
        self.executor.perform(event, u32::MAX, WordOrder::Ascending);
        true
    }
}

/// Moments for the CAS to land, among the events of others, if there are so many.
const MOMENTS: u64 = 24;

/// Runs a case with the CAS behind all that others do, and then at moments of that.
fn at_all_moments(case: impl Fn(u64) -> u64) {
    let events = case(u64::MAX);
    assert!(events > 100, "only {events} events");
    for moment in 0..MOMENTS {
        case(events * moment / MOMENTS);
    }
}

/// A world with three ranges: the second one's server has made the last table. That of the first
/// ends with what is returned, not when another takes its place.
fn world(options: XStoreOptions) -> (World, Model, XStoreService<Sim>) {
    let (mut world, model) = loaded_on(2, options, KEYS);
    world.process += 1;
    let fabric = world.sim.process(world.process);
    let service = XStoreService::new(&fabric);
    world.server = Some(fabric.serve(0, service.procedures()));
    for at in [0, 1] {
        assert!(block_on(give(&world.index, &mut world.client, at)).unwrap());
    }
    world.train();
    assert_eq!(world.index.range_nodes(), [0, 1, 0]);
    (world, model, service)
}

/// A round of upkeep of all but the giver.
async fn upkeep((index, pool): (&XStore<Sim>, &Pool<Sim>), client: &mut Client<Sim>) {
    pool.maintain(client).await.unwrap();
    let range = index.shared.ranges().all[1].descriptor;
    let words = vec![range.addr.bits(), wire::MAINTAIN];
    client.call(range.server, wire::OF_RANGE, words).await.unwrap();
}

/// The giver lives, and another range's server changes the table twice meanwhile: the word would be
/// what it was if the memory of the table came back.
#[test]
fn a_table_that_was_read_does_not_come_back() {
    for options in [SPREAD, SPREAD_FAT] {
        at_all_moments(|after| {
            let (mut world, model, service) = world(options);
            let (mut giver, mut other) = (world.pool.client().unwrap(), world.pool.client().unwrap());
            let (index, pool) = (world.index.clone(), world.pool.clone());
            let is_given = Cell::new(false);
            let late = Late::stalls(&world.sim, world.process, index.shared.descriptor.ranges(), async {
                is_given.set(give(&index, &mut giver, 0).await.unwrap());
            });
            let others = async {
                for _ in 0..2 {
                    assert!(give(&index, &mut other, 1).await.unwrap());
                    for _ in 0..3 {
                        upkeep((&index, &pool), &mut other).await;
                    }
                }
            };
            let events = late.lands(others, after);
            world.sim.schedule(false);
            assert!(is_given.get(), "it gives by the table that there is then");
            drop((giver, other, service));
            world.assert_sound(&model, &format!("{options:?}, after {after} events"));
            assert_eq!(world.index.range_nodes().len(), 6);
            events
        });
    }
}

/// The giver is dead, or shut out, and another server has its range: it gives the same leaves away.
#[test]
fn a_giver_that_was_replaced_gives_nothing() {
    for (options, is_dead) in [(SPREAD, true), (SPREAD, false), (SPREAD_FAT, true)] {
        let outcomes = Cell::new((0, 0));
        at_all_moments(|after| {
            let what = format!("{options:?}, dead: {is_dead}, after {after} events");
            let (mut world, model, service) = world(options);
            let (mut giver, mut other) = (world.pool.client().unwrap(), world.pool.client().unwrap());
            let (index, pool, sim) = (world.index.clone(), world.pool.clone(), world.sim.clone());
            let mut late = Late::stalls(&world.sim, world.process, index.shared.descriptor.ranges(), async {
                let _ = give(&index, &mut giver, 0).await;
            });
            if is_dead {
                late.kill();
            }
            world.serve();
            let others = async {
                // Others shut out who is silent.
                for _ in 0..if is_dead { 0 } else { 8 } {
                    sim.advance_ms(PoolOptions::default().lease_ms / 2);
                    upkeep((&index, &pool), &mut other).await;
                }
                let mut tries = 0;
                while let Err(error) = index.maintain(&mut other).await {
                    tries += 1;
                    assert!(tries < 100, "{what}: {error}");
                }
                assert!(give(&index, &mut other, 0).await.unwrap());
                upkeep((&index, &pool), &mut other).await;
            };
            let events = late.lands(others, after);
            world.sim.schedule(false);
            drop((giver, other, service));
            world.assert_sound(&model, &what);
            // Its gift is one of the ranges, or was refused.
            let (landed, refused) = outcomes.get();
            outcomes.set(match world.index.range_nodes().len() {
                5 => (landed + 1, refused),
                4 => (landed, refused + 1),
                ranges => panic!("{what}: {ranges} ranges"),
            });
            events
        });
        let (landed, refused) = outcomes.get();
        assert!(landed > 0 && refused > 0, "{landed} gifts of the former server, {refused} refused");
    }
}

/// A client that has not met the table in between knows that another one lies where the one that it
/// has read lay.
#[test]
fn a_table_where_an_older_one_lay_is_another() {
    let (mut world, model, service) = world(SPREAD);
    let (index, pool) = (world.index.clone(), world.pool.clone());
    let table = async |client: &mut Client<Sim>| client.read_words(index.shared.descriptor.ranges()).await;
    let [old] = block_on(table(&mut world.client)).unwrap();
    let mut reader = world.reader(SPREAD.cache_bytes);
    for _ in 0..2 {
        assert!(block_on(give(&index, &mut world.client, 1)).unwrap());
        for _ in 0..3 {
            block_on(pool.maintain(&mut world.client)).unwrap();
            block_on(index.maintain(&mut world.client)).unwrap();
        }
    }
    assert_eq!(block_on(table(&mut world.client)).unwrap(), [old], "the table lies elsewhere");
    assert_eq!(reader.0.range_nodes().len(), 3);
    World::assert_read(&mut reader, &model, "by the table that lies where another lay");
    assert_eq!(reader.0.range_nodes().len(), 5);
    drop((reader, service));
    world.assert_sound(&model, "in the end");
}
