//! Operations: writes are calls, which the server completes in one round trip; reads find their
//! leaves by models and fall back to calls. Each goes to the range of its keys ([`ranges`]).

pub(crate) mod look;
pub(crate) mod lookup;
pub(crate) mod ranges;
mod scan;
mod tree;
pub(crate) mod view;

use super::descriptor::Descriptor;
use super::model::{RouteStep, SubModel, View, model_key};
use super::wire::{self, REQUEST_WORDS, Reader, Taken, Text};
use super::{XStore, bound_bytes, condition_word, range_word};
use darter_fabric::{Fabric, OpKind};
use darter_index::radix::drafts::Drafts;
use darter_index::radix::leaf as pair;
use darter_index::{Condition, IndexError, KeyValue, OrderedIndex, PutOutcome, Result, ScanRange};
use darter_pool::size_class::class_bytes;
use darter_pool::{AllocKind, Client, Pinned};
use lookup::{Lookup, Reads};
use ranges::{Range, Ranges};
use scan::{ScanEnd, Walk};
use smallvec::SmallVec;
use std::ops::Bound;
use std::sync::Arc;
use view::Models;

/// Words of a string from which it is passed in a blob if the request would be too long.
const SPILLED_WORDS: usize = 64;

/// Leaf changes during a scan by READs after which it continues by calls.
const SCAN_CHANGES_MAX: u32 = 4;

/// A request under construction, with the blobs of its long strings, which live until the reply.
#[derive(Default)]
struct Request {
    words: Vec<u64>,
    blobs: Drafts,
}

impl Request {
    /// Adds strings; long ones become blobs if there are too many words.
    async fn add<F: Fabric>(&mut self, client: &mut Pinned<'_, F>, node: u8, texts: &[&[u8]]) -> Result<()> {
        let total: usize = texts.iter().map(|text| text.len() / 8 + 2).sum();
        for text in texts {
            if total <= REQUEST_WORDS || text.len() / 8 <= SPILLED_WORDS {
                wire::write(&mut self.words, Some(Text::Plain(text)));
                continue;
            }
            let class = pair::class_within(client.pool().object_bytes_max(), 0, text.len())?;
            let made = self.blobs.alloc(client, node, class_bytes(class), AllocKind::Leaf).await;
            let addr = match made {
                Ok(addr) => addr,
                Err(error) => {
                    self.blobs.discard(client);
                    return Err(error);
                }
            };
            let image = pair::image(&[], text);
            client.post(|batch| batch.write(addr, &image)).await?;
            wire::write(&mut self.words, Some(Text::Blob(addr, class)));
        }
        Ok(())
    }

    /// Calls, then frees the blobs. If the outcome of the call is unknown they are left to the
    /// sweep, because the procedure may still read them.
    async fn call<F: Fabric>(
        mut self,
        client: &mut Client<F>,
        (index, range): (&Descriptor, &Range),
        procedure: u64,
    ) -> Result<Vec<u64>> {
        let answer = call(client, (index, &range.descriptor), procedure, self.words).await?;
        self.blobs.discard(client);
        Ok(answer)
    }
}

/// Calls a procedure of the server of a range; returns the reply's words.
///
/// # Errors
/// Errors of the fabric.
async fn call<F: Fabric>(
    client: &mut Client<F>,
    (index, range): (&Descriptor, &Descriptor),
    procedure: u64,
    mut words: Vec<u64>,
) -> Result<Vec<u64>> {
    if range.addr == index.addr {
        return Ok(client.call(range.server, procedure, words).await?);
    }
    words.splice(0..0, [range.addr.bits(), procedure]);
    Ok(client.call(range.server, wire::OF_RANGE, words).await?)
}

