//! Operations: writes are calls, which the server answers in one round trip; reads find their leaves
//! by models, and are calls where these lead nowhere.

pub(crate) mod look;
pub(crate) mod lookup;
mod scan;
mod tree;
pub(crate) mod view;

use super::model::{Step, SubModel, View, model_key};
use super::wire::{self, REQUEST_WORDS, Reader, Taken, Text};
use super::{Shared, XStore, bound_bytes, condition_word, range_word};
use darter_fabric::{Fabric, OpKind};
use darter_index::radix::drafts::Drafts;
use darter_index::radix::leaf as pair;
use darter_index::{Condition, IndexError, KeyValue, OrderedIndex, PutOutcome, Result, ScanRange};
use darter_pool::size_class::class_bytes;
use darter_pool::{AllocKind, Client, Pinned};
use lookup::Lookup;
use scan::{End, Walk};
use std::ops::Bound;

/// Words of a string that goes by a blob when a request would be too long.
const SPILLED_WORDS: usize = 64;

/// Leaves that may change under a scan by READs before it goes on by calls.
const SCAN_CHANGES_MAX: u32 = 4;

/// A request being made, with the blobs of its long strings, which live until the answer has come.
#[derive(Default)]
struct Request {
    words: Vec<u64>,
    blobs: Drafts,
}

impl Request {
    /// Adds strings, whose long ones go by blobs where there are too many words.
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

    /// Calls, and gives the blobs back. When it is not known what became of the call they are left
    /// to the sweep: its procedure may still read them.
    async fn call<F: Fabric>(mut self, client: &mut Client<F>, node: u8, procedure: u64) -> Result<Vec<u64>> {
        let answer = client.call(node, procedure, self.words).await?;
        self.blobs.discard(client);
        Ok(answer)
    }
}

impl<F: Fabric> XStore<F> {
    fn node(&self) -> u8 {
        self.shared.descriptor.node
    }

    /// The memory node whose server runs the calls.
    fn server(&self) -> u8 {
        self.shared.descriptor.server
    }

    /// Calls a procedure; returns the answer's words behind the first.
    ///
    /// # Errors
    /// Those of the server and the fabric.
    pub(super) async fn call(
        &self,
        client: &mut Client<F>,
        procedure: u64,
        words: Vec<u64>,
    ) -> Result<Vec<u64>> {
        let answer = client.call(self.server(), procedure, words).await?;
        Ok(wire::outcome(&answer)?.0.to_vec())
    }

    /// Refuses keys and values that the index has no room for.
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

    /// The values of keys, in their order; each has been checked.
    pub(super) async fn values_of(
        &self,
        client: &mut Client<F>,
        keys: &[&[u8]],
        kind: OpKind,
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let mut client = client.pin(kind).await?;
        let Shared { sight, descriptor, .. } = &*self.shared;
        let Some(models) = sight.models(&mut client, descriptor).await? else {
            return self.values_by_calls(&mut client, keys, None).await;
        };
        let mut lookups: Vec<_> =
            keys.iter().map(|key| Lookup::new(descriptor, &models, sight, key)).collect();
        loop {
            let mut batch = client.batch();
            let posted: Vec<_> = lookups.iter_mut().map(|lookup| lookup.post(&client, &mut batch)).collect();
            if batch.is_empty() {
                client.recycle(batch);
                break;
            }
            let done = client.submit(batch).await?;
            let outcome = lookups
                .iter_mut()
                .zip(&posted)
                .filter(|(_, reads)| !reads.is_empty())
                .try_for_each(|(lookup, reads)| lookup.absorb(&client, &done, reads));
            client.recycle(done);
            outcome?;
        }
        let (mut values, mut left, mut submodel) = (Vec::with_capacity(keys.len()), Vec::new(), None);
        for (at, lookup) in lookups.into_iter().enumerate() {
            if !lookup.is_known() {
                left.push(at);
                submodel = submodel.or(lookup.submodel());
            }
            values.push(lookup.into_value());
        }
        if !left.is_empty() {
            let asked: Vec<&[u8]> = left.iter().map(|&at| keys[at]).collect();
            let wanted = submodel.map(|submodel| (models.view, submodel));
            let found = self.values_by_calls(&mut client, &asked, wanted).await?;
            left.into_iter().zip(found).for_each(|(at, value)| values[at] = value);
        }
        Ok(values)
    }

