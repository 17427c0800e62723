//! Unions, intersections and differences of sets and sorted sets: walks over all of them at once, in
//! the order of their members. An intersection and a difference leave out what cannot be part of the
//! result, so a small set with a large one takes time by the small one.

use super::aggregate::Aggregate;
use super::fields::Elements;
use super::{Keyspace, Kind, TOGETHER_FIRST, TOGETHER_MAX, Walked};
use crate::fault::Fault;
use crate::turns;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Most elements that the sources of a join hold together, unless there are more sources.
const HELD: usize = 1 << 16;
/// Most bytes of a source's elements, estimated from the previous ones.
const HELD_BYTES: usize = 1 << 20;

/// What the result of a join has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Join {
    /// The elements of any source.
    Union,
    /// The elements of all sources.
    Intersection,
    /// The elements of the first source that are in no other.
    Difference,
}

/// An element: its name and its record.
type Element = (Vec<u8>, Vec<u8>);

/// The rest of a key's elements.
#[derive(Debug)]
struct Source {
    aggregate: Aggregate,
    left: Elements,
    /// The elements read, in order.
    read: VecDeque<Element>,
    is_through: bool,
    /// The number of elements to read next.
    asked: usize,
}

/// A join in progress.
#[derive(Debug)]
pub(crate) struct Joined {
    join: Join,
    /// By the position of the key; `None` if it is absent.
    sources: Vec<Option<Source>>,
    /// The next names of sources, with their positions, unless the join is an intersection.
    next: BinaryHeap<Reverse<(Vec<u8>, usize)>>,
    /// Most elements of a source.
    most: usize,
    has_begun: bool,
    /// The records of the last element, by the position of the key.
    pub(crate) records: Vec<(usize, Vec<u8>)>,
}

impl Joined {
    /// Begins a join of keys that [`Keyspace::find_all`] has found.
    pub(crate) fn new(join: Join, found: Vec<Option<Aggregate>>) -> Self {
        let most = (HELD / found.len().max(1)).clamp(1, TOGETHER_MAX);
        let source = |aggregate: Aggregate| {
            let left = aggregate.elements();
            let asked = if aggregate.packed().is_some() { most } else { most.min(TOGETHER_FIRST) };
            Source { aggregate, left, read: VecDeque::new(), is_through: false, asked }
        };
        let sources: Vec<_> = found.into_iter().map(|found| found.map(source)).collect();
        Self { join, sources, next: BinaryHeap::new(), most, has_begun: false, records: Vec::new() }
    }

    /// Returns the type of the key at a position, if it exists.
    pub(crate) fn kind(&self, position: usize) -> Option<Kind> {
        self.sources.get(position)?.as_ref().map(|source| source.aggregate.kind())
    }

    /// Returns whether the result has no elements because a key is absent.
    fn is_empty(&self) -> bool {
        match self.join {
            Join::Union => false,
            Join::Intersection => self.sources.iter().any(Option::is_none),
            Join::Difference => self.sources.first().is_none_or(Option::is_none),
        }
    }

    /// Removes the first of the next names, if it is wanted.
    fn pop_next(&mut self, is_wanted: impl FnOnce(&[u8]) -> bool) -> Option<Reverse<(Vec<u8>, usize)>> {
        let is_first_wanted = self.next.peek().is_some_and(|Reverse((name, _))| is_wanted(name));
        if is_first_wanted { self.next.pop() } else { None }
    }

    /// Takes the next element of a source, which was read before, as part of the result.
    fn take(&mut self, position: usize) -> Option<Vec<u8>> {
        let (name, record) = self.sources[position].as_mut()?.read.pop_front()?;
        self.records.push((position, record));
        Some(name)
    }
}

impl Source {
    /// Leaves out the elements before a name.
    fn go_to(&mut self, name: &[u8]) {
        let known = self.read.iter().take_while(|(first, _)| &first[..] < name).count();
        self.read.drain(..known);
        if self.read.is_empty() && !self.is_through {
            self.left.go_to(name);
            if known >= TOGETHER_FIRST {
                // Most elements that are read are left out.
                self.asked = self.asked.min(TOGETHER_FIRST);
            }
        }
    }
}