impl<F: Fabric> XStore<F> {
    /// Calls a procedure without arguments on the servers of all ranges, after reading the table.
    /// Returns the first word of each reply, 0 if there is none.
    ///
    /// # Errors
    /// Errors of the servers and the fabric.
    pub(super) async fn call_all(&self, client: &mut Client<F>, procedure: u64) -> Result<Vec<u64>> {
        let (mut tries, mut at, mut words) = (0, Vec::new(), Vec::new());
        self.find_ranges(client, &self.shared.ranges()).await?;
        loop {
            let ranges = self.shared.ranges();
            // Keys below this bound are done.
            let place = if words.is_empty() { 0 } else { ranges.place_of(&at) };
            let outcome =
                call(client, (&self.shared.descriptor, &ranges.all[place].descriptor), procedure, Vec::new());
            let outcome = outcome.await.and_then(|answer| Ok(wire::outcome(&answer)?.word().unwrap_or(0)));
            if self.goes_elsewhere(client, &ranges, &outcome, &mut tries).await? {
                continue;
            }
            words.push(outcome?);
            match ranges.all.get(place + 1) {
                Some(next) => at.clone_from(&next.low),
                None => return Ok(words),
            }
        }
    }

    /// Rejects keys and values that are too large for the index.
    pub(super) fn check_pair(&self, client: &Client<F>, key: &[u8], value: &[u8]) -> Result<()> {
        OrderedIndex::<F>::check_key(self, key)?;
        let layout = self.shared.descriptor.layout;
        if layout.is_inline() {
            let max = usize::from(layout.value_words) * 8;
            let fits = value.len() <= max;
            return if fits { Ok(()) } else { Err(IndexError::ValueTooLong { bytes: value.len(), max }) };
        }
        pair::class_within(client.pool().object_bytes_max(), key.len(), value.len()).map(drop)
    }

    /// Returns the values of keys, in their order. The keys have been checked.
    pub(super) async fn values_of(
        &self,
        client: &mut Client<F>,
        keys: &[&[u8]],
        kind: OpKind,
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let mut tries = 0;
        loop {
            let ranges = self.shared.ranges();
            let outcome = self.values_in(&ranges, client, keys, kind).await;
            if outcome.is_ok() || !self.goes_elsewhere(client, &ranges, &outcome, &mut tries).await? {
                return outcome;
            }
        }
    }

    /// The same with these ranges.
    async fn values_in(
        &self,
        ranges: &Ranges,
        client: &mut Client<F>,
        keys: &[&[u8]],
        kind: OpKind,
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let mut client = client.pin(kind).await?;
        let mut models: SmallVec<[(usize, Option<Arc<Models>>); 1]> = SmallVec::new();
        let mut places: SmallVec<[usize; 1]> = SmallVec::with_capacity(keys.len());
        for key in keys {
            let place = ranges.place_of(key);
            let known = models.iter().position(|&(known, _)| known == place);
            places.push(known.unwrap_or(models.len()));
            if known.is_none() {
                let Range { descriptor, sight, .. } = &ranges.all[place];
                models.push((place, sight.models(&mut client, descriptor).await?));
            }
        }
        let mut lookups: Vec<Option<Lookup<'_>>> = keys
            .iter()
            .zip(&places)
            .map(|(key, &at)| {
                let (place, models) = &models[at];
                let Range { descriptor, sight, .. } = &ranges.all[*place];
                models.as_ref().map(|models| Lookup::new(descriptor, models, sight, key))
            })
            .collect();
        read_all(&mut client, &mut lookups).await?;
        let mut values = Vec::with_capacity(keys.len());
        let (mut left, mut submodels) = (Vec::new(), Vec::new());
        for (at, lookup) in lookups.into_iter().enumerate() {
            if !lookup.as_ref().is_some_and(Lookup::is_known) {
                left.push(at);
                submodels.push(lookup.as_ref().and_then(Lookup::submodel));
            }
            values.push(lookup.and_then(Lookup::into_value));
        }
        for (at, (place, models)) in models.iter().enumerate() {
            let ours: Vec<usize> = (0..left.len()).filter(|&one| places[left[one]] == at).collect();
            if ours.is_empty() {
                continue;
            }
            let asked: Vec<&[u8]> = ours.iter().map(|&one| keys[left[one]]).collect();
            let submodel = ours.iter().find_map(|&one| submodels[one]);
            let wanted = models.as_ref().zip(submodel).map(|(models, submodel)| (models.view, submodel));
            let found = self.values_by_calls(&mut client, &ranges.all[*place], &asked, wanted).await?;
            ours.into_iter().zip(found).for_each(|(one, value)| values[left[one]] = value);
        }
        Ok(values)
    }

