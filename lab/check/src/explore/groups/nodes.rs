//! The memory nodes of a run, each a simulated group in a separate world. All worlds use one clock,
//! and every process is a client of each group, under the same number.

use super::outcomes::Outcomes;
use darter_fabric::{Fabric, FabricError, Verb};
use darter_group::Options;
use darter_sim::groups::{Counts, MS, Payload, Random, Setup, World};
use darter_sim::{DivertedBatch, Sim};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Parts in which a region is copied to a learner.
const COPIES: u64 = 16;
/// The difference between the seeds of a run's groups.
const SEED_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The result of a batch.
pub(super) type Answer = Result<Vec<u64>, FabricError>;

/// A batch to which not all of its groups have replied.
#[derive(Debug)]
struct UnderWay {
    verbs: Vec<Verb>,
    /// Groups that have not replied.
    left: usize,
    /// Replies of the other groups.
    words: BTreeMap<usize, VecDeque<u64>>,
    error: Option<FabricError>,
}

fn group_of(verb: &Verb) -> usize {
    verb.addr.node().into()
}

impl UnderWay {
    fn new(verbs: Vec<Verb>) -> Self {
        let left = verbs.iter().map(group_of).collect::<BTreeSet<_>>().len();
        Self { verbs, left, words: BTreeMap::new(), error: None }
    }

    fn answered(&mut self, group: usize, answer: Answer) {
        self.left -= 1;
        match answer {
            Ok(words) => drop(self.words.insert(group, words.into())),
            Err(error) => self.error = Some(error),
        }
    }

    /// Returns the words of all groups in the order of the verbs.
    fn end(mut self) -> Answer {
        if let Some(error) = self.error {
            return Err(error);
        }
        let mut words = Vec::new();
        for verb in &self.verbs {
            let count = verb.reply_words();
            let own = self.words.get_mut(&group_of(verb)).into_iter();
            words.extend(own.flat_map(|own| own.drain(..count.min(own.len()))));
        }
        Ok(words)
    }
}

/// The groups.
pub(super) struct Nodes {
    worlds: Vec<World<Outcomes>>,
    /// The client number of each process, the same in all worlds.
    clients: BTreeMap<u32, usize>,
    under_way: BTreeMap<u64, UnderWay>,
    now: u64,
    /// Events performed.
    pub(super) steps: u64,
}

impl Nodes {
    /// Creates groups whose regions hold the contents of the simulation's nodes. The replicas of
    /// every second seed keep logs, and a view of every fourth seed needs two members.
    pub(super) fn found(sim: &Sim, count: u8, seed: u64, is_traced: bool) -> Self {
        let world = |node: u8| {
            let bytes = sim.node_bytes(node);
            let options = Options {
                copy_bytes: (bytes / COPIES) as usize,
                copies_under_way: 2,
                channel_frames_max: 64,
                members_min: if seed % 4 == 3 { 2 } else { 1 },
                kept_bytes_max: if seed % 8 < 4 { 0 } else { 1 << 20 },
                ..Options::default()
            };
            let (content, is_durable) = (Some(sim.content(node)), seed % 2 == 1);
            let setup = Setup { options, bytes: bytes as usize, content, is_durable };
            let seed = seed.wrapping_add(SEED_STEP.wrapping_mul(node.into()));
            World::new(seed, Outcomes::default(), setup, is_traced)
        };
        let worlds = (0..count).map(world).collect();
        Self { worlds, clients: BTreeMap::new(), under_way: BTreeMap::new(), now: 0, steps: 0 }
    }

    /// Starts the groups' faults.
    pub(super) fn begin_faults(&mut self) {
        self.worlds.iter_mut().for_each(World::begin_faults);
    }

    /// Ends the groups' faults.
    pub(super) fn calm(&mut self) {
        self.worlds.iter_mut().for_each(World::calm);
    }

    /// Returns the time in nanoseconds.
    pub(super) fn now(&self) -> u64 {
        self.now
    }

    /// Returns the client number of a process; a new process joins all groups.
    fn client(&mut self, process: u32, random: &mut Random) -> usize {
        if let Some(&client) = self.clients.get(&process) {
            return client;
        }
        let client = self.clients.len();
        for world in &mut self.worlds {
            let joined = world.join(u64::from(process) + 1);
            debug_assert_eq!(joined, client, "processes join all groups in the same order");
            world.watch(client, random.below(100 * MS));
        }
        self.clients.insert(process, client);
        client
    }