impl Keyspace {
    /// Returns the aggregates of keys, which may have several types; `None` for each absent key.
    /// Their heads are read together.
    ///
    /// # Errors
    /// As for [`Keyspace::find`], and an error if the heads have more than `bytes_max` bytes.
    pub(crate) async fn find_all(
        &mut self,
        keys: &[&[u8]],
        kinds: &[Kind],
        bytes_max: usize,
    ) -> Result<Vec<Option<Aggregate>>, Fault> {
        let (mut found, mut bytes) = (Vec::with_capacity(keys.len()), 0);
        while found.len() < keys.len() {
            let part = keys[found.len()..].iter().copied().take(TOGETHER_MAX);
            let mut records = Vec::new();
            self.look_at_first(part, |head| {
                records.push(head.map(|head| {
                    let mut record = Vec::new();
                    head.rewrite(&mut record, head.expiry);
                    record
                }));
            })
            .await?;
            for record in records {
                let key = keys[found.len()];
                bytes += key.len() + record.as_ref().map_or(0, Vec::len);
                if bytes > bytes_max {
                    return Err(Fault::said(
                        "ERR the keys have more bytes than --output-bytes allows; name fewer",
                    ));
                }
                found.push(match record {
                    Some(record) => self.found(key, &record, kinds).await?,
                    None => None,
                });
                turns::worked().await;
            }
        }
        Ok(found)
    }

    /// Reads the next elements of a source, unless some are known. Returns whether there are any.
    async fn read_source(&mut self, joined: &mut Joined, position: usize) -> Result<bool, Fault> {
        let most = joined.most;
        let Some(source) = &mut joined.sources[position] else { return Ok(false) };
        if source.read.is_empty() && !source.is_through {
            let Source { left, read, asked, .. } = source;
            let mut bytes = 0;
            let walked = self.walk_elements(left, *asked, |name, record| {
                bytes += name.len() + record.len();
                read.push_back((name.to_vec(), record.to_vec()));
            });
            source.is_through = walked.await? == Walked::Through;
            let likely = HELD_BYTES / (bytes / source.read.len().max(1)).max(1);
            source.asked = (source.asked * 2).min(likely).clamp(1, most);
            turns::worked().await;
        }
        Ok(!source.read.is_empty())
    }

    /// Reads the next element of a source, and remembers its name.
    async fn advance(&mut self, joined: &mut Joined, position: usize) -> Result<(), Fault> {
        if self.read_source(joined, position).await?
            && let Some((name, _)) = joined.sources[position].as_ref().and_then(|source| source.read.front())
        {
            joined.next.push(Reverse((name.clone(), position)));
        }
        Ok(())
    }

