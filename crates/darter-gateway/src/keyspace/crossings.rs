//! Interleavings of commands of two gateways: one stops after some of its round trips, the other
//! runs for some round trips, and then either one finishes. The replies of both must be consistent
//! in every interleaving.

use super::aggregate::Aggregate;
use super::sweep::idle;
use super::transfer::{Destination, Transferred};
use super::{Change, Expiry, Family, Head, Keyspace, Kind, Retries, record_of_score, session};
use crate::Stop;
use crate::fault::Fault;
use darter::engine::Engine;
use darter::{Store, block_on};
use darter_memnode::{MemNode, MemNodeOptions, Region};
use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

const NOW: u64 = 1_800_000_000_000;
/// Most polls after which a command is stopped.
const POLLS: usize = 53;
/// Runs all interleavings of two commands.
const CROSSINGS: usize = 150;

/// A pool on a memory node, where every round trip is a poll.
struct Pool {
    url: String,
    stop: Arc<Stop>,
    node: Option<std::thread::JoinHandle<()>>,
}

impl Pool {
    fn new() -> Self {
        let region = Region::memory(64 << 20).unwrap();
        let node = MemNode::bind("127.0.0.1:0".parse().unwrap(), region, MemNodeOptions::default()).unwrap();
        let url = format!("tcp://{}", node.address().unwrap());
        let stop = Arc::new(Stop::default());
        let theirs = Arc::clone(&stop);
        let node = std::thread::spawn(move || node.serve(&theirs).map(|_| ()).unwrap());
        // No client renews a lease while a command is stopped.
        let day = std::time::Duration::from_secs(86_400);
        drop(Store::options().create(true).lease(day).open(&url).unwrap());
        Self { url, stop, node: Some(node) }
    }

    /// Returns a gateway's keys. They share only the pool with others: within a process one command
    /// could wait for another's memory.
    fn keyspace(&self) -> Keyspace {
        let store = Store::options().maintenance(false).open(&self.url).unwrap();
        let mut keys = Keyspace::new(store, Arc::default());
        keys.now = NOW;
        keys
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.stop.ask();
        self.node.take().unwrap().join().unwrap();
    }
}

/// Polls a command `polls` times; a round trip takes one or a few polls. Returns the command's
/// result, if it finished.
fn advance<T>(future: &mut Pin<Box<impl Future<Output = T>>>, mut polls: usize) -> Option<T> {
    block_on(poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if polls == 0 => Poll::Ready(None),
        Poll::Pending => {
            polls -= 1;
            Poll::Pending
        }
    }))
}

/// Runs two commands in every interleaving, each time on its own key, which `prepare` sets up;
/// `judge` gets the results of both.
#[allow(clippy::needless_pass_by_value)] // closures are written where they are passed
pub(super) fn cross<A, B>(
    prepare: impl AsyncFn(&mut Keyspace, &[u8]),
    one: impl AsyncFn(&mut Keyspace, &[u8]) -> A,
    other: impl AsyncFn(&mut Keyspace, &[u8]) -> B,
    judge: impl AsyncFn(&mut Keyspace, &[u8], A, B),
) {
    let pool = Pool::new();
    let (mut ours, mut theirs, mut after) = (pool.keyspace(), pool.keyspace(), pool.keyspace());
    for crossing in 0..CROSSINGS {
        let (first, second) = (crossing * 7 % POLLS, crossing * 11 / 3 % POLLS);
        let key = format!("key {crossing}").into_bytes();
        block_on(prepare(&mut after, &key));
        let mut one = Box::pin(one(&mut ours, &key));
        let mut other = Box::pin(other(&mut theirs, &key));
        let (told_one, told_other) = (advance(&mut one, first), advance(&mut other, second));
        let told_one = told_one.unwrap_or_else(|| block_on(one.as_mut()));
        let told_other = told_other.unwrap_or_else(|| block_on(other.as_mut()));
        drop((one, other));
        block_on(judge(&mut after, &key, told_one, told_other));
    }
}