    /// Sends a batch after `pause` nanoseconds.
    pub(super) fn post(&mut self, batch: DivertedBatch, pause: u64, random: &mut Random) {
        let client = self.client(batch.process, random);
        for (group, world) in self.worlds.iter_mut().enumerate() {
            let own: Vec<Verb> = batch.verbs.iter().filter(|verb| group_of(verb) == group).copied().collect();
            if !own.is_empty() {
                world.post_after(pause, client, Payload::new(batch.id, &own, &batch.data));
            }
        }
        self.under_way.insert(batch.id, UnderWay::new(batch.verbs));
    }

    /// Performs the earliest event. Returns whether there was one.
    pub(super) fn step(&mut self) -> bool {
        let next = |world: &&mut World<Outcomes>| world.next_event().unwrap_or(u64::MAX);
        let Some(world) = self.worlds.iter_mut().min_by_key(next) else { return false };
        let has_happened = world.step();
        self.now = world.now();
        self.steps += 1;
        self.worlds.iter_mut().for_each(|world| world.wait_until(self.now));
        has_happened
    }

    /// Returns the batches to which all their groups have now replied.
    pub(super) fn answered(&mut self) -> Vec<(u64, Answer)> {
        let mut ended = Vec::new();
        for (group, world) in self.worlds.iter_mut().enumerate() {
            for (id, answer) in world.users.answers.drain(..) {
                let Some(batch) = self.under_way.get_mut(&id) else { continue };
                batch.answered(group, answer);
                if batch.left == 0 {
                    ended.extend(self.under_way.remove(&id).map(|batch| (id, batch.end())));
                }
            }
        }
        ended
    }

    /// Marks a process as dead. Frames on its connections may still arrive.
    pub(super) fn leave(&mut self, process: u32, random: &mut Random) {
        let client = self.client(process, random);
        self.worlds.iter_mut().for_each(|world| world.leave(client));
    }

    /// Makes each group shut a process out that has not done so.
    pub(super) fn shut_out(&mut self, process: u32, random: &mut Random) {
        let client = self.client(process, random);
        for world in self.worlds.iter_mut().filter(|world| !world.users.fenced.contains(&client)) {
            world.shut_out_after(0, client);
        }
    }

    /// Returns the processes that all groups have now shut out and that were not returned before.
    pub(super) fn newly_shut_out(&mut self) -> Vec<u32> {
        let mut news: BTreeSet<usize> = BTreeSet::new();
        self.worlds.iter_mut().for_each(|world| news.extend(world.users.news.drain(..)));
        news.retain(|client| self.worlds.iter().all(|world| world.users.fenced.contains(client)));
        self.clients.iter().filter(|(_, client)| news.contains(client)).map(|(process, _)| *process).collect()
    }

    /// Returns what keeps the groups from rest; `None` if in each all replicas are members and
    /// equal, and no client is still to be shut out.
    pub(super) fn unrest(&self) -> Option<String> {
        let unrest = |world: &World<Outcomes>| {
            let fencer = world.has_fencer().then(|| "a client is not shut out yet".to_owned());
            fencer.or_else(|| world.unrest())
        };
        self.find(unrest)
    }

    /// Returns a fault in the log of one of the groups.
    pub(super) fn log_fault(&self) -> Option<String> {
        self.find(World::log_fault)
    }

    fn find(&self, what: impl Fn(&World<Outcomes>) -> Option<String>) -> Option<String> {
        let found = self.worlds.iter().enumerate().find_map(|(group, world)| Some((group, what(world)?)));
        found.map(|(group, what)| if self.worlds.len() > 1 { format!("group {group}: {what}") } else { what })
    }

    /// Copies the contents of the primaries to the simulation's nodes.
    pub(super) fn hand_back(&self, sim: &Sim) {
        for (node, world) in (0..).zip(&self.worlds) {
            sim.set_content(node, &world.content());
        }
    }

    /// Returns the events of all groups, in order.
    pub(super) fn trace(&self) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        for (group, world) in self.worlds.iter().enumerate() {
            let at = |line: &str| {
                if self.worlds.len() > 1 { format!("{line} (group {group})") } else { line.into() }
            };
            lines.extend(world.trace().lines().map(at));
        }
        // Each line begins with its time, at a fixed width.
        lines.sort_by(|one, other| one.get(..6).cmp(&other.get(..6)));
        lines
    }

    /// Returns the counts of events over all groups.
    pub(super) fn counts(&self) -> Counts {
        let mut all = Counts::new();
        for world in &self.worlds {
            world.counts.iter().for_each(|(what, count)| *all.entry(what).or_default() += count);
            *all.entry("frames").or_default() += world.users.frames;
        }
        all
    }
}