    /// Returns the next name of a join, in ascending order; `joined.records` then has its records.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn next_joined(&mut self, joined: &mut Joined) -> Result<Option<Vec<u8>>, Fault> {
        joined.records.clear();
        if joined.is_empty() {
            return Ok(None);
        }
        if !std::mem::replace(&mut joined.has_begun, true) && joined.join != Join::Intersection {
            // The elements of a difference come from its first source.
            let first = usize::from(joined.join == Join::Difference);
            for position in first..joined.sources.len() {
                self.advance(joined, position).await?;
            }
        }
        match joined.join {
            Join::Union => self.next_of_union(joined).await,
            Join::Intersection => self.next_of_intersection(joined).await,
            Join::Difference => self.next_of_difference(joined).await,
        }
    }

    async fn next_of_union(&mut self, joined: &mut Joined) -> Result<Option<Vec<u8>>, Fault> {
        let mut next: Option<Vec<u8>> = None;
        while let Some(Reverse((name, position))) =
            joined.pop_next(|name| next.as_deref().is_none_or(|next| next == name))
        {
            joined.take(position);
            self.advance(joined, position).await?;
            next = Some(name);
            turns::worked().await;
        }
        Ok(next)
    }

    async fn next_of_intersection(&mut self, joined: &mut Joined) -> Result<Option<Vec<u8>>, Fault> {
        let count = joined.sources.len();
        let (mut candidate, mut agreed, mut position) = (Vec::new(), 0, 0);
        while agreed < count {
            if let Some(source) = &mut joined.sources[position] {
                source.go_to(&candidate);
            }
            if !self.read_source(joined, position).await? {
                return Ok(None);
            }
            let first = joined.sources[position].as_ref().and_then(|source| source.read.front());
            if let Some((name, _)) = first
                && *name != candidate
            {
                // Elements before the candidate were left out.
                candidate.clone_from(name);
                agreed = 0;
            }
            agreed += 1;
            position = (position + 1) % count;
            turns::worked().await;
        }
        for position in 0..count {
            joined.take(position);
        }
        Ok(Some(candidate))
    }

    async fn next_of_difference(&mut self, joined: &mut Joined) -> Result<Option<Vec<u8>>, Fault> {
        while self.read_source(joined, 0).await? {
            joined.records.clear();
            let Some(name) = joined.take(0) else { break };
            let mut is_elsewhere = false;
            while let Some(Reverse((other, position))) = joined.pop_next(|other| *other <= name[..]) {
                if let Some(source) = &mut joined.sources[position] {
                    if other == name {
                        is_elsewhere = true;
                        source.read.pop_front();
                    } else {
                        source.go_to(&name);
                    }
                }
                self.advance(joined, position).await?;
                turns::worked().await;
            }
            if !is_elsewhere {
                return Ok(Some(name));
            }
        }
        joined.records.clear();
        Ok(None)
    }

    /// Returns whether no key of a join was removed or replaced since its elements were read.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn all_stand(&mut self, joined: &Joined) -> Result<bool, Fault> {
        let large = joined.sources.iter().flatten().map(|source| &source.aggregate);
        let mut left: Vec<&Aggregate> = large.filter(|aggregate| aggregate.packed().is_none()).collect();
        while !left.is_empty() {
            let part = left.len().min(TOGETHER_MAX);
            let (mut passed, mut stand) = (0, true);
            let heads = left[..part].iter().map(|aggregate| aggregate.key());
            self.look_at_first(heads, |head| {
                let generation = head.and_then(|head| head.generation());
                stand &= generation == Some(left[passed].generation());
                passed += 1;
            })
            .await?;
            if !stand {
                return Ok(false);
            }
            left.drain(..passed);
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter::{Store, block_on};
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;
    use std::collections::BTreeSet;
    use std::sync::Arc;

    type Names = BTreeSet<Vec<u8>>;

    /// Returns the members that a join should return.
    fn expected(join: Join, sets: &[&Names]) -> Names {
        let (first, rest) = sets.split_first().unwrap();
        match join {
            Join::Union => sets.iter().copied().flatten().cloned().collect(),
            Join::Intersection => {
                first.iter().filter(|name| rest.iter().all(|set| set.contains(*name))).cloned().collect()
            }
            Join::Difference => {
                first.iter().filter(|name| !rest.iter().any(|set| set.contains(*name))).cloned().collect()
            }
        }
    }

    #[test]
    fn joins_are_those_of_a_model() {
        let store = Store::open("mem:128M").unwrap();
        let mut keys = Keyspace::new(store, Arc::default());
        keys.now = 1_800_000_000_000;
        let mut dice = Pcg64Mcg::seed_from_u64(5);
        // Small and large sets, dense and sparse ones, and an absent one.
        let sets: Vec<(Vec<u8>, Names)> = [0, 1, 5, 60, 300, 700, 3000]
            .into_iter()
            .enumerate()
            .map(|(number, count)| {
                let most = [3000_u32, 100_000][number % 2];
                let names = (0..count).map(|_| format!("{:06}", dice.random_range(0..most)).into_bytes());
                (format!("set {number}").into_bytes(), names.collect::<Names>())
            })
            .collect();
        for (key, names) in &sets {
            let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
            if !names.is_empty() {
                let mut add = |_: usize, old: Option<&[u8]>, _: &mut Vec<u8>| Ok(old.is_none());
                let tally = block_on(keys.add_elements((key, Kind::Set), &names, true, &mut add)).unwrap();
                assert_eq!(tally.unwrap().added, names.len());
            }
        }
        for _ in 0..300 {
            let chosen: Vec<usize> =
                (0..dice.random_range(1..5)).map(|_| dice.random_range(0..sets.len())).collect();
            let names: Vec<&[u8]> = chosen.iter().map(|&set| &sets[set].0[..]).collect();
            for join in [Join::Union, Join::Intersection, Join::Difference] {
                let found = block_on(keys.find_all(&names, &[Kind::Set], usize::MAX)).unwrap();
                let mut joined = Joined::new(join, found);
                let mut told = Vec::new();
                while let Some(name) = block_on(keys.next_joined(&mut joined)).unwrap() {
                    let members = chosen.iter().filter(|&&set| sets[set].1.contains(&name)).count();
                    assert_eq!(joined.records.len(), if join == Join::Difference { 1 } else { members });
                    told.push(name);
                }
                let models: Vec<&Names> = chosen.iter().map(|&set| &sets[set].1).collect();
                let expected = expected(join, &models);
                assert!(told.iter().eq(&expected), "{join:?} of {chosen:?}: {} members", told.len());
                assert!(block_on(keys.all_stand(&joined)).unwrap());
            }
        }
        let found = block_on(keys.find_all(&[b"set 4", b"set 6"], &[Kind::Set], usize::MAX)).unwrap();
        let joined = Joined::new(Join::Union, found);
        assert!(block_on(keys.remove(b"set 6")).unwrap());
        assert!(!block_on(keys.all_stand(&joined)).unwrap());
    }
}