/// Runs a transaction until it commits.
pub(super) async fn within<T>(
    keys: &mut Keyspace,
    body: impl AsyncFn(&mut Keyspace) -> Result<T, Fault>,
) -> T {
    let mut retries = Retries::default();
    for attempt in 0.. {
        keys.begin(attempt, &BTreeSet::new()).await.unwrap();
        let done = body(keys).await;
        let is_done = keys.commit().await.unwrap();
        keys.roll_back();
        if is_done {
            return done.unwrap();
        }
        retries.again().await.unwrap();
    }
    unreachable!("attempts have no end")
}

async fn add_field(keys: &mut Keyspace, key: &[u8]) -> Result<(), Fault> {
    let mut set = |_: usize, _: Option<&[u8]>, new: &mut Vec<u8>| {
        new.extend_from_slice(b"value");
        Ok(true)
    };
    keys.add_elements((key, Kind::Hash), &[b"field"], true, &mut set).await.map(drop)
}

async fn add_member(keys: &mut Keyspace, key: &[u8]) -> Result<(), Fault> {
    let mut set = |_: usize, _: Option<&[u8]>, new: &mut Vec<u8>| {
        new.extend_from_slice(&record_of_score(7.0));
        Ok(true)
    };
    keys.add_elements((key, Kind::SortedSet), &[b"member"], true, &mut set).await.map(drop)
}

/// Sets a key to a string if it is absent. Returns whether it was set.
async fn set_absent(keys: &mut Keyspace, key: &[u8]) -> bool {
    let decide = |head: Option<Head<'_>>, new: &mut Vec<u8>| {
        if head.is_some() {
            return Ok(Change::Keep(false));
        }
        Head::begin(new, Kind::String, None);
        Ok(Change::Put(true))
    };
    keys.change(key, decide).await.unwrap()
}

/// Returns whether a write was acknowledged; the only permitted error is a wrong type.
fn is_done(told: &Result<(), Fault>) -> bool {
    let is_wrong_type = |fault: &Fault| matches!(fault, Fault::Said(text) if text.starts_with("WRONGTYPE"));
    assert!(told.as_ref().err().is_none_or(is_wrong_type), "{told:?}");
    told.is_ok()
}

/// An empty hash whose head still exists.
async fn empty_hash(keys: &mut Keyspace, key: &[u8]) {
    let hash = keys.open(key, Kind::Hash).await.unwrap();
    add_field(keys, key).await.unwrap();
    assert!(keys.remove_field(&hash, b"field").await.unwrap());
}

async fn has_field(keys: &mut Keyspace, key: &[u8]) -> bool {
    match keys.find(key, Kind::Hash).await {
        Ok(Some(hash)) => keys.element(&hash, b"field").await.unwrap().is_some(),
        _ => false,
    }
}

async fn has_member(keys: &mut Keyspace, key: &[u8]) -> bool {
    match keys.find(key, Kind::SortedSet).await {
        Ok(Some(set)) => keys.score(&set, b"member").await.unwrap().is_some(),
        _ => false,
    }
}

#[test]
fn a_field_and_a_string_for_an_empty_key() {
    let judge = async |keys: &mut Keyspace, key: &[u8], added: Result<(), Fault>, put: bool| {
        assert!(is_done(&added) != put, "{added:?} {put}");
        assert_eq!(has_field(keys, key).await, added.is_ok(), "{}", key.escape_ascii());
    };
    cross(empty_hash, add_field, set_absent, judge);
    let judge = async |keys: &mut Keyspace, key: &[u8], put, added| judge(keys, key, added, put).await;
    cross(empty_hash, set_absent, add_field, judge);
}

#[test]
fn a_field_and_a_member_for_an_empty_key() {
    let judge =
        async |keys: &mut Keyspace, key: &[u8], field: Result<(), Fault>, member: Result<(), Fault>| {
            assert!(is_done(&field) != is_done(&member), "{field:?} {member:?}");
            assert_eq!(has_field(keys, key).await, field.is_ok(), "{}", key.escape_ascii());
            assert_eq!(has_member(keys, key).await, member.is_ok(), "{}", key.escape_ascii());
        };
    cross(empty_hash, add_field, add_member, judge);
    let judge = async |keys: &mut Keyspace, key: &[u8], member, field| judge(keys, key, field, member).await;
    cross(empty_hash, add_member, add_field, judge);
}