    /// The same by calls, the first of which brings the words of a sub-model, too.
    async fn values_by_calls(
        &self,
        client: &mut Pinned<'_, F>,
        keys: &[&[u8]],
        mut wanted: Option<(View, u32)>,
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let mut values = Vec::with_capacity(keys.len());
        while values.len() < keys.len() {
            let asked = within_request(&keys[values.len()..]);
            let model = wanted.take();
            let word = wire::submodel_word(model.map(|(view, submodel)| (view.generation, submodel)));
            let mut request = Request { words: vec![asked.len() as u64, word], ..Request::default() };
            request.add(client, self.node(), asked).await?;
            let answer = request.call(client, self.server(), wire::GET).await?;
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
                self.shared.sight.cache.learn_submodel(view, submodel, words);
            }
        }
        Ok(values)
    }

    /// The leaf where the cache says that a key is, 0 if it does not say; the server verifies it.
    pub(super) fn leaf_hint(&self, key: &[u8]) -> u32 {
        let Some(models) = self.shared.sight.recent() else { return 0 };
        let step = self.shared.sight.way(&models, model_key(key), (0, 0)).step();
        let entries = match &step {
            Step::Leaves(leaves) => &leaves.entries[..],
            Step::Children(entries) => entries,
            _ => &[],
        };
        match entries {
            [(_, entry)] if entry.is_valid() => entry.number(),
            _ => 0,
        }
    }

    /// Puts by a call. `hint` is the number of the leaf where the key may be, 0 for none: then the
    /// server need not search.
    pub(super) async fn put_by_call(
        &self,
        client: &mut Client<F>,
        (key, value): (&[u8], &[u8]),
        condition: Condition<'_>,
        hint: u32,
    ) -> Result<PutOutcome> {
        self.check_pair(client, key, value)?;
        let mut client = client.pin(condition.op_kind()).await?;
        let (kind, expected) = condition_word(condition);
        let mut request = Request { words: vec![kind, u64::from(hint)], ..Request::default() };
        if Self::cannot_equal(&client, expected) {
            return Ok(PutOutcome::Refused);
        }
        request.add(&mut client, self.node(), &[key, value, expected]).await?;
        let answer = request.call(&mut client, self.server(), wire::PUT).await?;
        match wire::outcome(&answer)?.word() {
            Some(0) => Ok(PutOutcome::Inserted),
            Some(1) => Ok(PutOutcome::Replaced),
            Some(2) => Ok(PutOutcome::Refused),
            _ => Err(wire::strange()),
        }
    }

    /// Whether a value is so long that the index holds none like it.
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
        let mut client = client.pin(OpKind::Delete).await?;
        let (kind, expected) = condition_word(condition);
        if Self::cannot_equal(&client, expected) {
            return Ok(false);
        }
        let mut request = Request { words: vec![kind], ..Request::default() };
        request.add(&mut client, self.node(), &[key, expected]).await?;
        let answer = request.call(&mut client, self.server(), wire::DELETE).await?;
        wire::outcome(&answer)?.word().map(|gone| gone != 0).ok_or_else(wire::strange)
    }

    /// The first pairs of a range.
    pub(super) async fn pairs_of(
        &self,
        client: &mut Client<F>,
        range: &ScanRange,
        limit: usize,
    ) -> Result<Vec<KeyValue>> {
        let Shared { sight, descriptor, .. } = &*self.shared;
        let (mut pairs, mut range, mut changes) = (Vec::new(), range.clone(), 0);
        while changes < SCAN_CHANGES_MAX {
            let mut client = client.pin(OpKind::Scan).await?;
            let Some(models) = sight.models(&mut client, descriptor).await? else { break };
            let mut walk = Walk::new(descriptor, &models, sight, &range, limit - pairs.len());
            let end = walk.run(&mut client).await?;
            pairs.append(&mut walk.pairs);
            let mut left = range.clone();
            walk.narrow(&mut left);
            match end {
                End::Over => return Ok(pairs),
                End::Open if left != range => {}
                End::Changed => changes += 1,
                End::Open | End::Astray => changes = SCAN_CHANGES_MAX,
            }
            range = left;
        }
        pairs.extend(self.scan_by_calls(client, &range, limit - pairs.len()).await?);
        Ok(pairs)
    }

    /// The first pairs of a range, in as many calls as their words need.
    async fn scan_by_calls(
        &self,
        client: &mut Client<F>,
        range: &ScanRange,
        limit: usize,
    ) -> Result<Vec<KeyValue>> {
        let (mut pairs, mut range) = (Vec::new(), range.clone());
        let mut has_more = limit > 0;
        while has_more {
            let mut client = client.pin(OpKind::Scan).await?;
            let left = (limit - pairs.len()) as u64;
            let mut request = Request { words: vec![range_word(&range), left], ..Request::default() };
            let (from, to) = (bound_bytes(&range.from), bound_bytes(&range.to));
            request.add(&mut client, self.node(), &[from, to]).await?;
            let answer = request.call(&mut client, self.server(), wire::SCAN).await?;
            let mut reader = wire::outcome(&answer)?;
            let (more, count) = (reader.word(), reader.word());
            let (Some(more), Some(count)) = (more, count.filter(|&count| count <= left)) else {
                return Err(wire::strange());
            };
            for _ in 0..count {
                pairs.push(taken_pair(&mut client, &mut reader).await?);
            }
            has_more = more != 0 && count > 0;
            if let Some((last, _)) = pairs.last() {
                let bound = Bound::Excluded(last.clone());
                *(if range.reverse { &mut range.to } else { &mut range.from }) = bound;
            }
        }
        Ok(pairs)
    }
}

/// As many of the first keys as a request has room for, one at least.
fn within_request<'a, 'k>(keys: &'a [&'k [u8]]) -> &'a [&'k [u8]] {
    let mut words = 0;
    let fit = keys.iter().take_while(|key| {
        words += key.len() / 8 + 2;
        words <= REQUEST_WORDS
    });
    &keys[..fit.count().max(1)]
}

/// Takes a pair off an answer to a scan.
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