    /// Returns the values of a range's keys by calls. The first call also returns the words of a
    /// sub-model.
    async fn values_by_calls(
        &self,
        client: &mut Pinned<'_, F>,
        range: &Range,
        keys: &[&[u8]],
        mut wanted: Option<(View, u32)>,
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let mut values = Vec::with_capacity(keys.len());
        while values.len() < keys.len() {
            let asked = within_request(&keys[values.len()..]);
            let model = wanted.take();
            let word = wire::submodel_word(model.map(|(view, submodel)| (view.generation, submodel)));
            let mut request = Request { words: vec![asked.len() as u64, word], ..Request::default() };
            request.add(client, range.descriptor.node, asked).await?;
            let answer = request.call(client, (&self.shared.descriptor, range), wire::GET).await?;
            let mut reader = wire::outcome(&answer)?;
            let count = reader.word().ok_or_else(wire::strange)?;
            if count == 0 || count > asked.len() as u64 {
                return Err(wire::strange());
            }
            for _ in 0..count {
                values.push(match reader.text().ok_or_else(wire::strange)? {
                    Taken::Absent => None,
                    Taken::Plain(value) => Some(value),
                    Taken::Blob(addr, class) => {
                        let words = client.read(addr, pair::class_words(class)).await?;
                        Some(pair::parse(addr, &words)?.value.to_vec())
                    }
                });
            }
            let words = reader.0.try_into().ok().and_then(SubModel::from_words);
            if let (Some((view, submodel)), Some(words)) = (model, words) {
                range.sight.cache.learn_submodel(view, submodel, words);
            }
        }
        Ok(values)
    }

    /// Puts by a call.
    pub(super) async fn put_by_call(
        &self,
        client: &mut Client<F>,
        (key, value): (&[u8], &[u8]),
        condition: Condition<'_>,
    ) -> Result<PutOutcome> {
        self.check_pair(client, key, value)?;
        let mut tries = 0;
        loop {
            let ranges = self.shared.ranges();
            let range = ranges.of(key);
            // If the leaf's number is cached, the server need not search.
            let hint = range.leaf_hint(key);
            let outcome = self.put_in((range, hint), client, (key, value), condition).await;
            if outcome.is_ok() || !self.goes_elsewhere(client, &ranges, &outcome, &mut tries).await? {
                return outcome;
            }
        }
    }

    /// The same for one range. `hint` is the number of the leaf that may hold the key, 0 for none.
    pub(super) async fn put_in(
        &self,
        (range, hint): (&Range, u32),
        client: &mut Client<F>,
        (key, value): (&[u8], &[u8]),
        condition: Condition<'_>,
    ) -> Result<PutOutcome> {
        let mut client = client.pin(condition.op_kind()).await?;
        let (kind, expected) = condition_word(condition);
        let mut request = Request { words: vec![kind, u64::from(hint)], ..Request::default() };
        if Self::cannot_equal(&client, expected) {
            return Ok(PutOutcome::Refused);
        }
        request.add(&mut client, range.descriptor.node, &[key, value, expected]).await?;
        let answer = request.call(&mut client, (&self.shared.descriptor, range), wire::PUT).await?;
        match wire::outcome(&answer)?.word() {
            Some(0) => Ok(PutOutcome::Inserted),
            Some(1) => Ok(PutOutcome::Replaced),
            Some(2) => Ok(PutOutcome::Refused),
            _ => Err(wire::strange()),
        }
    }

    /// Returns whether a value is longer than any that the index can hold.
    fn cannot_equal(client: &Client<F>, expected: &[u8]) -> bool {
        pair::class_within(client.pool().object_bytes_max(), 0, expected.len()).is_err()
    }