/// Returns all fields of a hash, as commands read them.
async fn fields(keys: &mut Keyspace, key: &[u8]) -> usize {
    while let Some(hash) = keys.find(key, Kind::Hash).await.unwrap() {
        let mut count = 0;
        keys.walk_elements(&mut hash.elements(), usize::MAX, |_, _| count += 1).await.unwrap();
        if keys.stands(&hash).await.unwrap() {
            return count;
        }
    }
    0
}

#[test]
fn a_hash_that_goes_is_read_whole_or_not_at_all() {
    let prepare = async |keys: &mut Keyspace, key: &[u8]| {
        let hash = keys.open(key, Kind::Hash).await.unwrap();
        for name in [b"one", b"two"] {
            keys.set_field(&hash, name, b"value").await.unwrap();
        }
    };
    let remove = async |keys: &mut Keyspace, key: &[u8]| keys.remove(key).await.unwrap();
    cross(prepare, remove, fields, async |keys: &mut Keyspace, key: &[u8], removed, told| {
        assert!(removed && (told == 0 || told == 2), "{told} fields");
        assert_eq!(fields(keys, key).await, 0);
    });
}

async fn ranks(keys: &mut Keyspace, set: &Aggregate) -> Vec<(Vec<u8>, f64)> {
    let (mut walk, mut told) = (set.all_ranks(false, 1), Vec::new());
    while let Some(member) = keys.next_member(&mut walk).await.unwrap() {
        told.push((member.name, member.score));
    }
    told
}

#[test]
fn a_moved_member_is_returned_once() {
    let prepare = async |keys: &mut Keyspace, key: &[u8]| {
        let set = keys.open(key, Kind::SortedSet).await.unwrap();
        for (name, score) in [(b"a", 1.0), (b"b", 2.0), (b"c", 3.0)] {
            keys.rescore(&set, name, |_| Ok(Some(score))).await.unwrap();
        }
    };
    let walk = async |keys: &mut Keyspace, key: &[u8]| {
        let set = keys.find(key, Kind::SortedSet).await.unwrap().unwrap();
        ranks(keys, &set).await
    };
    // Upwards, so that the walk meets it again after it was returned.
    let moves = async |keys: &mut Keyspace, key: &[u8]| {
        let set = keys.find(key, Kind::SortedSet).await.unwrap().unwrap();
        keys.rescore(&set, b"a", |_| Ok(Some(9.0))).await.unwrap();
    };
    let judge = async |keys: &mut Keyspace, key: &[u8], (), told: Vec<(Vec<u8>, f64)>| {
        let mut names: Vec<_> = told.iter().map(|(name, _)| name[0]).collect();
        names.sort_unstable();
        assert_eq!(names, b"abc", "{told:?}");
        let set = keys.find(key, Kind::SortedSet).await.unwrap().unwrap();
        let left = keys
            .store
            .session_in(darter::engine::KeySpace::Gateway)
            .unwrap()
            .prefix(set.place(Family::Score, b""))
            .count();
        assert_eq!(left, 3);
    };
    cross(prepare, moves, walk, judge);
    let judge = async |keys: &mut Keyspace, key: &[u8], told, ()| judge(keys, key, (), told).await;
    cross(prepare, walk, moves, judge);
}

/// A head in doubt is removed at any moment of a command that writes below it, as by a sweep that
/// found it empty before.
#[test]
fn an_acknowledged_field_stays_when_its_head_is_removed() {
    let pool = Pool::new();
    let (mut ours, mut theirs) = (pool.keyspace(), pool.keyspace());
    for polls in 0.. {
        let key = format!("key {polls}").into_bytes();
        let at = [&[Family::Key as u8], &key[..]].concat();
        let doubted = block_on(async {
            empty_hash(&mut theirs, &key).await;
            let session = session(&mut theirs.session, &theirs.store).unwrap();
            let empty = session.get(&at).await.unwrap().unwrap();
            assert!(idle(session, &at, &empty, NOW).await.unwrap());
            session.get(&at).await.unwrap().unwrap()
        });
        let mut add = Box::pin(add_field(&mut ours, &key));
        let told = advance(&mut add, polls);
        let is_over = told.is_some();
        let removed = block_on(async {
            let session = session(&mut theirs.session, &theirs.store).unwrap();
            session.remove_if(&at, |record| record == doubted).await.unwrap()
        });
        told.unwrap_or_else(|| block_on(add.as_mut())).unwrap();
        drop(add);
        assert!(block_on(has_field(&mut theirs, &key)), "after {polls} polls");
        if is_over {
            assert!(!removed && polls > 3, "it is confirmed in several round trips");
            return;
        }
    }
}

