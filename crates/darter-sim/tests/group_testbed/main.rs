//! A simulated test bed for memory groups. It is driven by seeds and uses no threads.
//!
//! Two or three replicas, sometimes with a spare, serve two or three clients, which read, write,
//! swap and add to a few words. Messages, requests and replies are delayed, in order within a
//! connection; connections end and nodes are disconnected; nodes pause, even in the middle of a
//! turn, and their clocks run at different rates; nodes die, and return with nothing; the store of views is
//! slow or loses requests; primaries hand over; a client is fenced. Groups with logs lose power, all
//! at once too, and return with what their logs restore; disks are lost. Then the faults end, and the group must come to rest.
//!
//! The test checks that every client gets its replies; that each word's history has an order that
//! explains all results and the memory's content at the end; that a frame is executed as a whole
//! and at most once; that no verb of a client takes effect after it was fenced; and that at rest
//! all replicas are members and equal, word by word.
//!
//! ```sh
//! cargo test -p darter-sim --test group_testbed
//! DARTER_GROUP_SEED=77 cargo test -p darter-sim --test group_testbed one_seed -- --ignored --nocapture
//! DARTER_GROUP_RUNS=1000000 cargo test -p darter-sim --test group_testbed many_seeds -- --ignored
//! ```
//! With `DARTER_GROUP_LOGS=1` the last two run groups with logs.

#![allow(clippy::unwrap_used)] // a test may panic

mod client;
mod directed;
mod history;
mod linear;

use client::{Clients, WORDS, offset};
use darter_group::Options;
use darter_sim::groups::{Counts, MS, Setup, World};

/// Bytes of a region.
const REGION_BYTES: usize = 4096;
/// Maximum duration of the faults, and of the time until the group is at rest.
const STORM: u64 = 20_000 * MS;
const CALM: u64 = 40_000 * MS;

/// Returns the world of a seed, with its clients.
fn world(seed: u64, is_durable: bool, is_traced: bool) -> World<Clients> {
    let options = Options {
        copy_bytes: 1024,
        copies_under_way: 2,
        copies_a_turn: 1 + seed % 2,
        // A copy of the region takes half a second, or is not limited.
        copy_rate: if seed / 2 % 2 == 1 { 2 * REGION_BYTES as u64 } else { u64::MAX },
        channel_frames_max: 64,
        // A replica that was away catches up by records, by some of them, or by a copy.
        kept_bytes_max: [0, 4096, 1 << 20][(seed / 4 % 3) as usize],
        members_min: if is_durable { 1 + (seed / 12 % 2) as usize } else { 1 },
        ..Options::default()
    };
    let setup = Setup { options, bytes: REGION_BYTES, content: None, is_durable };
    let mut world = World::new(seed, Clients::default(), setup, is_traced);
    for client in 0..2 + world.random.below(2) {
        let frames = 8 + world.random.below(16);
        world.users.add(client + 1, frames);
        let client = world.join(client + 1);
        let pause = world.random.below(500 * MS);
        world.watch(client, pause);
    }
    if world.random.happens(300) {
        let victim = world.random.below(world.users.len() as u64) as usize;
        let pause = (500 + world.random.below(5000)) * MS;
        world.shut_out_after(pause, victim);
    }
    world.begin_faults();
    world
}

/// Runs a seed. Returns the counts of its events, or an error, with a trace if `is_traced`.
fn run(seed: u64, is_durable: bool, is_traced: bool) -> Result<Counts, String> {
    let mut world = world(seed, is_durable, is_traced);
    while world.now() < STORM && world.step() {}
    world.calm();
    let mut unrest = Some("the group was not checked for rest".to_owned());
    let mut next = world.now();
    while unrest.is_some() && world.now() < STORM + CALM && world.step() {
        if world.now() < next {
            continue;
        }
        next = world.now() + 100 * MS;
        let clients = world.waiting();
        unrest = world.unrest();
        if clients > 0 || world.has_fencer() {
            unrest.get_or_insert(format!("{clients} clients wait, and {}", world.has_fencer()));
        }
    }
    let fail = |world: &World<Clients>, what: &str| Err(format!("seed {seed}: {what}\n{}", world.trace()));
    if let Some(what) = unrest {
        return fail(&world, &what);
    }
    let content = world.content();
    let words: [u64; WORDS] = std::array::from_fn(|word| {
        let at = offset(word) as usize;
        u64::from_le_bytes(content[at..at + 8].try_into().unwrap())
    });
    let mut history = std::mem::take(&mut world.users.history);
    *world.counts.entry("frames").or_default() += history.frames;
    for client in 0..world.clients() {
        for frame in world.unanswered(client) {
            for &verb in world.users.verbs(client, frame) {
                history.unanswered(client, frame.begin, verb);
            }
        }
    }
    match history.verdict(words, world.now()) {
        Some(what) => fail(&world, &what),
        None => Ok(world.counts),
    }
}

/// Runs seeds and returns the counts of their events. Panics at the first failure.
fn campaign(seeds: impl Iterator<Item = u64>, is_durable: bool) -> Counts {
    let mut all = Counts::new();
    for seed in seeds {
        match run(seed, is_durable, false) {
            Ok(counts) => counts.into_iter().for_each(|(what, count)| *all.entry(what).or_default() += count),
            Err(what) => panic!("{what}"),
        }
    }
    all
}

#[test]
fn groups_survive_whatever_happens() {
    let met = campaign(0..3000, false);
    println!("{met:?}");
    assert_met(&met, &["returns with nothing"]);
}

#[test]
fn groups_with_logs_survive_whatever_happens() {
    let met = campaign(0..3000, true);
    println!("{met:?}");
    assert_met(
        &met,
        &["logs that lost entries", "lost disks", "power failures of all nodes", "returns with a log"],
    );
}

/// Verifies that a campaign met these events, and those of every campaign.
fn assert_met(met: &Counts, events: &[&str]) {
    let always = [
        "store faults",
        "cuts",
        "deaths",
        "fences",
        "handovers",
        "pauses",
        "pauses in turns",
        "slow links",
        "views",
    ];
    for what in always.iter().chain(events) {
        assert!(met.get(what).is_some_and(|count| *count > 20), "{what}: {met:?}");
    }
}

#[test]
#[ignore = "DARTER_GROUP_RUNS sets the number of seeds"]
fn many_seeds() {
    let runs = std::env::var("DARTER_GROUP_RUNS").ok().and_then(|text| text.parse().ok()).unwrap_or(100_000);
    println!("{:?}", campaign(1_000_000..1_000_000 + runs, is_durable()));
}

#[test]
#[ignore = "runs the seed DARTER_GROUP_SEED with a trace"]
fn one_seed() {
    let seed = std::env::var("DARTER_GROUP_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    println!("{:?}", run(seed, is_durable(), true).map_err(|what| panic!("{what}")));
}

fn is_durable() -> bool {
    std::env::var_os("DARTER_GROUP_LOGS").is_some()
}