    pub(super) async fn delete_by_call(
        &self,
        client: &mut Client<F>,
        key: &[u8],
        condition: Condition<'_>,
    ) -> Result<bool> {
        OrderedIndex::<F>::check_key(self, key)?;
        let mut tries = 0;
        loop {
            let ranges = self.shared.ranges();
            let outcome = self.delete_in(ranges.of(key), client, key, condition).await;
            if outcome.is_ok() || !self.goes_elsewhere(client, &ranges, &outcome, &mut tries).await? {
                return outcome;
            }
        }
    }

    async fn delete_in(
        &self,
        range: &Range,
        client: &mut Client<F>,
        key: &[u8],
        condition: Condition<'_>,
    ) -> Result<bool> {
        let mut client = client.pin(OpKind::Delete).await?;
        let (kind, expected) = condition_word(condition);
        if Self::cannot_equal(&client, expected) {
            return Ok(false);
        }
        let mut request = Request { words: vec![kind], ..Request::default() };
        request.add(&mut client, range.descriptor.node, &[key, expected]).await?;
        let answer = request.call(&mut client, (&self.shared.descriptor, range), wire::DELETE).await?;
        wire::outcome(&answer)?.word().map(|gone| gone != 0).ok_or_else(wire::strange)
    }

    /// Returns the first pairs of a range of keys, from one range of the index after another.
    pub(super) async fn pairs_of(
        &self,
        client: &mut Client<F>,
        scan: &ScanRange,
        limit: usize,
    ) -> Result<Vec<KeyValue>> {
        let (mut pairs, mut left, mut tries) = (Vec::new(), scan.clone(), 0);
        loop {
            let ranges = self.shared.ranges();
            let (range, mut part) = ranges.part_of(&left);
            let whole = part.clone();
            let outcome = self.pairs_in(range, client, &mut part, (limit, &mut pairs)).await;
            if outcome.is_ok() {
                if pairs.len() >= limit || !ranges::behind(&mut left, &whole) {
                    return Ok(pairs);
                }
                continue;
            }
            if left.reverse {
                left.to = part.to;
            } else {
                left.from = part.from;
            }
            if !self.goes_elsewhere(client, &ranges, &outcome, &mut tries).await? {
                return outcome.map(|()| pairs);
            }
        }
    }

    /// Adds the pairs of a scan's part in a range, and narrows the scan to the rest.
    async fn pairs_in(
        &self,
        range: &Range,
        client: &mut Client<F>,
        part: &mut ScanRange,
        (limit, pairs): (usize, &mut Vec<KeyValue>),
    ) -> Result<()> {
        let Range { sight, descriptor, .. } = range;
        let mut changes = 0;
        while changes < SCAN_CHANGES_MAX {
            let mut client = client.pin(OpKind::Scan).await?;
            let Some(models) = sight.models(&mut client, descriptor).await? else { break };
            let mut walk = Walk::new(descriptor, &models, sight, part, limit - pairs.len());
            let end = walk.run(&mut client).await?;
            pairs.append(&mut walk.pairs);
            let mut left = part.clone();
            walk.narrow(&mut left);
            match end {
                ScanEnd::Over => return Ok(()),
                ScanEnd::Open if left != *part => {}
                ScanEnd::Changed => changes += 1,
                ScanEnd::Open | ScanEnd::Astray => changes = SCAN_CHANGES_MAX,
            }
            *part = left;
        }
        self.scan_by_calls(range, client, part, (limit, pairs)).await
    }