/// Stops a command after each of its round trips, runs another command to its end, and then
/// finishes the first; each time on its own key, which `prepare` sets up.
#[allow(clippy::needless_pass_by_value)] // closures are written where they are passed
pub(super) fn interrupt<A, B>(
    prepare: impl AsyncFn(&mut Keyspace, &[u8]),
    one: impl AsyncFn(&mut Keyspace, &[u8]) -> A,
    other: impl AsyncFn(&mut Keyspace, &[u8]) -> B,
    judge: impl AsyncFn(&mut Keyspace, &[u8], A, B),
) {
    let pool = Pool::new();
    let (mut ours, mut theirs, mut after) = (pool.keyspace(), pool.keyspace(), pool.keyspace());
    for polls in 0.. {
        let key = format!("key {polls}").into_bytes();
        block_on(prepare(&mut after, &key));
        let mut one = Box::pin(one(&mut ours, &key));
        let told = advance(&mut one, polls);
        let is_over = told.is_some();
        let told_other = block_on(other(&mut theirs, &key));
        let told = told.unwrap_or_else(|| block_on(one.as_mut()));
        drop(one);
        block_on(judge(&mut after, &key, told, told_other));
        if is_over {
            assert!(polls > 3, "it takes several round trips");
            return;
        }
    }
}

/// Returns the name of another key that belongs to a key.
pub(super) fn beside(key: &[u8], name: &str) -> Vec<u8> {
    [key, b":", name.as_bytes()].concat()
}

/// A hash with two fields.
async fn two_fields(keys: &mut Keyspace, key: &[u8]) {
    let hash = keys.open(key, Kind::Hash).await.unwrap();
    for name in [b"one", b"two"] {
        keys.set_field(&hash, name, b"value").await.unwrap();
    }
    assert!(keys.confirm(&hash).await.unwrap());
}

/// Copies a key to its companion.
async fn copy(keys: &mut Keyspace, key: &[u8]) -> Transferred {
    keys.copy(key, &beside(key, "copy"), Destination::Kept).await.unwrap()
}

#[test]
fn a_field_added_during_a_rename_is_under_one_name() {
    let rename = async |keys: &mut Keyspace, key: &[u8]| {
        keys.rename(key, &beside(key, "new"), Destination::Kept).await.unwrap()
    };
    interrupt(two_fields, rename, add_field, async |keys: &mut Keyspace, key: &[u8], told, added| {
        assert!(told == Transferred::Done && added.is_ok());
        let new = beside(key, "new");
        assert!(has_field(keys, key).await || has_field(keys, &new).await, "{}", key.escape_ascii());
        assert!(fields(keys, &new).await >= 2);
    });
}

#[test]
fn a_hash_that_goes_is_copied_whole_or_not_at_all() {
    let remove = async |keys: &mut Keyspace, key: &[u8]| keys.remove(key).await.unwrap();
    interrupt(two_fields, copy, remove, async |keys: &mut Keyspace, key: &[u8], told, removed| {
        let expected = if told == Transferred::Done { 2 } else { 0 };
        assert!(removed && fields(keys, &beside(key, "copy")).await == expected, "{}", key.escape_ascii());
    });
}

#[test]
fn the_walk_leaves_a_copy_that_is_being_made() {
    let walk = async |keys: &mut Keyspace, _: &[u8]| {
        let mut walk = Expiry::default();
        for _ in 0..2 {
            while walk.step(keys).await.unwrap().census.is_none() {}
        }
    };
    interrupt(two_fields, copy, walk, async |keys: &mut Keyspace, key: &[u8], told, ()| {
        assert_eq!(told, Transferred::Done);
        assert_eq!(fields(keys, &beside(key, "copy")).await, 2, "{}", key.escape_ascii());
    });
}