    /// The same by as many calls as the words need.
    async fn scan_by_calls(
        &self,
        range: &Range,
        client: &mut Client<F>,
        part: &mut ScanRange,
        (limit, pairs): (usize, &mut Vec<KeyValue>),
    ) -> Result<()> {
        while pairs.len() < limit {
            let mut client = client.pin(OpKind::Scan).await?;
            let left = (limit - pairs.len()) as u64;
            let mut request = Request { words: vec![range_word(part), left], ..Request::default() };
            let (from, to) = (bound_bytes(&part.from), bound_bytes(&part.to));
            request.add(&mut client, range.descriptor.node, &[from, to]).await?;
            let answer = request.call(&mut client, (&self.shared.descriptor, range), wire::SCAN).await?;
            let mut reader = wire::outcome(&answer)?;
            let (behind, count) = (reader.word(), reader.word());
            let (Some(behind), Some(count)) = (behind, count.filter(|&count| count <= left)) else {
                return Err(wire::strange());
            };
            let mut found = Vec::new();
            for _ in 0..count {
                found.push(taken_pair(&mut client, &mut reader).await?);
            }
            let last = found.last().map(|(last, _)| Bound::Excluded(last.clone()));
            pairs.append(&mut found);
            let cursor = match (behind, last) {
                (wire::SCAN_MORE, Some(last)) => last,
                (wire::SCAN_ENDED, _) => match reader.text() {
                    Some(Taken::Plain(low)) if part.reverse => Bound::Excluded(low),
                    Some(Taken::Plain(high)) => Bound::Included(high),
                    _ => return Err(wire::strange()),
                },
                _ => return Ok(()),
            };
            *(if part.reverse { &mut part.to } else { &mut part.from }) = cursor;
        }
        Ok(())
    }
}

impl Range {
    /// Returns the leaf that holds a key according to the cache, 0 if unknown; the server verifies
    /// it.
    pub(super) fn leaf_hint(&self, key: &[u8]) -> u32 {
        let Some(models) = self.sight.recent() else { return 0 };
        let step = self.sight.way(&models, model_key(key), (0, 0)).step();
        let entries = match &step {
            RouteStep::Leaves(leaves) => &leaves.entries[..],
            RouteStep::Children(entries) => entries,
            _ => &[],
        };
        match entries {
            [(_, entry)] if entry.is_valid() => entry.number(),
            _ => 0,
        }
    }
}

/// Posts READs until all lookups are complete or left to calls.
async fn read_all<F: Fabric>(client: &mut Pinned<'_, F>, lookups: &mut [Option<Lookup<'_>>]) -> Result<()> {
    loop {
        let mut batch = client.batch();
        let posted: Vec<Reads> = lookups
            .iter_mut()
            .map(|lookup| lookup.as_mut().map_or_else(Reads::new, |lookup| lookup.post(client, &mut batch)))
            .collect();
        if batch.is_empty() {
            client.recycle(batch);
            return Ok(());
        }
        let done = client.submit(batch).await?;
        let outcome = lookups
            .iter_mut()
            .zip(&posted)
            .filter(|(_, reads)| !reads.is_empty())
            .filter_map(|(lookup, reads)| lookup.as_mut().zip(Some(reads)))
            .try_for_each(|(lookup, reads)| lookup.absorb(client, &done, reads));
        client.recycle(done);
        outcome?;
    }
}

/// Returns as many of the first keys as fit in a request, at least one.
fn within_request<'a, 'k>(keys: &'a [&'k [u8]]) -> &'a [&'k [u8]] {
    let mut words = 0;
    let fit = keys.iter().take_while(|key| {
        words += key.len() / 8 + 2;
        words <= REQUEST_WORDS
    });
    &keys[..fit.count().max(1)]
}

/// Takes a pair from a reply to a scan.
async fn taken_pair<F: Fabric>(client: &mut Client<F>, reader: &mut Reader<'_>) -> Result<KeyValue> {
    match reader.text().ok_or_else(wire::strange)? {
        Taken::Plain(key) => match reader.text() {
            Some(Taken::Plain(value)) => Ok((key, value)),
            _ => Err(wire::strange()),
        },
        Taken::Blob(addr, class) => {
            let words = client.read(addr, pair::class_words(class)).await?;
            let held = pair::parse(addr, &words)?;
            Ok((held.key.to_vec(), held.value.to_vec()))
        }
        Taken::Absent => Err(wire::strange()),
    }
}
